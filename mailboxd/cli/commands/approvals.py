"""`mailboxd approvals [ID]`: what waits for a person."""

from __future__ import annotations

import click

from mailboxd.cli.deciding import approval_argument, print_list, print_one
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json
from mailboxd.errors import EXIT_UNAVAILABLE


@verb(
    "approvals",
    "approvals",
    "approvals 3f9k2q",
    "approvals --all --task q3-report",
    exits={EXIT_UNAVAILABLE: "no workspace, or no such approval"},
)
@approval_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Also what is decided, expired, or was voided.")
@click.option("--task", metavar="TASK", help="Of this task and all below it.")
def command(session: Session, id: str | None, everything: bool, task: str | None) -> None:
    """List what waits for you, or show all of one request: what exactly would happen, its digest, its history.

    ID is the short id of an approval (the last six characters), or more of the end of its id.
    """
    from mailboxd.store import requests

    if id is not None and (everything or task is not None):
        raise click.UsageError("an ID is one request: give it without --all and --task")
    with session.report() as report:
        if id is not None:
            row = requests.one(report, requests.find(report, id))
            say(to_json(row)) if session.as_json else print_one(row, session.clock.now())
            return
        rows = requests.listed(report, everything=everything, task_id=report.find(task) if task is not None else None)
    if session.as_json:
        say(to_json(rows))
    elif not rows:
        say("nothing was ever asked" if everything else "nothing waits for you")
    else:
        print_list(rows, session.clock.now())
