"""What mailboxd keeps for a user and not for a workspace: small files in `$XDG_STATE_HOME/mailboxd/`, 0700 and 0600.

By default that is `~/.local/state/mailboxd/`. So two users of one machine have nothing in common, and nothing of it
lies where an agent that OpenClaw confines to its workspace could write.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mailboxd.errors import ConfigError
from mailboxd.workspace.files import directory, look, open_regular, read_up_to, replace, world_errors

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
                    if look(folder, name) is None:
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
