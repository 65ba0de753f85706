"""Questions that wait for a person: the harness waits, its turn's clock stands, the daemon asks.

Each is a note in the call's directory, and so is its answer: a daemon that is restarted meanwhile finds both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailboxd.agents.acp import notes
from mailboxd.agents.acp.permissions import CANCELLED, beyond, response
from mailboxd.agents.jsonout import brief, text_at
from mailboxd.core.text import first_line
from mailboxd.host import wake

_LOOK = 0.2
"""Seconds between two looks for an answer."""
_PREVIEW = 16_384
APPROVED = "approved"


@dataclass(slots=True)
class Parking:
    """The permissions of one turn. `asks`: nobody is asked, everything is refused."""

    folder: Path
    state: Path
    capabilities: tuple[str, ...]
    directory: str
    asks: bool = False
    refused: list[str] = field(default_factory=list)
    """What it was not given, for the record."""
    waiting: int = 0
    """Questions that are open: while there are some, the turn's clock stands."""
    _asked: int = 0
    _closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def decide(self, tool: Mapping[str, Any], options: object) -> dict[str, Any]:
        """The answer to a request, at once or when a person has decided."""
        if self._closed.is_set():
            return CANCELLED
        why = "it is only asked a question" if self.asks else beyond(tool, self.capabilities, self.directory)
        allowed, verdict = not why, ""
        if why and not self.asks and self._asked < notes.MOST_QUESTIONS:
            verdict = await self._ask(tool, why)
            if verdict == "":
                return CANCELLED
            allowed = verdict == APPROVED
        if not allowed:
            self.refused.append(f"{wish(tool)} ({verdict or why})")
        return response(options, allowed)

    def close(self) -> None:
        """The turn is cancelled: what waits is answered so, and what comes too."""
        self._closed.set()

    async def _ask(self, tool: Mapping[str, Any], why: str) -> str:
        """What was decided; empty if the turn was cancelled first."""
        self._asked += 1
        number = self._asked
        question = {"wish": wish(tool), "why": why, "preview": preview(tool)}
        notes.write(self.folder, notes.question(number), question)
        wake.poke(self.state)
        self.waiting += 1
        try:
            while not self._closed.is_set():
                if (answer := notes.read(self.folder, notes.answer(number))) is not None:
                    return text_at(answer, "decision") or "rejected"
                try:
                    await asyncio.wait_for(self._closed.wait(), _LOOK)
                except TimeoutError:
                    continue
            return ""
        finally:
            self.waiting -= 1


def wish(tool: Mapping[str, Any]) -> str:
    """What it wants to do, in a line; its own words, so untrusted."""
    kind = text_at(tool, "kind")[:20] or "a tool"
    command = tool["rawInput"].get("command") if isinstance(tool.get("rawInput"), dict) else None
    words = " ".join(map(str, command)) if isinstance(command, list) else command
    title = text_at(tool, "title") or (words if isinstance(words, str) else "")
    return first_line(f"{kind}: {title or text_at(tool, 'toolCallId') or 'does not say what'}", 300)


def preview(tool: Mapping[str, Any]) -> str:
    """All that it says of it, for a person to read before deciding."""
    lines = [
        f"{key}: {_shown(tool[key])}" for key in ("kind", "title", "rawInput", "locations", "content") if tool.get(key)
    ]
    text = "\n".join(lines)
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}… ({len(text)} characters in all)"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return brief(value)
    if isinstance(value, dict):
        return "".join(f"\n  {brief(str(key))}: {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "".join(f"\n  - {_shown(item)}" for item in value)
    return str(value)
