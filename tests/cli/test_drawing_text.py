"""Drawings of characters: trees, timelines, the table of `fleet`. No terminal is needed."""

from __future__ import annotations

from typing import Any

import click
import pytest

from mailboxd.cli import task_output
from mailboxd.cli.commands import fleet
from mailboxd.cli.text import lasted, meter, width
from mailboxd.cli.timeline import MARKS, timeline_lines
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import STATES, AttemptStatus, State
from mailboxd.formats.drawing.gantt import Bar, Crowd

NOW = "2026-11-21T12:01:40.000Z"
BEGAN = "2026-11-21T12:00:00.000Z"
HOSTILE = "日本\x1b[31m" + "x" * 200


def node(key: str, phase: str = "executing", *children: Any, **more: Any) -> Any:
    return {
        "id": more.pop("id", f"tsk_{key}"), "key": key, "local_id": key, "title": f"Do {key}", "agent": "beta",
        "phase": phase, "need": None, "held": "", "updated_at": BEGAN, "reason": "", "error": "",
        "result_summary": "", "depends_on": [], "waits_at_peer": "",
        "children_total": len(children), "running_since": BEGAN if phase == "executing" else None,
        "children_completed": sum(child["phase"] == "completed" for child in children),
        "children": list(children), **more,
    }  # fmt: skip


def plain(lines: Any) -> list[str]:
    return [click.unstyle(line) for line in lines]


# Words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0.0 s"), (0.42, "0.4 s"), (9.99, "10.0 s"), (35.4, "35 s"), (59.6, "1m00s"), (200, "3m20s"),
     (7_500, "2h05m"), (86_400 * 4 + 3_700, "4d01h")],
)  # fmt: skip
def test_a_length_of_time_is_short(seconds: float, said: str) -> None:
    assert lasted(seconds) == said
    assert len(said) <= 7


def test_a_bar_is_full_only_when_all_is_done() -> None:
    assert [meter(done, 100, 5) for done in (0, 19, 20, 99, 100)] == ["░░░░░", "░░░░░", "█░░░░", "████░", "█████"]
    assert meter(0, 0, 3) == "███"


# Trees


def test_a_tree_says_how_far_it_is_and_for_how_long_it_runs() -> None:
    root = node("job", "executing", node("a", "completed", result_summary="Twelve"), node("b", depends_on=["a"]))
    assert plain(task_output.tree_lines(root, NOW, 80)) == [
        "▶ running 1m40s  job (beta)  █████░░░░░ 1/2 Do job",
        "├─ ✓ done  a (beta)  Twelve",
        "└─ ▶ running 1m40s  b (beta)  after a: Do b",
    ]


@pytest.mark.parametrize("room", [40, 80, 200])
def test_a_tree_fits_with_any_titles(room: int) -> None:
    deep = node(HOSTILE, "execution_ready", title=HOSTILE, agent="a" * 128)
    for _ in range(12):
        deep = node(HOSTILE, "awaiting_approval", deep, title=HOSTILE)
    lines = plain(task_output.tree_lines(deep, NOW, room))
    assert len(lines) == 13
    assert all(width(line) <= room for line in lines), lines
    assert not any("\x1b" in line for line in lines)


def test_of_many_subtasks_the_urgent_are_shown_and_the_rest_is_counted() -> None:
    kids = [node(f"k{n}", "completed") for n in range(990)]
    kids[700] = node("stuck", "circuit_open", need="circuit", reason="no answer")
    kids[300] = node("busy", "executing", *(node(f"d{n}", "execution_ready") for n in range(50)))
    lines = plain(task_output.tree_lines(node("job", "executing", *kids), NOW, 80, 3))
    assert "‖ needs you 1m40s  stuck (beta)  no answer" in "\n".join(lines)
    assert "│  └─ … 47 more: 47 waiting" in lines
    assert lines[-1] == "└─ … 987 more: 987 done"
    assert len(lines) == 9


# Time


START = to_epoch(BEGAN)


def bar(name: str, start: int, end: int | None, status: str = "succeeded") -> Bar:
    return Bar(name, START + start, None if end is None else START + end, status)


def timeline(*rows: Bar | Crowd, room: int = 56) -> list[str]:
    return plain(timeline_lines(rows, (START, START + 100), to_epoch(NOW), room))


def test_attempts_are_drawn_at_their_time_with_their_status() -> None:
    first, body, _ = timeline(bar("job", 0, 25, "failed"), bar("job", 50, 100))
    cells = body[4:-12]
    assert first == "12:00:00 to 12:01:40, 1m40s"
    assert (cells[0], cells[len(cells) // 2 - 2], cells[-1]) == ("x", " ", "█")
    assert body.endswith("1m15s ×2")


def test_what_runs_is_drawn_until_now_and_what_took_no_time_is_seen() -> None:
    _, runs, asks, lost, _ = timeline(
        bar("a", 90, None, "running"), bar("b", 90, None, State.NEEDS_YOU), bar("c", 100, 100, "unknown")
    )
    assert ("▒" in runs, runs.endswith("10 s")) == (True, True)
    assert "‖" in asks
    assert "?" in lost


def test_a_crowd_shows_when_how_many_began() -> None:
    assert "█" * 12 + "▄" * 12 in timeline(Crowd("9 more", [8, 4, 0], [0, 0, 0]))[1]


@pytest.mark.parametrize("room", [40, 80, 200])
def test_a_timeline_fits(room: int) -> None:
    rows = [bar(f"{HOSTILE}{row}", n, n + 1, "failed") for row in range(12) for n in range(60)]
    lines = timeline(*rows, Crowd(HOSTILE, [1] * 120, [0] * 120), room=room)
    assert all(width(line) <= room for line in lines), lines
    assert not any("\x1b" in line for line in lines)


def test_every_end_of_an_attempt_has_a_mark_of_its_own() -> None:
    assert set(MARKS) == {*AttemptStatus, State.NEEDS_YOU, State.WAITING}
    assert len(set(MARKS.values())) == len(MARKS)


# The fleet


ITEM = {"task": "q3", "text": f"asks {HOSTILE * 20}", "since": BEGAN, "until": NOW, "command": "mailboxd answer q3"}


def standing(agent: str, **more: Any) -> Any:
    return {
        "agent": agent, "workspace": f"/ws/{agent}", "state": "ok", "why": "", "health": "green", "troubles": [],
        "daemon": {"running": True, "stopping": False, "pid": 7}, "inbox": 0, "open": 0,
        "phases": {}, "states": {}, "attention": [], "attention_count": 0, "latest": NOW, **more,
    }  # fmt: skip


def other_host(**more: Any) -> Any:
    return {
        "agent": None, "host": "beta", "workspace": "", "state": "silent",
        "why": f"nothing has been heard from it since {NOW}",
        "health": "green", "agents": {"beta.writer": {}}, "pools": {}, "open": 2, "troubles": [], "attention": [],
        "attention_count": 0, **more,
    }  # fmt: skip


def test_another_host_shows_what_waits_there_and_since_when_it_is_silent() -> None:
    (_, line) = plain(fleet.lines([other_host()], NOW, 120))
    assert line.split()[:6] == ["beta", "silent", "host", "2", "in", "1"]
    assert line.endswith(f"nothing has been heard from it since {NOW}")
    row = other_host(state="ok", why="", attention_count=2, troubles=["mail: 1 for it with the server"])
    (_, line) = plain(fleet.lines([row], NOW, 120))
    assert line.endswith("2 for a person there; mail: 1 for it with the server")


def test_a_workspace_shows_the_first_item_and_how_many_there_are() -> None:
    item = {"task": "q3", "text": "stopped because no answer", "since": BEGAN, "command": "mailboxd why q3"}
    (_, line) = plain(fleet.lines([standing("a", attention=[item], attention_count=3)], NOW, 120))
    assert line.endswith("3 for you: q3: stopped because no answer (1m40s)")
    (_, line) = plain(fleet.lines([standing("a", health="amber", troubles=["disk: it is nearly full"])], NOW, 120))
    assert line.endswith("disk: it is nearly full")


def test_the_fleet_table_fits_and_shows_open_tasks_in_words() -> None:
    rows = [
        standing("a" * 128, states=dict.fromkeys(STATES, 1), attention=[ITEM], attention_count=1),
        {
            "agent": None,
            "workspace": f"/{HOSTILE}",
            "state": "gone",
            "why": "it is gone",
            "attention": [],
            "attention_count": 0,
        },
        standing("writer", states={"running": 2, "waiting": 4}),
    ]
    for room in (60, 80, 200):
        lines = plain(fleet.lines(rows, NOW, room))
        assert all(width(line) <= room for line in lines), lines
    assert "2 running, 4 waiting" in lines[3]
    assert fleet.summary(rows) == "3 workspaces, 2 need attention"
    assert fleet.summary([*rows, other_host()]) == "3 workspaces and 1 other host, 3 need attention"
    assert "\x1b" not in "".join(lines)
