// What waits for people, as the daemons of all agents with a mailbox keep it in their workspaces (.mailboxd/view.json).
// The files are written by the agents' own user and prove nothing: they are shown, and who may read them is asked of
// them, but whether an order counts is decided by the daemon alone.

import { join } from "node:path";

import { readJson } from "./files.js";
import { agentsByWorkspace } from "./workspaces.js";

const MOST_BYTES = 4 * 1024 * 1024;
const SILENT_MS = 45_000; // without a heartbeat for so long, the daemon does not run

// The mailboxes of this gateway: `{ agent, view, daemon: { runs, at } }`. Agents without one are left out.
export async function readViews(api) {
  const config = api.runtime?.config?.current?.() ?? api.config;
  const found = await Promise.all([...agentsByWorkspace(api, config)].map(([workspace, agents]) => readView(agents, workspace)));
  return found.filter((one) => one !== null);
}

// The view as far as this person may see it; `who` is from `people.js`.
export async function viewsFor(api, who) {
  return (await readViews(api)).filter(({ view }) => who.isOwner || view.people.includes(who.name));
}

async function readView(agents, workspace) {
  const view = await readJson(join(workspace, ".mailboxd", "view.json"), MOST_BYTES);
  if (!isView(view)) return null;
  // an agent that names another one would have orders about its mailbox go to the daemon of that other one
  const agent = agents.find((one) => one.toLowerCase() === view.agent.toLowerCase());
  if (agent === undefined) return null;
  const health = await readJson(join(workspace, ".mailboxd", "health.json"), MOST_BYTES);
  const at = Date.parse(health?.at ?? "");
  const runs = health?.over === null && Math.abs(Date.now() - at) < SILENT_MS;
  return { agent, view, daemon: { runs, at: Number.isNaN(at) ? null : health.at } };
}

// Whether it is a view as the daemon writes it: one that is not must not take the other agents' views with it.
function isView(view) {
  const isWords = (value, ...names) => isTable(value) && names.every((name) => typeof value[name] === "string");
  if (!isWords(view, "agent", "command") || view.version !== 1 || !isTable(view.counts)) return false;
  if (!Array.isArray(view.items) || !Array.isArray(view.people) || !Number.isInteger(view.total)) return false;
  if (view.orders !== undefined && !areOrders(view.orders)) return false;
  return view.items.every((item) => {
    if (!isWords(item, "name", "kind", "text", "task", "command")) return false;
    return item.approval === undefined || isWords(item.approval, "action", "preview", "digest");
  });
}

function areOrders(orders) {
  const areWords = (words) => Array.isArray(words) && words.every((word) => isTable(word) && typeof word.name === "string");
  return isTable(orders) && Object.values(orders).every(areWords);
}

function isTable(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
