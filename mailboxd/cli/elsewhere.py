"""Sends a person's decision about work on another host, `HOST.AGENT:NAME`, and reports what became of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from mailboxd.cli.operator_shell import OPERATOR, require_operator
from mailboxd.cli.text import say, to_json
from mailboxd.errors import EXIT_NO

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.core.explain.task_details import ApprovalDetails
    from mailboxd.formats.protocol.messages import AnyMessage
    from mailboxd.hub.wire.names import Address

_PATIENCE = 20.0
"""Seconds to wait for the receipt."""


def found(name: str) -> tuple[Address, str] | None:
    """The agent of another host and the name there; None for a name of this workspace."""
    if ":" not in name:  # most names: nothing is loaded for them
        return None
    from mailboxd.hub.client.decisions import parse

    return parse(name)


def approval(address: Address, name: str) -> ApprovalDetails:
    """The approval of this name, as the other host shows it. Raises UnavailableError, ConfigError, WorldError."""
    from mailboxd.hub.client.decisions import requested
    from mailboxd.hub.files.membership import Membership

    return cast("ApprovalDetails", requested(Membership.of(os.environ), address, name).model_dump())


def decide(session: Session, address: Address, kind: type[AnyMessage], task: str, **headers: object) -> int | None:
    """Send a decision, wait for its receipt and say what became of it.

    Raises Refused inside an agent's turn, UnavailableError, ConfigError, MessageError, WorldError.
    """
    from mailboxd.hub.client import decisions as deciding
    from mailboxd.hub.files.membership import Membership

    require_operator(OPERATOR)
    membership, said = Membership.of(os.environ), {"task_id": task, **headers}
    done = deciding.decide(membership, session.clock, session.pause, _PATIENCE, address, kind, **said)
    is_fine = done.outcome in deciding.FINE
    told = {"message_id": done.message_id, "outcome": done.outcome, "why": done.why}
    if session.as_json:
        say(to_json({"agent": str(address), "task": task, **told}))
    session.tell(f"{address}: {done.outcome}{f': {done.why}' if done.why else ''}", err=not is_fine)
    return None if is_fine else EXIT_NO
