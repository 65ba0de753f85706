"""One WebSocket in one thread: frames of text go out and come in until a deadline, a signal or the end.

Blocking, with a socket timeout below everything, so that no peer can hold us for ever. A descriptor that becomes
readable (`signal.set_wakeup_fd`) ends a wait early.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from mailboxd.agents.gateway.address import Address
from mailboxd.clock import Clock

if TYPE_CHECKING:
    import ssl

_STALLED = 30.0
"""Seconds after which a transfer that does not move is given up."""
_CHUNK = 262_144
_LARGEST = 128 * 1024 * 1024
"""Bytes of one frame that are taken: a result echoes its prompt, of which the gateway takes 25 MiB."""
_LARGEST_REASON = 2_048
_ABNORMAL = 1006
_NOT_WEBSOCKET = "it does not speak WebSocket"
_TOO_LARGE = 1009


class NotConnected(Exception):
    """No WebSocket came about: nothing was asked of the gateway."""


class Closed(Exception):
    """The connection has ended; `code` and `reason` as WebSocket has them, 1006 where nothing was said."""

    def __init__(self, code: int, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"closed with {code}: {reason}")


class Connection:
    """An open WebSocket. Raises NotConnected, later Closed."""

    def __init__(self, address: Address, clock: Clock, patience: float, wakeup: int | None = None) -> None:
        self._clock = clock
        self._wakeup = wakeup
        self._frames: deque[str] = deque()
        self._parts: list[str] = []
        self._size = 0
        self._refusal = b""
        self._status = 0
        self._open = False
        self._end: Closed | None = None
        self._ws = WSConnection(ConnectionType.CLIENT)
        try:
            self._socket = _socket(address, patience)
        except OSError as error:
            raise NotConnected(_reason(error)) from error
        try:
            self._socket.sendall(self._ws.send(Request(host=_host(address), target=address.target)))
            until = clock.monotonic() + patience
            while not self._open:
                if self._end is not None:
                    raise self._end
                if not self._wait(until):
                    raise NotConnected(f"no answer within {patience:g} s")
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError | Closed):
                raise NotConnected(str(error)) from error
            raise

    def send(self, text: str) -> None:
        """Raises Closed."""
        self._transmit(TextMessage(text))

    def receive(self, until: float) -> str | None:
        """The next frame; None once it is `until` on the monotonic clock, or when the wake-up came. Raises Closed."""
        while not self._frames:  # what came before the end is still handed out: an error precedes its close
            if self._end is not None:
                raise self._end
            if not self._wait(until):
                return None
        return self._frames.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        """Say goodbye without waiting for an answer."""
        try:
            self._socket.sendall(self._ws.send(CloseConnection(code=1000)))
        except (OSError, ProtocolError):
            pass  # it has ended already
        finally:
            self._socket.close()

    def _wait(self, until: float) -> bool:
        """Take what has come; False if nothing did before `until` or the wake-up."""
        pending = getattr(self._socket, "pending", None)  # TLS keeps what select cannot see
        if pending is None or not pending():
            watched: list[socket.socket | int] = [self._socket]
            if self._wakeup is not None:
                watched.append(self._wakeup)
            ready, _, _ = select.select(watched, [], [], max(0.0, until - self._clock.monotonic()))
            if self._wakeup in ready and self._wakeup is not None:
                os.read(self._wakeup, 64)
                return False
            if not ready:
                return False
        try:
            self._ws.receive_data(self._socket.recv(_CHUNK) or None)
            for event in self._ws.events():
                self._handle(event)
        except OSError as error:
            self._end = Closed(_ABNORMAL, _reason(error))
        except ProtocolError:
            self._end = Closed(_ABNORMAL, _NOT_WEBSOCKET)
        except Closed as end:
            self._end = end
        return True

    def _handle(self, event: Event) -> None:
        match event:
            case TextMessage():
                self._collect(event)
            case Ping():
                self._transmit(event.response())
            case AcceptConnection():
                self._open = True
            case RejectConnection(status_code=status, has_body=more):
                self._status = status
                if not more:
                    self._refuse()
            case RejectData(data=data, body_finished=finished):
                self._refusal += bytes(data)
                if finished or len(self._refusal) > _LARGEST_REASON:
                    self._refuse()
            case CloseConnection(code=code, reason=reason):
                self._end = Closed(int(code), reason or "")
            case _:
                pass  # what we have no use for

    def _collect(self, event: TextMessage) -> None:
        self._parts.append(event.data)
        self._size += len(event.data)
        if self._size > _LARGEST:
            raise Closed(_TOO_LARGE, "a frame is too large")
        if event.message_finished:
            self._frames.append("".join(self._parts))
            self._parts.clear()
            self._size = 0

    def _refuse(self) -> None:
        said = " ".join(self._refusal[:_LARGEST_REASON].decode("utf-8", "replace").split())
        raise NotConnected(f"HTTP {self._status}" + (f": {said}" if said else ""))

    def _transmit(self, event: Event) -> None:
        try:
            self._socket.sendall(self._ws.send(event))
        except OSError as error:
            raise Closed(_ABNORMAL, _reason(error)) from error
        except ProtocolError:
            # wsproto's text holds the frame, and that may hold a token: neither it nor its traceback goes further.
            raise (self._end or Closed(_ABNORMAL)) from None


def _socket(address: Address, patience: float) -> socket.socket | ssl.SSLSocket:
    connection = socket.create_connection((address.host, address.port), timeout=patience)
    try:
        connection.settimeout(_STALLED)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.secure:
            return connection
        import ssl  # 2 MB that a gateway on this machine does not need

        return ssl.create_default_context().wrap_socket(connection, server_hostname=address.host)
    except BaseException:
        connection.close()
        raise


def _host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
