"""New instructions for turns that run: files that the gateway's plugin appends to the next result of a tool.

`.mailboxd/steering/<session>.json` is there as long as a running attempt has instructions that its agent has not read:
until the end of the turn is recorded, which may be after the turn itself. The plugin writes `<session>.given` beside
it, durably, before the model can see them. When the turn has ended, what was given counts as read; the rest goes into
another turn. The agent could forge that file, about itself only: it would be as good to ignore what it is told.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.vocabulary import same_agent
from mailboxd.engine.engine import Engine
from mailboxd.formats.mailbox.files import directory, read_file, replace
from mailboxd.formats.mailbox.layout import STATE, Workspace

_DIRECTORY = "steering"
_LARGEST = 1 << 20


@dataclass(slots=True)
class Steering:
    """The files of one workspace."""

    engine: Engine
    ws: Workspace
    _written: dict[str, str] = field(default_factory=dict)
    """The instructions that are there, by session."""
    _is_clean: bool = False
    """What an earlier daemon left there is gone."""

    def heard(self, session_key: str) -> str:
        """The instructions that were given in the turn of this session; empty if none were. Never raises."""
        if self._is_clean and session_key not in self._written:
            return ""
        with suppress(OSError, ValueError, RecursionError), directory(self.ws.root, STATE, _DIRECTORY) as fd:
            said: Any = json.loads(read_file(fd, f"{_name(session_key)}.given", _LARGEST) or b"{}")
            if isinstance(said, dict) and isinstance(said.get("text"), str):
                return str(said["text"])
        return ""

    def perform(self) -> None:
        """Write what is new, and remove what has been read. What fails goes into another turn."""
        wanted = self._wanted()
        if wanted == self._written and self._is_clean:
            return
        with suppress(OSError):
            if wanted:
                with directory(self.ws.root, STATE) as state, suppress(FileExistsError):
                    os.mkdir(_DIRECTORY, 0o700, dir_fd=state)
            with directory(self.ws.root, STATE, _DIRECTORY) as fd:
                self._remove_others(fd, wanted)
                for session, text in wanted.items():
                    if self._written.get(session) != text:
                        raw = json.dumps({"session": session, "text": text}).encode()
                        replace(fd, f"{_name(session)}.json", raw, lambda: True)
        self._written, self._is_clean = wanted, True

    def _wanted(self) -> dict[str, str]:
        agent, unread = self.engine.settings.agent, self.engine.store.tasks.unread_instructions()
        return {session: text for executor, session, text in unread if same_agent(executor, agent)}

    def _remove_others(self, fd: int, wanted: dict[str, str]) -> None:
        kept = {_name(session) for session in wanted}
        for name in os.listdir(fd):
            if name.partition(".")[0] not in kept:
                with suppress(OSError):
                    os.unlink(name, dir_fd=fd)


def _name(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()[:32]
