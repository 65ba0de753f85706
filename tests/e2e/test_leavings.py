"""What calls leave behind in .mailboxd/turns/: as long as somebody may want to look at it, and no longer."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, task

pytestmark = pytest.mark.slow


def leavings(agent: Agent) -> list[str]:
    """The directories of calls, without those that are empty and wait for later ones."""
    return sorted(path.name for path in (agent.root / ".mailboxd" / "turns").glob("[!.]*"))


def test_a_failed_call_can_be_looked_at_until_its_task_has_ended(found: Found) -> None:
    rules = [{"match": {"task": "stuck"}, "fail": {"error": "overloaded"}}, {"reply": "Text."}]
    company = found({"alpha": {"rules": rules}}, retry={"max_attempts": 2})
    alpha = company["alpha"]
    alpha.drop("1.md", task("stuck"))
    alpha.drop("2.md", task("fine"))
    alpha.run()
    assert alpha.phases() == {"stuck": "circuit_open", "fine": "completed"}
    kept = leavings(alpha)
    assert len(kept) == 2
    for name in kept:
        assert "[mailboxd] work turn · task stuck" in (alpha.root / ".mailboxd/turns" / name / "prompt.md").read_text()
    alpha.run()
    assert leavings(alpha) == kept
    assert alpha.call("resolve", "--failed", "stuck", "--now").returncode == 0
    alpha.run()
    assert leavings(alpha) == []
    company.at_rest()
