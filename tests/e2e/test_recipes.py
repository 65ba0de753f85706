"""Every packaged recipe, sent by the command and carried out by a real daemon with scripted agents."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.formats.protocol.recipe import Recipes
from tests.e2e.conftest import Found

pytestmark = pytest.mark.slow

PLAIN: dict[str, Any] = {"default": {"reply": "Text."}}


def says(answer: str, text: str) -> dict[str, str]:
    return {"reply": f"---\ntype: reply\nstatus: done\nanswer: {answer}\n---\n## Results\n\n{text}\n"}


def rule(match: dict[str, str], **effect: Any) -> dict[str, Any]:
    return {"match": match, **effect}


PLAYED: dict[str, tuple[list[str], dict[str, list[dict[str, Any]]], str, dict[str, str]]] = {
    "pipeline": (
        ["goal=Notes", "steps=Collect", "steps=Draft, then cut"],
        {
            "alpha": [
                rule({"task": r"x\.step-1"}, reply="Collected"),
                rule({"task": r"x\.step-2", "text": "Collected"}, reply="The notes"),
            ]
        },
        "The notes",
        {"x.step-1": "completed", "x.step-2": "completed"},
    ),
    "map-reduce": (
        ["items=EMEA,APAC", "map=Extract", "reduce=Compare", "mapper=analyst"],
        {
            "analyst": [rule({"text": "APAC"}, reply="It grew")],
            "alpha": [rule({"task": r"x\.reduce", "text": "It grew"}, reply="A table")],
        },
        "A table",
        {"x.map-1": "completed", "x.map-2": "completed"},
    ),
    "panel": (
        ["question=Ready?", "panel=analyst,writer,critic"],
        {
            "analyst": [rule({}, reply="**Yes!**")],
            "writer": [rule({}, **says("No", "It is not."))],
            "critic": [rule({}, reply="yes - both doors were tested")],
        },
        "",
        {"x.vote": "completed"},
    ),
    "debate": (
        ["question=Rewrite?", "debaters=analyst,writer", "rounds=2"],
        {
            "writer": [rule({"text": "Round 2 of at most 2[^~]*Yes, now"}, reply="Convinced."), rule({}, reply="No.")],
            "analyst": [rule({}, reply="Yes, now")],
            "alpha": [rule({"task": r"x\.judge", "text": "Convinced"}, reply="Rewrite it")],
        },
        "Rewrite it",
        {"x.debate.1": "completed", "x.debate.2.writer": "completed"},
    ),
    "build-and-review": (
        ["work=Guide", "criteria=It is short", "reviewer=critic"],
        {
            "alpha": [rule({"text": "Too long"}, reply="Short guide"), rule({}, reply="Long guide")],
            "critic": [
                rule({"text": "### build [^~]*Short guide"}, **says("approve", "Good.")),
                rule({}, **says("revise", "Too long")),
            ],
        },
        "Short guide",
        {"x.work.1.review": "completed", "x.work.2.review": "completed"},
    ),
    "supervisor": (
        ["goal=Know why", "team=analyst,writer"],
        {
            "alpha": [
                rule({"kind": "synthesis", "text": "It is the price"}, reply="Because of the price"),
                rule({"kind": "synthesis"}, plan={"ask": {"agent": "analyst", "description": "Ask customers"}}),
            ],
            "analyst": [rule({}, reply="It is the price")],
        },
        "Because of the price",
        {"x.survey": "completed", "x.ask": "completed"},
    ),
    "escalation": (
        ["problem=Error 12", "ladder=writer,analyst,critic"],
        {
            "writer": [rule({}, **says("unsolved", "No idea"))],
            "analyst": [rule({}, **says("solved", "Restart it"))],
            "alpha": [rule({"task": r"x\.outcome", "text": "Restart it"}, reply="Restart it.")],
        },
        "Restart it.",
        {"x.try-1": "completed", "x.try-2": "completed", "x.try-3": "cancelled"},
    ),
    "research": (
        ["question=How?", "angles=code,docs", "checker=critic"],
        {
            "critic": [rule({"text": "See the manual"}, reply="All confirmed")],
            "alpha": [
                rule({"task": r"x\.search-2"}, reply="See the manual"),
                rule({"task": r"x\.report", "text": "All confirmed"}, reply="Like this [1]"),
            ],
        },
        "Like this [1]",
        {"x.search-2": "completed"},
    ),
    "hand-off": (
        ["work=Billing", "taker=analyst"],
        {
            "analyst": [
                rule({"task": r"x\.read"}, **says("unclear", "Which database?")),
                rule({"task": r"x\.continue", "text": "The blue one"}, reply="Continued"),
            ],
            "alpha": [rule({"task": r"x\.explain", "text": "Which database"}, reply="The blue one")],
        },
        "Continued",
        {"x.explain": "completed"},
    ),
}  # fmt: skip
"""Recipe -> its parameters, rules of the agents, the outcome, and how its tasks end."""


def test_every_packaged_recipe_is_played() -> None:
    assert sorted(PLAYED) == Recipes().names()


@pytest.mark.parametrize("name", sorted(PLAYED))
def test_a_recipe_reaches_its_outcome(found: Found, name: str) -> None:
    given, rules, outcome, phases = PLAYED[name]
    agents = {one: {"rules": rules.get(one, []), **PLAIN} for one in ("alpha", "analyst", "writer", "critic")}
    company = found(agents)
    alpha = company["alpha"]
    sent = alpha.call("recipe", "run", name, "--task-id", "x", *(word for one in given for word in ("--with", one)))
    assert sent.returncode == 0, sent.stderr
    alpha.run()
    task = alpha.task("x")
    assert task["phase"] == "completed", task["error"] or task["reason"]
    if name == "panel":
        assert task["answer"] == "yes"
        assert "[mailboxd] 2 of 3 said yes" in task["result"]
    else:
        assert task["result"] == outcome
    assert {local_id: alpha.phase(local_id) for local_id in phases} == phases
    company.at_rest()
