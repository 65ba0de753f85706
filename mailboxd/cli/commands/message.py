"""`mailboxd message`: the files of the protocol, written for an agent or a script that does not want to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from mailboxd.cli.params import Header, Words
from mailboxd.cli.sending import Draft, compose
from mailboxd.cli.session import Session, shared_options, verb
from mailboxd.cli.text import say, to_json
from mailboxd.errors import EXIT_BAD_MESSAGE

_OUTPUT = click.option(
    "-o", "--output", metavar="FILE", help="Write this file, which must not exist; default: standard output."
)
_TASK_ID = click.option("--task-id", type=Header("task_id", "ID"), required=True, help="The task.")
_SENDER = click.option("--from", "sender", type=Header("from", "ID"), required=True, help="Who sends it.")
_EXITS = {EXIT_BAD_MESSAGE: "this cannot be a message"}


@click.group("message")
def command() -> None:
    """Write a dispatch, a reply or a task.md as the protocol has it, to standard output or a file."""


@verb(
    "dispatch",
    'message dispatch --task-id q3 --subtask-id extract --from analyst --title "Extract" --instructions "..."',
    exits=_EXITS,
)
@_TASK_ID
@click.option("--subtask-id", type=Header("subtask_id", "ID"), help="The child of it that is given away.")
@_SENDER
@click.option("--title", type=Words(), required=True, help="One line.")
@click.option("--context", type=Words(), default="", help="What has to be known.")
@click.option("--instructions", type=Words(), default="", help="What is to be done.")
@click.option("--expected-output", type=Words(), default="", help="What the result must be.")
@_OUTPUT
def dispatch(session: Session, output: str | None, **said: Any) -> None:
    """Write a message that gives work to an agent."""
    draft = Draft(said["title"], said["instructions"], said["context"], said["expected_output"])
    identity = {"task_id": said["task_id"], "subtask_id": said["subtask_id"], "from": said["sender"]}
    _write(session, output, compose(draft, {**identity, "sent_at": session.clock.now()}))


@verb(
    "reply",
    'message reply --task-id q3 --subtask-id extract --from scout --status done --results "12 figures"',
    'message reply --task-id q3 --subtask-id extract --from scout --status failed --error "no access"',
    exits=_EXITS,
)
@_TASK_ID
@click.option("--subtask-id", type=Header("subtask_id", "ID"), help="The child of it that was given to us.")
@_SENDER
@click.option("--status", type=click.Choice(["done", "failed"]), required=True, help="What became of it.")
@click.option("--results", type=Words(), default="", help="What was found; with --status done.")
@click.option("--error", type=Words(), default="", help="What went wrong; with --status failed.")
@click.option("--partial", type=Words(), default="", help="What was found before it went wrong.")
@_OUTPUT
def reply(session: Session, output: str | None, **said: Any) -> None:
    """Write a message that says what became of work."""
    from mailboxd.messages import codec
    from mailboxd.messages.models import ReplyMessage
    from mailboxd.messages.sections import Section

    done = said["status"] == "done"
    if done is not bool(said["results"]) or done is bool(said["error"] or said["partial"]):
        raise click.UsageError("--status done goes with --results, --status failed with --error and --partial")
    texts = (("Results", said["results"]), ("Error", said["error"]), ("Partial Results", said["partial"]))
    message = ReplyMessage(
        task_id=said["task_id"],
        subtask_id=said["subtask_id"],
        from_=said["sender"],
        status=said["status"],
        completed_at=session.clock.now(),
        sections=tuple(Section(heading, text) for heading, text in texts if text.strip()),
    )
    _write(session, output, codec.render(message))


@verb(
    "task",
    'message task --task-id q3 --from operator --title "Q3 report" --instructions "..." -o tasks/q3/task.md',
    exits=_EXITS,
)
@_TASK_ID
@_SENDER
@click.option("--title", type=Words(), required=True, help="One line.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "coordinating"]),
    default="direct",
    show_default=True,
    help="Worked on in one piece, or made of children.",
)
@click.option("--status", help="Default: pending, or planning for a coordinating task.")
@click.option("--context", type=Words(), default="", help="What has to be known.")
@click.option("--instructions", type=Words(), default="", help="What is to be done.")
@click.option("--expected-output", type=Words(), default="", help="What the result must be.")
@click.option("--results", type=Words(), default="", help="What was found.")
@_OUTPUT
def task(session: Session, output: str | None, **said: Any) -> None:
    """Write a task.md, which starts a task when it appears below tasks/."""
    from mailboxd.core.terms import Mode
    from mailboxd.messages.taskfile import STATUSES, TaskFile, render_task_file
    from mailboxd.messages.templates import Templates

    mode = Mode(said["mode"])
    status = said["status"] or STATUSES[mode][0]
    if status not in STATUSES[mode]:
        raise click.UsageError(f"{status!r} is no status of a {mode} task: {', '.join(STATUSES[mode])}")
    extra = (("Context", said["context"]), ("Expected Output", said["expected_output"]))
    now = session.clock.now()
    file = TaskFile(
        task_id=said["task_id"],
        title=said["title"],
        mode=mode,
        status=status,
        sender=said["sender"],
        created_at=now,
        updated_at=now,
        instructions=said["instructions"],
        results=said["results"] if mode is Mode.DIRECT else "",
        synthesised=said["results"] if mode is Mode.COORDINATING else "",
        extra_sections=tuple((heading, text) for heading, text in extra if text.strip()),
    )
    _write(session, output, render_task_file(file, Templates(None)))


def _write(session: Session, output: str | None, raw: bytes) -> None:
    """To a file, which appears whole or not at all, or to standard output."""
    if output is None:
        say(to_json({"text": raw.decode()}) if session.as_json else raw.decode(), newline=session.as_json)
        return
    from mailboxd.workspace.files import directory, publish, world_errors

    path = Path(output)
    with world_errors(f"write {output}"), directory(path.parent) as fd:
        try:
            publish(fd, path.name, raw)
        except FileExistsError:
            raise click.UsageError(f"{output}: there is such a file already; it is left as it is") from None
        os.fsync(fd)
    if session.as_json:
        say(to_json({"file": output}))


for _made in (dispatch, reply, task):
    command.add_command(_made)
command.params += shared_options()
