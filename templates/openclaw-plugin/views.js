// What waits for people, as the daemons of all agents with a mailbox keep it in their workspaces (.mailboxd/view.json).
// The files are written by the agents' own user and prove nothing: they are shown, and who may read them is asked of
// them, but whether an order counts is decided by the daemon alone.

import { constants as c } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";

const MOST_BYTES = 4 * 1024 * 1024;
const SILENT_MS = 45_000; // without a heartbeat for so long, the daemon does not run

// The mailboxes of this gateway: `{ agent, view, daemon: { runs, at } }`. Agents without one are left out.
export async function readViews(api) {
  const found = await Promise.all(workspaces(api).map(([workspace, agents]) => readView(agents, workspace)));
  return found.filter((one) => one !== null);
}

// The view as far as this person may see it; `who` is from `people.js`.
export async function viewsFor(api, who) {
  return (await readViews(api)).filter(({ view }) => who.isOwner || view.people.includes(who.name));
}

async function readView(agents, workspace) {
  const view = await readJson(join(workspace, ".mailboxd", "view.json"));
  if (!isView(view)) return null;
  // an agent that names another one would have orders about its mailbox go to the daemon of that other one
  const agent = agents.find((one) => one.toLowerCase() === view.agent.toLowerCase());
  if (agent === undefined) return null;
  const health = await readJson(join(workspace, ".mailboxd", "health.json"));
  const at = Date.parse(health?.at ?? "");
  const runs = health?.over === null && Math.abs(Date.now() - at) < SILENT_MS;
  return { agent, view, daemon: { runs, at: Number.isNaN(at) ? null : health.at } };
}

// Whether it is a view as the daemon writes it: one that is not must not take the other agents' views with it.
function isView(view) {
  const isWords = (value, ...names) => isTable(value) && names.every((name) => typeof value[name] === "string");
  if (!isWords(view, "agent", "command") || view.version !== 1 || !isTable(view.counts)) return false;
  if (!Array.isArray(view.items) || !Array.isArray(view.people) || !Number.isInteger(view.total)) return false;
  return view.items.every((item) => {
    if (!isWords(item, "name", "kind", "text", "task", "command")) return false;
    return item.approval === undefined || isWords(item.approval, "action", "preview", "digest");
  });
}

function isTable(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// The agents of each workspace.
function workspaces(api) {
  const config = api.runtime?.config?.current?.() ?? api.config;
  const agents = config?.agents ?? {};
  const listed = Array.isArray(agents.list) ? agents.list.map((one) => one?.id) : [];
  const names = new Set([...Object.keys(agents.entries ?? {}), ...listed].filter((id) => typeof id === "string"));
  if (names.size === 0) names.add("main");
  const places = new Map();
  for (const agent of names) {
    try {
      const place = api.runtime.agent.resolveAgentWorkspaceDir(config, agent);
      if (place) places.set(place, [...(places.get(place) ?? []), agent]);
    } catch {
      // an agent without a workspace has no mailbox
    }
  }
  return [...places];
}

async function readJson(path) {
  let file;
  try {
    file = await open(path, c.O_RDONLY | c.O_NOFOLLOW | c.O_NONBLOCK);
    const stat = await file.stat();
    if (!stat.isFile() || stat.size > MOST_BYTES) return null;
    return JSON.parse(await file.readFile("utf8"));
  } catch {
    return null;
  } finally {
    await file?.close().catch(() => {});
  }
}
