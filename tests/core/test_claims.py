"""Claims: two pieces of work that write the same paths in one workspace never run at the same time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.inputs import Remedy, Start, Unblock
from mailboxd.core.model import Flow, Overrides, Plan
from mailboxd.core.outcomes import Planned, Unknown
from mailboxd.core.schedule import overlapping
from mailboxd.core.vocabulary import Phase
from tests.core.desk import Desk, child, plan, refused

SRC, DOCS = ("src/**",), ("docs/*.md",)


def running(desk: Desk, *names: str) -> list[str]:
    return [name for name in names if desk.phase(f"t.{name}") is Phase.EXECUTING]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**", "docs/a.md", False),
        ("src", "src/a.py", True),
        ("src/a.py", "src/b.py", False),
        ("src/*.py", "src/a.md", False),
        ("src/*.py", "src/a.py", True),
        ("src/a*", "src/b*", False),
        ("src/a*", "src/ab*", True),
        ("**/x.md", "docs/y.md", True),
        ("*/x.md", "docs/x.md", True),
    ],
)
def test_which_patterns_may_meet(one: str, other: str, expected: bool) -> None:
    assert overlapping(one, other) is overlapping(other, one) is expected


PARTS = st.lists(st.sampled_from(("a", "b", "ab", "a.py")), min_size=1, max_size=4)


@given(PARTS, st.data())
def test_patterns_that_match_one_path_overlap(path: list[str], data: st.DataObject) -> None:
    def pattern() -> str:
        parts = [data.draw(st.sampled_from((part, "*", f"{part[0]}*", "**"))) for part in path]
        return "/".join(parts[: data.draw(st.integers(1, len(parts)))])

    assert overlapping(pattern(), pattern())


def test_overlapping_claims_run_one_after_the_other() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", claims=SRC), child("b", claims=("src/x.py",)), child("c", claims=DOCS)))
    assert running(desk, "a", "b", "c") == ["a", "c"]
    with refused(desk, "not-ready"):
        desk.handle("t.b", Start())
    desk.done("t.a")
    assert running(desk, "a", "b", "c") == ["b", "c"]


def test_agents_with_workspaces_of_their_own_do_not_wait_and_those_that_share_one_do() -> None:
    for shared, expected in ((False, 2), (True, 1)):
        desk = Desk()
        known = {"bob": ["Bob", "/ws/bob"], "amy": ["Amy", "/ws/bob" if shared else "/ws/amy"]}
        desk.knows_agents(known)
        desk.give(plan=plan(child("a", "bob", claims=SRC), child("b", "amy", claims=SRC)))
        assert len(running(desk, "a", "b")) == expected


def test_why_names_the_other_work_and_the_path() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", claims=SRC), child("b", claims=("src/x.py",))))
    (cause, *_) = desk.causes("t.b")
    assert (cause.kind, cause.text) == ("claim", "waits for t.a, which writes src/** in the same workspace")


def test_parts_inherit_the_claims_of_the_whole_which_claims_nothing_itself() -> None:
    desk = Desk()
    parts = (child("x"), child("y", claims=DOCS))
    desk.give(plan=plan(child("a", children=parts, claims=SRC), child("b", claims=SRC)))
    assert desk.task("t.a.x").claims == SRC
    assert running(desk, "a", "a.x", "a.y", "b") in (["a", "a.x", "a.y"], ["a", "a.y", "b"])


def test_an_agent_that_plans_its_work_lets_its_parts_write() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", claims=SRC)))
    desk.ends("t.a", Planned(Plan((child("x"), child("y")))))
    assert running(desk, "a", "a.x", "a.y") == ["a", "a.x"]
    desk.done("t.a.x")
    assert running(desk, "a.y") == ["a.y"]


def test_work_of_unknown_outcome_may_still_be_writing() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", claims=SRC), child("b", claims=SRC)))
    desk.ends("t.a", Unknown("lost", looked_up=True))
    assert desk.phases("t.a", "t.b") == ["circuit_open", "execution_ready"]
    desk.command("t.a", Unblock(Remedy.RETRY))
    desk.start()
    assert running(desk, "a", "b") == ["a"]


def test_rounds_and_copies_claim_what_the_whole_claims() -> None:
    desk = Desk()
    desk.give(plan=plan(child("a", flow=Flow(rounds=2), claims=SRC), child("b", claims=SRC, overrides=Overrides())))
    assert len(running(desk, "a.1", "b")) == 1


def test_who_waits_for_a_claim_takes_no_slot() -> None:
    desk = Desk(slots=2, slots_per_agent=2)
    desk.give(plan=plan(child("a", claims=SRC), child("b", claims=SRC), child("c", claims=SRC), child("d")))
    assert running(desk, "a", "b", "c", "d") == ["a", "d"]
