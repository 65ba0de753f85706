"""`mailboxd doctor` as it is installed: what it prints, how it ends, and that it changes nothing."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import SystemClock
from mailboxd.operate.doctor.agent import probe_plugin, run_canary
from mailboxd.operate.doctor.facts import PluginAnswer
from mailboxd.operate.doctor.openclaw import probe_transport
from mailboxd.operate.doctor.target import target_at
from mailboxd.perform.agents.openclaw import OpenClaw
from tests.e2e.support import MAILBOXD, Agent, Company, environment

pytestmark = pytest.mark.slow

OBEDIENT = {"match": r"\[mailboxd\] canary turn", "reply": "{word}"}
RULES: dict[str, Any] = {"alpha": {"mailbox": True, "rules": [OBEDIENT]}, "beta": {}}


@pytest.fixture
def alpha(tmp_path: Path) -> Iterator[Agent]:
    company = Company(tmp_path, RULES)
    company["alpha"].settle_in({})
    with closing(company):
        yield company["alpha"]


def doctor(agent: Agent, *words: str, **env: str) -> tuple[int, dict[str, Any]]:
    done = agent.call("doctor", "--json", *words, env=env)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def levels(told: dict[str, Any]) -> dict[str, str]:
    return {finding["id"]: finding["level"] for finding in told["findings"]}


def test_a_sound_workspace(alpha: Agent) -> None:
    status, told = doctor(alpha)
    found = levels(told)
    assert (status, told["healthy"], told["counts"]["error"]) == (0, True, 0), told
    assert told["workspace"] == str(alpha.root)
    assert (found["openclaw"], found["openclaw-version"], found["agent"], found["agent-workspace"]) == (
        "note", "ok", "ok", "ok",
    )  # fmt: skip
    assert {"group", "id", "level", "text", "fixes"} == set(told["findings"][0])


def test_it_changes_nothing(alpha: Agent) -> None:
    assert alpha.call("init", "--agent", "alpha").returncode == 0

    def snapshot() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.lstat().st_mtime_ns, path.lstat().st_size)
            for path in alpha.root.parent.rglob("*")
            # SQLite keeps its -shm and -wal there while it reads, as for every command
            if path != alpha.root / ".mailboxd" and not path.name.endswith(("-shm", "-wal"))
        }

    before = snapshot()
    doctor(alpha)
    assert snapshot() == before


@pytest.mark.soak
def test_warnings_fail_only_when_strict(alpha: Agent) -> None:
    alpha.inbox.chmod(0o777)
    assert doctor(alpha)[0] == 0
    status, told = doctor(alpha, "--strict")
    assert (status, told["healthy"], levels(told)["directories"]) == (1, False, "warning")


def test_an_agent_that_openclaw_does_not_have(alpha: Agent) -> None:
    alpha.config.write_text(alpha.config.read_text().replace("agent: alpha", "agent: nobody"))
    status, told = doctor(alpha)
    (finding,) = [one for one in told["findings"] if one["id"] == "agent"]
    assert (status, finding["level"]) == (1, "error")
    assert finding["fixes"] == [f"openclaw agents add nobody --workspace {alpha.root}"]


def test_a_configuration_that_is_wrong_is_one_finding_among_others(alpha: Agent) -> None:
    alpha.config.write_text("agent: alpha\nno-such-key: 1\n")
    status, told = doctor(alpha, PATH="/usr/bin:/bin")
    assert status == 1
    assert levels(told)["config"] == "error"
    assert levels(told)["python"] == "ok"


@pytest.mark.soak
def test_a_damaged_database_is_a_finding(alpha: Agent) -> None:
    (alpha.root / ".mailboxd" / "mailboxd.db").write_bytes(b"damage" * 2000)
    status, told = doctor(alpha)
    assert (status, levels(told)["database"]) == (1, "error")


@pytest.mark.parametrize("words", [(), ("-w", "here")])
def test_outside_a_workspace(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*MAILBOXD, "doctor", "--json", *words], cwd=tmp_path, env=environment({"PATH": "/nowhere"}),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    found = levels(json.loads(done.stdout))
    assert done.returncode == 1
    assert found["openclaw"] == "error"
    assert found["workspace"] == ("error" if words else "note")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "value"), [("OPENCLAW_SHELL", "exec"), ("OPENCLAW_SUBAGENT_EXEC", "1")])
def test_inside_an_agents_turn_it_says_so_and_the_daemon_refuses_to_start(alpha: Agent, name: str, value: str) -> None:
    status, told = doctor(alpha, **{name: value})
    assert (status, levels(told)["inside-agent"]) == (1, "error")
    done = alpha.call("run", "--until-idle", env={name: value})
    assert done.returncode == 78
    assert "a shell inside an agent's turn" in done.stderr
    assert "systemd" in done.stderr
    assert not (alpha.root / ".mailboxd" / "daemon.json").exists()


def test_a_workspace_that_is_not_paired(alpha: Agent, tmp_path: Path) -> None:
    """The probe itself; a stand-in has no gateway, so the command does not ask."""
    found = probe_transport(OpenClaw(("openclaw",)), tmp_path / "none.json", SystemClock())
    assert "mailboxd connect gateway pair" in found.problem or "mailboxd[gateway]" in found.problem


def test_a_running_daemon_is_named(alpha: Agent) -> None:
    process = alpha.start()
    _, told = doctor(alpha)
    (finding,) = [one for one in told["findings"] if one["id"] == "daemon"]
    assert finding["level"] == "ok"
    assert f"pid {process.pid}," in finding["text"]
    assert alpha.stop() == 0


@pytest.mark.soak
def test_lines_fit_the_screen_except_commands(alpha: Agent) -> None:
    alpha.inbox.chmod(0o777)
    done = alpha.call("doctor", env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.lstrip().startswith("->"))
    assert f"    -> chmod go-w {alpha.inbox}" in lines
    assert "[directories]" in done.stdout
    assert re.fullmatch(r"\d+ warnings?, \d+ notes?", lines[-1])
    assert "\x1b" not in done.stdout + done.stderr


def test_colors_and_progress_only_on_a_terminal(alpha: Agent) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*MAILBOXD, "doctor"],
        cwd=alpha.root,
        env=environment({"TERM": "xterm"}),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    said = b""
    while True:
        try:
            said += os.read(master, 65536)
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert process.wait(30) == 0
    text = said.decode()
    assert "checking agents ..." in text
    assert "\x1b[32m✓\x1b[0m" in text
    assert not re.search(r"checking [^\r]*\n", text)


def test_a_canary_comes_back_and_leaves_no_task(alpha: Agent) -> None:
    alpha.start()
    status, told = doctor(alpha, "--canary")
    (turn,) = [one for one in told["findings"] if one["id"] == "canary-turn"]
    assert (status, turn["level"]) == (0, "ok"), told
    assert re.search(r"a turn of alpha took \d+\.\d s and [\d,]+ tokens, and its answer was right", turn["text"])
    assert len(alpha.company.entries()) > 0
    assert alpha.phases() == {}


def test_a_canary_by_message_is_filed_and_leads_to_nothing(alpha: Agent) -> None:
    alpha.start()
    target = target_at(Workspace(alpha.root), "", environment())
    clock = SystemClock()
    found = list(run_canary(target, clock, lambda _: None, plugin=True, daemon=True))
    assert [(finding.id, finding.level.value) for finding in found] == [
        ("canary-turn", "ok"), ("canary-message", "ok"), ("canary-filed", "ok"),
    ]  # fmt: skip
    assert "filed it as orphan" in found[2].text
    (message,) = alpha.mail()
    assert (message["verdict"], message["task"]) == ("orphan", None)
    assert alpha.phases() == {}
    assert alpha.stop() == 0
    assert alpha.call("db", "verify").returncode == 0


def test_without_a_daemon_the_canary_waits_in_the_inbox(alpha: Agent) -> None:
    target = target_at(Workspace(alpha.root), "", environment())
    found = list(run_canary(target, SystemClock(), lambda _: None, plugin=True, daemon=False))
    assert found[-1].id == "canary-filed"
    assert found[-1].level == "note"
    assert len(list(alpha.inbox.iterdir())) == 1
    alpha.run()
    assert list(alpha.inbox.iterdir()) == []
    assert alpha.phases() == {}


def test_a_turn_that_fails_is_an_error(alpha: Agent) -> None:
    failing = [{"fail": {"kind": "permanent", "error": "HTTP 401: no key"}}]
    alpha.company.rewrite({"alpha": {"rules": failing}})
    status, told = doctor(alpha, "--canary")
    (turn,) = [one for one in told["findings"] if one["id"] == "canary-turn"]
    assert (status, turn["level"]) == (1, "error")
    assert "401" in turn["text"]


@pytest.mark.parametrize("reply", ["canary", "The outcome.", "The word is {word}.", "", "---\ntype: ack\n---\n{word}"])
def test_a_canary_turn_with_another_answer_fails(alpha: Agent, reply: str) -> None:
    """A stale answer, an error in prose or another agent's text are answers, too: only the word of this run counts."""
    alpha.company.rewrite({"alpha": {"rules": [OBEDIENT | {"reply": reply}]}})
    target = target_at(Workspace(alpha.root), "", environment())
    turn = next(iter(run_canary(target, SystemClock(), lambda _: None, plugin=False, daemon=False)))
    assert (turn.id, turn.level.value) == ("canary-turn", "error")
    assert reply == "" or "answered something else" in turn.text


def test_an_acknowledgement_of_another_message_does_not_pass(alpha: Agent) -> None:
    other = "---\ntype: ack\ntask_id: another\nfrom: alpha\n---\n"
    alpha.company.rewrite({"alpha": {"mailbox": False, "rules": [OBEDIENT, {"reply": other}]}})
    target = target_at(Workspace(alpha.root), "", environment())
    found = list(run_canary(target, SystemClock(), lambda _: None, plugin=True, daemon=False))
    assert [(one.id, one.level.value) for one in found] == [("canary-turn", "ok"), ("canary-message", "error")]


FORGED = "---\ntype: ack\ntask_id: {task_id}\nfrom: alpha\n---\n"


def test_an_acknowledgement_by_the_model_does_not_pass(alpha: Agent) -> None:
    """A model can write what the plugin would have answered: the tokens tell."""
    alpha.company.rewrite({"alpha": {"mailbox": False, "rules": [OBEDIENT, {"reply": FORGED}]}})
    target = target_at(Workspace(alpha.root), "", environment())
    found = list(run_canary(target, SystemClock(), lambda _: None, plugin=True, daemon=False))
    assert [(one.id, one.level.value) for one in found] == [("canary-turn", "ok"), ("canary-message", "error")]
    assert "reached the model" in found[-1].text
    told = probe_plugin(target, SystemClock())
    assert (told.refused, told.by_model) == (False, True)


REFUSED = "mailboxd: the message was refused: its body is not the one that `bytes` or `sha256` declare."


def test_a_refusal_without_tokens_proves_the_plugin(alpha: Agent, tmp_path: Path) -> None:
    target = target_at(Workspace(alpha.root), "", environment())
    program = tmp_path / "openclaw"
    answer = {"payloads": [{"text": REFUSED, "isError": True}], "meta": {"agentMeta": {}}}
    said = json.dumps({"runId": "r-1", "status": "ok", "result": answer})
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    program.chmod(0o755)
    patched = replace(target, openclaw=replace(target.openclaw, openclaw=OpenClaw((str(program),))))
    assert probe_plugin(patched, SystemClock()) == PluginAnswer(refused=True)


@pytest.mark.soak
def test_no_canary_where_it_cannot_fly(alpha: Agent) -> None:
    _, told = doctor(alpha, "--canary", OPENCLAW_SHELL="exec")
    (turn,) = [one for one in told["findings"] if one["id"] == "canary-turn"]
    assert turn["level"] == "note"
    assert alpha.company.entries() == []
