"""Review gates: who is asked, what the verdicts add up to, how often (protocol sections 4 and 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.corrections import MOST
from mailboxd.core.effects import LookUp, RunTurn, StopTurns
from mailboxd.core.events import Role, passed
from mailboxd.core.inputs import Remedy, ReviewGiven, ReviewKind, Steer, TurnEnded, Unblock
from mailboxd.core.model import Finding
from mailboxd.core.outcomes import Aborted, Failed, Results, Reviewed, Succeeded, Unclear, Unknown
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Gate, Phase, Quorum, Turn, Verdict
from mailboxd.errors import Refused
from tests.core.desk import DONE, Desk, again, child, plan, with_policy

START = "2026-01-01T00:00:00.000Z"
APPROVED, CHANGES, BLOCKED = Verdict.APPROVED, Verdict.CHANGES_REQUESTED, Verdict.BLOCKED


def at_gate(gate: Gate, *reviewers: str, **policy: object) -> Desk:
    desk = Desk(with_policy(gates=frozenset({gate}), reviewers=reviewers, **policy))
    desk.give()
    if gate is not Gate.SPEC_REVIEW:
        desk.ends("t", DONE)
    return desk


@pytest.mark.parametrize("gate", Gate)
def test_every_reviewer_is_asked_once_in_a_session_of_his_own(gate: Gate) -> None:
    desk = at_gate(gate, "rex", "uma")
    turns = desk.orders(RunTurn)
    assert [(turn.turn, turn.agent, turn.gate) for turn in turns] == [(Turn.REVIEW, n, gate) for n in ("rex", "uma")]
    assert len({turn.session_key for turn in turns}) == 2


@pytest.mark.parametrize(
    ("verdicts", "phase"),
    [
        ((APPROVED, APPROVED), "quality_gate completed"),
        ((APPROVED, CHANGES), "spec_gate execution_ready"),
        ((CHANGES, APPROVED), "spec_gate execution_ready"),
        ((CHANGES, CHANGES), "spec_gate execution_ready"),
        ((APPROVED, BLOCKED), "spec_gate circuit_open"),
        ((BLOCKED, CHANGES), "spec_gate circuit_open"),
    ],
)
def test_the_hardest_word_counts_once_all_have_spoken(verdicts: tuple[Verdict, Verdict], phase: str) -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex", "uma")
    desk.reviews("t", "rex", verdicts[0])
    assert desk.phase() is Phase.SPEC_GATE
    desk.reviews("t", "uma", verdicts[1])
    assert phase in " ".join(desk.path())


@pytest.mark.parametrize(
    ("quorum", "verdicts", "reason"),
    [
        (Quorum.ALL, (APPROVED, BLOCKED), "spec_gate: blocked by uma"),
        (Quorum.ALL, (BLOCKED, CHANGES), "spec_gate: blocked by rex"),
        (Quorum.ALL, (BLOCKED, BLOCKED), "spec_gate: blocked by rex, uma"),
        (Quorum.ANY, (CHANGES, APPROVED), "spec_gate: approved by uma"),
    ],
)
def test_a_gate_names_those_whose_verdict_counts(
    quorum: Quorum, verdicts: tuple[Verdict, Verdict], reason: str
) -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex", "uma", quorum=quorum)
    desk.reviews("t", "rex", verdicts[0])
    desk.reviews("t", "uma", verdicts[1])
    steps = [step for event in desk.events("t") for step in passed(event)]
    assert reason in [step["reason"] for step in steps]


def test_findings_go_into_the_next_attempt() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex")
    desk.reviews("t", "rex", CHANGES)
    assert "rex says changes_requested" in desk.task("t").findings
    assert desk.phase() is Phase.EXECUTING


def test_the_place_of_a_finding_reaches_the_executor() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex")
    findings = (
        Finding("major", "No total", "fees.md", 3),
        Finding("minor", "A comma", "fees.md"),
        Finding("minor", "Blurred", artifact_uri="file:plan.png"),
    )
    desk.ends("t", Reviewed(CHANGES, "Nearly", findings), agent="rex")
    told = desk.task("t").findings
    assert "major (fees.md, line 3): No total" in told
    assert "minor (fees.md): A comma" in told
    assert "minor (file:plan.png): Blurred" in told


def test_an_approval_that_contradicts_its_findings_is_none_whichever_way_it_comes() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex")
    given = ReviewGiven(ReviewKind.SPEC, APPROVED, "good", (Finding("major", "No total"),), round=1)
    with pytest.raises(Refused, match="approved, but a finding is major") as refusal:
        desk.handle("t", given, Role.SPEC_REVIEWER, "rex")
    assert refusal.value.rule == "contradiction"
    assert desk.phase() is Phase.SPEC_GATE
    desk.handle("t", replace(given, findings=(Finding("minor", "A comma"),)), Role.SPEC_REVIEWER, "rex")
    assert desk.phase() is Phase.COMPLETED


def test_each_attempt_is_reviewed_anew() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex")
    desk.reviews("t", "rex", CHANGES)
    first = desk.attempt().ordinal
    desk.done("t")
    assert (desk.phase(), desk.attempt().ordinal) == (Phase.SPEC_GATE, first)
    assert [turn.turn for turn in desk.orders(RunTurn)] == [Turn.REVIEW]


def test_a_verdict_given_by_message_is_about_the_attempt_that_it_names() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex")
    desk.reviews("t", "rex", CHANGES)
    desk.done("t")
    first = ReviewGiven(ReviewKind.SPEC, APPROVED, "good", round=1)
    with pytest.raises(Refused, match="about attempt 1 of t; attempt 2 is under review"):
        desk.handle("t", first, Role.SPEC_REVIEWER, "rex")
    desk.handle("t", replace(first, round=2), Role.SPEC_REVIEWER, "rex")
    assert desk.phase() is Phase.COMPLETED


def test_rework_has_a_limit() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex", max_rework=2)
    for _ in range(2):
        desk.reviews("t", "rex", CHANGES)
        desk.done("t")
    desk.reviews("t", "rex", CHANGES)
    assert (desk.phase(), desk.task("t").failures) == (Phase.CIRCUIT_OPEN, 0)
    assert "rework is used up" in desk.task("t").reason


def test_verdicts_over_earlier_attempts_do_not_count_after_the_operator_retries() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex", max_rework=1)
    desk.reviews("t", "rex", CHANGES)
    desk.done("t")
    desk.reviews("t", "rex", CHANGES)
    desk.command("t", Unblock(Remedy.RETRY))
    desk.start()
    desk.done("t")
    assert desk.phase() is Phase.SPEC_GATE
    desk.reviews("t", "rex", APPROVED)
    assert desk.phase() is Phase.COMPLETED


def test_an_approval_of_an_earlier_attempt_does_not_pass_the_next_one() -> None:
    desk = at_gate(Gate.QUALITY_GATE, "rex")
    desk.reviews("t", "rex", APPROVED)
    assert desk.phase() is Phase.COMPLETED
    desk.handle("t", again(2))
    desk.start()
    desk.done("t")
    assert desk.phase() is Phase.QUALITY_GATE
    desk.reviews("t", "rex", BLOCKED)
    assert desk.phase() is Phase.CIRCUIT_OPEN


@pytest.mark.parametrize("said", [Unclear(("no verdict",), "hm"), Results("looks fine")])
def test_a_review_that_cannot_be_read_is_asked_for_again_with_the_reason_and_then_blocks(
    said: Unclear | Results,
) -> None:
    desk = at_gate(Gate.QUALITY_GATE, "rex")
    first = desk.orders(RunTurn)[0].session_key
    for number in range(1, MOST + 1):
        desk.ends("t", said)
        assert desk.phase() is Phase.QUALITY_GATE
        (turn,) = desk.orders(RunTurn)
        assert (turn.agent, turn.session_key, turn.correction.number) == ("rex", first, number)
        assert "verdict" in desk.told("t")
    desk.ends("t", said)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    assert desk.task("t").reason == "quality_gate: no usable review from rex, even when asked again"
    assert desk.orders(RunTurn) == []


# ---------------------------------------------------------------- one reviewer, two kinds of review


def both(*reviewers: str, gates: frozenset[Gate] = frozenset(Gate), **policy: object) -> Desk:
    """Work whose specification and quality are both reviewed."""
    desk = Desk(with_policy(gates=gates, reviewers=reviewers, **policy))
    desk.give()
    return desk


def asked(desk: Desk) -> list[tuple[str, str]]:
    return [(turn.gate.value, turn.agent) for turn in desk.orders(RunTurn) if turn.turn is Turn.REVIEW]


def test_nobody_reviews_both_the_specification_and_the_quality() -> None:
    desk = both("rex", "uma", "zoe")
    assert asked(desk) == [("spec_review", "rex"), ("spec_review", "uma")]
    for name in ("rex", "uma"):
        desk.reviews("t", name, APPROVED)
    desk.start()
    desk.done("t")
    assert asked(desk) == [("spec_gate", "rex"), ("spec_gate", "uma")]
    for name in ("rex", "uma"):
        desk.reviews("t", name, APPROVED)
    assert asked(desk) == [("quality_gate", "zoe")]
    desk.reviews("t", "zoe", APPROVED)
    assert desk.phase() is Phase.COMPLETED


def test_the_reviewers_are_shared_out_among_those_who_did_not_do_the_work() -> None:
    desk = both("main", "rex", "uma", gates=frozenset({Gate.SPEC_GATE, Gate.QUALITY_GATE}))
    desk.done("t")
    assert asked(desk) == [("spec_gate", "rex")]
    desk.reviews("t", "rex", APPROVED)
    assert asked(desk) == [("quality_gate", "uma")]


@pytest.mark.parametrize("reviewers", [("rex",), ("rex", "REX"), ("main", "rex")])
def test_with_one_reviewer_for_both_the_task_waits_at_the_first_gate_and_says_what_to_write(
    reviewers: tuple[str, ...],
) -> None:
    desk = both(*reviewers, gates=frozenset({Gate.SPEC_GATE, Gate.QUALITY_GATE}))
    desk.done("t")
    assert (desk.phase(), asked(desk)) == (Phase.SPEC_GATE, [])
    assert "only rex can review" in desk.task("t").reason
    assert "gates.same_reviewer" in desk.task("t").reason


def test_one_reviewer_passes_both_where_the_configuration_allows_it() -> None:
    desk = both("rex", gates=frozenset({Gate.SPEC_GATE, Gate.QUALITY_GATE}), same_reviewer=True)
    desk.done("t")
    desk.reviews("t", "rex", APPROVED)
    assert asked(desk) == [("quality_gate", "rex")]


def test_one_reviewer_may_review_the_specification_and_then_the_result_against_it() -> None:
    desk = both("rex", gates=frozenset({Gate.SPEC_REVIEW, Gate.SPEC_GATE}))
    desk.reviews("t", "rex", APPROVED)
    desk.start()
    desk.done("t")
    desk.reviews("t", "rex", APPROVED)
    assert desk.phase() is Phase.COMPLETED


def review_by(desk: Desk, agent: str, verdict: Verdict = APPROVED) -> list[str]:
    said = Reviewed(verdict, "fine")
    ended = TurnEnded(Turn.REVIEW, desk.attempt().id, agent, Succeeded("fine"), said, Gate.SPEC_GATE)
    return [event.kind.value for event in desk.handle("t", ended)]


def test_a_review_that_nobody_asked_for_changes_nothing() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex")
    assert review_by(desk, "eve") == ["turn.ended", "reply.late"]
    assert review_by(desk, "main") == ["turn.ended", "reply.late"]
    assert desk.phase() is Phase.SPEC_GATE


def test_a_reviewer_speaks_once_per_attempt() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex", "uma")
    desk.reviews("t", "rex", BLOCKED)
    assert review_by(desk, "rex", APPROVED) == ["turn.ended", "reply.late"]
    desk.reviews("t", "uma", APPROVED)
    assert desk.phase() is Phase.CIRCUIT_OPEN


@pytest.mark.parametrize(
    ("reviewers", "reason"),
    [
        ((), "no reviewer other than the executor is named"),
        (("main",), "no reviewer other than the executor is named"),
        (("MAIN", "Main"), "no reviewer other than the executor is named"),
    ],
)
def test_nobody_reviews_what_he_made(reviewers: tuple[str, ...], reason: str) -> None:
    desk = at_gate(Gate.QUALITY_GATE, *reviewers)
    assert (desk.phase(), desk.orders(RunTurn)) == (Phase.QUALITY_GATE, [])
    assert reason in desk.task("t").reason


def test_of_several_reviewers_those_who_did_the_work_are_left_out_on_record() -> None:
    desk = at_gate(Gate.QUALITY_GATE, "MAIN", "rex", "REX")
    assert [turn.agent for turn in desk.orders(RunTurn)] == ["rex"]
    notes = [event.data["note"] for event in desk.events("t") if "note" in event.data]
    assert "quality_gate: MAIN does not review it, having done the work" in notes
    desk.reviews("t", "rex", APPROVED)
    assert desk.phase() is Phase.COMPLETED


@pytest.mark.parametrize(
    ("quorum", "verdicts", "phase"),
    [
        (Quorum.ALL, "aa", None),
        (Quorum.ALL, "aaa", Phase.COMPLETED),
        (Quorum.ALL, "aac", Phase.EXECUTING),
        (Quorum.MAJORITY, "a", None),
        (Quorum.MAJORITY, "aa", Phase.COMPLETED),
        (Quorum.MAJORITY, "baa", Phase.COMPLETED),
        (Quorum.MAJORITY, "cc", None),
        (Quorum.MAJORITY, "cca", Phase.EXECUTING),
        (Quorum.MAJORITY, "cba", Phase.CIRCUIT_OPEN),
        (Quorum.ANY, "a", Phase.COMPLETED),
        (Quorum.ANY, "ca", Phase.COMPLETED),
        (Quorum.ANY, "cb", None),
        (Quorum.ANY, "ccc", Phase.EXECUTING),
        (Quorum.ANY, "bcc", Phase.CIRCUIT_OPEN),
    ],
)
def test_the_quorum_says_how_many_must_approve(quorum: Quorum, verdicts: str, phase: Phase | None) -> None:
    """Approved as soon as enough approve; else the hardest word, once all have spoken. None: not decided yet."""
    desk = at_gate(Gate.QUALITY_GATE, "rex", "uma", "zoe", quorum=quorum)
    words = {"a": APPROVED, "c": CHANGES, "b": BLOCKED}
    for reviewer, word in zip(("rex", "uma", "zoe"), verdicts, strict=False):
        desk.reviews("t", reviewer, words[word])
    assert desk.phase() is (phase or Phase.QUALITY_GATE)


def test_what_the_quorum_does_not_need_is_stopped_and_comes_too_late() -> None:
    desk = at_gate(Gate.SPEC_GATE, "rex", "uma", quorum=Quorum.ANY)
    desk.reviews("t", "rex", APPROVED)
    assert desk.phase() is Phase.COMPLETED
    assert desk.orders(StopTurns)
    assert review_by(desk, "uma", BLOCKED) == ["turn.ended", "reply.late"]
    assert desk.phase() is Phase.COMPLETED


def test_a_reviewer_whose_turn_fails_is_asked_again_after_a_pause_and_has_not_spoken() -> None:
    desk = at_gate(Gate.QUALITY_GATE, "rex", max_attempts=3)
    ends: tuple[Failed | Aborted, ...] = (Failed("overloaded"), Failed("no gateway", started=False), Aborted("late"))
    for number, end in enumerate(ends, 1):
        desk.ends("t", end)
        assert (desk.phase(), desk.orders(RunTurn)) == (Phase.QUALITY_GATE, []), f"no pause after failure {number}"
        desk.wait(1000)
    desk.reviews("t", "rex", APPROVED)
    assert desk.phase() is Phase.COMPLETED


def test_a_reviewer_whose_turns_all_fail_opens_the_circuit_without_a_verdict() -> None:
    desk = at_gate(Gate.QUALITY_GATE, "rex", max_attempts=2)
    for _ in range(2):
        desk.ends("t", Failed("overloaded"))
        desk.wait(1000)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    assert "rex could not review it" in desk.task("t").reason
    assert "review.appended" not in desk.kinds()
    assert desk.task("t").result == "done"


def test_a_reviewer_that_failed_for_good_is_not_missed_where_the_quorum_is_met() -> None:
    desk = at_gate(Gate.QUALITY_GATE, "rex", "uma", quorum=Quorum.MAJORITY, max_attempts=1)
    desk.ends("t", Failed("overloaded"), agent="rex")
    assert desk.phase() is Phase.QUALITY_GATE
    desk.reviews("t", "uma", APPROVED)
    assert desk.phase() is Phase.CIRCUIT_OPEN, "two of two are more than half"


def test_a_review_whose_outcome_is_unknown_is_looked_up_before_it_is_repeated() -> None:
    desk = at_gate(Gate.QUALITY_GATE, "rex")
    desk.ends("t", Unknown("the gateway went away"))
    (lookup,) = desk.orders(LookUp)
    assert (lookup.turn, lookup.agent, lookup.gate) == (Turn.REVIEW, "rex", Gate.QUALITY_GATE)
    desk.ends("t", Reviewed(APPROVED, "found in the ledger"))
    assert desk.phase() is Phase.COMPLETED


def test_a_reviewer_whom_this_agent_may_not_call_is_not_called() -> None:
    policy = with_policy(gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("stranger",))
    desk = Desk(policy, may_reach=lambda agent: "it is not in agents.list" if agent == "stranger" else None)
    desk.give()
    assert desk.orders(RunTurn) == []
    assert "the reviewer stranger cannot be asked: it is not in agents.list" in desk.task("t").reason


def test_a_spec_that_was_sent_back_is_reviewed_again_when_it_was_mended() -> None:
    desk = at_gate(Gate.SPEC_REVIEW, "rex")
    desk.reviews("t", "rex", CHANGES)
    assert desk.phase() is Phase.SPEC_DRAFT
    desk.handle("t", Steer("boss", "In red."))
    assert desk.phase() is Phase.SPEC_REVIEW
    desk.reviews("t", "rex", APPROVED)
    desk.start()
    assert desk.phase() is Phase.EXECUTING


def test_a_gate_holds_every_child_that_inherits_it() -> None:
    desk = Desk(with_policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("rex",)))
    desk.give(plan=plan(child("a", "bob"), child("b", "self", "a")))
    desk.done("t.a")
    assert desk.phases("t.a", "t.b") == ["quality_gate", "execution_ready"]
    desk.reviews("t.a", "rex", APPROVED)
    desk.start()
    assert desk.phases("t.a", "t.b") == ["completed", "executing"]


def test_what_had_not_started_and_is_dispatched_again_has_its_spec_reviewed() -> None:
    desk = Desk(with_policy(gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex",), deadline=plus(START, 60)))
    desk.give()
    desk.wait(61)
    assert desk.phase() is Phase.FAILED
    desk.ends("t", Aborted("stopped"))
    desk.handle("t", again(2))
    assert (desk.phase(), desk.task("t").spec.instructions) == (Phase.SPEC_REVIEW, "Better.")
    desk.reviews("t", "rex", APPROVED)
    desk.start()
    assert desk.phase() is Phase.EXECUTING
    desk.verify()
