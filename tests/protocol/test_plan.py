from __future__ import annotations

import contextlib
import time
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.model import Overrides, PlannedChild
from mailboxd.core.vocabulary import Gate, Join, Runtime, Synthesis
from mailboxd.errors import MessageError, MessageErrors
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.plan import Dag, DagNode, Known, parse_dag, parse_plan, render_dag
from mailboxd.formats.protocol.strict_yaml import block, flow, scalar
from tests.protocol.plan_strategies import children, dags, lines_of_text, storable

FULL = """\
subtasks:
  research:
    agent: scout
    description: Find the sources
    max_attempts: 1
    gates: spec_gate, quality_gate
    idempotent: true
    deadline: 2026-11-21T02:07:53+01:00
    budget_usd: 2.50
    x-colour: [red, {shade: dark}]
    status: done
    dispatched_at: 2026-11-21T02:07:53Z
    result_summary: "Found: three"
  votes:
    agent: [a, b, c]
    description: Count
    depends_on: research, 007
    join: majority
    runtime: acp
    harness: coder
    instructions: |
      Two
      lines
    expected_output: A number
  007:
    description: A plan inside the plan
    subtasks:
      inner: {agent: self, description: d}
synthesis: concat
"""


def error_of(text: str, first_line: int = 1) -> MessageError:
    with pytest.raises(MessageError) as caught:
        parse_plan(text, path="plan.md", first_line=first_line)
    assert caught.value.path == "plan.md"
    return caught.value


def test_every_field_of_a_child_is_read() -> None:
    plan = parse_dag(FULL, path="plan.md").plan
    assert plan.synthesis == Synthesis.CONCAT
    research, votes, nested = plan.children
    assert research == PlannedChild(
        key="research",
        agents=("scout",),
        description="Find the sources",
        overrides=Overrides(
            max_attempts=1,
            gates=frozenset({Gate.SPEC_GATE, Gate.QUALITY_GATE}),
            idempotent=True,
            deadline="2026-11-21T01:07:53.000Z",
            budget_usd=2.5,
        ),
        extra=(("x-colour", "[red, {shade: dark}]"),),
    )
    assert votes.agents == ("a", "b", "c")
    assert votes.depends_on == ("research", "007")
    assert votes.overrides.join is Join.MAJORITY
    assert (votes.overrides.runtime, votes.overrides.harness) == (Runtime.ACP, "coder")
    assert votes.instructions == "Two\nlines\n"
    assert nested.key == "007"
    assert nested.agents == ("self",)
    assert nested.children == (PlannedChild("inner", ("self",), "d"),)


def test_the_progress_in_a_dag_is_no_part_of_the_plan() -> None:
    dag = parse_dag(FULL, path="plan.md")
    assert dag.plan == parse_plan(FULL.replace("    status: done\n", ""), path="plan.md")
    assert dag.nodes[0].status == "done"
    assert dag.nodes[0].result_summary == "Found: three"
    assert dag.nodes[1].status == ""


@pytest.mark.parametrize(
    "text",
    [
        "subtasks:\n  a: {agent: x, description: d}\n",
        "```yaml\nsubtasks:\n  a: {agent: x, description: d}\n```",
        "\n~~~~ yml\nsubtasks:\n  a: {agent: x, description: d}\n~~~~\n",
        "Here is my plan:\n\n```\nsubtasks:\n  a: {agent: x, description: d}\n```\nThat is all.",
        "{subtasks: {a: {agent: x, description: d}}}",
    ],
)
def test_a_plan_is_bare_or_in_one_fenced_block(text: str) -> None:
    assert parse_plan(text, path="p").children == (PlannedChild("a", ("x",), "d"),)


def test_a_fence_inside_a_bare_plan_belongs_to_its_text() -> None:
    text = "subtasks:\n  a:\n    agent: x\n    description: d\n    instructions: |\n      ```\n      code\n      ```\n"
    assert parse_plan(text, path="p").children[0].instructions == "```\ncode\n```\n"


def test_ids_that_yaml_would_type_are_the_strings_that_stand_there() -> None:
    keys = ("1e3", "007", "no", "2026-01-01", "0x1F", "null")
    text = "subtasks:\n" + "".join(f"  {key}: {{agent: {key}, description: on}}\n" for key in keys if key != "null")
    plan = parse_plan(text, path="p")
    assert [child.key for child in plan.children] == list(keys[:-1])
    assert [child.agents for child in plan.children] == [(key,) for key in keys[:-1]]


def test_a_child_without_a_description_is_described_by_its_instructions() -> None:
    text = "subtasks:\n  a:\n    agent: x\n    instructions: |\n      First line\n      Second\n"
    assert parse_plan(text, path="p").children[0].description == "First line"


@pytest.mark.parametrize(
    ("text", "rule", "line", "field"),
    [
        ("", "missing-field", 5, None),
        ("- a\n- b\n", "wrong-type", 5, None),
        ("synthesis: agent\n", "missing-field", 5, None),
        ("subtasks: {}\nsytnhesis: agent\n", "unknown-field", 6, "sytnhesis"),
        ("subtasks:\n  a: {}\n", "missing-field", 6, "subtasks.a"),
        ("subtasks:\n  a: text\n", "wrong-type", 6, "subtasks.a"),
        ("subtasks:\n  ../x: {agent: a, description: d}\n", "bad-id", 6, "subtasks.../x"),
        ("subtasks:\n  a:\n    agent: b c\n    description: d\n", "bad-id", 7, "subtasks.a.agent"),
        ("subtasks:\n  a:\n    agent: x\n    description: {d: e}\n", "wrong-type", 8, "subtasks.a.description"),
        ("subtasks:\n  a:\n    agent: x\n    description: d\n    depends_on: {b: c}\n", "wrong-type", 9, None),
        ("subtasks:\n  a:\n    agent: x\n    description: d\n    max_attempts: 0\n", "field-range", 9, None),
        ("subtasks:\n  a:\n    agent: x\n    description: d\n    timeout: " + "9" * 5000, "field-range", 9, None),
        ("subtasks:\n  a:\n    agent: x\n    description: d\n    idempotent: yes\n", "wrong-type", 9, None),
        ("subtasks:\n  a:\n    agent: x\n    description: d\n    deadline: 2026-13-45\n", "bad-time", 9, None),
        ("subtasks:\n  a:\n    agent: x\n    description: d\n    runtime: shell\n", "wrong-type", 9, None),
        ("subtasks:\n  a:\n    agent: x\n    description: d\n    approved: true\n", "unknown-field", 9, None),
        ("subtasks:\n  a: {agent: x, description: d}\n  a: {agent: y, description: d}\n", "duplicate-key", 7, None),
        ("subtasks: &a\n  a: *a\n", "alias", 5, None),
        ("```yaml\nsubtasks: {}\n", "unterminated", 5, "DAG"),
        ("```yaml\nsubtasks: {}\n```\n\n```yaml\nsubtasks: {}\n```\n", "ambiguous-plan", 9, "DAG"),
        ("x" * (4 * 1024 * 1024 + 1), "too-large", 5, None),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line_and_field(
    text: str, rule: str, line: int, field: str | None
) -> None:
    error = error_of(text, first_line=5)
    assert (error.rule, error.line) == (rule, line)
    if field is not None:
        assert error.field == field
    assert len(str(error)) < 2048


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("depend_on: b", "Did you mean depends_on?"),
        ("deps: [b]", "Did you mean depends_on?"),
        ("max_attemps: 3", "Did you mean max_attempts?"),
        ("colour: red", "Known keys: agent, "),
    ],
)
def test_an_unknown_key_of_a_child_is_refused(key: str, hint: str) -> None:
    name = key.partition(":")[0]
    error = error_of(f"subtasks:\n  a:\n    agent: x\n    description: d\n    {key}\n")
    assert (error.rule, error.line, error.field) == ("unknown-field", 5, f"subtasks.a.{name}")
    assert error.hint.startswith(hint)


def test_a_child_has_every_part_of_a_spec() -> None:
    spec = {name: f"the {name}" for name in ("goal", "context", "scope_in", "scope_out", "inputs", "outputs", "risks")}
    lines = "".join(f"    {name}: {text}\n" for name, text in spec.items())
    criteria = "    acceptance_criteria:\n      - one page\n      - in French\n"
    child = parse_plan(f"subtasks:\n  a:\n    agent: x\n{lines}{criteria}", path="p").children[0]
    assert {name: getattr(child, name) for name in spec} == spec
    assert child.acceptance_criteria == ("one page", "in French")
    assert child.description == "the goal"


def test_criteria_may_be_a_text_with_a_list() -> None:
    text = "subtasks:\n  a: {agent: x, description: d, acceptance_criteria: %s}\n"
    for said, wanted in (('"- one\\n- two"', ("one", "two")), ("one page", ("one page",)), ("[]", ())):
        assert parse_plan(text % said, path="p").children[0].acceptance_criteria == wanted


def test_a_child_without_an_agent_is_the_work_of_the_agent_itself() -> None:
    assert parse_plan("subtasks: {a: {description: d}}", path="p").children[0].agents == ("self",)


def test_all_errors_of_a_plan_are_given_at_once_each_with_its_line() -> None:
    text = "subtasks:\n  a: {depends_on: []}\n  b:\n    description: d\n    budgt_usd: 3\n    timeout: soon\n"
    error = error_of(text)
    assert isinstance(error, MessageErrors)
    found = [(one.rule, one.line) for one in error.all]
    assert found == [("missing-field", 2), ("unknown-field", 5), ("wrong-type", 6)]
    for part in ("has no description", "Did you mean budget_usd?", "'soon' is not a number"):
        assert part in str(error)


def test_deep_nesting_is_refused_and_the_process_lives() -> None:
    assert error_of("subtasks: " + "[" * 30_000).rule == "too-deep"
    assert error_of("subtasks: " + "{a: {agent: x, description: d, subtasks: " * 500).rule == "too-deep"


def read_again(children: int) -> float:
    """The CPU time that it takes to read a plan of so many children, in seconds."""
    plan = Dag(tuple(DagNode(PlannedChild(f"child-{i}", ("scout",), f"Part {i}: do it", tuple(
        f"child-{j}" for j in range(max(0, i - 5), i)), "Do\nthis", "A text")) for i in range(children)))  # fmt: skip
    text = render_dag(plan)
    started = time.process_time()
    assert parse_dag(text, path="p") == plan
    return time.process_time() - started


@pytest.mark.slow
def test_a_plan_of_ten_thousand_children_is_read_in_linear_time() -> None:
    assert read_again(10_000) < 20 * min(read_again(1_000) for _ in range(3))


@pytest.mark.slow
@given(dags())
def test_a_rendered_dag_reads_back_the_same(dag: Dag) -> None:
    text = render_dag(dag)
    assert parse_dag(text, path="p") == dag
    assert parse_dag(f"```yaml\n{text}```", path="p") == dag


@pytest.mark.slow
@given(children())
def test_other_yaml_readers_see_the_same_strings(child: PlannedChild) -> None:
    seen = yaml.safe_load(render_dag(Dag((DagNode(child),))))["subtasks"][child.key]
    assert seen["description"] == child.description
    assert seen.get("instructions", "") == child.instructions
    assert seen["depends_on"] == list(child.depends_on)


@given(storable())
def test_any_text_is_a_scalar_on_one_line(text: str) -> None:
    assert "\n" not in scalar(text)
    assert yaml.safe_load(f"k: {scalar(text)}")["k"] == text
    assert yaml.safe_load(f"k: {flow([text, {text: text}])}")["k"] == [text, {text: text}]


@given(lines_of_text())
def test_any_text_is_a_block(text: str) -> None:
    assert yaml.safe_load(f"k:\n  t: {block(text, '    ')}\n  u: v")["k"] == {"t": text, "u": "v"}


@given(st.text() | st.text(alphabet="subtasks:{}[]\n -&*!|>'\"%@`,#?ab", max_size=200))
def test_any_text_is_a_plan_or_a_message_error(text: str) -> None:
    with contextlib.suppress(MessageError):
        parse_plan(text, path="p")


_BERLIN = Calendar("2026-11-28T09:00:00.000Z", ZoneInfo("Europe/Berlin"))


def _times(*moments: str, by_person: bool = True) -> list[str | None]:
    lines = [f"  a{at}:\n    description: Paint\n    not_before: {moment}\n" for at, moment in enumerate(moments)]
    known = Known(calendar=_BERLIN, by_person=by_person)
    plan = parse_plan("subtasks:\n" + "".join(lines), path="DAG", known=known)
    return [child.overrides.not_before for child in plan.children]


def test_a_time_in_the_plan_of_a_person_is_local_with_seconds_and_without() -> None:
    written = ("2026-12-01 17:00", "2026-12-01 17:00:00", "2026-12-01T17:00:00.5", "2026-12-01T16:00:00Z")
    there = ["2026-12-01T16:00:00.000Z"] * 4
    assert _times(*written) == there
    assert _times(written[1], by_person=False) == ["2026-12-01T17:00:00.000Z"]


@pytest.mark.parametrize(("begins", "ends"), [("2026-12-03", "2026-12-02"), ("tomorrow 17:00", "tomorrow 9:00")])
def test_a_subtask_that_is_to_begin_after_its_deadline_is_refused(begins: str, ends: str) -> None:
    inner = f"    description: Paint\n    deadline: {ends}\n    not_before: {begins}\n"
    with pytest.raises(MessageError) as refused:
        parse_plan(f"subtasks:\n  a:\n{inner}", path="DAG", known=Known(calendar=_BERLIN))
    assert (refused.value.rule, refused.value.line, refused.value.field) == (
        "past-deadline",
        5,
        "subtasks.a.not_before",
    )
    assert "CET" in refused.value.problem
