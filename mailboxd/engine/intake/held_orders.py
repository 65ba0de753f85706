"""Orders that end work are held for some seconds: until then they can be taken back.

Nothing is stopped before, and no turn or action begins of the task or of what is below it.

A held order is a row that its event made, so a restart keeps it. The daemon carries each out once, in the transaction
that removes its row. By then it may make no sense any more, because the task has ended: that is recorded, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mailboxd.core import endings
from mailboxd.core.approvals import ApprovalDecision, ApprovalStatus, Resolve
from mailboxd.core.endings import REJECT
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import OperatorInput
from mailboxd.core.model import Task
from mailboxd.core.operator_orders import BY_NAME, OperatorOrder
from mailboxd.core.times import plus
from mailboxd.engine import operator_commands
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import decisions
from mailboxd.errors import Refused
from mailboxd.ledger.held_orders import HeldOrder

HOLD_SECONDS = 10.0


def hold(engine: Engine, task: Task, order: OperatorOrder, values: Mapping[str, Any], user: str) -> list[Event]:
    """Hold an order about the task; inside a batch. Raises Refused if it is held already, or would be refused now."""
    _require_first(engine, task, order.name, None)
    engine.check(task.id, order.given(values), user)
    return [_held(engine, task.id, order.name, values, None, user)]


def hold_rejection(engine: Engine, approvals: Sequence[str], note: str, user: str, *, digest: str = "") -> list[Event]:
    """Hold the rejection of these requests; inside a batch. Raises Refused, UnavailableError."""
    events = []
    for row in list(operator_commands.requested(engine, approvals)):
        decisions.require_digest(row.digest, digest, row.short_id, row.short_id)
        task = engine.store.tasks.get(row.task)
        if task is None:
            raise AssertionError(f"{row.id} is about no task")
        if row.status is not ApprovalStatus.PENDING:
            raise Refused("already-decided", f"{row.short_id} is {row.status} already, by {row.resolved_by}")
        _require_first(engine, task, REJECT, row.id)
        engine.check(task.id, Resolve(row.id, ApprovalDecision.REJECTED, note), user)
        events.append(_held(engine, task.id, REJECT, {"note": note}, row.id, user))
    return events


def give_now(engine: Engine, task: Task, order: OperatorOrder, values: Mapping[str, Any], user: str) -> list[Event]:
    """Carry out an order at once, also if it is held; inside a batch. Raises Refused."""
    events = list(operator_commands.give(engine, task, order, values, user))
    same = [held for held in engine.store.held_orders.of_task(task.id) if held.name == order.name]
    return events + [_release(engine, held, "carried out at once", Role.OPERATOR, user) for held in same]


def take_back(engine: Engine, task: Task, user: str) -> list[Event]:
    """Take back every order about the task that is held; inside a batch. Raises Refused if none is."""
    held = engine.store.held_orders.of_task(task.id)
    if not held:
        hint = f"`mailboxd show {task.local_id}` says what became of it."
        raise Refused("nothing-held", f"{task.local_id}: no order is held that could be taken back", hint)
    return [_taken_back(engine, one, task, user) for one in held]


def take_back_together(engine: Engine, at: str, name: str, by: str, user: str) -> list[Event]:
    """Take back the orders that one user gave at once and that are held; inside a batch. Raises Refused if none is."""
    held = engine.store.held_orders.together(at, name, by)
    if not held:
        raise Refused("nothing-held", "none of these orders is held any more", "Their tasks say what became of them.")
    events = []
    for one in held:
        task = engine.store.tasks.get(one.task)
        if task is None:
            raise AssertionError(f"{one.id} is about no task")
        events.append(_taken_back(engine, one, task, user))
    return events


def _taken_back(engine: Engine, held: HeldOrder, task: Task, user: str) -> Event:
    """One that could not be carried out any more is not taken back: it says what stands instead."""
    try:
        engine.check(task.id, _input(held), held.by)
    except Refused as refused:
        return _release(engine, held, f"void: {refused.problem}", Role.OPERATOR, user)
    return _release(engine, held, f"taken back by {user}", Role.OPERATOR, user)


def _input(held: HeldOrder) -> OperatorInput | Resolve:
    if held.approval is not None:
        return Resolve(held.approval, ApprovalDecision.REJECTED, held.said.get("note", ""))
    return BY_NAME[held.name].given(held.said)


def carry_out_due(engine: Engine) -> None:
    """Carry out the held orders whose time has come; inside a batch."""
    for held in engine.store.held_orders.due(engine.now):
        task = engine.store.tasks.get(held.task)
        if task is None:
            raise AssertionError(f"{held.id} is about no task")
        try:
            with engine.store.savepoint():
                if held.approval is not None:
                    note = held.said.get("note", "")
                    decisions.decide(engine, [held.approval], ApprovalDecision.REJECTED, note, held.by)
                else:
                    engine.command(task, BY_NAME[held.name].given(held.said), held.by)
        except Refused as refused:
            _release(engine, held, f"not carried out: {refused.problem}", Role.ORCHESTRATOR, "mailboxd")
        else:
            _release(engine, held, "carried out", Role.ORCHESTRATOR, "mailboxd")


def _require_first(engine: Engine, task: Task, name: str, approval: str | None) -> None:
    for held in engine.store.held_orders.of_task(task.id):
        if (held.name, held.approval) == (name, approval):
            when = endings.until(held.due, engine.now)
            problem = f"{task.local_id}: {endings.becomes(name, approval)} {when}, as {held.by} has ordered already"
            raise Refused("held-already", problem, f"`mailboxd undo {task.local_id}` takes it back.")


def _held(engine: Engine, task: str, name: str, values: Mapping[str, Any], approval: str | None, user: str) -> Event:
    data = {
        "at": engine.now,
        "id": engine.new_id("ord"),
        "name": name,
        "said": {field: value for field, value in values.items() if value is not None},
        "approval": approval,
        "by": user,
        "due": plus(engine.now, HOLD_SECONDS),
    }
    event = Event(Kind.ORDER_HELD, task, data, Role.OPERATOR, user)
    engine.record(event)
    return event


def _release(engine: Engine, held: HeldOrder, how: str, role: Role, actor: str) -> Event:
    data = {"at": engine.now, "id": held.id, "name": held.name, "how": how, "approval": held.approval}
    event = Event(Kind.ORDER_RELEASED, held.task, data, role, actor)
    engine.record(event)
    return event
