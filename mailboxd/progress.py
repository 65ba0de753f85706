"""How those who wait are told how far something is: a function that the work calls; by default it says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is (0 = not known)."""

T = TypeVar("T")


def silent(_what: str, _done: int, _all: int) -> None:
    """Nobody looks on."""


def stepwise(items: Iterable[T], what: str, total: int, progress: Progress) -> Iterator[T]:
    """The items as they are; `progress` hears of the beginning, of each one that is done, and of the end."""
    done = 0
    progress(what, 0, total)
    for item in items:
        yield item
        done += 1
        progress(what, done, total)
    progress(what, done, done)
