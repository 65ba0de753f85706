"""A WebSocket on loopback that replays a recorded conversation: it sends the gateway's frames and checks the client's.

What we say must be what was recorded, frame for frame, or the conversation ends with a complaint.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong, Request, TextMessage

_DIRECTORY = Path(__file__).parent / "fixtures" / "gateway"
_SECONDS = 20

Frame = dict[str, Any]


def conversation(case: str) -> list[Frame]:
    """Its frames in order: `{"received": ...}`, `{"sent": ...}` (None: whatever), `{"closed": [code, reason]}`."""
    frames: list[Frame] = json.loads((_DIRECTORY / f"{case}.json").read_text(encoding="utf-8"))
    return frames


class Replay:
    """The server, for one connection and those `after` it, each with its frames. Use as a context manager.

    `drops`: on so many connections it hangs up without a word after the last frame. Otherwise it waits for our goodbye.
    `refusal`: an HTTP answer instead of a WebSocket.
    """

    def __init__(
        self,
        frames: list[Frame],
        *,
        drops: int = 0,
        after: Sequence[list[Frame]] = (),
        refusal: bytes = b"",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.conversations = [frames, *after]
        self.drops = drops
        self.refusal = refusal
        self.tls = tls
        self.complaints: list[str] = []
        self.heard: list[Frame] = []
        self.pongs = 0
        self.hangs_up = threading.Event()
        self.hangs_up.set()
        """Set while it may hang up."""
        self.played = 0
        """How many frames have been said or heard."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"{'wss' if self.tls else 'ws'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Replay:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
        self._listener.close()
        self._thread.join(_SECONDS)

    def _serve(self) -> None:
        for number, frames in enumerate(self.conversations, 1):
            with suppress(OSError):
                connection, _ = self._listener.accept()
                if self.tls is not None:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                with connection:
                    connection.settimeout(_SECONDS)
                    _Peer(self, connection, frames, drops=number <= self.drops).play()


class _Peer:
    def __init__(self, replay: Replay, connection: socket.socket, frames: list[Frame], *, drops: bool) -> None:
        self.replay = replay
        self.frames = frames
        self.drops = drops
        self.connection = connection
        self.ws = WSConnection(ConnectionType.SERVER)
        self.heard: list[str] = []
        self.accepted = False
        self.ended = False

    def play(self) -> None:
        while not self.accepted and not self.ended:
            self._listen()
        if self.replay.refusal:
            return
        for frame in self.frames:
            if "closed" in frame:
                code, reason = frame["closed"]
                self.connection.sendall(self.ws.send(CloseConnection(code=code, reason=reason)))
            elif "received" in frame:
                self._say(json.dumps(frame["received"]), with_next=self._closes_after(frame))
            else:
                self._hear(frame["sent"])
            self.replay.played += 1
        while not self.drops and not self.ended:
            self._listen()
        self.replay.hangs_up.wait(_SECONDS)

    def _closes_after(self, frame: Frame) -> bool:
        following = self.frames[self.frames.index(frame) + 1 :][:1]
        return bool(following) and "closed" in following[0]

    def _say(self, text: str, *, with_next: bool) -> None:
        """In three pieces with a ping between them, as the protocol allows; at once if a goodbye follows."""
        if with_next:
            self.connection.sendall(self.ws.send(TextMessage(text)))
            return
        third = len(text) // 3
        self.connection.sendall(self.ws.send(TextMessage(text[:third], message_finished=False)))
        self.connection.sendall(self.ws.send(Ping(b"still there?")))
        self.connection.sendall(self.ws.send(TextMessage(text[third : 2 * third], message_finished=False)))
        self.connection.sendall(self.ws.send(TextMessage(text[2 * third :])))

    def _hear(self, expected: Frame | None) -> None:
        while not self.heard and not self.ended:
            self._listen()
        if not self.heard:
            self.replay.complaints.append(f"the client has gone instead of {expected}")
            return
        self.replay.heard.append(said := json.loads(self.heard.pop(0)))
        if said != expected and expected is not None:
            self.replay.complaints.append(f"{said} instead of {expected}")

    def _listen(self) -> None:
        data = self.connection.recv(65_536)
        if self.replay.refusal:
            self.connection.sendall(self.replay.refusal)
            self.ended = True
            return
        self.ws.receive_data(data or None)
        for event in self.ws.events():
            match event:
                case Request():
                    self.connection.sendall(self.ws.send(AcceptConnection()))
                    self.accepted = True
                case TextMessage(data=text):
                    self.heard.append(text)
                case Pong():
                    self.replay.pongs += 1
                case CloseConnection():
                    self.ended = True
