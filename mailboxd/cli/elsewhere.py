"""Sends a person's decision about work on another host, `HOST.AGENT:NAME`, and reports what became of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mailboxd.cli.operator_actions import OPERATOR, require_operator
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import first_line, for_terminal
from mailboxd.errors import EXIT_NO, UnavailableError

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.hub.protocol import Address
    from mailboxd.hub.spool import Spool
    from mailboxd.protocol.messages import AnyMessage

_PATIENCE, _POLL = 20.0, 0.1
"""Seconds to wait for the receipt, and between two looks for it."""


def found(name: str) -> tuple[Address, str] | None:
    """The agent of another host and the name there; None for a name of this workspace."""
    if ":" not in name:  # most names: nothing is loaded for them
        return None
    from mailboxd.hub.deciding import parse

    return parse(name)


def approval(address: Address, name: str) -> dict[str, Any]:
    """The approval of this name, as the other host shows it. Raises UnavailableError, ConfigError, WorldError."""
    row = _ask(address, {"kind": "approval", "agent": address.agent, "name": name})
    if not isinstance(row, dict):
        raise UnavailableError(f"the host {address.host} did not say what is to be decided")
    return row


def decide(session: Session, address: Address, kind: type[AnyMessage], task: str, **headers: object) -> int | None:
    """Send a decision, wait for its receipt and say what became of it.

    Raises Refused inside an agent's turn, UnavailableError, ConfigError, MessageError, WorldError.
    """
    from mailboxd.host import process
    from mailboxd.hub import deciding
    from mailboxd.hub.membership import Membership
    from mailboxd.ids import Ids

    require_operator(OPERATOR)
    membership = Membership.of(os.environ)
    message_id, now = Ids().new("msg", session.clock.now()), session.clock.now()
    identity = {"task_id": task, "to": str(address), "message_id": message_id, "sent_at": now}
    spool = deciding.send(membership, kind, {**headers, **identity, "decided_by": process.name()})
    outcome, why = _outcome(session, spool, address, message_id)
    if session.as_json:
        say(to_json({"agent": str(address), "task": task, "message_id": message_id, "outcome": outcome, "why": why}))
    else:
        say(for_terminal(f"{address}: {outcome}{f': {why}' if why else ''}"), err=outcome not in _FINE)
    return None if outcome in _FINE else EXIT_NO


_UNDER_WAY = "under way"
_FINE = ("accepted", "duplicate", _UNDER_WAY)


def _outcome(session: Session, spool: Spool, address: Address, message_id: str) -> tuple[str, str]:
    """The result of a decision in a word, and the reason."""
    ends = session.clock.monotonic() + _PATIENCE
    while (receipt := spool.receipt(message_id)) is None:
        if session.clock.monotonic() >= ends:
            return _UNDER_WAY, f"{address.host} has not received it; it will as soon as it can: mailboxd hub status"
        session.pause(_POLL)
    spool.recorded(message_id)
    if receipt.refused:
        return "refused", first_line(receipt.refused, 500)
    judged = _ask(address, {"kind": "verdict", "agent": address.agent, "message": message_id})
    if not isinstance(judged, dict):
        return _UNDER_WAY, f"{address.host} has received it, but has not reported the result"
    reason = judged.get("reason") or {}
    return first_line(str(judged.get("verdict"))), first_line(str(reason.get("problem", "")), 500)


def _ask(address: Address, question: dict[str, object]) -> object:
    from mailboxd.hub.asking import ask
    from mailboxd.hub.membership import Membership

    heard = ask(Membership.of(os.environ), question, [address.host])
    if why := heard.silent.get(address.host):
        raise UnavailableError(f"{address.host}: {why}")
    return heard.answers.get(address.host)
