"""A database that is older than the rest of the workspace: it is detected at start and used only on an operator's
order.

Three things show how far the log had gone: the seal (`store.integrity`) and the journal, compared at every opening, and
the files in archive/ and outbox/. If the seal shows that only mailboxd has written since the log was verified, the
database is the newest one, and nothing else is read. Otherwise (it was killed during a commit, or another program wrote
to the file) the whole chain is verified, and files newer than the latest event are searched for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import OpenCircuit
from mailboxd.core.lifecycle import amend
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Phase
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import RECOVERED, InboxFile, record_message, stored_name
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import MessageError, OutdatedError, Refused
from mailboxd.formats.mailbox.files import directory, world_errors
from mailboxd.formats.mailbox.layout import Workspace, is_temporary
from mailboxd.formats.mailbox.maildir import INDEX, day_in, read_message
from mailboxd.formats.protocol.messages import Parsed, ReplyMessage, TaskMessage, parse_message
from mailboxd.host.ids import time_of
from mailboxd.host.progress import Progress, silent
from mailboxd.ledger import audit_queries
from mailboxd.ledger.integrity import changed
from mailboxd.ledger.journal import folder_of
from mailboxd.ledger.opening import older
from mailboxd.ledger.store import Store
from mailboxd.perform.message_builder import row_of_sent

_LARGEST = 16 << 20
_NAMED = 3
_AT_GATES = frozenset({Phase.SPEC_GATE, Phase.QUALITY_GATE, Phase.AWAITING_APPROVAL, Phase.READY_TO_RESUME})
"""Phases in which a command may run next: a check or an approved action."""
_ALWAYS = "1970-01-01T00:00:00.000Z"
HELD = "the database is older than the mailbox, so this may already have been done: check before you let it go on"


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that the database does not know, by its path below mailbox/."""

    path: str
    raw: bytes
    parsed: Parsed
    written: float

    @property
    def is_sent(self) -> bool:
        return self.path.startswith("outbox/")

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def id(self) -> str:
        return self.parsed.message.message_id or ""


def require_newest(ws: Workspace, store: Store, progress: Progress = silent) -> None:
    """Raise OutdatedError if archive/ or outbox/ are newer than the database, or its log or tables were changed.

    Call before anything is accepted or started. Raises WorldError if the database cannot be read.
    """
    if store.is_sealed():
        return
    if problem := store.verify_log(progress):
        raise OutdatedError(changed(ws.database, problem))
    if unknown := [found.path for found in _later(ws, store, store.last_event_at())]:
        raise OutdatedError(older(ws.database, _unknown(unknown)))
    store.trust_log()


def _unknown(paths: list[str]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    named = ", ".join(f"mailbox/{path}" for path in paths[:_NAMED])
    return f"it does not know {named}{more} (if you put that there yourself, move it to mailbox/inbox/)"


def _later(ws: Workspace, store: Store, since: str) -> Iterator[_Found]:
    """Messages in archive/ and outbox/ that are newer than an event's time and unknown to the database.

    Files whose record a crash prevented (judged and moved, or ordered and written) are known. Without any event nothing
    is newer: the workspace is new, and its files are from before.
    """
    if since:
        judged, ordered = audit_queries.in_transit(store.db)
        found = _unknown_files(ws, store, to_epoch(since), judged)
        yield from (one for one in found if not (one.is_sent and one.id in ordered))


def _unknown_files(ws: Workspace, store: Store, since: float, judged: Collection[str] = ()) -> Iterator[_Found]:
    """Unknown files of archive/ and outbox/ that were put there after `since` (seconds since 1970).

    `judged` are hashes of judged files that may have been moved already.
    """
    for folder in _folders(ws, since):
        place = folder.parts[0]
        known = store.messages.names_in(str(folder))
        for name, written in _names(ws, folder, since, known):
            path = str(folder / name)
            raw = read_message(ws, path, _LARGEST)
            try:
                parsed = parse_message(raw or b"", path, max_bytes=_LARGEST)
            except MessageError:
                continue  # not a message, or not one that would be judged
            if place == "outbox":
                composed = time_of(parsed.message.message_id or "")
                is_ours = composed is not None and to_epoch(composed) > since
                is_known = not is_ours or store.messages.sent_path(parsed.message.message_id or "") is not None
            else:
                is_known = (
                    parsed.sha256 in judged
                    or store.messages.first_arrival(parsed.message.message_id, parsed.sha256, parsed.message.from_)
                    is not None
                )
            if not is_known:
                yield _Found(path, raw or b"", parsed, written)


def _folders(ws: Workspace, since: float) -> Iterator[PurePosixPath]:
    """The days of archive/ and outbox/ that changed after `since`; unreadable ones are skipped: intake reports them."""
    for place in ("archive", "outbox"):
        with suppress(OSError), directory(ws.root, "mailbox", place) as fd:
            with os.scandir(fd) as found:
                folders = sorted(PurePosixPath(place, entry.name) for entry in found)
            for folder in folders:
                if not day_in(str(folder)):
                    continue
                status = os.stat(folder.name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and status.st_mtime >= since:
                    yield folder


def _names(ws: Workspace, folder: PurePosixPath, since: float, known: set[str]) -> Iterator[tuple[str, float]]:
    """Files of a directory that are not recorded and got their names after `since`, each with its mtime."""
    with suppress(OSError), directory(ws.root, "mailbox", *folder.parts) as fd:
        with os.scandir(fd) as found:
            names = sorted({entry.name for entry in found} - known)
        for name in names:
            if is_temporary(name) or name == INDEX:
                continue
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_ctime >= since:
                yield name, status.st_mtime


@dataclass(slots=True)
class Acceptance:
    """The result: the reason, the number of files recorded, and the tasks that need attention."""

    why: str
    messages: int = 0
    waiting: list[str] = field(default_factory=list)


def accept(core: Engine, intake: Intake, ws: Workspace) -> Acceptance:
    """Continue with an older database: record newer files and hold all open work.

    Raises Refused if nothing is newer than the database, OutdatedError if its log was changed, WorldError.
    """
    store = core.store
    if problem := store.verify_log():
        raise OutdatedError(changed(ws.database, problem))
    with core.batch():
        account = _accept(core, intake, ws)
    if store.journal is not None:
        with world_errors(f"rename {folder_of(ws.root)}"):
            store.journal.set_aside(core.now)  # it belongs to the log that was lost
    if store.seal is not None:
        store.seal.forget()
    with store.transaction():
        pass
    return account


def _accept(core: Engine, intake: Intake, ws: Workspace) -> Acceptance:
    store = core.store
    why = store.outdated or _unknown([one.path for one in _later(ws, store, store.last_event_at())])
    if not why:
        problem = f"nothing knows more than {ws.database}: it is not older"
        raise Refused("not-older", problem, "`mailboxd run` serves it as it is.")
    return _record_and_hold(core, intake, list(_unknown_files(ws, store, 0.0)), why)


def take_in(core: Engine, intake: Intake, ws: Workspace) -> Acceptance | None:
    """Record the files that a rebuilt database lacks, and hold all open work; None if it lacks none; inside a batch."""
    found = list(_later(ws, core.store, _ALWAYS))
    return _record_and_hold(core, intake, found, _unknown([one.path for one in found])) if found else None


def _record_and_hold(core: Engine, intake: Intake, found: list[_Found], why: str) -> Acceptance:
    store = core.store
    found.sort(key=lambda one: one.written)
    account = Acceptance(why, len(found))
    alarm = f"an operator continues from an older database: {why}"
    core.record(Event(Kind.ALARM, None, {"at": core.now, "what": "older-database", "why": alarm}))
    store.outbox.mark_uncertain({one.id for one in found if one.is_sent})
    answered = {(one.task_id, one.subtask_id) for one in _replies(found)}
    for one in found:
        _record(core, intake, one, answered)
    for task_id in store.tasks.open_ids():
        _hold(core, task_id)
    account.waiting = store.tasks.needing_attention()
    return account


def _replies(found: Iterable[_Found]) -> Iterator[ReplyMessage]:
    """Replies in outbox/ that report how work ended."""
    for one in found:
        if one.is_sent and isinstance(one.parsed.message, ReplyMessage):
            yield one.parsed.message


def _record(core: Engine, intake: Intake, found: _Found, answered: Collection[tuple[str, str | None]]) -> None:
    """Record a file. A received message takes effect, except a dispatch whose end a reply reports.

    Other work becomes a task, which is then held like all others.
    """
    message, raw = found.parsed.message, found.raw
    path, _ = stored_name(found.path)
    if found.is_sent:
        row = row_of_sent(found.id, message.type, core.settings.agent, "", path, raw, message.task_id)
        core.store.messages.keep_body(found.id, raw)
        core.record(Event(Kind.MESSAGE_SENT, None, {"at": core.now, "message": row}))
        return
    name, stamp = stored_name(found.name)
    file = InboxFile(name, raw, found.parsed.sha256, len(raw), stamp)
    has_ended = isinstance(message, TaskMessage) and (message.task_id, message.subtask_id) in answered
    if has_ended or not _takes(core, intake, file, found.parsed):
        record_message(core, file, RECOVERED, message)
    known = core.store.messages.unfiled_id(found.parsed.sha256)
    core.record(Event(Kind.MESSAGE_FILED, None, {"at": core.now, "id": known, "path": path}))


def _takes(core: Engine, intake: Intake, file: InboxFile, parsed: Parsed) -> bool:
    """Apply a message as when it came; False if it is refused, because it may concern a later state."""
    with suppress(_NotTakenError), core.store.savepoint():
        if intake.receive(file, parsed) == "rejected":
            raise _NotTakenError
        return True
    return False


class _NotTakenError(Exception):
    """Undoes the effects of a message."""


def _hold(core: Engine, task_id: str) -> None:
    """Hold an open task: open its circuit if a command may run next, else hold its tree."""
    task = core.store.tasks.get(task_id)
    if task is None or task.phase.is_terminal or task.phase is Phase.CIRCUIT_OPEN:
        return
    if task.phase in _AT_GATES:
        core.store.outbox.fail_commands(task_id)
        core.handle(task_id, OpenCircuit(HELD))
    elif task.parent is None and not task.held:
        core.record(amend(task, core.now, HELD, held=HELD)[0])
