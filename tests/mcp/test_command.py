"""`mailboxd connect mcp`: tokens, and the way of a patch to OpenClaw and back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mailboxd.surfaces.mcp import tokens
from mailboxd.surfaces.mcp.tokens import parse
from tests.cli.stage import Stage, make
from tests.mcp import configurator

BEFORE = {"agents": {"entries": {"alpha": {}, "beta": {"tools": {"deny": ["browser"]}}}}}


class Installed:
    """A workspace whose OpenClaw is the configurator."""

    def __init__(self, root: Path, more: str = "") -> None:
        self.file = root / "openclaw.json"
        self.configure(BEFORE)
        command = json.dumps([sys.executable, configurator.__file__])
        settings = f"mcp:\n  port: 8765\nopenclaw:\n  command: {command}\n"
        self.stage: Stage = make(root / "alpha", settings + more)

    def configure(self, configuration: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(configuration))

    def run(self, *words: str, **more: str) -> Result:
        return self.stage.run("connect", "mcp", *words, env={"OPENCLAW_CONFIG_PATH": str(self.file), **more})

    @property
    def configuration(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.with_suffix(".calls").read_text().splitlines()]

    @property
    def token(self) -> str:
        server = self.configuration["mcp"]["servers"]["mailboxd-alpha"]
        return str(server["headers"]["Authorization"]).removeprefix("Bearer ")


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


@pytest.mark.slow
def test_an_installation_can_be_undone(installed: Installed) -> None:
    assert installed.run("install").exit_code == 0
    held = tokens.load(installed.stage.ws)
    assert tokens.caller_of(held, installed.token) == parse("executor:alpha")
    assert installed.configuration["agents"]["entries"]["beta"]["tools"]["deny"] == ["browser", "mailboxd-alpha__*"]
    assert "nothing to do" in installed.run("install").output
    assert installed.run("uninstall").exit_code == 0
    assert installed.configuration == BEFORE
    assert tokens.load(installed.stage.ws) == ()


def test_a_token_passes_through_a_private_file_that_is_gone_and_no_argument(installed: Installed) -> None:
    result = installed.run("install", "--json")
    patch = installed.calls[-1]
    assert patch["mode"] == 0o600
    assert not Path(patch["file"]).exists()
    assert installed.token not in json.dumps(installed.calls) + result.output
    assert installed.token not in (installed.stage.ws.state / tokens.NAME).read_text()
    assert list(installed.stage.ws.state.glob(".mcp-*")) == []


@pytest.mark.slow
def test_a_dry_run_changes_nothing(installed: Installed) -> None:
    result = installed.run("install", "--dry-run")
    assert "would change: entry mailboxd-alpha for executor:alpha" in result.output
    assert (installed.configuration, tokens.load(installed.stage.ws)) == (BEFORE, ())
    installed.run("install")
    after = installed.configuration
    assert "would change" in installed.run("uninstall", "--dry-run").output
    assert installed.configuration == after


def test_a_patch_that_is_refused_leaves_no_token(installed: Installed) -> None:
    installed.configure({**BEFORE, "refuses": True})
    result = installed.run("install")
    assert result.exit_code == 69
    assert "nothing was written" in result.output
    assert tokens.load(installed.stage.ws) == ()


GATES = "gates:\n  spec_gate: true\n  quality_gate: true\n  same_reviewer: true\n  reviewers: [beta]\n"


def servers(installed: Installed) -> list[str]:
    return sorted(installed.configuration.get("mcp", {}).get("servers", {}))


@pytest.mark.slow
def test_a_workspace_has_one_entry_and_a_reviewer_gets_one_on_request_only(tmp_path: Path) -> None:
    installed = Installed(tmp_path, GATES)
    assert installed.run("install").exit_code == 0
    assert servers(installed) == ["mailboxd-alpha"]
    assert installed.run("install", "--as", "quality_reviewer:beta").exit_code == 0
    asked = ["mailboxd-alpha", "mailboxd-beta-at-alpha-quality"]
    assert servers(installed) == asked
    assert "nothing to do" in installed.run("install").output
    assert servers(installed) == asked


def as_before(installed: Installed, *reviewers: str) -> None:
    """What 74b755e made: an entry for each reviewer and gate, unasked."""
    callers = [f"{role}:{name}" for name in reviewers for role in ("spec_reviewer", "quality_reviewer")]
    words = [word for who in callers for word in ("--as", who)]
    assert installed.run("install", "--as", "executor:alpha", *words).exit_code == 0
    file = installed.stage.ws.state / tokens.NAME
    rows = [{key: row[key] for key in row if key != "requested"} for row in json.loads(file.read_text())["grants"]]
    file.write_text(json.dumps({"grants": rows}))


def company(count: int) -> dict[str, Any]:
    agents = {f"agent{number}": {"workspace": f"/home/kim/agent{number}"} for number in range(count)}
    return {"agents": {"entries": {"alpha": {}, **agents}}, "gateway": {"mode": "local"}}


@pytest.mark.parametrize("count", [4, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 12))])
def test_many_entries_of_an_earlier_version_are_removed_in_steps_that_openclaw_takes(
    tmp_path: Path, count: int
) -> None:
    installed = Installed(tmp_path)
    installed.configure(company(count))
    as_before(installed, *(f"agent{number}" for number in range(count)))
    assert len(servers(installed)) == 2 * count + 1
    result = installed.run("uninstall")
    assert result.exit_code == 0, result.output
    assert installed.configuration == company(count)
    assert tokens.load(installed.stage.ws) == ()
    assert list(tmp_path.glob("*.rejected*")) == []


@pytest.mark.slow
def test_an_upgrade_keeps_the_workspaces_own_token_and_removes_the_reviewers(tmp_path: Path) -> None:
    installed = Installed(tmp_path, GATES)
    installed.configure(company(4))
    as_before(installed, *(f"agent{number}" for number in range(4)))
    token = installed.token
    result = installed.run("install")
    assert (result.exit_code, servers(installed), installed.token) == (0, ["mailboxd-alpha"], token), result.output
    assert "nothing to do" in installed.run("install").output
    assert installed.run("uninstall").exit_code == 0
    assert installed.configuration == company(4)


@pytest.mark.slow
def test_an_undo_that_openclaw_refuses_leaves_no_copy_with_tokens_and_says_what_was_refused(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    installed.run("install")
    installed.configure({**installed.configuration, "refuses": True})
    result = installed.run("uninstall")
    assert (result.exit_code, "nothing was written" in result.output) == (69, True)
    assert [grant.entry for grant in tokens.load(installed.stage.ws)] == ["mailboxd-alpha"]


@pytest.mark.slow
def test_copies_that_refused_tries_of_earlier_versions_left_are_removed_and_those_of_others_kept(
    tmp_path: Path,
) -> None:
    installed = Installed(tmp_path)
    before = installed.configuration
    installed.run("install")
    ours = tmp_path / "openclaw.json.rejected.2026-11-26T20-00-00-000Z"
    theirs = tmp_path / "openclaw.json.rejected.2026-11-26T20-00-01-000Z"
    ours.write_text(json.dumps({**before, "meta": {"lastTouchedAt": "2026-11-26T20:00:00.000Z"}}))
    theirs.write_text(json.dumps({"agents": {"entries": {"alpha": {}}}}))
    assert f"{ours.name} removed" in installed.run("uninstall").output
    assert (ours.exists(), theirs.exists(), installed.configuration) == (False, True, before)


@pytest.mark.slow
def test_a_dry_run_lists_missing_registrations(installed: Installed) -> None:
    installed.run("install")
    assert "nothing to do" in installed.run("install", "--dry-run").output
    installed.configure(configurator.apply(installed.configuration, {"agents": {"entries": {"late": {}}}}))
    changes = json.loads(installed.run("install", "--dry-run", "--json").output)["changes"]
    assert changes == ["agent late: denied mailboxd-alpha__*"]


@pytest.mark.slow
def test_a_token_for_another_client_is_printed_once_and_revoked(installed: Installed) -> None:
    first = installed.run("token", "executor:desk").output.strip()
    second = installed.run("token", "executor:desk").output.strip()
    held = tokens.load(installed.stage.ws)
    assert [tokens.caller_of(held, token) for token in (first, second)] == [None, parse("executor:desk")]
    installed.run("install")
    assert "no token" in installed.run("token", "executor:desk", "--revoke").output
    assert [grant.entry for grant in tokens.load(installed.stage.ws)] == ["mailboxd-alpha"]
    installed.run("token", "executor:desk")
    installed.run("uninstall")
    assert [str(grant.caller) for grant in tokens.load(installed.stage.ws)] == ["executor:desk"]


@pytest.mark.parametrize("who", ["operator:kim", "orchestrator:mailboxd", "lobster:gate"])
def test_no_token_is_given_for_a_role_that_is_no_agents(installed: Installed, who: str) -> None:
    result = installed.run("token", who)
    assert result.exit_code == 78
    assert "serve --as" in result.output
    assert installed.run("install", "--as", who).exit_code == 78


@pytest.mark.parametrize("words", [["install"], ["uninstall"], ["token", "executor:alpha"]])
def test_an_agent_in_its_shell_grants_itself_nothing(installed: Installed, words: list[str]) -> None:
    result = installed.run(*words, OPENCLAW_SHELL="exec")
    assert result.exit_code == 1
    assert "permission-denied" in result.output
    assert tokens.load(installed.stage.ws) == ()


@pytest.mark.parametrize(
    ("words", "status"),
    [(["serve"], 2), (["serve", "--http", "--as", "executor:alpha"], 2), (["serve", "--as", "king:x"], 78)],
)
def test_serve_requires_a_caller(installed: Installed, words: list[str], status: int) -> None:
    assert installed.run(*words).exit_code == status


def test_without_a_port_nothing_is_registered(tmp_path: Path) -> None:
    stage = make(tmp_path / "alpha")
    for words in (["install"], ["serve", "--http"]):
        result = stage.run("connect", "mcp", *words)
        assert result.exit_code == 78
        assert "mcp.port" in result.output


def test_an_openclaw_that_is_missing_is_said(tmp_path: Path) -> None:
    stage = make(tmp_path / "alpha", "mcp:\n  port: 8765\nopenclaw:\n  command: [/nowhere/openclaw]\n")
    assert stage.run("connect", "mcp", "install").exit_code == 69
