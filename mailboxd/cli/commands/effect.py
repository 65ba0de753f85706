"""`mailboxd effect run APPROVAL`: what the daemon, or Lobster, starts to perform an approved action. Not for people."""

from __future__ import annotations

import os

import click

from mailboxd.cli.acting import OPERATOR, require_person
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_NO


@click.group("effect", hidden=True)
def command() -> None:
    """Side effects."""


@verb("run", "effect run apr_01J9ZK2T0V8W5N3QXYZ4ABCDEF", exits={EXIT_NO: "it may not run, or was begun before"})
@click.argument("approval")
def run(session: Session, approval: str) -> None:
    """Perform an approved action, once. The daemon calls this; calling it by hand is as safe, and of no use."""
    from mailboxd import config, entrance, runner
    from mailboxd.gates.handover import taken_over
    from mailboxd.host import wake

    require_person(OPERATOR)
    ws = session.workspace()
    settings = config.load(ws.config)
    with entrance.engine(ws, settings) as engine:
        setting = entrance.setting(ws, settings, taken_over(os.environ))
        row = runner.run(engine, approval, setting, session.pause)
    wake.poke(ws.state)
    if session.as_json:
        say(to_json({"approval": row.id, "state": row.state, "summary": row.summary}))
    else:
        say(plain(f"{row.short_id} {row.state or row.status}: {row.summary or row.note}"))


command.add_command(run)
