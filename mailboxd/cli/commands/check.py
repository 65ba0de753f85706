"""`mailboxd check`: what a file would become in the inbox, before it is put there."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import Session, verb
from mailboxd.core.local_time import told
from mailboxd.core.sanitize import for_terminal, one_line
from mailboxd.errors import MessageError, UnavailableError
from mailboxd.host import zone

if TYPE_CHECKING:
    from mailboxd.config import Config
    from mailboxd.core.model import Task
    from mailboxd.store.store import Store

_STANDARD_INPUT = "-"
_UNNAMED = "message.md"


@verb(
    "check",
    "check brief.md",
    "check brief.md --json",
    "check - < brief.md",
    exits={65: "it would be rejected, for the reason that is printed"},
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def check_command(session: Session, file: str) -> None:
    """Say what FILE would become in this agent's inbox: a task with these limits, or a refusal with its reason.

    It is taken exactly as the daemon takes it, under this workspace's configuration and beside the tasks and messages
    that are there, in a copy of the database: nothing is sent or recorded. - is standard input.
    """
    from mailboxd.mailbox.layout import is_temporary
    from mailboxd.protocol.left_aside import declares_sender, left_aside

    config, ws = session.config(), session.workspace()
    raw = _content(file, config.limits.message_bytes)
    name = _UNNAMED if file == _STANDARD_INPUT else Path(file).name
    what = "a temporary file" if is_temporary(name) else "" if declares_sender(raw) else left_aside(name)
    if what:
        text = f"{one_line(name)} would stay in the inbox: by its name it is {what}"
        session.answer({"verdict": "left aside", "name": name, "text": text}, text)
        return
    facts = taken(session, config, name, raw)
    send = f"cp -- {shlex.quote(file)} {shlex.quote(str(ws.inbox))}/" if file != _STANDARD_INPUT else ""
    session.show(facts, map(for_terminal, lines(facts, config.agent, send)))


def _content(file: str, most: int) -> bytes:
    """The bytes of the file. Raises UnavailableError; MessageError if there are none, or more than `most`."""
    try:
        with click.open_file(file, "rb") as opened:
            raw: bytes = opened.read(most + 1)
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be read: {error.strerror}") from error
    if not raw:
        raise MessageError("empty", "it is empty", "Write what has to be done.", file)
    if len(raw) > most:
        raise MessageError("too-large", f"it has more than {most} bytes", "Name the large file in a short one.", file)
    return raw


def taken(session: Session, config: Config, name: str, raw: bytes) -> dict[str, Any]:
    """What becomes of the file: the real intake, with a copy of the database in memory. Raises MessageError."""
    from mailboxd.config.settings import settings
    from mailboxd.core.events import Kind
    from mailboxd.engine.engine import Engine
    from mailboxd.intake.archive import InboxFile
    from mailboxd.intake.interpret import Intake
    from mailboxd.keys import Keyring, Trust
    from mailboxd.store.store import Store

    with session.report() as report:
        store = Store.copy_of(report.db, session.clock.now())
    try:
        may_reach = partial(store.meta.refused, config.agent)
        engine = Engine(store, settings(config), session.clock, may_reach=may_reach)
        trust = Trust.of(Keyring.of(session.workspace().root, os.environ), config.agent, config.signing.require)
        intake = Intake(engine, accept_plain=config.inbox.accept_plain_files, trust=trust)
        file = InboxFile(name, raw, hashlib.sha256(raw).hexdigest(), len(raw), {})
        parsed = intake.parse(file)
        if isinstance(parsed, MessageError):
            raise parsed
        earlier = store.messages.first_arrival(parsed.message.message_id, parsed.sha256)
        before = store.last_event()
        with engine.batch():
            verdict = intake.receive(file, parsed)
        events = [event for _, event in store.recorded_since(before)]
        of, recorded = next((event.task, event.data["message"]) for event in events if "message" in event.data)
        if reason := recorded.get("reason"):
            where = (name, reason.get("line"), reason.get("field"))
            raise MessageError(reason["rule"], reason["problem"], reason["hint"], *where)
        doubts = [f"{event.data['about']}: {event.data['text']}" for event in events if event.kind is Kind.DOUBTED]
        if earlier is not None and verdict == "duplicate":
            doubts.append(f"it was taken on {earlier.at[:10]} from inbox/{earlier.name}: it would not be done again")
        elif recorded.get("notice"):
            doubts.insert(0, recorded["notice"])
        task = store.tasks.get(of) if of else None
        is_new = any(event.kind is Kind.TASK_CREATED and task and event.task == task.id for event in events)
        again = next((event.data["repetition"] for event in events if event.kind is Kind.REPETITION_CREATED), None)
        facts = {
            "zone": config.zone,
            "verdict": verdict,
            "name": name,
            "type": parsed.message.type,
            "sender": parsed.message.from_,
        }
        known = task.local_id if task and not is_new else None
        described = _described(store, task) if task and is_new else _repeated(again) if again else None
        return facts | {"about": known, "doubts": doubts, "task": described}
    finally:
        store.close()


def _repeated(again: Mapping[str, Any]) -> dict[str, Any]:
    """Work that repeats."""
    missed = again.get("missed", "once")
    return {"title": again["title"], "repeats": again["said"], "first": again["next_at"], "missed": missed}


def _described(store: Store, task: Task) -> dict[str, Any]:
    """The task as its sender would recognize it: only what is set."""
    policy = task.policy
    limits = {
        "deadline": policy.deadline,
        "not_before": policy.not_before,
        "priority": policy.priority or None,
        "budget_usd": policy.budget_usd,
        "budget_tokens": policy.budget_tokens,
        "labels": list(policy.labels) or None,
        "gates": sorted(policy.gates) or None,
        "reviewers": list(policy.reviewers) or None,
    }
    return {
        "title": task.title,
        "agent": task.executor,
        **{name: value for name, value in limits.items() if value is not None},
        "after": [
            f"{one.name} (not known here)" if one.phase is None else one.name for one in store.tasks.followed(task.id)
        ],
        "acceptance_criteria": list(task.spec.acceptance_criteria),
        "planned_actions": [action.id for action in task.spec.planned_actions],
        "subtasks": [
            {
                "id": child.key,
                "title": child.title,
                "agent": child.executor,
                "depends_on": sorted(need.key for need in store.tasks.dependencies(child.id)),
                **{
                    name: at
                    for name in ("deadline", "not_before")
                    if (at := getattr(child.policy, name)) and at != getattr(policy, name)
                },
            }
            for child in store.tasks.children(task.id)
        ],
    }


def lines(facts: Mapping[str, Any], own: str, send: str = "") -> Iterator[str]:
    """What `taken` found, for people; `send` is the command that sends the file."""
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
    if send:
        yield f"to send it: {send}"


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
