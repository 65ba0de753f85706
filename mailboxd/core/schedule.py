"""Which of the ready tasks start now. A scheduler that runs nothing: it returns work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ready:
    """A task that may start. One whose children do the work occupies nobody."""

    task: str
    executor: str
    by_children: bool


def pick(ready: Sequence[Ready], busy: Mapping[str, int], slots: int, slots_per_agent: int) -> list[str]:
    """The tasks to start, in order: within the limits overall and per agent, one agent after the other in turn.

    `ready` is in order of preference; `busy` counts the calls each agent has under way.
    """
    picked = [item.task for item in ready if item.by_children]
    free = slots - sum(busy.values())
    queues: dict[str, list[str]] = {}
    for item in ready:
        if not item.by_children:
            queues.setdefault(item.executor, []).append(item.task)
    room = {agent: slots_per_agent - busy.get(agent, 0) for agent in queues}
    while free > 0:
        turn = [agent for agent, queue in queues.items() if queue and room[agent] > 0][:free]
        if not turn:
            break
        for agent in turn:
            picked.append(queues[agent].pop(0))
            room[agent] -= 1
            free -= 1
    return picked
