"""The page in a real browser: accessible, by keyboard alone, live, without JavaScript, narrow, dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect

from tests.browser.conftest import entered
from tests.e2e.support import PATIENCE, Company, eventually, task
from tests.web.serve import Browser

Window = Callable[..., Page]
SLOW = 15_000 * PATIENCE
"""Milliseconds that something may take on a crowded machine."""


@pytest.fixture
def window(chromium: Chromium, page_server: Browser) -> Iterator[Window]:
    """Open a page in a window of its own; it must not complain of the content security policy, or of anything."""
    contexts, complaints = [], list[str]()

    def open_window(path: str, **settings: Any) -> Page:
        context = entered(chromium, page_server, **settings)
        context.set_default_timeout(SLOW)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        return page

    yield open_window
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture(scope="module")
def paths(page_server: Browser, company: Company) -> dict[str, str]:
    """A path of every kind of page."""
    key = page_server.key("analyst")
    request = company["analyst"].json("approve")[0]["short_id"]
    messages = page_server.get(f"/w/{key}/messages").text
    found = re.search(rf'href="(/w/{key}/m/[^"]+)"', messages)
    assert found
    return {
        "overview": "/", "workspace": f"/w/{key}", "filtered": f"/w/{key}?state=done&children=1",
        "task": f"/w/{key}/t/q3", "leaf": f"/w/{key}/t/q3.report", "stuck": f"/w/{key}/t/crawl",
        "asking": f"/w/{key}/t/publish", "bulk": f"/w/{key}/all?order=retry",
        "log": f"/w/{key}/t/q3/log",
        "children": f"/w/{key}/t/q3/children", "request": f"/w/{key}/a/{request}", "messages": f"/w/{key}/messages",
        "message": found[1], "search": "/search?q=revenue", "new": "/new",
        "recipe": "/new?recipe=debate",
        "zoomed": f"/w/{key}/t/q3?from=1&until=4000000000", "nothing": "/w/nothing-00000000",
    }  # fmt: skip


KINDS = (
    "overview", "workspace", "filtered", "task", "leaf", "stuck", "children", "request", "messages", "message",
    "search", "new", "recipe", "zoomed", "asking", "bulk", "log",
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(window: Window, paths: dict[str, str], kind: str, scheme: str) -> None:
    page = window(paths[kind], color_scheme=scheme)
    page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_axe_finds_nothing_where_nobody_is_in(chromium: Chromium, page_server: Browser) -> None:
    page = chromium.new_page()
    page.goto(page_server.origin)
    assert Axe().run(page).violations_count == 0
    assert "Closed" in page.inner_text("h1")
    page.close()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_a_narrow_screen(window: Window, paths: dict[str, str], kind: str) -> None:
    page = window(paths[kind], viewport={"width": 320, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    expect(page.locator("h1")).to_be_in_viewport()


@pytest.mark.parametrize("kind", ["workspace", "filtered", "children"])
def test_a_task_is_a_card_on_a_phone(window: Window, paths: dict[str, str], kind: str) -> None:
    page = window(paths[kind], viewport={"width": 390, "height": 844})
    boxes = page.evaluate("[...document.querySelectorAll('.tasks li')].map(e => e.getBoundingClientRect().toJSON())")
    assert boxes
    assert max(box["height"] for box in boxes) < 200
    assert min(box["width"] for box in boxes) > 350


@pytest.mark.parametrize("kind", ["request", "asking"])
def test_the_decision_is_in_reach_of_a_thumb(window: Window, paths: dict[str, str], kind: str) -> None:
    page = window(paths[kind], viewport={"width": 390, "height": 844})
    button = page.get_by_role("button", name="Approve")
    for where in (0, 100_000):
        page.evaluate(f"scrollTo(0, {where})")
        box = button.bounding_box()
        assert box
        assert 844 - 100 < box["y"] + box["height"] <= 844
    ends = page.evaluate("document.querySelector('footer').getBoundingClientRect().bottom")
    begins = page.evaluate("document.querySelector('.decides > form > .buttons').getBoundingClientRect().top")
    assert ends <= begins, "it covers nothing at the end"


def test_the_palette_goes_to_a_task_by_keyboard_and_is_accessible(window: Window, paths: dict[str, str]) -> None:
    page = window(paths["asking"])
    page.keyboard.press("Control+k")
    find = page.get_by_role("combobox", name="Page, saved search, task or order")
    expect(find).to_be_focused()
    options = page.get_by_role("option")
    expect(options.filter(has_text="Approve")).to_have_count(1)
    assert Axe().run(page).violations_count == 0
    find.fill("third quarter")
    expect(options.filter(has_text="Analyse the revenue of the third quarter")).not_to_have_count(0)
    chosen = page.locator("#palette [aria-selected=true]")
    expect(chosen).to_have_attribute("id", str(find.get_attribute("aria-activedescendant")))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/t/q3")
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_the_palette_leads_to_the_form_of_an_order_which_asks_as_always(window: Window, paths: dict[str, str]) -> None:
    page = window(paths["asking"])
    page.get_by_role("button", name="Go to…").click()
    page.get_by_role("combobox").fill("reject")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason (required)")).to_be_focused()


def test_dark_is_dark(window: Window, paths: dict[str, str]) -> None:
    for scheme, is_dark in (("light", False), ("dark", True)):
        page = window(paths["task"], color_scheme=scheme)
        paper, ink = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert (_brightness(paper) < _brightness(ink)) is is_dark


def _brightness(colour: str) -> float:
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3])


def test_the_keyboard_reaches_everything_and_shows_where_it_is(window: Window, paths: dict[str, str]) -> None:
    page = window(paths["task"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        where = page.evaluate(
            "(e => [e.tagName, e.getAttribute('href') || e.name || e.textContent.slice(0, 30),"
            " getComputedStyle(e).outlineStyle !== 'none' ||"
            " (e.querySelector('.shape') && getComputedStyle(e.querySelector('.shape')).strokeWidth === '3px')])"
            "(document.activeElement)"
        )
        if where[0] == "BODY":
            break
        assert where[2], where
        seen.add((where[0], where[1]))
    assert {"a", "SUMMARY", "BUTTON"} <= {tag for tag, _ in seen}
    assert any(tag == "a" and "q3.report" in href for tag, href in seen)


def test_what_is_recorded_appears_without_a_reload(window: Window, company: Company, page_server: Browser) -> None:
    page = window(f"/w/{page_server.key('writer')}")
    expect(page.locator("#live")).to_have_text("live")
    page.fill("input[name=q] >> nth=1", "half a wo")
    page.evaluate("window.same = true")
    company["writer"].drop("live.md", task("live-update", "Appears by itself"))
    expect(page.get_by_role("link", name="Appears by itself", exact=True)).to_be_visible()
    assert page.evaluate("window.same")
    assert page.input_value("input[name=q] >> nth=1") == "half a wo"


def test_everything_can_be_read_and_ordered_without_javascript(
    window: Window, paths: dict[str, str], company: Company, page_server: Browser
) -> None:
    writer, key = company["writer"], page_server.key("writer")
    writer.drop("plain.md", task("without-script", "Done without JavaScript"))
    writer.until("without-script")
    page = window("/", java_script_enabled=False)
    page.get_by_role("link", name="writer", exact=True).click()
    page.get_by_role("link", name="Done without JavaScript", exact=True).click()
    expect(page.locator("h1")).to_have_text("Done without JavaScript")
    expect(page.locator("#answer")).to_contain_text("September was the best month.")
    page.get_by_text("Run again", exact=True).first.click()
    page.get_by_label("Note").fill("once more")
    page.get_by_role("button", name="Run again").click()
    expect(page.get_by_role("status")).to_contain_text("It will run again")
    assert page.url.partition("?")[0].endswith(f"/w/{key}/t/without-script")


def test_a_few_keys_lead_everywhere(window: Window, paths: dict[str, str]) -> None:
    page = window("/")
    page.keyboard.press("a")
    assert page.evaluate("document.activeElement.name") == "note"
    page.keyboard.type("a?jk")
    assert page.input_value(".asked textarea >> nth=0") == "a?jk"  # in a field a key is a letter
    page.fill(".asked textarea >> nth=0", "")
    page.keyboard.press("Escape")
    page.goto(paths["workspace"])
    for _ in range(9):
        page.keyboard.press("j")
    page.keyboard.press("k")
    chosen = page.evaluate("document.activeElement.getAttribute('href')")
    assert chosen == page.locator("[data-row]").nth(-2).get_attribute("href")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert Axe().run(page).violations_count == 0
    page.keyboard.press("Escape")
    page.locator(".tasks [data-row] >> nth=0").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/t/*")
    page.keyboard.press("/")
    page.keyboard.type("revenue\n")
    page.wait_for_url("**/search?q=revenue")


def test_what_a_person_writes_and_unfolds_survives_what_happens(
    window: Window, company: Company, page_server: Browser
) -> None:
    page = window("/")
    expect(page.locator("#live")).to_have_text("live")
    note = page.locator(".asked textarea >> nth=0")
    note.fill("half a thou")
    note.evaluate("e => { window.held = e; e.setSelectionRange(2, 4); }")
    page.locator(".asked summary >> nth=0").click()
    note.focus()
    company["writer"].drop("more.md", task("more", "Something else happens"))
    expect(page.locator("#finished").get_by_role("link", name="Something else happens")).to_be_visible()
    assert page.evaluate("window.held === document.activeElement && held.isConnected && held.selectionStart") == 2
    assert note.input_value() == "half a thou"
    assert page.locator(".asked details[open]").count() == 1


def test_a_request_is_rejected_by_keyboard_alone(window: Window, company: Company, paths: dict[str, str]) -> None:
    """After all that look at this request: it is decided then."""
    analyst = company["analyst"]
    page = window("/")
    assert "Asks for your approval: run rsync" in page.inner_text("#attention")
    _tab_to(page, "publish the report on the web site")
    assert "web.example:/srv/www/" in page.inner_text("#attention")
    _tab_to(page, "Reject", field="note")
    page.keyboard.type("Not on a Friday.")
    _tab_to(page, "Reject")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Nothing is stopped yet")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    eventually(lambda: analyst.query("SELECT 1 FROM v_approvals WHERE status = 'rejected'"), 60, analyst.last_words)
    (row,) = analyst.query("SELECT status, note FROM v_approvals")
    assert row == {"status": "rejected", "note": "Not on a Friday."}


def test_changes_are_requested_and_then_it_is_approved_by_keyboard_alone(
    window: Window, company: Company, page_server: Browser
) -> None:
    """The order is the way of a request: sent back, asked again, approved; then what was approved is done."""
    analyst = company["analyst"]
    analyst.drop("announce.md", task("announce", "announce the report"))
    for button, note, said, status in (
        ("Ask for changes", "Say which quarter.", "Changes requested", "request_changes"),
        ("Approve", "", "Approved", "approved"),
    ):
        eventually(lambda: analyst.phase("announce") == "awaiting_approval", 60, analyst.last_words)
        (waiting,) = eventually(lambda: analyst.json("approve"), 60, analyst.last_words)
        page = window(f"/w/{page_server.key('analyst')}/a/{waiting['short_id']}")
        _tab_to(page, button, field="note")
        page.keyboard.type(note)
        _tab_to(page, button)
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text(said)
        (row,) = analyst.query("SELECT status, note FROM v_approvals WHERE id LIKE '%' || ?", waiting["short_id"])
        assert (row["status"], row["note"] or "") == (status, note)
    analyst.until("announce")


def _tab_to(page: Page, text: str, field: str = "") -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        name, said = page.evaluate("[document.activeElement.name || '', document.activeElement.textContent]")
        if (field and name == field) or (not field and said.strip().startswith(text)):
            return
    raise AssertionError(f"the keyboard does not reach {field or text}")
