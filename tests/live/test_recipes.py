"""Recipes on the real OpenClaw: every packaged one, all at once, and one that OpenClaw's own schedule starts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.support import MAILBOXD, eventually
from tests.e2e.test_recipes import PLAYED
from tests.live.conftest import Found
from tests.live.model import Model, Text, plan

ACTORS = {"analyst": "beta", "writer": "gamma", "critic": "delta"}
"""The agents of the shared gateway that play those of the recipes."""


def cast(played: Any) -> Any:
    """A recipe's play with this gateway's agents."""
    text = json.dumps(played)
    for name, actor in ACTORS.items():
        text = text.replace(name, actor)
    return json.loads(text)


def teach(model: Model, name: str, agent: str, rule: dict[str, Any]) -> None:
    """Have the agent answer in the recipe `name` as a rule of the scripted agents says."""
    match = dict(rule["match"])
    task = match.pop("task", r"x.*").replace("x", name, 1)
    model.on(plan(rule["plan"]) if "plan" in rule else Text(rule["reply"]), agent=agent, task=task, **match)


@pytest.mark.soak
def test_every_recipe_reaches_its_outcome(found: Found) -> None:
    company = found(openclaw={"transport": "gateway"})
    alpha, played = company["alpha"], {name: cast(play) for name, play in PLAYED.items()}
    paired = alpha.call("connect", "gateway", "pair", env={"OPENCLAW_GATEWAY_TOKEN": company.gateway.token})
    assert paired.returncode == 0, paired.stderr
    for name, (given, rules, _, _) in played.items():
        for agent, of_agent in rules.items():
            for rule in reversed(of_agent):
                teach(company.model, name, agent, rule)
        words = [word for one in given for word in ("--with", one)]
        sent = alpha.call("recipe", "run", name, "--task-id", name, *words)
        assert sent.returncode == 0, sent.stderr
    alpha.start()
    for name, (_, _, outcome, phases) in played.items():
        alpha.until(name)
        task = alpha.task(name)
        assert (task["result"] == outcome) if outcome else task["answer"] == "yes"
        assert {one: alpha.phase(one.replace("x", name, 1)) for one in phases} == phases, name
    company.at_rest()


def test_a_schedule_of_openclaw_starts_a_recipe(found: Found) -> None:
    """A command in its cron needs no model to start the work."""
    company = found()
    alpha = company["alpha"]
    company.model.on(Text("Nothing new."), agent="alpha", task=r"morning.*")
    run = ["recipe", "run", "pipeline", "--task-id", "morning", "--with", "goal=News", "--with", "steps=Look"]
    argv = json.dumps([*MAILBOXD, "-w", str(alpha.root), *run])
    schedule = ("--name", "morning", "--agent", "alpha", "--at", "1s", "--no-deliver", "--command-argv", argv)
    made = company.gateway.openclaw("cron", "add", *schedule, "--token", company.gateway.token)
    assert made.returncode == 0, made.stderr
    alpha.start()
    eventually(lambda: "morning" in alpha.phases(), 120, company.gateway.last_words)
    alpha.until("morning")
    assert alpha.task("morning")["result"] == "Nothing new."
    company.at_rest()
