"""A Telegram Bot API on a loopback port, in threads of this process: OpenClaw's own Telegram channel talks to it.

So senders have the ids that the real channel passes on, and what it sends is recorded as people would get it. What the
service itself would do (formatting, buttons, rate limits) is not played.

    with Telegram() as telegram:
        gateway = Gateway(..., channels=telegram.channels(["111", "222"]))
        ann = telegram.person(111)
        assert "Nothing needs you" in ann.asks("/mailbox")
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

TOKEN = "424242:play"
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who writes to the bot, in a chat of their own."""

    telegram: Telegram
    id: int
    chat: int

    def says(self, text: str) -> None:
        self.telegram.deliver(self.id, self.chat, text)

    def asks(self, text: str, seconds: float = _SECONDS) -> str:
        """What the bot answers to this message."""
        known = len(self.heard())
        self.says(text)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if len(heard := self.heard()) > known:
                return "\n".join(heard[known:])
            time.sleep(0.05)
        raise AssertionError(f"no answer to {text!r} within {seconds} s; asked: {self.telegram.methods[-20:]}")

    def heard(self) -> list[str]:
        """All messages of the bot in this chat."""
        return [text for chat, text in list(self.telegram.sent) if chat == self.chat]


class Telegram:
    """The service, with one bot."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str]] = []
        """Chat and text of each message of the bot."""
        self.methods: list[str] = []
        self._updates: list[dict[str, Any]] = []
        """Kept until the bot asks for later ones: a bot that dies gets them again."""
        self._number = 0
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Telegram:
        telegram = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                method = self.path.partition("?")[0].rpartition("/")[2]
                answer = json.dumps({"ok": True, "result": telegram.answer(method, _read(raw))}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def channels(self, allowed: list[str]) -> dict[str, Any]:
        """OpenClaw's section `channels`: these users may write to the bot."""
        assert self._server is not None
        root = f"http://127.0.0.1:{self._server.server_address[1]}"
        return {
            "telegram": {
                "enabled": True, "botToken": TOKEN, "apiRoot": root, "dmPolicy": "allowlist", "allowFrom": allowed,
            }
        }  # fmt: skip

    def person(self, id: int, chat: int | None = None) -> Person:
        return Person(self, id, chat or id)

    def deliver(self, sender: int, chat: int, text: str) -> None:
        self._number += 1
        message: dict[str, Any] = {
            "message_id": 1000 + self._number,
            "date": int(time.time()),
            "from": {"id": sender, "is_bot": False, "first_name": f"User {sender}", "username": f"user{sender}"},
            "chat": {"id": chat, "type": "private", "first_name": f"User {sender}", "username": f"user{sender}"},
            "text": text,
        }
        if text.startswith("/"):
            message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text.split()[0])}]
        self._updates.append({"update_id": self._number, "message": message})

    def answer(self, method: str, said: dict[str, Any]) -> Any:
        self.methods.append(method)
        match method:
            case "getMe":
                return {"id": 424242, "is_bot": True, "first_name": "Play", "username": "play_bot"}
            case "getUpdates":
                return self._next(int(said.get("offset") or 0), min(float(said.get("timeout") or 0), 5.0))
            case "sendMessage" | "editMessageText":
                chat = int(said.get("chat_id", 0))
                self.sent.append((chat, str(said.get("text", ""))))
                return {"message_id": len(self.sent), "date": int(time.time()), "chat": {"id": chat, "type": "private"}}
            case "getMyCommands":
                return []
            case "getWebhookInfo":
                return {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
            case "getChat":
                return {"id": int(said.get("chat_id", 0)), "type": "private"}
            case _:
                return True

    def _next(self, offset: int, seconds: float) -> list[dict[str, Any]]:
        until = time.monotonic() + seconds
        while not (found := [one for one in list(self._updates) if one["update_id"] >= offset]):
            if time.monotonic() >= until:
                break
            time.sleep(0.05)
        return found


def _read(raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw or b"{}")
    except ValueError:
        said = {name: values[0] for name, values in parse_qs(raw.decode("utf-8", "replace")).items()}
    return said if isinstance(said, dict) else {}
