// Refreshes the parts of the page marked data-live when something is recorded. The page works without it.
"use strict";
(() => {
  const stream = document.body.dataset.stream;
  const note = document.getElementById("live");
  if (!stream || !note || !window.EventSource) return;
  const INTERVAL = 1000; // milliseconds between two refreshes
  const POLL = 10000; // without a stream
  let seen = null, timer = 0, last = 0, busy = false, again = false, failures = 0, poll = 0;

  const say = (text, state) => { note.textContent = text; note.className = "live " + state; };

  const scrollPositions = (part) => [...part.querySelectorAll(".wide, .canvas, pre")].map((e) => [e.scrollLeft, e.scrollTop]);

  function replace(part, fresh) {
    if (part.isEqualNode(fresh)) return;
    const held = part.contains(document.activeElement) ? document.activeElement : null;
    const path = held && held !== part ? [...part.querySelectorAll("a, button, summary, [tabindex]")].indexOf(held) : -1;
    const open = [...part.querySelectorAll("details[open]")].map((e) => e.id);
    const scrolled = scrollPositions(part);
    const copy = document.importNode(fresh, true);
    for (const id of open) { const e = copy.querySelector("#" + CSS.escape(id)); if (e) e.open = true; }
    part.replaceWith(copy);
    [...copy.querySelectorAll(".wide, .canvas, pre")].forEach((e, i) => {
      if (scrolled[i]) { e.scrollLeft = scrolled[i][0]; e.scrollTop = scrolled[i][1]; }
    });
    if (path >= 0) { const e = copy.querySelectorAll("a, button, summary, [tabindex]")[path]; if (e) e.focus({ preventScroll: true }); }
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true; last = Date.now();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of document.querySelectorAll("[data-live]")) {
          const fresh = page.getElementById(part.id);
          if (fresh) replace(part, fresh);
        }
      }
    } catch { /* the stream reports when the server is back */ } finally {
      busy = false;
      if (again) { again = false; refreshSoon(); }
    }
  }

  function refreshSoon() {
    clearTimeout(timer);
    timer = setTimeout(refresh, Math.max(0, INTERVAL - (Date.now() - last)));
  }

  function follow() {
    const source = new EventSource(stream);
    source.addEventListener("version", (event) => {
      failures = 0; clearInterval(poll); poll = 0;
      say("live", "on");
      if (seen !== event.data) { seen = event.data; refreshSoon(); }
    });
    source.addEventListener("error", () => {
      failures += 1;
      say("not connected; trying again", "lost");
      if (source.readyState === EventSource.CLOSED) {
        source.close();
        if (!poll) poll = setInterval(refresh, POLL);
        setTimeout(follow, Math.min(POLL, 1000 * failures));
      }
    });
    window.addEventListener("pagehide", () => source.close(), { once: true });
  }
  follow();
})();
