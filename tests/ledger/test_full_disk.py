"""A full disk: what was not committed has not happened, and nothing is written past the end of a transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Policy, Spec
from mailboxd.engine.engine import Engine
from mailboxd.errors import StoreError
from mailboxd.formats.config.settings import Settings
from mailboxd.host.clock import ManualClock
from mailboxd.ledger import event_log
from mailboxd.ledger.store import Store


def fill(engine: Engine) -> None:
    with engine.batch():
        try:
            with engine.store.savepoint():
                engine.record(Event(Kind.ALARM, None, {"what": "x" * 100_000, "why": "y"}))
        except StoreError:
            raise
        except Exception:  # what a net for bugs would do: it must not get the chance
            engine.record(Event(Kind.ALARM, None, {"what": "written on", "why": "y"}))


def test_a_disk_that_is_full_inside_a_part_ends_the_whole_batch_and_breaks_no_chain(tmp_path: Path) -> None:
    clock = ManualClock()
    store = Store.open(tmp_path / "mailboxd.db", clock.now())
    engine = Engine(store, Settings("alpha"), clock)
    with engine.batch():
        engine.handle(None, NewTask("a", None, "a", "operator", "A", Spec("A", "do"), Policy()))
    pages = store.db.execute("PRAGMA page_count").fetchone()[0]
    store.db.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(StoreError):
        fill(engine)
    store.db.execute(f"PRAGMA max_page_count = {pages + 4000}")
    event_log.check(store.db)
    with engine.batch():
        engine.record(Event(Kind.ALARM, None, {"what": "goes on", "why": "y"}))
    event_log.check(store.db)


def test_an_event_outside_of_a_transaction_is_refused() -> None:
    store = Store.open(None, "2026-01-01T00:00:00.000Z")
    with pytest.raises(AssertionError):
        store.append([Event(Kind.ALARM, None, {"what": "x", "why": "y"})], "2026-01-01T00:00:00.000Z")
