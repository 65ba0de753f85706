"""What was executed, for a witness that trusts nobody: one JSON line per call begun, ended, or replied to later.

Lines are appended whole, under a lock, and are safe from then on from a kill of any process (not from a power cut).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mailboxd.clock import SystemClock

Entry = dict[str, Any]


class Ledger:
    """The file at `path`; a missing one is an empty ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """All lines in order. One that a kill cut short is left out."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return [entry for line in raw.splitlines() if (entry := _entry(line)) is not None]

    def begin(self, entry: Callable[[], Entry]) -> Entry:
        """Append what `entry` returns, while nobody else can begin: it may count earlier entries."""
        with self._locked() as descriptor:
            line = {"event": "begin", "at": SystemClock().now(), "pid": os.getpid(), **_started(os.getpid()), **entry()}
            _append(descriptor, line)
        return line

    def append(self, event: str, **fields: object) -> None:
        """Append one line."""
        with self._locked() as descriptor:
            _append(descriptor, {"event": event, "at": SystemClock().now(), **fields})

    @contextmanager
    def _locked(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


class Run:
    """The lines of one accepted call."""

    def __init__(self, begin: Entry, end: Entry | None) -> None:
        self.begin = begin
        self.end = end

    @property
    def id(self) -> str:
        return str(self.begin["run_id"])

    @property
    def status(self) -> str:
        """`running` while its process lives, `lost` if that died without a word, else what was recorded."""
        if self.end is not None:
            return str(self.end["status"])
        pid = self.begin["pid"]
        return "running" if _started(pid) == {"pid_start": self.begin.get("pid_start")} else "lost"

    @property
    def reply(self) -> str | None:
        text = None if self.end is None else self.end.get("reply")
        return text if isinstance(text, str) else None


def runs(entries: list[Entry]) -> list[Run]:
    """The accepted calls, in the order in which they began."""
    ends = {entry.get("run_id"): entry for entry in entries if entry["event"] == "end"}
    begun = [entry for entry in entries if entry["event"] == "begin" and entry["accepted"]]
    return [Run(entry, ends.get(entry["run_id"])) for entry in begun]


def _append(descriptor: int, entry: Entry) -> None:
    line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    size = os.fstat(descriptor).st_size
    # After a line that a kill cut short, begin on a new one.
    torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    os.write(descriptor, b"\n" + line if torn else line)


def _entry(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None


def _started(pid: int) -> Entry:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {"pid_start": int(text.rpartition(")")[2].split()[19])}
