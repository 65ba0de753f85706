"""A client of OpenClaw's gateway: the WebSocket, the protocol's frames, authentication and pairing."""

from __future__ import annotations

import json
import re
import select
import socket
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

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

from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.host.clock import Clock
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.gateway import pairing
from mailboxd.perform.agents.gateway.pairing import Device, Pairing
from mailboxd.perform.agents.gateway.transport import Address, from_config, parse_address
from mailboxd.perform.agents.json_output import at, complaint, count, parse, parse_text, text_at
from mailboxd.perform.agents.openclaw import OpenClaw, config_get, is_unset
from mailboxd.perform.agents.readiness import is_loopback

if TYPE_CHECKING:
    import ssl


# One WebSocket, blocking and single-threaded. Every wait has a timeout.

_SOCKET_TIMEOUT = 30.0
"""Socket timeout in seconds."""
_CHUNK = 262_144
_MAX_FRAME = 128 * 1024 * 1024
"""Maximum bytes of a frame: a result echoes its prompt, which may have 25 MiB."""
_MAX_REASON = 2_048
_ABNORMAL = 1006
_NOT_WEBSOCKET = "it does not speak WebSocket"
_TOO_LARGE = 1009


class NotConnected(Exception):
    """No WebSocket was established; nothing was requested."""


class Closed(Exception):
    """The connection has ended, with WebSocket's `code` and `reason` (1006: none was sent)."""

    def __init__(self, code: int, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"closed with {code}: {reason}")


class Connection:
    """An open WebSocket. Raises NotConnected, later Closed."""

    def __init__(self, address: Address, clock: Clock, patience: float) -> None:
        self._clock = clock
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
        """The next frame; None if there is none by `until` (monotonic clock). Raises Closed."""
        while not self._frames:  # frames before the end are still delivered: an error precedes its close
            if self._end is not None:
                raise self._end
            if not self._wait(until):
                return None
        return self._frames.popleft()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Send a close frame without waiting for the answer."""
        try:
            self._socket.sendall(self._ws.send(CloseConnection(code=1000)))
        except (OSError, ProtocolError):
            pass  # it has ended already
        finally:
            self._socket.close()

    def _wait(self, until: float) -> bool:
        """Process incoming data; False if none arrived before `until`."""
        pending = getattr(self._socket, "pending", None)  # buffered by TLS, invisible to select
        if pending is None or not pending():
            ready = select.poll()
            ready.register(self._socket, select.POLLIN)
            if not ready.poll(max(0.0, until - self._clock.monotonic()) * 1000):
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
                if finished or len(self._refusal) > _MAX_REASON:
                    self._refuse()
            case CloseConnection(code=code, reason=reason):
                self._end = Closed(int(code), reason or "")
            case _:
                pass

    def _collect(self, event: TextMessage) -> None:
        self._parts.append(event.data)
        self._size += len(event.data)
        if self._size > _MAX_FRAME:
            raise Closed(_TOO_LARGE, "a frame is too large")
        if event.message_finished:
            self._frames.append("".join(self._parts))
            self._parts.clear()
            self._size = 0

    def _refuse(self) -> None:
        said = " ".join(self._refusal[:_MAX_REASON].decode("utf-8", "replace").split())
        raise NotConnected(f"HTTP {self._status}" + (f": {said}" if said else ""))

    def _transmit(self, event: Event) -> None:
        try:
            self._socket.sendall(self._ws.send(event))
        except OSError as error:
            raise Closed(_ABNORMAL, _reason(error)) from error
        except ProtocolError:
            # the message contains the frame, which may contain a token: do not pass it on
            raise (self._end or Closed(_ABNORMAL)) from None


def _socket(address: Address, patience: float) -> socket.socket | ssl.SSLSocket:
    connection = socket.create_connection((address.host, address.port), timeout=patience)
    try:
        connection.settimeout(_SOCKET_TIMEOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.secure:
            return connection
        import ssl  # 2 MB, not needed for a local gateway

        return ssl.create_default_context().wrap_socket(connection, server_hostname=address.host)
    except BaseException:
        connection.close()
        raise


def _host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


# Frames of OpenClaw's gateway protocol, version 4 (OpenClaw's docs/gateway/protocol/). Pure. A request `{type: req, id,
# method, params}` is answered by `{type: res, id, ok, payload | error}`; `agent` is answered twice: first "accepted",
# then with the result.

PROTOCOL = 4
_CLIENT = "cli"
_VERSION = "1"
"""A constant, because looking up mailboxd's version takes as long as the rest of the start."""
_ROLE = "operator"
_EVENT = '{"type":"event",'
"""The beginning of a frame that need not be parsed: most of them."""
_SESSION_CHANGED = "sessions.changed"
"""The name, near the beginning, of an event that is sent to clients that have subscribed to sessions."""
_NAME = 64
_CAPABILITIES = ("session-scoped-events",)
"""Suppresses the messages of sessions."""
_OF_TASK = '{"type":"event","event":"task",'
"""The beginning of an event about OpenClaw's own record of a run, which comes several times in each turn."""
_OF_TOOL = '"lastToolName":'
_LARGEST_EVENT = 65_536
"""Characters of an event about a task that is parsed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the gateway refused a request."""

    code: str
    message: str
    detail: str
    """`details.code`, like PAIRING_REQUIRED; empty if there is none."""
    request_id: str
    """The pairing that waits for approval; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request; `problem` is None if it succeeded."""

    id: str
    payload: dict[str, Any]
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The event that something about a session has changed."""

    key: str


@dataclass(frozen=True, slots=True)
class ToolUsed:
    """The event that the turn in a session has used a tool, the `number`th."""

    session_key: str
    name: str
    """As OpenClaw calls it: untrusted."""
    number: int


def parse_tool(text: str) -> ToolUsed | None:
    """The event in a frame that a turn has used a tool; None for other frames."""
    if not text.startswith(_OF_TASK) or len(text) > _LARGEST_EVENT or _OF_TOOL not in text:
        return None
    task = at(parse_text(text), "payload", "task")
    key, name = text_at(task, "sessionKey"), text_at(task, "lastToolName")
    return ToolUsed(key, name, count(at(task, "toolUseCount")) or 0) if key and name else None


def parse_challenge(text: str) -> tuple[str, int] | None:
    """The nonce and the time that the gateway wants signed, from its first frame; None for other frames."""
    frame = parse_text(text)
    nonce, stamp = at(frame, "payload", "nonce"), count(at(frame, "payload", "ts"))
    is_challenge = at(frame, "event") == "connect.challenge" and isinstance(nonce, str) and nonce
    return (nonce, stamp) if is_challenge and stamp is not None else None


def connect(paired: Pairing, token: str, challenge: tuple[str, int], platform: str) -> str:
    """The first request. `token`: the device's, or the gateway's shared one when pairing, or empty."""
    device, (nonce, stamp) = paired.device, challenge
    # version 3 of what is signed ends with the platform and an empty device family
    scopes, os = ",".join(paired.scopes), platform.lower()
    said = ("v3", device.id, _CLIENT, _CLIENT, _ROLE, scopes, str(stamp), token, nonce, os, "")
    params: dict[str, Any] = {
        "minProtocol": PROTOCOL,
        "maxProtocol": PROTOCOL,
        "client": {
            "id": _CLIENT, "mode": _CLIENT, "displayName": paired.name, "version": _VERSION, "platform": platform
        },
        "role": _ROLE,
        "scopes": list(paired.scopes),
        "caps": list(_CAPABILITIES),
        "device": {
            "id": device.id, "publicKey": device.public_key, "signature": device.sign("|".join(said)),
            "signedAt": stamp, "nonce": nonce,
        },
    }  # fmt: skip
    if token:
        params["auth"] = {"token": token}
    return request("connect", "connect", params)


def request(request_id: str, method: str, params: Mapping[str, object]) -> str:
    """A request frame; non-ASCII text is not escaped, to keep it small."""
    return json.dumps({"type": "req", "id": request_id, "method": method, "params": params}, ensure_ascii=False)


def parse_response(text: str) -> Response | None:
    """The response in a frame; None for events and unknown frames."""
    frame = None if text.startswith(_EVENT) else parse_text(text)
    request_id, ok, payload = at(frame, "id"), at(frame, "ok"), at(frame, "payload")
    if at(frame, "type") != "res" or not isinstance(request_id, str) or not isinstance(ok, bool):
        return None
    return Response(request_id, payload if isinstance(payload, dict) else {}, None if ok else _problem(frame))


def parse_change(text: str) -> SessionChanged | None:
    """The event about a session in a frame; None for other frames."""
    frame = parse_text(text) if _SESSION_CHANGED in text[:_NAME] else None
    key = text_at(frame, "payload", "sessionKey") if at(frame, "event") == _SESSION_CHANGED else ""
    return SessionChanged(key) if key else None


def _problem(frame: object) -> Problem:
    return Problem(
        text_at(frame, "error", "code"),
        text_at(frame, "error", "message") or "the gateway gave no reason",
        text_at(frame, "error", "details", "code"),
        text_at(frame, "error", "details", "requestId"),
    )


# A connection that is authenticated

HANDSHAKE_SECONDS = 15.0
"""Timeout of the handshake; a busy gateway may need a few seconds."""
_FRAME_BYTES = 26_214_400
"""The gateway's default limit for a frame."""


class Rejected(Exception):
    """The gateway answered and rejected this client."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.message)


class Client:
    """An authenticated connection. Raises NotConnected, Rejected; later Closed."""

    def __init__(self, address: Address, pairing: Pairing, token: str, clock: Clock) -> None:
        self._connection = Connection(address, clock, HANDSHAKE_SECONDS)
        self._requests = 0
        try:
            self.hello = self._authenticate(pairing, token, clock.monotonic() + HANDSHAKE_SECONDS)
        except Closed as end:
            self.close()
            raise NotConnected(f"it closed the connection: {end.code} {end.reason}".rstrip()) from end
        except BaseException:
            self.close()
            raise

    @property
    def largest_frame(self) -> int:
        """Maximum bytes of a request."""
        return count(at(self.hello, "policy", "maxPayload")) or _FRAME_BYTES

    def request(self, method: str, params: Mapping[str, object]) -> tuple[str, str]:
        """A new request, not yet sent: its id and its frame."""
        self._requests += 1
        request_id = str(self._requests)
        return request_id, request(request_id, method, params)

    def send(self, frame: str) -> None:
        """Raises Closed; the gateway may have received the frame nevertheless."""
        self._connection.send(frame)

    def receive(self, until: float) -> Response | SessionChanged | ToolUsed | None:
        """What comes next; None if there is nothing by `until` (monotonic clock). Raises Closed."""
        while (text := self._connection.receive(until)) is not None:
            said = parse_tool(text) or parse_change(text) or parse_response(text)
            if said is not None:
                return said
        return None

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _authenticate(self, pairing: Pairing, token: str, until: float) -> dict[str, Any]:
        challenge = None
        while challenge is None:
            challenge = parse_challenge(self._receive(until))
        self._connection.send(connect(pairing, token, challenge, sys.platform))
        response = None
        while response is None:
            response = parse_response(self._receive(until))
        if response.problem is not None:
            raise Rejected(response.problem)
        return response.payload

    def _receive(self, until: float) -> str:
        text = self._connection.receive(until)
        if text is None:
            raise NotConnected(f"no answer to the handshake within {HANDSHAKE_SECONDS:g} s")
        return text


# Pairing: `mailboxd connect gateway`

_PAIRING_REQUIRED = "PAIRING_REQUIRED"
_REQUEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """The rights of this device."""

    pairing: Pairing
    version: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApprovalPending:
    """The device needs approval: `openclaw devices approve <request>` on the gateway's host."""

    pairing: Pairing
    request: str


def pair(
    path: Path, url: str, agent: str, secret: str, clock: Clock, more: tuple[str, ...] = ()
) -> DeviceStatus | ApprovalPending:
    """Pair this workspace with the gateway at `url`; `secret` is the gateway's shared token.

    `more`: scopes that it asks for besides; those that it has are kept.
    By default a gateway approves devices on its own machine automatically. A repetition uses the same key, so that a
    pending request stays the same. Raises ConfigError if the gateway refuses, UnavailableError if it cannot be reached,
    WorldError.
    """
    address = parse_address(url)
    before = pairing.read(path)
    device = before.device if before is not None else Device.new()
    kept = before.token if before is not None and before.url == url else None
    scopes = tuple(dict.fromkeys([*(before.scopes if kept and before is not None else pairing.SCOPES), *more]))
    requested = Pairing(url, f"mailboxd {agent} {device.id[:8]}", device, kept, scopes)
    if before is None:  # a working pairing is kept until it can be replaced
        pairing.write(path, requested)
    try:
        with Client(address, requested, secret or kept or "", clock) as client:
            token, given = text_at(client.hello, "auth", "deviceToken"), _scopes(client.hello)
    except Rejected as error:
        if error.problem.detail == _PAIRING_REQUIRED and _REQUEST.fullmatch(error.problem.request_id):
            return ApprovalPending(requested, error.problem.request_id)
        hint = "give the gateway's token with --token-file FILE or in OPENCLAW_GATEWAY_TOKEN"
        raise ConfigError(f"{url}: {error.problem.message}; {hint}") from error
    except NotConnected as error:
        raise UnavailableError(f"cannot reach the gateway at {url}: {error}") from error
    if not token:
        raise ConfigError(f"{url}: the gateway accepted the device without giving it a token, so pairing is impossible")
    paired = replace(requested, token=token, scopes=tuple(scope for scope in scopes if scope in given) or scopes)
    pairing.write(path, paired)
    return device_status(paired, clock)


def device_status(paired: Pairing, clock: Clock) -> DeviceStatus:
    """Connect as a turn does. Raises ConfigError if the gateway refuses, UnavailableError if it cannot be reached."""
    try:
        with Client(parse_address(paired.url), paired, paired.token or "", clock) as client:
            return DeviceStatus(paired, text_at(client.hello, "server", "version"), _scopes(client.hello))
    except Rejected as error:
        raise ConfigError(
            f"{paired.url}: {error.problem.message}; pair again with `mailboxd connect gateway pair`"
        ) from error
    except NotConnected as error:
        raise UnavailableError(f"cannot reach the gateway at {paired.url}: {error}") from error


def _scopes(hello: dict[str, Any]) -> tuple[str, ...]:
    found = at(hello, "auth", "scopes")
    return tuple(scope for scope in found if isinstance(scope, str)) if isinstance(found, list) else ()


# The gateway in OpenClaw's own words, for commands

_SECONDS = 60.0
_NO_DEVICE = "unknown deviceId"


def configured(openclaw: OpenClaw, environment: Mapping[str, str]) -> tuple[str, bool]:
    """The URL of the gateway that OpenClaw is configured for, and whether it approves devices without asking.

    Raises UnavailableError, ConfigError.
    """
    exit_ = ask(openclaw.argv(*config_get("gateway")), environment, _SECONDS)
    if exit_.rc != 0 and not is_unset(exit_):
        raise UnavailableError(f"OpenClaw does not report its gateway: {complaint(exit_)}. Give --url")
    section = parse(exit_) if exit_.rc == 0 else None
    url = from_config(section, environment)
    approves = at(section, "nodes", "pairing", "autoApproveLocal") is not False
    return url, approves and is_loopback(parse_address(url).host)


def unpair(path: Path, paired: Pairing, openclaw: OpenClaw, environment: Mapping[str, str]) -> None:
    """Remove the device from OpenClaw, then its key and token. Raises UnavailableError if OpenClaw does not."""
    exit_ = ask(openclaw.argv("devices", "remove", paired.device.id, "--json"), environment, _SECONDS)
    problem = complaint(exit_) if exit_.rc != 0 else ""
    if problem and problem != _NO_DEVICE:
        raise UnavailableError(
            f"OpenClaw did not remove device {paired.device.id}: {problem}. "
            f"Remove it there manually, then delete {path}"
        )
    pairing.remove(path)
