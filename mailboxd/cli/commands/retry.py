"""`mailboxd retry TASK`: failed work runs again."""

from __future__ import annotations

import click

from mailboxd.cli.acting import carry_out, read_text
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO

_MOST = 1 << 20


@verb(
    "retry",
    "retry q3-report.extract",
    'retry q3-report.extract --note "the figures are on page 12"',
    "retry q3-report --only-failed",
    "retry q3-report.extract --with-dependants --instructions notes.md",
    exits={EXIT_NO: "there is nothing to retry", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.option("--note", type=Words(), default="", help="What the next attempt has to know.")
@click.option("--instructions", metavar="FILE", help="The same, from a file; - is standard input.")
@click.option("--only-failed", is_flag=True, help="Only what failed or is blocked, at TASK and at any depth below it.")
@click.option("--with-dependants", is_flag=True, help="Also what completed with the result of TASK.")
def command(
    session: Session, task: str, note: str, instructions: str | None, only_failed: bool, with_dependants: bool
) -> None:
    """Run work again, with what failed around it; every other good result is kept.

    TASK may have completed: whatever stands above it is opened as well, and puts its results together anew. A task
    that pauses after a failure does not wait any longer.
    """
    from mailboxd.core.inputs import Retry

    if only_failed and with_dependants:
        raise click.UsageError("--only-failed and --with-dependants: what failed has no dependants that ran")

    said = "" if instructions is None else read_text(instructions, _MOST).strip()
    heard = Retry("\n\n".join(filter(None, [note, said])), only_failed, with_dependants)
    carry_out(session, task, lambda order: order.engine.command(order.task, heard, order.user))
