"""tests/reliability.toml lists each failure, its result and the tests that show it: all of those tests exist."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tests.hostile.catalogue import CASES

TESTS = Path(__file__).parent
FAILURES: list[dict[str, Any]] = tomllib.loads((TESTS / "reliability.toml").read_text(encoding="utf-8"))["failure"]


@cache
def names(file: Path) -> list[str]:
    """The tests of a file without `test_`; of the catalogue, its cases."""
    if file.name == "catalogue.py":
        return [case.name for case in CASES]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name.removeprefix("test_") for name in found if name.startswith("test_")]


def known(file: Path, name: str) -> bool:
    """Whether a test of `file` begins with `name`; a case of the catalogue has to be it exactly."""
    exact = file.name == "catalogue.py"
    return any(found == name or (not exact and found.startswith(name)) for found in names(file))


def test_the_tests_that_show_a_failure_exist() -> None:
    assert [failure["what"] for failure in FAILURES if not (failure["then"] and failure["tests"])] == []
    shown = {(path, name) for failure in FAILURES for path, named in failure["tests"].items() for name in named or [""]}
    assert [(path, name) for path, name in sorted(shown) if not known(TESTS / path, name)] == []


def test_every_failure_is_listed_once() -> None:
    listed = [(failure["group"], failure["what"]) for failure in FAILURES]
    assert len(listed) == len(set(listed))
    assert len(listed) > 190
