"""`mailboxd reject ID`: a person does not let it happen."""

from __future__ import annotations

import click

from mailboxd.cli.deciding import EXITS, approval_argument, decide
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, verb


@verb("reject", 'reject 3f9k2q --note "not before the audit"', exits=EXITS)
@approval_argument(many=True)
@click.option("--note", type=Words(), required=True, help="Why; it is the reason with which the task fails.")
def command(session: Session, ids: tuple[str, ...], note: str) -> None:
    """Reject what was requested: it never happens, and its task fails. A harness that asks goes on without."""
    decide(session, ids, "rejected", note)
