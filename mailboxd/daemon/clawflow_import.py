"""`mailboxd db import`: adopt a clawflow workspace that was run without mailboxd.

No file is moved or changed. Archived messages are recorded in place, so that they count as known, and each task.md
becomes a task in the phase that it states. Files in the inbox are left to the daemon.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mailboxd.core.events import Event, Kind
from mailboxd.core.times import to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import InboxFile, record_message, stored_name
from mailboxd.errors import MessageError
from mailboxd.formats.mailbox.files import directory, read_file, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import walk
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.host.progress import Progress, silent, stepwise
from mailboxd.surfaces.taskmd.sync import TaskMarkdown

_MAX_BYTES = 16 << 20


@dataclass(slots=True)
class ImportResult:
    """The result of an import. A problem is a path relative to the workspace and what is wrong with it."""

    messages: int = 0
    tasks: list[str] = field(default_factory=list)
    known: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)


def import_workspace(engine: Engine, ws: Workspace, taskmd: TaskMarkdown, progress: Progress = silent) -> ImportResult:
    """Record the messages and tasks of the workspace, inside a batch. Known ones are skipped. Raises WorldError."""
    account = ImportResult()
    with world_errors(f"read {ws.archive}"):
        for path in stepwise(walk(ws, PurePosixPath("archive")), "messages", 0, progress):
            _message(engine, ws, path, account)
    local_ids = list(taskmd.files.directories())
    for local_id in stepwise(local_ids, "tasks", len(local_ids), progress):
        if engine.store.tasks.by_local_id(local_id) is not None:
            account.known += 1
            continue
        found = taskmd.scan(to_epoch(engine.now), [local_id])
        if engine.store.tasks.by_local_id(local_id) is not None:
            account.tasks.append(local_id)
        elif found.changed or found.unusable:
            why = "it was not imported; `mailboxd log` says why, and a copy was kept next to it"
            account.problems.append((f"tasks/{local_id}/task.md", why))
    return account


def _message(engine: Engine, ws: Workspace, path: PurePosixPath, account: ImportResult) -> None:
    shown, _ = stored_name(str(path))
    if engine.store.messages.is_filed(shown):
        account.known += 1
        return
    with directory(ws.mailbox, *path.parent.parts) as fd:
        raw = read_file(fd, path.name, _MAX_BYTES + 1)
    if raw is None:
        account.problems.append((f"mailbox/{shown}", "it is not a regular file"))
        return
    try:
        parsed = parse_message(raw, shown)
    except MessageError as error:
        account.problems.append((f"mailbox/{shown}", error.problem))
        return
    message, (name, stamp) = parsed.message, stored_name(path.name)
    recorded = record_message(engine, InboxFile(name, raw, parsed.sha256, len(raw), stamp), "imported", message)
    engine.record(Event(Kind.MESSAGE_FILED, None, {"at": engine.now, "id": recorded, "path": shown}))
    account.messages += 1
