"""What an agent says of itself in its IDENTITY.md: one line, for whoever plans work for it.

OpenClaw's form is a list of `- **Label:** value`, and it prefers `Theme`, then `Creature`, then `Vibe`. A value in
brackets is its placeholder. A file without any of these says it in its first line of prose.
"""

from __future__ import annotations

import re

from mailboxd.messages.text import one_line

_LABEL = re.compile(r"[ \t]*[-*][ \t]+[*_]*(\w{1,20})[*_]*[ \t]*:[*_]*[ \t]*(.*)")
_PREFERRED = ("theme", "creature", "vibe")
_LONGEST = 200


def theme_of(text: str) -> str:
    """The role that an IDENTITY.md names: one line of at most 200 characters; empty when it names none."""
    said: dict[str, str] = {}
    prose = ""
    for line in text.splitlines():
        found = _LABEL.fullmatch(line)
        if found is not None:
            said.setdefault(found[1].lower(), _value(found[2]))
        elif not prose and not line.lstrip().startswith(("#", "---", "<!--")):
            prose = _value(line)
    named = next((said[label] for label in _PREFERRED if said.get(label)), "")
    return brief_role(named or ("" if said else prose))


def brief_role(text: str) -> str:
    """One line of at most 200 characters of what an agent is said to be."""
    line = one_line(text)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"


def _value(text: str) -> str:
    plain = text.strip().strip("*_").strip()
    return "" if plain.startswith("(") and plain.endswith(")") else plain
