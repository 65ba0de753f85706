"""The role of an agent according to its IDENTITY.md: one line, for the agent that plans work for it.

OpenClaw's form is a list of `- **Label:** value`, and it prefers `Theme`, then `Creature`, then `Vibe`. A value in
brackets is its placeholder. Without any of these, the first line of prose counts.
"""

from __future__ import annotations

import re
from pathlib import Path

from mailboxd.core.sanitize import storable_line
from mailboxd.formats.mailbox.files import directory, read_file

_LABEL = re.compile(r"[ \t]*[-*][ \t]+[*_]*(\w{1,20})[*_]*[ \t]*:[*_]*[ \t]*(.*)")
_PREFERRED = ("theme", "creature", "vibe")
_LONGEST = 200


def theme_of(text: str) -> str:
    """The role that an IDENTITY.md names: one line of at most 200 characters; empty when it names none."""
    labels: dict[str, str] = {}
    prose = ""
    for line in text.splitlines():
        found = _LABEL.fullmatch(line)
        if found is not None:
            labels.setdefault(found[1].lower(), _value(found[2]))
        elif not prose and not line.lstrip().startswith(("#", "---", "<!--")):
            prose = _value(line)
    named = next((labels[label] for label in _PREFERRED if labels.get(label)), "")
    return brief_role(named or ("" if labels else prose))


def brief_role(text: str) -> str:
    """A role as one line of at most 200 characters."""
    line = storable_line(text)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"


def _value(text: str) -> str:
    plain = text.strip().strip("*_").strip()
    return "" if plain.startswith("(") and plain.endswith(")") else plain


_IDENTITY_BYTES = 8192


def read_identity(workspace: str) -> str:
    """The role in the IDENTITY.md of a workspace, which the agent may write; empty if it cannot be read."""
    if not workspace.startswith("/"):
        return ""
    try:
        with directory(Path(workspace)) as folder:
            raw = read_file(folder, "IDENTITY.md", _IDENTITY_BYTES) or b""
            return theme_of(raw.decode("utf-8", "replace"))
    except OSError:
        return ""
