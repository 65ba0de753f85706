"""A running daemon that serves tools: verdicts and progress come in while turns are under way."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found, found
from tests.e2e.support import Agent, eventually, task

pytestmark = pytest.mark.slow

__all__ = ["found"]

WORK = {"default": {"reply": "Result of {title}."}}
APPROVES = {"default": {"delay": 45, "reply": "---\ntype: review\nverdict: blocked\n---\n\nToo late to matter.\n"}}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def token_of(agent: Agent, who: str) -> str:
    done = agent.call("connect", "mcp", "token", who)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def call(port: int, token: str, tool: str, **arguments: Any) -> Mapping[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    headers["accept"] = "application/json, text/event-stream"
    connection.request("POST", "/mcp", json.dumps(body), headers)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    found: Mapping[str, Any] = said["result"]["structuredContent"]
    return found


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def server_of(agent: Agent) -> int:
    """The process that serves this agent's tools."""
    mark = os.fsencode(str(agent.root))
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and mark in words:
                return int(entry.name)
    return 0


@pytest.fixture
def served(found: Found) -> tuple[Agent, int]:
    port = free_port()
    company = found(
        {"alpha": {"rules": [{"match": {"task": "slow"}, "delay": 20}], **WORK}, "critic": APPROVES},
        mcp={"port": port}, gates={"quality_gate": "true", "reviewers": ["critic"]}, limits={"turns": 4},
    )  # fmt: skip
    alpha = company["alpha"]
    alpha.start()
    eventually(lambda: listens(port), 40, alpha.last_words)
    return alpha, port


def test_a_verdict_by_tool_moves_the_task_before_the_turn_of_the_reviewer_ends(served: tuple[Agent, int]) -> None:
    alpha, port = served
    token = token_of(alpha, "quality_reviewer:critic")
    alpha.drop("go.md", task("job"))
    eventually(lambda: alpha.phase("job") == "quality_gate", why=alpha.last_words)
    [waiting] = eventually(lambda: call(port, token, "task_list_ready")["tasks"])
    assert waiting["task"] == "job"
    attempt = call(port, token, "task_get", task="job")["attempt_id"]
    said = call(
        port, token, "task_append_review", task="job", kind="quality", verdict="approved", summary="good",
        attempt_id=attempt,
    )  # fmt: skip
    assert said["phase"] == "completed"
    eventually(lambda: alpha.sent("reply"), 20, alpha.last_words)  # the daemon was woken, and the critic still thinks
    reviews = {entry["run_id"] for entry in alpha.company.executions(kind="review")}  # begun already, or not yet
    assert not [entry for entry in alpha.company.entries() if entry["event"] == "end" and entry["run_id"] in reviews]
    assert alpha.call("db", "verify").returncode == 0


def test_progress_by_tool_reaches_the_attempt_that_runs(served: tuple[Agent, int]) -> None:
    alpha, port = served
    token = token_of(alpha, "executor:alpha")
    alpha.drop("go.md", task("slow"))
    eventually(lambda: alpha.phase("slow") == "executing", why=alpha.last_words)
    (alpha.root / "half.txt").write_text("half")
    assert call(port, token, "task_record_checkpoint", task="slow", note="half done")["phase"] == "executing"
    assert call(port, token, "task_record_artifact", task="slow", kind="other", path="half.txt")["sha256"]
    notes = [event["data"]["note"] for event in alpha.events("attempt.checkpoint") if event["role"] == "executor"]
    assert notes == ["half done"]


def test_a_listener_that_is_killed_comes_back(served: tuple[Agent, int]) -> None:
    alpha, port = served
    first = eventually(lambda: server_of(alpha))
    os.kill(first, signal.SIGKILL)
    eventually(lambda: server_of(alpha) not in (0, first) and listens(port), 60, alpha.last_words)
    assert alpha.process is not None
    assert alpha.process.poll() is None


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_it_goes_with_the_daemon(served: tuple[Agent, int], how: str) -> None:
    alpha, port = served
    pid = eventually(lambda: server_of(alpha))
    alpha.stop() if how == "stop" else alpha.kill()
    eventually(lambda: not Path(f"/proc/{pid}").exists() and not listens(port), 30)


def test_a_taken_port_does_not_stop_the_mail(found: Found) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        alpha = found({"alpha": WORK}, mcp={"port": other.getsockname()[1]})["alpha"]
        alpha.start()
        alpha.drop("go.md", task("job"))
        alpha.until("job")
        eventually(lambda: "choose another `mcp.port`" in alpha.last_words(), 60)


def test_nothing_listens_unless_it_is_asked_for(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    alpha.until("job")
    assert server_of(alpha) == 0
