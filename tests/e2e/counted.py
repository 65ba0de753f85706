"""Runs `mailboxd` with the arguments after the first and counts what it does; the counts go to a JSON file, the first.

Counted are SQL statements (those that write by their table, too), commits, fsync, fdatasync, syncfs, programs started
and files removed. No clock: the same work gives the same counts on any machine. The texts of the statements are kept as
well, so that SQLite can be asked how it runs them.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_WRITE = re.compile(r"\s*(INSERT|UPDATE|DELETE)(?: OR \w+)?(?: INTO| FROM)? (\w+)")
_NEXT_ROW = re.compile(r"\), \((?:\d+, )?'(?!')")
"""Between the rows of one INSERT; in a text each quote is there twice."""
_REMOVALS = ("os.remove", "os.rmdir")


class Counts:
    """How often each kind of operation happened so far."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.statements: dict[str, None] = {}
        self._opened: list[Any] = []

    def on_audit_event(self, event: str, args: tuple[Any, ...]) -> None:
        while self._opened:  # a connection can be traced only after the event that announces it
            with suppress(sqlite3.ProgrammingError):  # closed before anything else happened
                self._opened.pop().set_trace_callback(self.on_statement)
        if event == "sqlite3.connect/handle":
            self._opened.append(args[0])
        elif event in ("subprocess.Popen", "os.posix_spawn"):
            self.seen["processes"] += 1
        elif event in _REMOVALS:
            self.seen["removals"] += 1

    def on_statement(self, sql: str) -> None:
        self.seen["commits" if sql.strip() == "COMMIT" else "statements"] += 1
        if (write := _WRITE.match(sql)) is not None:
            self.seen[" ".join(write.groups())] += 1 + (write[1] == "INSERT") * len(_NEXT_ROW.findall(sql))
        self.statements.setdefault(sql)

    def counting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.seen[name] += 1
            return function(*args)

        return counted

    def save(self, path: str) -> None:
        Path(path).write_text(json.dumps({"seen": self.seen, "statements": list(self.statements)}))


def main() -> None:
    counts = Counts()
    atexit.register(counts.save, sys.argv[1])
    for name in ("fsync", "fdatasync"):
        setattr(os, name, counts.counting(getattr(os, name), "syncs"))
    from mailboxd.cli import main as program
    from mailboxd.host import linux

    linux.sync_file_system = counts.counting(linux.sync_file_system, "syncfs")
    sys.argv = ["mailboxd", *sys.argv[2:]]
    sys.addaudithook(counts.on_audit_event)
    program()


if __name__ == "__main__":
    main()
