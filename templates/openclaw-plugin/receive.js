// Takes a mailbox protocol message to an agent with a mailbox: it is put into the agent's mailbox/inbox/ and acknowledged
// without calling the model. All other messages pass: chats, and mailboxd's own turns, which begin with `[mailboxd]`.
//
// It never throws, because OpenClaw would then give the message to the model, and it acknowledges a message only once it
// is durable. A failed delivery is answered with an error, which the sender's mailboxd treats as a failed turn. It never
// logs the contents of messages.

import { deliver, INBOX, withDirectory } from "./files.js";
import { acknowledge, fileName, isFor, MOST_BYTES, readMessage, restore } from "./message.js";
import { isOurs, readKey } from "./sessions.js";

// The sender's mailboxd recognizes the first by its prefix and sends the message again.
const NOT_DELIVERED = "mailboxd: the message was not delivered";
const UNCERTAIN = "mailboxd: the message may be lost";
const REFUSED = "mailboxd: the message was refused";

async function receive(message, agent, inbox) {
  const raw = restore(message);
  if (raw === null) return refusal(REFUSED, "its body does not match its headers `bytes` or `sha256`");
  if (raw.length > MOST_BYTES) return refusal(REFUSED, `it has ${raw.length} bytes; the limit is ${MOST_BYTES}`);
  await deliver(inbox, fileName(message, raw), raw);
  return { handled: true, reply: { text: acknowledge(message, agent) } };
}

// OpenClaw's name for no channel. Versions up to 2026.9.2 or later use it for every turn.
const INTERNAL = "webchat";

// Whether this turn was started by `openclaw agent` or the gateway method of that name. Chats are excluded, because any
// participant could name any sender; their turns have a sender id. Turns of OpenClaw's HTTP interfaces have none, so a
// turn with the internal channel's name must also belong to a session that mailboxd created.
function isOrdered(ctx, agentId) {
  if (ctx.trigger !== "user" || ctx.senderId !== undefined || ctx.channelContext !== undefined) return false;
  const named = [ctx.channel, ctx.messageProvider].filter((name) => name !== undefined);
  if (named.length === 0) return true;
  return named.every((name) => name === INTERNAL) && isOurs(ctx.sessionKey) && readKey(ctx.sessionKey).agent === agentId.toLowerCase();
}

function refusal(what, reason) {
  return { handled: true, reply: { text: `${what}: ${reason}.`, isError: true } };
}

export function register(api) {
  api.on(
    "before_agent_reply",
    async (event, ctx) => {
      const { agentId, workspaceDir } = ctx;
      if (!agentId || !workspaceDir || !isOrdered(ctx, agentId)) return undefined;
      const message = readMessage(event.cleanedBody);
      if (message === null || !isFor(message, agentId)) return undefined;
      try {
        return (await withDirectory(workspaceDir, INBOX, (inbox) => receive(message, agentId, inbox))) ?? undefined;
      } catch (problem) {
        const reason = problem?.code ?? "unexpected error";
        api.logger.error(`a message for ${agentId} was not delivered: ${reason}`);
        const what = problem?.appeared ? UNCERTAIN : NOT_DELIVERED;
        return refusal(what, `${reason} in the mailbox of ${agentId}`);
      }
    },
    { eligibleTriggers: ["user"] },
  );
}
