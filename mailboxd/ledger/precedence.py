"""Which of an agent's ready tasks come first: by priority, work of people before that of agents, then by age.

With ageing, a task rises by one priority for each such time that it has waited since it was recorded. Of equal
priority and origin the oldest has risen most, so the first of each such class are all that has to be compared: each is
found by one search of the index, however much work is ready.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from mailboxd.core.explain.model import MOST_AHEAD, Ahead
from mailboxd.core.schedule import raised
from mailboxd.core.times import to_epoch
from mailboxd.ledger.conditions import RUNNABLE, is_not_held

RESTED = "(not_before IS NULL OR not_before <= :now)"
"""A task whose pause after a failure is over."""
UNCLAIMED = "id NOT IN (SELECT value FROM json_each(:claims))"
_OF_AGENT = f"{RUNNABLE} AND kids = 0 AND executor = :executor AND (attempt > 0) = :again"
_MAY_START = f"{_OF_AGENT} AND {RESTED} AND {is_not_held('id')} AND {UNCLAIMED}"
_READ = "SELECT id, priority, by_person, created_at, seq FROM tasks WHERE"
_FIRST = f"{_READ} {_MAY_START} ORDER BY priority DESC, by_person DESC, seq LIMIT :most"
_FIRST_OF_EACH = " UNION ALL ".join(
    f"SELECT {again}, id, priority, by_person FROM ({_FIRST.replace(':again', again)})" for again in ("0", "1")
)
_FIRST_OF_CLASS = f"{_READ} {_MAY_START} AND priority = :priority AND by_person = :by_person ORDER BY seq LIMIT :most"
_HIGHEST = f"SELECT max(priority) FROM tasks WHERE {_OF_AGENT}"
_PRIORITIES = (  # one seek for each: SQLite has no skip scan for this
    f"WITH RECURSIVE found (at) AS ({_HIGHEST} UNION ALL"
    f" SELECT ({_HIGHEST} AND priority < found.at) FROM found WHERE found.at IS NOT NULL)"
    " SELECT at FROM found WHERE at IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class Placed:
    """A ready task, with its priority as far as it has risen."""

    id: str
    priority: int
    by_person: bool


def first_of(
    db: sqlite3.Connection, executor: str, now: str, ageing: float, *, again: bool, most: int, claims: str = "[]"
) -> list[Placed]:
    """The first `most` of an agent's ready tasks, in order: of those that had an attempt before (`again`), or of the
    others.

    `ageing`: seconds; 0 = none rises. `claims`: the ids of tasks that wait for claims, as JSON.
    """
    given = {"executor": executor, "now": now, "again": again, "most": most, "claims": claims}
    if not ageing:
        return [Placed(task, at, bool(person)) for task, at, person, _, _ in db.execute(_FIRST, given)]
    found = []
    for (priority,) in db.execute(_PRIORITIES, given).fetchall():
        for by_person in (True, False):
            for task, at, _, born, seq in db.execute(
                _FIRST_OF_CLASS, {**given, "priority": priority, "by_person": by_person}
            ):
                risen = raised(at, to_epoch(now) - to_epoch(born), ageing)
                found.append((-risen, not by_person, seq, Placed(task, risen, by_person)))
    return [placed for _, _, _, placed in sorted(found, key=lambda one: one[:3])[:most]]


def first_of_each(
    db: sqlite3.Connection, executor: str, now: str, ageing: float, *, most: int, claims: str = "[]"
) -> tuple[list[Placed], list[Placed]]:
    """As `first_of`, of those without an attempt before, and of those with one."""
    found: tuple[list[Placed], list[Placed]] = [], []
    if ageing:
        for again, placed in enumerate(found):
            placed += first_of(db, executor, now, ageing, again=bool(again), most=most, claims=claims)
        return found
    given = {"executor": executor, "now": now, "most": most, "claims": claims}
    for again, task, at, person in db.execute(_FIRST_OF_EACH, given):
        found[again].append(Placed(task, at, bool(person)))
    return found


def ahead_of(db: sqlite3.Connection, task_id: str, now: str, ageing: float) -> Ahead:
    """What gets its turns before this ready task, of those of the same agent. Reads at most `MOST_AHEAD` of each kind.

    Of equal rank only its own kind counts, because retries and new work take turns.
    """
    executor, again = db.execute("SELECT executor, attempt > 0 FROM tasks WHERE id = ?", (task_id,)).fetchone()
    own, others = (
        first_of(db, executor, now, ageing, again=kind, most=MOST_AHEAD + 1) for kind in (bool(again), not again)
    )
    place = next((at for at, one in enumerate(own) if one.id == task_id), None)
    if place is None:  # more than that come before it, or it does not wait for its turn
        return Ahead(more=len(own) > MOST_AHEAD)
    itself, before = own[place], own[:place]
    return Ahead(
        higher=sum(one.priority > itself.priority for one in (*before, *others)),
        of_people=sum(one.priority == itself.priority and one.by_person > itself.by_person for one in before),
        earlier=sum((one.priority, one.by_person) == (itself.priority, itself.by_person) for one in before),
    )
