"""Notices as rows of a session's transcript, which the gateway plugin writes: seen by person and model, without a turn.

The row has a key that OpenClaw keeps with it, so a note may be requested again, after whatever crash. A session that
belongs to a messenger's chat has its row for the model; the person there is sent the same words as a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.agents.call_dir import PROMPT
from mailboxd.agents.gateway.transport import GatewayTransport
from mailboxd.agents.json_output import at, parse_text, text_at

NOTE = "mailboxd.note"
"""The plugin's method."""
_UNKNOWN_METHOD = ("unknown method", "missing scope: operator.admin")
"""How the gateway refuses a method that no plugin has registered: to a device without all rights as one for those."""


class Written(StrEnum):
    """What became of a note."""

    WRITTEN = "written"
    NO_SESSION = "no-session"
    NO_PLUGIN = "no-plugin"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NoteEnd:
    """The plugin's answer."""

    state: Written
    problem: str = ""
    """Why it failed; empty otherwise."""
    chat: Mapping[str, str] | None = None
    """Where the session's person is, if that is a messenger: `channel`, `to`, and perhaps account and thread."""


@dataclass(frozen=True, slots=True)
class GatewayCalls:
    """How requests reach the gateway: over the connection of a paired workspace, else by OpenClaw's CLI."""

    openclaw: tuple[str, ...]
    transport: GatewayTransport | None = None

    def request(
        self, method: str, params: Mapping[str, object], seconds: int
    ) -> tuple[tuple[str, ...], dict[str, bytes]]:
        """What makes this request, and the files for it."""
        said = json.dumps(params, ensure_ascii=False)
        if self.transport is not None:
            raw = said.encode("utf-8", "backslashreplace")
            return self.transport.request_argv(method, seconds), {PROMPT: raw}
        return (*self.openclaw, "gateway", "call", method, f"--params={json.dumps(params)}", "--json"), {}


def note_params(key: str, session: str, agent: str, text: str) -> Mapping[str, object]:
    """The parameters of a note to a session; one without an agent is this `agent`'s."""
    return {
        "key": key,
        "sessionKey": session if session.startswith("agent:") else f"agent:{agent}:{session}",
        "text": text,
    }


def read_note(rc: int | None, stdout: bytes, problem: str) -> NoteEnd:
    """The plugin's answer in the output of a request; `problem`: the error in a line, if it failed."""
    said = parse_text(stdout.decode("utf-8", "replace"))
    if rc != 0:
        is_unknown = any(words in text_at(said, "error", "message") for words in _UNKNOWN_METHOD)
        return NoteEnd(Written.NO_PLUGIN) if is_unknown else NoteEnd(Written.FAILED, problem or "it failed")
    chat = at(said, "chat")
    match text_at(said, "status"):
        case "written" | "known":
            words = (
                {name: word for name, word in chat.items() if isinstance(word, str)} if isinstance(chat, dict) else {}
            )
            return NoteEnd(Written.WRITTEN, chat=words if {"channel", "to"} <= words.keys() else None)
        case "no-session":
            return NoteEnd(Written.NO_SESSION)
        case other:
            return NoteEnd(Written.FAILED, f"the gateway plugin answered {other or 'nothing'}")
