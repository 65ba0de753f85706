"""A rejected message is read, corrected and sent again on the page."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from mailboxd.core.entrance import Entrance, Owner, Way
from tests.cli.stage import Stage, make
from tests.web.inside import Inside, inside

WRONG = "---\ntype: task\ntask_id: trip\npriority: <b>high</b>\n---\n\n# Task: Book it\n\n## Instructions\n\nBook.\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


@pytest.fixture
def page(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return inside(stage, tmp_path / "state")


def _rejected(stage: Stage, page: Inside, text: bytes = WRONG.encode()) -> str:
    """The path of the page of a message that was rejected, as the overview names it."""
    (stage.ws.inbox / "trip.md").write_bytes(text)
    assert stage.receive() == "rejected"
    found = re.search(r'<a class="button" href="(/w/[^"]*/m/[^"]+)">', page.get("/").text)
    assert found, page.get("/").words
    return found[1]


def test_a_rejected_message_says_why_and_where_its_file_is(stage: Stage, page: Inside) -> None:
    shown = page.get(_rejected(stage, page))
    assert "Read and correct it" in page.get("/").words
    reason = re.search(r'id="reason">(.*?)</div>', shown.text, re.S)
    assert reason
    assert "priority" in reason[1]
    assert "{" not in reason[1], "in words, not as it is stored"
    assert str(stage.ws.mailbox) in shown.words
    assert "priority: &lt;b&gt;high&lt;/b&gt;" in shown.text


def test_the_page_of_a_message_says_who_owned_its_file_and_how_it_came(stage: Stage, page: Inside) -> None:
    (stage.ws.inbox / "trip.md").write_text(WRONG)
    assert stage.receive(Entrance(Owner(54321, "<ann>"), Way.RENAMED, "hub")) == "rejected"
    found = re.search(r'href="(/w/[^"]*/m/[^"]+)">', page.get("/").text)
    assert found
    assert "owned by <ann> (uid 54321), renamed in, as its name says, by the hub" in page.get(found[1]).words
    said = stage.run("log").output
    assert "it is owned by <ann> (uid 54321), renamed in, as its name says, by the hub" in said


def test_the_corrected_text_is_sent_under_its_name_and_ends_the_matter(stage: Stage, page: Inside) -> None:
    path = _rejected(stage, page)
    fixed = WRONG.replace("<b>high</b>", "5").replace("\n", "\r\n")
    message = path.rpartition("/")[2]
    assert page.form(path, correct=message, text=fixed).headers["location"] == f"{path}?done=sent-again"
    (sent,) = stage.ws.inbox.iterdir()
    assert sent.name == "trip.md"
    assert b"\r" not in sent.read_bytes()
    assert stage.receive() == "accepted"
    assert stage.phase("trip")
    assert "Rejected" not in page.get("/").words
    shown = page.get(path)
    assert "priority: &lt;b&gt;high&lt;/b&gt;" in shown.text, "the rejected one is kept"


def test_what_would_be_rejected_again_is_not_sent_and_not_lost(stage: Stage, page: Inside) -> None:
    path = _rejected(stage, page)
    message = path.rpartition("/")[2]
    same = page.form(path, correct=message, text=WRONG)
    assert same.status == 409
    worse = page.form(path, correct=message, text=WRONG.replace("<b>high</b>", "<i>lowest"))
    assert worse.status == 409
    assert "priority: &lt;i&gt;lowest" in worse.text
    assert 'aria-describedby="problem-correct"' in worse.text
    assert list(stage.ws.inbox.iterdir()) == []
    assert page.form(path, correct="msg_01NOTHING", text="x").status == 404
    assert page.form(path, correct=message, text=" ").status == 409


def test_what_is_no_text_is_only_dismissed(stage: Stage, page: Inside) -> None:
    path = _rejected(stage, page, b"\xff\xfe\x00")
    shown = page.get(path)
    assert "Correct it and send it again" not in shown.words
    assert page.form(path, dismiss=path.rpartition("/")[2]).headers["location"].endswith("?done=dismissed")
    assert "Rejected" not in page.get("/").words


def _as_a_browser_posts(shown: str, field: str) -> str:
    """What a textarea of this page sends when nothing is written in it."""
    found = re.search(rf'<textarea id="{field}"[^>]*>\n(.*?)</textarea>', shown, re.S)
    assert found
    return html.unescape(found[1]).replace("\r\n", "\n").replace("\n", "\r\n")


def test_a_refused_correction_shows_its_lines_again_and_can_be_sent(stage: Stage, page: Inside) -> None:
    path = _rejected(stage, page)
    message = path.rpartition("/")[2]
    refused = page.form(path, correct=message, text=WRONG.replace("<b>high</b>", "500").replace("\n", "\r\n"))
    assert refused.status == 409
    assert re.search(r"Not sent: [^.]*500[^.]*\(line 4\)", refused.words), refused.words[:400]
    again = _as_a_browser_posts(refused.text, "correct-text")
    assert "\\r" not in again
    assert page.form(path, correct=message, text=again.replace("500", "5")).status == 303
    (sent,) = stage.ws.inbox.iterdir()
    assert sent.read_text().startswith("---\ntype: task\n")


@pytest.mark.parametrize("field", ["instructions", "expected_output", "plan"])
def test_a_refused_new_task_shows_its_lines_again(stage: Stage, page: Inside, field: str) -> None:
    lines = "subtasks:\r\n  a: {agent: self, description: x}\r\n"
    said = {"send": "task", "workspace": page.key(), "instructions": "Count", "budget_usd": "much", field: lines}
    refused = page.form("/new", None, **said)
    assert refused.status == 409
    assert _as_a_browser_posts(refused.text, field) == lines


def test_spaces_and_joiners_of_other_scripts_stay_what_they_are(stage: Stage, page: Inside) -> None:
    text = WRONG.replace(
        "Book.", "\u65c5\u3000\u884c, \u0646\u200c\u0645, 5\u00a0km \U0001f469\u200d\U0001f52c"
    ).replace("\n", "\r\n")
    path = _rejected(stage, page, text.encode())
    assert _as_a_browser_posts(page.get(path).text, "correct-text") == text, "of a file with such line ends, too"
    refused = page.form(path, correct=path.rpartition("/")[2], text=text.replace("high", "low"))
    assert _as_a_browser_posts(refused.text, "correct-text") == text.replace("high", "low")


def test_after_a_correction_its_page_leads_to_what_it_became(stage: Stage, page: Inside) -> None:
    path = _rejected(stage, page)
    page.form(path, correct=path.rpartition("/")[2], text=WRONG.replace("<b>high</b>", "5"))
    assert "Sent again" in page.get(f"{path}?done=sent-again").words
    assert stage.receive() == "accepted"
    shown = page.get(f"{path}?done=sent-again")
    assert f'it is the task <a href="/w/{page.key()}/t/trip">Book it</a>' in shown.text
    assert 'class="trouble"' not in shown.text
    assert "rejected, and corrected since" in shown.words
