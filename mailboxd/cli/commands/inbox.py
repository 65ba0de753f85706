"""`mailboxd inbox`: what waits for a person."""

from __future__ import annotations

import click

from mailboxd import attention
from mailboxd.cli.session import Session, verb
from mailboxd.cli.task_output import attention_lines
from mailboxd.cli.text import room, say, to_json


@verb(
    "inbox",
    "inbox",
    "inbox --json | jq -r '.[].command'",
    "inbox --dismiss 4k2x9a",
    "inbox --dismiss all",
)
@click.option("--dismiss", "dismissed", metavar="ID", multiple=True, help="A rejected file or a warning; or all.")
def inbox_command(session: Session, dismissed: tuple[str, ...]) -> None:
    """List everything that waits for you, each with the command that moves it on.

    These are questions, approvals, open circuits, used-up budgets, specs and reviews that need help, rejected files,
    messages that may mean something else than they say, and a daemon, gateway or peer that is down. A rejected file
    leaves the list when its sender's next version is accepted, or with --dismiss; its copy in mailbox/rejected/ stays.
    """
    if dismissed:
        from mailboxd.cli.operator_actions import carry_out_any
        from mailboxd.engine import operator_commands

        carry_out_any(session, lambda engine, user: operator_commands.dismiss(engine, dismissed, user))
        return
    ws = session.workspace()
    with session.report() as report:
        found = attention.of(ws, report, session.clock, session.program(ws), most=None)
    if session.as_json:
        say(to_json(found.as_json()))
    elif found.items:
        for line in attention_lines(found.as_json(), session.clock.now(), room()):
            say(line)
    else:
        say("nothing waits for you", err=True)
