"""The attempts of a tree as bars of a timeline: bounded, however large the tree is. Read-only."""

from __future__ import annotations

from mailboxd.core.times import to_epoch
from mailboxd.drawing.folding import Link
from mailboxd.drawing.gantt import Bar
from mailboxd.store.outline import no_link
from mailboxd.store.report import Report

_TASKS = 2_000
"""Tasks of a tree that are looked at: of more those nearest to the top."""


def bars(report: Report, task_id: str, *, most: int = 100, link: Link = no_link) -> list[Bar]:
    """The last `most` attempts of a task and of what is below it, by task, in the order in which tasks began."""
    rows = report.rows(
        "WITH RECURSIVE below (id, depth) AS (SELECT ?1, 0 UNION ALL"
        " SELECT t.id, b.depth + 1 FROM tasks t JOIN below b ON t.parent = b.id ORDER BY 2 LIMIT ?2)"
        " SELECT t.local_id, a.ordinal, a.executor, a.status, a.model, a.started_at, a.finished_at, a.error_summary"
        " FROM below b JOIN tasks t ON t.id = b.id JOIN attempts a ON a.task = b.id"
        " ORDER BY a.started_at DESC, t.local_id LIMIT ?3",
        task_id,
        _TASKS,
        most,
    )
    first: dict[str, str] = {}
    for row in rows:
        first[row["local_id"]] = min(row["started_at"], first.get(row["local_id"], row["started_at"]))
    rows.sort(key=lambda row: (first[row["local_id"]], row["local_id"], row["ordinal"]))
    return [
        Bar(
            row["local_id"],
            to_epoch(row["started_at"]),
            to_epoch(row["finished_at"]) if row["finished_at"] else None,
            row["status"],
            " ".join(filter(None, [row["executor"], row["model"], row["error_summary"]])),
            link(row["local_id"], False),
        )
        for row in rows
    ]
