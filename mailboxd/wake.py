"""How the daemon's sleep ends: one byte from the watcher or a signal, one datagram from a command in another process.

A poke only says "look". One that gets lost costs time until the next timer, never a message.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAME = "socket"


class Wake:
    """The receiving ends, registered in the daemon's selector."""

    def __init__(self, selector: selectors.BaseSelector, state: Path) -> None:
        self._selector = selector
        self._state = state
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with suppress(FileNotFoundError):
            (state / NAME).unlink()  # of a daemon that was killed: the workspace's lock says there is no other
        with _address(state) as address:
            self._socket.bind(address)
        (state / NAME).chmod(0o600)
        for end in (self._read, self._socket):
            selector.register(end, selectors.EVENT_READ, self)

    def poke(self) -> None:
        """Safe in any thread and in a signal handler; many pokes are one."""
        with suppress(OSError):
            os.write(self._write, b"!")

    def drain(self) -> None:
        """Forget what came; the caller looks now."""
        with suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(64)

    def close(self) -> None:
        for end in (self._read, self._socket):
            self._selector.unregister(end)
        os.close(self._read)
        os.close(self._write)
        self._socket.close()
        with suppress(FileNotFoundError):
            (self._state / NAME).unlink()


def poke(state: Path) -> bool:
    """Wake the daemon of the workspace whose `.mailboxd` is `state`; False if there is none that hears."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, _address(state) as address:
        sender.setblocking(False)
        sender.sendto(b"!", address)
        return True
    return False


@contextmanager
def _address(state: Path) -> Iterator[str]:
    """The socket's path, by a descriptor of its directory: a path of more than 107 bytes is no address (unix(7))."""
    fd = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{NAME}"
    finally:
        os.close(fd)


@contextmanager
def signals(stop: Callable[[], None], look: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT stop the daemon; SIGHUP makes it look again. Nothing else is touched."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: look())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
