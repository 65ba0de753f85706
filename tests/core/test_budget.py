"""What work may cost: the sums up the tree, the hold, and how it is let go on."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.core.budget import over, raised
from mailboxd.core.effects import RunTurn
from mailboxd.core.inputs import Remedy, Reply, TurnEnded, Unblock
from mailboxd.core.model import Overrides, Policy, Spent, Usage
from mailboxd.core.outcomes import Aborted, Acknowledged, Failed, Results, Succeeded, Unknown
from mailboxd.core.specs import inherit
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import Turn
from tests.core.desk import DONE, Desk, child, plan, refused, with_policy

HALF_A_DOLLAR = Usage(10, 5, 0.5)


def spends(desk: Desk, name: str, usage: Usage = HALF_A_DOLLAR) -> None:
    """The ordered turn of a task ends with a result and this cost."""
    desk.ends(name, DONE, usage=usage)


@pytest.mark.parametrize(
    ("policy", "spent", "why"),
    [
        ({}, Spent(10**9, 10.0**6, 10**6), ""),
        ({"budget_usd": 1.0}, Spent(usd=0.99), ""),
        ({"budget_usd": 1.0}, Spent(usd=1.0), "over budget: it has cost 1 USD of 1 USD"),
        ({"budget_usd": 0.0}, Spent(), "over budget: it has cost 0 USD of 0 USD"),
        ({"budget_tokens": 100}, Spent(tokens=120), "over budget: it has used 120 of 100 tokens"),
        ({"max_turns": 2}, Spent(turns=1), ""),
        ({"max_turns": 2}, Spent(turns=2), "over budget: it has taken 2 turns, 2 are allowed (limits.turns_per_task)"),
        ({"max_tree_turns": 9}, Spent(tree_turns=8), ""),
        (
            {"max_tree_turns": 9},
            Spent(tree_turns=9),
            "over budget: its tree has taken 9 turns, 9 are allowed (limits.turns_per_tree)",
        ),
        ({"max_tree_tasks": 20}, Spent(tree_tasks=20), ""),
        (
            {"max_tree_tasks": 20},
            Spent(tree_tasks=21),
            "over budget: agents have planned its tree up to 21 tasks, 20 are allowed (limits.planned_per_tree)",
        ),
    ],
)
def test_when_it_is_used_up(policy: dict[str, Any], spent: Spent, why: str) -> None:
    assert over(Policy(**policy), spent) == why


def test_turns_are_granted_again_and_the_rest_is_as_the_operator_says() -> None:
    policy = Policy(max_turns=2, budget_usd=1.0)
    limits = Limits(turns=4, tree_turns=100, planned=50)
    dollars, tokens = Unblock(Remedy.RETRY, budget_usd=5.0), Unblock(Remedy.RETRY, budget_tokens=9)
    assert raised(policy, Spent(turns=3), dollars, limits) == {"budget_usd": 5.0, "max_turns": 7}
    assert raised(policy, Spent(turns=1), tokens, limits) == {"budget_tokens": 9}
    tree = Policy(max_tree_turns=10, max_tree_tasks=20)
    assert raised(tree, Spent(tree_turns=12, tree_tasks=30), tokens, limits) == {
        "budget_tokens": 9, "max_tree_turns": 112, "max_tree_tasks": 80,
    }  # fmt: skip
    assert raised(tree, Spent(tree_turns=12), tokens, Limits()) == {"budget_tokens": 9, "max_tree_turns": 0}


@pytest.mark.parametrize(
    ("said", "deadline", "priority"),
    [
        (Overrides(), "2026-06-01T00:00:00.000Z", 5),
        (Overrides(deadline="2026-05-01T00:00:00.000Z", priority=-5), "2026-05-01T00:00:00.000Z", -5),
        (Overrides(deadline="2026-07-01T00:00:00.000Z", priority=50), "2026-06-01T00:00:00.000Z", 5),
    ],
)
def test_a_child_may_only_tighten_the_deadline_and_lower_the_priority(
    said: Overrides, deadline: str, priority: int
) -> None:
    parent = Policy(deadline="2026-06-01T00:00:00.000Z", priority=5, budget_usd=1.0, budget_tokens=7)
    own = inherit(parent, said)
    assert (own.deadline, own.priority, own.budget_usd, own.budget_tokens) == (deadline, priority, None, None)


def test_every_turn_is_on_the_account_of_all_above_it() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob"), child("b", "eve")))
    spends(desk, "t.a")
    spends(desk, "t.b", Usage(None, 4, None))
    spends(desk, "t", Usage(1, 1, 0.25))
    spent = [desk.spent(name) for name in ("t", "t.a", "t.b")]
    assert spent == [Spent(21, 0.75, 1, 3, 2), Spent(15, 0.5, 1), Spent(4, 0.0, 1)]
    desk.verify()


@pytest.mark.parametrize(
    ("outcome", "turns", "tokens"),
    [
        (Failed("cut", usage=Usage(3, 4, 0.1)), 1, 7),
        (Failed("refused", started=False), 0, 0),
        (Aborted("SIGTERM"), 1, 0),
        (Unknown("lost"), 0, 0),
        (Unknown("lost", looked_up=True), 1, 0),
    ],
)
def test_what_counts_as_a_turn(outcome: Any, turns: int, tokens: int) -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", outcome)
    spent = desk.spent("t")
    assert (spent.turns, spent.tokens) == (turns, tokens)


def test_a_turn_that_comes_too_late_has_cost_something_all_the_same() -> None:
    desk = Desk()
    desk.give()
    old = desk.attempt().id
    desk.ends("t", Failed("down"))
    desk.handle("t", TurnEnded(Turn.WORK, old, "main", Succeeded("late", HALF_A_DOLLAR), Results("late")))
    assert desk.spent("t").usd == 0.5


def test_over_budget_nothing_of_the_tree_starts_and_what_runs_is_let_finish() -> None:
    desk = Desk(slots_per_agent=2)
    children = plan(child("a", "bob"), child("b", "eve"), child("c", "eve", "a"))
    desk.give(plan=children, policy=with_policy(budget_usd=0.5))
    spends(desk, "t.a")
    assert desk.task("t").held == "over budget: it has cost 0.5 USD of 0.5 USD"
    assert desk.phases("t", "t.b", "t.c") == ["executing", "executing", "execution_ready"]
    spends(desk, "t.b")
    assert desk.phases("t.b", "t.c") == ["completed", "execution_ready"]
    desk.give("other")
    assert desk.phase("other").value == "executing", "it keeps nobody else waiting"
    with refused(desk, "over-budget"):
        desk.command("t", Unblock(Remedy.RETRY, budget_usd=1.0))
    with refused(desk, "held"):
        desk.command("t", Unblock(Remedy.FAIL))
    desk.command("t", Unblock(Remedy.RETRY, budget_usd=3.0))
    desk.start()
    assert (desk.task("t").held, desk.phase("t.c").value) == ("", "executing")
    desk.verify()


def test_what_a_peer_reports_counts_once_and_only_from_the_one_that_has_it() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    attempt = desk.attempt("t.a")
    said = Reply("eve", Results("mine"), attempt.id, usage=Usage(None, 10**9, 10.0**6))
    with refused(desk, "wrong-agent"):
        desk.handle("t.a", said)
    told = Reply("bob", Results("done"), attempt.id, attempt.reply_token, usage=Usage(None, 40, 0.2))
    desk.handle("t.a", told)
    desk.handle("t.a", told)
    assert desk.spent("t") == Spent(40, 0.2, 0, 1, 1)
    desk.verify()


def test_what_is_left_goes_down_to_a_peer() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob"), child("b", "eve")), policy=with_policy(budget_usd=2.0, budget_tokens=100))
    spends(desk, "t.a")
    assert desk.remaining("t.b") == (1.5, 85)


# ---------------------------------------------------------------- limits that every tree has

TEN = tuple(child(f"c{number}") for number in range(10))


def recursive(desk: Desk) -> None:
    """Each turn that is ordered plans ten children more, until no turn is ordered."""
    for _ in range(500):
        orders = desk.pending(RunTurn)
        if not orders:
            return
        desk.plans(desk.name(orders[0]), *TEN)
    raise AssertionError("it grows without end")


@pytest.mark.slow
def test_a_tree_whose_agents_plan_without_end_is_held_at_its_limit_and_nothing_is_dropped() -> None:
    desk = Desk(with_policy(max_tree_tasks=200), limits=Limits(planned=200), slots=4, slots_per_agent=4)
    desk.give(sender="operator")
    recursive(desk)
    held = desk.task("t").held
    assert held.endswith("200 are allowed (limits.planned_per_tree)")
    size = desk.count()
    assert 200 < size - 1 <= 200 + 4 * 10, "what was planned by turns that ran stands there"
    desk.command("t", Unblock(Remedy.RETRY))
    desk.start()
    assert desk.orders(RunTurn), "it goes on"
    recursive(desk)
    assert size - 1 + 200 < desk.count() - 1 <= size - 1 + 240, "by as much again"
    desk.verify()


def test_a_plan_that_a_person_wrote_is_allowed_up_to_its_own_size() -> None:
    desk = Desk(with_policy(max_tree_tasks=5, max_tree_turns=2), limits=Limits(planned=5, tree_turns=2))
    desk.give(sender="operator", plan=plan(*TEN))
    assert (desk.task("t").held, len(desk.orders(RunTurn))) == ("", 10)
    for number in range(9):
        desk.done(f"t.c{number}")
    assert desk.task("t").held == "", "each of its tasks brings turns of its own"
    desk.plans("t.c9", *TEN)
    assert desk.task("t").held.endswith("20 tasks, 15 are allowed (limits.planned_per_tree)")
    assert desk.orders(RunTurn) == []


def test_a_plan_that_another_agent_sent_is_no_consent() -> None:
    desk = Desk(with_policy(max_tree_tasks=5), limits=Limits(planned=5))
    desk.give(sender="bob", plan=plan(*TEN))
    assert "limits.planned_per_tree" in desk.task("t").held
    assert desk.orders(RunTurn) == []


def test_the_turns_of_a_tree_have_a_limit() -> None:
    desk = Desk(with_policy(max_tree_turns=3), limits=Limits(tree_turns=3), slots=1)
    desk.give(sender="boss", plan=plan(*TEN))
    for number in range(3):
        desk.done(f"t.c{number}")
    assert desk.task("t").held == "over budget: its tree has taken 3 turns, 3 are allowed (limits.turns_per_tree)"
    assert desk.orders(RunTurn) == []
    desk.command("t", Unblock(Remedy.RETRY))
    desk.start()
    assert len(desk.orders(RunTurn)) == 1


def test_what_agents_plan_within_an_hour_has_a_limit_over_all_trees() -> None:
    desk = Desk(limits=Limits(planned_hour=15))
    desk.give("a")
    desk.give("b")
    desk.give("c")
    desk.plans("a", *TEN)
    desk.plans("b", *TEN)
    assert desk.task("a").held == ""
    assert desk.task("b").held == (
        "over budget: agents have planned 20 tasks within an hour, 15 are allowed (limits.planned_per_hour)"
    )
    assert len(desk.orders(RunTurn)) == 11, "the others go on"
    desk.command("b", Unblock(Remedy.RETRY))
    desk.start()
    assert len(desk.orders(RunTurn)) == 21
    desk.wait(3601)
    desk.plans("c", *TEN)
    assert desk.task("c").held == ""
    desk.verify()


def restarted(desk: Desk, limits: Limits) -> None:
    """The daemon is started with other limits."""
    desk.configured(limits=limits)
    desk.look_again()


def test_a_limit_that_is_raised_in_the_configuration_lets_go_on_what_it_held() -> None:
    desk = Desk(with_policy(max_tree_tasks=5), limits=Limits(planned=5))
    desk.give(sender="boss", plan=plan(*TEN))
    restarted(desk, Limits(planned=9))
    assert "10 tasks, 5 are allowed (limits.planned_per_tree)" in desk.task("t").held, "9 are still too few"
    restarted(desk, Limits(planned=12))
    assert desk.task("t").held == ""
    assert len(desk.orders(RunTurn)) == 10
    desk.plans("t.c0", *TEN)
    assert desk.task("t").held.endswith("20 tasks, 12 are allowed (limits.planned_per_tree)")
    restarted(desk, Limits(planned=0))
    assert desk.task("t").held == ""
    desk.verify()


def test_a_limit_that_was_raised_before_it_was_met_holds_nothing_at_the_old_one() -> None:
    desk = Desk(with_policy(max_tree_turns=3), limits=Limits(tree_turns=3), slots=1)
    desk.give(sender="boss", plan=plan(*TEN))
    restarted(desk, Limits(tree_turns=5))
    for number in range(4):
        desk.done(f"t.c{number}")
    assert desk.task("t").held == ""
    desk.done("t.c4")
    assert desk.task("t").held.endswith("5 turns, 5 are allowed (limits.turns_per_tree)")
    restarted(desk, Limits(tree_turns=4))
    assert desk.task("t").policy.max_tree_turns == 5, "a lower one is for new work"
    desk.verify()


def test_what_was_held_for_the_hour_goes_on_only_if_its_limit_is_raised() -> None:
    desk = Desk(limits=Limits(planned_hour=15))
    desk.give("a")
    desk.plans("a", *TEN)
    desk.give("b")
    desk.plans("b", *TEN)
    desk.wait(3601)
    restarted(desk, Limits(planned_hour=15))
    assert desk.task("b").held, "that the hour is over lets nothing go on"
    restarted(desk, Limits(planned_hour=20))
    assert desk.task("b").held == ""
    desk.verify()


def test_no_limit_lets_go_on_what_has_used_up_its_own_budget() -> None:
    desk = Desk(with_policy(budget_usd=0.4, max_tree_turns=3), limits=Limits(tree_turns=3))
    desk.give(plan=plan(*TEN))
    spends(desk, "t.c0")
    restarted(desk, Limits())
    assert desk.task("t").held.startswith("over budget: it has cost")
