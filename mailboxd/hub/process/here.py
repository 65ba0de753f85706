"""This host in the hub: what every part of the hub process needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext

from mailboxd.core.sanitize import first_line
from mailboxd.errors import MailboxdError
from mailboxd.formats.keys import PrivateKey
from mailboxd.host.clock import SystemClock
from mailboxd.hub.files.membership import HostKeys, Membership
from mailboxd.hub.files.settings import HubSettings
from mailboxd.hub.process.api import streams_of
from mailboxd.hub.wire.sealing import SealError, open_sealed, seal
from mailboxd.hub.wire.signed_json import signed_json, verified_json

RETRY = 5.0
"""Seconds after which something that failed is tried again."""
MOST_REFUSED = 1_000
_log = logging.getLogger("mailboxd")


async def _at_once() -> None: ...


@dataclass(slots=True)
class ThisHost:
    """This host's name, key and settings, and its connection to the server."""

    membership: Membership
    settings: HubSettings
    key: PrivateKey
    keys: HostKeys
    clock: SystemClock = field(default_factory=SystemClock)
    nc: Client = field(default_factory=Client)
    trouble: str = "the hub process is starting"
    """Why nothing can be sent or received; empty if it can."""
    full_of: dict[str, str] = field(default_factory=dict)
    """What the server takes no more of from this host for any other (mail, jobs, claims), and why."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("sent", "received", "refused", "repeats"), 0))
    foreign: dict[str, str] = field(default_factory=dict)
    """Subjects on which something came that their host did not sign, and when it came last."""
    flooding: dict[str, str] = field(default_factory=dict)
    """Hosts that say so much that it is dropped unread, and when it was last."""
    fork: str = ""
    """How the founder's list of hosts contradicts the one here, which it has signed, too; empty if it does not."""
    copies: dict[str, str] = field(default_factory=dict)
    """Where another process asked to run as this host and was refused, and when it did last."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    settled: Callable[[], Awaitable[None]] = _at_once
    """Returns once it is sure that no other process runs as this host."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """There may be something to send."""

    @property
    def js(self) -> JetStreamContext:
        """The streams at the server, as far as a host may use them."""
        return streams_of(self.nc)

    @property
    def full(self) -> str:
        """Why the server takes no mail, jobs or claims from this host; empty if it does."""
        return next(iter(self.full_of.values()), "")

    @property
    def server(self) -> str:
        return f"the server {' or '.join(self.settings.servers)}"

    def server_of(self, role: str) -> str:
        """The agent here that serves a pool, in lower case; empty if none does."""
        return self.settings.pools[role].agent.lower() if role in self.settings.pools else ""

    @property
    def is_founder(self) -> bool:
        return str(self.key.public) == self.settings.founder

    def unsealed(self, raw: bytes) -> bytes:
        """What was sealed for this host. Raises SealError."""
        return open_sealed(raw, self.settings.host, self.key)

    def said_to(self, host: str, content: Mapping[str, object]) -> bytes:
        """JSON signed by this host and sealed for that one. Raises SealError."""
        key = self.keys(host)
        return seal(signed_json(self.key, content), {} if key is None else {host: key})

    def heard_from(self, host: str, raw: bytes) -> dict[str, Any] | None:
        """JSON that was sealed for this host and signed by that one; None for anything else."""
        key = self.keys(host)
        with suppress(SealError):
            return None if key is None else verified_json(self.unsealed(raw), key)
        return None

    def note_foreign(self, subject: str) -> None:
        """Something came that the host named in its subject did not sign: the server lets another publish there."""
        if subject not in self.foreign:
            _log.warning("something came on %s that its host did not sign", subject[:200])
        if subject in self.foreign or len(self.foreign) < MOST_REFUSED:
            self.foreign[subject] = self.clock.now()

    def note_flood(self, host: str) -> None:
        """A host says more than is read: the server lets it publish under its own name only, so it is that one."""
        if host not in self.flooding:
            _log.warning("the host %s says so much that it is dropped unread", host[:64])
        if host in self.flooding or len(self.flooding) < MOST_REFUSED:
            self.flooding[host] = self.clock.now()


def reason_of(error: Exception) -> str:
    return getattr(error, "description", None) or first_line(str(error)) or type(error).__name__


@contextmanager
def logged(doing: str) -> Iterator[None]:
    """Log what the disk refuses, and continue: it is tried again."""
    try:
        yield
    except (OSError, MailboxdError) as error:
        _log.warning("the hub process cannot %s: %s", doing, error)
