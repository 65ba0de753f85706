"""`mailboxd history` and `mailboxd logs`: events, one sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.live import follow, print_event
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_NO, WorldError

if TYPE_CHECKING:
    from mailboxd.store.reports import Report


@verb(
    "history",
    "history",
    "history q3-report --tree",
    "history --since 1200 --json",
    "history q3-report --follow",
    "history --verify",
    exits={EXIT_NO: "--verify: the log is inconsistent"},
)
@task_argument(required=False)
@click.option("--tree", is_flag=True, help="Include the events of all subtasks.")
@click.option("--since", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only events after this number.")
@click.option("-f", "--follow", "following", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("--verify", is_flag=True, help="Check the hash chain, and that replaying the events gives the tables.")
def history_command(
    session: Session, task: str | None, tree: bool, since: int, following: bool, verify: bool
) -> int | None:
    """Show the event history of one task or of the whole workspace.

    --json prints a list, or one object per line with --follow.
    """
    with session.report() as report:
        if verify:
            return _verify(session, report)
        wanted = None if task is None else report.find(task)
        if following:
            follow(session, report, print_event, after=since, task=wanted, tree=tree)
        elif session.as_json:
            _print_list(report.events(wanted, tree=tree, after=since))
        else:
            for event in report.events(wanted, tree=tree, after=since):
                print_event(event)
    return None


def _print_list(events: Any) -> None:
    """Write a JSON array incrementally: a history may not fit in memory."""
    opening = "["
    for event in events:
        say(f"{opening}{to_json(event, indent=None)}", newline=False)
        opening = ",\n "
    say("[]" if opening == "[" else "]")


def _verify(session: Session, report: Report) -> int | None:
    from mailboxd.store import event_log

    problem = None
    with report.snapshot():
        count = report.last_event()
        try:
            event_log.check(report.db)
        except WorldError as error:
            problem = str(error)
    if session.as_json:
        say(to_json({"holds": problem is None, "events": count, "problem": problem}))
    elif problem is None:
        say(f"{count} events: the hash chain is intact, and replaying them gives the tables")
    else:
        say(for_terminal(problem), err=True)
    return None if problem is None else EXIT_NO


@verb("logs", "logs", "logs -f", "logs -n 100 --json")
@click.option("-f", "--follow", "following", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="Number of events to start with."
)
def logs_command(session: Session, following: bool, lines: int) -> None:
    """Show the latest events of all tasks; with --json, one object per line.

    Reads the database, so it does not depend on where the daemon logs.
    """
    with session.report() as report:
        after = max(report.last_event() - lines, 0)
        if following:
            follow(session, report, _print, after=after)
            return
        for event in report.events(after=after):
            say(to_json(event, indent=None)) if session.as_json else _print(event)


def _print(event: dict[str, Any]) -> None:
    say(f"{event['at']} {event['kind']}: {for_terminal(event['text'])}")
