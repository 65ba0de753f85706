"""The export of a task: a folder whose description signs the digests of all its files (docs/audit.md)."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from mailboxd.errors import UnavailableError
from mailboxd.formats.keys import parse_signature
from mailboxd.formats.mailbox.files import digest_of, directory, read_file
from mailboxd.ledger.signed_heads import Keys
from mailboxd.operate.auditor.chain import parsed
from mailboxd.operate.auditor.model import Check, Finding
from mailboxd.operate.auditor.place import Place

DESCRIPTION, _SUMS = "export.json", "SHA256SUMS"
_CONTEXT = b"mailboxd-export-1\n"
_LARGEST = 64 << 20
_MOST = 1 << 31
"""Bytes of a packed export that are unpacked."""
_MOST_FILES = 200_000
_MOST_DESCRIBED = 64 << 20
"""Bytes that describe the members of a packed export: names, sizes, times."""
_SUM = re.compile(rb"([0-9a-f]{64})  ([^\n\r\0]{1,4096})")


def description(root: Path) -> Mapping[str, Any] | None:
    """What the description of an export says; None if this is no export."""
    raw = None
    with suppress(OSError), directory(root) as fd:
        raw = read_file(fd, DESCRIPTION, _LARGEST)
    said = None if raw is None else parsed(raw)
    return said if isinstance(said, dict) and str(said.get("format", "")).startswith("mailboxd-export-") else None


class _TooLargeError(Exception):
    """More is described than an export describes."""


@dataclass(slots=True)
class _Bounded:
    """A packed file of which only so many bytes are read as descriptions of members, which are kept in memory."""

    file: IO[bytes]
    left: int = _MOST_DESCRIBED

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise _TooLargeError
        self.left -= size
        return self.file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            yield file
            return
        file.seek(0)
        with gzip.open(file) as plain:
            yield plain  # type: ignore[misc]


def _tar(file: _Bounded) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast(IO[bytes], file), mode="r:")


@contextmanager
def unpacked(path: Path, found: list[Finding]) -> Iterator[Path]:
    """The folder of an export that may be packed (.tar.gz or .tar): it is unpacked for as long as it is looked at.

    What is not unpacked, and what is there twice, is added to `found`. Raises UnavailableError.
    """
    try:
        is_packed = path.is_file()
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be read: {error.strerror}") from error
    if not is_packed:
        yield path
        return
    too_large = UnavailableError(f"{path}: it is too large to be unpacked here: unpack it, and name its folder")
    with tempfile.TemporaryDirectory(prefix="mailboxd-audit-") as folder:
        try:
            with _opened(path) as plain, _tar(file := _Bounded(plain)) as tar:
                size, names = 0, set[str]()
                for number, member in enumerate(tar):
                    size += member.size
                    if member.size < 0 or size > _MOST or number > _MOST_FILES:
                        raise too_large
                    found += _member(member, names)
                    if member.isreg():
                        described, file.left = file.left, _MOST
                        tar.extract(member, folder, filter="data")
                        file.left = described
        except _TooLargeError as error:
            raise too_large from error
        except (tarfile.TarError, OSError, ValueError, EOFError, zlib.error) as error:
            raise UnavailableError(f"{path}: it is no directory, and no packed export: {error}") from error
        inside = [*Path(folder).iterdir()]
        yield inside[0] if len(inside) == 1 and inside[0].is_dir() else Path(folder)


def _member(member: tarfile.TarInfo, names: set[str]) -> Iterator[Finding]:
    """What is wrong with a member beside its bytes: neither may be in an export, and unpacking would hide both."""
    name = PurePosixPath(member.name).as_posix()
    where = Place(name.partition("/")[2] or name, 0)
    if member.isdir():
        return
    if not member.isreg():
        yield Finding(Check.FILES, "odd", where, "it is a link or no file, and was not unpacked")
    if name in names:
        yield Finding(Check.FILES, "name-twice", where, "it is in the packed export twice: one hides the other")
    names.add(name)


def judge(root: Path, said: Mapping[str, Any], keys: Keys, notes: list[str]) -> Iterator[Finding]:
    """What is wrong with the description and the files; without a finding or a note of it, the signature is valid."""
    where = Place(DESCRIPTION, 0)
    signature, fields = said.get("signature"), {name: said[name] for name in said if name != "signature"}
    if signature:
        try:
            fingerprint, signed = parse_signature(str(signature))
            signed_bytes = _CONTEXT + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
            key = keys.get(fingerprint)
            if key is None:
                notes.append(f"{DESCRIPTION}: it is signed with the key {fingerprint}, which was not given")
            elif not key.verifies(signed, signed_bytes):
                yield Finding(
                    Check.HEADS, "export-signature", where, f"its signature is not that of the key {fingerprint}"
                )
        except (ValueError, RecursionError):
            yield Finding(Check.HEADS, "export-signature", where, "its signature is none")
    yield from _files(root, said)


def signer(said: Mapping[str, Any], keys: Keys) -> str:
    """Which of the keys has signed the description, if nothing was found; empty: none of them."""
    with suppress(ValueError):
        fingerprint, _ = parse_signature(str(said.get("signature")))
        return fingerprint if fingerprint in keys else ""
    return ""


def _files(root: Path, said: Mapping[str, Any]) -> Iterator[Finding]:
    raw = None
    with suppress(OSError), directory(root) as fd:
        raw = read_file(fd, _SUMS, _LARGEST)
    if raw is None:
        yield Finding(Check.FILES, "no-sums", Place(_SUMS, 0), "the digests of the files are missing", missing=True)
        return
    if hashlib.sha256(raw).hexdigest() != said.get("sums"):
        yield Finding(Check.FILES, "other-sums", Place(_SUMS, 0), f"it is not the file that {DESCRIPTION} names")
    listed = {DESCRIPTION, _SUMS}
    for number, line in enumerate(raw.splitlines(), 1):
        where = Place(_SUMS, number)
        found = _SUM.fullmatch(line)
        name = "" if found is None else os.fsdecode(found[2])
        parts = PurePosixPath(name).parts
        if found is None or not parts or name.startswith("/") or ".." in parts:
            yield Finding(Check.FILES, "no-sum", where, "it names no digest of a file")
            continue
        listed.add("/".join(parts))
        seen = None
        with suppress(OSError), directory(root, *parts[:-1]) as fd:
            seen = digest_of(fd, parts[-1])
        if seen is None:
            yield Finding(
                Check.FILES, "file-missing", where, f"{name[:200]} is missing, or no regular file", missing=True
            )
        elif seen[0].encode() != found[1]:
            yield Finding(Check.FILES, "file-changed", where, f"{name[:200]} was changed: its SHA-256 is {seen[0]}")
    unreadable = list[OSError]()
    for folder, folders, names in os.walk(root, onerror=unreadable.append):
        for one in folders:
            if (path_ := Path(folder, one)).is_symlink():
                where = Place(path_.relative_to(root).as_posix(), 0)
                yield Finding(Check.FILES, "odd", where, "it is a link, which was not followed")
        for one in names:
            path = Path(folder, one).relative_to(root).as_posix()
            if path not in listed:
                yield Finding(Check.FILES, "unrecorded", Place(path, 0), f"{_SUMS} does not name it: it was put in")
    for error in unreadable:
        where = Place(Path(os.fsdecode(error.filename)).relative_to(root).as_posix(), 0)
        yield Finding(Check.FILES, "odd", where, f"it cannot be read: {error.strerror}")
