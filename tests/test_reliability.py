"""tests/reliability.toml lists each failure, its result and the tests that show it: all of those tests exist."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.catalogue import CASES

TESTS = Path(__file__).parent
FAILURES: list[dict[str, Any]] = tomllib.loads((TESTS / "reliability.toml").read_text(encoding="utf-8"))["failure"]


@cache
def names(file: Path) -> list[str]:
    """The tests of a file without `test_`; of the catalogue, its cases."""
    if file.name == "catalogue.py":
        return [case.name for case in CASES]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [name.removeprefix("test_") for name in found if name.startswith("test_")]


def known(file: Path, name: str) -> bool:
    """Whether a test of `file` begins with `name`; a case of the catalogue has to be it exactly."""
    exact = file.name == "catalogue.py"
    return any(found == name or (not exact and found.startswith(name)) for found in names(file))


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure["what"][:40])
def test_the_tests_that_show_a_failure_exist(failure: dict[str, Any]) -> None:
    assert failure["then"]
    assert failure["tests"]
    for path, wanted in failure["tests"].items():
        assert (TESTS / path).exists(), path
        assert [name for name in wanted if not known(TESTS / path, name)] == [], path


def test_every_failure_is_listed_once() -> None:
    listed = [(failure["group"], failure["what"]) for failure in FAILURES]
    assert len(listed) == len(set(listed))
    assert len(listed) > 190
