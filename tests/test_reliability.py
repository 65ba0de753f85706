"""Every failure that the documentation names has its test: the names on the pages are those of tests that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.hostile.catalogue import CASES

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
ROW = re.compile(r"^\| (?!---)(?P<what>.+) \| (?P<shown>[^|]+) \|$", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")


@cache
def names(file: Path) -> list[str]:
    """What a page may say of a file: its tests without `test_`; of the catalogue, its cases."""
    if file.name == "catalogue.py":
        return [case.name for case in CASES]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [name.removeprefix("test_") for name in found if name.startswith("test_")]


def shown(page: str, below: Path, after: str = "") -> list[tuple[str, Path, list[str]]]:
    """Of each row: what it is about, and for every file that it names the names of tests."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows: list[tuple[str, Path, list[str]]] = []
    for row in ROW.finditer(text[text.index(after) :]):
        for word in QUOTED.findall(row["shown"]):
            if word.endswith((".py", "/")):
                place = TESTS.parent / word if word.startswith("tests/") else below / word
                rows.append((row["what"], place, []))
            else:
                rows[-1][2].append(word)
    return rows


FAILURES = [
    *shown("reliability.md", TESTS),
    *shown("failure.md", TESTS / "e2e", after="| what fails | what the daemon does |"),
]


@pytest.mark.parametrize(("what", "file", "tests"), FAILURES, ids=lambda value: str(value)[:40])
def test_the_tests_that_a_page_names_are_there(what: str, file: Path, tests: list[str]) -> None:
    assert file.exists(), f"{what}: there is no {file}"
    for name in tests:
        exact = file.name == "catalogue.py"
        fitting = [found for found in names(file) if found == name or (not exact and found.startswith(name))]
        assert fitting, f"{what}: {file.name} has no test that begins with {name}"


def test_every_row_names_a_test() -> None:
    told = {what for what, _, _ in FAILURES}
    text, _, _ = (DOCS / "reliability.md").read_text(encoding="utf-8").partition("## Larger than a test")
    rows = [row["what"] for row in ROW.finditer(text)]
    headings = [what for what in rows if what.startswith("what happens |")]
    assert len(headings) == 7
    assert [what for what in rows if what not in told and what not in headings] == []
    assert len(rows) - len(headings) > 80
