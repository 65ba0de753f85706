"""`mailboxd send --check`: what a file would become in the inbox, before it is put there."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from mailboxd.cli.session import Session
from mailboxd.core.local_time import told
from mailboxd.core.sanitize import for_terminal, one_line
from mailboxd.errors import MessageError, UnavailableError
from mailboxd.host import zone

_STANDARD_INPUT = "-"
_UNNAMED = "message.md"


def show(session: Session, file: str) -> None:
    """Say what FILE would become in this agent's inbox: a task with these limits, or a refusal with its reason.

    It is taken exactly as the daemon takes it, under this workspace's configuration and beside the tasks and messages
    that are there, in a copy of the database: nothing is sent or recorded. - is standard input. Raises MessageError,
    UnavailableError, ConfigError, WorldError.
    """
    from mailboxd.engine.intake.trial import taken
    from mailboxd.formats.mailbox.layout import is_temporary
    from mailboxd.formats.protocol.left_aside import declares_sender, left_aside

    config, ws = session.config(), session.workspace()
    raw = _content(file, config.limits.message_bytes)
    name = _UNNAMED if file == _STANDARD_INPUT else Path(file).name
    what = "a temporary file" if is_temporary(name) else "" if declares_sender(raw) else left_aside(name)
    if what:
        text = f"{one_line(name)} would stay in the inbox: by its name it is {what}"
        session.answer({"verdict": "left aside", "name": name, "text": text}, text)
        return
    facts = taken(ws, config, session.clock, name, raw)
    send = f"cp -- {shlex.quote(file)} {shlex.quote(str(ws.inbox))}/" if file != _STANDARD_INPUT else ""
    session.show(facts, map(for_terminal, lines(facts, config.agent, send, session.program(ws))))


def _content(file: str, most: int) -> bytes:
    """The bytes of the file, at most one more than `most`. Raises UnavailableError; MessageError if there are none."""
    try:
        with click.open_file(file, "rb") as opened:
            raw: bytes = opened.read(most + 1)
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be read: {error.strerror}") from error
    if not raw:
        raise MessageError("empty", "it is empty", "Write what has to be done.", file)
    return raw


def lines(facts: Mapping[str, Any], own: str, send: str = "", program: str = "mailboxd") -> Iterator[str]:
    """What `taken` found, for people; `send` is the command that sends the file, and `program` begins the others."""
    task, about = facts["task"], facts["about"]
    if task is None:
        what = f"{facts['name']}, a {facts['type']} of {facts['sender']},"
        yield f"{what} {_WITHOUT_A_TASK[facts['verdict']].format(about or 'no task that is known here')}"
    else:
        yield f"{facts['name']} would become a task of {own}, from {facts['sender']}:"
        for name, value in task.items():
            if name != "subtasks" and value not in ([], ""):
                shown = value if isinstance(value, list) else [value]
                if name in _TIMES:
                    shown = [told(value, zone.named(facts["zone"]))]
                yield from _column(name.replace("_", " "), shown)
        for child in task.get("subtasks", ()):
            after = f", after {', '.join(child['depends_on'])}" if child["depends_on"] else ""
            yield from _column("subtask", [f"{child['id']}: {child['title']} ({child['agent']}{after})"])
            for name in _TIMES:
                if at := child.get(name):
                    yield from _column("", [f"  {name.replace('_', ' ')} {told(at, zone.named(facts['zone']))}"])
    for doubt in facts["doubts"]:
        yield from _column("doubt", [doubt])
    if send and (task is not None or facts["verdict"] == "accepted"):
        yield f"to send it: {send}"
    elif facts["verdict"] == "duplicate" and facts["type"] == "task" and about:
        yield f"to have that done again: {program} retry {about}"


_TIMES = ("deadline", "not_before", "first")
_WITHOUT_A_TASK = {
    "accepted": "would be taken: it is about {}",
    "duplicate": "would have no effect: it was taken before, for {}",
    "late": "would have no effect: it comes too late for {}",
    "orphan": "would be kept and have no effect: it is about {}",
}


def _column(name: str, values: Iterable[object]) -> Iterator[str]:
    """Values below each other, and so are the lines of each, behind a name on the first line."""
    rows = (line for value in values for line in str(value).split("\n"))
    yield from (f"  {'' if number else name:<20}{line}".rstrip() for number, line in enumerate(rows))
