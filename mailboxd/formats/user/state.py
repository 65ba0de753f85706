"""Per-user state: small files in `$XDG_STATE_HOME/mailboxd/` (default `~/.local/state/mailboxd/`), 0700 and 0600.

Users of one machine share nothing, and an agent that is confined to its workspace cannot write there.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mailboxd.errors import ConfigError
from mailboxd.formats.mailbox.files import directory, lstat, open_regular, read_up_to, replace, world_errors

if TYPE_CHECKING:
    import logging

LARGEST = 1 << 20
"""Bytes of a file that is read."""
DAMAGED = (ValueError, TypeError, RecursionError)
"""What reading JSON raises that is none, not of the expected form, or nested too deeply."""
NOWHERE = Path("/dev/null")
"""Not even root can create a directory below it."""


def log() -> logging.Logger:
    """Where the files of this directory are complained about."""
    import logging  # `mailboxd status` does without

    return logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class UserState:
    """The directory `names` below the user's state directory `parent`."""

    parent: Path
    names: tuple[str, ...] = ("mailboxd",)
    folder: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.parent.joinpath(*self.names))

    @classmethod
    def of(cls, environ: Mapping[str, str], *below: str) -> Self:
        """The current user's; for an account without a home, a directory that cannot be created."""
        names = ("mailboxd", *below)
        named = environ.get("XDG_STATE_HOME", "")
        if named.startswith("/"):
            return cls(Path(named), names)
        try:
            home = Path(environ.get("HOME") or Path.home())
        except RuntimeError:
            home = NOWHERE
        return cls((home if home.is_dir() else NOWHERE) / ".local" / "state", names)

    @contextmanager
    def opened(self) -> Iterator[int | None]:
        """A descriptor of the directory; None if it is missing. Raises WorldError."""
        with world_errors(f"read {self.folder}"), ExitStack() as opened:
            try:
                folder = opened.enter_context(directory(self.parent, *self.names))
            except (FileNotFoundError, NotADirectoryError):
                if self.folder.is_symlink() or self.folder.parent.is_symlink():
                    raise
                folder = None
            yield folder

    def read(self, name: str, *, secret: bool = True, largest: int = LARGEST) -> bytes | None:
        """The file, at most `largest` bytes of it; None without one.

        Raises ConfigError if others could have written it or, if it is `secret`, read it. A file that is not secret may
        belong to root. Raises WorldError if it cannot be read.
        """
        path = self.folder / name
        with self.opened() as folder:
            if folder is None or lstat(folder, name) is None:
                return None
            fd = open_regular(folder, name)
            if fd is None:
                raise ConfigError(f"{path} is not a regular file; remove it")
            try:
                status = os.fstat(fd)
                owners = {os.geteuid()} if secret else {os.geteuid(), 0}
                if stat.S_IMODE(status.st_mode) & (0o077 if secret else 0o022) or status.st_uid not in owners:
                    access = "read or change" if secret else "change"
                    problem = f"other users own {path} or can {access} it"
                    raise ConfigError(f"{problem}; remove it, or run `chmod 600 {path}` as its owner")
                return read_up_to(fd, largest)
            finally:
                os.close(fd)

    @contextmanager
    def writing(self) -> Iterator[int]:
        """A descriptor of the directory, created if missing and locked against other writers. Raises WorldError."""
        with world_errors(f"write to {self.folder}"):
            self.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for depth, name in enumerate(self.names):
                with directory(self.parent, *self.names[:depth]) as above, suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above)
            with directory(self.parent, *self.names) as folder:
                fcntl.flock(folder, fcntl.LOCK_EX)
                yield folder

    @staticmethod
    def write(folder: int, name: str, raw: bytes) -> None:
        """Write a file (0600) atomically and durably; `folder` is from `writing`. Raises OSError."""
        replace(folder, name, raw, lambda: True)

    def may_keep(self) -> bool:
        """Not as root in another user's home (`sudo`): the owner could not change what root writes there."""
        for folder in (self.folder, self.parent, *self.parent.parents):
            with suppress(OSError):
                return folder.stat().st_uid == os.geteuid() or os.geteuid() != 0
        return False
