// Which work a run has given away, until the run ends. A run that the gateway's death interrupted is resumed as another
// run, which may ask for the same work again, because OpenClaw had not yet kept the answer. Then it gets the same task. A
// turn that a person begins gets a new one, also for the same words.
//
// One file for each, in the workspace's `.mailboxd/delegated/`: `<session>.<content>.<task id>.json`.

import { randomUUID } from "node:crypto";
import { mkdir, readdir, stat, unlink } from "node:fs/promises";

import { deliver, inside, readJson, withDirectory } from "./files.js";
import { callDigest } from "./taskfile.js";

const LIFE = randomUUID(); // of this gateway
const LONGEST_MS = 3_600_000; // a gateway that is away longer resumes nothing that the model still means

const ID = /^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const MOST_FILES = 1_000;
const MOST_BYTES = 64 * 1024;
const STATE = ".mailboxd";
const DIRECTORY = "delegated";

export class Delegations {
  #ofRuns = new Map(); // run -> [workspace, name of the file]
  #claimed = new Set();

  // The entry for a delegation: a new one, or that of the same delegation by an interrupted run. `{id, at, asked}`.
  // Throws if it cannot be kept.
  async begin(workspace, call, content, fresh) {
    await withDirectory(workspace, [STATE], (state) => mkdir(inside(state, DIRECTORY), { mode: 0o700 })).catch(ifMissing);
    const entry = await withDirectory(workspace, [STATE, DIRECTORY], async (directory) => {
      const prefix = `${callDigest(call.sessionKey).slice(0, 16)}.${content.slice(0, 16)}.`;
      const names = await readdir(inside(directory, "."));
      if (names.length > MOST_FILES) await forget(directory, names);
      const found = call.isResumed ? await this.#interrupted(directory, workspace, names, prefix) : null;
      const name = found?.name ?? `${prefix}${fresh.id}.json`;
      if (found === null) {
        const kept = { ...fresh, life: LIFE, run: call.runId, call: call.callId, session: call.sessionId };
        await deliver(directory, name, JSON.stringify(kept));
      }
      if (this.#ofRuns.size >= MOST_FILES) this.#ofRuns.delete(this.#ofRuns.keys().next().value); // broken off long ago
      this.#ofRuns.set(call.runId, [...(this.#ofRuns.get(call.runId) ?? []), [workspace, name]]);
      return found?.entry ?? { ...fresh, asked: {} };
    });
    if (entry === null) throw new Error("there is no directory .mailboxd");
    return entry;
  }

  // A run has ended, so OpenClaw keeps what it was answered.
  async ended(runId) {
    const files = this.#ofRuns.get(runId) ?? [];
    this.#ofRuns.delete(runId);
    for (const [workspace, name] of files) {
      this.#claimed.delete(`${workspace}/${name}`);
      await withDirectory(workspace, [STATE, DIRECTORY], (directory) => unlink(inside(directory, name)).catch(ifMissing));
    }
  }

  async #interrupted(directory, workspace, names, prefix) {
    for (const name of names.filter((one) => one.startsWith(prefix)).sort().slice(0, MOST_FILES)) {
      const claim = `${workspace}/${name}`;
      if (this.#claimed.has(claim)) continue;
      const kept = await read(inside(directory, name));
      if (kept === null || kept.life === LIFE) continue;
      if (!(Date.now() - Date.parse(kept.at) < LONGEST_MS)) {
        await unlink(inside(directory, name)).catch(ifMissing);
        continue;
      }
      this.#claimed.add(claim);
      const asked = { runId: kept.run ?? "", callId: kept.call ?? "", sessionId: kept.session ?? "" };
      return { name, entry: { id: kept.id, at: kept.at, asked } };
    }
    return null;
  }
}

function ifMissing(problem) {
  if (!["EEXIST", "ENOENT"].includes(problem.code)) throw problem;
}

// Runs that were broken off and never resumed leave their files: those that nobody can resume any more are removed.
async function forget(directory, names) {
  for (const name of names) {
    const found = await stat(inside(directory, name)).catch(() => null);
    if (found !== null && Date.now() - found.mtimeMs > LONGEST_MS) await unlink(inside(directory, name)).catch(() => {});
  }
}

async function read(path) {
  const kept = await readJson(path, MOST_BYTES);
  return kept !== null && ID.test(kept.id) && !Number.isNaN(Date.parse(kept.at)) ? kept : null;
}
