"""`mailboxd retry`: which parts of a tree run again, and which results are kept."""

from __future__ import annotations

import pytest

from mailboxd.core.inputs import Retry
from mailboxd.core.model import Overrides
from mailboxd.core.outcomes import Failure
from mailboxd.core.vocabulary import Join, Phase
from mailboxd.errors import Refused
from tests.core.desk import DONE, Desk, child, plan, with_policy
from tests.core.test_plans import failed_tree


def diamond() -> Desk:
    """a <- b <- d, a <- c, and e alone; everything completed, the root too."""
    desk = Desk(with_policy(max_attempts=1))
    children = (child("a"), child("b", "bob", "a"), child("c", "cid", "a"), child("d", "dan", "b"), child("e", "eve"))
    desk.give(plan=plan(*children))
    desk.done("t.a", "t.b", "t.c", "t.d", "t.e", "t")
    assert desk.phase() is Phase.COMPLETED
    return desk


def attempts(desk: Desk, *names: str) -> list[int]:
    return [desk.task(name).attempt for name in names]


def test_completed_work_runs_again_alone_and_its_parent_puts_the_results_together_anew() -> None:
    desk = diamond()
    desk.command("t.b", Retry("look again"))
    desk.start()
    assert desk.phases("t", "t.b", "t.d") == ["executing", "executing", "completed"]
    assert "look again" in desk.task("t.b").findings
    assert desk.task("t").findings == ""
    desk.done("t.b", "t")
    assert desk.phase() is Phase.COMPLETED
    assert attempts(desk, "t", "t.a", "t.b", "t.c", "t.d", "t.e") == [2, 1, 2, 1, 1, 1]


def test_with_dependants_whatever_was_made_of_its_result_runs_again_in_order() -> None:
    desk = diamond()
    desk.command("t.b", Retry(with_dependants=True))
    desk.start()
    assert desk.phases("t.b", "t.d", "t.c") == ["executing", "execution_ready", "completed"]
    desk.done("t.b", "t.d", "t")
    assert attempts(desk, "t", "t.a", "t.b", "t.c", "t.d", "t.e") == [2, 1, 2, 1, 2, 1]


def nested() -> Desk:
    """t: g (g.x <- g.y) and z, which needs g; w needs z and is itself a tree (w.v)."""
    desk = Desk(with_policy(max_attempts=1))
    inner = (child("x"), child("y", "self", "x"))
    below = (child("v"),)
    desk.give(
        plan=plan(child("g", children=inner), child("z", "zoe", "g"), child("w", "self", "z", children=below)),
    )
    desk.done("t.g.x", "t.g.y", "t.g", "t.z", "t.w.v", "t.w", "t")
    assert desk.phase() is Phase.COMPLETED
    return desk


def test_at_any_depth_everything_above_is_opened_and_nothing_beside_it() -> None:
    desk = nested()
    desk.command("t.g.x", Retry())
    desk.start()
    assert desk.phases("t", "t.g", "t.g.x", "t.g.y", "t.z", "t.w") == [
        "executing", "executing", "executing", "completed", "completed", "completed",
    ]  # fmt: skip


def test_dependants_are_followed_through_what_stands_above() -> None:
    desk = nested()
    desk.command("t.g.x", Retry(with_dependants=True))
    desk.start()
    desk.done("t.g.x", "t.g.y", "t.g", "t.z", "t.w.v", "t.w", "t")
    assert desk.phase() is Phase.COMPLETED
    assert attempts(desk, "t", "t.g", "t.g.x", "t.g.y", "t.z", "t.w", "t.w.v") == [2] * 7


def test_only_failed_keeps_what_is_done_and_gives_everything_that_failed_the_instructions() -> None:
    desk = failed_tree()
    desk.command("t", Retry("use the new file", only_failed=True))
    desk.start()
    assert desk.phases("t", "t.a", "t.b") == ["executing", "completed", "executing"]
    assert "use the new file" in desk.task("t.b").findings
    assert "use the new file" in desk.task("t").findings


def test_only_failed_takes_the_open_circuits_below_a_running_task() -> None:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("g", children=(child("x", overrides=Overrides(max_attempts=2)), child("y")))))
    desk.ends("t.g.x", Failure("no"))
    desk.wait(1000)
    desk.ends("t.g.x", Failure("no"))
    assert desk.phases("t", "t.g.x") == ["executing", "circuit_open"]
    desk.command("t", Retry("again", only_failed=True))
    desk.start()
    assert desk.phases("t.g.x", "t.g.y") == ["executing", "executing"]
    assert "again" in desk.task("t.g.x").findings


def test_only_failed_refuses_where_nothing_failed() -> None:
    desk = diamond()
    with pytest.raises(Refused) as refused:
        desk.command("t", Retry(only_failed=True))
    assert refused.value.rule == "not-failed"


def test_a_dependant_that_runs_with_the_old_result_is_not_pulled_from_under() -> None:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("a"), child("b", "bob", "a")))
    desk.done("t.a")
    with pytest.raises(Refused) as refused:
        desk.command("t.a", Retry(with_dependants=True))
    assert refused.value.rule == "dependant-running"
    desk.command("t.a", Retry())
    desk.start()
    assert desk.phases("t.a", "t.b") == ["executing", "executing"]


def test_not_while_the_parent_puts_the_results_together() -> None:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("a")))
    desk.done("t.a")
    with pytest.raises(Refused) as refused:
        desk.command("t.a", Retry())
    assert refused.value.rule == "parent-busy"


def test_a_decided_broadcast_runs_again_as_a_whole_and_not_by_one_copy() -> None:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("v", ("ada", "bob"), overrides=Overrides(join=Join.FIRST))))
    desk.ends("t.v.ada", DONE)
    desk.ends("t.v", DONE)
    desk.ends("t", DONE)
    with pytest.raises(Refused) as refused:
        desk.command("t.v.ada", Retry())
    assert refused.value.rule == "parent-ended"
    desk.command("t.v", Retry())
    desk.start()
    assert desk.phases("t", "t.v", "t.v.ada", "t.v.bob") == ["executing"] * 4
