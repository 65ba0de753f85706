"""A person's decision about an approval, made without a file; it leaves the message that it could have been.

The message is filed as if it had come through the inbox, so that archive/ and the index of the day have every decision.
It has no effect of its own: dropped into an inbox again, it is a duplicate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from mailboxd.core.approvals import Approval, ApprovalDecision, Resolve
from mailboxd.core.events import Event, Role
from mailboxd.core.operator_orders import OPERATOR
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import InboxFile, record_message
from mailboxd.engine.operator_commands import requested
from mailboxd.errors import Refused
from mailboxd.formats.protocol.messages import ApprovalMessage, render_message

_NO_FILE = {"dev": 0, "ino": 0, "size": 0, "mtime_ns": 0}
"""The stamp of what never was in the inbox: filing it writes the recorded bytes."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A request as it was before, its task (local id), and what was recorded: nothing if it was decided so already."""

    row: Approval
    task: str
    events: Sequence[Event]


def require_digest(found: str, wanted: str, short_id: str, name: str) -> None:
    """Raise Refused unless the digest of a request begins as wanted; `name` is what shows the request."""
    if wanted and not found.startswith(wanted.lower()):
        problem = f"the digest of {short_id} is {found[:16] or 'empty'}..., not {wanted}"
        raise Refused("digest-mismatch", problem, f"Read it again: `mailboxd show {name}`.")


def decide(
    engine: Engine, names: Sequence[str], decision: ApprovalDecision, note: str, user: str,
    *, digest: str = "", role: Role = Role.OPERATOR,
) -> list[Decided]:  # fmt: skip
    """Decide about the approvals with these names; with `digest`, only if theirs begins so: what was seen.

    Inside a batch. Raises Refused, UnavailableError.
    """
    decided = []
    for row in list(requested(engine, names)):
        require_digest(row.digest, digest, row.short_id, row.short_id)
        events = engine.handle(row.task, Resolve(row.id, decision, note), role, user)
        task = engine.store.tasks.local_id(row.task)
        if events:
            _leave_message(engine, row, task, decision, note, user)
        decided.append(Decided(row, task, events))
    return decided


def _leave_message(engine: Engine, row: Approval, task: str, decision: ApprovalDecision, note: str, user: str) -> None:
    said = {
        "task_id": task,
        "from": OPERATOR,
        "message_id": engine.new_id("msg"),
        "sent_at": engine.now,
        "approval_id": row.id,
        "decision": decision.value,
        "decided_by": user,
        "preamble": note,
    }
    message = ApprovalMessage.model_validate(said)
    raw = render_message(message)
    name = f"{engine.now[11:23].replace(':', '').replace('.', '-')}.approval.{OPERATOR}.{task}.{row.short_id}.md"
    file = InboxFile(name, raw, hashlib.sha256(raw).hexdigest(), len(raw), _NO_FILE)
    record_message(engine, file, "accepted", message, task=row.task)
