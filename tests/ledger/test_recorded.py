"""What was recorded since: from memory where this process recorded it, from the log where another did."""

from __future__ import annotations

from contextlib import suppress

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.ledger.store import Store

NOW = "2026-11-21T00:00:00.000Z"


@pytest.fixture
def ours(ours: Store) -> Store:
    ours.follow()
    return ours


def alarm(store: Store, what: str) -> None:
    store.append([Event(Kind.ALARM, None, {"at": NOW, "what": what, "why": ""})], NOW)


def told(store: Store, after: int) -> list[tuple[int, str]]:
    return [(seq, event.data["what"]) for seq, event in store.recorded_since(after)]


def test_what_this_process_records_is_not_read_back(ours: Store) -> None:
    with ours.transaction():
        alarm(ours, "a")
        alarm(ours, "b")
    read: list[str] = []
    ours.db.set_trace_callback(read.append)
    assert told(ours, 0) == [(1, "a"), (2, "b")]
    assert read == []


def test_what_others_record_is_read_with_ours_in_order(ours: Store, theirs: Store) -> None:
    with ours.transaction():
        alarm(ours, "ours")
    with theirs.transaction():
        alarm(theirs, "theirs")
    assert told(ours, 0) == [(1, "ours")]
    with ours.transaction():
        alarm(ours, "ours again")
    assert told(ours, 1) == [(2, "theirs"), (3, "ours again")]
    with theirs.transaction():
        alarm(theirs, "theirs again")
    assert told(ours, 3) == [(4, "theirs again")]


def test_what_was_undone_is_not_told(ours: Store) -> None:
    with ours.transaction():
        alarm(ours, "kept")
        with suppress(RuntimeError), ours.savepoint():
            alarm(ours, "undone")
            raise RuntimeError
        alarm(ours, "kept, too")
    assert told(ours, 0) == [(1, "kept"), (2, "kept, too")]
    with suppress(RuntimeError), ours.transaction():
        alarm(ours, "undone")
        raise RuntimeError
    assert told(ours, 2) == []
