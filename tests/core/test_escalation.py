"""What a failing task is tried with next."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.core.effects import RunTurn, Send
from mailboxd.core.inputs import Remedy, Reply, Unblock
from mailboxd.core.model import Escalation, Overrides, Policy
from mailboxd.core.outcomes import Acknowledged, Failed, Failure, Planned, Results
from mailboxd.core.vocabulary import Runtime, Turn
from mailboxd.errors import PlanError
from tests.core.desk import Desk, child, plan, with_policy


def desk_with(escalation: Escalation, **policy: Any) -> Desk:
    desk = Desk(with_policy(max_attempts=4, **policy), may_reach=lambda name: "no ghost" if name == "ghost" else None)
    desk.configured(escalation=escalation)
    return desk


def fails(desk: Desk, name: str, times: int) -> None:
    for _ in range(times):
        desk.ends(name, Failed("overloaded"))
        desk.wait(1000)


@pytest.mark.parametrize(
    ("escalation", "failures", "model", "executor", "why"),
    [
        (Escalation(), 2, "", "bob", ""),
        (Escalation(3, "big"), 1, "", "bob", ""),
        (Escalation(3, "big"), 2, "big", "bob", "model big after 2 failures"),
        (Escalation(2, "big"), 1, "big", "bob", "model big after 1 failure"),
        (Escalation(3, "", "eve"), 2, "", "eve", "agent eve instead of bob after 2 failures"),
        (Escalation(3, "big", "eve"), 3, "big", "eve", "agent eve instead of bob and model big after 2 failures"),
        (
            Escalation(3, "", "BOB"),
            2,
            "",
            "bob",
            "nothing after 2 failures; not the agent BOB: it already had the task",
        ),
        (Escalation(3, "big", "ghost"), 2, "big", "bob", "model big after 2 failures; not the agent ghost: no ghost"),
        (Escalation(3, "", "rex"), 2, "", "bob", "nothing after 2 failures; not the agent rex: it reviews the task"),
    ],
)
def test_what_the_next_attempt_is_tried_with(
    escalation: Escalation, failures: int, model: str, executor: str, why: str
) -> None:
    desk = desk_with(escalation, reviewers=("rex",))
    desk.give(plan=plan(child("a", "bob")))
    fails(desk, "t.a", failures)
    attempt = desk.attempt("t.a")
    assert (attempt.model, attempt.executor, attempt.escalated) == (model, executor, why)
    turn = desk.orders(RunTurn, "t.a")[0]
    assert (turn.agent, turn.model, turn.turn) == (executor, model, Turn.DISPATCH)
    desk.verify()


def test_a_root_task_does_not_go_back_to_whoever_gave_it() -> None:
    desk = desk_with(Escalation(2, "", "boss"))
    desk.give(sender="Boss")
    fails(desk, "t", 1)
    assert desk.attempt().executor == "main"
    assert "it gave the task" in desk.attempt().escalated


def test_children_stay_with_the_agent_that_planned_them() -> None:
    desk = desk_with(Escalation(2, "big", "eve"))
    desk.give()
    desk.ends("t", Planned(plan(child("a", "bob"))))
    desk.done("t.a")
    desk.ends("t", Failure("no idea"))
    desk.wait(1000)
    turn = desk.orders(RunTurn, "t")[0]
    assert (turn.turn, turn.agent, turn.model) == (Turn.SYNTHESIS, "main", "big")
    assert "children" in desk.attempt("t").escalated


def test_only_the_agent_of_the_attempt_may_reply_and_the_one_before_is_late() -> None:
    desk = desk_with(Escalation(2, "", "eve"))
    desk.give(plan=plan(child("a", "bob")))
    old = desk.attempt("t.a")
    fails(desk, "t.a", 1)
    events = desk.handle("t.a", Reply("bob", Results("mine"), old.id, old.reply_token, older_attempt=True))
    assert [event.kind.value for event in events] == ["reply.late"]
    new = desk.attempt("t.a")
    desk.handle("t.a", Reply("EVE", Results("hers"), new.id, new.reply_token))
    assert desk.task("t.a").result == "hers"


def test_a_peer_that_may_still_have_the_work_is_told_that_another_takes_over() -> None:
    desk = desk_with(Escalation(2, "", "eve"), reply_within=60, idempotent=True)
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    desk.wait(60)
    desk.wait(1000)
    assert desk.attempt("t.a").executor == "eve"
    (told,) = desk.orders(Send, "t.a")
    assert (told.type, told.to, told.attempt) == ("cancel", "bob", 1)


def test_a_fresh_start_gives_it_back_to_whom_it_was_given() -> None:
    desk = desk_with(Escalation(2, "big", "eve"))
    desk.give(plan=plan(child("a", "bob")))
    fails(desk, "t.a", 4)
    assert desk.phase("t.a").value == "circuit_open"
    desk.command("t.a", Unblock(Remedy.RETRY))
    desk.start()
    attempt = desk.attempt("t.a")
    assert (attempt.executor, attempt.model, attempt.escalated) == ("bob", "", "")
    desk.verify()


# A model that a task or child names itself


def desk_allowing(*models: str, escalation: Escalation = Escalation()) -> Desk:
    desk = desk_with(escalation)
    desk.configured(models=models, harnesses=("coder",))
    return desk


def test_a_child_has_the_model_that_the_plan_names_and_the_others_their_own() -> None:
    desk = desk_allowing("small")
    small = child("a", "bob", overrides=Overrides(model="small"))
    desk.give(policy=with_policy(model="small"), plan=plan(small, child("b", "bob")))
    turns = {name: desk.orders(RunTurn, name)[0].model for name in ("t.a", "t.b")}
    assert turns == {"t.a": "small", "t.b": ""}
    desk.done("t.a", "t.b")
    assert desk.orders(RunTurn, "t")[0].model == "small"
    desk.verify()


def test_escalation_replaces_a_named_model() -> None:
    desk = desk_allowing("small", escalation=Escalation(2, "big"))
    desk.give(policy=with_policy(model="small", max_attempts=4))
    assert desk.attempt().model == "small"
    fails(desk, "t", 1)
    assert desk.attempt().model == "big"


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(model="huge"), "the model huge may not be chosen here; allowed is small"),
        (Policy(model="small", runtime=Runtime.ACP, harness="coder"), "has its own"),
    ],
)
def test_a_model_that_may_not_be_chosen_is_refused(policy: Policy, why: str) -> None:
    desk = desk_allowing("small")
    with pytest.raises(PlanError, match=why):
        desk.give(policy=policy)
    named = Overrides(model=policy.model, runtime=policy.runtime, harness=policy.harness or None)
    with pytest.raises(PlanError, match=f"a: .*{why}"):
        desk.give(plan=plan(child("a", overrides=named)))
