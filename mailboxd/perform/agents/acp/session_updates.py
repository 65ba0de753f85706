"""The updates of a harness while it works, and the result of its turn. Pure.

The answer of a turn is the text after its last tool call.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.sanitize import first_line
from mailboxd.perform.agents.acp.permissions import needed_capability, paths
from mailboxd.perform.agents.call_dir import TurnResult
from mailboxd.perform.agents.json_output import at, brief, count, text_at

_MOST_TEXT = 2 * 1024 * 1024
_MOST_FILES = 1_000
_MOST_CALLS = 10_000


@dataclass(slots=True)
class SessionUpdates:
    """Collects the updates of `session`; a replay of earlier turns (not `listening`) is ignored."""

    session: str = ""
    listening: bool = False
    note: str = ""
    """Its current activity, one line."""
    touched: list[str] = field(default_factory=list)
    """Paths it reports as changed, unresolved."""
    diffs: list[tuple[str, str, str]] = field(default_factory=list)
    """Reported edits: path, old text, new text; a whole file or a part of it."""
    cost_usd: float | None = None
    model: str = ""
    """The model of the session, if it reports one."""
    cut: bool = False
    """Its text exceeded the limit."""
    _parts: list[str] = field(default_factory=list)
    _since: int = 0
    _size: int = 0
    _diff_size: int = 0
    _calls: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Its answer: the text since its last tool call, or all text if there is none since."""
        return "".join(self._parts[self._since :]).strip() or "".join(self._parts).strip()

    def update(self, params: object) -> None:
        """Process a `session/update`; unknown kinds are ignored."""
        update = at(params, "update")
        if not self.listening or not isinstance(update, dict) or text_at(params, "sessionId") != self.session:
            return
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._add_text(text_at(update, "content", "text"))
            case "tool_call":
                self._since = len(self._parts)
                self.tool(update)
            case "tool_call_update":
                self.tool(update)
            case "plan":
                self._plan(update.get("entries"))
            case "config_option_update":
                self.configured(update)
            case "usage_update":
                amount = at(update, "cost", "amount")
                if at(update, "cost", "currency") == "USD" and isinstance(amount, int | float):
                    self.cost_usd = float(amount)

    def configured(self, said: object) -> None:
        """Take the model that a session, or a change of its options, says it has; older harnesses have `models`."""
        options = at(said, "configOptions")
        named = (
            [text_at(one, "currentValue") for one in options if at(one, "category") == "model"]
            if isinstance(options, list)
            else []
        )
        self.model = next(iter(named), "") or text_at(said, "models", "currentModelId") or self.model

    def tool(self, update: Mapping[str, Any]) -> dict[str, Any]:
        """Merge an update of a tool call into what is known of it, and return that."""
        name = text_at(update, "toolCallId")
        known = self._calls.get(name, {}) | {key: value for key, value in update.items() if value is not None}
        if len(self._calls) < _MOST_CALLS:
            self._calls[name] = known
        if title := first_line(text_at(known, "title")):
            self.note = f"{text_at(known, 'kind')[:20] or 'tool'}: {title}"
        if text_at(known, "status") == "completed" and needed_capability(known) == "edit":
            self._touch(known)
        return known

    def _add_text(self, words: str) -> None:
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
            diff = (text_at(item, "path"), text_at(item, "oldText"), text_at(item, "newText"))
            self._diff_size += len(diff[1]) + len(diff[2])
            if at(item, "type") == "diff" and diff not in self.diffs and self._diff_size <= _MOST_TEXT:
                self.diffs.append(diff)

    def _plan(self, entries: object) -> None:
        steps = entries if isinstance(entries, list) else []
        done = sum(text_at(step, "status") == "completed" for step in steps)
        current = next((step for step in steps if text_at(step, "status") == "in_progress"), None)
        at_work = f"; {first_line(text_at(current, 'content'), 160)}" if current else ""
        self.note = f"{done} of {len(steps)} steps done{at_work}"


# The result of a turn, in the format of `openclaw agent --json`, which `agents.outcome` reads

_DONE = {"end_turn": "stop", "max_tokens": "length"}
_WHY = {
    "max_turn_requests": "the harness reached its limit of model requests for a turn",
    "refusal": "the harness refuses to continue",
    "cancelled": "the harness reported the turn as cancelled, though it was not",
}


def completed(stop: object, updates: SessionUpdates, run_id: str, usage: object) -> TurnResult:
    """The harness ended the turn with the stop reason `stop`, which may be unknown."""
    reason = stop if isinstance(stop, str) else json.dumps(stop)
    if reason in _DONE:
        return _ended(0, "ok", updates, run_id, usage, {"stopReason": "length" if updates.cut else _DONE[reason]})
    why = _WHY.get(reason, f"the harness ended the turn for an unknown reason: {brief(reason)[:100]}")
    text = f"; it said: {updates.text[-1000:]}" if updates.text else ""
    return _ended(1, "error", updates, run_id, usage, {"error": {"kind": reason[:100], "message": why + text}})


def failed(code: int, message: str, updates: SessionUpdates, run_id: str) -> TurnResult:
    """The harness answered the prompt with an error."""
    error = {"kind": f"harness error {code}", "message": message}
    return _ended(1, "error", updates, run_id, None, {"error": error})


def timed_out(updates: SessionUpdates, run_id: str) -> TurnResult:
    """The turn timed out, and the harness confirmed that it is cancelled."""
    return _ended(1, "timeout", updates, run_id, None, {})


def not_started(why: str) -> TurnResult:
    """No prompt was sent; the turn may be retried."""
    return TurnResult.failure(f"The harness cannot start: {why}")


def refused(why: str) -> TurnResult:
    """No prompt was sent, and a retry would not help."""
    return TurnResult.failure(f"The harness refused the turn: {why}")


def lost(why: str, run_id: str) -> TurnResult:
    """The prompt was sent, and the outcome is unknown."""
    return TurnResult.failure(f"{why}; its outcome is unknown", runId=run_id)


def stopped(number: signal.Signals, run_id: str, *, confirmed: bool) -> TurnResult:
    """A signal stopped the turn; `confirmed`: the harness had not started it, or confirmed the cancellation."""
    said = "" if confirmed else f"Interrupted by {number.name}; turn of the harness {run_id} was not confirmed aborted."
    return TurnResult(128 + number, said=said)


def _ended(
    status: int, word: str, updates: SessionUpdates, run_id: str, usage: object, meta: dict[str, Any]
) -> TurnResult:
    agent = {
        "sessionId": updates.session,
        "model": updates.model,
        "usage": _usage(usage),
        "costUsd": updates.cost_usd,
    }
    payloads = [{"text": updates.text}] if updates.text else []
    return TurnResult(
        status,
        {"runId": run_id, "status": word, "result": {"payloads": payloads, "meta": {**meta, "agentMeta": agent}}},
    )


def _usage(reported: object) -> dict[str, int]:
    """The turn's tokens, if reported."""
    names = {
        "input": "inputTokens",
        "output": "outputTokens",
        "cacheRead": "cachedReadTokens",
        "cacheWrite": "cachedWriteTokens",
    }
    found = {name: count(at(reported, key)) for name, key in names.items()}
    return {name: count for name, count in found.items() if count is not None}
