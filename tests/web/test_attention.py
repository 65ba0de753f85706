"""What needs a person as one item has one button on the page, which does what the command of the item does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailboxd.core.model import Policy, Usage
from mailboxd.core.outcomes import Succeeded, Unknown
from mailboxd.host.clock import SystemClock
from tests.cli.stage import Stage, make
from tests.cli.test_handed_over import comes
from tests.cli.test_inbox import loses, untold
from tests.e2e.support import eventually
from tests.web.serve import Browser, served

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


@pytest.fixture
def page(stage: Stage, tmp_path: Path) -> Iterator[Browser]:
    with served(stage.ws.root, {"XDG_STATE_HOME": str(tmp_path / "state")}) as browser:
        yield browser


def test_circuits_of_one_cause_run_again_by_one_button(stage: Stage, page: Browser) -> None:
    names = [f"t{number}" for number in range(7)]
    for name in names:
        loses(stage, name)
    shown = page.get("/")
    assert "7 tasks stopped for one reason" in shown.words
    assert ", ".join(names) in shown.words
    assert "Cancel the task" not in shown.words, "that ends work, one at a time"
    assert page.form("/", order="unblock-retry", note="it is up again").status == 303
    assert {stage.phase(name) for name in names} == {"execution_ready"}
    assert "7 tasks stopped" not in page.get("/").words


@pytest.mark.parametrize(("order", "phase"), [("unblock-retry", "execution_ready"), ("cancel", "cancelled")])
def test_notes_that_are_held_for_one_reason_go_on_or_end_by_one_button(
    stage: Stage, page: Browser, order: str, phase: str
) -> None:
    for number in range(3):
        comes(stage, f"n{number}", "alpha", "beta")
    assert "3 tasks stopped for one reason: handed over too often" in page.get("/").words
    assert page.form("/", order=order).status == 303
    stage.clock.advance(10 * 365 * 86_400)  # the page has its own
    stage.carry_out_held()
    assert {stage.phase(f"n{number}") for number in range(3)} == {phase}
    assert "stopped" not in page.get("/").words


def test_circuits_that_are_closed_meanwhile_are_no_longer_there(stage: Stage, page: Browser) -> None:
    for number in range(7):
        loses(stage, f"t{number}")
    cause = stage.item("circuit")["id"]
    fields = {"workspace": page.key(), "task": cause, "order": "unblock-retry"}
    assert page.form("/", order="unblock-retry").status == 303
    for number in range(7):
        assert stage.phase(f"t{number}") == "execution_ready"
    stage.create("another", policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn("another", Unknown("the disk was full", "run_1", looked_up=True))
    answer = page.form("/", **fields)
    assert answer.status in (404, 409)
    assert stage.phase("another") == "circuit_open"


def test_notices_that_reach_nobody_are_dismissed(stage: Stage, page: Browser) -> None:
    untold(stage)
    assert "a notice has not reached telegram:42: no bot; none is tried again" in page.get("/").words.lower()
    assert page.form("/", dismiss="telegram:42").headers["location"] == "/?done=dismissed"
    assert "telegram:42" not in page.get("/").words
    assert [item for item in stage.json("inbox") if item["kind"] == "notice"] == []


def test_the_page_shows_what_is_spent_of_the_caps_as_bars(
    stage: Stage, page: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stage.clock.text = SystemClock().now()  # the page's day is today
    stage.create("dear")
    stage.start()
    stage.end_turn("dear", Succeeded("Here it is: 42.", usage=Usage(10, 5, 3.1)))
    stage.run("caps", "--usd", "3")
    shown = page.get(f"/w/{page.key()}")
    assert "alpha: 3.10 of 3 USD today" in shown.words
    assert '<meter min="0" max="1" high="0.8" value="1"' in shown.text
    assert "Alpha has spent 3.10 of 3 USD today: no new turn begins" in shown.words
    assert "caps --usd 6.2 --today" in shown.words
    morning = page.get("/").words
    assert "Spent today 3.10 USD" in morning
    assert "alpha 3.10 of 3 USD today" in morning


def test_one_button_pauses_every_agent_and_one_lets_them_go_on(page: Browser) -> None:
    assert "Pause all agents" in page.get("/").words
    answer = page.form("/", standstill="pause-all", note="<b>an audit</b>")
    assert (answer.status, answer.headers["location"]) == (303, "/?done=pause-all")
    shown = page.get("/")
    assert "Everything is paused" in shown.words
    assert "&lt;b&gt;an audit&lt;/b&gt;" in shown.text
    assert "Everything is paused" in page.get(f"/w/{page.key()}").words
    again = page.post("/", {"form": _token(shown.text), "standstill": "pause-all"})
    assert again.status == 409
    assert page.form("/", standstill="resume-all").status == 303
    assert "Everything is paused" not in page.get("/").words


def _token(text: str) -> str:
    found = re.search(r'name="form" value="([^"]+)"', text)
    assert found
    return found[1]


def test_what_cannot_be_noted_as_read_is_said(stage: Stage, page: Browser, tmp_path: Path) -> None:
    stage.clock.text = SystemClock().now()
    stage.create("one")
    stage.start()
    stage.end_turn("one", "The answer.")
    page.get("/")
    (file,) = (tmp_path / "state" / "mailboxd" / "seen").iterdir()
    file.chmod(0o644)
    refused = page.form("/", read="one")
    assert (refused.status, "What you have seen cannot be noted in" in refused.words) == (409, True)
    file.chmod(0o600)
    assert page.form("/", read="one").status == 303


def test_without_any_work_the_page_says_how_to_begin(stage: Stage, page: Browser) -> None:
    assert '<a href="/new">send the first task</a>' in page.get("/").text
    stage.create("job")
    assert "send the first task" not in page.get("/").text


def test_results_are_unread_on_the_page_until_they_are_opened_or_marked(stage: Stage, page: Browser) -> None:
    stage.clock.text = SystemClock().now()  # the page has its own clock
    for name in ("one", "two", "three", "four"):
        stage.create(name)
        stage.start()
        stage.end_turn(name, f"The answer of {name} <b>is</b> here.\n\nAnd more.")
    stage.create("begun")
    shown = page.get("/")
    assert "Finished since you looked 4" in shown.words
    assert "The answer of one &lt;b&gt;is&lt;/b&gt; here." in shown.text
    page.get(f"/w/{page.key()}/t/one")
    assert "Finished since you looked 3" in page.get("/").words
    assert page.form("/", read="two").headers["location"] == "/?done=read"
    after = page.get("/").text
    assert after.count('class="unread"') == 2
    assert page.form("/", read="begun").status == 409
    assert page.form("/", read_until="yesterday").status == 409
    version = page.get(f"/changed?w={page.key()}").text
    until = re.search(r'name="read_until" value="([^"]+)"', after)
    assert until
    fields = {"form": _token(after), "target": "read-all", "read_until": until[1]}
    assert page.post("/", fields).headers["location"] == "/?done=read"
    quiet = page.get("/").words
    assert "Finished last" in quiet, "the latest are shown also when they are read"
    eventually(lambda: page.get(f"/changed?w={page.key()}").text != version, why=lambda: "another open page shows it")


def test_a_question_has_its_choices_as_buttons(stage: Stage, page: Browser) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", "---\ntype: question\n---\n\nWhich figures shall I use?\n\n- audited ones\n- <b>all</b>\n")
    shown = page.get("/").text
    assert '<button name="text" value="audited ones">audited ones</button>' in shown
    assert "&lt;b&gt;all&lt;/b&gt;</button>" in shown
    assert shown.count("audited ones") == 2, "a button, and no list beside it"
    assert page.form("/", order="answer", text="audited ones").status == 303
    assert "Which figures" not in page.get("/").words, "it is answered"
