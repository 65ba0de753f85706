// A delegated task as a message file. Pure functions without dependencies; the daemon reads it like any other task.

import { createHash } from "node:crypto";

const MOST_TITLE = 120;
const MOST_SLUG = 40;
const ADDRESS = /^session:[!-~]{1,200}$/;
const PLAN = /^#{1,6}[ \t]*dag\b/im;
const YEAR = 366 * 24 * 3600;

// The same for a repeat of a call, another for every other call.
export function callDigest(...parts) {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

// An id that people can read, from a title or label and the digest of the call.
export function taskId(title, digest) {
  const words = title.normalize("NFKD").replace(/[^A-Za-z0-9]+/g, "-").toLowerCase().slice(0, MOST_SLUG);
  const slug = words.replace(/^-+|-+$/g, "");
  return slug === "" ? `task-${digest.slice(0, 10)}` : `${slug}-${digest.slice(0, 10)}`;
}

export function titleOf(label, task) {
  const line = (label || task.trimStart()).split(/\r?\n/, 1)[0].replace(/^(?:#+|[-*+](?: \[ ?\])?)\s+/, "");
  const clean = line.replace(/[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu, " ").replace(/\s+/g, " ").trim();
  const cut = [...clean].slice(0, MOST_TITLE).join("");
  return cut.length < clean.length ? `${cut.trimEnd()}...` : cut || "Delegated work";
}

// Whether a result can find its way back into this session.
export function canAnswer(sessionKey) {
  return ADDRESS.test(`session:${sessionKey}`);
}

// Why the texts cannot be a task, or "".
export function textProblem({ task, deadline, timeout }, isPeer, now) {
  if (task.trim() === "") return "the task is empty: write everything that the agent needs to know";
  if (isPeer && PLAN.test(task)) return "a task for another agent has no plan (## DAG): that agent makes its own";
  if (deadline) {
    const at = Date.parse(deadline);
    if (Number.isNaN(at)) return `the deadline ${deadline} is no time; write it like 2026-12-01T17:00:00Z`;
    if (at <= now) return `the deadline ${deadline} has passed`;
  }
  if (timeout !== undefined && !(Number.isInteger(timeout) && timeout > 0 && timeout <= YEAR)) {
    return "the timeout is no number of seconds";
  }
  return "";
}

// The bytes of the file. `asked` says who asked, for the chain of hand-overs: {sessionKey, sessionId, runId, callId, by}.
export function renderTask({ id, from, to, at, title, texts, asked }) {
  const headers = [
    ["type", "task"],
    ["task_id", id],
    ["from", from],
    ["message_id", `dlg-${id}`.slice(0, 128)],
    ["sent_at", at],
    ["agent", to],
    // a row of the chat costs no call of the model; an agent that has to go on is woken by a turn
    ["reply_to", `${texts.wake ? "wake" : "session"}:${asked.sessionKey}`],
    ["deadline", texts.deadline ? new Date(texts.deadline).toISOString() : ""],
    ["timeout", texts.timeout ? String(texts.timeout) : ""],
    ["model", texts.model ?? ""],
    ["x-asked-in", asked.sessionKey],
    ["x-asked-session", asked.sessionId],
    ["x-asked-run", asked.runId],
    ["x-asked-call", asked.callId],
    ["x-asked-by", asked.by],
    ["x-asked-with", asked.tool],
  ];
  const lines = headers.filter(([, value]) => value).map(([name, value]) => `${name}: ${quoted(value)}\n`);
  const sections = [
    ["Context", texts.context],
    ["Instructions", texts.task],
    ["Expected Output", texts.expected],
  ];
  const body = sections.filter(([, text]) => text?.trim()).map(([name, text]) => `\n## ${name}\n\n${text.trim()}\n`);
  return Buffer.from(`---\n${lines.join("")}---\n\n# Task: ${title}\n${body.join("")}`.replaceAll("\0", "\ufffd"));
}

function quoted(value) {
  const line = value.replace(/[\p{Cc}\p{Cs}\u2028\u2029]/gu, " ").slice(0, 500);
  return `'${line.replaceAll("'", "''")}'`;
}
