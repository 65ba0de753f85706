"""What a harness says while it works: its words, what it touches, what it is at. Pure.

The answer of a turn is what it says after its last tool call: what comes before is said to nobody but itself.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.agents.acp.permissions import needed, paths
from mailboxd.agents.json_output import at, brief, count_at, text_at
from mailboxd.core.sanitize import first_line

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


# ---------------------------------------------------------------------------------------------------------------------
# How a turn ended, in the words of `openclaw agent --json`: `agents.outcome` judges it like every other. Pure.

_DONE = {"end_turn": "stop", "max_tokens": "length"}
_WHY = {
    "max_turn_requests": "the harness has used up the requests that it may make in a turn",
    "refusal": "the harness refuses to go on",
    "cancelled": "the harness ended the turn as cancelled, and nobody had cancelled it",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ends: the exit status, what goes to stdout, and what to stderr."""

    status: int
    value: Mapping[str, Any] | None = None
    said: str = ""


def result(stop: object, heard: Hearing, run_id: str, usage: object) -> Ended:
    """The harness has ended the turn, with the stop reason `stop`, which may be one that we have never heard of."""
    reason = stop if isinstance(stop, str) else json.dumps(stop)
    if reason in _DONE:
        return _ended(0, "ok", heard, run_id, usage, {"stopReason": "length" if heard.cut else _DONE[reason]})
    why = _WHY.get(reason, f"the harness ended the turn for a reason that is not known here: {brief(reason)[:100]}")
    said = f"; it said: {heard.text[-1000:]}" if heard.text else ""
    return _ended(1, "error", heard, run_id, usage, {"error": {"kind": reason[:100], "message": why + said}})


def failed(code: int, message: str, heard: Hearing, run_id: str) -> Ended:
    """The harness has answered the prompt with an error: the turn is over."""
    error = {"kind": f"harness error {code}", "message": message}
    return _ended(1, "error", heard, run_id, None, {"error": error})


def timed_out(heard: Hearing, run_id: str) -> Ended:
    """Its time was over, and the harness has confirmed that it is cancelled."""
    return _ended(1, "timeout", heard, run_id, None, {})


def not_begun(why: str) -> Ended:
    """No prompt was sent: nothing has been done."""
    return Ended(1, {"ok": False, "error": {"message": f"The harness cannot start: {why}"}})


def refused(why: str) -> Ended:
    """No prompt was sent, and no repetition will change that."""
    return Ended(1, {"ok": False, "error": {"message": f"The harness refused the turn: {why}"}})


def lost(why: str, run_id: str) -> Ended:
    """The prompt was sent, and nobody can say what became of it."""
    return Ended(1, {"ok": False, "runId": run_id, "error": {"message": f"{why}; its outcome is unknown"}})


def stopped(number: signal.Signals, run_id: str, *, confirmed: bool) -> Ended:
    """A signal ended it; `confirmed`: the harness had not begun, or has said that it is cancelled."""
    said = "" if confirmed else f"Interrupted by {number.name}; turn of the harness {run_id} was not confirmed aborted."
    return Ended(128 + number, said=said)


def _ended(status: int, word: str, heard: Hearing, run_id: str, usage: object, meta: dict[str, Any]) -> Ended:
    agent = {"sessionId": heard.session, "usage": _usage(usage), "costUsd": heard.cost_usd}
    payloads = [{"text": heard.text}] if heard.text else []
    return Ended(
        status,
        {"runId": run_id, "status": word, "result": {"payloads": payloads, "meta": {**meta, "agentMeta": agent}}},
    )


def _usage(said: object) -> dict[str, int]:
    """The tokens of the turn, where the harness reports them."""
    names = {
        "input": "inputTokens",
        "output": "outputTokens",
        "cacheRead": "cachedReadTokens",
        "cacheWrite": "cachedWriteTokens",
    }
    found = {name: count_at(said, key) for name, key in names.items()}
    return {name: count for name, count in found.items() if count is not None}
