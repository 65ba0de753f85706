// The files by which a daemon and this plugin agree about a turn, in .mailboxd/answers/ of the daemon's workspace:
//
//   plugin.json     written here: this gateway can offer tools
//   KEY.json        written by the daemon before it requests the turn: its token, its tools, what their checks need
//   KEY.offered     written here: the token of the turn whose tools were offered
//   KEY.said.json   written here, durably: the calls that were taken, the first one first, or that too many were refused
//
// KEY is a hash of the session's key. A review runs in the reviewer's session, but its daemon has another workspace: the
// own one is looked at first, then those of the other agents. Two files about one session are believed by nobody.

import { createHash } from "node:crypto";
import { constants as c, lstatSync, writeFileSync } from "node:fs";
import { lstat, mkdir } from "node:fs/promises";
import { join } from "node:path";

import { deliver, inside, readJson, readJsonSync, withDirectory } from "./files.js";
import { agentsByWorkspace } from "./workspaces.js";

const PLACE = [".mailboxd", "answers"];
const MOST_BYTES = 4 * 1024 * 1024;
const MOST_SAID = 16 * 1024 * 1024; // as the daemon reads
const VERSION = 1; // of these files

// The turn that a session is for, or null. It is synchronous, as OpenClaw wants it.
export function findTurn(api, ctx) {
  const key = createHash("sha256").update(ctx.sessionKey.toLowerCase()).digest("hex").slice(0, 32);
  const own = ctx.workspaceDir;
  const config = ctx.runtimeConfig ?? ctx.config ?? api.config;
  const others = [...agentsByWorkspace(api, config).keys()].filter((one) => one !== own);
  const found = [];
  if (own) announceIn(own).catch(() => {}); // a mailbox that is younger than this gateway
  for (const workspace of own ? [own, ...others] : others) {
    const folder = folderIn(workspace);
    if (folder === null) continue;
    const turn = readTurn(join(folder, `${key}.json`));
    if (turn !== null) found.push({ ...turn, workspace, folder, key });
  }
  if (found.length !== 1) return null;
  try {
    const flag = c.O_WRONLY | c.O_CREAT | c.O_TRUNC | c.O_NOFOLLOW;
    writeFileSync(join(found[0].folder, `${key}.offered`), found[0].token, { mode: 0o600, flag });
  } catch {
    return null; // where this cannot be written, an answer cannot be either
  }
  return found[0];
}

// Writes what was taken, and returns whether it is the first of its turn. It is durable then.
export async function keep(turn, what) {
  const name = `${turn.key}.said.json`;
  const isFirst = await withDirectory(turn.workspace, PLACE, async (place) => {
    const before = await readSaid(inside(place, name), turn.token);
    if (before !== null && (what.refusals || before.calls.some((one) => same(one, what)))) return before.calls.length > 0;
    const calls = [...(before?.calls ?? []), ...(what.refusals ? [] : [what])];
    const refusals = what.refusals ? { refusals: what.refusals, problems: what.problems } : {};
    await deliver(place, name, JSON.stringify({ token: turn.token, calls, ...refusals }));
    return before === null;
  });
  if (isFirst === null) throw Object.assign(new Error("there is no directory .mailboxd/answers"), { code: "ENOENT" });
  return isFirst;
}

// Tells every daemon whose agent is here that its turns can have tools. It waits for nothing.
export function announce(api) {
  for (const workspace of agentsByWorkspace(api, api.config).keys()) announceIn(workspace).catch(() => {});
}

async function announceIn(workspace) {
  const state = join(workspace, ".mailboxd");
  if (!(await lstat(state)).isDirectory()) return;
  await mkdir(join(state, "answers"), { mode: 0o700 }).catch(() => {});
  await withDirectory(workspace, PLACE, async (place) => {
    const said = await readJson(inside(place, "plugin.json"), MOST_BYTES);
    if (said?.version === VERSION && said.gateway === process.pid) return;
    await deliver(place, "plugin.json", JSON.stringify({ version: VERSION, gateway: process.pid }));
  });
}

function folderIn(workspace) {
  const state = join(workspace, ".mailboxd");
  const folder = join(state, "answers");
  const isReal = (path) => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  return isReal(state) && isReal(folder) ? folder : null;
}

function readTurn(path) {
  const turn = readJsonSync(path, MOST_BYTES);
  return turn?.version === VERSION && typeof turn.token === "string" && Array.isArray(turn.tools) ? turn : null;
}

async function readSaid(path, token) {
  const said = await readJson(path, MOST_SAID);
  return said?.token === token && Array.isArray(said.calls) ? said : null;
}

function same(one, other) {
  return JSON.stringify([one.name, one.arguments]) === JSON.stringify([other.name, other.arguments]);
}
