"""A program of ours that runs beside the daemon: started with it, started again when it ends, stopped with it.

A thread waits for it, so the daemon's own loop knows nothing of it. It holds the write end of the program's standard
input and never writes: when the daemon dies, however it dies, the program reads the end and goes.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

PAUSES = (1.0, 5.0, 30.0)
"""Seconds before it is started again after it has ended once, twice, more often in a row."""
_LONG_LIFE = 60.0
"""Seconds; a program that ran as long counts as well, and its next end as the first one."""
_GRACE = 10.0
_log = logging.getLogger("mailboxd")


class Service:
    """`argv` with exactly `env`, from now until `stop`. Its standard error is the daemon's own."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.trouble = ""
        """Why nobody is served: it ended more than once in a row, or cannot be started; until it lives for a minute."""
        self._argv, self._env = list(argv), dict(env)
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    @property
    def is_watched(self) -> bool:
        """Whether the program is, or will be, started again when it ends."""
        return self._thread.is_alive()

    def _watch(self) -> None:
        ended = 0
        while (child := self._started()) is not None:
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
            ended = 1 if lived_long else ended + 1
            pause = PAUSES[min(ended, len(PAUSES)) - 1]
            _log.error("%s ended with status %s; it is started again in %g s", self.name, status, pause)
            if ended > 1:
                self.trouble = f"{self.name} ended with status {status}, again and again; the log says why"
            self._stopping.wait(pause)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what has not ended within 10 s."""
        with self._guard:
            self._stopping.set()
            child = self._child
        if child is not None:
            child.terminate()
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
        self._thread.join(_GRACE)

    def _started(self) -> subprocess.Popen[bytes] | None:
        """The program, started; None once it shall not run any more."""
        while not self._stopping.is_set():
            with self._guard:
                if self._stopping.is_set():
                    break
                try:
                    # its own process group: Ctrl-C at the terminal is the daemon's business, which then stops it
                    self._child = subprocess.Popen(
                        self._argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self._env, process_group=0
                    )
                except OSError as problem:
                    _log.error("%s cannot be started: %s", self.name, problem)
                    self.trouble = f"{self.name} cannot be started: {problem}"
                else:
                    return self._child
            self._stopping.wait(PAUSES[-1])
        return None
