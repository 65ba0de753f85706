// Files in a workspace, where an agent can put anything: no links are followed, no pipe blocks, nothing too large is read.
// What is written appears complete and durable, or not at all. Linux only: Node has no openat, but /proc/self/fd/N/name is
// equivalent.

import { randomUUID } from "node:crypto";
import { closeSync, constants as c, fstatSync, openSync, readFileSync } from "node:fs";
import { open, rename, unlink } from "node:fs/promises";

const DIRECTORY = c.O_RDONLY | c.O_DIRECTORY;
// without O_NONBLOCK a pipe would occupy one of the gateway's four threads for files for ever
const READ = c.O_RDONLY | c.O_NOFOLLOW | c.O_NONBLOCK;
const MISSING = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

export const INBOX = ["mailbox", "inbox"];

// Calls `use` with a handle of this directory of the workspace and closes it. Returns null without calling it if the
// directory does not exist or a part of its path is a link. Throws other errors.
export async function withDirectory(workspace, names, use) {
  const opened = [];
  try {
    try {
      opened.push(await open(workspace, DIRECTORY));
      for (const name of names) {
        opened.push(await open(inside(opened.at(-1), name), DIRECTORY | c.O_NOFOLLOW));
      }
    } catch (problem) {
      if (MISSING.has(problem.code)) return null;
      throw problem;
    }
    return await use(opened.at(-1));
  } finally {
    await Promise.allSettled(opened.map((handle) => handle.close()));
  }
}

// Writes `raw` to the directory as `name`. An existing file of that name is the same message, because the name contains
// the hash of its bytes, or the id of a call. `placing` is called right before the file appears; what it throws prevents
// that. Throws on failure, leaving nothing behind, unless the error has `appeared`: then the file exists, but might not
// survive a power failure.
export async function deliver(directory, name, raw, placing = () => {}) {
  const hidden = inside(directory, `.mailboxd-plugin-${randomUUID()}.tmp`);
  try {
    const file = await open(hidden, c.O_WRONLY | c.O_CREAT | c.O_EXCL | c.O_NOFOLLOW, 0o600);
    try {
      await file.writeFile(raw);
      await file.sync();
    } finally {
      await file.close();
    }
    placing();
    await rename(hidden, inside(directory, name));
  } catch (problem) {
    await unlink(hidden).catch(() => {});
    throw problem;
  }
  await directory.sync().catch((problem) => {
    throw Object.assign(problem, { appeared: true });
  });
}

// The path of a name in an open directory.
export function inside(handle, name) {
  return `/proc/self/fd/${handle.fd}/${name}`;
}

// What a JSON file says; null if there is none, or anything else in its place.
export async function readJson(path, most) {
  let file;
  try {
    file = await open(path, READ);
    return isSmall(await file.stat(), most) ? JSON.parse(await file.readFile("utf8")) : null;
  } catch {
    return null;
  } finally {
    await file?.close().catch(() => {});
  }
}

// The same where OpenClaw cannot wait: when it asks for the tools of an agent.
export function readJsonSync(path, most) {
  let file;
  try {
    file = openSync(path, READ);
    return isSmall(fstatSync(file), most) ? JSON.parse(readFileSync(file, "utf8")) : null;
  } catch {
    return null;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function isSmall(found, most) {
  return found.isFile() && found.size <= most;
}
