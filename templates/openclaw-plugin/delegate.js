// Durable delegation: the tool `mailboxd_delegate` writes a task into the agent's own mailbox/inbox/ and answers at once;
// the daemon carries it out, and its result comes back into the chat. Where the operator wants it (`openclaw.delegate:
// takeover`), calls of `sessions_spawn` and `sessions_send` become such tasks.
//
// A call that is taken over goes on as it is (a native sub-agent) when anything fails before the task's file is in place,
// and never afterwards: then the work would be done twice. OpenClaw blocks a call whose hook throws or takes 15 s.

import { Delegations } from "./delegations.js";
import { deliver, INBOX, withDirectory } from "./files.js";
import { isChatOf } from "./sessions.js";
import { isSelf, mayReach, peerNamed, readStanding, refusalOf } from "./standing.js";
import { asDelegation } from "./takeover.js";
import { callDigest, canAnswer, renderTask, taskId, textProblem, titleOf } from "./taskfile.js";
import { noteWorkspaceWithTools, workspaceWithTools } from "./workspaces.js";

export const TOOL = "mailboxd_delegate";
const TAKEN = new Set(["sessions_spawn", "sessions_send"]);
const BY_SEARCH = "tool_call"; // how 2026.9.6 calls tools that it does not show
const DEADLINE_MS = 2_000;
const MOST_CALLS = 1_000;
const RESUMED = /^\[System\] Your previous turn was interrupted/; // how a gateway begins what another one's death broke off

// One for the whole gateway, like the table of workspaces.
const SHARED = Symbol.for("mailboxd.delegate");

export function register(api) {
  globalThis[SHARED] ??= {
    delegations: new Delegations(),
    runs: new Map(), // call -> its run, which only the hook is told
    resumed: new Map(), // run -> true, for those that go on with what another gateway's death broke off
    given: new Map(), // what was asked -> answers that the rewritten call has to give
  };
  const { delegations, runs, resumed, given } = globalThis[SHARED];

  api.registerTool(
    (ctx) => {
      noteWorkspaceWithTools(ctx);
      const place = placeOf(ctx, ctx.workspaceDir);
      if (place === null) return null;
      return toolFor(place.standing, async (callId, args) => {
        const asked = keyOf(ctx.sessionKey, args);
        const answer = given.get(asked)?.shift()?.answer;
        if (answer !== undefined) return answer;
        const runId = runs.get(`${ctx.sessionKey}\0${callId}`) ?? ctx.sessionId ?? "";
        const place = placeOf(ctx, ctx.workspaceDir);
        if (place === null) return refused("mailboxd no longer takes work here");
        const by = personOf({ channel: ctx.messageChannel, senderId: ctx.requesterSenderId });
        const isResumed = resumed.has(runId);
        const call = { tool: TOOL, sessionKey: ctx.sessionKey, sessionId: ctx.sessionId ?? "", runId, callId, by, isResumed };
        try {
          return await give(place, call, args, delegations, {});
        } catch (problem) {
          api.logger.error(`work that ${ctx.agentId} gave away was not stored: ${problem?.code ?? "unexpected error"}`);
          return refused(`the task could not be stored (${problem?.code ?? "unexpected error"}); nothing was begun`);
        }
      });
    },
    { names: [TOOL] },
  );

  api.on("before_agent_reply", async (event, ctx) => {
    if (ctx.runId && RESUMED.test(event.cleanedBody ?? "")) remember(resumed, ctx.runId, true);
    return undefined;
  });

  api.on("before_tool_call", async (event, ctx) => {
    try {
      const callId = event.toolCallId ?? ctx.toolCallId ?? "";
      const wanted = calledTool(event);
      if (wanted.tool === TOOL) {
        remember(runs, `${ctx.sessionKey}\0${callId}`, event.runId ?? ctx.runId ?? "");
        return undefined;
      }
      if (!TAKEN.has(wanted.tool)) return undefined;
      const place = placeOf(ctx, workspaceWithTools(ctx.agentId));
      if (place === null || place.standing.mode !== "takeover") return undefined;
      const args = asDelegation(wanted.tool, wanted.args, place.standing);
      if (args === null || !mayReach(place.standing, args.agent)) return undefined;
      const runId = event.runId ?? ctx.runId ?? "";
      const call = { tool: wanted.tool, sessionKey: ctx.sessionKey, sessionId: ctx.sessionId ?? "", runId, callId };
      const whole = { ...call, by: personOf(ctx.requester), isResumed: resumed.has(runId) };
      const answer = await withDeadline(DEADLINE_MS, (moment) => give(place, whole, args, delegations, moment));
      return wanted.bySearch ? rewritten(given, call, args, answer) : { block: true, blockReason: answer };
    } catch (problem) {
      // nothing is in place: the native tool does it
      api.logger.warn(`a sub-agent is not durable: ${problem?.code ?? problem?.message ?? "unexpected error"}`);
      return undefined;
    }
  });

  // Where `tools.allow` hides our tool, a call that became one of it fails, although its task is in place.
  api.registerAgentToolResultMiddleware(
    (event, ctx) => {
      if (event?.toolName !== BY_SEARCH || event.args?.id !== TOOL || !event.isError) return undefined;
      const answer = given.get(keyOf(ctx?.sessionKey, event.args.args))?.shift()?.answer;
      return answer === undefined ? undefined : { result: answer };
    },
    { runtimes: ["openclaw"] },
  );

  api.on("agent_end", async (event, ctx) => {
    try {
      const runId = event.runId ?? ctx.runId ?? "";
      resumed.delete(runId);
      // one that was broken off may be resumed
      if (event.success !== false) await delegations.ended(runId);
    } catch {
      // what is left is forgotten after an hour
    }
  });
}

// Where an agent gives work away: `{standing, workspace}`; null if not in this session.
//
// Not in mailboxd's own turns, where a plan is the answer; not in those of sub-agents, whose sessions nobody reads later.
function placeOf({ agentId, sessionKey }, workspace) {
  if (!agentId || !sessionKey || !workspace || !canAnswer(sessionKey)) return null;
  if (!isChatOf(sessionKey, agentId)) return null;
  const standing = readStanding(workspace);
  return standing !== null && isSelf(standing, agentId) ? { standing, workspace } : null;
}

// Stores the task and returns the answer for the model. Throws if it is certainly not stored.
async function give({ standing, workspace }, call, args, delegations, moment) {
  const agent = String(args.agent ?? "self").trim();
  const isPeer = !isSelf(standing, agent);
  const problem = refusalOf(standing, agent) || textProblem(args, isPeer, Date.now());
  if (problem) return refused(problem);
  const title = titleOf(args.title, args.task);
  const digest = callDigest(call.sessionKey, call.runId, call.callId);
  const content = callDigest(call.sessionKey, agent.toLowerCase(), args);
  const entry = await delegations.begin(workspace, call, content, { id: taskId(title, digest), at: new Date().toISOString() });
  const to = isPeer ? peerNamed(standing, agent) : "";
  const said = { id: entry.id, from: standing.agent, to, at: entry.at, title, texts: args, asked: { ...call, ...entry.asked } };
  const raw = renderTask(said);
  if (raw.length > standing.bytes) return refused(`the task has ${raw.length} bytes; the limit is ${standing.bytes}`);
  const placing = () => {
    if (moment.isLate) throw Object.assign(new Error("too slow"), { code: "ETIMEDOUT" });
    moment.isPlaced = true;
  };
  const done = await withDirectory(workspace, INBOX, (inbox) => put(inbox, `task-${entry.id}.md`, raw, placing));
  if (done === null) throw new Error("there is no directory mailbox/inbox");
  return JSON.stringify({
    status: "accepted",
    task: entry.id,
    agent: isPeer ? to : standing.agent,
    note: "It is stored and survives restarts. Do not wait or ask for it: end your turn. The result comes into this chat by itself.",
  });
}

// One that has appeared counts, though it might not survive a power failure: it may be read by now.
async function put(inbox, name, raw, placing) {
  await deliver(inbox, name, raw, placing).catch((problem) => {
    if (!problem.appeared) throw problem;
  });
  return true;
}

// Waits until the work is done, but only so long if its file is not being put in place: from then on it never is.
function withDeadline(milliseconds, work) {
  const moment = { isLate: false, isPlaced: false };
  const working = work(moment);
  working.catch(() => {});
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      if (moment.isPlaced) return;
      moment.isLate = true;
      reject(Object.assign(new Error("too slow"), { code: "ETIMEDOUT" }));
    }, milliseconds);
  });
  return Promise.race([working, late]).finally(() => clearTimeout(timer));
}

// The tool that a call means, also behind tool search.
function calledTool(event) {
  if (event.toolName !== BY_SEARCH) return { tool: event.toolName, args: event.params, bySearch: false };
  const id = typeof event.params?.id === "string" ? event.params.id : "";
  return { tool: id.split(/[:/]/).at(-1), args: event.params?.args, bySearch: true };
}

// Has the call end as one of our tool, which gives this answer.
function rewritten(given, { sessionKey, runId }, args, answer) {
  const key = keyOf(sessionKey, args);
  remember(given, key, [...(given.get(key) ?? []), { runId, answer: result(answer) }]);
  return { params: { id: TOOL, args } };
}

function keyOf(sessionKey, args) {
  return callDigest(sessionKey, ...["agent", "task", "title", "timeout", "model", "wake"].map((name) => args?.[name] ?? ""));
}

function remember(map, key, value) {
  map.delete(key);
  map.set(key, value);
  if (map.size > MOST_CALLS) map.delete(map.keys().next().value);
}

function personOf(requester) {
  return [requester?.channel, requester?.senderId].filter(Boolean).join(":");
}

function refused(reason) {
  return JSON.stringify({ status: "refused", reason });
}

function result(text) {
  return { content: [{ type: "text", text }] };
}

function toolFor(standing, execute) {
  const peers = Object.entries(standing.peers ?? {}).filter(([name]) => name !== "*").map(([name, role]) => (role ? `${name} (${role})` : name));
  const whom = peers.length === 0 ? "yourself in a separate turn (self)" : `${peers.join(", ")}, or yourself in a separate turn (self)`;
  const text = (description) => ({ type: "string", description });
  return {
    name: TOOL,
    label: "Delegate (durable)",
    // 2026.9.6 hides tools behind a search, and refuses to call a hidden one by its name. But only such a one can be
    // what a search's call is rewritten to.
    ...(standing.mode === "takeover" ? {} : { catalogMode: "direct-only" }),
    description:
      `Give a piece of work to ${whom}. It is stored before this tool answers: it survives restarts, is retried and ` +
      "reviewed as the operator wants. Use it for work that takes minutes or must not be lost. Do not wait for it: end " +
      "your turn, and the result comes into this chat by itself.",
    parameters: {
      type: "object",
      additionalProperties: false,
      required: ["agent", "task"],
      properties: {
        agent: text("one of these agents, or self"),
        task: text("everything that the agent needs to know: it does not see this chat"),
        expected: text("what it has to deliver, so that it can be checked"),
        title: text("a few words for lists"),
        context: text("background that is no instruction"),
        deadline: text("a time like 2026-12-01T17:00:00Z, only if it must not be later"),
        wake: { type: "boolean", description: "true if you have to go on when the result is there" },
        timeout: { type: "integer", minimum: 1, description: "seconds that one attempt may take" },
        model: text(`only if asked for: ${standing.models.join(", ") || "none may be chosen"}`),
      },
    },
    execute: async (callId, args) => {
      const answer = await execute(callId, args ?? {});
      return typeof answer === "string" ? result(answer) : answer;
    },
  };
}
