"""Seeded histories of a whole workspace: repetitions, delays, lies, crashes, and every law after every step.

`SEEDS=5000 pytest tests/simulation` plays more of them; `SEED=n` plays one again.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.history import run

SEEDS = int(os.environ.get("SEEDS", "200"))
GROUPS = 8


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_law_holds_in_every_history(group: int) -> None:
    one = os.environ.get("SEED")
    for seed in [int(one)] if one else range(group, SEEDS, GROUPS):
        run(seed)
