"""The JSON that OpenClaw 2026.9.6 prints, as far as anybody reads it."""

from __future__ import annotations

import json
import uuid
from typing import Any

from mailboxd.agents.scripted.ledger import Run
from mailboxd.agents.scripted.script import Agent
from mailboxd.core.times import to_epoch

_TIMED_OUT = (
    "Request timed out before a response was generated. Please try again, or increase `agents.defaults.timeoutSeconds` "
    "in your config."
)
_UNREACHABLE = (
    "Gateway not reachable at ws://127.0.0.1:18789 (ECONNREFUSED).\n"
    "Start it with `openclaw gateway run` or check `openclaw gateway status`."
)
_LOST = (
    "gateway closed (1006 abnormal closure (no close frame)): no close reason\n\nThe request was already sent to the "
    "gateway, so the operation may have been applied even though no response arrived; its outcome is unknown."
)
_FAILURES = {
    "not_started": f"{_UNREACHABLE}\n{{error}}",
    "locked_out": "Agent database execution admission is closed",
    "permanent": "⚠️ scripted/stand-in request failed ({error}, HTTP 400).",
    "transient": "⚠️ scripted/stand-in request failed ({error}, HTTP 503). This is usually temporary.",
    "rate_limit": "⚠️ API rate limit reached. Please try again later. ({error})",
}
_LANE = 512
"""A stand-in costs little: how many run at once is left to who calls."""
FAILURE_KINDS = tuple(_FAILURES)


def dump(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def success(
    run_id: str, key: str, prompt: str, text: str, cost: float | None = None, *, by_model: bool = True
) -> dict[str, Any]:
    """The envelope of a turn that answered `text`. Tokens are a quarter of the characters, at a made-up price.

    `cost` in dollars replaces the price. Without `by_model` a plugin of the gateway answered, and no tokens were used.
    """
    usage = {"input": len(prompt) // 4, "output": len(text) // 4, "cacheRead": 0, "cacheWrite": 0}
    cost = round((usage["input"] + 4 * usage["output"]) / 1_000_000, 6) if cost is None else cost
    meta = _meta(run_id, key) | {"finalAssistantVisibleText": text, "stopReason": "stop"}
    if by_model:
        meta["agentMeta"] |= {"usage": {**usage, "total": usage["input"] + usage["output"], "cost": {"total": cost}}}
        meta["agentMeta"] |= {"costUsd": cost, "assistantTurns": 1}
    result = {"payloads": [{"text": text, "mediaUrl": None}], "meta": meta}
    return {"runId": run_id, "status": "ok", "summary": "completed", "result": result}


def timed_out(run_id: str, key: str) -> dict[str, Any]:
    error = {"kind": "incomplete_turn", "message": _TIMED_OUT, "fallbackSafe": False}
    result = {
        "payloads": [{"text": _TIMED_OUT, "isError": True, "mediaUrl": None}],
        "meta": _meta(run_id, key) | {"error": error},
    }
    return {"runId": run_id, "status": "timeout", "summary": "aborted", "result": result}


def failure(kind: str, error: str, run_id: str) -> dict[str, Any]:
    """The error envelope of a `fail` rule; without a run id if the call was never accepted."""
    message = _FAILURES[kind].replace("{error}", error)
    return cli_error(message) if kind == "not_started" else cli_error(message, run_id)


def lost(run_id: str) -> dict[str, Any]:
    """The envelope of a call whose gateway went away before it could answer."""
    return cli_error(_LOST, run_id)


def cli_error(message: str, run_id: str | None = None) -> dict[str, Any]:
    accepted = {} if run_id is None else {"runId": run_id, "origin": "gateway"}
    return {"ok": False, **accepted, "error": {"type": "cli_error", "message": message}}


def task_row(run: Run) -> dict[str, Any]:
    """The row of `tasks show`."""
    key, begun = run.begin["session_key"], _milliseconds(run.begin["at"])
    row = {"taskId": run.id, "runtime": "cli", "sourceId": run.id, "ownerKey": key, "childSessionKey": key}
    row |= {
        "agentId": run.begin["agent"],
        "runId": run.id,
        "status": run.status,
        "createdAt": begun,
        "startedAt": begun,
    }
    if run.end is None:
        return row
    row |= {"endedAt": _milliseconds(run.end["at"]), "lastEventAt": _milliseconds(run.end["at"])}
    row |= {"toolUseCount": run.end["writes"]} if run.end.get("writes") else {}
    row |= {"error": run.end["error"]} if run.end.get("error") else {}
    return row | {"terminalSummary": run.end.get("error") or "completed"}


def waited(run: Run | None, run_id: str) -> dict[str, Any]:
    """The answer of `agent.wait`."""
    if run is None or run.reply is None:
        return {"runId": run_id, "status": "timeout"}
    reply = {"disposition": "visible", "text": run.reply[:4096]}
    return {"runId": run_id, "status": "ok", "stopReason": "stop", "terminalReply": reply}


def history(key: str, of_session: list[Run]) -> dict[str, Any]:
    """The answer of `chat.history`."""
    messages: list[dict[str, Any]] = []
    for run in of_session:
        messages.append({"role": "user", "content": f"sha256:{run.begin['message_sha256']}"})
        if run.reply is not None:
            content = [{"type": "text", "text": run.reply}]
            messages.append(
                {"role": "assistant", "content": content, "stopReason": "stop", "__openclaw": {"runId": run.id}}
            )
    return {"sessionKey": key, "messages": messages, "hasMore": False, "totalMessages": len(messages)}


def agents_list(agents: list[Agent]) -> list[dict[str, Any]]:
    return [
        {"id": agent.id, "workspace": str(agent.workspace or ""), "bindings": 0, "isDefault": agent.is_default}
        | ({"name": agent.name} if agent.name else {})
        for agent in agents
    ]


def agents_config(agents: list[Agent]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for agent in agents:
        entries[agent.id] = {} if agent.workspace is None else {"workspace": str(agent.workspace)}
        entries[agent.id]["subagents"] = {"allowAgents": ["*"] if agent.allow is None else agent.allow}
    return {"ownership": "explicit", "defaults": {"maxConcurrent": _LANE}, "entries": entries}


def _meta(run_id: str, key: str) -> dict[str, Any]:
    session = str(uuid.uuid5(uuid.NAMESPACE_URL, key))
    agent: dict[str, Any] = {"sessionId": session, "sessionFile": key, "provider": "scripted", "model": "stand-in"}
    agent |= {"terminalReceipt": {"runId": run_id, "sessionId": session, "successfulToolNames": []}}
    return {"durationMs": 0, "aborted": False, "agentMeta": agent}


def _milliseconds(at: str) -> int:
    return round(to_epoch(at) * 1000)
