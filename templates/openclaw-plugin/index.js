// mailboxd's plugin for the OpenClaw gateway. Each part is one subject and registers itself; one that this version of
// OpenClaw refuses leaves the others as they are. Every hook runs inside the gateway: none may throw, and none may wait.

import * as answers from "./answers.js";
import * as command from "./command.js";
import * as delegate from "./delegate.js";
import * as note from "./note.js";
import * as orders from "./orders.js";
import * as receive from "./receive.js";
import * as steer from "./steer.js";
import * as tab from "./tab.js";

const PARTS = { receive, answers, note, orders, command, delegate, steer, tab };

export default {
  id: "mailboxd",
  name: "mailboxd",
  description: "Mailboxes for OpenClaw's agents: messages, answers, results and decisions.",
  register(api) {
    const parts = {}; // what became of each: empty, or why this OpenClaw refused it
    for (const [name, part] of Object.entries(PARTS)) {
      try {
        part.register(api);
        parts[name] = "";
      } catch (problem) {
        parts[name] = String(problem?.message ?? problem);
        api.logger.error(`this OpenClaw does not take the part ${name}: ${parts[name]}`);
      }
    }
    // For `mailboxd doctor`: one wrong field in the manifest, and OpenClaw leaves out the whole plugin without a word.
    api.registerGatewayMethod("mailboxd.parts", ({ respond }) => respond(true, { parts }), { scope: "operator.read" });
  },
};
