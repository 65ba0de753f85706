"""The user's workspaces: `workspaces`, a JSON array of real paths, written by `mailboxd init` and `mailboxd run`.

Only a convenience: an unlisted workspace works if it is named, and one that no longer exists is skipped and later
dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mailboxd.errors import MailboxdError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user.state import DAMAGED, UserState, log
from mailboxd.host.flock import try_lock
from mailboxd.host.systemd_units import ending

FILE = "workspaces"
_SERVED = "all-served.lock"
"""Locked by the process that serves all workspaces."""
MOST = 1_000
"""Maximum number; the oldest are dropped."""


def workspaces(environ: Mapping[str, str]) -> list[Workspace]:
    """The existing workspaces owned by this user, in the order in which they were registered.

    Raises ConfigError if others could have written the file or it is damaged, WorldError if it cannot be read.
    """
    return [Workspace(path) for path in _listed(UserState.of(environ)) if _is_own(path)]


def registered(environ: Mapping[str, str]) -> list[Path]:
    """All registered paths, including those that no longer exist. Raises as `workspaces`."""
    return _listed(UserState.of(environ))


def register(root: Path, environ: Mapping[str, str]) -> bool:
    """Register the workspace at `root`, a real path; False if that failed. Raises nothing.

    Reads one small file if it is already registered.
    """
    state = UserState.of(environ)
    try:
        if root in _listed_or_nothing(state):
            return True
        if not _is_own(root) or not state.may_keep():
            return False
        with state.writing() as folder:
            kept = [path for path in _listed_or_nothing(state) if path != root and _is_own(path)]
            state.write(folder, FILE, _text([*kept, root][-MOST:]))
    except (MailboxdError, OSError) as problem:
        log().debug("%s is not noted among the workspaces: %s", root, problem)
        return False
    return True


@contextmanager
def serving_all(environ: Mapping[str, str]) -> Iterator[None]:
    """While this process serves all workspaces, `all_are_served` says so. Raises nothing."""
    lock = -1
    with suppress(MailboxdError, OSError), UserState.of(environ).writing() as folder:
        lock = os.open(_SERVED, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.write(lock, b"%d\n" % os.getpid())
    try:
        yield
    finally:
        if lock >= 0:
            os.close(lock)  # in a forked daemon, the other process goes on holding it


def all_are_served(environ: Mapping[str, str]) -> bool:
    """Whether a `mailboxd run --all` of this user runs, which serves a new workspace within some seconds."""
    return server_of_all(environ) is not None


def server_of_all(environ: Mapping[str, str]) -> int | None:
    """The process of this user's `mailboxd run --all`, 0 if it is unknown; None if none runs. Raises nothing."""
    with suppress(MailboxdError, OSError), UserState.of(environ).opened() as folder:
        if folder is not None:
            lock = os.open(_SERVED, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                said = os.pread(lock, 20, 0).strip()
                return None if try_lock(lock, fcntl.LOCK_SH) else int(said) if said.isdigit() else 0
            finally:
                os.close(lock)
    return None


@dataclass(frozen=True, slots=True)
class ServerOfAll:
    """The process `server` of `mailboxd run --all`, which starts daemons when it is told."""

    server: int
    name: ClassVar[str] = "a daemon of `mailboxd run --all`"

    def start(self, pid: int | None) -> str:
        """The command that has it start the daemon, anew if it runs as `pid` (0: unknown)."""
        return f"{ending(pid)}kill -HUP {self.server}"


def server_for(root: Path, environ: Mapping[str, str]) -> ServerOfAll | None:
    """The `mailboxd run --all` that serves this workspace, or will within some seconds. Raises nothing."""
    if (server := server_of_all(environ)) and root in _listed_or_nothing(UserState.of(environ)):
        return ServerOfAll(server)
    return None


def _listed(state: UserState) -> list[Path]:
    raw = state.read(FILE)
    if raw is None:
        return []
    try:
        found = json.loads(raw)
        paths = [Path(name) for name in found if isinstance(name, str) and name.startswith("/") and "\0" not in name]
    except DAMAGED:
        log().warning("%s is damaged and counts as empty; the next `mailboxd run` replaces it", state.folder / FILE)
        return []
    return paths[-MOST:]


def _listed_or_nothing(state: UserState) -> list[Path]:
    """A list that others could have written, and that is replaced when it is written, counts as empty."""
    try:
        return _listed(state)
    except MailboxdError:
        return []


def _text(paths: list[Path]) -> bytes:
    # undecodable names are kept as surrogates, which ASCII JSON can represent
    return json.dumps([str(path) for path in paths], indent=1, ensure_ascii=True).encode() + b"\n"


def _is_own(root: Path) -> bool:
    """Whether there is a workspace that this user owns."""
    state = Workspace(root).state
    try:
        return state.is_dir() and not state.is_symlink() and state.stat().st_uid == os.geteuid()
    except (OSError, ValueError):
        return False
