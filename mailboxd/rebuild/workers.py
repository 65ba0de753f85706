"""Processes of ours that share the work of a large rebuild: told what to do over one pipe, heard over another.

Each is in a process group of its own, so Ctrl-C reaches only the rebuild, which then ends them; and when the rebuild
dies, however it dies, they read the end of their pipe, or cannot write to the other one, and go.
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
"""From so many messages on they are worth their start, which takes a third of a second of processor time each."""
_PIPE = 1 << 20
"""Bytes that can be told before they are heard: who tells goes on meanwhile."""


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


_CUT_OFF = (EOFError, pickle.UnpicklingError)
"""What is read of a pipe whose other end is gone, between two words or within one."""


@dataclass(frozen=True)
class Bug:
    """The last word of a hand that does not know what has happened to it."""

    report: str


class Hand:
    """`python -m MODULE WORDS`, as a context that it does not outlive. `does` names its work in an error."""

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
        with suppress(OSError):  # whoever has many pipes may not have large ones: then one waits for the other
            fcntl.fcntl(self._to, fcntl.F_SETPIPE_SZ, _PIPE)
        self._from: IO[bytes] = self._child.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._from, self._to):
            with suppress(BrokenPipeError):  # of what it was still to be told
                pipe.close()

    def tell(self, what: object) -> None:
        """Raises WorldError when it has ended."""
        try:
            pickle.dump(what, self._to, pickle.HIGHEST_PROTOCOL)
            self._to.flush()
        except BrokenPipeError:
            self.hear()  # it may have said why
            raise self._gone() from None

    def hear(self) -> Any:
        """What it says next. Raises WorldError when that is one, or when it has ended without a word.

        RuntimeError, with its traceback, for what is none of the world's.
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


class Master:
    """The other end of the pipes: who a hand works for."""

    def __init__(self) -> None:
        self._to, self._from = sys.stdout.buffer, sys.stdin.buffer

    def hear(self) -> Any:
        """What is to be done next."""
        return pickle.load(self._from)  # noqa: S301 - written by our own program, a moment ago

    def tell(self, what: object) -> None:
        pickle.dump(what, self._to, pickle.HIGHEST_PROTOCOL)
        self._to.flush()

    def tell_last(self, what: object) -> None:
        """What follows nothing more: who is still telling hears it, instead of waiting to be heard."""
        os.close(self._from.fileno())  # closed as a file it would stay open: Python keeps the standard streams
        self.tell(what)


def serve(work: Callable[[Master], None]) -> None:
    """Do the work of a hand, whose errors are its last word; when nobody is there any more, end."""
    master = Master()
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
        os._exit(1)  # at an exit as usual Python would complain of what it cannot write
