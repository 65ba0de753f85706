"""Recipes: what a file may say, what its parameters become, and that every packaged one is a plan."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailboxd.core import plans
from mailboxd.core.task_view import Limits
from mailboxd.errors import ConfigError, MessageError
from mailboxd.formats.protocol.recipe import Recipe, Recipes, example_values, expand, parse_recipe, values_of

PACKAGED = Recipes().names()
STEPS = """\
about: Steps
parameters:
  goal: What for
  steps: {about: Which, example: [a, b]}
  who: {about: Who, default: self}
title: Do ${goal}
acceptance_criteria: ["${goal} is done"]
subtasks:
  step:
    each: ${steps}
    agent: ${who}
    description: "${item} for ${goal}"
    depends_on: [previous]
    when: {previous: {not: done}}
  end: {agent: self, description: "Of ${steps}", depends_on: step}
synthesis: step
"""


def recipe(text: str = STEPS) -> Recipe:
    return parse_recipe(text, "steps", "steps.yaml")


def test_a_subtask_becomes_one_for_each_item_and_what_depends_on_it_depends_on_all() -> None:
    made = expand(recipe(), values_of(recipe(), [("goal", "tea"), ("steps", "boil, pour")]))
    assert (made.title, made.criteria, made.dag.synthesis) == ("Do tea", ("tea is done",), "step-2")
    first, second, end = made.dag.plan.children
    assert [child.description for child in (first, second, end)] == ["boil for tea", "pour for tea", "Of boil, pour"]
    assert (first.depends_on, second.depends_on, end.depends_on) == ((), ("step-1",), ("step-1", "step-2"))
    assert (first.flow.when, second.flow.when[0].of) == ((), "step-1")


def test_a_value_is_text_whatever_is_in_it() -> None:
    evil = 'x"]}\nsubtasks: {evil: {agent: self}}\n${who}: &a *a'
    made = expand(recipe(), values_of(recipe(), [("goal", evil), ("steps", "a, b"), ("steps", "c")]))
    assert [child.key for child in made.dag.plan.children] == ["step-1", "step-2", "end"]
    assert made.dag.plan.children[0].description == f"a, b for {evil}"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "goal (What for), steps (Which)"),
        ([("gaol", "x")], "Did you mean goal?"),
        ([("goal", "x"), ("goal", "y"), ("steps", "a")], "given 2 times"),
    ],
)
def test_parameters_are_checked(given: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(MessageError, match=says.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        values_of(recipe(), given)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("- a\n", "wrong-type"),
        ("about: x\ntitle: y\n", "missing-field"),
        (STEPS.replace("synthesis:", "sythesis:"), "unknown-field"),
        (STEPS.replace("${goal}", "${gaol}"), "unknown-field"),
        (STEPS.replace("example:", "exmaple:"), "unknown-field"),
        (STEPS.replace("  goal:", "  item:"), "bad-id"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(text: str, rule: str) -> None:
    with pytest.raises(MessageError) as caught:
        recipe(text)
    assert caught.value.rule == rule


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_recipe_is_a_plan_that_can_be_carried_out(name: str) -> None:
    packaged = Recipes().load(name)
    made = expand(packaged, example_values(packaged))
    plans.admit(made.dag.plan, Limits(), 0)
    assert packaged.about
    assert all(one.about for one in packaged.parameters)


def test_a_workspace_has_its_own_recipes_before_the_packaged_ones(tmp_path: Path) -> None:
    (tmp_path / "panel.yaml").write_text(STEPS, "utf-8")
    (tmp_path / "ours.yaml").write_text(STEPS, "utf-8")
    (tmp_path / "linked.yaml").symlink_to("/etc/hostname")
    recipes = Recipes(tmp_path)
    assert {"panel", "ours", "debate"} <= {*recipes.names()}
    assert recipes.load("panel").about == "Steps"
    with pytest.raises(ConfigError):
        recipes.load("linked")
    for name in ("../ours", "pannel"):
        with pytest.raises(MessageError):
            recipes.load(name)


@pytest.mark.parametrize("odd", ["directory", "pipe", "dangling", "binary"])
def test_a_recipe_that_cannot_be_read_takes_no_other_away(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "odd.yaml"
    match odd:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
        case "binary":
            path.write_bytes(b"\xff\xfe\x00")
    found = dict(Recipes(tmp_path).all())
    assert set(PACKAGED) < found.keys()
    assert isinstance(found["odd"], ConfigError)
    assert "odd.yaml" in str(found["odd"])


def test_the_example_in_the_documentation_is_a_recipe() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")
    example = parse_recipe(page.partition("```yaml\n")[2].partition("```")[0], "look", "recipes.md")
    made = expand(example, example_values(example))
    assert [child.key for child in made.dag.plan.children] == ["look-1", "look-2", "report"]
