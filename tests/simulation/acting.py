"""Planned actions in a simulation: what prepares and performs them, the people who decide, and those who may not.

What a runner did stands in `World.effects`, a ledger of its own: it survives crashes, as the world outside would.
"""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core.approvals import (
    ActionEnded,
    ActionImpossible,
    ActionNotBegun,
    ActionPrepared,
    ActionStarted,
    Approval,
    ApprovalDecision,
    ApprovalStatus,
    Performed,
    PermissionAsked,
    RequestUndo,
    Resolve,
    digest,
)
from mailboxd.core.effects import Perform, Prepare, Verify
from mailboxd.core.events import Role
from mailboxd.core.inputs import Input
from mailboxd.errors import Refused
from mailboxd.ledger.store import Order
from tests.simulation.world import World

ACTS = (Prepare, Perform, Verify)


def act(world: World) -> None:
    """The daemon and its runners get on with one action, or a runner that had died is noticed."""
    orders = [order for order in world.store.outbox.pending(world.clock.now(), 500) if isinstance(order.effect, ACTS)]
    if world.begun and (not orders or world.script.chance(0.5)):
        _noticed(world, world.begun.pop())
    elif orders:
        carry_out(world, world.script.random.choice(orders), smoothly=False)


def carry_out(world: World, order: Order, *, smoothly: bool) -> None:
    """One order about an action. Not `smoothly`: with trouble, repetitions and crashes."""
    match order.effect:
        case Prepare(approval_id, action, undoes):
            said = digest(action)
            prepared = ActionPrepared(approval_id, action, "what it does", said, "builtin", undoes=undoes)
            impossible = not smoothly and world.script.chance(0.15)
            heard: Input = ActionImpossible(action, "no such file", undoes) if impossible else prepared
            world.handle(order.task, heard)
            if not smoothly and world.script.chance(0.15):
                return  # the daemon died before it could note that; it is prepared once more
        case Perform(approval_id):
            if not smoothly and world.script.chance(0.15):
                world.handle(order.task, ActionNotBegun(approval_id, "no memory"))
            elif not smoothly and world.script.chance(0.25):
                _remove_approver(world)
            elif not run(world, order.task, approval_id, smoothly=smoothly):
                return
        case Verify(approval_id):
            state = Performed(world.script.one_of(done=50, failed=25, unknown=25))
            world.handle(order.task, ActionEnded(approval_id, state, f"verify says {state}"))
    with world.engine.batch():
        world.store.outbox.finish(order.id)


def run(world: World, task: str, approval_id: str, *, smoothly: bool) -> bool:
    """A runner of ours, or two at once. False: another task works under the key, so it is tried again."""
    for _ in range(1 if smoothly else world.script.random.choice((1, 1, 2))):
        try:
            with world.engine.batch():
                world.engine.handle(task, ActionStarted(approval_id, digest(_row(world, approval_id).action)))
        except Refused as refused:
            if refused.rule == "key-busy":
                return False
            continue
        row = _row(world, approval_id)
        if row.state is not Performed.STARTED:
            continue
        _happens(world, row)
        how = "done" if smoothly else world.script.one_of(done=60, failed=12, unknown=8, died=20)
        if how == "died":
            world.begun.append(approval_id)
        else:
            world.handle(task, ActionEnded(approval_id, Performed(how), f"it is {how}", "output"))
    return True


def _happens(world: World, row: Approval) -> None:
    """The side effect itself."""
    assert row.status is ApprovalStatus.APPROVED, f"{row.id} runs, and is {row.status}"
    world.effects[row.idempotency_key] += 1
    assert world.effects[row.idempotency_key] == 1, f"{row.idempotency_key} ran twice"


def _noticed(world: World, approval_id: str) -> None:
    row = _row(world, approval_id)
    world.handle(row.task, ActionEnded(approval_id, Performed.UNKNOWN, "nobody saw its end"))


def settled(world: World) -> int:
    """Nothing is left that a dead runner had begun; how much there was."""
    left, world.begun[:] = list(world.begun), []
    for approval_id in left:
        _noticed(world, approval_id)
    return len(left)


# -------------------------------------------------------------- people, and others who would decide


def decide(world: World) -> None:
    """Somebody decides, or somebody tries to who may not."""
    match world.script.one_of(person=70, forged=15, undo=10, harness=15):
        case "person":
            _decide(world)
        case "forged":
            _forge(world)
        case "undo":
            for row in _rows(world, "state <> '' AND purpose = 'action'")[:1]:
                world.handle(row.task, RequestUndo(row.id), Role.OPERATOR)
        case _:
            for attempt in world.attempts("status = 'running'")[:1]:
                asked = PermissionAsked(world.engine.new_id("apr"), "trn_call", "to write elsewhere", "a diff")
                world.handle(attempt.task, asked)


def _decide(world: World) -> None:
    rows = _rows(world, "status = 'pending'") or _rows(world, "1")[-3:]
    if not rows:
        return
    row = world.script.random.choice(rows)
    word = ApprovalDecision(world.script.one_of(approved=75, rejected=10, request_changes=15))
    for _ in range(world.script.random.choice((1, 1, 2))):  # two people at once, or one who clicks twice
        world.handle(row.task, Resolve(row.id, word, "because"), Role.OPERATOR)


def _remove_approver(world: World) -> None:
    """Whoever approved an action may not decide any more when it is about to begin; afterwards everybody may again."""
    before = world.engine.settings
    world.engine.settings = replace(before, approvers=("somebody-else",))
    for row in _rows(world, "status = 'approved' AND state = '' AND purpose <> 'permission'"):
        world.handle(row.task, ActionStarted(row.id, digest(row.action)))
        assert _row(world, row.id).state is not Performed.STARTED, "it begins, and nobody who may decide approved it"
    world.engine.settings = before


def _forge(world: World) -> None:
    rows = _rows(world, "status = 'pending'")
    if rows:
        row = world.script.random.choice(rows)
        roles = (Role.EXECUTOR, Role.SPEC_REVIEWER, Role.QUALITY_REVIEWER, Role.ORCHESTRATOR)
        role = world.script.random.choice(roles)
        done = world.handle(row.task, Resolve(row.id, ApprovalDecision.APPROVED), role)
        assert done is None, f"the role {role} approved something"
        start = ActionStarted(row.id, digest(row.action))
        assert world.handle(row.task, start) is None, "what nobody approved was begun"


def _row(world: World, approval_id: str) -> Approval:
    row = world.store.approvals.get(approval_id)
    assert row is not None
    return row


def _rows(world: World, where: str) -> list[Approval]:
    found = world.store.db.execute(f"SELECT id FROM v_approvals WHERE {where} ORDER BY id").fetchall()
    return [_row(world, row[0]) for row in found]
