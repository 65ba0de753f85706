"""What came about a piece of work before the work itself."""

from __future__ import annotations

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.ledger.messages import KnownWork
from mailboxd.ledger.store import Store

_NOW = "2026-11-21T00:00:00.000Z"


def _comes(store: Store, type_: str, verdict: str, *, subtask: str | None = None, path: str | None = None) -> None:
    number = store.messages.count()
    of = {"sender": "ann", "task_id": "t", "subtask_id": subtask}
    file: dict[str, object] = {"name": "t.md", "path": path, "stamp": {}}
    row = {"id": f"msg_{number}", "direction": "in", "type": type_, "verdict": verdict, **of, **file}
    with store.transaction():
        store.append([Event(Kind.MESSAGE_RECEIVED, None, {"at": _NOW, "message": row})], _NOW)


def test_a_cancel_that_found_no_work_is_about_the_work_with_all_of_its_ids(ours: Store) -> None:
    _comes(ours, "cancel", "orphan", subtask="s")
    assert ours.messages.known_of("ann", "t", "s") == KnownWork(cancelled=True, recovered="")
    for sender, subtask in (("ann", None), ("bob", "s")):
        assert ours.messages.known_of(sender, "t", subtask) == KnownWork(cancelled=False, recovered="")


@pytest.mark.parametrize(
    ("path", "place"), [("archive/2026-11-21/t.md", "archive/2026-11-21/t.md"), (None, "inbox/t.md")]
)
def test_work_that_came_after_a_restored_backup_is_known_by_where_its_file_lies(
    ours: Store, path: str | None, place: str
) -> None:
    _comes(ours, "task", "recovered", path=path)
    _comes(ours, "cancel", "accepted")
    assert ours.messages.known_of("ann", "t", None) == KnownWork(cancelled=False, recovered=place)
