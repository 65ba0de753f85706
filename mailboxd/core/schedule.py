"""Which of the ready tasks start now, and how many calls there is room for. Runs nothing: it returns work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EVERYBODY: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Ready:
    """A task that may start. One whose children do the work occupies nobody."""

    task: str
    executor: str
    by_children: bool


@dataclass(frozen=True, slots=True)
class Room:
    """How many calls may run at once, and what keeps another one from starting."""

    most: int
    """Calls at once, by count."""
    running: tuple[str, ...] = ()
    """The ids of those that run."""
    free_bytes: int | None = None
    """Memory that is left for further calls; None = it is not known, and limits nothing."""
    call_bytes: int = 1
    """What one call takes."""

    @property
    def left(self) -> int:
        """How many more may start now. The first may always: else nothing would ever run on a small machine."""
        left = self.most - len(self.running)
        if self.free_bytes is not None:
            left = min(left, self.free_bytes // self.call_bytes)
        return max(left, 0 if self.running else 1)

    @property
    def in_all(self) -> int:
        """How many there may be, with those that run."""
        return len(self.running) + self.left

    @property
    def is_short(self) -> bool:
        """Whether it is memory, not their number, that keeps the next call from starting."""
        return self.left == 0 and len(self.running) < self.most


def pick(
    ready: Sequence[Ready],
    busy: Mapping[str, int],
    slots: int,
    slots_per_agent: int,
    allowed: Mapping[str, int] = EVERYBODY,
) -> list[str]:
    """The tasks to start, in order: within the limits overall and per agent, one agent after the other in turn.

    `ready` is in order of preference; `busy` counts the calls each agent has under way. `allowed` names the agents that
    may have fewer calls than `slots_per_agent`; what is ordered of one that may have none occupies no slot.
    """
    picked = [item.task for item in ready if item.by_children]
    free = _free(busy, slots, allowed)
    queues: dict[str, list[str]] = {}
    for item in ready:
        if not item.by_children:
            queues.setdefault(item.executor, []).append(item.task)
    room = {agent: allowed.get(agent, slots_per_agent) - busy.get(agent, 0) for agent in queues}
    while free > 0:
        turn = [agent for agent, queue in queues.items() if queue and room[agent] > 0][:free]
        if not turn:
            break
        for agent in turn:
            picked.append(queues[agent].pop(0))
            room[agent] -= 1
            free -= 1
    return picked


def is_full(busy: Mapping[str, int], slots: int, allowed: Mapping[str, int] = EVERYBODY) -> bool:
    """Whether no slot is left; the arguments are those of `pick`."""
    return _free(busy, slots, allowed) <= 0


def _free(busy: Mapping[str, int], slots: int, allowed: Mapping[str, int]) -> int:
    return slots - sum(count for agent, count in busy.items() if allowed.get(agent, 1))
