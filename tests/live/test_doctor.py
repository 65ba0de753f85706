"""`mailboxd doctor` at the real OpenClaw: what is well, what is broken, and that its mends mend it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mailboxd.operate import integration
from mailboxd.perform.agents.openclaw import OpenClaw
from tests.e2e.support import BIN, Agent
from tests.live.conftest import Found, FoundApart
from tests.live.gateway import Gateway, run_of
from tests.live.install import OLDER, OPENCLAW
from tests.test_printed_commands import printed

LOOKS = re.compile(
    r"openclaw (--version|config (get|validate)|devices list|gateway (probe|status)|logs|plugins|agents l)"
)
PATIENCE = 300.0
"""A dozen calls of OpenClaw, on a machine that may have other things to do."""


class Examined:
    """What one run of doctor said."""

    def __init__(self, agent: Agent, *words: str, **env: str) -> None:
        done = agent.call("doctor", "--json", *words, seconds=PATIENCE, env=env)
        assert done.stderr == "", done.stderr
        self.status = done.returncode
        self.found: dict[str, dict[str, Any]] = {one["id"]: one for one in json.loads(done.stdout)["findings"]}
        unknown = [one for slug, one in self.found.items() if slug.endswith("-unknown")]
        assert not unknown, unknown

    def level(self, slug: str) -> str:
        return str(self.found[slug]["level"]) if slug in self.found else ""

    def text(self, slug: str) -> str:
        return str(self.found[slug]["text"])

    @property
    def failed(self) -> set[str]:
        return {slug for slug, one in self.found.items() if one["level"] == "error"}

    def mend(self, gateway: Gateway, *slugs: str) -> None:
        """Do what it says, as a person would: by pasting the last way that it offers into a shell."""
        for slug in slugs:
            line = self.found[slug]["fixes"][-1]
            env = {**gateway.env, "PATH": f"{BIN}{os.pathsep}{gateway.env['PATH']}"}
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=gateway.workspace("alpha"),
                env=env,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def with_another_token(gateway: Gateway) -> str:
    """A configuration for the program that is not the gateway's own."""
    path = gateway.root / "state" / "another.json"
    path.write_text(gateway.config.read_text().replace(gateway.token, "not-the-one"))
    return str(path)


def test_all_is_well_and_a_canary_costs_one_call_of_the_model(found: Found) -> None:
    company = found()
    alpha = company["alpha"]
    alpha.start()
    told = Examined(alpha, "--canary")
    assert (told.status, told.failed) == (0, set())
    for slug in ("openclaw-version", "gateway", "agent", "agent-workspace", "peers", "tools"):
        assert told.level(slug) == "ok", told.found.get(slug)
    assert OPENCLAW in told.text("openclaw-version")
    assert "beta" in told.text("peers")
    assert told.level("file-boundary") == "warning"
    assert "and its answer was right" in told.text("canary-turn")
    assert len(company.model.calls) == 1
    assert alpha.phases() == {}
    refused = Examined(alpha, OPENCLAW_CONFIG_PATH=with_another_token(company.gateway))
    assert (refused.status, refused.failed) == (1, {"gateway"})
    assert "refuses the credentials" in refused.text("gateway")


def test_a_gateway_that_is_down(found_apart: FoundApart) -> None:
    down = Examined(found_apart(run_of(["alpha"]), start=False)["alpha"])
    assert (down.status, down.failed) == (1, {"gateway"})
    assert "does not answer" in down.text("gateway")
    assert down.found["gateway"]["fixes"] == ["openclaw gateway run"]


@pytest.mark.soak
def test_an_unknown_agent_and_a_node_that_is_too_old(found_apart: FoundApart, tmp_path: Path) -> None:
    company = found_apart(run_of(["alpha", "beta"]), start=False)
    alpha = company["alpha"]
    alpha.config.write_text(alpha.config.read_text().replace("agent: alpha", "agent: nobody"))
    unknown = Examined(alpha)
    assert {"agent", "gateway"} == unknown.failed
    assert unknown.text("agent") == "OpenClaw has no agent nobody; it has alpha, beta"
    old = tmp_path / "bin" / "node"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\ntest \"$1\" = --version && echo v20.20.2 && exit\necho 'Node is too old' >&2; exit 1\n")
    old.chmod(0o755)
    told = Examined(alpha, PATH=f"{old.parent}{os.pathsep}{company.gateway.exports['PATH']}")
    assert (told.status, told.failed) == (1, {"openclaw-version"})
    assert told.text("openclaw-version") == "the program does not report its version: Node is too old"


def test_what_it_says_to_do_mends_it(found_apart: FoundApart) -> None:
    """An agent without file tools, who may reach nobody, in another workspace."""
    entry = {"tools": {"profile": "minimal"}, "subagents": {"allowAgents": []}}
    company = found_apart({"alpha": entry, "beta": {}}, start=False)
    alpha, gateway = company["alpha"], company.gateway
    config = json.loads(gateway.config.read_text())
    config["agents"]["entries"]["alpha"]["workspace"] = str(gateway.root / "elsewhere")
    gateway.config.write_text(json.dumps(config))
    ill = Examined(alpha)
    slugs = ("tools", "file-boundary", "peers", "agent-workspace")
    assert [ill.level(slug) for slug in slugs] == ["warning", "warning", "note", "error"], ill.found
    ill.mend(gateway, *slugs)
    well = Examined(alpha)
    assert [well.level(slug) for slug in slugs] == ["ok", "", "ok", "ok"], well.found


@pytest.mark.soak
def test_with_the_plugin_a_message_comes_and_is_filed_without_a_model(found_apart: FoundApart) -> None:
    company = found_apart(run_of(["alpha"]), start=False)
    alpha, gateway = company["alpha"], company.gateway
    without = Examined(alpha)
    assert without.level("plugin") == "warning"
    without.mend(gateway, "plugin", "skill")
    gateway.start()
    alpha.start()
    told = Examined(alpha, "--canary")
    assert (told.status, told.failed) == (0, set()), told.found
    assert [told.level(slug) for slug in ("plugin", "skill", "canary-message", "canary-filed")] == ["ok"] * 4
    assert len(company.model.calls) == 1
    assert alpha.phases() == {}
    assert [row["verdict"] for row in alpha.mail()] == ["orphan"]


def test_a_plugin_that_the_gateway_does_not_use_is_an_error(found_apart: FoundApart) -> None:
    """OpenClaw's commands find it well; the gateway, which was told not to follow changes, does not know of it."""
    company = found_apart(run_of(["alpha"]), start=False)
    alpha, gateway = company["alpha"], company.gateway
    config = json.loads(gateway.config.read_text())
    config["gateway"]["reload"] = {"mode": "off"}
    gateway.config.write_text(json.dumps(config))
    gateway.start()
    openclaw = OpenClaw(("openclaw",))
    _, state = integration.install_plugin(openclaw, gateway.env, integration.plugin_state(openclaw, gateway.env))
    assert state.problem == ""
    told = Examined(alpha)
    assert (told.status, told.failed) == (1, {"plugin"}), told.found
    assert "reached the model, which answered: The outcome." in told.text("plugin")
    assert told.found["plugin"]["fixes"][0] == "openclaw gateway restart"
    assert len(company.model.calls) == 1
    assert list(alpha.inbox.iterdir()) == []


@pytest.mark.parametrize("release", [OPENCLAW, OLDER[-1]])
def test_an_agent_that_openclaw_does_not_have_is_added_by_what_is_printed(
    found_apart: FoundApart, release: str
) -> None:
    company = found_apart(run_of(["alpha", "zeta"]), daemons=["zeta"], start=False, release=release)
    config = json.loads(company.gateway.config.read_text())
    del config["agents"]["entries"]["zeta"]
    company.gateway.config.write_text(json.dumps(config))
    company.gateway.start()
    zeta = company["zeta"]
    zeta.drop("work.md", "Say that it is done.\n")
    told = Examined(zeta)
    assert told.failed == {"agent"}
    told.mend(company.gateway, "agent")
    assert zeta.call("run", "--until-idle", seconds=PATIENCE).returncode == 0
    assert set(zeta.phases().values()) == {"completed"}


@pytest.mark.parametrize("release", [OPENCLAW, pytest.param(OLDER[-1], marks=pytest.mark.soak)])
def test_every_command_of_openclaw_that_is_printed_to_look_at_it_is_one(found_apart: FoundApart, release: str) -> None:
    """With a gateway that has the plugin and is well; none of them changes anything."""
    gateway = found_apart(run_of(["alpha"]), daemons=[], plugin=True, release=release).gateway
    assert gateway.openclaw("config", "set", "tools.fs.workspaceOnly", "true", "--strict-json").returncode == 0
    looks = [command.split()[1:] for command in sorted(printed()) if LOOKS.match(command)]
    assert len(looks) > 7
    for words in looks:
        done = gateway.openclaw(*words, seconds=PATIENCE)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
