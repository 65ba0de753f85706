"""What a turn cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money one turn cost, as the agent's runtime reported them. None = not reported."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def plus(self, more: Usage) -> Usage:
        """Both together; what neither reported stays unknown."""
        return Usage(
            _sum(self.input_tokens, more.input_tokens),
            _sum(self.output_tokens, more.output_tokens),
            _sum(self.cost_usd, more.cost_usd),
        )


NO_USAGE = Usage()

_Number = TypeVar("_Number", int, float)


def _sum(one: _Number | None, more: _Number | None) -> _Number | None:
    return more if one is None else one if more is None else one + more
