"""`mailboxd connect mcp`: tokens, and the way of a patch to OpenClaw and back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mailboxd.mcp import tokens
from mailboxd.mcp.tokens import parse
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


def test_the_configured_reviewers_are_registered_for_the_gates_that_are_on(tmp_path: Path) -> None:
    installed = Installed(
        tmp_path, "gates:\n  spec_gate: true\n  quality_gate: true\n  same_reviewer: true\n  reviewers: [beta]\n"
    )
    assert installed.run("install").exit_code == 0
    assert sorted(installed.configuration["mcp"]["servers"]) == [
        "mailboxd-alpha", "mailboxd-beta-at-alpha-quality", "mailboxd-beta-at-alpha-spec",
    ]  # fmt: skip


def test_a_dry_run_lists_missing_registrations(installed: Installed) -> None:
    installed.run("install")
    assert "nothing to do" in installed.run("install", "--dry-run").output
    installed.configure(configurator.apply(installed.configuration, {"agents": {"entries": {"late": {}}}}))
    changes = json.loads(installed.run("install", "--dry-run", "--json").output)["changes"]
    assert changes == ["agent late: denied mailboxd-alpha__*"]


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
