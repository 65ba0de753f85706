"""Seeded histories of a whole workspace: repetitions, delays, lies, crashes, and every law after every step.

`SEEDS=5000 pytest tests/simulation` plays more of them; `SEED=n` plays one again.
"""

from __future__ import annotations

import os

import pytest

from mailboxd.core.lifecycle import TRANSITIONS
from mailboxd.core.types import Phase
from tests.simulation.history import run

SEEDS = int(os.environ.get("SEEDS", "200"))
ONE = os.environ.get("SEED")
GROUPS = 2
APPROVALS = {Phase.AWAITING_APPROVAL, Phase.READY_TO_RESUME}
"""What leaves these phases is the gates' part; here they are a place to rest."""


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_law_holds_in_every_history(group: int) -> None:
    seeds = [int(ONE)] if ONE else list(range(group, SEEDS, GROUPS))
    taken = set().union(*(run(seed) for seed in seeds))
    if len(seeds) >= 100:
        # a green simulation that never got there proves nothing
        rows = {(phase.value, trigger.value) for phase, trigger in TRANSITIONS if phase not in APPROVALS}
        assert rows <= taken, f"no history took {sorted(rows - taken)}"
