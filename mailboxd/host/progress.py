"""Progress of long work: a function that the work calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and the total (0 = unknown)."""

T = TypeVar("T")


def silent(_what: str, _done: int, _all: int) -> None:
    """Report nothing."""


def stepwise(items: Iterable[T], what: str, total: int, progress: Progress) -> Iterator[T]:
    """Yield the items; report the beginning, each completed item, and the end."""
    return iter(items) if progress is silent else _reported(items, what, total, progress)


def _reported(items: Iterable[T], what: str, total: int, progress: Progress) -> Iterator[T]:
    done = 0
    progress(what, 0, total)
    for item in items:
        yield item
        done += 1
        progress(what, done, total)
    progress(what, done, done)
