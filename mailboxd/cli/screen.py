"""What `watch` shows at one moment: pure, from what the report says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from mailboxd.cli import branches
from mailboxd.cli.text import fit, plain, width

_EVENTS = 8
"""Lines for events on a screen of 24 rows; a third of a larger one."""
_FIXED = 4
_GRADES = {"green": "green", "amber": "yellow", "red": "red"}


@dataclass(frozen=True, slots=True)
class Moment:
    """How a workspace stands. `trees` as `Report.tree` has them; `events` as `Report.events`, oldest first."""

    now: str
    title: str
    grade: str
    running: bool
    phases: dict[str, int]
    trees: Sequence[dict[str, Any]]
    events: Sequence[dict[str, Any]]


def lines(moment: Moment, room: int, height: int) -> list[str]:
    """The screen: `height` lines (8 or more) of at most `room` columns."""
    events = [_event(event, room) for event in moment.events][-max(_EVENTS, height // 3) :]
    events = events[-max(min(len(events), height - _FIXED - 2), 0) :]
    left = height - _FIXED - len(events)
    trees = _trees(moment, room, left) or [fit("nothing is open; `mailboxd send` gives a task", room)]
    blank = [""] * (left - len(trees))
    return [*_head(moment, room), *trees, *blank, _divider("events", room), *events, _foot(room)]


def _head(moment: Moment, room: int) -> list[str]:
    grade = click.style(moment.grade, fg=_GRADES.get(moment.grade))
    runs = "" if moment.running else ", no daemon"
    clock = f"{moment.now[11:19]}Z"
    title = fit(moment.title, room - width(f"  {moment.grade}{runs}  {clock}"))
    first = f"{title}  {grade}{runs}"
    counted = ", ".join(f"{count} {word}" for word, count in moment.phases.items()) or "no tasks yet"
    return [first + " " * max(room - width(first) - len(clock), 2) + clock, fit(counted, room)]


def _trees(moment: Moment, room: int, most: int) -> list[str]:
    """Each tree gets an equal part of the screen, and what those before it left over."""
    shown: list[str] = []
    for number, tree in enumerate(moment.trees):
        left = most - len(shown)
        others = len(moment.trees) - number
        if left < 2 and others > 1:
            return [*shown, f"… {others} more tasks"][:most]
        shown += branches.some_lines(tree, moment.now, room, max(left // others, 1))
    return shown


def _event(event: dict[str, Any], room: int) -> str:
    return fit(f"{event['at'][11:19]}  {plain(event['text'])}", room)


def _divider(word: str, room: int) -> str:
    return f"── {word} ".ljust(room, "─")


def _foot(room: int) -> str:
    return fit("q ends", room)
