"""Paths of a workspace (protocol section 1), and file names."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.core.sanitize import for_file_name
from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.formats.mailbox.files import directory, world_errors
from mailboxd.formats.protocol.left_aside import left_aside
from mailboxd.host.system import system

STATE = ".mailboxd"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
ATTACHMENTS = "attachments"
"""Below mailbox/: files that came with messages, by their SHA-256."""

_DIRECTORIES = (
    "mailbox/inbox",
    "mailbox/outbox",
    "mailbox/archive",
    "mailbox/rejected",
    "tasks",
    f"{STATE}/turns",
    f"{STATE}/templates",
)


class _Below:
    """A path below the root of a workspace."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, ws: Workspace, _: type[Workspace]) -> Path:
        return ws.root / self._path


@dataclass(frozen=True, slots=True)
class Workspace:
    """One agent's directory. Only paths: they need not exist."""

    root: Path

    @property
    def key(self) -> str:
        """Its name in the addresses of the page, which depends only on its directory."""
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]
        return f"{_UNSAFE.sub('-', self.root.name)[:40].strip('-') or 'workspace'}-{digest}"

    mailbox = _Below("mailbox")
    inbox = _Below("mailbox/inbox")
    outbox = _Below("mailbox/outbox")
    archive = _Below("mailbox/archive")
    rejected = _Below("mailbox/rejected")
    tasks = _Below("tasks")
    state = _Below(STATE)
    """mailboxd's own directory."""
    database = _Below(f"{STATE}/mailboxd.db")
    config = _Below(f"{STATE}/config.yaml")
    turns = _Below(f"{STATE}/turns")
    """One directory for each call of an agent."""
    gates = _Below(f"{STATE}/gates")
    """One directory for each side effect that waits for approval or is under way."""
    templates = _Below(f"{STATE}/templates")
    """The operator's templates, which take precedence over those of mailboxd."""
    delegation = _Below(f"{STATE}/delegation.json")
    """What the gateway's plugin may offer the agent in its chats."""
    daemon_file = _Below(f"{STATE}/daemon.json")
    """The holder of the lock, for messages only: the lock itself is on `root`."""

    def mail(self) -> dict[str, float]:
        """The names of the files in the inbox as the database has them, with their times of modification.

        Without temporary ones, and those that are left aside. Raises WorldError.
        """
        found = {}
        with world_errors(f"read the inbox {self.inbox}"), directory(self.root, "mailbox", "inbox") as fd:
            for entry in os.scandir(fd):
                if not is_temporary(entry.name) and not left_aside(entry.name):
                    with suppress(FileNotFoundError):
                        found[storable_name(entry.name)] = entry.stat(follow_symlinks=False).st_mtime
        return found

    def make_missing(self) -> list[str]:
        """Create the directories that a daemon needs and that are missing, as after a restore; returns their paths.

        What is in the place of one, or cannot be made, is left to the checks of whoever uses it.
        """
        made = []
        for path in _DIRECTORIES:
            with suppress(ConfigError, OSError):
                made += _make(self.root, path)
        return made

    @classmethod
    def find(cls, start: Path, explicit: Path | None = None) -> Workspace:
        """Return the workspace at `explicit`, or the nearest one at or above `start` that has `.mailboxd/`.

        Raises UnavailableError, which says how to create one.
        """
        if explicit is not None:
            root = _real(explicit)
            if not _is_workspace(root):
                raise UnavailableError(f"{explicit} is not a workspace of mailboxd; run `mailboxd init {explicit}`")
            return cls(root)
        below = _real(start)
        for root in (below, *below.parents):
            if _is_workspace(root):
                return cls(root)
        raise UnavailableError(
            f"there is no workspace of mailboxd at {start} or above it; "
            "run `mailboxd init` in the agent's workspace, or name it with `--workspace`"
        )

    @classmethod
    def create(cls, root: Path) -> list[str]:
        """Create the missing directories of a workspace, readable by their owner only.

        Return the relative paths of those created, `.` for the root. Raises ConfigError if one of them is a link or a
        file, WorldError if the operating system refuses.
        """
        made = []
        with world_errors(f"create a workspace at {root}"):
            if not root.is_dir():
                root.mkdir(mode=0o700, parents=True)
                made.append(".")
            for path in _DIRECTORIES:
                made += _make(root, path)
        return made


def _make(root: Path, path: str) -> list[str]:
    """Create `path` one name at a time, so that no link in it is followed."""
    made = []
    names = path.split("/")
    for depth, name in enumerate(names):
        here = "/".join(names[: depth + 1])
        with directory(root, *names[:depth]) as fd:
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
                system.sync(fd)
                made.append(here)
            except FileExistsError:
                _require_directory(root / here)
    return made


def _require_directory(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        kind = "a symbolic link" if path.is_symlink() else "not a directory"
        raise ConfigError(f"{path} is {kind}; mailboxd follows no links inside a workspace: move it away and run again")


def _real(path: Path) -> Path:
    """Resolve links, so that locks and messages of one workspace agree on its name."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise UnavailableError(f"{path} leads nowhere: {error}") from error


def _is_workspace(root: Path) -> bool:
    state = root / STATE
    try:
        return state.is_dir() and not state.is_symlink()
    except OSError:
        return False


# File names: which are temporary, how a name that is taken is changed

LONGEST = 255
"""Bytes of a file name, on every file system that matters."""

NUMBERED = 9
"""So many names are tried one by one, then by doubling, so that the 10,000th clash is not slow."""

_BEGINNINGS = (".", "~$")  # hidden (vim, emacs, rsync, Syncthing, GNOME ...), office lock files
_ENDINGS = ("~", ".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download", ".swp", ".swx")
_VIM_PROBE = "4913"
_OF_SYSTEMS = frozenset({"desktop.ini", "thumbs.db", "ehthumbs.db", "icon\r"})
"""Files that file managers leave in any directory."""

_LONGEST_EXTENSION = 20


def storable_name(name: str) -> str:
    """A name as text that SQLite can store: bytes that are not UTF-8 become escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_temporary(name: str) -> bool:
    """Whether writers, editors and file managers use such a name for what is no message (protocol section 1)."""
    return (
        name.startswith(_BEGINNINGS)
        or name.lower().endswith(_ENDINGS)
        or (name.startswith("#") and name.endswith("#"))
        or name == _VIM_PROBE
        or name.lower() in _OF_SYSTEMS
    )


def is_file_name(name: str) -> bool:
    """Whether `name` is one component of a path: no slash, no NUL, not `.` or `..`, 1 to 255 bytes."""
    return name not in {"", ".", ".."} and not {"/", "\0"} & set(name) and len(os.fsencode(name)) <= LONGEST


def clash_name(name: str, digest: str, number: int, room: int = 0) -> str:
    """The name to try for `name`, `number` from 0: itself, `x~2.md` to `x~9.md`, then `x~<digest>-10.md` and so on.

    It is printable and leaves `room` of the 255 bytes: the stem is shortened, an extension of up to 20 bytes stays.
    `digest` is hexadecimal. The same arguments give the same name, so a repetition finds what a crash left.
    """
    shown = for_file_name(name)
    stem, dot, last = shown.rpartition(".")
    extension = dot + last if stem and len(last.encode()) <= _LONGEST_EXTENSION else ""
    stem = shown.removesuffix(extension)
    suffix = f"~{number + 1}" if number else ""
    if number >= NUMBERED:
        suffix = f"~{digest[:12]}-{number + 1}"
    space = LONGEST - room - len(suffix) - len(extension.encode())
    return stem.encode()[:space].decode(errors="ignore") + suffix + extension


def first_free(is_used: Callable[[int], bool]) -> int:
    """An unused number: the first of 0 to 8, or one that follows a used one, found with O(log n) calls."""
    for number in range(NUMBERED):
        if not is_used(number):
            return number
    used, free = NUMBERED - 1, NUMBERED
    while is_used(free):
        used, free = free, free * 2
    while free - used > 1:
        middle = (used + free) // 2
        used, free = (middle, free) if is_used(middle) else (used, middle)
    return free


def numbers_in_use(free: int) -> list[int]:
    """The numbers under which a repetition searches for its own work, given the result of `first_free`."""
    return [*range(NUMBERED), *([free - 1] if free > NUMBERED else [])]
