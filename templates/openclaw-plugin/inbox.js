// Writes to the receiver's mailbox/inbox/ without following links below the workspace. A file appears there complete and
// durable, or not at all. Linux only: Node has no openat, but /proc/self/fd/N/name is equivalent.

import { randomUUID } from "node:crypto";
import { constants as c } from "node:fs";
import { open, rename, unlink } from "node:fs/promises";

const DIRECTORY = c.O_RDONLY | c.O_DIRECTORY;
const NO_MAILBOX = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

// Calls `use` with a handle of the directory mailbox/inbox/ and closes it. Returns null without calling it if the
// directory does not exist or a part of its path is a link. Throws other errors.
export async function withInbox(workspace, use) {
  return withDirectory(workspace, ["mailbox", "inbox"], use);
}

// The same for another directory of the workspace.
export async function withDirectory(workspace, names, use) {
  const opened = [];
  try {
    try {
      opened.push(await open(workspace, DIRECTORY));
      for (const name of names) {
        opened.push(await open(inside(opened.at(-1), name), DIRECTORY | c.O_NOFOLLOW));
      }
    } catch (problem) {
      if (NO_MAILBOX.has(problem.code)) return null;
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
  const hidden = inside(directory, `.mailboxd-${randomUUID()}.tmp`);
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

// The text of a file that an agent could have put there: no link, no pipe, whose opening would wait for ever in one of
// the gateway's four threads for files, and not more than `most` bytes. Throws.
export async function readSmall(path, most) {
  const file = await open(path, c.O_RDONLY | c.O_NOFOLLOW | c.O_NONBLOCK);
  try {
    const found = await file.stat();
    if (!found.isFile() || found.size > most) throw Object.assign(new Error("no file to read"), { code: "EINVAL" });
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}
