"""Delivering, archiving and rejecting: every file ends in exactly one place, with the bytes that were judged.

DIAGNOSTICS. WorldError: a directory is missing, is a link, is full or forbidden; stop the intake, nothing is lost,
repeat when it is mended. ObstructedError: this one file does not let itself be moved; report it, carry on. ValueError:
a name or a day that is none; our bug.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath

from mailboxd.workspace import syncing
from mailboxd.workspace.files import (
    ObstructedError,
    Stamp,
    directory,
    open_regular,
    publish,
    read_up_to,
    refusal,
    world_errors,
)
from mailboxd.workspace.filing import REASON, Filing, Judged, Move, Taken, publish_once
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_file_name

_PLACES = ("inbox", "archive", "rejected", "outbox")
_LARGEST = 8 << 20
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

Answers = list[str | ObstructedError]
"""For each file its path relative to mailbox/, or why it could not be moved."""


def deliver(target: Path, name: str, raw: bytes, *, below: Path | None = None, renamed: bool = False) -> str:
    """Writes a message into a directory so that it appears there complete and durable, or not at all; its final name.

    A name that is used gets a suffix, unless the file there has the same bytes: then it is this message, delivered
    before a crash. No link is followed below the directory `below`, which is the parent of `target` unless it is said.
    `renamed`: for an inbox, where only a rename proves that a file is complete; a crash may leave a hidden file then.
    Raises WorldError; ValueError if `name` is hidden or no file name.
    """
    return deliver_many(target, [(name, raw)], below=below, renamed=renamed)[0]


def deliver_many(
    target: Path, messages: Iterable[tuple[str, bytes]], *, below: Path | None = None, renamed: bool = False
) -> list[str]:
    """`deliver` for many, with one fsync of the directory."""
    root = below or target.parent
    with world_errors(f"write to {target}"), directory(root, *target.relative_to(root).parts) as fd:
        names = [_deliver(fd, name, raw, renamed) for name, raw in messages]
        os.fsync(fd)
    return names


def _deliver(fd: int, name: str, raw: bytes, renamed: bool) -> str:
    if not is_file_name(name) or name.startswith("."):
        raise ValueError(f"{name!r} is no name for a message")
    return publish_once(fd, name, raw, renamed=renamed)


def archive(ws: Workspace, name: str, stamp: Stamp | None, raw: bytes, day: str, taken: Taken) -> str:
    """Moves inbox/<name> to archive/<day>/, and returns its path there relative to mailbox/.

    If the file is gone or is no longer the one that was judged, the judged bytes are written to the archive, and what
    now lies in the inbox stays there as a new arrival. `day` is `YYYY-MM-DD` and must be the same in a repetition.
    Raises WorldError, ObstructedError, ValueError.
    """
    return _only(archive_many(ws, [(Judged(name, stamp, raw), day)], taken))


def archive_many(ws: Workspace, items: Sequence[tuple[Judged, str]], taken: Taken) -> Answers:
    """`archive` for many, one answer for each in order, with one fsync of each directory.

    Record the answers before the next call, or `taken` does not know them. A WorldError may come half-way: then
    repeat all of them.
    """
    for _, day in items:
        if _DAY.fullmatch(day) is None:
            raise ValueError(f"{day!r} is not a day like 2026-11-21")
    return _file_all(ws, [Filing(item, f"archive/{day}") for item, day in items], taken)


def reject(
    ws: Workspace, name: str, stamp: Stamp | None, raw: bytes | None, reason: Mapping[str, object], taken: Taken
) -> str:
    """Moves inbox/<name> to rejected/ as `archive` does, and writes `<its name there>.reason.json` beside it.

    The name is shortened to leave room for that, and made printable. What is not a regular file is moved as it is, a
    link itself and not its target. `reason` is what JSON can say, and must be the same in a repetition. Raises as
    `archive` does; ObstructedError also if the file was never read and is gone.
    """
    return _only(reject_many(ws, [(Judged(name, stamp, raw), reason)], taken))


def reject_many(ws: Workspace, items: Sequence[tuple[Judged, Mapping[str, object]]], taken: Taken) -> Answers:
    """`reject` for many, as `archive_many` is for `archive`."""
    filings = [Filing(item, "rejected", _text_of(reason)) for item, reason in items]
    return _file_all(ws, filings, taken)


def _text_of(reason: Mapping[str, object]) -> bytes:
    return json.dumps(reason, indent=2, sort_keys=True).encode() + b"\n"


def put_back(ws: Workspace, path: str, raw: bytes, reason: Mapping[str, object] | None) -> None:
    """Writes a filed message again to the path below mailbox/ where it lay, and the reason beside it; durable.

    Nothing is replaced. Raises WorldError.
    """
    place, name = path.rsplit("/", 1)
    with world_errors(f"put back mailbox/{path}"), _target(ws, place) as fd:
        if reason is not None:
            with suppress(FileExistsError):
                publish(fd, name + REASON, _text_of(reason))
        publish(fd, name, raw)
        os.fsync(fd)


def require_places(ws: Workspace) -> None:
    """Raises WorldError unless mail can be taken out of the inbox and put where it belongs: ask before judging any.

    So a message is not accepted, and the work that it asks for not begun, while its file has nowhere to go.
    """
    name = "mailbox"
    try:
        with directory(ws.root, name) as mailbox:
            for place in _PLACES:
                name = f"mailbox/{place}"
                _require_place(mailbox, place)
    except OSError as error:
        raise refusal(f"take mail, because of {ws.root / name}", error) from error


def _require_place(mailbox: int, name: str) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=mailbox)
    try:
        # also no on a read-only mount, and for root in a directory that was made immutable
        if not os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
            code = errno.EROFS if os.fstatvfs(fd).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)


def _only(answers: Answers) -> str:
    answer = answers[0]
    if isinstance(answer, ObstructedError):
        raise answer
    return answer


def _file_all(ws: Workspace, filings: Sequence[Filing], taken: Taken) -> Answers:
    for filing in filings:
        if not is_file_name(filing.item.name):
            raise ValueError(f"{filing.item.name!r} is no file name")
    answers: Answers = []
    given: set[str] = set()
    with ExitStack() as opened, world_errors(f"move mail out of {ws.inbox}"):
        inbox = opened.enter_context(directory(ws.root, "mailbox", "inbox"))
        targets = {place: opened.enter_context(_target(ws, place)) for place in dict.fromkeys(f.place for f in filings)}
        for wave in _waves(filings):
            moves = [Move(inbox, targets[filing.place], filing) for filing in wave]
            # each step for all before the next: so the disk works for all of them at once
            for move in moves:
                move.claim(lambda path: path in given or taken(path))
            _check(moves)
            answers += [_finish(move) for move in moves]
            given.update(answer for answer in answers[-len(wave) :] if isinstance(answer, str))
        for fd in (*targets.values(), inbox):
            os.fsync(fd)
    return answers


def _check(moves: Sequence[Move]) -> None:
    """Sorts out what is not what was judged, and makes the others durable: one by one, or many in one go."""
    together = len(moves) > syncing.MANY and syncing.sync_reports_errors()
    if not together:
        for move in moves:
            move.begin_writing()
    for move in moves:
        move.check(durable=not together)
    if together:
        for place in {os.fstat(move.place).st_dev: move.place for move in moves if move.place is not None}.values():
            syncing.sync_file_system(place)


def _finish(move: Move) -> str | ObstructedError:
    try:
        return move.finish()
    except ObstructedError as stuck:
        return stuck


def _waves(filings: Iterable[Filing]) -> Iterator[list[Filing]]:
    """Cuts the group where a name comes again: that is about a later file, which the earlier one must not take."""
    wave: dict[str, Filing] = {}
    for filing in filings:
        if filing.item.name in wave:
            yield list(wave.values())
            wave = {}
        wave[filing.item.name] = filing
    yield list(wave.values())


@contextmanager
def _target(ws: Workspace, place: str) -> Iterator[int]:
    """The directory below mailbox/; that of a day is made, archive/ and rejected/ must be there."""
    top, *day = place.split("/")
    with directory(ws.root, "mailbox", top) as fd:
        for name in day:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
                os.fsync(fd)
    with directory(ws.root, "mailbox", *place.split("/")) as fd:
        yield fd


def read_message(ws: Workspace, path: str, most: int = _LARGEST) -> bytes | None:
    """A message by its path below mailbox/, at most `most` bytes of it; None when it is not there. Raises nothing."""
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts:
        return None
    try:
        with directory(ws.mailbox, *place.parent.parts) as fd:
            file = open_regular(fd, place.name)
            if file is None:
                return None
            try:
                return read_up_to(file, most)
            finally:
                os.close(file)
    except OSError:
        return None
