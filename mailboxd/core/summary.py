"""The summary line of a result: what a list, a notice and a parent's table say of a text that may be pages long.

In this order: what the text itself calls its summary (a heading such as `## Summary`, a line `TL;DR: ...`); else the
first line of prose or of a list; else a line that only introduces what follows, a heading, the first row of a table,
the first line of code. Front matter, fences, comments, rules, greetings and `Here is the report:` are passed over, as
long as there is something else. The line has no Markdown, and breaks off after a sentence where it is too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from mailboxd.core.sanitize import first_line, one_line

LONGEST = 200
"""Characters of a summary line."""
_READ_LINES = 2_000
"""Lines that are looked at: a summary stands near the beginning, or under a heading of its own."""
_READ_CHARS = 4_000
"""Characters of one line that are looked at."""

_SUMMARIES = frozenset(
    {
        "summary", "executive summary", "tl;dr", "tldr", "tl dr", "in short", "in brief", "bottom line",
        "zusammenfassung", "kurzfassung", "résumé", "en bref", "resumen", "riassunto", "sintesi", "resumo",
        "samenvatting", "sammanfattning", "podsumowanie", "резюме", "итог", "кратко", "özet", "ملخص", "الملخص", "סיכום",
        "תקציר", "摘要", "总结", "總結", "小结", "要約", "まとめ", "概要", "요약", "सारांश",
    }
)  # fmt: skip
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}(?:[ \t]+|$)")
_RULE = re.compile(r"[ \t]*(?:[-=_*~][ \t]*){3,}")
_CELLS = re.compile(r"[ \t]*[|+].*")
_CELL_RULE = re.compile(r"[ \t|+:=-]+")
_ITEM = re.compile(r"(?:[-*+•–]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_QUOTE = re.compile(r"(?:>[ \t]?)+")
_LABEL = re.compile(r"[\"'*_`]*([^\W\d_][^:：*\"`]{1,24}?)[\"'*_`]*[ \t]*[:：][\"'*_`]*[ \t]*(.*)")
_KEY = re.compile(r"[\w .-]{1,24}:(?:\s|$)")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\]\[]{0,300})\]\([^()\s]{0,500}(?:[ \t]+\"[^\"]{0,200}\")?\)")
_MARKS = re.compile(r"(?<!\w)(?:\*{1,3}|_{1,3}|~~)(?=\S)|(?<=\S)(?:\*{1,3}|_{1,3}|~~)(?!\w)|`+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,20}[@-~]")
_COMMENT = re.compile(r"<!--.*?-->")
_SENTENCE = re.compile(r"[^\W_](?:[^\W_]|[ ,'’-])*[.!?]?")
"""A text that is one sentence without marks."""
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*(?=\s)|[。！？．]")
_ENDED = (".", "!", "?", "…", ":", "。", "！", "？", "：", ";", "；")
_POLITE = re.compile(
    r"(?:sure(?: thing)?|certainly|of course|absolutely|ok(?:ay)?|great|alright|all right|understood|got it|no problem"
    r"|done|perfect|thanks|thank you|gern(?:e)?|natürlich|klar|bien sûr|claro|vale|好的|当然|了解しました|承知しました)"
    r"(?:[!.,:。！，、—–-]+(?:\s+|$|(?<=[。！，、]))|$)",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"(?:hi|hello|hey|dear|hallo|guten (?:tag|morgen|abend)|good (?:morning|afternoon|evening)|greetings|bonjour|hola"
    r"|ciao|你好|您好|こんにちは)\b[^.!?:]{0,40}[,!.。！，]?",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"(?:i(?:'ve|’ve| have)?|the|this|your|all)?\s*(?:task|work|request|job)?\s*(?:has been|is|was|have been)?\s*"
    r"(?:now |successfully )*(?:completed|finished|done)(?: (?:the|this|your|all))?"
    r"(?: (?:task|work|request|job|steps))?(?: successfully| as requested)?[.!]?",
    re.IGNORECASE,
)
_INTRODUCES = re.compile(
    r"(?:here(?:'s|’s| is| are)|below (?:is|are)|the following (?:is|are)|please find|find below|as requested"
    r"|hier (?:ist|sind)|im folgenden|voici|aquí (?:está|están)|以下是|以下は)[^:：]*[.:：!]?",
    re.IGNORECASE,
)


def summary_line(text: str, limit: int = LONGEST) -> str:
    """One line, of at most `limit` characters, that says what the text says; empty if it has no words.

    Runs in linear time over any text, and looks at its first lines only.
    """
    if len(text) <= limit and _SENTENCE.fullmatch(text) and not _POLITE.match(text):  # nothing to pass over or remove
        return " ".join(text.split())
    lines = [_COLOURS.sub("", line[:_READ_CHARS]) for line in islice(text.splitlines(), _READ_LINES)]
    others: dict[str, str] = {}
    awaited = False
    first = ""
    for kind, said, following in _blocks(lines):
        if _is_summary(said):
            awaited = kind in ("heading", "prose")
            continue
        label = _LABEL.fullmatch(said)
        if label is not None and _is_summary(label[1]) and _has_words(label[2]):
            value = label[2].strip('", ') if said.startswith('"') else label[2]
            return _cut(_joined(value, following), limit)
        if kind not in ("prose", "item") or not _has_words(said):
            awaited = awaited and kind != "heading"
            if _has_words(said):
                others.setdefault(kind, said)
            continue
        rest = _POLITE.sub("", said, count=1) if _POLITE.match(said) else said
        if not rest or _GREETING.fullmatch(rest) or _REPORTED.fullmatch(rest) or _introduces(rest):
            others.setdefault("introduces" if _introduces(rest) else "polite", said)
            continue
        if awaited:
            return _cut(_joined(rest, following), limit)
        first = first or _joined(rest, following)
    found = first or next((others[kind] for kind in _LAST_RESORTS if kind in others), "")
    return _cut(found or first_line(text, limit), limit)


_LAST_RESORTS = ("introduces", "heading", "cells", "polite", "note", "code", "data")


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Each line that says something: what it is, its text without marks, and the lines that may continue it."""
    number, fence = _after_front_matter(lines), ""
    for index in range(0, number):
        yield "data", _plain(lines[index]), ()
    while number < len(lines):
        raw, number = lines[number], number + 1
        if (mark := _FENCE.match(raw)) is not None and (
            not fence or (mark[1].startswith(fence) and not raw.strip("`~ "))
        ):
            fence = "" if fence else mark[1]
            continue
        if fence:
            yield "code", one_line(raw).strip(), ()
            continue
        line = _COMMENT.sub("", raw)
        if not line.strip() or _RULE.fullmatch(line):
            continue
        if _HEADING.match(line) or _is_underlined(lines, number):
            yield "heading", _plain(line.strip().strip("#")), ()
        elif _CELLS.fullmatch(line):
            if not _CELL_RULE.fullmatch(line):
                yield (
                    "cells",
                    _plain(", ".join(filter(None, (cell.strip() for cell in line.strip(" \t|").split("|"))))),
                    (),
                )
        elif line.startswith("[mailboxd]"):
            yield "note", _plain(line), ()
        else:
            quoted = _QUOTE.match(line.strip())
            bare = line.strip()[quoted.end() if quoted else 0 :].strip()
            item = _ITEM.match(bare)
            said = _plain(bare[item.end() :] if item else bare)
            yield ("item" if item else "prose"), said, lines[number : number + 8]


def _after_front_matter(lines: Sequence[str]) -> int:
    """The number of the lines of a YAML head."""
    if not lines or lines[0].strip() != "---":
        return 0
    return next((number + 1 for number in range(1, len(lines)) if lines[number].strip() in ("---", "...")), 0)


def _is_underlined(lines: Sequence[str], number: int) -> bool:
    """Whether the line before `number` is a heading because of the line of `===` or `---` below it."""
    below = lines[number].strip() if number < len(lines) else ""
    return len(below) >= 3 and set(below) in ({"="}, {"-"})


def _plain(text: str) -> str:
    """The text without Markdown, on one line."""
    said = _IMAGE_OR_LINK.sub(r"\1", one_line(text))
    return " ".join(_MARKS.sub("", said).split())


def _has_words(text: str) -> bool:
    return any(char.isalnum() for char in text)


def _is_summary(text: str) -> bool:
    return text.strip(" \t:：*_-–—.").casefold() in _SUMMARIES


def _introduces(text: str) -> bool:
    """Whether the line only says that something follows."""
    return (text.endswith((":", "：")) and len(text) <= LONGEST) or (
        _INTRODUCES.fullmatch(text) is not None and len(text) <= LONGEST // 2
    )


def _joined(said: str, following: Sequence[str]) -> str:
    """The line with those that continue its sentence: it has not ended, and they begin with a small letter."""
    for line in following:
        more = line.strip()
        if len(said) >= LONGEST or said.endswith(_ENDED) or not more[:1].islower() or _KEY.match(more):
            break
        said = f"{said} {_plain(more)}"
    return said


def _cut(said: str, limit: int) -> str:
    """The sentences that fit; of one that is too long, its beginning."""
    said = said.strip()
    if len(said) <= limit:
        return said
    ends = [found.end() for found in _SENTENCE_END.finditer(said, 0, limit + 1) if found.end() <= limit]
    if ends and ends[-1] >= limit // 4:
        return said[: ends[-1]]
    return said[: limit - 1].rstrip() + "…"
