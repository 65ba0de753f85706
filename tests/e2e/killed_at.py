"""Runs `mailboxd` with the words after the first, and dies by SIGKILL at its n-th change of the world (the first word).

`n` counts all changes, `os.rmdir:n` those of one kind. A change is a file or directory made, moved, written or removed,
a process started, a commit. They are counted by Python's own audit events, so the program under test is exactly the
installed one. n = 0: lives, and says how many.
"""

from __future__ import annotations

import atexit
import os
import signal
import sqlite3
import sys
from contextlib import suppress
from typing import Any

_CHANGES = frozenset(
    {
        "os.rename",
        "os.link",
        "os.remove",
        "os.rmdir",
        "os.mkdir",
        "os.symlink",
        "os.truncate",
        "subprocess.Popen",
        "os.posix_spawn",
        "shutil.rmtree",
    }
)


class Fate:
    """Counts changes down to the end."""

    def __init__(self, words: str) -> None:
        kind, _, point = words.rpartition(":")
        self.kind = kind
        self.point = int(point)
        self.seen = 0
        self.opened: list[Any] = []

    def change(self, kind: str) -> None:
        self.seen += self.kind in ("", kind)
        if self.seen == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        while self.opened:  # only now is the connection more than a promise
            with suppress(sqlite3.ProgrammingError):  # one that was closed before anything else happened
                self.opened.pop().set_trace_callback(self.statement)
        if event in _CHANGES or (event == "open" and _writes(args)):
            self.change(event)
        elif event == "sqlite3.connect/handle":
            self.opened.append(args[0])

    def statement(self, sql: str) -> None:
        if sql.lstrip().upper().startswith("COMMIT"):
            self.change("commit")


def _writes(args: tuple[Any, ...]) -> bool:
    flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def main() -> None:
    fate = Fate(sys.argv[1])
    if fate.point == 0:
        atexit.register(lambda: print(f"changes: {fate.seen}", file=sys.stderr))
    from mailboxd.cli import main as program

    sys.argv = ["mailboxd", *sys.argv[2:]]
    sys.addaudithook(fate.heard)
    program()


if __name__ == "__main__":
    main()
