"""Which of OpenClaw's tools an agent has: profile, `alsoAllow`, `allow` and `deny`, of the agent and of all.

As OpenClaw resolves them: the agent's profile and `alsoAllow` replace the general ones, each `allow` list has to let a
tool through, and `deny` wins. What is set for single providers, senders or sandboxes is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from mailboxd.agents.jsonout import at

FILE_TOOLS = ("read", "write", "edit")
"""What an agent needs to edit its task.md."""
_WITHOUT_FILES = ("minimal", "messaging")
"""The profiles that do not include the file tools."""
_GROUPS = {"group:fs": (*FILE_TOOLS, "apply_patch")}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A list that bars file tools: why, its path in OpenClaw's configuration, and what it should be instead."""

    text: str
    path: str
    value: tuple[str, ...]


def obstacles(general: object, own: object, own_path: str) -> list[Obstacle]:
    """What keeps the agent with the `tools` entry `own` (at `own_path`) from its file tools."""
    found = []
    profile = at(own, "profile") or at(general, "profile")
    also_path = f"{own_path}.alsoAllow" if _names(own, "alsoAllow") is not None else "tools.alsoAllow"
    also = _names(own, "alsoAllow")
    also = also if also is not None else _names(general, "alsoAllow") or ()
    missing = _unmatched(also)
    if profile in _WITHOUT_FILES and missing:
        path = also_path if also else f"{own_path}.alsoAllow"
        found.append(Obstacle(f"its profile {profile} has no {_and(missing)}", path, (*also, *missing)))
    for section, path in ((general, "tools"), (own, own_path)):
        allow, deny = _names(section, "allow") or (), _names(section, "deny") or ()
        if allow and (lacking := _unmatched(allow)):
            found.append(Obstacle(f"{path}.allow lacks {_and(lacking)}", f"{path}.allow", (*allow, *lacking)))
        barring = tuple(name for name in deny if _matched(name))
        if barring:
            kept = tuple(name for name in deny if name not in barring)
            found.append(Obstacle(f"{path}.deny has {_and(barring)}", f"{path}.deny", kept))
    return found


def file_boundary(general: object, own: object) -> bool:
    """Whether the agent's file tools stay within its workspace (`tools.fs.workspaceOnly`)."""
    said = at(own, "fs", "workspaceOnly")
    return (at(general, "fs", "workspaceOnly") if said is None else said) is True


def _names(section: object, key: str) -> tuple[str, ...] | None:
    names = at(section, key)
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else None


def _unmatched(names: tuple[str, ...]) -> tuple[str, ...]:
    covered = {tool for name in names for tool in _matched(name)}
    return tuple(tool for tool in FILE_TOOLS if tool not in covered)


def _matched(name: str) -> tuple[str, ...]:
    """The file tools that an entry of a list means."""
    word = name.strip().lower()
    return tuple(tool for tool in FILE_TOOLS if tool in _GROUPS.get(word, ()) or fnmatchcase(tool, word))


def _and(names: tuple[str, ...]) -> str:
    return ", ".join(names)
