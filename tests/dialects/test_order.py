"""The order of dropped files: a task that follows others waits for them, and asks when it waits in vain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mailboxd.core.inputs import Cancel, Pause, Remedy, Resume, Retry, Unblock
from mailboxd.core.model import Task
from mailboxd.core.outcomes import Answer, Failure, Results
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Phase
from mailboxd.errors import Refused
from tests.dialects.desk import Desk

WRITE = b"# Write the programme\n\nTwo pages.\n"
PRINT = b"---\ndepends_on: write-programme\n---\n\n# Print the programme\n\n20 copies.\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "alpha")


def put(desk: Desk, name: str, raw: bytes) -> None:
    desk.drop(name, raw)
    desk.look(2.0)


def called(desk: Desk, title: str) -> Task:
    return next(task for task in desk.roots if task.title == title)


def may_start(desk: Desk, title: str) -> bool:
    return desk.may_start(called(desk, title))


def end(desk: Desk, title: str, said: Answer) -> None:
    desk.end(called(desk, title), said)


def order(desk: Desk, title: str, given: Cancel | Pause | Resume | Retry | Unblock) -> None:
    desk.command(called(desk, title), given)


@pytest.mark.parametrize("files", [("write-programme.md", "print.md"), ("print.md", "write-programme.md")])
def test_what_follows_another_begins_when_that_is_completed_whichever_came_first(
    desk: Desk, files: tuple[str, str]
) -> None:
    for name in files:
        put(desk, name, WRITE if name.startswith("write") else PRINT)
    assert (may_start(desk, "Write the programme"), may_start(desk, "Print the programme")) == (True, False)
    desk.look(300)
    assert called(desk, "Print the programme").held == ""
    end(desk, "Write the programme", Results("Written."))
    assert may_start(desk, "Print the programme")


@pytest.mark.parametrize(
    "name",
    [
        *("write-programme", "Write-Programme.md", "'[[write-programme]]'", "write the programme", "[write-programme]"),
        *("Write Programme", "WRITE THE PROGRAMME"),
    ],
)
def test_a_file_is_called_by_its_name_or_its_title(desk: Desk, name: str) -> None:
    put(desk, "write-programme.md", WRITE)
    put(desk, "print.md", PRINT.replace(b"write-programme", name.encode()))
    assert [one.title for one in desk.needs(called(desk, "Print the programme"))] == ["Write the programme"]


def test_a_name_that_only_begins_alike_is_another_one(desk: Desk) -> None:
    put(desk, "write-programme-draft.md", WRITE.replace(b"the", b"a draft of the"))
    put(desk, "write.md", b"# Write\n\nA letter.\n")
    put(desk, "print.md", PRINT)
    assert desk.needs(called(desk, "Print the programme")) == []
    assert not may_start(desk, "Print the programme")


def test_a_minute_later_a_person_is_asked_about_what_is_not_known_and_it_can_still_come(desk: Desk) -> None:
    put(desk, "print.md", PRINT)
    desk.look(50)
    assert called(desk, "Print the programme").held == ""
    desk.look(10)
    assert called(desk, "Print the programme").held == "it is to follow write-programme, which is not known here"
    desk.look(3600)
    put(desk, "write-programme.md", WRITE)
    assert called(desk, "Print the programme").held == ""
    assert not may_start(desk, "Print the programme")
    end(desk, "Write the programme", Results("Written."))
    assert may_start(desk, "Print the programme")


def test_the_question_comes_in_time_without_any_other_event(desk: Desk) -> None:
    put(desk, "print.md", PRINT)
    at = desk.due()
    assert at is not None
    desk.look(to_epoch(at) - to_epoch(desk.clock.now()))
    assert called(desk, "Print the programme").held
    assert desk.due() is None


def test_a_person_may_let_it_begin_all_the_same(desk: Desk) -> None:
    put(desk, "write-programme.md", WRITE)
    put(desk, "print.md", PRINT.replace(b": write-programme", b": [write-programme, TASK-11]"))
    desk.look(61)
    order(desk, "Print the programme", Unblock(Remedy.RETRY))
    assert not may_start(desk, "Print the programme")  # it still follows the other one
    assert called(desk, "Print the programme").held == ""
    end(desk, "Write the programme", Results("Written."))
    assert may_start(desk, "Print the programme")


@pytest.mark.parametrize(("how", "said"), [("fails", "has failed"), ("is cancelled", "is cancelled")])
def test_what_it_follows_does_not_come_to_pass(desk: Desk, how: str, said: str) -> None:
    put(desk, "write-programme.md", WRITE)
    put(desk, "print.md", PRINT)
    if how == "fails":
        end(desk, "Write the programme", Failure("The printer burned.", permanent=True))
    else:
        order(desk, "Write the programme", Cancel("operator"))
    held = called(desk, "Print the programme")
    assert not held.phase.is_terminal
    assert held.held == f"it is to follow {called(desk, 'Write the programme').local_id}, which {said}"
    if how == "fails":
        order(desk, "Write the programme", Retry())
        assert called(desk, "Print the programme").held == ""
        assert not may_start(desk, "Print the programme")
    else:
        order(desk, "Print the programme", Unblock(Remedy.RETRY))
        assert may_start(desk, "Print the programme")


def test_what_has_failed_before_is_asked_about_at_once(desk: Desk) -> None:
    put(desk, "write-programme.md", WRITE)
    end(desk, "Write the programme", Failure("The printer burned.", permanent=True))
    put(desk, "print.md", PRINT)
    assert called(desk, "Print the programme").held.endswith("which has failed")


def test_a_chain_asks_only_at_its_first_broken_link(desk: Desk) -> None:
    put(desk, "write-programme.md", WRITE)
    put(desk, "print.md", PRINT)
    put(desk, "fold.md", b"---\nafter: print\n---\n\n# Fold it\n\nTwice.\n")
    order(desk, "Write the programme", Cancel("operator"))
    assert [bool(called(desk, title).held) for title in ("Print the programme", "Fold it")] == [True, False]
    order(desk, "Print the programme", Cancel("operator"))
    assert called(desk, "Fold it").held


def test_a_pause_stays_and_does_not_hide_the_question(desk: Desk) -> None:
    put(desk, "write-programme.md", WRITE)
    put(desk, "print.md", PRINT)
    order(desk, "Print the programme", Pause())
    order(desk, "Write the programme", Cancel("operator"))
    assert called(desk, "Print the programme").held.startswith("paused by")
    order(desk, "Print the programme", Resume())
    assert called(desk, "Print the programme").held.startswith("it is to follow")
    with pytest.raises(Refused):
        order(desk, "Print the programme", Resume())


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (("print after print",), "print -> print"),
        (("print after fold", "fold after print"), "fold -> print -> fold"),
        (("print after cut", "fold after print", "cut after fold"), "cut -> fold -> print -> cut"),
    ],
)
def test_a_circle_is_refused_with_its_path(desk: Desk, files: tuple[str, ...], path: str) -> None:
    for one in files:
        name, _, needs = one.split()
        put(desk, f"{name}.md", f"---\nafter: {needs}\n---\n\n# Do {name} now\n\nYes.\n".encode())
    assert len(desk.roots) == len(files) - 1
    verdict, _, said = desk.judged(f"{files[-1].split()[0]}.md")
    assert verdict == "rejected"
    assert f"these would wait for each other forever: {path}" in re.sub("-[0-9a-f]{8}", "", said)


def test_the_order_stands_in_task_md_and_is_read_from_there(desk: Desk, tmp_path: Path) -> None:
    put(desk, "write-programme.md", WRITE)
    desk.take_task_file("print", PRINT)
    assert not may_start(desk, "Print the programme")
    end(desk, "Write the programme", Results("Written."))
    assert may_start(desk, "Print the programme")


def test_replayed_it_waits_for_the_same(desk: Desk) -> None:
    put(desk, "print.md", PRINT.replace(b": write-programme", b": [write-programme, TASK-11]"))
    desk.look(61)
    put(desk, "write-programme.md", WRITE)
    assert called(desk, "Print the programme").phase is Phase.EXECUTION_READY
    assert called(desk, "Print the programme").held == "it is to follow TASK-11, which is not known here"
    end(desk, "Write the programme", Results("Written."))
    order(desk, "Print the programme", Unblock(Remedy.RETRY))
    assert may_start(desk, "Print the programme")


def sent(text: str, **headers: object) -> bytes:
    lines = "".join(f"{name}: {value}\n" for name, value in headers.items())
    return f"---\ntype: task\nfrom: beta\n{lines}---\n\n# {text}\n\nIt is needed.\n".encode()


@pytest.fixture
def known(desk: Desk) -> Desk:
    """A task of beta that follows the writing of the programme, which nobody has begun."""
    put(desk, "write-programme.md", WRITE)
    put(desk, "draw.md", b"# Draw the cover\n\nIn blue.\n")
    put(desk, "1.md", sent("Print the programme", task_id="print", depends_on="write-programme"))
    return desk


def follows(desk: Desk) -> list[str]:
    return [task.title for task in desk.needs(called(desk, "Print the programme"))]


def test_a_newer_attempt_with_another_order_has_that_order(known: Desk) -> None:
    put(known, "2.md", sent("Print the programme", task_id="print", depends_on="draw", attempt=2, attempt_id="a2"))
    assert follows(known) == ["Draw the cover"]
    end(known, "Draw the cover", Results("Drawn."))
    assert may_start(known, "Print the programme")


def test_a_newer_attempt_that_says_nothing_about_its_order_keeps_it(known: Desk) -> None:
    put(known, "2.md", sent("Print the programme", task_id="print", attempt=2, attempt_id="a2"))
    assert follows(known) == ["Write the programme"]


def test_the_same_attempt_with_another_order_is_refused(known: Desk) -> None:
    put(known, "2.md", sent("Print the programme", task_id="print", depends_on="draw"))
    assert known.judged("2.md")[0] == "rejected"
    assert follows(known) == ["Write the programme"]


def test_ended_work_that_is_sent_again_follows_what_the_newer_attempt_says(known: Desk) -> None:
    end(known, "Write the programme", Results("Written."))
    end(known, "Print the programme", Failure("No paper.", permanent=True))
    put(known, "2.md", sent("Print the programme", task_id="print", depends_on="draw", attempt=2, attempt_id="a2"))
    assert (follows(known), may_start(known, "Print the programme")) == (["Draw the cover"], False)


def test_another_order_of_work_that_has_begun_is_told(known: Desk) -> None:
    end(known, "Write the programme", Results("Written."))
    known.start(called(known, "Print the programme"))
    put(known, "2.md", sent("Print the programme", task_id="print", depends_on="draw", attempt=2, attempt_id="a2"))
    (doubt,) = known.doubts(called(known, "Print the programme"))
    assert doubt.startswith("the message: depends_on was changed when the work had begun")
    assert follows(known) == ["Write the programme"]


def test_a_circle_in_a_newer_attempt_is_refused(known: Desk) -> None:
    put(known, "fold.md", b"---\nafter: print\n---\n\n# Fold it\n\nTwice.\n")
    put(known, "2.md", sent("Print the programme", task_id="print", depends_on="fold", attempt=2, attempt_id="a2"))
    verdict, _, said = known.judged("2.md")
    assert verdict == "rejected"
    assert "these would wait for each other forever: print -> fold" in said


def test_nothing_is_idle_until_what_is_not_known_has_become_a_question(desk: Desk) -> None:
    put(desk, "print.md", PRINT)
    assert desk.next_asked() is not None
    desk.look(61)
    assert called(desk, "Print the programme").held
    assert desk.next_asked() is None
