"""What is recorded of a file that arrived: its row in `messages`, and its name as the file system has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mailboxd.engine import Engine
from mailboxd.errors import MessageError, PlanError, Refused
from mailboxd.keys.trust import Proof
from mailboxd.messages.message import Message

RECOVERED = "recovered"
"""The verdict on a file that came after the copy of the database that was put back: recorded, not acted upon."""


@dataclass(frozen=True, slots=True)
class File:
    """An arrival as it lay in the inbox. `raw` is None when it was refused without being read."""

    name: str
    raw: bytes | None
    sha256: str | None
    size: int | None
    stamp: Mapping[str, Any]
    in_place: bool = False
    """It is not known to have been renamed in."""


def receipt(
    engine: Engine, file: File, verdict: str, message: Message | None, proof: Proof | None = None
) -> dict[str, Any]:
    """The row of `messages` for a file that has been judged. `proof`: what its signature shows; None = not examined."""
    return {
        "id": engine.new_id("msg"),
        "direction": "in",
        "message_id": message.message_id if message else None,
        "type": message.type if message else None,
        "sender": message.from_ if message else None,
        "receiver": engine.settings.agent,
        "task_id": message.task_id if message else None,
        "subtask_id": message.subtask_id if message else None,
        "verdict": verdict,
        "name": file.name,
        "sha256": file.sha256,
        "size": file.size,
        "stamp": dict(file.stamp),
        "verified": proof.verified if proof else None,
        "signer": proof.signer if proof else None,
    }


def reason_of(error: MessageError | PlanError | Refused) -> dict[str, Any]:
    reason: dict[str, Any] = {"rule": error.rule, "problem": error.problem[:2000], "hint": error.hint[:500]}
    if isinstance(error, MessageError):
        reason |= {"line": error.line, "field": error.field}
    return reason


def reason_beside(
    name: str, at: str, sha256: str | None, message: str, reason: Mapping[str, object] | None
) -> dict[str, object]:
    """What stands in `<name>.reason.json` beside a rejected file; the same in every repetition."""
    return {"name": name, "rejected_at": at, "sha256": sha256, "message": message, **(reason or {})}


def raw_name(name: str, stamp: Mapping[str, Any]) -> str:
    """A file's name as the file system has it: SQLite cannot hold one that is not valid text."""
    return bytes.fromhex(stamp["name"]).decode("utf-8", "surrogateescape") if "name" in stamp else name


def storable_name(name: str) -> tuple[str, dict[str, str]]:
    """The name as text that can be stored and shown, and what `raw_name` needs to undo that."""
    raw = name.encode("utf-8", "surrogateescape")
    shown = raw.decode("utf-8", "backslashreplace")
    return shown, ({} if shown == name else {"name": raw.hex()})
