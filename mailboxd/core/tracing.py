"""The ids of traces and spans, made from the ids of tasks and attempts: the same for whoever makes them, and whenever.

One trace follows a piece of work from the file that brought it through every child and peer to the answer. Its id is
that of the `traceparent` header which the file carried (W3C Trace Context), else it follows from the root task. What
goes to a peer carries the span of the attempt that waits for it, so the peer's spans hang below it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = "01"


@dataclass(frozen=True, slots=True)
class Parent:
    """What a `traceparent` says: trace and span as lower-case hex, and the flags as they came."""

    trace: str
    span: str
    flags: str = _SAMPLED

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{self.flags}"


def parse(header: str | None) -> Parent | None:
    """What the header says; None for none, and for one that the standard has ignored (all zeros, version ff)."""
    found = _HEADER.fullmatch(header or "")
    if found is None or found[1] == "ff" or not int(found[2], 16) or not int(found[3], 16):
        return None
    return Parent(found[2], found[3], found[4])


def trace_of(root: str, header: str | None) -> str:
    """The trace of the work under the task `root` (its id), whose message carried `header`."""
    said = parse(header)
    return said.trace if said is not None else _digest("trace", root, 32)


def span_of(*names: str) -> str:
    """The span of what these ids name: a task, an attempt, a turn, a message."""
    return _digest("span", "\n".join(names), 16)


def passed_on(root: str, header: str | None, attempt: str) -> str:
    """The `traceparent` of a message that gives the work of an attempt away."""
    said = parse(header)
    return str(Parent(trace_of(root, header), span_of(attempt), said.flags if said is not None else _SAMPLED))


def _digest(kind: str, name: str, length: int) -> str:
    # all zeros is the one value that the standard forbids; a hash that begins with 64 of them will not be met
    return hashlib.sha256(f"mailboxd {kind}\n{name}".encode()).hexdigest()[:length]
