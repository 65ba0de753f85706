// The mailboxes in OpenClaw's dashboard: what needs a person, of all agents.
//
// The dashboard shows the page in a frame without rights: no forms, no requests of its own, only links (and GET never
// decides). So it is rendered here, to read. With the dashboard's switch for pages of plugins on, dist/control-ui/ takes
// its place at the same address; it decides by the gateway method `mailboxd.decide`, as the device that is paired.

import { createHash } from "node:crypto";

import { deliver, takes } from "./command.js";
import { device } from "./people.js";
import { readViews } from "./views.js";
import { relative } from "./words.js";

export const ROUTE = "/plugins/mailboxd";

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #c2410c; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; padding: 1.5rem; max-width: 60rem; }
h1 { font-size: 1.3rem; margin: 0 0 1rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
a { color: inherit; } ul { list-style: none; margin: 0; padding: 0; }
li { border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0; }
li a { display: block; padding: .7rem .9rem; text-decoration: none; } li a:hover { background: var(--soft); }
.kind { color: var(--accent); font-weight: 600; margin-right: .5rem; } .soft { opacity: .7; font-size: .87rem; }
.warn { border-left: 3px solid var(--accent); padding: .3rem .8rem; background: var(--soft); }
pre { background: var(--soft); padding: .8rem; overflow: auto; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; } dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
code { background: var(--soft); padding: .1rem .3rem; border-radius: 4px; overflow-wrap: anywhere; }`;
const STYLE_HASH = createHash("sha256").update(STYLE).digest("base64");
const HEADERS = {
  "Content-Type": "text/html; charset=utf-8",
  "Cache-Control": "no-store",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  "Content-Security-Policy": `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'`,
};

export function register(api) {
  api.registerHttpRoute({ path: ROUTE, auth: "gateway", match: "prefix", handler: (request, response) => serve(api, request, response) });
  const control = { surface: "tab", id: "mailbox", label: "Mailbox", icon: "inbox", group: "control", path: ROUTE, slug: "mailbox" };
  api.session.controls.registerControlUiDescriptor({ ...control, requiredScopes: ["operator.read"] });
  api.registerGatewayMethod("mailboxd.views", (call) => answer(api, call, () => views(api, call)), { scope: "operator.read" });
  api.registerGatewayMethod("mailboxd.decide", (call) => answer(api, call, () => decide(api, call)), { scope: "operator.write" });
}

// The gateway's methods. What a client says of itself when it connects is never logged: its token is in it.

async function answer(api, { respond }, act) {
  try {
    respond(true, await act());
  } catch (problem) {
    api.logger.error(`a request of the dashboard failed: ${problem?.message ?? problem}`);
    respond(false, undefined, { code: "UNAVAILABLE", message: "mailboxd: this failed" });
  }
}

async function views(api, { client }) {
  return { you: device(client)?.name ?? "", mailboxes: await readViews(api) };
}

async function decide(api, { params, client }) {
  const who = device(client);
  if (who === null) return { text: "Only a device that is paired with this gateway decides here." };
  const { agent, verb, name, text } = params ?? {};
  const one = (await readViews(api)).find((view) => view.agent === agent);
  if (one === undefined || !(verb === "send" || verb === "card" || takes(one, verb))) return { text: "That is no order of a mailbox here." };
  return { text: await deliver(one, { verb, name: String(name ?? ""), text: String(text ?? "") }, who) };
}

// The page

async function serve(api, request, response) {
  try {
    const isRead = request.method === "GET" || request.method === "HEAD";
    const { pathname } = new URL(request.url, "http://localhost");
    const [status, html] = isRead ? page(await readViews(api), parts(pathname)) : [405, document("Not here", "<p>This page is only read.</p>")];
    response.writeHead(status, HEADERS);
    response.end(request.method === "HEAD" ? undefined : html);
  } catch (problem) {
    api.logger.error(`the page failed: ${problem?.message ?? problem}`);
    if (!response.headersSent) response.writeHead(500, HEADERS);
    response.end();
  }
  return true;
}

function parts(pathname) {
  const at = pathname.indexOf(ROUTE);
  const rest = at < 0 ? "" : pathname.slice(at + ROUTE.length);
  return rest.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return "";
    }
  });
}

export function page(mailboxes, [agent, name]) {
  if (agent === undefined) return [200, document("Mailbox", `<h1>Mailbox</h1>${overview(mailboxes)}`)];
  const one = mailboxes.find((box) => box.agent === agent);
  const item = one?.view.items.find((entry) => entry.name === name);
  const back = `<p><a href="${ROUTE}">← all that needs you</a></p>`;
  if (item === undefined) return [404, document("Mailbox", `${back}<p>This needs nobody any more.</p>`)];
  return [200, document(item.name, back + detail(one, item))];
}

function overview(mailboxes) {
  if (mailboxes.length === 0) return "<p>No agent here has a mailbox that mailboxd keeps.</p>";
  return mailboxes.map((one) => {
    const { view } = one;
    const items = view.items.map((item) => `<li><a href="${ROUTE}/${encodeURIComponent(one.agent)}/${encodeURIComponent(item.name)}">${summary(item)}</a></li>`);
    const states = Object.entries(view.counts).map(([state, count]) => `${count} ${state === "needs you" ? "waiting for you" : state}`).join(", ");
    const more = view.total > items.length ? `<p class="soft">and ${view.total - items.length} more: <code>${escaped(view.command)} inbox</code></p>` : "";
    const empty = items.length === 0 ? "<p>Nothing needs you.</p>" : `<ul>${items.join("")}</ul>`;
    return `<h2>${escaped(one.agent)} <span class="soft">${escaped(states)}</span></h2>${age(one)}${empty}${more}`;
  }).join("");
}

function summary(item) {
  const since = item.since ? `<span class="soft"> · ${relative(item.since)}</span>` : "";
  const text = item.approval ? item.approval.action : item.text;
  return `<span class="kind">${escaped(item.kind)}</span><strong>${escaped(item.name)}</strong>${since}<br>${escaped(text)}`;
}

function detail(one, item) {
  const { approval } = item;
  const rows = [["kind", item.kind], ["task", item.task], ["since", item.since], ["decided without you", item.until]];
  if (approval) {
    rows.push(["action", approval.action], ["kind of action", approval.kind], ["risk", approval.risk || "none declared"]);
    rows.push(["asked by", approval.requested_by], ["can be taken back", approval.is_reversible ? "yes" : "no"]);
  }
  const shown = rows.filter(([, value]) => value).map(([word, value]) => `<dt>${word}</dt><dd>${escaped(value)}</dd>`);
  const text = approval ? approval.preview : item.details;
  const how = approval ? `/mailbox show ${item.name}` : item.kind === "question" ? `/mailbox answer ${item.name} TEXT` : "";
  const chat = how ? `<p>In a chat: <code>${escaped(how)}</code></p>` : "";
  return `<h1>${escaped(item.name)}</h1>${age(one)}<p>${escaped(item.text)}</p><dl>${shown.join("")}</dl>` +
    `${text ? `<pre>${escaped(text)}</pre>` : ""}${chat}<p>On its machine: <code>${escaped(item.command)}</code></p>`;
}

function age({ view, daemon }) {
  if (daemon.runs) return "";
  const seen = daemon.at ? `, last seen ${relative(daemon.at)}` : "";
  return `<p class="warn">The daemon does not run${seen}. This is as of ${relative(view.at)}. Start it: <code>${escaped(view.command)} run</code></p>`;
}

function document(title, body) {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
    `<title>${escaped(title)}</title><style>${STYLE}</style></head><body>${body}</body></html>`;
}

function escaped(text) {
  const marks = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return String(text ?? "").replace(/[&<>"']/g, (mark) => marks[mark]).replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}
