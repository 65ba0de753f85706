// Results, questions and progress as rows of the session that asked: the person sees them at once and the model in every
// later turn, without a call of it. OpenClaw keeps the key of each row in the transcript, so a note that is sent again,
// by whatever crash, is not written again.
//
// Only rows of the assistant: one of the user would end a turn that runs in the session.

import { readKey } from "./sessions.js";

const MOST_TEXT = 64 * 1024;
const OTHER_TEXT = /idempotency key .* conflicts/i; // the row of this key is there, with another text
const INTERNAL = "webchat"; // OpenClaw's name for no messenger

export function register(api) {
  api.registerGatewayMethod(
    "mailboxd.note",
    async ({ params, respond }) => {
      try {
        const note = readNote(params);
        if (typeof note === "string") {
          respond(false, undefined, { code: "INVALID_REQUEST", message: `mailboxd.note: ${note}` });
        } else {
          respond(true, await write(note, sessionsOf(api), append));
        }
      } catch (problem) {
        api.logger.error(`a note was not written: ${problem?.message ?? problem}`);
        respond(false, undefined, { code: "UNAVAILABLE", message: `mailboxd.note: ${problem?.message ?? problem}` });
      }
    },
    { scope: "operator.write" },
  );
}

// The note in the parameters of a request, or what is wrong with them.
export function readNote(params) {
  const { key, sessionKey, text } = params ?? {};
  for (const [name, value, most] of [["key", key, 200], ["sessionKey", sessionKey, 512], ["text", text, MOST_TEXT]]) {
    if (typeof value !== "string" || value.trim() === "" || value.length > most) {
      return `${name} must be a text of at most ${most} characters`;
    }
  }
  const agentId = readKey(sessionKey)?.agent;
  return agentId === undefined ? "sessionKey must begin with agent:ID:" : { agentId, sessionKey, key, text };
}

// Writes the row, and says which messenger's chat the session belongs to: rows are not sent there. `status` is
// "written", "known" (an earlier request has written it), or "no-session".
export async function write(note, sessions, append) {
  for (const isLast of [false, true]) {
    const { agentId, sessionKey } = note;
    const session = sessions.find(agentId, sessionKey);
    if (!session?.sessionId) return { status: "no-session" };
    const chat = messenger(session);
    let done;
    try {
      done = await append({
        agentId,
        sessionKey,
        sessionId: session.sessionId,
        storePath: sessions.storePath(agentId),
        message: row(note),
        idempotencyLookup: "scan",
        updateMode: "inline",
      });
    } catch (problem) {
      if (!OTHER_TEXT.test(problem?.message)) throw problem;
      done = { kind: "result", result: { appended: false } };
    }
    if (done.kind === "result") {
      return { status: done.result.appended ? "written" : "known", sessionId: session.sessionId, ...(chat && { chat }) };
    }
    // "rejected: session-rebound": it was reset just now, and has a new id
    if (isLast) throw new Error(`OpenClaw did not take the row: ${done.reason ?? done.kind}`);
  }
}

function row({ key, text }) {
  return {
    role: "assistant",
    content: [{ type: "text", text }],
    api: "openai-responses",
    provider: "mailboxd",
    model: "mailboxd",
    stopReason: "stop",
    usage: {
      input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0,
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
    },
    timestamp: Date.now(),
    idempotencyKey: key,
  };
}

// Where the session's person is told outside of OpenClaw; undefined for a session of OpenClaw's own chat.
export function messenger(session) {
  const found = session.delivery?.kind === "external" ? session.delivery.context : session.deliveryContext;
  const { channel, to, accountId, threadId } = found ?? {};
  if (!channel || !to || channel === INTERNAL) return undefined;
  const more = [["accountId", accountId], ["threadId", threadId === undefined ? undefined : String(threadId)]];
  return { channel, to, ...Object.fromEntries(more.filter(([, value]) => value)) };
}

function sessionsOf(api) {
  const { getSessionEntry, resolveStorePath } = api.runtime.agent.session;
  return {
    find: (agentId, sessionKey) => getSessionEntry({ agentId, sessionKey }),
    storePath: (agentId) => resolveStorePath(api.config?.session?.store, { agentId }),
  };
}

// Not imported when the plugin is loaded: a version without it loses the notes, not the inbox.
async function append(params) {
  const transcripts = await import("openclaw/plugin-sdk/session-transcript-runtime");
  return transcripts.appendSessionTranscriptMessageByIdentityStrict(params);
}
