"""Operator orders: applied through the engine in this process, in one transaction; then the daemon is woken.

An order from a shell inside an agent's turn is refused (`operator_shell`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mailboxd.cli.operator_shell import require_operator
from mailboxd.cli.text import folded_list, say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import MailboxdError
from mailboxd.host import process

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.core.events import Event
    from mailboxd.core.inputs import OperatorInput
    from mailboxd.core.model import Task
    from mailboxd.engine.engine import Engine

Act = Callable[["Engine", "Task", str], Sequence["Event"]]
"""Gives an order to the engine, about a task, as this user."""


def carry_out(session: Session, name: str, act: Act) -> None:
    """Let `act` give an order about the task `name`, print the resulting events, and wake the daemon.

    Raises UnavailableError, ConfigError, WorldError; Refused by the task's state or inside an agent's turn.
    """
    from mailboxd.core.vocabulary import state_of
    from mailboxd.ledger.attention_queries import need_of

    facts: dict[str, Any] = {}

    def about(engine: Engine, user: str) -> Sequence[Event]:
        task = engine.store.tasks.get(engine.store.report.find(name))
        if task is None:
            raise AssertionError(f"{name} was found but does not exist")
        events = act(engine, task, user)
        now, need = engine.store.tasks.get(task.id) or task, need_of(engine.store.report, task.id)
        facts.update(task=task.local_id, state=state_of(now.phase, need), phase=now.phase)
        return events

    carry_out_any(session, about, facts)


def give(session: Session, name: str, order_input: OperatorInput) -> None:
    """Give an order about the task `name` that consists of one input. Raises as `carry_out`."""
    carry_out(session, name, lambda engine, task, user: engine.command(task, order_input, user))


def carry_out_any(session: Session, act: Callable[[Engine, str], Sequence[Event]], facts: Mapping[str, Any]) -> None:
    """As `carry_out`, for an order that is not about one task. `act` may add to `facts`, which --json prints."""
    from mailboxd.core.explain.describe import summarize
    from mailboxd.engine import open
    from mailboxd.formats import config
    from mailboxd.formats.mailbox import lock
    from mailboxd.host import wakeup
    from mailboxd.ledger import attention

    require_operator()
    ws = session.workspace()
    with open.engine(ws, config.load(ws.config), lambda why: say(why, err=True)) as engine, engine.batch():
        events = act(engine, process.name())
        names = [engine.store.tasks.local_id(event.task) if event.task else "" for event in events]
    held = next((number for number, event in enumerate(events) if event.kind == "order.held"), None)
    if held is not None:
        ending = dict.fromkeys(name for event, name in zip(events, names, strict=True) if event.kind == "order.held")
        undo = f"{session.program(ws)} undo {' '.join(ending)}"
        facts = {**facts, "held": {"until": events[held].data["due"], "undo": undo}}
    told = [{"kind": event.kind, "text": summarize(event, name)} for event, name in zip(events, names, strict=True)]
    # one that is starting or paused does not listen but polls
    runs = wakeup.poke(ws.state) or lock.holder(ws) is not None
    if session.as_json:
        say(to_json({**facts, "events": told, "daemon": {"running": runs}}))
        return
    how = f"{session.program(ws)} log -n {len(told)}"
    for line in folded_list(told, lambda some: (for_terminal(one["text"]) for one in some), False, how):
        say(line)
    if held is not None:
        say(for_terminal(f"  -> {facts['held']['undo']}  # takes it back, within 10 s"))
    if not runs:
        cannot_begin = attention.cannot_begin(ws, None, session.clock.now())
        then = cannot_begin[0] if cannot_begin else f"`{attention.start(ws, session.program(ws))}` will carry it out"
        say(for_terminal(f"no daemon is running: recorded, and {then}"), err=True)


def require_editor() -> None:
    """Raises UsageError without an editor or a terminal."""
    import click

    if not (os.environ.get("VISUAL") or os.environ.get("EDITOR") or sys.stdin.isatty()):
        raise click.UsageError("no text was given, and there is no terminal to open an editor on")


def edited(head: str, text: str) -> str | None:
    """`text` as changed in $VISUAL or $EDITOR, below `head` as a comment; None if it was not.

    Raises UsageError without an editor or a terminal, and as `in_editor`.
    """
    require_editor()
    comment = for_terminal(head).replace("--", "- -")
    before = f"<!-- {comment}\nThis comment is removed. -->\n\n{text}"
    after = in_editor(before)
    if after is None or after == before:
        return None
    start, end, rest = after.partition("-->")
    return (rest if end and start.lstrip().startswith("<!--") else after).strip()


def in_editor(text: str) -> str | None:
    """`text` as $VISUAL or $EDITOR has saved it; None if it saved nothing.

    Raises UsageError if that cannot be read; what is not UTF-8 is kept in a file.
    """
    import click

    given = text if text.endswith("\n") else f"{text}\n"
    try:
        saved = click.edit(given.encode(), extension=".md")
    except OSError as error:
        raise click.UsageError(f"the editor left no file with the text: {error.strerror}") from error
    if saved is None:
        return None
    try:
        return saved.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} of what the editor saved is not UTF-8"
        raise click.UsageError(f"{problem}; it is kept in {_kept(saved)}: save it as UTF-8") from error


@contextmanager
def kept_if_refused(written: str) -> Iterator[None]:
    """If an error ends what is done with a text that was written in an editor, keep the text, and say in which file."""
    import click

    try:
        yield
    except (MailboxdError, click.ClickException):
        if written:
            say(f"what you wrote is kept in {for_terminal(_kept(written.encode()))}", err=True)
        raise


def _kept(text: bytes) -> str:
    """The name of a new file with the text."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="mailboxd-", suffix=".md", delete=False) as file:
        file.write(text)
    return file.name


def read_text(path: str, most: int) -> str:
    """Read a text from a file or (`-`) standard input. Raises UsageError."""
    import click

    try:
        with click.open_file(path, "rb") as file:
            raw: bytes = file.read(most + 1)
    except OSError as error:
        raise click.UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > most:
        raise click.UsageError(f"{path}: is larger than {most} bytes; refer to the file instead")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from error
