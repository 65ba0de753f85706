"""No list grows without end: a long one is folded with a count, and says how to see all; --json is complete."""

from __future__ import annotations

import shlex

import pytest

from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Policy, Spec
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import Stage, child, make

COUNT = 120


def crowd(stage: Stage, policy: Policy | None = None) -> None:
    spec = Spec(goal="Do it", instructions="Do it", expected_output="One line")
    names = [f"t{number}" for number in range(COUNT)]
    stage.give(*(NewTask(name, None, name, "operator", name, spec, policy or Policy()) for name in names))


def printed(stage: Stage, *words: str) -> list[str]:
    result = stage.run(*words)
    assert result.exit_code in (0, 1), result.output
    return result.stdout.splitlines()


def pasted(stage: Stage, line: str) -> list[str]:
    """The lines of the command that a folded list ends with."""
    assert line.endswith("`"), line
    program, *words = shlex.split(line.partition("`")[2][:-1])
    assert program == "mailboxd"
    return printed(stage, *words)


@pytest.mark.parametrize("words", [["ls"], ["ls", "--label", "x"], ["ls", "--phase", "execution_ready"]])
def test_tasks(stage: Stage, words: list[str]) -> None:
    crowd(stage, Policy(labels=("x",)))
    lines = printed(stage, *words)
    assert (len(lines), lines[-1].startswith("… and 70 more: `")) == (52, True)
    assert len(pasted(stage, lines[-1])) == 1 + COUNT
    assert len(stage.json(*words)) == COUNT


def test_what_waits_for_a_person(stage: Stage) -> None:
    crowd(stage, Policy(budget_tokens=0))
    lines = printed(stage, "inbox")
    assert (len(lines), lines[-1].startswith("… and 70 more: `")) == (101, True), "50 items of two lines"
    assert len(pasted(stage, lines[-1])) == 2 * COUNT, "none needs the daemon"
    assert len(stage.json("inbox")) == COUNT


def test_what_an_order_did(stage: Stage) -> None:
    stage.create("job", *(child(f"c{number}") for number in range(COUNT)))
    result = stage.run("cancel", "job")
    lines = result.stdout.splitlines()
    assert len(lines) == 51
    assert "more: `" in lines[-1]
    assert len(pasted(stage, lines[-1])) >= COUNT
    stage.create("other", *(child(f"c{number}") for number in range(COUNT)))
    assert len(stage.json("cancel", "other")["events"]) > COUNT


@pytest.mark.slow
def test_the_log(stage: Stage) -> None:
    for number in range(4):
        stage.create(f"job{number}", *(child(f"c{one}") for one in range(COUNT)))
        stage.run("cancel", f"job{number}")
    total = stage.json("db", "head")["seq"]
    lines = printed(stage, "log")
    assert lines[0] == f"… {total - 500:,} earlier events; --all prints them too"
    assert len(lines) == 501
    assert len(printed(stage, "log", "--all")) == total
    assert len(printed(stage, "log", "-n", "600")) == 600
    assert len(stage.json("log")) == total
    assert len(printed(stage, "log", "job0", "--tree")) < 501, "a short one is whole"


@pytest.mark.slow
def test_approvals_and_workspaces(stage: Stage) -> None:
    for number in range(60):
        ask(stage, f"job{number}", PUBLISH)
    lines = printed(stage, "approve")
    assert lines[-1].startswith("… and 10 more: `")
    assert len(stage.json("approve")) == 60
    assert len(pasted(stage, lines[-1])) > len(lines)
    roots = [str(make(stage.ws.root.parent / f"w{number}").ws.root) for number in range(60)]
    lines = printed(stage, "fleet", *roots)
    assert (len(lines), lines[-2].startswith("… and 10 more: `")) == (53, True)
    assert len(pasted(stage, lines[-2])) == 62


def test_a_broad_and_deep_tree(stage: Stage) -> None:
    stage.create("job", *(child(f"c{one}", "alpha", (), *(child(f"d{two}") for two in range(20))) for one in range(20)))
    lines = printed(stage, "show", "--tree", "job")
    assert (len(lines), "more lines: `" in lines[-1]) == (301, True)
    assert len(pasted(stage, lines[-1])) == 421


@pytest.mark.slow
def test_tasks_that_ended_earlier_are_counted(stage: Stage) -> None:
    for number in range(15):
        stage.create(f"job-{number}")
        assert stage.run("cancel", f"job-{number}").exit_code == 0
    (last,) = stage.run("ls").stdout.splitlines()[-1:]
    assert last == f"… and 5 more: `mailboxd -w {stage.ws.root} ls --all`"
    assert "more:" not in stage.run("ls", "--all").stdout
    assert "more:" not in stage.run("ls", "--state", "done").stdout
