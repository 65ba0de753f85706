"""A batch happens as a whole or not at all, wherever it is cut off: killed before each statement, failed in each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mailboxd.core.inputs import NewTask, TurnEnded
from mailboxd.core.model import Spec
from mailboxd.core.outcomes import Failed, Results, Succeeded, Unknown
from mailboxd.errors import WorldError
from mailboxd.host.ids import Ids
from mailboxd.ledger import event_log
from mailboxd.ledger.event_log import REPLAYED
from mailboxd.ledger.store import Store
from tests.core.desk import Desk, child, plan
from tests.simulation.laws import standing

KILLED = 77
NOW = "2026-01-01T00:00:00.000Z"


def prepared(database: Path | None) -> Desk:
    desk = Desk(database=database)
    desk.give(plan=plan(child("a", "bob"), child("b", "eve"), child("c", "self", "a")))
    return desk


def one_batch(desk: Desk) -> None:
    """Much at once: a result that lets another start, a failure, new work with a plan, scheduling, an effect done."""
    with desk.engine.batch():
        for name, outcome, answer in (("t.a", Succeeded("ok"), Results("done")), ("t.b", Failed("down"), None)):
            task, attempt = desk.task(name), desk.attempt(name)
            order = desk.store.db.execute("SELECT id FROM outbox WHERE task = ?", (task.id,)).fetchone()[0]
            turn = desk.store.outbox.get(order).effect.turn  # type: ignore[union-attr]
            desk.engine.handle(task.id, TurnEnded(turn, attempt.id, task.executor, outcome, answer))
            desk.store.outbox.finish(order)
        new = NewTask("u", None, "u", "boss", "u", Spec("u", "Do."), desk.policy, plan=plan(child("x"), child("y")))
        desk.engine.handle(None, new)
        desk.engine.tick()
        desk.engine.schedule()


def picture(store: Store) -> list[object]:
    """Every table as it stands."""
    tables = ("events", "outbox", "stale_files", *REPLAYED)
    return [store.db.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


def dies_at(database: Path, statement: int) -> bool:
    """Run the batch in a child that is killed before its n-th statement; whether it got so far."""
    child_pid = os.fork()
    if child_pid == 0:
        code = 1
        try:
            desk = Desk()
            desk.store.close()
            desk.store = desk.engine.store = Store.open(database, NOW)
            desk.engine.ids = Ids()
            left = statement

            def count(_sql: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    os._exit(KILLED)

            desk.store.db.set_trace_callback(count)
            one_batch(desk)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child_pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, KILLED), f"the child failed by itself: exit {code}"
    return code == KILLED


@pytest.mark.slow
def test_a_kill_before_any_statement_of_a_batch_leaves_it_whole_or_undone(tmp_path: Path) -> None:
    before = tmp_path / "before.db"
    desk = prepared(before)
    undone = picture(desk.store)
    desk.store.close()
    points = 0
    while True:
        database = tmp_path / "now.db"
        for old in tmp_path.glob("now.db*"):
            old.unlink()
        shutil.copy(before, database)
        killed = dies_at(database, points + 1)
        store = Store.open(database, NOW)
        assert (picture(store) == undone) is killed
        if not killed:
            event_log.check(store.db)
            standing(store)
            break
        store.close()
        points += 1
    assert points > 60, "so many statements are in that batch"


@pytest.mark.slow
def test_a_failure_in_the_middle_of_any_statement_undoes_the_batch_and_it_can_be_done_again() -> None:
    desk = prepared(None)
    undone, whole = picture(desk.store), prepared(None)
    one_batch(whole)
    failures = 0
    step, at = 97, 1  # in steps of SQLite's machine; every one of them would take minutes
    while True:
        left = at

        def interrupt() -> int:
            nonlocal left
            left -= 1
            return int(left == 0)

        desk.store.db.set_progress_handler(interrupt, 1)
        try:
            one_batch(desk)
        except WorldError:
            desk.store.db.set_progress_handler(None, 0)
            failures += 1
            if desk.store.last_event() == whole.store.last_event():  # COMMIT had taken effect already
                break
            assert picture(desk.store) == undone
        else:
            break
        at += step
    desk.store.db.set_progress_handler(None, 0)
    assert failures > 20
    standing(desk.store)
    event_log.check(desk.store.db)


def cut_off(desk: Desk, task: str, ended: TurnEnded) -> None:
    with desk.engine.batch():
        desk.engine.handle(task, ended)
        raise KeyboardInterrupt


def test_an_outcome_that_was_not_committed_is_heard_again() -> None:
    desk = prepared(None)
    order = desk.store.outbox.pending(NOW, 1)[0]
    ended = TurnEnded(order.effect.turn, desk.attempt("t.a").id, "bob", Unknown("killed"))  # type: ignore[union-attr]
    with pytest.raises(KeyboardInterrupt):
        cut_off(desk, order.task, ended)
    assert desk.store.outbox.pending(NOW, 1)[0] == order
    desk.ends("t.a", Unknown("killed"))
    assert desk.attempt("t.a").waiting_for == "lookup"
