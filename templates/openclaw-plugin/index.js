// mailboxd's plugin for the OpenClaw gateway. A message of the mailbox protocol that is sent to an agent with a
// mailbox is put into its mailbox/inbox/ and acknowledged; the model is not called. Everything else passes: whatever is
// said in a chat, and the turns that mailboxd itself orders, which begin with `[mailboxd]`.
//
// It never throws, for OpenClaw would then go on and give the message to the model; and it never acknowledges what is
// not durably in the inbox. What cannot be delivered is answered with an error, which the sender's mailboxd takes as a
// failed turn. Contents of messages are not logged.

import { deliver, withInbox } from "./inbox.js";
import { acknowledge, fileName, isFor, MOST_BYTES, readMessage, restore } from "./message.js";

// The sender's mailboxd knows the first by its beginning: the message is nowhere, so it may send it again.
const NOT_DELIVERED = "mailboxd: the message was not delivered";
const UNCERTAIN = "mailboxd: the message may be lost";
const REFUSED = "mailboxd: the message was refused";

async function receive(message, agent, inbox) {
  const raw = restore(message);
  if (raw === null) return refusal(REFUSED, "its body is not the one that `bytes` or `sha256` declare");
  if (raw.length > MOST_BYTES) return refusal(REFUSED, `it has ${raw.length} bytes, ${MOST_BYTES} are allowed`);
  await deliver(inbox, fileName(message, raw), raw);
  return { handled: true, reply: { text: acknowledge(message, agent) } };
}

// The channel that OpenClaw names when there is none. Up to some version after 2026.9.2 it names it for every turn.
const INTERNAL = "webchat";

// Whether `openclaw agent`, or the gateway's method of that name, ordered this turn. A chat is never that: who writes
// there may be anybody who is let in, and could name any sender. Each of its turns has the id of its writer. The turns
// of OpenClaw's HTTP interfaces have none, so a turn that carries the internal channel's name has to be one of a session
// that mailboxd made, too.
function isOrdered(ctx, agentId) {
  if (ctx.trigger !== "user" || ctx.senderId !== undefined || ctx.channelContext !== undefined) return false;
  const named = [ctx.channel, ctx.messageProvider].filter((name) => name !== undefined);
  if (named.length === 0) return true;
  return named.every((name) => name === INTERNAL) && isOwnSession(ctx.sessionKey, agentId);
}

function isOwnSession(key, agentId) {
  return typeof key === "string" && key.toLowerCase().startsWith(`agent:${agentId.toLowerCase()}:mailboxd:`);
}

function refusal(what, reason) {
  return { handled: true, reply: { text: `${what}: ${reason}.`, isError: true } };
}

export default {
  id: "mailboxd",
  name: "mailboxd",
  description: "Puts messages of the mailbox protocol into the receiver's mailbox/inbox/.",
  register(api) {
    api.on(
      "before_agent_reply",
      async (event, ctx) => {
        const { agentId, workspaceDir } = ctx;
        if (!agentId || !workspaceDir || !isOrdered(ctx, agentId)) return undefined;
        const message = readMessage(event.cleanedBody);
        if (message === null || !isFor(message, agentId)) return undefined;
        try {
          return (await withInbox(workspaceDir, (inbox) => receive(message, agentId, inbox))) ?? undefined;
        } catch (problem) {
          const reason = problem?.code ?? "unexpected error";
          api.logger.error(`a message for ${agentId} was not delivered: ${reason}`);
          const what = problem?.appeared ? UNCERTAIN : NOT_DELIVERED;
          return refusal(what, `${reason} in the mailbox of ${agentId}`);
        }
      },
      { eligibleTriggers: ["user"] },
    );
  },
};
