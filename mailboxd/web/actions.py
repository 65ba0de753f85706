"""What the forms do: the same inputs as a command, under the system user name.

A decision is bound to what was shown: the form carries the digest, which must still be that of the approval.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from mailboxd.core.approvals import ApprovalDecision
from mailboxd.core.operator_orders import BY_NAME
from mailboxd.core.sanitize import storable_text
from mailboxd.engine import operator_commands
from mailboxd.engine.engine import Engine
from mailboxd.errors import Refused, UnavailableError
from mailboxd.host import process, wakeup
from mailboxd.web.workspaces import WebWorkspace

Form = Mapping[str, str]

_MAX_NOTE = 4_000
_MAX_ANSWER = 100_000
_DIGEST = re.compile(r"[0-9a-f]{64}|")


@dataclass(frozen=True, slots=True)
class FormActions:
    """`open_engine` opens an engine that records an order and leaves effects to the daemon."""

    open_engine: Callable[[WebWorkspace], AbstractContextManager[Engine]]

    def decide(self, workspace: WebWorkspace, approval: str, form: Form) -> str:
        """Approve, reject or request changes; returns the decision. Raises MailboxdError."""
        try:
            decision = ApprovalDecision(form.get("decision", ""))
        except ValueError:
            raise Refused("bad-form", "the form has no valid decision", "Open the request again.") from None
        note, digest = _text(form, "note", _MAX_NOTE), form.get("digest", "")
        if decision is not ApprovalDecision.APPROVED and not note:
            raise Refused("bad-form", "a note is required unless you approve", "Write a note.")
        if _DIGEST.fullmatch(digest) is None:
            raise Refused("bad-form", "the form has no valid digest", "Open the request again.")
        with self.open_engine(workspace) as engine, engine.batch():
            (row,) = operator_commands.requested(engine, [approval])
            if row.digest != digest:
                problem = f"request {row.short_id} is not the one shown: its digest is {row.digest[:12] or 'empty'}"
                raise Refused("digest-mismatch", problem, "Read it again.")
            (done,) = operator_commands.decide(engine, [row.id], decision, note, process.name())
        wakeup.poke(workspace.ws.state)
        if not done.events:
            raise Refused("already-decided", f"{row.short_id} is {row.status} already, by {row.resolved_by}")
        return decision.value

    def order(self, workspace: WebWorkspace, task: str, form: Form) -> str:
        """Retry, cancel, unblock or answer; returns the name of the order. Raises MailboxdError."""
        name = form.get("order", "")
        order = BY_NAME.get(name)
        if order is None or not order.label:
            raise Refused("bad-form", "the form has no valid order", "Open the task again.")
        text = _text(form, "note", _MAX_ANSWER if name == "answer" else _MAX_NOTE)
        if name == "answer" and not text:
            raise Refused("bad-form", "the answer is empty", "Write an answer.")
        with self.open_engine(workspace) as engine, engine.batch():
            found = engine.store.tasks.by_local_id(task)
            if found is None:
                raise UnavailableError(f"there is no task {ascii(task)[:100]}")
            operator_commands.give(engine, found, order, text, process.name())
        wakeup.poke(workspace.ws.state)
        return name


def _text(form: Form, name: str, most: int) -> str:
    text = storable_text(form.get(name, "").replace("\r\n", "\n")).strip()
    if len(text) > most:
        raise Refused("bad-form", f"{name} has {len(text)} characters; the maximum is {most}", "Shorten it.")
    return text
