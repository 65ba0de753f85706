"""`mailboxd approve ID...`: a person lets it happen."""

from __future__ import annotations

import re
from typing import Any

import click

from mailboxd.cli.deciding import EXITS, approval_argument, decide
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, verb


def _prefix(_: click.Context, __: click.Parameter, value: Any) -> str:
    """An empty one is refused as well: in a script it is a variable that is not set."""
    if value is None:
        return ""
    if re.fullmatch(r"[0-9a-fA-F]{8,64}", value, re.ASCII) is None:
        raise click.BadParameter("write 8 to 64 hexadecimal digits, as `mailboxd approvals ID` shows them")
    return str(value)


@verb(
    "approve",
    "approve 3f9k2q",
    "approve 3f9k2q --digest 9c1185a5c5e9",
    'approve 3f9k2q 8d0wzx --note "seen on staging"',
    exits=EXITS,
)
@approval_argument(many=True)
@click.option("--note", type=Words(), default="", help="Recorded with the decision.")
@click.option(
    "--digest",
    metavar="PREFIX",
    default=None,
    callback=_prefix,
    help="Only if its digest begins so: what you have seen.",
)
def command(session: Session, ids: tuple[str, ...], note: str, digest: str) -> None:
    """Approve what was requested: it happens, once. On a terminal it is shown first.

    Several are approved together or not at all. Your name at the operating system is recorded.
    """
    if digest and len(ids) > 1:
        raise click.UsageError("--digest is of one request: approve them one by one")
    decide(session, ids, "approved", note, digest)
