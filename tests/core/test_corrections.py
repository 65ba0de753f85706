"""An answer without one single meaning is asked for again, in the session that gave it, and costs no attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.attempts import is_wanted
from mailboxd.core.corrections import MOST
from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.inputs import Cancel, Clarification, Edited, Pause, Reply, Steer, TurnEnded
from mailboxd.core.model import Policy, Spec, Usage
from mailboxd.core.outcomes import (
    Aborted,
    Acknowledged,
    Answer,
    Correction,
    Drafted,
    Failed,
    Failure,
    Outcome,
    Planned,
    Question,
    Results,
    Reviewed,
    Succeeded,
    Unclear,
    Unknown,
)
from mailboxd.core.vocabulary import Gate, Phase, Turn, Verdict, Waiting, WeakSpec
from tests.core.desk import DONE, Desk, child, plan, with_policy

FIRST = Unclear(("line 2, `agnet: bob`: write `agent: bob`", "line 3: two plans; send one"), "---\nagnet: bob")
AGAIN = Unclear(("line 1: not closed",), "---")
CLAIM = Unclear(("it reads like a promise",), "I will do it.", is_claim=True)


def asked(desk: Desk, name: str = "t") -> RunTurn:
    (turn,) = desk.orders(RunTurn, name)
    assert isinstance(turn, RunTurn)
    return turn


def working(policy: Policy | None = None) -> Desk:
    desk = Desk(policy)
    desk.give()
    return desk


def test_all_problems_are_told_in_the_same_session_and_attempt() -> None:
    desk = working()
    before = asked(desk)
    desk.ends("t", FIRST)
    after = asked(desk)
    assert after == replace(before, turn_id=after.turn_id, correction=Correction(FIRST.problems, 1))
    assert (desk.task("t").attempt, desk.task("t").failures, desk.phase()) == (1, 0, Phase.EXECUTING)
    desk.ends("t", AGAIN)
    assert asked(desk).correction == Correction(AGAIN.problems, 2)
    desk.ends("t", DONE)
    assert (desk.phase(), desk.task("t").result, desk.attempt().ordinal) == (Phase.COMPLETED, "done", 1)


def test_it_is_asked_for_twice_and_then_the_attempt_has_failed_and_the_next_one_knows_why() -> None:
    desk = working()
    for _ in range(MOST):
        desk.ends("t", FIRST)
    desk.ends("t", AGAIN)
    task = desk.task("t")
    assert (task.phase, task.failures) == (Phase.EXECUTION_READY, 1)
    assert "line 1: not closed" in task.findings
    assert desk.kinds().count("answer.unclear") == MOST


def test_each_time_is_an_event_with_the_problems_and_every_answer_is_kept() -> None:
    desk = working()
    desk.ends("t", FIRST)
    desk.ends("t", AGAIN)
    found = [event.data for event in desk.events("t")]
    unclear = [data for data in found if "problems" in data]
    assert [(data["purpose"], data["agent"], data["number"]) for data in unclear] == [
        ("work", "main", 1),
        ("work", "main", 2),
    ]
    assert unclear[0]["problems"] == list(FIRST.problems)
    assert [part["body"] for data in found for part in data.get("artifacts", ())] == [FIRST.text, AGAIN.text]


def test_what_a_correction_costs_counts() -> None:
    desk = working(with_policy(budget_usd=0.9))
    usage = Usage(100, 10, 0.5)
    for said in (FIRST, AGAIN):
        desk.clock.advance(1)
        desk.ends("t", said, usage=usage)
    assert desk.attempt().usage == usage.plus(usage)
    assert "over budget" in desk.task("t").held, "the budget holds a task that is asked again"


def test_a_claim_is_carried_so_that_it_can_be_confirmed() -> None:
    desk = working()
    desk.ends("t", CLAIM)
    correction = asked(desk).correction
    assert correction is not None
    assert correction.claim == "I will do it."
    desk.ends("t", FIRST)
    correction = asked(desk).correction
    assert correction is not None
    assert correction.claim == ""


def test_the_end_of_a_correcting_turn_says_which_one_it_was() -> None:
    desk = working()
    desk.ends("t", FIRST)
    (order,) = desk.pending()
    assert desk.end_of(order, Succeeded(""), DONE).correction == Correction(FIRST.problems)


# ---------------------------------------------------------------- which turns


@pytest.mark.parametrize("said", [Acknowledged(), Reviewed(Verdict.APPROVED, "fine"), Drafted(Spec("x"))])
def test_an_answer_to_another_question_is_asked_for_again(said: Answer) -> None:
    desk = working()
    desk.ends("t", said)
    assert "work turn" in desk.told("t")
    desk.ends("t", DONE)
    assert desk.phase() is Phase.COMPLETED


def test_a_peer_that_answered_by_its_call_is_asked_in_that_session_without_another_message() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    first = asked(desk, "t.a")
    assert first.sends_message
    desk.ends("t.a", FIRST)
    again = asked(desk, "t.a")
    assert (again.turn, again.agent, again.session_key) == (Turn.DISPATCH, "bob", first.session_key)
    assert not again.sends_message
    desk.ends("t.a", Acknowledged())
    assert desk.attempt("t.a").waiting_for is Waiting.REPLY


def test_an_unclear_word_of_a_peer_that_has_acknowledged_changes_nothing() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    attempt = desk.attempt("t.a")
    desk.handle("t.a", Reply("bob", Acknowledged(), attempt.id, attempt.reply_token))
    desk.ends("t.a", CLAIM)
    assert (desk.orders(RunTurn, "t.a"), desk.attempt("t.a").waiting_for) == ([], Waiting.REPLY)


def test_a_peer_that_acknowledges_by_message_is_not_asked_again() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", CLAIM)
    attempt = desk.attempt("t.a")
    desk.handle("t.a", Reply("bob", Acknowledged(), attempt.id, attempt.reply_token))
    assert not is_wanted(desk.task("t.a"), desk.attempt("t.a"), asked(desk, "t.a"))


def test_a_synthesis_is_asked_for_again_but_what_was_composed_here_is_not() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.done("t.a")
    desk.ends("t", FIRST)
    assert asked(desk).turn is Turn.SYNTHESIS
    attempt = desk.attempt()
    composed = TurnEnded(Turn.SYNTHESIS, attempt.id, "main", Succeeded(""), Planned(plan()), called=False)
    desk.handle("t", composed)
    assert desk.phase() is Phase.EXECUTION_READY


def test_a_plan_in_task_md_stands_whatever_the_agent_says_beside_it() -> None:
    desk = working()
    desk.handle("t", Edited((child("a", "bob"),)))
    desk.ends("t", CLAIM)
    assert (desk.attempt().waiting_for, desk.phase("t.a")) == (Waiting.CHILDREN, Phase.EXECUTING)
    assert "I will do it." in desk.task("t").notes


def test_a_draft_is_asked_for_again_in_its_session() -> None:
    desk = Desk(with_policy(weak=WeakSpec.DRAFT))
    desk.give(spec=Spec("haiku", instructions="Write one."))
    first = asked(desk)
    desk.ends("t", FIRST)
    again = asked(desk)
    assert (again.turn, again.session_key, again.attempt_id) == (Turn.DRAFT, first.session_key, first.attempt_id)
    assert is_wanted(desk.task("t"), None, again)
    desk.ends("t", Drafted(Spec("", acceptance_criteria=("three lines",), expected_output="a haiku")))
    assert desk.phase() is Phase.EXECUTING


def test_a_draft_that_fails_after_it_was_asked_for_again_is_still_told_why() -> None:
    desk = Desk(with_policy(weak=WeakSpec.DRAFT))
    desk.give(spec=Spec("haiku", instructions="Write one."))
    desk.ends("t", FIRST)
    desk.ends("t", Failed("overloaded"))
    desk.wait(1000)
    assert desk.told("t") == "\n\n".join(FIRST.problems)


def test_the_answer_to_a_question_is_asked_for_again_and_then_the_operator() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Question("Which?"))
    first = asked(desk, "t.a")
    desk.ends("t.a", FIRST)
    assert (asked(desk, "t.a").note, asked(desk, "t.a").session_key) == ("Which?", first.session_key)
    assert is_wanted(desk.task("t.a"), desk.attempt("t.a"), asked(desk, "t.a"))
    desk.ends("t.a", FIRST)
    desk.ends("t.a", FIRST)
    assert "asked operator" in desk.task("t.a").reason


def test_a_review_that_fails_after_it_was_asked_for_again_is_still_told_why() -> None:
    desk = Desk(with_policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("rex",)))
    desk.give()
    desk.done("t")
    desk.ends("t", FIRST)
    desk.ends("t", Failed("overloaded"))
    desk.wait(1000)
    assert desk.told("t") == "\n\n".join(FIRST.problems)
    desk.ends("t", Reviewed(Verdict.APPROVED, "fine"))
    assert desk.phase() is Phase.COMPLETED


# ---------------------------------------------------------------- lost, failed, never begun


def test_a_lost_correcting_turn_is_looked_up_as_what_it_was() -> None:
    desk = working()
    desk.ends("t", CLAIM)
    desk.ends("t", Unknown("killed"))
    (lookup,) = desk.orders(LookUp, "t")
    assert lookup.correction == Correction(CLAIM.problems, 1, CLAIM.text)
    desk.ends("t", FIRST)
    correction = asked(desk).correction
    assert correction is not None
    assert correction.number == 2, "an answer that was found counts as the second one"


@pytest.mark.parametrize(
    "end", [Failed("overloaded"), Failed("refused", started=False), Aborted("stopped"), Unknown("?", harmless=True)]
)
def test_the_attempt_after_a_correcting_turn_without_an_answer_knows_what_was_refused(end: Outcome) -> None:
    desk = working()
    desk.ends("t", FIRST)
    desk.ends("t", end)
    if isinstance(end, Unknown):
        desk.ends("t", replace(end, looked_up=True))
    task = desk.task("t")
    assert task.phase is Phase.EXECUTION_READY
    assert all(problem in task.findings for problem in FIRST.problems)


def test_so_does_the_attempt_after_one_that_was_answered_with_a_failure() -> None:
    desk = working()
    desk.ends("t", FIRST)
    desk.ends("t", Failure("No network."))
    assert all(problem in desk.task("t").findings for problem in FIRST.problems)


# ---------------------------------------------------------------- what happens meanwhile


def test_new_instructions_go_along_and_a_claim_from_before_cannot_be_confirmed() -> None:
    desk = working()
    desk.handle("t", Steer("boss", "In French."))
    desk.ends("t", CLAIM)
    turn = asked(desk)
    assert "In French." in turn.note
    assert turn.correction == Correction(CLAIM.problems)
    desk.ends("t", DONE)
    assert desk.phase() is Phase.COMPLETED, "they were delivered once"


def test_new_instructions_that_come_during_a_correction_follow_in_another_turn() -> None:
    desk = working()
    desk.ends("t", FIRST)
    desk.handle("t", Steer("boss", "In French."))
    desk.ends("t", DONE)
    assert ("In French." in asked(desk).note, asked(desk).correction) == (True, None)


def test_a_cancelled_task_is_not_asked_again() -> None:
    desk = working()
    desk.ends("t", FIRST)
    turn = asked(desk)
    desk.command("t", Cancel("operator"))
    assert not is_wanted(desk.task("t"), desk.attempt(), turn)


def test_a_question_in_a_correcting_turn_is_asked_and_its_answer_continues_the_attempt() -> None:
    desk = working()
    desk.ends("t", FIRST)
    desk.ends("t", Question("Which?"))
    desk.handle("t", Clarification("boss", "The red one."))
    assert (asked(desk).correction, "The red one." in asked(desk).note) == (None, True)
    desk.ends("t", AGAIN)
    correction = asked(desk).correction
    assert correction is not None
    assert correction.number == 1, "another answer, asked about for the first time"


def test_a_paused_task_is_asked_again_when_it_goes_on() -> None:
    desk = working()
    desk.command("t", Pause())
    desk.ends("t", FIRST)
    assert desk.is_held("t")
    assert is_wanted(desk.task("t"), desk.attempt(), asked(desk))


def test_the_end_of_a_correcting_turn_that_is_reported_twice_counts_once() -> None:
    desk = working()
    desk.ends("t", FIRST)
    (order,) = desk.pending()
    ended = desk.end_of(order, Succeeded("said"), Results("done"))
    desk.handle("t", ended)
    assert desk.phase() is Phase.COMPLETED
    assert [event.kind.value for event in desk.handle("t", ended)] == ["turn.ended", "reply.late"]
