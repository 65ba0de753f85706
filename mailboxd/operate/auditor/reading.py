"""Opens what was handed in, read-only: finds the archive in it, lists its files, and reads its journal line by line."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mailboxd.errors import UnavailableError
from mailboxd.formats.mailbox.files import digest_of, directory, lstat, open_regular, read_file
from mailboxd.formats.mailbox.layout import is_temporary
from mailboxd.formats.mailbox.maildir import INDEX
from mailboxd.operate.auditor import exported
from mailboxd.operate.auditor.place import Place

LARGEST_LINE = 64 << 20
"""Bytes of a line; mailboxd writes none that is nearly as long."""
_LARGEST_TEXT = 8 << 20
_DEEPEST = 4
_MOST_FILES = 2_000_000
_DAY_FILE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.jsonl", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_EVENTS = "events"
_REPLACED = "events.replaced-"


@dataclass(frozen=True, slots=True)
class Source:
    """A directory that was handed in. `places` says where archive/, rejected/ and outbox/ are below `root`."""

    given: str
    root: Path
    form: str
    places: Mapping[str, tuple[str, ...]]
    export: Mapping[str, Any] | None = None
    """What the export of a task says of itself; None: it is none."""
    events: str = "events"
    """The directory of the journal, below archive/."""

    @property
    def is_replaced(self) -> bool:
        """Whether it is the journal of an earlier log; the files in archive/ are those of the later one, too."""
        return self.events != _EVENTS


def find(path: Path, given: str) -> Source:
    """What the directory is; `given` is how it was named.

    Raises UnavailableError if no archive is in it, or it cannot be read.
    """
    try:
        inside = _directories(path)
        if path.name.startswith(_REPLACED):
            return Source(given, path.parent, "the journal of a replaced log", {"archive": ()}, events=path.name)
        if "mailbox" in inside and "archive" in (inner := _directories(path, "mailbox")):
            export = exported.description(path)
            form = "a workspace" if export is None else "the export of a task"
            return Source(given, path, form, _places(inner, "mailbox"), export)
        if "archive" in inside:
            return Source(given, path, "a mailbox", _places(inside))
        if _EVENTS in inside or any(map(_DAY.fullmatch, inside)):
            return Source(given, path, "an archive folder", {"archive": ()})
    except OSError as error:
        raise UnavailableError(f"{given}: cannot be read: {error.strerror}") from error
    if path.name == _EVENTS:
        raise UnavailableError(f"{given}: this is a journal without its files: name the directory above it")
    raise UnavailableError(
        f"{given}: there is no archive in it: name the directory archive/ of a mailbox (it has events/ and a directory"
        " for each day), the mailbox, or the workspace"
    )


def _places(inside: set[str], *below: str) -> dict[str, tuple[str, ...]]:
    return {place: (*below, place) for place in ("archive", "rejected", "outbox") if place in inside}


def _directories(path: Path, *names: str) -> set[str]:
    with directory(path, *names) as fd, os.scandir(fd) as entries:
        return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}


# Files


@dataclass(slots=True)
class Listing:
    """The files of an archive by their path, as `archive/2026-11-21/one.md`, and what is neither file nor directory."""

    files: set[str] = field(default_factory=set)
    odd: dict[str, str] = field(default_factory=dict)
    """Path -> what it is: a link, a fifo, unreadable ..."""
    indexes: set[str] = field(default_factory=set)
    """The lists of a day's files for people, which are written again and again, and are not recorded."""
    left_out: int = 0
    """Hidden and temporary files, which are no messages."""


def listing(source: Source) -> Listing:
    """All files in archive/, rejected/ and outbox/, without journal and indexes. Raises nothing."""
    found = Listing()
    for place, parts in source.places.items():
        _list(source, place, parts, _DEEPEST if place == "archive" else 2, found)
    return found


def _list(source: Source, shown: str, parts: tuple[str, ...], depth: int, found: Listing) -> None:
    try:
        with directory(source.root, *parts) as fd, os.scandir(fd) as entries:
            inside = sorted((entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries)
    except OSError as error:
        found.odd[shown] = f"it cannot be read: {error.strerror}"
        return
    for name, mode in inside:
        path = f"{shown}/{name}"
        if len(found.files) >= _MOST_FILES:
            found.odd[shown] = f"it has more than {_MOST_FILES} files: the rest was not looked at"
            return
        if shown == "archive" and (name == _EVENTS or name.startswith(_REPLACED)):
            continue
        if stat.S_ISDIR(mode):
            if depth:
                _list(source, path, (*parts, name), depth - 1, found)
            else:
                found.odd[path] = "it is a directory where mailboxd makes none"
        elif name == INDEX and _DAY.fullmatch(shown.removeprefix("archive/")) and stat.S_ISREG(mode):
            found.indexes.add(path)
        elif is_temporary(name):
            found.left_out += 1
        elif stat.S_ISREG(mode):
            found.files.add(path)
        else:
            found.odd[path] = _KINDS.get(stat.S_IFMT(mode), "it is no file")


_KINDS = {
    stat.S_IFLNK: "it is a link, which was not followed",
    stat.S_IFIFO: "it is a pipe (fifo), which was not opened",
    stat.S_IFSOCK: "it is a socket, which was not opened",
    stat.S_IFCHR: "it is a device, which was not opened",
    stat.S_IFBLK: "it is a device, which was not opened",
}


def digest(source: Source, path: str) -> tuple[str, int] | None:
    """SHA-256 and size of a file by its path in the listing; None if it is not a regular file or cannot be read."""
    place, *names = path.split("/")
    with suppress(OSError), directory(source.root, *source.places[place], *names[:-1]) as fd:
        return digest_of(fd, names[-1])
    return None


def exists(source: Source, path: str) -> bool:
    place, *names = path.split("/")
    if not names or not all(names) or {"..", "."} & set(names) or place not in source.places:
        return False
    with suppress(OSError), directory(source.root, *source.places[place], *names[:-1]) as fd:
        return lstat(fd, names[-1]) is not None
    return False


def text(source: Source, path: str) -> bytes | None:
    """The bytes of a file, at most 8 MiB of them; None as in `digest`."""
    place, *names = path.split("/")
    with suppress(OSError), directory(source.root, *source.places[place], *names[:-1]) as fd:
        return read_file(fd, names[-1], _LARGEST_TEXT)
    return None


# The journal


def journals(source: Source) -> tuple[list[str], dict[str, str], list[str]]:
    """The names of the journal's files, the oldest first; what else is there; the journals of replaced logs."""
    days: list[str] = []
    odd: dict[str, str] = {}
    replaced: list[str] = []
    with suppress(OSError), directory(source.root, *source.places["archive"]) as fd, os.scandir(fd) as entries:
        others = (entry.name for entry in entries if entry.name.startswith(_REPLACED))
        replaced = [] if source.is_replaced else sorted(others)
    try:
        with directory(source.root, *source.places["archive"], source.events) as fd, os.scandir(fd) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                mode = entry.stat(follow_symlinks=False).st_mode
                if not stat.S_ISREG(mode):
                    odd[f"archive/{source.events}/{entry.name}"] = _KINDS.get(stat.S_IFMT(mode), "it is no file")
                elif _DAY_FILE.fullmatch(entry.name):
                    days.append(entry.name)
                else:
                    odd[f"archive/{source.events}/{entry.name}"] = (
                        "it is no file of a journal: those are called DATE.jsonl"
                    )
    except FileNotFoundError:
        pass
    except OSError as error:
        odd[f"archive/{source.events}"] = f"it cannot be read: {error.strerror}"
    return days, odd, replaced


def extent(source: Source) -> tuple[str, int]:
    """The last file of the journal and its size: another value means that somebody writes to it meanwhile."""
    days = journals(source)[0]
    with suppress(OSError), directory(source.root, *source.places["archive"], source.events) as fd:
        status = lstat(fd, days[-1]) if days else None
        return (days[-1], status.st_size) if status is not None else ("", 0)
    return "", 0


@dataclass(frozen=True, slots=True)
class Raw:
    """A line as it stands in a file. `whole`: it ends; `too_long`: its bytes were not kept."""

    where: Place
    line: bytes
    whole: bool = True
    too_long: bool = False


def lines(source: Source, name: str) -> Iterator[Raw]:
    """The lines of one file of the journal. Raises OSError."""
    shown = f"archive/{source.events}/{name}"
    with directory(source.root, *source.places["archive"], source.events) as folder:
        fd = open_regular(folder, name)
    if fd is None:
        raise FileNotFoundError(2, "it is gone, or no longer a file")
    number = 0
    with os.fdopen(fd, "rb") as file:
        while line := file.readline(LARGEST_LINE):
            number += 1
            where = Place(shown, number)
            if line.endswith(b"\n"):
                yield Raw(where, line)
            elif len(line) < LARGEST_LINE:
                yield Raw(where, line, whole=False)
            else:
                yield Raw(where, b"", whole=_skip_line(file), too_long=True)


def _skip_line(file: IO[bytes]) -> bool:
    while piece := file.readline(1 << 20):
        if piece.endswith(b"\n"):
            return True
    return False
