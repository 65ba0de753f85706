"""Packs a task tree with its files as evidence.

Archives are reproducible: the same records give the same bytes (sorted names, no timestamps, no owner, one mode).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from mailboxd.errors import UnavailableError, WorldError
from mailboxd.host.system import system
from mailboxd.mailbox.files import directory, read_file, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.progress import Progress, silent, stepwise
from mailboxd.store import audit_queries
from mailboxd.store.reports import Report
from mailboxd.store.task_queries import details

_SUMS = "SHA256SUMS"
_LARGEST_FILE = 64 << 20
_TASK_FILE = "task.md"


def export_task(ws: Workspace, report: Report, task_id: str, output: Path, progress: Progress = silent) -> int:
    """Write a task tree to a new .tar.gz and return the number of files in it. Raises UnavailableError, WorldError.

    A message that differs from its record is not exported; the WorldError names it.
    """
    with report.snapshot():
        contents = dict(sorted(stepwise(_contents(ws, report, task_id), "read", 0, progress)))
    sums = "".join(f"{hashlib.sha256(raw).hexdigest()}  {name}\n" for name, raw in contents.items()).encode()
    with (
        _new_file(output) as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, raw in stepwise([(_SUMS, sums), *contents.items()], "write", len(contents) + 1, progress):
            tar.addfile(_member(name, len(raw)), io.BytesIO(raw))
    return len(contents)


def _contents(ws: Workspace, report: Report, task_id: str) -> Iterator[tuple[str, bytes]]:
    db = report.db
    tree = audit_queries.below(db, task_id)
    yield "events.jsonl", "".join(f"{line}\n" for line in audit_queries.lines(db, task_id)).encode()
    yield "tasks.json", _json([details(report, found) for found, _ in tree])
    for artifact_id, sha256, body in audit_queries.artifacts_of(db, task_id):
        raw = body.encode()
        if hashlib.sha256(raw).hexdigest() != sha256:
            raise WorldError(f"artifact {artifact_id} differs from its record; run `mailboxd db verify`")
        yield f"artifacts/{artifact_id}.md", raw
    for file in audit_queries.files_of(db, task_id):
        path = PurePosixPath(file.path or "")
        with world_errors(f"read mailbox/{path}"):
            found = _read(ws, ("mailbox", *path.parent.parts), path.name)
        if found is None or (file.sha256 is not None and hashlib.sha256(found).hexdigest() != file.sha256):
            raise WorldError(f"mailbox/{path} differs from its record; run `mailboxd db verify`")
        yield f"mailbox/{path}", found
    for _, local_id in tree:
        for parts in (("tasks", local_id), ("tasks", ".archive", local_id)):
            found = _read(ws, parts, _TASK_FILE)
            if found is not None:
                yield f"tasks/{local_id}/{_TASK_FILE}", found
                break


def _read(ws: Workspace, parts: tuple[str, ...], name: str) -> bytes | None:
    try:
        with directory(ws.root, *parts) as fd:
            return read_file(fd, name, _LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True).encode() + b"\n"


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, 0
    return member


@contextmanager
def _new_file(output: Path) -> Iterator[IO[bytes]]:
    """Create a file that only its owner can read. It must not exist yet; it is removed if writing fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        fd = os.open(output, flags, 0o600)
    except FileExistsError:
        raise UnavailableError(f"{output}: this file already exists and was not changed") from None
    except OSError as error:
        raise WorldError(f"{output}: cannot be written: {error.strerror}") from error
    try:
        with world_errors(f"write {output}"), os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            system.sync(file.fileno())
    except BaseException:
        output.unlink(missing_ok=True)
        raise
