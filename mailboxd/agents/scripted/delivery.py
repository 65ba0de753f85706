"""Files that a scripted agent drops into mailboxes, at once or later from a process of its own."""

from __future__ import annotations

import os
import select
import uuid
from pathlib import Path
from typing import Any

from mailboxd.agents.scripted.ledger import Ledger
from mailboxd.agents.scripted.message import Message
from mailboxd.agents.scripted.script import Agent, Script, ScriptError, number
from mailboxd.clock import SystemClock

_ECHOED = ("attempt", "attempt_id", "reply_token")


def envelope(message: Message, sender: str, headers: dict[str, str], body: str) -> str:
    """A protocol message of `sender` that answers `message`, echoing what a mailboxd peer echoes."""
    lines = {"task_id": message.task_id, "subtask_id": message.subtask_id, "from": sender, **headers}
    lines |= {name: message.headers.get(name, "") for name in _ECHOED}
    lines["in_reply_to"] = message.headers.get("message_id", "")
    front = "".join(f"{name}: {_quoted(text)}\n" for name, text in lines.items() if text)
    return f"---\n{front}---\n\n{body}".rstrip("\n") + "\n"


def deliver(inbox: Path, name: str, text: str) -> None:
    """Put a file into `inbox` under `name`, whole or not at all."""
    inbox.mkdir(parents=True, exist_ok=True)
    temporary = inbox / f".{name}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(inbox / name)


def reply_later(script: Script, agent: Agent, message: Message, late: dict[str, Any]) -> None:
    """Have a process of its own drop the reply into the asker's inbox `after` seconds; returns at once.

    `reply_to` is an agent of the script or a directory; by default the message's sender. Raises ScriptError.
    """
    inbox = _inbox(script, str(late.get("reply_to") or message.headers.get("from", "")))
    after = number(late, "after", "late_reply")
    error = late.get("fail")
    text = message.fill(str(late.get("reply", "Done.") if error is None else error))
    body = f"## Results\n\n{text}\n" if error is None else f"## Error\n\n{text}\n"
    status = "done" if error is None else "failed"
    if os.fork() > 0:
        return
    # The child must hold nothing of the call: not its output, not its lock, not its process group.
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        os.closerange(3, 4096)
        select.select([], [], [], after)
        now = SystemClock().now()
        headers = {"type": "reply", "status": status, "completed_at": now, "message_id": f"msg_{uuid.uuid4().hex}"}
        name = f"{message.local_id or 'message'}-reply-{uuid.uuid4().hex[:8]}.md"
        deliver(inbox, name, envelope(message, agent.id, headers, body))
        Ledger(script.ledger).append(
            "late", agent=agent.id, local_id=message.local_id, status=status, file=str(inbox / name)
        )
    finally:
        os._exit(0)


def _inbox(script: Script, target: str) -> Path:
    agent = script.agent(target)
    if agent is not None:
        return agent.inbox
    if not target:
        raise ScriptError("late_reply: no `reply_to`, and the message names no sender")
    return script.base / target


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
