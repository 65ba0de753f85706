"""A program that runs beside the daemon: started with it, restarted when it ends, stopped with it.

A thread supervises it, independent of the daemon's loop. The daemon holds the write end of the program's stdin and
never writes: when the daemon dies, the program reads end of file and exits.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

PAUSES = (1.0, 5.0, 30.0)
"""Seconds before a restart, after it has ended once, twice, more often in a row."""
_LONG_LIFE = 60.0
"""Seconds after which the program counts as healthy and the restart delay is reset."""
_GRACE = 10.0
_log = logging.getLogger("mailboxd")


class Sidecar:
    """Runs `argv` with exactly `env` until `stop`. Its stderr is the daemon's."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.trouble = ""
        """Why it does not work (repeated exits, or it cannot be started); empty once it has run for a minute."""
        self._argv, self._env = list(argv), dict(env)
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
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
            ended = 1 if lived_long else ended + 1
            pause = PAUSES[min(ended, len(PAUSES)) - 1]
            _log.error("%s ended with status %s; it is started again in %g s", self.name, status, pause)
            if ended > 1:
                self.trouble = f"{self.name} ended with status {status}, again and again; the log says why"
            self._stopping.wait(pause)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 10 s."""
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

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Start the program; None after `stop`."""
        while not self._stopping.is_set():
            with self._guard:
                if self._stopping.is_set():
                    break
                try:
                    # its own process group: on Ctrl-C the daemon stops it
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
