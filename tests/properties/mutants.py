"""Small faults of the kind that gets made, and what must notice each: the simulation, or a law by its name.

A test-suite that stays green with one of these planted proves nothing. `python -m tests.properties.mutants` shows
what killed which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mailboxd.core.inputs import Failed
from mailboxd.errors import WorldError
from tests.core import test_attempts, test_gates, test_pace, test_plans
from tests.properties.planting import Fault, planted
from tests.simulation.history import Broken, run

MOST_SEEDS = 120
Law = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A named fault. Without a `law` it is for the simulation to find."""

    name: str
    right: str
    wrong: str
    law: Law | None = None

    def killer(self) -> str:
        """What noticed the fault; empty when nothing did."""
        with planted(Fault(self.right, self.wrong)):
            return _notices(self.law) if self.law is not None else _broken_history()


def _notices(law: Law) -> str:
    try:
        law()
    except (Exception, pytest.fail.Exception) as noticed:
        return f"{law.__name__}: {str(noticed).splitlines()[0] if str(noticed) else type(noticed).__name__}"
    return ""


def _broken_history() -> str:
    for seed in range(MOST_SEEDS):
        try:
            run(seed)
        except Broken as broken:
            if not isinstance(broken.__cause__, AssertionError | WorldError):
                raise  # the simulation itself fell over: that is no proof of anything
            return f"seed {seed}: {broken.__cause__}"
    return ""


def _an_acknowledged_peer_keeps_the_work() -> None:
    once_acknowledged(Failed("cut"))


def _a_stall_proves_nothing() -> None:
    what_never_reached_the_agent(Failed("connection refused", started=False))


once_acknowledged = (
    test_attempts.test_once_a_peer_has_acknowledged_by_message_the_end_of_the_call_does_not_give_the_work_out_again
)
what_never_reached_the_agent = (
    test_attempts.test_what_never_reached_the_agent_proves_nothing_about_the_unknown_attempt_before_it
)

MUTANTS = (
    # ------------------------------------------------------------ dependencies and trees
    Mutant("dependencies are not counted", "        unmet = _unmet(db, task.id)\n", "        unmet = 0\n"),
    Mutant(
        "a dependency that merely ended will do",
        "step = (target is Phase.COMPLETED) - (source is Phase.COMPLETED)",
        "step = (target in TERMINAL) - (source in TERMINAL)",
    ),
    Mutant("a cancel does not cascade", "        if target in CLOSES_CHILDREN and", "        if not target and"),
    Mutant("fail-fast is dropped", "    if children.failed:\n", "    if children.failed > 99:\n"),
    Mutant(
        "what needs a cancelled child waits for it",
        'return f"{view.cancelled_need}, which it needs, was cancelled" if view.cancelled_need else None',
        'return f"{view.cancelled_need}, which it needs, was cancelled" if not view else None',
    ),
    Mutant(
        "a parent does not wait for its children in the graph",
        "graph[path[:-1]].add(path)",
        "graph[path[:-1]].discard(path)",
        test_plans.test_a_plan_is_admitted_exactly_if_it_can_be_run_to_its_end,
    ),
    Mutant(
        "one vote is a majority",
        "view.answers[0][1] * 2 > view.children.total",
        "view.answers[0][1] * 9 > view.children.total",
        test_plans.test_join_majority_needs_more_than_half_with_the_same_answer,
    ),
    Mutant(
        "half of the votes is a majority",
        "view.answers[0][1] * 2 > view.children.total",
        "view.answers[0][1] * 3 >= view.children.total",
        test_plans.test_join_majority_fails_when_the_copies_disagree,
    ),
    Mutant(
        "the retry of a child leaves its ended parent ended",
        "    if draft.view.parent_phase in CLOSES_CHILDREN:\n        raise",
        "    if not draft.view:\n        raise",
        test_plans.test_a_child_of_a_cancelled_parent_is_not_retried_alone,
    ),
    # ------------------------------------------------------------ attempts
    Mutant(
        "the attempt fence is ignored",
        "if attempt is None or attempt.id != ended.attempt_id or attempt.status is not AttemptStatus.RUNNING:",
        "if attempt is None or attempt.status is not AttemptStatus.RUNNING:",
    ),
    Mutant(
        "a reply to an older attempt is applied",
        "if reply.attempt_id is not None and reply.attempt_id != attempt.id:",
        "if reply.attempt_id is not None and not reply.older_attempt and reply.attempt_id != attempt.id:",
    ),
    Mutant(
        "what came back is applied to an attempt that waits for something else",
        "return attempt.waiting_for in (Waiting.TURN, Waiting.LOOKUP)",
        "return attempt.waiting_for not in (Waiting.TURN,) or ended is not None",
    ),
    Mutant(
        "the work of a peer that has acknowledged is given out again",
        "        return isinstance(ended.outcome, Succeeded) and not isinstance(ended.answer, Acknowledged)",
        "        return ended is not None",
        _an_acknowledged_peer_keeps_the_work,
    ),
    Mutant("an unknown outcome is repeated blindly", "    if draft.task.policy.idempotent:\n", "    if draft:\n"),
    Mutant(
        "an unknown outcome is taken for a failure",
        'failed_attempt(draft, f"outcome unknown: {error}", status=AttemptStatus.UNKNOWN)',
        'failed_attempt(draft, f"outcome unknown: {error}", status=AttemptStatus.FAILED)',
    ),
    Mutant(
        "an unknown outcome is not looked up",
        "    if not unknown.looked_up:\n",
        "    if unknown is None:\n",
        test_attempts.test_an_unknown_outcome_is_looked_up_before_anything_is_repeated,
    ),
    Mutant(
        "a new session after an unknown outcome",
        "if previous.status is AttemptStatus.UNKNOWN or unproven:",
        "if previous.status is AttemptStatus.RUNNING or unproven:",
    ),
    Mutant(
        "a stall proves the end of the unknown attempt before it",
        "if previous.status is AttemptStatus.UNKNOWN or unproven:",
        "if previous.status is AttemptStatus.UNKNOWN or (unproven and not previous):",
        _a_stall_proves_nothing,
    ),
    Mutant(
        "the budget is off by one",
        "return failures >= policy.max_attempts",
        "return failures > policy.max_attempts",
    ),
    Mutant(
        "rework is counted as a failure",
        "rework=task.rework + 1,",
        "rework=task.rework + 1, failures=task.failures + 1,",
    ),
    Mutant(
        "no pause after a failure",
        "    return plain * (1.0 + share * (2.0 * jitter - 1.0))",
        "    return plain * 0.0",
    ),
    Mutant(
        "the pause grows without bound",
        "min(policy.backoff_base * 2.0**exponent, policy.backoff_max)",
        "max(policy.backoff_base * 2.0**exponent, policy.backoff_base)",
        test_pace.test_jitter_moves_the_pause_by_its_share_and_no_more,
    ),
    Mutant("a start needs no slot", "slots_per_agent - busy.get(agent, 0)", "slots_per_agent + 0 * len(busy)"),
    Mutant(
        "an open circuit is held for ever",
        "draft.move(trigger, reason, due=hold,",
        "draft.move(trigger, reason, due=None,",
    ),
    # ------------------------------------------------------------ who may say what
    Mutant(
        "a stranger's reply is believed",
        "if not same_agent(reply.sender, attempt.executor):",
        "if not same_agent(reply.sender, reply.sender):",
    ),
    Mutant(
        "a wrong token is believed",
        "if reply.reply_token != attempt.reply_token and (reply.reply_token is not None or attempt.token_echoed):",
        "if reply.reply_token != attempt.reply_token and attempt.token_echoed and reply.reply_token is None:",
    ),
    Mutant(
        "an attempt that never was is believed",
        "        if not reply.older_attempt:\n",
        "        if not reply:\n",
    ),
    Mutant("a gate is skipped", "    if gate not in policy.gates:\n", "    if policy is not None:\n"),
    Mutant(
        "one approval of several is enough",
        "hardest = max(verdicts.values(), key=list(Verdict).index)",
        "hardest = min(verdicts.values(), key=list(Verdict).index)",
    ),
    Mutant(
        "verdicts over an earlier attempt count",
        "    return task.attempt or task.rework",
        "    return task.rework",
        test_gates.test_an_approval_of_an_earlier_attempt_does_not_pass_the_next_one,
    ),
    Mutant(
        "planned actions need no approval",
        "bool(view.task.planned_actions) is with_actions",
        "with_actions is (not view)",
    ),
    # ------------------------------------------------------------ the store
    Mutant("the chain is not a chain", "digest = chain(last.hash, row)", "digest = chain(GENESIS, row)"),
    Mutant("what was rolled back stays", 'db.execute("ROLLBACK")', 'db.execute("COMMIT")'),
    Mutant(
        "a checkpoint does not reach its table",
        '    changes: Mapping[str, Any] = event.data.get("changes", {})\n    if set(changes) - set(ATTEMPT_COLUMNS):',
        "    changes: Mapping[str, Any] = {}\n    if set(changes) - set(ATTEMPT_COLUMNS):",
    ),
)


def main() -> int:
    """Plant every fault in turn; says what noticed it. 1 when one stays green."""
    green = 0
    for mutant in MUTANTS:
        killer = mutant.killer()
        green += not killer
        print(f"{'killed' if killer else 'GREEN '}  {mutant.name}: {killer or 'nothing noticed'}"[:160], flush=True)
    return min(green, 1)


if __name__ == "__main__":
    raise SystemExit(main())
