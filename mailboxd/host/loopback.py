"""Serving HTTP to this machine alone: a loopback socket, and a server that ends with the process that started it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mailboxd.errors import ConfigError, WorldError

HOST = "127.0.0.1"
BACKLOG = 64
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_HEAD_SECONDS = 5.0
"""A connection may stand without a whole request head: a new one, and one whose last request was answered."""
_PAUSE = 60.0
"""Seconds between two words about the same want."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class _Crowded:
    """Says that no more connections can be taken, once in a while: the loop tries, and fails, many times a second."""

    said_at: float = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _FULL:
            loop.default_exception_handler(context)
        elif loop.time() - self.said_at >= _PAUSE:
            self.said_at = loop.time()
            _log.warning("no further connection can be taken, callers wait: %s (`ulimit -n`)", error.strerror)


class _Connection(H11Protocol):
    """A connection that does not hold up others while it is idle.

    uvicorn counts every connection against its limit, and waits forever for the head of a first request. Here one
    without a request under way is closed after a few seconds, and at once, the oldest first, where the limit is
    reached: then a request is turned away only because of others that are being answered.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            idle = [other for other in self.connections if isinstance(other, _Connection) and other.is_idle]
            oldest = min(idle, key=lambda other: other.deadline, default=self)
            if oldest is not self:
                oldest.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        self._await_head()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    @property
    def deadline(self) -> float:
        """Until when it may stay idle, on the clock of the loop."""
        return self._deadline.when() if self._deadline is not None else 0.0

    def drop(self) -> None:
        """Close it, and count it no more."""
        self.connections.discard(self)
        self.transport.abort()

    def _await_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self._head_is_late)

    def _head_is_late(self) -> None:
        if self.is_idle:
            self.drop()


def listen(port: int, setting: str, host: str = HOST) -> socket.socket:
    """A socket that listens there; port 0 is any that is free. `setting` is what chose the port.

    Raises ConfigError for an address that is not loopback, WorldError when the port is taken.
    """
    if not is_loopback(host):
        raise ConfigError(
            f"{host} is not loopback: it is served to this machine alone, on 127.0.0.1 or ::1; "
            f"from elsewhere, forward the port: `ssh -L {port or 8770}:127.0.0.1:{port or 8770} HOST`"
        )
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        taken = error.errno == errno.EADDRINUSE
        hint = f"another program listens there; choose another {setting}" if taken else error.strerror
        raise WorldError(f"cannot listen on {host}:{port}: {hint}") from error
    return listening


def is_loopback(host: str) -> bool:
    """Whether the text is an address of this machine alone; a name is none, whatever it resolves to."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(application: Any, listening: socket.socket, *, until_eof: bool, **settings: Any) -> None:
    """Serve an ASGI application until a signal, or with `until_eof` until standard input ends.

    Standard input ends when the daemon that started us has died, however it died.
    """
    config = uvicorn.Config(
        application, http=_Connection, log_config=None, access_log=False, server_header=False, ws="none",
        timeout_keep_alive=5, timeout_graceful_shutdown=5, h11_max_incomplete_event_size=16_384, **settings,
    )  # fmt: skip
    asyncio.run(_run(uvicorn.Server(config), listening, until_eof=until_eof))


async def _run(serving: uvicorn.Server, listening: socket.socket, *, until_eof: bool) -> None:
    asyncio.get_running_loop().set_exception_handler(_Crowded())
    if until_eof:
        asyncio.get_running_loop().add_reader(0, partial(_at_eof, serving))
    await serving.serve(sockets=[listening])


def _at_eof(serving: uvicorn.Server) -> None:
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        serving.should_exit = True
