"""Looking at the event log again and again, for `watch`, `history --follow`, `logs --follow` and `send --wait`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mailboxd.cli.text import plain, say, to_json

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.store.report import Report

INTERVAL = 0.25
"""Seconds between two looks: an indexed query for one number, 20 µs."""


def print_event(event: dict[str, Any]) -> None:
    """An event as one line of a history."""
    by = "" if event["actor"] == "mailboxd" else f"  [{event['actor']}]"
    say(f"{event['seq']:>6}  {event['at']}  {plain(event['text'] + by)}")


def never() -> bool:
    return False


def follow(
    session: Session,
    report: Report,
    tell: Callable[[dict[str, Any]], None],
    *,
    after: int,
    task: str | None = None,
    tree: bool = False,
    is_over: Callable[[], bool] = never,
) -> None:
    """Tell every event after number `after` and then each that happens, until Ctrl-C, which is a good end.

    Or until `is_over`: what had happened by then is told.
    """
    try:
        while True:
            over = is_over()
            last = report.last_event()
            if last > after:
                for event in report.events(task, tree=tree, after=after):
                    say(to_json(event, indent=None)) if session.as_json else tell(event)
                    last = max(last, event["seq"])
                after = last
            if over:
                return
            session.pause(INTERVAL)
    except KeyboardInterrupt:
        return
