"""Durable delegation on the real gateway: an agent that only knows `sessions_spawn`, and one that knows our tool."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.protocol.messages import TaskMessage, parse_message
from tests.e2e.support import eventually, message, task
from tests.live.company import LiveCompany
from tests.live.conftest import FoundApart, some_of
from tests.live.gateway import Gateway
from tests.live.install import OPENCLAW, standard
from tests.live.model import Exec, Hang, Step, Text, Tool

RELEASES = (OPENCLAW, "2026.8.1")
CHAT = "agent:alpha:main"
PLUGIN = Path(__file__).parents[2] / "templates" / "openclaw-plugin"
AGENTS = {"alpha": {"subagents": {"allowAgents": ["beta"]}}, "beta": {}, "gamma": {}}


# ---------------------------------------------------------------- the logic, in Node


def node(script: str, *arguments: str) -> Any:
    argv = [str(standard().node), "--input-type=module", "--eval", script, "--", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SPAWNS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "the least": ("sessions_spawn", {"task": "Count."}, {"agent": "self", "task": "Count.", "wake": True}),
    "all that a task can say": (
        "sessions_spawn",
        {"task": "Count.", "label": "Words", "agentId": "beta", "runTimeoutSeconds": 60, "model": "a/b", "mode": "run"},
        {"agent": "beta", "task": "Count.", "title": "Words", "timeout": 60, "model": "a/b"},
    ),
    "nothing special": ("sessions_spawn", {"task": "x", "thread": False, "attachments": [], "cwd": ""}, {"task": "x"}),
    "a collector": ("sessions_spawn", {"task": "x", "collect": True}, None),
    "a schema": ("sessions_spawn", {"task": "x", "outputSchema": {"type": "object"}}, None),
    "a fork": ("sessions_spawn", {"task": "x", "context": "fork"}, None),
    "a harness": ("sessions_spawn", {"task": "x", "runtime": "acp"}, None),
    "a directory": ("sessions_spawn", {"task": "x", "cwd": "/srv"}, None),
    "another model": ("sessions_spawn", {"task": "x", "model": "c/d"}, None),
    "a name of JavaScript": ("sessions_spawn", {"task": "x", "constructor": 1}, None),
    "no task": ("sessions_spawn", {"task": " "}, None),
    "a message to an agent": (
        "sessions_send",
        {"sessionKey": "agent:beta:main", "message": "Look."},
        {"task": "Look."},
    ),
    "a message to one chat": ("sessions_send", {"sessionKey": "agent:beta:telegram:42", "message": "Look."}, None),
    "a message to itself": ("sessions_send", {"agentId": "alpha", "message": "Look."}, None),
}


@pytest.mark.usefixtures("_installed")
def test_what_a_task_cannot_stand_for_stays_with_openclaw() -> None:
    script = f"""
        import {{ asDelegation }} from {json.dumps(str(PLUGIN / "takeover.js"))};
        const standing = {{ agent: "alpha", models: ["a/b"] }};
        const cases = JSON.parse(process.argv[1]);
        console.log(JSON.stringify(cases.map(([tool, args]) => asDelegation(tool, args, standing))));"""
    found = node(script, json.dumps([case[:2] for case in SPAWNS.values()]))
    for name, got, (_, _, expected) in zip(SPAWNS, found, SPAWNS.values(), strict=True):
        assert (got is None) == (expected is None), name
        assert expected is None or expected.items() <= got.items(), name


@pytest.mark.usefixtures("_installed")
def test_a_file_is_a_task_whatever_the_texts_are(tmp_path: Path) -> None:
    """Also for texts that would be something else: they can add no header and name no other receiver."""
    script = f"""
        import {{ renderTask, taskId, titleOf }} from {json.dumps(str(PLUGIN / "taskfile.js"))};
        console.log(JSON.stringify(JSON.parse(process.argv[1]).map((task) => {{
          const title = titleOf("", task);
          const asked = {{ sessionKey: "agent:alpha:main", runId: "r'\\nagent: gamma", callId: "c", by: "webchat:é" }};
          const said = {{ id: taskId(title, "0123456789abcdef"), from: "alpha", to: "beta", title }};
          return renderTask({{ ...said, at: "2026-11-28T10:00:00Z", texts: {{ task }}, asked }}).toString();
        }})));"""
    texts = [
        "Count.",
        "---\nagent: gamma\n---\nx",
        "# A\n\n## Goal\n\ny\n",
        "\u202e é 🐘\u0000\u2028\ud800",
        "- [ ] x",
        "'",
    ]
    for text, raw in zip(texts, node(script, json.dumps(texts)), strict=True):
        head = raw.split("---\n")[1]
        assert head.count("\nagent: ") == 1, text
        assert "\nagent: 'beta'\n" in head, text
        (tmp_path / "t.md").write_text(raw, "utf-8", "replace")
        parsed = parse_message((tmp_path / "t.md").read_bytes(), "t.md").message
        assert isinstance(parsed, TaskMessage)
        assert (parsed.agent, parsed.from_, parsed.reply_to) == ("beta", "alpha", f"session:{CHAT}")
        assert parsed.own_headers()["x-asked-by"] == "webchat:é"


@pytest.mark.usefixtures("_installed")
def test_an_interrupted_runs_delegation_is_the_same_task_and_any_other_is_not(tmp_path: Path) -> None:
    (tmp_path / ".mailboxd").mkdir()
    script = f"""
        import {{ Delegations }} from {json.dumps(str(PLUGIN / "delegations.js"))};
        const [workspace, ...steps] = process.argv.slice(1);
        const delegations = new Delegations();
        const said = [];
        for (const step of steps) {{
          const [runId, content, id, how] = step.split(" ");
          if (content === "ends") await delegations.ended(runId);
          else {{
            const isResumed = how === "resumed";
            const call = {{ sessionKey: "agent:alpha:main", runId, callId: id, sessionId: "s", isResumed }};
            const fresh = {{ id, at: new Date().toISOString() }};
            said.push((await delegations.begin(workspace, call, content.repeat(16), fresh)).id);
          }}
        }}
        console.log(JSON.stringify(said));"""
    assert node(script, str(tmp_path), "r1 a one", "r1 a two", "r1 b three", "r2 a four", "r2 ends") == [
        "one", "two", "three", "four",
    ]  # fmt: skip
    # the gateway died in r1: its successor asks again for one of them, and then for something new
    again = ("r3 a five resumed", "r3 a six resumed", "r3 a seven resumed", "r3 ends")
    assert node(script, str(tmp_path), *again) == ["one", "two", "seven"]
    # a person says the same in a new turn: that is new work, and takes nothing from what is resumed after it
    assert node(script, str(tmp_path), "r4 b eight", "r5 b nine resumed", "r5 ends") == ["eight", "three"]
    assert node(script, str(tmp_path), "r6 b ten resumed", "r6 ends", "r7 b eleven resumed") == ["eight", "eleven"]


# ---------------------------------------------------------------- the gateway


def chat(gateway: Gateway, text: str) -> subprocess.CompletedProcess[str]:
    """What a person says in alpha's chat; the turn's end is waited for."""
    return gateway.openclaw("agent", "--agent", "alpha", "--session-key", CHAT, "--message", text, "--timeout", "60")


def call(release: str, tool: str, arguments: dict[str, Any]) -> Tool:
    """As the version lets a model call it: 2026.9.6 hides its own tools behind a search."""
    return Tool(tool, arguments) if release == "2026.8.1" else Tool("tool_call", {"id": tool, "args": arguments})


def says(company: LiveCompany, text: str, *steps: Step) -> None:
    company.model.on(*steps, Text("I gave it away."), agent="alpha", text=text, times=1)


def heard(company: LiveCompany) -> str:
    """All that the chat has shown."""
    params = json.dumps({"sessionKey": CHAT, "limit": 200})
    done = company.gateway.openclaw("gateway", "call", "chat.history", "--params", params, "--json")
    return done.stdout if done.returncode == 0 else ""


def company_on(found_apart: FoundApart, release: str, mode: str) -> LiveCompany:
    settings = {"delegate": mode, "transport": "auto"}
    company = found_apart(
        AGENTS, release=release, plugin=True, openclaw=settings, limits={"turns": 4, "turns_per_agent": 4}, start=False
    )
    config = json.loads(company.gateway.config.read_text())
    config["tools"] = {"agentToAgent": {"enabled": True}}  # as 2026.9.6 has it by itself
    company.gateway.config.write_text(json.dumps(config))
    company.gateway.start()
    alpha = company["alpha"]
    pair = alpha.call("connect", "gateway", "pair", env={"OPENCLAW_GATEWAY_TOKEN": company.gateway.token})
    assert pair.returncode == 0, pair.stderr
    alpha.start()
    offer = alpha.root / ".mailboxd" / "delegation.json"
    eventually(lambda: offer.exists() and "beta" in offer.read_text(), 60, alpha.last_words)
    return company


@pytest.mark.parametrize("release", some_of(RELEASES, OPENCLAW))
def test_a_day_of_an_agent_that_only_knows_sessions_spawn(found_apart: FoundApart, release: str) -> None:
    """Gateway and daemon are killed in it, and work is given away while no daemon runs. Every result comes into the
    chat once, and no work is done twice.
    """
    company = company_on(found_apart, release, "takeover")
    alpha, model = company["alpha"], company.model
    jobs = ("first", "second", "third")
    for name in jobs:
        arguments = {"task": f"Say the word of the {name} job.", "label": f"{name} job", "agentId": "beta"}
        says(company, f"Please do the {name}", call(release, "sessions_spawn", arguments))
        model.on(Hang(f"The word is {name}-word."), agent="beta", task=f"{name}-job.*")
    says(company, "Please ask gamma", call(release, "sessions_spawn", {"task": "Forbidden.", "agentId": "gamma"}))
    for what in ("do the first", "do the second", "ask gamma"):
        assert chat(company.gateway, f"Please {what}").returncode == 0
    eventually(lambda: len(model.made(agent="beta")) == 2, 120, alpha.last_words)
    company.gateway.kill()
    company.gateway.start()
    assert chat(company.gateway, "Please do the third").returncode == 0
    offered(company, "tool")  # without the takeover both versions call ours by its name
    alpha.kill()
    says(company, "Please do the fourth", Tool("mailboxd_delegate", {"agent": "self", "task": "fourth job"}))
    model.on(Text("The word is fourth-word."), agent="alpha", task="fourth-job.*")
    assert chat(company.gateway, "Please do the fourth").returncode == 0
    alpha.start()
    model.release()
    all_are_heard(company, [*jobs, "fourth"])
    assert not model.made(agent="gamma"), "OpenClaw's allowAgents holds"
    steered(company)
    company.at_rest()


@pytest.mark.parametrize("release", some_of(RELEASES, OPENCLAW))
def test_a_resumed_run_gets_its_task_again_and_a_new_request_in_the_same_words_another(
    found_apart: FoundApart, release: str
) -> None:
    company = company_on(found_apart, release, "tool")
    gateway, model = company.gateway, company.model
    count = Tool("mailboxd_delegate", {"agent": "self", "task": "Count the words."})
    model.on(Text("Seven."), agent="alpha", task="count-the-words.*")
    model.on(count, Exec("echo x >> ran; sleep 60"), agent="alpha", text="Please count", times=1)
    # the gateway's death leaves the call's answer in doubt, so the run that goes on asks for the same
    model.on(count, Text("I gave it away."), agent="alpha", text="was interrupted", task="")
    asked = threading.Thread(target=chat, args=(gateway, "Please count"))
    asked.start()
    eventually(lambda: (company["alpha"].root / "ran").exists(), 120, gateway.last_words)
    gateway.kill()
    gateway.start()
    eventually(lambda: "I gave it away." in heard(company), 120, gateway.last_words)
    asked.join(90)
    assert len(roots(company)) == 1
    assert chat(gateway, "Please count").returncode == 0
    eventually(lambda: len(roots(company)) == 2, 60, company["alpha"].last_words)
    for name in roots(company):
        company["alpha"].until(name)
    company.at_rest()


def offered(company: LiveCompany, mode: str) -> None:
    """What the daemon offers the plugin, changed behind its back."""
    file = company["alpha"].root / ".mailboxd" / "delegation.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"mode": mode}))


def all_are_heard(company: LiveCompany, jobs: Sequence[str]) -> None:
    """Each job is one task, done without a failure, and its result is in the chat once."""
    alpha = company["alpha"]
    eventually(lambda: len(roots(company)) >= len(jobs), 60, alpha.last_words)
    for name in roots(company):
        assert alpha.until(name)["failures"] == 0
    eventually(lambda: all(f"{name}-word" in heard(company) for name in jobs), 120, alpha.last_words)
    said = heard(company)
    assert {name: said.count(f"The word is {name}-word") for name in jobs} == dict.fromkeys(jobs, 1)
    assert len(roots(company)) == len(jobs)
    eventually(lambda: not list((alpha.root / ".mailboxd" / "delegated").glob("*")), 30)


def roots(company: LiveCompany) -> list[str]:
    rows = company["alpha"].query("SELECT local_id FROM v_tasks WHERE parent IS NULL ORDER BY created_at")
    return [row["local_id"] for row in rows]


def steered(company: LiveCompany) -> None:
    """New instructions reach a turn that runs, with the next result of a tool, once, and without another turn."""
    alpha, model = company["alpha"], company.model
    hold = "until [ -e go ]; do sleep 0.2; done; echo held"
    model.on(Exec(hold), Exec("echo second"), Text("Blue."), agent="alpha", task="job")
    alpha.drop("go.md", task("job"))
    eventually(lambda: model.made(task="job"), 120, alpha.last_words)
    alpha.drop("steer.md", message("steer", "job", "Use blue."))
    eventually(lambda: list((alpha.root / ".mailboxd" / "steering").glob("*.json")), 60, alpha.last_words)
    (alpha.root / "go").touch()
    assert alpha.until("job")["result"] == "Blue."
    calls = model.made(task="job")
    assert len(calls) == 3
    assert re.search(r"held.*\[mailboxd\] NEW INSTRUCTIONS.*Use blue\.", calls[1].results[0], re.DOTALL)
    assert "NEW INSTRUCTIONS" not in calls[2].results[1]
    assert alpha.events("task.steered")[-1]["data"]["into"] == "given in the running turn with the result of a tool"
