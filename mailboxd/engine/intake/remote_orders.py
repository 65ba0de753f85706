"""Orders and decisions of people in chats and on OpenClaw's dashboard, as the gateway hands them over.

Each is judged and carried out as the same order on the command line is, by the identity that the gateway vouches for
(`core.people`). Decisions count only from those whom `approvals.approvers` names; the other orders also from whoever
may write on the gateway as its operator. What was done is one event with the order's id and the answer, so that an
order that is handed over again is not carried out again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mailboxd.core.approvals import Approval, ApprovalDecision, ApprovalStatus
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.model import Task
from mailboxd.core.notices import words_on_record
from mailboxd.core.operator_orders import BY_NAME, OPERATOR, OPERATOR_ORDERS, OperatorOrder
from mailboxd.core.people import DEVICE, OWNER, is_person
from mailboxd.core.sanitize import first_line, storable_text
from mailboxd.core.times import plus, to_epoch
from mailboxd.core.vocabulary import Phase
from mailboxd.engine import operator_commands, sending
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import decisions, held_orders
from mailboxd.errors import ConfigError, MessageError, PlanError, Refused, UnavailableError, WorldError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.ids import readable
from mailboxd.ledger.remote_orders import REPEATED, SENT
from mailboxd.ledger.told import was_told

_ID = re.compile(r"[0-9A-Za-z-]{8,64}")
_NAME = re.compile(r"[0-9A-Za-z._:-]{0,160}")
_DIGEST = re.compile(r"[0-9a-fA-F]{8,64}")
_WRITES = frozenset({"operator.write", "operator.admin"})
_MOST_TEXT = 100_000
_MOST_TITLE = 200
_SAME_SECONDS = 120.0
_MOST_PREVIEW = 6_000
_CARD = "card"
"""Asks for a request as it stands here: what an agent wrote into a file is not what is approved."""


@dataclass(frozen=True, slots=True)
class RemoteOrder:
    """One order as it was handed over. `said` of a decision may begin with the digest that was shown."""

    id: str
    verb: str
    name: str
    """The task, the approval, or nothing."""
    said: str
    by: str
    is_owner: bool
    """The person may write on the gateway as its operator."""
    at: str


def read(raw: object) -> RemoteOrder | None:
    """The order in what the gateway handed over; None if it is none."""
    if not isinstance(raw, dict) or not isinstance(raw.get("by"), dict):
        return None
    words = {name: raw.get(name, "") for name in ("id", "verb", "name", "text", "at")}
    if not all(isinstance(word, str) for word in words.values()):
        return None
    by, is_owner = _person(raw["by"])
    if not (by and _ID.fullmatch(words["id"]) and _NAME.fullmatch(words["name"]) and words["verb"] in (_CARD, *_VERBS)):
        return None
    try:
        to_epoch(words["at"])
    except ValueError:
        return None
    said = storable_text(words["text"]).strip()[: _MOST_TEXT + 1]
    return RemoteOrder(words["id"], words["verb"], words["name"], said, by, is_owner, words["at"])


def _person(said: Mapping[str, Any]) -> tuple[str, bool]:
    """Who it is, and whether they may write on the gateway. A client of the gateway is its operator, whatever channel
    or sender it names.
    """
    scopes = said.get("scopes")
    may_write = isinstance(scopes, list) and not _WRITES.isdisjoint(word for word in scopes if isinstance(word, str))
    if said.get("device") is not None:
        person = f"{DEVICE}{said['device']}"
    elif scopes is not None:
        person = OWNER if may_write else ""
    else:
        person = f"chat:{said.get('channel')}:{said.get('sender')}"
        may_write = False
        if person.startswith("chat:webchat:"):
            return "", False
    return (person, may_write) if is_person(person) else ("", False)


def carry_out(engine: Engine, ws: Workspace, order: RemoteOrder) -> str:
    """Carry out the order, unless that was done before; returns the answer for the person. Inside a batch."""
    listed = order.by in engine.settings.approvers
    if not listed and not order.is_owner:  # not recorded: strangers must not fill the log
        return f"This mailbox does not know {order.by}. Its owner can name it in approvals.approvers."
    if order.verb == _CARD:
        return _shown(engine, order)
    said = {"id": order.id, "by": order.by, "order": f"{order.verb} {order.name}".strip(), "words": _words(order)}
    if (known := engine.store.remote_orders.given(order.id)) is not None:
        if {name: known[name] for name in said} != said:
            return "Refused: another order was given under this id before. Nothing was ordered; give it once more."
        return str(known["answer"])
    if len(order.said) > _MOST_TEXT:  # the half of an instruction is another one
        return f"Refused: that is longer than {_MOST_TEXT} characters. Nothing was ordered."
    try:
        with engine.store.savepoint():
            answer, task = _VERBS[order.verb](engine, ws, order)
    except (Refused, MessageError, PlanError) as refusal:
        answer, task = f"Refused: {refusal.problem.rstrip('.')}. {refusal.hint}".strip(), None
    except (UnavailableError, ConfigError) as error:
        answer, task = f"Refused: {error}", None
    data = {"at": engine.now, **said, "answer": answer}
    engine.record(Event(Kind.REMOTE_ORDER, task, data, Role.OPERATOR, order.by))
    return answer


# The orders. Each returns the answer and the task that it is about.

_Done = tuple[str, str | None]


def shown_digest(row: Approval) -> str:
    """The digest of a request as it is shown to people: a permission has none of its own."""
    return row.digest or hashlib.sha256(f"{row.id}\n{row.preview}".encode()).hexdigest()


def card(row: Approval) -> dict[str, Any]:
    """Everything needed to decide."""
    return {
        "action": row.requested_action,
        "kind": row.side_effect_kind if row.purpose == "action" else row.purpose,
        "risk": row.risk,
        "preview": row.preview[:_MOST_PREVIEW],
        "is_cut": len(row.preview) > _MOST_PREVIEW,
        "digest": shown_digest(row),
        "requested_by": row.requested_by,
        "at": row.at,
        "expires_at": row.expires_at,
        "is_reversible": row.is_reversible,
    }


def _shown(engine: Engine, order: RemoteOrder) -> str:
    """The card of a request as JSON, or why there is none."""
    try:
        row = _approval(engine, order)
    except (Refused, UnavailableError) as error:
        return str(error)
    if row.status is not ApprovalStatus.PENDING:
        return f"{row.short_id} is {row.status}" + (f" by {row.resolved_by}." if row.resolved_by else ".")
    words, to = json.dumps(card(row)), order.by
    if not was_told(engine.store.report, row.task, order.id, to):
        data = {"at": engine.now, "id": order.id, "what": _CARD, "to": to, "text": first_line(row.requested_action)}
        engine.record(Event(Kind.NOTICE_SENT, row.task, data | words_on_record(words), Role.OPERATOR, to))
    return words


def _approval(engine: Engine, order: RemoteOrder) -> Approval:
    found = list(operator_commands.requested(engine, [order.name]))
    if len(found) != 1:
        raise Refused("bad-form", "name one request", "`/mailbox` lists what waits.")
    return found[0]


def _approve(engine: Engine, _ws: Workspace, order: RemoteOrder) -> _Done:
    row, (digest, _, note) = _approval(engine, order), order.said.partition(" ")
    if _DIGEST.fullmatch(digest) is None:
        how = f"`/mailbox show {row.short_id}` shows it; then `/mailbox approve {row.short_id} DIGEST`."
        raise Refused("digest-missing", "an approval names the first eight digits of the digest that was shown", how)
    decisions.require_digest(shown_digest(row), digest, row.short_id, row.short_id)
    note = note.strip()
    (done,) = decisions.decide(engine, [row.id], ApprovalDecision.APPROVED, note, order.by)
    if not done.events:
        return f"{row.short_id} was approved already, by {row.resolved_by}.", row.task
    return f"Approved {row.short_id} as {order.by}: {first_line(row.requested_action)}", row.task


def _reject(engine: Engine, _ws: Workspace, order: RemoteOrder) -> _Done:
    row = _approval(engine, order)
    note = order.said or "rejected in a chat, without a reason"
    held_orders.hold_rejection(engine, [row.id], note, order.by)
    task = engine.store.tasks.local_id(row.task)
    return f"{row.short_id} is rejected in 10 s. `/mailbox undo {task}` takes it back.", row.task


def _changes(engine: Engine, _ws: Workspace, order: RemoteOrder) -> _Done:
    row = _approval(engine, order)
    if not order.said:
        raise Refused("bad-form", "say what is to be changed", f"`/mailbox changes {row.short_id} TEXT`")
    decisions.decide(engine, [row.id], ApprovalDecision.REQUEST_CHANGES, order.said, order.by)
    return f"{row.short_id} goes back for another attempt, with your words.", row.task


def _task(engine: Engine, order: RemoteOrder) -> Task:
    if not order.name:
        raise Refused("bad-form", f"{order.verb} needs the name of a task", "`/mailbox` lists what waits.")
    task = engine.store.tasks.get(engine.store.report.find(order.name))
    if task is None:
        raise UnavailableError(f"there is no task {order.name}")
    return task


def _undo(engine: Engine, _ws: Workspace, order: RemoteOrder) -> _Done:
    task = _task(engine, order)
    held_orders.take_back(engine, task, order.by)
    return f"Taken back: nothing happens to {task.local_id}.", task.id


def _order(order: OperatorOrder) -> Callable[[Engine, Workspace, RemoteOrder], _Done]:
    """Gives an order of the table."""

    def act(engine: Engine, _ws: Workspace, said: RemoteOrder) -> _Done:
        task = _task(engine, said)
        blocked = task.phase is Phase.CIRCUIT_OPEN or task.held
        chosen = BY_NAME["unblock-retry"] if order.name == "retry" and blocked else order
        give = held_orders.hold if order.ends else operator_commands.give
        give(engine, task, chosen, chosen.read_words(said.said), said.by)
        return order.chat.format(task=task.local_id), task.id

    return act


def _words(order: RemoteOrder) -> str:
    return hashlib.sha256(f"{order.by}\n{order.said}".encode()).hexdigest()


def _send(engine: Engine, ws: Workspace, order: RemoteOrder) -> _Done:
    """The same file for the same order: one that is written again is the same message.

    A messenger delivers a message again to a gateway that died while it was being handled, as another order: the same
    words of the same person soon after are the same task.
    """
    if not order.said:
        raise Refused("bad-form", "a task needs instructions", "`/mailbox send AGENT TEXT`")
    title = first_line(order.said, _MOST_TITLE)
    if (again := engine.store.remote_orders.sent(_words(order), plus(engine.now, -_SAME_SECONDS))) is not None:
        return f"{REPEATED}these words came twice within two minutes. {again}", None
    draft = sending.with_plan(sending.Draft(title, order.said), ws)
    digest = hashlib.sha256(order.id.encode()).hexdigest()
    task_id = readable(digest[:6], title)
    identity = {"task_id": task_id, "from": OPERATOR, "message_id": f"msg_{digest[:26]}", "sent_at": order.at}
    try:
        sending.put(ws, task_id, sending.signed_by(ws, OPERATOR, sending.compose(draft, identity)), "chat")
    except WorldError as error:
        raise UnavailableError(str(error)) from error
    return f"{SENT}{engine.settings.agent} as {task_id}.", None


_VERBS: Mapping[str, Callable[[Engine, Workspace, RemoteOrder], _Done]] = {
    "approve": _approve,
    "reject": _reject,
    "changes": _changes,
    "undo": _undo,
    "send": _send,
    **{order.name: _order(order) for order in OPERATOR_ORDERS if order.chat},
}
