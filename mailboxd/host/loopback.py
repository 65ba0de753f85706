"""A server of HTTP for this machine alone (`host.listening`), which ends with the process that started it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_HEAD_SECONDS = 5.0
"""A connection may stand without a whole request head: a new one, and one whose last request was answered."""
_PAUSE = 60.0
"""Seconds between two words about the same want."""
_LOOKS = 8
"""How often it is looked whether anybody asks, in the time after which a server that nobody asks ends."""
_LAST_LOOK = 0.1
"""Seconds between two looks whether those who came before the end have been answered."""
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


def serve(
    application: Any, listening: socket.socket, *, until_eof: bool, rest_seconds: float = 0.0, **settings: Any
) -> None:
    """Serve an ASGI application until a signal, or with `until_eof` until standard input ends.

    Standard input ends when the daemon that started us has died, however it died. With `rest_seconds` the server also
    ends when nobody has asked for so long; whoever else holds `listening` then takes the next caller.
    """
    config = uvicorn.Config(
        application, http=_Connection, log_config=None, access_log=False, server_header=False, ws="none",
        timeout_keep_alive=5, timeout_graceful_shutdown=5, h11_max_incomplete_event_size=16_384, **settings,
    )  # fmt: skip
    asyncio.run(_run(uvicorn.Server(config), listening, until_eof=until_eof, rest_seconds=rest_seconds))


async def _run(serving: uvicorn.Server, listening: socket.socket, *, until_eof: bool, rest_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_Crowded())
    if until_eof:
        loop.add_reader(0, partial(_at_eof, serving))
    resting = loop.create_task(_end_at_rest(serving, rest_seconds)) if rest_seconds else None
    await serving.serve(sockets=[listening])
    if resting is not None:
        resting.cancel()


async def _end_at_rest(serving: uvicorn.Server, seconds: float) -> None:
    """End it when nobody has asked for so long. No caller is turned away: one who came before is still answered."""
    asked, quiet = -1, 0
    while quiet < _LOOKS:
        await asyncio.sleep(seconds / _LOOKS)
        now = serving.server_state.total_requests
        quiet = 0 if serving.server_state.connections or now != asked else quiet + 1
        asked = now
    for one in serving.servers:
        one.close()
    await asyncio.sleep(_LAST_LOOK)  # a connection that was just accepted is not counted yet
    while serving.server_state.connections:
        await asyncio.sleep(_LAST_LOOK)
    serving.should_exit = True


def _at_eof(serving: uvicorn.Server) -> None:
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        serving.should_exit = True
