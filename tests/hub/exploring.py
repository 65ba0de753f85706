"""Explores a protocol of pure functions exhaustively, breadth first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

World = TypeVar("World")
Following = Callable[[World], Iterable[World]]


def explore(
    start: World, steps: Following[World], faults: Following[World], most: int
) -> Mapping[World, Sequence[World]]:
    """Every state that can be reached, with those that reach it without a fault."""
    before: dict[World, list[World]] = {start: []}
    frontier = deque([start])
    while frontier:
        world = frontier.popleft()
        for is_fault, following in ((False, steps(world)), (True, faults(world))):
            for then in following:
                if then not in before:
                    before[then] = []
                    frontier.append(then)
                if not is_fault:
                    before[then].append(world)
        assert len(before) < most, "the scope is too large"
    return before


def arriving(before: Mapping[World, Sequence[World]], is_over: Callable[[World], bool]) -> set[World]:
    """The states from which one that is over can be reached without a further fault."""
    arrives = {world for world in before if is_over(world)}
    frontier = deque(arrives)
    while frontier:
        for earlier in before[frontier.popleft()]:
            if earlier not in arrives:
                arrives.add(earlier)
                frontier.append(earlier)
    return arrives
