"""Approvals as people name and read them: by the end of their id, with what was asked, decided and done."""

from __future__ import annotations

import re

from mailboxd.errors import UnavailableError
from mailboxd.store.details import approvals
from mailboxd.store.report import Report, Row

_SHORTEST = 6
_NAME = re.compile(r"[0-9A-Za-z_]{6,40}")
_SHOWN = 8
_KINDS = (
    "approval.requested",
    "approval.resolved",
    "action.started",
    "action.delayed",
    "action.ended",
    "undo.requested",
)


def find(report: Report, name: str) -> str:
    """The id of the approval whose id is `name`, or ends so, in any case. Raises UnavailableError."""
    if _NAME.fullmatch(name) is None:
        raise UnavailableError(
            f"{ascii(name)[:100]} names no approval: write its short id, like 3f9k2q, or more of the end of its id; "
            "`mailboxd approvals` lists them"
        )
    rows = report.rows(
        "SELECT a.id, t.local_id, a.status, a.requested_action FROM approvals a JOIN tasks t ON t.id = a.task"
        " WHERE upper(substr(a.id, -length(?1))) = upper(?1) ORDER BY a.rowid LIMIT ?2",
        name,
        _SHOWN + 1,
    )
    exact = [row for row in rows if row["id"].upper() == name.upper()]
    if len(exact or rows) == 1:
        return str((exact or rows)[0]["id"])
    if not rows:
        raise UnavailableError(f"there is no approval {name}; `mailboxd approvals --all` lists them")
    some = "; ".join(f"{row['id']} ({row['local_id']}, {row['status']})" for row in rows[:_SHOWN])
    more = " ..." if len(rows) > _SHOWN else ""
    raise UnavailableError(f"{name} fits several approvals: {some}{more}; write more of the end of the id")


def listed(report: Report, *, everything: bool = False, task_id: str | None = None) -> list[Row]:
    """What waits for a person, oldest first; `everything` that was ever asked; of one task and all below it."""
    where, args = [] if everything else ["a.status = 'pending'"], []
    if task_id is not None:
        below = "WITH RECURSIVE b (id) AS (SELECT ?1 UNION ALL SELECT t.id FROM tasks t JOIN b ON t.parent = b.id)"
        where.append(f"a.task IN ({below} SELECT id FROM b)")
        args.append(task_id)
    return approvals(report, f" WHERE {' AND '.join(where)}" if where else "", *args)


def one(report: Report, approval_id: str) -> Row:
    """All that is on record about an approval: `taken_back` are the requests to undo it, `history` its events."""
    with report.snapshot():
        row = approvals(report, " WHERE a.id = ?1", approval_id)[0]
        undone = approvals(report, " WHERE a.origin = ?1 AND a.purpose = 'undo'", approval_id)
        task = report.rows("SELECT task FROM approvals WHERE id = ?", approval_id)[0]["task"]
        history = [
            {"at": event["at"], "kind": event["kind"], "actor": event["actor"], "text": event["text"]}
            for event in report.events(task)
            if event["kind"] in _KINDS and _about(event["data"]["approval"]) == approval_id
        ]
    short = [{name: other[name] for name in ("id", "short_id", "status", "state", "summary")} for other in undone]
    return row | {"taken_back": short, "history": history}


def _about(named: str | Row) -> str:
    return named if isinstance(named, str) else str(named["id"])


def ending(report: Report, incomplete: str, limit: int) -> list[tuple[str, str]]:
    """Short ids of what waits that begin so, each with what it is."""
    rows = report.db.execute(
        "SELECT lower(substr(id, -?3)), requested_action FROM approvals WHERE status = 'pending'"
        " AND lower(substr(id, -?3, length(?1))) = lower(?1) ORDER BY rowid LIMIT ?2",
        (incomplete, limit, _SHORTEST),
    )
    return list(rows)
