"""Verifies a workspace against its event log.

Verification compares database pages, event log, tables, files and journal with what was recorded. It is read-only;
the daemon may run meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from mailboxd.core.outcomes import PromptText
from mailboxd.engine.intake.archive import reason_file
from mailboxd.errors import DamagedError
from mailboxd.formats.mailbox.files import digest_of, directory, lstat, read_file, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import REASON, walk
from mailboxd.host.progress import Progress
from mailboxd.ledger import audit_queries, event_log, journal, prompts, signed_heads
from mailboxd.ledger.audit_queries import RecordedFile
from mailboxd.ledger.backup import integrity_problem
from mailboxd.ledger.reports import Report

REBUILD = "Stop the daemon and restore a backup, or run `mailboxd db rebuild --into FILE` and compare."
RESTORE = "Stop the daemon, then restore a backup, or run `mailboxd db rebuild --replace`."
JOURNAL = "Keep mailbox/archive/events as evidence in another place; `mailboxd run` then writes it from the database."
_JOURNAL = "mailbox/archive/events"
INVESTIGATE = "Find out who wrote there."


@dataclass(frozen=True, slots=True)
class Difference:
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
    finding: Difference | None = None
    proof: signed_heads.Proof = signed_heads.NOTHING_PROVEN
    """How far signatures prove the log."""
    notes: list[str] = field(default_factory=list)
    """Checks that were not possible, and why."""


# The mailbox: every recorded file exists unchanged, and there is no other
_LARGEST_REASON = 1 << 20
PLACES = ("archive", "rejected", "outbox")
_MISSING = "Restore it from a backup of mailbox/; the table `bodies` may have its bytes, too."
_CHANGED = "Keep it as evidence, and restore the original from a backup or from the table `bodies`."


def check_files(ws: Workspace, files: Iterable[RecordedFile], total: int, progress: Progress) -> Difference | None:
    """The first recorded file that is missing or changed. Raises WorldError."""
    for done, file in enumerate(files):
        progress("files", done, total)
        with world_errors(f"read mailbox/{file.path}"):
            finding = _check(ws, file)
        if finding is not None:
            return finding
    return None


def _check(ws: Workspace, file: RecordedFile) -> Difference | None:
    place = PurePosixPath(file.path or "")
    where = f"mailbox/{place}"
    missing = Difference("files", where, f"it is missing (message {file.id})", _recorded(file), _MISSING)
    try:
        with directory(ws.mailbox, *place.parent.parts) as fd:
            if lstat(fd, place.name) is None:
                return missing
            if file.sha256 is not None:
                if (found := digest_of(fd, place.name)) is None:
                    return Difference("files", where, "it is not a regular file", _recorded(file), _CHANGED)
                if found[0] != file.sha256:
                    return Difference("files", where, f"it was changed: sha256 {found[0]}", _recorded(file), _CHANGED)
            return _check_reason(fd, place.name, where, file) if file.verdict == "rejected" else None
    except (FileNotFoundError, NotADirectoryError):
        return missing


def _check_reason(fd: int, name: str, where: str, file: RecordedFile) -> Difference | None:
    wanted = reason_file(file.name, file.at, file.sha256, file.id, file.reason)
    raw = read_file(fd, name + REASON, _LARGEST_REASON)
    try:
        found = None if raw is None else json.loads(raw)
    except ValueError:
        found = raw
    if found == wanted:
        return None
    problem = "it is missing" if raw is None else "it differs from its record"
    expected = f"the reason of message {file.id}: {wanted.get('rule')}"
    return Difference("files", where + REASON, problem, expected, "Restore it; `mailboxd log` has its content.")


def _recorded(file: RecordedFile) -> str:
    if file.sha256 is None:
        return f"the file {file.verdict} as {file.name} at {file.at}"
    return f"{file.size} bytes with sha256 {file.sha256}, recorded at {file.at}"


def present(ws: Workspace) -> Iterator[str]:
    """The paths below mailbox/ of all files in archive/, rejected/ and outbox/.

    Temporary files and the reasons beside rejected files are left out. Raises WorldError.
    """
    with world_errors(f"read {ws.mailbox}"):
        for place in PLACES:
            found = {str(path) for path in walk(ws, PurePosixPath(place), 4 if place == "archive" else 1)}
            reasons = {path + REASON for path in found} if place == "rejected" else set()
            yield from sorted(found - reasons)


def unrecorded(ws: Workspace, path: str, judged: set[str], ordered: set[str]) -> Difference | None:
    """The finding for a file without a record; None if it is just being moved or written."""
    place = PurePosixPath(path)
    with world_errors(f"read mailbox/{path}"), directory(ws.mailbox, *place.parent.parts) as fd:
        found = digest_of(fd, place.name)
    if place.parts[0] == "outbox" and any(message_id in place.name for message_id in ordered):
        return None
    if place.parts[0] != "outbox" and judged & {place.name, *(found or ())[:1]}:
        return None
    problem = f"there is no record that it was {'sent' if place.parts[0] == 'outbox' else 'received'}"
    remedy = "If it is yours, move it to mailbox/inbox/ to have it processed. " + INVESTIGATE
    return Difference("files", f"mailbox/{path}", problem, "only files that an event names", remedy)


@dataclass(slots=True)
class Audit:
    """One audit of one workspace.

    Heads signed with one of `keys` prove the log. `noted` is a head that was kept elsewhere: event number and hash.
    """

    ws: Workspace
    report: Report
    progress: Progress
    keys: signed_heads.Keys = field(default_factory=dict)
    noted: tuple[int, str] | None = None
    _expected: int = 0
    """The last event when the journal was read; 0 if there is none."""
    _last_line: int = 0
    _kept: dict[str, str] = field(default_factory=dict)
    """SHA-256 of a prompt whose text is kept, with the line of the event that says so."""
    _lines: set[str] = field(default_factory=set)
    """What the journal has the text of: prompts by their SHA-256, messages by their id."""

    def perform(self) -> Verification:
        """Run the checks in turn until one finds something. Raises WorldError if something cannot be read."""
        report = Verification()
        # before the snapshot, which fails to end on some damaged files
        report.finding = self._pages() or self._chain(report) or self._journal(report)
        if report.finding is not None:
            return report
        checks: tuple[Callable[[Verification], Difference | None], ...] = (
            self._tables,
            self._bodies,
            self._files,
        )
        with self.report.snapshot():
            for check in checks:
                report.finding = check(report)
                if report.finding is not None:
                    return report
        # outside the snapshot: files moved meanwhile are on record by now
        report.finding = self._journal_end() or self._unrecorded(report)
        return report

    def _pages(self) -> Difference | None:
        """SQLite's own check, which also covers pages that the other checks do not read."""
        damage = integrity_problem(self.report.db, self.progress, self.ws.database)
        if not damage:
            return None
        return Difference("pages", f".mailboxd/{self.ws.database.name}", damage, "an intact database file", RESTORE)

    def _chain(self, report: Verification) -> Difference | None:
        count = report.checked["events"] = self.report.last_event()
        problem = event_log.verify_chain(self.report.db, self.progress, count)
        if problem is None:
            return None
        where, _, what = problem.partition(" is ")
        return Difference("chain", where, f"it is {what}", "the hash that follows from the event before it", REBUILD)

    def _tables(self, report: Verification) -> Difference | None:
        found = event_log.differences(self.report.db, self.progress, report.checked["events"])
        report.checked["tables"] = len(event_log.REPLAYED)
        if not found:
            return None
        table, _, what = found[0].partition(": ")
        return Difference("tables", f"the table {table}", what, "the result of replaying the events", REBUILD)

    def _bodies(self, _account: Verification) -> Difference | None:
        spoiled = audit_queries.changed_body(self.report.db)
        if spoiled is None:
            return self._prompts()
        remedy = "Restore a backup of the database; the file in archive/ or rejected/ may be intact."
        message, sha256 = spoiled
        if sha256 is None:
            return Difference(
                "bodies", f"the stored body of {message}", "it was moved", "no message with that id", remedy
            )
        return Difference("bodies", f"the stored body of {sha256}", "it was changed", f"sha256 {sha256}", remedy)

    def _prompts(self) -> Difference | None:
        """The first kept text of a prompt that was changed, or is missing."""
        remedy = "Restore a backup of the database; the line `prompt` of the journal may be intact."
        if (sha256 := prompts.changed(self.report.db)) is not None:
            return Difference("bodies", f"the stored prompt {sha256}", "it was changed", f"sha256 {sha256}", remedy)
        for seq, sha256 in prompts.missing(self.report.db):
            expected = f"the text with sha256 {sha256}"
            return Difference("bodies", f"the prompt of event {seq}", "its text is missing", expected, remedy)
        return None

    def _files(self, report: Verification) -> Difference | None:
        total = len(audit_queries.paths(self.report.db))
        report.checked["files"] = total
        return check_files(self.ws, audit_queries.filed(self.report.db), total, self.progress)

    def _unrecorded(self, report: Verification) -> Difference | None:
        found = list(present(self.ws))
        report.checked["present"] = len(found)
        with self.report.snapshot():
            known, (judged, ordered) = audit_queries.paths(self.report.db), audit_queries.in_transit(self.report.db)
        for path in found:
            if path not in known and (finding := unrecorded(self.ws, path, judged, ordered)) is not None:
                return finding
        return None

    def _journal(self, report: Verification) -> Difference | None:
        """Compare every line of the journal with the log, which has an event before its line is written."""
        files = journal.files_of(self.ws.root)
        self._expected = self.report.last_event() if files else 0
        if not files:
            report.notes.append("there is no journal yet, so a missing end of the log would not show")
        report.checked["journal"] = 0
        own = journal.uuid_of(self.report.db)
        try:
            for entry in journal.entries(files):
                report.checked["journal"] += 1
                finding = None
                if "seq" in entry.said:
                    finding = self._line(entry)
                elif "head" in entry.said:
                    finding = self._head(entry, report)
                elif "prompt" in entry.said:
                    finding = _prompt_line(entry)
                    self._lines.add(entry.said["prompt"])
                elif "body" in entry.said:
                    self._lines.add(entry.said["body"])
                elif entry.number == 1:
                    journal.require_own(entry.path, entry.line, own)
                if finding is not None:
                    return finding
        except (DamagedError, KeyError, TypeError, ValueError, OSError) as error:
            return Difference("journal", _JOURNAL, str(error), "lines that mailboxd wrote", JOURNAL)
        if files and (finding := self._without_text()) is not None:
            return finding
        return None if self.noted is None else self._against("heads", "the head noted elsewhere", *self.noted)

    def _without_text(self) -> Difference | None:
        """The first text that the journal lacks: a rebuild would lack it, too."""
        for sha256, where in self._kept.items():
            if sha256 not in self._lines:
                return Difference(
                    "journal", where, "the text of its prompt is missing", f"a line with {sha256}", JOURNAL
                )
        for seq, message in audit_queries.sent_with_text(self.report.db, self._expected):
            if message not in self._lines:
                what = f"the text of {message}, which event {seq} sent, is missing"
                return Difference("journal", _JOURNAL, what, "a line with its body", JOURNAL)
        return None

    def _journal_end(self) -> Difference | None:
        if self._last_line >= self._expected:
            return None
        expected = f"event {self._expected}"
        return Difference("journal", _JOURNAL, f"it ends with event {self._last_line}", expected, JOURNAL)

    def _line(self, entry: journal.Entry) -> Difference | None:
        said, last = entry.said, self._last_line
        if said["seq"] != last + 1:
            return Difference("journal", entry.where, f"event {said['seq']} follows event {last}", "no gap", JOURNAL)
        self._last_line = said["seq"]
        asked = said["data"].get("turn", {}).get("prompt") or {}
        if asked.get("text") == PromptText.KEPT and said["seq"] <= self._expected:
            self._kept.setdefault(asked["sha256"], entry.where)
        recorded = event_log.line_at(self.report.db, said["seq"])
        if recorded is not None and recorded == entry.line.rstrip(b"\n").decode():
            return None
        if recorded is not None and _sorted(json.loads(recorded)) == _sorted(said):
            journal.require_each_name_once(entry)  # written otherwise, as by an earlier version
            return None
        finding = self._against("journal", entry.where, said["seq"], said["hash"])
        return finding or Difference("journal", entry.where, "it was changed", "the event as it was recorded", JOURNAL)

    def _head(self, entry: journal.Entry, report: Verification) -> Difference | None:
        head = signed_heads.read(entry)
        found = signed_heads.standing(head, event_log.hash_at(self.report.db, head.seq), self.keys)
        if found is signed_heads.Standing.INVALID:
            expected = "a signature by this workspace's key"
            return Difference("heads", entry.where, "its signature is invalid", expected, INVESTIGATE)
        if found is signed_heads.Standing.OTHER:
            return self._against("heads", entry.where, head.seq, head.hash)
        report.proof = report.proof.with_head(head, found)
        return None

    def _against(self, check: str, where: str, seq: int, hash_: str) -> Difference | None:
        found = event_log.hash_at(self.report.db, seq)
        if found == hash_:
            return None
        last = self.report.last_event()
        if found is None:
            return Difference(check, where, f"the log ends at event {last}", f"event {seq} with hash {hash_}", REBUILD)
        return Difference(check, where, f"event {seq} has the hash {found}", f"hash {hash_}", REBUILD)


def _sorted(said: Mapping[str, Any]) -> str:
    """As text, in which 1 is not true."""
    return json.dumps(said, sort_keys=True)


def _prompt_line(entry: journal.Entry) -> Difference | None:
    text, sha256 = entry.said["text"].encode("utf-8", "surrogateescape"), entry.said["prompt"]
    if hashlib.sha256(text).hexdigest() == sha256:
        return None
    return Difference("journal", entry.where, "the text of the prompt was changed", f"sha256 {sha256}", JOURNAL)
