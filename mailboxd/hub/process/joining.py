"""How a host that has an invitation asks the founder to be let in."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from mailboxd.core.sanitize import first_line
from mailboxd.errors import Refused
from mailboxd.formats.keys import PrivateKey
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.members import Invitation, nkey_seed
from mailboxd.hub.wire.subjects import guest, inbox_of, joining

_PATIENCE = 8.0
"""Seconds: the founder's hub process may have been started a moment ago, and has streams to make first."""
_REPLY = 3
_AGAIN = 0.2
"""Seconds until the server is asked once more: it may be reading its configuration."""


async def ask_in(membership: Membership, invitation: Invitation, patience: float = _PATIENCE) -> str:
    """Ask the founder to let this host in, for so many seconds at most; why it has not, and empty if it has.

    Raises Refused if the founder never will, ConfigError, WorldError.
    """
    loop, servers = asyncio.get_running_loop(), " or ".join(invitation.servers)
    until = loop.time() + patience
    while True:
        try:
            return await asyncio.wait_for(_asked(membership, invitation), max(until - loop.time(), _REPLY))
        except NoRespondersError:
            why = "the hub process of the founder does not run; once it does, `mailboxd hub run` here completes it"
        except (NatsError, OSError, TimeoutError) as error:
            if "authorization violation" not in str(error).lower():
                return f"{servers} does not answer: {first_line(str(error)) or type(error).__name__}"
            why = f"{servers} does not know the token: it expired, was withdrawn, or the server has not read of it yet"
        if loop.time() >= until:
            return why
        await asyncio.sleep(_AGAIN)


async def _asked(membership: Membership, invitation: Invitation) -> str:
    own, client = membership.key(), Client()

    async def failed(_: Exception) -> None:
        """It is raised, too."""

    try:
        await client.connect(
            list(invitation.servers),
            name=f"mailboxd {guest(invitation.host)}",
            tls=ssl.create_default_context(cadata=invitation.certificate),
            nkeys_seed_str=nkey_seed(PrivateKey.parse(invitation.secret)),
            inbox_prefix=inbox_of(guest(invitation.host)),
            allow_reconnect=False,
            connect_timeout=_REPLY,
            error_cb=failed,
        )
        reply = await client.request(joining(invitation.host), invitation.request(own), timeout=_REPLY)
    finally:
        with suppress(NatsError, OSError):
            await client.close()
    said = invitation.answer(reply.data, own.public)
    if said is None:
        return "what answered is not the founder of the hub"
    if isinstance(said, str):
        raise Refused("not-invited", said, "Ask the founder of the hub for a token of its own.")
    membership.let_in(said)
    return ""
