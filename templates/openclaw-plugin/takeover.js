// What a call of `sessions_spawn` or `sessions_send` asks for, as arguments of `mailboxd_delegate`; or null if a task
// cannot stand for it, so that OpenClaw carries it out itself. Pure.
//
// Only calls of which every argument is understood are taken: one that is not may be what the caller relies on
// (`collect`, `outputSchema`, a fork of the conversation, a directory, a sandbox, attachments ...).

import { readKey } from "./sessions.js";

const WAITS = new Set(["", "auto"]);

// Arguments that may be left out, with what they say when they say nothing special.
const SPAWN = {
  task: any, label: any, taskName: any, agentId: any, model: any,
  runTimeoutSeconds: any, timeoutSeconds: any,
  runtime: only("subagent"), mode: only("run"), cleanup: any, context: only("isolated"), sandbox: only("inherit"),
  thread: only(false), visible: only(false), collect: only(false), lightContext: any, worktree: only(false),
  expectsCompletionMessage: only(true),
};
const SEND = { sessionKey: any, agentId: any, message: any, timeoutSeconds: any, watch: only(false) };

export function asDelegation(tool, params, standing) {
  if (typeof params !== "object" || params === null) return null;
  if (tool === "sessions_spawn") return ofSpawn(params, standing);
  if (tool === "sessions_send") return ofSend(params, standing);
  return null;
}

function ofSpawn(params, standing) {
  if (!fits(params, SPAWN) || typeof params.task !== "string" || params.task.trim() === "") return null;
  const model = said(params.model);
  if (model && !standing.models.includes(model)) return null;
  const timeout = [params.runTimeoutSeconds, params.timeoutSeconds].find((one) => Number.isInteger(one) && one > 0);
  return {
    agent: said(params.agentId) || "self",
    task: params.task,
    wake: true, // as OpenClaw does when a sub-agent has ended
    title: said(params.label) || said(params.taskName) || undefined,
    ...(timeout === undefined ? {} : { timeout }),
    ...(model ? { model } : {}),
  };
}

// A message to another agent; what goes to one certain chat or sub-agent stays a message, and so does one to itself.
function ofSend(params, standing) {
  if (!fits(params, SEND) || typeof params.message !== "string" || params.message.trim() === "") return null;
  const key = readKey(said(params.sessionKey));
  const isMain = key !== null && ["main", key.agent].includes(key.rest);
  const agent = said(params.agentId) || (isMain ? key.agent : "");
  if (agent === "" || agent.toLowerCase() === standing.agent.toLowerCase()) return null;
  if (said(params.sessionKey) && !isMain) return null;
  return { agent, task: params.message, wake: true };
}

function fits(params, known) {
  return Object.entries(params).every(([name, value]) => isNothing(value) || (Object.hasOwn(known, name) && known[name](value)));
}

function isNothing(value) {
  return value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0);
}

function said(value) {
  return typeof value === "string" && !WAITS.has(value.trim()) ? value.trim() : "";
}

function any() {
  return true;
}

function only(usual) {
  return (value) => value === usual;
}
