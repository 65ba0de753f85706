"""Attempts: a fence and a budget, late news, unknown outcomes, sessions (protocol sections 2, 4 and 7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.effects import LookUp, RunTurn, Send
from mailboxd.core.events import Kind
from mailboxd.core.explain.describe import describe
from mailboxd.core.inputs import (
    Cancel,
    Clarification,
    Progress,
    Remedy,
    Reply,
    Retry,
    Start,
    TimePassed,
    TurnEnded,
    Unblock,
)
from mailboxd.core.model import Policy, Spec
from mailboxd.core.outcomes import (
    Aborted,
    Acknowledged,
    Answer,
    Failed,
    Failure,
    Outcome,
    Planned,
    Question,
    Results,
    Succeeded,
    Unclear,
    Unknown,
)
from mailboxd.core.vocabulary import MAY_CONTINUE, AttemptStatus, Gate, Phase, Turn, Verdict, Waiting
from tests.core.desk import DONE, PUBLISH, Desk, again, child, plan, refused, with_policy


def given_to_bob(policy: Policy | None = None) -> Desk:
    """A task with one child that is with the peer bob, who has acknowledged it."""
    desk = Desk(policy)
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    return desk


def reply(desk: Desk, answer: Answer | Progress, name: str = "t.a", **said: object) -> Reply:
    attempt = desk.attempt(name)
    fields: dict[str, object] = {"attempt_id": attempt.id, "reply_token": attempt.reply_token}
    return Reply("bob", answer, **{**fields, **said})  # type: ignore[arg-type]


# ---------------------------------------------------------------- a peer's last word


def test_a_permanent_failure_of_a_peer_ends_the_task_without_a_further_attempt() -> None:
    desk = given_to_bob(with_policy(max_attempts=3))
    desk.handle("t.a", reply(desk, Failure("attempts used up", permanent=True)))
    assert desk.phases("t.a", "t") == ["failed", "failed"]
    assert "attempts used up (retrying cannot help)" in desk.task("t.a").reason
    assert desk.orders(Send, "t.a") == []


@pytest.mark.parametrize("said", [Failure("busy"), Failure("busy", permanent=False)])
def test_a_failure_that_does_not_say_so_is_retried(said: Failure) -> None:
    desk = given_to_bob(with_policy(max_attempts=3))
    desk.handle("t.a", reply(desk, said))
    assert desk.phases("t.a", "t") == ["execution_ready", "executing"]


# ---------------------------------------------------------------- budget and fence


def test_a_failed_attempt_is_repeated_after_a_pause_and_the_reason_goes_along() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Failed("overloaded"))
    assert (desk.phase(), desk.task("t").failures) == (Phase.EXECUTION_READY, 1)
    assert "overloaded" in desk.task("t").findings
    desk.wait(9)
    assert desk.phase() is Phase.EXECUTION_READY
    desk.wait(1)
    assert (desk.phase(), desk.attempt().ordinal) == (Phase.EXECUTING, 2)


def test_when_the_attempts_are_used_up_the_circuit_opens_with_a_summary() -> None:
    desk = Desk(with_policy(max_attempts=3))
    desk.give()
    for _ in range(3):
        desk.ends("t", Failed("overloaded"))
        desk.wait(1000)
    task = desk.task("t")
    assert (task.phase, task.circuit_open, task.attempt) == (Phase.CIRCUIT_OPEN, True, 3)
    assert task.reason == "3 attempts failed; the last: overloaded"


def test_max_attempts_1_fails_fast() -> None:
    desk = Desk(with_policy(max_attempts=1))
    desk.give()
    desk.ends("t", Failure("no"))
    assert desk.phase() is Phase.FAILED


def test_success_gives_the_budget_back_and_rework_is_no_failure() -> None:
    desk = Desk(with_policy(max_attempts=2, gates=frozenset({Gate.SPEC_GATE}), reviewers=("rex",)))
    desk.give()
    desk.ends("t", Failed("no"))
    desk.wait(100)
    desk.done("t")
    desk.reviews("t", "rex", Verdict.CHANGES_REQUESTED)
    task = desk.task("t")
    assert (task.attempt, task.failures, task.rework) == (3, 0, 1)
    desk.ends("t", Failed("no"))
    assert desk.phase() is Phase.EXECUTION_READY


def test_an_attempt_that_never_reached_its_agent_costs_no_budget_only_time() -> None:
    desk = Desk(with_policy(max_attempts=2))
    desk.give()
    for stalls, pause in ((1, 10), (2, 20), (3, 40)):
        desk.ends("t", Failed("connection refused", started=False))
        task = desk.task("t")
        assert (task.phase, task.failures, task.stalls) == (Phase.EXECUTION_READY, 0, stalls)
        desk.wait(pause - 1)
        assert desk.phase() is Phase.EXECUTION_READY
        desk.wait(1)
    desk.ends("t", Failed("overloaded"))
    assert (desk.task("t").failures, desk.task("t").stalls) == (1, 0)


def test_a_server_that_names_a_pause_is_given_it() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Failed("rate limit", retry_after=500.0))
    desk.wait(499)
    assert desk.phase() is Phase.EXECUTION_READY
    desk.wait(1)
    assert desk.phase() is Phase.EXECUTING


def test_the_operator_need_not_wait_for_the_backoff() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Failed("overloaded"))
    desk.command("t", Retry())
    desk.start()
    assert desk.phase() is Phase.EXECUTING


def test_an_answer_that_says_so_is_a_failed_attempt() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Failure("no"))
    assert (desk.phase(), desk.task("t").failures) == (Phase.EXECUTION_READY, 1)


# ---------------------------------------------------------------- what comes late


def test_a_turn_of_an_older_attempt_is_recorded_and_changes_nothing() -> None:
    desk = Desk()
    desk.give()
    old = desk.attempt().id
    desk.ends("t", Failed("overloaded"))
    desk.wait(100)
    events = desk.handle("t", TurnEnded(Turn.WORK, old, "main", Succeeded("late"), Results("late")))
    assert [event.kind.value for event in events] == ["turn.ended", "reply.late"]
    assert (desk.phase(), desk.task("t").result, desk.attempt().ordinal) == (Phase.EXECUTING, "", 2)


def test_a_turn_that_ends_while_its_attempt_waits_for_children_is_recorded_and_changes_nothing() -> None:
    desk = Desk()
    desk.give()
    desk.plans("t", child("a"))
    assert desk.attempt().waiting_for is Waiting.CHILDREN
    events = desk.handle("t", TurnEnded(Turn.WORK, desk.attempt().id, "main", Succeeded("late"), Results("late")))
    assert [event.kind.value for event in events] == ["turn.ended", "reply.late"]
    assert (desk.phase(), desk.task("t").result) == (Phase.EXECUTING, "")


def test_a_reply_to_an_older_attempt_is_recorded_and_changes_nothing() -> None:
    desk = given_to_bob()
    old = desk.attempt("t.a").id
    desk.handle("t.a", reply(desk, Failure("no")))
    desk.wait(100)
    events = desk.handle("t.a", Reply("bob", Results("late"), old, older_attempt=True))
    assert [event.kind.value for event in events] == ["reply.late"]
    assert desk.phase("t.a") is Phase.EXECUTING


def test_a_reply_that_names_an_older_attempt_by_its_number_only_is_late_too() -> None:
    desk = given_to_bob()
    desk.handle("t.a", reply(desk, Failure("no")))
    desk.wait(100)
    events = desk.handle("t.a", Reply("bob", Results("late"), ordinal=1))
    assert [event.kind.value for event in events] == ["reply.late"]
    assert desk.phase("t.a") is Phase.EXECUTING


@pytest.mark.parametrize("outcome", [Failed("cut"), Aborted("SIGTERM"), Unknown("lost")])
def test_once_a_peer_has_acknowledged_by_message_the_end_of_the_call_does_not_give_the_work_out_again(
    outcome: Outcome,
) -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.handle("t.a", reply(desk, Acknowledged()))
    events = desk.ends("t.a", outcome)
    assert [event.kind.value for event in events if event.kind is not Kind.TURN_ENDED] == ["reply.late"]
    assert (desk.phase("t.a"), desk.attempt("t.a").waiting_for) == (Phase.EXECUTING, Waiting.REPLY)
    assert desk.orders(RunTurn) == []


@pytest.mark.parametrize("answer", [Planned(plan(child("b"))), Question("Which?")])
def test_an_acknowledgement_that_comes_after_the_plan_or_the_question_is_late(answer: Answer) -> None:
    desk = given_to_bob()
    desk.handle("t.a", reply(desk, answer))
    before = desk.attempt("t.a").waiting_for
    desk.handle("t.a", reply(desk, Acknowledged()))
    assert desk.attempt("t.a").waiting_for is before


def test_a_late_answer_closes_the_circuit_that_its_own_absence_opened() -> None:
    desk = given_to_bob(with_policy(reply_within=60))
    desk.wait(60)
    assert (desk.phase("t.a"), desk.task("t.a").failures) == (Phase.CIRCUIT_OPEN, 1)
    desk.handle("t.a", reply(desk, Results("here it is")))
    assert (desk.phase("t.a"), desk.task("t.a").result) == (Phase.COMPLETED, "here it is")
    assert (desk.attempt("t.a").ordinal, desk.attempt("t.a").status) == (1, AttemptStatus.SUCCEEDED)


@pytest.mark.parametrize("said", [Failure("it broke"), Question("Which one?")])
def test_any_late_answer_says_how_the_attempt_stands(said: Answer) -> None:
    desk = given_to_bob(with_policy(reply_within=60, max_attempts=3))
    desk.wait(60)
    desk.handle("t.a", reply(desk, said))
    task = desk.task("t.a")
    assert not task.circuit_open
    assert (task.phase, task.failures) == (
        (Phase.EXECUTION_READY, 1) if isinstance(said, Failure) else (Phase.EXECUTING, 0)
    )


@pytest.mark.parametrize("said", [Progress("still at it"), Acknowledged(), Unclear(("no YAML",), "x")])
def test_what_is_no_answer_leaves_the_circuit_open(said: Answer | Progress) -> None:
    desk = given_to_bob(with_policy(reply_within=60))
    desk.wait(60)
    desk.handle("t.a", reply(desk, said))
    assert desk.phase("t.a") is Phase.CIRCUIT_OPEN


@pytest.mark.parametrize("remedy", [Remedy.FAIL, Remedy.RETRY])
def test_a_late_answer_changes_nothing_about_what_a_person_has_decided_meanwhile(remedy: Remedy) -> None:
    desk = given_to_bob(with_policy(reply_within=60))
    desk.wait(60)
    late = reply(desk, Results("here it is"))
    desk.command("t.a", Unblock(remedy))
    decided = desk.phase("t.a")
    desk.handle("t.a", late)
    assert desk.phase("t.a") is decided
    assert desk.task("t.a").result == ""


def test_a_circuit_that_something_else_opened_waits_for_a_person_although_a_late_answer_comes() -> None:
    desk = given_to_bob(with_policy(max_attempts=2))
    for _ in range(2):
        late = reply(desk, Results("here it is"))
        desk.handle("t.a", reply(desk, Failure("it broke")))
        if desk.phase("t.a") is Phase.EXECUTION_READY:
            desk.wait(3600)
            desk.start()
            desk.ends("t.a", Acknowledged())
    assert desk.phase("t.a") is Phase.CIRCUIT_OPEN
    desk.handle("t.a", late)
    assert desk.phase("t.a") is Phase.CIRCUIT_OPEN
    desk.command("t.a", Unblock(Remedy.ACCEPT))
    assert (desk.phase("t.a"), desk.task("t.a").result) == (Phase.COMPLETED, "here it is")


def test_the_late_answer_of_a_turn_closes_its_circuit_too() -> None:
    desk = Desk(with_policy(max_attempts=1, idempotent=False))
    desk.give()
    attempt = desk.attempt()
    lost = TurnEnded(Turn.WORK, attempt.id, attempt.executor, Unknown("gone", looked_up=True))
    desk.handle("t", lost)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    desk.handle("t", replace(lost, outcome=Succeeded("Done."), answer=Results("Done.")))
    assert (desk.phase(), desk.task("t").result) == (Phase.COMPLETED, "Done.")


def test_a_peer_that_may_still_have_the_work_is_told_when_it_may_not_be_tried_again() -> None:
    desk = given_to_bob(with_policy(reply_within=60, max_attempts=1, idempotent=True))
    desk.wait(60)
    assert desk.phase("t.a") is Phase.FAILED
    (told,) = desk.orders(Send, "t.a")
    assert (told.type, told.to, told.attempt) == ("cancel", "bob", 1)


@pytest.mark.parametrize("ends", ["fail", "hold"])
def test_a_peer_that_may_still_have_the_work_is_told_when_an_open_circuit_ends_it(ends: str) -> None:
    desk = given_to_bob(with_policy(reply_within=60, circuit_hold=600))
    desk.wait(60)
    if ends == "fail":
        desk.command("t.a", Unblock(Remedy.FAIL))
    else:
        desk.wait(600)
    assert desk.phase("t.a") is Phase.FAILED
    (told,) = desk.orders(Send, "t.a")
    assert (told.type, told.to, told.attempt) == ("cancel", "bob", 1)


def test_a_peer_that_may_still_have_the_work_is_told_when_an_earlier_result_is_accepted() -> None:
    desk = given_to_bob(with_policy(reply_within=60, gates=frozenset({Gate.QUALITY_GATE}), reviewers=("rex",)))
    desk.handle("t.a", reply(desk, Results("good")))
    desk.reviews("t.a", "rex", Verdict.CHANGES_REQUESTED)
    desk.ends("t.a", Acknowledged())
    desk.wait(60)
    desk.command("t.a", Unblock(Remedy.ACCEPT))
    assert (desk.phase("t.a"), desk.task("t.a").result) == (Phase.COMPLETED, "good")
    (told,) = desk.orders(Send, "t.a")
    assert (told.type, told.to, told.attempt) == ("cancel", "bob", 2)


def test_a_peer_that_has_said_how_it_ended_is_not_told_of_the_end_of_an_open_circuit() -> None:
    desk = given_to_bob(with_policy(max_attempts=2))
    desk.handle("t.a", reply(desk, Failure("no")))
    desk.wait(100)
    desk.handle("t.a", reply(desk, Failure("no")))
    desk.command("t.a", Unblock(Remedy.FAIL))
    assert desk.phase("t.a") is Phase.FAILED
    assert desk.orders(Send, "t.a") == []


def test_a_late_reply_does_not_replace_a_result_that_was_judged() -> None:
    desk = Desk(with_policy(gates=frozenset({Gate.SPEC_GATE}), reviewers=("rex",)))
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Results("judged"))
    desk.reviews("t.a", "rex", Verdict.BLOCKED)
    desk.handle("t.a", reply(desk, Results("another")))
    assert desk.task("t.a").result == "judged"


# ---------------------------------------------------------------- who may say so


def test_a_reply_is_taken_only_from_the_agent_the_attempt_was_given_to() -> None:
    desk = given_to_bob()
    with refused(desk, "wrong-agent"):
        desk.handle("t.a", Reply("eve", DONE, desk.attempt("t.a").id))


def test_agents_are_the_same_in_any_case() -> None:
    desk = given_to_bob()
    desk.handle("t.a", Reply("BOB", DONE, desk.attempt("t.a").id))
    assert desk.phase("t.a") is Phase.COMPLETED


def test_an_attempt_that_never_was_is_refused() -> None:
    desk = given_to_bob()
    with refused(desk, "stale-attempt"):
        desk.handle("t.a", reply(desk, DONE, attempt_id="att_invented"))


def test_a_wrong_token_is_refused() -> None:
    desk = given_to_bob()
    with refused(desk, "stale-attempt"):
        desk.handle("t.a", reply(desk, DONE, reply_token="guessed"))


def test_a_token_may_be_left_out_until_it_was_echoed_once() -> None:
    desk = given_to_bob()
    desk.handle("t.a", reply(desk, Progress("half"), reply_token=None))
    desk.handle("t.a", reply(desk, Progress("more")))
    with refused(desk, "stale-attempt"):
        desk.handle("t.a", reply(desk, DONE, reply_token=None))
    desk.handle("t.a", reply(desk, DONE))
    assert desk.phase("t.a") is Phase.COMPLETED


def test_work_of_our_own_takes_no_result_by_message() -> None:
    desk = Desk()
    desk.give()
    with refused(desk, "not-given-away"):
        desk.handle("t", Reply("main", Results("forged"), desk.attempt().id))


# ---------------------------------------------------------------- leases and questions


def test_progress_extends_the_lease_of_a_peer() -> None:
    desk = given_to_bob(with_policy(reply_within=100))
    desk.wait(99)
    desk.handle("t.a", reply(desk, Progress("half way")))
    desk.wait(99)
    assert desk.phase("t.a") is Phase.EXECUTING
    desk.wait(1)
    assert desk.phase("t.a") is Phase.CIRCUIT_OPEN
    assert desk.task("t.a").reason == "outcome unknown: bob has not replied within 100 s"


def test_a_lease_whose_reason_is_gone_ends_quietly() -> None:
    desk = given_to_bob(with_policy(reply_within=100))
    desk.handle("t.a", reply(desk, Question("Which?")))
    desk.wait(100)
    assert (desk.phase("t.a"), desk.task("t.a").due) == (Phase.EXECUTING, None)


def test_nobody_is_too_late_whose_word_may_lie_unread() -> None:
    desk = given_to_bob(with_policy(reply_within=100))
    before = desk.clock.now()
    desk.clock.advance(1000)
    assert not desk.handle("t.a", TimePassed(before))
    assert not desk.handle("t.a", TimePassed(""))
    desk.handle("t.a", TimePassed(desk.clock.now()))
    assert desk.phase("t.a") is Phase.CIRCUIT_OPEN


def test_a_question_goes_to_the_sender_and_its_answer_into_the_same_session() -> None:
    desk = Desk()
    desk.give()
    session = desk.attempt().session_key
    desk.ends("t", Question("Which colour?"))
    (asked,) = desk.orders(Send)
    assert (asked.type, asked.to, asked.note) == ("question", "boss", "Which colour?")
    assert desk.task("t").reason == "asked boss: Which colour?"
    desk.handle("t", Clarification("boss", "Red."))
    (turn,) = desk.orders(RunTurn)
    said = "The answer of boss to your question:\n> Red."
    assert (turn.session_key, turn.note, turn.attempt_id) == (session, said, desk.attempt().id)


def test_an_answer_counts_only_from_whoever_was_asked() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Question("Which colour?"))
    with refused(desk, "wrong-agent"):
        desk.handle("t", Clarification("eve", "Black."))
    desk.handle("t", Clarification("operator", "Red."))
    with refused(desk, "no-question"):
        desk.handle("t", Clarification("operator", "Red."))


# ---------------------------------------------------------------- unknown outcomes and sessions


def test_an_unknown_outcome_is_looked_up_before_anything_is_repeated() -> None:
    desk = Desk(with_policy(idempotent=True))
    desk.give()
    session = desk.attempt().session_key
    desk.ends("t", Unknown("the call was killed", run_id="r1"))
    (order,) = desk.orders()
    assert isinstance(order, LookUp)
    assert (order.session_key, order.run_id, order.attempt_id) == (session, "r1", desk.attempt().id)
    assert (desk.phase(), desk.attempt().waiting_for) == (Phase.EXECUTING, Waiting.LOOKUP)


def test_a_lookup_that_finds_the_result_is_the_result() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Unknown("killed"))
    desk.ends("t", Results("it had worked"))
    assert (desk.phase(), desk.task("t").result, desk.task("t").attempt) == (Phase.COMPLETED, "it had worked", 1)


def unknown(idempotent: bool) -> Desk:
    desk = Desk(with_policy(idempotent=idempotent))
    desk.give()
    desk.ends("t", Unknown("killed"))
    desk.ends("t", Unknown("the ledger cannot tell", looked_up=True))
    desk.wait(100)
    return desk


def test_work_that_is_not_idempotent_is_never_repeated_after_an_unknown_outcome() -> None:
    desk = unknown(idempotent=False)
    assert (desk.phase(), desk.attempt().status) == (Phase.CIRCUIT_OPEN, AttemptStatus.UNKNOWN)
    assert desk.orders(RunTurn) == []


def test_idempotent_work_is_repeated_in_the_same_session() -> None:
    desk = unknown(idempotent=True)
    task = desk.task("t")
    first = desk.attempt("t", 1)
    assert (task.phase, task.attempt, first.status) == (Phase.EXECUTING, 2, AttemptStatus.UNKNOWN)
    assert desk.attempt().session_key == first.session_key


def test_work_whose_lost_turn_used_no_tool_is_repeated_in_the_same_session() -> None:
    """It does nothing twice there, whatever OpenClaw may still do of itself: so nobody has to decide."""
    desk = Desk()
    desk.give()
    desk.ends("t", Unknown("killed"))
    desk.ends("t", Unknown("the gateway went away", looked_up=True, harmless=True))
    desk.wait(1000)
    first = desk.attempt("t", 1)
    assert (desk.phase(), desk.task("t").failures, first.status) == (Phase.EXECUTING, 1, AttemptStatus.UNKNOWN)
    assert desk.attempt().session_key == first.session_key
    assert "report its result only" in desk.task("t").findings


def test_when_a_person_repeats_it_the_session_is_the_same_too() -> None:
    desk = unknown(idempotent=False)
    session = desk.attempt().session_key
    desk.command("t", Unblock(Remedy.RETRY))
    desk.start()
    assert desk.attempt().ordinal == 2
    assert desk.attempt().session_key == session


def test_a_proven_end_opens_a_new_session() -> None:
    desk = Desk()
    desk.give()
    session = desk.attempt().session_key
    desk.ends("t", Failed("overloaded"))
    desk.wait(100)
    assert desk.attempt().session_key != session


@pytest.mark.parametrize("between", [Failed("connection refused", started=False), Aborted("SIGTERM")])
def test_what_never_reached_the_agent_proves_nothing_about_the_unknown_attempt_before_it(between: Outcome) -> None:
    desk = unknown(idempotent=True)
    session = desk.attempt().session_key
    desk.ends("t", between)
    desk.wait(1000)
    assert desk.attempt().ordinal == 3
    assert desk.attempt().session_key == session


def test_two_attempts_of_one_session_are_never_under_way_at_once() -> None:
    desk = Desk()
    desk.give()
    with refused(desk, "not-ready"):
        desk.handle("t", Start())


# ---------------------------------------------------------------- given out again


def test_ended_work_that_is_dispatched_again_gets_a_new_attempt_with_the_findings() -> None:
    desk = Desk()
    desk.give()
    desk.done("t")
    desk.handle("t", again(2))
    desk.start()
    task = desk.task("t")
    assert (task.phase, task.attempt, task.findings) == (Phase.EXECUTING, 2, "It was too short.")
    assert (task.origin.attempt_id, task.spec.instructions) == ("theirs-2", "Better.")


def test_live_work_that_is_dispatched_again_goes_on_and_answers_the_newer_attempt() -> None:
    desk = Desk()
    desk.give()
    desk.handle("t", again(2))
    assert (desk.task("t").attempt, desk.task("t").origin.attempt_id) == (1, "theirs-2")
    assert len(desk.orders(RunTurn)) == 1


def test_a_failed_tree_that_is_dispatched_again_runs_its_failed_part_again() -> None:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("a"), child("b", "bob"), child("c", "self", "b")))
    desk.done("t.a")
    desk.ends("t.b", Failure("no"))
    assert desk.phases("t", "t.a", "t.b", "t.c") == ["failed", "completed", "failed", "cancelled"]
    desk.handle("t", again(2))
    desk.start()
    assert desk.phases("t", "t.a", "t.b", "t.c") == ["executing", "completed", "executing", "execution_ready"]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Aborted("the task was cancelled"), "t: the turn of main was stopped: the task was cancelled"),
        (Failed("overloaded"), "t: the turn of main, for which nothing waits any more, failed: overloaded"),
        (Succeeded("late"), "t: main said too late, so it changes nothing: results: late"),
    ],
)
def test_a_turn_of_cancelled_work_says_how_it_ended(outcome: Outcome, said: str) -> None:
    desk = Desk()
    desk.give()
    (order,) = desk.orders(RunTurn)
    desk.command("t", Cancel("operator"))
    events = desk.handle("t", TurnEnded(order.turn, order.attempt_id, "main", outcome))
    assert describe(events[-1], "t") == said
    assert [event.kind.value for event in events] == ["turn.ended", "reply.late"]


@pytest.mark.parametrize("looked_up", [True, False])
def test_a_turn_of_cancelled_work_that_may_go_on_is_noted_with_its_attempt(looked_up: bool) -> None:
    desk = Desk()
    desk.give()
    (order,) = desk.orders(RunTurn)
    desk.command("t", Cancel("operator"))
    error = f"the task was cancelled; it had to be killed, and {MAY_CONTINUE}"
    unknown = TurnEnded(order.turn, order.attempt_id, "main", Unknown(error, looked_up=looked_up))
    said = [describe(event, "t") for event in desk.handle("t", unknown)]
    assert any(error in one for one in said)
    assert not any("said too late" in one for one in said)
    assert (desk.attempt().error_summary, desk.attempt().status) == (error, AttemptStatus.ABORTED)


def test_cancelled_work_that_is_dispatched_again_stays_cancelled() -> None:
    desk = Desk()
    desk.give()
    desk.command("t", Cancel("operator"))
    desk.handle("t", again(2))
    assert desk.phase() is Phase.CANCELLED


def test_work_that_its_sender_cancelled_and_dispatches_again_comes_back_with_what_was_below_it() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a"), child("b", "self", "a")))
    desk.handle("t", Cancel("boss"))
    assert desk.phases("t", "t.a", "t.b") == ["cancelled"] * 3
    with refused(desk, "cancelled"):
        desk.command("t", Retry())
    desk.handle("t", again(2))
    desk.start()
    assert desk.phases("t", "t.a", "t.b") == ["executing", "executing", "execution_ready"]


def test_planned_actions_are_those_of_the_spec_and_of_the_latest_result() -> None:
    desk = Desk()
    archive = replace(PUBLISH, id="archive", argv=("make", "archive"))
    desk.give(spec=Spec("t", "Do it.", expected_output="It.", planned_actions=(archive,)))
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    assert (desk.phase(), desk.task("t").planned_actions) == (Phase.AWAITING_APPROVAL, (archive, PUBLISH))


def test_what_rework_no_longer_plans_is_no_longer_asked_for() -> None:
    desk = Desk(with_policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("rex",)))
    desk.give()
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    desk.reviews("t", "rex", Verdict.CHANGES_REQUESTED)
    desk.done("t")
    desk.reviews("t", "rex", Verdict.APPROVED)
    assert desk.phase() is Phase.COMPLETED
