"""What the headings of a task's text say, as people and other tools write them.

A heading at the level of a spec's sections that restrains the work is read as the header of that name, or refused; a
heading that nearly is one is refused. Criteria are found under any heading, under a bold line and under a line that
ends with a colon. Ticked items are what is done already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.markdown import Section, fenced
from mailboxd.formats.protocol.quantities import budget
from mailboxd.formats.protocol.strict_yaml import Yaml
from mailboxd.formats.protocol.words import (
    CLOSED,
    CRITERIA,
    KEYS,
    SECTIONS,
    STOPPED,
    UNDER_WAY,
    foreign,
    foreign_letter,
    instead,
    meant,
    skeleton,
    spelled,
)

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_BOLD = re.compile(r"[ \t]*(?:\*\*|__)([^*_\n]{1,80})(?:\*\*|__)[ \t]*:?[ \t]*")
_COLON = re.compile(r"[^\W_][^\n]{1,60}:[ \t]*")
_TICKED = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[[xX✓✔]\][ \t]+(\S.*)")
_TICKED_LINE = re.compile(r"[xX] ([0-9]{4}-[0-9]{2}-[0-9]{2} \S.*)")
"""A line of a todo.txt that is done; its open ones have no mark."""
_OPEN_ITEM = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)]|(?=\([A-Z]\) ))[ \t]*(?!\[[xX✓✔]\])\S")
_UNDER_ANY = 7
"""The level of a bold line and of one that ends with a colon: every heading ends what is below it."""
_RESTRAINING = {
    **dict.fromkeys(("gates", "gate", "quality_gates"), "gates"),
    **dict.fromkeys(("reviewers", "reviewer"), "reviewers"),
    **dict.fromkeys(("deadline", "due", "due_date", "due_by"), "deadline"),
    **dict.fromkeys(("depends_on", "dependencies", "blocked_by", "prerequisites"), "depends_on"),
    **dict.fromkeys(("assignee", "assignees", "assigned_to", "executor"), "agent"),
    **dict.fromkeys(("timeout", "time_limit"), "timeout"),
    **dict.fromkeys(("budget", "budgets", "max_cost", "cost_limit", "cost_cap", "spending_limit"), "budget"),
    "budget_usd": "budget_usd",
    **dict.fromkeys(("budget_tokens", "token_budget"), "budget_tokens"),
    "max_attempts": "max_attempts",
    **dict.fromkeys(("approval", "approvals", "approvers", "approval_required", "requires_approval"), ""),
    **dict.fromkeys(("limits", "limit"), ""),
    **dict.fromkeys(("status", "state"), "status"),
}
"""Headings that restrain, with the header that says the same; empty if none does."""
_PROSE = frozenset({"dependencies", "prerequisites", "budget", "budgets", "status", "state"})
"""Those that are as often a chapter of a text: they are read only if their text has the form of the header."""
_OWN = ("planned_actions", "checks", *_RESTRAINING)
_SHORTEST = 6
"""Letters of a heading whose misspellings are looked for: `Dates` is not `Gates`."""
_LONG_ENOUGH = tuple(own for own in _OWN if len(own) >= _SHORTEST)
_LONGEST = 40
_STATES = CLOSED | STOPPED | UNDER_WAY
_REF = re.compile(r"[^\W_][\w.-]*\d[\w.-]*|#[0-9]+|\[\[[^\]]+\]\]")


def restraining_headers(sections: Iterable[Section], path: str) -> tuple[dict[str, Yaml], dict[str, Section]]:
    """The headers that stand in the sections of a text, and the section of each.

    Raises MessageError(`unknown-field`) for a section that restrains and cannot be read.
    """
    found: dict[str, Yaml] = {}
    places: dict[str, Section] = {}
    for section in sections:
        name = _key(section.name)
        if name not in _RESTRAINING:
            _require_none_in_other_words(section, path)
            _require_no_near_miss(section, name, path)
            continue
        header, lines = _RESTRAINING[name], _lines(section.text)
        if not lines:
            continue
        if name in _PROSE and not _has_form(header, lines):
            continue
        if not header:
            _stop(section, path, instead(section.heading))
        if header in found:
            _stop(section, path, f"It is said twice: see also {excerpt(places[header].heading)}.")
        found[header] = [*lines] if header in ("gates", "reviewers", "depends_on", "agent") else " ".join(lines)
        places[header] = section
    return found, places


def restraining(sections: Iterable[Section]) -> Iterator[Section]:
    """The sections with a text whose heading restrains the work, or nearly does, whatever the text is."""
    for section in sections:
        name = _key(section.name)
        near = name in _OWN or _foreign(section.name) or (len(name) <= _LONGEST and _near(section.heading, name))
        if near and _lines(section.text):
            yield section


def _has_form(header: str, lines: list[str]) -> bool:
    """Whether the lines of a section have the form of the header and are no prose."""
    if header == "status":
        return len(lines) == 1 and spelled(lines[0]) in _STATES
    if header != "budget":
        return all(map(_REF.fullmatch, lines))
    try:
        budget(" ".join(lines))
    except MessageError:
        return False
    return True


def _require_none_in_other_words(section: Section, path: str) -> None:
    """Refuse a heading of another language that restrains. What is as often a chapter of a text has to look like it."""
    name = _foreign(section.name)
    if not name:
        return
    lines = _lines(section.text)
    form = {"depends_on": "depends_on", "budget_usd": "budget", "timeout": "budget", "limit": "budget"}.get(name, "")
    if lines and (not form or _has_form(form, lines)):
        own = "" if name == "approval" else f"Write `## {name.replace('_', ' ').capitalize()}`."
        _stop(section, path, own or instead(section.heading))


def _lines(text: str) -> list[str]:
    """The lines of a section without marks of a list."""
    bare = (
        re.sub(r"^[ \t]*(?:[-*+]|[0-9]{1,3}[.)])[ \t]+(?:\[ \][ \t]+)?", "", line).strip() for line in text.split("\n")
    )
    return [line for line in bare if line and line.casefold().strip(".-_* ") not in ("", "none", "n/a")]


def _require_no_near_miss(section: Section, name: str, path: str) -> None:
    if len(name) > _LONGEST:
        return
    near = _near(section.heading, name)
    if not near or (near == "checks" and "id:" not in section.text):
        return
    if near in _PROSE and not _has_form(_RESTRAINING[near], _lines(section.text)):
        return
    odd = foreign_letter(section.heading)
    letter = f"Letter {odd[0]} of the heading is {odd[1].title()}, which only looks like another. " if odd else ""
    _stop(section, path, f"{letter}Did you mean `## {near.replace('_', ' ').title()}`?")


# A text may have a thousand sections of the same name.
_key = lru_cache(maxsize=1024)(spelled)
_foreign = lru_cache(maxsize=1024)(foreign)


@lru_cache(maxsize=1024)
def _near(heading: str, name: str) -> str:
    """The restraining heading that one nearly is; empty if it is none, or one of them itself."""
    plain = spelled(skeleton(name))
    if plain in _OWN:
        return plain if foreign_letter(heading) else ""
    return meant(name, _LONG_ENOUGH) if len(plain) >= _SHORTEST else ""


def _stop(section: Section, path: str, hint: str) -> None:
    problem = f"the section {excerpt(section.heading)} may limit, order or approve the work, and cannot be read as such"
    rest = "Correct it, or give it another heading if it is only text; nothing has started."
    raise MessageError(
        "unknown-field", problem, f"{hint} {rest}", path, section.line, storable_line(section.heading)[:80]
    )


# Parts of a text under any heading


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of a text under one heading, whose name is spelled as keys are; empty above the first."""

    name: str
    lines: tuple[str, ...]


def parts(text: str) -> Iterator[Part]:
    """A text divided by its headings, bold lines and lines that end with a colon, outside code."""
    lines = text.split("\n")
    inside, _ = fenced(lines)
    name, level, found = "", 0, list[str]()
    for line, code in zip(lines, inside, strict=True):
        heading = None if code else _heading(line)
        # A smaller heading inside the criteria belongs to them.
        if heading is None or (name in CRITERIA and heading[0] > level and heading[1] not in CRITERIA):
            found.append(line)
            continue
        yield Part(name, tuple(found))
        (level, name), found = heading, []
    yield Part(name, tuple(found))


def _heading(line: str) -> tuple[int, str] | None:
    if found := _HEADING.fullmatch(line):
        return len(found[1]), _named(found[2])
    if found := _BOLD.fullmatch(line):
        return _UNDER_ANY, _named(found[1])
    return (_UNDER_ANY, _named(line)) if _COLON.fullmatch(line) and _named(line) in CRITERIA else None


def _named(heading: str) -> str:
    return spelled(heading.strip(" \t#:*_"))


_MAY_STATE_CRITERIA = re.compile(
    r"criteri|crit[èé]r|kryteria|критери|受け入れ|完了条件|完成标准|fertig|acceptance|\bdone\b|\bdod\b|kriterien|验收|驗收",
    re.IGNORECASE,
)


def stated_criteria(texts: Iterable[str]) -> str:
    """The text under the first heading of criteria in `texts`, in any spelling; empty without one."""
    some = (text for text in texts if _MAY_STATE_CRITERIA.search(text))
    found = ("\n".join(part.lines).strip() for text in some for part in parts(text) if part.name in CRITERIA)
    return next(filter(None, found), "")


def renamed(sections: Sequence[Section]) -> tuple[tuple[Section, ...], list[str]]:
    """The sections with the headings of the table in our own words, and a doubt about each of another language."""
    named, doubts, names = [], [], {section.name for section in sections}
    for section in sections:
        own = SECTIONS.get(_key(section.name), "")
        if own and own.casefold() not in names:
            named.append(Section(own, section.text, section.line))
            doubts.append(f"the section {excerpt(section.heading)} was read as {own}")
        else:
            named.append(section)
    return tuple(named), doubts


def misspelt(sections: Iterable[Section], own: Sequence[str]) -> list[str]:
    """A doubt about each heading that nearly is one of `own`, the sections of a spec: it is only text so."""
    doubts = []
    known = {_key(name): name for name in own}
    for section in sections:
        name = _key(section.name)
        if name in known or not _SHORTEST <= len(name) <= _LONGEST:
            continue
        near = _nearest(name, tuple(known))
        if near and near.rstrip("s") != name.rstrip("s"):
            doubts.append(f"the section {excerpt(section.heading)} was read as text; did you mean {known[near]}?")
    return doubts


_nearest = lru_cache(maxsize=1024)(meant)


@dataclass(frozen=True, slots=True)
class Ticks:
    """The items of the lists in a text: those that are ticked, and how many are not."""

    done: tuple[str, ...]
    open: int


_MAY_LIST = re.compile(r"^(?:[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\S|[xX] [0-9]{4}-)", re.MULTILINE)


def ticks(text: str) -> Ticks:
    """The items of the lists in `text`, but for its criteria and code."""
    done, left = list[str](), 0
    if not _MAY_LIST.search(text):
        return Ticks((), 0)
    for part in parts(text):
        if part.name in CRITERIA:
            continue
        inside, _ = fenced(list(part.lines))
        for line, code in zip(part.lines, inside, strict=True):
            if code:
                continue
            if found := _TICKED.fullmatch(line) or _TICKED_LINE.fullmatch(line):
                done.append(found[1])
            elif _OPEN_ITEM.match(line):
                left += 1
    return Ticks(tuple(done), left)


_LINE = re.compile(
    r"(?:[-*+][ \t]+)?(?:\*\*|__)?(?P<name>[^\W_][\w -]{1,29}?)(?:\*\*|__)?"
    r"(?:::?(?:\*\*|__)?[ \t]+|：(?:\*\*|__)?[ \t]*)\S.{0,200}"
)
_ROW = re.compile(r"\|[ \t]*(?:\*\*)?(?P<name>[^\W_][\w -]{1,29}?)(?:\*\*)?:?[ \t]*\|[ \t]*[^|\s][^|]{0,200}\|")
"""The row of a table of two columns, the first of which has names."""
_RULE = re.compile(r"\|[ |:-]+\|")
_TITLE_LINE = re.compile(r"#[ \t]|[A-Z][A-Z_]{2,}(?: v?[0-9.]+)?$")


def header_lines(text: str) -> list[str]:
    """The lines `Name: value` at the start of a text that would restrain the work as headers, by their names."""
    found: list[str] = []
    lines = [line.strip() for line in text.strip().split("\n", 12)[:12]]
    for number, line in enumerate(lines):
        row = _LINE.fullmatch(line) or _ROW.fullmatch(line)
        if _RULE.fullmatch(line) or _RULE.fullmatch("".join(lines[number + 1 : number + 2])):
            continue  # with the names of the columns above it
        if row is None:
            if found or (line and not _TITLE_LINE.match(line) and number):
                break
            continue
        name = spelled(row["name"])
        if foreign(name) or KEYS.get(name, name) in _AS_HEADER or name in _RESTRAINING.keys() - _PROSE:
            found.append(row["name"].strip())
    return found


_AS_HEADER = frozenset(
    {"agent", "depends_on", "deadline", "timeout", "budget_usd", "budget_tokens", "reviewers", "gates"}
)
