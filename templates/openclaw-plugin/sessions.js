// What a session's key says: `agent:ID:REST`, in small letters where OpenClaw tells it. mailboxd's own sessions have a
// REST that begins with `mailboxd:`.

const KEY = /^agent:([^:]+):([^]+)$/i;

// `{agent, rest}`, in small letters; null for anything else.
export function readKey(key) {
  const found = typeof key === "string" ? KEY.exec(key.toLowerCase()) : null;
  return found === null ? null : { agent: found[1], rest: found[2] };
}

// Whether it is a session of one of mailboxd's turns.
export function isOurs(key) {
  return readKey(key)?.rest.startsWith("mailboxd:") === true;
}

// Whether people or other sessions talk with this agent in it: neither one of mailboxd's, nor that of a sub-agent.
export function isChatOf(key, agentId) {
  const found = readKey(key);
  if (found === null || found.agent !== agentId.toLowerCase() || isOurs(key)) return false;
  return !/(?:^|:)subagent:|^acp:/.test(found.rest);
}
