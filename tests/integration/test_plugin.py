"""The plugin from outside: what OpenClaw says of it, what is still to be done, and how its error is read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.core.outcomes import Failed, Succeeded
from mailboxd.errors import UnavailableError
from mailboxd.formats.protocol.markdown import Section
from mailboxd.formats.protocol.messages import AckMessage, TaskMessage, render_message
from mailboxd.host.clock import SystemClock
from mailboxd.operate.integration import (
    OpenClawCommand,
    PluginState,
    parse_plugin_state,
    plugin_install_steps,
    plugin_source,
    plugin_state,
    plugin_uninstall_steps,
    reload_plugin,
    run_steps,
)
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.outcome import classify
from tests.agents.recorded import printed, recorded

OPENCLAW = OpenClaw(("openclaw",))
READY = PluginState(True, True, True, "1.0.0", str(plugin_source()), "")
ABSENT = PluginState(False, False, False, "", "", "it is not installed")


def inspected(**changes: Any) -> dict[str, Any]:
    """OpenClaw 2026.9.6's report about the plugin, with the used fields only."""
    facts = {"id": "mailboxd", "version": "1.0.0", "rootDir": str(plugin_source()), "enabled": True, "status": "loaded"}
    said: dict[str, Any] = {"plugin": facts, "typedHooks": [{"name": "before_agent_reply"}]}
    said["policy"] = {"allowConversationAccess": True, "allowedModels": []}
    said["plugin"].update(changes.pop("plugin", {}))
    return {**said, **changes}


def error(message: str) -> Exit:
    return printed({"ok": False, "error": {"type": "cli_error", "message": message}}, rc=1)


# The state


def test_a_plugin_that_takes_messages_has_no_problem() -> None:
    assert parse_plugin_state(printed(inspected())) == READY


@pytest.mark.parametrize(
    ("answer", "says", "installed"),
    [
        (error("Plugin not found: mailboxd. Run `openclaw plugins list`"), "not installed", False),
        (error("Config invalid"), "Config invalid", False),
        (Exit(1, b"", b"Node 20 is too old"), "Node 20 is too old", False),
        (Exit(0, b"no json"), "no json", False),
        (printed([]), "exit status 0", False),
        (printed(inspected(plugin={"enabled": False, "activationReason": "disabled in config"})), "disabled in", True),
        (printed(inspected(policy={}, typedHooks=[])), "allowConversationAccess", True),
        (printed(inspected(typedHooks=[], plugin={"error": "SyntaxError"})), "did not load it: SyntaxError", True),
        (printed(inspected(typedHooks=None)), "no hook is registered", True),
        (printed(inspected(plugin={"rootDir": "/nowhere"})), "not this mailboxd's version", True),
        (printed(inspected(plugin={"rootDir": ""})), "not this mailboxd's version", True),
    ],
)
def test_the_plugins_problem_is_reported(answer: Exit, says: str, installed: bool) -> None:
    state = parse_plugin_state(answer)
    assert says in state.problem
    assert state.installed is installed


def test_a_missing_openclaw_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    assert "cannot run" in plugin_state(OpenClaw((str(tmp_path / "none"),)), {}).problem


# The steps


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (ABSENT, ["install", "set"]),
        (READY, []),
        (replace(READY, enabled=False, problem="disabled"), ["enable"]),
        (replace(READY, may_read=False, problem="may not"), ["set"]),
        (replace(READY, path="/nowhere", problem="another"), ["install"]),
        (replace(READY, problem="did not load"), ["install"]),
        (replace(READY, enabled=False, may_read=False, path="/x", problem="all"), ["install", "set", "enable"]),
    ],
)
def test_only_missing_steps_are_performed(state: PluginState, commands: list[str]) -> None:
    assert [step.argv[2] for step in plugin_install_steps(OPENCLAW, state)] == commands


def test_a_missing_plugin_is_not_removed() -> None:
    assert plugin_uninstall_steps(OPENCLAW, ABSENT) == []
    assert [step.argv for step in plugin_uninstall_steps(OPENCLAW, READY)] == [
        OPENCLAW.argv("plugins", "uninstall", "mailboxd", "--force")
    ]


@pytest.mark.parametrize(
    "script", ["echo refused >&2; exit 1", """echo '{"ok":false,"error":{"message":"refused"}}'; exit 1"""]
)
def test_a_command_that_fails_ends_it_and_says_why(script: str, tmp_path: Path) -> None:
    later = tmp_path / "later"
    steps = [OpenClawCommand("fail", ("sh", "-c", script)), OpenClawCommand("go on", ("touch", str(later)))]
    with pytest.raises(UnavailableError, match=r"^`sh -c .*` failed: .*refused"):
        run_steps(steps, {"PATH": "/usr/bin:/bin"})
    assert not later.exists()


# The verbs


@pytest.mark.parametrize("verb", ["install", "uninstall"])
@pytest.mark.parametrize("kind", ["plugin", "skill"])
def test_a_shell_inside_an_agents_turn_may_not_change_anything(kind: str, verb: str) -> None:
    result = CliRunner().invoke(program, ["connect", kind, verb], obj=Session(), env={"OPENCLAW_SHELL": "exec"})
    assert result.exit_code == 1
    assert "may not act as the operator" in result.stderr


# What the plugin answers


@pytest.mark.parametrize(
    ("text", "started"),
    [("mailboxd: the message was not delivered: ENOSPC in the mailbox of beta.", False), ("Something broke.", True)],
)
def test_an_error_that_is_answered_is_no_success_and_no_silence(text: str, started: bool) -> None:
    answer = json.loads(recorded("ok").stdout)
    answer["result"]["payloads"] = [{"text": text, "isError": True}]
    outcome = classify(printed(answer))
    assert isinstance(outcome, Failed)
    assert outcome.error == text
    assert outcome.started is started
    assert not outcome.silent


@pytest.mark.parametrize("by_model", [False, True])
def test_an_error_of_the_plugin_that_openclaw_does_not_mark(by_model: bool) -> None:
    """As 2026.8.1 and 2026.9.2 hand it over. A model that writes the same is no plugin: it has used tokens."""
    answer = json.loads(recorded("ok").stdout)
    answer["result"]["payloads"] = [{"text": "mailboxd: the message was not delivered: ENOSPC.", "mediaUrl": None}]
    if not by_model:
        del answer["result"]["meta"]["agentMeta"]["usage"]
    outcome = classify(printed(answer))
    assert isinstance(outcome, Succeeded if by_model else Failed)
    assert not isinstance(outcome, Failed) or not outcome.started


TRIMMED = "\t\n\v\f\r \u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""What JavaScript's trim removes, and so the gateway."""


@pytest.mark.parametrize("end", TRIMMED)
def test_every_rendered_message_ends_in_exactly_one_newline(end: str) -> None:
    for section in (Section("Instructions", f"x{end}"), Section(f"Notes{end}")):
        raw = render_message(TaskMessage(task_id="a", from_="b", title=f"t{end}", sections=(section,))).decode()
        assert raw.endswith("\n")
        assert raw.rstrip(TRIMMED) + "\n" == raw
    assert render_message(AckMessage(task_id="a", from_="b")).decode().endswith("---\n")


def test_a_hard_linked_plugin_is_copied_for_openclaw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv, and pipx with it, link what they install to their cache; OpenClaw 2026.9.6 takes no file with two names."""
    packages, took = tmp_path / "packages", tmp_path / "took"
    plugin = shutil.copytree(plugin_source(), packages / "openclaw-plugin")
    files = [file for file in plugin.rglob("*") if file.is_file()]
    for number, file in enumerate(files):
        (tmp_path / f"cached-{number}").hardlink_to(file)
    monkeypatch.setattr("mailboxd.operate.integration.packaged", lambda: packages)
    openclaw = tmp_path / "openclaw"
    openclaw.write_text(
        '#!/bin/sh\n[ "$2" = install ] || exit 0\n'
        '[ -z "$(find "$3" -type f -links +1)" ] || { echo "failed plugin directory boundary checks" >&2; exit 1; }\n'
        f'cp -r "$3" "{took}"\n'
    )
    openclaw.chmod(0o755)
    run_steps(plugin_install_steps(OpenClaw((str(openclaw),)), ABSENT), {"PATH": os.environ["PATH"]})
    for file in files:
        assert (took / file.relative_to(plugin)).read_bytes() == file.read_bytes()


def test_every_file_that_the_plugin_names_is_under_version_control() -> None:
    """Any other is missing in a wheel, and OpenClaw then leaves out the whole plugin without a word."""
    source = plugin_source()
    known = subprocess.run(["git", "ls-files"], cwd=source, capture_output=True, text=True, check=True).stdout.split()
    manifest = json.loads((source / "openclaw.plugin.json").read_text())
    imported = {name for file in source.glob("*.js") for name in re.findall(r'from "\./([^"]+)"', file.read_text())}
    assert {manifest["controlUi"]["entry"], "index.js", *imported} <= set(known)


# A running gateway


NEW, OLD = "OpenClaw 2026.9.6", "OpenClaw 2026.9.2"


@pytest.mark.parametrize(
    ("version", "reload", "restart", "health", "says"),
    [
        (NEW, "exit 0", "exit 9", "exit 9", "no restart is needed"),
        (NEW, "echo no gateway runs >&2; exit 1", "exit 9", "exit 9", "at the next start: no gateway runs"),
        (OLD, "exit 9", "echo ECONNREFUSED >&2; exit 1", "exit 9", "at the next start: ECONNREFUSED"),
        (OLD, "exit 9", """echo '{"result":"deferred"}'""", "exit 9", "once its current work is done"),
        (
            OLD,
            "exit 9",
            """echo '{"result":"scheduled"}'""",
            "mkdir up && exit 1; exit 0",
            "has restarted",
        ),
    ],
)
def test_a_gateway_that_cannot_reload_is_asked_to_restart(
    version: str, reload: str, restart: str, health: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "openclaw"
    answers = f"--version*) echo '{version}';; *reload*) {reload};; *restart*) {restart};; *) {health};;"
    program.write_text(f'#!/bin/sh\ncase "$*" in {answers} esac\n')
    program.chmod(0o755)
    assert says in reload_plugin(OpenClaw((str(program),)), {"PATH": os.environ["PATH"]}, SystemClock())
    assert (tmp_path / "up").exists() is ("mkdir" in health)
