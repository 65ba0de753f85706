"""How the daemon's sleep ends: something in the inbox, one byte from a watcher's thread or a signal, one datagram from
a command in another process, a file system that is mounted.

A poke only says "look". One that gets lost costs time until the next timer, never a message.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

NAME = "socket"


class Hearing(Protocol):
    """What stands in the selector for the inbox."""

    def hear(self) -> bool:
        """Take what happened there; whether it is to be looked at."""


@dataclass(frozen=True, slots=True)
class Woken:
    """What ended a sleep. `mail`: the inbox is to be looked at; `more`: not it alone; `by_timer`: nothing happened."""

    mail: bool = False
    more: bool = False
    by_timer: bool = False


class Wake:
    """The receiving ends, registered in the daemon's selector."""

    def __init__(self, selector: selectors.BaseSelector, state: Path) -> None:
        self._selector = selector
        self._state = state
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._said = False
        """Since `drain`: to say it again would cost a system call for each of many events, and the interpreter's lock
        with it."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with suppress(FileNotFoundError):
            (state / NAME).unlink()  # of a daemon that was killed: the workspace's lock says there is no other
        with _address(state) as address:
            self._socket.bind(address)
        (state / NAME).chmod(0o600)
        self._mounts = _Mounts()
        for end in (self._read, self._socket, self._mounts):
            selector.register(end, selectors.EVENT_READ, self)

    def poke(self) -> None:
        """Safe in any thread and in a signal handler; many pokes are one."""
        if self._said:
            return
        self._said = True  # before it is written: who drains in between is woken once more, and nobody once less
        with suppress(OSError):
            os.write(self._write, b"!")

    def wait(self, seconds: float, inbox: Hearing, monotonic: Callable[[], float]) -> Woken:
        """Sleep until something happens, so many seconds at most.

        Names under which a message is still being written do not end it: each would cost a whole round.
        """
        until = monotonic() + seconds
        while ready := [key.data for key, _ in self._selector.select(max(until - monotonic(), 0.0))]:
            mail = inbox in ready and inbox.hear()
            more = self in ready
            if more:
                self.drain()
            if mail or more or ready != [inbox]:
                return Woken(mail or more, more)
        return Woken(by_timer=True)

    def drain(self) -> None:
        """Forget what came; the caller looks now."""
        with suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
        # Not before it was read: what was said and written between the two would be read here, and hold back all that
        # is said later. What is held back until now is looked at now.
        self._said = False
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(64)
        self._mounts.drain()

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
    """Wake the daemon of the workspace whose `.mailboxd` is `state`; False if there is none that hears."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, _address(state) as address:
        sender.setblocking(False)
        with suppress(BlockingIOError):  # it has not heard those before yet: it will look for all of them at once
            sender.sendto(b"!", address)
        return True
    return False


class _Mounts:
    """Readable when something was mounted or unmounted (proc_pid_mountinfo(5)): inotify does not say that."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._table = -1
        with suppress(OSError):  # without /proc, or in a sandbox: then the next scan finds it
            self._table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self._epoll.register(self._table, select.EPOLLPRI)
            self.drain()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def drain(self) -> None:
        """Forget that the table has changed."""
        self._epoll.poll(0)

    def close(self) -> None:
        self._epoll.close()
        if self._table >= 0:
            os.close(self._table)


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
