"""Known work that is sent again: the same content has no effect, other content counts or is refused, never ignored."""

from __future__ import annotations

from itertools import count

import pytest

from mailboxd.core.approvals import (
    Action,
    ActionKind,
    ActionPrepared,
    ApprovalDecision,
    ApprovalStatus,
    Resolve,
)
from mailboxd.core.effects import Bounce, Prepare, RunTurn
from mailboxd.core.events import Role
from mailboxd.core.explain.describe import summarize
from mailboxd.core.inputs import Retry, Steer
from mailboxd.core.outcomes import Failed, Results, Reviewed, Succeeded
from mailboxd.core.vocabulary import Gate, Phase, Verdict, WeakSpec
from mailboxd.errors import Refused
from tests.core.desk import PUBLISH, Desk, with_policy

_numbers = count(1)
TELL = Action("tell", ActionKind.MANUAL, action="Tell them")


def sent(body: str = "Paint it.", *sections: str, **headers: object) -> str:
    lines = "".join(f"{name}: {value}\n" for name, value in {"from": "boss", **headers}.items())
    more = "".join(f"\n## {section}\n" for section in sections)
    text = f"# Task: Paint\n\n## Instructions\n\n{body}\n\n## Expected Output\n\nA door.\n{more}"
    return f"---\ntype: task\ntask_id: t\n{lines}---\n{text}"


def prepared(desk: Desk) -> None:
    """What a person is asked to approve has been looked at."""
    for order in desk.pending(Prepare, "t"):
        assert isinstance(order.effect, Prepare)
        action = order.effect.action
        desk.handle("t", ActionPrepared(order.effect.approval_id, action, "look", action.id, "builtin"))
        desk.finish(order)


def receive(desk: Desk, text: str) -> str:
    """The verdict on a file; for a rejected one, the rule."""
    verdict, rule = desk.receive(f"{next(_numbers)}.md", text.encode())
    return rule or verdict


def started() -> Desk:
    desk = Desk()
    assert receive(desk, sent()) == "accepted"
    return desk


@pytest.fixture
def desk() -> Desk:
    return started()


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    "again",
    [
        sent(message_id="m-2", sent_at="2026-11-21T02:07:53Z"),
        sent("Paint it.\n"),
        sent("Paint it.", "Findings\n\nToo thin.", message_id="m-3"),
    ],
)
def test_the_same_content_in_another_message_has_no_effect(desk: Desk, again: str, ended: bool) -> None:
    desk.start()
    if ended:
        desk.done("t")
    before = desk.task("t")
    assert receive(desk, again) == "duplicate"
    assert desk.task("t").spec == before.spec
    desk.verify()


def test_before_the_work_has_begun_the_newer_text_is_its_specification(desk: Desk) -> None:
    assert receive(desk, sent("Paint it red.", message_id="m-2")) == "accepted"
    assert desk.task("t").spec.instructions == "Paint it red."
    assert desk.task("t").origin.message_id == "m-2"
    assert receive(desk, sent("Paint it red.", message_id="m-3")) == "duplicate"
    desk.start()
    assert desk.phase() is Phase.EXECUTING
    desk.verify()


def test_a_weak_specification_that_was_asked_about_is_completed_by_sending_it_again() -> None:
    desk = Desk(with_policy(weak=WeakSpec.ASK))
    assert receive(desk, "---\ntype: task\ntask_id: t\nfrom: boss\n---\n# Task: Paint\n") == "accepted"
    assert desk.phase() is Phase.SPEC_DRAFT
    assert receive(desk, sent()) == "accepted"
    assert desk.phase() is Phase.EXECUTION_READY


def test_running_work_is_steered_by_the_newer_text(desk: Desk) -> None:
    desk.start()
    assert receive(desk, sent("Paint it red.")) == "accepted"
    desk.done("t")
    (turn,) = desk.orders(RunTurn, "t")
    assert "Paint it red." in turn.note
    assert "Paint it red." in desk.task("t").spec.instructions
    desk.done("t")
    assert desk.phase() is Phase.COMPLETED
    desk.verify()


def test_a_newer_attempt_with_another_text_takes_over_the_running_work_and_steers_it(desk: Desk) -> None:
    desk.start()
    again = sent("Paint it red.", "Findings\n\nNo reply.", attempt=2, attempt_id="att_2")
    assert receive(desk, again) == "accepted"
    assert desk.task("t").origin.attempt_id == "att_2"
    assert "Paint it red." in desk.attempt().steered
    same = sent("Paint it red.", "Findings\n\nStill none.", attempt=3, attempt_id="att_3")
    assert receive(desk, same) == "accepted"
    assert desk.attempt().steered.count("Paint it red.") == 1


@pytest.mark.parametrize(
    "again",
    [sent(gates="quality_gate"), sent(max_attempts=1), sent("Paint it.", "DAG\n\nsubtasks: {a: {agent: self}}")],
)
def test_other_headers_or_another_plan_are_refused_while_the_work_lives(desk: Desk, again: str) -> None:
    desk.start()
    before = desk.task("t")
    assert receive(desk, again) == "id-conflict"
    assert desk.task("t") == before
    assert desk.orders(Bounce) == [], "its sender would take that for the end of the work"


def test_a_specification_that_would_be_weak_is_refused_and_the_work_goes_on() -> None:
    desk = Desk(with_policy(weak=WeakSpec.ASK))
    receive(desk, sent())
    assert desk.phase() is Phase.EXECUTION_READY
    assert receive(desk, "---\ntype: task\ntask_id: t\nfrom: boss\n---\n# Task: Paint\n") == "weak-spec"
    assert desk.orders(Bounce) == []


def test_ended_work_refuses_another_text_and_says_so_to_its_sender(desk: Desk) -> None:
    desk.start()
    desk.done("t")
    assert receive(desk, sent("Paint it red.")) == "ended"
    assert "higher `attempt`" in desk.orders(Bounce)[0].error
    assert desk.phase() is Phase.COMPLETED
    assert receive(desk, sent("Paint it red.", attempt=2)) == "accepted"
    assert desk.phase() is Phase.EXECUTION_READY
    assert desk.task("t").spec.instructions == "Paint it red."


def test_an_older_attempt_that_arrives_late_has_no_effect() -> None:
    desk = Desk()
    assert receive(desk, sent("Paint it red.", attempt=2, attempt_id="att_2")) == "accepted"
    desk.start()
    before = desk.task("t")
    assert receive(desk, sent("Paint it.", attempt=1, attempt_id="att_1")) == "late"
    assert desk.task("t") == before


def reviewed_at(gate: Gate) -> Desk:
    """Work whose result waits for the verdict of a reviewer."""
    desk = Desk(with_policy(gates=frozenset({gate}), reviewers=("rex",)))
    receive(desk, sent())
    desk.start()
    desk.done("t")
    assert desk.phase() is Phase(gate.value)
    return desk


@pytest.mark.parametrize("gate", [Gate.SPEC_GATE, Gate.QUALITY_GATE])
def test_a_result_under_review_is_made_anew_from_the_newer_text(gate: Gate) -> None:
    desk = reviewed_at(gate)
    (review,) = desk.pending(RunTurn, "t")
    assert receive(desk, sent("Paint it red.")) == "accepted"
    assert desk.phase() is Phase.EXECUTION_READY
    assert desk.task("t").spec.instructions == "Paint it red."
    desk.settles(review, desk.end_of(review, Succeeded("said"), Reviewed(Verdict.APPROVED, "Well painted.")))
    assert desk.phase() is Phase.EXECUTION_READY, "the verdict is about the first text"
    desk.start()
    desk.done("t")
    desk.reviews("t", "rex", Verdict.APPROVED)
    assert desk.phase() is Phase.COMPLETED
    assert desk.task("t").attempt == 2
    desk.verify()


def test_a_request_for_approval_is_withdrawn_when_the_text_changes_and_made_again_for_the_new_result() -> None:
    desk = started()
    desk.start()
    desk.ends("t", Results("done", planned_actions=(PUBLISH, TELL)))
    prepared(desk)
    first, second = desk.approvals("t")
    desk.handle("t", Resolve(first.id, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    assert receive(desk, sent("Paint it red.")) == "accepted"
    for row in desk.approvals("t"):
        assert (row.status, row.void) == (ApprovalStatus.EXPIRED, True)
        assert row.note == "void: its sender sent the task again with another text"
    with pytest.raises(Refused):
        desk.handle("t", Resolve(second.id, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    assert desk.task("t").spec.instructions == "Paint it red."
    desk.start()
    desk.ends("t", Results("red", planned_actions=(PUBLISH,)))
    prepared(desk)
    assert desk.phase() is Phase.AWAITING_APPROVAL
    (asked,) = [row for row in desk.approvals("t") if row.status is ApprovalStatus.PENDING]
    assert asked.attempt != first.attempt
    desk.handle("t", Resolve(asked.id, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    assert desk.phase() is Phase.READY_TO_RESUME
    desk.verify()


def test_actions_that_only_the_first_text_planned_are_not_asked_about_again() -> None:
    publish = "Planned Actions\n\n- {id: publish, kind: manual, action: Publish it}"
    desk = Desk()
    assert receive(desk, sent("Paint it.", publish)) == "accepted"
    desk.start()
    desk.done("t")
    prepared(desk)
    assert desk.phase() is Phase.AWAITING_APPROVAL
    assert receive(desk, sent("Paint it red.")) == "accepted"
    desk.start()
    desk.done("t")
    assert desk.phase() is Phase.COMPLETED
    desk.verify()


def test_the_same_content_leaves_a_request_for_approval_open() -> None:
    desk = started()
    desk.start()
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    prepared(desk)
    assert receive(desk, sent(message_id="m-2")) == "duplicate"
    assert receive(desk, sent(attempt=2, attempt_id="att_2")) == "accepted"
    assert [row.status for row in desk.approvals("t")] == [ApprovalStatus.PENDING]


def test_actions_that_are_approved_and_about_to_run_are_not_overtaken_by_another_text() -> None:
    desk = started()
    desk.start()
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    prepared(desk)
    desk.handle("t", Resolve(desk.approvals("t")[0].id, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    assert receive(desk, sent("Paint it red.")) == "about-to-run"
    assert desk.phase() is Phase.READY_TO_RESUME


def test_a_specification_that_was_reviewed_and_is_written_anew_is_reviewed_anew() -> None:
    desk = Desk(with_policy(gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex",)))
    receive(desk, sent())
    (review,) = desk.pending(RunTurn, "t")
    desk.settles(review, desk.end_of(review, Succeeded("said"), Reviewed(Verdict.APPROVED, "Clear.")))
    assert desk.phase() is Phase.EXECUTION_READY
    assert receive(desk, sent("Paint it red.")) == "accepted"
    assert desk.phase() is Phase.SPEC_REVIEW
    desk.reviews("t", "rex", Verdict.APPROVED)
    assert desk.phase() is Phase.EXECUTING
    desk.verify()


COPIES = "DAG\n\nsynthesis: x\nsubtasks:\n  x: {agent: [ann, bob], description: paint, instructions: Paint it.}\n"
RED = "Paint it red."


@pytest.mark.parametrize("begun", [False, True])
def test_another_text_reaches_the_agent_that_the_work_was_given_to(begun: bool) -> None:
    """The task itself takes no turn in which it could be read."""
    desk = Desk()
    assert receive(desk, sent(agent="ann")) == "accepted"
    if begun:
        desk.start()
    for text in (RED, "Paint it blue."):
        assert receive(desk, sent(text, agent="ann")) == "accepted"
        assert receive(desk, sent(text, agent="ann", message_id=text[9:])) == "duplicate"
        assert text in desk.task("t.ann").spec.instructions
        assert not begun or text in desk.attempt("t.ann").steered
    desk.start()
    desk.done("t.ann")
    (turn,) = desk.orders(RunTurn, "t.ann") if begun else (None,)
    assert turn is None or RED in turn.note
    desk.verify()


@pytest.mark.parametrize("ended", [False, True])
def test_what_the_agent_said_of_the_first_text_is_no_result_of_the_second(ended: bool) -> None:
    desk = Desk()
    sections = [] if ended else ["Planned Actions\n\n- {id: tell, kind: manual, action: Tell them}"]
    again = {"attempt": 2, "attempt_id": "att_2"} if ended else {}
    assert receive(desk, sent("Paint it.", *sections, agent="ann")) == "accepted"
    desk.start()
    desk.done("t.ann")
    desk.ends("t", desk.composed("t"))
    assert desk.phase() is (Phase.COMPLETED if ended else Phase.AWAITING_APPROVAL)
    assert receive(desk, sent(RED, *sections, agent="ann", **again)) == "accepted"
    desk.start()
    assert desk.phases("t", "t.ann") == ["executing", "executing"]
    (turn,) = desk.orders(RunTurn, "t.ann")
    assert RED in desk.prompt(turn, "t.ann")
    desk.ends("t.ann", Results("It is red."))
    result = desk.composed("t")
    assert isinstance(result, Results)
    assert "It is red." in result.text
    desk.verify()


def test_new_instructions_for_a_broadcast_reach_the_copies_that_work() -> None:
    desk = Desk()
    assert receive(desk, sent("Paint it.", COPIES)) == "accepted"
    desk.start()
    desk.done("t.x.ann")
    (event,) = (one for one in desk.command("t.x", Steer("operator", RED)) if "to its subtasks" in summarize(one, "x"))
    assert "to its subtasks that have not ended; 1 have, and keep what they said" in summarize(event, "x")
    assert RED not in desk.task("t.x.ann").spec.instructions
    assert RED in desk.attempt("t.x.bob").steered
    desk.verify()


def test_work_that_has_stopped_gets_the_newer_text_when_it_is_tried_again(desk: Desk) -> None:
    desk.start()
    while desk.phase() is not Phase.CIRCUIT_OPEN:
        desk.ends("t", Failed("no"))
        desk.wait(10_000)
    assert receive(desk, sent(RED)) == "accepted"
    assert desk.task("t").reason.endswith("failed; the last: no; new instructions have come since")
    desk.command("t", Retry())
    desk.start()
    (turn,) = desk.orders(RunTurn, "t")
    assert RED in desk.prompt(turn, "t")
    desk.verify()
