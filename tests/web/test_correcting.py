"""A rejected message is read, corrected and sent again on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
