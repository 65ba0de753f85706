"""Notices as rows of a session's transcript, which the gateway plugin writes: seen by person and model, without a turn.

The row has a key that OpenClaw keeps with it, so a note may be requested again, after whatever crash. A session that
belongs to a messenger's chat has its row for the model; the person there is sent the same words as a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.perform.agents.json_output import at, parse_text, text_at
from mailboxd.perform.gateway_calls import is_unknown_method

NOTE = "mailboxd.note"
"""The plugin's method."""


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
        is_unknown = is_unknown_method(text_at(said, "error", "message"))
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
