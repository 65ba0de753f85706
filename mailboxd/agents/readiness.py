"""Does OpenClaw's gateway answer? Asked of its `/readyz` by the daemon's loop, which never waits for it.

Theory of operation. `look` is called in every round. While all is well it asks every 15 s, when the loop is awake
anyway; after a turn that suggests otherwise (`suspect`) at once, and while the gateway is down every 3 s. A refused
connection and the answer 503 prove that it takes no turns; silence does only when it is repeated, since a busy machine
is slow as well. Any other answer counts as ready: an older gateway may have no such page.

While the gateway is known to be down no turn is begun, no message is handed over, and nobody is looked up.
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
"""Seconds between two questions while it answers."""
DOWN = 3.0
"""Seconds between two questions while it does not."""
_PATIENCE = 5.0
"""Seconds after which a question without an answer is given up."""
_GLANCE = 0.05
"""Seconds between two looks for the answer."""
_SILENT_AT_MOST = 2
_HEAD = 64
_REQUEST = b"GET /readyz HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def is_here(host: str) -> bool:
    """Whether the host is this machine: no other one is asked, since its name might have to be looked up first."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def is_suspicious(outcome: Outcome) -> bool:
    """Whether a turn ended as turns do when the gateway has gone away."""
    if isinstance(outcome, Failed):
        return outcome.outage is Outage.UNREACHABLE
    return isinstance(outcome, Unknown) and not outcome.looked_up


@dataclass(slots=True)
class Gateway:
    """One gateway on this machine; without `port` it is not known where it is, and nothing is said of it."""

    host: str = "127.0.0.1"
    port: int | None = None
    why: str = ""
    """Why it takes no turns; empty: nothing is known against it."""
    answers_since: float | None = None
    """Since when it answers without a break, on the monotonic clock; None: it does not, or was never asked."""
    unreached: set[str] = field(default_factory=set)
    """Agents (lower case) whose turns did not reach it since it last came back."""
    _probe: socket.socket | None = None
    _sent: bool = False
    _asked_at: float = float("-inf")
    _glance_at: float = 0.0
    _suspected: bool = False
    _silent: int = 0

    def is_at(self, host: str, port: int | None) -> None:
        """Where it is, as OpenClaw's configuration says; None: it cannot be asked."""
        if (host, port) != (self.host, self.port):
            self.close()
            self.host, self.port = host, port
            self.why, self.answers_since, self._silent, self._asked_at = "", None, 0, float("-inf")

    @property
    def is_down(self) -> bool:
        return bool(self.why)

    def suspect(self, agent: str = "") -> None:
        """Something suggests that it is down: a turn of `agent` did not reach it, or was lost."""
        self._suspected = True
        if agent:
            self.unreached.add(agent.lower())

    def look(self, now: float) -> bool:
        """Ask, or take the answer, as far as it is time to. True if it has just come back. Never waits or raises."""
        if self.port is None:
            return False
        was_down = self.is_down
        try:
            if self._probe is None and (self._suspected or now >= self._asked_at + self._pause):
                self._suspected, self._asked_at = False, now
                self._probe, self._sent = self._begun(), False
            if self._probe is not None:
                self._take(self._probe, now)
                self._glance_at = now + max(_GLANCE, (now - self._asked_at) / 2)
        except OSError as problem:
            self._is_down(problem)
        return was_down and not self.is_down

    @property
    def due(self) -> float | None:
        """When the loop has to wake for it; None: the next question can wait until it is awake."""
        if self.port is None:
            return None
        if self._probe is not None:
            return self._glance_at
        if self._suspected:
            return self._asked_at
        return self._asked_at + DOWN if self.is_down or self._silent else None

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    # -------------------------------------------------------------- inside

    @property
    def _pause(self) -> float:
        return DOWN if self.is_down or self._silent else WELL

    def _begun(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        probe = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
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
            self._is_answered(probe.recv(_HEAD), now)
        elif now - self._asked_at >= _PATIENCE:
            self._is_silent(f"does not answer within {_PATIENCE:g} s")
        elif events & select.POLLOUT and not self._sent:
            probe.send(_REQUEST)
            self._sent = True

    def _is_answered(self, head: bytes, now: float) -> None:
        self.close()
        if not head:
            self._is_silent("closes every connection without an answer")
        elif head.split(b" ")[1:2] == [b"503"]:
            self._say("takes no turns: it starts, drains or restarts")
        else:
            self._silent, self.why = 0, ""
            self.answers_since = now if self.answers_since is None else self.answers_since

    def _is_silent(self, what: str) -> None:
        self.close()
        self._silent += 1
        if self._silent >= _SILENT_AT_MOST:
            self._say(f"{what}; restart it: `openclaw gateway restart`, or end it and `openclaw gateway run`")

    def _is_down(self, problem: OSError) -> None:
        self.close()
        start = "start it: `openclaw gateway start`, or `openclaw gateway run` where it is no service"
        self._say(f"cannot be reached ({problem.strerror or problem}); {start}")

    def _say(self, what: str) -> None:
        self.answers_since = None
        self.why = f"OpenClaw's gateway at {self.host}:{self.port} {what}"
