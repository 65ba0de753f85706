"""Work that goes on only when somebody does something: seen, said once with its reason, and not again by a restart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, message, task

pytestmark = pytest.mark.slow

TELL = "- id: tell\n  kind: manual\n  action: Tell\n  risk: none\n"
ACTS = f"---\ntype: reply\nstatus: done\n---\n## Results\n\nReady.\n\n## Planned Actions\n\n{TELL}"
ASKS = "---\ntype: question\n---\n\nWhich currency?\n"
WORK: dict[str, Any] = {
    "rules": [
        {"match": {"task": "fails"}, "fail": {"error": "no"}},
        {"match": {"task": "acts"}, "reply": ACTS},
        {"match": {"task": "asks"}, "reply": ASKS},
    ],
    "default": {"reply": "Text.", "cost": 0.5},
}
STUCK = {
    "fails": ("circuit_open", "attempts failed", "circuit.opened"),
    "acts": ("awaiting_approval", "approv", "approval.requested"),
    "asks": ("executing", "Which currency", "question.asked"),
    "vague": ("spec_draft", "weak", "question.asked"),
    "dear": ("executing", "over budget", ""),
    "far.x": ("executing", "has missed its heartbeat", "peer.silent"),
}
"""How each ends up, a word of the reason, and the kind of event that says so."""


def drop_all(alpha: Agent) -> None:
    child = {"agent": "self", "description": "A part", "expected_output": "One line."}
    two = {"a": child, "b": {**child, "depends_on": ["a"]}}
    for name in ("fails", "acts", "asks"):
        alpha.drop(f"{name}.md", task(name))
    alpha.drop("vague.md", message("task", "vague", "# Task: It\n\n## Instructions\n\nDo it.\n"))
    alpha.drop("dear.md", task("dear", plan=two, budget_usd="0.3"))
    alpha.drop("far.md", task("far", plan={"x": {**child, "agent": "beta"}}))


def said(alpha: Agent) -> Counter[tuple[str, str]]:
    """What the log says of each task, by kind: every line of it is a report that somebody may be woken by."""
    rows = alpha.query("SELECT t.local_id, e.kind FROM v_events e LEFT JOIN v_tasks t ON t.id = e.task")
    return Counter((row["local_id"] or "", row["kind"]) for row in rows)


def is_settled(alpha: Agent) -> bool:
    phases = alpha.phases()
    there = all(phases.get(name) == phase for name, (phase, _, _) in STUCK.items())
    told = {kind for _, kind in said(alpha)}
    return there and {kind for _, _, kind in STUCK.values() if kind} <= told and bool(alpha.task("dear")["held"])


def test_what_is_stuck_is_said_once_with_its_reason_whatever_restarts(found: Found) -> None:
    company = found(
        {"alpha": WORK, "beta": {"mailbox": "true"}},
        approvals={"lobster": []},
        spec={"weak": "ask"},
        heartbeat_seconds=1,
    )
    alpha = company["alpha"]
    alpha.start()
    drop_all(alpha)
    eventually(lambda: is_settled(alpha) and alpha.has_nothing_to_do(), 10, lambda: f"{alpha.phases()} {said(alpha)}")
    for name, (_, word, _) in STUCK.items():
        assert word in str(alpha.json("why", name)["because"]), name
    blocked = {item["task"]: item["text"] for item in alpha.json("inbox")}
    assert set(STUCK) - {"far.x"} <= set(blocked), "a peer that is silent may still reply: nobody here can do anything"
    before, letters = said(alpha), len(alpha.mail(direction="out"))
    for name, (_, _, kind) in STUCK.items():
        assert before[(name, kind)] == (1 if kind else 0), (name, kind)
    for _ in range(2):
        alpha.kill()
        alpha.start()
        eventually(alpha.has_nothing_to_do)
        assert alpha.stop() == 0
        alpha.start()
        eventually(alpha.has_nothing_to_do)
    assert said(alpha) - before == Counter()
    assert len(alpha.mail(direction="out")) == letters
    assert {item["task"]: item["text"] for item in alpha.json("inbox")} == blocked
    company.at_rest()
