"""What a check may name and run: pure rules."""

from __future__ import annotations

import pytest

from mailboxd.core.checks import CheckRules, command_problem, may_not_run, path_problem
from mailboxd.core.model import Check

ALLOWED = (("make", "test"), ("pytest",))


@pytest.mark.parametrize(
    "command", [("make", "test"), ("make", "test", "ARGS=-x"), ("pytest",), ("pytest", "-q", "; rm -rf /")]
)
def test_a_command_that_begins_as_one_that_is_allowed_may_run(command: tuple[str, ...]) -> None:
    assert command_problem(command, ALLOWED) is None


@pytest.mark.parametrize(
    "command",
    [("make",), ("make", "clean"), ("make", "testing"), ("/usr/bin/make", "test"), ("PYTEST",), ("sh", "-c", "pytest")],
)
def test_any_other_may_not(command: tuple[str, ...]) -> None:
    assert "checks.commands" in (command_problem(command, ALLOWED) or "")


def test_by_default_nothing_runs_and_an_empty_rule_allows_nothing() -> None:
    assert command_problem(("make",), ()) is not None
    assert command_problem(("make",), ((),)) is not None
    assert may_not_run(CheckRules(), Check("a", ("make",))) is not None
    assert may_not_run(CheckRules(), Check("a", file="x")) is None


def test_without_the_library_a_schema_is_refused_with_what_to_install() -> None:
    schema = Check("a", schema_text="{}")
    assert may_not_run(CheckRules(), schema) is None
    assert "the extra `checks`" in (may_not_run(CheckRules(has_schemas=False), schema) or "")


@pytest.mark.parametrize("path", ["a", "a/b.md", "..a/b", "a/.mailboxd", "x y/ü.md"])
def test_a_path_below_the_workspace_may_be_named(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    "path",
    ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", ".mailboxd/config.yaml", ".mailboxd", "a\nb", "a\0b", "x" * 1025],
)
def test_any_other_path_may_not(path: str) -> None:
    assert path_problem(path) is not None
