"""Foreign text made fit for one line of ours."""

from __future__ import annotations


def attributed(source: str, text: str) -> str:
    """What somebody else said, below a line of ours that names the source: each line of it begins with `> `.

    So no line of it can pass for one of ours, or for what another source said. `source` is ours, on one line.
    """
    lines = text.strip().splitlines()  # at whatever somebody might take for the end of a line
    return "\n".join([f"{source}:", *(f"> {line}".rstrip() for line in lines)])


def first_line(text: str, limit: int = 200) -> str:
    """The first line that says something, without markup at its start and without control characters.

    At most `limit` characters; a cut shows as an ellipsis.
    """
    if len(text) <= limit and text[:1].isalnum() and text.isprintable():  # one line, as nearly always
        return text.rstrip()
    for raw in text.splitlines():
        line = on_one_line(raw).strip().lstrip("#>*- ").strip()
        if line and set(line) - set("`-=_*"):
            return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
    return ""


def on_one_line(text: str) -> str:
    """`text` with a space for each character that cannot be shown."""
    if text.isprintable():  # as nearly all are: looked at once, not once for each character
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def money(usd: float) -> str:
    """An amount of dollars, as short as it is exact to a millionth."""
    return f"{usd:.6f}".rstrip("0").rstrip(".") + " USD"
