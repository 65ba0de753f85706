"""Planted faults must be noticed, or the laws prove nothing."""

from __future__ import annotations

import pytest

from tests.properties.mutants import MUTANTS, Mutant
from tests.properties.planting import Fault, planted
from tests.simulation.history import run


def test_every_fault_has_its_one_place() -> None:
    """Asked on every run: who moves a module or rewrites a line would else learn of it in the long tests only."""
    for mutant in MUTANTS:
        Fault(mutant.right, mutant.wrong).place()


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_noticed(mutant: Mutant) -> None:
    assert mutant.killer(), f"green although {mutant.name}"


@pytest.mark.slow
def test_a_fault_is_gone_when_it_is_taken_out() -> None:
    with planted(Fault("return failures >= policy.max_attempts", "return failures > 99 + policy.max_attempts")):
        pass
    run(0)
