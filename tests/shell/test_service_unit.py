"""The systemd unit: systemd itself accepts it, and it keeps what the daemon relies on."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mailboxd import errors
from mailboxd.config.model import Config

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "mailboxd@.service"


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"([A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def test_the_daemon_says_when_it_is_ready_and_is_watched() -> None:
    unit = settings()
    assert unit["Type"] == ["notify"]
    assert int(unit["WatchdogSec"][0]) <= 60, "silence must turn red within 60 s"


def test_it_is_restarted_but_not_when_that_cannot_help() -> None:
    unit = settings()
    assert unit["Restart"] == ["on-failure"]
    assert int(unit["RestartSec"][0]) > 0
    assert unit["RestartPreventExitStatus"] == [f"{errors.EXIT_CONFIG} {errors.EXIT_LOCKED}"]


def test_it_may_drain_before_it_is_killed() -> None:
    shutdown = Config(agent="main").shutdown
    assert int(settings()["TimeoutStopSec"][0]) > shutdown.drain_seconds + shutdown.grace_seconds


def test_turns_are_left_alone_when_the_daemon_stops() -> None:
    assert settings()["KillMode"] == ["process"]


def test_it_is_hardened_as_far_as_node_survives() -> None:
    unit = settings()
    assert unit["NoNewPrivileges"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert "%f" in unit["ReadWritePaths"]
    assert "MemoryDenyWriteExecute" not in unit
    assert "AF_NETLINK" in unit["RestrictAddressFamilies"][0], "Node lists network interfaces"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_it(tmp_path: Path) -> None:
    # an instance, so that %f and %h mean something; a runtime directory, because there may be no session
    unit = tmp_path / "mailboxd@tmp-workspace.service"
    shutil.copy(UNIT, unit)
    checked = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in checked.stderr.splitlines() if "mailboxd@" in line]
    assert (checked.returncode, complaints) == (0, [])
