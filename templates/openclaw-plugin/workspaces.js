// Where each agent's workspace is, as OpenClaw says when a turn begins and when it asks for the agent's tools; the hooks of
// tools are not told.
//
// One table for the whole gateway: 2026.8.1 registers a plugin several times, its tools apart from its hooks.

const TABLE = Symbol.for("mailboxd.workspaces");
globalThis[TABLE] ??= { seen: new Map(), asked: new Map() };

export function noteWorkspace({ agentId, workspaceDir }) {
  if (agentId && workspaceDir) globalThis[TABLE].seen.set(agentId.toLowerCase(), workspaceDir);
}

// OpenClaw does not ask for tools that are denied to an agent.
export function noteWorkspaceWithTools(ctx) {
  noteWorkspace(ctx);
  if (ctx.agentId && ctx.workspaceDir) globalThis[TABLE].asked.set(ctx.agentId.toLowerCase(), ctx.workspaceDir);
}

// The agent's workspace, or "".
export function workspaceOf(agentId) {
  return globalThis[TABLE].seen.get((agentId ?? "").toLowerCase()) ?? "";
}

// The same if the agent may have our tools.
export function workspaceWithTools(agentId) {
  return globalThis[TABLE].asked.get((agentId ?? "").toLowerCase()) ?? "";
}

// The ids of the agents of each workspace, by its path, as this configuration has them.
export function agentsByWorkspace(api, config) {
  const { entries = {}, list } = config?.agents ?? {};
  const listed = Array.isArray(list) ? list : [];
  const said = new Map([...listed.map((one) => [one?.id, one]), ...Object.entries(entries)]);
  const names = [...said.keys()].filter((id) => typeof id === "string" && id !== "");
  const found = new Map();
  for (const agent of names.length > 0 ? names : ["main"]) {
    const place = placeOf(api, config, agent) ?? said.get(agent)?.workspace;
    if (typeof place === "string" && place.startsWith("/")) found.set(place, [...(found.get(place) ?? []), agent]);
  }
  return found;
}

function placeOf(api, config, agent) {
  try {
    return api.runtime.agent.resolveAgentWorkspaceDir(config, agent);
  } catch {
    return undefined; // OpenClaw does not say
  }
}
