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
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mailboxd.audit.verify import Account, Finding
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
    """Events as lines of JSON, all or those of a task tree (docs/audit.md)."""
    with report.snapshot():
        yield from audit_queries.lines(report.db, task_id)


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
    tree = audit_queries.below(db, task_id)
    yield "events.jsonl", "".join(f"{line}\n" for line in audit_queries.lines(db, task_id)).encode()
    yield "tasks.json", _json([details(report, found) for found, _ in tree])
    for artifact_id, sha256, body in audit_queries.artifacts_of(db, task_id):
        raw = body.encode()
        if hashlib.sha256(raw).hexdigest() != sha256:
            raise WorldError(f"artifact {artifact_id} is not what was recorded; see `mailboxd audit verify`")
        yield f"artifacts/{artifact_id}.md", raw
    for file in audit_queries.files_of(db, task_id):
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


# ---------------------------------------------------------------------------------------------------------------------
# An export checked without a workspace: an archive against its manifest, a list of events against its own chain.

_CHUNK = 1 << 20
_LARGEST_MANIFEST = 64 << 20
_LONGEST_LINE = 64 << 20
_AGAIN = "Export it again, or ask whoever made it for the file as it was."
_GZIP = b"\x1f\x8b"


def verify_export(path: Path) -> Account:
    """Check an exported file. Raises WorldError when it cannot be read."""
    account = Account()
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        account.finding = _archive(path, account) if packed else _lines(path, account)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        account.finding = _wrong(str(path), f"it cannot be unpacked: {error}", "a .tar.gz of `audit export`")
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror or error}") from error
    return account


def _wrong(where: str, problem: str, expected: str) -> Finding:
    return Finding("export", where, problem, expected, _AGAIN)


# ---------------------------------------------------------------- an archive


def _archive(path: Path, account: Account) -> Finding | None:
    with tarfile.open(path, "r|gz") as tar:
        first = tar.next()
        if first is None or first.name != MANIFEST or not first.isreg() or first.size > _LARGEST_MANIFEST:
            return _wrong(str(path), "it does not begin with a manifest", f"{MANIFEST} as its first file")
        listed = _listed(tar, first)
        if listed is None:
            return _wrong(MANIFEST, "it cannot be read", f"a list of files, format {FORMAT}")
        account.checked["files"] = len(listed)
        while (member := tar.next()) is not None:
            known = listed.pop(member.name, None)
            if known is None or not member.isreg():
                return _wrong(ascii(member.name), "the manifest does not name it", "only files of the manifest, once")
            size, sha256 = known
            if member.size != size or _digest(tar.extractfile(member)) != sha256:
                return _wrong(member.name, "its bytes were changed", f"{size} bytes with sha256 {sha256}")
    if listed:
        return _wrong(min(listed), "it is missing", "every file of the manifest")
    return None


def _listed(tar: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, tuple[int, str]] | None:
    file = tar.extractfile(member)
    try:
        said: Any = json.loads(b"" if file is None else file.read())
        if said["format"] != FORMAT:
            return None
        return {str(item["path"]): (int(item["size"]), str(item["sha256"])) for item in said["files"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _digest(file: IO[bytes] | None) -> str:
    hashed = hashlib.sha256()
    while file is not None and (piece := file.read(_CHUNK)):
        hashed.update(piece)
    return hashed.hexdigest()


# ---------------------------------------------------------------- lines of events


@dataclass(slots=True)
class _Chain:
    seq: int = 0
    hash: str = GENESIS


def _lines(path: Path, account: Account) -> Finding | None:
    """Each line that follows its neighbour by number must follow it by hash; where events are left out none can."""
    last, links = _Chain(), 0
    with path.open("rb") as file:
        for number, raw in enumerate(_each(file), 1):
            where = f"{path} line {number}"
            try:
                said = json.loads(raw)
                data = json.dumps(said["data"], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
                row = [said[name] for name in ("seq", "at", "kind", "task", "role", "actor")]
                seq, digest = int(said["seq"]), str(said["hash"])
            except (ValueError, KeyError, TypeError, RecursionError):
                return _wrong(where, "it is no event", "a line of `audit export --format jsonl`")
            if seq <= last.seq:
                return _wrong(where, f"event {seq} stands after event {last.seq}", "events in their order, each once")
            if seq == last.seq + 1:
                links += 1
                if chain(last.hash, [*row, data]) != digest:
                    return _wrong(where, f"event {seq} is not what was recorded", "an event that follows from the last")
            last.seq, last.hash = seq, digest
            account.checked["events"] = number
    if not last.seq:
        return _wrong(f"{path}", "there is no event in it", "at least one line of `audit export --format jsonl`")
    account.checked["links"] = links
    if loose := account.checked["events"] - links:
        account.notes.append(
            f"{loose} of its events follow one that is not in it: whether these were changed it cannot show; an export "
            "of all events can"
        )
    account.notes.append(f"its last event is {last.seq}:{last.hash}; compare that with a head that was noted")
    return None


def _each(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(_LONGEST_LINE):
        yield line
