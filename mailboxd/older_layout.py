"""Moves the files of outbox/ and rejected/ that an earlier version wrote there into the directories of their days.

Only recorded files move, each with an event that names its new path; the log keeps the old one. A crash leaves some
for the next start. What nobody recorded stays where it is, and `mailboxd db verify` reports it as before.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath

from mailboxd.core.events import Event, Kind
from mailboxd.effects.message_builder import place_of
from mailboxd.engine.engine import Engine
from mailboxd.host.system import system
from mailboxd.mailbox.files import directory, lstat, move, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.maildir import REASON, require_day
from mailboxd.store.messages import OutsideDay

_AT_ONCE = 1_000


def sort_into_days(core: Engine, ws: Workspace) -> int:
    """Move what lies outside of a day's directory; return how many files were moved. Raises WorldError."""
    moved, after = 0, ""
    while files := core.store.messages.outside_days(after, _AT_ONCE):
        after = files[-1].path
        with core.batch():
            for file in files:
                place = _place(file)
                with world_errors(f"move mailbox/{file.path} to mailbox/{place}"):
                    if not _move(ws, PurePosixPath(file.path), place):
                        continue
                core.record(Event(Kind.MESSAGE_FILED, None, {"at": core.now, "id": file.id, "path": str(place)}))
                moved += 1
    return moved


def _place(file: OutsideDay) -> PurePosixPath:
    top, name = file.path.split("/")
    if top == "rejected":
        return PurePosixPath(top, file.at[:10], name)
    *_, subject = name.removesuffix(".md").split(".", 2)  # after message id and type
    return PurePosixPath(place_of(file.message_id, file.type, file.receiver, subject))


def _move(ws: Workspace, source: PurePosixPath, target: PurePosixPath) -> bool:
    """Move a file with its reason; return whether it is there now."""
    with require_day(ws, str(target.parent)) as day, directory(ws.mailbox, source.parent.name) as flat:
        for end in (REASON, ""):
            with suppress(FileNotFoundError, FileExistsError):
                move(flat, source.name + end, day, target.name + end)
        system.sync(day)
        system.sync(flat)
        return lstat(day, target.name) is not None and lstat(flat, source.name) is None
