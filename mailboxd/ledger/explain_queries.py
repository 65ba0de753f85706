"""Loads an `explain.model.Snapshot`: tasks and what they wait for.

Bounded however large the DAG is: neighbours that explain most come first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from mailboxd.core.explain.model import (
    AskedQuestion,
    AttemptSummary,
    Ending,
    LastEvent,
    OpenBreaker,
    PendingEffect,
    RunningCall,
    Snapshot,
    TaskSnapshot,
    Undo,
)
from mailboxd.core.followed import TOGETHER, name_of_unknown
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import TERMINAL, TURN_SECONDS, AttemptStatus, Phase, Waiting, WaitsFor
from mailboxd.ledger.claims import conflicts
from mailboxd.ledger.conditions import ABOVE, BY_PERSON, OPEN
from mailboxd.ledger.meta import Meta
from mailboxd.ledger.precedence import ahead_of

NEIGHBOURS = 10
TASKS = 1000
ATTEMPTS = 5
CALLS = 50

_CALLS = ("run_turn", "look_up")
_GATES = {Phase.SPEC_REVIEW, Phase.SPEC_GATE, Phase.QUALITY_GATE}
_COLUMNS = (
    "id, local_id, phase, executor, reason, error, parent, parent_live, due, not_before, result <> '',"
    " kids, kids - kids_completed - kids_failed - kids_cancelled, unmet, attempt,"
    " coalesce(json_extract(mending, '$.rounds'), 0), policy,"
    " held, updated_at, spent_usd, spent_tokens"
)
_TELLING_FIRST = "t.phase IN ('circuit_open', 'awaiting_approval', 'failed') DESC, t.unmet = 0 DESC, t.seq"


def load(
    db: sqlite3.Connection, tasks: Iterable[str], now: str, daemon: int | None, *, neighbours: bool = True
) -> Snapshot:
    """Load these tasks by id, with `neighbours` also those that they wait for. Unknown ids are skipped."""
    found = _tasks(db, tasks, neighbours=neighbours)
    if neighbours:
        found = {name: _placed(db, task, now) for name, task in found.items()}
    sign = latest_sign(db, list(found)) if neighbours else None
    meta = Meta(db)
    down = "" if daemon is None else meta.gateway()
    away = {} if daemon is None else meta.away()
    paced, gone, held_up = meta.paced(now), meta.gone(), meta.held_up()
    known = tuple(sorted(meta.agents()))
    recovering = {} if daemon is None else meta.recovering()
    reported = (meta.room(), breakers(db), paced, down, away, held_up, known, gone, meta.openclaw(), recovering)
    paused = None if daemon is None else meta.standstill()
    standstill = paused.text if paused is not None else ""
    spending, reserved = meta.spending(now) or (None, "")
    said = (standstill, spending, reserved if daemon is not None else "")
    return Snapshot(now, daemon, found, _calls(db), sign, *reported, endings(db), *said)


def _placed(db: sqlite3.Connection, task: TaskSnapshot, now: str) -> TaskSnapshot:
    """The task with what comes before it, if it waits for its turn."""
    is_ready = task.phase is Phase.EXECUTION_READY and not task.unmet and task.parent_live and not task.coordinates
    return replace(task, ahead=ahead_of(db, task.id, now, Meta(db).ageing())) if is_ready else task


def load_lasting(db: sqlite3.Connection, task_id: str, now: str) -> Snapshot:
    """Load only what ends with an event of the task: for a file, which is not written again for anything else."""
    return Snapshot(now, 0, _tasks(db, [task_id], neighbours=False))


def _tasks(db: sqlite3.Connection, tasks: Iterable[str], *, neighbours: bool) -> dict[str, TaskSnapshot]:
    found: dict[str, TaskSnapshot] = {}
    stack = list(tasks)[::-1]
    while (
        stack and len(found) < TASKS
    ):  # depth first: one chain down to its root cause explains more than the tops of many
        task_id = stack.pop()
        if task_id in found or (standing := _standing(db, task_id)) is None:
            continue
        found[task_id] = standing
        if neighbours:
            if not standing.parent_live and standing.parent is not None:
                stack.append(standing.parent)
            stack += [*standing.children[::-1], *standing.needs[::-1]]
    return found


def breakers(db: sqlite3.Connection) -> dict[str, OpenBreaker]:
    """The breakers that are open or half-open, by agent."""
    rows = db.execute("SELECT agent, until, reason FROM breakers WHERE state <> 'closed' ORDER BY agent")
    return {agent: OpenBreaker(until, reason) for agent, until, reason in rows}


def latest_sign(db: sqlite3.Connection, tasks: Sequence[str]) -> LastEvent | None:
    """The latest event about any of these tasks."""
    latest: Any = None
    for task_id in tasks:
        row = db.execute(
            "SELECT e.seq, e.at, e.kind, e.task, e.role, e.actor, e.data, t.local_id FROM events e"
            " JOIN tasks t ON t.id = e.task WHERE e.task = ? ORDER BY e.seq DESC LIMIT 1",
            (task_id,),
        ).fetchone()
        if row is not None and (latest is None or row[0] > latest[0]):
            latest = row
    if latest is None:
        return None
    from mailboxd.ledger.event_log import sentence

    seq, at, kind, task, role, actor, data, name = latest
    return LastEvent(seq, at, sentence(kind, task, data, role, actor, name))


def _standing(db: sqlite3.Connection, task_id: str) -> TaskSnapshot | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return None
    _, local_id, word, executor, reason, error, parent, parent_live, due, not_before, has_result = row[:11]
    kids, open_children, unmet, attempt, spec_round, policy, held, changed_at, *spent = row[11:]
    phase = Phase(word)
    named = json.loads(policy).get("named") or ()
    attempts, pending = _attempts(db, task_id), _pending(db, task_id)
    waiting = attempts[-1].waiting_for if attempts else Waiting.NOTHING
    return TaskSnapshot(
        id=task_id,
        local_id=local_id,
        phase=phase,
        executor=executor,
        reason=reason,
        error=error,
        parent=parent,
        parent_live=bool(parent_live),
        timeout=_timeout(policy) if any(order.kind in _CALLS for order in pending) else 0,
        due=due,
        not_before=not_before,
        begins_later=not_before is not None and json.loads(policy).get("not_before") == not_before,
        has_result=bool(has_result),
        asks=_asks(db, task_id) if phase in (Phase.EXECUTING, Phase.AWAITING_APPROVAL) else (),
        undoes=_undoes(db, task_id),
        coordinates=kids > 0,
        attempts=attempts,
        pending=pending,
        silent=_silent(db, task_id, phase, spec_round if phase is Phase.SPEC_REVIEW else attempt)
        if phase in _GATES
        else (),  # as lifecycle.review_round
        question=_question(db, task_id) if waiting is Waiting.ANSWER else None,
        unmet=unmet,
        claimed=next(((one.holder, one.path) for one in conflicts(db, task_id)), None)
        if phase == Phase.EXECUTION_READY
        else None,
        needs=_needs(db, task_id) if unmet and phase not in TERMINAL else (),
        unknown=(unknown := _unknown(db, task_id) if unmet and parent is None and phase not in TERMINAL else ()),
        asked_at=_asked_at(db, task_id) if unknown else None,
        open_children=open_children,
        children=_children(db, task_id) if waiting is Waiting.CHILDREN else (),
        since=changed_at,
        held=held,
        own_reviewers="reviewers" in named,
        own_gates="gates" in named,
        raised=_raised(policy, *spent) if held else "",
        held_by=_held_by(db, task_id) if parent is not None and phase not in TERMINAL else "",
        paused_by=_held_by(db, task_id, BY_PERSON) if parent is not None and phase is Phase.READY_TO_RESUME else "",
    )


def _asks(db: sqlite3.Connection, task_id: str) -> tuple[tuple[str, str, str], ...]:
    """Its pending approvals: short id, action, expiry."""
    return tuple(
        db.execute(
            "SELECT lower(substr(id, -6)), requested_action, expires_at FROM approvals"
            " WHERE task = ? AND status = 'pending' AND purpose <> 'undo' ORDER BY rowid",
            (task_id,),
        )
    )


def _undoes(db: sqlite3.Connection, task_id: str) -> tuple[Undo, ...]:
    prepared = db.execute(
        "SELECT lower(substr(json_extract(data, '$.undoes'), -6)) FROM outbox"
        " WHERE task = ? AND state = 'pending' AND kind = 'prepare' AND json_extract(data, '$.undoes') <> ''",
        (task_id,),
    )
    asked = db.execute(
        "SELECT lower(substr(origin, -6)), lower(substr(id, -6)), status = 'approved', expires_at FROM approvals"
        " WHERE task = ? AND purpose = 'undo'"
        " AND (status = 'pending' OR status = 'approved' AND state IN ('', 'started'))"
        " ORDER BY rowid",
        (task_id,),
    )
    return (
        *(Undo(action) for (action,) in prepared),
        *(Undo(action, approval, bool(approved), until) for action, approval, approved, until in asked),
    )


def _timeout(policy: str) -> int:
    """Seconds that a turn of the task may take; a policy omits defaults."""
    return int(json.loads(policy).get("timeout", TURN_SECONDS))


def _raised(policy: str, usd: float, tokens: int) -> str:
    """The options that allow as much again of each budget that is used up."""
    given = json.loads(policy)
    most_usd, most_tokens = given.get("budget_usd"), given.get("budget_tokens")
    text = ""
    if most_usd is not None and usd >= most_usd:
        text = f" --budget-usd {ceil((usd + most_usd) * 100) / 100 or 1:g}"
    if most_tokens is not None and tokens >= most_tokens:
        text += f" --budget-tokens {tokens + most_tokens or 1}"
    return text


def _attempts(db: sqlite3.Connection, task_id: str) -> tuple[AttemptSummary, ...]:
    rows = db.execute(
        "SELECT id, ordinal, executor, status, waiting_for, started_at, error_summary, run_id, session_key,"
        " finished_at,"
        " model, escalated, silent, coalesce(json_extract(usage, '$.input_tokens'), 0)"
        " + coalesce(json_extract(usage, '$.output_tokens'), 0), coalesce(json_extract(usage, '$.cost_usd'), 0),"
        " token_echoed, coalesce((SELECT h.value FROM meta, json_each(meta.value) h"
        " WHERE meta.name = 'holders' AND h.key = attempts.id), '')"
        " FROM attempts WHERE task = ? ORDER BY ordinal DESC LIMIT ?",
        (task_id, ATTEMPTS),
    ).fetchall()
    waits = waits_at_peer(db, task_id)
    return tuple(
        AttemptSummary(ordinal, executor, AttemptStatus(status), Waiting(waiting_for), *(*rest, waits.get(attempt)))
        for attempt, ordinal, executor, status, waiting_for, *rest in reversed(rows)
    )


def waits_at_peer(db: sqlite3.Connection, task_id: str) -> dict[str, tuple[WaitsFor, str]]:
    """What the peer that has the task waits for, by attempt. A database of an earlier version does not have it."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'waits_at_peers'").fetchone() is None:
        return {}
    rows = db.execute("SELECT attempt, waits_for, why FROM waits_at_peers WHERE task = ?", (task_id,))
    return {attempt: (WaitsFor(waits_for), why) for attempt, waits_for, why in rows}


def endings(db: sqlite3.Connection) -> tuple[Ending, ...]:
    """The orders that are held. A database of an earlier version has none."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'held_orders'").fetchone() is None:
        return ()
    rows = db.execute(
        "SELECT t.local_id, h.name, h.approval, h.by, h.due FROM held_orders h JOIN tasks t ON t.id = h.task"
        " ORDER BY h.due, h.id"
    )
    return tuple(Ending(*row) for row in rows)


def _pending(db: sqlite3.Connection, task_id: str) -> tuple[PendingEffect, ...]:
    rows = db.execute(
        "SELECT kind, agent, at, not_before, id, coalesce(json_extract(data, '$.correction.problems[0]'), ''),"
        " coalesce(json_extract(data, '$.type'), ''), coalesce(json_extract(data, '$.to'), '')"
        " FROM outbox WHERE task = ? AND state = 'pending' ORDER BY seq",
        (task_id,),
    )
    return tuple(PendingEffect(*row) for row in rows)


def _silent(db: sqlite3.Connection, task_id: str, phase: Phase, round_: int) -> tuple[str, ...]:
    rows = db.execute(
        "SELECT q.reviewer FROM review_requests q WHERE q.task = ?1 AND q.gate = ?2 AND q.round = ?3 AND NOT EXISTS"
        " (SELECT 1 FROM reviews r WHERE r.task = ?1 AND r.gate = ?2 AND r.round = ?3 AND r.reviewer = q.reviewer)"
        " ORDER BY q.reviewer",
        (task_id, phase, round_),
    )
    return tuple(row[0] for row in rows)


def _question(db: sqlite3.Connection, task_id: str) -> AskedQuestion | None:
    row = db.execute(
        "SELECT at, data FROM events WHERE task = ? AND kind = ? ORDER BY seq DESC LIMIT 1", (task_id, "question.asked")
    ).fetchone()
    if row is None:
        return None
    data = json.loads(row[1])
    return AskedQuestion(data["to"], data["text"], row[0])


def _held_by(db: sqlite3.Connection, task_id: str, how: str = "held <> ''") -> str:
    row = db.execute(
        f"{ABOVE} SELECT t.local_id FROM above a JOIN tasks t ON t.id = a.id"
        f" WHERE t.{how} AND t.id <> ? ORDER BY t.depth DESC LIMIT 1",
        (task_id, task_id),
    ).fetchone()
    return "" if row is None else row[0]


def _needs(db: sqlite3.Connection, task_id: str) -> tuple[str, ...]:
    rows = db.execute(
        f"SELECT t.id FROM dependencies d JOIN tasks t ON t.id = d.needs WHERE d.task = ? AND t.phase <> 'completed'"
        f" ORDER BY {_TELLING_FIRST} LIMIT ?",
        (task_id, NEIGHBOURS),
    )
    return tuple(row[0] for row in rows)


def _unknown(db: sqlite3.Connection, task_id: str) -> tuple[str, ...]:
    rows = db.execute("SELECT needs FROM dependencies WHERE task = ? ORDER BY needs", (task_id,))
    return tuple(name for (need,) in rows if (name := name_of_unknown(need)))


def _asked_at(db: sqlite3.Connection, task_id: str) -> str:
    return plus(db.execute("SELECT updated_at FROM tasks WHERE id = ?", (task_id,)).fetchone()[0], TOGETHER)


def _children(db: sqlite3.Connection, task_id: str) -> tuple[str, ...]:
    rows = db.execute(
        f"SELECT t.id FROM tasks t WHERE t.parent = ? AND {OPEN} ORDER BY {_TELLING_FIRST} LIMIT ?",
        (task_id, NEIGHBOURS),
    )
    return tuple(row[0] for row in rows)


def _calls(db: sqlite3.Connection) -> tuple[RunningCall, ...]:
    rows = db.execute(
        "SELECT o.agent, coalesce(t.local_id, ''), o.at, o.id FROM outbox o LEFT JOIN tasks t ON t.id = o.task"
        " WHERE o.state = 'pending' AND o.kind = 'run_turn' ORDER BY o.seq LIMIT ?",
        (CALLS,),
    )
    return tuple(RunningCall(*row) for row in rows)
