"""`mailboxd cancel TASK`: the work is not wanted any more."""

from __future__ import annotations

import click

from mailboxd.cli.acting import OPERATOR, carry_out
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO


@verb(
    "cancel",
    "cancel q3-report",
    'cancel q3-report.extract --reason "the figures have changed"',
    exits={EXIT_NO: "it has ended already", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.option("--reason", type=Words(), default="", help="Why; it goes into the record and to whoever has the work.")
def command(session: Session, task: str, reason: str) -> None:
    """Cancel a task, and all that is below it. Running turns are stopped; a cancel is final."""
    from mailboxd.core.inputs import Cancel

    heard = Cancel(OPERATOR, reason)
    carry_out(session, task, lambda order: order.engine.command(order.task, heard, order.user))
