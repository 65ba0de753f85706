// `/mailbox` in every chat and messenger, without a call of the model: what needs a person, and orders about it.
//
// Reading takes the daemons' own files, so it works while they are down, and says so. An order goes to the daemon with
// who gives it (`orders.js`); whether it counts is the daemon's to decide. What is returned is what happened.

import { give } from "./orders.js";
import { sender } from "./people.js";
import { readViews, viewsFor } from "./views.js";
import { block, harmless, line, quoted, relative } from "./words.js";

const MOST_LISTED = 12;
const MOST_WORDS = 4_000; // OpenClaw cuts what follows a command at 4,096 characters, without a word
const DECISIONS = new Set(["approve", "reject", "changes"]);
const NOTE = [{ name: "note" }];
// The orders about a task that daemons took whose view does not name them yet.
const OLDER = { answer: [{ name: "text", required: true }], cancel: [{ name: "reason" }], pause: NOTE, resume: NOTE, retry: NOTE };
const DIGEST = /^[0-9a-f]{8,64}\b/i;

// The orders about a task, as the daemon names them: by their names the words that follow the task's.
function ordersOf({ view }) {
  return view.orders ?? OLDER;
}

// Whether a mailbox takes an order of this name.
export function takes(one, verb) {
  return DECISIONS.has(verb) || verb === "undo" || Object.hasOwn(ordersOf(one), verb);
}

export function help(views) {
  const orders = Object.entries(Object.assign({}, ...views.map(ordersOf)));
  const word = ({ name, required }) => (required ? line(name, 40) : `[${line(name, 40)}]`).toUpperCase();
  const usage = (verb, words) => ["/mailbox", line(verb, 40), "ID", ...words.map(word)].join(" ");
  return [
    "`/mailbox` what needs you",
    "`/mailbox show ID` all of it: a request with its risk, its exact action and its digest",
    "`/mailbox approve ID DIGEST` approve what `show` showed · `/mailbox reject ID [REASON]` · `/mailbox changes ID TEXT`",
    orders.map(([verb, words]) => `\`${usage(verb, words)}\``).join(" · "),
    "`/mailbox undo ID` takes back a cancel or a rejection within ten seconds",
    "`/mailbox send AGENT TEXT` a new task",
    "Where two agents have the same ID: AGENT:ID.",
  ].join("\n");
}

export function register(api) {
  api.registerCommand({
    name: "mailbox",
    description: "What needs you in the agents' mailboxes; answer, approve, cancel, send",
    acceptsArgs: true,
    handler: async (ctx) => {
      try {
        return { text: await answer(api, ctx) };
      } catch (problem) {
        api.logger.error(`/mailbox failed: ${problem?.message ?? problem}`);
        return { text: "mailboxd: this failed here, and nothing was ordered." };
      }
    },
  });
}

async function answer(api, ctx) {
  const who = sender(ctx);
  if (who === null) return "This mailbox does not know who you are.";
  const views = await viewsFor(api, who);
  if (views.length === 0) {
    if (who.isOwner && (await readViews(api)).length === 0) return "No agent here has a mailbox that mailboxd keeps.";
    return `This mailbox does not know ${who.name}. Its owner can name it in approvals.approvers.`;
  }
  const words = (ctx.args ?? "").trim();
  if (words.length > MOST_WORDS) return `That is too long for a chat's command: at most ${MOST_WORDS} characters. Nothing was ordered.`;
  const [, verb, name, text] = /^(\S*)\s*(\S*)\s*([\s\S]*)$/.exec(words);
  if (verb === "" || verb === "inbox" || verb === "list") return list(views);
  if (verb === "help") return help(views);
  if (verb === "show" && name !== "") return show(views, name, who);
  if (verb === "send") return send(views, name, text, who);
  if (!views.some((one) => takes(one, verb)) || name === "") return `\`/mailbox ${line(words, 60)}\` is no order.\n${help(views)}`;
  return order(views, { verb, name, text: text.trim() }, who, ctx.agentId);
}

// Reading

export function list(views) {
  const several = views.length > 1;
  const parts = views.map((one) => {
    const { items, total, counts } = one.view;
    const lines = items.slice(0, MOST_LISTED).map((item) => `- ${itemLine(item)}`);
    if (total > lines.length) lines.push(`- … and ${total - lines.length} more: \`${one.view.command} inbox\``);
    const states = Object.entries(counts).filter(([state]) => state !== "needs you");
    const rest = states.map(([state, count]) => `${count} ${line(state)}`).join(", ");
    const head = total === 0 ? "Nothing needs you" : `**${total} need${total === 1 ? "s" : ""} you**`;
    return [`${several ? `${one.agent}: ` : ""}${head}${rest ? ` (${rest})` : ""}`, ...lines, ...ageOf(one)].join("\n");
  });
  return parts.join("\n\n");
}

function itemLine(item) {
  const since = item.since ? ` (${relative(item.since)})` : "";
  const how = item.kind === "question" ? `\n  \`/mailbox answer ${item.name} …\`` : item.approval ? `\n  \`/mailbox show ${item.name}\`` : "";
  return `\`${line(item.name, 80)}\` ${line(item.kind)}: ${line(item.approval ? item.approval.action : item.text)}${since}${how}`;
}

function ageOf({ view, daemon }) {
  if (daemon.runs) return [];
  const seen = daemon.at ? `, last seen ${relative(daemon.at)}` : "";
  return [`⚠️ The daemon does not run${seen}; this is as of ${relative(view.at)}. Start it: \`${view.command} run\``];
}

function show(views, name, who) {
  const found = find(views, name);
  if (found.length === 0) return notHere(views, name, "show");
  if (found.length > 1) return ambiguous(found, name);
  const [{ one, item }] = found;
  return item.approval ? request(one, item, who) : [detail(one, item), ...ageOf(one)].join("\n");
}

// A request as the daemon itself describes it: an agent can write the file, and could describe another action there.
async function request(one, item, who) {
  if (one.daemon.runs) {
    const { state, text } = await give(one.view.agent, { verb: "card", name: item.name, text: "", by: who.by });
    if (state === "done" && text.startsWith("{")) return card(one, { ...item, approval: JSON.parse(text) }, who);
    if (state === "done") return harmless(text);
  }
  const unsure = `The daemon of ${one.agent} does not answer, so this is what its file says, and nothing can be decided by it.`;
  return [detail(one, item), block(item.approval.preview), unsure, ...ageOf(one)].join("\n");
}

function detail(one, item) {
  const parts = [`**${line(item.name, 80)}** (${line(item.kind)}) of ${one.agent}`, line(item.text, 1_000)];
  if (item.details) parts.push(block(item.details));
  if (item.until) parts.push(`Decided without you ${relative(item.until)}.`);
  if (item.kind === "question") parts.push(`Answer: \`/mailbox answer ${item.name} TEXT\``);
  else parts.push(`On its machine: \`${line(item.command, 400)}\``);
  return parts.join("\n");
}

// Everything that is needed to decide. The digest is shown only with the whole action: without it nothing is approved.
export function card(one, item, who) {
  const { action, kind, risk, preview, is_cut: isCut, digest, requested_by: by, expires_at: until, is_reversible } = item.approval;
  const digest8 = digest.slice(0, 8);
  const whole = block(preview, 6_000);
  const parts = [
    `**${line(item.name)}**: ${line(action, 400)}`,
    `task ${line(item.task)} of ${one.agent}, ${line(kind)}, asked by ${line(by)}, expires ${relative(until)}`,
    `risk: ${line(risk, 1_000) || "none declared"}`,
    whole,
  ];
  if (isCut) parts.push(`It is longer than a chat can show: \`${one.view.command} show ${item.name}\``);
  else if (!is_reversible && !one.view.approves_all) {
    parts.push(`digest ${digest8}. It cannot be taken back, so a chat does not approve it: \`${one.view.command} approve ${item.name} --digest ${digest8}\``);
  } else if (!one.view.people.includes(who.name)) {
    parts.push(`digest ${digest8}. Only those named in approvals.approvers decide; you are ${who.name}.`);
  } else parts.push(`digest ${digest8}. Approve: \`/mailbox approve ${item.name} ${digest8}\``);
  parts.push(`Or \`/mailbox reject ${item.name} REASON\`, \`/mailbox changes ${item.name} TEXT\``);
  return parts.join("\n");
}

// Orders

async function order(views, { verb, name, text }, who, here) {
  const found = find(views, name, DECISIONS.has(verb));
  if (found.length > 1) return ambiguous(found, name);
  if (found.length === 0 && DECISIONS.has(verb)) return notHere(views, name, verb);
  const one = found[0]?.one ?? mailboxOf(views, name, here);
  const known = found[0]?.item.name ?? bare(views, name);
  if (one === undefined) return `Which agent's? Write AGENT:${line(name, 80)}.`;
  if (verb === "approve" && !DIGEST.test(text)) return request(one, found[0].item, who);
  return deliver(one, { verb, name: known, text }, who);
}

async function send(views, agent, text, who) {
  if (agent === "" || text.trim() === "") return "`/mailbox send AGENT TEXT`";
  const one = views.find((view) => view.agent.toLowerCase() === agent.toLowerCase());
  if (one === undefined) return `No mailbox of ${line(agent, 80)} is known to you: ${views.map((view) => view.agent).join(", ")}.`;
  return deliver(one, { verb: "send", name: "", text: text.trim() }, who);
}

// Has the daemon carry it out, and says what became of it.
export async function deliver(one, said, who, patience) {
  const shell = `\`${shellCommand(one, said)}\``;
  const nothing = said.verb === "send" ? "Nothing was sent." : "Nothing was decided.";
  if (!one.daemon.runs) return `The daemon of ${one.agent} does not run. ${nothing} On its machine: ${shell}`;
  const { state, text } = await give(one.view.agent, { ...said, by: who.by }, patience);
  if (state === "done") return harmless(text);
  if (state === "unknown") {
    return `The daemon of ${one.agent} has taken this and has not answered: it may be done. \`/mailbox\` says what waits now.`;
  }
  return `The daemon of ${one.agent} did not take this in time. ${nothing} Try again, or on its machine: ${shell}`;
}

function shellCommand(one, { verb, name, text }) {
  const program = one.view.command;
  const note = (option) => (text ? ` ${option} ${quoted(line(text, 300))}` : "");
  switch (verb) {
    case "approve":
      return `${program} approve ${name} --digest ${text.split(/\s/, 1)[0]}`;
    case "card":
      return `${program} show ${name}`;
    case "reject":
      return `${program} reject ${name}${note("--note") || ' --note "..."'}`;
    case "changes":
      return `${program} ask-changes ${name}${note("--note") || ' --note "..."'}`;
    case "answer":
      return `${program} answer ${name} ${quoted(line(text, 300))}`;
    case "send":
      return `${program} send ${quoted(line(text, 300))}`;
    case "undo":
      return `${program} undo ${name}`;
    default:
      return [program, verb, name, ...options(ordersOf(one)[verb] ?? [], text)].join(" ");
  }
}

// The words of an order as options of its command: one for each, all that is left for the last.
function options(words, text) {
  const parts = text.split(/\s+/).filter(Boolean);
  const values = words.map((_, at) => (at < words.length - 1 ? parts[at] : parts.slice(at).join(" ")));
  return words.flatMap(({ name }, at) => (values[at] ? [`--${name} ${quoted(line(values[at], 300))}`] : []));
}

// Names

// The items of this name: an id, a task, or AGENT:ID. Requests only, if a decision is meant.
function find(views, name, requests = false) {
  const wanted = name.toLowerCase();
  const all = views.flatMap((one) => one.view.items.map((item) => ({ one, item })));
  const fits = ({ one, item }) => {
    const names = [item.name, item.approval ? item.task : ""].filter((word) => word !== "").map((word) => word.toLowerCase());
    return names.some((word) => word === wanted || `${one.agent.toLowerCase()}:${word}` === wanted);
  };
  const found = all.filter((entry) => (!requests || entry.item.approval) && fits(entry));
  const exact = found.filter(({ one, item }) => [item.name, `${one.agent}:${item.name}`].some((word) => word.toLowerCase() === wanted));
  return exact.length > 0 ? exact.slice(0, new Set(exact.map(({ one }) => one.agent)).size) : found;
}

function mailboxOf(views, name, here) {
  const named = views.find(({ agent }) => name.toLowerCase().startsWith(`${agent.toLowerCase()}:`));
  return named ?? views.find(({ agent }) => agent === here) ?? (views.length === 1 ? views[0] : undefined);
}

function bare(views, name) {
  const named = views.find(({ agent }) => name.toLowerCase().startsWith(`${agent.toLowerCase()}:`));
  return named ? name.slice(named.agent.length + 1) : name;
}

function notHere(views, name, verb) {
  const [{ view }] = views;
  const command = verb === "show" ? `${view.command} show ${quoted(line(name, 80))}` : `${view.command} approve`;
  return `Nothing that needs you is called ${line(name, 80)}. \`/mailbox\` lists what does; on the machine: \`${command}\``;
}

function ambiguous(found, name) {
  const names = found.map(({ one, item }) => `\`${one.agent}:${line(item.name, 80)}\``);
  return `${line(name, 80)} is more than one thing: ${[...new Set(names)].join(", ")}`;
}
