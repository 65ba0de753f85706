"""What a harness may do without asking a person, by the capabilities of its attempt. Pure.

It is the harness that says what it is about to do: a policy for an honest one, and no boundary (docs/acp.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mailboxd.agents.jsonout import at, brief, text_at

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
"""The capability that each kind of tool needs; a kind that does not stand here is always a person's to allow."""
_GUARDED = (".git", ".mailboxd")
"""What is written there is run, or configures us."""
_COMMANDS = ("command", "cmd", "script")
_PATHS = re.compile(r"(?:.*_)?(?:path|file|filename|dir|directory|source|destination|target|cwd)s?", re.IGNORECASE)


def needed(tool: Mapping[str, Any]) -> str | None:
    """The capability that a tool call needs; empty: none, None: nobody can say."""
    if any(isinstance(at(tool, "rawInput", name), str | list) for name in _COMMANDS):
        return "execute"  # whatever it is called
    return _NEEDS.get(text_at(tool, "kind"))


def beyond(tool: Mapping[str, Any], capabilities: tuple[str, ...], directory: str) -> str:
    """Why a person has to be asked for this tool call; empty: the attempt was given it.

    `directory` is the one that the harness works in, without links.
    """
    need = needed(tool)
    if need is None:
        return f"a tool of the kind {text_at(tool, 'kind')[:40] or '(none said)'} is nobody's to allow but yours"
    if need and need not in capabilities:
        return f"it needs {need}, and was given {', '.join(capabilities) or 'nothing'}"
    if need not in ("read", "edit"):
        return ""
    named = list(paths(tool))
    if need == "edit" and not named:
        return "it does not say which file"
    for path in named:
        real = os.path.realpath(os.path.join(directory, os.path.expanduser(path)))  # noqa: PTH111, PTH118
        inside = os.path.relpath(real, directory).split("/")
        if inside[0] == "..":
            return f"{brief(path)[:200]} is outside of its directory"
        if need == "edit" and any(part in _GUARDED for part in inside):
            return f"{brief(path)[:200]} is not its own to change"
    return ""


def paths(tool: Mapping[str, Any]) -> Iterator[str]:
    """Every path that a tool call names: its locations, its diffs, and what of its input looks like one."""
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
    """The id of the first option that is of one of these kinds, in their order."""
    offered = [item for item in options if isinstance(item, dict)] if isinstance(options, list) else []
    for kind in kinds:
        for item in offered:
            if item.get("kind") == kind and isinstance(item.get("optionId"), str):
                return str(item["optionId"])
    return None


ALLOW = ("allow_once",)
"""Never `allow_always`: who is asked once has said yes once."""
REJECT = ("reject_once", "reject_always")


def response(options: object, allowed: bool) -> dict[str, Any]:
    """The answer to `session/request_permission`; cancelled where no option says it."""
    chosen = option(options, ALLOW) if allowed else None
    chosen = chosen or option(options, REJECT)
    return selected(chosen) if chosen else CANCELLED


CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}


def selected(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
