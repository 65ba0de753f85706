"""A program that runs beside the daemon: started with it, restarted when it ends, stopped with it.

A thread supervises it, independent of the daemon's loop. The daemon holds the write end of the program's stdin and
never writes: when the daemon dies, the program reads end of file and exits.

One that serves on a socket may rest: the daemon keeps the socket, and when the program has ended with status 0 because
nobody asked, starts it again for the next caller, who waits in the socket's queue meanwhile (docs/decisions/0023).
"""

from __future__ import annotations

import logging
import select
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from mailboxd.errors import WorldError

PAUSES = (1.0, 5.0, 30.0)
"""Seconds before a restart, after it has ended once, twice, more often in a row."""
_LONG_LIFE = 60.0
"""Seconds after which the program counts as healthy and the restart delay is reset."""
_GRACE = 10.0
_log = logging.getLogger("mailboxd")


class Sidecar:
    """Runs `argv` with exactly `env` until `stop`. Its stderr is the daemon's.

    With `listen` it may rest: it gets two more words, the descriptors of the socket that `listen` makes and of an empty
    file without a name, which it finds again at its next start.
    """

    def __init__(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], listen: Callable[[], socket.socket] | None = None
    ) -> None:
        self.name = name
        self.trouble = ""
        """Why it does not work (repeated exits, or it cannot be started); empty once it has run for a minute."""
        self._argv, self._env, self._listen = list(argv), dict(env), listen
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._held: tuple[int, ...] = ()
        """The socket and the file of one that may rest."""
        self.is_resting = False
        """Whether it has ended and waits for a caller."""
        self._bell, self._ringer = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with ExitStack() as held:
            held.enter_context(self._bell)
            if self._listen is None or self._hold(self._listen, held):
                self._keep_running()

    def _keep_running(self) -> None:
        ended = 0
        while (child := self._start()) is not None:
            lived_long = True
            with suppress(subprocess.TimeoutExpired):
                child.wait(_LONG_LIFE)
                lived_long = False
            if lived_long:
                self.trouble = ""
            status = child.wait()
            if child.stdin is not None:
                child.stdin.close()
            if self._stopping.is_set():
                return
            if self._held and status == 0:
                self.trouble, ended = "", 0
                self._rest()
                continue
            ended = 1 if lived_long else ended + 1
            pause = PAUSES[min(ended, len(PAUSES)) - 1]
            _log.error("%s ended with status %s; it is started again in %g s", self.name, status, pause)
            if ended > 1:
                self.trouble = f"{self.name} ended with status {status}, again and again; the log says why"
            self._stopping.wait(pause)

    def wake(self) -> None:
        """Start it if it rests, because there may be something to do that no caller says."""
        if self.is_resting:
            self._ring()

    def _ring(self) -> None:
        with suppress(OSError):  # it has been stopped
            self._ringer.send(b"!")

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 10 s."""
        with self._guard:
            self._stopping.set()
            child = self._child
        self._ring()
        if child is not None:
            child.terminate()
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
        self._thread.join(_GRACE)
        self._ringer.close()

    def _hold(self, listen: Callable[[], socket.socket], held: ExitStack) -> bool:
        """Listen until it is stopped; a port that is taken is tried again. Returns whether it listens."""
        memory = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the thread
        held.callback(memory.close)
        while not self._stopping.is_set():
            try:
                listening = held.enter_context(listen())
            except WorldError as problem:
                self._report(problem)
                self._stopping.wait(PAUSES[-1])
            else:
                self._held = listening.fileno(), memory.fileno()
                return True
        return False

    def _rest(self) -> None:
        """Wait for a caller, `wake` or `stop`."""
        waiting = select.poll()
        for descriptor in (self._held[0], self._bell.fileno()):
            waiting.register(descriptor, select.POLLIN)
        self.is_resting = True
        if any(descriptor == self._bell.fileno() for descriptor, _ in waiting.poll()):
            self._bell.recv(4096)
        self.is_resting = False

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Start the program; None after `stop`."""
        argv = [*self._argv, *map(str, self._held)]
        while not self._stopping.is_set():
            with self._guard:
                if self._stopping.is_set():
                    break
                try:
                    # its own process group: on Ctrl-C the daemon stops it
                    self._child = subprocess.Popen(
                        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self._env, process_group=0,
                        pass_fds=self._held,
                    )  # fmt: skip
                except OSError as problem:
                    self._report(problem)
                else:
                    return self._child
            self._stopping.wait(PAUSES[-1])
        return None

    def _report(self, problem: Exception) -> None:
        _log.error("%s cannot be started: %s", self.name, problem)
        self.trouble = f"{self.name} cannot be started: {problem}"
