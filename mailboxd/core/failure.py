"""Failures: escalation, and what follows: another attempt after a pause, an open circuit, or the end."""

from __future__ import annotations

from typing import Any

from mailboxd.core.decision_builder import DecisionBuilder
from mailboxd.core.fixpoint import end, open_circuit
from mailboxd.core.lifecycle import Trigger, failure_trigger, may_repeat
from mailboxd.core.model import Stronger, Task, backoff
from mailboxd.core.sanitize import blockquote, first_line
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import CANNOT_HELP, AttemptStatus, Runtime, same_agent

# Escalation: after failures a task is tried with a stronger model, agent or harness, until its next fresh start
# (protocol section 4, "Retry"). What was escalated and why is stored with the task and the attempt.


def escalated(builder: DecisionBuilder, failures: int) -> dict[str, Any]:
    """The changes of the task for the attempt after its `failures`-th failure; may be empty."""
    rules, task = builder.ctx.escalation, builder.task
    due = failures + 1 >= rules.from_attempt
    if not due or not (rules.model or rules.agent or rules.harness) or task.stronger.why:
        return {}
    if rules.harness:
        return _by_harness(builder, rules.harness, failures)
    obstacle = _obstacle(builder, rules.agent)
    agent = rules.agent if rules.agent and not obstacle else ""
    model = rules.model if agent or not worker(task, builder.ctx.agent) else ""  # a harness has its own model
    steps = [f"agent {agent} instead of {task.executor}"] if agent else []
    steps += [f"model {model}"] if model else []
    said = f"{' and '.join(steps) or 'nothing'} after {failures} failure{'s' * (failures != 1)}"
    why = said + (f"; not the agent {rules.agent}: {obstacle}" if obstacle else "")
    stronger = Stronger(model, task.executor if agent else "", why)
    return {"stronger": stronger, **({"executor": agent} if agent else {})}


def worker(task: Task, own: str) -> str:
    """The harness for the task's next attempt; empty = its executor itself."""
    own_work = same_agent(task.executor, own) and task.policy.runtime is Runtime.ACP
    return task.stronger.harness or (task.policy.harness if own_work else "")


def _by_harness(builder: DecisionBuilder, harness: str, failures: int) -> dict[str, Any]:
    """Escalate to a harness of this agent, which takes the task back from a peer if it may."""
    task, own = builder.task, builder.ctx.agent
    takes = not same_agent(task.executor, own)
    had = "it already had the task" if worker(task, own) == harness else None
    obstacle = had or builder.ctx.may_use(harness) or (_obstacle(builder, own) if takes else "")
    after = f"after {failures} failure{'s' * (failures != 1)}"
    if obstacle:
        return {"stronger": Stronger(why=f"nothing {after}; not the harness {harness}: {obstacle}")}
    why = f"harness {harness} instead of {worker(task, own) or task.executor} {after}"
    stronger = Stronger("", task.executor if takes else "", why, harness)
    return {"stronger": stronger, **({"executor": own} if takes else {})}


def restored(task: Task) -> dict[str, Any]:
    """The changes that undo the escalation, for a fresh start."""
    if task.stronger == Stronger():
        return {}
    given = {"executor": task.stronger.instead_of} if task.stronger.instead_of else {}
    return {"stronger": Stronger(), **given}


def _obstacle(builder: DecisionBuilder, agent: str) -> str:
    """Why the work cannot be given to `agent`; empty if it can, or if none is named."""
    task = builder.task
    if not agent:
        return ""
    if same_agent(agent, task.executor):
        return "it already had the task"
    if task.parent is None and same_agent(agent, task.sender):
        return "it gave the task"
    if any(same_agent(agent, reviewer) for reviewer in task.policy.reviewers):
        return "it reviews the task"
    if builder.view.children.total:
        return f"the children are {task.executor}'s"
    if not same_agent(agent, builder.ctx.agent) and (why := builder.ctx.may_reach(agent)) is not None:
        return why
    return ""


# Consequences of a failure


def outcome_unknown(builder: DecisionBuilder, error: str, *, harmless: bool = False) -> None:
    """End the attempt with an unknown outcome: repeat it only if that cannot do anything twice (section 7, rule 3).

    `harmless`: the lost turn provably used no tool.
    """
    if may_repeat(builder.task, harmless=harmless):
        failed_attempt(builder, f"outcome unknown: {error}", status=AttemptStatus.UNKNOWN)
        return
    builder.finish_attempt(AttemptStatus.UNKNOWN, error)
    open_circuit(
        builder, Trigger.OUTCOME_UNKNOWN, f"outcome unknown: {first_line(error)}", failures=builder.task.failures + 1
    )


def failed_attempt(
    builder: DecisionBuilder,
    error: str,
    *,
    permanent: bool = False,
    final: bool = False,
    retry_after: float = 0.0,
    status: AttemptStatus = AttemptStatus.FAILED,
) -> None:
    """End the live attempt as failed: another one after a pause, unless it is `final`, an open circuit, or the end."""
    task, now = builder.task, builder.ctx.now
    failures = task.failures + 1
    why = first_line(error)
    builder.finish_attempt(status, error)
    trigger = failure_trigger(task.policy, task.policy.max_attempts if final else failures, permanent=permanent)
    if trigger is Trigger.HOPELESS:
        rule = CANNOT_HELP if permanent else "max_attempts is 1"
        end(builder, trigger, f"{why} ({rule})", failures=failures, error=error)
    elif trigger is Trigger.EXHAUSTED:
        reason = "the attempt failed" if failures == 1 else f"{failures} attempts failed; the last"
        open_circuit(builder, trigger, f"{reason}: {why}", failures=failures)
    else:
        wait = max(pause(builder, failures), retry_after)
        builder.move(
            trigger,
            why,
            failures=failures,
            stalls=0,
            not_before=plus(now, wait),
            error=error,
            findings=_what_failed(status, error),
            **escalated(builder, failures),
        )


def _what_failed(status: AttemptStatus, error: str) -> str:
    if status is AttemptStatus.UNKNOWN:
        again = "It is unknown how far the previous attempt got. If the work is already done, report its result only"
        return blockquote(f"{again}. What is known", error)
    return blockquote("The previous attempt failed. Its error", error)


def pause(builder: DecisionBuilder, failures: int) -> float:
    return backoff(builder.task.policy, failures, builder.ctx.jitter(), builder.ctx.jitter_share)
