"""What reached the model, as it has recorded it: what a reviewer of a specification and a synthesis need to know."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.acting import approve, asked, effect
from tests.e2e.support import task
from tests.live.conftest import Found
from tests.live.model import Text

APPROVED = Text("---\ntype: review\nverdict: approved\n---\n\n## Summary\n\nIt can be done.\n")


def test_a_reviewer_of_a_specification_is_shown_its_context_and_what_it_depends_on(found: Found) -> None:
    company = found(synthesis="concat")
    alpha, model = company["alpha"], company.model
    model.on(APPROVED, kind="review")
    model.on(Text("The figures."), kind="task")
    alpha.start()
    text = {
        "agent": "beta",
        "description": "Write the text",
        "context": "EMEA is late.",
        "depends_on": ["figures"],
        "gates": ["spec_review"],
        "reviewers": ["gamma"],
    }
    alpha.drop(
        "go.md", task("seen", plan={"figures": {"agent": "beta", "description": "Get the figures"}, "text": text})
    )
    alpha.until("seen")
    (review,) = model.made(agent="gamma", task="seen.text")
    assert "EMEA is late." in review.text
    assert "- figures: Get the figures" in review.text
    assert review.text.rindex("# How to answer") > review.text.index("- figures")
    company.at_rest()


def test_the_synthesis_is_told_that_the_approved_action_of_a_subtask_ran(found: Found, tmp_path: Path) -> None:
    company = found(approvals={"lobster": []})
    alpha, model = company["alpha"], company.model
    model.on(Text("Written."), kind="task")
    model.on(Text("The page is published, with the three figures of Q3."), kind="synthesis")
    alpha.start()
    publish = {"agent": "beta", "description": "Publish it", "planned_actions": [effect(tmp_path / "witness")]}
    alpha.drop("go.md", task("ran", plan={"publish": publish}))
    approve(alpha, *asked(alpha))
    alpha.until("ran")
    (call,) = model.made(kind="synthesis", task="ran")
    told = call.text.partition("### Actions that were performed, once")[2]
    assert "exit status 0" in told.partition("# How to answer")[0]
    company.at_rest()
