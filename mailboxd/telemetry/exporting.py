"""Handing spans over, in order, and remembering how far: at least once, and the same spans when it is more often."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from mailboxd.store import measuring
from mailboxd.store.report import Report, opened
from mailboxd.telemetry.otlp import Target
from mailboxd.telemetry.spans import KINDS, Span, spans
from mailboxd.workspace.files import directory, open_regular, read_up_to, replace, world_errors
from mailboxd.workspace.layout import STATE, Workspace

CURSOR = "traces.json"
"""In `.mailboxd/`: up to which event spans were taken by which receiver."""
MOST = 500
"""Events whose spans go into one sending."""
_LARGEST = 65_536


@dataclass(frozen=True, slots=True)
class Sent:
    """What one look handed over."""

    seq: int
    spans: int
    more: bool


def batches(report: Report, after: int, wanted: Callable[[str], bool]) -> Iterator[tuple[int, list[Span]]]:
    """The spans of the tasks that are `wanted` (ids), from the event after `after`; each batch with its last event."""
    while events := list(measuring.happened(report, after, KINDS, MOST)):
        after = events[-1].seq
        chosen = [event for event in events if event.task is not None and wanted(event.task)]
        yield after, [span for event in chosen for span in spans(report, event)]


def go_on(ws: Workspace, address: str, target: Target) -> Sent:
    """Hand over the next spans, and remember that once they were taken.

    Raises UnavailableError when they were not taken or there is no database, WorldError.
    """
    before = remembered(ws, address)
    with opened(ws.database) as report:
        if before > report.last_event():
            before = 0  # the database was made again: its events have other numbers
        found = next(batches(report, before, lambda _task: True), None)
    if found is None:
        return Sent(before, 0, more=False)
    seq, ended = found
    if ended:
        target.send(ended)
    remember(ws, address, seq)
    return Sent(seq, len(ended), more=True)


def remembered(ws: Workspace, address: str) -> int:
    """Up to which event the receiver has the spans; 0 for another receiver, and for a note that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError), directory(ws.root, STATE) as state:
        fd = open_regular(state, CURSOR)
        if fd is None:
            return 0
        try:
            said = json.loads(read_up_to(fd, _LARGEST))
        finally:
            os.close(fd)
        return int(said["seq"]) if said["endpoint"] == address else 0
    return 0


def remember(ws: Workspace, address: str, seq: int) -> None:
    """Note that the receiver has the spans up to this event. Raises WorldError."""
    raw = json.dumps({"endpoint": address, "seq": seq}).encode() + b"\n"
    with world_errors(f"write {ws.state / CURSOR}"), directory(ws.root, STATE) as state:
        replace(state, CURSOR, raw, lambda: True)
