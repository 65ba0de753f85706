"""Harnesses: the real `openclaw acp`, whose exec approvals a person decides here."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.support import Agent, eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import FoundApart
from tests.live.model import Exec, Text

GUARDED = {"alpha": {"tools": {"exec": {"mode": "ask"}}}}
NAMES = ["OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_NO_RESPAWN"]


def bridge(company: LiveCompany) -> dict[str, Any]:
    """`openclaw acp` as a harness: what it wants to execute, its gateway asks for."""
    token = company.root / "token"
    token.write_text(company.gateway.token)
    token.chmod(0o600)
    where = ["--url", f"ws://127.0.0.1:{company.gateway.port}", "--token-file", str(token)]
    argv = ["openclaw", "acp", *where, "--session", "agent:alpha:harness", "--no-prefix-cwd"]
    return {"argv": argv, "capabilities": ["read"], "environment": NAMES}


def parked(agent: Agent) -> dict[str, Any]:
    rows = eventually(lambda: agent.query("SELECT * FROM v_approvals WHERE status = 'pending'"), 120, agent.last_words)
    return rows[0]


def test_exec_approvals_of_the_gateway_are_parked_and_then_allowed_rejected_or_cancelled(
    found_apart: FoundApart,
) -> None:
    company = found_apart(GUARDED, daemons=())
    company.employ("alpha", {"acp": {"harnesses": {"claw": bridge(company)}}})
    alpha = company["alpha"]
    alpha.start()
    for name, verb in (("yes", "approve"), ("no", "reject"), ("gone", "cancel")):
        company.model.on(Exec(f"touch {alpha.root}/{name}"), Text(f"It said {name}."), task=name)
        alpha.drop(f"{name}.md", task(name, runtime="acp", harness="claw"))
        row = parked(alpha)
        assert f"touch {alpha.root}/{name}" in row["preview"]
        assert not (alpha.root / name).exists()  # it waits
        whom = (name,) if verb == "cancel" else (row["id"][-6:].lower(), "--note", "so be it")
        done = alpha.call(*verb.split(), *whom, *(() if verb == "approve" else ("--now",)))
        assert done.returncode == 0, done.stderr
        alpha.until(name, "cancelled" if verb == "cancel" else "completed")
        eventually(lambda: not alpha.query("SELECT 1 FROM v_approvals WHERE status = 'pending'"))
    assert [name for name in ("yes", "no", "gone") if (alpha.root / name).exists()] == ["yes"]
    assert [alpha.task(name)["result"] for name in ("yes", "no")] == ["It said yes.", "It said no."]
    (attempt,) = alpha.attempts("yes")
    assert (attempt["runtime"], attempt["worker_ref"], bool(attempt["session_ref"])) == ("acp", "claw", True)
    findings = json.loads(alpha.call("doctor", "--json", seconds=300).stdout)["findings"]
    (found,) = [finding for finding in findings if finding["id"] == "harness"]
    assert found["level"] == "ok", found
