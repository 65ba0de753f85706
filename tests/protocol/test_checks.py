"""The section `## Checks`: what is accepted, what is refused, and round trips."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.model import Check
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.plan import Dag, DagNode, parse_dag, render_dag
from mailboxd.formats.protocol.spec import claimed, parse_checks, render_checks

ALL = """\
- id: tests
  command: [pytest, -q, "007"]
  timeout: 60
  cwd: src
- {id: report, file: out/report.md, min_bytes: 1}
- id: shape
  json_schema: schemas/a.json
- id: inline
  json_schema:
    type: object
    minProperties: 1
    properties: {a: {const: "1"}, b: {enum: [1, true, null, yes, -0.5, 1e3, 007]}}
  of: out/data.json
"""


def test_every_kind_is_read() -> None:
    tests, report, shape, inline = parse_checks(ALL)
    assert tests == Check("tests", ("pytest", "-q", "007"), 60, "src")
    assert report == Check("report", file="out/report.md", min_bytes=1)
    assert shape == Check("shape", schema_file="schemas/a.json")
    assert inline.of == "out/data.json"
    schema = json.loads(inline.schema_text)
    assert schema["minProperties"] == 1
    assert schema["properties"]["a"]["const"] == "1", "what stands in quotes is text"
    assert schema["properties"]["b"]["enum"] == [1, True, None, "yes", -0.5, 1000.0, "007"]


def test_a_fence_around_it_makes_no_difference() -> None:
    assert parse_checks(f"```yaml\n{ALL}```\n") == parse_checks(ALL)


def test_what_is_written_is_read_back() -> None:
    assert parse_checks(render_checks(parse_checks(ALL))) == parse_checks(ALL)


word = st.text(st.characters(codec="utf-8", exclude_characters="\0\x85\u2028\u2029\ufeff\ufffe\uffff"), max_size=20)


@given(st.lists(word, max_size=5))
def test_any_words_of_a_command_are_read_back(words: list[str]) -> None:
    check = Check("a", ("program", *(word for word in words if word.isprintable())))
    assert parse_checks(render_checks((check,))) == (check,)


def test_a_child_of_a_plan_carries_them() -> None:
    yaml = "subtasks:\n  a:\n    agent: self\n    description: d\n    checks:\n" + "".join(
        f"      {line}\n" for line in ALL.splitlines()
    )
    dag = parse_dag(yaml, path="DAG")
    assert dag.nodes[0].planned.checks == parse_checks(ALL)
    assert parse_dag(render_dag(Dag((DagNode(dag.nodes[0].planned),))), path="DAG") == dag


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("- id: a", "bad-check"),
        ("- {id: a, file: x, command: [make]}", "bad-check"),
        ("- {id: a, file: x, timeout: 3}", "bad-check"),
        ("- {id: a, fiel: x}", "bad-check"),
        ("- {id: a, file: x}\n- {id: a, file: y}", "bad-check"),
        ("- {id: ../a, file: x}", "bad-id"),
        ("- {id: a, file: ../x}", "bad-check"),
        ("- {id: a, file: /etc/passwd}", "bad-check"),
        ("- {id: a, file: x//y}", "bad-check"),
        ("- {id: a, file: .mailboxd/mailboxd.db}", "bad-check"),
        ('- {id: a, file: "x\\u202ey"}', "bad-check"),
        ("- {id: a, command: make test}", "bad-check"),
        ("- {id: a, command: []}", "bad-check"),
        ("- {id: a, command: ['']}", "bad-check"),
        ("- {id: a, command: [[make]]}", "wrong-type"),
        ("- {id: a, command: [make], cwd: ..}", "bad-check"),
        ("- {id: a, command: [make], timeout: 0}", "field-range"),
        ("- {id: a, command: [make], timeout: soon}", "wrong-type"),
        ("- {id: a, file: x, min_bytes: -1}", "field-range"),
        ("- {id: a, json_schema: [x]}", "bad-check"),
        ("- {id: a, json_schema: {}, of: ../x}", "bad-check"),
        ("id: a", "wrong-type"),
        ("- id: &a b", "alias"),
        ("- id: a\n  file: x\n" * 21, "field-range"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(text: str, rule: str) -> None:
    with pytest.raises(MessageError) as caught:
        parse_checks(text, path="Checks", first_line=10)
    assert caught.value.rule == rule
    assert (caught.value.line or 0) >= 10


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (ALL, True),
        ("[{id: a, file: x}]", True),
        ("Please check the figures.", False),
        ("- the figures\n- the ids: all of them", False),
        ("", False),
    ],
)
def test_prose_is_no_check(text: str, is_one: bool) -> None:
    assert claimed(text) is is_one
