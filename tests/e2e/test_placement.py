"""A workspace that is not where OpenClaw runs its agent does no work, says so, and names the command that mends it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.user import registry
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, task

pytestmark = pytest.mark.slow
WORK: dict[str, Any] = {"default": {"reply": "Text."}}
DISCOVERS = {"discovery": "true"}
PLACE = "agent workspace"


def trouble(agent: Agent) -> str:
    """What the daemon says of its place; empty if nothing is wrong."""
    said = json.loads(agent.call("status", "--json").stdout)
    return next((one["why"] for one in said["health"]["troubles"] if one["where"] == PLACE), "")


def until_red(agent: Agent) -> str:
    why = eventually(lambda: trouble(agent), why=agent.last_words)
    assert agent.call("status").returncode == 1
    assert PLACE in agent.call("inbox").stdout
    return str(why)


def command(agent: Agent) -> str:
    """What doctor prints to mend it."""
    assert "-> mailboxd doctor" in agent.call("inbox").stdout
    findings = json.loads(agent.call("doctor", "--json").stdout)["findings"]
    [fix] = next(
        one["fixes"] for one in findings if one["id"] in ("agent-workspace", "agent") and one["level"] == "error"
    )
    return str(fix)


def moved(agent: Agent, to: Path) -> Agent:
    agent.root.rename(to)
    return at(agent, to)


def at(agent: Agent, root: Path) -> Agent:
    other = Agent(agent.company, agent.name)
    other.root, other.inbox, other.log = root, root / "mailbox" / "inbox", root / "daemon.log"
    agent.company.agents[root.name] = other
    return other


def nothing_done(company: Company, agent: Agent) -> None:
    assert company.executions() == []
    assert [path.name for path in agent.unread()] == ["1.md"]


def test_two_that_were_exchanged_are_both_red_and_the_printed_command_puts_them_back(found: Found) -> None:
    company = found({"alpha": WORK, "beta": WORK}, daemons=["alpha", "beta"], openclaw=DISCOVERS)
    alpha, beta = company["alpha"], company["beta"]
    aside = moved(alpha, company.root / "aside")
    moved(beta, alpha.root)
    aside.root.rename(beta.root)
    for agent in (alpha, beta):
        agent.drop("1.md", task(agent.name))
        agent.start()
    said = [until_red(agent) for agent in (alpha, beta)]
    assert all("exchanged" in why for why in said)
    mends = command(alpha)
    for agent in (alpha, beta):
        nothing_done(company, agent)
        agent.stop()
    subprocess.run(mends, shell=True, check=True)
    for agent, of in ((alpha, "beta"), (beta, "alpha")):
        agent.start()
        agent.until(of)
        assert trouble(agent) == ""


def test_one_that_was_moved_goes_on_once_openclaw_knows_its_place(found: Found) -> None:
    company = found({"alpha": WORK}, openclaw=DISCOVERS, inbox={"rescan_seconds": 1})
    alpha = moved(company["alpha"], company.root / "elsewhere")
    alpha.drop("1.md", task("job"))
    alpha.start()
    assert "OpenClaw runs alpha in" in until_red(alpha)
    assert command(alpha).endswith(f" config set agents.entries.alpha.workspace {alpha.root}")
    nothing_done(company, alpha)
    company.rewrite({"alpha": {**WORK, "workspace": str(alpha.root)}})
    alpha.until("job")
    assert trouble(alpha) == ""


def test_a_copy_does_no_work_and_the_original_does(found: Found) -> None:
    company = found({"alpha": WORK}, openclaw=DISCOVERS)
    alpha = company["alpha"]
    alpha.drop("0.md", task("before"))
    alpha.run()
    shutil.copytree(alpha.root, company.root / "copy", symlinks=True)
    copy = at(alpha, company.root / "copy")
    copy.drop("1.md", task("twice"))
    assert copy.call("run", "--until-idle").returncode == 78
    copy.start()
    why = until_red(copy)
    assert "a copy of it" in why
    assert command(copy) == f"mailboxd -w {alpha.root} run"
    assert [path.name for path in copy.unread()] == ["1.md"]
    known = registry.registered(os.environ)
    assert alpha.root in known
    assert copy.root not in known, "`run --all` would serve it"
    alpha.drop("1.md", task("once"))
    alpha.start()
    alpha.until("once")
    assert len(company.executions()) == 2


def test_a_workspace_in_another_agents_directory_waits_until_openclaw_says_otherwise(found: Found) -> None:
    company = found({"alpha": WORK, "beta": WORK}, openclaw=DISCOVERS, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    company.rewrite({"alpha": {**WORK, "workspace": "ws/elsewhere"}, "beta": {**WORK, "workspace": "ws/alpha"}})
    alpha.drop("1.md", task("job"))
    alpha.start()
    assert "this directory is beta's" in until_red(alpha)
    nothing_done(company, alpha)
    company.rewrite({"alpha": WORK, "beta": WORK})
    alpha.until("job")


def test_a_run_until_idle_in_the_wrong_place_fails(found: Found) -> None:
    company = found({"alpha": WORK}, openclaw=DISCOVERS)
    alpha = moved(company["alpha"], company.root / "elsewhere")
    alpha.drop("1.md", task("job"))
    done = alpha.call("run", "--until-idle")
    assert (done.returncode, "OpenClaw runs alpha in" in done.stderr) == (78, True), done.stderr
    nothing_done(company, alpha)


@pytest.mark.parametrize(
    "missing",
    [
        ".mailboxd/turns", ".mailboxd/templates", "mailbox/inbox", "mailbox/outbox", "mailbox/archive",
        "mailbox/rejected", "tasks",
    ],
)  # fmt: skip
def test_what_a_restore_left_out_is_made(found: Found, missing: str) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    (alpha.root / missing).rmdir()
    alpha.start()
    alpha.drop("1.md", task("job"))
    alpha.until("job")
    assert f"made what was missing in the workspace: {missing}" in alpha.log.read_text()
