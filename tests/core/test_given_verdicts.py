"""Verdicts that come with a peer's result: which of them count at the gate here, and who is asked all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailboxd.core.decision_builder import sha256_of
from mailboxd.core.effects import RunTurn
from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import Reply, Steer
from mailboxd.core.model import Finding, GivenVerdict
from mailboxd.core.outcomes import Acknowledged, Results
from mailboxd.core.vocabulary import Gate, Phase, Quorum, Turn, Verdict
from tests.core.desk import PUBLISH, Desk, child, plan, with_policy

APPROVED, CHANGES, BLOCKED = Verdict.APPROVED, Verdict.CHANGES_REQUESTED, Verdict.BLOCKED
SPEC, QUALITY = Gate.SPEC_GATE, Gate.QUALITY_GATE
RESULT = "The fees, by month."


def said(gate: Gate, reviewer: str, verdict: Verdict = APPROVED, **fields: object) -> GivenVerdict:
    told = GivenVerdict(gate, reviewer, verdict, sha256_of(RESULT), "bob", f"{reviewer} says {verdict}")
    return replace(told, **fields)  # type: ignore[arg-type]


OF_ANOTHER = said(QUALITY, "uma", of=sha256_of("Another result."))
BOTH = (said(SPEC, "rex"), said(QUALITY, "uma"))


def at_bob(*reviewers: str, agent: str = "bob", gates: Sequence[Gate] = (SPEC, QUALITY), **policy: object) -> Desk:
    """A child of t is with a peer, which has acknowledged it."""
    desk = Desk(with_policy(gates=frozenset(gates), reviewers=reviewers, **policy))
    desk.give(plan=plan(child("a", agent)))
    desk.ends("t.a", Acknowledged())
    return desk


def replies(desk: Desk, *verdicts: GivenVerdict, text: str = RESULT, sender: str = "bob", **changes: object) -> None:
    attempt = desk.attempt("t.a")
    reply = Reply(sender, Results(text, verdicts=verdicts), attempt.id, attempt.reply_token)
    desk.handle("t.a", replace(reply, **changes))  # type: ignore[arg-type]


def asked(desk: Desk) -> list[tuple[str, str]]:
    return [(turn.gate.value, turn.agent) for turn in desk.orders(RunTurn, "t.a") if turn.turn is Turn.REVIEW]


def events(desk: Desk, kind: Kind) -> list[Event]:
    return desk.events("t.a", kind)


def test_what_the_reviewers_of_both_gates_approved_at_the_peer_is_not_reviewed_again() -> None:
    desk = at_bob("rex", "uma")
    replies(desk, *BOTH)
    assert (desk.phase("t.a"), asked(desk)) == (Phase.COMPLETED, [])
    reviews = [event.data["review"] for event in events(desk, Kind.REVIEW_APPENDED)]
    assert [(one["gate"], one["reviewer"], one["given_at"]) for one in reviews] == [
        ("spec_gate", "rex", "bob"),
        ("quality_gate", "uma", "bob"),
    ]
    assert desk.task("t.a").reason == "quality_gate: approved by uma (given at bob)"
    assert "given at bob: spec_gate: approved by rex, quality_gate: approved by uma" in str(
        [event.data for event in events(desk, Kind.ATTEMPT_ENDED)]
    )


def test_a_peer_that_tells_no_verdicts_is_reviewed_here() -> None:
    desk = at_bob("rex", "uma")
    replies(desk)
    assert asked(desk) == [("spec_gate", "rex")]


def test_the_reviewers_that_are_missing_are_asked() -> None:
    desk = at_bob("rex", "uma")
    replies(desk, said(SPEC, "REX"))
    assert asked(desk) == [("quality_gate", "uma")]
    desk = at_bob("rex", "uma", gates=(QUALITY,))
    replies(desk, said(QUALITY, "uma"))
    assert asked(desk) == [("quality_gate", "rex")]
    desk.reviews("t.a", "rex", APPROVED)
    assert desk.task("t.a").reason == "quality_gate: approved by rex, uma (given at bob)"


@pytest.mark.parametrize(
    "told",
    [
        said(QUALITY, "eve"),
        said(QUALITY, "bob"),
        said(QUALITY, "BOB"),
        said(QUALITY, "main"),
        said(SPEC, "uma"),
        said(Gate.SPEC_REVIEW, "uma"),
        OF_ANOTHER,
        said(QUALITY, "uma", findings=(Finding("major", "No total"),)),
        said(QUALITY, "uma", CHANGES, of=sha256_of("")),
    ],
    ids=lambda told: f"{told.reviewer}-{told.gate}-{told.verdict}",
)
def test_no_other_verdict_counts(told: GivenVerdict) -> None:
    desk = at_bob("uma", "bob", gates=(QUALITY,))
    replies(desk, told)
    assert (desk.phase("t.a"), asked(desk)) == (Phase.QUALITY_GATE, [("quality_gate", "uma")])
    assert events(desk, Kind.REVIEW_APPENDED) == []


def test_whoever_reviews_the_specification_here_gives_no_verdict_on_the_quality() -> None:
    desk = at_bob("rex", "uma")
    replies(desk, said(SPEC, "rex"), said(QUALITY, "rex"), said(SPEC, "uma"))
    assert asked(desk) == [("quality_gate", "uma")]


def test_the_agent_of_a_pool_that_did_the_work_does_not_approve_it() -> None:
    desk = at_bob("far.bob", "rex", agent="pool:writer", gates=(QUALITY,))
    told = (said(QUALITY, "far.bob", given_at="far.bob"), said(QUALITY, "rex", given_at="far.bob"))
    replies(desk, *told, sender="far.bob")
    assert asked(desk) == [("quality_gate", "far.bob")]


def test_a_reply_without_the_token_of_its_dispatch_tells_no_verdicts() -> None:
    """Whoever can write into the inbox can name a sender; the token is in the dispatch alone."""
    desk = at_bob("rex", "uma")
    replies(desk, *BOTH, reply_token=None)
    assert asked(desk) == [("spec_gate", "rex")]


def test_work_with_side_effects_is_reviewed_where_they_are_planned() -> None:
    desk = Desk(with_policy(gates=frozenset({QUALITY}), reviewers=("uma",)))
    desk.give(plan=plan(child("a", "bob", planned_actions=(PUBLISH,))))
    desk.ends("t.a", Acknowledged())
    replies(desk, said(QUALITY, "uma"))
    assert asked(desk) == [("quality_gate", "uma")]


def test_a_verdict_that_asks_for_changes_or_blocks_counts_as_well() -> None:
    desk = at_bob("rex", gates=(QUALITY,))
    finding = Finding("major", "No total", "fees.md", 3)
    replies(desk, said(QUALITY, "rex", CHANGES, findings=(finding,)))
    assert "major (fees.md, line 3): No total" in desk.task("t.a").findings
    desk = at_bob("rex", gates=(QUALITY,))
    replies(desk, said(QUALITY, "rex", BLOCKED))
    assert desk.phase("t.a") is Phase.CIRCUIT_OPEN


def test_a_reviewer_who_cannot_be_asked_here_is_not_missed() -> None:
    away = {"rex"}
    desk = Desk(
        with_policy(gates=frozenset({QUALITY}), reviewers=("rex",)),
        may_reach=lambda name: "no" if name in away else None,
    )
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    replies(desk, said(QUALITY, "rex"))
    assert desk.phase("t.a") is Phase.COMPLETED


def test_verdicts_are_about_one_attempt_only() -> None:
    desk = at_bob("rex", "uma", gates=(QUALITY,))
    replies(desk, said(QUALITY, "rex"), said(QUALITY, "uma", CHANGES))
    desk.start()
    desk.ends("t.a", Acknowledged())
    replies(desk)
    assert asked(desk) == [("quality_gate", "rex"), ("quality_gate", "uma")]


def test_verdicts_on_a_result_that_new_instructions_overtook_do_not_count_for_the_next() -> None:
    desk = Desk(with_policy(gates=frozenset({QUALITY}), reviewers=("rex",)))
    desk.give(plan=plan(child("a", "bob")))
    desk.handle("t.a", Steer("operator", "In blue."))
    replies(desk, said(QUALITY, "rex"))
    assert desk.phase("t.a") is Phase.EXECUTING
    desk.done("t.a")
    assert asked(desk) == [("quality_gate", "rex")]


NAMES = ("rex", "uma", "zoe", "bob", "main", "eve")
VERDICTS = st.builds(
    said,
    st.sampled_from(Gate),
    st.sampled_from(NAMES),
    st.sampled_from(Verdict),
    of=st.sampled_from([sha256_of(RESULT), sha256_of("x")]),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(VERDICTS, max_size=8),
    st.lists(st.sampled_from(NAMES), max_size=4, unique=True).map(tuple),
    st.sampled_from(Quorum),
    st.booleans(),
)
def test_no_gate_is_passed_without_the_verdict_of_one_whom_it_would_ask(
    verdicts: list[GivenVerdict], reviewers: tuple[str, ...], quorum: Quorum, same: bool
) -> None:
    """Whatever a peer tells: nothing passes that did not have enough approvals of the gate's own reviewers."""
    desk = at_bob(*reviewers, quorum=quorum, same_reviewer=same)
    replies(desk, *verdicts)
    may = [name for name in reviewers if name != "bob"]
    half = (len(may) + 1) // 2
    sides = {SPEC: may, QUALITY: may} if same else {SPEC: may[:half], QUALITY: may[half:]}
    first: dict[tuple[Gate, str], Verdict] = {}
    for one in verdicts:
        if one.of == sha256_of(RESULT):
            first.setdefault((one.gate, one.reviewer), one.verdict)
    for gate in _passed(desk):
        approvals = sum(first.get((gate, name)) is APPROVED for name in sides[gate])
        needed = {Quorum.ALL: len(sides[gate]), Quorum.MAJORITY: len(sides[gate]) // 2 + 1, Quorum.ANY: 1}[quorum]
        assert sides[gate], "passed without a reviewer"
        assert approvals >= needed, f"{gate} was passed"


def _passed(desk: Desk) -> set[Gate]:
    path = desk.path("t.a")
    steps = list(pairwise(path))
    after = {SPEC: "quality_gate", QUALITY: "completed"}
    return {gate for gate, then in after.items() if (gate.value, then) in steps}
