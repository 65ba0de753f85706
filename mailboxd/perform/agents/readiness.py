"""Polls `/readyz` of OpenClaw's gateway from the daemon's loop, without blocking.

`poll` is called in every round. While the gateway answers it is asked every 15 s, when the loop is awake anyway;
immediately after a turn that suggests a problem (`suspect`); and every 3 s while it is down. A refused connection or
status 503 proves that it takes no turns; a timeout does only if repeated, since a busy machine is slow as well. Any
other answer counts as ready: older gateways have no such page.

While the gateway is down, no turn starts, no message is delivered, and no lost turn is looked up.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
from contextlib import suppress
from dataclasses import dataclass, field

from mailboxd.core.outcomes import Failed, Outage, Outcome, Unknown

WELL = 15.0
"""Seconds between two requests while it answers."""
DOWN = 3.0
"""Seconds between two requests while it does not."""
_TIMEOUT = 5.0
"""Seconds to wait for an answer."""
_POLL_SECONDS = 0.05
"""Minimum time between two checks for the answer."""
_MAX_TIMEOUTS = 2
_HEAD = 64
_REQUEST = b"GET /readyz HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def is_loopback(host: str) -> bool:
    """Whether the host is this machine; other hosts are not polled, as resolving a name may block."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def is_suspicious(outcome: Outcome) -> bool:
    """Whether a turn ended as turns do when the gateway goes away."""
    if isinstance(outcome, Failed):
        return outcome.outage is Outage.UNREACHABLE
    return isinstance(outcome, Unknown) and not outcome.looked_up


@dataclass(slots=True)
class Gateway:
    """One gateway on this machine; without a known `port` it is not polled."""

    host: str = "127.0.0.1"
    port: int | None = None
    why: str = ""
    """Why it takes no turns; empty if it does, as far as known."""
    answers_since: float | None = None
    """Monotonic time since which it has answered; None if it does not or was not asked."""
    unreached: set[str] = field(default_factory=set)
    """Agents (lower case) whose turns did not reach it since it last came back."""
    _probe: socket.socket | None = None
    _sent: bool = False
    _asked_at: float = float("-inf")
    _poll_at: float = 0.0
    _suspected: bool = False
    _timeouts: int = 0

    def is_at(self, host: str, port: int | None) -> None:
        """Set its address from OpenClaw's configuration; None: it cannot be polled."""
        if (host, port) != (self.host, self.port):
            self.close()
            self.host, self.port = host, port
            self.why, self.answers_since, self._timeouts, self._asked_at = "", None, 0, float("-inf")

    @property
    def is_down(self) -> bool:
        return bool(self.why)

    def suspect(self, agent: str = "") -> None:
        """Poll soon: a turn of `agent` did not reach it or was lost."""
        self._suspected = True
        if agent:
            self.unreached.add(agent.lower())

    def poll(self, now: float) -> bool:
        """Send a request or read the answer, when due. True if the gateway came back. Never blocks or raises."""
        if self.port is None:
            return False
        was_down = self.is_down
        try:
            if self._probe is None and (self._suspected or now >= self._asked_at + self._pause):
                self._suspected, self._asked_at = False, now
                self._probe, self._sent = self._connect(), False
            if self._probe is not None:
                self._take(self._probe, now)
                self._poll_at = now + max(_POLL_SECONDS, (now - self._asked_at) / 2)
        except OSError as problem:
            self._on_error(problem)
        return was_down and not self.is_down

    @property
    def due(self) -> float | None:
        """When the loop has to wake for it; None if it need not."""
        if self.port is None:
            return None
        if self._probe is not None:
            return self._poll_at
        if self._suspected:
            return self._asked_at
        return self._asked_at + DOWN if self.is_down or self._timeouts else None

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    @property
    def _pause(self) -> float:
        return DOWN if self.is_down or self._timeouts else WELL

    def _connect(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        probe = socket.socket(family, socket.SOCK_STREAM)
        probe.setblocking(False)
        try:
            problem = probe.connect_ex(("127.0.0.1" if self.host == "localhost" else self.host, self.port or 0))
            if problem not in (0, errno.EINPROGRESS):
                raise OSError(problem, os.strerror(problem))
        except BaseException:
            probe.close()
            raise
        return probe

    def _take(self, probe: socket.socket, now: float) -> None:
        poll = select.poll()
        poll.register(probe, select.POLLIN | select.POLLOUT)
        events = dict(poll.poll(0)).get(probe.fileno(), 0)
        if problem := probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(problem, os.strerror(problem))
        if events & select.POLLIN:
            self._on_answer(probe.recv(_HEAD), now)
        elif now - self._asked_at >= _TIMEOUT:
            self._on_timeout(f"does not answer within {_TIMEOUT:g} s")
        elif events & select.POLLOUT and not self._sent:
            probe.send(_REQUEST)
            self._sent = True

    def _on_answer(self, head: bytes, now: float) -> None:
        self.close()
        if not head:
            self._on_timeout("closes every connection without an answer")
        elif head.split(b" ")[1:2] == [b"503"]:
            self._set_down("takes no turns: it is starting, draining or restarting")
        else:
            self._timeouts, self.why = 0, ""
            self.answers_since = now if self.answers_since is None else self.answers_since

    def _on_timeout(self, what: str) -> None:
        self.close()
        self._timeouts += 1
        if self._timeouts >= _MAX_TIMEOUTS:
            self._set_down(f"{what}; restart it: `openclaw gateway restart`, or stop it and run `openclaw gateway run`")

    def _on_error(self, problem: OSError) -> None:
        self.close()
        start = "start it: `openclaw gateway start`, or `openclaw gateway run` if it is not a service"
        self._set_down(f"cannot be reached ({problem.strerror or problem}); {start}")

    def _set_down(self, what: str) -> None:
        self.answers_since = None
        self.why = f"OpenClaw's gateway at {self.host}:{self.port} {what}"
