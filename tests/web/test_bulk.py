"""One order for all that a search finds: the page that asks names exactly them, and one undo takes all of it back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mailboxd.core.model import Policy
from mailboxd.core.outcomes import Failed, Permanence, Unknown
from mailboxd.surfaces.web import bulk
from mailboxd.surfaces.web.bulk import MOST
from tests.cli.stage import NOW, Stage, child, make
from tests.web.inside import Inside, inside


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


@pytest.fixture
def page(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return inside(stage, tmp_path / "state")


def _fails(stage: Stage, *names: str) -> None:
    for name in names:
        stage.create(name, policy=Policy(max_attempts=1))
        stage.start()
        stage.end_turn(name, Failed("no access", Permanence.PERMANENT))
        assert stage.phase(name) == "failed"


def _sends(stage: Stage, *names: str) -> None:
    for name in names:
        stage.create(name)


@pytest.mark.slow
def test_all_that_failed_runs_again_and_nothing_else(stage: Stage, page: Inside) -> None:
    _fails(stage, "crawl-a", "crawl-b", "other")
    _sends(stage, "crawl-c")
    key = page.key()
    assert "All 3 of these" in page.get(f"/w/{key}?q=crawl").words
    asks = page.get(f"/w/{key}/all?order=retry&q=crawl")
    assert "Run 2 tasks again?" in asks.words
    assert "2 of the 3 that were found" in asks.words
    assert "crawl-a" in asks.words
    assert "crawl-c" not in asks.words
    answer = page.form(f"/w/{key}/all?order=retry&q=crawl", all="retry", note="access is mended")
    assert answer.headers["location"] == f"/w/{key}?q=crawl&done=all-retry&did=2&left=0"
    assert "2 tasks will run again." in page.get(answer.headers["location"]).words
    assert [stage.phase(name) for name in ("crawl-a", "crawl-b", "other")] == [
        "execution_ready", "execution_ready", "failed",
    ]  # fmt: skip


def test_what_changed_since_the_list_was_shown_is_left_and_twice_does_nothing_twice(stage: Stage, page: Inside) -> None:
    _fails(stage, "one", "two")
    path = f"/w/{page.key()}/all?order=retry&state=done: failed".replace(" ", "%20")
    fields = page.filled(path, all="retry")
    _fails(stage, "three")
    stage.run("retry", "one")
    assert page.post(path, fields).headers["location"].endswith("done=all-retry&did=1&left=1")
    assert stage.phase("three") == "failed", "it was not listed"
    again = page.post(path, fields).headers["location"]
    assert again.endswith("did=0&left=2")
    assert "2 tasks had changed since the list was shown, and are as before" in page.get(again).words


def test_an_order_that_suits_none_says_so_and_has_no_button(stage: Stage, page: Inside) -> None:
    _sends(stage, "one", "two")
    asks = page.get(f"/w/{page.key()}/all?order=retry")
    assert "None of these 2 has failed, is stuck or is on hold." in asks.words
    assert 'name="all"' not in asks.text
    assert "No task was found." in page.get(f"/w/{page.key()}/all?order=retry&q=nothing").words


def test_stuck_work_is_released_by_the_same_button(stage: Stage, page: Inside) -> None:
    stage.create("stuck", policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn("stuck", Unknown("the disk was full", "run_1", looked_up=True))
    assert stage.phase("stuck") == "circuit_open"
    stage.create("rests")
    stage.run("pause", "rests")
    path = f"/w/{page.key()}/all?order=retry"
    assert "Run 1 task again?" in page.get(path).words
    assert page.form(path, all="retry").status == 303
    assert stage.phase("stuck") == "execution_ready"


def test_all_are_cancelled_after_ten_seconds_and_one_undo_takes_all_of_it_back(stage: Stage, page: Inside) -> None:
    _sends(stage, "one", "two", "three")
    key = page.key()
    path = f"/w/{key}/all?order=cancel"
    assert page.form(path, all="cancel", note="not wanted").headers["location"] == (
        f"/w/{key}?done=all-cancel&did=3&left=0"
    )
    shown = page.get(f"/w/{key}?done=all-cancel&did=3&left=0")
    assert "3 tasks will be cancelled in 10 s" in shown.words
    assert shown.words.count("Undo all 3") == 1
    assert {stage.phase(name) for name in ("one", "two", "three")} == {"execution_ready"}
    (together,) = re.findall(r'name="undo-all" value="([^"]+)"', shown.text)
    assert page.form(f"/w/{key}", **{"undo-all": together}).headers["location"].endswith("?done=undone")
    again = page.filled(path, all="cancel")
    stage.clock.advance(10 * 365 * 86_400)  # the engine of the page has its own
    stage.carry_out_held()
    assert {stage.phase(name) for name in ("one", "two", "three")} == {"execution_ready"}
    stage.clock.text = NOW
    assert page.post(path, again).status == 303
    stage.clock.advance(10 * 365 * 86_400)
    stage.carry_out_held()
    assert {stage.phase(name) for name in ("one", "two", "three")} == {"cancelled"}


def test_failures_are_dismissed_together_and_leave_what_needs_you(stage: Stage, page: Inside) -> None:
    page.get("/")
    _fails(stage, "one", "two")
    path = f"/w/{page.key()}/all?order=dismiss"
    assert "Dismiss 2 tasks?" in page.get(path).words
    assert page.form(path, all="dismiss").headers["location"].endswith("done=all-dismiss&did=2&left=0")
    assert "There is nothing to do" in page.get(path).words


def test_what_a_search_of_the_texts_finds_is_acted_on(stage: Stage, page: Inside) -> None:
    _fails(stage, "one", "two")
    key = page.key()
    assert "All that is found of alpha" in page.get("/search?q=access").words
    asks = page.get(f"/w/{key}/all?order=retry&search=access")
    assert "Run 2 tasks again?" in asks.words
    assert page.form(f"/w/{key}/all?order=retry&search=access", all="retry").status == 303
    assert {stage.phase(name) for name in ("one", "two")} == {"execution_ready"}


def test_a_form_that_names_nothing_or_too_much_is_refused(stage: Stage, page: Inside) -> None:
    _fails(stage, "one")
    path = f"/w/{page.key()}/all?order=retry"
    many = " ".join(f"tsk_{number}:1:failed" for number in range(MOST + 1))
    for tasks in ("", "one", "tsk_1:1", "tsk_1:x:failed", "../x:1:failed", many):
        assert page.form(path, all="retry", tasks=tasks).status == 409
    assert page.form(path, all="delete").status == 409
    assert page.get(f"/w/{page.key()}/all?order=delete").status == 404
    assert stage.phase("one") == "failed"


def test_a_failure_that_came_after_the_list_is_not_dismissed_unread(stage: Stage, page: Inside) -> None:
    page.get("/")
    _fails(stage, "one", "two")
    path = f"/w/{page.key()}/all?order=dismiss"
    before = page.filled(path, all="dismiss")
    stage.run("retry", "one")
    stage.start()
    stage.clock.advance(60)
    stage.end_turn("one", Failed("another reason", Permanence.PERMANENT))
    assert page.post(path, before).headers["location"].endswith("done=all-dismiss&did=1&left=1")
    assert "Dismiss 1 task?" in page.get(path).words


def test_what_cannot_be_noted_is_not_said_to_be_dismissed(stage: Stage, page: Inside, tmp_path: Path) -> None:
    page.get("/")
    _fails(stage, "one")
    path = f"/w/{page.key()}/all?order=dismiss"
    before = page.filled(path, all="dismiss")
    folder = tmp_path / "state" / "mailboxd" / "seen"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("")
    refused = page.post(path, before)
    assert refused.status == 409
    assert "cannot be noted" in refused.words


@pytest.mark.slow
def test_a_page_that_stays_open_reads_nothing_for_its_reader(stage: Stage, page: Inside) -> None:
    page.get("/")
    stage.create("report")
    watched = f"/w/{page.key()}/t/report"
    page.get(watched)
    stage.start()
    stage.clock.advance(60)
    stage.end_turn("report", "# Result\n\nDone.")
    _fails(stage, "night")
    failed = f"/w/{page.key()}/t/night"
    for path in (watched, failed):
        assert page.ask("GET", path, headers={"x-refresh": "1"}).status == 200
    assert "Finished since you looked 1" in page.get("/").words
    assert "Dismiss 1 task?" in page.get(f"/w/{page.key()}/all?order=dismiss").words
    for path in (watched, failed):
        page.get(path)
    assert "Finished since you looked 1" not in page.get("/").words
    assert "There is nothing to do" in page.get(f"/w/{page.key()}/all?order=dismiss").words


def test_a_workspace_counts_what_to_decide_and_what_failed_as_the_overview_does(stage: Stage, page: Inside) -> None:
    page.get("/")
    _fails(stage, "one", "two")
    (stage.ws.inbox / "odd.md").write_text("---\ntype: task\npriority: 500\n---\n\nx\n")
    assert stage.receive() == "rejected"
    for path in ("/", f"/w/{page.key()}"):
        words = page.get(path).words
        assert "Decide 1 " in words, path
        assert "Failed 2 " in words, path


@pytest.mark.slow
def test_more_failures_than_one_order_is_for_are_dismissed_by_giving_it_again(
    stage: Stage, page: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST", 2)
    page.get("/")
    _fails(stage, "one", "two", "three")
    path = f"/w/{page.key()}/all?order=dismiss"
    assert "3 of the 3" in page.get(path).words
    assert page.form(path, all="dismiss").headers["location"].endswith("did=2&left=0")
    assert "Dismiss 1 task?" in page.get(path).words
    assert page.form(path, all="dismiss").headers["location"].endswith("did=1&left=0")
    assert "There is nothing to do" in page.get(path).words


@pytest.mark.parametrize("asked", ["state=bogus", "agent=a%20b"])
def test_an_order_for_what_cannot_be_is_for_nothing_and_not_for_everything(
    stage: Stage, page: Inside, asked: str
) -> None:
    _sends(stage, "one")
    answer = page.get(f"/w/{page.key()}/all?order=cancel&{asked}")
    assert answer.status == 404
    assert "nothing is found: there is no" in answer.words
    assert 'name="tasks"' not in answer.text


def test_what_runs_again_with_its_parent_is_among_what_runs_again(stage: Stage, page: Inside) -> None:
    stage.create("root", child("a", "alpha"), child("b", "alpha", ("a",)), policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn("root.a", Failed("no access", Permanence.PERMANENT))
    assert stage.phase("root") == stage.phase("root.a") == "failed"
    path = f"/w/{page.key()}/all?order=retry&children=1"
    listed = page.filled(path, all="retry")
    count = len(listed["tasks"].split())
    assert count > 1
    answer = page.post(path, listed).headers["location"]
    assert f"did={count}&left=0" in answer
    assert "failed" not in {stage.phase("root"), stage.phase("root.a")}


def test_what_is_about_to_be_cancelled_is_not_listed_again_and_not_said_to_have_changed(
    stage: Stage, page: Inside
) -> None:
    _sends(stage, "one", "two")
    path = f"/w/{page.key()}/all?order=cancel"
    listed = page.filled(path, all="cancel")
    assert page.post(path, listed).headers["location"].endswith("did=2&left=0")
    assert "There is nothing to do" in page.get(path).words
    again = page.post(path, listed).headers["location"]
    words = page.get(again).words
    assert "Nothing was ordered. 2 tasks are about to be cancelled already, unless you undo it." in words
    assert "had changed" not in words
