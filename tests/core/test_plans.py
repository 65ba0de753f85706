"""Admission of plans, and what a tree does once it runs (protocol section 4; design notes, decision 5)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.effects import Compose, RunTurn, Send
from mailboxd.core.inputs import Cancel, ChildEdited, Edited, Remedy, Retry, Unblock
from mailboxd.core.model import Origin, Overrides, Plan, PlannedChild, Spec
from mailboxd.core.outcomes import Failed, Failure, Planned, Results, Succeeded
from mailboxd.core.plans import MOST_STEPS, admit, delegation_path, step
from mailboxd.core.task_view import Level, Limits
from mailboxd.core.vocabulary import Join, Mode, Phase, Synthesis, Turn
from mailboxd.errors import PlanError
from tests.core.desk import DONE, PUBLISH, Desk, child, plan, refused, with_policy


def refusal(*children: PlannedChild, limits: Limits | None = None, depth: int = 0, **levels: object) -> PlanError:
    with pytest.raises(PlanError) as caught:
        admit(Plan(children), limits or Limits(), depth, **levels)  # type: ignore[arg-type]
    return caught.value


# ---------------------------------------------------------------- admission


@pytest.mark.parametrize(
    ("children", "path"),
    [
        ((child("a", "self", "a"),), "a -> a"),
        ((child("a", "self", "b"), child("b", "self", "a")), "a -> b -> a"),
        ((child("p", children=(child("c", "self", "x"),)), child("x", "self", "p")), "p -> p/c -> x -> p"),
        ((child("p", "self", "x", children=(child("c"),)), child("x", "self", "p")), "p -> x -> p"),
        (
            (child("p", children=(child("q", children=(child("c", "self", "x"),)),)), child("x", "self", "p")),
            "p -> p/q -> p/q/c -> x -> p",
        ),
    ],
)
def test_what_would_wait_for_each_other_for_ever_is_refused_with_the_path(
    children: tuple[PlannedChild, ...], path: str
) -> None:
    error = refusal(*children)
    assert (error.rule, error.problem) == ("cycle", f"these would wait for each other forever: {path}")


# ---------------------------------------------------------------- work that comes back


def from_above(*steps: tuple[str, str]) -> Origin:
    """Work that has come down from these agents, each with its goal."""
    return Origin(attempt_id="theirs-1", delegation_path=tuple(step(agent, goal) for agent, goal in steps))


def test_work_that_comes_back_to_an_agent_above_with_the_same_goal_is_refused_with_the_path() -> None:
    desk = Desk()
    desk.give("report", sender="alpha", origin=from_above(("boss", "Year"), ("alpha", "Write it"), ("alpha", "Report")))
    desk.plans("report", child("back", "ALPHA", description="  write\nIT "))
    assert "back to ALPHA with the same goal: alpha -> main -> alpha" in desk.told("report")
    desk.plans("report", child("facts", "alpha", description="Check the facts"))
    assert desk.phases("report", "report.facts") == ["executing", "executing"]


def test_the_agents_of_a_tree_in_one_workspace_are_a_path_too() -> None:
    inner = child("p", "bob", description="Part", children=(child("q", "main", description="Job"),))
    desk = Desk()
    desk.give("t", spec=Spec(goal="Job", instructions="Do it.", expected_output="It."))
    desk.plans("t", inner)
    assert "main -> bob -> main" in desk.told("t")
    desk.plans("t", child("p", "bob", description="Part"))
    desk.plans("t.p", child("q", "self", description="Job"))
    assert "main -> bob -> main" in desk.told("t.p")


def test_an_agent_may_give_itself_a_part_that_is_called_like_the_whole() -> None:
    desk = Desk()
    desk.give("t", spec=Spec(goal="Job", instructions="Do it.", expected_output="It."))
    desk.plans("t", child("a", "self", description="Job"), child("b", ("self", "bob"), description="Job"))
    assert desk.phase("t.a") is Phase.EXECUTING


def test_a_receiver_refuses_what_it_has_given_away_itself() -> None:
    origin = from_above(("main", "Report"), ("bob", "Write"))
    desk = Desk()
    with pytest.raises(PlanError) as caught:
        desk.give("t", sender="bob", origin=origin, spec=Spec(goal="report", instructions="Do it."))
    assert (caught.value.rule, "main -> bob -> main" in caught.value.problem) == ("delegation-loop", True)
    desk.give("u", sender="bob", origin=origin, spec=Spec(goal="Sources", instructions="Do it."))
    assert desk.phase("u") is Phase.EXECUTING


def test_a_delegation_path_has_a_bound_and_keeps_the_latest() -> None:
    origin = from_above(*((f"a{number}", "x") for number in range(90)))
    desk = Desk()
    task = desk.give("t", sender="a89", origin=origin)
    path = delegation_path((task,))
    assert (len(path), path[-1]) == (MOST_STEPS, step("main", "t"))


def test_a_nested_plan_may_need_a_sibling_of_its_parent() -> None:
    admit(plan(child("x"), child("p", children=(child("c", "self", "x"),))), Limits(), 0)


def test_children_added_later_are_checked_together_with_those_around_them() -> None:
    around = Level({"p": [], "x": ["p"]}, "p")
    error = refusal(child("z", "self", "x"), existing=Level({}), outer=(around,))
    assert error.problem.endswith("p -> p/z -> x -> p")
    admit(plan(child("z", "self", "x")), Limits(), 1, Level({}), (Level({"p": [], "x": []}, "p"),))


def test_what_stands_deeper_elsewhere_counts_when_a_plan_is_added() -> None:
    desk = Desk()
    desk.give(plan=plan(child("p"), child("z", children=(child("w", "self", "p"),))))
    desk.plans("t.p", child("c", "self", "z"))
    assert "p -> p/c -> z -> p" in desk.told("t.p")


def test_a_name_means_the_nearest_child_that_has_it() -> None:
    admit(plan(child("p", "self", "a", children=(child("a"), child("b", "self", "a"))), child("a")), Limits(), 0)


@pytest.mark.parametrize(
    ("children", "rule"),
    [
        ((), "empty-plan"),
        ((child("a", "self", "nobody"),), "unknown-dependency"),
        ((child("a"), child("a")), "duplicate-subtask"),
        ((child("../a"),), "bad-id"),
        ((child("a", ()),), "missing-field"),
        ((child("a", "no such\nagent"),), "bad-id"),
        ((child("a", ("x", "x")),), "duplicate-subtask"),
        ((child("a", ("x", "y"), children=(child("b"),)),), "bad-plan"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(children: tuple[PlannedChild, ...], rule: str) -> None:
    assert refusal(*children).rule == rule


def test_a_child_that_stands_already_is_not_planned_twice() -> None:
    assert refusal(child("a"), existing=Level({"a": []})).rule == "duplicate-subtask"


def test_a_plan_stays_within_the_operators_limits() -> None:
    deep = child("a", children=(child("b", children=(child("c"),)),))
    assert refusal(deep, limits=Limits(depth=2)).rule == "too-deep"
    assert refusal(child("a"), limits=Limits(depth=2), depth=2).rule == "too-deep"
    many = [child(f"c{number}") for number in range(11)]
    assert refusal(*many, limits=Limits(children=10)).rule == "plan-too-large"
    assert refusal(child("a"), limits=Limits(children=10), existing=Level({key.key: [] for key in many})).rule
    copies = child("a", tuple(f"peer{number}" for number in range(10)))
    assert refusal(copies, limits=Limits(children=10)).rule == "plan-too-large"
    needs = [child("a"), child("b", "self", "a"), child("c", "self", "a", "b")]
    assert refusal(*needs, limits=Limits(edges=2)).rule == "plan-too-large"


@pytest.mark.slow
def test_a_cycle_of_100000_is_found_at_once_and_shown_with_ten_names() -> None:
    size = 100_000
    ring = [child(f"n{number}", "self", f"n{(number + 1) % size}") for number in range(size)]
    began = time.process_time()
    error = refusal(*ring, limits=Limits(children=size, edges=size))
    assert time.process_time() - began < 10
    assert error.rule == "cycle"
    assert error.problem.count(" -> ") == 10


def test_what_a_parent_needs_costs_its_children_nothing() -> None:
    # edges copied to every child would be 16 million here, and a plan of 100 KB would take gigabytes
    many = 4_000
    first = [child(f"a{number}") for number in range(many)]
    below = tuple(child(f"b{number}") for number in range(many))
    began = time.process_time()
    admit(plan(*first, child("p", "self", *(c.key for c in first), children=below)), Limits(), 0)
    assert time.process_time() - began < 2


@st.composite
def forests(draw: st.DrawFn) -> tuple[tuple[PlannedChild, ...], bool]:
    """Plans of two levels with any needs, and whether running them greedily ever stops short of the end."""
    keys = [f"k{number}" for number in range(draw(st.integers(1, 4)))]
    inner = {key: [f"{key}i{number}" for number in range(draw(st.integers(0, 2)))] for key in keys}
    needs = {key: draw(st.lists(st.sampled_from(keys), max_size=2, unique=True)) for key in keys}
    for below in inner.values():
        for name in below:
            needs[name] = draw(st.lists(st.sampled_from([*keys, *below]), max_size=2, unique=True))
    parents = {name: key for key, below in inner.items() for name in below}
    done: set[str] = set()
    begun: set[str] = set()
    while True:
        startable = {
            name for name in needs if set(needs[name]) <= done and (name not in parents or parents[name] in begun)
        }
        ended = {name for name in startable if set(inner.get(name, ())) <= done}
        if startable <= begun and ended <= done:
            break
        begun, done = begun | startable, done | ended
    children = tuple(
        child(key, "self", *needs[key], children=tuple(child(name, "self", *needs[name]) for name in inner[key]))
        for key in keys
    )
    return children, done == set(needs)


@given(forests())
def test_a_plan_is_admitted_exactly_if_it_can_be_run_to_its_end(
    forest: tuple[tuple[PlannedChild, ...], bool],
) -> None:
    children, ends = forest
    if ends:
        admit(Plan(children), Limits(), 0)
    else:
        assert refusal(*children).rule == "cycle"


def test_an_agent_out_of_reach_refuses_the_whole_plan() -> None:
    desk = Desk(may_reach=lambda agent: "there is no such agent" if agent == "ghost" else None)
    with pytest.raises(PlanError, match="b: there is no such agent"):
        desk.give(plan=plan(child("a"), child("b", "ghost")))
    assert desk.last_event() == 0


def test_a_reviewer_who_cannot_be_asked_refuses_the_whole_plan_and_an_edit_of_a_child() -> None:
    desk = Desk(may_reach=lambda agent: f"there is no agent {agent}" if agent == "mira" else None, slots=0)
    reviewed = child("b", overrides=Overrides(reviewers=("operator", "main", "mira")))
    with pytest.raises(PlanError, match="b: the reviewer mira cannot be asked: there is no agent mira"):
        desk.give(plan=plan(child("a"), reviewed))
    assert desk.last_event() == 0
    desk.give(plan=plan(child("b")))
    with refused(desk, "unknown-agent"):
        desk.handle("t.b", ChildEdited(reviewed, ()))
    desk.handle("t.b", ChildEdited(child("b", overrides=Overrides(reviewers=("operator", "main"))), ()))


@pytest.mark.parametrize(
    ("children", "told"),
    [
        ((child("a", "self", "b"), child("b", "self", "a")), "forever: "),
        ((child("a", "self", "nobody"),), "which is not in the plan"),
        ((), "no children"),
        (tuple(child(f"c{number}") for number in range(6)), "more than 5 children"),
        ((child("a", "ghost"),), "there is no such agent"),
    ],
    ids=["cycle", "unknown-dependency", "empty-plan", "plan-too-large", "unknown-agent"],
)
def test_an_agent_whose_plan_cannot_be_carried_out_is_told_and_plans_again(
    children: tuple[PlannedChild, ...], told: str
) -> None:
    desk = Desk(
        limits=Limits(children=5), may_reach=lambda agent: "there is no such agent" if agent == "ghost" else None
    )
    desk.give()
    desk.plans("t", *children)
    task = desk.task("t")
    assert (task.phase, task.attempt, task.failures) == (Phase.EXECUTING, 1, 0)
    assert told in desk.told("t")
    assert desk.children("t") == []
    desk.plans("t", child("better", "bob"))
    assert desk.phases("t", "t.better") == ["executing", "executing"]


def test_the_same_plan_in_task_md_and_in_the_answer_counts_once() -> None:
    desk = Desk()
    desk.give()
    desk.handle("t", Edited((child("a", "bob"),)))
    desk.plans("t", child("a", "bob"), child("b", "bob", "a"))
    assert [task.key for task in desk.children("t")] == ["a", "b"]
    desk.done("t.a", "t.b")
    assert desk.orders(RunTurn)[0].turn is Turn.SYNTHESIS


# ---------------------------------------------------------------- a tree runs


def test_a_child_starts_when_what_it_needs_is_completed_and_not_before() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a"), child("b"), child("c", "self", "a", "b")))
    assert desk.phases("t.a", "t.b", "t.c") == ["executing", "executing", "execution_ready"]
    desk.done("t.a")
    assert desk.phase("t.c") is Phase.EXECUTION_READY
    desk.done("t.b")
    assert desk.phase("t.c") is Phase.EXECUTING


def test_a_child_of_a_nested_plan_waits_for_a_sibling_of_its_parent() -> None:
    desk = Desk()
    desk.give(plan=plan(child("x"), child("p", children=(child("c", "self", "x"), child("d")))))
    assert desk.phases("t.p", "t.p.c", "t.p.d") == ["executing", "execution_ready", "executing"]
    desk.done("t.x")
    assert desk.phase("t.p.c") is Phase.EXECUTING


SLICED = Limits(children_at_once=2)


def test_a_large_plan_is_created_a_part_in_each_round() -> None:
    desk = Desk(limits=SLICED)
    children = [child("a", "bob", "e"), child("b"), child("c"), child("d", "self", "a"), child("e")]
    desk.arrive(plan=plan(*children))
    keys = [["a", "b"], ["a", "b", "c", "d"], ["a", "b", "c", "d", "e"]]
    assert desk.keys() == keys[0]
    for round_, present in enumerate(keys[1:]):
        assert desk.tick() is True, f"round {round_}"
        assert desk.keys() == present
    assert desk.tick() is False
    desk.start()
    desk.done("t.b", "t.c", "t.e")
    assert desk.phases("t.a", "t.d") == ["executing", "execution_ready"]
    desk.done("t.a")
    desk.done("t.d")
    assert desk.orders(RunTurn)[0].turn is Turn.SYNTHESIS


def test_a_task_does_not_end_before_all_children_of_its_plan_are_there() -> None:
    desk = Desk(limits=SLICED)
    desk.arrive(plan=plan(child("a"), child("b"), child("c")))
    desk.schedule()
    for order in desk.pending():
        desk.settles(order, desk.end_of(order, Succeeded("done"), DONE))
    assert desk.phases("t", "t.a", "t.b") == ["executing", "completed", "completed"]
    assert desk.orders() == []
    desk.start()
    desk.done("t.c")
    assert desk.orders(RunTurn)[0].turn is Turn.SYNTHESIS


def test_children_of_a_task_that_has_ended_meanwhile_end_with_it_and_are_there_for_a_retry() -> None:
    desk = Desk(with_policy(max_attempts=1), limits=SLICED)
    desk.arrive(plan=plan(*map(child, "abc")))
    desk.schedule()
    (order, *_) = desk.pending()
    desk.settles(order, desk.end_of(order, Failed("no")))
    assert (desk.phase(), desk.keys()) == (Phase.FAILED, ["a", "b"])
    desk.start()
    assert desk.phase("t.c") is Phase.CANCELLED
    desk.command("t", Retry())
    assert desk.phase("t.c") is not Phase.CANCELLED


def test_copies_of_a_broadcast_and_nested_plans_are_created_in_parts_too() -> None:
    desk = Desk(limits=SLICED)
    nested = child("p", children=(child("x"), child("y"), child("z", "self", "x", "q")))
    desk.give(plan=plan(child("q"), nested, child("all", ("bob", "cid", "dora"))))
    for _ in range(3):
        desk.start()
    assert desk.keys("t") == ["q", "p", "all"]
    assert desk.keys("t.p") == ["x", "y", "z"]
    assert desk.keys("t.all") == ["bob", "cid", "dora"]
    needs = desk.needs("t.p.z")
    assert sorted(task.local_id for task in needs) == ["t.p.x", "t.q"]


def test_a_key_that_is_still_to_come_is_taken() -> None:
    desk = Desk(limits=SLICED)
    desk.arrive(plan=plan(*map(child, "abc")))
    with pytest.raises(PlanError) as caught:
        desk.handle("t", Edited((child("c"),)))
    assert caught.value.rule == "duplicate-subtask"


def test_when_all_children_are_completed_the_own_agent_synthesises_in_its_session() -> None:
    desk = Desk()
    desk.give()
    desk.plans("t", child("a"), child("b", "bob"))
    desk.done("t.a", "t.b")
    (turn,) = desk.orders(RunTurn)
    assert (turn.turn, turn.agent, turn.session_key) == (Turn.SYNTHESIS, "main", desk.attempt().session_key)
    desk.ends("t", Results("both"))
    assert (desk.phase(), desk.task("t").result, desk.task("t").mode) == (Phase.COMPLETED, "both", Mode.COORDINATING)
    assert [(sent.type, sent.to) for sent in desk.orders(Send)] == [("reply", "boss")]


@pytest.mark.parametrize("synthesis", [Synthesis.CONCAT, Synthesis.NONE])
def test_a_synthesis_without_a_model_costs_no_turn(synthesis: Synthesis) -> None:
    desk = Desk()
    desk.give(plan=Plan((child("a"),), synthesis))
    desk.done("t.a")
    assert desk.orders() == [Compose(desk.attempt().id)]


def test_a_failed_child_fails_its_parents_at_once_and_what_needs_it_never_starts() -> None:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("p", children=(child("a"), child("b", "self", "a"))), child("c", "bob")))
    desk.ends("t.p.a", Failure("no luck"))
    assert desk.phases("t", "t.p", "t.p.a", "t.p.b", "t.c") == ["failed", "failed", "failed", "cancelled", "cancelled"]
    assert "no luck" in desk.task("t").error
    assert "attempt.started" not in desk.kinds("t.p.b")


def test_a_parent_waits_visibly_while_the_circuit_of_a_child_is_open() -> None:
    desk = Desk(with_policy(max_attempts=2))
    desk.give(plan=plan(child("a"), child("b", "self", "a")))
    for _ in range(2):
        desk.ends("t.a", Failed("down"))
        desk.wait(100)
    assert desk.phases("t", "t.a", "t.b") == ["executing", "circuit_open", "execution_ready"]
    desk.command("t.a", Unblock(Remedy.RETRY))
    desk.start()
    desk.done("t.a")
    assert desk.phase("t.b") is Phase.EXECUTING


def test_a_held_circuit_fails_upward() -> None:
    desk = Desk(with_policy(max_attempts=2, circuit_hold=60))
    desk.give(plan=plan(child("a")))
    for _ in range(2):
        desk.ends("t.a", Failed("down"))
        desk.wait(20)
    desk.wait(60)
    assert desk.phases("t", "t.a") == ["failed", "failed"]


def test_a_cancel_takes_the_children_along_and_stops_their_turns() -> None:
    desk = Desk()
    desk.give(plan=plan(child("p", children=(child("a"),)), child("b", "self", "p")))
    desk.command("t", Cancel("operator", "enough"))
    assert desk.phases("t", "t.p", "t.p.a", "t.b") == ["cancelled"] * 4
    assert [type(order).__name__ for order in desk.orders(name="t.p.a")] == ["RunTurn", "StopTurns"]


def test_what_needs_a_cancelled_child_is_cancelled_with_it_and_the_rest_goes_on() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a"), child("b", "self", "a"), child("c", "self", "b"), child("d")))
    desk.command("t.a", Cancel("operator"))
    assert desk.phases("t.a", "t.b", "t.c", "t.d") == ["cancelled", "cancelled", "cancelled", "executing"]
    assert desk.task("t.b").reason == "its dependency a was cancelled"
    desk.done("t.d")
    assert desk.orders(RunTurn, "t")[0].turn is Turn.SYNTHESIS


def test_a_child_that_is_added_behind_a_cancelled_one_never_starts_either() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a"), child("d")))
    desk.command("t.a", Cancel("operator"))
    desk.handle("t", Edited((child("e", "self", "a"),)))
    assert desk.phase("t.e") is Phase.CANCELLED


def test_an_edit_can_free_a_child_from_what_is_cancelled_afterwards() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a"), child("b", "self", "a")))
    desk.handle("t.b", ChildEdited(child("b"), ()))
    desk.command("t.a", Cancel("operator"))
    desk.start()
    assert desk.phase("t.b") is Phase.EXECUTING


def test_when_every_child_was_cancelled_the_parent_fails() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a")))
    desk.command("t.a", Cancel("operator"))
    assert (desk.phase(), desk.task("t").reason) == (Phase.FAILED, "every child was cancelled")


def failed_tree() -> Desk:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("a"), child("b", "bob"), child("c", "self", "b"), child("d", "eve")))
    desk.done("t.a")
    desk.command("t.d", Cancel("operator"))
    desk.ends("t.b", Failure("no"))
    return desk


@pytest.mark.parametrize("aimed_at", ["t", "t.b", "t.c"])
def test_a_retry_runs_the_failed_part_again_and_keeps_every_good_result(aimed_at: str) -> None:
    desk = failed_tree()
    desk.command(aimed_at, Retry())
    desk.start()
    assert desk.phases("t", "t.a", "t.b", "t.c", "t.d") == [
        "executing", "completed", "executing", "execution_ready", "cancelled",
    ]  # fmt: skip
    assert desk.task("t.a").attempt == 1


def test_what_was_cancelled_for_its_own_sake_is_not_retried() -> None:
    desk = failed_tree()
    with refused(desk, "cancelled"):
        desk.command("t.d", Retry())


def test_a_child_of_a_cancelled_parent_is_not_retried_alone() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a")))
    desk.command("t", Cancel("operator"))
    with refused(desk, "parent-ended"):
        desk.command("t.a", Retry())


# ---------------------------------------------------------------- broadcasts


def broadcast(join: Join) -> Desk:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("v", ("ada", "bob", "eve"), overrides=Overrides(join=join))))
    assert desk.phases("t.v.ada", "t.v.bob", "t.v.eve") == ["executing"] * 3
    return desk


def decided(desk: Desk) -> bool:
    return desk.orders(Compose, "t.v") == [Compose(desk.attempt("t.v").id)]


def test_join_all_waits_for_every_copy() -> None:
    desk = broadcast(Join.ALL)
    desk.done("t.v.ada", "t.v.bob")
    assert not decided(desk)
    desk.done("t.v.eve")
    assert decided(desk)


def test_join_all_fails_with_the_first_copy_that_fails() -> None:
    desk = broadcast(Join.ALL)
    desk.ends("t.v.ada", Failure("no"))
    assert desk.phases("t.v", "t.v.bob") == ["failed", "cancelled"]


def test_join_first_takes_the_first_result_and_cancels_the_others() -> None:
    desk = broadcast(Join.FIRST)
    desk.ends("t.v.ada", Failure("no"))
    assert desk.phase("t.v") is Phase.EXECUTING
    desk.done("t.v.bob")
    assert decided(desk)
    desk.ends("t.v", DONE)
    assert desk.phases("t.v", "t.v.eve") == ["completed", "cancelled"]
    assert desk.task("t.v.eve").reason == "the broadcast is decided"


def test_join_first_fails_only_when_no_copy_is_left() -> None:
    desk = broadcast(Join.FIRST)
    for name in ("t.v.ada", "t.v.bob", "t.v.eve"):
        assert desk.phase("t.v") is Phase.EXECUTING
        desk.ends(name, Failure("no"))
    assert desk.phase("t.v") is Phase.FAILED


def test_join_majority_needs_more_than_half_with_the_same_answer() -> None:
    desk = broadcast(Join.MAJORITY)
    desk.ends("t.v.ada", Results("because", "yes"))
    assert not decided(desk)
    desk.ends("t.v.bob", Results("never", "no"))
    assert not decided(desk)
    desk.ends("t.v.eve", Results("why not", "yes"))
    assert decided(desk)


def test_join_majority_fails_when_the_copies_disagree() -> None:
    desk = broadcast(Join.MAJORITY)
    for name in ("ada", "bob", "eve"):
        desk.ends(f"t.v.{name}", Results(f"{name} thinks so", name))
    assert desk.phase("t.v") is Phase.FAILED


def test_the_copies_of_a_broadcast_are_not_edited() -> None:
    desk = broadcast(Join.ALL)
    with refused(desk, "illegal-edit"):
        desk.handle("t.v", Edited((child("another", "bob"),)))


def test_a_task_whose_result_is_there_takes_no_more_children() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Results("done", planned_actions=(PUBLISH,)))
    with refused(desk, "ended"):
        desk.handle("t", Edited((child("a"),)))


def test_a_child_may_be_called_what_another_task_is_called() -> None:
    desk = Desk()
    desk.give("t.a")
    desk.give("t", plan=plan(child("a", "bob"), child("b", "self", "a")))
    names = [task.local_id for task in desk.children("t")]
    assert names == ["t.a-2", "t.b"]
    desk.done("t.a-2")
    assert desk.phase("t.b") is Phase.EXECUTING


def test_a_plan_is_an_answer_of_a_peer_too() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Planned(plan(child("x"))))
    assert desk.phases("t.a", "t.a.x") == ["executing", "executing"]


def test_labels_are_inherited_by_every_child_without_its_own() -> None:
    desk = Desk(with_policy(labels=("finance",)))
    desk.give(plan=plan(child("a", "bob"), child("b", overrides=Overrides(labels=("other", "team:x")))))
    found = [desk.task(name).policy.labels for name in ("t", "t.a", "t.b")]
    assert found == [("finance",), ("finance",), ("other", "team:x")]
