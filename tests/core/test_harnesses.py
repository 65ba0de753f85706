"""Work that a harness does for this agent: who gets it, what it asks for, what it leaves, what its failures mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailboxd.core.approvals import ApprovalDecision, ApprovalStatus, PermissionAsked, Resolve
from mailboxd.core.effects import AnswerPermission, LookUp, RunTurn
from mailboxd.core.events import Role
from mailboxd.core.inputs import Clarification, TurnEnded
from mailboxd.core.model import BreakerRules, Escalation, Overrides, PlannedChild, Policy
from mailboxd.core.outcomes import Aborted, Failed, Made, Question, Succeeded, Unknown
from mailboxd.core.vocabulary import ExecutorKind, Phase, Runtime, Turn
from mailboxd.errors import PlanError
from tests.core.desk import DONE, Desk, child, plan, with_policy

ACP = Policy(runtime=Runtime.ACP, harness="coder", max_attempts=4)
BY_CODER = Overrides(runtime=Runtime.ACP, harness="coder")


def desk(**settings: Any) -> Desk:
    made = Desk(with_policy(max_attempts=4))
    made.configured(harnesses=("coder", "other"), **settings)
    return made


def turn(at: Desk, name: str = "t") -> RunTurn:
    effect: RunTurn = at.orders(RunTurn, name)[0]
    return effect


def test_a_task_for_a_harness_is_this_agents_own_work() -> None:
    at = desk()
    at.give(policy=ACP)
    attempt = at.attempt()
    assert (attempt.executor, attempt.runtime, attempt.worker_ref) == ("main", Runtime.ACP, "coder")
    assert (turn(at).agent, turn(at).turn, turn(at).harness) == ("main", Turn.WORK, "coder")
    assert at.task("t").runtime is Runtime.ACP


def test_an_attempt_says_what_works_on_it() -> None:
    at = desk(readers=frozenset({"other"}))
    at.give("a")
    at.give("b", policy=ACP)
    at.give("c", policy=replace(ACP, harness="other"))
    kinds = [at.attempt(name).executor_kind for name in "abc"]
    assert kinds == [ExecutorKind.BUILDER, ExecutorKind.EXTERNAL_CODER, ExecutorKind.RESEARCH]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(runtime=Runtime.ACP, harness="codex"), "no harness codex is configured here; there is coder, other"),
        (Policy(runtime=Runtime.ACP), "needs a harness"),
        (Policy(harness="coder"), "needs runtime: acp"),
    ],
)
def test_a_task_that_nobody_could_do_does_not_come_into_being(policy: Policy, why: str) -> None:
    at = desk()
    with pytest.raises(PlanError, match=why) as caught:
        at.give(policy=policy)
    assert caught.value.rule == "unknown-harness"
    assert at.count() == 0


@pytest.mark.parametrize("agent", ["bob", ("self", "bob")])
def test_a_harness_works_for_nobody_else(agent: Any) -> None:
    at = desk()
    with pytest.raises(PlanError, match="write `agent: self`"):
        at.give(plan=plan(child("a", agent, overrides=BY_CODER)))


def test_an_agent_that_plans_with_a_harness_that_is_not_there_is_told_and_plans_again() -> None:
    at = desk()
    at.give()
    wrong: PlannedChild = child("a", overrides=Overrides(runtime=Runtime.ACP, harness="codex"))
    at.plans("t", wrong)
    assert "there is coder, other" in at.told("t")


def test_a_child_does_not_inherit_a_harness() -> None:
    at = desk()
    at.give(policy=ACP, plan=plan(child("a"), child("b", overrides=BY_CODER)))
    assert [at.attempt(name).worker_ref for name in ("t", "t.a", "t.b")] == ["coder", "", "coder"]
    at.done("t.a", "t.b")
    assert (turn(at).turn, turn(at).harness) == (Turn.SYNTHESIS, "coder")


def test_the_answer_to_its_question_goes_to_it_too() -> None:
    at = desk()
    at.give(policy=ACP)
    at.ends("t", Question("Which?"))
    at.handle("t", Clarification("boss", "This one."))
    assert turn(at).harness == "coder"


def test_a_lost_turn_is_looked_up_at_the_harness_and_nowhere_else() -> None:
    at = desk()
    at.give(policy=ACP)
    at.ends("t", Unknown("it died", run_id="trn_1"))
    (effect,) = at.orders(LookUp, "t")
    assert (effect.harness, effect.run_id) == ("coder", "trn_1")
    at.ends("t", Unknown("it cannot be asked", run_id="trn_1", looked_up=True))
    assert at.phase() is Phase.CIRCUIT_OPEN


@pytest.mark.parametrize(
    ("rules", "policy", "agent", "harness", "why"),
    [
        (Escalation(2, harness="coder"), Policy(), "main", "coder", "harness coder instead of main after 1 failure"),
        (Escalation(2, harness="other"), ACP, "main", "other", "harness other instead of coder after 1 failure"),
        (
            Escalation(2, harness="coder"),
            ACP,
            "main",
            "coder",
            "nothing after 1 failure; not the harness coder: it already had",
        ),
        (
            Escalation(2, harness="gone"),
            Policy(),
            "main",
            "",
            "nothing after 1 failure; not the harness gone: no harness",
        ),
        (Escalation(2, "big"), ACP, "main", "coder", "nothing after 1 failure"),
        (Escalation(2, "big", "eve"), ACP, "eve", "", "agent eve instead of main and model big after 1 failure"),
    ],
)
def test_what_is_escalated(rules: Escalation, policy: Policy, agent: str, harness: str, why: str) -> None:
    at = desk(escalation=rules)
    at.give(policy=replace(policy, max_attempts=4))
    at.ends("t", Failed("no idea"))
    at.wait(1000)
    attempt = at.attempt()
    assert (attempt.ordinal, attempt.executor, attempt.worker_ref) == (2, agent, harness)
    assert attempt.escalated.startswith(why)
    assert (turn(at).agent, turn(at).harness) == (agent, harness)


def test_the_work_of_a_peer_comes_back_for_a_harness_and_goes_to_the_peer_again_when_it_starts_afresh() -> None:
    at = desk(escalation=Escalation(2, harness="coder"))
    at.give(plan=plan(child("a", "bob")))
    at.ends("t.a", Failed("no idea"))
    at.wait(1000)
    assert (at.attempt("t.a").executor, at.attempt("t.a").worker_ref) == ("main", "coder")
    assert at.task("t.a").stronger.instead_of == "bob"


def test_what_a_turn_has_left_is_evidence_also_when_it_failed_or_came_too_late() -> None:
    at = desk()
    at.give(policy=ACP)
    attempt = at.attempt()
    made = (Made("diff", "+x", "1 files changed: a"),)
    for _ in range(2):
        at.handle("t", TurnEnded(Turn.WORK, attempt.id, "main", Aborted("stopped"), made=made, harness="coder"))
    kept = [artifact for event in at.events() for artifact in event.data.get("artifacts", ())]
    assert [(one["kind"], one["summary"], one["attempt"]) for one in kept] == [
        ("diff", "1 files changed: a", attempt.id)
    ] * 2


def test_its_failures_say_nothing_of_the_agents_health() -> None:
    at = desk(breaker=BreakerRules(failures=1))
    at.give(policy=ACP)
    failed = Failed("The harness cannot start", started=False)
    at.handle("t", TurnEnded(Turn.WORK, at.attempt().id, "main", failed, harness="coder"))
    assert at.breaker().failures == 0


# ---------------------------------------------------------------- permissions


def asks(at: Desk, name: str = "apr_1") -> None:
    at.handle("t", PermissionAsked(name, f"{turn(at).turn_id}.1", "coder: execute: make", "kind: execute"))


def status(at: Desk) -> list[ApprovalStatus]:
    return [row.status for row in at.approvals("t")]


def test_what_it_waits_for_takes_no_slot_of_the_agent() -> None:
    at = desk()
    at.give(policy=ACP)
    assert at.busy() == {"main": 1}
    asks(at)
    assert at.busy() == {}
    at.handle("t", Resolve("apr_1", ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    assert at.busy() == {"main": 1}


def test_a_question_ends_with_its_turn_though_the_attempt_goes_on() -> None:
    at = desk()
    at.give(policy=ACP)
    asks(at)
    at.ends("t", Unknown("it died", run_id="trn_1"))
    assert at.phase() is Phase.EXECUTING
    assert status(at) == [ApprovalStatus.EXPIRED]
    assert [type(effect) for effect in at.orders(AnswerPermission, "t")] == [AnswerPermission]


def test_a_permission_that_was_given_stays_given_when_the_task_ends() -> None:
    at = desk()
    at.give(policy=ACP)
    asks(at)
    at.handle("t", Resolve("apr_1", ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    at.ends("t", DONE)
    assert at.phase() is Phase.COMPLETED
    assert status(at) == [ApprovalStatus.APPROVED]


def test_a_result_counts_as_always() -> None:
    at = desk()
    at.give(policy=ACP)
    at.handle("t", TurnEnded(Turn.WORK, at.attempt().id, "main", Succeeded("x"), DONE, harness="coder"))
    assert (at.phase(), at.task("t").result) == (Phase.COMPLETED, "done")
