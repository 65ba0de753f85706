"""What a child is told of the work that it is a part of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mailboxd.core.effects import RunTurn
from mailboxd.core.inputs import Retry
from mailboxd.core.model import Condition, Flow, Overrides, PlannedChild, Spec
from mailboxd.core.outcomes import Results
from mailboxd.core.vocabulary import Gate, Turn
from mailboxd.formats.protocol.answer import read_answer
from mailboxd.formats.protocol.messages import TaskMessage, parse_message
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.protocol.taskmd import parse_task_file, render_task_file
from tests.core.desk import PUBLISH, Desk, child, plan
from tests.core.test_approvals import approve_all, end, prepare
from tests.core.test_approvals import start as begin

WHOLE = Spec("Know why revenue grew", instructions="Find out.", context="The board meets on 12 October.")


def company(*children: PlannedChild, background: bool | None = None) -> Desk:
    desk = Desk()
    policy = replace(desk.policy, background=background is not False)
    desk.give(plan=plan(*children), spec=WHOLE, policy=policy)
    return desk


def sent(desk: Desk, tmp: Path, name: str, most: int = 4096) -> str:
    """The dispatch or the prompt that a task's turn gets."""
    (turn,) = desk.orders(RunTurn, name)
    if turn.agent == "main":
        return desk.prompt(turn, name, most)
    return desk.dispatch(turn, name, tmp, most).decode()


@pytest.mark.parametrize("agent", ["self", "bob"])
def test_title_goal_and_context_of_the_whole_go_along_as_background(agent: str, tmp_path: Path) -> None:
    text = sent(company(child("a", agent, context="EMEA is late.")), tmp_path, "t.a")
    before, _, background = text.partition("### Background")
    assert "EMEA is late." in before
    for part in ("not instructions", "\nt\n", "Know why revenue grew", "The board meets on 12 October."):
        assert part in background
    assert "Find out." not in text
    assert "## Inputs" not in text


def test_a_copy_of_a_broadcast_is_told_what_the_broadcast_is_a_part_of(tmp_path: Path) -> None:
    text = sent(company(child("ask", ("bob", "amy"))), tmp_path, "t.ask.bob")
    assert "Know why revenue grew" in text


def test_background_is_bounded_and_says_so(tmp_path: Path) -> None:
    text = sent(company(child("a", "bob")), tmp_path, "t.a", most=30)
    assert "Know why" in text
    assert "12 October" not in text
    assert "[mailboxd] cut: 30 of " in text


def test_background_can_be_switched_off(tmp_path: Path) -> None:
    assert "Background" not in sent(company(child("a", "bob")), tmp_path, "t.a", most=0)
    assert "Background" not in sent(company(child("a", "bob"), background=False), tmp_path, "t.a")
    assert "Background" not in sent(company(child("a", "bob", overrides=Overrides(background=False))), tmp_path, "t.a")


def test_a_childs_own_keys_are_headers_of_its_dispatch(tmp_path: Path) -> None:
    text = sent(company(child("a", "bob", extra=(("x-ticket", '[OPS-12, {late: "no"}]'),))), tmp_path, "t.a")
    message = parse_message(text.encode(), "d.md").message
    assert isinstance(message, TaskMessage)
    assert message.own_headers() == {"x-ticket": ["OPS-12", {"late": "no"}]}


def test_every_part_of_a_childs_spec_travels_and_is_shown(tmp_path: Path) -> None:
    parts = {name: f"the {name}" for name in ("goal", "context", "scope_in", "scope_out", "inputs", "outputs", "risks")}
    planned = PlannedChild("a", ("bob",), "do a", acceptance_criteria=("one page",), instructions="Do it.", **parts)  # type: ignore[arg-type]  # texts
    desk = company(planned)
    message = parse_message(sent(desk, tmp_path, "t.a").encode(), "d.md").message
    assert isinstance(message, TaskMessage)
    spec = message.spec()
    assert spec.context.startswith("the context\n\n### Background")
    assert replace(spec, context="the context") == desk.task("t.a").spec
    shown = parse_task_file(render_task_file(desk.task_file(), Templates(None)), "task.md")
    assert shown.plan.children == (planned,)


def test_whose_answer_decides_is_told_to_declare_it_and_how(tmp_path: Path) -> None:
    flow = Flow((Condition(("approve",), "a"),))
    text = sent(company(child("a", "bob"), child("b", "bob", "a", flow=flow)), tmp_path, "t.a")
    assert "depends on whether it is approve. Begin with" in text
    form = text.partition("~~~\n")[2].partition("\n~~~")[0]
    assert read_answer(form) == Results("The result itself", "your answer")


def test_a_round_is_told_what_the_round_before_brought(tmp_path: Path) -> None:
    parts = (child("build", "bob"), child("review", "amy", "build"))
    flow = Flow(rounds=3, until=Condition(("approve",), "review"))
    desk = company(child("loop", "self", flow=flow, children=parts, overrides=Overrides(synthesis="build")))
    assert "Round" not in sent(desk, tmp_path, "t.loop.1.build")
    desk.ends("t.loop.1.build", Results("first version"))
    assert "depends on whether it is approve" in sent(desk, tmp_path, "t.loop.1.review")
    desk.ends("t.loop.1.review", Results("too short", "revise"))
    desk.done("t.loop.1", "t.loop")
    text = sent(desk, tmp_path, "t.loop.2.build")
    assert "### Round 2 of at most 3" in text
    for part in ("### round 1: build (from agent bob)", "first version", "### round 1: review", "too short"):
        assert part in text


def test_the_synthesis_hears_what_was_not_done(tmp_path: Path) -> None:
    skip = Flow((Condition(("no",), "a"),))
    desk = company(child("a", "bob"), child("b", "bob", "a", flow=skip))
    desk.ends("t.a", Results("x", "yes"))
    assert "- b: skipped: a answered yes; it runs if the answer is no" in sent(desk, tmp_path, "t")


def reviewing(desk: Desk, name: str) -> str:
    """The prompt of the review that is ordered."""
    (review,) = (turn for turn in desk.orders(RunTurn, name) if turn.turn is Turn.REVIEW)
    return desk.prompt(review, name)


def test_a_reviewer_of_the_specification_sees_context_background_and_dependencies() -> None:
    """All that the executor will be given, without which a specification cannot be judged; and nothing twice."""
    gated = Overrides(gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex",))
    figures = child("figures", "bob", description="Get the figures of Q3")
    desk = company(figures, child("text", "bob", "figures", context="EMEA is late.", overrides=gated))
    text = reviewing(desk, "t.text")
    for part in ("EMEA is late.", "### Background", "Know why revenue grew", "The board meets on 12 October."):
        assert text.count(part) == 1
    assert "Its executor is given the results of these" in text
    assert "- figures: Get the figures of Q3" in text
    assert text.index("- figures") < text.index("# How to answer")


def test_a_reviewer_of_a_specification_without_dependencies_reads_of_none() -> None:
    gated = Overrides(gates=frozenset({Gate.SPEC_REVIEW}), reviewers=("rex",))
    assert "Dependencies" not in reviewing(company(child("a", "bob", overrides=gated)), "t.a")


def published(*children: PlannedChild) -> Desk:
    """The action of the child a has run."""
    desk = company(child("a", "bob", planned_actions=(PUBLISH,)), *children)
    desk.done("t.a")
    prepare(desk, "t.a")
    approve_all(desk, "t.a")
    begin(desk, name="t.a")
    end(desk, name="t.a")
    desk.start()
    return desk


RAN = "### Actions that were performed, once"


def test_the_synthesis_hears_that_an_approved_action_ran(tmp_path: Path) -> None:
    text = sent(published(), tmp_path, "t")
    assert "- run make publish: it is done" in text.partition(RAN)[2]
    assert text.index(RAN) < text.index("# How to answer")


@pytest.mark.parametrize("agent", ["self", "amy"])
def test_whoever_goes_on_from_there_hears_that_an_approved_action_ran(agent: str, tmp_path: Path) -> None:
    text = sent(published(child("announce", agent, "a")), tmp_path, "t.announce")
    assert "- run make publish: it is done" in text.partition(RAN)[2]


def test_the_next_attempt_hears_what_was_done(tmp_path: Path) -> None:
    desk = published()
    desk.done("t")
    desk.command("t.a", Retry("Shorter."))
    desk.start()
    assert "- run make publish: it is done" in sent(desk, tmp_path, "t.a").partition(RAN)[2]


def test_nothing_is_said_of_an_action_that_did_not_run(tmp_path: Path) -> None:
    desk = company(child("a", "bob", planned_actions=(PUBLISH,)), child("b", "bob"))
    desk.done("t.a")
    prepare(desk, "t.a")
    assert RAN not in sent(desk, tmp_path, "t.b")
