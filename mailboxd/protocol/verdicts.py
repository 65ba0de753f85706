"""The reading of a review: verdict and findings in a form, in JSON, or in prose.

Verdicts and severities are taken in the words of `protocol.words`. A verdict counts where it stands: in its header, or
first or last by itself in the text. One that contradicts its findings, has a condition, or asks for changes and names
none is no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mailboxd.core.model import Finding
from mailboxd.core.outcomes import Answer, Reviewed, Unclear
from mailboxd.core.reviews import contradiction
from mailboxd.core.sanitize import excerpt, storable_text
from mailboxd.core.vocabulary import Verdict
from mailboxd.errors import MessageError
from mailboxd.protocol import ballots, words
from mailboxd.protocol.forms import Form
from mailboxd.protocol.headers import MAX_LINE
from mailboxd.protocol.strict_yaml import Yaml, load

FORM = (
    "`---`, `type: review`, `verdict: approved` (or `changes_requested`, `blocked`), `---`, `## Summary`, `## Findings`"
)
_CHANGES_NONE = (
    "The verdict is `changes_requested`, but no finding says what to change. Write at least one under `## Findings`: "
    "`- severity: major`, and indented below it `message: what is wrong and how to fix it`. If nothing has "
    "to change, write "
    "`verdict: approved`."
)
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
_ROW = re.compile(r"^[ \t]*\|(.*)\|[ \t]*$")
_FENCE = re.compile(r"^(?:```|~~~)[ \t]*(?:ya?ml|json)?[ \t]*\n(.*?)^(?:```|~~~)[ \t]*$", re.MULTILINE | re.DOTALL)
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
_FINDINGS_WORDS = frozenset(
    {"findings", "finding", "issues", "problems", "errors", "mistakes", "faults", "bugs", "must_fix", "to_fix", "fix"}
    | {"required_changes", "changes_required", "changes_needed", "changes", "required", "what_to_change", "to_change"}
    | {"changes_requested", "request_changes", "needs_work", "to_do", "todo", "concerns", "blockers", "please_fix"}
)
_REMARKS = frozenset(
    {"nits", "nit", "nitpicks", "minor", "suggestions", "remarks", "comments", "notes", "optional", "minor_remarks"}
    | {"minor_issues", "small_things", "non_blocking", "minor_comments", "minor_suggestions", "small_remarks"}
)
_WITH_NITS = re.compile(
    r"(?:with|,? apart from|,? except for)(?: \w+){0,2} (?:nits?|nitpicks?|minor \w+|small \w+|comments?|"
    r"remarks?|suggestions?|notes?)",
    re.IGNORECASE,
)
_CONDITIONAL = re.compile(
    r"\b(?:but|once|after|unless|if|provided|conditional(?:ly)?|conditions?|partial(?:ly)?|almost|pending|except|"
    r"however|subject to)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\A(?:[Tt]he |[Mm]y |[Oo]ur )?(?:[Ff]inal |[Oo]verall )?(?:verdict|review result|review|decision|result|status|"
    r"recommendation|outcome|assessment|"
    r"conclusion|urteil|评审结果|结论)(?: is)?[ \t]*[:\uff1a=-]?[*_]{0,3}[ \t]*[:\uff1a]?[ \t]*",
    re.IGNORECASE,
)
_LOCAL = {
    **dict.fromkeys(
        (
            "genehmigt",
            "freigegeben",
            "approuvé",
            "aprobado",
            "aprovado",
            "通过",
            "批准",
            "承認",
        ),
        "approved",
    ),
    **dict.fromkeys(
        (
            "änderungen_erforderlich",
            "änderungen_nötig",
            "需要修改",
            "cambios_solicitados",
        ),
        "changes_requested",
    ),
    **dict.fromkeys(("blockiert", "bloqué", "bloqueado", "阻塞"), "blocked"),
}
"""Verdicts in other languages than English."""
_VERDICTS = {
    **words.VERDICTS,
    **_LOCAL,
    "ship_it": "approved",
    "rejected": "changes_requested",
    "reject": "changes_requested",
}
_PHRASES = sorted(_VERDICTS, key=lambda word: -len(word))
_GRAVE = re.compile(
    r"\b(?:must|has to|have to|needs? to) be (?:fixed|corrected|changed|revised)\b|"
    r"\b(?:critical|major|serious|severe|blocking) (?:flaw|issue|error|problem|mistake|fault|bug)s?\b",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:no|not|without|neither|nor|any|nothing)\b", re.IGNORECASE)
_DECLARED = re.compile(
    r"\A[ \t]*(?:#{1,6}[ \t]*|[-*][ \t]+)?[*_]{0,3}(?:final |overall |my )?"
    r"(?:verdict|decision|recommendation|review result|"
    r"评审结果|结论)[*_]{0,3}[ \t]*(?:[:\uff1a]|is\b|\Z)",
    re.IGNORECASE,
)
_GENERIC = re.compile(
    r"\A\W*(?:not yet|needs work|please (?:fix|revise|correct)(?: it| this| these)?|see (?:above|below)|some "
    r"changes are needed)\W*\Z",
    re.IGNORECASE,
)


def review_in(form: Form, findings_text: str, summary: str, loose: str, problems: list[str]) -> Answer:
    """The review in a form: its headers, the text of its findings, its summary, and the text that can be a finding.

    `problems` are those of its headers.
    """
    verdict, header = _verdict_of(form)
    if verdict == "" and header:
        problems.append(
            f"{_first_upper(form.quoted(header))}: this is no verdict. Write one of `verdict: approved`, "
            "`verdict: changes_requested`, `verdict: blocked`."
        )
    elif verdict == "":
        stated = _stated(summary)
        if stated in (None, ""):
            problems.append(f"The review has no verdict. Write it as a header: {FORM}.")
        verdict = stated or ""
    asks = "changes_requested" if verdict == "changes_requested" else ""
    found = _from_header(form, problems) if "findings" in form.headers else _findings(findings_text, problems, asks)
    if form.typed.get("findings") in (None, "", [], {}) and "findings" in form.typed:
        found = ()
    if verdict == "?":
        verdict = "changes_requested" if found else ""
        found, verdict = found, "changes_requested" if found else ""
        if not found:
            problems.append(
                f"{_first_upper(form.quoted(header))}: write `verdict: changes_requested` with a finding, "
                "or `verdict: blocked`."
            )
    prose = findings_text.strip() if not found and words.spelled(findings_text.strip(" .-*")) not in _NONE else ""
    if verdict == "changes_requested" and not found:
        if said := prose or ("" if form.typed else _loose(loose)):
            found, prose = (Finding("major", storable_text(said)),), ""
            summary = "" if said == summary.strip() else summary
        else:
            problems.append(_CHANGES_NONE)
    return _judged(verdict, "\n\n".join(filter(None, [summary.strip(), prose])), found, problems)


def review_in_prose(text: str) -> Answer:
    """The review in a text without a form."""
    problems: list[str] = []
    verdict = _stated(text)
    if verdict is None or verdict == "":
        shown = excerpt(text.strip().partition("\n")[0], 120)
        if verdict == "":
            why = f"The text {shown} states a verdict with a condition, or two verdicts, so it was taken for none."
        else:
            why = f"The text {shown} has no verdict: this is no review, and a new version of the work is not wanted."
        return Unclear((f"{why} Do not redo the work; judge it, in this form: {FORM}.",), text)
    found = _findings(text, problems, verdict=verdict)
    if verdict == "changes_requested" and not found:
        rest = _loose(_behind_verdict(text))
        if rest:
            return _judged(verdict, "", (Finding("major", storable_text(rest)),), problems)
        problems.append(_CHANGES_NONE)
    return _judged(verdict, _summary(text) if found else text.strip(), found, problems)


def _judged(verdict: str, summary: str, found: tuple[Finding, ...], problems: list[str]) -> Answer:
    if (
        verdict == "approved"
        and (grave := _GRAVE.search(summary))
        and not _DENIED.search(summary[: grave.start()][-24:])
    ):
        problems.append(
            f"The verdict is `approved`, but the text says {excerpt(grave[0])}. Write `verdict: changes_requested` "
            "with that as a finding, or approve without it."
        )
    if verdict and (why := contradiction(Verdict(verdict), found)):
        problems.append(
            f"{why[:1].upper()}{why[1:]}. Write `verdict: changes_requested`, or approve without it, or with "
            "`severity: minor` if it can stay as it is."
        )
    return Unclear(tuple(problems), "") if problems else Reviewed(Verdict(verdict), summary, found)


def _verdict_of(form: Form) -> tuple[str, str]:
    """The verdict in the headers, and the header that holds it. `?` is a plain no."""
    for name in ("verdict", "answer", "status", "results", "approved", "lgtm"):
        value = form.headers.get(name)
        if not isinstance(value, str) or not value.strip():
            continue
        word = form.word(name)
        if name in ("approved", "lgtm"):
            return {"true": "approved", "yes": "approved", "false": "?", "no": "?"}.get(word, ""), name
        found = _VERDICTS.get(word, "")
        if not found and name == "verdict":
            bare = _LABEL.sub("", value)
            found = _stated(bare) or ""
        if found or name == "verdict":
            return found, name
    return "", ""


def _stated(text: str) -> str | None:
    """The verdict that a text states first or last by itself; empty if it is none for sure, None if there is none."""
    lines = [line for line in text.split("\n") if any(map(str.isalnum, line))]
    if not lines:
        return None
    first = _at_the_start(lines[0])
    last = _at_the_start(lines[-1]) if len(lines) > 1 else None
    sentences = re.split(r"(?<=[.!])[ \t]+|(?<=[\u3002\uff01])", lines[-1].strip())
    if last is None and first is None:
        last = _alone(sentences[-1])
    found = [verdict for verdict in (first, last, *_declared(lines)) if verdict is not None]
    if not found:
        return None
    if "" in found or len(set(found)) > 1:
        return ""
    if found[0] == "approved" and _hedge(text):
        return ""
    return found[0]


def _declared(lines: list[str]) -> Iterator[str | None]:
    """The verdicts on lines, or below headings, that are called so."""
    inside = False
    for index, line in enumerate(lines):
        inside ^= line.lstrip().startswith(("```", "~~~"))
        if inside or not (label := _DECLARED.match(line)):
            continue
        rest = line[label.end() :].strip(" *_")
        value = rest or (lines[index + 1] if index + 1 < len(lines) else "")
        yield _at_the_start(value) or ""


def _bare(line: str) -> str:
    line = re.sub(r"\A[ \t]*(?:#{1,6}[ \t]+|>[ \t]*|[-*][ \t]+)?", "", line)
    line = line.replace("*", "").replace("`", "").replace("__", "").strip(" \t\"'\u201c\u201d")
    line = "".join(letter for letter in line if not ballots.is_symbol(letter)).strip()
    return _LABEL.sub("", line, count=1).strip(" \t_\"'") if _LABEL.match(line) else line


def _at_the_start(line: str) -> str | None:
    bare = _bare(line)
    folded = bare.casefold().replace("_", " ").replace("-", " ")
    for phrase in _PHRASES:
        word = phrase.replace("_", " ")
        if not folded.startswith(word):
            continue
        rest = bare[len(word) :]
        if not rest.strip(" .!"):
            return _VERDICTS[phrase]
        if with_nits := _WITH_NITS.match(rest.strip(" ,")):
            rest = rest.strip(" ,")[with_nits.end() :]
            return "" if _CONDITIONAL.match(rest.strip(" .,;:-")) else _VERDICTS[phrase]
        if re.match(r"[ \t]*(?:[.!;:,\u3002\uff01\uff0c\uff1a\u2014(]|[-\u2013][ \t])", rest):
            after = rest.strip(" .!;:,\u3002\uff01\uff0c\u2014-\u2013(")
            return "" if _CONDITIONAL.match(after) else _VERDICTS[phrase]
        if _CONDITIONAL.match(rest.strip()) or re.match(r"[ \t]+(?:and|or|with)\b", rest):
            return ""
        return None
    return None


def _alone(sentence: str) -> str | None:
    bare = re.sub(r"\A(?:I|We)(?:'d| would| will)?[ \t]+", "", _bare(sentence)).strip(" .!\u3002\uff01")
    bare = re.sub(r"[ \t]+(?:this|it|the work|this work|the result|this result|the spec|this spec)\Z", "", bare)
    bare = re.sub(
        r"\A(?:The|This)[ \t]+(?:\w+[ \t]+){0,2}(?:is|are)[ \t]+(?:hereby[ \t]+)?(?=approved|accepted|blocked)",
        "",
        bare,
    )
    return _VERDICTS.get(words.spelled(bare))


def _hedge(text: str) -> bool:
    """Whether the sentence after the verdict takes it back."""
    sentences = re.split(r"(?<=[.!])[ \t]+|\n+", text.strip())
    return any(
        re.match(r"\W*(?:but|however|only if|provided|unless|except)\b", part, re.IGNORECASE) for part in sentences[1:4]
    )


def _behind_verdict(text: str) -> str:
    """The text without the words that state the verdict."""
    lines = text.strip().split("\n")
    bare = _bare(lines[0])
    folded = bare.casefold().replace("_", " ").replace("-", " ")
    phrase = next((one.replace("_", " ") for one in _PHRASES if folded.startswith(one.replace("_", " "))), "")
    if phrase:
        return "\n".join([bare[len(phrase) :].strip(" .!;:,\u2014-\u2013"), *lines[1:]]).strip()
    return "\n".join(lines[:-1]).strip()


def _loose(text: str) -> str:
    """A text that names what to change, if it says more than that something has to."""
    text = text.strip()
    short = len(text.split()) < 4 and len(text) < (12 if text.isascii() else 4)
    return "" if _GENERIC.fullmatch(text) or short else text


def _summary(text: str) -> str:
    """The text above its findings, which are told on their own."""
    lines: list[str] = []
    for line in text.strip().split("\n"):
        group = _GROUP.match(line.strip()) if lines else None
        if _ITEM.match(line) or _ROW.match(line) or (group and _is_group(words.spelled(group[1].strip(" *_")))):
            break
        lines.append(line)
    return "\n".join(lines).strip() or text.strip().partition("\n")[0]


def _is_group(name: str) -> bool:
    return name in _REMARKS or name in _FINDINGS_WORDS or bool(_severity(name.split("_")[0]))


# Findings


def _findings(text: str, problems: list[str], verdict: str = "") -> tuple[Finding, ...]:
    if not text.strip():
        return ()
    if block := _FENCE.search(text):
        return _from_yaml(block[1], problems)
    if re.match(r"\s*(?:\[|-[ \t]+[\"']?\w+[\"']?[ \t]*:[ \t])", text) and (listed := _mappings(text)):
        return _from_list(listed, problems)
    return tuple(_from_table(text, problems)) or tuple(_from_items(text, verdict))


def _from_header(form: Form, problems: list[str]) -> tuple[Finding, ...]:
    value = form.headers["findings"]
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, str):
        return _findings(value, problems)
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
        return () if words.spelled(value) in _NONE else tuple(_from_items(text, ""))
    return _from_list(value if isinstance(value, list) else [value], problems)


_FINDING = "`- severity: major` with `message:` below (optional: `file:`, `line:`)"


def _mappings(text: str) -> list[Yaml] | None:
    try:
        value = load(text, path="findings", max_events=20_000).value
    except MessageError:
        return None
    return value if isinstance(value, list) else None


def _from_list(items: list[Yaml], problems: list[str]) -> tuple[Finding, ...]:
    found = []
    for item in items:
        if isinstance(item, dict):
            if finding := _of_mapping(item, problems):
                found.append(finding)
        elif isinstance(item, str) and words.spelled(item) not in _NONE:
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
    file, line = values.get("file", "").strip().strip("`"), re.match(r"\D{0,8}(\d{1,8})", values.get("line", ""))
    if file and (place := re.fullmatch(r"(.+?):(\d{1,8})(?:-\d+)?", file)):
        file, line = place[1], line or re.match(r"(\d+)", place[2])
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
    elif (tail := _TAIL_SEVERITY.search(text)) and (said := _severity(tail[1])):
        severity, text = said, text[: tail.start()].strip()
    file, line = None, None
    if behind := _PLACE_BEHIND.search(text):
        number = int(behind[2])
        if 1 <= number <= MAX_LINE and behind.start() > 0:
            file, line, text = behind[1], number, text[: behind.start()].rstrip()
    elif place := _PLACE.match(text):
        number = int(place[2])
        if 1 <= number <= MAX_LINE and place[3].strip():
            file, line, text = place[1], number, place[3].strip()
    return Finding(severity, storable_text(text), file, line)


def _from_table(text: str, problems: list[str]) -> Iterator[Finding]:
    columns: list[str] = []
    for row in text.split("\n"):
        found = _ROW.match(row)
        if found is None:
            columns = []
            continue
        cells = [cell.strip() for cell in found[1].replace("\\|", "\uff5c").split("|")]
        if not columns:
            names = [_FINDING_KEYS.get(words.spelled(cell.strip("* ")), "") for cell in cells]
            if "message" in names or "fix" in names or "severity" in names:
                columns = names
            continue
        if all(set(cell) <= set("-: ") for cell in cells):
            continue
        values: dict[str, str] = {}
        for name, cell in zip(columns, cells, strict=False):
            if name and cell and cell not in ("-", "\u2013", "\u2014") and name not in values:
                values[name] = cell.replace("\uff5c", "|")
        if "message" in values or "fix" in values:
            yield _finding(values, problems)


def _from_items(text: str, verdict: str) -> Iterator[Finding]:
    """The items of lists. Without a severity, there or above them, they are findings where changes are asked for."""
    with_nits = _WITH_NITS.search(text.strip().partition("\n")[0]) is not None
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
            tail = _TAIL_SEVERITY.search(body)
            marked = bool((own and _severity(own[1])) or (tail and _severity(tail[1])))
            if words.spelled(body.strip(" .*")) in _NONE:
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
        severity = kind or (fallback if verdict != "approved" or kind else _unsorted(is_group))
        yield _of_text(body, severity)


def _unsorted(is_group: bool) -> str:
    """The severity of what an approval lists as issues without one: it stops, so that it is asked about."""
    return "major" if is_group else "minor"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
