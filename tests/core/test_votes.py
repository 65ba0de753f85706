"""Declared answers: what may be declared, who has to, and how the votes of a broadcast are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.effects import Send
from mailboxd.core.events import Kind
from mailboxd.core.model import NO_FLOW, Condition, Flow, Overrides, Plan, PlannedChild
from mailboxd.core.outcomes import Planned, Results
from mailboxd.core.plans import admit
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import Join, Phase
from mailboxd.errors import PlanError
from mailboxd.formats.protocol.messages import VOTES, ReplyMessage, parse_message
from tests.core.desk import Desk

YES_NO = Flow(answers=("yes", "no"))


def child(key: str, *needs: str, flow: Flow = NO_FLOW, inside: tuple[PlannedChild, ...] = ()) -> PlannedChild:
    return PlannedChild(key, ("self",), key, needs, flow=flow, children=inside)


@pytest.mark.parametrize(
    "flow",
    [
        Flow(when=(Condition(("maybe",), "ask"),)),
        Flow(when=(Condition(("yes", "maybe"), "ask", negated=True),)),
        Flow(rounds=2, until=Condition(("maybe",)), answers=("yes", "no")),
    ],
)
def test_a_condition_on_an_answer_that_cannot_be_given_is_refused(flow: Flow) -> None:
    plan = Plan((child("ask", flow=YES_NO), child("go", "ask", flow=flow)))
    with pytest.raises(PlanError, match="none of yes, no"):
        admit(plan, Limits(), 0)


def test_so_is_one_on_a_part_of_a_round() -> None:
    inside = (child("review", flow=Flow(answers=("approve", "revise"))),)
    loop = Flow(rounds=2, until=Condition(("aprove",), "review"))
    with pytest.raises(PlanError, match="none of approve, revise"):
        admit(Plan((child("work", flow=loop, inside=inside),)), Limits(), 0)


def test_a_condition_on_a_declared_answer_is_admitted_in_any_case_of_letters() -> None:
    admit(Plan((child("ask", flow=YES_NO), child("go", "ask", flow=Flow((Condition(("Yes",), "ask"),))))), Limits(), 0)


def test_copies_and_rounds_declare_what_the_whole_declares_and_parts_of_a_round_what_is_theirs() -> None:
    desk = Desk()
    vote = PlannedChild("vote", ("ada", "bob", "eve"), "Vote", overrides=Overrides(join=Join.MAJORITY), flow=YES_NO)
    loop = child(
        "loop", flow=Flow(rounds=2, answers=("go", "stop")), inside=(child("part"), child("last", flow=YES_NO))
    )
    desk.give(plan=Plan((vote, loop, child("free"))))
    found = {name: desk.answers(name) for name in (
        "t.vote", "t.vote.bob", "t.loop.1", "t.loop.1.part", "t.loop.1.last", "t.free", "t"
    )}  # fmt: skip
    assert found == {
        "t.vote": ("yes", "no"), "t.vote.bob": ("yes", "no"), "t.loop.1": ("go", "stop"), "t.loop.1.part": (),
        "t.loop.1.last": ("yes", "no"), "t.free": (), "t": (),
    }  # fmt: skip


def test_the_result_of_a_vote_says_how_many_agreed_and_who_did_not() -> None:
    desk = Desk()
    agents = ("ada", "bob", "eve", "kim", "lea")
    vote = PlannedChild("vote", agents, "Vote", overrides=Overrides(join=Join.MAJORITY), flow=YES_NO)
    desk.give(plan=Plan((vote,)))
    desk.ends("t.vote.ada", Results("All is well.", "yes"))
    desk.ends("t.vote.bob", Results("The paint is wet.\nStill.", "no"))
    desk.ends("t.vote.eve", Results("yes", "yes"))
    desk.ends("t.vote.kim", Results("Fine.", "yes"))
    said = desk.composed("t.vote")
    assert isinstance(said, Results)
    assert said.answer == "yes"
    assert said.text.startswith("All is well.")
    assert said.text.endswith("[mailboxd] 3 of 5 said yes; bob said no: The paint is wet; lea has not voted.")


def test_the_reply_with_the_result_of_a_vote_has_the_votes_as_a_header_and_in_words() -> None:
    desk = Desk()
    vote = PlannedChild("vote", ("ada", "bob", "eve"), "Vote", overrides=Overrides(join=Join.MAJORITY), flow=YES_NO)
    desk.give(plan=Plan((vote,), synthesis="vote"))
    desk.ends("t.vote.ada", Results("All is well.", "yes"))
    desk.ends("t.vote.bob", Results("The paint is wet: still.", "no"))
    desk.ends("t.vote.eve", Results("yes", "yes"))
    desk.ends("t.vote", Results(""))
    desk.ends("t", Results(""))
    assert desk.phase() is Phase.COMPLETED
    (reply,) = [send for send in desk.orders(Send) if send.type == "reply"]
    message = parse_message(desk.message(reply, "t", Path("/nowhere")), "m.md").message
    assert isinstance(message, ReplyMessage)
    assert message.results.endswith("[mailboxd] 2 of 3 said yes; bob said no: The paint is wet: still.")
    assert message.own_headers()[VOTES] == [
        {"vote": "vote", "key": "ada", "agent": "ada", "said": "yes", "why": "All is well.", "counts": "yes"},
        {"vote": "vote", "key": "bob", "agent": "bob", "said": "no", "why": "The paint is wet: still.", "counts": "no"},
        {"vote": "vote", "key": "eve", "agent": "eve", "said": "yes", "counts": "yes"},
    ]


def test_a_reply_that_an_agent_has_made_of_a_vote_says_above_it_how_it_went() -> None:
    desk = Desk()
    vote = PlannedChild("vote", ("ada", "bob", "eve"), "Vote", overrides=Overrides(join=Join.MAJORITY), flow=YES_NO)
    desk.give(plan=Plan((vote,)))
    for agent, said in (("ada", "yes"), ("bob", "no"), ("eve", "yes")):
        desk.ends(f"t.vote.{agent}", Results(said, said))
    desk.ends("t.vote", Results(""))
    desk.ends("t", Results("We go."))
    (reply,) = [send for send in desk.orders(Send) if send.type == "reply"]
    raw = desk.message(reply, "t", Path("/nowhere")).decode()
    message = parse_message(raw.encode(), "m.md").message
    assert isinstance(message, ReplyMessage)
    assert message.results == "We go."
    assert "[mailboxd] 2 of 3 said yes; bob said no.\n" in raw
    votes = message.own_headers()[VOTES]
    assert isinstance(votes, list)
    assert len(votes) == 3


def test_a_vote_without_a_majority_names_the_votes() -> None:
    desk = Desk()
    vote = PlannedChild("vote", ("ada", "bob"), "Vote", overrides=Overrides(join=Join.MAJORITY), flow=YES_NO)
    desk.give(plan=Plan((vote,)))
    desk.ends("t.vote.ada", Results("It is.", "yes"))
    desk.ends("t.vote.bob", Results("It is not.", "no"))
    assert desk.phase("t.vote") is Phase.FAILED
    assert desk.task("t.vote").reason.endswith(": 1 said no, 1 said yes")


def test_work_that_comes_with_answers_keeps_them_and_an_agents_plan_says_its_doubts() -> None:
    desk = Desk()
    desk.give(answers=("keep", "sell"))
    assert desk.answers("t") == ("keep", "sell")
    events = desk.ends("t", Planned(Plan((child("a"),), doubts=("estimate has no effect here",))))
    (doubted,) = [event for event in events if event.kind is Kind.DOUBTED]
    assert doubted.data["text"] == "estimate has no effect here"
