// The palette: Ctrl-K, and then a few letters of a page, a saved search, a task or an order of this page. Every one of these
// can be reached without it.
"use strict";
(() => {
  const opener = document.getElementById("palette-open");
  if (!opener) return;
  const WAIT = 120; // milliseconds without a key before the server is asked

  const make = (name, attributes, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const find = make("input", {
    type: "text", id: "palette-find", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list",
    "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", maxlength: "200", placeholder: "Page, task or order",
  });
  const list = make("ul", { id: "palette-list", role: "listbox", "aria-label": "What you can go to or do" });
  const note = make("p", { class: "soft", role: "status" });
  const palette = make("dialog", { id: "palette", "aria-label": "Go to or do" },
    make("label", { class: "hidden", for: "palette-find" }, "Page, saved search, task or order"), find, list, note);
  document.body.append(palette);

  let found = [], at = 0, asked = 0, timer = 0;

  // The orders that stand on this page: the palette leads to their form, which asks as always.
  function orders(words) {
    const seen = [...document.querySelectorAll("#main button[name=order], #main button[name=decision], #main button[name=undo], #main button[name=undo-all]")];
    return seen.map((button) => {
      const about = button.closest("li, section")?.querySelector("summary, h2")?.textContent.trim().replace(/\s+/g, " ") || "";
      return { kind: "order", label: button.textContent.trim(), hint: about.slice(0, 120), button };
    }).filter((one) => words.every((word) => `${one.label} ${one.hint}`.toLowerCase().includes(word)));
  }

  function show() {
    list.replaceChildren(...found.map((one, number) => make("li",
      { id: `palette-${number}`, role: "option", "aria-selected": String(number === at) },
      make("span", { class: "kind" }, one.kind), make("span", { class: "label" }, one.label), make("span", { class: "soft" }, one.hint || ""))));
    note.textContent = found.length ? "" : "Nothing is called so.";
    if (found.length) find.setAttribute("aria-activedescendant", `palette-${at}`); else find.removeAttribute("aria-activedescendant");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  async function look() {
    const said = find.value.trim(), words = said.toLowerCase().split(/\s+/).filter(Boolean), mine = ++asked;
    const here = orders(words);
    let others = [];
    try {
      const answer = await fetch(`/palette?q=${encodeURIComponent(said)}`, { credentials: "same-origin", cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.ok) others = await answer.json();
    } catch { /* the orders of this page are there all the same */ }
    if (mine !== asked || !palette.open) return;
    found = [...here, ...others];
    at = 0;
    show();
  }

  function take(one) {
    palette.close();
    if (!one) return;
    if (one.href) { location.assign(one.href); return; }
    for (let part = one.button.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    const field = one.button.form?.querySelector("textarea, input:not([type=hidden]):not([type=checkbox])") || one.button;
    field.focus();
    field.scrollIntoView({ block: "center" });
  }

  function open() {
    if (document.querySelector("dialog[open]")) return;
    find.value = "";
    found = orders([]);
    at = 0;
    palette.showModal();
    show();
    find.focus();
    look();
  }

  find.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, WAIT); });
  find.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) { event.preventDefault(); at = (at + step + found.length) % found.length; show(); }
    if (event.key === "Home" && event.ctrlKey) { at = 0; show(); }
    if (event.key === "Enter") { event.preventDefault(); take(found[at]); }
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("li");
    if (row) take(found[[...list.children].indexOf(row)]);
  });
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
  opener.hidden = false;
  opener.addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      open();
    }
  });
})();
