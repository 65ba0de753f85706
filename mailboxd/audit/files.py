"""The mailbox against what was recorded of it: every file is there, is what it was, and nobody's else is."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import PurePosixPath

from mailboxd.audit.finding import LOOK, Finding
from mailboxd.inbox.receipts import reason_beside
from mailboxd.progress import Progress
from mailboxd.store.evidence import RecordedFile
from mailboxd.workspace.files import directory, look, open_regular, read_up_to, world_errors
from mailboxd.workspace.filing import REASON
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_temporary

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
    wanted = reason_beside(file.name, file.at, file.sha256, file.id, file.reason)
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
