"""Whether everything is still as recorded: pages, log, tables, files, heads. Changes nothing; a daemon may run."""

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
from mailboxd.mailbox.files import directory, look, open_regular, read_up_to, world_errors
from mailboxd.mailbox.layout import Workspace, is_temporary
from mailboxd.mailbox.maildir import REASON
from mailboxd.progress import Progress
from mailboxd.store import audit_queries, event_log
from mailboxd.store.audit_queries import RecordedFile
from mailboxd.store.backup import integrity_problem
from mailboxd.store.reports import Report

# ---------------------------------------------------------------------------------------------------------------------
# What an audit says: the first thing that is wrong, what was expected in its place, and what to do.

REBUILD = "Stop the daemon and restore a backup, or run `mailboxd rebuild --into FILE` and compare."
RESTORE = "Stop the daemon, then restore a backup, or run `mailboxd rebuild --replace`."
LOOK = "Find out who wrote there; docs/audit.md says what each finding means."


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was recorded. `where` is an event, or a path relative to the workspace."""

    check: str
    where: str
    problem: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; expected: {self.expected}. {self.remedy}"


@dataclass(slots=True)
class Account:
    """How much was checked, and what is wrong first."""

    checked: dict[str, int] = field(default_factory=dict)
    finding: Finding | None = None
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and why."""


# ---------------------------------------------------------------------------------------------------------------------
# The mailbox against what was recorded of it: every file is there, is what it was, and nobody's else is.

_CHUNK = 1 << 20
_LARGEST_REASON = 1 << 20
_DEEPEST = 4
PLACES = ("archive", "rejected", "outbox")
_MISSING = "Restore it from a backup of mailbox/; its bytes may also stand in the table `bodies`."
_CHANGED = "Keep it as evidence, and restore the recorded bytes from a backup or from the table `bodies`."


class Folders:
    """Directories below mailbox/, kept open while files of them are read one after the other."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._open = ExitStack()
        self._at: tuple[str, ...] = ()
        self._fd = -1

    def descriptor(self, parts: tuple[str, ...]) -> int:
        """Raises OSError when one of them is missing or a link."""
        if self._fd < 0 or parts != self._at:
            self.close()
            self._fd = self._open.enter_context(directory(self._ws.root, "mailbox", *parts))
            self._at = parts
        return self._fd

    def close(self) -> None:
        self._open.close()
        self._fd = -1


def check_files(ws: Workspace, files: Iterable[RecordedFile], total: int, progress: Progress) -> Finding | None:
    """The first recorded file that is gone or is not what was recorded. Raises WorldError."""
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
        status = look(fd, place.name)
    except (FileNotFoundError, NotADirectoryError):
        status = None
    if status is None:
        return Finding("files", where, f"it is gone (message {file.id})", _recorded(file), _MISSING)
    if file.sha256 is not None:
        found = _digest(fd, place.name) if stat.S_ISREG(status.st_mode) else None
        if found is None:
            return Finding("files", where, "it is no regular file", _recorded(file), _CHANGED)
        if found != file.sha256:
            return Finding("files", where, f"its bytes were changed: sha256 {found}", _recorded(file), _CHANGED)
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
    problem = "it is gone" if raw is None else "it does not say what was recorded"
    expected = f"the reason of message {file.id}: {wanted.get('rule')}"
    return Finding("files", where + REASON, problem, expected, "Write what `mailboxd history` says, or restore it.")


def _recorded(file: RecordedFile) -> str:
    if file.sha256 is None:
        return f"what was {file.verdict} as {file.name} at {file.at}"
    return f"{file.size} bytes with sha256 {file.sha256}, recorded at {file.at}"


def digest_of(fd: int, name: str) -> tuple[str, int] | None:
    """The hash of a regular file and its length, read in pieces; None if it is none. Raises OSError."""
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


# ---------------------------------------------------------------- what nobody recorded


def present(ws: Workspace) -> Iterator[str]:
    """Every file below archive/, rejected/ and outbox/ that is meant to be there, by its path below mailbox/.

    Not the temporary files of writers and the reasons beside rejected files. Raises WorldError.
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


def stranger(ws: Workspace, path: str, judged: set[str], ordered: set[str]) -> Finding | None:
    """A file without a record: None when it is one that is being moved or written this moment."""
    place = PurePosixPath(path)
    with world_errors(f"read mailbox/{path}"), directory(ws.mailbox, *place.parent.parts) as fd:
        found = digest_of(fd, place.name)
    if place.parts[0] == "outbox" and any(place.name.startswith(f"{message_id}.") for message_id in ordered):
        return None
    if place.parts[0] != "outbox" and judged & {place.name, *(found or ())[:1]}:
        return None
    says = "nobody recorded that it was sent" if place.parts[0] == "outbox" else "nobody recorded that it arrived"
    remedy = "If it is yours, move it to mailbox/inbox/ to be judged. " + LOOK
    return Finding("files", f"mailbox/{path}", says, "only files that an event names", remedy)


# ---------------------------------------------------------------------------------------------------------------------
# Whether everything is still as recorded: pages, log, tables, files, heads. Changes nothing; a daemon may run.


@dataclass(slots=True)
class Audit:
    """One look at one workspace. `check` says whether a head was signed by the key of this workspace; None = no key.

    `noted` is a head that somebody wrote down elsewhere: number of the event and hash.
    """

    ws: Workspace
    report: Report
    progress: Progress
    check: log_checkpoints.Check | None = None
    noted: tuple[int, str] | None = None

    def perform(self) -> Account:
        """All checks in turn, until one finds something. Raises WorldError when something cannot be read."""
        account = Account()
        account.finding = self._pages()  # before the snapshot, which cannot even be ended on some damaged files
        if account.finding is not None:
            return account
        checks: tuple[Callable[[Account], Finding | None], ...] = (
            self._chain,
            self._heads,
            self._tables,
            self._bodies,
            self._files,
            self._strangers,
        )
        with self.report.snapshot():
            for check in checks[:-1]:
                account.finding = check(account)
                if account.finding is not None:
                    return account
        account.finding = self._strangers(account)  # after the snapshot: mail that moves meanwhile is on record then
        return account

    def _pages(self) -> Finding | None:
        """SQLite's own check: a page that no query of ours reads is damaged as well."""
        damage = integrity_problem(self.report.db, self.progress)
        if not damage:
            return None
        return Finding("pages", f".mailboxd/{self.ws.database.name}", damage, "a file that SQLite finds sound", RESTORE)

    def _chain(self, account: Account) -> Finding | None:
        count = account.checked["events"] = self.report.last_event()
        problem = event_log.verify_chain(self.report.db, self.progress, count)
        if problem is None:
            return None
        where, _, what = problem.partition(" is ")
        return Finding("chain", where, f"it is {what}", "an event that follows from the one before it", REBUILD)

    def _tables(self, account: Account) -> Finding | None:
        found = event_log.differences(self.report.db, self.progress, account.checked["events"])
        account.checked["tables"] = len(event_log.REPLAYED)
        if not found:
            return None
        table, _, what = found[0].partition(": ")
        return Finding("tables", f"the table {table}", what, "what the events add up to", REBUILD)

    def _bodies(self, _account: Account) -> Finding | None:
        spoiled = audit_queries.spoiled_body(self.report.db)
        if spoiled is None:
            return None
        remedy = "Restore a backup of the database; the file in archive/ or rejected/ may still be right."
        message, sha256 = spoiled
        if sha256 is None:
            return Finding("bodies", f"the kept bytes of {message}", "they were moved", "no message of that id", remedy)
        return Finding("bodies", f"the kept bytes of {sha256}", "they were changed", f"sha256 {sha256}", remedy)

    def _files(self, account: Account) -> Finding | None:
        total = len(audit_queries.paths(self.report.db))
        account.checked["files"] = total
        return check_files(self.ws, audit_queries.filed(self.report.db), total, self.progress)

    def _strangers(self, account: Account) -> Finding | None:
        found = list(present(self.ws))
        account.checked["present"] = len(found)
        with self.report.snapshot():
            known, (judged, ordered) = audit_queries.paths(self.report.db), audit_queries.on_the_way(self.report.db)
        for path in found:
            if path not in known and (finding := stranger(self.ws, path, judged, ordered)) is not None:
                return finding
        return None

    # -------------------------------------------------------------- heads

    def _heads(self, account: Account) -> Finding | None:
        where = f".mailboxd/{log_checkpoints.FILE}"
        try:
            written = log_checkpoints.read(self.ws)
        except ValueError as error:
            return Finding("heads", f"{where} {error}", "it was changed", "a line as the daemon writes it", LOOK)
        account.checked["heads"] = len(written)
        if not written:
            account.notes.append("no head of the log was written yet: that its end is missing would not show")
        elif self.check is None:
            account.notes.append("the heads are not checked for signatures: there is no key (`mailboxd keys`)")
        return next(filter(None, (*self._lines(where, written), self._remembered(where, written), self._noted())), None)

    def _lines(self, where: str, written: list[log_checkpoints.Head]) -> Iterator[Finding | None]:
        before = ""
        for number, head in enumerate(written, 1):
            line = f"{where} line {number}"
            if head.before != before:
                expected = "the hash of the line before it"
                yield Finding("heads", line, "a line before it was removed or changed", expected, LOOK)
            if self.check is not None and head.signature and not self.check(head.signed(), head.signature):
                yield Finding("heads", line, "its signature is not valid", "a signature of this workspace's key", LOOK)
            if self.check is not None and not head.signature and number > 1 and written[number - 2].signature:
                yield Finding("heads", line, "it is not signed", "a signature, as the line before it has", LOOK)
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
        noted = audit_queries.meta(self.report.db, log_checkpoints.NOTED)
        if noted is None:
            return None
        seq, line = json.loads(noted)
        if any(log_checkpoints.digest(head) == line for head in written):
            return None
        return Finding("heads", where, "its last lines are missing", f"a line for event {seq}, hash {line}", LOOK)

    def _noted(self) -> Finding | None:
        return None if self.noted is None else self._against("the head that was noted elsewhere", *self.noted)
