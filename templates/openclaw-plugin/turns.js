// The files by which a daemon and this plugin agree about a turn, in .mailboxd/answers/ of the daemon's workspace:
//
//   plugin.json     written here: this gateway can offer tools
//   KEY.json        written by the daemon before it requests the turn: its token, its tools, what their checks need
//   KEY.offered     written here: the token of the turn whose tools were offered
//   KEY.said.json   written here, durably: the calls that were taken, the first one first, or that too many were refused
//
// KEY is a hash of the session's key. A review runs in the reviewer's session, but its daemon has another workspace: the
// own one is looked at first, then those of the other agents. Two files about one session are believed by nobody.

import { createHash, randomUUID } from "node:crypto";
import { constants as c, lstatSync, openSync, closeSync, fstatSync, readFileSync, writeFileSync } from "node:fs";
import { lstat, mkdir, open, rename, unlink } from "node:fs/promises";
import { join } from "node:path";

import { readSmall } from "./inbox.js";

const MOST_BYTES = 4 * 1024 * 1024;
const MOST_SAID = 16 * 1024 * 1024; // as the daemon reads
const VERSION = 1; // of these files

// The turn that a session is for, or null. It is synchronous, as OpenClaw wants it.
export function findTurn(api, ctx) {
  const key = createHash("sha256").update(ctx.sessionKey.toLowerCase()).digest("hex").slice(0, 32);
  const own = ctx.workspaceDir;
  const others = workspaces(api, ctx).filter((one) => one !== own);
  const found = [];
  if (own) announceIn(own).catch(() => {}); // a mailbox that is younger than this gateway
  for (const workspace of own ? [own, ...others] : others) {
    const folder = folderIn(workspace);
    if (folder === null) continue;
    const turn = readTurn(join(folder, `${key}.json`));
    if (turn !== null) found.push({ ...turn, folder, key });
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
  const name = join(turn.folder, `${turn.key}.said.json`);
  const before = await readSaid(name, turn.token);
  if (before !== null && (what.refusals || before.calls.some((one) => same(one, what)))) return before.calls.length > 0;
  const calls = [...(before?.calls ?? []), ...(what.refusals ? [] : [what])];
  const refusals = what.refusals ? { refusals: what.refusals, problems: what.problems } : {};
  await writeDurably(turn.folder, name, JSON.stringify({ token: turn.token, calls, ...refusals }));
  return before === null;
}

// Tells every daemon whose agent is here that its turns can have tools. It waits for nothing.
export function announce(api) {
  for (const workspace of workspaces(api, {})) announceIn(workspace).catch(() => {});
}

async function announceIn(workspace) {
  const state = join(workspace, ".mailboxd");
  if (!(await lstat(state)).isDirectory()) return;
  const folder = join(state, "answers");
  await mkdir(folder, { mode: 0o700 }).catch(() => {});
  if (folderIn(workspace) === null) return;
  const name = join(folder, "plugin.json");
  const text = JSON.stringify({ version: VERSION, gateway: process.pid });
  if ((await readSmall(name, MOST_BYTES).catch(() => "")) !== text) await writeDurably(folder, name, text);
}

function folderIn(workspace) {
  const state = join(workspace, ".mailboxd");
  const folder = join(state, "answers");
  const isReal = (path) => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  return isReal(state) && isReal(folder) ? folder : null;
}

function workspaces(api, ctx) {
  const config = ctx.runtimeConfig ?? ctx.config ?? api.config ?? {};
  const { entries, list } = config.agents ?? {};
  const ids = [...Object.keys(entries ?? {}), ...(list ?? []).map((one) => one?.id)].filter(Boolean);
  const resolve = api.runtime?.agent?.resolveAgentWorkspaceDir;
  const said = (id) => entries?.[id]?.workspace ?? (list ?? []).find((one) => one?.id === id)?.workspace;
  const found = ids.map((id) => {
    try {
      return resolve ? resolve(config, id) : said(id);
    } catch {
      return said(id);
    }
  });
  return [...new Set(found.filter((one) => typeof one === "string" && one.startsWith("/")))];
}

function readTurn(path) {
  let handle;
  try {
    handle = openSync(path, c.O_RDONLY | c.O_NOFOLLOW | c.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    const { size, isFile } = ((seen) => ({ size: seen.size, isFile: seen.isFile() }))(fstatSync(handle));
    if (!isFile || size > MOST_BYTES) return null;
    const turn = JSON.parse(readFileSync(handle, "utf8"));
    return turn?.version === VERSION && typeof turn.token === "string" && Array.isArray(turn.tools) ? turn : null;
  } catch {
    return null;
  } finally {
    closeSync(handle);
  }
}

async function readSaid(path, token) {
  try {
    const said = JSON.parse(await readSmall(path, MOST_SAID));
    return said?.token === token && Array.isArray(said.calls) ? said : null;
  } catch {
    return null;
  }
}

function same(one, other) {
  return JSON.stringify([one.name, one.arguments]) === JSON.stringify([other.name, other.arguments]);
}

async function writeDurably(folder, name, text) {
  const hidden = join(folder, `.${randomUUID()}.tmp`);
  try {
    const file = await open(hidden, c.O_WRONLY | c.O_CREAT | c.O_EXCL | c.O_NOFOLLOW, 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(hidden, name);
  } catch (problem) {
    await unlink(hidden).catch(() => {});
    throw problem;
  }
  const directory = await open(folder, c.O_RDONLY | c.O_DIRECTORY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
