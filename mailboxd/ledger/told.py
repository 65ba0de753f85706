"""What people were told about a task, and what they said with their orders, as the events of it have that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mailboxd.core.events import Kind
from mailboxd.ledger.reports import Report, Row

if TYPE_CHECKING:
    from mailboxd.core.explain.task_details import OrderGiven, ToldRow

_TOLD = (Kind.NOTICE_SENT, Kind.NOTICE_FAILED, Kind.REMOTE_ORDER)
_DECIDED = {"approved": "approve", "rejected": "reject", "request_changes": "ask-changes"}


def told(report: Report, task_id: str) -> list[ToldRow]:
    """Each time that a person was told something about the task, or could not be: when, where and what.

    `what` is the kind of notice, `prompt`, `card` or `order`. `sha256` is of the words exactly as they were sent, of
    which `words` has the beginning; both None for what earlier versions sent. `why` says why it failed.
    """
    rows = report.rows(
        f"SELECT seq, at, kind, data FROM events WHERE task = ? AND kind IN ({', '.join('?' * len(_TOLD))})"
        " ORDER BY seq",
        task_id,
        *_TOLD,
    )
    return [_told(row, json.loads(row["data"])) for row in rows]


def _told(row: Row, data: dict[str, Any]) -> ToldRow:
    is_order = row["kind"] == Kind.REMOTE_ORDER
    return {
        "seq": row["seq"],
        "at": row["at"],
        "to": data["by"] if is_order else data["to"],
        "what": "order" if is_order else data["what"],
        "sent": row["kind"] != Kind.NOTICE_FAILED,
        "text": data["answer"] if is_order else data.get("text", ""),
        "words": data.get("words") if not is_order else None,
        "sha256": data.get("sha256"),
        "together_with": data.get("with"),
        "why": data.get("why", ""),
    }


def given(report: Report, task_id: str) -> list[OrderGiven]:
    """What people said with their orders about the task: when, who, which order, and the words, oldest first."""
    rows = report.rows(
        "SELECT at, actor, kind, data FROM events WHERE task = ?1 AND (kind IN (?2, ?3)"
        " OR json_extract(data, '$.given') IS NOT NULL) ORDER BY seq",
        task_id,
        Kind.APPROVAL_RESOLVED,
        Kind.STEERED,
    )
    return [one for row in rows if (one := _given(row, json.loads(row["data"]))) is not None]


def _given(row: Row, data: dict[str, Any]) -> OrderGiven | None:
    by, about = row["actor"], None
    if row["kind"] == Kind.APPROVAL_RESOLVED:
        changes, about = data["changes"], data["approval"][-6:].lower()
        by = changes.get("resolved_by") or by
        name, note = _DECIDED.get(changes.get("status", ""), ""), changes.get("note") or ""
    elif row["kind"] == Kind.STEERED:
        name, note, by = "steer", data["text"], data["by"]  # by nobody: they reached the running turn
    else:
        name, note = data["given"]["name"], data["given"]["note"]
    if not (name and note and by):
        return None
    return {"at": row["at"], "by": by, "order": name, "about": about, "note": note}


def was_told(report: Report, task_id: str, notice_id: str, to: str) -> bool:
    """Whether an event of the task says that this was told there."""
    row = report.db.execute(
        "SELECT 1 FROM events WHERE task = ? AND kind = ? AND json_extract(data, '$.id') = ?"
        " AND json_extract(data, '$.to') = ?",
        (task_id, Kind.NOTICE_SENT, notice_id, to),
    ).fetchone()
    return row is not None
