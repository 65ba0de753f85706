"""A connection that has introduced itself to the gateway, and asks it things."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from mailboxd.agents.gateway import frames
from mailboxd.agents.gateway.address import Address
from mailboxd.agents.gateway.connection import Closed, Connection, NotConnected
from mailboxd.agents.gateway.frames import Introduction, Problem, Response
from mailboxd.agents.gateway.pairing import Pairing
from mailboxd.clock import Clock

HANDSHAKE_SECONDS = 15.0
"""How long a gateway may take to answer a connection: a busy one has been seen to need a few."""
_FRAME_BYTES = 26_214_400
"""What a gateway takes that does not say so: its default."""


class NotAdmitted(Exception):
    """The gateway answered, and does not want us."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.message)


class Client:
    """An admitted connection. Raises NotConnected, NotAdmitted; later Closed."""

    def __init__(self, address: Address, pairing: Pairing, token: str, clock: Clock, wakeup: int | None = None) -> None:
        self._connection = Connection(address, clock, HANDSHAKE_SECONDS, wakeup)
        self._asked = 0
        try:
            self.hello = self._introduce(pairing, token, clock.monotonic() + HANDSHAKE_SECONDS)
        except Closed as end:
            self.close()
            raise NotConnected(f"it closed the connection: {end.code} {end.reason}".rstrip()) from end
        except BaseException:
            self.close()
            raise

    @property
    def largest_frame(self) -> int:
        """Bytes of a request that this gateway takes."""
        policy = self.hello.get("policy")
        size = policy.get("maxPayload") if isinstance(policy, dict) else None
        return size if type(size) is int and size > 0 else _FRAME_BYTES

    def request(self, method: str, params: Mapping[str, object]) -> tuple[str, str]:
        """A request that has not been sent yet: its id and its frame."""
        self._asked += 1
        request_id = str(self._asked)
        return request_id, frames.request(request_id, method, params)

    def send(self, frame: str) -> None:
        """Raises Closed: the gateway may or may not have it."""
        self._connection.send(frame)

    def receive(self, until: float) -> Response | None:
        """The next response; None once it is `until` on the monotonic clock, or when woken. Raises Closed."""
        while (text := self._connection.receive(until)) is not None:
            response = frames.response_in(text)
            if response is not None:
                return response
        return None

    def close(self) -> None:
        self._connection.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _introduce(self, pairing: Pairing, token: str, until: float) -> dict[str, Any]:
        challenge = None
        while challenge is None:
            challenge = frames.challenge_in(self._in_time(until))
        device = pairing.device
        who = Introduction(device.id, device.public_key, pairing.name, sys.platform, token)
        self._connection.send(frames.connect(who, challenge, device.sign))
        response = None
        while response is None:
            response = frames.response_in(self._in_time(until))
        if response.problem is not None:
            raise NotAdmitted(response.problem)
        return response.payload

    def _in_time(self, until: float) -> str:
        text = self._connection.receive(until)
        if text is None:
            raise NotConnected(f"no answer to the handshake within {HANDSHAKE_SECONDS:g} s")
        return text
