"""The daemon as a service of macOS: a real daemon, under a stand-in for launchctl."""

from __future__ import annotations

import json
import os
import plistlib
import sys
from pathlib import Path

import pytest

from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.operate.setup import service as services
from mailboxd.operate.setup.launch_agent import LaunchAgent
from mailboxd.operate.setup.service_managers import service_of
from mailboxd.operate.setup.service_unit import Unit
from tests.e2e.conftest import Found
from tests.e2e.support import BIN, environment, eventually, task


@pytest.fixture
def mac(tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose service manager is launchd."""
    folder, home = tmp_path / "bin", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    launchctl = folder / "launchctl"
    text = Path(__file__).with_name("launchctl.py").read_text()
    launchctl.write_text(text.replace("/usr/bin/env python3", sys.executable, 1))
    launchctl.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{environment()['PATH']}", "HOME": str(home)}


def test_the_manager_that_the_machine_has_is_chosen(tmp_path: Path, mac: dict[str, str]) -> None:
    assert isinstance(service_of(Workspace(tmp_path), mac), LaunchAgent)
    assert isinstance(service_of(Workspace(tmp_path), {"PATH": "/usr/bin:/bin"}), Unit)


def test_the_property_list_names_this_installation_and_no_secret(tmp_path: Path) -> None:
    environ = {"HOME": "/Users/ann", "PATH": "/opt/bin:relative:/usr/bin", "OPENCLAW_STATE_DIR": "/srv/claw"}
    agent = LaunchAgent(Workspace(tmp_path / "my work"), {**environ, "OPENCLAW_GATEWAY_TOKEN": "t0p-secret"})
    ((path, raw),) = agent.content().items()
    assert path == Path(f"/Users/ann/Library/LaunchAgents/{agent.name}.plist")
    assert agent.name.startswith("mailboxd.my-work.")
    assert b"secret" not in raw
    said = plistlib.loads(raw)
    assert said["Label"] == agent.name
    assert said["ProgramArguments"] == list(services.command())
    assert said["WorkingDirectory"] == str(tmp_path / "my work")
    assert said["EnvironmentVariables"] == {"PATH": f"{BIN}:/opt/bin:/usr/bin", "OPENCLAW_STATE_DIR": "/srv/claw"}
    assert said["Umask"] == 0o077
    assert said["AbandonProcessGroup"], "turns outlive the daemon"


KEYS = {
    "Label": str, "ProgramArguments": list, "WorkingDirectory": str, "EnvironmentVariables": dict, "RunAtLoad": bool,
    "KeepAlive": dict, "ThrottleInterval": int, "ExitTimeOut": int, "AbandonProcessGroup": bool, "Umask": int,
    "SoftResourceLimits": dict, "StandardOutPath": str, "StandardErrorPath": str,
}  # fmt: skip
"""Keys of launchd.plist(5) with their types; launchd ignores others without a word."""


def test_the_property_list_has_keys_and_types_that_launchd_knows(tmp_path: Path) -> None:
    ((path, raw),) = LaunchAgent(Workspace(tmp_path / "my work"), {"HOME": "/Users/ann"}).content().items()
    said = plistlib.loads(raw, fmt=plistlib.FMT_XML)
    assert {key: type(value) for key, value in said.items()} == KEYS
    assert path.name == f"{said['Label']}.plist"
    assert said["KeepAlive"] == {"SuccessfulExit": False}
    assert {key: type(value) for key, value in said["SoftResourceLimits"].items()} == {"NumberOfFiles": int}
    assert {type(value) for value in said["EnvironmentVariables"].values()} <= {str}
    assert all(type(word) is str for word in said["ProgramArguments"])
    assert said["ExitTimeOut"] > 65, "longer than the daemon waits for its turns"


def test_two_workspaces_of_one_name_have_agents_of_their_own(tmp_path: Path) -> None:
    one, other = (LaunchAgent(Workspace(tmp_path / place / "ws"), {}) for place in "ab")
    assert one.name != other.name


@pytest.mark.slow
def test_an_agent_from_its_installation_to_its_end(found: Found, mac: dict[str, str]) -> None:
    alpha = found({"alpha": {"default": {"reply": "Result of {title}."}}})["alpha"]

    def service(*words: str, status: int = 0) -> str:
        done = alpha.call("connect", "service", *words, env=mac)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def pid() -> int | None:
        state = alpha.call("connect", "service", "status", "--json", env=mac)
        number: int | None = json.loads(state.stdout)["pid"]
        return number

    assert "not installed" in service("status", status=1)
    assert "wrote" in service("install")
    first = pid()
    assert first is not None
    assert "nothing to do" in service("install")
    assert pid() == first, "it was started again without need"
    alpha.drop("one.md", task("one"))
    alpha.until("one", seconds=60)
    assert "ready" in service("logs")

    (plist,) = Path(mac["HOME"]).rglob("*.plist")
    plist.write_bytes(plist.read_bytes().replace(b"<integer>10</integer>", b"<integer>11</integer>"))
    assert "another mailboxd" in service("status", status=1)
    service("install")
    assert pid() not in (None, first), "it runs as its file says now"

    service("stop")
    assert pid() is None
    service("start")
    assert pid() is not None
    assert "removed" in service("uninstall")
    assert pid() is None
    assert [path for path in Path(mac["HOME"]).rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_an_agent_that_does_not_start_says_how_it_ended(found: Found, mac: dict[str, str]) -> None:
    alpha = found({"alpha": {}})["alpha"]
    alpha.config.write_text("agent: alpha\nnonsense: 1\n")
    done = alpha.call("connect", "service", "install", env=mac)
    assert done.returncode == 69, done
    assert "exit status 78" in done.stderr
    assert "service logs" in done.stderr


@pytest.mark.slow
def test_a_daemon_that_was_started_by_hand_is_not_fought_with(found: Found, mac: dict[str, str]) -> None:
    alpha = found({"alpha": {}})["alpha"]
    alpha.start()
    eventually(lambda: alpha.call("status").returncode == 0)
    done = alpha.call("connect", "service", "install", env=mac)
    assert done.returncode == 1, done
    assert "already-running" in done.stderr
    assert alpha.stop() == 0
