"""Foreign text made harmless where it is shown: one function for each purpose.

`escaped` keeps every character recognisable (terminal, page, log, preview); `on_one_line` and `first_line` fit a text
into a sentence. File names have `workspace.names.printable`, the headers of messages `messages.text`.
"""

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


def escaped(text: str, keep: str = "") -> str:
    """`text` with each character that cannot be seen, or acts on a terminal, as a backslash escape such as `\\x1b`.

    The characters of `keep` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def on_one_line(text: str) -> str:
    """`text` with a space for each character that cannot be shown."""
    if text.isprintable():  # as nearly all are: looked at once, not once for each character
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def money(usd: float) -> str:
    """An amount of dollars, as short as it is exact to a millionth."""
    return f"{usd:.6f}".rstrip("0").rstrip(".") + " USD"
