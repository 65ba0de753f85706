"""Rows of tables, in criteria and in findings."""

from __future__ import annotations

import pytest

from mailboxd.core.specs import criteria
from mailboxd.core.tables import cells, is_rule
from mailboxd.formats.protocol.findings import in_text


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("| a | b |", ["a", "b"]),
        ("a | b", ["a", "b"]),
        ("|a||b|", ["a", "", "b"]),
        (r"| a \| b | c |", ["a | b", "c"]),
        (r"| a | b \|", ["a", "b |"]),
        (r"| a \\| b |", [r"a \\", "b"]),
        (r"| C:\temp | `x \| y` |", [r"C:\temp", "`x | y`"]),
        ("| a |  ", ["a"]),
        ("|", [""]),
        ("", [""]),
    ],
)
def test_a_row_is_divided_at_pipes_that_are_not_escaped(row: str, found: list[str]) -> None:
    assert cells(row) == found


@pytest.mark.parametrize(
    ("row", "expected"),
    [("|---|:-:|", True), ("- | -", True), ("---", False), ("| a | - |", False), ("| | |", False)],
)
def test_the_rule_below_the_names_of_the_columns(row: str, expected: bool) -> None:
    assert is_rule(row) is expected


def test_criteria_and_findings_are_read_from_the_same_rows() -> None:
    table = "| severity | message |\n| --- | --- |\n| major | `a \\| b` is not read |\n| minor | typo |\n"
    problems: list[str] = []
    assert [found.message for found in in_text(table, problems)] == ["`a | b` is not read", "typo"]
    assert criteria("| # | criterion |\n|-|-|\n| 1 | `a \\| b` is read |\n| 2 | fast |") == ("`a | b` is read", "fast")
