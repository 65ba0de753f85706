"""A person's decision about work on another host: an ordinary message, signed with this host's key.

Its sender is `HOST.operator`. It waits in a spool of this user, not of a workspace, until its receipt is back; the
other host takes it only if `decide` in its hub.yaml names this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from mailboxd.core.operator_orders import OPERATOR
from mailboxd.core.sanitize import first_line
from mailboxd.errors import UnavailableError
from mailboxd.formats.keys import signed
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.messages import AnyMessage, render_message
from mailboxd.host import process, wakeup
from mailboxd.host.clock import Clock
from mailboxd.host.ids import Ids
from mailboxd.hub.client.ask import ask
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.spool import Spool
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.presence import Line, Said, Time

Text = Annotated[str, Field(max_length=1 << 20)]
UNDER_WAY = "under way"
FINE = ("accepted", "duplicate", UNDER_WAY)
"""What may become of a decision that was not refused."""
_POLL = 0.1


def operators_workspace(membership: Membership) -> Workspace:
    """The directory of the operator's spool. It has no mailbox: nothing is sent to a person on another host."""
    return Workspace(membership.folder / OPERATOR)


def operators_spool(membership: Membership) -> Spool:
    """Raises WorldError."""
    ws = operators_workspace(membership)
    with world_errors(f"create {ws.state}"):
        ws.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    spool = Spool(ws)
    spool.create()
    return spool


def operators_name(host: str) -> str:
    """A person on that host, as messages name them."""
    return f"{host}.{OPERATOR}"


def parse(name: str) -> tuple[Address, str] | None:
    """The agent of another host and the name there, of `HOST.AGENT:NAME`; None for any other name."""
    where, colon, rest = name.partition(":")
    address = Address.parse(where) if colon else None
    return None if address is None else (address, rest)


class _Undo(Said):
    id: Line
    short_id: Line
    status: Line
    state: Line = ""
    summary: Text = ""


class _Event(Said):
    at: Time
    text: Text


class Requested(Said):
    """An approval on another host, as `store.task_queries.approval_report` shows it there."""

    id: Line
    short_id: Line
    task: Line
    attempt: Line = ""
    purpose: Line
    origin: Line = ""
    side_effect_kind: Line
    requested_action: Text
    action: dict[str, Any]
    preview: Text = ""
    risk: Text = ""
    digest: Line
    idempotency_key: Line = ""
    gate: Line = ""
    status: Line
    void: bool = False
    state: Line = ""
    requested_by: Line
    at: Time
    expires_at: Time
    resolved_by: Line = ""
    resolved_at: Time = ""
    note: Text = ""
    started_at: Time = ""
    finished_at: Time = ""
    summary: Text = ""
    artifact: Line = ""
    taken_back: tuple[_Undo, ...] = ()
    history: tuple[_Event, ...] = ()


def requested(membership: Membership, address: Address, name: str) -> Requested:
    """The approval of this name, as the other host shows it. Raises UnavailableError, ConfigError, WorldError."""
    row = _asked(membership, address, {"kind": "approval", "agent": address.agent, "name": name})
    try:
        return Requested.model_validate(row)
    except ValidationError as error:
        raise UnavailableError(f"what {address.host} says is to be decided cannot be read; it may be older") from error


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a decision, in a word, and why."""

    message_id: str
    outcome: str
    why: str = ""


def decide(
    membership: Membership, clock: Clock, pause: Callable[[float], None], patience: float,
    address: Address, kind: type[AnyMessage], **headers: object,
) -> Decided:  # fmt: skip
    """Send a decision, and wait so many seconds for its receipt; later it is carried like any mail.

    Raises UnavailableError, ConfigError, MessageError, WorldError.
    """
    host, now = membership.settings().host, clock.now()
    message_id = Ids().new("msg", now)
    said = {"to": str(address), "message_id": message_id, "sent_at": now, "decided_by": process.name(), **headers}
    message = kind.model_validate({**said, "from": operators_name(host)})
    spool = operators_spool(membership)
    spool.put(message_id, signed(render_message(message), membership.key()))
    wakeup.poke(membership.folder)
    ends = clock.monotonic() + patience
    while (receipt := spool.receipt(message_id)) is None:
        if clock.monotonic() >= ends:
            why = f"{address.host} has not received it; it will as soon as it can: mailboxd hub status"
            return Decided(message_id, UNDER_WAY, why)
        pause(_POLL)
    spool.recorded(message_id)
    if receipt.refused:
        return Decided(message_id, "refused", first_line(receipt.refused, 500))
    judged = _asked(membership, address, {"kind": "verdict", "agent": address.agent, "message": message_id})
    if not isinstance(judged, dict):
        return Decided(message_id, UNDER_WAY, f"{address.host} has it, and did not say what became of it")
    reason = judged.get("reason")
    why = str(reason.get("problem", "")) if isinstance(reason, dict) else ""
    return Decided(message_id, first_line(str(judged.get("verdict"))), first_line(why, 500))


def _asked(membership: Membership, address: Address, question: Mapping[str, object]) -> object:
    heard = ask(membership, question, [address.host])
    if why := heard.silent.get(address.host):
        raise UnavailableError(f"{address.host}: {why}")
    return heard.answers.get(address.host)
