"""Who is asked, who answers, which way new instructions take, and what a clock does to all that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailboxd.core.conversation import PATIENCE
from mailboxd.core.effects import RunTurn, Send, StopTurns
from mailboxd.core.events import Kind
from mailboxd.core.inputs import (
    Clarification,
    NewTask,
    Progress,
    Redispatch,
    Remedy,
    Reply,
    Retry,
    SenderTold,
    Steer,
    TurnEnded,
    Unblock,
    WorkForgotten,
)
from mailboxd.core.model import Origin, Policy, Spec
from mailboxd.core.outcomes import (
    Acknowledged,
    Answer,
    Failed,
    Outcome,
    Planned,
    Question,
    Results,
    Silence,
    Succeeded,
    Unknown,
)
from mailboxd.core.task_view import Limits
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import AttemptStatus, Phase, Turn, Waiting, WaitsFor, WeakSpec
from tests.core.desk import PUBLISH, Desk, again, child, plan, refused, with_policy

START = "2026-01-01T00:00:00.000Z"


def asks(desk: Desk, name: str = "t") -> None:
    desk.ends(name, Question("Which colour?"))


def beats(desk: Desk, seconds: float = 60.0) -> Desk:
    desk.configured(heartbeat=seconds)
    return desk


def given_to_bob(**policy: Any) -> Desk:
    desk = beats(Desk(with_policy(**policy)))
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    return desk


def kinds(desk: Desk, name: str, kind: str) -> int:
    return desk.kinds(name).count(kind)


# ---------------------------------------------------------------- questions


def test_a_peer_whose_question_comes_before_its_acknowledgement_gets_the_answer_as_a_message() -> None:
    """Another dispatch would be one that it already has, and nobody would answer it; town 2 found that."""
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Unknown("the gateway went away"))
    attempt = desk.attempt("t.a")
    assert attempt.waiting_for is Waiting.LOOKUP
    desk.handle("t.a", Reply("bob", Question("Which colour?"), attempt.id, attempt.reply_token))
    desk.ends("t.a", Results("Red."), agent="main")
    assert [(send.type, send.to, send.note) for send in desk.orders(Send)] == [("answer", "bob", "Red.")]
    assert not [turn for turn in desk.orders(RunTurn, "t.a") if turn.turn is Turn.DISPATCH]
    assert desk.attempt("t.a").waiting_for is Waiting.REPLY
    # the look-up ends when the answer is under way: it is late
    desk.ends("t.a", Failed("it never ran", started=False))
    assert desk.attempt("t.a").waiting_for is Waiting.REPLY
    desk.verify()


@pytest.mark.parametrize(
    ("agent", "to", "by_turn"), [("bob", "main", True), ("self", "operator", False), ("MAIN", "operator", False)]
)
def test_a_childs_question_goes_to_the_agent_that_gave_it_unless_that_one_asks(
    agent: str, to: str, by_turn: bool
) -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", agent)))
    asks(desk, "t.a")
    turns = desk.orders(RunTurn, "t.a")
    assert [(turn.turn, turn.agent, turn.note) for turn in turns] == ([(Turn.ANSWER, to, "Which colour?")] * by_turn)
    assert [(send.type, send.to) for send in desk.orders(Send)] == ([] if by_turn else [("question", to)])
    assert desk.attempt("t.a").question == "Which colour?"


@pytest.mark.parametrize(
    ("said", "note"),
    [
        (Results("Red."), "The answer of main to your question:\n> Red."),
        (Results("REPLY_SKIP"), "Your question will not be answered. Continue with what you have."),
        (Silence("REPLY_SKIP"), "Your question will not be answered. Continue with what you have."),
    ],
)
def test_what_the_agent_says_goes_into_the_session_of_the_question(said: Answer, note: str) -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    key = desk.attempt("t.a").session_key
    asks(desk, "t.a")
    desk.ends("t.a", said)
    turn = desk.orders(RunTurn, "t.a")[0]
    assert (turn.turn, turn.session_key, turn.note) == (Turn.DISPATCH, key, note)
    assert (desk.attempt("t.a").ordinal, desk.attempt("t.a").question) == (1, "")
    desk.verify()


def test_the_questions_of_all_attempts_count_together() -> None:
    """The one after the last is not passed on, and the agent continues without; the next opens the circuit."""
    desk = Desk(limits=Limits(questions=3))
    desk.give(plan=plan(child("a", "bob")))
    for _ in range(2):
        asks(desk, "t.a")
        desk.ends("t.a", Results("Red."))
    desk.ends("t.a", Failed("down"))
    desk.wait(100)
    asks(desk, "t.a")
    desk.ends("t.a", Results("Red."))
    assert (desk.attempt("t.a").ordinal, kinds(desk, "t.a", "question.asked")) == (2, 3)

    asks(desk, "t.a")
    assert kinds(desk, "t.a", "question.asked") == 3
    (turn,) = desk.orders(RunTurn, "t.a")
    assert turn.note == (
        "Your question will not be answered: the task has asked its 3 questions (limits.questions). "
        "Continue with what you have."
    )
    assert "was not passed on" in desk.task("t.a").reason
    asks(desk, "t.a")
    assert (desk.phase("t.a"), desk.attempt("t.a").status) == (Phase.CIRCUIT_OPEN, AttemptStatus.FAILED)
    assert "has asked its 3 questions (limits.questions) and asks again: Which colour?" in desk.task("t.a").reason

    desk.command("t.a", Unblock(Remedy.RETRY, "Red, whatever it asks."))
    desk.start()
    asks(desk, "t.a")
    assert kinds(desk, "t.a", "question.asked") == 4
    desk.verify()


def test_questions_about_the_specification_count_as_well() -> None:
    desk = Desk(with_policy(weak=WeakSpec.ASK), limits=Limits(questions=1))
    desk.give(spec=Spec("Paint it"))
    desk.handle("t", Clarification("boss", "It is red."))
    desk.start()
    asks(desk)
    assert kinds(desk, "t", "question.asked") == 1
    assert desk.orders(RunTurn, "t")[0].note.startswith("Your question will not be answered")


def test_a_peer_that_has_the_work_is_told_that_it_gets_no_answer() -> None:
    desk = Desk(limits=Limits(questions=0))
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    desk.handle("t.a", Reply("bob", Question("Which colour?")))
    assert [(send.type, send.to, send.note) for send in desk.orders(Send, "t.a")] == [("answer", "bob", "REPLY_SKIP")]
    assert desk.attempt("t.a").waiting_for is Waiting.REPLY
    desk.handle("t.a", Reply("bob", Question("Which colour?")))
    said = "the attempt failed: the task has asked its 0 questions (limits.questions) and asks again: Which colour?"
    assert (desk.phase("t.a"), desk.task("t.a").reason) == (Phase.CIRCUIT_OPEN, said)


@pytest.mark.parametrize("said", [Question("I?"), Failed("down"), Unknown("lost"), Acknowledged()])
def test_where_it_has_no_answer_the_operator_is_asked_and_the_attempt_waits(said: Answer | Outcome) -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    asks(desk, "t.a")
    desk.ends("t.a", said)
    assert [(send.to, send.note) for send in desk.orders(Send)] == [("operator", "Which colour?")]
    assert (desk.attempt("t.a").waiting_for, desk.task("t.a").failures) == (Waiting.ANSWER, 0)
    desk.handle("t.a", Clarification("operator", "Red."))
    assert desk.attempt("t.a").waiting_for is Waiting.TURN


def test_an_answer_of_a_turn_that_somebody_overtook_is_late_and_the_turn_is_stopped() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    asks(desk, "t.a")
    order = desk.orders(RunTurn, "t.a")[0]
    desk.handle("t.a", Clarification("operator", "Red."))
    assert desk.orders(StopTurns, "t.a")
    late = TurnEnded(order.turn, order.attempt_id, "main", Failed("stopped"), None, question=order.note)
    assert [event.kind.value for event in desk.handle("t.a", late)][-1] == "reply.late"
    assert desk.attempt("t.a").waiting_for is Waiting.TURN


@pytest.mark.parametrize("said", [Results("Red."), Failed("stopped")])
def test_the_answer_to_a_question_that_was_answered_elsewhere_is_none_to_the_next_one(said: Answer | Outcome) -> None:
    """Bob's operator was faster, and bob asks again while the turn over his first question runs."""
    desk = given_to_bob()
    for text in ("Which colour?", "Which size?"):
        desk.handle("t.a", Reply("bob", Question(text), desk.attempt("t.a").id))
    desk.ends("t.a", said, agent="main")
    assert (desk.attempt("t.a").waiting_for, desk.attempt("t.a").question) == (Waiting.ANSWER, "Which size?")
    assert not desk.orders(Send)
    desk.ends("t.a", Results("Large."), agent="main")
    assert [(send.type, send.to, send.note) for send in desk.orders(Send)] == [("answer", "bob", "Large.")]
    desk.verify()


def test_a_question_to_an_agent_has_a_lease_and_then_the_operator_is_asked_who_has_time() -> None:
    desk = Desk(with_policy(reply_within=60))
    desk.give(sender="boss")
    asks(desk)
    assert desk.task("t").due == plus(START, 60)
    desk.wait(60)
    assert [send.to for send in desk.orders(Send)] == ["boss", "operator"]
    assert (desk.task("t").due, desk.phase()) == (None, Phase.EXECUTING)
    desk.wait(10**6)
    assert (desk.phase(), len(desk.orders(Send))) == (Phase.EXECUTING, 2)
    desk.verify()


# ---------------------------------------------------------------- new instructions


def test_while_a_turn_runs_its_results_are_followed_by_another_turn_and_only_one() -> None:
    desk = Desk()
    desk.give()
    key = desk.attempt().session_key
    desk.handle("t", Steer("boss", "Blue."))
    desk.handle("t", Steer("boss", "Dark."))
    desk.ends("t", Results("red"))
    turn = desk.orders(RunTurn)[0]
    assert (turn.turn, turn.session_key, desk.task("t").result) == (Turn.WORK, key, "")
    assert "> Blue." in turn.note
    assert "> Dark." in turn.note
    desk.ends("t", Results("dark blue"))
    assert (desk.phase(), desk.task("t").result, desk.attempt().ordinal) == (Phase.COMPLETED, "dark blue", 1)
    desk.verify()


@pytest.mark.parametrize(
    ("given", "left"),
    [("Blue.\n\nDark.", ""), ("Blue.", "Dark."), ("", "Blue.\n\nDark."), ("Green.", "Blue.\n\nDark.")],
)
def test_what_was_given_in_the_running_turn_is_not_given_again(given: str, left: str) -> None:
    desk = Desk()
    desk.give()
    desk.handle("t", Steer("boss", "Blue."))
    desk.handle("t", Steer("boss", "Dark."))
    (order,) = desk.pending()
    desk.settles(order, replace(desk.end_of(order, Succeeded("said"), Results("dark blue")), heard=given))
    turns = desk.orders(RunTurn)
    assert [[word in turn.note for word in ("> Blue.", "> Dark.")] for turn in turns] == (
        [["Blue." in left, True]] if left else []
    )
    assert desk.phase() == (Phase.EXECUTING if left else Phase.COMPLETED)
    desk.verify()


def _waiting_for_children(desk: Desk) -> None:
    desk.ends("t", Planned(plan(child("a", "bob"))))


@pytest.mark.parametrize(
    ("before", "into"),
    [
        (lambda desk: None, "in the running turn if a tool follows, else in another turn of the same session"),
        (asks, "with the answer to its question"),
        (_waiting_for_children, "when the results are combined"),
        (lambda desk: desk.ends("t", Failed("down")), "in the next attempt, if there is one"),
    ],
)
def test_which_way_they_take_is_on_record(before: Any, into: str) -> None:
    desk = Desk()
    desk.give()
    before(desk)
    desk.handle("t", Steer("boss", "Blue."))
    (event,) = desk.events("t", Kind.STEERED)
    assert event.data["into"] == into
    assert "New instructions from boss:\n> Blue." in desk.task("t").spec.instructions


def test_who_has_acknowledged_is_told_and_who_acknowledges_later_too() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob"), child("b", "eve")))
    desk.ends("t.a", Acknowledged())
    for name in ("t.a", "t.b"):
        desk.handle(name, Steer("operator", "Blue."))
    desk.ends("t.b", Acknowledged())
    assert [(send.type, send.to) for send in desk.orders(Send)] == [("steer", "bob"), ("steer", "eve")]
    assert desk.attempt("t.b").steered == ""


# ---------------------------------------------------------------- signs of life


def test_a_peer_is_silent_after_three_missed_beats_and_that_is_noticed_once() -> None:
    desk = given_to_bob(reply_within=10_000)
    desk.wait(60 * PATIENCE - 1)
    assert kinds(desk, "t.a", "peer.silent") == 0
    desk.wait(1)
    desk.wait(5000)
    assert (kinds(desk, "t.a", "peer.silent"), desk.attempt("t.a").silent) == (1, True)
    desk.handle("t.a", Reply("bob", Progress("half"), desk.attempt("t.a").id))
    assert not desk.attempt("t.a").silent
    assert desk.task("t.a").due == plus(desk.clock.now(), 10_000)
    desk.wait(60 * PATIENCE)
    assert kinds(desk, "t.a", "peer.silent") == 2
    desk.verify()


def test_what_a_peer_waits_for_is_on_record_until_it_says_that_it_goes_on() -> None:
    desk = given_to_bob(reply_within=10_000)
    attempt = desk.attempt("t.a").id
    for waits_for, why in ((WaitsFor.PERSON, "its circuit is open\n" + "x" * 5000), (WaitsFor.NOTHING, "goes on")):
        desk.handle("t.a", Reply("bob", Progress(why, waits_for), attempt))
        found = desk.waits_at_peer("t.a")
        assert found == ({} if waits_for is WaitsFor.NOTHING else {attempt: (waits_for, "its circuit is open")})
    desk.handle("t.a", Reply("bob", Progress("half"), attempt))
    assert kinds(desk, "t.a", "peer.waits") == 2, "a heartbeat says nothing of it"
    desk.verify()


@pytest.mark.parametrize(
    ("sender", "attempt_id", "told"), [("boss", "theirs", 2), ("boss", None, 0), ("operator", "x", 0)]
)
def test_a_sender_is_told_if_it_is_a_peer_that_understands_it(sender: str, attempt_id: str | None, told: int) -> None:
    desk = Desk()
    desk.give(sender=sender, origin=Origin(attempt_id=attempt_id))
    desk.handle("t", SenderTold(WaitsFor.BUDGET, "is on hold"))
    desk.handle("t", SenderTold(WaitsFor.NOTHING, ""))
    sent = [(send.type, send.note, send.waits_for) for send in desk.orders(Send)]
    assert sent == [("progress", "is on hold", "budget"), ("progress", "goes on", "nothing")][:told]
    desk.verify()


def test_a_heartbeat_says_in_words_where_the_work_stands() -> None:
    desk = beats(Desk(with_policy(max_attempts=2)))
    desk.give(origin=Origin(attempt=1, attempt_id="theirs"))
    desk.ends("t", Failed("overloaded"))
    desk.wait(60)
    assert desk.orders(Send)[-1].note == "to be run: overloaded", "and not `execution_ready`"


@pytest.mark.parametrize(
    ("sender", "attempt_id", "beats_sent"), [("boss", "theirs", 2), ("boss", None, 0), ("operator", "theirs", 0)]
)
def test_only_a_mailboxd_peer_is_told_that_its_work_is_alive(
    sender: str, attempt_id: str | None, beats_sent: int
) -> None:
    desk = beats(Desk())
    new = NewTask("t", None, "t", sender, "t", Spec("t", "Do it.", expected_output="x"), desk.policy)
    desk.handle(None, replace(new, origin=Origin(attempt=1, attempt_id=attempt_id)))
    desk.start()
    said = 0
    for _ in range(5):
        desk.wait(30)
        for order in desk.pending(Send):
            assert isinstance(order.effect, Send)
            assert (order.effect.type, order.effect.to) == ("progress", sender)
            desk.finish(order)
            said += 1
    assert said == beats_sent


def test_no_sign_of_life_is_ordered_while_the_one_before_waits_to_be_handed_over() -> None:
    """They took the slots of all work, or came by the hundred when an agent could be reached again; game 301 met it."""
    desk = beats(Desk())
    new = NewTask("t", None, "t", "boss", "t", Spec("t", "Do it.", expected_output="x"), desk.policy)
    desk.handle(None, replace(new, origin=Origin(attempt=1, attempt_id="theirs")))
    desk.start()
    for _ in range(5):
        desk.wait(60)
    (waits,) = desk.pending(Send)
    desk.finish(waits)
    desk.start()
    (newer,) = desk.pending(Send)
    assert newer.at == desk.clock.now(), "what it says is so now"


# ---------------------------------------------------------------- deadlines

LATE = plus(START, 100)


def at_rest_in(phase: Phase) -> Desk:
    """A task with a deadline that rests in this phase."""
    gates = (
        {"gates": frozenset({phase.value}), "reviewers": ("rex",)} if phase.value.endswith(("gate", "review")) else {}
    )
    desk = Desk(with_policy(deadline=LATE, circuit_hold=9999, max_attempts=2, **gates))
    waits = phase is Phase.EXECUTION_READY
    spec = Spec(goal="", instructions="") if phase is Phase.SPEC_DRAFT else Spec("t", "Do it.", expected_output="It.")
    if phase is Phase.AWAITING_APPROVAL:
        spec = replace(spec, planned_actions=(PUBLISH,))
    desk.give("t", plan(child("a", "bob"), child("b", "bob", "a")) if waits else None, spec=spec)
    if phase in (Phase.SPEC_GATE, Phase.QUALITY_GATE, Phase.AWAITING_APPROVAL):
        desk.ends("t", Results("done"))
    if phase is Phase.CIRCUIT_OPEN:
        for _ in range(2):
            desk.ends("t", Failed("down"))
            desk.wait(20)
    return desk


@pytest.mark.parametrize(
    "phase", [phase for phase in Phase if not phase.is_terminal and phase is not Phase.READY_TO_RESUME]
)
def test_past_its_deadline_it_fails_from_every_phase(phase: Phase) -> None:
    desk = at_rest_in(phase)
    name = "t.b" if phase is Phase.EXECUTION_READY else "t"
    assert desk.phase(name) is phase
    desk.clock.text = LATE
    desk.start()
    assert desk.phase() is Phase.FAILED
    assert desk.task("t").error == f"its deadline, {LATE}, has passed"
    assert [(send.type, send.to) for send in desk.orders(Send) if send.type == "reply"] == [("reply", "boss")]
    if phase is Phase.EXECUTION_READY:
        assert desk.phases("t.a", "t.b") == ["cancelled", "cancelled"]
    desk.verify()


def test_a_peer_that_has_the_work_is_told_and_a_running_turn_is_stopped() -> None:
    desk = Desk(with_policy(deadline=LATE))
    desk.give(plan=plan(child("a", "bob"), child("b", "self")))
    desk.ends("t.a", Acknowledged())
    desk.wait(100)
    assert [send.to for send in desk.orders(Send) if send.type == "cancel"] == ["bob"]
    assert desk.orders(StopTurns, "t.b")


def test_work_that_arrives_too_late_fails_before_it_starts() -> None:
    desk = Desk()
    desk.clock.text = LATE
    desk.give(policy=Policy(deadline=LATE))
    assert (desk.phase(), desk.task("t").attempt) == (Phase.FAILED, 0)


@pytest.mark.parametrize("order", [Retry(), again(2), replace(again(2), deadline=plus(LATE, 500))])
def test_an_order_for_another_start_lifts_what_has_passed(order: Retry | Redispatch) -> None:
    desk = Desk(with_policy(deadline=LATE))
    desk.give()
    desk.wait(100)
    desk.handle("t", order)
    desk.start()
    assert desk.phase() is Phase.EXECUTING
    assert desk.task("t").policy.deadline == getattr(order, "deadline", None)


def test_ended_work_is_never_late() -> None:
    desk = Desk(with_policy(deadline=LATE))
    desk.give()
    desk.done("t")
    desk.wait(1000)
    assert desk.phase() is Phase.COMPLETED
    with refused(desk, "ended"):
        desk.handle("t", Steer("boss", "More."))


def test_after_a_question_of_the_synthesis_the_synthesis_continues() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.done("t.a")
    desk.ends("t", Question("Which currency?"))
    desk.handle("t", Clarification("boss", "EUR"))
    (turn,) = desk.orders(RunTurn, "t")
    assert (turn.turn, "EUR" in turn.note) == (Turn.SYNTHESIS, True)
    desk.plans("t", child("b", "bob", "a"))
    assert desk.phases("t", "t.b") == ["executing", "executing"]


FORGOT = "the host beta no longer knows of this work, which it had taken"


@pytest.mark.parametrize("answer", [Question("Which colour?"), None])
def test_work_that_its_peer_has_forgotten_waits_for_a_person_at_once_and_a_late_answer_counts(
    answer: Question | None,
) -> None:
    desk = given_to_bob()
    attempt = desk.attempt("t.a").id
    if answer:
        desk.handle("t.a", Reply("bob", answer, attempt))
    desk.handle("t.a", WorkForgotten("att_other", FORGOT))
    assert desk.phase("t.a") is Phase.EXECUTING, "another attempt's"
    desk.handle("t.a", WorkForgotten(attempt, FORGOT))
    assert (desk.phase("t.a"), desk.attempt("t.a").status) == (Phase.CIRCUIT_OPEN, AttemptStatus.UNKNOWN)
    assert FORGOT in desk.task("t.a").reason
    desk.handle("t.a", WorkForgotten(attempt, FORGOT))
    assert len(desk.events("t.a", Kind.CIRCUIT_OPENED)) == 1
    desk.handle("t.a", Reply("bob", Results("Red."), attempt))
    assert desk.phase("t.a") is Phase.COMPLETED
    desk.verify()


def test_work_that_may_be_repeated_and_was_forgotten_is_given_again() -> None:
    desk = given_to_bob(idempotent=True)
    desk.handle("t.a", WorkForgotten(desk.attempt("t.a").id, FORGOT))
    assert desk.phase("t.a") is Phase.EXECUTION_READY
    desk.verify()


def test_work_whose_reply_is_here_cannot_be_forgotten() -> None:
    desk = given_to_bob()
    attempt = desk.attempt("t.a").id
    desk.handle("t.a", Reply("bob", Results("Red."), attempt))
    desk.handle("t.a", WorkForgotten(attempt, FORGOT))
    assert desk.phase("t.a") is Phase.COMPLETED
    desk.verify()
