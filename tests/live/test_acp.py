"""Harnesses: the real `openclaw acp`, whose exec approvals a person decides here, and the real `acpx`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found as FoundScripted
from tests.e2e.conftest import found as found_scripted  # noqa: F401 - a fixture
from tests.e2e.support import Agent, eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import FoundApart
from tests.live.install import standard
from tests.live.model import Exec, Text

ODD = str(Path(__file__).resolve().parents[1] / "agents" / "acp" / "odd_agent.py")
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
    rows = eventually(lambda: agent.query("SELECT * FROM approvals WHERE status = 'pending'"), 120, agent.last_words)
    return rows[0]


def test_exec_approvals_of_the_gateway_are_parked_and_then_allowed_rejected_or_cancelled(
    found_apart: FoundApart,
) -> None:
    company = found_apart(GUARDED, daemons=())
    company.employ("alpha", {"acp": {"harnesses": {"claw": bridge(company)}}})
    alpha = company["alpha"]
    alpha.start()
    for name, verb in (("yes", "approve"), ("no", "approval reject"), ("gone", "cancel")):
        company.model.on(Exec(f"touch {alpha.root}/{name}"), Text(f"It said {name}."), task=name)
        alpha.drop(f"{name}.md", task(name, runtime="acp", harness="claw"))
        row = parked(alpha)
        assert f"touch {alpha.root}/{name}" in row["preview"]
        assert not (alpha.root / name).exists()  # it waits
        whom = (name,) if verb == "cancel" else (row["id"][-6:].lower(), "--note", "so be it")
        done = alpha.call(*verb.split(), *whom)
        assert done.returncode == 0, done.stderr
        alpha.until(name, "cancelled" if verb == "cancel" else "completed")
        eventually(lambda: not alpha.query("SELECT 1 FROM approvals WHERE status = 'pending'"))
    assert [name for name in ("yes", "no", "gone") if (alpha.root / name).exists()] == ["yes"]
    assert [alpha.task(name)["result"] for name in ("yes", "no")] == ["It said yes.", "It said no."]
    (attempt,) = alpha.attempts("yes")
    assert (attempt["runtime"], attempt["worker_ref"], bool(attempt["session_ref"])) == ("acp", "claw", True)
    findings = json.loads(alpha.call("doctor", "--json", seconds=300).stdout)["findings"]
    (found,) = [finding for finding in findings if finding["id"] == "harness"]
    assert found["level"] == "ok", found


@pytest.fixture
def acpx(found: Any, tmp_path: Path) -> Any:
    assert standard().has_acpx(), "no acpx: run `make live`, or python -m tests.live.install"

    def open_(*behaviour: str) -> tuple[Agent, Path]:
        harness = {"argv": [sys.executable, ODD, *behaviour], "backend": "acpx", "capabilities": ["read", "edit"]}
        settings = {"acpx": [str(standard().acpx)], "harnesses": {"odd": {**harness, "environment": ["ODD_LOG"]}}}
        company = found({"alpha": {}}, acp=settings)
        company.env["ODD_LOG"] = str(tmp_path / "odd.log")
        company.env["HOME"] = str(tmp_path)
        company.env["PATH"] = f"{standard().node.parent}:{company.env.get('PATH', '/usr/bin:/bin')}"
        alpha: Agent = company["alpha"]
        alpha.start()
        alpha.drop("job.md", task("job", runtime="acp", harness="odd"))
        return alpha, tmp_path / "odd.log"

    return open_


@pytest.fixture
def found(request: pytest.FixtureRequest) -> FoundScripted:
    """The scripted company: these tests need no gateway."""
    scripted: FoundScripted = request.getfixturevalue("found_scripted")
    return scripted


def test_acpx_carries_a_turn_and_names_what_it_had_to_deny(acpx: Any) -> None:
    alpha, log = acpx("writes=a.txt", "runs=made")
    assert alpha.until("job")["result"] == "I begin. The answer is 42."
    said = [json.loads(line) for line in log.read_text().splitlines()]
    assert {entry["asked"]: entry["answer"] for entry in said if "asked" in entry} == {"w1": "yes", "x1": "no"}
    assert not (alpha.root / "made").exists()
    (refused,) = alpha.query("SELECT * FROM artifacts WHERE kind = 'other'")
    assert "1 permissions" in refused["summary"]


@pytest.mark.parametrize(
    ("behaviour", "phase", "why"),
    [
        ("dies", "circuit_open", "unknown"),
        pytest.param("stops=refusal", "circuit_open", "refuses to continue", marks=pytest.mark.soak),
    ],
)
def test_what_acpx_says_of_an_end_is_read_from_its_frames(acpx: Any, behaviour: str, phase: str, why: str) -> None:
    alpha, _ = acpx(behaviour)
    assert why in alpha.until("job", phase)["reason"]


def test_a_cancelled_turn_through_acpx_leaves_nothing_behind(acpx: Any) -> None:
    alpha, log = acpx("waits")
    eventually(lambda: log.exists() and "prompt" in log.read_text(), 30)
    assert alpha.call("cancel", "job").returncode == 0
    alpha.until("job", "cancelled")
    eventually(lambda: "cancel" in log.read_text())
    pid = json.loads(log.read_text().splitlines()[0])["pid"]
    eventually(lambda: not Path(f"/proc/{pid}").exists(), 20)
