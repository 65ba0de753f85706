"""`mailboxd spec TASK`: what a task must achieve, and writing it anew before the work begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mailboxd.cli.acting import Order, carry_out, read_text
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import folded, plain, say, to_json
from mailboxd.errors import EXIT_BAD_MESSAGE, EXIT_CONFIG, EXIT_NO

if TYPE_CHECKING:
    from mailboxd.core.events import Event
    from mailboxd.core.types import Spec

_MOST = 1 << 20
_HEAD = """\
<!-- {name}: {problem}
Lines like this one are taken out. A section that is empty says nothing; the criteria are a list. -->

"""


@verb(
    "spec",
    "spec q3-report",
    "spec q3-report --edit",
    "spec q3-report --file spec.md",
    exits={
        EXIT_NO: "the spec can no longer change",
        EXIT_BAD_MESSAGE: "the text is no spec",
        EXIT_CONFIG: "the configuration is wrong",
    },
)
@task_argument()
@click.option("--edit", is_flag=True, help="Open it in $VISUAL or $EDITOR.")
@click.option("--file", metavar="FILE", help="Take the sections from a file; - is standard input.")
def command(session: Session, task: str, edit: bool, file: str | None) -> None:
    """Show what a task must achieve, and what its spec lacks; with --edit or --file, write it anew.

    Sections count as they stand, what is left out stays. Possible until an attempt begins.
    """
    if edit and file is not None:
        raise click.UsageError("--edit and --file exclude each other")
    if file is not None:
        _write(session, task, read_text(file, _MOST))
    elif edit:
        _edit(session, task)
    else:
        _show(session, task)


def _show(session: Session, task: str) -> None:
    from mailboxd.store.specs import spec_of

    with session.report() as report:
        found = spec_of(report, report.find(task))
    if session.as_json:
        say(to_json(found.as_json()))
        return
    from mailboxd.messages.spec import spec_sections

    say(f"{found.local_id}: {plain(found.title)}")
    say(f"  {found.phase}" + (f": its spec is weak: {plain(found.lacks)}" if found.lacks else ""))
    for heading, text in spec_sections(found.spec):
        say(f"\n{heading}\n{folded(_plain_lines(text.strip()), '  ')}")


def _plain_lines(text: str) -> str:
    """`text` with every line fit to be printed."""
    return "\n".join(plain(line) for line in text.split("\n"))


def _edit(session: Session, task: str) -> None:
    """What the editor leaves behind is the spec; nothing happens when it was left as it was."""
    from mailboxd.messages.spec import render_spec
    from mailboxd.store.specs import spec_of

    with session.report() as report:
        found = spec_of(report, report.find(task))
    problem = f"its spec is weak: {found.lacks}" if found.lacks else f"it is {found.phase}"
    before = _HEAD.format(name=found.local_id, problem=problem.replace("--", "- -")) + render_spec(found.spec)
    after = click.edit(before, extension=".md")
    if after is None or after == before:
        say(f"{found.local_id}: left as it was", err=True)
        return
    _write(session, found.local_id, _without_head(after), edited=found.spec)


def _without_head(text: str) -> str:
    head, end, rest = text.partition("-->")
    return rest if end and head.lstrip().startswith("<!--") else text


def _write(session: Session, task: str, text: str, edited: Spec | None = None) -> None:
    """Record what was written, as the person who wrote it; `edited` is the spec that the text was made from."""
    from mailboxd.core.events import Role
    from mailboxd.core.inputs import SpecWritten
    from mailboxd.errors import MessageError, Refused
    from mailboxd.messages.spec import rewritten

    def act(order: Order) -> Sequence[Event]:
        if edited is not None and order.task.spec != edited:
            raise Refused(
                "spec-changed", f"{order.task.local_id}: its spec changed while you edited it", "Edit it anew."
            )
        spec = rewritten(order.task.spec, text)
        if spec is None:
            raise MessageError("no-spec", "there is no section of a spec in it", "Write `## Acceptance Criteria`, say.")
        return order.engine.hear(order.task.id, SpecWritten(spec), Role.OPERATOR, order.user)

    carry_out(session, task, act)
