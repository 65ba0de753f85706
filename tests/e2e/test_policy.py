"""The policy at the time of a decision: recorded by a real daemon, named by the approval, and kept by a rebuild."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import acting
from tests.e2e.conftest import Found
from tests.e2e.support import Agent

pytestmark = pytest.mark.slow

SECRET = "hunter2-sesame"


def configure(agent: Agent, **groups: dict[str, Any]) -> None:
    settings = yaml.safe_load(agent.config.read_text())
    for name, keys in groups.items():
        settings.setdefault(name, {}).update(keys)
    agent.config.write_text(yaml.safe_dump(settings))


def changes(agent: Agent) -> list[dict[str, Any]]:
    return [event["data"]["changes"] for event in agent.events("config.changed")]


def test_the_policy_is_recorded_when_it_changes_and_an_approval_names_it(found: Found, tmp_path: Path) -> None:
    alpha = found({"alpha": acting.WORK}, approvals=acting.ALONE)["alpha"]
    alpha.start()
    alpha.kill()
    alpha.start()
    assert len(changes(alpha)) == 1, "a daemon that starts again with the same configuration records nothing"
    assert alpha.stop() == 0
    configure(alpha, approvals={"approvers": [getpass.getuser()]}, notify={"command": ["/bin/true", SECRET]})
    alpha.start()
    assert changes(alpha)[1:] == [
        {
            "approvals.approvers": {"old": [], "new": [getpass.getuser()]},
            "notify.command": {"old": [], "new": "/bin/true (+1)"},
        }
    ]
    second = alpha.events("config.changed")[-1]["seq"]
    alpha.drop("job.md", acting.acting("job", [acting.effect(tmp_path / "witness")]))
    (approval,) = acting.asked(alpha)
    acting.approve(alpha, approval)
    (resolved,) = alpha.events("approval.resolved")
    assert resolved["data"]["policy"] == second
    shown = alpha.json("show", approval[-6:].lower())
    assert shown["policy"]["event"] == second
    assert shown["policy"]["fields"]["approvals.approvers"] == [getpass.getuser()]
    assert (
        f"the policy of event {second}: approvers: {getpass.getuser()}"
        in alpha.call("show", approval[-6:].lower()).stdout
    )
    lines = alpha.call("log", "--kind", "config.changed").stdout.splitlines()
    assert len(lines) == 2
    assert f"approvals.approvers: [] -> [{getpass.getuser()}]" in lines[1]
    alpha.until("job")
    assert alpha.stop() == 0
    journal = "".join(path.read_text() for path in (alpha.root / "mailbox" / "archive" / "events").glob("*.jsonl"))
    assert SECRET not in journal
    before = changes(alpha)
    assert alpha.call("db", "rebuild", "--replace").returncode == 0
    assert changes(alpha) == before
    assert alpha.call("db", "verify").returncode == 0
