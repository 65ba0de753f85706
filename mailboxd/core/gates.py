"""What a gate says: the verdicts of its reviewers under the quorum, and before them the checks of the spec."""

from __future__ import annotations

from mailboxd.core.terms import CheckVerdict, Gate, Phase, Quorum, Verdict, same_agent
from mailboxd.core.types import Policy
from mailboxd.core.view import View

_GATES = frozenset(Phase(gate.value) for gate in Gate)
Decided = tuple[Verdict, str]
"""A gate's verdict, with the reason."""


def decided(view: View, gate: Gate) -> Decided | None:
    """What the gate says, and why; None while it cannot say yet."""
    checked = _checked(view) if gate is Gate.SPEC_GATE else None
    if checked is not None and checked[0] is not Verdict.APPROVED:
        return checked
    if len(view.check_runs) < len(view.checks):
        return None
    said = f"; {checked[1]}" if checked else ""
    if gate not in view.task.policy.gates:
        return Verdict.APPROVED, f"the {gate} is off{said}"
    reviewed = _reviewed(view, gate)
    return None if reviewed is None else (reviewed[0], reviewed[1] + said)


def judges(view: View) -> tuple[str, ...]:
    """Those of the named reviewers who did not make the work, each once (section 5)."""
    task, attempt = view.task, view.attempt
    authors = {task.executor.lower(), *((attempt.executor.lower(),) if attempt else ())}
    names: dict[str, str] = {}
    for name in task.policy.reviewers:
        names.setdefault(name.lower(), name)
    return tuple(name for key, name in names.items() if key not in authors)


def shared_out(policy: Policy, names: tuple[str, ...], gate: Gate) -> tuple[str, ...]:
    """Those of the reviewers who review at this gate.

    Where both the specification and the quality are reviewed they take turns, in the order in which they are named,
    so that nobody passes both; unless the configuration allows it.
    """
    both = Gate.QUALITY_GATE in policy.gates and len(policy.gates) > 1
    if policy.same_reviewer or not both:
        return names
    return names[1::2] if gate is Gate.QUALITY_GATE else names[0::2]


def eligible(view: View) -> tuple[str, ...]:
    """Those who may review at the gate where the task is."""
    found, phase = judges(view), view.task.phase
    return shared_out(view.task.policy, found, Gate(phase.value)) if phase in _GATES else found


def own_work(view: View) -> tuple[str, ...]:
    """The named reviewers who do not review, because the work is theirs."""
    found = judges(view)
    return tuple(n for n in view.task.policy.reviewers if not any(same_agent(n, judge) for judge in found))


def _reviewed(view: View, gate: Gate) -> Decided | None:
    """Approved once the quorum approves; else, when all have spoken, the hardest word."""
    asked = eligible(view)
    if not asked:
        return None
    verdicts = {review.reviewer: review.verdict for review in view.reviews if review.reviewer in asked}
    by = ", ".join(sorted(verdicts))
    approvals = sum(1 for verdict in verdicts.values() if verdict is Verdict.APPROVED)
    if approvals >= _needed(view.task.policy.quorum, len(asked)):
        return Verdict.APPROVED, f"{gate}: approved by {by}"
    lost = [asked.reviewer for asked in view.asked_reviewers if asked.failures >= view.task.policy.max_attempts]
    silent = [name for name in asked if name not in verdicts]
    if any(name not in lost for name in silent):
        return None
    if silent:
        return Verdict.BLOCKED, f"{gate}: {', '.join(silent)} could not review it: every turn failed"
    hardest = max(verdicts.values(), key=list(Verdict).index)
    return hardest, f"{gate}: {hardest} by {by}"


def _needed(quorum: Quorum, judges: int) -> int:
    """How many approvals pass the gate."""
    return {Quorum.ALL: judges, Quorum.MAJORITY: judges // 2 + 1, Quorum.ANY: 1}[quorum]


def _checked(view: View) -> Decided | None:
    """What the checks say together; None while one of them runs, and when there are none."""
    runs = view.check_runs
    if not view.checks or len(runs) < len(view.checks):
        return None
    for verdict, means in (
        (CheckVerdict.IMPOSSIBLE, Verdict.BLOCKED),
        (CheckVerdict.FAILED, Verdict.CHANGES_REQUESTED),
    ):
        found = [run for run in runs if run.verdict is verdict]
        if found:
            first = found[0]
            said = ", ".join(run.id for run in found)
            how = "failed" if verdict is CheckVerdict.FAILED else "could not be run"
            return means, f"check {said} {how}: {first.summary}"
    return Verdict.APPROVED, f"{len(runs)} check{'s' * (len(runs) != 1)} passed"
