"""Which agents OpenClaw lets send work to each other."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Messaging:
    """OpenClaw's `tools.agentToAgent`. Empty `patterns` match all agents."""

    enabled: bool
    patterns: tuple[str, ...]

    def permits(self, requester: str, target: str) -> bool:
        """Whether one may send work to the other: both must match; an agent may always send to itself."""
        if requester.lower() == target.lower():
            return True
        return self.enabled and self._matches(requester) and self._matches(target)

    def _matches(self, agent: str) -> bool:
        return not self.patterns or any(_glob(pattern, agent) for pattern in self.patterns)


def _glob(pattern: str, agent: str) -> bool:
    parts = [re.escape(part) for part in pattern.lower().split("*")]
    return bool(pattern) and re.fullmatch(".*".join(parts), agent.lower()) is not None
