"""What a harness says while it works: its words, what it touches, what it is at. Pure.

The answer of a turn is what it says after its last tool call: what comes before is said to nobody but itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.agents.acp.permissions import needed, paths
from mailboxd.agents.jsonout import at, text_at
from mailboxd.core.text import first_line

_MOST_TEXT = 2 * 1024 * 1024
_MOST_FILES = 1_000
_MOST_CALLS = 10_000


@dataclass(slots=True)
class Hearing:
    """What was heard in the session `session`; a replay of an earlier turn is not listened to."""

    session: str = ""
    listening: bool = False
    note: str = ""
    """What it is at, in a line."""
    touched: list[str] = field(default_factory=list)
    """Paths that it says it has changed, as it says them."""
    diffs: list[tuple[str, str, str]] = field(default_factory=list)
    """What it says it has replaced by what: path, old, new; the whole file or a part of it."""
    cost_usd: float | None = None
    cut: bool = False
    """It has said more than is kept."""
    _parts: list[str] = field(default_factory=list)
    _since: int = 0
    _size: int = 0
    _told: int = 0
    _calls: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Its answer: what it has said since its last tool call, or, if that is nothing, all that it said."""
        return "".join(self._parts[self._since :]).strip() or "".join(self._parts).strip()

    def update(self, params: object) -> None:
        """Take a `session/update`. What is not known is passed over: the journal has it."""
        update = at(params, "update")
        if not self.listening or not isinstance(update, dict) or text_at(params, "sessionId") != self.session:
            return
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._say(text_at(update, "content", "text"))
            case "tool_call":
                self._since = len(self._parts)
                self.tool(update)
            case "tool_call_update":
                self.tool(update)
            case "plan":
                self._plan(update.get("entries"))
            case "usage_update":
                amount = at(update, "cost", "amount")
                if at(update, "cost", "currency") == "USD" and isinstance(amount, int | float):
                    self.cost_usd = float(amount)

    def tool(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a tool call, with what is said of it now: later words complete or replace earlier ones."""
        name = text_at(said, "toolCallId")
        known = self._calls.get(name, {}) | {key: value for key, value in said.items() if value is not None}
        if len(self._calls) < _MOST_CALLS:
            self._calls[name] = known
        if title := first_line(text_at(known, "title")):
            self.note = f"{text_at(known, 'kind')[:20] or 'tool'}: {title}"
        if text_at(known, "status") == "completed" and needed(known) == "edit":
            self._touch(known)
        return known

    def _say(self, words: str) -> None:
        room = _MOST_TEXT - self._size
        self.cut = self.cut or len(words) > room
        self._size += len(words)
        if room > 0 and words:
            self._parts.append(words[:room])
            self.note = first_line(words[:1000]) or self.note

    def _touch(self, call: Mapping[str, Any]) -> None:
        for path in paths(call):
            if path not in self.touched and len(self.touched) < _MOST_FILES:
                self.touched.append(path)
        content = call.get("content")
        for item in content if isinstance(content, list) else ():
            said = (text_at(item, "path"), text_at(item, "oldText"), text_at(item, "newText"))
            self._told += len(said[1]) + len(said[2])
            if at(item, "type") == "diff" and said not in self.diffs and self._told <= _MOST_TEXT:
                self.diffs.append(said)

    def _plan(self, entries: object) -> None:
        steps = entries if isinstance(entries, list) else []
        done = sum(text_at(step, "status") == "completed" for step in steps)
        current = next((step for step in steps if text_at(step, "status") == "in_progress"), None)
        at_work = f"; {first_line(text_at(current, 'content'), 160)}" if current else ""
        self.note = f"{done} of {len(steps)} steps done{at_work}"
