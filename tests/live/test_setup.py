"""`mailboxd setup` beside the real OpenClaw: from an agent without mailboxd to a green doctor, and back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.support import MAILBOXD, eventually
from tests.live.conftest import FoundApart
from tests.live.gateway import Gateway, run_of
from tests.setup.usermanager import UserManager, why_not

SECONDS = 1800.0
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def manager() -> Iterator[UserManager | None]:
    """A real `systemd --user`, where one can be started."""
    started = None if why_not() else UserManager()
    try:
        if started is not None:
            started.relax("ProtectKernelLogs", "ProtectKernelTunables")
        yield started
    finally:
        if started is not None:
            started.close()


def runner(gateway: Gateway, manager: UserManager | None) -> Run:
    """Runs a command of mailboxd as the operator of this gateway does."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        if manager is None:
            return subprocess.run(
                [*MAILBOXD, *words], env=gateway.env, cwd=gateway.root, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=SECONDS,
            )  # fmt: skip
        env = {**gateway.exports, "HOME": manager.env["HOME"]}
        return manager.call(*MAILBOXD, *words, cwd=gateway.root, env=env, seconds=SECONDS)

    return run


def said(gateway: Gateway) -> Any:
    return json.loads(gateway.config.read_text())


@pytest.mark.timeout(3600)
def test_from_an_openclaw_to_a_green_doctor_and_back(found_apart: FoundApart, manager: UserManager | None) -> None:
    company = found_apart(run_of(["alpha", "beta"]), daemons=[])
    gateway = company.gateway
    run = runner(gateway, manager)
    # the first change of all has OpenClaw write down its own migrations: those are not ours to take back
    change = gateway.openclaw("config", "set", "agents.defaults.maxConcurrent", "8", "--strict-json", seconds=300)
    assert change.returncode == 0, change.stderr
    before = said(gateway)

    done = run("setup", "--yes", "--json", "--agent", "alpha")
    told = json.loads(done.stdout)
    problems = [one for one in told["steps"] if one["problem"]]
    findings = [f for one in told["doctor"] for f in one["findings"] if f["level"] == "error"]
    assert (done.returncode, problems, findings) == (0, [], []), done.stderr
    green = {(one["agent"], one["healthy"]) for one in told["doctor"]}
    assert green == {("alpha", True)}
    canaries = {f["id"]: f["level"] for one in told["doctor"] for f in one["findings"] if f["group"] == "canary"}
    assert canaries["canary-turn"] == "ok", canaries
    assert canaries["canary-message"] == "ok", canaries
    if manager is not None:
        assert canaries["canary-filed"] == "ok", canaries
        company["alpha"].drop("work.md", "Say that it is done.\n")
        eventually(lambda: "completed" in company["alpha"].phases().values(), 300, company["alpha"].last_words)

    again = json.loads(run("setup", "--dry-run", "--json", "--agent", "alpha").stdout)
    due = [one for one in again["steps"] if one["standing"] == "due"]
    assert due == []

    undone = run("setup", "--undo", "--yes", "--json")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert said(gateway) == before
    assert (gateway.workspace("alpha") / ".mailboxd" / "mailboxd.db").exists()
    if manager is not None:
        assert manager.systemctl("list-units", "--plain", "--no-legend", "mailboxd@*") == ""
