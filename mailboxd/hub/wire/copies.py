"""Which of two hub processes that run as the same host goes on: one of them is on a copy of the host's directory.

The one that runs goes on, and the one that comes is refused: it asks first, and is answered. One that did not answer,
because it was frozen or cut off, finds that another runs when it is back, and stops. No clock and no server decides.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any


class Rank(IntEnum):
    NEW = 0
    """It has just started."""
    UNSURE = 1
    """It ran alone, and may have missed that another one came."""
    ALONE = 2
    """It has asked, and nobody answered."""


@dataclass(frozen=True, slots=True)
class Running:
    """A hub process of a host."""

    run: str
    """Random, another one each time it starts."""
    rank: Rank
    where: str
    """Machine and directory, for people."""

    def content(self, **more: str) -> dict[str, object]:
        return {**asdict(self), **more}

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Running | None:
        try:
            return cls(str(content["run"]), Rank(content["rank"]), str(content["where"])[:300])
        except (KeyError, ValueError):
            return None


def yields(own: Running, other: Running) -> bool:
    """Whether `own`, which asked, stops because `other` has answered."""
    return (other.rank, other.run) > (own.rank, own.run)
