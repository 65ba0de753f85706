"""Where everything is in a workspace (protocol section 1)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.workspace.files import directory, world_errors

STATE = ".mailboxd"

_DIRECTORIES = (
    "mailbox/inbox",
    "mailbox/outbox",
    "mailbox/archive",
    "mailbox/rejected",
    "tasks",
    f"{STATE}/turns",
    f"{STATE}/templates",
)


@dataclass(frozen=True, slots=True)
class Workspace:
    """One agent's directory. Only paths; that they exist is `create`'s work and nobody's promise."""

    root: Path

    @property
    def mailbox(self) -> Path:
        return self.root / "mailbox"

    @property
    def inbox(self) -> Path:
        return self.mailbox / "inbox"

    @property
    def outbox(self) -> Path:
        return self.mailbox / "outbox"

    @property
    def archive(self) -> Path:
        return self.mailbox / "archive"

    @property
    def rejected(self) -> Path:
        return self.mailbox / "rejected"

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def state(self) -> Path:
        """mailboxd's own directory."""
        return self.root / STATE

    @property
    def database(self) -> Path:
        return self.state / "mailboxd.db"

    @property
    def config(self) -> Path:
        return self.state / "config.yaml"

    @property
    def turns(self) -> Path:
        """One directory for each call of an agent."""
        return self.state / "turns"

    @property
    def gates(self) -> Path:
        """One directory for each side effect that waits for a person, or happens (`gates.place`)."""
        return self.state / "gates"

    @property
    def templates(self) -> Path:
        """The operator's own templates; those that are missing here come with mailboxd."""
        return self.state / "templates"

    @property
    def daemon_file(self) -> Path:
        """Who holds the lock, for messages only: the lock itself is on `root`."""
        return self.state / "daemon.json"

    @classmethod
    def find(cls, start: Path, explicit: Path | None = None) -> Workspace:
        """The workspace at `explicit`, or else the nearest one at or above `start`, by its `.mailboxd/`.

        Raises UnavailableError, which says how to make one.
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
        """Makes the directories of a workspace that are missing, readable by their owner only.

        Returns the relative paths of those it made, `.` for the root; empty if all were there. Raises ConfigError if
        one of them is a link or a file, WorldError if the operating system refuses.
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
    """Makes `path` one name at a time, so that no link in it is followed."""
    made = []
    names = path.split("/")
    for depth, name in enumerate(names):
        here = "/".join(names[: depth + 1])
        with directory(root, *names[:depth]) as fd:
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
                os.fsync(fd)
                made.append(here)
            except FileExistsError:
                _require_directory(root / here)
    return made


def _require_directory(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        kind = "a symbolic link" if path.is_symlink() else "not a directory"
        raise ConfigError(f"{path} is {kind}; mailboxd follows no links inside a workspace: move it away and run again")


def _real(path: Path) -> Path:
    """The path without links; the locks and messages of one workspace must agree on its name."""
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
