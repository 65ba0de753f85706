"""Known work that is sent again: the same content has no effect, other content counts or is refused, never ignored."""

from __future__ import annotations

from itertools import count

import pytest

from mailboxd.core.effects import Bounce, RunTurn
from mailboxd.core.vocabulary import Gate, Phase, WeakSpec
from tests.core.desk import Desk, with_policy

_numbers = count(1)


def sent(body: str = "Paint it.", *sections: str, **headers: object) -> str:
    lines = "".join(f"{name}: {value}\n" for name, value in {"from": "boss", **headers}.items())
    more = "".join(f"\n## {section}\n" for section in sections)
    text = f"# Task: Paint\n\n## Instructions\n\n{body}\n\n## Expected Output\n\nA door.\n{more}"
    return f"---\ntype: task\ntask_id: t\n{lines}---\n{text}"


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


def test_what_waits_for_a_gate_takes_the_newer_text_into_its_next_attempt() -> None:
    desk = Desk(with_policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("rex",)))
    receive(desk, sent())
    desk.start()
    desk.done("t")
    assert desk.phase() is Phase.QUALITY_GATE
    assert receive(desk, sent("Paint it red.")) == "accepted"
    assert "Paint it red." in desk.task("t").spec.instructions
