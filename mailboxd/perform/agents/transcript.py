"""What a run of OpenClaw has said, in the gateway's answers to `chat.history` and `agent.wait`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mailboxd.perform.agents.json_output import at, model_in, text_at

_WAIT_CAP = 4096


@dataclass(frozen=True, slots=True)
class Said:
    """What a run said. `cut`: that is not all of it."""

    text: str
    cut: bool = False
    model: str | None = None
    """The model that said it, as provider/model; None if that is not known."""


def said_by(messages: Sequence[object], run_id: str) -> Said | None:
    """The last text of a run in a transcript; None if there is none."""
    for message in reversed(messages):
        if at(message, "role") != "assistant" or at(message, "__openclaw", "runId") != run_id:
            continue
        parts = at(message, "content")
        texts = (
            [text_at(part, "text") for part in parts if at(part, "type") == "text"] if isinstance(parts, list) else []
        )
        if any(text.strip() for text in texts):
            cut = at(message, "__openclaw", "truncated") is True or at(message, "stopReason") == "length"
            return Said("\n\n".join(filter(None, texts)), cut, model_in(message))
    return None


def said_in_wait(value: object) -> Said | None:
    """The reply in an answer of `agent.wait`; None if it has none."""
    text = text_at(value, "terminalReply", "text") if at(value, "status") == "ok" else ""
    # OpenClaw truncates here silently; a reply of exactly this length counts as truncated
    return Said(text, len(text) >= _WAIT_CAP) if text else None


def calls_tool(message: object) -> bool:
    """Whether a message is a tool call or its result; an unknown one may be."""
    parts = at(message, "content")
    if at(message, "role") not in ("user", "assistant", "custom"):
        return True
    return isinstance(parts, list) and any(at(part, "type") not in ("text", "thinking") for part in parts)
