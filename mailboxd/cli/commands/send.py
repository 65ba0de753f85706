"""`mailboxd send` and `mailboxd export message`: write task messages and other protocol files."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.live import POLL_INTERVAL
from mailboxd.cli.operator_actions import read_text, require_operator
from mailboxd.cli.session import Header, Session, Text, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.engine.sending import Draft, compose, put, signed_by, slug
from mailboxd.errors import EXIT_BAD_MESSAGE, EXIT_NO, EXIT_TRY_AGAIN, MessageError, UnavailableError
from mailboxd.mailbox.layout import Workspace

if TYPE_CHECKING:
    from mailboxd.store.reports import Report


# Task messages

_PRINTED_KINDS = ("task.transitioned", "attempt.started", "attempt.ended", "question.asked", "circuit.opened")


def checked_plan(text: str, path: str, config_file: Path) -> str:
    """Validate the plan in `text` against the receiver's limits, and format it for a `## DAG` section.

    Raises MessageError, PlanError; ConfigError if the receiver's limits cannot be read.
    """
    from mailboxd import config
    from mailboxd.config.settings import limits as limits_of
    from mailboxd.core import plans
    from mailboxd.core.task_view import Limits
    from mailboxd.protocol.plan import parse_dag, render_dag

    read = parse_dag(text, path=path)
    limits = limits_of(config.load(config_file)) if config_file.exists() else Limits()
    plans.admit(read.plan, limits, 0)
    return f"```yaml\n{render_dag(read)}```"


def receiver(path: Path) -> Workspace:
    """The workspace at `path`, for which a mailbox without mailboxd suffices. Raises UnavailableError."""
    ws = Workspace(path.resolve())
    if not ws.inbox.is_dir():
        raise UnavailableError(f"{path}: there is no mailbox/inbox; `mailboxd init {path} --agent <id>` creates one")
    return ws


@dataclass(slots=True)
class Wait:
    """Waits for the task of a message to end. `limit` is in seconds; None means no limit."""

    session: Session
    ws: Workspace
    message_id: str
    limit: float | None = None
    name: str = ""
    """The local id of the task once the message was accepted; it may differ from the id sent."""

    def result(self) -> dict[str, Any] | None:
        """The ended task as in `show`; None after the limit. Prints progress on standard error.

        Raises MessageError if the message was rejected.
        """
        from mailboxd.store.reports import opened
        from mailboxd.store.task_queries import details

        deadline = None if self.limit is None else self.session.clock.monotonic() + self.limit
        printed = 0
        while True:
            if self.ws.database.exists():
                with opened(self.ws.database) as report:
                    task = self._task(report)
                    if task is not None:
                        self.name = report.local_id(task)
                        printed = self._print_events(report, task, printed)
                        found = details(report, task)
                        if found["completed_at"] and found["phase"] in ("completed", "failed", "cancelled"):
                            return found
            if deadline is not None and self.session.clock.monotonic() >= deadline:
                return None
            self.session.pause(POLL_INTERVAL)

    def _task(self, report: Report) -> str | None:
        judged = report.received(self.message_id)
        if judged is None:
            return None
        if judged["verdict"] == "rejected":
            reason = judged["reason"] or {}
            raise MessageError(
                reason.get("rule", "unreadable"), reason.get("problem", "it was rejected"), reason.get("hint", "")
            )
        return str(judged["task"])

    def _print_events(self, report: Report, task: str, after: int) -> int:
        for event in report.events(task, tree=True, after=after):
            after = event["seq"]
            if event["kind"] in _PRINTED_KINDS and not self.session.as_json:
                say(f"{event['at']}  {for_terminal(event['text'])}", err=True)
        return after


_MOST_TEXT = 1 << 20
_MOST_PLAN = 4 << 20
_HEADERS = ("gates", "reviewers", "priority", "deadline", "max_attempts", "timeout", "idempotent")

EXITS = {
    EXIT_NO: "--wait: the task failed or was cancelled",
    EXIT_BAD_MESSAGE: "the message or plan is invalid",
    EXIT_TRY_AGAIN: "--wait: the task has not ended in time",
}


@verb(
    "send",
    'send "Summarise inbox/q3.csv in five lines"',
    'send --title "Q3 report" --file brief.md --expected-output "a report of two pages"',
    "send --title Release --plan plan.yaml --gates quality_gate --reviewers critic",
    'git log -20 | mailboxd send --title "Release notes" -',
    'send --to ~/agents/writer --wait --wait-timeout 600 "Write the report"',
    exits=EXITS,
)
@click.argument("instructions", nargs=-1, type=Text())
@click.option("--title", type=Text(), default="", help="Default: the first line of the instructions.")
@click.option("--file", metavar="FILE", help="Read the instructions from FILE (- is standard input).")
@click.option("--context", type=Text(), default="", help="Background information.")
@click.option("--expected-output", type=Text(), default="", help="What the result must contain.")
@click.option("--plan", metavar="FILE", help="A plan to carry out (YAML with `subtasks:`), validated before sending.")
@click.option("--to", type=click.Path(file_okay=False, path_type=Path), help="Send to the agent of this workspace.")
@click.option("--task-id", type=Header("task_id", "ID"), help="Default: derived from the title.")
@click.option("--from", "sender", type=Header("from", "ID"), default="operator", show_default=True, help="The sender.")
@click.option("--gates", type=Header("gates", "GATE,..."), help="spec_review, spec_gate, quality_gate; or none.")
@click.option("--reviewers", type=Header("reviewers", "ID,..."), help="The reviewing agents.")
@click.option("--priority", type=Header("priority", "N"), help="-100 to 100; higher runs first.")
@click.option("--deadline", type=Header("deadline", "TIME"), help="RFC 3339, for example 2026-11-21T18:00:00Z.")
@click.option("--max-attempts", type=Header("max_attempts", "N"), help="1 to 100.")
@click.option("--timeout", type=Header("timeout", "SECONDS"), help="Time limit of one turn.")
@click.option("--idempotent", is_flag=True, default=None, help="The task may be repeated if its outcome is unknown.")
@click.option("--wait", is_flag=True, help="Wait for the task to end and print its result.")
@click.option("--wait-timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop waiting after this long.")
def send_command(session: Session, **said: Any) -> int | None:
    """Send a task to an agent. INSTRUCTIONS are its text (- reads standard input).

    Writes one message, atomically, to the inbox of this workspace or of the one given by --to.
    """
    return send(session, said.pop("to"), said)


def send(session: Session, to: Path | None, said: dict[str, Any]) -> int | None:
    """Send a task to the workspace `to` (None: the session's); returns the exit status."""
    require_operator(said["sender"])
    if said["wait_timeout"] is not None and not said["wait"]:
        raise click.UsageError("--wait-timeout requires --wait; --timeout limits one turn")
    ws = receiver(to) if to is not None else session.workspace()
    draft = _draft(ws, said)
    message_id, task_id = _ids(session, draft.title, said["task_id"])
    headers = {name: said[name] for name in _HEADERS if said[name] is not None}
    identity = {"task_id": task_id, "from": said["sender"], "message_id": message_id}
    raw = signed_by(ws, said["sender"], compose(draft, {**headers, **identity, "sent_at": session.clock.now()}))
    name = put(ws, task_id, raw)
    sent = {"task_id": task_id, "message_id": message_id, "file": str(ws.inbox / name)}
    if said["wait"]:
        return _wait(Wait(session, ws, message_id, said["wait_timeout"]), sent["file"], elsewhere=to is not None)
    say(to_json(sent) if session.as_json else f"{task_id}\n{for_terminal(sent['file'])}")
    return None


def _draft(ws: Workspace, said: dict[str, Any]) -> Draft:
    words = list(said["instructions"])
    source = said["file"] or ("-" if words == ["-"] else None)
    if source is not None and words not in ([], ["-"]):
        raise click.UsageError("give the instructions as arguments or with --file, not both")
    text = (read_text(source, _MOST_TEXT) if source else " ".join(words)).strip()
    title = said["title"].strip() or text.partition("\n")[0].lstrip("# ")[:200]
    if not title:
        raise click.UsageError("give INSTRUCTIONS, --file or --title")
    dag = ""
    if said["plan"] is not None:
        dag = checked_plan(read_text(said["plan"], _MOST_PLAN), said["plan"], ws.config)
    return Draft(title, text, said["context"], said["expected_output"], dag)


def _ids(session: Session, title: str, task_id: str | None) -> tuple[str, str]:
    from mailboxd.ids import Ids

    message_id = Ids().new("msg", session.clock.now())
    return message_id, task_id or slug(title, message_id[-6:].lower())


def _wait(wait: Wait, file: str, *, elsewhere: bool) -> int | None:
    from mailboxd.mailbox import lock

    session = wait.session
    if not session.as_json:
        say(f"sent {for_terminal(file)}", err=True)
        if lock.holder(wait.ws) is None:
            say("no daemon is running there: the task starts with `mailboxd run`", err=True)
    found = wait.result()
    if found is None:
        say(for_terminal(_still(wait, file, elsewhere)), err=True)
        return EXIT_TRY_AGAIN
    done = found["phase"] == "completed"
    if session.as_json:
        say(to_json(found))
    elif done:
        say(for_terminal(found["results"]))
    else:
        say(for_terminal(f"{found['local_id']} {found['phase']}: {found['error'] or found['reason']}"), err=True)
    return None if done else EXIT_NO


def _still(wait: Wait, file: str, elsewhere: bool) -> str:
    if not wait.name:
        return f"{file} has not been accepted yet; it remains in the inbox"
    where = f"-w {shlex.quote(str(wait.ws.root))} " if elsewhere else ""
    return f"{wait.name} has not ended and continues; see `mailboxd {where}why {wait.name}`"


_OUTPUT = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE, which must not exist (default: standard output)."
)
_TASK_ID = click.option("--task-id", type=Header("task_id", "ID"), required=True, help="The task id.")
_SENDER = click.option("--from", "sender", type=Header("from", "ID"), required=True, help="The sender.")
_EXITS = {EXIT_BAD_MESSAGE: "the message would be invalid"}


@click.group("message", cls=Group)
def message_command() -> None:
    """Write a protocol message (dispatch or reply) or a task.md, to a file or standard output."""


@verb(
    "dispatch",
    'export message dispatch --task-id q3 --subtask-id extract --from analyst --title "Extract" --instructions "..."',
    exits=_EXITS,
)
@_TASK_ID
@click.option("--subtask-id", type=Header("subtask_id", "ID"), help="The subtask being delegated.")
@_SENDER
@click.option("--title", type=Text(), required=True, help="The title, on one line.")
@click.option("--context", type=Text(), default="", help="Background information.")
@click.option("--instructions", type=Text(), default="", help="What to do.")
@click.option("--expected-output", type=Text(), default="", help="What the result must contain.")
@_OUTPUT
def dispatch(session: Session, output: str | None, **said: Any) -> None:
    """Write a message that delegates work to an agent."""
    draft = Draft(said["title"], said["instructions"], said["context"], said["expected_output"])
    identity = {"task_id": said["task_id"], "subtask_id": said["subtask_id"], "from": said["sender"]}
    _write(session, output, compose(draft, {**identity, "sent_at": session.clock.now()}))


@verb(
    "reply",
    'export message reply --task-id q3 --subtask-id extract --from scout --status done --results "12 figures"',
    'export message reply --task-id q3 --subtask-id extract --from scout --status failed --error "no access"',
    exits=_EXITS,
)
@_TASK_ID
@click.option("--subtask-id", type=Header("subtask_id", "ID"), help="The subtask being answered.")
@_SENDER
@click.option("--status", type=click.Choice(["done", "failed"]), required=True, help="The outcome.")
@click.option("--results", type=Text(), default="", help="The results (with --status done).")
@click.option("--error", type=Text(), default="", help="What went wrong (with --status failed).")
@click.option("--partial", type=Text(), default="", help="Results from before the failure.")
@_OUTPUT
def reply(session: Session, output: str | None, **said: Any) -> None:
    """Write a message that reports the outcome of work."""
    from mailboxd.protocol.markdown import Section
    from mailboxd.protocol.messages import ReplyMessage, render_message

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
    _write(session, output, render_message(message))


@verb(
    "task",
    'export message task --task-id q3 --from operator --title "Q3 report" --instructions "..." -o tasks/q3/task.md',
    exits=_EXITS,
)
@_TASK_ID
@_SENDER
@click.option("--title", type=Text(), required=True, help="The title, on one line.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "coordinating"]),
    default="direct",
    show_default=True,
    help="Executed as a whole, or split into subtasks.",
)
@click.option("--status", help="Default: pending; planning if coordinating.")
@click.option("--context", type=Text(), default="", help="Background information.")
@click.option("--instructions", type=Text(), default="", help="What to do.")
@click.option("--expected-output", type=Text(), default="", help="What the result must contain.")
@click.option("--results", type=Text(), default="", help="The results.")
@_OUTPUT
def task(session: Session, output: str | None, **said: Any) -> None:
    """Write a task.md, which starts a task when it appears under tasks/."""
    from mailboxd.core.vocabulary import Mode
    from mailboxd.protocol.prompts import Templates
    from mailboxd.protocol.taskmd import STATUSES, TaskFile, render_task_file

    mode = Mode(said["mode"])
    status = said["status"] or STATUSES[mode][0]
    if status not in STATUSES[mode]:
        raise click.UsageError(f"{status!r} is not a status of a {mode} task: {', '.join(STATUSES[mode])}")
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
    """Write to a file, atomically, or to standard output."""
    if output is None:
        say(to_json({"text": raw.decode()}) if session.as_json else raw.decode(), newline=session.as_json)
        return
    from mailboxd.mailbox.files import directory, publish, world_errors

    path = Path(output)
    with world_errors(f"write {output}"), directory(path.parent) as fd:
        try:
            publish(fd, path.name, raw)
        except FileExistsError:
            raise click.UsageError(f"{output}: the file already exists") from None
        os.fsync(fd)
    if session.as_json:
        say(to_json({"file": output}))


for _made in (dispatch, reply, task):
    message_command.add_command(_made)
