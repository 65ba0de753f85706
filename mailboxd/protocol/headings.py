"""Markdown bodies as sections, and foreign text inside them that cannot become a section.

A body is an H1 title, then level-2 sections in order. A line makes structure only at column 0 and outside of fenced
code. Where we write foreign text into a section, `escape` puts one backslash before whatever would make structure:

    ## DAG      ->  \\## DAG          (a heading, indented by up to three spaces)
    \\## DAG     ->  \\\\## DAG         (what already looks escaped)
    ```         ->  \\```             (only in a text whose fences do not pair up: one of them would swallow the rest)

A fenced block that is closed stays as it stands, so code reads as code. Markdown shows `\\#` as `#`. `unescape` undoes
it exactly: `unescape(escape(text)) == text` for every text, and `escape(text)` contains no structure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from mailboxd.core.sanitize import storable_line

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
_STRUCTURE = re.compile(r"^( {0,3})(\\*(?:#|```|~~~))")
_ESCAPED = re.compile(r"^( {0,3})\\(\\*(?:#|```|~~~))")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading on one line (`text.one_line`), and the text up to the next one, as it stands (still escaped).

    `line` is the first of the text.
    """

    heading: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Outline:
    """A body, split. `unclosed` is the line of a fence that nothing closes: everything below it is inside."""

    title: str | None
    preamble: str
    sections: tuple[Section, ...]
    unclosed: int | None


def fenced(lines: list[str]) -> tuple[list[bool], int | None]:
    """Which of `lines` belong to fenced code (its fences included), and the index of a fence nothing closes."""
    inside = [False] * len(lines)
    opener: str | None = None
    opened_at = 0
    for index, line in enumerate(lines):
        fence = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if opener is not None:
            inside[index] = True
            if fence and fence[1].startswith(opener) and not fence[2].strip():
                opener = None
        elif fence:
            inside[index] = True
            opener, opened_at = fence[1], index
    return inside, None if opener is None else opened_at


def block_end(lines: list[str], start: int) -> int:
    """The line that closes the fenced block which begins at line `start`; the last line if nothing does."""
    opening = _FENCE.match(lines[start])
    if opening is not None:
        for index in range(start + 1, len(lines)):
            fence = _FENCE.match(lines[index])
            if fence and fence[1].startswith(opening[1]) and not fence[2].strip():
                return index
    return len(lines) - 1


def escape(text: str) -> str:
    """`text` such that no line of it is a heading, and every fence in it is closed."""
    lines = text.split("\n")
    inside, unclosed = fenced(lines)
    if unclosed is not None:
        inside = [False] * len(lines)
    return "\n".join(
        line if code else _STRUCTURE.sub(r"\1\\\2", line) for line, code in zip(lines, inside, strict=True)
    )


def unescape(text: str) -> str:
    """What `escape` was given. Text that a person wrote without escaping stands as it is."""
    if "\\" not in text:
        return text
    lines = text.split("\n")
    inside, _ = fenced(lines)
    return "\n".join(line if code else _ESCAPED.sub(r"\1\2", line) for line, code in zip(lines, inside, strict=True))


def outline(body: str, first_line: int = 1) -> Outline:
    """Split `body`, whose first line is line `first_line` of its file, at its title and its level-2 headings."""
    lines = body.split("\n")
    inside, unclosed = fenced(lines)
    title = None
    starts: list[int] = []
    for index, line in enumerate(lines):
        if not line.startswith("#") or inside[index]:
            continue
        if line.startswith("## ") and storable_line(line[3:]):
            starts.append(index)
        elif title is None and not starts and (line == "#" or line.startswith("# ")):
            title = index
    end = starts[0] if starts else len(lines)
    preamble = [line for index, line in enumerate(lines[:end]) if index != title]
    return Outline(
        title=None if title is None else lines[title][1:].strip(),
        preamble="\n".join(preamble).strip("\n"),
        sections=_below(lines, starts, "## ", first_line),
        unclosed=None if unclosed is None else first_line + unclosed,
    )


def entries(section: Section) -> tuple[str, tuple[Section, ...]]:
    """The text of `section` before its first level-3 heading, and what stands under each of them."""
    lines = section.text.split("\n")
    inside, _ = fenced(lines)
    starts = [
        i for i, line in enumerate(lines) if line.startswith("### ") and storable_line(line[4:]) and not inside[i]
    ]
    before = lines[: starts[0] if starts else len(lines)]
    return "\n".join(before).strip("\n"), _below(lines, starts, "### ", section.line)


def _below(lines: list[str], starts: list[int], mark: str, first_line: int) -> tuple[Section, ...]:
    """The headings at `starts`, which begin with `mark`, each with the lines up to the next one."""
    return tuple(
        Section(
            storable_line(lines[start][len(mark) :]),
            "\n".join(lines[start + 1 : stop]).strip("\n"),
            first_line + start + 1,
        )
        for start, stop in pairwise([*starts, len(lines)])
    )
