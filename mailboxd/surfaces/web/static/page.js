// Keeps the open page as it is on the server, without flicker, and adds a few keys. The page works without it.
"use strict";
(() => {
  const main = document.getElementById("main");

  // Live: what changed is changed in place, so that focus, selection, scrolling and unfolded parts stay.

  const INTERVAL = 1000; // milliseconds between two questions whether something changed

  const isTyped = (e) => [...e.querySelectorAll("input:not([type=hidden]), textarea, select")].some((f) =>
    f === document.activeElement || (f.type === "checkbox" ? f.checked !== f.defaultChecked : f.value !== (f.defaultValue ?? f.value)));

  function attributes(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.tagName === "DETAILS")) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value && !(name === "open" && old.tagName === "DETAILS")) old.setAttribute(name, value);
    }
  }

  const fits = (old, fresh) => old && old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && (old.id || "") === (fresh.id || "");

  function morph(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = fresh.nodeValue; return; }
    attributes(old, fresh);
    if (old.tagName === "TEXTAREA") return;
    let at = old.firstChild;
    for (const node of [...fresh.childNodes]) {
      let kept = fits(at, node) ? at : null;
      if (!kept && node.id) {
        kept = [...old.children].find((e) => e.id === node.id && e.nodeName === node.nodeName) || null;
        if (kept) old.insertBefore(kept, at);
      }
      if (kept) { morph(kept, node); at = kept.nextSibling; } else old.insertBefore(document.importNode(node, true), at);
    }
    while (at) {
      const next = at.nextSibling;
      if (at.nodeType !== Node.ELEMENT_NODE || !isTyped(at)) at.remove(); // what a person is writing stays
      at = next;
    }
  }

  let busy = false, again = false;

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      // nobody may be looking: what the page shows anew counts as seen only when a person opens it
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store", headers: { "x-refresh": "1" } });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.redirected) { location.replace(answer.url); return; } // a task that was sent has its own page now
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        morph(main, page.getElementById("main"));
        document.title = page.title;
      }
    } catch { /* the next question finds out when the server is back */ } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  }

  // Links that change only a part of the page, like the zoom of a timeline.
  main.addEventListener("click", (event) => {
    const link = event.target.closest("a"), address = link?.getAttribute("href");
    if (!link?.closest("[data-swap]") || !address.startsWith("?") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.pushState(null, "", address);
    refresh();
  });
  window.addEventListener("popstate", refresh);

  async function follow(address, note, seen) {
    const say = (text, state) => { note.textContent = text; note.className = "live " + state; };
    try {
      const answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (!answer.ok) throw new Error(answer.status);
      const now = await answer.text();
      if (now !== seen) refresh();
      seen = now;
      say("live", "on");
    } catch { say("not connected; trying again", "lost"); }
    setTimeout(follow, INTERVAL, address, note, seen);
  }

  // Keys: j and k move the focus along the lines of the page, so Enter opens one.

  const help = document.getElementById("keys"), opener = document.getElementById("keys-open"), on = document.getElementById("keys-on");

  function step(by) {
    const rows = [...main.querySelectorAll("[data-row]")];
    const at = rows.findIndex((row) => row === document.activeElement || row.closest("li, section")?.contains(document.activeElement));
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  function act() {
    const items = [...main.querySelectorAll(".asked > li, .asks")];
    if (!items.length) { if (location.pathname !== "/") location.assign("/#attention"); return; }
    const at = items.findIndex((item) => item.contains(document.activeElement));
    const item = items[at >= 0 && !document.activeElement.matches("summary") ? (at + 1) % items.length : Math.max(at, 0)];
    const folded = item.querySelector(":scope > details");
    if (folded && item.matches("li")) folded.open = true;
    (item.querySelector("textarea") || item.querySelector("summary, a")).focus();
  }

  const KEYS = {
    "/": () => { const find = document.getElementById("find"); find.focus(); find.select(); },
    j: () => step(1), k: () => step(-1), a: act, "?": () => help.showModal(),
  };

  if (help && opener && on) {
    opener.hidden = false;
    opener.addEventListener("click", () => help.showModal());
    on.checked = localStorage.getItem("keys") !== "off";
    on.addEventListener("change", () => localStorage.setItem("keys", on.checked ? "on" : "off"));
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || help.open || !on.checked) return;
      if (event.target.closest("input:not([type=checkbox]), textarea, select")) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      if (Object.hasOwn(KEYS, event.key)) { event.preventDefault(); KEYS[event.key](); }
    });
  }

  // Nobody reviews their own work: who does a new task is not offered as its reviewer. The server refuses it in any case.

  const doer = document.getElementById("workspace"), reviewers = document.querySelectorAll("[data-reviewer]");

  function offer() {
    for (const box of reviewers) {
      const own = box.dataset.reviewer === doer.selectedOptions[0]?.dataset.agent;
      box.disabled = own;
      box.closest("label").hidden = own;
    }
  }
  if (doer && reviewers.length) {
    offer();
    doer.addEventListener("change", offer);
  }

  // How long an order is still held: the time is there without this, too.

  function count() {
    for (const time of document.querySelectorAll("time[data-countdown]")) {
      const left = Math.ceil((Date.parse(time.dateTime) - Date.now()) / 1000);
      time.textContent = left > 0 ? `at ${time.dateTime.slice(11, 19)} UTC, in ${left} s` : "as soon as the daemon runs";
    }
  }
  count();
  setInterval(count, 500);

  const address = document.body.dataset.changed, note = document.getElementById("live");
  if (address && note) follow(address, note, "");
  document.querySelector("[aria-invalid]")?.focus();
})();
