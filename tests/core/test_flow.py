"""The flow of a plan: conditions over answers, a child's result as the outcome, and rounds."""

from __future__ import annotations

import pytest

from mailboxd.core.effects import RunTurn, StopTurns
from mailboxd.core.inputs import Cancel, Edited, Remedy, Retry, Unblock
from mailboxd.core.model import Condition, Flow, Overrides, Plan, PlannedChild, Spec
from mailboxd.core.outcomes import Failure, Results
from mailboxd.core.vocabulary import Join, Phase, WeakSpec
from mailboxd.errors import PlanError
from tests.core.desk import Desk, child, refused, with_policy

YES, NO = Results("It is good.", "approve"), Results("Mend it.", "revise")


def when(of: str, *answers: str, negated: bool = False, needs_any: bool = False) -> Flow:
    return Flow((Condition(answers, of, negated),), needs_any)


ANY = Flow(needs_any=True)


def desk_with(*children: PlannedChild, synthesis: str | None = "concat") -> Desk:
    desk = Desk()
    desk.give(plan=Plan(children, synthesis))
    return desk


def branches() -> Desk:
    """Publish what is approved, mend what is not, then tell."""
    return desk_with(
        child("check", "bob"),
        child("publish", "bob", "check", flow=when("check", "approve")),
        child("mend", "bob", "check", flow=when("check", "approve", negated=True)),
        child("again", "bob", "mend"),
        child("tell", "bob", "publish", "again", flow=ANY),
    )


# Conditions


@pytest.mark.parametrize(
    ("said", "condition", "runs"),
    [
        (YES, when("a", "approve"), True),
        (Results("x", " Approve\n"), when("a", "approve"), True),
        (Results("approve"), when("a", "approve"), True),
        (NO, when("a", "approve"), False),
        (NO, when("a", "approve", "revise"), True),
        (NO, when("a", "approve", negated=True), True),
        (YES, when("a", "approve", "revise", negated=True), False),
    ],
)
def test_a_child_runs_if_its_dependency_gave_the_answer(said: Results, condition: Flow, runs: bool) -> None:
    desk = desk_with(child("a", "bob"), child("b", "bob", "a", flow=condition))
    desk.ends("t.a", said)
    assert desk.phase("t.b") is (Phase.EXECUTING if runs else Phase.CANCELLED)


def test_the_branch_that_is_not_taken_is_skipped_with_all_that_needs_it() -> None:
    desk = branches()
    desk.ends("t.check", YES)
    assert desk.phases("t.publish", "t.mend", "t.again", "t.tell") == [
        "executing", "cancelled", "cancelled", "execution_ready",
    ]  # fmt: skip
    assert desk.task("t.mend").reason == "skipped: check answered approve; it runs if the answer is not approve"
    assert desk.task("t.again").reason == "skipped: its dependency mend was skipped"
    desk.done("t.publish")
    assert desk.phase("t.tell") is Phase.EXECUTING
    desk.done("t.tell", "t")
    assert desk.phase() is Phase.COMPLETED


def test_what_needs_any_waits_for_all_that_still_run() -> None:
    desk = branches()
    desk.ends("t.check", NO)
    desk.done("t.mend")
    assert desk.phases("t.publish", "t.tell") == ["cancelled", "execution_ready"]
    desk.done("t.again")
    assert desk.phase("t.tell") is Phase.EXECUTING


def test_a_cancel_counts_like_a_skip_for_what_needs_any_and_with_nothing_left_it_is_skipped() -> None:
    desk = desk_with(child("a", "bob"), child("b", "bob"), child("c", "bob"), child("d", "bob", "a", "b", flow=ANY))
    desk.command("t.a", Cancel("operator"))
    assert desk.phase("t.d") is Phase.EXECUTION_READY
    desk.command("t.b", Cancel("operator"))
    assert (desk.phase("t.d"), desk.task("t.d").reason) == (
        Phase.CANCELLED, "skipped: none of its dependencies was completed",
    )  # fmt: skip


def test_a_condition_on_what_was_skipped_does_not_hold() -> None:
    both = Flow((Condition(("x",), "mend", negated=True),), needs_any=True)
    desk = desk_with(
        child("a", "bob"),
        child("mend", "bob", "a", flow=when("a", "revise")),
        child("z", "bob", "a", "mend", flow=both),
    )
    desk.ends("t.a", YES)
    assert desk.task("t.z").reason == "skipped: mend has no answer; it runs if the answer is not x"


def test_what_is_skipped_while_its_spec_is_drafted_needs_no_draft() -> None:
    desk = Desk(with_policy(weak=WeakSpec.DRAFT))
    first = child("a", "bob", expected_output="a verdict")
    second = child("b", "bob", "a", flow=when("a", "no"))
    desk.give(plan=Plan((first, second), "concat"), spec=Spec("t", "Do it.", expected_output="one page"))
    assert (desk.phase("t.b"), len(desk.orders(RunTurn, "t.b"))) == (Phase.SPEC_DRAFT, 1)
    desk.ends("t.a", YES)
    assert desk.phase("t.b") is Phase.CANCELLED
    assert len(desk.orders(StopTurns, "t.b")) == 1


def test_a_skipped_plan_takes_its_subtasks_with_it() -> None:
    desk = desk_with(child("a", "bob"), child("p", "self", "a", flow=when("a", "no"), children=(child("in", "bob"),)))
    desk.ends("t.a", YES)
    assert desk.phases("t.p", "t.p.in") == ["cancelled", "cancelled"]


def test_another_answer_reopens_what_was_skipped() -> None:
    desk = branches()
    desk.ends("t.check", YES)
    desk.done("t.publish")
    desk.done("t.tell", "t")
    desk.command("t.check", Retry(with_dependants=True))
    desk.start()
    assert desk.phases("t.mend", "t.again") == ["execution_ready", "execution_ready"]
    desk.ends("t.check", NO)
    assert desk.phases("t.publish", "t.mend", "t.again") == ["cancelled", "executing", "execution_ready"]


def test_a_retry_decides_anew_about_what_was_skipped_and_keeps_what_was_done() -> None:
    desk = branches()
    desk.ends("t.check", YES)
    desk.done("t.publish")
    desk.done("t.tell", "t")
    desk.command("t.check", Retry())
    desk.start()
    assert desk.phases("t.publish", "t.mend", "t.again") == ["completed", "execution_ready", "execution_ready"]
    desk.ends("t.check", NO)
    assert desk.phases("t.publish", "t.mend", "t.again") == ["completed", "executing", "execution_ready"]


def test_a_skipped_plan_comes_back_with_its_subtasks() -> None:
    desk = desk_with(child("a", "bob"), child("b", "self", "a", flow=when("a", "x"), children=(child("in", "bob"),)))
    desk.done("t.a", "t")
    desk.command("t.a", Retry())
    desk.start()
    desk.ends("t.a", Results("y", "x"))
    assert desk.phases("t.b", "t.b.in") == ["executing", "executing"]


def test_what_a_plan_names_must_be_there() -> None:
    until = Condition(("done",))
    for bad in (
        Plan((child("a", "bob"), child("b", "bob", flow=when("a", "x")))),
        Plan((child("a", "bob", flow=Flow(until=until)),)),
        Plan((child("a", "bob", flow=Flow(rounds=2, until=Condition(("done",), "in"))),)),
        Plan((child("a", "bob"),), synthesis="b"),
        Plan((child("a", "self", overrides=Overrides(synthesis="b"), children=(child("c", "bob"),)),)),
    ):
        desk = Desk()
        with pytest.raises(PlanError):
            desk.give(plan=bad)
        assert desk.count() == 0


# The result of a child as the outcome


def test_a_childs_result_is_the_outcome_without_another_turn() -> None:
    desk = desk_with(child("a", "bob"), child("judge", "bob", "a"), synthesis="judge")
    desk.done("t.a")
    desk.ends("t.judge", YES)
    assert desk.orders(RunTurn) == []
    desk.done("t")
    task = desk.task("t")
    assert (task.phase, task.result, task.answer) == (Phase.COMPLETED, "It is good.", "approve")


def test_without_that_result_the_task_fails() -> None:
    desk = desk_with(child("a", "bob"), child("judge", "bob", "a", flow=when("a", "no")), synthesis="judge")
    desk.ends("t.a", YES)
    desk.done("t")
    assert desk.phase() is Phase.FAILED
    assert "judge, which was skipped: a answered approve" in desk.task("t").error


def test_the_name_of_a_child_is_no_synthesis_of_the_levels_below() -> None:
    desk = desk_with(child("judge", "self", children=(child("x", "bob"),)), synthesis="judge")
    desk.done("t.judge.x")
    assert [turn.turn for turn in desk.orders(RunTurn, "t.judge")] == ["synthesis"]


# Rounds


def test_a_child_is_repeated_until_its_answer_is_right() -> None:
    desk = desk_with(child("draft", "bob", flow=Flow(rounds=5, until=Condition(("approve",)))))
    desk.ends("t.draft.1", NO)
    desk.done("t.draft")
    assert desk.phases("t.draft", "t.draft.2") == ["executing", "executing"]
    desk.ends("t.draft.2", Results("Better.", "approve"))
    desk.done("t.draft")
    draft = desk.task("t.draft")
    assert (draft.phase, draft.result, draft.answer) == (Phase.COMPLETED, "Better.", "approve")
    assert desk.task("t.draft.1").result == "Mend it.", "each round is stored"


def test_without_until_there_are_exactly_so_many_rounds() -> None:
    desk = desk_with(child("debate", ("bob", "amy"), flow=Flow(rounds=2)))
    for number in ("1", "2"):
        desk.done(f"t.debate.{number}.bob", f"t.debate.{number}.amy", f"t.debate.{number}", "t.debate")
    assert desk.phase("t.debate") is Phase.COMPLETED


def loop(rounds: int) -> Desk:
    """Build, and review what was built, until it is approved."""
    parts = (child("build", "bob"), child("review", "amy", "build"))
    flow = Flow(rounds=rounds, until=Condition(("approve",), "review"))
    whole = child("loop", "self", flow=flow, children=parts, overrides=Overrides(synthesis="build"))
    return desk_with(whole, child("publish", "bob", "loop", flow=when("loop", "approve")))


def play(desk: Desk, number: int, verdict: Results) -> None:
    desk.ends(f"t.loop.{number}.build", Results(f"version {number}"))
    desk.ends(f"t.loop.{number}.review", verdict)
    desk.done(f"t.loop.{number}", "t.loop")


def test_a_loop_of_several_tasks_ends_by_the_answer_of_one_of_them() -> None:
    desk = loop(3)
    play(desk, 1, NO)
    play(desk, 2, YES)
    whole = desk.task("t.loop")
    assert (whole.phase, whole.result, whole.answer) == (Phase.COMPLETED, "version 2", "approve")
    assert desk.phase("t.publish") is Phase.EXECUTING


def test_rounds_that_are_used_up_open_the_circuit_and_a_retry_grants_as_many_again() -> None:
    desk = loop(1)
    play(desk, 1, NO)
    assert desk.phase("t.loop") is Phase.CIRCUIT_OPEN
    assert "after 1 rounds the answer of review is revise" in desk.task("t.loop").reason
    desk.command("t.loop", Unblock(Remedy.RETRY))
    desk.start()
    desk.done("t.loop")
    play(desk, 2, YES)
    assert desk.phase("t.loop") is Phase.COMPLETED


def test_what_the_last_round_made_can_be_accepted() -> None:
    desk = loop(1)
    play(desk, 1, NO)
    desk.command("t.loop", Unblock(Remedy.ACCEPT))
    assert (desk.phase("t.loop"), desk.task("t.loop").result) == (Phase.COMPLETED, "version 1")
    assert desk.phase("t.publish") is Phase.CANCELLED


def test_a_round_that_fails_fails_the_whole() -> None:
    desk = desk_with(child("a", "bob", flow=Flow(rounds=3), overrides=Overrides(max_attempts=1)))
    desk.ends("t.a.1", Failure("no"))
    assert desk.phases("t.a", "t") == ["failed", "failed"]


def test_a_broadcast_of_each_round_is_joined_as_it_says() -> None:
    flow = Flow(rounds=4, until=Condition(("yes",)))
    desk = desk_with(child("vote", ("bob", "amy", "eve"), flow=flow, overrides=Overrides(join=Join.MAJORITY)))
    for name in ("bob", "amy"):
        desk.ends(f"t.vote.1.{name}", Results("I agree.", "yes"))
    desk.done("t.vote.1", "t.vote")
    assert desk.task("t.vote").answer == "yes"


def test_rounds_take_no_other_children() -> None:
    desk = desk_with(child("a", "bob", flow=Flow(rounds=2)))
    with refused(desk, "illegal-edit"):
        desk.handle("t.a", Edited(added=(child("more", "bob"),)))
