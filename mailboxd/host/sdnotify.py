"""Notify systemd with the sd_notify protocol (sd_notify(3)).

Does nothing without $NOTIFY_SOCKET. A notification that cannot be sent is dropped; the watchdog covers that case.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping

from mailboxd.core.sanitize import one_line

_EXTENSION = 60


class Notifier:
    """One per daemon. `environ` is the process's environment, passed in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_seconds = _watchdog_seconds(environ) if self._address else None
        """Seconds within which `watchdog()` must be called (call it twice as often). None: no watchdog."""

    def ready(self, status: str) -> None:
        """The daemon has its lock, its store and its watcher; `status` is a line for `systemctl status`."""
        self._send(f"READY=1\nSTATUS={one_line(status)}")

    def starting(self, status: str) -> None:
        """It is not ready yet, and works on: systemd waits another minute."""
        self._send(f"EXTEND_TIMEOUT_USEC={_EXTENSION * 1_000_000}\nSTATUS={one_line(status)}")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={one_line(text)}")

    def watchdog(self) -> None:
        """The loop is alive. Only the loop itself may say so, or a hang would go unseen."""
        self._send("WATCHDOG=1")

    def stopping(self, status: str) -> None:
        """The daemon drains and will exit."""
        self._send(f"STOPPING=1\nSTATUS={one_line(status)}")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode("utf-8", "replace"), self._address)


def _address(text: str) -> str:
    if text.startswith("@"):
        # an abstract socket: not a file, its name starts with a zero byte
        return "\0" + text[1:]
    return text if text.startswith("/") else ""


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    text = environ.get("WATCHDOG_USEC", "")
    if re.fullmatch("[0-9]{1,18}", text) is None or int(text) == 0:
        return None
    return int(text) / 1_000_000
