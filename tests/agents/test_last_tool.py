"""The last tool of a running turn: one bounded file, which nothing depends on and nobody trusts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mailboxd.perform.agents import call_dir, last_tool, process
from mailboxd.perform.agents.gateway.client import ToolUsed, parse_tool
from tests.cli.stage import Stage, make

NOW = "2026-11-21T12:00:00.000Z"


def _event(**changes: object) -> str:
    task = {
        "sessionKey": "agent:a:mailboxd:q3",
        "status": "running",
        "lastToolName": "exec",
        "toolUseCount": 2,
        **changes,
    }
    payload = {"payload": {"action": "upserted", "task": task}}
    return '{"type":"event","event":"task",' + json.dumps(payload, separators=(",", ":"))[1:]


def test_the_record_of_a_run_says_its_last_tool() -> None:
    assert parse_tool(_event()) == ToolUsed("agent:a:mailboxd:q3", "exec", 2)
    assert parse_tool(_event(toolUseCount="many")) == ToolUsed("agent:a:mailboxd:q3", "exec", 0)
    assert parse_tool(_event(title="x" * 70_000)) is None
    for broken in ("", "{", _event(sessionKey=7), _event(lastToolName=None), _event()[:-2], '{"lastToolName":"exec"}'):
        assert parse_tool(broken) is None


def test_the_latest_one_is_read_in_one_line(tmp_path: Path) -> None:
    last_tool.leave(str(tmp_path), "read", NOW)
    last_tool.leave(str(tmp_path), "exec\n\x1b[31m" + "x" * 500, NOW)
    name, at = last_tool.used(tmp_path, NOW) or ("", "")
    assert name.startswith("exec")
    assert len(name) <= 60
    assert "\x1b" not in name
    assert "\n" not in name
    assert at == NOW
    process.remove(tmp_path)
    assert not tmp_path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", '{"name": "exec"}', '{"name": 7, "at": "x"}', '{"name": "exec", "at": "tomorrow"}',
        json.dumps({"name": "exec", "at": "2027-01-01T00:00:00.000Z"}), json.dumps({"name": "x" * 600, "at": NOW}),
        "[" * 400,
    ],
)  # fmt: skip
def test_what_an_agent_may_leave_there_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / call_dir.TOOL).write_text(text)
    assert last_tool.used(tmp_path, NOW) is None


def test_a_link_or_a_pipe_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text(json.dumps({"name": "exec", "at": NOW}))
    (tmp_path / call_dir.TOOL).symlink_to(tmp_path / "other")
    assert last_tool.used(tmp_path, NOW) is None
    (tmp_path / call_dir.TOOL).unlink()
    os.mkfifo(tmp_path / call_dir.TOOL)
    assert last_tool.used(tmp_path, NOW) is None
    assert last_tool.used(tmp_path / "nowhere", NOW) is None


def test_why_says_the_last_tool_of_a_turn_that_runs(tmp_path: Path) -> None:
    stage: Stage = make(tmp_path / "alpha")
    stage.create("q3")
    stage.start()
    with stage.engine() as engine:
        (order,) = engine.store.outbox.pending(stage.clock.now(), 10)
    directory = stage.ws.turns / order.id
    directory.mkdir(parents=True)
    last_tool.leave(str(directory), "web_search", stage.clock.now())
    for command in ("why", "show"):
        assert "last tool: web_search, " in " ".join(stage.run(command, "q3").output.split())
