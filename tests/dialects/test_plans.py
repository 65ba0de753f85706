"""Plans as models write them: each spelling of one plan is that plan, and nothing that restrains it is dropped."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailboxd.core.model import Overrides, Plan, PlannedChild
from mailboxd.errors import MessageError, MessageErrors
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.plan import Dag, Known, parse_dag, parse_plan, render_dag

KNOWN = Known(("alpha", "beta", "gamma"), ("map",), Calendar("2026-11-26T12:00:00.000Z"))


def read(text: str) -> Plan:
    return parse_plan(text, path="answer", known=KNOWN)


def refused(text: str) -> MessageError:
    with pytest.raises(MessageError) as caught:
        read(text)
    return caught.value


ONE_PLAN = (
    PlannedChild("seed", ("beta",), "Order the seed"),
    PlannedChild("sow", ("self",), "Sow it", ("seed",)),
)
SPELLINGS = {
    "ours": "subtasks:\n  seed: {agent: beta, description: Order the seed}\n"
    "  sow: {agent: self, description: Sow it, depends_on: [seed]}\n",
    "a list": "subtasks:\n- id: seed\n  agent: beta\n  description: Order the seed\n"
    "- id: sow\n  description: Sow it\n  depends_on: seed\n",
    "a list of tasks with keys": "tasks:\n- key: seed\n  assigned_to: '@Beta'\n  title: Order the seed\n"
    "- key: sow\n  task: Sow it\n  blockedBy: [Seed]\n",
    "a list alone": "- {id: seed, agent: beta, description: Order the seed}\n- {id: sow, task: Sow it, after: seed}\n",
    "the edge from the other side": "subtasks:\n  seed: {owner: beta, description: Order the seed, blocks: sow}\n"
    "  sow: {description: Sow it}\n",
    "titles as references": "Sub-Tasks:\n- {id: seed, Assignee: BETA, title: Order the seed}\n"
    "- {id: sow, title: Sow it, Depends-On: ['order the seed']}\n",
    "needs as a list": "subtasks:\n  seed: {agent: beta, description: Order the seed, needs: []}\n"
    "  sow: {agent: alpha, description: Sow it, needs: [seed]}\n".replace("alpha", "self"),
    "no edge in words": "subtasks:\n  seed: {agent: beta, description: Order the seed, depends_on: none}\n"
    "  sow: {description: Sow it, depends_on: seed, blocks: '-'}\n",
    "in a plan": "plan:\n  goal: A meadow\n  tasks:\n  - {id: seed, who: beta, summary: Order the seed}\n"
    "  - {id: sow, agent: null, summary: Sow it, prerequisites: [seed]}\n",
    "in a dag": "dag:\n  seed: {executor: beta, description: Order the seed}\n"
    "  sow: {description: Sow it, requires: seed, status: ""}\n",
    "JSON": json.dumps({"type": "plan", "subtasks": [
        {"id": "seed", "assignees": ["beta"], "description": "Order the seed", "dependsOn": []},
        {"id": "sow", "description": "Sow it", "dependsOn": ["seed"]}]}, indent="\t"),
    "hard spaces": "subtasks:\n  seed:\n    agent:\u00a0beta\n    description:\u00a0Order the seed\n"
    "  sow:\n\u00a0\u00a0\u00a0\u00a0description: Sow it\n    depends_on: [seed]\n",
    "typographic quotes": "subtasks:\n  seed:\n    agent: “beta”\n    description: “Order the seed”\n"
    "  sow: {description: “Sow it”, depends_on: [“seed”]}\n",
}  # fmt: skip


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_of_one_plan_is_that_plan_and_is_written_in_ours(text: str) -> None:
    plan = read(text)
    assert plan.children == ONE_PLAN
    assert not plan.doubts
    ours = SPELLINGS["ours"]
    assert render_dag(parse_dag(text.replace("@Beta", "beta").replace("BETA", "beta"), path="p")) == render_dag(
        parse_dag(ours, path="p")
    )


@pytest.mark.parametrize("word", ["title", "name", "task"])
def test_one_word_is_a_name_and_says_what_is_to_be_done_if_nothing_else_does(word: str) -> None:
    alone, described = read(f"- {word}: dig\n- {{{word}: sow, description: Sow the beans}}\n").children
    assert (alone.key, alone.description, alone.instructions) == ("dig", "dig", "")
    assert (described.key, described.description, described.instructions) == ("sow", "Sow the beans", "")


TWO = "subtasks:\n  a: {{agent: beta, description: d, {}}}\n  b: {{agent: gamma, description: e, {}}}\n"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("timeout: 30 min", {"timeout": 1800}),
        ("timeout: 1h 30m", {"timeout": 5400}),
        ("timeLimit: 90", {"timeout": 90}),
        ("budget: $5", {"budget_usd": 5.0}),
        ("budget: 20k tokens", {"budget_tokens": 20_000}),
        ("budget_usd: 2.50 dollars", {"budget_usd": 2.5}),
        ("max_tokens: 5000", {"budget_tokens": 5000}),
        ("max_attempts: 2 times", {"max_attempts": 2}),
        ("due: 2026-12-01 17:00 Europe/Berlin", {"deadline": "2026-12-01T16:00:00.000Z"}),
        ("deadline: in 2 hours", {"deadline": "2026-11-26T14:00:00.000Z"}),
        ("priority: -3", {"priority": -3}),
        ("tags: [print, door]", {"labels": ("print", "door")}),
    ],
)
def test_limits_are_read_with_their_units(said: str, meant: dict[str, object]) -> None:
    assert read(TWO.format(said, "depends_on: a")).children[0].overrides == Overrides(**meant)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "rule", "part"),
    [
        ("budget: 50", "wrong-type", "dollars or tokens"),
        ("budget: 50 euros", "wrong-type", "`budget_usd: 50`"),
        ("budget_usd: 5 euros", "wrong-type", "not an amount"),
        ("deadline: end of week", "bad-time", "not a definite time"),
        ("deadline: 01/02/2027", "bad-time", "1 February or 2 January"),
        ("timeout: soon", "wrong-type", "not a number"),
        ("timeout: 5 moons", "wrong-type", "not a number"),
        ("priority: very", "wrong-type", "not a number"),
        ("depends_on: [c]", "unknown-dependency", "The subtasks are: a, b, map."),
        ("depends_on: [b, bb]", "unknown-dependency", "'bb'"),
        ("blocks: map", "unknown-dependency", "map"),
        ("depnds_on: b", "unknown-field", "Did you mean depends_on?"),
        ("аgent: beta", "unknown-field", "Did you mean agent?"),
        ("requires_approval: true", "unknown-field", "planned_actions"),
        ("approved: true", "unknown-field", "Only a person approves"),
        ("budgt_usd: 3", "unknown-field", "Did you mean budget_usd?"),
        ("gate: quality", "unknown-field", "gates"),
        ("max_cost: 3", "wrong-type", "`budget_usd: 3`"),
        ("cost ceiling limit: 3", "unknown-field", "`budget_usd: 3`"),
        ("Frist: 2026-12-03", "unknown-field", "`deadline: 2026-12-03`"),
        ("срок: завтра", "unknown-field", "`deadline: 2026-12-03`"),
        ("负责人: beta", "unknown-field", "`agent: beta`"),
        ("dépend de: a", "unknown-field", "`depends_on: a`"),
        ("Freigabe: Mira", "unknown-field", "planned_actions"),
        ("colour: red", "unknown-field", "Known keys"),
        ("status: done", "wrong-type", "contains only what is left to do"),
        ("status: completed", "wrong-type", "contains only what is left to do"),
        ("status: in_progress", "wrong-type", "nobody has begun"),
        ("assignee: beta", "duplicate-key", "agent"),
        ("steps: [{agent: beta, description: x}]", "wrong-type", "not a sentence"),
        ("answers: [yes]", "wrong-type", "answers: [yes, no]"),
    ],
)
def test_what_restrains_and_cannot_be_read_is_never_dropped(said: str, rule: str, part: str) -> None:
    error = refused(TWO.format(said, ""))
    assert error.rule == rule
    assert error.line == 2
    assert part in str(error)


def test_an_agent_that_does_not_exist_is_never_taken_for_a_similar_one() -> None:
    error = refused("subtasks:\n  a: {agent: bet, description: d}\n")
    assert error.rule == "unknown-agent"
    assert "Did you mean beta?" in error.hint
    assert "alpha, beta, gamma" in error.hint


@pytest.mark.parametrize("said", ["reviewers: [bet]", "reviewer: bet", "reviewers: beta, bet", "reviewers: ['@bet']"])
def test_a_reviewer_that_does_not_exist_is_refused_as_an_agent_is(said: str) -> None:
    error = refused(f"subtasks:\n- id: a\n  description: d\n  {said}\n")
    assert (error.rule, error.line) == ("unknown-agent", 4)
    assert "Did you mean beta?" in error.hint


@pytest.mark.parametrize(
    ("said", "names"), [("[Beta, gamma]", ("beta", "gamma")), ("'@beta'", ("beta",)), ("operator", ("operator",))]
)
def test_reviewers_are_named_as_agents_are_and_may_be_persons(said: str, names: tuple[str, ...]) -> None:
    plan = read(f"subtasks: [{{id: a, description: d, reviewers: {said}}}]")
    assert plan.children[0].overrides.reviewers == names


def test_a_circle_is_named_with_its_path() -> None:
    error = refused(TWO.format("depends_on: b", "depends_on: a"))
    assert (error.rule, "a -> b" in error.problem or "b -> a" in error.problem) == ("cycle", True)


def test_a_plan_may_need_a_subtask_that_is_there_already() -> None:
    assert read("subtasks: [{id: a, description: d, after: Map}]").children[0].depends_on == ("map",)


def test_all_errors_are_given_at_once_in_the_order_of_their_lines() -> None:
    text = "subtasks:\n- id: a\n  agent: omega\n  budget: 5\n- id: b\n  description: e\n  after: c\n  tomeout: 3\n"
    error = refused(text)
    assert isinstance(error, MessageErrors)
    assert [(one.line, one.rule) for one in error.all] == [
        (3, "unknown-agent"), (4, "wrong-type"), (7, "unknown-dependency"), (8, "unknown-field"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "```yaml\nsubtasks:\n  a: {description: d}\n",
        '{"subtasks": [{"id": "a", "description": "d"}',
        "subtasks:\n  a:\n    description: d\n    age",
        'subtasks:\n  a:\n    description: "d\n',
    ],
)
def test_a_cut_plan_is_never_completed(text: str) -> None:
    refused(text)


def test_words_for_priorities_keep_their_order_and_idle_keys_are_kept_with_a_doubt() -> None:
    plan = read(TWO.format("priority: high, estimate: 30m", "priority: P3, status: todo"))
    assert [child.overrides.priority for child in plan.children] == [0, -20]
    assert plan.children[0].extra == (("x-estimate", '"30m"'),)
    assert plan.doubts == (
        "only the order of the priorities was kept: high as 0, P3 as -20", "estimate, status have no effect here"
    )  # fmt: skip


def test_titles_and_steps_are_what_a_child_is_told() -> None:
    (child,) = read(
        "subtasks:\n- title: Count the plants\n  description: In every bed.\n  steps:\n  - Walk: slowly\n  - Write\n"
    ).children
    assert (child.key, child.description) == ("count-the-plants", "Count the plants")
    assert child.instructions == "In every bed.\n\n- Walk: slowly\n- Write"


def test_a_colon_in_a_description_is_text_and_a_block_of_text_stays_as_it_is() -> None:
    text = "subtasks:\n  a:\n    description: Ask: who?\n    instructions: |\n"
    text += "      description: a: b\n      title:\u00a0x: y\n"
    (child,) = read(text).children
    assert child.description == "Ask: who?"
    assert child.instructions == "description: a: b\ntitle:\u00a0x: y\n"


def test_in_a_file_an_unknown_key_is_kept_with_a_doubt_unless_it_may_restrain() -> None:
    text = "subtasks:\n  a: {agent: x, description: d, colour: red, status: todo}\n"
    dag = parse_dag(text, path="task.md", is_file=True)
    assert dag.nodes[0].planned.extra == (("x-colour", "red"),)
    assert dag.nodes[0].status == "pending"
    assert dag.doubts == ("colour has no effect here",)
    with pytest.raises(MessageError, match="needs_approval"):
        parse_dag(text.replace("colour", "needs_approval"), path="task.md", is_file=True)


def test_nested_subtasks_are_read_in_any_spelling_too() -> None:
    text = "tasks:\n- id: a\n  title: A\n- id: b\n  title: B\n  children:\n  - {id: c, title: C, after: A}\n"
    assert read(text).children[1].children == (PlannedChild("c", ("self",), "C", ("a",)),)


KEYS = st.sampled_from(["seed", "sow", "mow", "hay"])


@st.composite
def plans(draw: st.DrawFn) -> tuple[PlannedChild, ...]:
    keys = draw(st.lists(KEYS, min_size=1, unique=True))
    return tuple(
        PlannedChild(
            key,
            (draw(st.sampled_from(["beta", "gamma", "self"])),),
            f"Do {key}",
            tuple(draw(st.lists(st.sampled_from(keys[:n]), unique=True)) if n else ()),
            overrides=Overrides(timeout=draw(st.none() | st.integers(1, 9000))),
        )
        for n, key in enumerate(keys)
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(plans(), st.data())
def test_a_plan_in_other_words_is_the_same_plan_and_a_corrupted_one_is_refused(
    children: tuple[PlannedChild, ...], data: st.DataObject
) -> None:
    agent, after, limit = (
        data.draw(st.sampled_from(words))
        for words in (
            ("agent", "Assignee", "assigned_to", "owner"),
            ("depends_on", "dependsOn", "blocked-by", "after"),
            ("timeout", "time_limit", "Timeout"),
        )
    )
    entries = []
    for child in children:
        entry: dict[str, object] = {"id": child.key, "title": child.description, agent: child.agents[0].upper()}
        entry |= {after: list(child.depends_on)} if child.depends_on else {}
        entry |= {limit: f"{child.overrides.timeout} s"} if child.overrides.timeout else {}
        entries.append(entry)
    assert read(json.dumps({"subtasks": entries})).children == children
    assert (
        parse_plan(render_dag(Dag(())).replace("{}", json.dumps(entries)), path="p", known=KNOWN).children == children
    )
    broken = data.draw(st.sampled_from(entries))
    what = data.draw(st.sampled_from(("agent", "edge", "limit", "key")))
    corrupted: dict[str, dict[str, object]] = {
        "agent": {agent: "omega"},
        "edge": {after: ["nothing"]},
        "limit": {limit: "a while"},
        "key": {data.draw(st.sampled_from(("dpends_on", "budget_ud", "reviewer_s", "dedline"))): "x"},
    }
    broken |= corrupted[what]
    refused(json.dumps({"subtasks": entries}))


@pytest.mark.slow
def test_a_large_plan_in_other_words_is_read_in_linear_time() -> None:
    import time

    def seconds(count: int) -> float:
        entries = [{"id": f"t{i}", "title": f"Part {i}", "assignee": "@BETA", "after": [f"Part {i - 1}"] if i else []}
                   for i in range(count)]  # fmt: skip
        text = json.dumps({"tasks": entries})
        started = time.process_time()
        assert len(read(text).children) == count
        return time.process_time() - started

    seconds(100)
    assert seconds(10_000) < 6 * max(seconds(2500), 0.05) + 1


def test_the_plan_is_what_it_is_with_its_doubts_apart() -> None:
    plan = read(TWO.format("estimate: 5", ""))
    assert replace(plan, doubts=()) != plan
    assert plan.doubts == ("estimate has no effect here",)
