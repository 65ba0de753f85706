"""`mailboxd answer TASK TEXT`: a task asked something."""

from __future__ import annotations

import click

from mailboxd.cli.acting import carry_out, read_text
from mailboxd.cli.params import Words
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO

_MOST = 1 << 20


@verb(
    "answer",
    'answer q3-report "Use the audited figures."',
    "answer q3-report --file answer.md",
    'answer q3-report -- "- Every figure names its month"',
    "answer q3-report REPLY_SKIP",
    exits={EXIT_NO: "it asked nothing", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.argument("text", nargs=-1, type=Words())
@click.option("--file", metavar="FILE", help="The answer, from a file; - is standard input.")
def command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> None:
    """Answer the open question of a task; it goes on in the same session.

    REPLY_SKIP says that no answer will come: the agent goes on with what it has. Where its spec is what is asked about,
    the answer is sections of it (`## Acceptance Criteria`), or the criteria as a list.
    """
    from mailboxd import byhand

    said = (" ".join(text) if file is None else read_text(file, _MOST)).strip()
    if not said or (file is not None and text):
        raise click.UsageError("give the answer as TEXT or with --file")

    carry_out(session, task, lambda order: byhand.answer(order.engine, order.task, said, order.user))
