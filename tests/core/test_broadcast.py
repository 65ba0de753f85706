"""Votes of a broadcast: one rule for when two answers are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.lifecycle import count_votes, majority, vote, winner
from mailboxd.core.model import Overrides
from mailboxd.core.outcomes import Failed, Failure, Permanence, Results
from mailboxd.core.vocabulary import Join, Phase
from tests.core.desk import Desk, child, plan, with_policy


@pytest.mark.parametrize(
    ("answer", "result", "is_"),
    [
        ("yes", "because", "yes"),
        (" yes\n", "because", "yes"),
        ("", "\n\nyes \n", "yes"),
        (" \n", "yes", "yes"),
        ("", "two\nlines", "two\nlines"),
        ("Yes", "", "Yes"),
    ],
)
def test_a_vote_is_the_declared_answer_or_the_result_without_white_space_around_it(
    answer: str, result: str, is_: str
) -> None:
    assert vote(answer, result) == is_


def test_more_than_half_of_all_copies_decide() -> None:
    votes = count_votes([("a", ""), ("", "\na\n"), ("b", "")])
    assert votes == (("a", 2), ("b", 1))
    assert majority(votes, 3) == "a"
    assert majority(votes, 4) is None, "half is not more than half"
    assert majority((), 3) is None


def asked(*agents: str) -> Desk:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("ask", agents, overrides=Overrides(join=Join.MAJORITY))))
    return desk


@pytest.mark.parametrize("second", ["yes", "\nyes\n", "yes "])
def test_the_rule_is_the_same_where_it_is_decided_and_where_it_is_composed(second: str) -> None:
    desk = asked("ada", "bob", "eve")
    desk.ends("t.ask.ada", Results("no"))
    desk.ends("t.ask.bob", Results("yes"))
    assert desk.phase("t.ask") is Phase.EXECUTING
    desk.ends("t.ask.eve", Results(second))
    copies = desk.children("t.ask")
    assert vote(winner(Join.MAJORITY, copies).answer, winner(Join.MAJORITY, copies).result) == "yes"
    assert winner(Join.FIRST, [replace(copies[1], completed_at="1"), replace(copies[0], completed_at="2")]).key == "bob"


def test_a_member_that_failed_counts_as_one_that_said_something_else() -> None:
    desk = asked("ada", "bob", "eve")
    desk.ends("t.ask.ada", Failed("no", Permanence.PERMANENT))
    desk.ends("t.ask.bob", Results("yes"))
    assert desk.phase("t.ask") is Phase.EXECUTING
    desk.ends("t.ask.eve", Results("yes"))
    desk.ends("t.ask", Results("yes"))
    assert desk.phase("t.ask") is Phase.COMPLETED


def test_a_tie_fails_when_all_have_spoken() -> None:
    desk = asked("ada", "bob", "eve")
    desk.ends("t.ask.ada", Results("yes"))
    desk.ends("t.ask.bob", Results("no"))
    assert desk.phase("t.ask") is Phase.EXECUTING
    desk.ends("t.ask.eve", Failure("I cannot say"))
    assert desk.phase("t.ask") is Phase.FAILED
    assert "no copy of the broadcast can complete its join" in desk.task("t.ask").reason
