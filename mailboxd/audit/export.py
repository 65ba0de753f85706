"""Exports events as JSON lines, or a task tree with its files as one archive, and verifies such exports.

Archives are reproducible: the same records give the same bytes (sorted names, no timestamps, no owner, one mode).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mailboxd.audit.verify import Finding, Verification
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.mailbox.files import directory, open_regular, read_up_to, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.progress import Progress, silent, stepwise
from mailboxd.store import audit_queries, event_log
from mailboxd.store.event_log import GENESIS, chain
from mailboxd.store.reports import Report
from mailboxd.store.task_report import details

MANIFEST = "manifest.json"
FORMAT = "mailboxd-audit-1"
_LARGEST_FILE = 64 << 20
_TASK_FILE = "task.md"


def lines(report: Report, task_id: str | None) -> Iterator[str]:
    """Events as JSON lines: all of them, or those of one task tree (docs/audit.md)."""
    with report.snapshot():
        yield from audit_queries.lines(report.db, task_id)


def lines_to(report: Report, task_id: str | None, output: Path, progress: Progress = silent) -> int:
    """Write the lines to a new file and return their number. Raises UnavailableError if it exists, WorldError."""
    count = 0
    total = report.last_event() if task_id is None else 0
    with _new_file(output) as file:
        for line in stepwise(lines(report, task_id), "events", total, progress):
            file.write(line.encode() + b"\n")
            count += 1
    return count


def archive(ws: Workspace, report: Report, task_id: str, output: Path, progress: Progress = silent) -> int:
    """Write a task tree to a new .tar.gz and return the number of files in it. Raises UnavailableError, WorldError.

    A message that differs from its record is not exported; the WorldError names it.
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
    tree = audit_queries.below(db, task_id)
    yield "events.jsonl", "".join(f"{line}\n" for line in audit_queries.lines(db, task_id)).encode()
    yield "tasks.json", _json([details(report, found) for found, _ in tree])
    for artifact_id, sha256, body in audit_queries.artifacts_of(db, task_id):
        raw = body.encode()
        if hashlib.sha256(raw).hexdigest() != sha256:
            raise WorldError(f"artifact {artifact_id} differs from its record; run `mailboxd audit verify`")
        yield f"artifacts/{artifact_id}.md", raw
    for file in audit_queries.files_of(db, task_id):
        path = PurePosixPath(file.path or "")
        with world_errors(f"read mailbox/{path}"):
            found = _read(ws, ("mailbox", *path.parent.parts), path.name)
        if found is None or (file.sha256 is not None and hashlib.sha256(found).hexdigest() != file.sha256):
            raise WorldError(f"mailbox/{path} differs from its record; run `mailboxd audit verify`")
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
    tip = event_log.tip(report.db)
    files = [
        {"path": name, "size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()} for name, raw in contents.items()
    ]
    local_id = audit_queries.below(report.db, task_id)[0][1]
    return _json({"format": FORMAT, "task": local_id, "head": {"seq": tip.seq, "hash": tip.hash}, "files": files})


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
            os.fsync(file.fileno())
    except BaseException:
        output.unlink(missing_ok=True)
        raise


# Verifying an export needs no workspace: an archive is checked against its manifest, a list of events against its chain

_CHUNK = 1 << 20
_LARGEST_MANIFEST = 64 << 20
_LONGEST_LINE = 64 << 20
_REMEDY = "Export it again, or ask its author for the original file."
_GZIP = b"\x1f\x8b"


def verify_export(path: Path) -> Verification:
    """Verify an exported file. Raises WorldError if it cannot be read."""
    report = Verification()
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        report.finding = _verify_archive(path, report) if packed else _verify_lines(path, report)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        report.finding = _wrong(str(path), f"it cannot be unpacked: {error}", "a .tar.gz of `audit export`")
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror or error}") from error
    return report


def _wrong(where: str, problem: str, expected: str) -> Finding:
    return Finding("export", where, problem, expected, _REMEDY)


def _verify_archive(path: Path, report: Verification) -> Finding | None:
    with tarfile.open(path, "r|gz") as tar:
        first = tar.next()
        if first is None or first.name != MANIFEST or not first.isreg() or first.size > _LARGEST_MANIFEST:
            return _wrong(str(path), "it does not start with a manifest", f"{MANIFEST} as its first file")
        listed = _listed(tar, first)
        if listed is None:
            return _wrong(MANIFEST, "it cannot be read", f"a list of files, format {FORMAT}")
        report.checked["files"] = len(listed)
        while (member := tar.next()) is not None:
            known = listed.pop(member.name, None)
            if known is None or not member.isreg():
                return _wrong(ascii(member.name), "it is not in the manifest", "only the files in the manifest, once")
            size, sha256 = known
            if member.size != size or _digest(tar.extractfile(member)) != sha256:
                return _wrong(member.name, "its bytes were changed", f"{size} bytes with sha256 {sha256}")
    if listed:
        return _wrong(min(listed), "it is missing", "every file in the manifest")
    return None


def _listed(tar: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, tuple[int, str]] | None:
    file = tar.extractfile(member)
    try:
        manifest: Any = json.loads(b"" if file is None else file.read())
        if manifest["format"] != FORMAT:
            return None
        return {str(item["path"]): (int(item["size"]), str(item["sha256"])) for item in manifest["files"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _digest(file: IO[bytes] | None) -> str:
    hashed = hashlib.sha256()
    while file is not None and (piece := file.read(_CHUNK)):
        hashed.update(piece)
    return hashed.hexdigest()


def _verify_lines(path: Path, report: Verification) -> Finding | None:
    """Check the hash of each event whose predecessor by number is the line before; others cannot be checked."""
    last_seq, last_hash, links = 0, GENESIS, 0
    with path.open("rb") as file:
        for number, raw in enumerate(_each(file), 1):
            where = f"{path} line {number}"
            try:
                event = json.loads(raw)
                data = json.dumps(event["data"], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
                row = [event[name] for name in ("seq", "at", "kind", "task", "role", "actor")]
                seq, digest = int(event["seq"]), str(event["hash"])
            except (ValueError, KeyError, TypeError, RecursionError):
                return _wrong(where, "it is not an event", "a line of `audit export --format jsonl`")
            if seq <= last_seq:
                return _wrong(where, f"event {seq} comes after event {last_seq}", "events in order, each once")
            if seq == last_seq + 1:
                links += 1
                if chain(last_hash, [*row, data]) != digest:
                    return _wrong(where, f"event {seq} was changed", "the hash that follows from the event before it")
            last_seq, last_hash = seq, digest
            report.checked["events"] = number
    if not last_seq:
        return _wrong(f"{path}", "it contains no event", "at least one line of `audit export --format jsonl`")
    report.checked["links"] = links
    if unlinked := report.checked["events"] - links:
        report.notes.append(
            f"{unlinked} of its events follow an event that was not exported, so a change of these would not show; "
            "export all events to check them"
        )
    report.notes.append(f"its last event is {last_seq}:{last_hash}; compare that with a head noted elsewhere")
    return None


def _each(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(_LONGEST_LINE):
        yield line
