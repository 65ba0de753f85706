"""What a form does: the same inputs as a command, in the name of the user that the operating system knows.

A word about a request is bound to what was shown: the digest stands in the form, and must still be the request's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from mailboxd.core.approvals import ApprovalDecision
from mailboxd.core.events import Event
from mailboxd.core.inputs import Cancel, Remedy, Retry, Unblock
from mailboxd.core.model import Task
from mailboxd.core.sanitize import storable_text
from mailboxd.engine import operator_commands
from mailboxd.engine.engine import Engine
from mailboxd.errors import Refused, UnavailableError
from mailboxd.host import process, wakeup
from mailboxd.web.workspaces import Place

Form = Mapping[str, str]

_NOTE = 4_000
_ANSWER = 100_000
_REMEDIES = {
    "unblock-retry": Remedy.RETRY,
    "unblock-accept": Remedy.ACCEPT,
    "unblock-fail": Remedy.FAIL,
}
ORDERS = ("retry", "cancel", "answer", *_REMEDIES)
_DIGEST = re.compile(r"[0-9a-f]{64}|")


@dataclass(frozen=True, slots=True)
class Acting:
    """`opened` gives an engine for one order, which records and leaves effects to the daemon."""

    opened: Callable[[Place], AbstractContextManager[Engine]]

    def decide(self, place: Place, approval: str, form: Form) -> str:
        """Approve, reject or ask for changes; what was decided. Raises MailboxdError."""
        try:
            decision = ApprovalDecision(form.get("decision", ""))
        except ValueError:
            raise Refused("bad-form", "the form says nothing that can be decided", "Open the request again.") from None
        note, digest = _text(form, "note", _NOTE), form.get("digest", "")
        if decision is not ApprovalDecision.APPROVED and not note:
            raise Refused("bad-form", f"a {decision.value.replace('_', ' ')} says why", "Write a note.")
        if _DIGEST.fullmatch(digest) is None:
            raise Refused("bad-form", "the form does not say what was seen", "Open the request again.")
        with self.opened(place) as engine, engine.batch():
            (row,) = operator_commands.requested(engine, [approval])
            if row.digest != digest:
                problem = f"request {row.short_id} is not what was shown: its digest is {row.digest[:12] or 'empty'}"
                raise Refused("digest-mismatch", problem, "Read it again.")
            (done,) = operator_commands.decide(engine, [row.id], decision, note, process.name())
        wakeup.poke(place.ws.state)
        if not done.events:
            raise Refused("already-decided", f"{row.short_id} is {row.status} already, by {row.resolved_by}")
        return decision.value

    def order(self, place: Place, task: str, form: Form) -> str:
        """Retry, cancel, unblock, answer; which of them it was. Raises MailboxdError."""
        name = form.get("order", "")
        if name not in ORDERS:
            raise Refused("bad-form", "the form orders nothing", "Open the task again.")
        text = _text(form, "note", _ANSWER if name == "answer" else _NOTE)
        if name == "answer" and not text:
            raise Refused("bad-form", "an answer says something", "Write it.")
        with self.opened(place) as engine, engine.batch():
            found = engine.store.tasks.by_local_id(task)
            if found is None:
                raise UnavailableError(f"there is no task {ascii(task)[:100]}")
            _carry_out(engine, found, name, text, process.name())
        wakeup.poke(place.ws.state)
        return name


def _carry_out(engine: Engine, task: Task, name: str, text: str, user: str) -> Sequence[Event]:
    if name == "answer":
        return operator_commands.answer(engine, task, text, user)
    if name == "cancel":
        return engine.command(task, Cancel(operator_commands.OPERATOR, text), user)
    if name == "retry":
        return engine.command(task, Retry(text), user)
    return engine.command(task, Unblock(_REMEDIES[name], text), user)


def _text(form: Form, name: str, most: int) -> str:
    text = storable_text(form.get(name, "").replace("\r\n", "\n")).strip()
    if len(text) > most:
        raise Refused("bad-form", f"{name} has {len(text)} characters; {most} are taken", "Write a file instead.")
    return text
