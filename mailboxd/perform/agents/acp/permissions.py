"""Which tool calls of a harness need approval, and the requests that wait for one.

The harness itself reports what it is about to do: this is a policy for an honest harness, not a security boundary
(docs/integrations.md).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailboxd.core.sanitize import first_line
from mailboxd.host import wakeup
from mailboxd.perform.agents.acp import turn_files
from mailboxd.perform.agents.json_output import at, brief, text_at

_NEEDS = {
    "read": "read",
    "search": "read",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "execute": "execute",
    "fetch": "network",
    "think": "",
}
"""The capability that each kind of tool needs; an unlisted kind always needs approval."""
_GUARDED = (".git", ".mailboxd")
"""Files there are executed or configure mailboxd."""
_COMMANDS = ("command", "cmd", "script")
_PATHS = re.compile(r"(?:.*_)?(?:path|file|filename|dir|directory|source|destination|target|cwd)s?", re.IGNORECASE)


def needed_capability(tool: Mapping[str, Any]) -> str | None:
    """The capability that a tool call needs; empty: none, None: unknown."""
    if any(isinstance(at(tool, "rawInput", name), str | list) for name in _COMMANDS):
        return "execute"  # whatever it is called
    return _NEEDS.get(text_at(tool, "kind"))


def reason_to_ask(tool: Mapping[str, Any], capabilities: tuple[str, ...], directory: str) -> str:
    """Why this tool call needs approval; empty if the attempt's capabilities cover it.

    `directory` is the harness's working directory, a real path.
    """
    need = needed_capability(tool)
    if need is None:
        return f"a tool of the kind {text_at(tool, 'kind')[:40] or '(none said)'} always needs approval"
    if need and need not in capabilities:
        return f"it needs {need}; granted: {', '.join(capabilities) or 'nothing'}"
    if need not in ("read", "edit"):
        return ""
    named = list(paths(tool))
    if need == "edit" and not named:
        return "it does not name the file"
    for path in named:
        real = os.path.realpath(os.path.join(directory, os.path.expanduser(path)))  # noqa: PTH111, PTH118
        inside = os.path.relpath(real, directory).split("/")
        if inside[0] == "..":
            return f"{brief(path)[:200]} is outside its directory"
        if need == "edit" and any(part in _GUARDED for part in inside):
            return f"{brief(path)[:200]} must not be changed"
    return ""


def paths(tool: Mapping[str, Any]) -> Iterator[str]:
    """Every path in a tool call: its locations, its diffs, and inputs that look like paths."""
    for group, key in (("locations", "path"), ("content", "path")):
        items = tool.get(group)
        for item in items if isinstance(items, list) else ():
            if found := text_at(item, key):
                yield found
    given = tool.get("rawInput")
    for name, value in given.items() if isinstance(given, dict) else ():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text and (_PATHS.fullmatch(str(name)) or text.startswith(("/", "~/", "../"))):
                yield text.removeprefix("file://")


def option(options: object, kinds: tuple[str, ...]) -> str | None:
    """The id of the first option of these kinds, in order of preference."""
    offered = [item for item in options if isinstance(item, dict)] if isinstance(options, list) else []
    for kind in kinds:
        for item in offered:
            if item.get("kind") == kind and isinstance(item.get("optionId"), str):
                return str(item["optionId"])
    return None


ALLOW = ("allow_once",)
"""Never `allow_always`: an approval is for one call."""
REJECT = ("reject_once", "reject_always")


def response(options: object, allowed: bool) -> dict[str, Any]:
    """The answer to `session/request_permission`; cancelled if no option fits."""
    chosen = option(options, ALLOW) if allowed else None
    chosen = chosen or option(options, REJECT)
    return selected(chosen) if chosen else CANCELLED


CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}


def selected(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


# Requests that wait for an operator. The turn's clock stops while they do. Request and answer are files in the call's
# directory, so that they survive a restart of the daemon.

_POLL_SECONDS = 0.2
_PREVIEW = 16_384
APPROVED = "approved"


@dataclass(slots=True)
class PermissionQueue:
    """The permission requests of one turn. `asks`: everything is refused without asking."""

    folder: Path
    state: Path
    capabilities: tuple[str, ...]
    directory: str
    asks: bool = False
    refused: list[str] = field(default_factory=list)
    """Descriptions of what was refused."""
    waiting: int = 0
    """Open requests."""
    _asked: int = 0
    _closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def decide(self, tool: Mapping[str, Any], options: object) -> dict[str, Any]:
        """The answer to a request, immediately or after an operator's decision."""
        if self._closed.is_set():
            return CANCELLED
        why = (
            "this turn only answers a question" if self.asks else reason_to_ask(tool, self.capabilities, self.directory)
        )
        allowed, verdict = not why, ""
        if why and not self.asks and self._asked < turn_files.MOST_QUESTIONS:
            verdict = await self._ask(tool, why)
            if verdict == "":
                return CANCELLED
            allowed = verdict == APPROVED
        if not allowed:
            self.refused.append(f"{describe(tool)} ({verdict or why})")
        return response(options, allowed)

    def close(self) -> None:
        """Answer open and later requests with "cancelled"."""
        self._closed.set()

    async def _ask(self, tool: Mapping[str, Any], why: str) -> str:
        """The decision; empty if the turn was cancelled first."""
        self._asked += 1
        number = self._asked
        question = {"wish": describe(tool), "why": why, "preview": preview(tool)}
        turn_files.write(self.folder, turn_files.question(number), question)
        wakeup.poke(self.state)
        self.waiting += 1
        try:
            while not self._closed.is_set():
                if (answer := turn_files.read_note(self.folder, turn_files.answer(number))) is not None:
                    return text_at(answer, "decision") or "rejected"
                try:
                    await asyncio.wait_for(self._closed.wait(), _POLL_SECONDS)
                except TimeoutError:
                    continue
            return ""
        finally:
            self.waiting -= 1


def describe(tool: Mapping[str, Any]) -> str:
    """One line about a tool call, from the harness's own words, so untrusted."""
    kind = text_at(tool, "kind")[:20] or "a tool"
    command = tool["rawInput"].get("command") if isinstance(tool.get("rawInput"), dict) else None
    words = " ".join(map(str, command)) if isinstance(command, list) else command
    title = text_at(tool, "title") or (words if isinstance(words, str) else "")
    return first_line(f"{kind}: {title or text_at(tool, 'toolCallId') or 'no description'}", 300)


def preview(tool: Mapping[str, Any]) -> str:
    """The tool call in full, for the operator."""
    lines = [
        f"{key}: {_shown(tool[key])}" for key in ("kind", "title", "rawInput", "locations", "content") if tool.get(key)
    ]
    text = "\n".join(lines)
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}… ({len(text)} characters in all)"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return brief(value)
    if isinstance(value, dict):
        return "".join(f"\n  {brief(str(key))}: {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "".join(f"\n  - {_shown(item)}" for item in value)
    return str(value)
