"""JSON schemas, judged in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mailboxd.perform.agents.schema_check import INVALID, INVALID_SCHEMA, VALID, validate

SHAPE = '{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 3}}}'


@pytest.mark.parametrize(
    ("schema", "instance", "status", "says"),
    [
        (SHAPE, '{"n": 5}', VALID, ""),
        (SHAPE, '```json\n{"n": 5}\n```\n', VALID, ""),
        ("true", "1", VALID, ""),
        (SHAPE, '{"n": 1}', INVALID, "$.n: 1 is less than the minimum of 3"),
        (SHAPE, "{}", INVALID, "$: 'n' is a required property"),
        (SHAPE, "no json", INVALID, "it is no JSON"),
        (SHAPE, "[" * 100_000, INVALID, "it is no JSON"),
        ("{", "1", INVALID_SCHEMA, "the schema is none"),
        ('{"type": 7}', "1", INVALID_SCHEMA, "the schema is none"),
        ('{"$ref": "http://localhost:9/x.json"}', "1", INVALID_SCHEMA, "the schema cannot be used"),
        ('{"$ref": "file:///etc/passwd"}', "1", INVALID_SCHEMA, "the schema cannot be used"),
        ('{"$ref": "#"}', "1", INVALID_SCHEMA, "the schema cannot be used"),
        ('{"enum": ["\\u001b[31m\\n"]}', "1", INVALID, "1 is not one of"),
    ],
)
def test_a_schema_fits_or_says_why_not(schema: str, instance: str, status: int, says: str) -> None:
    found, problems = validate(schema, instance)
    assert (found, says in " ".join(problems)) == (status, True), problems
    assert all(line.isprintable() and len(line) <= 400 for line in problems)


def test_it_is_a_program(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"schema": SHAPE, "instance": '{"n": 1}'}))
    argv = [sys.executable, "-I", "-m", "mailboxd.perform.agents.schema_check", str(request)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (INVALID, "$.n: 1 is less than the minimum of 3\n")
