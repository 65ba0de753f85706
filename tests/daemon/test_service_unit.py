"""The systemd units: systemd itself accepts them, and they keep what the daemon relies on."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mailboxd import errors
from mailboxd.formats.config.model import Config

UNITS = {
    kind: Path(__file__).resolve().parents[2] / "systemd" / kind / "mailboxd@.service" for kind in ("user", "system")
}
MOST_EXPOSED = 2.0
has_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
both = pytest.mark.parametrize("kind", UNITS)


def settings(kind: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNITS[kind].read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"([A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


@both
def test_the_daemon_says_when_it_is_ready_and_is_watched(kind: str) -> None:
    unit = settings(kind)
    assert unit["Type"] == ["notify"]
    assert int(unit["WatchdogSec"][0]) <= 60, "silence must turn red within 60 s"


@both
def test_it_is_restarted_but_not_when_that_cannot_help(kind: str) -> None:
    unit = settings(kind)
    assert unit["Restart"] == ["on-failure"]
    assert int(unit["RestartSec"][0]) > 0
    assert unit["RestartPreventExitStatus"] == [f"{errors.EXIT_CONFIG} {errors.EXIT_LOCKED}"]
    assert str(errors.EXIT_TRY_AGAIN) not in unit["RestartPreventExitStatus"][0]


@both
def test_it_may_drain_before_it_is_killed(kind: str) -> None:
    shutdown = Config(agent="main").shutdown
    assert int(settings(kind)["TimeoutStopSec"][0]) > shutdown.drain_seconds + shutdown.grace_seconds


@both
def test_turns_are_left_alone_when_the_daemon_stops(kind: str) -> None:
    assert settings(kind)["KillMode"] == ["process"]


@both
def test_it_is_hardened_as_far_as_node_survives(kind: str) -> None:
    unit = settings(kind)
    assert unit["NoNewPrivileges"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert "%f" in unit["ReadWritePaths"]
    assert "MemoryDenyWriteExecute" not in unit
    assert "PrivateTmp" not in unit, (
        "OpenClaw's locks lie in /tmp: with another one than the gateway's they lock nothing"
    )
    assert "/tmp" in unit["ReadWritePaths"]
    assert "AF_NETLINK" in unit["RestrictAddressFamilies"][0], "Node lists network interfaces"


def test_the_system_unit_has_an_account_of_its_own_and_reaches_no_other_machine() -> None:
    unit = settings("system")
    assert unit["User"] == ["openclaw"]
    assert (unit["IPAddressDeny"], unit["IPAddressAllow"]) == (["any"], ["localhost"])
    # in a unit of the system manager these mean root's, whoever the User is
    values = [value for values in unit.values() for value in values]
    assert not [value for value in values if re.search("%[hS]", value)]


OF_ALL = UNITS["user"].with_name("mailboxd.service")


def test_the_unit_of_all_has_the_limits_of_one_and_writes_wherever_workspaces_are() -> None:
    def said(text: str) -> dict[str, str]:
        return dict(re.findall(r"^([A-Za-z]+)=(.*)$", text, re.MULTILINE))

    one, of_all = said(UNITS["user"].read_text(encoding="utf-8")), said(OF_ALL.read_text(encoding="utf-8"))
    assert {name for name in one.keys() | of_all.keys() if one.get(name) != of_all.get(name)} == {
        "Description", "ExecStart", "ExecReload", "TimeoutStartSec", "RestartPreventExitStatus",
        "WorkingDirectory", "ProtectSystem", "ProtectHome", "ReadWritePaths", "PrivateMounts",
    }  # fmt: skip


@has_systemd
def test_systemd_accepts_the_unit_of_all(tmp_path: Path) -> None:
    checked = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(OF_ALL)],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "mailboxd" in line]) == (0, [])


@has_systemd
@both
def test_systemd_accepts_it(kind: str, tmp_path: Path) -> None:
    # an instance, so that %f and %h mean something; a runtime directory, because there may be no session
    unit = tmp_path / "mailboxd@tmp-workspace.service"
    shutil.copy(UNITS[kind], unit)
    checked = subprocess.run(
        ["systemd-analyze", f"--{kind}", "verify", str(unit)],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    complaints = [line for line in checked.stderr.splitlines() if "mailboxd@" in line]
    assert (checked.returncode, complaints) == (0, [])


@has_systemd
def test_the_system_unit_is_exposed_to_at_most_two_of_ten(tmp_path: Path) -> None:
    unit = tmp_path / "mailboxd@tmp-workspace.service"
    shutil.copy(UNITS["system"], unit)
    analysed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", "--json=short", unit],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    exposed = {row["name"]: float(row["exposure"]) for row in json.loads(analysed.stdout) if row["exposure"]}
    assert analysed.returncode == 0, exposed
    assert exposed.keys() <= {
        "RootDirectory=/RootImage=",
        "MemoryDenyWriteExecute=",
        "ProcSubset=",
        "PrivateNetwork=",
        "IPAddressDeny=",
        "PrivateTmp=",
        "ProtectHome=",
        "DeviceAllow=",
        "RestrictAddressFamilies=~AF_(INET|INET6)",
        "RestrictAddressFamilies=~AF_NETLINK",
        "RestrictAddressFamilies=~AF_UNIX",
    }
