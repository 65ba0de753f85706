"""Moves judged files out of the inbox. The rows of `messages` are its to-do list, so a crash only repeats a move."""

from __future__ import annotations

import errno
import hashlib
import json
import stat
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.decision_builder import REST_SHOWN_SECONDS
from mailboxd.core.events import Kind
from mailboxd.core.times import to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Happened, Noted, Reports
from mailboxd.errors import MessageError, PlanError, Refused, WorldError
from mailboxd.keys.trust import Proof
from mailboxd.mailbox.files import ObstructedError, Stamp
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.maildir import JudgedFile, archive_many, put_back, read_message, reject_many
from mailboxd.protocol.messages import Message
from mailboxd.store.messages import Filed, Unfiled
from mailboxd.store.store import Store

# ---------------------------------------------------------------------------------------------------------------------
# What is recorded of a file that arrived: its row in `messages`, and its name as the file system has it.

RECOVERED = "recovered"
"""The verdict on a file that came after the copy of the database that was put back: recorded, not acted upon."""


@dataclass(frozen=True, slots=True)
class InboxFile:
    """An arrival as it lay in the inbox. `raw` is None when it was refused without being read."""

    name: str
    raw: bytes | None
    sha256: str | None
    size: int | None
    stamp: Mapping[str, Any]
    in_place: bool = False
    """It is not known to have been renamed in."""


def message_row(
    engine: Engine, file: InboxFile, verdict: str, message: Message | None, proof: Proof | None = None
) -> dict[str, Any]:
    """The row of `messages` for a file that has been judged. `proof`: what its signature shows; None = not examined."""
    return {
        "id": engine.new_id("msg"),
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
    }


def reason_fields(error: MessageError | PlanError | Refused) -> dict[str, Any]:
    reason: dict[str, Any] = {"rule": error.rule, "problem": error.problem[:2000], "hint": error.hint[:500]}
    if isinstance(error, MessageError):
        reason |= {"line": error.line, "field": error.field}
    return reason


def reason_file(
    name: str, at: str, sha256: str | None, message: str, reason: Mapping[str, object] | None
) -> dict[str, object]:
    """What stands in `<name>.reason.json` beside a rejected file; the same in every repetition."""
    return {"name": name, "rejected_at": at, "sha256": sha256, "message": message, **(reason or {})}


def file_system_name(name: str, stamp: Mapping[str, Any]) -> str:
    """A file's name as the file system has it: SQLite cannot hold one that is not valid text."""
    return bytes.fromhex(stamp["name"]).decode("utf-8", "surrogateescape") if "name" in stamp else name


def stored_name(name: str) -> tuple[str, dict[str, str]]:
    """The name as text that can be stored and shown, and what `raw_name` needs to undo that."""
    raw = name.encode("utf-8", "surrogateescape")
    shown = raw.decode("utf-8", "backslashreplace")
    return shown, ({} if shown == name else {"name": raw.hex()})


# ---------------------------------------------------------------------------------------------------------------------
# What was filed is still there: the files of archive/ and rejected/ are looked after all the time, a few at a look.
#
# The database says where every judged file lies and how large it is. A file that is gone is put back from the bytes in
# the database, with an alarm that says so. One that is not what was filed, or cannot be put back, is an alarm, once. It
# is remembered across restarts, keeps health from being green, and is forgotten when it is as it was. That the bytes of
# the others are the same is for `mailboxd audit verify` to say: it reads every file.
#
# To look at every file takes long where there are many. So three things are looked at first: files that were filed a
# moment ago, to which their writer may still write; days whose directory has changed, is another one or is gone; and
# what was wrong before.

WATCH_BATCH = 200
"""Files that one look takes up of each kind: a stat each."""
EVERY = 5.0
"""Seconds between two looks, at least."""
RECENT_SECONDS = 120.0
"""How long a file counts as filed a moment ago."""
MOST_RECENT = 1000
MOST_LOST = 1000
"""Files that are not as they were filed and are remembered; of more the alarm is raised again after a restart."""
META = "custody.lost"
META_PLACES = "custody.places"
META_RESTS = "custody.rests"
"""The late rest of messages that was rejected: a list of name, head and moment, the latest last."""
_MOST_RESTS = 20
_TOPS = ("archive", "rejected")

_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Recent:
    id: str
    path: str
    stamp: Stamp
    until: float


@dataclass(slots=True)
class ArchiveWatch:
    """Over the mail of one workspace. Nothing here raises because of what the directories look like."""

    engine: Engine
    ws: Workspace
    reports: Reports
    why: str = ""
    """What was not as it was filed at the last look, in a sentence for the operator."""
    _next: float = 0.0
    _after: str = ""
    """The message that was looked at last; empty = begin again."""
    _lost: dict[str, str] | None = None
    """What is wrong with a file, by the message's id."""
    _recent: deque[_Recent] = field(default_factory=lambda: deque(maxlen=MOST_RECENT))
    _directories: dict[str, tuple[_Identity, int] | None] = field(default_factory=dict)
    """Device and inode, and time of the last change, of each directory with filed mail; None: it is not there."""
    _sweeps: dict[str, str] = field(default_factory=dict)
    """Directories all of whose files are to be looked at, with the path that was looked at last."""
    _replaced: set[str] = field(default_factory=set)
    """Of these, those that are other directories than before."""
    _restored: list[str] = field(default_factory=list)

    @property
    def due(self) -> float | None:
        """When a look is wanted, on the monotonic clock; None: whenever the daemon is awake anyway."""
        return self._next if self._recent or self._sweeps else None

    def _why(self) -> str:
        lost = list((self._lost or {}).values())
        said = [_among(lost)] if lost else []
        if self._replaced:
            said.append(f"mailbox/{min(self._replaced)} was replaced, and what is missing in it is being put back")
        said += late_rests(self.engine.store, self.engine.clock.now())
        return "; ".join(said)

    def watch(self, message: str, path: str, stamp: Stamp) -> None:
        """A file was filed this moment: its writer may have it open still, and write what nobody will read."""
        until = self.engine.clock.monotonic() + RECENT_SECONDS
        self._recent.append(_Recent(message, path, stamp, until))

    def look(self) -> bool:
        """Look at the next files, if it is time to, and put back what is gone; whether more of it is to be put back.

        What is found is reported to the next transaction.
        """
        mono = self.engine.clock.monotonic()
        if mono < self._next:
            return False
        self._next = mono + EVERY
        if self._lost is None:
            self._lost = json.loads(self.engine.store.meta.get(META) or "{}")
        known = self._lost
        self._compare_directories()
        closely = {*list(known)[:WATCH_BATCH], *self._written_since(mono)}
        files = {file.id: file for file in (*self._of_sweep(), *self._next_in_turn())}
        files |= {file.id: file for file in self.engine.store.messages.filed_among(closely)}
        wrong: dict[str, str] = {}
        restored = len(self._restored)
        for file in files.values():
            why = self._wrong(file, closely=file.id in closely)
            if why is None:
                why = self._restore(file)
            if why:
                wrong[file.id] = why
        self._keep({name: why for name, why in known.items() if name not in files} | wrong, known)
        self.why = self._why()
        if len(self._restored) > restored and self._sweeps:
            self._next = mono  # the rest of it at once: all that was put back is said at the end
            return True
        self._tell_restored()
        return False

    def notice(self) -> None:
        """See whether directories were replaced; cheap, for when something may have been mounted."""
        if self._directories:
            self._compare_directories()

    # -------------------------------------------------------------- which files

    def _compare_directories(self) -> None:
        """Have those swept in which something came or went."""
        before, now = self._directories, self._look_at_directories()
        replaced = {place for place, found in now.items() if _is_another(found, before.get(place))}
        noted = self.engine.store.meta.get(META_PLACES)
        places = json.dumps({top: found[0] for top in _TOPS if (found := now[top])})
        if not before and noted not in (None, places):  # while no daemon ran
            self._sweeps |= dict.fromkeys(_TOPS, "")
        if tops := replaced & set(_TOPS):
            why = f"mailbox/{min(tops)} is another directory than before: something was mounted or unmounted, or moved"
            self._alarm(why)
            replaced = tops  # a sweep of it is one of all that lies below
        self._replaced |= replaced
        for place, found in now.items():
            changed = place != "archive" and before and found != before.get(place, found)
            if found is None or place in replaced or (changed and not tops):
                self._sweeps.setdefault(place, "")
        self._directories = now
        if noted != places:
            self.reports.append(Noted(META_PLACES, places))

    def _look_at_directories(self) -> dict[str, tuple[_Identity, int] | None]:
        found: dict[str, tuple[_Identity, int] | None] = {}
        for place in (*_TOPS, *self.engine.store.messages.archive_days()):
            try:
                status = (self.ws.mailbox / place).lstat()
            except OSError:
                found[place] = None
            else:
                found[place] = (status.st_dev, status.st_ino), status.st_mtime_ns
        return found

    def _of_sweep(self) -> list[Filed]:
        files: list[Filed] = []
        while self._sweeps and len(files) < WATCH_BATCH:
            place, after = next(iter(self._sweeps.items()))
            found = self.engine.store.messages.filed_in(place, after, WATCH_BATCH)
            files += found
            if len(found) == WATCH_BATCH:
                self._sweeps[place] = found[-1].path
            else:
                del self._sweeps[place]
                self._replaced.discard(place)
        return files

    def _next_in_turn(self) -> list[Filed]:
        files = self.engine.store.messages.filed(self._after, WATCH_BATCH)
        self._after = files[-1].id if len(files) == WATCH_BATCH else ""
        return files

    def _written_since(self, mono: float) -> list[str]:
        """The messages whose files were written to since they were filed a moment ago."""
        while self._recent and self._recent[0].until <= mono:
            self._recent.popleft()
        changed = []
        for recent in self._recent:
            try:
                status = (self.ws.mailbox / recent.path).lstat()
            except OSError:
                changed.append(recent.id)
            else:
                # the judged bytes may have been written anew instead: that is another file, with another time
                if status.st_ino == recent.stamp.ino and Stamp.of(status) != recent.stamp:
                    changed.append(recent.id)
        return changed

    # -------------------------------------------------------------- one file

    def _wrong(self, file: Filed, *, closely: bool) -> str | None:
        """What is wrong with a file; empty if it lies there, as large as it was, None if it is gone."""
        path = self.ws.mailbox / file.path
        try:
            status = path.lstat()
        except OSError as error:
            gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
            return None if gone else f"mailbox/{file.path}: {error.strerror}"
        if file.sha256 is None:
            return ""
        if not stat.S_ISREG(status.st_mode):
            return f"mailbox/{file.path} is no file any more"
        if status.st_size != file.size:
            return (
                f"mailbox/{file.path} has {status.st_size} bytes, and {file.size} were filed: somebody wrote to it"
                " afterwards, and only what was filed has been read"
            )
        if closely and _digest(read_message(self.ws, file.path, file.size + 1)) != file.sha256:
            return f"mailbox/{file.path} was written to after it was filed, and only what was filed has been read"
        return ""

    def _restore(self, file: Filed) -> str:
        """Put a file that is gone back where it lay; why that cannot be done, or nothing."""
        raw = self.engine.store.messages.body(file.id)
        if raw is None or _digest(raw) != file.sha256:
            return f"mailbox/{file.path} is gone, and the database does not have its bytes"
        item = self.engine.store.messages.judged(file.id)
        reason = reason_file(item.name, item.at, item.sha256, item.id, item.reason) if item.rejected else None
        try:
            put_back(self.ws, file.path, raw, reason)
        except WorldError as error:
            return f"mailbox/{file.path} is gone, and cannot be put back: {error}"
        self._restored.append(file.path)
        return ""

    # -------------------------------------------------------------- what is said

    def _keep(self, lost: dict[str, str], before: dict[str, str]) -> None:
        new = [name for name in lost if name not in before]
        if lost != before:
            self._lost = dict(list(lost.items())[:MOST_LOST])
            self.reports.append(Noted(META, json.dumps(self._lost)))
        if new:
            hint = "`mailboxd audit verify` says what else, its bytes are in the database"
            self._alarm(f"{_among([lost[name] for name in new])}; {hint}", new)

    def _tell_restored(self) -> None:
        if self._restored:
            paths, self._restored = [f"mailbox/{path}" for path in self._restored], []
            were = "was" if len(paths) == 1 else "were"
            self._alarm(f"{_among(paths)} {were} gone: put back from the database")

    def _alarm(self, why: str, messages: Iterable[str] = ()) -> None:
        tasks = {file.task for file in self.engine.store.messages.filed_among(messages)}
        task = tasks.pop() if len(tasks) == 1 else None
        self.reports.append(Happened(Kind.ALARM, task, {"what": "custody", "why": why}))


def note_late_rest(store: Store, name: str, head: str, at: str) -> None:
    """Remember that the rest of a message came late, so that health says it for a while; inside a transaction."""
    rests = [*json.loads(store.meta.get(META_RESTS) or "[]"), [name, head, at]]
    store.meta.set(META_RESTS, json.dumps(rests[-_MOST_RESTS:]))


def late_rests(store: Store, now: str) -> list[str]:
    """A sentence about the messages whose rest came late, if there were any within a day."""
    rests = json.loads(store.meta.get(META_RESTS) or "[]")
    names = [name for name, _, at in rests if to_epoch(now) - to_epoch(at) < REST_SHOWN_SECONDS]
    if not names:
        return []
    return [f"the rest of {_among(sorted(set(names)))} came after the file was taken: it is in rejected/, unread"]


def _is_another(found: tuple[_Identity, int] | None, before: tuple[_Identity, int] | None) -> bool:
    return found is not None and before is not None and found[0] != before[0]


def _digest(raw: bytes | None) -> str:
    return hashlib.sha256(raw or b"").hexdigest()


def _among(said: list[str]) -> str:
    return said[0] + (f", and {len(said) - 1} more" if len(said) > 1 else "")


# ---------------------------------------------------------------------------------------------------------------------
# Moves judged files out of the inbox. The rows of `messages` are its to-do list, so a crash only repeats a move.

ARCHIVE_BATCH = 1000


@dataclass(slots=True)
class Archiver:
    engine: Engine
    ws: Workspace
    reports: Reports
    archive_watch: ArchiveWatch
    obstructed: dict[str, str] = field(default_factory=dict)
    """Files that do not let themselves be moved, by the message's id, with the reason. Forgotten by `try_again`."""

    _told: set[str] = field(default_factory=set)

    def perform(self) -> int:
        """Move what has been judged; returns how many files. Raises WorldError (then nothing is lost: repeat it)."""
        todo = self.waiting()
        accepted = [item for item in todo if not item.rejected]
        rejected = [item for item in todo if item.rejected]
        taken = self.engine.store.messages.is_filed
        if accepted:
            self._note(accepted, archive_many(self.ws, [(self._judged(i), i.at[:10]) for i in accepted], taken))
        if rejected:
            self._note(rejected, reject_many(self.ws, [(self._judged(i), _reason(i)) for i in rejected], taken))
        return len(todo)

    def waiting(self) -> list[Unfiled]:
        """What has been judged and can be moved, as far as is known."""
        found = self.engine.store.messages.unfiled(ARCHIVE_BATCH + len(self.obstructed))
        return [item for item in found if item.id not in self.obstructed]

    def try_again(self) -> None:
        """Forget what stood in the way: it may be gone. And see whether the directories are those that they were."""
        self.obstructed.clear()
        self.archive_watch.notice()

    def _judged(self, item: Unfiled) -> JudgedFile:
        raw = self.engine.store.messages.body(item.id)
        return JudgedFile(file_system_name(item.name, item.stamp), _stamp(item), raw)

    def _note(self, items: Sequence[Unfiled], places: Sequence[str | ObstructedError]) -> None:
        for item, place in zip(items, places, strict=True):
            if isinstance(place, ObstructedError):
                self.obstructed[item.id] = str(place)
                if item.id not in self._told:
                    self._told.add(item.id)
                    why = f"{item.name} cannot be moved out of the inbox: {place}"
                    self.reports.append(Happened(Kind.ALARM, None, {"what": "filing-mail", "why": why}))
            else:
                self.reports.append(Happened(Kind.MESSAGE_FILED, None, {"id": item.id, "path": place}))
                self.archive_watch.watch(item.id, place, _stamp(item))


def _stamp(item: Unfiled) -> Stamp:
    return Stamp(**{name: int(value) for name, value in item.stamp.items() if name != "name"})


def _reason(item: Unfiled) -> dict[str, object]:
    return reason_file(item.name, item.at, item.sha256, item.id, item.reason)
