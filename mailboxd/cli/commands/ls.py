"""`mailboxd ls`: tasks as a table."""

from __future__ import annotations

from typing import Any

import click

from mailboxd.cli.params import Id
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import PHASES, phase, say, table, to_json


@verb("ls", "ls", "ls --all --phase circuit_open", "ls --children --agent scout --json")
@click.option("--all", "everything", is_flag=True, help="Also the tasks that ended long ago.")
@click.option("--children", is_flag=True, help="Also the children of tasks.")
@click.option("--phase", "wanted", type=click.Choice(list(PHASES)), help="Only tasks in this phase.")
@click.option("--agent", type=Id(), help="Only tasks that this agent executes.")
def command(session: Session, everything: bool, children: bool, wanted: str | None, agent: str | None) -> None:
    """List tasks: the open ones, and the 10 that ended last."""
    with session.report() as report:
        rows = report.tasks(everything=everything, children=children, phase=wanted, agent=agent)
    if session.as_json:
        say(to_json(rows))
    elif rows:
        for line in table(("TASK", "PHASE", "AGENT", "CHILDREN", "TITLE"), map(_cells, rows)):
            say(line)
    else:
        say("no such tasks; `mailboxd send` gives one", err=True)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    children = f"{row['children_completed']}/{row['children_total']}" if row["children_total"] else ""
    return row["local_id"], phase(row["phase"]), row["agent"], children, row["title"]
