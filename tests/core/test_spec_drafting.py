"""A weak spec: who mends it, in which order, and that nothing executes before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.effects import LookUp, RunCheck, RunTurn, Send, StopTurns
from mailboxd.core.events import Role
from mailboxd.core.inputs import Cancel, CheckEnded, Clarification, Retry, SpecWritten, Steer, TimePassed
from mailboxd.core.model import Check, Policy, Spec
from mailboxd.core.outcomes import Drafted, Failed, Outcome, Permanence, Unclear, Unknown
from mailboxd.core.vocabulary import CheckVerdict, Gate, Join, Phase, Turn, Verdict, WeakSpec
from mailboxd.errors import Refused
from tests.core.desk import DONE, Desk, again, child, plan, refused, with_policy

DRAFT, ASK = with_policy(weak=WeakSpec.DRAFT), with_policy(weak=WeakSpec.ASK)
BARE = Spec("haiku", instructions="Write one.")
CHECK = Check("made", file="made.txt")
CHECKED = replace(BARE, expected_output="haiku.txt", checks=(CHECK, Check("more", file="more.txt")))
GOOD = Drafted(Spec("", expected_output="haiku.txt", acceptance_criteria=("17 syllables",)))


def weak_task(policy: Policy, spec: Spec = BARE) -> Desk:
    desk = Desk(policy)
    desk.give(spec=spec)
    return desk


def drafts(desk: Desk) -> list[RunTurn]:
    return [turn for turn in desk.orders(RunTurn) if turn.turn is Turn.DRAFT]


def test_what_is_derived_by_default_needs_nobody() -> None:
    desk = weak_task(with_policy())
    assert desk.phase() is Phase.EXECUTING


def test_a_weak_spec_is_drafted_by_the_own_agent_in_a_session_of_its_own() -> None:
    desk = weak_task(DRAFT)
    (turn,) = drafts(desk)
    assert (turn.agent, desk.phase()) == ("main", Phase.SPEC_DRAFT)
    assert turn.session_key.endswith("-draft")
    desk.ends("t", GOOD)
    assert desk.phase() is Phase.EXECUTING
    assert desk.task("t").spec.acceptance_criteria == ("17 syllables",)


def test_what_its_sender_wrote_stands() -> None:
    spec = Spec("haiku", instructions="Write one.", expected_output="fine", scope_out="rhymes")
    desk = weak_task(DRAFT, spec)
    said = Spec(
        "another", instructions="Do more.", expected_output="file", acceptance_criteria=("x y",), scope_out="all"
    )
    desk.ends("t", Drafted(said))
    mended = desk.task("t").spec
    assert (mended.goal, mended.instructions, mended.scope_out) == ("haiku", "Write one.", "rhymes")
    assert (mended.expected_output, mended.acceptance_criteria) == ("fine", ("x y",))


@pytest.mark.parametrize("said", [Drafted(Spec("", risks="none")), Unclear(("no section",), "hm"), DONE])
def test_one_draft_is_made_and_what_is_still_weak_is_asked(said: Drafted | Unclear) -> None:
    desk = weak_task(DRAFT)
    if isinstance(said, Drafted):
        desk.ends("t", said)
    else:
        desk.insists("t", said)
    assert drafts(desk) == []
    (question,) = desk.orders(Send)
    assert (question.type, question.to) == ("question", "boss")
    assert "no acceptance criterion" in desk.task("t").reason


def test_a_draft_that_fails_is_repeated_after_a_pause_in_the_same_session() -> None:
    desk = weak_task(replace(DRAFT, max_attempts=3))
    keys = set()
    for failure in (Failed("overloaded"), Failed("no gateway", started=False), Failed("overloaded")):
        keys |= {turn.session_key for turn in drafts(desk)}
        desk.ends("t", failure)
        assert drafts(desk) == []
        desk.wait(1000)
    desk.ends("t", GOOD)
    assert desk.phase() is Phase.EXECUTING
    assert len(keys) == 1


@pytest.mark.parametrize("end", [Failed("overloaded"), Unknown("lost", looked_up=True)])
def test_after_max_attempts_failures_its_sender_is_asked(end: Outcome) -> None:
    desk = weak_task(replace(DRAFT, max_attempts=2))
    for _ in range(2):
        desk.ends("t", end)
        desk.wait(1000)
    assert drafts(desk) == []
    assert [send.type for send in desk.orders(Send)] == ["question"]
    assert desk.task("t").failures == 0


def test_a_permanent_failure_is_not_repeated() -> None:
    desk = weak_task(DRAFT)
    desk.ends("t", Failed("no such model", Permanence.PERMANENT))
    assert [send.type for send in desk.orders(Send)] == ["question"]


def test_an_unknown_outcome_of_a_draft_is_looked_up_first() -> None:
    desk = weak_task(DRAFT)
    desk.ends("t", Unknown("lost", run_id="run"))
    (lookup,) = desk.orders(LookUp)
    assert (lookup.turn, lookup.run_id) == (Turn.DRAFT, "run")
    desk.ends("t", GOOD)
    assert desk.phase() is Phase.EXECUTING


def test_the_sender_answers_and_anybody_else_is_refused() -> None:
    desk = weak_task(ASK)
    with refused(desk, "wrong-agent"):
        desk.handle("t", Clarification("eve", "- hers"))
    desk.handle("t", Clarification("boss", "- two pages\n- a title"))
    desk.start()
    assert desk.phase() is Phase.EXECUTING
    assert desk.task("t").spec.acceptance_criteria == ("two pages", "a title")
    with refused(desk, "no-question"):
        desk.handle("t", Clarification("boss", "more"))


def test_an_open_question_about_the_spec_is_put_to_the_attempt_that_takes_over() -> None:
    desk = weak_task(ASK)
    (first,) = desk.orders(Send)
    desk.handle("t", again(2))
    _, second = desk.orders(Send)
    assert (second.type, second.to, second.note) == ("question", "boss", first.note)
    assert (second.message_id == first.message_id, desk.task("t").mending.questions) == (False, 1)
    desk.handle("t", Clarification("boss", "- 17 syllables"))
    assert desk.phase() is Phase.EXECUTION_READY


def test_without_any_words_the_answer_is_the_work_itself() -> None:
    desk = weak_task(with_policy(), Spec(""))
    assert desk.phase() is Phase.SPEC_DRAFT
    desk.handle("t", Clarification("boss", "Write a haiku about rain"))
    desk.start()
    assert desk.phase() is Phase.EXECUTING
    assert desk.task("t").spec.goal == "Write a haiku about rain"


def test_an_answer_that_is_weak_too_is_asked_about_again_five_times_in_all() -> None:
    desk = weak_task(ASK)
    for turn in range(1, 6):
        assert len(desk.orders(Send)) == turn
        desk.handle("t", Clarification("boss", "good quality"))
    assert len(desk.orders(Send)) == 5
    assert desk.phase() is Phase.SPEC_DRAFT
    with refused(desk, "no-question"):
        desk.handle("t", Clarification("boss", "two pages"))
    desk.handle(
        "t", SpecWritten(replace(desk.task("t").spec, acceptance_criteria=("two pages",))), Role.OPERATOR, "ann"
    )
    desk.start()
    assert desk.phase() is Phase.EXECUTING


def test_reply_skip_derives_the_rest() -> None:
    desk = weak_task(ASK)
    desk.handle("t", Clarification("boss", "REPLY_SKIP", ends=True))
    desk.start()
    assert desk.phase() is Phase.EXECUTING


def test_a_person_who_writes_the_spec_stops_the_draft_and_its_end_is_late() -> None:
    desk = weak_task(DRAFT)
    desk.handle("t", SpecWritten(replace(BARE, acceptance_criteria=("two pages",))), Role.OPERATOR, "ann")
    assert desk.orders(StopTurns)
    assert desk.phase() is Phase.EXECUTION_READY
    events = desk.ends("t", GOOD)
    assert "reply.late" in [event.kind.value for event in events]
    assert desk.task("t").spec.acceptance_criteria == ("two pages",)


@pytest.mark.parametrize("role", [role for role in Role if role not in (Role.OPERATOR, Role.ORCHESTRATOR)])
def test_nobody_else_writes_the_spec(role: Role) -> None:
    desk = weak_task(ASK)
    with refused(desk, "permission-denied"):
        desk.handle("t", SpecWritten(BARE), role, "main")


def test_a_review_of_the_text_before_says_nothing_of_the_text_that_was_written_since() -> None:
    desk = Desk(replace(ASK, gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex",)))
    desk.give(spec=replace(BARE, acceptance_criteria=("two pages",)))
    desk.handle("t", SpecWritten(replace(BARE, acceptance_criteria=("three pages",))), Role.OPERATOR, "ann")
    desk.reviews("t", "rex", Verdict.APPROVED)  # its turn had ended when the text was written
    assert desk.phase() is Phase.SPEC_REVIEW
    assert desk.kinds().count("reply.late") == 1
    desk.reviews("t", "rex", Verdict.APPROVED)
    assert desk.phase() is Phase.EXECUTING


def test_a_spec_may_be_written_until_the_work_begins() -> None:
    desk = Desk(replace(ASK, gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex", "uma")), slots=0)
    desk.give(spec=replace(BARE, acceptance_criteria=("two pages",)))
    desk.reviews("t", "rex", Verdict.APPROVED)
    three = replace(BARE, acceptance_criteria=("three pages",))
    desk.handle("t", SpecWritten(three), Role.OPERATOR, "ann")
    assert desk.phase() is Phase.SPEC_REVIEW, "its review begins anew"
    assert desk.path()[-2:] == ["spec_draft", "spec_review"]
    desk.finish(next(order for order in desk.pending(RunTurn) if order.agent == "uma"))  # of the round before
    desk.reviews("t", "uma", Verdict.APPROVED)
    assert desk.phase() is Phase.SPEC_REVIEW, "an approval of the text before does not count"
    desk.reviews("t", "rex", Verdict.APPROVED)
    assert desk.phase() is Phase.EXECUTION_READY
    with refused(desk, "weak-spec"):
        desk.handle("t", SpecWritten(BARE), Role.OPERATOR, "ann")
    desk.handle("t", SpecWritten(replace(BARE, acceptance_criteria=("four pages",))), Role.OPERATOR, "ann")
    assert desk.phase() is Phase.EXECUTION_READY, "a person's word needs no review"
    desk.configured(slots=1)
    desk.start()
    with refused(desk, "spec-fixed"):
        desk.handle("t", SpecWritten(three), Role.OPERATOR, "ann")


def test_a_review_that_sends_it_back_has_it_drafted_with_its_findings() -> None:
    desk = Desk(replace(DRAFT, gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex",), max_rework=1))
    desk.give(spec=replace(BARE, acceptance_criteria=("two pages",)))
    desk.reviews("t", "rex", Verdict.CHANGES_REQUESTED)
    assert desk.phase() is Phase.SPEC_DRAFT
    desk.ends("t", Drafted(Spec("", acceptance_criteria=("three pages",))), agent="main")
    assert desk.task("t").spec.acceptance_criteria == ("three pages",)
    desk.reviews("t", "rex", Verdict.CHANGES_REQUESTED)
    assert desk.phase() is Phase.CIRCUIT_OPEN


@pytest.mark.parametrize("policy", [with_policy(), ASK])
def test_a_review_that_sends_it_back_where_nobody_drafts_is_put_to_its_sender(policy: Policy) -> None:
    desk = Desk(replace(policy, gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex",)))
    desk.give(spec=replace(BARE, acceptance_criteria=("two pages",)))
    desk.reviews("t", "rex", Verdict.CHANGES_REQUESTED)
    (question,) = desk.orders(Send)
    assert "rex says changes_requested" in question.note
    desk.handle("t", Steer("boss", "In red."))
    assert desk.phase() is Phase.SPEC_REVIEW


def test_a_cancelled_child_that_had_not_started_comes_back_as_a_draft() -> None:
    desk = Desk(ASK)
    desk.give(spec=CHECKED, plan=plan(child("a", "bob", expected_output="a.txt"), child("b", "bob")))
    desk.ends("t.a", Failed("no", Permanence.PERMANENT))
    assert desk.phases("t", "t.b") == ["failed", "cancelled"]
    desk.command("t", Retry())
    desk.start()
    assert desk.phases("t", "t.a", "t.b") == ["executing", "executing", "spec_draft"]


def test_a_cancel_is_final_for_a_draft_too() -> None:
    desk = weak_task(DRAFT)
    desk.handle("t", Cancel("boss"))
    assert "reply.late" in [event.kind.value for event in desk.ends("t", GOOD)]
    assert desk.phase() is Phase.CANCELLED


# ---------------------------------------------------------------- checks


def check_ends(desk: Desk, name: str, verdict: CheckVerdict, task: str = "t") -> list[str]:
    order = next(one for one in desk.pending() if isinstance(one.effect, RunCheck) and one.effect.check.id == name)
    assert isinstance(order.effect, RunCheck)
    ended = CheckEnded(name, order.effect.attempt_id, verdict, f"{name} {verdict}", "report")
    events = desk.settles(order, ended)
    desk.start()
    return [event.kind.value for event in events]


def at_checks(policy: Policy | None = None) -> Desk:
    desk = weak_task(policy or with_policy(), CHECKED)
    desk.done("t")
    assert desk.phase() is Phase.SPEC_GATE
    return desk


def test_every_check_is_run_once_and_all_must_pass() -> None:
    desk = at_checks()
    assert [order.check.id for order in desk.orders(RunCheck)] == ["made", "more"]
    check_ends(desk, "made", CheckVerdict.PASSED)
    assert (desk.phase(), len(desk.orders(RunCheck))) == (Phase.SPEC_GATE, 1)
    check_ends(desk, "more", CheckVerdict.PASSED)
    assert desk.phase() is Phase.COMPLETED
    assert desk.kinds().count("check.ended") == 2


def test_reviewers_are_asked_when_the_checks_have_passed() -> None:
    desk = at_checks(with_policy(gates=frozenset({Gate.SPEC_GATE}), reviewers=("rex",)))
    assert desk.orders(RunTurn) == []
    for name in ("made", "more"):
        check_ends(desk, name, CheckVerdict.PASSED)
    assert [turn.agent for turn in desk.orders(RunTurn)] == ["rex"]
    desk.reviews("t", "rex", Verdict.APPROVED)
    assert desk.phase() is Phase.COMPLETED


def test_a_failed_check_is_rework_and_is_run_again_on_the_next_attempt() -> None:
    desk = at_checks(with_policy(max_rework=1))
    check_ends(desk, "made", CheckVerdict.FAILED)
    check_ends(desk, "more", CheckVerdict.PASSED)
    assert desk.phase() is Phase.EXECUTING
    assert "the check made failed: made failed" in desk.task("t").findings
    desk.done("t")
    check_ends(desk, "made", CheckVerdict.FAILED)
    check_ends(desk, "more", CheckVerdict.FAILED)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    assert desk.task("t").failures == 0


def test_a_check_that_cannot_be_run_is_a_persons_matter() -> None:
    desk = at_checks()
    check_ends(desk, "made", CheckVerdict.FAILED)
    check_ends(desk, "more", CheckVerdict.IMPOSSIBLE)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    assert "check more could not be run" in desk.task("t").reason


def test_the_end_of_a_check_counts_once_and_for_its_attempt_only() -> None:
    desk = at_checks()
    attempt = desk.attempt().id
    check_ends(desk, "made", CheckVerdict.PASSED)
    for name, of in (("made", attempt), ("more", "att_other"), ("unheard-of", attempt)):
        heard = CheckEnded(name, of, CheckVerdict.PASSED, "", "")
        assert [event.kind.value for event in desk.handle("t", heard)] == ["reply.late"]


def test_what_a_peer_does_is_not_checked_here() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob", checks=(CHECK,))))
    desk.done("t.a")
    assert desk.phase("t.a") is Phase.COMPLETED
    assert desk.orders(RunCheck) == []


def test_the_agent_that_planned_a_child_is_asked_about_its_weak_spec_before_the_operator() -> None:
    desk = Desk(ASK)
    desk.give(plan=plan(child("a", "bob")), spec=replace(BARE, expected_output="haiku.txt"))
    (turn,) = drafts(desk)
    assert (turn.agent, desk.phase("t.a"), desk.orders(Send)) == ("main", Phase.SPEC_DRAFT, [])
    desk.insists("t.a", DONE)
    assert [(send.type, send.to) for send in desk.orders(Send)] == [("question", "operator")]
    desk.handle("t.a", Clarification("operator", "- one page"))
    desk.start()
    assert desk.phase("t.a") is Phase.EXECUTING


def test_the_checks_of_a_broadcast_are_run_for_its_copies_and_not_for_the_whole() -> None:
    desk = Desk(with_policy(join=Join.FIRST))
    desk.give(plan=plan(child("ask", ("main", "bob"), checks=(CHECK,))))
    desk.done("t.ask.main")
    assert [order.check.id for order in desk.orders(RunCheck)] == ["made"]
    check_ends(desk, "made", CheckVerdict.PASSED)
    desk.done("t.ask.bob", "t.ask")
    assert desk.phase("t.ask") is Phase.COMPLETED
    assert desk.orders(RunCheck) == []


def test_a_check_that_may_not_run_holds_the_spec_until_it_may() -> None:
    desk = Desk(DRAFT)
    desk.give(spec=replace(CHECKED, checks=(Check("tests", ("make", "test")),)))
    assert desk.phase() is Phase.SPEC_DRAFT
    assert drafts(desk) == [], "what may run is not an agent's to say"
    assert "checks.commands" in desk.task("t").reason
    rules = replace(desk.settings.checks, commands=(("make",),))
    desk.configured(checks=rules)
    desk.look_again()
    assert desk.phase() is Phase.EXECUTING
    assert not desk.handle("t", TimePassed())


def test_a_spec_that_a_person_writes_is_judged_by_the_same_rules() -> None:
    desk = weak_task(ASK)
    with pytest.raises(Refused):
        desk.handle("t", SpecWritten(CHECKED), Role.EXECUTOR, "main")
    desk.handle("t", SpecWritten(replace(CHECKED, checks=(Check("tests", ("make",)),))), Role.OPERATOR, "ann")
    assert desk.phase() is Phase.SPEC_DRAFT
