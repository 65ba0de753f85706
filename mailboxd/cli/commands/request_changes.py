"""`mailboxd request-changes ID`: a person wants something else."""

from __future__ import annotations

import click

from mailboxd.cli.deciding import EXITS, approval_argument, decide
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, verb


@verb("request-changes", 'request-changes 3f9k2q --note "to the staging site first"', exits=EXITS)
@approval_argument(many=True)
@click.option("--note", type=Words(), required=True, help="What has to change; the next attempt reads it.")
def command(session: Session, ids: tuple[str, ...], note: str) -> None:
    """Send the work back: another attempt is made with your note, and asks again."""
    decide(session, ids, "request_changes", note)
