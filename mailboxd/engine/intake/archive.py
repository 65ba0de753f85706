"""Records files that arrived, moves them out of the inbox, and checks the files in archive/ and rejected/."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core import entrance
from mailboxd.core.decision_builder import REST_SHOWN_SECONDS
from mailboxd.core.entrance import Entrance
from mailboxd.core.events import Event, Kind
from mailboxd.core.times import to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Happened, Noted, Reports
from mailboxd.errors import WorldError
from mailboxd.formats.keys import Proof
from mailboxd.formats.mailbox.files import ObstructedError, Stamp
from mailboxd.formats.mailbox.layout import Workspace, storable_name
from mailboxd.formats.mailbox.maildir import MoveRequest, move_out, read_message, write
from mailboxd.formats.protocol.messages import Message
from mailboxd.ledger.messages import Filed, Unfiled
from mailboxd.ledger.store import Store

# The record of a file that arrived

RECOVERED = "recovered"
"""Verdict on a file newer than a restored database: recorded, not acted upon."""


@dataclass(frozen=True, slots=True)
class InboxFile:
    """A file as it was in the inbox. `raw` is None if it was refused unread."""

    name: str
    raw: bytes | None
    sha256: str | None
    size: int | None
    stamp: Mapping[str, Any]
    in_place: bool = False
    """It is not known to have been renamed into the inbox."""
    came: Entrance = entrance.UNKNOWN


def record_message(
    engine: Engine,
    file: InboxFile,
    verdict: str,
    message: Message | None,
    proof: Proof | None = None,
    *,
    task: str | None = None,
    reason: Mapping[str, object] | None = None,
    warnings: Sequence[str] = (),
    notice: str = "",
) -> str:
    """Record a file with its bytes as a row of `messages`; return its id. Inside a batch.

    `proof`: the result of checking its signature; None: not checked. `reason`: why it is rejected. `notice`: why a
    person has to look at it.
    """
    recorded = engine.new_id("msg")
    row = {
        "id": recorded,
        "direction": "in",
        "message_id": message.message_id if message else None,
        "type": message.type if message else None,
        "sender": message.from_ if message else None,
        "receiver": engine.settings.agent,
        "task_id": message.task_id if message else None,
        "subtask_id": message.subtask_id if message else None,
        "verdict": verdict,
        "name": file.name,
        "sha256": file.sha256,
        "size": file.size,
        "stamp": dict(file.stamp),
        "verified": proof.verified if proof else None,
        "signer": proof.signer if proof else None,
        **file.came.columns(),
    }
    if file.raw is not None:
        engine.store.messages.keep_body(recorded, file.raw)
    if reason is not None:
        data = {"at": engine.now, "message": row | {"reason": dict(reason)}}
        engine.record(Event(Kind.MESSAGE_REJECTED, task, data))
    else:
        row |= {"notice": notice} if notice else {}
        data = {"at": engine.now, "message": row} | ({"warnings": list(warnings)} if warnings else {})
        engine.record(Event(Kind.MESSAGE_RECEIVED, task, data, actor=message.from_ if message else ""))
    return recorded


def reason_file(
    name: str, at: str, sha256: str | None, message: str, reason: Mapping[str, object] | None
) -> dict[str, object]:
    """Content of `<name>.reason.json` beside a rejected file; the same in every repetition."""
    return {"name": name, "rejected_at": at, "sha256": sha256, "message": message, **(reason or {})}


def file_system_name(name: str, stamp: Mapping[str, Any]) -> str:
    """The name in the file system, which SQLite cannot store if it is not valid text."""
    return bytes.fromhex(stamp["name"]).decode("utf-8", "surrogateescape") if "name" in stamp else name


def stored_name(name: str) -> tuple[str, dict[str, str]]:
    """Return the name as valid text, and the part of the stamp from which `file_system_name` restores it."""
    shown = storable_name(name)
    return shown, ({} if shown == name else {"name": os.fsencode(name).hex()})


# Watching over the archive: the files of archive/ and rejected/ are checked in turn, all the time
#
# The database knows path and size of every file. A missing file is restored from the bytes in the database, with
# an alarm. A file that was changed or cannot be restored raises an alarm once; it is remembered across restarts, keeps
# health from being green, and is forgotten when it is as it was. Files archived a moment ago, to which their writer may
# still write, and files wrong before are checked each time. Only `mailboxd db verify` reads and compares every file.

WATCH_BATCH = 200
"""Files per check, at one stat each."""
EVERY = 5.0
"""Least seconds between two checks."""
RECENT_SECONDS = 120.0
"""How long an archived file counts as recent."""
MOST_RECENT = 1000
MOST_LOST = 1000
"""Changed files that are remembered; the alarm of any more is raised again after a restart."""
META = "archive.changed"
META_RESTS = "archive.late"
"""Rejected late rests of messages: a list of name, head and time, the latest last."""
_MOST_RESTS = 20


@dataclass(frozen=True, slots=True)
class _Recent:
    id: str
    path: str
    stamp: Stamp
    until: float


@dataclass(slots=True)
class ArchiveWatch:
    """Checks the archived mail of one workspace."""

    engine: Engine
    ws: Workspace
    reports: Reports
    why: str = ""
    """The problems found by the last check, in a sentence for the operator."""
    due: float = 0.0
    """When to check again, on the monotonic clock; at once while more missing files may be restored."""
    _after: str = ""
    """Id of the message checked last; empty: start again."""
    _lost: dict[str, str] | None = None
    """Message id -> what is wrong with its file."""
    _recent: deque[_Recent] = field(default_factory=lambda: deque(maxlen=MOST_RECENT))
    _restored: list[str] = field(default_factory=list)

    def _why(self) -> str:
        lost = list((self._lost or {}).values())
        reasons = [_among(lost)] if lost else []
        reasons += late_rests(self.engine.store, self.engine.clock.now())
        return "; ".join(reasons)

    def watch(self, message: str, path: str, stamp: Stamp) -> None:
        """Check a file that was just archived more closely: its writer may still have it open."""
        until = self.engine.clock.monotonic() + RECENT_SECONDS
        self._recent.append(_Recent(message, path, stamp, until))

    def check(self) -> bool:
        """Check the next files, if it is time to, and restore missing ones; return whether to continue at once.

        Findings are recorded by the next transaction.
        """
        mono = self.engine.clock.monotonic()
        if mono < self.due:
            return False
        self.due = mono + EVERY
        if self._lost is None:
            self._lost = json.loads(self.engine.store.meta.get(META) or "{}")
        known = self._lost
        closely = {*list(known)[:WATCH_BATCH], *self._written_since(mono)}
        files = {file.id: file for file in self._next_in_turn()}
        files |= {file.id: file for file in self.engine.store.messages.filed_among(closely)}
        wrong: dict[str, str] = {}
        restored = len(self._restored)
        for file in files.values():
            why = self._wrong(file, closely=file.id in closely)
            if why is None:
                why = self._restore(file)
            if why:
                wrong[file.id] = why
        self._remember({name: why for name, why in known.items() if name not in files} | wrong, known)
        self.why = self._why()
        if len(self._restored) > restored and self._after:
            self.due = mono  # more are missing: continue at once, and report all of them at the end
            return True
        self._report_restored()
        return False

    # Which files to check

    def _next_in_turn(self) -> list[Filed]:
        files = self.engine.store.messages.filed(self._after, WATCH_BATCH)
        self._after = files[-1].id if len(files) == WATCH_BATCH else ""
        return files

    def _written_since(self, mono: float) -> list[str]:
        """Ids of the recent messages whose files were written to since they were archived."""
        while self._recent and self._recent[0].until <= mono:
            self._recent.popleft()
        changed, mailbox = [], self.ws.mailbox
        for recent in self._recent:
            try:
                status = os.lstat(f"{mailbox}/{recent.path}")
            except OSError:
                changed.append(recent.id)
            else:
                # where the bytes were written again instead, it is another file
                if status.st_ino == recent.stamp.ino and Stamp.of(status) != recent.stamp:
                    changed.append(recent.id)
        return changed

    # Checking one file

    def _wrong(self, file: Filed, *, closely: bool) -> str | None:
        """The problem with a file; empty: none; None: it is missing."""
        path = self.ws.mailbox / file.path
        try:
            status = path.lstat()
        except OSError as error:
            gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
            return None if gone else f"mailbox/{file.path}: {error.strerror}"
        if file.sha256 is None:
            return ""
        if not stat.S_ISREG(status.st_mode):
            return f"mailbox/{file.path} is no longer a file"
        if status.st_size != file.size:
            return (
                f"mailbox/{file.path} has {status.st_size} bytes, and {file.size} were archived: it was written to"
                " afterwards, and only what was archived has been read"
            )
        if closely and _digest(read_message(self.ws, file.path, file.size + 1)) != file.sha256:
            return f"mailbox/{file.path} was written to after it was archived, and only what was archived has been read"
        return ""

    def _restore(self, file: Filed) -> str:
        """Restore a missing file; return why that failed, or nothing."""
        raw = self.engine.store.messages.body(file.id)
        if raw is None or _digest(raw) != file.sha256:
            return f"mailbox/{file.path} is missing, and the database does not have its bytes"
        item = self.engine.store.messages.judged(file.id)
        reason = _reason(item) if item.rejected else None
        try:
            write(self.ws, file.path, raw, reason)
        except WorldError as error:
            return f"mailbox/{file.path} is missing, and cannot be restored: {error}"
        self._restored.append(file.path)
        return ""

    # Reporting

    def _remember(self, lost: dict[str, str], before: dict[str, str]) -> None:
        new = [name for name in lost if name not in before]
        if lost != before:
            self._lost = dict(list(lost.items())[:MOST_LOST])
            self.reports.append(Noted(META, json.dumps(self._lost)))
        if new:
            hint = "`mailboxd db verify` checks all files; the original bytes are in the database"
            self._alarm(f"{_among([lost[name] for name in new])}; {hint}", new)

    def _report_restored(self) -> None:
        if self._restored:
            paths, self._restored = [f"mailbox/{path}" for path in self._restored], []
            were = "was" if len(paths) == 1 else "were"
            self._alarm(f"{_among(paths)} {were} missing: restored from the database")

    def _alarm(self, why: str, messages: Iterable[str] = ()) -> None:
        tasks = {file.task for file in self.engine.store.messages.filed_among(messages)}
        task = tasks.pop() if len(tasks) == 1 else None
        self.reports.append(Happened(Kind.ALARM, task, {"what": "archive", "why": why}))


def note_late_rest(store: Store, name: str, head: str, at: str) -> None:
    """Remember that the rest of a message came late, which health reports for a day; inside a transaction."""
    rests = [*json.loads(store.meta.get(META_RESTS) or "[]"), [name, head, at]]
    store.meta.set(META_RESTS, json.dumps(rests[-_MOST_RESTS:]))


def late_rests(store: Store, now: str) -> list[str]:
    """A sentence about messages of the last day whose rest came late, if there are any."""
    rests = json.loads(store.meta.get(META_RESTS) or "[]")
    names = [name for name, _, at in rests if to_epoch(now) - to_epoch(at) < REST_SHOWN_SECONDS]
    if not names:
        return []
    return [f"the rest of {_among(sorted(set(names)))} came after the file was taken: it is in rejected/, unread"]


def _digest(raw: bytes | None) -> str:
    return hashlib.sha256(raw or b"").hexdigest()


def _among(texts: list[str]) -> str:
    return texts[0] + (f", and {len(texts) - 1} more" if len(texts) > 1 else "")


# Moving recorded files out of the inbox: rows of `messages` are the queue, so a crash only repeats a move

ARCHIVE_BATCH = 1000


@dataclass(slots=True)
class Archiver:
    engine: Engine
    ws: Workspace
    reports: Reports
    archive_watch: ArchiveWatch
    obstructed: dict[str, str] = field(default_factory=dict)
    """Message id -> why its file cannot be moved. Cleared by `try_again`."""

    _reported: set[str] = field(default_factory=set)

    def perform(self) -> int:
        """Move recorded files; return their number. After a WorldError nothing is lost: call it again."""
        items = self.waiting()
        if items:
            requests = [self._request(item) for item in items]
            self._report(items, move_out(self.ws, requests, self.engine.store.messages.is_filed))
        return len(items)

    def waiting(self) -> list[Unfiled]:
        """Recorded files that can be moved, as far as is known."""
        found = self.engine.store.messages.unfiled(ARCHIVE_BATCH + len(self.obstructed))
        return [item for item in found if item.id not in self.obstructed]

    def try_again(self) -> None:
        """Retry files that could not be moved."""
        self.obstructed.clear()

    @property
    def stuck(self) -> str:
        """Which recorded files are still in the inbox, and why; empty if none is."""
        if not self.obstructed:
            return ""
        return f"{_among([*self.obstructed.values()])}: recorded, and left there; tried again from time to time"

    def _request(self, item: Unfiled) -> MoveRequest:
        name, raw = file_system_name(item.name, item.stamp), self.engine.store.messages.body(item.id)
        place, reason = ("rejected", _reason(item)) if item.rejected else ("archive", None)
        return MoveRequest(name, _stamp(item), raw, f"{place}/{item.at[:10]}", reason)

    def _report(self, items: Sequence[Unfiled], places: Sequence[str | ObstructedError]) -> None:
        for item, place in zip(items, places, strict=True):
            if isinstance(place, ObstructedError):
                self.obstructed[item.id] = str(place)
                if item.id not in self._reported:
                    self._reported.add(item.id)
                    why = f"{item.name} cannot be moved out of the inbox: {place}"
                    self.reports.append(Happened(Kind.ALARM, None, {"what": "filing-mail", "why": why}))
            else:
                self.reports.append(Happened(Kind.MESSAGE_FILED, None, {"id": item.id, "path": place}))
                self.archive_watch.watch(item.id, place, _stamp(item))


def _stamp(item: Unfiled) -> Stamp:
    return Stamp(**{name: int(value) for name, value in item.stamp.items() if name != "name"})


def _reason(item: Unfiled) -> dict[str, object]:
    return reason_file(item.name, item.at, item.sha256, item.id, item.reason)
