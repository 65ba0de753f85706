"""What mailboxd keeps for a user and not for a workspace: small files in `$XDG_STATE_HOME/mailboxd/`, 0700 and 0600.

By default that is `~/.local/state/mailboxd/`. So two users of one machine have nothing in common, and nothing of it
lies where an agent that OpenClaw confines to its workspace could write.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mailboxd.errors import ConfigError, MailboxdError
from mailboxd.mailbox.files import directory, lstat, open_regular, read_up_to, replace, world_errors
from mailboxd.mailbox.layout import Workspace

_FOLDER = "mailboxd"
_LARGEST = 1 << 20
_NOWHERE = Path("/dev/null")
"""Below it not even root can make a directory."""


@dataclass(frozen=True, slots=True)
class UserState:
    """`parent` is the user's state directory."""

    parent: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """The one of whoever runs this; an account without a home has one that cannot be made."""
        named = environ.get("XDG_STATE_HOME", "")
        if named.startswith("/"):
            return cls(Path(named))
        try:
            home = Path(environ.get("HOME") or Path.home())
        except RuntimeError:
            home = _NOWHERE
        return cls((home if home.is_dir() else _NOWHERE) / ".local" / "state")

    @property
    def folder(self) -> Path:
        return self.parent / _FOLDER

    def read(self, name: str) -> bytes | None:
        """The file, at most 1 MiB of it; None without one.

        Raises ConfigError if others could have written it, WorldError if it cannot be read.
        """
        path = self.folder / name
        with world_errors(f"read {path}"):
            try:
                with directory(self.parent, _FOLDER) as folder:
                    if lstat(folder, name) is None:
                        return None
                    return _read_own(folder, path)
            except (FileNotFoundError, NotADirectoryError):
                if self.folder.is_symlink():
                    raise
                return None

    @contextmanager
    def writing(self) -> Iterator[int]:
        """A descriptor of the directory, made if it is not there, and for nobody else to write in at the same time.

        Raises WorldError.
        """
        with world_errors(f"write to {self.folder}"):
            self.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with directory(self.parent) as above, suppress(FileExistsError):
                os.mkdir(_FOLDER, 0o700, dir_fd=above)
            with directory(self.parent, _FOLDER) as folder:
                fcntl.flock(folder, fcntl.LOCK_EX)
                yield folder

    @staticmethod
    def write(folder: int, name: str, raw: bytes) -> None:
        """Put a file (0600) there, atomically and durably; `folder` is what `writing` gave. Raises OSError."""
        replace(folder, name, raw, lambda: True)


def _read_own(folder: int, path: Path) -> bytes:
    fd = open_regular(folder, path.name)
    if fd is None:
        raise ConfigError(f"{path} is not a regular file; remove it")
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise ConfigError(f"{path} is not yours alone; remove it, or run `chmod 600 {path}` as its owner")
        return read_up_to(fd, _LARGEST)
    finally:
        os.close(fd)


# ---------------------------------------------------------------------------------------------------------------------
# Which workspaces the user who runs this has: `workspaces` in the user's state directory, a JSON array of real paths.
#
# `mailboxd init` and `mailboxd run` put a workspace there. It is a convenience and no authority: a workspace that is
# not
# there works all the same (name it), one that has vanished is passed over, and dropped when the next one comes.

FILE = "workspaces"
MOST = 1_000
"""Workspaces that are kept: of more the oldest are dropped."""
_log = logging.getLogger("mailboxd")


def workspaces(environ: Mapping[str, str]) -> list[Workspace]:
    """Those that are still there and are this user's own, in the order they came.

    Raises ConfigError if others could have written the file or it is damaged, WorldError if it cannot be read.
    """
    return [Workspace(path) for path in _listed(UserState.of(environ)) if _is_own(path)]


def noted(environ: Mapping[str, str]) -> list[Path]:
    """All that were noted, also those that have vanished since. Raises as `workspaces`."""
    return _listed(UserState.of(environ))


def register(root: Path, environ: Mapping[str, str]) -> bool:
    """Note the workspace at `root`, a real path; False if it could not be noted, which stops nobody. Raises nothing.

    Costs the reading of one small file if it is there already.
    """
    state = UserState.of(environ)
    try:
        if root in _listed_or_nothing(state):
            return True
        if not _is_own(root) or not _may_keep(state):
            return False
        with state.writing() as folder:
            kept = [path for path in _listed_or_nothing(state) if path != root and _is_own(path)]
            state.write(folder, FILE, _text([*kept, root][-MOST:]))
    except (MailboxdError, OSError) as problem:
        _log.debug("%s is not noted among the workspaces: %s", root, problem)
        return False
    return True


def _listed(state: UserState) -> list[Path]:
    raw = state.read(FILE)
    if raw is None:
        return []
    try:
        found = json.loads(raw)
        paths = [Path(name) for name in found if isinstance(name, str) and name.startswith("/") and "\0" not in name]
    except (ValueError, TypeError):
        _log.warning("%s is damaged and counts as empty; the next `mailboxd run` writes it anew", state.folder / FILE)
        return []
    return paths[-MOST:]


def _listed_or_nothing(state: UserState) -> list[Path]:
    """For writing: a list that others could have written is replaced."""
    try:
        return _listed(state)
    except MailboxdError:
        return []


def _text(paths: list[Path]) -> bytes:
    # a name that is no text is kept as its surrogates, which ASCII JSON can say
    return json.dumps([str(path) for path in paths], indent=1, ensure_ascii=True).encode() + b"\n"


def _is_own(root: Path) -> bool:
    """Whether there is a workspace, of this user: what a stranger put in its place is not served."""
    state = Workspace(root).state
    try:
        return state.is_dir() and not state.is_symlink() and state.stat().st_uid == os.geteuid()
    except (OSError, ValueError):
        return False


def _may_keep(state: UserState) -> bool:
    """Not as root in somebody else's home, as under `sudo`: what root writes there its owner could not change."""
    for folder in (state.folder, state.parent, *state.parent.parents):
        with suppress(OSError):
            return folder.stat().st_uid == os.geteuid() or os.geteuid() != 0
    return False
