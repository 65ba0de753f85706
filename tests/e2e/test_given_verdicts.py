"""The strict profile on both sides: what a peer's gates have had reviewed is not reviewed again by its parent's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, message, reply, task
from tests.e2e.test_gates import APPROVES, WORK, gates

pytestmark = pytest.mark.slow

CHILDREN = 4
PLAN = {
    f"part{number}": {"agent": "beta", "description": f"Part {number}", "expected_output": "One line of text."}
    for number in range(CHILDREN)
}
STRICT: dict[str, Any] = {
    "profile": "strict",
    "gates": {"reviewers": ["critic", "judge"]},
    "synthesis": "concat",
    "limits": {"turns_per_agent": 4},
}


def calls(company: Company) -> tuple[int, int]:
    """How many calls of agents were reviews, and how many there were."""
    return len(company.executions(kind="review")), len(company.executions())


def test_a_child_of_a_peer_with_gates_of_its_own_has_its_result_reviewed_by_one_side(
    found: Found, tmp_path: Path
) -> None:
    """Six reviews of each child were 27 of 31 calls; the two of its result are no longer made twice."""
    company = found(
        {
            "alpha": {"mailbox": "true", **WORK},
            "beta": {"mailbox": "true", **WORK},
            "critic": APPROVES,
            "judge": APPROVES,
        },
        daemons=("alpha", "beta"),
        **STRICT,
    )
    alpha = company["alpha"]
    company["beta"].start()
    alpha.start()
    alpha.drop("go.md", task("job", plan=PLAN))
    alpha.until("job")
    company.at_rest()
    assert calls(company) == (3 + 4 * CHILDREN, 3 + 5 * CHILDREN)
    told = alpha.query(
        "SELECT DISTINCT gate, reviewer, given_at FROM v_reviews WHERE given_at IS NOT NULL ORDER BY gate"
    )
    assert [tuple(row.values()) for row in told] == [("quality_gate", "judge", "beta"), ("spec_gate", "critic", "beta")]
    assert company["beta"].query("SELECT 1 FROM v_reviews WHERE given_at IS NOT NULL") == []
    assert alpha.task("job.part0")["reason"] == "quality_gate: approved by judge (given at beta)"
    assert "spec_gate: approved by critic, given at beta" in alpha.call("log", "job.part0").stdout
    assert "judge (given at beta)" in alpha.call("show", "job.part0").stdout
    again = tmp_path / "again.db"
    assert alpha.call("db", "rebuild", "--into", str(again)).returncode == 0
    assert alpha.call("db", "verify").returncode == 0


def result_of(alpha: Agent, name: str, text: str = "The fees.", **fields: Any) -> str:
    """The reply of beta about job.NAME with the approval of critic, as its daemon writes it but for these fields."""
    attempt = alpha.attempts(f"job.{name}")[-1]
    verdict = {
        "gate": "quality_gate",
        "reviewer": "critic",
        "verdict": "approved",
        "sha256": hashlib.sha256(b"The fees.").hexdigest(),
        "summary": "Good.",
    }
    header = json.dumps([verdict | {key: fields.pop(key) for key in tuple(fields) if key in verdict}])
    headers = {"attempt_id": attempt["id"], "reply_token": attempt["reply_token"], "x-verdicts": header}
    given = {name: value for name, value in (headers | fields).items() if value is not None}
    return reply("job", name, "beta", text, **given)


def test_what_a_reply_says_of_reviews_counts_for_its_own_result_by_reviewers_of_the_gate_only(found: Found) -> None:
    """And what does not count is reviewed as if nothing had been said; what cannot be read is a doubt."""
    refused: dict[str, dict[str, Any]] = {
        "stranger": {"reviewer": "zoe"},
        "itself": {"reviewer": "beta"},
        "other": {"text": "Other fees."},
        "unproven": {"reply_token": None},
        "unreadable": {"x-verdicts": "critic approved it"},
    }
    plan = {name: {"agent": "beta", "description": name} for name in ("good", *refused)}
    company = found(
        {"alpha": WORK, "beta": {"mailbox": "true"}, "critic": APPROVES},
        gates=gates("quality_gate"),
        synthesis="concat",
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=plan))
    eventually(
        lambda: len(alpha.query("SELECT 1 FROM v_attempts WHERE acknowledged")) == len(plan), why=alpha.last_words
    )
    alpha.drop("good.md", result_of(alpha, "good"))
    for name, fields in refused.items():
        alpha.drop(f"{name}.md", result_of(alpha, name, **fields))
    alpha.until("job")
    assert alpha.rejections() == {}
    company.at_rest()
    reviewed = {entry["local_id"] for entry in company.executions(agent="critic")}
    assert reviewed == {"job", *(f"job.{name}" for name in refused)}
    (doubt,) = [row for row in alpha.mail() if row["name"] == "unreadable.md"]
    assert "x-verdicts" in str(doubt["notice"])


def test_a_peer_whose_specification_was_changed_tells_no_verdicts(found: Found) -> None:
    """They are about another task than the one that its sender has."""
    slow = {"default": {"delay": 3, "reply": "The fees."}}
    company = found(
        {"alpha": {"mailbox": "true"}, "beta": slow, "critic": APPROVES}, daemons=("beta",), gates=gates("quality_gate")
    )
    beta = company["beta"]
    beta.start()
    for name in ("same", "changed"):
        beta.drop(f"{name}.md", task(name, sender="alpha", attempt_id=f"att-{name}", attempt=1))
    eventually(lambda: beta.phase("changed") == "executing", why=beta.last_words)
    beta.drop("steer.md", message("steer", "changed", "Leave out the fees.", sender="operator"))
    for name in ("same", "changed"):
        beta.until(name)
    company.at_rest()
    told = {name: "x-verdicts" in text for name in ("same", "changed") for text in beta.sent("reply") if name in text}
    assert told == {"same": True, "changed": False}


def test_for_a_reviewer_that_has_to_sign_no_other_word_counts(found: Found) -> None:
    company = found(
        {"alpha": WORK, "beta": {"mailbox": "true"}, "critic": APPROVES},
        gates=gates("quality_gate"),
        signing={"require": ["critic"]},
        synthesis="concat",
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan={"good": {"agent": "beta", "description": "Good"}}))
    eventually(lambda: alpha.query("SELECT 1 FROM v_attempts WHERE acknowledged"), why=alpha.last_words)
    alpha.drop("good.md", result_of(alpha, "good"))
    alpha.until("job")
    assert alpha.rejections() == {}
    company.at_rest()
    assert {entry["local_id"] for entry in company.executions(agent="critic")} == {"job", "job.good"}
