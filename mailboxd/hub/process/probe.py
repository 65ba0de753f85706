"""Tries out for the doctor what the server lets this host do: what it must allow, and what it must refuse."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.wire import subjects

NOBODY = "nobody-"
"""As whom this host must not be able to publish. No host has a name that ends so."""
_PATIENCE = 3.0


@dataclass(slots=True)
class Trial:
    """The messages that came back, published under this host's name and under another."""

    own: str
    said: str = ""
    heard: set[str] = field(default_factory=set)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def hears(self, host: str, raw: bytes) -> bool:
        """Whether this is what was tried out."""
        if not self.said or host not in (self.own, NOBODY) or raw != self.said.encode():
            return False
        self.heard.add(host)
        if host == self.own:
            self.arrived.set()
        return True

    @contextmanager
    def trying(self) -> Iterator[bytes]:
        self.said = secrets.token_hex(16)
        self.heard.clear()
        self.arrived.clear()
        try:
            yield self.said.encode()
        finally:
            self.said = ""


async def probe(here: ThisHost, trial: Trial) -> dict[str, Any]:
    """The rights at the server, and the number of copies that it keeps of each message."""
    host = here.settings.host
    with trial.trying() as raw:
        # the other name first: what has come when the own has come was not refused
        await here.nc.publish(subjects.asked(host, NOBODY), raw)
        await here.nc.publish(subjects.asked(host, host), raw)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(trial.arrived.wait(), _PATIENCE)
        heard = set(trial.heard)
    stream = await here.js.stream_info(subjects.STREAM)
    others = (stream.cluster.replicas if stream.cluster else None) or ()
    behind = sorted(str(one.name) for one in others if one.offline or not one.current)
    return {"own": host in heard, "foreign": NOBODY in heard, "replicas": stream.config.num_replicas, "behind": behind}
