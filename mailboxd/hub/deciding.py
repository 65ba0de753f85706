"""A person's decision about work on another host: an ordinary message, signed with this host's key.

Its sender is `HOST.operator`. It waits in a spool of this user, not of a workspace, until its receipt is back; the
other host takes it only if `decide` in its hub.yaml names this one.
"""

from __future__ import annotations

from mailboxd.core.operator_orders import OPERATOR
from mailboxd.host import wakeup
from mailboxd.hub.membership import Membership
from mailboxd.hub.protocol import Address
from mailboxd.hub.spool import Spool
from mailboxd.keys import signed
from mailboxd.mailbox.files import world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.protocol.messages import AnyMessage, render_message


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


def send(membership: Membership, kind: type[AnyMessage], headers: dict[str, object]) -> Spool:
    """Have a decision carried; its receipt comes into the spool. Raises ConfigError, MessageError, WorldError."""
    host = membership.settings().host
    message = kind.model_validate({**headers, "from": operators_name(host)})
    spool = operators_spool(membership)
    spool.put(str(headers["message_id"]), signed(render_message(message), membership.key()))
    wakeup.poke(membership.folder)
    return spool
