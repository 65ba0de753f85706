"""Answers by tool: what the tools of a turn allow, and that a call says exactly what its text form says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.model import Spec
from mailboxd.core.outcomes import Correction, Failure, Planned, Question, Results, Reviewed, Unclear
from mailboxd.core.vocabulary import ANSWER_TOOLS, Gate, Turn
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.answer_tools import (
    ANSWER,
    ASK,
    FAIL,
    FINISH,
    PLAN,
    VERDICT,
    AnswerTool,
    as_form,
    as_text,
    read_call,
    tools_for,
)
from mailboxd.formats.protocol.markdown import escape
from mailboxd.formats.protocol.prompts import (
    CorrectionPrompt,
    DraftPrompt,
    Peer,
    ReviewPrompt,
    SynthesisPrompt,
    Templates,
    WorkPrompt,
    render_prompt,
)

WORK = Asked(agents=("alpha", "beta"))
VOTE = Asked(answers=("approve", "reject"))
REVIEW = Asked(Turn.REVIEW, may_plan=False)


def work(**more: Any) -> WorkPrompt:
    said = {"local_id": "t", "attempt": 1, "agent": "alpha", "sender": "operator", "title": "T", "spec": Spec("g")}
    forms = {"peers": (Peer("beta", "writes"),), "depth_left": 2, "children_left": 7, "may_ask": True}
    return WorkPrompt(**{**said, **forms, **more})


def review() -> ReviewPrompt:
    return ReviewPrompt("t", 1, Gate.QUALITY_GATE, "T", Spec("g"), "beta", "done")


def named(tools: tuple[AnswerTool, ...]) -> dict[str, Any]:
    return {tool.name: tool.parameters for tool in tools}


# What is offered


def test_a_work_turn_has_a_tool_for_each_form() -> None:
    assert list(named(tools_for(work()))) == [FINISH, PLAN, ASK, FAIL]
    assert list(named(tools_for(work(may_ask=False, depth_left=0)))) == [FINISH, FAIL]
    assert list(named(tools_for(work(children_left=0)))) == [FINISH, ASK, FAIL]


def test_agents_and_limits_of_the_turn_are_enums_and_bounds() -> None:
    plan = named(tools_for(work()))[PLAN]["properties"]["subtasks"]
    assert (plan["minItems"], plan["maxItems"]) == (1, 7)
    assert plan["items"]["properties"]["agent"]["anyOf"][0] == {"enum": ["self", "beta"]}
    assert "maxItems" not in named(tools_for(work(children_left=10_000)))[PLAN]["properties"]["subtasks"]


def test_a_vote_has_the_allowed_answers_and_nothing_to_plan() -> None:
    tools = named(tools_for(work(answers=("yes", "no"))))
    assert list(tools) == [ANSWER, ASK, FAIL]
    assert tools[ANSWER]["properties"]["answer"] == {"enum": ["yes", "no"]}


def test_a_review_has_a_verdict_and_nothing_else() -> None:
    (tool,) = tools_for(review())
    assert tool.name == VERDICT
    assert tool.parameters["properties"]["verdict"]["enum"] == ["approved", "changes_requested", "blocked"]


def test_a_correction_has_the_tools_of_its_turn() -> None:
    again = CorrectionPrompt(Turn.WORK, "t", 1, ("no",), depth_left=1, children_left=3, may_ask=True)
    assert list(named(tools_for(again))) == [FINISH, PLAN, ASK, FAIL]
    assert list(named(tools_for(CorrectionPrompt(Turn.REVIEW, "t", 1, ("no",))))) == [VERDICT]
    assert tools_for(CorrectionPrompt(Turn.ANSWER, "t", 1, ("no",))) == ()


def test_drafts_are_written_as_text() -> None:
    assert tools_for(DraftPrompt("t", 1, "alpha", "operator", "T", Spec("g"))) == ()


def test_a_synthesis_may_plan_more() -> None:
    prompt = SynthesisPrompt("t", 1, "a", "o", "T", Spec("g"), "r", depth_left=1, children_left=2, may_ask=True)
    assert list(named(tools_for(prompt))) == [FINISH, PLAN, ASK, FAIL]


# What a call means


def test_each_tool_gives_its_answer() -> None:
    assert read_call(FINISH, {"result": " Done.\n"}, WORK) == Results("Done.")
    assert read_call(FAIL, {"error": "No key.", "partial_results": "Half."}, WORK) == Failure("No key.", "Half.")
    assert read_call(ASK, {"question": "Which?"}, WORK) == Question("Which?")
    assert read_call(ASK, {"question": "Which?", "choices": ["a", "b"]}, WORK) == Question("Which?\n\n- a\n- b")
    assert read_call(ANSWER, {"answer": "approve", "reason": "It holds."}, VOTE) == Results("It holds.", "approve")
    reviewed = read_call(
        VERDICT,
        {
            "verdict": "changes_requested",
            "summary": "Nearly.",
            "findings": [{"severity": "major", "message": "The sum is off", "file": "a.md", "line": 3}],
        },
        REVIEW,
    )
    assert isinstance(reviewed, Reviewed)
    assert (reviewed.verdict, reviewed.summary) == ("changes_requested", "Nearly.")
    (finding,) = reviewed.findings
    assert (finding.severity, finding.message, finding.file, finding.line) == ("major", "The sum is off", "a.md", 3)


def test_a_plan_is_read_with_all_that_its_subtasks_say() -> None:
    first = {"id": "a", "agent": "self", "description": "One", "instructions": "Do it.\nWell: now", "timeout": 60}
    second = {"id": "b", "agent": ["alpha", "beta"], "description": "Two", "depends_on": ["a"]}
    answer = read_call(PLAN, {"subtasks": [first, second], "synthesis": "b"}, WORK)
    assert isinstance(answer, Planned)
    one, two = answer.plan.children
    assert (one.key, one.agents, one.instructions, one.overrides.timeout) == ("a", ("self",), "Do it.\nWell: now", 60)
    assert (two.agents, two.depends_on, answer.plan.synthesis) == (("alpha", "beta"), ("a",), "b")


def test_actions_are_submitted_for_approval() -> None:
    action = {"id": "publish", "kind": "command", "action": "Publish it", "argv": ["make", "publish"]}
    answer = read_call(FINISH, {"result": "Ready.", "planned_actions": [action]}, WORK)
    assert isinstance(answer, Results)
    assert [one.argv for one in answer.planned_actions] == [("make", "publish")]


@pytest.mark.parametrize(
    ("tool", "arguments", "asked", "says"),
    [
        (PLAN, {"subtasks": [{"id": "a", "agent": "gamma", "description": "x"}]}, WORK, "no agent"),
        (PLAN, {"subtasks": [{"id": "a", "agent": "self", "description": "x", "depends_on": ["z"]}]}, WORK, "no such"),
        (FINISH, {"result": ""}, WORK, "no results"),
        (FINISH, {"result": "I could not do it."}, WORK, "not possible"),
        (VERDICT, {"verdict": "changes_requested", "summary": "No."}, REVIEW, "no finding"),
        (ANSWER, {"answer": "maybe", "reason": "Hm."}, VOTE, "approve"),
        (FINISH, {"result": "x"}, REVIEW, "no verdict"),
        (PLAN, {"subtasks": [{"id": "a", "agent": "self", "description": "x"}]}, Asked(may_plan=False), "divided"),
    ],
)  # fmt: skip
def test_what_a_text_would_be_asked_about_is_asked_about(
    tool: str, arguments: dict[str, Any], asked: Asked, says: str
) -> None:
    answer = read_call(tool, arguments, asked)
    assert isinstance(answer, Unclear)
    assert any(says in problem for problem in answer.problems), answer.problems


def test_a_denial_that_is_confirmed_counts_as_it_stands() -> None:
    said = {"result": "I could not do it."}
    first = read_call(FINISH, said, WORK)
    assert isinstance(first, Unclear)
    assert first.is_claim
    again = Asked(correction=Correction(first.problems, claim=first.text))
    assert read_call(FINISH, said, again) == Results("I could not do it.")


def test_an_unknown_tool_is_a_bug() -> None:
    with pytest.raises(KeyError):
        as_form("exec", {})


# One meaning in both forms

WORDS = st.text(st.sampled_from("ab .\n\"'{}:-#`é🐘\\\t0"), min_size=1, max_size=40).filter(str.strip)
IDS = st.sampled_from(["a", "b-1", "c.d", "1e3", "no"])


def plans() -> st.SearchStrategy[dict[str, Any]]:
    child = st.fixed_dictionaries(
        {"id": IDS, "agent": st.sampled_from(["self", "beta", "gamma"]), "description": WORDS},
        optional={"instructions": WORDS, "expected_output": WORDS, "depends_on": st.lists(IDS, max_size=2)},
    )
    return st.fixed_dictionaries({"subtasks": st.lists(child, min_size=1, max_size=4)}, optional={"synthesis": IDS})


def reviews() -> st.SearchStrategy[dict[str, Any]]:
    finding = st.fixed_dictionaries(
        {"severity": st.sampled_from(["critical", "major", "minor"]), "message": WORDS},
        optional={"file": WORDS, "line": st.integers(1, 99)},
    )
    verdict = st.sampled_from(["approved", "changes_requested", "blocked"])
    return st.fixed_dictionaries(
        {"verdict": verdict, "summary": WORDS}, optional={"findings": st.lists(finding, max_size=3)}
    )


CALLS = st.one_of(
    st.tuples(st.just(FINISH), st.fixed_dictionaries({"result": WORDS}), st.just(WORK)),
    st.tuples(
        st.just(FAIL), st.fixed_dictionaries({"error": WORDS}, optional={"partial_results": WORDS}), st.just(WORK)
    ),
    st.tuples(st.just(ASK), st.fixed_dictionaries({"question": WORDS}), st.just(WORK)),
    st.tuples(st.just(PLAN), plans(), st.just(WORK)),
    st.tuples(st.just(VERDICT), reviews(), st.just(REVIEW)),
    st.tuples(
        st.just(ANSWER),
        st.fixed_dictionaries({"answer": st.sampled_from(["approve", "reject"]), "reason": WORDS}),
        st.just(VOTE),
    ),
)  # fmt: skip


@given(CALLS)
def test_a_call_reads_as_its_text_form(call: tuple[str, dict[str, Any], Asked]) -> None:
    tool, arguments, asked = call
    by_tool, by_text = read_call(tool, arguments, asked), read_answer(as_text(tool, arguments), asked)
    if isinstance(by_tool, Unclear) and isinstance(by_text, Unclear):
        assert by_tool.problems == by_text.problems
    else:
        assert by_tool == by_text


PLAIN = st.text(st.sampled_from("abc .,é🐘"), min_size=1, max_size=40).map(str.strip).filter(bool)


@given(PLAIN, PLAIN)
def test_a_call_reads_as_the_published_form(first: str, second: str) -> None:
    """The one with `---` lines and sections."""
    done = f"---\ntype: reply\nstatus: done\n---\n## Results\n\n{escape(first, title=True)}\n"
    assert read_call(FINISH, {"result": first}, WORK) == read_answer(done, WORK)
    failed = f"---\ntype: reply\nstatus: failed\n---\n## Error\n\n{first}\n\n## Partial Results\n\n{second}\n"
    assert read_call(FAIL, {"error": first, "partial_results": second}, WORK) == read_answer(failed, WORK)
    asks = f"---\ntype: question\n---\n{first}\n"
    assert read_call(ASK, {"question": first}, WORK) == read_answer(asks, WORK)
    child = {"agent": "beta", "description": first, "instructions": second}
    dag = (
        f"---\ntype: plan\n---\n## DAG\n\n```yaml\n{json.dumps({'subtasks': {'a': child}}, ensure_ascii=False)}\n```\n"
    )
    assert read_call(PLAN, {"subtasks": [{"id": "a", **child}]}, WORK) == read_answer(dag, WORK)


def test_every_tool_is_known_by_its_name() -> None:
    offered = {tool.name for prompt in (work(), work(answers=("a", "b")), review()) for tool in tools_for(prompt)}
    assert offered == {*ANSWER_TOOLS}


# What the prompt says


def _how(prompt: Any) -> str:
    return render_prompt(Templates(None), prompt).partition("# How to answer\n")[2]


def test_the_prompt_says_in_a_few_lines_how_to_answer_by_tool() -> None:
    for prompt in (work(), work(answers=("yes", "no")), review()):
        names = tuple(tool.name for tool in tools_for(prompt))
        by_tool, in_text = _how(replace(prompt, tools=names)), _how(prompt)
        assert all(f"`{name}`" in by_tool for name in names)
        assert "type: re" not in by_tool
        assert "mailboxd_" not in in_text
        assert len(by_tool) < len(in_text)
        assert "writes" in by_tool or PLAN not in names  # what the other agents do


def test_a_correction_names_the_tools_again() -> None:
    said = _how(CorrectionPrompt(Turn.WORK, "t", 1, ("no",), is_claim=True, tools=(FINISH, FAIL)))
    assert "Call one of `mailboxd_finish`, `mailboxd_fail`, once" in said
    assert "submit it again as it is" in said
    assert "type: reply" not in said
