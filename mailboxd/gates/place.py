"""The directory of one gate, `.mailboxd/gates/<approval>/` (0700), and the lock that says whether somebody acts.

lock                    flock'd by the runner for as long as it lives
payload                 the bytes that a file will have, as they were when a person was asked
effect/                 the program that is run, see `agents.process`
workflow.lobster.yaml, preview.txt, state/, token.json      Lobster's, where it is the gate
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents import process
from mailboxd.agents.process import Child, State
from mailboxd.errors import NOT_NOW, Refused, require_seen
from mailboxd.workspace.files import directory, open_regular, publish, read_up_to, world_errors
from mailboxd.workspace.layout import STATE as OURS
from mailboxd.workspace.layout import Workspace

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
LARGEST = 16 << 20
"""Bytes that a file may have which is written, or replaced, or shown."""


def standing_gates(root: Path) -> list[str]:
    """The approvals that have a gate, in the order they were asked for. Raises WorldError."""
    with world_errors("look at the gates"):
        if not os.path.lexists(f"{root}/{OURS}/gates"):  # asked after every event, and most workspaces have none
            return []
        try:
            with directory(root, OURS, "gates") as gates:
                names = os.listdir(gates)  # noqa: PTH208 - of a descriptor, which no link can stand for
                return sorted(name for name in names if name.startswith("apr_"))
        except FileNotFoundError:
            return []


@dataclass(frozen=True, slots=True)
class Place:
    """The gate of one approval. That it exists is `make`'s work and nobody's promise."""

    root: Path
    approval: str

    @property
    def path(self) -> Path:
        return Workspace(self.root).gates / self.approval

    @property
    def effect(self) -> Path:
        return self.path / "effect"

    @property
    def workflow(self) -> Path:
        return self.path / "workflow.lobster.yaml"

    @property
    def state(self) -> Path:
        """LOBSTER_STATE_DIR."""
        return self.path / "state"

    def make(self) -> None:
        """An empty one, whatever an earlier daemon has left there. Raises WorldError."""
        with world_errors(f"make the gate {self.approval}"), directory(self.root, OURS) as fd:
            with suppress(FileExistsError):
                os.mkdir("gates", 0o700, dir_fd=fd)
            with directory(self.root, OURS, "gates") as gates:
                self.remove()
                os.mkdir(self.approval, 0o700, dir_fd=gates)
                os.fsync(gates)

    def remove(self) -> None:
        """As far as it lets itself be removed: a program may have put directories in each other without end."""
        with suppress(OSError, RecursionError), directory(self.root, OURS, "gates") as gates:
            shutil.rmtree(self.approval, ignore_errors=True, dir_fd=gates)

    def keep(self, name: str, raw: bytes, mode: int = 0o600) -> Path:
        """Write a file of the gate that was not there. Raises WorldError."""
        with world_errors(f"write {name} of the gate {self.approval}"), self._opened() as fd:
            publish(fd, name, raw)
            os.chmod(name, mode, dir_fd=fd)
            os.fsync(fd)
        return self.path / name

    def kept(self, name: str) -> bytes | None:
        """What lies there; None unless it is a regular file. Raises WorldError."""
        with world_errors(f"read {name} of the gate {self.approval}"):
            try:
                with self._opened() as fd:
                    return read_regular(fd, name, LARGEST)
            except OSError as error:
                if error.errno in _NOT_THERE:
                    return None
                raise

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the one who acts. Raises Refused when somebody else is, or when there is no such gate."""
        try:
            with self._opened() as fd:
                lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
        except OSError as error:
            require_seen(f"the gate {self.approval}", error)
            problem = f"the gate {self.approval} cannot be entered: {error.strerror}"
            raise Refused("no-such-approval", problem, "Ask again for the action.") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused("begun-already", f"somebody is performing {self.approval} at this moment") from None
            yield
        finally:
            os.close(lock)

    def is_held(self) -> bool:
        """Whether a runner of it is alive, or that cannot be asked now: who is taken for dead is never heard again."""
        try:
            with self._opened() as fd:
                lock = os.open("lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError as error:
            return error.errno in NOT_NOW
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def orphan(self) -> Child | None:
        """The program that was run, still alive though its runner may not be. Raises WorldError."""
        return process.adopt(self.effect) if self.effect.is_dir() else None

    def was_run(self) -> bool:
        """Whether a program was started here, as far as is known. Raises WorldError."""
        return self.effect.is_dir() and process.state(self.effect) is not State.NEVER_STARTED

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with directory(self.root, OURS, "gates", self.approval) as fd:
            yield fd


def read_regular(dir_fd: int, name: str, most: int) -> bytes | None:
    """A regular file, whole; None if it is none or longer than `most` bytes. Raises OSError."""
    fd = open_regular(dir_fd, name)
    if fd is None:
        return None
    try:
        raw = read_up_to(fd, most + 1)
    finally:
        os.close(fd)
    return None if len(raw) > most else raw
