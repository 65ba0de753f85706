// The mailboxes as a page of the dashboard itself, where its switch for pages of plugins is on: the same list as in the
// frame, with decisions. They are given by the gateway's method `mailboxd.decide`, as the paired device; whether they
// count is the daemon's to decide, by `approvals.approvers`. All that agents wrote is put in as text, never as markup.

const ID = "mailbox";
const EVERY_MS = 5_000;
const STYLE = `
.mailboxd { padding: 1.5rem; max-width: 60rem; line-height: 1.5; overflow: auto; }
.mailboxd article { border: 1px solid #8884; border-radius: 8px; margin: .6rem 0; padding: .8rem 1rem; }
.mailboxd .kind { color: #c2410c; font-weight: 600; margin-right: .5rem; }
.mailboxd .soft { opacity: .7; font-size: .87em; } .mailboxd .warn { border-left: 3px solid #c2410c; padding: .2rem .8rem; }
.mailboxd pre { background: #8882; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; border-radius: 6px; max-height: 24rem; overflow: auto; }
.mailboxd textarea { width: 100%; min-height: 4rem; box-sizing: border-box; font: inherit; margin: .4rem 0; }
.mailboxd button { font: inherit; padding: .3rem .9rem; margin: .3rem .5rem 0 0; cursor: pointer; }`;

export default {
  id: "mailboxd",
  activate(host) {
    host.ui.registerPage({ id: ID, label: "Mailbox", mount: (container, context) => mount(container, context) });
    host.ui.registerNavigation({ id: ID, label: "Mailbox", page: { id: ID }, icon: "inbox" });
  },
};

function mount(container, context) {
  const root = element("div", { className: "mailboxd" });
  const state = { isBusy: false, shown: "" };
  container.append(element("style", { textContent: STYLE }), root);
  const refresh = async () => {
    if (state.isBusy) return;
    try {
      const found = await context.host.request("mailboxd.views", {});
      const text = JSON.stringify(found.mailboxes.map(({ view, daemon }) => [view, daemon.runs]));
      if (context.signal?.aborted || state.isBusy || text === state.shown) return;
      state.shown = text;
      root.replaceChildren(...page(found, act));
    } catch (problem) {
      state.shown = "";
      root.replaceChildren(element("p", { className: "warn", textContent: `mailboxd cannot be asked: ${problem?.message ?? problem}` }));
    }
  };
  // Gives an order, and says in `answer` what became of it.
  const act = async (order, answer) => {
    answer.textContent = "…";
    let text;
    try {
      ({ text } = await context.host.request("mailboxd.decide", order));
    } catch (problem) {
      text = `The gateway did not answer: ${problem?.message ?? problem}. It may be done: the list says.`;
    }
    answer.textContent = order.verb === "card" && text.startsWith("{") ? "" : text;
    return text;
  };
  // Nothing that a person is reading or writing is replaced.
  root.addEventListener("focusin", () => (state.isBusy = true));
  root.addEventListener("focusout", () => (state.isBusy = false));
  refresh();
  const timer = setInterval(refresh, EVERY_MS);
  return {
    dispose() {
      clearInterval(timer);
      container.replaceChildren();
    },
  };
}

function page({ you, mailboxes }, act) {
  const parts = [element("h1", { textContent: "Mailbox" })];
  if (mailboxes.length === 0) parts.push(element("p", { textContent: "No agent here has a mailbox that mailboxd keeps." }));
  for (const one of mailboxes) {
    const { view, daemon } = one;
    const states = Object.entries(view.counts).map(([name, count]) => `${count} ${name === "needs you" ? "waiting for you" : name}`).join(", ");
    parts.push(element("h2", { textContent: one.agent }), element("p", { className: "soft", textContent: states }));
    if (!daemon.runs) parts.push(element("p", { className: "warn", textContent: `The daemon does not run; this is as of ${view.at}. Start it: ${view.command} run` }));
    if (view.items.length === 0) parts.push(element("p", { textContent: "Nothing needs you." }));
    parts.push(...view.items.map((item) => article(one, item, you, act)));
    if (view.total > view.items.length) parts.push(element("p", { className: "soft", textContent: `and ${view.total - view.items.length} more: ${view.command} inbox` }));
  }
  if (you) parts.push(element("p", { className: "soft", textContent: `This browser is ${you}: approvals.approvers names those who decide.` }));
  return parts;
}

function article(one, item, you, act) {
  const answer = element("p", {});
  const head = element("p", {}, [
    element("span", { className: "kind", textContent: item.kind }),
    element("strong", { textContent: item.name }),
    element("span", { className: "soft", textContent: item.since ? ` · ${relative(item.since)}` : "" }),
  ]);
  const parts = [head, element("p", { textContent: item.approval ? item.approval.action : item.text })];
  const order = async (verb, text = "") => {
    const said = await act({ agent: one.agent, verb, name: item.name, text }, answer);
    const isHeld = (verb === "reject" || verb === "cancel") && said.includes(" in 10 s");
    if (isHeld) answer.append(button("Undo", () => act({ agent: one.agent, verb: "undo", name: item.task, text: "" }, answer)));
    return said;
  };
  if (item.approval) parts.push(...decision(one, item, you, order));
  else if (item.kind === "question") {
    const words = element("textarea", { placeholder: "Your answer", ariaLabel: `Your answer to ${item.name}` });
    if (item.details) parts.push(element("pre", { textContent: item.details }));
    parts.push(words, button("Answer", () => words.value.trim() && order("answer", words.value)));
  } else {
    if (["circuit", "hold"].includes(item.kind)) parts.push(button("Run again", () => order("retry")));
    parts.push(element("p", { className: "soft", textContent: item.command }));
  }
  if (["question", "circuit", "hold"].includes(item.kind)) parts.push(button("Cancel the task", () => order("cancel")));
  return element("article", {}, [...parts, answer]);
}

// A request is shown as the daemon describes it, with its digest, before it can be approved.
function decision(one, item, you, order) {
  const place = element("div", {});
  const words = element("textarea", { placeholder: "Reason (to reject or to ask for changes)", ariaLabel: `Your words on ${item.name}` });
  const look = async () => {
    const text = await order("card");
    if (!text.startsWith("{")) return;
    const card = JSON.parse(text);
    const parts = [
      element("p", { textContent: `risk: ${card.risk || "none declared"}` }),
      element("pre", { textContent: card.preview }),
      element("p", { className: "soft", textContent: `asked by ${card.requested_by}, expires ${card.expires_at}${card.is_cut ? "; it is longer than this" : `, digest ${card.digest.slice(0, 16)}`}` }),
    ];
    if (card.is_cut || (!card.is_reversible && !one.view.approves_all)) {
      const why = card.is_cut ? "It is too long to be approved here" : "It cannot be taken back, so it is not approved here";
      parts.push(element("p", { textContent: `${why}: ${one.view.command} approve ${item.name}` }));
    } else if (!one.view.people.includes(you)) parts.push(element("p", { textContent: `Only those named in approvals.approvers decide; this browser is ${you || "no paired device"}.` }));
    else parts.push(button("Approve", () => order("approve", card.digest)));
    place.replaceChildren(...parts);
  };
  return [place, button("Show", look), words, button("Reject", () => order("reject", words.value)), button("Ask for changes", () => words.value.trim() && order("changes", words.value))];
}

function relative(at) {
  const minutes = Math.round((Date.now() - Date.parse(at)) / 60_000);
  if (!(minutes >= 1)) return "just now";
  return minutes < 60 ? `${minutes} min ago` : minutes < 1_440 ? `${Math.floor(minutes / 60)} h ago` : `${Math.floor(minutes / 1_440)} d ago`;
}

function button(label, onClick) {
  const made = element("button", { type: "button", textContent: label });
  made.addEventListener("click", () => onClick());
  return made;
}

function element(name, fields, children = []) {
  const made = Object.assign(document.createElement(name), fields);
  made.append(...children);
  return made;
}
