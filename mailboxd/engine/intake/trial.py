"""What a file would become in the inbox, before it is put there; and a rejected one, corrected and sent again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mailboxd.core.events import Kind
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import InboxFile
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import MessageError, UnavailableError
from mailboxd.formats.config.settings import settings
from mailboxd.formats.keys import Keyring, Trust
from mailboxd.formats.mailbox.files import directory, read_file, replace, world_errors
from mailboxd.formats.mailbox.maildir import deliver
from mailboxd.ledger.messages import Messages
from mailboxd.ledger.reports import Report, opened
from mailboxd.ledger.store import Store

if TYPE_CHECKING:
    from mailboxd.core.model import Task
    from mailboxd.formats.config import Config
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.host.clock import Clock


def taken(ws: Workspace, config: Config, clock: Clock, name: str, raw: bytes) -> dict[str, Any]:
    """What becomes of the file: the real intake, with a copy of the database in memory.

    Raises MessageError for one that would be rejected, UnavailableError, WorldError.
    """
    if len(raw) > (most := config.limits.message_bytes):
        raise MessageError("too-large", f"it has more than {most} bytes", "Name the large file in a short one.", name)
    with opened(ws.database) as report:
        store = Store.copy_of(report.db, clock.now())
    try:
        may_reach = partial(store.meta.refused, config.agent)
        engine = Engine(store, settings(config), clock, may_reach=may_reach)
        trust = Trust.of(Keyring.of(ws.root, os.environ), config.agent, config.signing.require)
        intake = Intake(engine, accept_plain=config.inbox.accept_plain_files, trust=trust)
        file = InboxFile(name, raw, hashlib.sha256(raw).hexdigest(), len(raw), {})
        parsed = intake.parse(file)
        if isinstance(parsed, MessageError):
            raise parsed
        earlier = store.messages.first_arrival(parsed.message.message_id, parsed.sha256, parsed.message.from_)
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


def rejected(report: Report, name: str) -> tuple[str, str]:
    """The name and the text of the only rejected file that is called `name` (see `Messages.to_look_at`).

    Raises UnavailableError for none, for several, and for one that is no text.
    """
    messages = Messages(report.db)
    found = {id_: file for id_, file in messages.to_look_at(name).items() if messages.is_rejected(id_)}
    if len(found) != 1:
        problem = "several rejected files are" if found else "no rejected file is"
        raise UnavailableError(f"{problem} called {ascii(name)[:100]}: `mailboxd inbox` lists all, with their ids")
    ((id_, file),) = found.items()
    raw = messages.body(id_)
    try:
        return file, (raw or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnavailableError(f"{file} is no text in UTF-8 (byte {error.start}), and cannot be edited here") from error


@dataclass(frozen=True, slots=True)
class Draft:
    """A corrected copy of a rejected file that was not sent: `.mailboxd/drafts/HASH.md`, by what was rejected."""

    ws: Workspace
    name: str

    @classmethod
    def of(cls, ws: Workspace, text: str) -> Self:
        """The draft of the rejected file with this text."""
        return cls(ws, f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.md")

    def read(self) -> str | None:
        """Its text; None without one that can be read as text. Raises WorldError."""
        with world_errors(f"read {self._path}"), suppress(FileNotFoundError, UnicodeDecodeError):
            with directory(self.ws.root, self.ws.state.name, _DRAFTS) as folder:
                raw = read_file(folder, self.name, _MOST)
            return None if raw is None else raw.decode()
        return None

    def keep(self, text: str) -> None:
        """Write it. Raises WorldError."""
        with world_errors(f"write {self._path}"):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            with directory(self.ws.root, self.ws.state.name, _DRAFTS) as folder:
                replace(folder, self.name, text.encode(), lambda: True)

    def drop(self) -> None:
        """Remove it. Raises WorldError."""
        with world_errors(f"remove {self._path}"):
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.ws.state / _DRAFTS / self.name


_DRAFTS = "drafts"
_MOST = 1 << 30
"""Bytes of a draft that are read: what is too large is refused with that reason."""


def send_again(ws: Workspace, file: str, text: str, program: str) -> str:
    """Put a corrected copy of a rejected file into the inbox under its name, which takes the rejected one, which is
    kept, off the list of what needs a person as soon as the copy is accepted. Returns the name. Raises WorldError.
    """
    return deliver(ws.inbox, file, text.encode(), renamed=True, program=program)
