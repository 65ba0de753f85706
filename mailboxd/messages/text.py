"""What foreign text looks like once it has been taken: two normal forms, both idempotent.

Agents, peers and editors send carriage returns, terminal escapes, NULs and lone surrogates. Some of these no file
or database can hold (`clean` replaces them), some may stand in a text but not in a line of a listing (`one_line`
removes them).
"""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """`text` with newlines as `\\n`, and U+FFFD for what neither UTF-8 nor a message can carry (NUL, surrogates)."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and "\0" not in text:  # as most texts are; the pattern looks at each character
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """`text` on one line: white space runs become one space; control, zero-width and bidi characters are removed.

    Removed, not replaced: an escape sequence or a direction override has no place in a listing or a terminal.
    """
    line = " ".join(text.split())
    if line.isprintable():  # as most lines are: then nothing of it is invisible
        return line
    return " ".join(_INVISIBLE.sub("", line).split())
