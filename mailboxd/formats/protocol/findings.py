"""The findings of a review, wherever they stand: in a header, in YAML or JSON, in a table, in the items of a list.

Severities and the names of the parts are taken in the words of the field (`protocol.words`). What cannot be read is
added to the `problems` of the review, each a paragraph that says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mailboxd.core.model import Finding
from mailboxd.core.sanitize import excerpt, storable_text
from mailboxd.core.tables import cells, is_rule
from mailboxd.errors import MessageError
from mailboxd.formats.protocol import ballots, words
from mailboxd.formats.protocol.strict_yaml import Yaml, load

MAX_LINE = 10_000_000
HEADINGS = frozenset(
    {"findings", "finding", "issues", "problems", "remarks", "comments", "required_changes", "changes", "nits"}
)
"""Headings of the section with a review's findings."""
MAX_LINES = 5_000
"""Lines of findings that are read."""
_LONGEST_TAIL = 300
_FINDING = "`- severity: major` with `message:` below (optional: `file:`, `line:`)"
_FINDING_KEYS = {
    **dict.fromkeys(
        ("message", "finding", "issue", "problem", "description", "text", "comment", "title", "what"), "message"
    ),
    **dict.fromkeys(("details", "detail", "explanation", "note", "remark", "summary", "error"), "message"),
    **dict.fromkeys(("fix", "suggestion", "suggested_fix", "recommendation", "how_to_fix", "change"), "fix"),
    **dict.fromkeys(("file", "path", "filename", "file_path", "location", "where"), "file"),
    **dict.fromkeys(("line", "lines", "line_number", "lineno", "row"), "line"),
    **dict.fromkeys(("artifact_uri", "artifact", "uri", "url"), "artifact_uri"),
    **dict.fromkeys(("severity", "level", "priority", "importance", "kind", "category"), "severity"),
}
_WORD = r"[A-Za-z][A-Za-z_ -]{1,20}?"
_ITEM = re.compile(r"^[ \t]{0,3}(?:[-*+\u2022][ \t]+|\d{1,3}[.)][ \t]+)(.*)$")
_LEAD_SEVERITY = re.compile(
    rf"\A[*_`\[(]{{0,3}}({_WORD})[*_`\])]{{0,3}}[ \t]*(?::|-|\u2013|\u2014|\)|\]|\*\*)[*_]{{0,2}}[ \t]*(.*)\Z",
    re.DOTALL,
)
_TAIL_SEVERITY = re.compile(rf"[ \t]*[(\[](?:severity:[ \t]*)?({_WORD})[)\]][.]?\Z", re.IGNORECASE)
_GROUP = re.compile(r"\A(?:#{1,6}[ \t]+)?[*_]{0,3}([^:*_]{2,60}?):?[*_]{0,3}:?\Z")
_PLACE = re.compile(
    r"\A[`(]*([\w./-]{1,200}\.[A-Za-z0-9]{1,8})(?::|,? line |#L)(\d{1,8})[`)]*[ \t]*(?::|-|\u2013|\u2014)?[ "
    r"\t]*(.*)\Z",
    re.DOTALL,
)
_PLACE_BEHIND = re.compile(
    r"[ \t]+(?:[-\u2013\u2014][ \t]*|\(|\[|in |at )?`?([\w./-]{1,200}\.[A-Za-z0-9]{1,8})"
    r"(?::|,? line |#L)(\d{1,8})`?[)\]]?\.?\Z"
)
_FILE_AND_LINE = re.compile(r"(.*?[^:\d])(?::(\d{1,8})(?:-\d{1,8})?)(?::\d{1,8}(?:-\d{1,8})?)*", re.DOTALL)
"""`fees.md:3`, also with the column."""
_QUOTED = "` \t\n"
_ROW = re.compile(r"^[ \t]*\|.*\|[ \t]*$")
_OPENS = re.compile(r"^(?:```|~~~)[ \t]*+(?:ya?ml|json)?[ \t]*+\n", re.MULTILINE)
_CLOSES = re.compile(r"^(?:```|~~~)[ \t]*+$", re.MULTILINE)
_NONE = frozenset(
    {
        "",
        "none",
        "no",
        "no_findings",
        "none_found",
        "n/a",
        "na",
        "nothing",
        "no_issues",
        "no_issues_found",
        "[]",
        "no_remarks",
    }
)
_KEYED = re.compile(r"[\"'*]{0,3}\w{2,20}[\"'*]{0,3}[ \t]*:[^\n]*\n")
"""The first line of an item that may have keys."""
_LISTED = re.compile(r"\s*(?:\[|-[ \t]+[\"']?\w+[\"']?[ \t]*:[ \t])")
_NOTHING = re.compile(
    r"(?:(?:there (?:is|are|were)|i (?:found|have|see)|we found|it has) )?(?:nothing|none|no (?:further |more |other |"
    r"major |open |remaining )*(?:change|finding|issue|problem|remark|correction|comment|error|mistake|concern|"
    r"action)s?)"
    r"(?: (?:is|are|was|were|has|have|needs?|had))?(?: (?:to|be|been|found|needed|required|necessary|requested|"
    r"identified|"
    r"change|changed|correct|corrected|fix|fixed|report|reported|add|remark|here|at all|wrong|missing|left|do|made))*"
    r"|(?:everything|all|it|this|the work)(?: \w+)? (?:is|was|looks?|seems?) (?:\w+ )?(?:fine|good|ok|okay|correct|"
    r"right|in order|"
    r"perfect|well)|all good|looks good(?: to me)?|keine?(?: \w+)?|nichts(?: zu (?:ändern|beanstanden))?|aucune?(?: "
    r"\w+)?|"
    r"rien(?: à (?:changer|signaler|modifier))?|ningun[oa]?|ninguna?(?: \w+)?|nada(?: que \w+)?|nenhuma?(?: \w+)?|"
    r"nessuna?|"
    r"нет|无|沒有|没有|无需修改|没有问题|なし|特になし|없음"
)
"""Sentences that say so."""
_FINDINGS_WORDS = frozenset(
    {"findings", "finding", "issues", "problems", "errors", "mistakes", "faults", "bugs", "must_fix", "to_fix", "fix"}
    | {"required_changes", "changes_required", "changes_needed", "changes", "required", "what_to_change", "to_change"}
    | {"changes_requested", "request_changes", "needs_work", "to_do", "todo", "concerns", "blockers", "please_fix"}
)
_REMARKS = frozenset(
    {"nits", "nit", "nitpicks", "minor", "suggestions", "remarks", "comments", "notes", "optional", "minor_remarks"}
    | {"minor_issues", "small_things", "non_blocking", "minor_comments", "minor_suggestions", "small_remarks"}
)
WITH_NITS = re.compile(
    r"(?:with|,? apart from|,? except for)(?: \w+){0,2} (?:nits?|nitpicks?|minor \w+|small \w+|comments?|"
    r"remarks?|suggestions?|notes?)",
    re.IGNORECASE,
)


def in_text(text: str, problems: list[str], verdict: str = "") -> tuple[Finding, ...]:
    """The findings in the text of a section, or of a whole review whose `verdict` is given: its own items count then
    only if they have a severity, or if changes are requested.
    """
    if not text.strip():
        return ()
    if text.count("\n") > MAX_LINES:
        problems.append(f"The findings have more than {MAX_LINES:,} lines. Name the most important ones.")
        return ()
    opening = _OPENS.search(text)
    closing = _CLOSES.search(text, opening.end()) if opening else None
    if opening and closing:
        return _from_yaml(text[opening.end() : closing.start()], problems)
    if _LISTED.match(text) and (listed := _mappings(text)):
        return _from_list(listed, problems)
    return tuple(_from_table(text, problems)) or tuple(_from_items(text, verdict, problems))


def in_header(value: Yaml, problems: list[str]) -> tuple[Finding, ...]:
    """The findings in a value of YAML or JSON: a list, one mapping, or a text."""
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, str):
        return in_text(value, problems)
    return _from_list(value, problems)


def _from_yaml(text: str, problems: list[str]) -> tuple[Finding, ...]:
    try:
        value = load(text, path="findings", max_events=20_000).value
    except MessageError as error:
        problems.append(f"The findings are not valid YAML ({error.problem}). Write each as {_FINDING}.")
        return ()
    if isinstance(value, dict):
        whole: list[Yaml] = [value]
        value = next((item for key, item in value.items() if words.KEYS.get(words.spelled(key)) == "findings"), whole)
    if isinstance(value, str):
        return () if is_none(value) else tuple(_from_items(text, "", problems))
    return _from_list(value if isinstance(value, list) else [value], problems)


def _mappings(text: str) -> list[Yaml] | None:
    try:
        value = load(text, path="findings", max_events=20_000).value
    except MessageError:
        return None
    return value if isinstance(value, list) else None


def _mapping(text: str) -> Mapping[str, Yaml]:
    """The item of a list that has keys like `severity:` and a message; empty if it is prose."""
    try:
        value = load(text, path="findings", max_events=1_000).value
    except MessageError:
        return {}
    names = {_FINDING_KEYS.get(words.spelled(key), "") for key in value} if isinstance(value, dict) else set()
    return value if isinstance(value, dict) and names & {"message", "fix"} and len(names) > 1 else {}


def _from_list(items: list[Yaml], problems: list[str]) -> tuple[Finding, ...]:
    found = []
    for item in items:
        if isinstance(item, dict):
            if (finding := _of_mapping(item, problems)) and not is_none(finding.message):
                found.append(finding)
        elif isinstance(item, list):
            problems.append(f"A finding is a list: {excerpt(str(item), 120)}. Write each as {_FINDING}.")
        elif not is_none(item):
            found.append(_of_text(item, "minor"))
    return tuple(found)


def _of_mapping(item: Mapping[str, Yaml], problems: list[str]) -> Finding | None:
    values: dict[str, str] = {}
    for key, value in item.items():
        name = _FINDING_KEYS.get(words.spelled(key), "")
        if name and isinstance(value, str) and value.strip():
            values[name] = (
                f"{values[name]}: {value}" if name == "message" and name in values else values.get(name, value)
            )
    if len(item) == 1 and "message" not in values:  # `- major: The amount is wrong`
        ((key, value),) = item.items()
        if isinstance(value, str) and (severity := _severity(key)):
            values = {"severity": severity, "message": value}
    if not values.get("message") and not values.get("fix"):
        problems.append(f"A finding has no message: {excerpt(str(dict(item)), 120)}. Write each as {_FINDING}.")
        return None
    return _finding(values, problems)


def _finding(values: Mapping[str, str], problems: list[str]) -> Finding:
    said = values.get("severity", "minor")
    severity = _severity(said)
    if not severity:
        problems.append(
            f"`severity: {said[:60]}` is not known. Write `severity: critical`, `severity: major` or `severity: minor`."
        )
    message = ". ".join(
        filter(None, [values.get("message", "").strip().removesuffix("."), values.get("fix", "").strip()])
    )
    if not values.get("fix"):
        message = values.get("message", "").strip()
    file, line = values.get("file", "").strip(_QUOTED), re.match(r"\D{0,8}(\d{1,8})", values.get("line", ""))
    if place := _FILE_AND_LINE.fullmatch(file):
        file, line = place[1].strip(_QUOTED), line or re.match(r"(\d+)", place[2])
    number = int(line[1]) if line and 1 <= int(line[1]) <= MAX_LINE else None
    uri = values.get("artifact_uri", "").strip()
    file = "" if words.spelled(file) in _NONE or file in ("-", "\u2013", "\u2014") else file
    return Finding(
        severity or "major", storable_text(message), storable_text(file) or None, number, storable_text(uri) or None
    )


def _severity(word: str) -> str:
    name = words.spelled(word.strip(" *_`[]()!.:\"'"))
    name = "".join(letter for letter in name if not ballots.is_symbol(letter)).strip(" _")
    return words.SEVERITIES.get(name) or words.SEVERITIES.get(name.removesuffix("s"), "")


def _of_text(text: str, severity: str) -> Finding:
    """A finding in a line of prose: `**Major**: ...`, `... (minor)`, `file.md:3: ...`."""
    text = text.strip()
    lead = _LEAD_SEVERITY.match(text)
    if lead and (said := _severity(lead[1])):
        severity, text = said, lead[2].strip()
    elif (tail := _at_the_end(_TAIL_SEVERITY, text)) and (said := _severity(tail[1])):
        severity, text = said, text[: tail.start()].strip()
    file, line = None, None
    if behind := _at_the_end(_PLACE_BEHIND, text):
        number = int(behind[2])
        if 1 <= number <= MAX_LINE and behind.start() > 0:
            file, line, text = behind[1], number, text[: behind.start()].rstrip()
    elif place := _PLACE.match(text):
        number = int(place[2])
        if 1 <= number <= MAX_LINE and place[3].strip():
            file, line, text = place[1], number, place[3].strip()
    return Finding(severity, storable_text(text), file, line)


def _at_the_end(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """What matches up to the end. It is short, and a search from the front would cost the square of the length."""
    return pattern.search(text, max(len(text) - _LONGEST_TAIL, 0))


def _from_table(text: str, problems: list[str]) -> Iterator[Finding]:
    columns: list[str] = []
    for line in text.split("\n"):
        if not _ROW.match(line):
            columns = []
            continue
        row = cells(line)
        if not columns:
            names = [_FINDING_KEYS.get(words.spelled(cell.strip("* ")), "") for cell in row]
            if "message" in names or "fix" in names or "severity" in names:
                columns = names
            continue
        if is_rule(line):
            continue
        values: dict[str, str] = {}
        for name, cell in zip(columns, row, strict=False):
            if name and cell and cell not in ("-", "\u2013", "\u2014") and name not in values:
                values[name] = cell
        if "message" in values or "fix" in values:
            yield _finding(values, problems)


def _from_items(text: str, verdict: str, problems: list[str]) -> Iterator[Finding]:
    """The items of lists. Without a severity, there or above them, they are findings where changes are asked for."""
    with_nits = WITH_NITS.search(text.strip().partition("\n")[0]) is not None
    group, is_group, inside = "minor" if with_nits else "", with_nits, False
    found: list[tuple[str, str]] = []
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            inside = not inside
        if inside:
            continue
        item = _ITEM.match(line)
        if item:
            body = item[1].strip()
            own = _LEAD_SEVERITY.match(body)
            tail = _at_the_end(_TAIL_SEVERITY, body)
            marked = bool((own and _severity(own[1])) or (tail and _severity(tail[1])))
            if is_none(body):
                continue
            if marked or is_group or verdict == "changes_requested" or not verdict:
                found.append((body, group))
        elif found and line.startswith(("  ", "\t")) and line.strip():
            body, kind = found.pop()
            found.append((f"{body}\n{line.strip()}", kind))
        elif line.strip():
            heading = _GROUP.match(line.strip())
            name = words.spelled(heading[1].strip(" *_")) if heading else ""
            name = re.sub(r"_?\(?\d+\)?$", "", name)
            first = name.split("_")[0]
            if (
                name in _REMARKS
                or name in _FINDINGS_WORDS
                or _severity(first)
                or (heading and line.strip().endswith(":") and first in _FINDINGS_WORDS)
            ):
                is_group = True
                group = "minor" if name in _REMARKS else _severity(first)
            elif line.lstrip().startswith("#") or line.rstrip().endswith((":", ":**")):
                is_group, group = False, ""
            lead = _LEAD_SEVERITY.match(line.strip())
            if lead and lead[2].strip() and _severity(lead[1]):
                found.append((line.strip(), ""))
    if not verdict and not any(_ITEM.match(line) for line in text.split("\n")):
        found = [pair for pair in found if pair[0]]
    fallback = "major" if verdict == "changes_requested" else "minor"
    for body, kind in found:
        if _KEYED.match(body) and (keyed := _mapping(body)) and (finding := _of_mapping(keyed, problems)):
            yield finding
            continue
        severity = kind or (fallback if verdict != "approved" or kind else _unsorted(is_group))
        yield _of_text(body, severity)


def _unsorted(is_group: bool) -> str:
    """The severity of what an approval lists as issues without one: it stops, so that it is asked about."""
    return "major" if is_group else "minor"


# The text around them


def is_none(text: str) -> bool:
    """Whether a text says that there are none."""
    bare = text.strip(" .!-*_\n")
    if words.spelled(bare) in _NONE or _NOTHING.fullmatch(bare.casefold()):
        return True
    listed = _mappings(text) if _LISTED.match(text) else None
    return bool(listed) and not _from_list(listed or [], [])


def is_heading(line: str) -> bool:
    """Whether a line does nothing but call what follows findings."""
    group = _GROUP.match(line.strip())
    return group is not None and _is_group(words.spelled(group[1].strip(" *_")))


def above(text: str) -> str:
    """The text above its findings, which are told on their own."""
    lines: list[str] = []
    for line in text.strip().split("\n"):
        if _ITEM.match(line) or _ROW.match(line) or (lines and is_heading(line)):
            break
        lines.append(line)
    return "\n".join(lines).strip() or text.strip().partition("\n")[0]


def _is_group(name: str) -> bool:
    return name in _REMARKS or name in _FINDINGS_WORDS or bool(_severity(name.split("_")[0]))
