"""`mailboxd check`: what a file would become in the inbox, before it is put there."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import Session, verb
from mailboxd.core.sanitize import for_terminal, one_line
from mailboxd.errors import MessageError, UnavailableError

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

    It is read exactly as the daemon reads it, under this workspace's configuration; nothing is sent or recorded. - is
    standard input.
    """
    from mailboxd.mailbox.layout import is_temporary
    from mailboxd.protocol.no_task import declares_sender, left_aside

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
    """What becomes of the file: the real intake, with an empty database in memory. Raises MessageError."""
    from mailboxd.config.settings import settings
    from mailboxd.engine.engine import Engine
    from mailboxd.intake.archive import InboxFile
    from mailboxd.intake.interpret import Intake
    from mailboxd.store.attention_queries import Seen, waiting_for_person
    from mailboxd.store.messages import Messages
    from mailboxd.store.meta import PEERS, Meta
    from mailboxd.store.reports import Report
    from mailboxd.store.store import Store
    from mailboxd.store.tasks import root_called

    store = Store.open(None, session.clock.now())
    try:
        with session.report() as report:
            known = Meta(report.db)
            may_reach = partial(known.refused, config.agent)
            engine = Engine(store, settings(config), session.clock, may_reach=may_reach)
            with engine.batch():  # a file may name one of these
                store.meta.report(PEERS, json.dumps(known.peers()))
            intake = Intake(engine, accept_plain=config.inbox.accept_plain_files)
            file = InboxFile(name, raw, hashlib.sha256(raw).hexdigest(), len(raw), {})
            parsed = intake.parse(file)
            if isinstance(parsed, MessageError):
                raise parsed
            with engine.batch():
                verdict = intake.receive(file, parsed)
            earlier = Messages(report.db).first_arrival(parsed.message.message_id, parsed.sha256)
            here = store.messages.first_arrival(parsed.message.message_id, parsed.sha256)
            task = store.tasks.get(here.task) if here and here.task else None
            described = None if task is None else _described(store, task, partial(root_called, report.db))
        found = waiting_for_person(Report(store.db), session.clock.now(), None, Seen(""), None)
        for row in found.rejected:
            reason = row["reason"]
            where = (name, reason.get("line"), reason.get("field"))
            raise MessageError(reason["rule"], reason["problem"], reason["hint"], *where)
        doubts = [row["notice"] for row in found.noticed]
        if earlier is not None:
            doubts.append(f"it was taken on {earlier.at[:10]} from inbox/{earlier.name}: it would not be done again")
        facts = {"verdict": verdict, "name": name, "type": parsed.message.type, "sender": parsed.message.from_}
        return facts | {"doubts": doubts, "task": described}
    finally:
        store.close()


def _described(store: Store, task: Task, is_known: Callable[[str], object]) -> dict[str, Any]:
    """The task as its sender would recognize it: only what is set."""
    policy = task.policy
    limits = {
        "deadline": policy.deadline,
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
            one.name if is_known(one.name) else f"{one.name} (not known here)" for one in store.tasks.followed(task.id)
        ],
        "acceptance_criteria": list(task.spec.acceptance_criteria),
        "planned_actions": [action.id for action in task.spec.planned_actions],
        "subtasks": [
            {
                "id": child.key,
                "title": child.title,
                "agent": child.executor,
                "depends_on": sorted(need.key for need in store.tasks.dependencies(child.id)),
            }
            for child in store.tasks.children(task.id)
        ],
    }


def lines(facts: Mapping[str, Any], own: str, send: str = "") -> Iterator[str]:
    """What `taken` found, for people; `send` is the command that sends the file."""
    task = facts["task"]
    if task is None:
        yield f"{facts['name']} would be taken as a {facts['type']} of {facts['sender']}, about no task of this check"
    else:
        yield f"{facts['name']} would become a task of {own}, from {facts['sender']}:"
        for name, value in task.items():
            if name != "subtasks" and value not in ([], ""):
                shown = value if isinstance(value, list) else [value]
                head = name.replace("_", " ")
                yield from (f"  {'' if number else head:<20}{one}" for number, one in enumerate(shown))
        for child in task["subtasks"]:
            after = f", after {', '.join(child['depends_on'])}" if child["depends_on"] else ""
            yield f"  {'subtask':<20}{child['id']}: {child['title']} ({child['agent']}{after})"
    for doubt in facts["doubts"]:
        yield f"  {'doubt':<20}{doubt}"
    if send:
        yield f"to send it: {send}"
