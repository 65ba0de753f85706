"""Foreign text made fit for one line of ours."""

from __future__ import annotations


def first_line(text: str, limit: int = 200) -> str:
    """The first line that says something, without markup at its start and without control characters.

    At most `limit` characters; a cut shows as an ellipsis.
    """
    for raw in text.splitlines():
        line = "".join(char if char.isprintable() else " " for char in raw).strip().lstrip("#>*- ").strip()
        if line and set(line) - set("`-=_*"):
            return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
    return ""
