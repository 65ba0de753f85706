"""Seeded histories of several agents with real daemons: lost, repeated and late messages, crashes, a refusing disk.

`SEEDS=500 pytest tests/simulation` plays more of them; `SEED=n` plays one again, and SHRINK=1 says which of its steps
it takes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.townlife import Broken, run, shortest

FEW = 3
SEEDS = int(os.environ.get("SEEDS", "40"))
ONE = os.environ.get("SEED")
REACHED = {
    *("twice", "later", "refused", "lost", "doubted", "killed", "stopped", "failed", "plan", "question", "crash"),
    *("task accepted", "task duplicate", "reply accepted", "reply duplicate", "reply late"),
    *("question accepted", "answer accepted", "cancel accepted", "progress accepted"),
}
"""What some history must come to, or a green run proves nothing: how calls end, and verdicts on messages."""


@pytest.mark.slow
def test_every_law_holds_in_some_towns() -> None:
    for seed in range(FEW):
        run(seed)


@pytest.mark.slow
def test_every_law_holds_in_every_town_and_everything_is_reached() -> None:
    seeds = [int(ONE)] if ONE else range(SEEDS)
    reached: Counter[str] = Counter()
    for seed in seeds:
        try:
            reached.update(run(seed))
        except Broken as broken:
            if os.environ.get("SHRINK"):
                raise Broken(f"{broken}\nthe steps that it takes: {shortest(seed)}") from broken
            raise
    assert ONE or reached.keys() >= REACHED, f"no town came to {sorted(REACHED - reached.keys())}"


_DIGEST = "from tests.simulation.test_town import digest; print(digest(3))"


def digest(seed: int) -> str:
    """Of everything that happened in a history."""
    happened: list[str] = []
    run(seed, shown=happened)
    return hashlib.sha256("\n".join(happened).encode()).hexdigest()


@pytest.mark.slow
def test_a_seed_plays_the_same_history_in_any_process() -> None:
    """Nothing in it hangs on the order of a set, on the machine's clock or on its chance."""
    root = Path(__file__).resolve().parents[2]
    digests = set()
    for hashing in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashing}
        argv = [sys.executable, "-c", _DIGEST]
        told = subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, check=True)
        digests.add(told.stdout)
    assert len(digests) == 1
