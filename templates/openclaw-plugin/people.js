// Who speaks, as far as this gateway vouches for them.
//
// A client of the gateway (its chat, its dashboard, whoever has its token) has scopes, whatever channel or sender it
// names: it is the gateway's operator, not a person. A message of a messenger has none, and a sender.

const WRITES = ["operator.write", "operator.admin"];

// `{ name, isOwner, by }` of a command's context, or null. `by` is what the daemon is told.
export function sender(ctx) {
  const scopes = ctx?.gatewayClientScopes;
  if (Array.isArray(scopes)) {
    return mayWrite(scopes) ? { name: "chat:webchat:owner", isOwner: true, by: { scopes } } : null;
  }
  const { channel, senderId } = ctx ?? {};
  if (scopes !== undefined || !isWord(channel) || !isWord(senderId) || channel === "webchat") return null;
  const name = `chat:${channel.toLowerCase()}:${senderId}`;
  return { name, isOwner: false, by: { channel: channel.toLowerCase(), sender: senderId } };
}

// The same of the client of a gateway method: it must be a paired device, whose key the gateway has checked.
export function device(client) {
  const id = client?.connect?.device?.id;
  const scopes = client?.connect?.scopes;
  if (!isWord(id) || !Array.isArray(scopes)) return null;
  return { name: `device:${id}`, isOwner: mayWrite(scopes), by: { device: id, scopes } };
}

function mayWrite(scopes) {
  return WRITES.some((scope) => scopes.includes(scope));
}

function isWord(value) {
  return typeof value === "string" && /^[!-~]{1,200}$/.test(value);
}
