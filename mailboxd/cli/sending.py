"""A task message from the operator's words, and waiting for what becomes of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mailboxd.cli.following import INTERVAL
from mailboxd.cli.text import plain, say
from mailboxd.errors import MessageError, UnavailableError
from mailboxd.workspace.layout import Workspace

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.store.report import Report

_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 40
_TOLD = ("task.transitioned", "question.asked", "circuit.opened")


@dataclass(frozen=True, slots=True)
class Draft:
    """What the operator wants to be done, in words."""

    title: str
    instructions: str
    context: str = ""
    expected_output: str = ""
    dag: str = ""


def slug(title: str, unique: str) -> str:
    """A task id of a title: its plain words, and a few characters that make it the only one."""
    words = _NOT_IN_SLUG.sub("-", title.lower()).strip("-")[:_LONGEST_SLUG].strip("-")
    return f"{words or 'task'}-{unique}"


def compose(draft: Draft, headers: Mapping[str, object]) -> bytes:
    """The bytes of a `type: task` message. Raises MessageError when it cannot be one."""
    from pydantic import ValidationError

    from mailboxd.messages import codec
    from mailboxd.messages.models import TaskMessage
    from mailboxd.messages.sections import Section

    said = (
        ("Context", draft.context),
        ("Instructions", draft.instructions),
        ("Expected Output", draft.expected_output),
        ("DAG", draft.dag),
    )
    sections = tuple(Section(heading, text) for heading, text in said if text.strip())
    try:
        return codec.render(TaskMessage.model_validate({**headers, "title": draft.title, "sections": sections}))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = str(first["loc"][0]) if first["loc"] else None
        raise MessageError("field-range", first["msg"], field=field) from error


def signed_by(ws: Workspace, sender: str, raw: bytes) -> bytes:
    """The message, signed if a person sends it who has a key. Raises ConfigError if that key cannot be used."""
    from mailboxd.core.terms import OPERATORS
    from mailboxd.keys.ring import Ring

    ring = Ring.of(ws.root, os.environ)
    key = ring.private(ring.operator_file) if sender.lower() in OPERATORS else None
    if key is None:
        return raw
    from mailboxd.keys.ed25519 import require_extra
    from mailboxd.keys.trust import signed

    require_extra()
    return signed(raw, key)


def checked_plan(text: str, path: str, config_file: Path) -> str:
    """The plan in `text` as it stands in a `## DAG` section, once it is certain that it could be carried out.

    Raises MessageError, PlanError; ConfigError when the receiver's limits cannot be read.
    """
    from mailboxd import config
    from mailboxd.core import dag
    from mailboxd.core.view import Limits
    from mailboxd.messages.plan import parse_dag, render_dag

    read = parse_dag(text, path=path)
    limits = config.limits(config.load(config_file)) if config_file.exists() else Limits()
    dag.admit(read.plan, limits, 0)
    return f"```yaml\n{render_dag(read)}```"


def receiver(path: Path) -> Workspace:
    """The workspace at `path`, which needs no mailboxd: a mailbox is enough. Raises UnavailableError."""
    ws = Workspace(path.resolve())
    if not ws.inbox.is_dir():
        raise UnavailableError(f"{path}: there is no mailbox/inbox; `mailboxd init {path} --agent <id>` makes one")
    return ws


# ---------------------------------------------------------------- waiting


@dataclass(slots=True)
class Wait:
    """Waiting for one message's task to end. `limit` is in seconds; None: for ever."""

    session: Session
    ws: Workspace
    message_id: str
    limit: float | None = None
    name: str = ""
    """The local id of the task, once the message is judged: it need not be the id that was sent."""

    def result(self) -> dict[str, Any] | None:
        """The ended task as `show` has it; None when the time is over. Progress goes to standard error.

        Raises MessageError when the message was rejected.
        """
        from mailboxd.store.details import details
        from mailboxd.store.report import opened

        deadline = None if self.limit is None else self.session.clock.monotonic() + self.limit
        told = 0
        while True:
            if self.ws.database.exists():
                with opened(self.ws.database) as report:
                    task = self._task(report)
                    if task is not None:
                        self.name = report.local_id(task)
                        told = self._tell(report, task, told)
                        found = details(report, task)
                        if found["completed_at"] and found["phase"] in ("completed", "failed", "cancelled"):
                            return found
            if deadline is not None and self.session.clock.monotonic() >= deadline:
                return None
            self.session.pause(INTERVAL)

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

    def _tell(self, report: Report, task: str, after: int) -> int:
        for event in report.events(task, tree=True, after=after):
            after = event["seq"]
            if event["kind"] in _TOLD and not self.session.as_json:
                say(f"{event['at']}  {plain(event['text'])}", err=True)
        return after
