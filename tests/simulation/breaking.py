"""Where a daemon can be cut off: before each statement of SQL, each durable change of a file, each start of a call.

`Fuse` counts these moments for one house. When it has burnt down the daemon is dead: whatever its code still tries on
its way out (a `finally`, a handler) does not happen, as after a kill. Or the disk refuses once, and the daemon lives.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from mailboxd.host import linux
from tests.simulation.world import Crash

_CALLS = ("fsync", "rename", "link", "unlink", "mkdir", "ftruncate")


@dataclass(slots=True)
class Fuse:
    """`left`: moments until the end; `refusals`: changes of files until the disk refuses one. None: never."""

    left: int | None = None
    refusals: int | None = None
    code: int = errno.ENOSPC
    burnt: bool = False
    lit: bool = False
    """The daemon is at work; who only looks at its database burns nothing."""
    where: str = ""

    def moment(self, what: str) -> None:
        """Raises Crash, then or ever after."""
        if not self.lit:
            return
        if self.burnt:
            raise Crash
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.burnt, self.where = True, what
                raise Crash

    def change(self, what: str) -> None:
        """Raises Crash, or OSError when the disk refuses."""
        self.moment(what)
        if self.lit and self.refusals is not None:
            self.refusals -= 1
            if self.refusals <= 0:
                self.refusals, self.where = None, what
                raise OSError(self.code, os.strerror(self.code))


class Tapped:
    """A connection that asks the fuse before every statement. Only a roll-back is let through when it is burnt."""

    def __init__(self, db: sqlite3.Connection, fuse: Fuse) -> None:
        self._db = db
        self._fuse = fuse

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if not sql.startswith("ROLLBACK"):
            self._fuse.moment(sql[:40])
        return self._db.execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._fuse.moment(sql[:40])
        return self._db.executemany(sql, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@contextmanager
def wired(fuse: Fuse) -> Iterator[None]:
    """While the body runs, this fuse is asked before every statement and every change of a file."""
    fuse.lit = True
    with ExitStack() as patched:
        patched.callback(setattr, fuse, "lit", False)
        for name in _CALLS:
            patched.enter_context(mock.patch.object(os, name, _asking(fuse, name, getattr(os, name))))
        move = "_renameat2"
        patched.enter_context(mock.patch.object(linux, move, _asking(fuse, "renameat2", getattr(linux, move))))
        yield


def _asking(fuse: Fuse, name: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*arguments: Any, **named: Any) -> Any:
        fuse.change(name)
        return do(*arguments, **named)

    return asked
