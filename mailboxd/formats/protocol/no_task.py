"""What people and their programs put into an inbox that is no work, by its text: lists, templates, roles.

A message that names its sender is never among them. Pure functions over texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice, pairwise, zip_longest

from mailboxd.core.sanitize import excerpt
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.left_aside import declares_sender
from mailboxd.formats.protocol.markdown import fenced
from mailboxd.formats.protocol.strict_yaml import load
from mailboxd.formats.protocol.words import CLOSED, CRITERIA, KEYS, spelled

_MARKS = (re.compile(r"<{7}(?: |$)"), re.compile(r"={7}$"), re.compile(r">{7}(?: |$)"))
_PLACE = r"\{\{[^{}\n]{0,80}\}\}|<%[^%\n]{0,80}%>"
_UNFILLED = re.compile(_PLACE)
_UNFILLED_VALUE = re.compile(
    r"[\w -]{1,40}:\s*[\"']?(?P<place><[^<>@:/=\"\n]{2,80}>|[YyJj]{4}-[Mm]{2}-[DdTt]{2}"
    r"|(?:[DdTt]{2}[./][Mm]{2}|[Mm]{2}/[Dd]{2})[./][YyJj]{4})[\"']?\s*"
)
"""A header whose value only says what belongs there."""
_FILL = (
    r"(?:please )?(?:describe|fill|write|insert|enter|add|explain|specify|complete|provide|list|put|summari[sz]e)"
    r"(?: (?:in|out|a|an|the|this|that|these|it|your|you|here|below|above|what|why|how|who|when|is|are|to|be|do|done|of"
    r"|for|and|or|with|any|each|more|some|short|brief|clear|concise|one|few|sentences?|words?|lines?|details?|text"
    r"|task|tasks|title|name|description|summary|goal|goals|context|background|instructions?|steps?|section|problem"
    r"|issue|bug|feature|change|changes|expected|actual|output|result|results|behaviou?r|criteria|criterion|acceptance"
    r"|requirements?|notes?|date|owner|assignee|labels?|needs|should|happen|want|wanted|relevant|information|additional"
    r"|motivation|solution|screenshots?|placeholder))*"
)
_PLACEHOLDER = re.compile(
    rf"(?:{_PLACE}|\$\{{[^{{}}\n]{{1,80}}\}}|\.{{3,}}+|…|_{{3,}}+|tbd|tbc|n/a"
    rf"|(?:todo|fixme|tbd)[:.]?(?: {_FILL})?|[\[(]{_FILL}[\])]"
    rf"|(?:[\w ]{{1,30}} )?[\[(](?:your\b|e\.g\.|optional\b)[^\[\]()\n]{{0,80}}[\])])"
    r"[.:!…]*",
    re.IGNORECASE,
)
"""A line that only says what belongs there, without its mark of a list and its label."""
_SAYS_LITTLE = re.compile(r"(?:todo|fixme|tbd|tbc|n/a|\.{3,}+|…|_{3,}+)[.:!…]*", re.IGNORECASE)
"""One that does not take from a title what it says."""
_IN_BRACKETS = re.compile(r"\[[^\[\]\n]{2,80}\][.:]?")
"""What many templates put around what belongs there; it takes two of them, for one may be a remark."""
_IN_ANGLES = re.compile(r"<([^<>@:/=\"\n]{2,80})>[.]?")
_ITALIC = re.compile(rf"([*_])(?:{_FILL})[.…:?]*\1", re.IGNORECASE)
_ASKS = re.compile(
    r"a clear and concise description of |if applicable, add screenshots|add any other context|steps to reproduce the b"
    r"|(?:go to|click on|scroll down to) '\.{3,}'|see error$|please include a summary of the change"
    r"|please delete options |please describe the tests that you ran|fixes # ?\(issue\)"
    r"|(?:ex\.|e\.g\.) i'm always frustrated when \[",
    re.IGNORECASE,
)
"""What the templates of GitHub ask for."""
_MARK_OF_ITEM = re.compile(r"\A\s*(?:>\s*)?(?:[-*+]|\d+[.)])?\s*(?:\[ ?\]\s*)?")
_LABEL = re.compile(r"\A(?:\*\*[^*\n]{1,40}\*\*:?|[\w /]{1,40}:(?=\s))\s*")
_OF_REQUESTS = frozenset(
    {"checklist", "pr_checklist", "type_of_change", "types_of_changes", "how_has_this_been_tested"}
)
"""Headings of the templates of pull requests, whose boxes are no work."""
_BOX = re.compile(r"\s*[-*+] \[ ?\] .*")
_FIELD = re.compile(r"\s{1,8}-\s+type:\s*[\"']?(?:markdown|textarea|input|dropdown|checkboxes|upload)[\"']?\s*")
_EMPTY = re.compile(
    r"\s*+(?:#{1,6}(?: .*)?|[-*+](?: \[ ?\])?|\d+[.)]|<!--.*-->|\*{0,2}[\w /]{1,40}:\*{0,2}|\*\*[^*\n]{1,60}\*\*:?"
    r"|[-_*]{3,})?\s*"
)
"""A line of a template without anything filled in: a heading, an empty point, a comment, a label."""
_HEADING = re.compile(r" {0,3}(#{1,6}) +(.+)")
_TITLE = re.compile(r"(?:new |neue |the )?(?:task|aufgabe|todo|title|titel|untitled)(?: name| title)?:?", re.IGNORECASE)
"""A title that says nothing."""
_SECTIONS = frozenset(
    {*KEYS, "context", "background", "scope_in", "scope_out", "inputs", "outputs", "risks", "notes", "checks", "dag"}
)
"""Headings of templates for tasks."""
_FORMAT = re.compile(r"\s*(?:<\?xml\b|<rss\b|<!doctype\b|<html\b|<opml\b|BEGIN:V[A-Z]+|\{\\rtf)", re.IGNORECASE)
"""Beginnings of texts that only programs write."""
_KEY = re.compile(r"([A-Za-z][\w -]{0,40}):")
_ROLE = {"tools", "allowed_tools", "disallowed_tools", "color", "permission_mode"}
_YOU_ARE = re.compile(
    r"(?:you are|you're|du bist|sie sind|tu es|vous êtes|eres|usted es|你是|あなたは)\b", re.IGNORECASE
)
_TICKED = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[xX✓✔]\]\s.*|[xX] \d{4}-\d\d-\d\d .*")
_OF_TASKS = frozenset({"title", "agent", "deadline", "depends_on", "status", "priority", "repeat", "not_before"})
"""Our names of headers that only a task has in a file."""
_DASHES = re.compile(r"[ \t]*(?:-{3,}|[\u2014\u2013]{1,3})[ \t]*")
"""`---`, and what editors make of it."""
_TASK = re.compile(r"# (?:Task|Aufgabe|Todo): *\S", re.IGNORECASE)
_DIFF = re.compile(r"diff --git |Index: \S|From [0-9a-f]{40} |--- \S[^\n]*\n\+\+\+ \S")
_OF_A_LOG = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*\]?[ \t]+"
    r"\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b"
)
_CUE = re.compile(r"\A\d\d:\d\d(?::\d\d)?[.,]\d{3} --> ")
_PROGRAMS = (
    *(".py", ".js", ".ts", ".jsx", ".tsx", ".sh", ".bash", ".bat", ".cmd", ".ps1", ".rb", ".go", ".rs", ".java"),
    *(".c", ".h", ".cpp", ".cs", ".php", ".sql", ".css"),
)
_DAY = r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}"
_HOUR = r"\d{1,2}:\d\d(?::\d\d)?(?:[ \u202f]?[AaPp]\.?[Mm]\.?)?"
_SAID = re.compile(
    rf"\[?{_DAY},? {_HOUR}\]?(?: -)? (?P<one>[^:\n]{{1,40}}): \S.*"
    rf"|(?:\*\*(?P<bold>[^*\n]{{1,40}})\*\*|(?P<dash>[^\W\d][\w .-]{{0,40}}?) —"
    r"|(?P<comma>[^\W\d][\w .-]{0,40}?),)[ \t]+"
    rf"\[?(?:(?:[Tt]oday|[Yy]esterday|{_DAY})(?: at)? )?{_HOUR}\]?"
    rf"|\[{_HOUR}\] (?P<square>[^\W\d][\w .,-]{{0,40}})"
    rf"|(?P<spaces>[^\W\d][\w .-]{{0,40}}?)[ \t]{{2,}}{_HOUR}"
    rf"|\[?(?:{_DAY},?[ T])?{_HOUR}\]?[ \t]+<[@+%~&! ]?(?P<nick>[^<>\s]{{1,40}})> \S.*"
)
"""A line of a chat that was saved: who said it, and when."""
_BEFORE_A_CHAT = 3
"""Lines in which its first one is looked for: some logs begin with a line of their own."""
_MOST_LINES = 5_000


def refusal(name: str, raw: bytes) -> MessageError | None:
    """Why a file is no task, with what to do instead; None if it may be one, or is a message that names its sender."""
    if declares_sender(raw):
        return None
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.split("\n")[:_MOST_LINES]
    looks = (
        _merge,
        _role,
        _template_of_issues,
        _unfilled,
        _without_text,
        _ticked,
        _headers_below,
        _two_headings,
        _only_headers,
        _chat,
    )
    for look in looks:
        if (found := look(lines)) is not None:
            break
    else:
        found = _no_work(name, lines) or _list(name, text, lines)
    if found is not None:
        found.path = name
    return found


def _merge(lines: list[str]) -> MessageError | None:
    """The marks of a merge, in their order, outside of code."""
    inside, unclosed = fenced(lines)
    found: list[int] = []
    for number, line in enumerate(lines):
        if (not inside[number] or unclosed is not None) and _MARKS[len(found)].match(line.rstrip()):
            found.append(number)
            if len(found) == len(_MARKS):
                first, last = found[0] + 1, found[-1] + 1
                problem = f"lines {first} to {last} hold the marks of a merge that was not finished"
                return MessageError("merge-marks", problem, "Keep one side, and send the file again.", line=first)
    return None


def _front_matter(lines: Sequence[str]) -> range:
    """The lines of the front matter; empty without any."""
    if lines[0].rstrip() == "---":
        for number, line in enumerate(lines[1:], 1):
            if line.rstrip() == "---":
                return range(1, number)
    return range(0)


def _keys(lines: Sequence[str]) -> set[str]:
    """The keys of the front matter."""
    return {spelled(found[1]) for number in _front_matter(lines) if (found := _KEY.match(lines[number]))}


def _role(lines: Sequence[str]) -> MessageError | None:
    """The definition of an agent or a skill, as coding harnesses keep them."""
    keys, header = _keys(lines), _front_matter(lines)
    told = next((line for line in lines[header.stop + 1 :] if line.strip() and not line.startswith("#")), "")
    said = ", ".join(sorted(keys & (_ROLE | {"model"}))) or (
        "a text that says who it is" if _YOU_ARE.match(told) else ""
    )
    if {"name", "description"} <= keys and said:
        problem = f"it defines an agent and no task: its front matter has name, description and {said}"
        hint = "Put it where your harness looks for agents. To give work, send a file without these keys."
        return MessageError("agent-definition", problem, hint)
    return None


def _template_of_issues(lines: Sequence[str]) -> MessageError | None:
    """A template for issues, or the form for them, of GitHub and those who follow it."""
    keys = _keys(lines)
    if {"name", "about"} <= keys or _is_form(lines):
        problem = "it is a template for issues and no issue"
        return MessageError("unfilled", problem, "Send what is to be done, in your own words.", line=1)
    return None


def _is_form(lines: Sequence[str]) -> bool:
    """Whether it is YAML with the fields of a form, or says which forms there are."""
    rows = [line.rstrip() for line in lines if line.strip() and not line.startswith("#")]
    rows = rows[1:] if rows and rows[0] == "---" else rows
    if not rows or not _KEY.match(rows[0]):
        return False
    keys = {spelled(found[1]) for row in rows if (found := _KEY.match(row))}
    has_fields = {"name", "description", "body"} <= keys and any(map(_FIELD.fullmatch, rows))
    return has_fields or ("blank_issues_enabled" in keys and keys <= {"blank_issues_enabled", "contact_links"})


def _unfilled(lines: Sequence[str]) -> MessageError | None:
    """A place of a template that was not filled in, in the front matter or the title."""
    header = _front_matter(lines)
    title = next((n for n in range(header.stop + bool(header), len(lines)) if lines[n].strip()), None)
    for number in (*header, *([title] if title is not None and lines[title].startswith("#") else [])):
        value = _UNFILLED_VALUE.fullmatch(lines[number]) if number in header else None
        if place := (value["place"] if value else "") or (_UNFILLED.search(lines[number]) or [""])[0]:
            problem = f"{excerpt(place)} is a place in a template that was not filled in"
            return MessageError("unfilled", problem, f"Write line {number + 1} with its value.", line=number + 1)
    return _unfilled_text(lines, header.stop + bool(header))


def _unfilled_text(lines: Sequence[str], start: int) -> MessageError | None:
    """A text that only says what belongs into it."""
    body = _with_comments_read("\n".join(lines[start:])).split("\n")
    headings = [found[2].rstrip(" #:") for line in body if (found := _HEADING.match(line))]
    is_request = not _OF_REQUESTS.isdisjoint(map(spelled, headings))
    has_title = bool(headings) and spelled(headings[0]) not in _SECTIONS and not _TITLE.fullmatch(headings[0])
    place = ""
    bracketed = sum(1 for line in body if _IN_BRACKETS.fullmatch(_said_in(line)))
    for line in body:
        heading, said = _HEADING.match(line), _said_in(line)
        if bracketed > 1 and _IN_BRACKETS.fullmatch(said):
            place = place or said
            continue
        if _is_place(said) or _is_place(_LABEL.sub("", said, 1)):
            place = place or ("" if has_title and _SAYS_LITTLE.fullmatch(said) else said)
        elif not heading and not _EMPTY.fullmatch(line) and not (is_request and _BOX.fullmatch(line)):
            return None
    if not place:
        return None
    bare = place.strip("[]")
    number = next((number for number, line in enumerate(lines[start:], start + 1) if bare in line), start + 1)
    problem = f"{excerpt(place)} and the rest only say what belongs there: it is a template that was not filled in"
    return MessageError("unfilled", problem, "Write what is to be done, and send the file again.", line=number)


def _said_in(line: str) -> str:
    """A line without the mark of a heading or an item."""
    heading = _HEADING.match(line)
    return (heading[2] if heading else _MARK_OF_ITEM.sub("", line, 1)).strip()


def _with_comments_read(text: str) -> str:
    """The text without its comments, but with those that say what belongs there."""
    first, *rest = text.split("<!--")
    kept = [first]
    for part in rest:
        comment, end, after = part.partition("-->")
        place = f"[{comment.strip()}]"
        kept += [place if end and _PLACEHOLDER.fullmatch(place) else "", after if end else part]
    return "".join(kept)


def _is_place(text: str) -> bool:
    angles = _IN_ANGLES.fullmatch(text)
    named = angles is not None and (" " in angles[1].strip() or spelled(angles[1]) in _SECTIONS)
    return named or any(one.fullmatch(text) for one in (_PLACEHOLDER, _ITALIC)) or _ASKS.match(text) is not None


def _without_text(lines: Sequence[str]) -> MessageError | None:
    """Headings, and nothing below them."""
    header = _front_matter(lines)
    body = lines[header.stop + bool(header) :]
    said = [line for line in body if line.strip()]
    headings = [found for line in said if (found := _HEADING.match(line))]
    if len(said) < 2 or len(headings) < 2 or not all(map(_EMPTY.fullmatch, said)):
        return None
    titles = [found[2].strip() for found in headings]
    named = [title for title in titles if spelled(title.rstrip(":")) not in _SECTIONS and not _TITLE.fullmatch(title)]
    asks = any(line.lstrip().startswith("<!--") for line in said)
    if len(named) > 1 and not asks:  # an outline of its own headings may say enough
        return None
    problem = f"there is no text below the headings {', '.join(excerpt(title) for title in titles[:4])}"
    return MessageError("no-text", problem, "Write what has to be done below them, and send the file again.")


def _ticked(lines: Sequence[str]) -> MessageError | None:
    """A list of which each item is ticked, and nothing else."""
    header = _front_matter(lines)
    said = [line.rstrip() for line in lines[header.stop + bool(header) :] if line.strip()]
    items = [line for line in said if _TICKED.fullmatch(line)]
    headings = [found[2] for line in said if (found := _HEADING.match(line))]
    if not items or len(items) + len(headings) < len(said) or not CRITERIA.isdisjoint(map(spelled, headings)):
        return None
    problem = f"each of its {len(items)} items is ticked, so nothing is left to do"
    return MessageError("not-open", problem, "Untick what is to be done, and send the file again.")


def _headers_below(lines: Sequence[str]) -> MessageError | None:
    """Headers between two lines `---` that do not stand at the start."""
    header = _front_matter(lines)
    start = header.stop + bool(header)
    if not any(map(_DASHES.fullmatch, lines[start:])):
        return None
    inside, _ = fenced(list(lines))
    rules = [number for number in range(start, len(lines)) if _DASHES.fullmatch(lines[number]) and not inside[number]]
    for first, last in pairwise(rules):
        rows = [row.strip() for row in lines[first + 1 : last]]
        names = [KEYS.get(name, name) for row in rows if (found := _KEY.match(row)) and (name := spelled(found[1]))]
        if not names or len(names) < len(rows) or _OF_TASKS.isdisjoint(names):
            continue
        line = first + 1
        if header:
            problem, hint = f"there are two tasks in it: the second begins in line {line}", "Send one file for each."
            return MessageError("list-of-tasks", problem, hint, line=line)
        if any(row.strip() for row in lines[:first]):
            problem = f"the headers between two lines `---` begin in line {line}, below other text"
            return MessageError("no-frontmatter", problem, "Move them to the very start of the file.", line=line)
        if lines[first].rstrip() != "---":
            problem = f"the lines around the headers are not `---`, but {excerpt(lines[first].rstrip())}"
            hint = "Write two lines `---`, and nothing before them."
            return MessageError("no-frontmatter", problem, hint, line=line)
    return None


def _two_headings(lines: Sequence[str]) -> MessageError | None:
    """Two titles `# Task: ...`."""
    inside, _ = fenced(list(lines))
    titles = [number for number, line in enumerate(lines, 1) if _TASK.match(line) and not inside[number - 1]]
    if len(titles) < 2:
        return None
    problem = f"there are two tasks in it: the second begins in line {titles[1]}"
    return MessageError("list-of-tasks", problem, "Send one file for each.", line=titles[1])


def _only_headers(lines: Sequence[str]) -> MessageError | None:
    """A file that is one mapping of headers without their lines `---`."""
    if _front_matter(lines) or not _KEY.match(next(filter(str.strip, lines), "")):
        return None
    try:
        value = load("\n".join(lines), path="", max_events=5_000).value
    except MessageError:
        return None
    names = {KEYS.get(word, word) for word in map(spelled, value)} if isinstance(value, dict) else set()
    if len(names & _OF_TASKS) < 2 or not names & {"title", "description", "goal"}:
        return None
    problem = "all of it is headers, without the two lines `---` around them"
    return MessageError("no-frontmatter", problem, "Write them, and below them what is to be done.", line=1)


def _chat(lines: Sequence[str]) -> MessageError | None:
    """What several people said to each other, as messengers save it."""
    if not any(map(_SAID.fullmatch, islice(filter(None, map(str.strip, lines)), _BEFORE_A_CHAT))):
        return None
    rows = [_SAID.fullmatch(line.strip()) for line in lines]
    # without a text behind it or below it, it is a table of times
    below = [bool(line.strip()) and row is None for line, row in zip(lines, rows, strict=True)][1:]
    said = [row for row, has_text in zip_longest(rows, below) if row and (row["one"] or row["nick"] or has_text)]
    if len(said) < 2:
        return None
    people = dict.fromkeys((found[found.lastgroup or 0]).strip() for found in said)
    problem = f"this is a chat that was saved, with {', '.join(map(excerpt, list(people)[:4]))}"
    return MessageError("no-frontmatter", problem, "Write what is to be done in your own words.", line=1)


def _no_work(name: str, lines: Sequence[str]) -> MessageError | None:
    """A diff, a program, subtitles or a log, which says nothing of what is to be done with it."""
    rows = [line for line in lines if line.strip()]
    if not rows or _front_matter(lines):
        return None
    logged = sum(1 for row in rows if _OF_A_LOG.match(row))
    what = (
        "a diff"
        if _DIFF.match("\n".join(rows[:2]))
        else "a program"
        if rows[0].startswith("#!") or name.lower().endswith(_PROGRAMS)
        else "a file of subtitles"
        if any(map(_CUE.search, rows[:_BEFORE_A_CHAT]))
        else "a log"
        if name.lower().endswith(".log") or (logged > 1 and logged * 2 >= len(rows))
        else ""
    )
    hint = "Write what is to be done with it, and put it beside the work as a file that you name."
    return MessageError("no-work", f"it is {what}, and no task", hint, line=1) if what else None


def _list(name: str, text: str, lines: Sequence[str]) -> MessageError | None:
    """Tasks of another tool: a table as CSV, objects as JSON lines or in an array, XML, a calendar."""
    lower = name.lower()
    if format_ := _FORMAT.match(text):
        problem = f"it begins with {excerpt(format_[0].strip())}: this is an export of another tool, and no task"
        hint = "Write what is to be done with it, and name the file; or send one file for each task in it."
        return MessageError("list-of-tasks", problem, hint, line=1)
    rows = [line for line in lines if line.strip()]
    if len(rows) > 1 and (columns := _columns(rows, is_table=lower.endswith((".csv", ".tsv")))):
        problem = f"this is a table with the columns {', '.join(map(excerpt, columns[:8]))}, and no task"
        hint = "Write it as a plan (`subtasks:`, an entry for each row), or as one file for each row."
        return MessageError("list-of-tasks", problem, hint, line=1)
    if (objects := _objects(text, rows)) is None:
        return None
    done = sum(1 for one in objects if spelled(str(one.get("status", ""))) in CLOSED)
    count = f"{len(objects)} object{'s' * (len(objects) != 1)}"
    problem = f"these are {count} of a tracker as JSON" + (f", {done} of them done" if done else "") + ", and no task"
    hint = "docs/migrating.md has the script that makes a plan of them; or send one file for each."
    return MessageError("list-of-tasks", problem, hint, line=1)


def _columns(rows: Sequence[str], *, is_table: bool) -> list[str]:
    """The columns of a table, if all rows have as many, and its first names at least two things of a task."""
    for mark in (",", ";", "\t"):
        columns = [cell.strip().strip('"') for cell in rows[0].split(mark)]
        if len(columns) < 2:
            continue
        even = is_table or all(row.count(mark) >= len(columns) - 1 for row in rows)
        if even and (is_table or sum(spelled(cell) in KEYS for cell in columns) >= 2) and max(map(len, columns)) <= 40:
            return columns
    return []


def _objects(text: str, rows: Sequence[str]) -> list[dict[str, object]] | None:
    """The objects of a list of tasks, each with a title; None if the text is none."""
    first = rows[0].lstrip()[:1] if rows else ""
    try:
        found = json.loads(text) if first == "[" else list(map(json.loads, rows)) if first == "{" else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        return None
    if first == "{" and len(found) == 1 and "id" not in found[0]:
        return None  # one object can be a message
    titled = all(any(KEYS.get(spelled(key)) in ("title", "description") for key in one) for one in found)
    return found if titled else None
