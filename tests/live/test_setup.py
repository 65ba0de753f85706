"""`mailboxd setup` beside the real OpenClaw: from an agent without mailboxd to a green doctor, and back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.support import MAILBOXD, eventually, task
from tests.live.conftest import FoundApart, some_of
from tests.live.gateway import Gateway, run_of
from tests.live.install import OLDER, OPENCLAW
from tests.live.model import Text
from tests.setup.usermanager import UserManager, why_not

SECONDS = 1800.0
BOTH = (OPENCLAW, OLDER[-1])
"""The newest and the oldest version that is supported."""
APPROVAL = "---\ntype: review\nverdict: approved\n---\n## Summary\n\nClear.\n"
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

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        if manager is None:
            return subprocess.run(
                [*MAILBOXD, *words], env=gateway.env | more, cwd=gateway.root, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=SECONDS,
            )  # fmt: skip
        env = {**gateway.exports, "HOME": manager.env["HOME"], **more}
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


def without_meta(gateway: Gateway) -> Any:
    """Its configuration without OpenClaw's own stamp."""
    return {name: value for name, value in said(gateway).items() if name != "meta"}


def devices(gateway: Gateway) -> list[tuple[str, tuple[str, ...]]]:
    """The agent and the scopes of each device of mailboxd that the gateway knows."""
    listed = json.loads(gateway.openclaw("devices", "list", "--json").stdout)
    ours = [one for one in listed["paired"] if one["displayName"].startswith("mailboxd ")]
    return [(one["displayName"].split()[1], tuple(sorted(one["scopes"]))) for one in ours]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", some_of((1, 4, 12), 1))
@pytest.mark.parametrize("release", some_of(BOTH, OPENCLAW))
def test_a_strict_setup_is_taken_back_completely(found_apart: FoundApart, release: str, count: int) -> None:
    agents = [f"agent{number}" for number in range(count)]
    gateway = found_apart(run_of(agents), daemons=[], release=release).gateway
    run, token = runner(gateway, None), {"OPENCLAW_GATEWAY_TOKEN": gateway.token}
    change = gateway.openclaw("config", "set", "agents.defaults.maxConcurrent", "8", "--strict-json", seconds=300)
    assert change.returncode == 0, change.stderr
    before = without_meta(gateway)

    done = run("setup", "--strict", "--yes", "--json", "--no-canary", **token)
    assert done.returncode == 0, done.stdout + done.stderr
    paired = devices(gateway)
    assert sorted(name for name, _ in paired) == sorted(agents)
    assert {scopes for _, scopes in paired} == {("operator.questions", "operator.write")}
    servers = said(gateway)["mcp"]["servers"]
    denied = [
        one for entry in said(gateway)["agents"]["entries"].values() for one in entry.get("tools", {}).get("deny", [])
    ]
    assert (len(servers), len(denied)) == (count, count * (count - 1))
    undone = run("setup", "--undo", "--yes", "--json")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert without_meta(gateway) == before
    assert devices(gateway) == []
    assert list(gateway.config.parent.glob("*.rejected*")) == []


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("release", some_of(BOTH, OPENCLAW))
def test_where_nobody_may_be_asked_the_printed_change_lets_a_strict_workspace_be_reviewed(
    found_apart: FoundApart, release: str
) -> None:
    alone: dict[str, Any] = {"subagents": {"allowAgents": []}}
    gateway = found_apart({"alpha": alone, "beta": alone}, daemons=[], release=release).gateway
    run, words = runner(gateway, None), ("setup", "--strict", "--yes", "--json", "--no-canary", "--agent", "alpha")
    first = json.loads(run(*words).stdout)
    said_first = next(one["says"] for one in first["steps"] if one["kind"] == "workspace")
    assert "OpenClaw lets alpha ask nobody" in said_first
    assert {one["healthy"] for one in first["doctor"]} == {True}, first["doctor"]
    for one in said_first.split("`")[1::2]:
        if one.startswith("openclaw "):
            changed = subprocess.run(
                one, shell=True, env=gateway.env, cwd=gateway.root, capture_output=True, text=True, timeout=300
            )
            assert changed.returncode == 0, changed.stderr
    again = json.loads(run(*words).stdout)
    assert "reviewers beta" in next(one["done"] for one in again["steps"] if one["kind"] == "workspace")
    assert {one["healthy"] for one in again["doctor"]} == {True}, again["doctor"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("release", some_of(BOTH, OPENCLAW))
def test_a_task_that_nobody_may_review_goes_on_by_itself_with_what_doctor_prints(
    found_apart: FoundApart, release: str
) -> None:
    gates = {"spec_review": "true", "reviewers": ["beta"]}
    company = found_apart(
        {"alpha": {"subagents": {"allowAgents": []}}, "beta": {}}, release=release, gates=gates,
        openclaw={"discovery": "true"},
    )  # fmt: skip
    alpha, gateway = company["alpha"], company.gateway
    company.model.on(Text(APPROVAL), agent="beta", kind="review")
    alpha.drop("job.md", task("job"))
    alpha.start()
    eventually(lambda: "cannot be asked" in alpha.task("job").get("reason", ""), 120, alpha.last_words)
    findings = json.loads(alpha.call("doctor", "--json", seconds=300).stdout)["findings"]
    [red] = [one for one in findings if one["id"] == "reviewers"]
    assert red["level"] == "error"
    for one in (fix for fix in red["fixes"] if " config set " in fix):
        changed = subprocess.run(
            one, shell=True, env=gateway.env, cwd=gateway.root, capture_output=True, text=True, timeout=300
        )
        assert changed.returncode == 0, changed.stderr
    alpha.until("job", seconds=300)
