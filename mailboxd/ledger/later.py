"""What is to begin later: work that repeats, and tasks with a beginning to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailboxd.core.vocabulary import is_id
from mailboxd.ledger.conditions import LIVE, OPEN

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import LaterTask, RepetitionDetails, RunRow
    from mailboxd.core.repetition import Repetition
    from mailboxd.ledger.repetitions import Repetitions
    from mailboxd.ledger.reports import Report, Row

_TASKS = (
    "SELECT local_id, title, not_before FROM tasks INDEXED BY tasks_pausing WHERE phase = 'execution_ready'"
    " AND not_before > ? AND json_extract(policy, '$.not_before') = not_before ORDER BY not_before LIMIT ?"
)
_OPEN_RUN = (
    f"SELECT t.local_id FROM repetition_runs r JOIN tasks t ON t.id = r.task WHERE r.repetition = ? AND {OPEN}"
    " AND r.number > ? ORDER BY r.number DESC LIMIT 1"
)


def _repetitions(report: Report) -> Repetitions | None:
    """None where there are none: most reports do without knowing what they are."""
    if not report.has_table("repetitions"):
        return None
    if report.db.execute("SELECT 1 FROM repetitions LIMIT 1").fetchone() is None:
        return None
    from mailboxd.ledger.repetitions import Repetitions

    return Repetitions(report.db)


def repetition_called(report: Report, name: str) -> Repetition | None:
    """The repetition of this name or id; None if there is none, or if it has ended and a task is called so."""
    if not is_id(name) or (repetitions := _repetitions(report)) is None:
        return None
    found = repetitions.named(name)
    if found is None:
        return _beginning_with(report, repetitions, name)
    if not found.ended:
        return found
    is_task = report.db.execute("SELECT 1 FROM tasks WHERE local_id = ?", (name,)).fetchone() is not None
    return None if is_task else found


def _beginning_with(report: Report, repetitions: Repetitions, name: str) -> Repetition | None:
    """The only one that goes on whose name begins so, unless a task that is none of its runs is called so, too."""
    found = [one for one in repetitions.going_on() if one.name.startswith(name)]
    if len(found) != 1:
        return None
    others = report.db.execute(
        "SELECT 1 FROM tasks WHERE local_id >= ?1 AND local_id < ?1 || char(1114111) AND root NOT IN"
        " (SELECT task FROM repetition_runs WHERE repetition = ?2) LIMIT 1",
        (name, found[0].id),
    )
    return found[0] if others.fetchone() is None else None


def later(report: Report, now: str, most: int) -> list[LaterTask | RepetitionDetails]:
    """What begins later, the next first, at most `most` of both kinds."""
    found: list[LaterTask | RepetitionDetails] = []
    if (repetitions := _repetitions(report)) is not None:
        found += [as_row(report, one) for one in repetitions.going_on()[:most]]
    tasks = report.rows(_TASKS, now, most)
    found += [{"kind": "task", "name": r["local_id"], "title": r["title"], "at": r["not_before"]} for r in tasks]
    return sorted(found, key=lambda row: (row["kind"] == "repetition" and bool(row["paused"]), row["at"]))


def count_scheduled(report: Report, now: str) -> int:
    """How many tasks have a beginning to come."""
    return int(report.db.execute(f"SELECT count(*) FROM ({_TASKS})", (now, -1)).fetchone()[0])


def count_later(report: Report, now: str) -> int:
    """How many there are."""
    count = count_scheduled(report, now)
    if report.has_table("repetitions"):
        count += int(report.db.execute("SELECT count(*) FROM repetitions WHERE ended = ''").fetchone()[0])
    return count


def as_row(report: Report, one: Repetition) -> RepetitionDetails:
    """A repetition as views show it."""
    open_run = report.db.execute(_OPEN_RUN, (one.id, one.runs - 20)).fetchone()
    return {
        "kind": "repetition",
        "name": one.name,
        "title": one.title,
        "at": one.next_at,
        "repeat": one.said,
        "rule": one.rule,
        "zone": one.zone,
        "missed": one.missed,
        "overlap": one.overlap,
        "runs": one.runs,
        "missed_runs": one.missed_runs,
        "last_at": one.last_at,
        "open": None if open_run is None else open_run[0],
        "paused": one.paused,
        "ended": one.ended,
        "problem": one.problem,
        "created_at": one.created_at,
        "id": one.id,
        "sender": one.sender,
    }


def history(report: Report, one: Repetition, most: int) -> list[RunRow]:
    """Its latest runs, the latest first."""
    from mailboxd.ledger.repetitions import Repetitions

    return [
        {"number": run.number, "at": run.at, "task": run.local_id, "phase": run.phase, "made_at": run.made_at}
        for run in Repetitions(report.db).runs(one.id, most)
    ]


def count_repeating(report: Report) -> int:
    """How many repetitions have runs to come."""
    if not report.has_table("repetitions"):
        return 0
    return int(report.db.execute(f"SELECT count(*) FROM repetitions WHERE {LIVE}").fetchone()[0])


def failing(report: Report) -> list[Row]:
    """Those whose latest run could not be made."""
    if not report.has_table("repetitions"):
        return []
    return report.rows(f"SELECT name, problem, next_at FROM repetitions WHERE {LIVE} AND problem <> '' ORDER BY rowid")
