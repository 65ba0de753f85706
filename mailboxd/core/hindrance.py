"""What keeps a turn from starting although everything else is ready: a budget, a breaker, the turns of an hour."""

from __future__ import annotations

from mailboxd.core.budget import limit_of
from mailboxd.core.picture import Cause, Picture, Standing
from mailboxd.core.terms import Phase
from mailboxd.core.text import first_line


def hindrance(task: Standing, picture: Picture) -> Cause | None:
    """The cause that stands before what the task's phase would say; None when nothing of that kind does."""
    cause = _in_the_way(task, picture)
    pause = task.not_before if task.phase is Phase.EXECUTION_READY else None
    if (
        cause is not None
        and cause.kind != "gateway"
        and cause.then
        and pause is not None
        and (cause.at or picture.now) <= pause
    ):
        return None  # it passes by itself, and the pause after a failure ends last
    return cause


def _in_the_way(task: Standing, picture: Picture) -> Cause | None:
    if task.phase.is_terminal or task.phase is Phase.CIRCUIT_OPEN:
        return None
    if task.held:
        go_on = f"mailboxd unblock {task.local_id} --retry"
        if limit := limit_of(task.held):
            go_on += f"  # allows as much again; or raise {limit} in .mailboxd/config.yaml and restart the daemon"
        else:
            go_on += "  # with --budget-usd N or --budget-tokens N"
        hint = f"{go_on}; or mailboxd cancel {task.local_id}"
        return Cause(task.local_id, "budget", f"is held: {task.held}", hint=hint)
    agent = _next_agent(task, picture)
    if not agent:
        return None
    if task.held_by:
        text = f"gets no turn: {task.held_by}, which it is a part of, is held"
        return Cause(task.local_id, "budget", text, hint=f"mailboxd why {task.held_by}")
    if (why := picture.gone.get(agent)) is not None:
        hint = f"put {agent} back, name another one in task.md, or mailboxd cancel {task.local_id}"
        return Cause(task.local_id, "gone", f"waits for an agent: {first_line(why)}", hint=hint)
    if picture.gateway:
        then = "it goes on within seconds of the gateway's return"
        return Cause(task.local_id, "gateway", f"waits for the gateway: {first_line(picture.gateway)}", then=then)
    shut = picture.breakers.get(agent.lower())
    if shut is not None and shut.until is not None:
        text = f"waits for the breaker of {agent}, which is open: {first_line(shut.reason)}"
        hint = f"mailboxd unblock --agent {agent}  # closes it now"
        return Cause(task.local_id, "breaker", text, at=shut.until, then="one turn of it may try", hint=hint)
    if shut is not None and any(call.agent.lower() == agent.lower() for call in picture.calls):
        text = f"waits for the one turn of {agent} that tries whether it works again"
        return Cause(task.local_id, "breaker", text, then="the breaker closes, or opens again")
    if task.phase is Phase.EXECUTION_READY and (at := picture.paced.get(agent)) is not None:
        text = f"{agent} has had all its turns of this hour (`limits.turns_per_agent_hour`)"
        hint = "or raise limits.turns_per_agent_hour in .mailboxd/config.yaml and restart the daemon"
        return Cause(task.local_id, "pace", text, at=at, then="it may have another one", hint=hint)
    return None


def _next_agent(task: Standing, picture: Picture) -> str:
    """Whose turn is the next thing that happens to the task; empty when it is something else."""
    if task.phase is Phase.EXECUTION_READY:
        return "" if task.unmet or not task.parent_live or task.coordinates else task.executor
    running = picture.room.running if picture.room is not None else ()
    return next((order.agent for order in task.pending if order.kind == "run_turn" and order.id not in running), "")
