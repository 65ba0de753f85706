"""Which of the ready tasks start now, and how many calls there is room for. Runs nothing: it returns work."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

NO_LIMITS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Ready:
    """A task that may start. One whose children do the work occupies nobody."""

    task: str
    executor: str
    by_children: bool
    priority: int = 0
    again: bool = False
    """It had an attempt before: a retry, or rework."""
    after_again: bool = False
    """The latest turn of its executor went to such work."""
    by_person: bool = False
    """It is work of a person, which comes before that of agents at equal priority."""

    @property
    def rank(self) -> tuple[int, bool]:
        """Higher comes first."""
        return self.priority, self.by_person


def raised(priority: int, waited: float, ageing: float) -> int:
    """The priority of a task that has waited for so many seconds: one more for each `ageing` of them; 0 = never."""
    return priority + int(max(waited, 0.0) // ageing) if ageing else priority


@dataclass(slots=True)
class Capacity:
    """How many calls may run at once, and what occupies their slots.

    The daemon computes it once in each round of its loop; whatever picks, marks or begins calls takes slots from it.
    """

    most: int
    """Calls at once, by count."""
    running: tuple[str, ...] = ()
    """The ids of those that run."""
    free_bytes: int | None = None
    """Memory that is left for further calls; None = it is not known, and limits nothing."""
    call_bytes: int = 1
    """Bytes of memory that one call takes."""
    per_agent: int = 1
    """Calls at once of one agent."""
    agents: dict[str, int] = field(default_factory=dict)
    """How many of them each agent has."""
    sessions: set[str] = field(default_factory=set)
    """The sessions in which one runs: there is never a second one."""
    is_shut: bool = False
    """A person has paused everything: no work begins, but what has become of it may be asked."""

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

    def may_begin(self, agent: str = "", session: str = "") -> bool:
        """Whether work may begin in another call, as `has_slot`."""
        return not self.is_shut and self.has_slot(agent, session)

    def has_slot(self, agent: str = "", session: str = "") -> bool:
        """Whether another call may start: of `agent`, or, without one, a question or a message."""
        if (session and session in self.sessions) or (agent and self.agents.get(agent, 0) >= self.per_agent):
            return False
        return self.left > 0

    def take(self, call: str, agent: str = "", session: str = "") -> None:
        """Give a slot to a call that is about to start; a second time it changes nothing."""
        if call in self.running:
            return
        self.running = (*self.running, call)
        self.agents[agent] = self.agents.get(agent, 0) + 1
        self.sessions.add(session)
        if self.free_bytes is not None:
            self.free_bytes = max(self.free_bytes - self.call_bytes, 0)


def overlapping(one: str, other: str) -> bool:
    """Whether some path may match both patterns; a pattern also covers what is below its path. In doubt it may."""
    for first, second in zip(one.split("/"), other.split("/"), strict=False):
        if "**" in (first, second):
            return True
        if not _may_match(first, second):
            return False
    return True


def _may_match(one: str, other: str) -> bool:
    if not (_WILD & {*one}):
        return fnmatchcase(one, other)
    if not (_WILD & {*other}):
        return fnmatchcase(other, one)
    starts = [re.split(r"[*?[]", name, maxsplit=1)[0] for name in (one, other)]
    return starts[0].startswith(starts[1]) or starts[1].startswith(starts[0])


_WILD = frozenset("*?[")


def pick(
    ready: Sequence[Ready],
    busy: Mapping[str, int],
    slots: int,
    slots_per_agent: int,
    allowed: Mapping[str, int] = NO_LIMITS,
) -> list[str]:
    """The tasks to start, in order: within the limits overall and per agent, one agent after the other in turn.

    `ready` is in order of preference, apart from what `interleaved` says of retries; `busy` counts the calls each agent
    has under way. `allowed` names the agents that may have fewer calls than `slots_per_agent`; what is ordered of one
    that may have none occupies no slot.
    """
    picked = [item.task for item in ready if item.by_children]
    free = free_slots(busy, slots, allowed)
    waiting: dict[str, list[Ready]] = {}
    for item in ready:
        if not item.by_children:
            waiting.setdefault(item.executor, []).append(item)
    queues = {agent: deque(interleaved(items)) for agent, items in waiting.items()}
    room = {agent: allowed.get(agent, slots_per_agent) - busy.get(agent, 0) for agent in queues}
    while free > 0:
        turn = [agent for agent, queue in queues.items() if queue and room[agent] > 0][:free]
        if not turn:
            break
        for agent in turn:
            picked.append(queues[agent].popleft().task)
            room[agent] -= 1
            free -= 1
    return picked


def interleaved(waiting: Sequence[Ready]) -> Iterator[Ready]:
    """The queue of one agent, in the order in which it is served: by rank, then new work and retries in turn.

    While new work waits, at most every second turn goes to work of the same rank that had one before. So of one
    rank, new work with n others before it that are new as well starts after at most 2n + 1 other turns, however
    much fails and is tried again. It is the rule by which Postfix's queue manager takes deferred mail.
    """
    new, again = deque[Ready](), deque[Ready]()
    for item in waiting:
        (again if item.again else new).append(item)
    last_was_again = bool(waiting) and waiting[0].after_again
    while new and again:
        first, second = new[0].rank, again[0].rank
        last_was_again = second > first or (second == first and not last_was_again)
        yield (again if last_was_again else new).popleft()
    yield from new or again


def free_slots(busy: Mapping[str, int], slots: int, allowed: Mapping[str, int] = NO_LIMITS) -> int:
    """How many of all slots are left, at most 0 if none is; the arguments are those of `pick`."""
    return slots - sum([count for agent, count in busy.items() if allowed.get(agent, 1)])
