"""`mailboxd logs`: the latest events as lines of a log."""

from __future__ import annotations

from typing import Any

import click

from mailboxd.cli.following import follow
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json


@verb("logs", "logs", "logs -f", "logs -n 100 --json")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on with what happens from now; Ctrl-C ends it.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="How many to begin with."
)
def command(session: Session, following: bool, lines: int) -> None:
    """Show the latest events of all tasks; with --json one object per line.

    This reads the database, so it works wherever the daemon's own log goes.
    """
    with session.report() as report:
        after = max(report.last_event() - lines, 0)
        if following:
            follow(session, report, _print, after=after)
            return
        for event in report.events(after=after):
            say(to_json(event, indent=None)) if session.as_json else _print(event)


def _print(event: dict[str, Any]) -> None:
    say(f"{event['at']} {event['kind']}: {plain(event['text'])}")
