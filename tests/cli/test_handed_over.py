"""What a person sees of tasks that were handed over too often, and does about them."""

from __future__ import annotations

import shlex

import pytest

from mailboxd.core.effects import Send
from mailboxd.core.handovers import Bounds, Earlier, step, why_held
from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Handover, Origin, Policy, Spec
from mailboxd.perform.senders import SenderNotifier
from tests.cli.stage import Stage

TEXT = "0123456789abcdef"


def comes(stage: Stage, name: str, *passed: str, attempt_id: str | None = None) -> None:
    """A note that has gone this way, one time too often."""
    given = Handover("beta", TEXT, "tsk_1", tuple(step(one, TEXT) for one in passed))
    why = why_held(given, "alpha", Earlier(same_text=3), Bounds())
    spec = Spec(goal="News", instructions="Pass it on.")
    origin = Origin(attempt_id=attempt_id, handover=given)
    stage.give(NewTask(name, None, name, "beta", "News", spec, Policy(), origin, held=why))


def holds(stage: Stage) -> list[str]:
    return [item["text"] for item in stage.json("inbox") if item["kind"] == "hold"]


def phases(stage: Stage) -> dict[str, str]:
    return {row["local_id"]: row["phase"] for row in stage.json("ls", "--all")}


def test_one_is_an_item_with_its_way_and_both_commands(stage: Stage) -> None:
    comes(stage, "note", "alpha", "beta")
    item = stage.item("hold")
    assert "beta has sent the same text 3 times before (alpha -> beta -> alpha)" in item["text"]
    assert item["command"] == f"{stage.program} retry note  # lets it go on; or {stage.program} cancel note"
    said = stage.run("why", "note").output
    assert f"{stage.program} retry note  # lets it go on; or {stage.program} cancel note" in said
    command, _, _ = item["command"].partition("  # lets it go on; or ")
    assert stage.run(*shlex.split(command)[3:]).exit_code == 0
    assert holds(stage) == []
    with stage.engine() as engine:
        task = engine.store.tasks.by_local_id("note")
        assert task is not None
        assert task.held == ""
        assert task.origin.handover is not None
        assert (task.origin.handover.began, task.origin.handover.passed) == (task.id, ()), "a new chain"


@pytest.mark.parametrize(("verb", "left"), [("retry", "execution_ready"), ("cancel", "cancelled")])
def test_many_for_one_reason_are_one_item_whatever_their_ways(stage: Stage, verb: str, left: str) -> None:
    comes(stage, "n0", "alpha", "beta")
    comes(stage, "n1", "alpha", "beta", "gamma", "beta")
    assert len(holds(stage)) == 2
    comes(stage, "n2", "gamma", "beta")
    item = stage.item("hold")
    assert (
        item["text"]
        == "3 tasks stopped for one reason: handed over too often: beta has sent the same text 3 times before"
    )
    assert item["details"] == "n0, n1, n2"
    assert f"{stage.program} cancel {item['id']}" in item["command"]
    done = stage.run(verb, item["id"])
    assert done.exit_code == 0, done.output
    assert holds(stage) == []
    assert set(phases(stage).values()) == {left}


@pytest.mark.slow
def test_of_very_many_some_are_named_and_the_command_lists_all(stage: Stage) -> None:
    for number in range(60):
        comes(stage, f"note{number:02}", "alpha", "beta")
    lines = stage.run("status", env={"COLUMNS": "80"}).output.splitlines()
    named = [line.strip() for line in lines if line.strip().startswith("note")]
    assert len(named) == 2
    (more,) = [line for line in lines if "more lines" in line]
    assert more.endswith(f"more lines: `{stage.program} ls --all --state needs-you`")
    listed = stage.run(*shlex.split(more.partition("`")[2].rstrip("`"))[3:]).output
    assert all(f"note{number:02}" in listed for number in range(60))


def test_a_peer_that_sent_it_is_told_once_that_it_waits_for_a_person(stage: Stage) -> None:
    comes(stage, "note", "alpha", "beta", attempt_id="att_theirs")
    for _ in range(2):
        with stage.engine() as engine:
            SenderNotifier(engine).perform()
    with stage.engine() as engine:
        sent = [order.effect for order in engine.store.outbox.pending(engine.now, 10)]
    (progress,) = [effect for effect in sent if isinstance(effect, Send)]
    assert (progress.type, progress.to, progress.waits_for) == ("progress", "beta", "person")
    assert "alpha -> beta -> alpha" in progress.note
