"""Typed tools with strangers' clients: the real OpenClaw, whose agents call them in turns, and the MCP Inspector."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.surfaces.mcp import tokens
from tests.e2e.support import MAILBOXD, Agent, environment, eventually, task
from tests.live.conftest import FoundApart, some_of
from tests.live.install import standard
from tests.live.model import Text, Tool

EXECUTOR = ["task_get", "task_list_ready", "task_record_artifact", "task_record_checkpoint"]
SECONDS = 200.0
"""A command that asks OpenClaw three times, on a machine that has other things to do."""
REVIEWER = ["task_append_review", *EXECUTOR]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def entries(agent: Agent) -> dict[str, str]:
    """The entry in OpenClaw's configuration by whom it is for."""
    return {str(grant.caller): grant.entry for grant in tokens.load(Workspace(agent.root))}


def call(entry: str, tool: str, **arguments: Any) -> Tool:
    """How a model calls a tool that stands behind OpenClaw's tool search."""
    return Tool("tool_call", {"id": f"{entry}__{tool}", "args": arguments})


@pytest.fixture
def settings() -> dict[str, Any]:
    gates = {"quality_gate": "true", "reviewers": ["critic"]}
    return {"mcp": {"port": free_port()}, "gates": gates}


def test_agents_of_openclaw_use_the_tools_of_their_role_and_no_others(
    found_apart: FoundApart, settings: dict[str, Any]
) -> None:
    company = found_apart({"alpha": {}, "critic": {"tools": {"deny": ["browser"]}}}, start=False, **settings)
    alpha, model, gateway = company["alpha"], company.model, company.gateway
    before = json.loads(gateway.config.read_text())
    assert alpha.call("connect", "mcp", "install", seconds=SECONDS).returncode == 0
    assert "nothing to do" in alpha.call("connect", "mcp", "install", seconds=SECONDS).stdout
    assert list(entries(alpha)) == ["executor:alpha"]
    asked = alpha.call("connect", "mcp", "install", "--as", "quality_reviewer:critic", seconds=SECONDS)
    assert asked.returncode == 0, asked.stderr
    known = entries(alpha)
    own, theirs = known["executor:alpha"], known["quality_reviewer:critic"]
    gateway.start()
    alpha.start()
    eventually(lambda: listens(settings["mcp"]["port"]), 60, alpha.last_words)

    for entry, tools in ((own, EXECUTOR), (theirs, REVIEWER)):
        probed = json.loads(gateway.openclaw("mcp", "probe", entry, "--json").stdout)
        assert probed["tools"] == [f"{entry}__{name}" for name in tools]
        assert probed["diagnostics"] == []

    model.on(
        call(own, "task_record_checkpoint", task="job", note="half done"),
        call(theirs, "task_append_review", task="job", kind="quality", verdict="approved", summary="I am great"),
        Text("The result."), agent="alpha", kind="work",
    )  # fmt: skip
    model.on(
        call(theirs, "task_append_review", task="job", kind="quality", verdict="approved", summary="it is good"),
        Text("I have given my verdict."), agent="critic", kind="review",
    )  # fmt: skip
    alpha.drop("go.md", task("job"))
    alpha.until("job")

    notes = [event["data"]["note"] for event in alpha.events("attempt.checkpoint") if event["role"] == "executor"]
    assert notes == ["half done"], [one.results for one in model.made(agent="alpha")]
    [review] = alpha.events("review.appended")
    assert (review["role"], review["actor"], review["data"]["review"]["summary"]) == (
        "quality_reviewer", "critic", "it is good",
    )  # fmt: skip
    refused = [said for one in model.made(agent="alpha", kind="work") for said in one.results[1:]]
    assert refused
    assert not any("recorded" in said for said in refused)  # OpenClaw did not let alpha call what is the critic's
    eventually(alpha.has_nothing_to_do, 60)
    alpha.stop()
    gateway.stop()

    assert alpha.call("connect", "mcp", "uninstall", seconds=SECONDS).returncode == 0
    after = json.loads(gateway.config.read_text())
    assert after["agents"]["entries"] == before["agents"]["entries"]
    assert "mcp" not in before
    assert "mcp" not in after


@pytest.mark.soak
def test_an_agent_that_is_added_later_is_denied_the_tools_without_another_install(found_apart: FoundApart) -> None:
    port = free_port()
    company = found_apart({"alpha": {}, "late": {}}, start=False, mcp={"port": port})
    alpha, model, gateway = company["alpha"], company.model, company.gateway
    whole = json.loads(gateway.config.read_text())
    late = whole["agents"]["entries"].pop("late")
    gateway.config.write_text(json.dumps(whole))
    assert alpha.call("connect", "mcp", "install", seconds=SECONDS).returncode == 0
    own = entries(alpha)["executor:alpha"]
    gateway.start()
    alpha.start()
    eventually(lambda: listens(port), 60, alpha.last_words)

    now = json.loads(gateway.config.read_text())
    now["agents"]["entries"]["late"] = late
    hidden = gateway.config.with_suffix(".new")
    hidden.write_text(json.dumps(now))
    hidden.rename(gateway.config)

    def denied() -> bool:
        there = json.loads(gateway.config.read_text())["agents"]["entries"]["late"]
        return f"{own}__*" in there.get("tools", {}).get("deny", [])

    eventually(denied, 120, alpha.last_words)
    for agent, may in (("alpha", True), ("late", False)):
        model.on(call(own, "task_list_ready"), Text("Tried."), agent=agent)
        message = "[mailboxd] work turn · task try · attempt 1\n\nTry it."
        done = gateway.openclaw("agent", "--agent", agent, "--message", message, "--json", seconds=SECONDS)
        assert done.returncode == 0, done.stderr
        (said,) = model.made(agent=agent)[-1].results
        assert ("tasks" in said) is may, said


@pytest.mark.parametrize("transport", some_of(("stdio", "http"), "http"))
def test_the_inspector_finds_nothing_to_complain_of(tmp_path: Path, transport: str) -> None:
    place = standard()
    assert place.has_inspector(), f"no MCP Inspector in {place.cache}: run `make live`"
    env = environment({"PATH": f"{place.node.parent}{os.pathsep}{os.environ['PATH']}"})
    root, port = tmp_path / "alpha", free_port()
    assert subprocess.run([*MAILBOXD, "init", str(root), "--agent", "alpha"], env=env).returncode == 0
    with (root / ".mailboxd" / "config.yaml").open("a") as file:
        file.write(f"mcp:\n  port: {port}\n")
    serve = [*MAILBOXD, "connect", "mcp", "serve", "-w", str(root)]
    listener = subprocess.Popen([*serve, "--http"], env=env)
    try:
        eventually(lambda: listens(port), 60)
        if transport == "stdio":
            target = [*serve, "--as", "executor:alpha"]
        else:
            argv = [*MAILBOXD, "connect", "mcp", "token", "executor:alpha", "-w", str(root)]
            token = subprocess.run(argv, env=env, capture_output=True, text=True).stdout.strip()
            header = f"Authorization: Bearer {token}"
            target = [f"http://127.0.0.1:{port}/mcp", "--transport", "http", "--header", header]

        def inspect(*words: str) -> Any:
            argv = [str(place.inspector), "--cli", *target, *words]
            done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            assert done.returncode in (0, 5), done.stderr
            return json.loads(done.stdout)

        assert sorted(tool["name"] for tool in inspect("--method", "tools/list", "--strict")["tools"]) == EXECUTOR
        said = inspect("--method", "tools/call", "--tool-name", "task_list_ready")
        assert said["structuredContent"] == {"tasks": []}
        call_ = ("--method", "tools/call", "--tool-name")
        refused = inspect(*call_, "task_get", "--tool-arg", "task=nobody")
        assert refused["isError"] is True
        assert refused["structuredContent"]["error"]["rule"] == "no-such-task"
    finally:
        listener.kill()
        listener.wait(30)


def test_the_old_form_of_the_configuration_is_taken_as_openclaw_reads_it_or_refused_with_its_remedy(
    found_apart: FoundApart, settings: dict[str, Any]
) -> None:
    company = found_apart({"alpha": {}, "critic": {}}, listed=True, start=False, **settings)
    alpha, gateway = company["alpha"], company.gateway
    whole = json.loads(gateway.config.read_text())
    assert "list" in whole["agents"]
    for entry in whole["agents"]["list"]:
        entry.pop("default", None)
    ambiguous = json.dumps(whole)
    valid = gateway.config.read_text()

    gateway.config.write_text(ambiguous)
    done = alpha.call("connect", "mcp", "install", seconds=SECONDS)
    assert done.returncode == 69
    assert "agents.ownership" in done.stderr
    assert "openclaw doctor" in done.stderr
    assert not (alpha.root / ".mailboxd" / "mcp.json").exists()

    gateway.config.write_text(valid)
    assert alpha.call("connect", "mcp", "install", seconds=SECONDS).returncode == 0
    agents = json.loads(gateway.openclaw("config", "get", "agents", "--json").stdout)
    assert agents["entries"]["critic"]["tools"]["deny"] == ["mailboxd-alpha__*"]
