// The receiver's mailbox/inbox/, reached without following a link below the workspace, and written so that a file
// appears there complete and durable, or not at all. Linux: Node has no openat, /proc/self/fd/N/name is the same.

import { randomUUID } from "node:crypto";
import { constants as c } from "node:fs";
import { open, rename, unlink } from "node:fs/promises";

const DIRECTORY = c.O_RDONLY | c.O_DIRECTORY;
const NO_MAILBOX = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

// Calls `use` with the directory's descriptor and closes it. Null without a call if there is no such directory, or if
// part of it is a link. Other errors are thrown.
export async function withInbox(workspace, use) {
  const opened = [];
  try {
    try {
      opened.push(await open(workspace, DIRECTORY));
      for (const name of ["mailbox", "inbox"]) {
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

// Puts `raw` into the directory as `name`. A file that has the name is the same message (the name holds the hash of
// its bytes): it is replaced by itself. Throws if it cannot; then nothing is left, unless the error has `appeared`: the
// file is there, but might not survive a power failure.
export async function deliver(directory, name, raw) {
  const hidden = inside(directory, `.mailboxd-${randomUUID()}.tmp`);
  try {
    const file = await open(hidden, c.O_WRONLY | c.O_CREAT | c.O_EXCL | c.O_NOFOLLOW, 0o600);
    try {
      await file.writeFile(raw);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(hidden, inside(directory, name));
  } catch (problem) {
    await unlink(hidden).catch(() => {});
    throw problem;
  }
  await directory.sync().catch((problem) => {
    throw Object.assign(problem, { appeared: true });
  });
}

function inside(handle, name) {
  return `/proc/self/fd/${handle.fd}/${name}`;
}
