"""Agents that answer in dialects: the stories of other modules end as always, and votes are asked for again.

`make slow DIALECT=any SEED=7 ARGS=tests/e2e/test_trees.py` tells the stories of any module so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.e2e import test_dialogue, test_gates, test_recipes, test_trees
from tests.e2e.conftest import Found
from tests.e2e.support import Company, task

pytestmark = pytest.mark.slow

STORIES: dict[str, Callable[[Found], None]] = {
    story.__name__.removeprefix("test_"): story
    for story in (
        test_trees.test_the_result_of_a_dependency_stands_in_the_context_of_its_dependant,
        test_trees.test_plans_inside_plans_nest_in_one_store_with_a_single_daemon,
        test_trees.test_one_daemon_per_agent_passes_work_down_and_results_up,
        test_dialogue.test_a_question_about_a_root_task_goes_to_its_sender_and_the_answer_lets_it_go_on,
        test_dialogue.test_a_question_travels_between_two_daemons_and_so_does_the_answer,
        test_gates.test_findings_and_the_previous_result_go_into_the_next_attempt,
    )
}


def in_dialect(found: Found, dialect: str, seed: int) -> Found:
    """Found companies whose agents speak `dialect`."""

    def make(agents: Mapping[str, Any], **more: Any) -> Company:
        company = found(agents, **more)
        company.dialect, company.seed = dialect, str(seed)
        company.rewrite(agents)
        return company

    return make


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("story", STORIES)
def test_a_story_ends_as_always(found: Found, story: str, seed: int) -> None:
    STORIES[story](in_dialect(found, "any", seed))


DECIDE = ("build-and-review", "escalation", "hand-off", "panel")
RECIPES = [
    name if name in DECIDE else pytest.param(name, marks=pytest.mark.soak) for name in sorted(test_recipes.PLAYED)
]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_reaches_its_outcome(found: Found, name: str) -> None:
    test_recipes.test_a_recipe_reaches_its_outcome(in_dialect(found, "any", 3), name)


VOTE = {"ready": {"agent": "beta", "description": "Is the hall ready?", "answers": ["yes", "no"]}}
SUMMED_UP = {"match": {"kind": "synthesis"}, "reply": "It was asked."}
HESITATES = {
    "rules": [
        {
            "match": {"text": "does not declare one of the allowed answers"},
            "reply": "**Yes**\n\nBoth doors were tested.",
        },
        {"reply": "Perhaps, if the floor is dry."},
    ]
}


def test_a_vote_with_another_word_is_asked_for_again_in_its_session(found: Found) -> None:
    company = found({"alpha": {"rules": [{"match": {"kind": "work"}, "plan": VOTE}, SUMMED_UP]}, "beta": HESITATES})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.phase("job") == "completed"
    assert (alpha.task("job.ready")["answer"], len(alpha.attempts("job.ready"))) == ("yes", 1)
    first, second = company.executions(agent="beta")
    assert first["session_key"] == second["session_key"]
    (event,) = alpha.events("answer.unclear")
    assert "`Perhaps, if the floor is dry.`" in event["data"]["problems"][0]
    company.at_rest()


def test_the_answers_that_are_allowed_reach_a_peer_whose_daemon_asks_again_itself(found: Found) -> None:
    company = found(
        {
            "alpha": {"mailbox": "true", "rules": [{"match": {"kind": "work"}, "plan": VOTE}, SUMMED_UP]},
            "beta": {"mailbox": "true", **HESITATES},
        },
        daemons=("alpha", "beta"),
    )
    alpha, beta = company["alpha"], company["beta"]
    for agent in (alpha, beta):
        agent.start(wait=False)
    alpha.drop("go.md", task("job"))
    alpha.until("job")
    (dispatch,) = alpha.sent("task")
    assert re.search(r"^answers: .*yes.*no", dispatch, re.MULTILINE)
    assert alpha.task("job.ready")["answer"] == beta.task("job.ready")["answer"] == "yes"
    assert (len(beta.events("answer.unclear")), alpha.events("answer.unclear")) == (1, [])
    (reply,) = beta.sent("reply")
    assert re.search(r"^answer: \W?yes", reply, re.MULTILINE)
    assert "Both doors were tested." in reply
    company.at_rest()
