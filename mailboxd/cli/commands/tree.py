"""`mailboxd tree TASK`: a task and everything below it, to any depth."""

from __future__ import annotations

from mailboxd.cli import branches
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import columns, say, to_json


@verb("tree", "tree q3-report", "tree q3-report --json")
@task_argument()
def command(session: Session, task: str) -> None:
    """Show a task as a tree: each child with its phase, its agent, and what it waits for.

    A task with children shows how many of them are completed, one that is executing shows since when.
    `mailboxd watch TASK` shows it live.
    """
    with session.report() as report:
        found = report.tree(report.find(task))
    if session.as_json:
        say(to_json(found))
        return
    for line in branches.lines(found, session.clock.now(), columns()):
        say(line)
