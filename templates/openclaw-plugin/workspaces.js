// Where each agent's workspace is, as OpenClaw says when it asks for the agent's tools. Hooks are not told.
//
// One table for the whole gateway: 2026.8.1 registers a plugin several times, its tools apart from its hooks.

const TABLE = Symbol.for("mailboxd.workspaces");
globalThis[TABLE] ??= new Map();

export function noteWorkspace({ agentId, workspaceDir }) {
  if (agentId && workspaceDir) globalThis[TABLE].set(agentId.toLowerCase(), workspaceDir);
}

// The agent's workspace, or "".
export function workspaceOf(agentId) {
  return globalThis[TABLE].get((agentId ?? "").toLowerCase()) ?? "";
}
