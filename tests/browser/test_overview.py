"""The overview in a real browser: five answers on one screen, whatever tasks are called."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect

from mailboxd.core.model import Policy, Usage
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.core.times import plus
from mailboxd.host.clock import SystemClock
from mailboxd.ledger import seen_items
from tests.browser.conftest import entered
from tests.cli.stage import Stage, child, make
from tests.web.serve import served

TITLES = {
    "long": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "right": "مرحبا بالعالم شلום \u202e gnp.exe",
    "emoji": "🚀" * 120,
    "markup": "</li></ul><script>alert(1)</script><b>bold",
    "blank": "\u200b\u2060",
}
SIZES = ((1280, 800), (390, 844), (320, 640))

OVERFLOWS = """[...document.querySelectorAll("main *")].filter(e => e.scrollWidth - e.clientWidth >= 2
  && !["hidden", "auto"].includes(getComputedStyle(e).overflowX) && getComputedStyle(e).display !== "inline"
  && !e.closest("svg, .hidden")).map(e => e.outerHTML.slice(0, 200))"""
"""The elements whose content is wider than they are."""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Two weeks of work that is finished and paid for."""
    stage = make(tmp_path / "alpha")
    now = SystemClock().now()
    for day in range(13, -1, -1):
        stage.clock.text = plus(now, -day * 86_400 - 60)
        stage.create(f"day-{day}")
        stage.start()
        stage.end_turn(f"day-{day}", "All figures are in.\n\nMore.", Usage(1_000, 500, 1.0 + day % 3))
    return stage


@pytest.fixture
def page(stage: Stage, chromium: Chromium, tmp_path: Path) -> Iterator[Page]:
    with served(stage.ws.root, {"XDG_STATE_HOME": str(tmp_path / "state")}) as server:
        context = entered(chromium, server, viewport={"width": 1280, "height": 800})
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        yield page
        context.close()
        assert not complaints


def test_with_nothing_waiting_one_screen_answers_the_five_questions(stage: Stage, page: Page, tmp_path: Path) -> None:
    environ, now = {"XDG_STATE_HOME": str(tmp_path / "state")}, SystemClock().now()
    seen_items.read(stage.ws.root, environ, now, {}, until=now)
    page.goto("/")
    expect(page.get_by_text("Nothing waits for you.")).to_be_in_viewport()
    for section in ("#answers", "#finished", "#spent svg.days", "#workspaces"):
        expect(page.locator(section)).to_be_in_viewport(ratio=1)
    for section in ("#failed", "#running", "#later", ".asked"):
        expect(page.locator(section)).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollHeight") <= 800


def test_no_title_breaks_the_page_and_results_are_marked_as_read(stage: Stage, page: Page) -> None:
    for name in TITLES:
        stage.create(name)
        stage.start()
        stage.end_turn(name, f"{TITLES[name]}\n\nMore.")
    stage.create("bad", policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn("bad", Failed(TITLES["long"], Permanence.PERMANENT))
    stage.create("ask")
    stage.start()
    stage.end_turn("ask", f"---\ntype: question\n---\n\n{TITLES['long']}?\n\n- one\n- two\n")
    stage.create("run", child("a", "alpha"), child("b", "alpha"))
    stage.start()
    stage.end_turn("run.a", "A")
    with closing(sqlite3.connect(stage.ws.database)) as db, db:
        for name, title in {**TITLES, "bad": TITLES["right"], "ask": TITLES["long"], "run": TITLES["emoji"]}.items():
            db.execute("UPDATE tasks SET title = ? WHERE local_id = ?", (title, name))
    page.goto("/")
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERFLOWS) == []
    expect(page.locator("#running progress")).to_have_attribute("value", "1")
    assert Axe().run(page).violations_count == 0
    before = int(page.locator("#finished-title .number").inner_text())
    page.get_by_role("button", name="Mark read").first.click()
    expect(page.locator("#finished-title .number")).to_have_text(str(before - 1))
    page.get_by_role("button", name="Mark all read").click()
    expect(page.get_by_role("heading", name="Finished last")).to_be_visible()
    expect(page.locator("#finished .unread")).to_have_count(0)
