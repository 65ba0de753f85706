"""How the daemon's sleep ends: a byte from the watcher's thread or a signal, a datagram from a command in another
process, a file system that is mounted.

A poke only says "look". A lost one costs time until the next timer, never a message.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.host.system import system

NAME = "socket"


@dataclass(frozen=True, slots=True)
class WakeReason:
    """The end of a sleep. `mail`: scan the inbox; `everything`: scan tasks/ as well; `by_timer`: nothing happened."""

    mail: bool = False
    everything: bool = False
    by_timer: bool = False


class Wake:
    """The receiving ends, registered in the daemon's selector."""

    def __init__(self, selector: selectors.BaseSelector, state: Path) -> None:
        self._selector = selector
        self._state = state
        self._read, self._write = pipe()
        self._is_poked = False
        """Since `drain`. Writing again for each of many events would cost a system call each, and the GIL with it."""
        self._everything = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        with suppress(FileNotFoundError):
            (state / NAME).unlink()  # of a killed daemon: we hold the workspace's lock
        with system.socket_address(state / NAME) as address:
            self._socket.bind(address)
        (state / NAME).chmod(0o600)
        self._mounts = system.Mounts()
        for end in (self._read, self._socket, self._mounts):
            selector.register(end, selectors.EVENT_READ, self)

    def poke(self) -> None:
        """Have everything scanned. Safe in any thread and in a signal handler; many pokes are one."""
        self._everything = True
        self.poke_inbox()

    def poke_inbox(self) -> None:
        """As `poke`, but the inbox alone is scanned."""
        if self._is_poked:
            return
        self._is_poked = True  # before the write: a drain in between then costs one wake-up too many, and loses none
        with suppress(OSError):
            os.write(self._write, b"!")

    def wait(self, seconds: float) -> WakeReason:
        """Sleep until something happens, or for this number of seconds."""
        ready = self._selector.select(seconds)
        ends = [key.fileobj for key, _ in ready if key.data is self]
        if not ends:
            return WakeReason(by_timer=not ready)
        return WakeReason(mail=True, everything=self.drain() or ends != [self._read])

    def drain(self) -> bool:
        """Forget what came, since the caller scans now; return whether `poke` was called."""
        with suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
        # Only after the read, which could swallow the byte of a poke that came in between and hold back all later ones
        self._is_poked = False
        everything = self._everything
        if everything:  # never overwrite a True that another thread sets meanwhile
            self._everything = False
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(64)
        self._mounts.drain()
        return everything

    def close(self) -> None:
        for end in (self._read, self._socket, self._mounts):
            self._selector.unregister(end)
        self._mounts.close()
        os.close(self._read)
        os.close(self._write)
        self._socket.close()
        with suppress(FileNotFoundError):
            (self._state / NAME).unlink()


def poke(state: Path) -> bool:
    """Wake the daemon of the workspace whose `.mailboxd` is `state`; return False if none runs."""
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        system.socket_address(state / NAME) as address,
    ):
        sender.setblocking(False)
        with suppress(BlockingIOError):  # earlier pokes are still unread: one wake-up serves all
            sender.sendto(b"!", address)
        return True
    return False


def pipe() -> tuple[int, int]:
    """A pipe that neither blocks nor is inherited: read end, write end."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


@contextmanager
def signals(stop: Callable[[], None], rescan: Callable[[], None]) -> Iterator[None]:
    """Have SIGTERM and SIGINT stop the daemon, and SIGHUP make it scan."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: rescan())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
