"""A store of a database that is being made: what it records is handed on, but for what was undone."""

from __future__ import annotations

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.store.rebuild_store import RebuildStore

AT = "2026-11-21T00:00:00.000Z"


def undone(store: RebuildStore, event: Event) -> None:
    with store.savepoint():
        store.messages.keep_body("b", b"B")
        store.append([event], AT)
        raise ZeroDivisionError


def test_what_was_undone_is_not_handed_on() -> None:
    store = RebuildStore.empty(AT)
    events = [Event(Kind.ALARM, None, {"at": AT, "what": "clock", "why": str(number)}) for number in range(3)]
    with store.transaction():
        store.messages.keep_body("a", b"A")
        store.append([events[0]], AT)
        with pytest.raises(ZeroDivisionError):
            undone(store, events[1])
        store.append([events[2]], AT)
    told = store.take()
    assert [(row[0], row[-1]["why"]) for row in told.events] == [(1, "0"), (2, "2")]
    assert told.bodies == [("a", b"A")]
    assert store.take() == ([], [])
    store.close()
