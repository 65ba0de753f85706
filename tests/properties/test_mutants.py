"""Planted faults must be noticed, or the laws prove nothing."""

from __future__ import annotations

import ast

import pytest

from tests.properties.mutants import MUTANTS, Mutant
from tests.properties.planting import Fault, planted
from tests.simulation.history import run


def test_every_fault_has_its_one_place() -> None:
    """Asked on every run: who renames a function or says it in other words would else learn of it in the long tests."""
    for mutant in MUTANTS:
        mutant.fault.place()


def test_how_a_line_is_laid_out_is_no_part_of_a_fault() -> None:
    """Moved to another module, broken into two lines, with other quotes: it is the same expression in the function."""
    as_it_stands = "def late(due, now):\n    return due is not None and due <= now\n"
    laid_out = "def other():\n    return due <= now\n\ndef late(due, now):\n    # a comment\n    return (\n" + (
        "        due is not None\n        and due\n        <= now\n    )\n"
    )
    fault = Fault("late", "due <= now", "due < now")
    for source in (as_it_stands, laid_out):
        (wrong,) = fault.versions(source)
        assert ast.unparse(wrong).endswith("return due is not None and due < now")


def test_a_condition_and_a_text_can_be_named_as_well() -> None:
    source = "def f(x, db):\n    if x:\n        x = 1\n    db.execute(f'SELECT {x} WHERE y = 2')\n"
    (wrong,) = Fault("f", "if x: ...", "if not x: ...").versions(source)
    assert ast.unparse(wrong).splitlines()[1:3] == ["    if not x:", "        x = 1"]
    (wrong,) = Fault("f", "y = 2", "y = 3", is_text=True).versions(source)
    assert "WHERE y = 3" in ast.unparse(wrong)
    assert Fault("f", "y == 2", "y").versions(source) == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_noticed(mutant: Mutant) -> None:
    assert mutant.killer(), f"green although {mutant.name}"


@pytest.mark.slow
def test_a_fault_is_gone_when_it_is_taken_out() -> None:
    with planted(Fault("is_exhausted", "failures >= policy.max_attempts", "failures > 99 + policy.max_attempts")):
        pass
    run(0)
