// Instructions that come while mailboxd's turn runs: they are appended to the next result of a tool in it.
//
// The daemon keeps them in `.mailboxd/steering/<session>.json` while the turn runs. That they were given is written beside
// it, durably, before the model can see them: the daemon looks there when the turn has ended, and gives what was not given
// in another turn. A gateway that died may have lost a result that it had not kept, so a resumed run is given them again.

import { createHash, randomUUID } from "node:crypto";
import { unlink } from "node:fs/promises";

import { NAMES } from "./answers.js";
import { deliver, inside, readJson, withDirectory } from "./files.js";
import { isOurs } from "./sessions.js";
import { noteWorkspace, workspaceOf } from "./workspaces.js";

const PLACE = [".mailboxd", "steering"];
const LIFE = Symbol.for("mailboxd.life"); // of this gateway
const MOST_BYTES = 512 * 1024;
const MOST_TEXT = 90_000; // OpenClaw cuts a text of a result at 100,000 characters
globalThis[LIFE] ??= randomUUID();

export function register(api) {
  api.registerAgentToolResultMiddleware(
    (event, ctx) => {
      if (!isOurs(ctx?.sessionKey)) return undefined;
      if (NAMES.includes(event.toolName)) return undefined; // an answer ends the run: nobody would read them
      const workspace = workspaceOf(ctx.agentId);
      return workspace ? withNew(event.result, workspace, ctx.sessionKey, api.logger) : undefined;
    },
    { runtimes: ["openclaw"] },
  );

  // A run begins, perhaps one that resumes what another gateway's death interrupted.
  api.on("before_agent_reply", async (_event, ctx) => {
    try {
      noteWorkspace(ctx);
      const { sessionKey, workspaceDir } = ctx;
      if (!workspaceDir || !isOurs(sessionKey)) return undefined;
      const name = nameOf(sessionKey);
      await withDirectory(workspaceDir, PLACE, async (place) => {
        const given = await read(place, `${name}.given`);
        if (given !== null && given.life !== globalThis[LIFE]) await unlink(inside(place, `${name}.given`));
      });
    } catch {
      // then they are given in another turn
    }
    return undefined;
  });
}

// The result with what is new; undefined if nothing is. Never throws.
async function withNew(result, workspace, sessionKey, logger) {
  try {
    const name = nameOf(sessionKey);
    const text = await withDirectory(workspace, PLACE, async (place) => {
      const said = await read(place, `${name}.json`);
      if (said === null || typeof said.text !== "string" || said.session !== sessionKey) return "";
      const given = (await read(place, `${name}.given`))?.text ?? "";
      if (given === said.text || said.text.length > MOST_TEXT) return "";
      await deliver(place, `${name}.given`, JSON.stringify({ life: globalThis[LIFE], text: said.text }));
      return said.text.startsWith(given) ? said.text.slice(given.length).trim() : said.text;
    });
    if (!text) return undefined;
    const block =
      "[mailboxd] NEW INSTRUCTIONS for the work that you are doing. They are not part of the tool's result above. They " +
      `change your task from now on, and your answer has to follow them:\n\n${text}`;
    const before = Array.isArray(result?.content) ? result.content : [];
    return { result: { ...result, content: [...before, { type: "text", text: block }] } };
  } catch (problem) {
    logger.warn(`new instructions wait for the next turn: ${problem?.code ?? "unexpected error"}`);
    return undefined;
  }
}

function nameOf(sessionKey) {
  return createHash("sha256").update(sessionKey).digest("hex").slice(0, 32);
}

function read(place, name) {
  return readJson(inside(place, name), MOST_BYTES);
}
