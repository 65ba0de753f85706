"""What the text of a new task says beside its work, for a file in the inbox and a new task.md alike.

Sections that restrain are headers; what may be meant otherwise than it was taken is a doubt; what is ticked is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from mailboxd.core.sanitize import excerpt
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.head import Head, Place, read_head
from mailboxd.formats.protocol.headers import CONVERTERS
from mailboxd.formats.protocol.headings import Ticks, header_lines, misspelt, renamed, restraining_headers, ticks
from mailboxd.formats.protocol.markdown import Section
from mailboxd.formats.protocol.repeats import often_said
from mailboxd.formats.protocol.spec import SPEC_SECTIONS
from mailboxd.formats.protocol.strict_yaml import Yaml
from mailboxd.formats.protocol.words import CLOSED, OPEN, UNDER_WAY, spelled

_MENTION = re.compile(
    r"\s*+(?:#++[ \t]++)?(?:(?:(?:to|for|an|für|à|pour|para|per|dla|pro|для)(?:[ \t]*+:)?[ \t]++)?"
    r"(?P<at>@[A-Za-z0-9][\w.-]*)"
    r"|(?:to|for|an|für|à|pour|para|per|dla|pro|для)[ \t]*+:[ \t]*+(?P<to>[A-Za-z][\w-]*)"
    r"|(?:(?:hey|hi|hello|dear|hallo|liebe[r]?|hola|ciao|salut|ahoj|cześć|привет|привіт)[ ,]+)?"
    r"(?P<told>[A-Za-z][\w-]*)(?:[,:]|[ \t]+(?:should|shall|must|has to|please|can you|could you|soll|sollte|muss|"
    r"bitte|doit|devrait|debe|deve|powinien|должен|повинен)\b))",
    re.IGNORECASE,
)
"""Somebody who is named first, as who is to do the work."""
_LISTS = frozenset({"todo", "to_do", "todos", "tasks", "task_list", "todo_list", "backlog", "checklist"})
"""Names and titles of a list of several things to do."""
_NUMBERED_ITEMS = re.compile(r"^[ \t]*[-*+][ \t]+\[[ xX]\][ \t]+\**T[0-9]{1,5}\b", re.MULTILINE)
_GIVEN = re.compile(
    r"^[ \t]*(?:[-*+]|[0-9]{1,3}[.)])[ \t]+(?:\[ \][ \t]+)?[*_]{0,2}(?:@([A-Za-z][\w.-]{0,63})|([A-Za-z][\w-]{0,63}):)",
    re.MULTILINE,
)
"""An item that says first who does it."""
_MOST_ITEMS = 100
"""Items that are looked at."""
_MARKS = re.compile(
    r"(?:[📅🗓⏳🛫]\ufe0f? ?[0-9]{4}-[0-9]{2}-[0-9]{2}|⛔\ufe0f? ?\w{1,40}|🔁 ?\w{1,40})"
    r"|^[ \t]*(?:DEADLINE|SCHEDULED): <[^<>\n]{1,40}>",
    re.MULTILINE,
)
"""Of Obsidian's tasks, and of Org mode."""
_CONTEXT = "Context"


def read_sections(sections: Iterable[Section], header: Mapping[str, Yaml], place: Place, path: str) -> Head:
    """What sections like `## Deadline` say, as headers beside those in `header`.

    Raises MessageError: the rules of `head.read_head` and of the headers, `duplicate-key` for what is said in both.
    """
    sections = tuple(sections)
    found, places = restraining_headers(sections, path)
    said = Head()
    try:
        if found:
            said = read_head(found, {*found}, place, by_person=True)
        said.header.pop("status", None)  # it has been judged, and is none of ours
        for name, value in said.header.items():
            if name in header:
                raise MessageError("duplicate-key", f"{name} is a header, too", "Keep one of them.", field=name)
            _convert(name, value)
    except MessageError as error:
        section = places.get(said.written.get(error.field or "", error.field or "")) or next(iter(places.values()))
        problem = f"the section {excerpt(section.heading)}: {error.problem}"
        hint = f"{error.hint} Correct it, or give it another heading if it is only text."
        raise MessageError(error.rule, problem, hint, path, section.line, error.field) from None
    said.doubts += misspelt(sections, SPEC_SECTIONS)
    return said


def _convert(name: str, value: Yaml) -> None:
    try:
        CONVERTERS[name](value, lambda _: None)
    except MessageError as error:
        error.field = name
        raise


def read_text(
    text: str, sections: Sequence[Section], title: str, name: str, place: Place, *, is_repeated: bool = False
) -> tuple[tuple[Section, ...], list[str]]:
    """The sections of a person's text in our own words, with what is done already as context, and the doubts about it.

    `name` is that of its file, without the ending.
    """
    own, doubts = renamed(sections)
    items = ticks(text)
    if items.done:
        done = "\n".join(f"- {item}" for item in items.done)
        own = _with_context(own, f"These are already done; do not do them again:\n\n{done}")
    if not is_repeated and (often := often_said(text)):
        doubts.append(f"{excerpt(often)}: it is done once. To repeat it, drop it into mailbox/inbox/ with `repeat:`")
    if len(columns := [one.heading for one in sections if spelled(one.heading) in OPEN | UNDER_WAY | CLOSED]) > 1:
        doubts.append(
            f"it is a board ({', '.join(map(excerpt, columns[:4]))}); it was taken as one task, and can be made a plan"
        )
    return own, [*doubts, *_doubts_about(text, items, title, name, place)]


def _with_context(sections: Sequence[Section], text: str) -> tuple[Section, ...]:
    before = next((section for section in sections if section.is_called(_CONTEXT)), None)
    if before is None:
        return (*sections, Section(_CONTEXT, text))
    longer = Section(before.heading, f"{before.text}\n\n{text}".lstrip(), before.line)
    return tuple(longer if section is before else section for section in sections)


def _is_for_an_agent(item: re.Match[str], place: Place) -> bool:
    return bool(place.agents and place.agent_called(item[1] or item[2]))


def _doubts_about(text: str, items: Ticks, title: str, name: str, place: Place) -> list[str]:
    """What in a text may be meant otherwise than it was taken."""
    doubts = []
    mention, own = _MENTION.match(text), place.agent
    named = mention[mention.lastgroup or 0] if mention else ""
    if named and place.agents and (agent := place.agent_called(named)) not in ("", own):
        doubts.append(f"{named} is named first: {own} took it. If {agent} is to do it, write `agent: {agent}`")
    if outside := header_lines(text):
        said = ", ".join(outside)
        doubts.append(f"{said}: such lines look like headers; outside of two lines `---` they are text")
    if marks := _MARKS.search(text):
        doubts.append(f"{excerpt(marks[0])}: the marks of another tool for days, order and repetition are text here")
    if (items.open + len(items.done) > 1) and {spelled(name), spelled(title)} & _LISTS:
        ticked = f"; the {len(items.done)} ticked ones are not done again" if items.done else ""
        doubts.append(f"a list of {items.open} open items was taken as one task{ticked}")
    elif len(_NUMBERED_ITEMS.findall(text)) > 1:
        doubts.append("its list looks like several tasks with an order; it was taken as one, and can be made a plan")
    elif sum(1 for item in islice(_GIVEN.finditer(text), _MOST_ITEMS) if _is_for_an_agent(item, place)) > 1:
        doubts.append(f"its list looks like several tasks for agents; {own} took it as one, and it can be made a plan")
    return doubts
