// The tools by which an agent answers a turn of mailboxd. The daemon writes one file for each turn before it requests it
// (`turns.js` finds it); it names the tools of that turn with their schemas, so nothing is offered in any other session.
// A call that cannot be an answer is refused in the same run, with all its errors. The first one that is taken is on
// disk before the agent is told so, and ends the run. The daemon believes it only if the run's own record has it, too.

import { problemsOf, sample } from "./check.js";
import { isOurs } from "./sessions.js";
import { announce, findTurn, keep } from "./turns.js";

export const NAMES = [
  "mailboxd_finish", "mailboxd_plan", "mailboxd_ask", "mailboxd_fail", "mailboxd_verdict", "mailboxd_answer",
];
const MOST_REFUSALS = 5; // in one run: OpenClaw has no bound
const MOST_RUNS = 1000;

export function register(api) {
  api.registerTool(
    (ctx) => {
      if (!isOurs(ctx.sessionKey)) return null;
      try {
        const turn = findTurn(api, ctx);
        return turn === null ? null : turn.tools.filter(({ name }) => NAMES.includes(name)).map((one) => tool(one, turn));
      } catch (problem) {
        api.logger.error(`no tools to answer with for ${ctx.agentId}: ${problem?.code ?? problem?.message}`);
        return null;
      }
    },
    { names: NAMES },
  );
  announce(api);
}

// What has happened in a run, by the turn's token: the tools are made again for each model call, and 2026.8.1 registers a
// plugin several times.
const RUNS = Symbol.for("mailboxd.answers");
const runs = (globalThis[RUNS] ??= new Map());

function runOf(turn) {
  if (!runs.has(turn.token)) {
    if (runs.size >= MOST_RUNS) runs.delete(runs.keys().next().value);
    runs.set(turn.token, { refusals: 0, problems: [], last: Promise.resolve() });
  }
  return runs.get(turn.token);
}

function tool(declared, turn) {
  const run = runOf(turn);
  const refused = (args) => {
    const problems = problemsOf(declared, args, turn);
    if (problems.length === 0) return null;
    run.refusals += 1;
    run.problems = problems;
    return `Refused:\n${problems.map((one) => `- ${one}`).join("\n")}\nCorrect all of it and call ${declared.name} again.`;
  };
  return {
    name: declared.name,
    label: declared.name,
    description: declared.description,
    parameters: declared.parameters,
    catalogMode: "direct-only",
    // Called before OpenClaw validates, which would name the errors of the schema only, and not count them.
    prepareArguments(args) {
      const why = refused(args);
      if (why === null) return args;
      if (run.refusals < MOST_REFUSALS) throw new Error(why);
      return sample(declared.parameters); // so that `execute` is called, which ends the run
    },
    execute(_id, args) {
      // one after the other: the calls of one reply are executed at once
      run.last = run.last.then(() => take(declared.name, args, turn, run, refused));
      return run.last;
    },
  };
}

async function take(name, args, turn, run, refused) {
  try {
    const why = run.refusals < MOST_REFUSALS ? refused(args) : null;
    if (run.refusals >= MOST_REFUSALS) {
      await keep(turn, { refusals: run.refusals, problems: run.problems });
      return said("Refused too often: this attempt has failed.", true);
    }
    if (why !== null) return said(why, false);
    const isFirst = await keep(turn, { name, arguments: args });
    return said(isFirst ? "Taken." : "An answer was taken before; the first one counts.", true);
  } catch (problem) {
    return said(`Your answer could not be stored (${problem?.code ?? "error"}). Send it as plain text.`, false);
  }
}

function said(text, terminate) {
  return { content: [{ type: "text", text }], details: {}, ...(terminate ? { terminate } : {}) };
}
