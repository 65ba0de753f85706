"""Worker processes of a large rebuild: each receives work over one pipe and answers over another.

Each has its own process group, so Ctrl-C reaches only the rebuild, which then stops them. If the rebuild dies, they
reach the end of one pipe or cannot write to the other, and exit.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from mailboxd.errors import WorldError

ENOUGH = 4000
"""The number of messages from which workers pay: starting one takes a third of a second of CPU time."""
_PIPE = 1 << 20
"""Bytes that can be sent before they are received."""


def processors() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


_CUT_OFF = (EOFError, pickle.UnpicklingError)
"""Errors from reading a pipe whose other end was closed, between or within messages."""


@dataclass(frozen=True)
class Bug:
    """The last answer of a worker that failed with an unexpected error."""

    report: str


class WorkerProcess:
    """`python -m MODULE WORDS` for the duration of a context. `does` names its work in errors."""

    def __init__(self, does: str, module: str, *words: str) -> None:
        self._does = does
        argv = [sys.executable, "-P", "-m", module, *words]
        try:
            self._child = subprocess.Popen(  # noqa: S603 - our own program
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
            )
        except OSError as error:
            raise WorldError(f"a process that {does} cannot be started: {error.strerror}") from error
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._to: IO[bytes] = self._child.stdin
        with suppress(OSError):  # a user with many pipes may not enlarge them; then writers wait
            fcntl.fcntl(self._to, fcntl.F_SETPIPE_SZ, _PIPE)
        self._from: IO[bytes] = self._child.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._from, self._to):
            with suppress(BrokenPipeError):  # of work that was still to be sent
                pipe.close()

    def tell(self, what: object) -> None:
        """Send work. Raises WorldError if the worker has exited."""
        try:
            pickle.dump(what, self._to, pickle.HIGHEST_PROTOCOL)
            self._to.flush()
        except BrokenPipeError:
            self.hear()  # it may have said why
            raise self._gone() from None

    def hear(self) -> Any:
        """Receive an answer. Raises WorldError if that is one, or if the worker exited without one.

        Raises RuntimeError with the traceback of an unexpected error.
        """
        try:
            said = pickle.load(self._from)  # noqa: S301 - written by our own program, a moment ago
        except _CUT_OFF:
            raise self._gone() from None
        if isinstance(said, WorldError):
            raise said
        if isinstance(said, Bug):
            raise RuntimeError(f"a process that {self._does}: {said.report}")
        return said

    def _gone(self) -> WorldError:
        status = self._child.wait()
        return WorldError(f"a process that {self._does} ended with status {status} before it was done; run it again")


class ParentProcess:
    """The worker's end of the pipes."""

    def __init__(self) -> None:
        self._to, self._from = sys.stdout.buffer, sys.stdin.buffer

    def hear(self) -> Any:
        """Receive work."""
        return pickle.load(self._from)  # noqa: S301 - written by our own program, a moment ago

    def tell(self, what: object) -> None:
        pickle.dump(what, self._to, pickle.HIGHEST_PROTOCOL)
        self._to.flush()

    def tell_last(self, what: object) -> None:
        """Send the last answer: a parent that is still sending gets an error instead of waiting."""
        os.close(self._from.fileno())  # closing the file object would leave it open: Python keeps the standard streams
        self.tell(what)


def serve(work: Callable[[ParentProcess], None]) -> None:
    """Run the work of a worker and send its errors as the last answer; exit when the parent has."""
    master = ParentProcess()
    try:
        try:
            work(master)
        except (*_CUT_OFF, BrokenPipeError):
            raise
        except WorldError as error:
            master.tell_last(error)
        except Exception:
            master.tell_last(Bug(traceback.format_exc()))
    except (*_CUT_OFF, BrokenPipeError):
        os._exit(1)  # a normal exit would complain about output that cannot be written
