"""`watch`, `log --follow`, drawings, bars and colors: on a stage, and on a real terminal (a pty)."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mailboxd.cli.bars import bars
from mailboxd.cli.text import width
from mailboxd.core.model import Policy
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.host.progress import stepwise
from tests.cli.stage import Stage, child

PROGRAM = str(Path(sys.executable).parent / "mailboxd")
HOSTILE = '<script>alert("x")</script>\x1b[31m"; //'


@pytest.fixture
def plan(stage: Stage) -> Stage:
    """`job` with three children: a is completed, b runs, c waits for both."""
    stage.create("job", child("a"), child("b", "gamma"), child("c", "alpha", ("a", "b")))
    stage.start()
    stage.clock.advance(40)
    stage.end_turn("job.a", HOSTILE)
    stage.clock.advance(20)
    return stage


def on_terminal(
    argv: Sequence[str], where: Path, keys: bytes = b"", env: Mapping[str, str] | None = None, drawn: bytes = b""
) -> str:
    """The output of a program on a terminal of 80 columns until it ends; `keys` are pressed once it has `drawn`."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(where)
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        os.execvpe(argv[0], list(argv), {**clean, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **(env or {})})
    written, deadline = b"", time.monotonic() + 120
    while select.select([fd], [], [], max(deadline - time.monotonic(), 0))[0]:
        try:
            piece = os.read(fd, 65_536)
        except OSError:  # it has closed the terminal
            break
        written += piece
        if keys and drawn in written:
            os.write(fd, keys)
            keys = b""
    else:
        os.kill(pid, signal.SIGKILL)  # nobody reads any more: it would wait for ever
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0, written[-2000:]
    return written.decode()


# Follow, watch


def test_following_a_task_tells_all_of_it_and_ends_with_it(stage: Stage) -> None:
    def meanwhile(_seconds: float) -> None:
        stage.end_turn("job.a", "The outcome.")
        stage.end_turn("job", "The result itself.")

    stage.create("job", child("a"))
    stage.start()
    stage.pause = meanwhile
    result = stage.run("log", "job", "--tree", "--follow")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == stage.run("log", "job", "--tree").stdout.splitlines()
    assert "job: attempt 1 succeeded" in result.stdout


def test_following_a_task_that_failed_says_no(stage: Stage) -> None:
    stage.create("job", policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn("job", Failed("forbidden", Permanence.PERMANENT))
    assert stage.run("log", "job", "--follow").exit_code == 1


def test_following_the_workspace_begins_where_it_is_told(plan: Stage) -> None:
    def meanwhile(_seconds: float) -> None:
        if "new" in names:
            raise KeyboardInterrupt
        names.append("new")
        plan.create("new")

    names: list[str] = []
    plan.pause = meanwhile
    events = [json.loads(line) for line in plan.run("log", "-f", "-n", "0", "--json").stdout.splitlines()]
    assert {event["task"] for event in events} == {"new"}
    assert events == plan.json("log", "--since", str(events[0]["seq"] - 1))


@pytest.mark.slow
def test_the_screen_needs_a_terminal_and_ends_with_a_key(plan: Stage) -> None:
    written = on_terminal([PROGRAM, "watch"], plan.ws.root, b"q", drawn=b"Do job")
    assert "\x1b[?1049l" in written
    refused = plan.run("watch")
    assert (refused.exit_code, "`mailboxd log --follow` prints events" in refused.stderr) == (2, True)


# Colours and bars


@pytest.mark.slow
def test_colours_are_for_terminals_that_want_them(plan: Stage) -> None:
    wanted = on_terminal([PROGRAM, "show", "--tree", "job"], plan.ws.root)
    assert "\x1b[32m✓ done\x1b[0m" in wanted
    assert "\x1b" not in on_terminal([PROGRAM, "show", "--tree", "job"], plan.ws.root, env={"NO_COLOR": "1"})
    assert "\x1b" not in plan.run("show", "--tree", "job").stdout


@pytest.mark.slow
def test_long_work_shows_how_far_it_is_and_takes_it_away(plan: Stage) -> None:
    written = on_terminal([PROGRAM, "db", "verify"], plan.ws.root, env={"NO_COLOR": "1"})
    assert "events" in written
    assert "█" in written
    *_, cleared, first, last = written.rstrip("\r\n").split("\r")
    assert cleared.isspace()
    assert first.endswith("everything matches the record")
    assert last.strip().startswith("consistent")
    assert "\x1b" not in plan.run("db", "verify").stderr


def test_no_progress_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with bars() as progress:
        assert list(stepwise(range(1000), "things", 1000, progress)) == list(range(1000))
    assert capsys.readouterr() == ("", "")


def test_progress_is_reported_for_every_step() -> None:
    told: list[tuple[str, int, int]] = []
    assert list(stepwise("ab", "letters", 0, lambda *said: told.append(said))) == ["a", "b"]
    assert told == [("letters", 0, 0), ("letters", 1, 0), ("letters", 2, 0), ("letters", 2, 2)]


# Timeline, graph


def test_a_timeline_has_every_attempt_in_the_order_of_the_tree(plan: Stage) -> None:
    found = plan.json("show", "job", "--timeline")
    assert [(row["row"], row["status"]) for row in found["rows"]] == [
        ("job", "running"), ("a", "succeeded"), ("b", "running"),
    ]  # fmt: skip
    lines = plan.run("show", "job", "--timeline", env={"COLUMNS": "80"}).stdout.splitlines()
    assert lines[2].startswith("a   ████")
    assert lines[2].endswith("40 s")
    assert lines[3].endswith("▒ 1m00s")
    assert all(width(line) <= 80 for line in lines)


def test_a_graph_is_well_formed_and_runs_nothing(plan: Stage) -> None:
    drawn = plan.run("show", "job", "--graph").stdout
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    assert any("job" in (element.text or "") for element in root.iter())
    assert not any(word in drawn for word in ("<script", "\x1b", "http://localhost", "src="))
    found = plan.json("show", "job", "--graph")
    assert [node["label"] for node in found["nodes"]] == ["job", "a", "b", "c"]
    assert len(found["edges"]) == 4


def test_tables_fit_on_80_columns_indented_ones_too(plan: Stage) -> None:
    plan.end_turn("job.b", "x" * 500)
    for words in (("ls", "--children"), ("show", "job"), ("fleet", str(plan.ws.root))):
        lines = plan.run(*words, env={"COLUMNS": "80"}).stdout.partition("\nAttempts\n")
        assert all(width(line) <= 80 for line in (lines[2] or lines[0]).splitlines()), words
