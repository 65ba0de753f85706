"""Applies events to tables. The only code that writes to the tables that a replay rebuilds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mailboxd.core.approvals import Approval
from mailboxd.core.budget import tokens
from mailboxd.core.events import OF_TASKS, Event, Kind, passed
from mailboxd.core.followed import name_of_unknown
from mailboxd.core.json_codec import from_json
from mailboxd.core.model import Attempt, Handover, Task, Usage
from mailboxd.core.repetition import Repetition
from mailboxd.core.vocabulary import OPERATORS, TERMINAL, Phase, ReviewLoss, WaitsFor
from mailboxd.ledger.conditions import ABOVE
from mailboxd.ledger.connection import Connection
from mailboxd.ledger.row_mapping import (
    APPROVAL_COLUMNS,
    ATTEMPT_COLUMNS,
    REPETITION_COLUMNS,
    TASK_COLUMNS,
    columns_of,
    insert,
    row_of,
)
from mailboxd.ledger.spending import cap_raised, turn_spent
from mailboxd.ledger.task_cache import ASKED_IN_TURN, AWAITED, HELD, REJECTED, REPEATED, STEERED, Counts, TaskCache

UNMET = (
    "(SELECT count(*) FROM dependencies d LEFT JOIN tasks n ON n.id = d.needs"
    " WHERE d.task = ?1 AND (n.phase IS NULL OR n.phase <> 'completed'))"
)
"""The number of unmet dependencies of task ?1. A dependency without a row is a later sibling in the same plan."""
_NEEDS_ANY = "flow <> '{}' AND json_extract(flow, '$.needs_any')"
"""A task for which a cancelled dependency is met as well: it has ended."""
_CANCELLED_COUNTS = (
    "UPDATE tasks SET unmet = unmet - (SELECT count(*) FROM dependencies d JOIN tasks n ON n.id = d.needs"
    f" WHERE d.task = ?1 AND n.phase = 'cancelled') WHERE id = ?1 AND {_NEEDS_ANY}"
)
_ONE_CANCELLED = (
    f"UPDATE tasks SET unmet = unmet - ?1 WHERE id IN (SELECT task FROM dependencies WHERE needs = ?2) AND {_NEEDS_ANY}"
)

_PLACE = (
    f"SELECT {UNMET}, ?2 IS NULL OR (SELECT phase = 'executing' FROM tasks WHERE id = ?2),"
    " (SELECT by_person FROM tasks WHERE id = ?2)"
)
_INSERT = insert("tasks", (*TASK_COLUMNS, "seq", "priority", "deadline", "unmet", "parent_live", "by_person"))
_INSERT_NEED = "INSERT OR IGNORE INTO dependencies VALUES (?, ?)"


def _task_created(
    db: Connection, seq: int, event: Event, cache: TaskCache, born: Mapping[str, Task], phases: dict[str, str]
) -> None:
    """Insert a task and its dependencies; its parent has been inserted before."""
    task = event.data["task"] | event.data.get("changes", {})
    policy: Mapping[str, Any] = task.get("policy", {})
    needs = event.data["needs"]
    for need in needs:
        db.write_later("dependencies", _INSERT_NEED, (task["id"], need))
    cache.born(task["id"], needs)
    place = _known_place(task, needs, cache, phases)
    if place is None:
        unmet, live, by_person = db.execute(_PLACE, (task["id"], task["parent"])).fetchone()
        place = unmet, live, task["sender"] in OPERATORS if task["parent"] is None else by_person
    phases[task["id"]] = task["phase"]
    values = (*row_of(Task, task), seq, policy.get("priority", 0), policy.get("deadline"), *place)
    db.write_later("tasks", _INSERT, values)
    if (known := born.get(task["id"])) is not None:
        cache.keep(known)
        if "flow" not in task:
            cache.keep_counts(known.id, Counts(seq, bool(place[2]), place[0]))
    cache.moved(task["id"])
    if needs:
        cache.absent.discard(AWAITED)
    if "handover" in task.get("origin", ()):
        _handed_over(db, task["id"], event.data["at"], task["origin"], cache)
    if "flow" in task:
        cache.some_choose = True
        db.execute(_CANCELLED_COUNTS, (task["id"],))
    if "claims" in task:
        cache.some_claim = True
    if "held" in task:
        cache.absent.discard(HELD)
    if task["parent"] is not None:
        _count(db, cache, task["parent"], kids=1)
        _count(db, cache, task["root"], tree_tasks=1)


def _known_place(
    task: Mapping[str, Any], needs: Iterable[str], cache: TaskCache, phases: Mapping[str, str]
) -> tuple[int, bool, bool] | None:
    """How many of the dependencies of a new task are unmet, whether its parent executes, and whether it is work of a
    person; None if a task that has to be known for that is not in memory.
    """
    found = [_phase(need, cache, phases) for need in {*needs}]
    if None in found:
        return None
    unmet = sum(phase != Phase.COMPLETED for phase in found)
    if task["parent"] is None:
        return unmet, True, task["sender"] in OPERATORS
    above, root = _phase(task["parent"], cache, phases), cache.tasks.get(task["root"])
    return None if above is None or root is None else (unmet, above == Phase.EXECUTING, root.sender in OPERATORS)


def _phase(task_id: str, cache: TaskCache, phases: Mapping[str, str]) -> str | None:
    """The phase of a task, as far as it is in memory; `phases` has those that tasks have reached since."""
    if (phase := phases.get(task_id)) is not None:
        return phase
    return None if (task := cache.tasks.get(task_id)) is None else task.phase


def _count(db: Connection, cache: TaskCache, task_id: str, **counts: int) -> None:
    """Add to counts of a task, in its row and in the cache."""
    db.change_later("tasks", task_id, {}, counts)
    for name, by in counts.items():
        cache.count(task_id, name, by)
    if "unmet" in counts or "kids" in counts:
        cache.moved(task_id)


def _handed_over(db: Connection, task: str, at: str, origin: Mapping[str, Any], cache: TaskCache) -> None:
    """Record who handed a task over; it keeps its time when a person lets it go on."""
    row = from_json(Handover, origin["handover"])
    if (known := cache.handed_over.get(row.source)) is not None:
        known.most += 1
    db.execute(
        "INSERT INTO handovers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        " ON CONFLICT (task) DO UPDATE SET began = ?4, let_go = ?7",
        (task, at, row.source, row.began, row.text, int(row.counts), row.let_go or None),
    )


# Usage up the tree, and the breakers of agents.

_TURN = (
    "UPDATE tasks SET turns = turns + (id = ?1), tree_turns = tree_turns + (parent IS NULL)"
    " WHERE id IN (?1, (SELECT root FROM tasks WHERE id = ?1))"
)
"""Counts a turn for its task and for its tree, whose count is kept in the root."""


def usage_recorded(db: Connection, event: Event, cache: TaskCache) -> None:
    """Add the usage to the task and all its ancestors."""
    turn = event.data.get("turn")
    usage = from_json(Usage, (turn or event.data)["usage"])
    used, cost = tokens(usage), usage.cost_usd or 0.0
    if event.task is not None and (used or cost):
        line = [*cache.lineage(event.task)]
        for task in line:
            cache.count(task.id, "spent_tokens", used)
            cache.count(task.id, "spent_usd", cost)
        if line and line[-1].parent is None and all(task.id in cache.counts for task in line):
            for task in line:  # dollars as they are now: two sums of floats added up could differ in the last digit
                db.change_later(
                    "tasks", task.id, {"spent_usd": cache.counts[task.id].spent_usd}, {"spent_tokens": used}
                )
        else:
            db.execute(
                f"UPDATE tasks SET spent_tokens = spent_tokens + ?2, spent_usd = spent_usd + ?3 WHERE id IN"
                f" ({ABOVE.replace('?', '?1')} SELECT id FROM above)",
                (event.task, used, cost),
            )
    if turn is not None:
        if event.task is not None and turn["ran"]:
            if (task_ := cache.known(event.task)) is None:
                db.execute(_TURN, (event.task,))
            else:
                _count(db, cache, event.task, turns=1)
                _count(db, cache, task_.root, tree_turns=1)
        _count_fault(db, turn, cache)
        turn_spent(db, event)


def _count_fault(db: Connection, turn: Mapping[str, Any], cache: TaskCache) -> None:
    agent = turn["agent"].lower()
    if turn["outcome"] == "succeeded" and cache.has_no_faults(agent):
        return
    cache.breakers = None
    if turn["fault"]:
        db.execute(
            "INSERT INTO breakers VALUES (?1, 'closed', 1, 0, NULL, ?2)"
            " ON CONFLICT (agent) DO UPDATE SET failures = failures + 1, reason = ?2",
            (agent, turn["said"]),
        )
    elif turn["outcome"] == "succeeded":
        db.execute("UPDATE breakers SET failures = 0 WHERE agent = ?", (agent,))


def breaker_moved(db: Connection, event: Event, cache: TaskCache) -> None:
    cache.breakers = None
    data = event.data
    state = data["state"]
    db.execute(
        "INSERT INTO breakers (agent, state, failures, times, until, reason) VALUES (?, ?, 0, ?, ?, ?)"
        " ON CONFLICT (agent) DO UPDATE SET state = excluded.state, until = excluded.until, times = excluded.times,"
        " reason = excluded.reason, failures = CASE excluded.state WHEN 'closed' THEN 0 ELSE failures END",
        (data["agent"], state, data["times"], data["until"], data["reason"]),
    )


_LOST = {ReviewLoss.UNREADABLE: "unreadable", ReviewLoss.FAILED: "failures", ReviewLoss.STALLED: "stalls"}
_KIDS = {Phase.COMPLETED: "kids_completed", Phase.FAILED: "kids_failed", Phase.CANCELLED: "kids_cancelled"}
_TASK_COLUMNS = frozenset(TASK_COLUMNS)


NO_TASKS: Mapping[str, Task] = {}


def project(
    db: Connection, seq: int, events: Sequence[Event], cache: TaskCache, born: Mapping[str, Task] = NO_TASKS
) -> None:
    """Apply consecutive events to the tables and to the counts in the cache; `seq` is the number of the first.

    `born`: as they leave them, the tasks that they create, which the cache then keeps.
    """
    phases: dict[str, str] = {}
    for number, event in enumerate(events, seq):
        if cache.quiet_until is not None and _may_set_timer(event):
            cache.quiet_until = None
        if event.kind in OF_TASKS:
            _task_event(db, number, event, cache, born, phases)
        elif (writer := _COUNTERS.get(event.kind)) is not None:
            writer(db, event, cache)
        elif (writer_ := _WRITERS.get(event.kind)) is not None:
            writer_(db, event)


_TIMERS = frozenset({"due", "not_before", "heartbeat", "policy", "held"})
"""Columns of a task that hold times for which something is done, or decide whether it is."""
_WITHOUT_TIMERS = OF_TASKS | {Kind.MESSAGE_SENT, Kind.MESSAGE_RECEIVED, Kind.MESSAGE_FILED, Kind.PLAN_ADOPTED}


def _may_set_timer(event: Event) -> bool:
    """Whether a timer may be due earlier than before. In doubt it may."""
    data = event.data
    if event.kind not in _WITHOUT_TIMERS or not _TIMERS.isdisjoint(data.get("changes", ())):
        return True
    if event.kind is Kind.TASK_CREATED:
        task = data["task"]
        return (
            not _TIMERS.isdisjoint(task.keys() - {"policy"})
            or "deadline" in task.get("policy", ())
            or any(map(name_of_unknown, data["needs"]))
        )
    steps = passed(event)
    return bool(steps) and (steps[0]["from"] in TERMINAL or steps[-1]["to"] == Phase.EXECUTION_READY)


def _task_event(
    db: Connection, seq: int, event: Event, cache: TaskCache, born: Mapping[str, Task], phases: dict[str, str]
) -> None:
    """Apply an event of a task, part by part; `phases` gets the phase that the task reaches."""
    data = event.data
    if event.kind is Kind.TASK_CREATED:
        _task_created(db, seq, event, cache, born, phases)
    elif "changes" in data:
        _task_changed(db, event, cache)
    if steps := data.get("passed"):
        phases[event.task or ""] = steps[-1]["to"]
        _passed(db, event.task, steps[0]["from"], steps[-1]["to"], cache)
    if event.kind is Kind.ATTEMPT_STARTED:
        db.execute(_INSERT_ATTEMPT, row_of(Attempt, data["attempt"]))
        if "steered" in data["attempt"]:
            cache.absent.discard(STEERED)
    if changes := data.get("attempt_changes"):
        if changes.get("steered") or changes.get("status") == "running":
            cache.absent.discard(STEERED)
        _change(db, "attempts", ATTEMPT_COLUMNS, data["attempt"], changes)
    for artifact in data.get("artifacts", ()):
        row = {**artifact, "task": event.task, "at": data["at"]}
        db.write_later("artifacts", insert("artifacts", tuple(row)), tuple(columns_of(row).values()))
    if "turn" in data:
        usage_recorded(db, event, cache)


_INSERT_APPROVAL = insert("approvals", APPROVAL_COLUMNS)
_INSERT_ATTEMPT = insert("attempts", ATTEMPT_COLUMNS)
_INSERT_REPETITION = insert("repetitions", REPETITION_COLUMNS)


def _task_changed(db: Connection, event: Event, cache: TaskCache) -> None:
    changes: Mapping[str, Any] = event.data["changes"]
    if "flow" in changes:
        cache.some_choose = None
    if "claims" in changes:
        cache.some_claim = None
    if "held" in changes:
        cache.absent.discard(HELD)
    if unknown := changes.keys() - _TASK_COLUMNS:
        raise ValueError(f"{event.kind} changes unknown columns {sorted(unknown)}")
    columns = {"updated_at": event.data["at"], **columns_of(changes)}
    if "policy" in changes:
        columns["priority"] = changes["policy"].get("priority", 0)
        columns["deadline"] = changes["policy"].get("deadline")
    if event.task is None:
        raise ValueError(f"{event.kind} changes no task")
    db.change_later("tasks", event.task, columns)
    cache.moved(event.task)
    if "handover" in changes.get("origin", ()):
        _handed_over(db, event.task, event.data["at"], changes["origin"], cache)


def _passed(db: Connection, task_id: str | None, source: str, target: str, cache: TaskCache) -> None:
    """Update the neighbours of a task that goes from one phase to another."""
    step = (target == Phase.COMPLETED) - (source == Phase.COMPLETED)
    if step:  # checked first: finding nothing costs a tenth of an update
        waiting = db.execute("SELECT task FROM dependencies WHERE needs = ?", (task_id,)).fetchall()
        for (task,) in waiting:
            _count(db, cache, task, unmet=-step)
    if gone := (target == Phase.CANCELLED) - (source == Phase.CANCELLED):
        db.execute(_ONE_CANCELLED, (gone, task_id))
        cache.forget_counts()
        cache.forget_queue()
    if source in TERMINAL:
        cache.some_choose = cache.some_claim = None
    for phase, by in ((source, -1), (target, 1)):
        if phase in TERMINAL:
            name = _KIDS[Phase(phase)]
            if (task_ := cache.known(task_id)) is None:
                parent = "(SELECT parent FROM tasks WHERE id = ?)"
                db.execute(f"UPDATE tasks SET {name} = {name} + ? WHERE id = {parent}", (by, task_id))
            elif task_.parent is not None:
                _count(db, cache, task_.parent, **{name: by})
    if Phase.EXECUTING in (source, target) and not cache.has_no_children(task_id):
        db.execute("UPDATE tasks SET parent_live = ? WHERE parent = ?", (target == Phase.EXECUTING, task_id))
        cache.forget_queue()


def _needs_changed(db: Connection, event: Event, cache: TaskCache) -> None:
    cache.forget_counts()
    cache.forget_queue()
    cache.needs.clear()
    cache.absent.discard(AWAITED)
    db.execute("DELETE FROM dependencies WHERE task = ?", (event.task,))
    db.executemany("INSERT OR IGNORE INTO dependencies VALUES (?, ?)", [(event.task, n) for n in event.data["needs"]])
    db.execute(f"UPDATE tasks SET unmet = {UNMET} WHERE id = ?1", (event.task,))
    db.execute(_CANCELLED_COUNTS, (event.task,))


def _approval_requested(db: Connection, event: Event, cache: TaskCache) -> None:
    cache.forget_counts()
    cache.absent.discard(ASKED_IN_TURN)
    db.execute(_INSERT_APPROVAL, row_of(Approval, event.data["approval"]))


def _approval_changed(db: Connection, event: Event) -> None:
    _change(db, "approvals", APPROVAL_COLUMNS, event.data["approval"], event.data["changes"])


def _change(db: Connection, table: str, columns: tuple[str, ...], row_id: str, changes: Mapping[str, Any]) -> None:
    """Change fields of one row. Raises ValueError for unknown columns."""
    if unknown := set(changes) - set(columns):
        raise ValueError(f"{table} has no columns {sorted(unknown)}")
    if changes:
        db.change_later(table, row_id, columns_of(changes))


def _review_requested(db: Connection, event: Event) -> None:
    data = event.data
    db.execute(
        "INSERT INTO review_requests VALUES (?, ?, ?, ?, 1, 0, 0, 0)"
        " ON CONFLICT (task, gate, round, reviewer) DO UPDATE SET times = times + 1",
        (event.task, data["gate"], data["round"], data["reviewer"]),
    )


def _review_lost(db: Connection, event: Event) -> None:
    data = event.data
    column_ = _LOST[ReviewLoss(data["why"])]
    db.execute(
        f"UPDATE review_requests SET {column_} = {column_} + 1"
        " WHERE task = ? AND gate = ? AND round = ? AND reviewer = ?",
        (event.task, data["gate"], data["round"], data["reviewer"]),
    )


def _review_appended(db: Connection, event: Event) -> None:
    review = {**event.data["review"], "task": event.task, "at": event.data["at"]}
    _insert_named(db, "reviews", review)


def _check_ended(db: Connection, event: Event) -> None:
    _insert_named(db, "check_runs", {**event.data["check"], "task": event.task, "at": event.data["at"]})


def _message_recorded(db: Connection, event: Event) -> None:
    row = {**event.data["message"], "task": event.task, "at": event.data["at"]}
    db.write_later("messages", insert("messages", tuple(row)), tuple(columns_of(row).values()))


_REJECTED = "UPDATE messages SET dismissed = ?1 WHERE verdict = 'rejected' AND dismissed IS NULL"
_SAME_NAME = f"{_REJECTED} AND name = ?2 AND coalesce(sender, ?3) = ?3"
_SAME_WORK = f"{_REJECTED} AND task_id IS NOT NULL AND task_id = ?2 AND sender = ?3"


_ANY_REJECTED = "SELECT 1 FROM messages WHERE verdict = 'rejected' AND dismissed IS NULL LIMIT 1"


def _message_received(db: Connection, event: Event, cache: TaskCache) -> None:
    """A rejected file no longer needs attention once its sender's next version of it is accepted."""
    _message_recorded(db, event)
    at, message = event.data["at"], event.data["message"]
    if message["verdict"] == "accepted" and not cache.is_absent(REJECTED, _ANY_REJECTED):
        db.execute(_SAME_NAME, (at, message["name"], message.get("sender")))
        db.execute(_SAME_WORK, (at, message.get("task_id"), message.get("sender")))


def _message_rejected(db: Connection, event: Event, cache: TaskCache) -> None:
    cache.absent.discard(REJECTED)
    _message_recorded(db, event)


def _message_dismissed(db: Connection, event: Event) -> None:
    db.execute("UPDATE messages SET dismissed = ? WHERE id = ?", (event.data["at"], event.data["id"]))


def _message_filed(db: Connection, event: Event) -> None:
    db.change_later("messages", event.data["id"], {"path": event.data["path"]})


def _message_undelivered(db: Connection, event: Event) -> None:
    db.execute("UPDATE messages SET verdict = 'undelivered' WHERE id = ?", (event.data["id"],))


def _edit_refused(db: Connection, event: Event) -> None:
    """Events of earlier versions name no `local_id`: they had no row."""
    data = event.data
    if "local_id" in data:
        row = (data["local_id"], event.task, *(data[name] for name in ("at", "why", "line", "sha256", "kept_as")))
        db.execute("INSERT OR REPLACE INTO refused_files VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", row)


def _edit_settled(db: Connection, event: Event) -> None:
    data = event.data
    if data["how"] == "dismissed":
        db.execute("UPDATE refused_files SET dismissed = ? WHERE local_id = ?", (data["at"], data["local_id"]))
    else:
        db.execute("DELETE FROM refused_files WHERE local_id = ?", (data["local_id"],))


def _doubted(db: Connection, event: Event) -> None:
    data = event.data
    row = (data["id"], event.task, data["at"], data["about"], data["text"])
    db.execute("INSERT INTO doubts VALUES (?, ?, ?, ?, ?, NULL)", row)


def _doubt_dismissed(db: Connection, event: Event) -> None:
    db.execute("UPDATE doubts SET dismissed = ? WHERE id = ?", (event.data["at"], event.data["id"]))


def _notice_sent(db: Connection, event: Event) -> None:
    data = event.data
    db.execute("DELETE FROM untold_notices WHERE id = ? AND addressee = ?", (data["id"], data["to"]))


def _notice_failed(db: Connection, event: Event) -> None:
    data = event.data
    row = (data["id"], data["to"], event.task, data["what"], data["at"], data["why"], data["again"])
    db.execute(
        "INSERT INTO untold_notices VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL)"
        " ON CONFLICT DO UPDATE SET at = ?5, why = ?6, again = ?7",
        row,
    )


def _notice_settled(db: Connection, event: Event) -> None:
    data = event.data
    if "to" in data:
        sql = "UPDATE untold_notices SET dismissed = ? WHERE addressee = ? AND dismissed IS NULL"
        db.execute(sql, (data["at"], data["to"]))
    else:
        db.execute("DELETE FROM untold_notices WHERE id = ?", (data["id"],))


def _sender_told(db: Connection, event: Event) -> None:
    data = event.data
    db.execute("DELETE FROM waits_told WHERE task = ?", (event.task,))
    if data["waits_for"] != WaitsFor.NOTHING:
        db.execute("INSERT INTO waits_told VALUES (?, ?, ?)", (event.task, data["waits_for"], data["why"]))


def _peer_waits(db: Connection, event: Event) -> None:
    data = event.data
    db.execute("DELETE FROM waits_at_peers WHERE task = ?", (event.task,))
    if data["waits_for"] != WaitsFor.NOTHING:
        row = (data["attempt"], event.task, data["at"], data["waits_for"], data["why"])
        db.execute("INSERT INTO waits_at_peers VALUES (?, ?, ?, ?, ?)", row)


def _order_held(db: Connection, event: Event, cache: TaskCache) -> None:
    cache.absent.discard(HELD)
    data = event.data
    said = json.dumps(data["said"], separators=(",", ":"), sort_keys=True)
    row = (data["id"], event.task, data["name"], said, data["approval"], data["by"], data["at"], data["due"])
    db.execute("INSERT INTO held_orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _order_released(db: Connection, event: Event) -> None:
    db.execute("DELETE FROM held_orders WHERE id = ?", (event.data["id"],))


def _repetition_created(db: Connection, event: Event, cache: TaskCache) -> None:
    one = event.data["repetition"]
    cache.absent.discard(REPEATED)
    db.execute(_INSERT_REPETITION, row_of(Repetition, one))
    if "handover" in event.data:
        _handed_over(db, one["id"], event.data["at"], event.data, cache)


def _repetition_ran(db: Connection, event: Event) -> None:
    data = event.data
    _repetition_changed(db, event)
    rows = [(data["id"], run["number"], run["at"], run["task"], data["at"]) for run in data["runs"]]
    db.executemany("INSERT INTO repetition_runs VALUES (?, ?, ?, ?, ?)", rows)


def _repetition_changed(db: Connection, event: Event) -> None:
    _change(db, "repetitions", REPETITION_COLUMNS, event.data["id"], event.data["changes"])


def _insert_named(db: Connection, table: str, row: Mapping[str, Any]) -> None:
    db.execute(insert(table, tuple(row)), tuple(columns_of(row).values()))


_COUNTERS: Mapping[Kind, Callable[[Connection, Event, TaskCache], None]] = {
    Kind.NEEDS_CHANGED: _needs_changed,
    Kind.USAGE_REPORTED: usage_recorded,
    Kind.BREAKER_OPENED: breaker_moved,
    Kind.BREAKER_HALF_OPEN: breaker_moved,
    Kind.BREAKER_CLOSED: breaker_moved,
    Kind.APPROVAL_REQUESTED: _approval_requested,
    Kind.REPETITION_CREATED: _repetition_created,
    Kind.ORDER_HELD: _order_held,
    Kind.MESSAGE_RECEIVED: _message_received,
    Kind.MESSAGE_REJECTED: _message_rejected,
}
"""What writes something that the cache keeps."""
_WRITERS: Mapping[Kind, Callable[[Connection, Event], None]] = {
    Kind.REVIEW_REQUESTED: _review_requested,
    Kind.REVIEW_LOST: _review_lost,
    Kind.REVIEW_APPENDED: _review_appended,
    Kind.CHECK_ENDED: _check_ended,
    Kind.APPROVAL_RESOLVED: _approval_changed,
    Kind.ACTION_STARTED: _approval_changed,
    Kind.ACTION_DELAYED: _approval_changed,
    Kind.ACTION_ENDED: _approval_changed,
    Kind.EDIT_REFUSED: _edit_refused,
    Kind.EDIT_SETTLED: _edit_settled,
    Kind.DOUBTED: _doubted,
    Kind.DOUBT_DISMISSED: _doubt_dismissed,
    Kind.NOTICE_SENT: _notice_sent,
    Kind.NOTICE_FAILED: _notice_failed,
    Kind.NOTICE_SETTLED: _notice_settled,
    Kind.SENDER_TOLD: _sender_told,
    Kind.PEER_WAITS: _peer_waits,
    Kind.ORDER_RELEASED: _order_released,
    Kind.CAP_RAISED: cap_raised,
    Kind.REPETITION_RAN: _repetition_ran,
    Kind.REPETITION_CHANGED: _repetition_changed,
    Kind.MESSAGE_DISMISSED: _message_dismissed,
    Kind.MESSAGE_SENT: _message_recorded,
    Kind.MESSAGE_FILED: _message_filed,
    Kind.MESSAGE_UNDELIVERED: _message_undelivered,
}
