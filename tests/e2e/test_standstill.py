"""A person pauses every agent of the host: running turns end, nothing begins, in daemons that start meanwhile too."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import eventually, task

pytestmark = pytest.mark.slow
WELL = {"reply": "Twelve figures of March."}
"""A result that is taken as it is: an agent that was asked for another one would get no turn for it."""
AGENTS = {"alpha": {"rules": [{"match": "first", "delay": 6, **WELL}], "default": WELL}, "beta": {"default": WELL}}


def test_every_agent_stands_still_until_it_is_resumed(found: Found) -> None:
    company = found(AGENTS, daemons=("alpha", "beta"))
    company.env["XDG_STATE_HOME"] = str(company.root / "state")
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    alpha.drop("first.md", task("first"))
    eventually(lambda: company.executions(), 10, alpha.last_words)
    alpha.drop("second.md", task("second"))
    eventually(lambda: "second" in alpha.phases(), 10, alpha.last_words)

    paused = alpha.call("pause", "--all", "--note", "an audit")
    assert paused.returncode == 0, paused.stdout + paused.stderr
    assert "its daemon has heard it" in paused.stdout
    alpha.until("first")
    beta.start()
    beta.drop("other.md", task("other"))
    eventually(lambda: "other" in beta.phases(), 10, beta.last_words)
    alpha.drop("third.md", task("third"))
    eventually(lambda: "third" in alpha.phases(), 10, alpha.last_words)
    eventually(company.is_quiet, 15)
    assert (alpha.phase("second"), alpha.phase("third"), beta.phase("other")) == ("execution_ready",) * 3
    (cause,) = beta.json("why", "other")["because"]
    assert cause["kind"] == "paused"
    assert cause["hint"].endswith(" resume --all")
    assert "an audit" in alpha.call("status").stdout

    alpha.kill()
    alpha.start()
    eventually(company.is_quiet, 15)
    assert alpha.phase("second") == "execution_ready", "a daemon that was killed holds as before"

    resumed = beta.call("resume", "--all")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    for agent, name in ((alpha, "second"), (alpha, "third"), (beta, "other")):
        agent.until(name)
    assert [len(alpha.events(kind)) for kind in ("host.paused", "host.resumed")] == [1, 1]
    assert alpha.call("db", "verify").returncode == 0


def test_a_run_until_nothing_is_left_ends_while_everything_is_paused(found: Found) -> None:
    company = found({"alpha": {"default": WELL}})
    company.env["XDG_STATE_HOME"] = str(company.root / "state")
    alpha = company["alpha"]
    alpha.drop("job.md", task("job"))
    assert alpha.call("pause", "--all").returncode == 0
    alpha.run()
    assert alpha.phase("job") == "execution_ready"
    assert alpha.call("resume", "--all").returncode == 0
    alpha.run()
    assert alpha.phase("job") == "completed"
