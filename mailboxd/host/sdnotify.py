"""The sd_notify protocol (sd_notify(3)): what a daemon tells systemd, or `mailboxd run --all`, which started it.

A daemon without $NOTIFY_SOCKET tells nothing. A notification that cannot be sent is dropped; the watchdog covers that
case.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from mailboxd.core.sanitize import one_line

_EXTENSION = 60
_LONGEST = 4096
"""Bytes of a notification."""


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


class Listener:
    """The other side: a socket of its own for each daemon, at `path`. Raises OSError if there can be none."""

    def __init__(self, path: Path, watchdog_seconds: float) -> None:
        self.watchdog_seconds = watchdog_seconds
        self.environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": f"{watchdog_seconds * 1e6:.0f}"}
        """What the daemon's environment needs."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(str(path))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> dict[str, str]:
        """The variables that came since the last call; of each the latest."""
        said: dict[str, str] = {}
        with contextlib.suppress(BlockingIOError):
            while True:
                lines = self._socket.recv(_LONGEST).decode("utf-8", "replace").splitlines()
                said |= dict(line.split("=", 1) for line in lines if "=" in line)
        return said


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
