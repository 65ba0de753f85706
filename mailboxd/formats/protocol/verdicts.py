"""The reading of a review: its verdict, in a form, in JSON, or in prose, and whether its findings agree with it.

Verdicts and severities are taken in the words of `protocol.words`. A verdict counts where it stands: in its header, or
first or last by itself in the text. One that contradicts its findings, has a condition, or asks for changes and names
none is no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mailboxd.core.model import Finding
from mailboxd.core.outcomes import Answer, Reviewed, Unclear
from mailboxd.core.reviews import contradiction
from mailboxd.core.sanitize import excerpt, storable_text
from mailboxd.core.vocabulary import Verdict
from mailboxd.formats.protocol import ballots, findings, words
from mailboxd.formats.protocol.forms import Form

FORM = (
    "`---`, `type: review`, `verdict: approved` (or `changes_requested`, `blocked`), `---`, `## Summary`, `## Findings`"
)
_CHANGES_NONE = (
    "The verdict is `changes_requested`, but no finding says what to change. Write at least one under `## Findings`: "
    "`- severity: major`, and indented below it `message: what is wrong and how to fix it`. If nothing has "
    "to change, write "
    "`verdict: approved`."
)
_LABEL = re.compile(
    r"\A(?:[Tt]he |[Mm]y |[Oo]ur )?(?:[Ff]inal |[Oo]verall )?(?:verdict|review result|review|decision|result|status|"
    r"recommendation|outcome|assessment|"
    r"conclusion|urteil|评审结果|结论)(?: is)?[ \t]*[:\uff1a=-]?[*_]{0,3}[ \t]*[:\uff1a]?[ \t]*",
    re.IGNORECASE,
)
_LOCAL = {
    **dict.fromkeys(("genehmigt", "freigegeben", "approuvé", "aprobado", "aprovado", "approvato"), "approved"),
    **dict.fromkeys(("zatwierdzone", "schváleno", "одобрено", "схвалено", "затверджено", "onaylandı"), "approved"),
    **dict.fromkeys(("godkänd", "godkänt", "goedgekeurd", "स्वीकृत", "通过", "批准", "承認", "승인"), "approved"),
    **dict.fromkeys(
        ("änderungen_erforderlich", "änderungen_nötig", "cambios_solicitados", "需要修改"), "changes_requested"
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
_FILLERS = frozenset({"ok", "okay", "good", "great", "fine"})
"""Words that are a verdict alone, and begin any sentence before a comma."""
_PHRASES = sorted(_VERDICTS, key=lambda word: -len(word))
_GRAVE = re.compile(
    r"\b(?:must|has to|have to|needs? to) be (?:fixed|corrected|changed|revised)\b|"
    r"\b(?:critical|major|serious|severe|blocking) (?:flaw|issue|error|problem|mistake|fault|bug)s?\b",
    re.IGNORECASE,
)
_FAULT = re.compile(
    r"\b(?:(?:is|are|remains?) (?:still )?(?:wrong|missing|incorrect|incomplete|broken)|"
    r"(?:is|are) (?:still )?not (?:met|right|correct|fulfilled)|"
    r"(?:criterion|criteria|check|test|requirement|step|link|build|figure|total|sum)s?(?: \w+)? (?:still )?fails?|"
    r"(?:cannot|can't|can not|do not|don't|will not|won't) (?:approve|accept) (?:this|it|the))\b",
    re.IGNORECASE,
)
"""What a text says is wrong, at the time of the review."""
_IS_DENIED = re.compile(
    r"(?:false|no|nope|nein|non|never|not(?: yet)?|否|不)(?:\W*\Z|[ \t]*[.!;,:\u2014(]|[ \t]+[-\u2013][ \t])", re.I
)
"""What denies a verdict behind its mark: `approved: false`."""
_DENIED = re.compile(r"\b(?:no|not|without|neither|nor|any|nothing)\b", re.IGNORECASE)
_DECLARED = re.compile(
    r"\A[ \t]*(?:#{1,6}[ \t]*|[-*][ \t]+)?[*_]{0,3}(?:final |overall |my )?"
    r"(?:verdict|decision|recommendation|review result|"
    r"评审结果|结论)[*_]{0,3}[ \t]*(?:[:\uff1a]|is\b|\Z)",
    re.IGNORECASE,
)
_TAKES_BACK = re.compile(
    r"\W*(?:(?:but|however|only if|provided|unless|except|aber|jedoch|allerdings|mais|toutefois|cependant|pero|sin "
    r"embargo|"
    r"mas|porém|ma|però|tuttavia|maar|ale|jednak|но|однако)\b|但|不过|然而|ただし|しかし|다만|하지만)",
    re.IGNORECASE,
)
_CHECKED = re.compile(
    r"\A(?:(?:after|having|upon|on) (?:carefully |thoroughly )?(?:check|review|verify|read|examin|compar|test|evaluat|"
    r"inspect|assess|consider|careful|thorough|going)[^,.;]{0,120}|all (?:\w+ ){0,3}criteria (?:are|were|have been) "
    r"(?:met|fulfilled|satisfied)|therefore|thus|hence|overall|so|in conclusion|in summary|based on (?:this|that|the)"
    r"[^,.;]{0,60}|as all[^,.;]{0,80}|since all[^,.;]{0,80})(?:,? (?:so|and|hence|therefore)\b|,) *",
    re.IGNORECASE,
)
"""What may stand before the verdict in its sentence: that it was looked at, or that it follows."""
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
            f"{_first_upper(form.quoted(header))}: this is not a verdict. Write one of `verdict: approved`, "
            "`verdict: changes_requested`, `verdict: blocked`."
        )
    elif verdict == "":
        stated = _stated(summary)
        if stated in (None, ""):
            problems.append(f"The review has no verdict. Write it as a header: {FORM}.")
        verdict = stated or ""
    elif verdict == "approved" and _stated(summary) not in (None, verdict):
        said = excerpt(summary.strip().partition("\n")[0], 120)
        problems.append(
            f"The verdict is `approved`, but the text says {said}. Write the one that you mean, without a condition."
        )
    asks = "changes_requested" if verdict == "changes_requested" else ""
    if "findings" in form.headers:
        found = findings.in_header(form.headers["findings"], problems)
    else:
        found = findings.in_text(findings_text, problems, asks)
        if verdict == "approved" and not findings_text.strip():  # they may stand without a heading
            found = findings.in_text(loose, problems, verdict)
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
    prose = findings_text.strip() if not found and not findings.is_none(findings_text) else ""
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
            why = f"The text {shown} states a verdict with a condition, or two verdicts, so it does not count as one."
        else:
            why = f"The text {shown} has no verdict, so it is not a review. A new version of the work is not wanted."
        return Unclear((f"{why} Do not redo the work; judge it, in this form: {FORM}.",), text)
    found = findings.in_text(text, problems, verdict=verdict)
    if verdict == "changes_requested" and not found:
        rest = _loose(_behind_verdict(text))
        if rest:
            return _judged(verdict, "", (Finding("major", storable_text(rest)),), problems)
        problems.append(_CHANGES_NONE)
    return _judged(verdict, findings.above(text) if found else text.strip(), found, problems)


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
    elif verdict == "approved" and (fault := _fault(summary)):
        problems.append(
            f"The verdict is `approved`, but the text says {excerpt(fault, 120)}. Write `verdict: changes_requested` "
            "with that as a finding, or approve without it, or with `severity: minor` if it can stay as it is."
        )
    if verdict and (why := contradiction(Verdict(verdict), found)):
        problems.append(
            f"{why[:1].upper()}{why[1:]}. Write `verdict: changes_requested`, or approve without it, or with "
            "`severity: minor` if it can stay as it is."
        )
    return Unclear(tuple(problems), "") if problems else Reviewed(Verdict(verdict), summary, found)


def _fault(text: str) -> str:
    """The first sentence of `text` that says that something is wrong; empty if there is none."""
    for sentence in re.split(r"(?<=[.!?])[ \t]+|\n+", text):
        if (found := _FAULT.search(sentence)) and not _DENIED.search(sentence[: found.start()]):
            return sentence.strip()
    return ""


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
    said = [line for line in text.split("\n") if any(map(str.isalnum, line))]
    lines = [line for line in said if not line.lstrip().startswith(">")] or said  # what is quoted is another's
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
        if word in _FILLERS and rest.startswith(","):
            return None
        if not rest.strip(" .!"):
            return _VERDICTS[phrase]
        if with_nits := findings.WITH_NITS.match(rest.strip(" ,")):
            rest = rest.strip(" ,")[with_nits.end() :]
            return "" if ballots.takes_back(rest.strip(" .,;:-")) else _VERDICTS[phrase]
        if re.match(r"[ \t]*(?:[.!?;:,=\u3002\uff01\uff0c\uff1a\u2014(]|[-\u2013][ \t])", rest):
            after = rest.strip(" .!?;:,=\u3002\uff01\uff0c\u2014-\u2013(")
            if _IS_DENIED.match(after):
                return ""
            return "" if ballots.takes_back(after) else _VERDICTS[phrase]
        if ballots.takes_back(rest.strip()) or re.match(r"[ \t]+(?:and|or|with)\b", rest):
            return ""
        return None
    return None


def _alone(sentence: str) -> str | None:
    bare = re.sub(r"\A(?:I|We)(?:'d| would| will)?[ \t]+", "", _bare(sentence)).strip(" .!\u3002\uff01")
    bare = re.sub(
        r"(?<![ \t])[ \t]++(?:this|it|the work|this work|the result|this result|the spec|this spec)\Z", "", bare
    )
    bare = _CHECKED.sub("", bare, count=1)
    bare = re.sub(
        r"\A(?:The|This|the|this)[ \t]+(?:\w+[ \t]+){0,2}(?:is|are)[ \t]+(?:hereby[ \t]+)?(?=approved|accepted|"
        r"blocked)",
        "",
        bare,
    )
    return _VERDICTS.get(words.spelled(bare))


def _hedge(text: str) -> bool:
    """Whether the sentence after the verdict takes it back."""
    sentences = re.split(r"(?<=[.!])[ \t]+|(?<=[\u3002\uff01])|\n+", text.strip())
    return any(map(_TAKES_BACK.match, sentences[1:4]))


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
    """A text that names what to change, if it says more than that something has to, and not that nothing has."""
    text = text.strip()
    short = len(text.split()) < 4 and len(text) < (12 if text.isascii() else 4)
    said = [line for line in text.split("\n") if not findings.is_none(line) and not findings.is_heading(line)]
    return "" if _GENERIC.fullmatch(text) or short or not any(map(str.isalnum, "".join(said))) else text


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
