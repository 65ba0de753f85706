"""A mailbox of an earlier version, which put all it sent and rejected into one directory each, is sorted into days."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from mailboxd import audit
from mailboxd.clock import ManualClock
from mailboxd.config.settings import Settings
from mailboxd.core.events import Event, Kind
from mailboxd.engine.engine import Engine
from mailboxd.ids import Ids
from mailboxd.intake.archive import reason_file
from mailboxd.mailbox.layout import Workspace
from mailboxd.older_layout import sort_into_days
from mailboxd.store import audit_queries, event_log
from mailboxd.store.store import Store

SENT_AT, NOW = "2026-01-31T23:59:59.123Z", "2026-02-02T08:00:00.000Z"
SENT = Ids(lambda _: 1).new("msg", SENT_AT)


@pytest.fixture
def engine() -> Engine:
    return Engine(Store.open(None, NOW), Settings("alpha"), ManualClock(NOW))


@pytest.fixture
def ws(tmp_path: Path, engine: Engine) -> Workspace:
    """One message that was sent, and one that was rejected, with its reason."""
    Workspace.create(tmp_path)
    ws = Workspace(tmp_path)
    digest = hashlib.sha256(b"said").hexdigest()
    reason = {"rule": "unknown-type", "problem": "?", "hint": "!"}
    rows: list[dict[str, object]] = [
        {"id": SENT, "direction": "out", "verdict": "sent", "message_id": SENT, "type": "task", "receiver": "beta"},
        {"id": "msg_in", "direction": "in", "verdict": "rejected", "reason": reason, "stamp": {}},
    ]
    paths = (f"outbox/{SENT}.task.q3.report.md", "rejected/2026-plan.md")
    for row, path, kind in zip(rows, paths, (Kind.MESSAGE_SENT, Kind.MESSAGE_REJECTED), strict=True):
        (ws.mailbox / path).write_bytes(b"said")
        message = row | {"name": Path(path).name, "path": path, "sha256": digest, "size": 4}
        with engine.batch():
            engine.record(Event(kind, None, {"at": SENT_AT, "message": message}))
    beside = reason_file("2026-plan.md", SENT_AT, digest, "msg_in", reason)
    (ws.rejected / "2026-plan.md.reason.json").write_text(json.dumps(beside))
    return ws


def found(ws: Workspace) -> list[str]:
    return sorted(str(path.relative_to(ws.mailbox)) for path in ws.mailbox.rglob("*") if path.is_file())


SORTED = [
    f"outbox/2026-01-31/235959-123.task.beta.q3.report.{SENT}.md",
    "rejected/2026-01-31/2026-plan.md",
    "rejected/2026-01-31/2026-plan.md.reason.json",
]


def is_on_record(engine: Engine, ws: Workspace) -> bool:
    files = list(audit_queries.filed(engine.store.db))
    assert {file.path for file in files} == {path for path in found(ws) if not path.endswith(".json")}
    return audit.check_files(ws, files, len(files), lambda *_: None) is None and not event_log.differences(
        engine.store.db, lambda *_: None, engine.store.last_event()
    )


def test_what_was_sent_and_rejected_is_moved_into_its_day_with_an_event_once(engine: Engine, ws: Workspace) -> None:
    assert is_on_record(engine, ws)
    assert sort_into_days(engine, ws) == 2
    assert found(ws) == SORTED
    assert is_on_record(engine, ws)
    last = engine.store.last_event()
    assert sort_into_days(engine, ws) == 0
    assert engine.store.last_event() == last


def test_a_crash_after_a_move_is_finished_by_the_next_start(engine: Engine, ws: Workspace) -> None:
    (ws.rejected / "2026-01-31").mkdir()
    for name in os.listdir(ws.rejected):
        if "plan" in name:
            (ws.rejected / name).rename(ws.rejected / "2026-01-31" / name)
    assert sort_into_days(engine, ws) == 2
    assert found(ws) == SORTED
    assert is_on_record(engine, ws)


def test_what_is_missing_or_nobody_recorded_is_left_to_the_audit(engine: Engine, ws: Workspace) -> None:
    (ws.outbox / f"{SENT}.task.q3.report.md").unlink()
    (ws.outbox / "notes.md").write_text("mine")
    assert sort_into_days(engine, ws) == 1
    assert found(ws) == ["outbox/notes.md", *SORTED[1:]]
