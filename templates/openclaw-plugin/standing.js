// What the daemon of a workspace lets the plugin do for its agent: `.mailboxd/delegation.json`, which the daemon keeps.
// Without that file nothing is offered: no daemon that takes such work has ever run there. An agent with a shell can
// write the file, but it only decides what is offered to this agent itself; the daemon judges all work again.

import { join } from "node:path";

import { readJsonSync } from "./files.js";

const MOST_BYTES = 256 * 1024;
const ID = /^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const MODES = new Set(["tool", "takeover"]);

// `{mode, agent, peers: {id: role} or null if not known yet, models, bytes, closed}`, or null if nothing is offered.
// Synchronous, because OpenClaw asks for its tools so. Never throws.
export function readStanding(workspace) {
  const said = readJsonSync(join(workspace, ".mailboxd", "delegation.json"), MOST_BYTES);
  if (!MODES.has(said?.mode) || typeof said.agent !== "string") return null;
  return {
    mode: said.mode,
    agent: said.agent,
    peers: isTable(said.peers) ? said.peers : null,
    models: Array.isArray(said.models) ? said.models : [],
    bytes: Number.isInteger(said.bytes) ? said.bytes : MOST_BYTES,
    closed: typeof said.closed === "string" ? said.closed : "",
  };
}

// Why this agent may not be given work, or "".
export function refusalOf(standing, agent) {
  if (standing.closed) return standing.closed;
  if (isSelf(standing, agent)) return "";
  if (standing.peers === null) return `it is not known yet to whom ${standing.agent} may give work; try again later`;
  if (peerNamed(standing, agent) !== null) return "";
  const known = Object.keys(standing.peers).sort().join(", ") || "nobody else";
  return `${standing.agent} may not give work to ${agent}, only to ${known}, and to itself (self)`;
}

// Whether this agent may be given work at all; whom OpenClaw lets it spawn is OpenClaw's to say.
export function mayReach(standing, agent) {
  return isSelf(standing, agent) || peerNamed(standing, agent) !== null;
}

export function isSelf(standing, agent) {
  return agent === "" || agent.toLowerCase() === "self" || agent.toLowerCase() === standing.agent.toLowerCase();
}

// The peer as OpenClaw spells it, or null. Where nobody is asked who exists, anyone is one.
export function peerNamed(standing, agent) {
  const names = Object.keys(standing.peers ?? {});
  if (names.includes("*") && ID.test(agent)) return agent;
  return names.find((name) => name.toLowerCase() === agent.toLowerCase()) ?? null;
}

function isTable(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
