"""`mailboxd steer TASK TEXT`: new instructions for work that is under way."""

from __future__ import annotations

import click

from mailboxd.cli.acting import OPERATOR, carry_out, read_text
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO

_MOST = 1 << 20


@verb(
    "steer",
    'steer q3-report "Leave out the forecasts."',
    "steer q3-report.extract --file more.md",
    exits={EXIT_NO: "it has ended", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.argument("text", nargs=-1, type=Words())
@click.option("--file", metavar="FILE", help="The instructions, from a file; - is standard input.")
def command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> None:
    """Give a task new instructions. They become part of its specification; nothing that runs is stopped.

    Who has the work hears of them as soon as possible: a mailboxd peer at once, a running turn by another turn of the
    same session behind it, and otherwise the next attempt. What is said tells which.
    """
    from mailboxd.core.events import Role
    from mailboxd.core.inputs import Steer

    said = (" ".join(text) if file is None else read_text(file, _MOST)).strip()
    if not said or (file is not None and text):
        raise click.UsageError("give the instructions as TEXT or with --file")
    heard = Steer(OPERATOR, said)
    carry_out(session, task, lambda order: order.engine.hear(order.task.id, heard, Role.OPERATOR, order.user))
