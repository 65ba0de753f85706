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
    'retry q3-report.extract --instructions "the figures are on page 12"',
    "retry q3-report --file notes.md",
    exits={EXIT_NO: "there is nothing to retry", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.option("--instructions", type=Words(), default="", help="What the next attempt has to know.")
@click.option("--file", metavar="FILE", help="The same, from a file; - is standard input.")
def command(session: Session, task: str, instructions: str, file: str | None) -> None:
    """Run failed work again, with what failed around it; every good result is kept.

    A task that pauses after a failure does not wait any longer.
    """
    from mailboxd.core.inputs import Retry

    if file is not None:
        instructions = "\n\n".join(filter(None, [instructions, read_text(file, _MOST).strip()]))
    heard = Retry(instructions)
    carry_out(session, task, lambda order: order.engine.command(order.task, heard, order.user))
