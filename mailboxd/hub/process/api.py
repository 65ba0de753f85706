"""How hosts reach the streams at the server: each those parts that the server's configuration shows it."""

from __future__ import annotations

from nats.aio.client import Client
from nats.js import JetStreamContext

from mailboxd.formats.keys import PrivateKey
from mailboxd.hub.files.server import founders_api
from mailboxd.hub.wire.subjects import API


def streams_of(client: Client, timeout: float = 5.0) -> JetStreamContext:
    """What every host may do. `timeout`: seconds."""
    return client.jetstream(prefix=API, timeout=timeout)


def all_of(client: Client, founder: PrivateKey) -> JetStreamContext:
    """What the founder may do: everything."""
    return client.jetstream(prefix=founders_api(founder))
