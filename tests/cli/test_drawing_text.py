"""Drawings of characters: trees, timelines, the table of `fleet`. No terminal is needed."""

from __future__ import annotations

from typing import Any

import click
import pytest

from mailboxd.cli import task_output
from mailboxd.cli.commands import fleet
from mailboxd.cli.text import PHASES, lasted, meter, width
from mailboxd.core.vocabulary import AttemptStatus

NOW = "2026-11-21T12:01:40.000Z"
BEGAN = "2026-11-21T12:00:00.000Z"
HOSTILE = "日本\x1b[31m" + "x" * 200


def node(key: str, phase: str = "executing", *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": more.pop("id", f"tsk_{key}"), "key": key, "local_id": key, "title": f"Do {key}", "agent": "beta",
        "phase": phase, "need": None, "held": "", "updated_at": BEGAN, "reason": "", "error": None,
        "result_summary": None, "depends_on": [],
        "children_total": len(children), "running_since": BEGAN if phase == "executing" else None,
        "children_completed": sum(child["phase"] == "completed" for child in children),
        "children": list(children), **more,
    }  # fmt: skip


def attempt(start: int, end: int | None, status: str = "succeeded", ordinal: int = 1) -> dict[str, Any]:
    return {
        "ordinal": ordinal, "status": status, "started_at": at(start), "finished_at": None if end is None else at(end),
    }  # fmt: skip


def at(second: int) -> str:
    return f"2026-11-21T12:{second // 60:02}:{second % 60:02}.000Z"


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
        "▶ executing 1m40s  job (beta)  █████░░░░░ 1/2 Do job",
        "├─ ✓ completed  a (beta)  Twelve",
        "└─ ▶ executing 1m40s  b (beta)  after a: Do b",
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


def test_of_a_large_tree_the_urgent_is_shown_and_the_rest_is_counted() -> None:
    kids = [node(f"k{n}", "completed") for n in range(990)]
    kids[700] = node("stuck", "circuit_open", need="circuit", reason="no answer")
    kids[300] = node("busy", "executing", *(node(f"d{n}", "execution_ready") for n in range(50)))
    lines = plain(task_output.first_lines(node("job", "executing", *kids), NOW, 80, 6))
    assert len(lines) <= 6
    assert "‖ waiting for you 1m40s  stuck (beta)  no answer" in "\n".join(lines)
    assert "│  └─ … 49 more: 49 pending" in lines
    assert any(line.startswith("└─ … 98") and "completed" in line for line in lines)


def test_a_tree_that_fits_is_shown_whole() -> None:
    root = node("job", "executing", node("a", "completed", node("x", "completed")), node("b"))
    assert task_output.first_lines(root, NOW, 80, 4) == list(task_output.tree_lines(root, NOW, 80))
    for most in range(1, 5):
        assert len(task_output.first_lines(root, NOW, 80, most)) <= most


# Time


def course(*rows: dict[str, Any], ended: str | None = at(100)) -> dict[str, Any]:
    return {"task": "job", "began": BEGAN, "ended": ended, "rows": list(rows)}


def row(name: str, *attempts: dict[str, Any], depth: int = 1, until: int | None = 100) -> dict[str, Any]:
    return {
        "task": f"job.{name}", "key": name, "depth": depth, "phase": "executing", "need": None, "agent": "beta",
        "attempts": attempts,
        "created_at": BEGAN, "completed_at": None if until is None else at(until),
    }  # fmt: skip


def test_attempts_are_drawn_at_their_time_with_their_status() -> None:
    failed = row("a", attempt(0, 25, "failed"), attempt(50, 100, ordinal=2))
    lines = plain(task_output.gantt_lines(course(failed), NOW, 40 + 4 + 12))
    body = lines[1]
    bar = body[body.index("a") + 1 :].strip().split("  ")[0]
    assert lines[0] == "job: 2026-11-21 12:00:00 to 12:01:40, 1m40s"
    assert (bar[0], bar[len(bar) // 4 + 2], bar[-12]) == ("x", "·", "█")
    assert body.endswith("1m15s ×2")
    asks = row("b", attempt(0, None, "running")) | {"need": "question"}
    asking = plain(task_output.gantt_lines(course(asks), NOW, 56))[1]
    assert (asking[0], asking.endswith("question")) == ("‖", True)


def test_running_attempts_are_drawn_until_now() -> None:
    lines = plain(
        task_output.gantt_lines(course(row("a", attempt(90, None, "running"), until=None), ended=None), NOW, 80)
    )
    assert "to now" in lines[0]
    assert "▒" in lines[1]
    assert lines[1].endswith("10 s")


def test_an_attempt_that_took_no_time_is_seen() -> None:
    lines = plain(task_output.gantt_lines(course(row("a", attempt(100, 100, "unknown"))), NOW, 80))
    assert "?" in lines[1]


@pytest.mark.parametrize("room", [40, 80, 200])
def test_a_timeline_fits(room: int) -> None:
    rows = [row(HOSTILE, *(attempt(n, n + 1, "failed", n) for n in range(60)), depth=depth) for depth in range(12)]
    lines = plain(task_output.gantt_lines(course(*rows), NOW, room))
    assert all(width(line) <= room for line in lines), lines
    assert not any("\x1b" in line for line in lines)


def test_every_end_of_an_attempt_has_a_mark_of_its_own() -> None:
    assert set(task_output.MARKS) == set(AttemptStatus)
    assert len(set(task_output.MARKS.values())) == len(task_output.MARKS)


# The fleet


ITEM = {"task": "q3", "text": f"asks {HOSTILE * 20}", "since": BEGAN, "until": NOW, "command": "mailboxd answer q3"}


def standing(agent: str, **more: Any) -> dict[str, Any]:
    return {
        "agent": agent, "workspace": f"/ws/{agent}", "state": "ok", "why": "", "health": "green", "troubles": [],
        "daemon": {"running": True, "pid": 7}, "inbox": 0, "open": {}, "states": {}, "attention": [],
        "attention_count": 0, "latest": NOW, **more,
    }  # fmt: skip


def other_host(**more: Any) -> dict[str, Any]:
    return {
        "agent": None, "host": "beta", "workspace": "", "state": "silent",
        "why": f"nothing was heard of it since {NOW}",
        "health": "green", "agents": {"beta.writer": {}}, "pools": {}, "open": 2, "troubles": [], "attention": [],
        "attention_count": 0, **more,
    }  # fmt: skip


def test_another_host_shows_what_waits_there_and_since_when_it_is_silent() -> None:
    (_, line) = plain(fleet.lines([other_host()], NOW, 120))
    assert line.split()[:6] == ["beta", "silent", "host", "2", "in", "1"]
    assert line.endswith(f"nothing was heard of it since {NOW}")
    row = other_host(state="ok", why="", attention_count=2, troubles=["mail: 1 for it with the server"])
    (_, line) = plain(fleet.lines([row], NOW, 120))
    assert line.endswith("2 for a person there; mail: 1 for it with the server")


def test_a_workspace_shows_the_first_item_and_how_many_there_are() -> None:
    item = {"task": "q3", "text": "its circuit is open: no answer", "since": BEGAN, "command": "mailboxd why q3"}
    (_, line) = plain(fleet.lines([standing("a", attention=[item], attention_count=3)], NOW, 120))
    assert line.endswith("3 for you: q3: its circuit is open: no answer (1m40s)")
    (_, line) = plain(fleet.lines([standing("a", health="amber", troubles=["disk: it is nearly full"])], NOW, 120))
    assert line.endswith("disk: it is nearly full")


def test_the_fleet_table_fits_and_shows_open_tasks_in_words() -> None:
    rows = [
        standing("a" * 128, states=dict.fromkeys(PHASES, 1), attention=[ITEM], attention_count=1),
        {
            "agent": None,
            "workspace": f"/{HOSTILE}",
            "state": "gone",
            "why": "it is gone",
            "attention": [],
            "attention_count": 0,
        },
        standing("writer", states={"executing": 1, "ready_to_resume": 1, "execution_ready": 4}),
    ]
    for room in (60, 80, 200):
        lines = plain(fleet.lines(rows, NOW, room))
        assert all(width(line) <= room for line in lines), lines
    assert "2 running, 4 pending" in lines[3]
    assert fleet.summary(rows) == "3 workspaces, 2 need attention"
    assert fleet.summary([*rows, other_host()]) == "3 workspaces and 1 other host, 3 need attention"
    assert "\x1b" not in "".join(lines)
