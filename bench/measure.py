"""Statistics of a sample of measurements, and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Median and spread of a sample. `p99` is the nearest rank: the largest value of fewer than a hundred."""

    unit: str
    n: int
    p50: float
    q1: float
    q3: float
    min: float
    max: float
    p99: float

    @staticmethod
    def of(values: Sequence[float], unit: str) -> Stats:
        """Raises ValueError for an empty sample."""
        if not values:
            raise ValueError("nothing was measured")
        ordered = sorted(values)
        quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else [ordered[0]] * 3
        rank = max(-(-len(ordered) * 99 // 100) - 1, 0)
        found = (quartiles[1], quartiles[0], quartiles[2], ordered[0], ordered[-1], ordered[rank])
        return Stats(unit, len(ordered), *(round(value, 6) for value in found))

    def json(self) -> dict[str, object]:
        return asdict(self)


def ratio(value: float, base: float) -> float | None:
    """The ratio to `base`; None if there is nothing to compare with."""
    return round(value / base, 3) if base > 0 else None
