"""What is written of tasks that follow others (`core.following`): names that have not arrived, and waiting in vain."""

from __future__ import annotations

from mailboxd.core.vocabulary import Phase

TOGETHER = 60
"""Seconds for which nobody is asked about what is not known: files may be copied together."""
LOST = frozenset({Phase.FAILED, Phase.CANCELLED})
"""Phases of a task for which those that follow it wait in vain."""
_UNKNOWN = "?"
"""Begins what stands in place of the id of a task that has not arrived; no id begins so."""
IN_VAIN = "it is to follow "


def unknown(name: str) -> str:
    """What stands for the task of this name among the dependencies until it arrives."""
    return _UNKNOWN + name


def name_of_unknown(need: str) -> str:
    """The name of a task that has not arrived, of its dependency; empty for a task that has."""
    return need[1:] if need.startswith(_UNKNOWN) else ""


def is_in_vain(held: str) -> bool:
    """Whether a task is on hold because it waits in vain for what it follows."""
    return held.startswith(IN_VAIN)
