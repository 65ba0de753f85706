"""What comes too late: it is recorded, and changes nothing (design notes, "attempt is a fence")."""

from __future__ import annotations

from mailboxd.core.draft import Draft
from mailboxd.core.events import Kind
from mailboxd.core.outcomes import Aborted, Failed, Failure, Results, Succeeded, Unknown
from mailboxd.core.text import first_line

REST_SECONDS = 300.0
"""For so long after a message was taken, a text without front matter under its name is the rest of it."""
REST_SHOWN_SECONDS = 86_400.0
"""How long health speaks of the rest of a message that came late."""


def is_rest(*, plain: bool, in_place: bool, seconds: float) -> bool:
    """Whether a file is the late rest of the message that was taken under the same name so many seconds before.

    A shell's `>>` makes the name again once its file was taken. What has front matter, or was renamed in, is whole.
    """
    return plain and in_place and seconds < REST_SECONDS


def late(draft: Draft, agent: str, attempt_id: str | None, said: str) -> None:
    draft.record(Kind.REPLY_LATE, agent=agent, attempt=attempt_id, said=said)


def say(heard: object) -> str:
    """A line for the log on what was heard too late."""
    match heard:
        case Succeeded(text) | Results(text):
            return f"results: {first_line(text)}"
        case Failed(error) | Aborted(error) | Failure(error):
            return f"failed: {first_line(error)}"
        case Unknown(error):
            return f"unknown: {first_line(error)}"
        case _:
            return type(heard).__name__.lower()
