"""`mailboxd log` and `watch`: events, one sentence each, and a screen in which a person acts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import POLL_INTERVAL, Session, task_argument, verb
from mailboxd.cli.task_output import question_lines
from mailboxd.cli.text import room, say, stamp, to_json
from mailboxd.core.events import Kind
from mailboxd.core.sanitize import beyond_first_line, first_line, for_terminal
from mailboxd.errors import EXIT_NO

if TYPE_CHECKING:
    from mailboxd.core.explain.task_details import EventRow
    from mailboxd.ledger.reports import Report


_MOST = 500
"""Events that are printed unless all are asked for."""
_MOST_DIGITS = 18
"""Of the number of an event, as SQLite holds it."""


@verb(
    "log",
    "log",
    "log q3-report --tree",
    "log --since 1200 --json",
    "log -n 20 --follow",
    "log --kind config.changed",
    exits={EXIT_NO: "--follow: TASK failed or was cancelled"},
    view=True,
)
@task_argument(required=False)
@click.option("--tree", is_flag=True, help="Include the events of all subtasks.")
@click.option(
    "--since", metavar="SEQ", help="Only events after this number; or from 2026-11-21 or 2026-11-21T08:00:00Z on."
)
@click.option(
    "--kind", type=click.Choice([*map(str, Kind)]), metavar="KIND", help="Only events of this kind, as --json names it."
)
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the latest N events.")
@click.option("--all", "everything", is_flag=True, help=f"All events, also of more than {_MOST:,}.")
@click.option("-f", "--follow", "following", is_flag=True, help="Keep printing new events until TASK ends, or Ctrl-C.")
@click.option("-v", "--verbose", is_flag=True, help="Also mention phases that were passed automatically.")
def log_command(
    session: Session, task: str | None, tree: bool, since: str | None, kind: str | None, lines: int | None,
    everything: bool, following: bool, verbose: bool,
) -> int | None:  # fmt: skip
    """Show what happened in one task or in the whole workspace, one event per line.

    Of a long history the latest events are shown, and the others counted; --all and --json print all of it. Reads the
    database, so it does not depend on where the daemon logs. --json prints a list, or one object per line with
    --follow.
    """
    which: dict[str, Any] = {"tree": tree, "kind": None if kind is None else Kind(kind)}
    with session.report() as report:
        wanted = None if task is None else report.find(task)
        after = 0 if since is None else _number_before(report, since)
        if lines is not None:
            after = max(after, report.before_latest(lines, wanted, **which))
        elif not everything and not session.as_json:
            start = max(after, report.before_latest(_MOST, wanted, **which))
            if earlier := report.count_events(after, start, wanted, **which):
                session.tell(f"… {earlier:,} earlier events; --all prints them too")
            after = start
        brief = not verbose and not session.as_json
        if following:
            return _follow(session, report, wanted, after, brief=brief, **which)
        events = report.events(wanted, after=after, brief=brief, **which)
        _print_list(events) if session.as_json else _print_lines(session, events)
    return None


def _number_before(report: Report, since: str) -> int:
    """The number of the last event before those that `since` asks for. Raises Refused."""
    from mailboxd.cli.commands.audit import moment

    if since.isascii() and since.isdecimal() and len(since) <= _MOST_DIGITS:
        return int(since)
    return report.last_event_before(moment(since))


def _print_lines(session: Session, events: Iterable[EventRow]) -> None:
    for event in events:
        by = "" if event["actor"] == "mailboxd" else f"  [{event['actor']}]"
        say(f"{event['seq']:>6}  {stamp(event['at'])}  {for_terminal(event['text'] + by)}")
        if event["kind"] == "answer.unclear":
            for problem in event["data"]["problems"][1:]:
                say(f"{' ' * 10}{for_terminal(first_line(problem))}")
        if event["kind"] == "question.asked" and (whole := beyond_first_line(event["data"]["text"])):
            program = session.program(session.workspace())
            for line in question_lines(whole, event["task"] or "", " " * 10, room(), program):
                say(line)


def _print_list(events: Iterable[EventRow]) -> None:
    """Write a JSON array incrementally: a history may not fit in memory."""
    opening = "["
    for event in events:
        say(f"{opening}{to_json(event, indent=None)}", newline=False)
        opening = ",\n "
    say("[]" if opening == "[" else "]")


def _follow(session: Session, report: Report, task: str | None, after: int, **which: Any) -> int | None:
    """Print every event after number `after`, then each new one, until Ctrl-C or the end of the task."""
    try:
        while True:
            phase = "" if task is None else report.phase(task)
            last = report.last_event()
            for event in report.events(task, after=after, **which) if last > after else ():
                say(to_json(event, indent=None)) if session.as_json else _print_lines(session, [event])
                last = max(last, event["seq"])
            after = last
            if phase in ("completed", "failed", "cancelled"):
                return None if phase == "completed" else EXIT_NO
            session.pause(POLL_INTERVAL)
    except KeyboardInterrupt:
        return None


@verb("watch", "watch", extra="tui")
def watch_command(session: Session) -> None:
    """Show what waits for you and all tasks on a screen, and act there. `mailboxd log --follow` prints lines instead.

    j, k move, Enter opens, a answers or approves, r retries, c cancels, / filters, s searches, q quits.
    """
    from mailboxd.cli.board import Board
    from mailboxd.surfaces.web.page_models import PageModels
    from mailboxd.surfaces.web.workspaces import FormActions, WebWorkspace, WebWorkspaces

    if session.as_json or not (sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        raise click.UsageError("watch needs a terminal; `mailboxd log --follow` prints events, also as JSON")
    ws = session.workspace()
    Board(PageModels(WebWorkspaces([ws.root]), session.clock), FormActions(session.clock), WebWorkspace(ws)).run()
