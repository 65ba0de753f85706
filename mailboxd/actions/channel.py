"""A message over a channel of OpenClaw: `openclaw message send`.

OpenClaw has no way to ask later whether a message went out, tries again by itself, and may hold a failed one in a
queue. So only what it says before it turns to the channel counts as not sent.
"""

from __future__ import annotations

import json
import re

from mailboxd.actions.command import Ran
from mailboxd.actions.result import End
from mailboxd.core.approvals import Action, Performed
from mailboxd.core.sanitize import first_line

_NOTHING_SENT = re.compile(
    r"Gateway not reachable at \S+ \(ECONNREFUSED\)|Unknown channel |Unknown account |Channel is unavailable: "
    r"|send requires text |Action send requires a target"
)
"""How the words begin with which OpenClaw 2026.9.6 refuses before anything is sent."""
_ATTACHES = re.compile(r"^\W*MEDIA:", re.IGNORECASE | re.MULTILINE)
_DIRECTS = re.compile(r"\[\[\s*(?:audio_as_voice|reply_to|react)", re.IGNORECASE)


def unsayable(text: str) -> str | None:
    """Why OpenClaw would not send the text as it stands there; None = it would."""
    if not text.strip():
        return "the message has no text"
    if "\0" in text:
        return "the message has a NUL byte"
    if "\\n" in text:
        return "the message has a backslash before an n, which OpenClaw sends as a line break; write the break itself"
    if _ATTACHES.search(text):
        return "a line of the message begins with MEDIA:, which OpenClaw takes for a file to attach; word it otherwise"
    if found := _DIRECTS.search(text):
        return f"the message has {found[0]}, which OpenClaw takes for an order of its own; word it otherwise"
    return None


def words(openclaw: tuple[str, ...], action: Action) -> tuple[str, ...]:
    """The command line. Values stand behind `=`: one that begins with a dash is no option."""
    account = (f"--account={action.account}",) if action.account else ()
    to = (f"--channel={action.channel}", f"--target={action.target}", *account)
    return (*openclaw, "message", "send", *to, f"--message={action.text}", "--json")


def judged(ran: Ran) -> End:
    """What OpenClaw said of it."""
    answer = _answer(ran.stdout)
    if ran.stopped:
        return End(Performed.UNKNOWN, ran.stopped, ran.output)
    if ran.rc == 0 and answer is not None and answer.get("ok") is not False:
        message_id = answer.get("messageId")
        return End(Performed.DONE, f"sent, as message {message_id}" if message_id else "sent", ran.output)
    error = answer.get("error") if answer is not None else None
    said = str(error.get("message", "")) if isinstance(error, dict) else ""
    if answer is not None and "sentBeforeError" not in answer and _NOTHING_SENT.match(said):
        return End(Performed.FAILED, f"not sent: {first_line(said)}", ran.output)
    how = first_line(said) or f"exit status {ran.rc}, and no answer that can be read"
    return End(Performed.UNKNOWN, f"it may have been sent: {how}", ran.output)


def _answer(stdout: bytes) -> dict[str, object] | None:
    try:
        answer = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
