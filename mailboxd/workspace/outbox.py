"""Files in outbox/ whose bytes the database has too: written at once, synced later, written again after a power cut."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from mailboxd.workspace import syncing
from mailboxd.workspace.files import directory, holds, open_regular, publish, refusal, replace, world_errors
from mailboxd.workspace.layout import Workspace

_MANY = 8
"""Files from which on the file system is synced as a whole, which also waits for what others have written to it."""


def put(ws: Workspace, files: Iterable[tuple[str, bytes]]) -> None:
    """Make files of these names and bytes appear whole, not yet durable; nothing to do for one that is there.

    Raises WorldError. A file of that name with other bytes is not ours: it is left as it is.
    """
    with world_errors("enter mailbox/outbox"), directory(ws.root, "mailbox", "outbox") as fd:
        for name, raw in files:
            try:
                _put(fd, name, raw)
            except OSError as error:
                raise refusal(f"write mailbox/outbox/{name}", error) from error


def _put(dir_fd: int, name: str, raw: bytes) -> None:
    try:
        publish(dir_fd, name, raw, durable=False)
    except FileExistsError:
        if not holds(dir_fd, name, raw):
            raise OSError(errno.EEXIST, "another file of that name lies there; move it away") from None


def sync(ws: Workspace, names: Iterable[str]) -> None:
    """Make files durable that `put` wrote. Raises WorldError: then nothing is known of any of them."""
    names = list(names)
    if not names:
        return
    with world_errors("sync mailbox/outbox"), directory(ws.root, "mailbox", "outbox") as fd:
        if len(names) >= _MANY and syncing.sync_reports_errors():
            syncing.sync_file_system(fd)
            return
        for name in names:
            if (file := open_regular(fd, name)) is not None:
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        os.fsync(fd)


def restore(ws: Workspace, name: str, raw: bytes) -> None:
    """Make a file durable as it was put, whatever became of it. Raises WorldError."""
    with world_errors(f"restore mailbox/outbox/{name}"), directory(ws.root, "mailbox", "outbox") as fd:
        replace(fd, name, raw, lambda: True)
