"""An export checked without a workspace: an archive against its manifest, a list of events against its own chain."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mailboxd.audit.export import FORMAT, MANIFEST
from mailboxd.audit.finding import Account, Finding
from mailboxd.errors import WorldError
from mailboxd.store.log import GENESIS, chain

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
