"""`mailboxd unblock TASK`: what an open circuit becomes."""

from __future__ import annotations

import click

from mailboxd.cli.acting import carry_out
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO


@verb(
    "unblock",
    'unblock q3-report.extract --retry --note "the gateway is up again"',
    "unblock q3-report.extract --accept",
    "unblock q3-report.extract --fail",
    exits={
        EXIT_NO: "its circuit is not open, or there is nothing to accept",
        EXIT_CONFIG: "the configuration is wrong",
    },
)
@task_argument()
@click.option("--retry", "remedy", flag_value="retry", help="Try again, with all attempts.")
@click.option("--accept", "remedy", flag_value="accept", help="The last good result counts: it is completed.")
@click.option("--fail", "remedy", flag_value="fail", help="Give up: it fails, and so does what needs it.")
@click.option("--note", type=Words(), default="", help="Why; with --retry the next attempt reads it.")
def command(session: Session, task: str, remedy: str | None, note: str) -> None:
    """Decide about a task whose circuit is open. `mailboxd why TASK` says why it opened, and how to check."""
    from mailboxd.core.inputs import Remedy, Unblock

    if remedy is None:
        raise click.UsageError("say what it shall become: --retry, --accept or --fail")
    heard = Unblock(Remedy(remedy), note)
    carry_out(session, task, lambda order: order.engine.command(order.task, heard, order.user))
