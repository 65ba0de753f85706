"""Verifies that database pages, event log, tables, files and checkpoints still match what was recorded.

Read-only; the daemon may run meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mailboxd import log_checkpoints
from mailboxd.intake.archive import reason_file
from mailboxd.mailbox.files import directory, lstat, open_regular, read_up_to, world_errors
from mailboxd.mailbox.layout import Workspace, is_temporary
from mailboxd.mailbox.maildir import REASON
from mailboxd.progress import Progress
from mailboxd.store import audit_queries, event_log
from mailboxd.store.audit_queries import RecordedFile
from mailboxd.store.backup import integrity_problem
from mailboxd.store.meta import Meta
from mailboxd.store.reports import Report

REBUILD = "Stop the daemon and restore a backup, or run `mailboxd rebuild --into FILE` and compare."
RESTORE = "Stop the daemon, then restore a backup, or run `mailboxd rebuild --replace`."
INVESTIGATE = "Find out who wrote there; docs/audit.md explains each finding."


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference from the record. `where` is an event, or a path relative to the workspace."""

    check: str
    where: str
    problem: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; expected: {self.expected}. {self.remedy}"


@dataclass(slots=True)
class Verification:
    """How much was checked, and the first difference that was found."""

    checked: dict[str, int] = field(default_factory=dict)
    finding: Finding | None = None
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and why."""


# The mailbox: every recorded file exists unchanged, and there is no other
_CHUNK = 1 << 20
_LARGEST_REASON = 1 << 20
_DEEPEST = 4
PLACES = ("archive", "rejected", "outbox")
_MISSING = "Restore it from a backup of mailbox/; the table `bodies` may have its bytes, too."
_CHANGED = "Keep it as evidence, and restore the original from a backup or from the table `bodies`."


class Folders:
    """Opens directories below mailbox/ and keeps the last one open, since its files are read one after the other."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._open = ExitStack()
        self._at: tuple[str, ...] = ()
        self._fd = -1

    def descriptor(self, parts: tuple[str, ...]) -> int:
        """Raises OSError if one of them is missing or a link."""
        if self._fd < 0 or parts != self._at:
            self.close()
            self._fd = self._open.enter_context(directory(self._ws.root, "mailbox", *parts))
            self._at = parts
        return self._fd

    def close(self) -> None:
        self._open.close()
        self._fd = -1


def check_files(ws: Workspace, files: Iterable[RecordedFile], total: int, progress: Progress) -> Finding | None:
    """The first recorded file that is missing or changed. Raises WorldError."""
    folders = Folders(ws)
    try:
        for done, file in enumerate(files):
            progress("files", done, total)
            with world_errors(f"read mailbox/{file.path}"):
                finding = _check(folders, file)
            if finding is not None:
                return finding
    finally:
        folders.close()
    return None


def _check(folders: Folders, file: RecordedFile) -> Finding | None:
    place = PurePosixPath(file.path or "")
    where = f"mailbox/{place}"
    try:
        fd = folders.descriptor(place.parent.parts)
        status = lstat(fd, place.name)
    except (FileNotFoundError, NotADirectoryError):
        status = None
    if status is None:
        return Finding("files", where, f"it is missing (message {file.id})", _recorded(file), _MISSING)
    if file.sha256 is not None:
        found = _digest(fd, place.name) if stat.S_ISREG(status.st_mode) else None
        if found is None:
            return Finding("files", where, "it is not a regular file", _recorded(file), _CHANGED)
        if found != file.sha256:
            return Finding("files", where, f"it was changed: sha256 {found}", _recorded(file), _CHANGED)
    return _check_reason(fd, place.name, where, file) if file.verdict == "rejected" else None


def _check_reason(fd: int, name: str, where: str, file: RecordedFile) -> Finding | None:
    wanted = reason_file(file.name, file.at, file.sha256, file.id, file.reason)
    raw = _small(fd, name + REASON)
    try:
        found = None if raw is None else json.loads(raw)
    except ValueError:
        found = raw
    if found == wanted:
        return None
    problem = "it is missing" if raw is None else "it differs from its record"
    expected = f"the reason of message {file.id}: {wanted.get('rule')}"
    return Finding("files", where + REASON, problem, expected, "Restore it; `mailboxd history` has its content.")


def _recorded(file: RecordedFile) -> str:
    if file.sha256 is None:
        return f"the file {file.verdict} as {file.name} at {file.at}"
    return f"{file.size} bytes with sha256 {file.sha256}, recorded at {file.at}"


def digest_of(fd: int, name: str) -> tuple[str, int] | None:
    """The SHA-256 and size of a regular file, read in chunks; None if it is not one. Raises OSError."""
    file = open_regular(fd, name)
    if file is None:
        return None
    try:
        hashed, size = hashlib.sha256(), 0
        while piece := os.read(file, _CHUNK):
            hashed.update(piece)
            size += len(piece)
        return hashed.hexdigest(), size
    finally:
        os.close(file)


def _digest(fd: int, name: str) -> str | None:
    found = digest_of(fd, name)
    return None if found is None else found[0]


def _small(fd: int, name: str) -> bytes | None:
    file = open_regular(fd, name)
    if file is None:
        return None
    try:
        return read_up_to(file, _LARGEST_REASON)
    finally:
        os.close(file)


def present(ws: Workspace) -> Iterator[str]:
    """The paths below mailbox/ of all files in archive/, rejected/ and outbox/.

    Temporary files and the reasons beside rejected files are left out. Raises WorldError.
    """
    with world_errors(f"read {ws.mailbox}"):
        for place in PLACES:
            yield from _walk(ws, PurePosixPath(place), _DEEPEST)


def _walk(ws: Workspace, below: PurePosixPath, depth: int) -> Iterator[str]:
    with directory(ws.mailbox, *below.parts) as fd, os.scandir(fd) as entries:
        found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    names = {name for name, _ in found}
    for name, is_directory in found:
        if is_directory and below.parts[0] == "archive" and depth:
            yield from _walk(ws, below / name, depth - 1)
        elif not is_temporary(name) and not _is_reason(below, name, names):
            yield str(below / name)


def _is_reason(below: PurePosixPath, name: str, names: set[str]) -> bool:
    return below.parts[0] == "rejected" and name.endswith(REASON) and name.removesuffix(REASON) in names


def unrecorded(ws: Workspace, path: str, judged: set[str], ordered: set[str]) -> Finding | None:
    """The finding for a file without a record; None if it is just being moved or written."""
    place = PurePosixPath(path)
    with world_errors(f"read mailbox/{path}"), directory(ws.mailbox, *place.parent.parts) as fd:
        found = digest_of(fd, place.name)
    if place.parts[0] == "outbox" and any(place.name.startswith(f"{message_id}.") for message_id in ordered):
        return None
    if place.parts[0] != "outbox" and judged & {place.name, *(found or ())[:1]}:
        return None
    problem = f"there is no record that it was {'sent' if place.parts[0] == 'outbox' else 'received'}"
    remedy = "If it is yours, move it to mailbox/inbox/ to have it processed. " + INVESTIGATE
    return Finding("files", f"mailbox/{path}", problem, "only files that an event names", remedy)


@dataclass(slots=True)
class Audit:
    """One audit of one workspace.

    `check` verifies the signature of a checkpoint with this workspace's key; None without a key. `noted` is a
    checkpoint that was kept elsewhere: event number and hash.
    """

    ws: Workspace
    report: Report
    progress: Progress
    check: log_checkpoints.Check | None = None
    noted: tuple[int, str] | None = None

    def perform(self) -> Verification:
        """Run the checks in turn until one finds something. Raises WorldError if something cannot be read."""
        report = Verification()
        report.finding = self._pages()  # before the snapshot, which fails to end on some damaged files
        if report.finding is not None:
            return report
        checks: tuple[Callable[[Verification], Finding | None], ...] = (
            self._chain,
            self._heads,
            self._tables,
            self._bodies,
            self._files,
        )
        with self.report.snapshot():
            for check in checks:
                report.finding = check(report)
                if report.finding is not None:
                    return report
        report.finding = self._unrecorded(report)  # outside the snapshot: files moved meanwhile are on record by now
        return report

    def _pages(self) -> Finding | None:
        """SQLite's own check, which also covers pages that the other checks do not read."""
        damage = integrity_problem(self.report.db, self.progress)
        if not damage:
            return None
        return Finding("pages", f".mailboxd/{self.ws.database.name}", damage, "an intact database file", RESTORE)

    def _chain(self, report: Verification) -> Finding | None:
        count = report.checked["events"] = self.report.last_event()
        problem = event_log.verify_chain(self.report.db, self.progress, count)
        if problem is None:
            return None
        where, _, what = problem.partition(" is ")
        return Finding("chain", where, f"it is {what}", "the hash that follows from the event before it", REBUILD)

    def _tables(self, report: Verification) -> Finding | None:
        found = event_log.differences(self.report.db, self.progress, report.checked["events"])
        report.checked["tables"] = len(event_log.REPLAYED)
        if not found:
            return None
        table, _, what = found[0].partition(": ")
        return Finding("tables", f"the table {table}", what, "the result of replaying the events", REBUILD)

    def _bodies(self, _account: Verification) -> Finding | None:
        spoiled = audit_queries.changed_body(self.report.db)
        if spoiled is None:
            return None
        remedy = "Restore a backup of the database; the file in archive/ or rejected/ may be intact."
        message, sha256 = spoiled
        if sha256 is None:
            return Finding("bodies", f"the stored body of {message}", "it was moved", "no message with that id", remedy)
        return Finding("bodies", f"the stored body of {sha256}", "it was changed", f"sha256 {sha256}", remedy)

    def _files(self, report: Verification) -> Finding | None:
        total = len(audit_queries.paths(self.report.db))
        report.checked["files"] = total
        return check_files(self.ws, audit_queries.filed(self.report.db), total, self.progress)

    def _unrecorded(self, report: Verification) -> Finding | None:
        found = list(present(self.ws))
        report.checked["present"] = len(found)
        with self.report.snapshot():
            known, (judged, ordered) = audit_queries.paths(self.report.db), audit_queries.in_transit(self.report.db)
        for path in found:
            if path not in known and (finding := unrecorded(self.ws, path, judged, ordered)) is not None:
                return finding
        return None

    def _heads(self, report: Verification) -> Finding | None:
        where = f".mailboxd/{log_checkpoints.FILE}"
        try:
            written = log_checkpoints.read(self.ws)
        except ValueError as error:
            return Finding("heads", f"{where} {error}", "it was changed", "a line written by the daemon", INVESTIGATE)
        report.checked["heads"] = len(written)
        if not written:
            report.notes.append("there is no checkpoint of the log yet, so a missing end would not show")
        elif self.check is None:
            report.notes.append("signatures of checkpoints were not checked: there is no key (`mailboxd keys`)")
        return next(filter(None, (*self._lines(where, written), self._remembered(where, written), self._noted())), None)

    def _lines(self, where: str, written: list[log_checkpoints.Head]) -> Iterator[Finding | None]:
        before = ""
        for number, head in enumerate(written, 1):
            line = f"{where} line {number}"
            if head.before != before:
                expected = "the hash of the line before it"
                yield Finding("heads", line, "a line before it was removed or changed", expected, INVESTIGATE)
            if self.check is not None and head.signature and not self.check(head.signed(), head.signature):
                expected = "a signature by this workspace's key"
                yield Finding("heads", line, "its signature is invalid", expected, INVESTIGATE)
            if self.check is not None and not head.signature and number > 1 and written[number - 2].signature:
                yield Finding("heads", line, "it is not signed", "a signature, like the line before", INVESTIGATE)
            yield self._against(line, head.seq, head.hash)
            before = log_checkpoints.digest(head)

    def _against(self, where: str, seq: int, hash_: str) -> Finding | None:
        found = audit_queries.hash_at(self.report.db, seq)
        if found == hash_:
            return None
        last = self.report.last_event()
        if found is None:
            return Finding("heads", where, f"the log ends at event {last}", f"event {seq} with hash {hash_}", REBUILD)
        return Finding("heads", where, f"event {seq} has the hash {found}", f"hash {hash_}", REBUILD)

    def _remembered(self, where: str, written: list[log_checkpoints.Head]) -> Finding | None:
        noted = Meta(self.report.db).get(log_checkpoints.NOTED)
        if noted is None:
            return None
        seq, line = json.loads(noted)
        if any(log_checkpoints.digest(head) == line for head in written):
            return None
        expected = f"a line for event {seq}, hash {line}"
        return Finding("heads", where, "its last lines are missing", expected, INVESTIGATE)

    def _noted(self) -> Finding | None:
        return None if self.noted is None else self._against("the head noted elsewhere", *self.noted)
