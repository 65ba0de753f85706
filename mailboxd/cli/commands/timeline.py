"""`mailboxd timeline TASK`: when each attempt of a tree was at work."""

from __future__ import annotations

from typing import Any

import click

from mailboxd.cli import gantt
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import columns, say, to_json
from mailboxd.core.times import to_epoch


@verb(
    "timeline",
    "timeline q3-report",
    "timeline q3-report --format svg > q3.svg",
    "timeline q3-report --json",
)
@task_argument()
@click.option(
    "--format", "form", type=click.Choice(["text", "svg", "html"]), default="text", show_default=True,
    help="svg and html need nothing else.",
)  # fmt: skip
def command(session: Session, task: str, form: str) -> None:
    """Show when TASK and each task below it was open, and when its attempts were at work, on a line of time."""
    from mailboxd.store.course import course

    with session.report() as report:
        found = course(report, report.find(task))
    now = session.clock.now()
    if session.as_json:
        say(to_json(found))
    elif form == "text":
        for line in gantt.lines(found, now, columns()):
            say(line)
    else:
        from mailboxd.drawing.marks import document

        drawn = _svg(found, now)
        say(drawn if form == "svg" else document(found["task"], drawn), newline=form == "svg")


def _svg(found: dict[str, Any], now: str) -> str:
    from mailboxd.drawing.gantt import Bar, gantt_svg

    bars = [
        Bar(
            row["task"],
            to_epoch(attempt["started_at"]),
            to_epoch(attempt["finished_at"]) if attempt["finished_at"] else None,
            attempt["status"],
            f"attempt {attempt['ordinal']} by {attempt['agent']}"
            + (f": {attempt['error']}" if attempt["error"] else ""),
        )
        for row in found["rows"]
        for attempt in row["attempts"]
    ]
    return gantt_svg(bars, to_epoch(found["ended"] or now), f"Attempts of {found['task']}")
