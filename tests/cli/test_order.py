"""Dropped files that follow each other: what `why`, `show`, `inbox`, `log` and `check` say, and what is typed then."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.stage import Stage
from tests.cli.test_inbox import put

WRITE = "---\ntask_id: write\n---\n\n# Write the programme\n\nTwo pages.\n"
PRINT = "---\ntask_id: print\nafter: write\n---\n\n# Print the programme\n\n20 copies.\n"


def cause(stage: Stage, name: str = "print") -> dict[str, object]:
    return next(one for one in stage.json("why", name)["because"] if one["task"] == name and one["kind"] != "daemon")


def look(stage: Stage, seconds: float) -> None:
    stage.clock.advance(seconds)
    stage.tick()


def type_in(stage: Stage, command: str) -> None:
    words = shlex.split(command.partition("  #")[0])
    assert words[:3] == ["mailboxd", "-w", str(stage.ws.root)]
    assert stage.run(*words[3:]).exit_code == 0


def test_why_and_show_say_what_it_follows(stage: Stage) -> None:
    put(stage, WRITE)
    put(stage, PRINT, "print.md")
    assert cause(stage)["text"] == "waits until write is completed"
    assert [need["local_id"] for need in stage.json("show", "print")["dependencies"]] == ["write"]
    assert "write" in stage.run("show", "print").stdout
    assert "print" in [row["local_id"] for row in stage.json("ls", "--state", "waiting")]


def test_what_is_not_known_is_said_first_and_asked_about_a_minute_later(stage: Stage) -> None:
    put(stage, PRINT)
    said = cause(stage)
    assert said["text"] == "waits until write (not known here yet) is completed"
    assert said["then"] == "you are asked about what is not known"
    look(stage, 61)
    item = stage.item("hold")
    assert item["text"] == "stopped because it is to follow write, which is not known here"
    type_in(stage, item["command"])
    assert [one for one in stage.json("inbox") if one["kind"] == "hold"] == []
    assert cause(stage)["kind"] == "ready"
    assert "begins without what it was to follow" in stage.run("log").stdout
    assert stage.run("db", "verify").exit_code == 0


def test_it_goes_on_by_itself_when_the_other_file_comes_late(stage: Stage) -> None:
    put(stage, PRINT)
    look(stage, 61)
    put(stage, WRITE, "write.md")
    assert [one for one in stage.json("inbox") if one["kind"] == "hold"] == []
    assert cause(stage)["text"] == "waits until write is completed"
    assert "it follows write, which has arrived" in stage.run("log").stdout
    assert stage.run("db", "verify").exit_code == 0


@pytest.mark.parametrize("how", ["retry", "cancel"])
def test_what_waits_in_vain_asks_and_either_command_ends_that(stage: Stage, how: str) -> None:
    put(stage, WRITE)
    put(stage, PRINT, "print.md")
    assert stage.run("cancel", "write", "--now").exit_code == 0
    item = stage.item("hold")
    assert item["text"] == "stopped because it is to follow write, which is cancelled"
    other = str(cause(stage)["hint"]).partition("or mailboxd ")[2]
    type_in(stage, item["command"] if how == "retry" else f"mailboxd -w {stage.ws.root} {other} --now")
    assert [one for one in stage.json("inbox") if one["kind"] == "hold"] == []
    assert stage.phase("print") == ("execution_ready" if how == "retry" else "cancelled")
    assert stage.run("db", "verify").exit_code == 0


def test_check_says_what_it_would_follow_and_whether_that_is_known(stage: Stage) -> None:
    put(stage, WRITE)
    file = stage.ws.root / "print.md"
    file.write_text(PRINT.replace("after: write", "after: [Write the programme, TASK-11]"))
    assert stage.json("send", "--check", str(file))["task"]["after"] == ["write", "TASK-11 (not known here)"]
    assert "after               write" in stage.run("send", "--check", str(file)).stdout


def test_check_knows_the_agents_that_there_are(stage: Stage) -> None:
    stage.knows(known={"alpha": ["", ""], "beta": ["", ""]})
    file = stage.ws.root / "paint.md"
    file.write_text("---\nassignee: mira\n---\n\nPaint the fence.\n")
    said = stage.run("send", "--check", str(file))
    assert said.exit_code != 0
    assert "Write one of alpha, beta" in said.stderr
