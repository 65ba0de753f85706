"""What a store remembers of tasks and attempts: never another thing than the tables say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from mailboxd.core import lifecycle
from mailboxd.core.effects import Notify
from mailboxd.core.events import Event, Kind
from mailboxd.core.json_codec import to_json
from mailboxd.core.model import Attempt, Policy, Spec, Task
from mailboxd.core.vocabulary import AttemptStatus, Mode, Notice, Phase, Runtime, Waiting
from mailboxd.ledger import outbox, task_cache
from mailboxd.ledger.store import Store

NOW = "2026-11-21T00:00:00.000Z"
LATER = "2026-11-21T00:01:00.000Z"


def a_task(name: str = "job") -> Task:
    return Task(
        id=f"tsk_{name}",
        local_id=name,
        task_id=name,
        subtask_id=None,
        sender="operator",
        parent=None,
        root=f"tsk_{name}",
        key=name,
        depth=0,
        title=name,
        mode=Mode.DIRECT,
        executor="alpha",
        runtime=Runtime.OPENCLAW,
        phase=Phase.EXECUTION_READY,
        spec=Spec(goal="Do it"),
        policy=Policy(),
        created_at=NOW,
        updated_at=NOW,
    )


ATTEMPT = Attempt(
    "att_1", "tsk_job", 1, "alpha", Runtime.OPENCLAW, AttemptStatus.RUNNING, Waiting.TURN, "session", "token", NOW
)


@pytest.fixture
def ours(ours: Store) -> Store:
    with ours.transaction():
        create(ours, a_task())
    return ours


def create(store: Store, task: Task) -> None:
    store.append([Event(Kind.TASK_CREATED, task.id, {"at": NOW, "needs": [], "task": to_json(task)})], NOW)


def note(store: Store, text: str, task: Task | None = None) -> None:
    store.append([lifecycle.amend(task or a_task(), LATER, "", notes=text)[0]], LATER)


def begin(store: Store) -> None:
    data = {"at": NOW, "attempt": to_json(ATTEMPT)}
    store.append([Event(Kind.ATTEMPT_STARTED, "tsk_job", data)], NOW)
    store.append([lifecycle.amend(a_task(), NOW, "", attempt=1)[0]], NOW)


def notes(store: Store) -> str:
    task = store.tasks.get("tsk_job")
    assert task is not None
    return task.notes


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """What of tasks and attempts was read from the tables meanwhile."""
    read: list[str] = []
    store.db.set_trace_callback(
        lambda sql: read.append(sql) if " FROM tasks" in sql or " FROM attempts" in sql else None
    )
    yield read
    store.db.set_trace_callback(None)


def test_a_task_is_read_once_and_carried_on_by_its_events(ours: Store) -> None:
    with ours.transaction():
        assert notes(ours) == ""
        note(ours, "one")
        with statements(ours) as read:
            assert notes(ours) == "one"
        assert read == []
    with statements(ours) as read, ours.transaction():
        note(ours, "two")
        task = ours.tasks.get("tsk_job")
    assert read == []
    assert task is not None
    assert task == Store(ours.db).tasks.get("tsk_job")
    assert (task.notes, task.updated_at) == ("two", LATER)


def test_a_task_that_is_created_here_is_not_read(ours: Store) -> None:
    parent = replace(a_task("parent"), phase=Phase.EXECUTING)
    first, second = (replace(a_task(name), parent=parent.id, root=parent.id) for name in ("first", "second"))
    needs: dict[str, list[str]] = {first.id: ["tsk_job"], second.id: [first.id, "tsk_job", first.id]}
    tasks = (parent, first, second)
    created = [
        Event(Kind.TASK_CREATED, task.id, {"at": NOW, "needs": needs.get(task.id, []), "task": to_json(task)})
        for task in tasks
    ]
    with ours.transaction():
        notes(ours)
        with statements(ours) as read:
            ours.append(created, NOW, born=tasks)
            known = [(ours.tasks.get(task.id), ours.tasks.counts(task.id)) for task in tasks]
            assert [task.key for task in ours.tasks.dependencies(first.id)] == ["job"]
        assert read == []
        ours.tasks.counts("tsk_job")
        with statements(ours) as read:
            assert [task.key for task in ours.tasks.dependencies(second.id)] == ["job", "first"]
        assert read == []
    stored = Store(ours.db)
    assert known == [(stored.tasks.get(task.id), stored.tasks.counts(task.id)) for task in tasks]
    assert [counts.unmet for _, counts in known] == [0, 1, 2]
    query = "SELECT key, parent_live, by_person FROM tasks WHERE id <> 'tsk_job' ORDER BY seq"
    assert ours.db.execute(query).fetchall() == [("parent", 1, 1), ("first", 1, 1), ("second", 1, 1)]
    assert ours.verify_log() == ""


def test_an_attempt_is_carried_on_by_its_events(ours: Store) -> None:
    with ours.transaction():
        ours.tasks.get("tsk_job")
        begin(ours)
        with statements(ours) as read:
            attempt = ours.tasks.attempt("tsk_job", 1)
        assert (read, attempt) == ([], ATTEMPT)
        data = {
            "at": LATER,
            "attempt": "att_1",
            "note": "",
            "attempt_changes": {"run_id": "r", "usage": {"input_tokens": 3}},
        }
        ours.append([Event(Kind.ATTEMPT_CHECKPOINT, "tsk_job", data)], LATER)
        other = {**data, "attempt": "att_0", "attempt_changes": {"run_id": "of another attempt"}}
        ours.append([Event(Kind.ATTEMPT_CHECKPOINT, "tsk_job", other)], LATER)
        attempt = ours.tasks.attempt("tsk_job", 1)
    assert attempt is not None
    assert (attempt.run_id, attempt.usage.input_tokens) == ("r", 3)
    assert attempt == Store(ours.db).tasks.attempt("tsk_job", 1)
    assert ours.tasks.attempt("tsk_job", 2) is None


def test_what_another_process_wrote_is_seen_in_the_next_transaction(ours: Store, theirs: Store) -> None:
    with ours.transaction():
        notes(ours)
    with theirs.transaction():
        note(theirs, "theirs")
    with ours.transaction():
        assert notes(ours) == "theirs"


def test_what_another_process_wrote_is_seen_between_transactions(ours: Store, theirs: Store) -> None:
    with ours.transaction():
        notes(ours)
        begin(ours)
        ours.tasks.attempt("tsk_job", 1)
    with theirs.transaction():
        note(theirs, "theirs")
        data = {"at": LATER, "attempt": "att_1", "note": "", "attempt_changes": {"run_id": "theirs"}}
        theirs.append([Event(Kind.ATTEMPT_CHECKPOINT, "tsk_job", data)], LATER)
    attempt = ours.tasks.attempt("tsk_job", 1)
    assert attempt is not None
    assert (notes(ours), attempt.run_id) == ("theirs", "theirs")
    with theirs.transaction():
        note(theirs, "again")
    assert notes(ours) == "again"  # what is read between transactions is not remembered


def test_what_was_undone_is_forgotten(ours: Store) -> None:
    with ours.transaction():
        notes(ours)
        with suppress(RuntimeError), ours.savepoint():
            note(ours, "never")
            raise RuntimeError
        assert notes(ours) == ""
    with suppress(RuntimeError), ours.transaction():
        note(ours, "never")
        raise RuntimeError
    assert notes(ours) == ""
    with ours.transaction():
        assert notes(ours) == ""


def test_orders_too_many_to_remember_are_read_once_a_round(ours: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_MOST", 3)
    read: list[str] = []
    with ours.transaction():
        for number in range(6):
            ours.outbox.add(f"ntf_{number}", "", Notify(Notice.FAILED), NOW)
        ours.outbox.forget()
        ours.db.set_trace_callback(
            lambda sql: read.append(sql) if "state = 'pending' ORDER BY seq LIMIT" in sql else None
        )
        for number in range(4):
            ours.outbox.finish(f"ntf_{number}")
        assert len(read) == 1
        assert [order.id for order in ours.outbox.pending(LATER)] == ["ntf_4", "ntf_5"]
        assert len(read) == 2
        ours.outbox.finish("ntf_4")
        assert [order.id for order in ours.outbox.pending(LATER)] == ["ntf_5"]
        assert len(read) == 2, "they are few again"
    ours.db.set_trace_callback(None)


def test_no_more_is_remembered_than_is_at_work(ours: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_cache, "_MOST", 3)
    with ours.transaction():
        for number in range(10):
            create(ours, a_task(f"t{number}"))
            ours.tasks.get(f"tsk_t{number}")
            assert len(ours.cache.tasks) <= 3


def test_those_above_come_nearest_first(ours: Store) -> None:
    assert [task.id for task in ours.tasks.with_ancestors("tsk_job")] == ["tsk_job"]
    assert list(ours.tasks.with_ancestors("tsk_nobody")) == []
