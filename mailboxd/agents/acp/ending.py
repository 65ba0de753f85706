"""How a turn ended, in the words of `openclaw agent --json`: `agents.outcome` judges it like every other. Pure."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mailboxd.agents.acp.hearing import Hearing
from mailboxd.agents.jsonout import brief, count_at

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
