"""Runs `mailboxd` with the words after the first, and counts what it does; the counts are a JSON file, the first word.

What is counted, each by the function of mailboxd that does it: SQL statements, fsync, fdatasync, syncfs, bytes
written to files, programs started, files and directories removed. No clock: the same work gives the same counts on any
machine. The statements themselves are kept as well, one text for each, to ask SQLite how it carries them out.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

_SYNCS = ("fsync", "fdatasync")
_REMOVALS = ("os.remove", "os.rmdir")
_PACKAGE = f"{os.sep}mailboxd{os.sep}"


class Counts:
    """What happened so far: `what:module.function` -> how often, or how many bytes."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.statements: dict[str, str] = {}
        self._opened: list[Any] = []

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        while self._opened:  # only now is the connection more than a promise
            with suppress(sqlite3.ProgrammingError):  # one that was closed before anything else happened
                self._opened.pop().set_trace_callback(self.statement)
        if event == "sqlite3.connect/handle":
            self._opened.append(args[0])
        elif event == "subprocess.Popen":
            self.add("process")
        elif event in _REMOVALS:
            self.add("removed")

    def statement(self, sql: str) -> None:
        name = self.add("sql")
        self.statements.setdefault(f"{name} {sql[:60]}", sql)

    def add(self, what: str, amount: int = 1) -> str:
        name = f"{what}:{_caller()}"
        self.seen[name] += amount
        return name

    def counting(self, name: str) -> Callable[..., Any]:
        """The function of `os` with that name, counted."""
        function = getattr(os, name)

        def counted(*args: Any) -> Any:
            result = function(*args)
            self.add("bytes" if name == "write" else name, result if name == "write" else 1)
            return result

        return counted

    def save(self, path: str) -> None:
        Path(path).write_text(json.dumps({"seen": self.seen, "statements": self.statements}))


def _caller() -> str:
    """The nearest public function of mailboxd on the stack; what `rendering` has it do is marked as such."""
    found = ""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if _PACKAGE not in code.co_filename:
            continue
        module = Path(code.co_filename).stem
        if not found and not code.co_name.startswith(("_", "<")):
            found = f"{module}.{code.co_name}"
        elif module == "rendering":
            return f"rendering {found}"
    return found


def main() -> None:
    counts = Counts()
    atexit.register(counts.save, sys.argv[1])
    for name in (*_SYNCS, "write"):
        setattr(os, name, counts.counting(name))
    from mailboxd.cli import main as program
    from mailboxd.mailbox import files

    sync_file_system = files.sync_file_system

    def counted_sync(fd: int) -> None:
        counts.add("syncfs")
        sync_file_system(fd)

    files.sync_file_system = counted_sync
    sys.argv = ["mailboxd", *sys.argv[2:]]
    sys.addaudithook(counts.heard)
    program()


if __name__ == "__main__":
    main()
