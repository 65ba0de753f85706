"""Review gates in a running daemon: who is asked, what follows, and that a restart in any of them goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, message, task
from tests.e2e.test_crash import killed_at

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}


def review(verdict: str, summary: str = "Said.", finding: str = "") -> str:
    findings = f"\n## Findings\n\n```yaml\n- severity: major\n  message: {finding}\n```\n" if finding else ""
    return f"---\ntype: review\nverdict: {verdict}\n---\n## Summary\n\n{summary}\n{findings}"


APPROVES = {"default": {"reply": review("approved")}}
BLOCKS = {"default": {"reply": review("blocked", "It breaks the law.")}}


def gates(*names: str, reviewers: tuple[str, ...] = ("critic",), **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(names, "true"), "reviewers": list(reviewers), **more}


SOAK = pytest.mark.soak


@pytest.mark.parametrize("gate", ["spec_review", pytest.param("quality_gate", marks=SOAK)])
def test_a_reviewer_that_blocks_opens_the_circuit(found: Found, gate: str) -> None:
    company = found({"alpha": WORK, "critic": BLOCKS}, gates=gates(gate))
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.phase("job") == "circuit_open"
    assert f"{gate}: blocked by critic" in alpha.task("job")["reason"]
    assert len(company.executions(kind="work")) == (gate != "spec_review")
    company.at_rest()


def test_findings_and_the_previous_result_go_into_the_next_attempt(found: Found) -> None:
    rules = [
        {"match": {"kind": "work", "attempt": "1"}, "reply": "FIRST RESULT"},
        {
            "match": {"kind": "work", "text": "(?s)Name the source.*FIRST RESULT"},
            "reply": "Second result, with a source.",
        },
    ]
    critic = [
        {"match": {"text": "Second result"}, "reply": review("approved")},
        {"reply": review("changes_requested", "Not yet.", "Name the source")},
    ]
    company = found({"alpha": {"rules": rules}, "critic": {"rules": critic}}, gates=gates("quality_gate"))
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.phase("job") == "completed"
    assert alpha.task("job")["result"] == "Second result, with a source."
    assert (alpha.task("job")["failures"], len(alpha.attempts("job"))) == (0, 2)
    company.at_rest()


def test_who_is_not_needed_any_more_is_stopped(found: Found) -> None:
    slow = {"default": {"hang": 600, "reply": review("blocked")}}
    company = found(
        {"alpha": WORK, "rex": APPROVES, "uma": slow},
        gates=gates("quality_gate", reviewers=("rex", "uma"), quorum="any"),
    )
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.phase("job") == "completed"
    company.at_rest()


def test_headers_name_the_gates_and_reviewers_of_one_task(found: Found) -> None:
    company = found({"alpha": WORK, "critic": APPROVES, "judge": APPROVES})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", gates="[spec_gate, quality_gate]", reviewers="[critic, judge]"))
    alpha.drop("other.md", task("other"))
    alpha.run()
    assert set(alpha.phases().values()) == {"completed"}
    for name in ("critic", "judge"):
        assert [entry["local_id"] for entry in company.executions(agent=name)] == ["job"]
    company.at_rest()


# ---------------------------------------------------------------- trouble


@pytest.mark.parametrize("gate", [pytest.param("spec_review", marks=SOAK), "quality_gate"])
def test_a_daemon_that_is_killed_at_a_gate_goes_on_with_that_review(found: Found, gate: str) -> None:
    slow = {"default": {"delay": 1, "reply": review("approved")}}
    company = found({"alpha": WORK, "critic": slow}, gates=gates(gate))
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: [entry for entry in company.entries() if entry.get("agent") == "critic"])
    alpha.kill()
    alpha.start()
    alpha.until("job")
    assert len(company.executions(agent="critic")) == 1
    assert len(company.executions(agent="alpha")) == 1
    company.at_rest()


@pytest.mark.parametrize("point", [pytest.param(29, marks=SOAK), 61, pytest.param(97, marks=SOAK)])
def test_a_daemon_that_is_killed_anywhere_drafts_checks_and_reviews_once(found: Found, point: int) -> None:
    """One task through a draft and a review, one through a check; the daemon dies at this change of the world."""
    draft = {"match": {"kind": "draft"}, "reply": "## Acceptance Criteria\n\n- made.txt says yes\n"}
    work = {"match": {"kind": "work"}, "writes": {"made.txt": "yes"}, "reply": "Made."}
    company = found(
        {"alpha": {"rules": [draft, work]}, "critic": APPROVES},
        spec={"weak": "draft"},
        checks={"commands": [["grep"]]},
        gates=gates("quality_gate"),
    )
    alpha = company["alpha"]
    body = "# Task: Make it\n\n## Instructions\n\nMake it.\n"
    check = "\n## Checks\n\n- {id: made, command: [grep, -q, 'yes', made.txt]}\n"
    alpha.drop("drafted.md", message("task", "drafted", body))
    alpha.drop("checked.md", message("task", "checked", body + check))
    killed_at(alpha, point)
    alpha.start()

    def is_done() -> bool:
        return all(alpha.phase(name) == "completed" for name in ("drafted", "checked"))

    eventually(lambda: is_done() or _looks_up(alpha), 60, alpha.last_words)
    if is_done():
        company.at_rest()
    executed = [(entry["kind"], entry["local_id"]) for entry in company.executions()]
    assert len(executed) == len(set(executed)), "a turn ran twice"


def _looks_up(agent: Agent) -> bool:
    """A mark was set and nobody can say whether the program ran: that is looked up, for 45 s."""
    return bool(agent.query("SELECT 1 FROM v_outbox WHERE kind = 'look_up' AND state = 'pending' AND tries > 0"))
