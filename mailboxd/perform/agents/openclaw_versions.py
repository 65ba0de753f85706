"""The features of each supported version of OpenClaw, as measured: the only place that knows one version from another.

A version between two rows offers at least what the older one does. One that is newer than all is used like the newest,
with a warning. All rows have in common: the hook `before_agent_reply`, the ledger (`tasks show`), protocol 4 of the
gateway, and its answer for an idempotency key before it looks at the agent, during a run and for five minutes after
(decision 5; `tests/live/test_core.py` asks each of them).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Offer:
    """The differences between versions."""

    since: Version
    messaging: bool
    """`tools.agentToAgent` is enabled where it is not configured."""
    plugins_reload: bool
    """`openclaw plugins reload`; before, a plugin is loaded reliably only when the gateway starts."""
    turns_per_core: int
    """Concurrent turns of the gateway where `agents.defaults.maxConcurrent` is not configured: at least 8."""
    most_turns: int | None
    """Their maximum."""

    def lane(self, cores: int) -> int:
        """The gateway's concurrent turns by the number of the machine's cores, if not configured."""
        turns = max(8, cores * self.turns_per_core)
        return turns if self.most_turns is None else min(turns, self.most_turns)


TABLE = (
    Offer((2026, 8, 1), messaging=False, plugins_reload=False, turns_per_core=1, most_turns=16),
    Offer((2026, 9, 2), messaging=True, plugins_reload=False, turns_per_core=1, most_turns=16),
    Offer((2026, 9, 6), messaging=True, plugins_reload=True, turns_per_core=4, most_turns=None),
)
OLDEST, NEWEST = TABLE[0].since, TABLE[-1].since


def offer(version: Version | None) -> Offer:
    """The features of a version; an unknown one counts as the newest."""
    return TABLE[max(bisect_right([row.since for row in TABLE], version or NEWEST) - 1, 0)]


def why_too_old(version: Version) -> str:
    """Why this version must not be used; empty if it may be."""
    if version >= OLDEST:
        return ""
    return (
        f"OpenClaw {shown(version)} is too old: when its gateway goes away during a turn, it silently runs the turn "
        f"again. Install {shown(OLDEST)} or newer, or point openclaw.command to another one"
    )


def why_untested(version: Version) -> str:
    """A warning that this version is newer than the tested ones; empty if it is not."""
    if version <= NEWEST:
        return ""
    return f"OpenClaw {shown(version)} is newer than {shown(NEWEST)}, the newest that this mailboxd was tested with"


def shown(version: Version) -> str:
    return ".".join(map(str, version))
