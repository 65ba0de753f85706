"""What else than its own words an approval is bound to: the bytes of files, as they were when a person was asked."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence

from mailboxd.actions.file import sha256
from mailboxd.actions.gate import Place
from mailboxd.core.approvals import Action, ActionKind
from mailboxd.errors import require_seen
from mailboxd.mailbox.files import read_up_to
from mailboxd.mailbox.layout import STATE

_HASHED = 4 << 20
"""Bytes of a file that are read; the daemon waits for it."""
_HASHED_IN_ALL = 64 << 20
"""Bytes of all files of one command: it may name thousands."""
_VERIFY = "verify.txt"
"""In the gate: what `verify_lines` said when a person was asked."""


def content_sha256(action: Action, place: Place) -> str:
    """sha256 of what the action would use now: what a file is written with, or the files its commands name.

    Empty when it uses nothing but its words. Raises WorldError.
    """
    own, verify = "", verify_lines(action, str(place.root))
    if action.kind is ActionKind.FILE:
        own = sha256(place.kept("payload") or b"")
    elif action.kind is ActionKind.COMMAND:
        lines = [f"{name} {found}" for name, found in named_files(action.argv, action.cwd, str(place.root))]
        own = sha256("\n".join(lines).encode()) if lines else ""
    return sha256("\n".join([own, *verify]).encode()) if verify else own


def verify_lines(action: Action, root: str) -> list[str]:
    """The files of the workspace that `verify` names, a line each. It runs without another word of a person."""
    return [f"{name} {found}" for name, found in named_files(action.verify, action.cwd, root)]


def keep_verify(action: Action, place: Place) -> None:
    """Keep what `verify` is bound to, in the new gate of the action. Raises WorldError."""
    place.keep(_VERIFY, "\n".join(verify_lines(action, str(place.root))).encode())


def is_verify_as_approved(action: Action, place: Place) -> bool:
    """Whether the files that `verify` names are still what a person was shown. Raises WorldError."""
    return place.kept(_VERIFY) == "\n".join(verify_lines(action, str(place.root))).encode()


def named_files(words: Sequence[str], cwd: str, root: str) -> Iterator[tuple[str, str]]:
    """The files of the workspace that words of a command name, each with its sha256: agents can write there.

    Links are followed, and `..` behind them: it is what the command would do. A file of more than 4 MiB is known by
    its size and time, and so is what follows on 64 MiB.
    """
    room = _HASHED_IN_ALL
    base = os.path.join(root, cwd)  # noqa: PTH118 - words of others: text, until it is opened
    seen = set()
    for word in words:
        for text in (word, word.partition("=")[2], word.partition("@")[2]):
            path = os.path.join(base, text)  # noqa: PTH118
            plain = os.path.normpath(path)
            below = plain.startswith(f"{root}/") and not plain.startswith(f"{root}/{STATE}/")
            if not text or "\0" in text or not below or path in seen:
                continue
            found, size = _found(path, min(room, _HASHED))
            if found:
                room -= size
                seen.add(path)
                yield plain[len(root) + 1 :], found


def _found(path: str, most: int) -> tuple[str, int]:
    """What a file is known by, and how many bytes were read for it. Of more than `most` bytes nothing is read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        return "", 0
    except OSError as problem:
        require_seen(path, problem)  # an approval would be bound to less than its person was shown
        return "", 0
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return "", 0
        if status.st_size > most:
            return f"{status.st_size}:{status.st_mtime_ns}", 0
        raw = read_up_to(fd, _HASHED)
        return hashlib.sha256(raw).hexdigest(), len(raw)
    except OSError as problem:
        require_seen(path, problem)
        return "", 0
    finally:
        os.close(fd)
