"""What a ledger promises, whatever it is made of: its log, the views that follow from it, its journal and its seal.

The events are those of a story that the core decided. What the views must show is worked out by the witness, who knows
nothing of any implementation.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import Cancel, Pause, Resume, Retry
from mailboxd.core.model import Attempt, Task, Usage
from mailboxd.core.outcomes import Failed, Question, Results
from mailboxd.core.vocabulary import Gate, Phase, Verdict
from mailboxd.errors import OutdatedError
from mailboxd.formats.mailbox.layout import Workspace
from tests.core.desk import DONE, Desk, child, plan, with_policy
from tests.e2e import witness
from tests.ledger.ledgers import LEDGERS, NOW, Implementation, Ledger

MESSAGE = b"---\ntype: task\ntask_id: u\nfrom: boss\n---\n# Paint\n\n## Instructions\n\nPaint it.\n"
VIEWS = ("tasks", "attempts", "dependencies", "messages", "reviews", "artifacts", "breakers", "events")


@pytest.fixture(params=LEDGERS)
def made(request: pytest.FixtureRequest) -> Implementation:
    return LEDGERS[request.param]


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    return created(tmp_path / "ws")


def created(root: Path) -> Workspace:
    Workspace.create(root)
    return Workspace(root)


@cache
def story() -> tuple[Event, ...]:
    """A tree with a review, failures, an open circuit, a question, a pause, a cancellation and a retry."""
    desk = Desk(with_policy(max_attempts=2, gates=frozenset({Gate.QUALITY_GATE}), reviewers=("rex",)))
    desk.give(plan=plan(child("a", "bob"), child("b", "eve", "a"), child("c")))
    desk.ends("t.a", DONE, usage=Usage(10, 5, 0.5))
    desk.reviews("t.a", "rex", Verdict.APPROVED)
    for _ in range(2):
        desk.ends("t.c", Failed("down"))
        desk.wait(30)
    assert desk.phase("t.c") is Phase.CIRCUIT_OPEN
    desk.ends("t.b", Question("Which?"))
    desk.receive("u.md", MESSAGE)
    desk.command("t.b", Pause())
    desk.command("t.b", Resume())
    desk.command("t.c", Retry())
    desk.command("t", Cancel("ann"))
    desk.give("v")
    desk.ends("v", Results("A door."))
    desk.reviews("v", "rex", Verdict.CHANGES_REQUESTED)
    return tuple(desk.events())


def record(ledger: Ledger, *events: Event) -> None:
    with ledger.transaction():
        ledger.append(events, NOW)


def views(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        return {name: sorted(db.execute(f"SELECT * FROM v_{name}").fetchall(), key=repr) for name in VIEWS}


def wrong(ws: Workspace) -> list[str]:
    """What the witness says of the chain and of the views."""
    case = witness.Case.load(ws.root)
    return [*witness.chain(case), *witness.fold(case)]


def journal(ws: Workspace) -> list[tuple[int, str]]:
    """Number and hash of the events that the journal has, as docs/audit.md describes its lines."""
    lines = [
        line for file in sorted((ws.archive / "events").glob("*.jsonl")) for line in file.read_bytes().splitlines()
    ]
    return [(said["seq"], said["hash"]) for said in map(json.loads, lines) if "seq" in said]


def logged(ws: Workspace) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(f"file:{ws.database}?mode=ro", uri=True)) as db:
        return db.execute("SELECT seq, hash FROM v_events ORDER BY seq").fetchall()


def known(ledger: Ledger) -> list[Task | Attempt | None]:
    """All tasks and attempts as this process knows them."""
    with ledger.transaction():
        tasks = [ledger.tasks.get(event.task) for event in story() if event.kind is Kind.TASK_CREATED and event.task]
        return [*tasks, *(ledger.tasks.attempt(task.id, number) for task in tasks if task for number in (1, 2))]


def parts(seed: int) -> Iterator[tuple[Event, ...]]:
    """The story in pieces of any size."""
    random, left = Random(seed), list(story())
    while left:
        size = random.randrange(1, 7)
        yield tuple(left[:size])
        left = left[size:]


# ---------------------------------------------------------------- append and fold


def test_what_is_appended_is_numbered_chained_and_told(made: Implementation, ws: Workspace) -> None:
    with closing(made.open(ws)) as ledger:
        ledger.follow()
        record(ledger, *story())
        assert list(ledger.recorded_since(0)) == list(enumerate(story(), 1))
        assert ledger.last_event() == len(story())
        assert [(seq, ledger.hash_at(seq)) for seq, _ in logged(ws)] == logged(ws) == journal(ws)
        assert ledger.hash_at(len(story()) + 1) is None
    assert witness.Case.load(ws.root).events[-1]["seq"] == len(story())


def test_the_views_are_the_fold_of_the_log_after_every_transaction(made: Implementation, ws: Workspace) -> None:
    with closing(made.open(ws)) as ledger:
        for part in parts(1):
            record(ledger, *part)
            assert wrong(ws) == []
        assert ledger.verify_log() == ""


def test_the_views_tell_the_story(made: Implementation, ws: Workspace) -> None:
    """What the witness does not work out: who needs whom, and what it cost, up the tree."""
    with closing(made.open(ws)) as ledger:
        record(ledger, *story())
    with closing(sqlite3.connect(ws.database)) as db:
        told = "SELECT local_id, phase, attempt, failures, turns, tree_turns, tree_tasks, spent_tokens, spent_usd"
        needed = "SELECT t.local_id, n.local_id FROM v_dependencies d JOIN v_tasks t ON t.id = d.task JOIN v_tasks n"
        assert db.execute(f"{told} FROM v_tasks ORDER BY seq").fetchall() == [
            ("t", "cancelled", 1, 0, 0, 5, 3, 15, 0.5),
            ("t.a", "completed", 1, 0, 2, 0, 0, 15, 0.5),
            ("t.b", "cancelled", 1, 0, 1, 0, 0, 0, 0.0),
            ("t.c", "cancelled", 2, 0, 2, 0, 0, 0, 0.0),
            ("u", "executing", 1, 0, 0, 0, 0, 0, 0.0),
            ("v", "executing", 2, 0, 2, 2, 0, 0, 0.0),
        ]
        assert db.execute(f"{needed} ON n.id = d.needs").fetchall() == [("t.b", "t.a")]


@pytest.mark.parametrize("seed", range(3))
def test_into_which_transactions_the_events_are_divided_makes_no_difference(
    made: Implementation, tmp_path: Path, seed: int
) -> None:
    whole, divided = created(tmp_path / "whole"), created(tmp_path / "divided")
    with closing(made.open(whole)) as ledger:
        record(ledger, *story())
    random = Random(seed)
    for part in parts(seed):
        ledger = made.open(divided)
        record(ledger, *part)
        if random.random() < 0.5:
            assert ledger.checkpoint()
        ledger.close()
    assert views(divided.database) == views(whole.database)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_taken_back_has_never_been(made: Implementation, tmp_path: Path, seed: int) -> None:
    whole, troubled = created(tmp_path / "whole"), created(tmp_path / "troubled")
    with closing(made.open(whole)) as ledger:
        record(ledger, *story())
    with closing(made.open(troubled)) as ledger:
        ledger.follow()
        for part in parts(seed):
            with suppress(ZeroDivisionError), ledger.transaction():
                ledger.append(part, NOW)
                raise ZeroDivisionError
            with ledger.transaction():
                with suppress(ZeroDivisionError), ledger.savepoint():
                    ledger.append(part, NOW)
                    raise ZeroDivisionError
                with ledger.savepoint():
                    ledger.append(part, NOW)
        assert list(ledger.recorded_since(0)) == list(enumerate(story(), 1))
        assert ledger.verify_log() == ""
    assert views(troubled.database) == views(whole.database)
    assert journal(troubled) == logged(troubled)


def test_nothing_is_appended_outside_a_transaction(made: Implementation, ws: Workspace) -> None:
    with closing(made.open(ws)) as ledger:
        with pytest.raises(AssertionError):
            ledger.append(story()[:1], NOW)
        assert ledger.last_event() == 0


# ---------------------------------------------------------------- other writers


def test_two_processes_that_append_in_turn_keep_one_log(made: Implementation, ws: Workspace) -> None:
    with closing(made.open(ws)) as ours, closing(made.open(ws)) as theirs:
        ours.follow()
        for number, part in enumerate(parts(2)):
            record((ours, theirs)[number % 2], *part)
            assert known(ours) == known(theirs)
        assert ours.last_event() == theirs.last_event() == len(story())
        assert list(ours.recorded_since(0)) == list(enumerate(story(), 1))
        record(ours)  # the journal may lack what the other one recorded until somebody commits
        assert ours.verify_log() == ""
    assert wrong(ws) == []
    assert journal(ws) == logged(ws)


def test_what_another_process_died_over_is_written_into_the_journal(made: Implementation, ws: Workspace) -> None:
    """It had committed, and none of its lines was written yet."""
    with closing(made.open(ws)) as ours:
        record(ours, *story()[:5])
        (file,) = (ws.archive / "events").glob("*.jsonl")
        size = file.stat().st_size
        with closing(made.open(ws)) as theirs:
            record(theirs, *story()[5:])
        os.truncate(file, size)
        record(ours)
    assert journal(ws) == logged(ws)


def test_what_another_program_changed_is_refused_and_found(made: Implementation, ws: Workspace) -> None:
    first, *rest = story()
    with closing(made.open(ws)) as ledger:
        record(ledger, first)
        assert ledger.verify_log() == ""
        ledger.trust_log()
        made.tamper(ws)
        with pytest.raises(OutdatedError, match="another program changed what was recorded"):
            record(ledger, *rest)
        assert ledger.last_event() == 1
        assert "t" in ledger.verify_log()
    assert wrong(ws)


# ---------------------------------------------------------------- the seal


def test_a_seal_stands_as_long_as_only_ledgers_write(made: Implementation, ws: Workspace) -> None:
    with closing(made.open(ws)) as ledger:
        record(ledger, *story()[:5])
        assert not ledger.is_sealed()
        assert ledger.verify_log() == ""
        ledger.trust_log()
        assert ledger.is_sealed()
        with closing(made.open(ws)) as other:
            record(other, *story()[5:9])
        record(ledger, *story()[9:])
        assert ledger.is_sealed()
    with closing(made.open(ws)) as ledger:
        assert ledger.is_sealed()
    made.tamper(ws)
    with closing(made.open(ws)) as ledger, suppress(OutdatedError):
        assert not ledger.is_sealed()


def test_an_older_database_in_the_place_of_the_newest_is_not_opened(made: Implementation, ws: Workspace) -> None:
    with closing(made.open(ws)) as ledger:
        record(ledger, *story()[:5])
    older = ws.database.read_bytes()
    with closing(made.open(ws)) as ledger:
        record(ledger, *story()[5:])
    ws.database.write_bytes(older)
    for _ in range(2):
        with pytest.raises(OutdatedError, match="older"):
            made.open(ws)


# ---------------------------------------------------------------- the journal, and death


@pytest.mark.parametrize("lost", [1, 9, 400, 10**9])
def test_a_torn_end_of_the_journal_is_written_again(made: Implementation, ws: Workspace, lost: int) -> None:
    *before, last = story()
    with closing(made.open(ws)) as ledger:
        record(ledger, *before)
    newest = max((ws.archive / "events").glob("*.jsonl"))
    os.truncate(newest, max(0, newest.stat().st_size - lost))
    with closing(made.open(ws)) as ledger:
        record(ledger, last)
    assert journal(ws) == logged(ws)
    assert len(logged(ws)) == len(story())


def test_a_journal_gives_the_same_database_again(made: Implementation, ws: Workspace, tmp_path: Path) -> None:
    with closing(made.open(ws)) as ledger:
        for part in parts(3):
            record(ledger, *part)
    (ws.inbox / "u.md").write_bytes(MESSAGE)  # which the story has read and not moved yet
    again = created(tmp_path / "again")
    made.rebuild(ws, again)
    assert views(again.database) == views(ws.database)


@pytest.mark.parametrize("committed", [False, True])
def test_who_is_killed_has_recorded_whole_transactions(made: Implementation, ws: Workspace, committed: bool) -> None:
    half = len(story()) // 2
    with closing(made.open(ws)) as ledger:
        record(ledger, *story()[:half])

    def work() -> None:
        ledger = made.open(ws)
        if committed:
            record(ledger, *story()[half:-1])
            os.kill(os.getpid(), signal.SIGKILL)
        with ledger.transaction():
            ledger.append(story()[half:], NOW)
            os.kill(os.getpid(), signal.SIGKILL)

    process = get_context("fork").Process(target=work)
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    with closing(made.open(ws)) as ledger:
        assert ledger.last_event() == (len(story()) - 1 if committed else half)
        record(ledger, *story()[ledger.last_event() :])
        assert ledger.verify_log() == ""
    assert wrong(ws) == []
    assert journal(ws) == logged(ws)
    assert len(logged(ws)) == len(story())


def test_a_copy_of_all_files_is_another_workspace_with_the_same_log(
    made: Implementation, ws: Workspace, tmp_path: Path
) -> None:
    with closing(made.open(ws)) as ledger:
        record(ledger, *story()[:-1])
    shutil.copytree(ws.root, tmp_path / "copy", copy_function=shutil.copy2)
    copy = Workspace(tmp_path / "copy")
    for place in (ws, copy):
        with closing(made.open(place)) as ledger:
            record(ledger, story()[-1])
    assert logged(copy) == logged(ws) == journal(copy)
