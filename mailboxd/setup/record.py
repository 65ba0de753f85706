"""What `mailboxd setup` has done, so that it can be taken back: `$XDG_STATE_HOME/mailboxd/setup.json`.

It stands outside of every workspace: an agent that is confined to its own cannot make us remove something.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mailboxd.errors import ConfigError
from mailboxd.userstate import UserState

NAME = "setup.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Done:
    """One step that was done by setup, and not before it by somebody else."""

    kind: str
    agent: str
    workspace: str
    at: str
    openclaw: str
    """The configuration of the OpenClaw that it was done beside."""
    before: str = ""
    """What the undo needs to know of how it was before."""

    def is_for(self, kind: str, workspace: str) -> bool:
        return (self.kind, self.workspace) == (kind, workspace)


@dataclass(frozen=True, slots=True)
class Record:
    """The file, of the user in whose `environ` we run."""

    environ: Mapping[str, str]

    @property
    def path(self) -> Path:
        return self._state.folder / NAME

    def read(self) -> list[Done]:
        """What was done, oldest first. Raises ConfigError for a damaged file or a stranger's, WorldError."""
        raw = self._state.read(NAME)
        if raw is None:
            return []
        try:
            said = json.loads(raw)
            return [Done(**entry) for entry in said["done"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.path} cannot be read ({error}); move it away: then nothing can be taken back by itself"
            ) from error

    def write(self, done: Iterable[Done]) -> None:
        """Replace it. Raises WorldError."""
        raw = json.dumps({"version": _VERSION, "done": [asdict(one) for one in done]}, indent=2)
        with self._state.writing() as folder:
            self._state.write(folder, NAME, f"{raw}\n".encode())

    @property
    def _state(self) -> UserState:
        return UserState.of(self.environ)
