"""Tables in Markdown."""

from __future__ import annotations

import re

_MARK = re.compile(r"\\.|\|")
_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")


def cells(row: str) -> list[str]:
    """The cells of a row, without white space around them. A pipe behind a backslash is part of its cell."""
    row = row.strip().removeprefix("|")
    ends = [mark.start() for mark in _MARK.finditer(row) if mark[0] == "|"]
    if not ends or row[ends[-1] + 1 :].strip():
        ends.append(len(row))
    starts = [0, *(end + 1 for end in ends)]
    return [row[start:end].strip().replace("\\|", "|") for start, end in zip(starts, ends, strict=False)]


def is_rule(row: str) -> bool:
    """Whether a row is the line below the names of the columns."""
    return "|" in row and _RULE.fullmatch(row) is not None
