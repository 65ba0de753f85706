"""What happened, written out: events as lines of JSON, or a task tree with all that belongs to it in one file.

An archive is the same bytes for the same records: names in order, no time, no owner, one mode.
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
from mailboxd.progress import Progress, silent, stepwise
from mailboxd.store import evidence, log
from mailboxd.store.details import details
from mailboxd.store.report import Report
from mailboxd.workspace.files import directory, open_regular, read_up_to, world_errors
from mailboxd.workspace.layout import Workspace

MANIFEST = "manifest.json"
FORMAT = "mailboxd-audit-1"
_LARGEST_FILE = 64 << 20
_TASK_FILE = "task.md"


def lines(report: Report, task_id: str | None) -> Iterator[str]:
    """Events as lines of JSON, all or those of a task tree (docs/audit.md)."""
    with report.snapshot():
        yield from evidence.lines(report.db, task_id)


def lines_to(report: Report, task_id: str | None, output: Path, progress: Progress = silent) -> int:
    """Write the lines to a new file; how many. Raises UnavailableError when there is such a file, WorldError."""
    count = 0
    total = report.last_event() if task_id is None else 0
    with _new_file(output) as file:
        for line in stepwise(lines(report, task_id), "events", total, progress):
            file.write(line.encode() + b"\n")
            count += 1
    return count


def archive(ws: Workspace, report: Report, task_id: str, output: Path, progress: Progress = silent) -> int:
    """Write a task tree to a new .tar.gz; how many files are in it. Raises UnavailableError, WorldError.

    A message that is not what was recorded is not exported: WorldError says which.
    """
    with report.snapshot():
        contents = dict(sorted(stepwise(_contents(ws, report, task_id), "read", 0, progress)))
        manifest = _manifest(report, task_id, contents)
    with (
        _new_file(output) as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, raw in stepwise([(MANIFEST, manifest), *contents.items()], "write", len(contents) + 1, progress):
            tar.addfile(_member(name, len(raw)), io.BytesIO(raw))
    return len(contents)


def _contents(ws: Workspace, report: Report, task_id: str) -> Iterator[tuple[str, bytes]]:
    db = report.db
    tree = evidence.below(db, task_id)
    yield "events.jsonl", "".join(f"{line}\n" for line in evidence.lines(db, task_id)).encode()
    yield "tasks.json", _json([details(report, found) for found, _ in tree])
    for artifact_id, sha256, body in evidence.artifacts_of(db, task_id):
        raw = body.encode()
        if hashlib.sha256(raw).hexdigest() != sha256:
            raise WorldError(f"artifact {artifact_id} is not what was recorded; see `mailboxd audit verify`")
        yield f"artifacts/{artifact_id}.md", raw
    for file in evidence.files_of(db, task_id):
        place = PurePosixPath(file.path or "")
        with world_errors(f"read mailbox/{place}"):
            found = _read(ws, ("mailbox", *place.parent.parts), place.name)
        if found is None or (file.sha256 is not None and hashlib.sha256(found).hexdigest() != file.sha256):
            raise WorldError(f"mailbox/{place} is not what was recorded; see `mailboxd audit verify`")
        yield f"mailbox/{place}", found
    for _, local_id in tree:
        for parts in (("tasks", local_id), ("tasks", ".archive", local_id)):
            found = _read(ws, parts, _TASK_FILE)
            if found is not None:
                yield f"tasks/{local_id}/{_TASK_FILE}", found
                break


def _read(ws: Workspace, parts: tuple[str, ...], name: str) -> bytes | None:
    try:
        with directory(ws.root, *parts) as fd:
            file = open_regular(fd, name)
            if file is None:
                return None
            try:
                return read_up_to(file, _LARGEST_FILE)
            finally:
                os.close(file)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _manifest(report: Report, task_id: str, contents: dict[str, bytes]) -> bytes:
    tip = log.tip(report.db)
    files = [
        {"path": name, "size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()} for name, raw in contents.items()
    ]
    local_id = evidence.below(report.db, task_id)[0][1]
    return _json({"format": FORMAT, "task": local_id, "head": {"seq": tip.seq, "hash": tip.hash}, "files": files})


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True).encode() + b"\n"


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, 0
    return member


@contextmanager
def _new_file(output: Path) -> Iterator[IO[bytes]]:
    """A file that only its owner reads, which must not exist; half a file is removed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        fd = os.open(output, flags, 0o600)
    except FileExistsError:
        raise UnavailableError(f"{output}: there is such a file already; it is left as it is") from None
    except OSError as error:
        raise WorldError(f"{output}: cannot be written: {error.strerror}") from error
    try:
        with world_errors(f"write {output}"), os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        output.unlink(missing_ok=True)
        raise
