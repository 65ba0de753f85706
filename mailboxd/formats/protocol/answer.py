"""Answers of agents in turns and of peers in messages: text -> `core.outcomes.Answer`.

The reader knows what it asked (`Asked`): a review turn yields no result, a vote no text, a dispatch no plan of ours.
An answer is a form in any spelling (`protocol.forms`), a plan, a vote (`protocol.ballots`), a review
(`protocol.verdicts`), or text. Whatever has no single meaning is `Unclear`, with all its problems at once: it is asked
about in the same session. A malformed failure never counts as a success, and what merely reads like a refusal or a
promise is asked about once (`protocol.evasions`, imported with the first answer: its patterns take long to compile).

A form counts where it can only be the answer: at the beginning, behind one paragraph, or as the only fenced block with
at most a paragraph around it. Under a heading it is part of a document. Inside other code nothing is believed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo

from mailboxd.core.approvals import Action, merged
from mailboxd.core.model import Spec
from mailboxd.core.outcomes import (
    Acknowledged,
    Answer,
    Correction,
    Drafted,
    Failure,
    Planned,
    Question,
    Results,
    Reviewed,
    Silence,
    Unclear,
)
from mailboxd.core.sanitize import excerpt, storable_line, storable_text
from mailboxd.core.vocabulary import SELF, Turn
from mailboxd.errors import MessageError
from mailboxd.formats.protocol import ballots, forms, headings, verdicts, words
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.findings import HEADINGS
from mailboxd.formats.protocol.forms import MAX_DEPTH, PATH, Form
from mailboxd.formats.protocol.headers import Source
from mailboxd.formats.protocol.markdown import Body, Section, block_end, fenced, join_body, split_body
from mailboxd.formats.protocol.messages import (
    AckMessage,
    AnyMessage,
    PlanMessage,
    QuestionMessage,
    ReplyMessage,
    ReviewMessage,
)
from mailboxd.formats.protocol.plan import MAX_BYTES, SUBTASKS, Known, claimed_plans, parse_plan
from mailboxd.formats.protocol.residue import SILENT_TOKENS, block_around, cleaned
from mailboxd.formats.protocol.spec import actions_in, actions_of, claims, read_actions, rewritten
from mailboxd.formats.protocol.strict_yaml import Yaml, flow, load
from mailboxd.formats.protocol.suspicions import FAILED, SURE, Evasion, Kind, failure

SILENCE = frozenset({"REPLY_SKIP", "ANNOUNCE_SKIP", *SILENT_TOKENS})
"""The words by which OpenClaw's agents decline to answer."""
_NO_SUMMARY = "The tool run finished, but no final summary was produced."
"""OpenClaw's text for an agent that ran a tool and then wrote nothing."""

_ACTIONS = re.compile(
    r"^ {0,3}(?:(?P<level>#{1,6})[ \t]+|\*\*)(?P<heading>Planned Actions?\b[^\n]*)$", re.MULTILINE | re.IGNORECASE
)
_OBJECT = re.compile(r"\{\s*\"type\"\s*:\s*\"(?:plan|reply|question|review|ack)\"", re.IGNORECASE)
_TASKS = re.compile(r"(?:^|[{,])[ \t]*[\"']?(?:sub[_-]?)?tasks[\"']?[ \t]*:", re.MULTILINE | re.IGNORECASE)
_WRAPPED = re.compile(r"\A[{\s]*[\"']?(?:plan|dag)[\"']?[ \t]*:", re.IGNORECASE)
_CHILD = re.compile(r"[ \t]+[\"']?[A-Za-z0-9_][A-Za-z0-9._-]*[\"']?[ \t]*:|[ \t]*-[ \t]")
_OPENS_PLAN = re.compile(r"sub[_-]?tasks:[ \t]*", re.IGNORECASE)
_OPENS_TASKS = re.compile(r"tasks:[ \t]*", re.IGNORECASE)
_FLOW_PLAN = re.compile(r"sub[_-]?tasks:[ \t]*[\[{]", re.IGNORECASE)
_OUTCOME = re.compile(r" {0,3}##[ \t]+(?:Results|Partial Results|Error)[ \t]*+:?[ \t]*+$", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6} [^\n]*")
_STRUCTURE = re.compile("[{:#`~]")
"""Every key, object, heading and fence has one of these marks."""
_PLAN_KEYS = frozenset({"subtasks", "synthesis", "type", "title", "goal", "task_id", "from", "join"})
_NO_ERROR = frozenset(
    {"", "none", "n/a", "na", "no", "no_error", "no_errors", "nothing", "null", "not_applicable", "-"}
)
_OF_AN_ERROR = frozenset({"type", "request_id", "code", "text"})
"""Keys beside the error in what a service answers that failed."""
_NOT_YET = words.UNDER_WAY - {"active", "review", "in_review"} | {"pending", "queued", "accepted", "processing"}
"""The status of work that is not done, in a JSON object that says nothing else."""
_FORM = "`---`, `type: reply`, `status: done` (or `status: failed`), `---`, `## Results` (or `## Error`)"
_SECTIONS = "`## Goal`, `## Expected Output` and `## Acceptance Criteria`"
_WANTED = {
    Turn.DRAFT: f"Write what has to be done, and how to tell that it is done, under {_SECTIONS}.",
    Turn.REVIEW: f"Judge the work in this form: {verdicts.FORM}.",
}
_WORK_WANTED = f"If the work is done, send it; otherwise do it now, or answer {FAILED}."
_QUOTING = "To quote such text in a result, put it into fenced code under `## Results` of a reply."
_MOST_PROSE = 700
_MOST_TRIES = 50
"""Forms in the middle of a text that are looked at."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a turn asked for. Only what can be an answer to it is looked for in the text."""

    turn: Turn = Turn.WORK
    agents: tuple[str, ...] | None = None
    """The agents that a plan may name, with the agent itself; None: any."""
    subtasks: tuple[str, ...] = ()
    """The keys of the subtasks that there are already."""
    answers: tuple[str, ...] = ()
    """The answers of which one has to be declared; empty: none is asked for."""
    may_plan: bool = True
    correction: Correction | None = None
    """The turn asked again, for these reasons."""
    now: str = ""
    """When the answer was given, for a plan that says `tomorrow`; empty: such words are not read."""
    zone: tzinfo | None = None
    """Whose time that is; None = the machine's."""


def read_answer(text: str, asked: Asked = Asked()) -> Answer:
    """Parse `text`, the whole answer of one turn that `asked`. Never raises.

    `task_id` and `from` may be missing, because the turn determines them. The text of the answer is storable and has no
    white space around it.
    """
    said = storable_text(text).strip()
    clean = cleaned(said)
    if not clean and said.strip("\ufeff\u200b\u200c\u200d\u2060"):
        problem = "The text ends after your thoughts, without an answer. Send the answer itself."
        return Unclear((problem,), said, is_silence=True)
    if (silent := _silence(clean, asked)) is not None:
        if asked.turn is Turn.ANSWER:
            return silent
        word = f" `{silent.text}` does not count as one." if silent.text in SILENCE else ""
        return Unclear((f"There was no answer.{word} {_WANTED.get(asked.turn, _WORK_WANTED)}",), said, is_silence=True)
    try:
        answer = _read(clean, asked)
    except MessageError as error:
        answer = Unclear(_problems(error, clean), said)
    return replace(answer, text=said) if isinstance(answer, Unclear) else answer


def read_form(text: str, asked: Asked) -> Answer:
    """The answer in a form that cannot be anything else: one in JSON, from the call of a tool. Never raises."""
    form = forms.mapping(text)
    if form is None:
        return Unclear(("The arguments are not an object.",), text)
    try:
        answer = _of_review(form) if asked.turn is Turn.REVIEW else _of_object(form, asked)
        if answer is None:
            answer = _of_form(form, asked)
        if asked.answers and asked.turn is not Turn.REVIEW:
            answer = _as_vote(answer, asked)
    except MessageError as error:
        answer = Unclear(_problems(error, text), text)
    return replace(answer, text=text) if isinstance(answer, Unclear) else answer


def _read(text: str, asked: Asked) -> Answer:
    if asked.turn is Turn.DRAFT:
        return _drafted(text)
    if asked.turn is Turn.REVIEW:
        return _reviewed(text)
    answer = _structured(text, asked)
    if answer is None:
        answer = _plain(text, asked)
    elif asked.turn is Turn.ANSWER:
        answer = _passed_on(answer)
    return _as_vote(answer, asked) if asked.answers else answer


def _silence(text: str, asked: Asked) -> Silence | None:
    """The words that decline an answer, alone or, for a question, at one end of a sentence or two."""
    word = text.strip(" \t\n`*_\"'.")
    if not word or word in SILENCE or word.upper().replace(" ", "_") in SILENCE or text.startswith(_NO_SUMMARY):
        return Silence(text if word else "")
    if asked.turn is Turn.ANSWER and len(text) <= 300 and "\n\n\n" not in text:
        first, last = text.split()[0].strip("`*_\"'.,:;-"), text.split()[-1].strip("`*_\"'.")
        if "REPLY_SKIP" in (first, last) and text.count("REPLY_SKIP") == 1:
            return Silence(text)
    return None


# Where the structured answer is


def _structured(text: str, asked: Asked) -> Answer | None:
    """The structured answer in `text`, or None for prose."""
    if not _STRUCTURE.search(text):
        return None
    inner, language = block_around(text)
    if language != "?" and (found := _alone(inner.strip("\n"), asked, _line(text, inner))) is not None:
        return found
    lines = text.split("\n")
    inside = _fenced(lines)
    if (found := _alone(text, asked)) is not None:
        return found
    starts = [index for index in range(len(lines)) if inside[index] and (index == 0 or not inside[index - 1])]
    blocks = [(start, block_end(lines, start)) for start in _starts(lines, inside)] if starts else []
    return _in_a_block(lines, blocks, asked)


def _alone(text: str, asked: Asked, first_line: int = 1) -> Answer | None:
    """The answer that this text is, outside fenced code; None if it is none."""
    form = forms.mapping(text)
    if form is not None and (meant := _of_object(form, asked)) is not None:
        return meant
    if (behind := _object_behind(text)) is not None and behind.kind:
        return _of_form(behind, asked)
    if text.startswith("{") and SUBTASKS.search(text[:200]) and form is None:
        return _planned(text, first_line, asked)
    if form is None and _OBJECT.match(text):
        return _unclear(f"This is not a whole JSON object; it may have been cut off. Write {_FORM}. {_QUOTING}")
    lines = text.split("\n")
    inside = _fenced(lines)
    found = forms.fronted(lines)
    at = 0
    if found is None or forms.is_document(found[0]) or not _counts(found[0], lines[0]):
        own = found is not None and lines[0].strip() == "---"
        later = _later(lines, inside, found[1] if found is not None else 0)
        if own and found is not None and (found[0].kind or not later):
            later = []
        found, at = (later[0][1], later[0][0]) if later else (None, 0)
    if found is None:
        return _without_form(text, lines, inside, asked, first_line)
    form, body = found
    more = _later(lines, inside, body)
    if more:
        where = ", ".join(f"line {first_line + line}" for line in (at, *(line for line, _ in more)))
        return _unclear(f"There are two answers in one text ({where}). Send only one. {_QUOTING}")
    before = "\n".join(lines[:at]).strip()
    if before and not _is_paragraph(before):
        return _unclear(
            f"There is a document before the first `---` of the answer (line {first_line + at}). Begin with that line. "
            f"{_QUOTING}"
        )
    return _of_form(_moved(form, first_line - 1), asked)


def _object_behind(text: str) -> Form | None:
    """The JSON object behind a paragraph, with nothing behind it; None if there is none."""
    before, brace, rest = text.partition("{")
    whole = before.strip() and brace and text.endswith("}") and _is_paragraph(before.strip())
    return forms.mapping(brace + rest) if whole else None


def _counts(form: Form, opening: str) -> bool:
    """Whether a form at the beginning of a text counts, which without `---` may be the first words of prose."""
    if opening.strip() and not opening.strip().strip("-*_\u2014\u2013"):
        return True
    if form.kind:
        return form.kind != "reply" or bool(form.headers.get("status"))
    if _OUTCOME.match(form.body.lstrip().partition("\n")[0]):
        return bool(form.status) and not form.unknown()
    return not form.body and (form.status == "done" or (form.status == "failed" and bool(form.text("error"))))


def _without_form(text: str, lines: list[str], inside: list[bool], asked: Asked, first_line: int) -> Answer | None:
    if _is_failed_body(text):
        return _unclear(f"There is a section `## Error` without front matter. Write {_FORM}. {_QUOTING}")
    plans = claimed_plans(text)
    if len(plans) > 1:
        where = " and ".join(f"line {first_line + plan.line - 1}" for plan in plans)
        return _unclear(f"There are two plans in one text ({where}). Write one `## DAG`. {_QUOTING}")
    if plans:
        others = split_body(text, path=PATH, first_line=first_line).sections
        problems = _restrained(section for section in others if section.text != plans[0].text)
        planned = _planned(plans[0].text, plans[0].line + first_line - 1, asked)
        return _unclear(*problems) if problems and isinstance(planned, Planned) else planned
    return _bare_plan(lines, inside, asked, first_line)


def _bare_plan(lines: list[str], inside: list[bool], asked: Asked, first_line: int) -> Answer | None:
    """The plan that is not in a block: the whole text, or all of it below one paragraph."""
    first = next((line for line in lines if line.strip() and not line.startswith(("#", "---"))), "")
    if _FLOW_PLAN.match(first) and _mapping_of("\n".join(lines).strip("-\n")) is not None:
        return _plan_if_meant("\n".join(lines).strip("-\n"), first_line, asked)
    at = next((i for i in range(len(lines) - 1) if not inside[i] and _opens(_OPENS_PLAN, lines, i)), None)
    called_so = at is not None
    if at is None:
        at = next((i for i in range(len(lines) - 1) if not inside[i] and _opens(_OPENS_TASKS, lines, i)), None)
    if at is None:
        return None
    before = "\n".join(lines[:at]).strip()
    text = "\n".join(lines[at:])
    prose = [line for line in before.split("\n") if line.strip() and not line.startswith(("#", "---"))]
    keys = [line for line in prose if re.match(r"[\"']?[A-Za-z_]+[\"']?:[ \t]", line)]
    if len(keys) == len(prose):  # keys of the same mapping, or none
        whole = "\n".join("" if line.startswith("#") or line.strip() == "---" else line for line in lines)
        return _plan_if_meant(whole, first_line, asked) if called_so or _mapping_of(whole) is not None else None
    if _is_paragraph(before) and _mapping_of(text) is not None:
        return _plan_if_meant(text, first_line + at, asked)
    if not called_so:
        return None
    return _unclear(
        f"There is a plan in the middle of the text (line {first_line + at}, {excerpt(lines[at])}). Write it as `---`, "
        f"`type: plan`, `---`, `## DAG` and one YAML block, with nothing after it. {_QUOTING}"
    )


def _opens(opening: re.Pattern[str], lines: list[str], at: int) -> bool:
    return opening.fullmatch(lines[at]) is not None and _CHILD.match(lines[at + 1]) is not None


def _in_a_block(lines: list[str], blocks: list[tuple[int, int]], asked: Asked) -> Answer | None:
    """The answer in a fenced block of a text: the only block, with at most a paragraph before and after it."""
    found: list[tuple[int, int, Answer]] = []
    for start, end in blocks[:20]:
        last = lines[end].strip()
        closed = end > start and last.startswith(("```", "~~~"))
        inner = "\n".join(lines[start + 1 : end if closed else end + 1]).strip("\n")
        if (answer := _tried(inner, start + 1, asked)) is not None:
            found.append((start, end, answer))
    if not found:
        return None
    start, end, answer = found[0]
    before, after = "\n".join(lines[:start]).strip(), "\n".join(lines[end + 1 :]).strip()
    plan = isinstance(answer, Planned) or (
        isinstance(answer, Unclear) and SUBTASKS.search("\n".join(lines[start : end + 1])) is not None
    )
    headed = _HEADING.fullmatch(before) is not None and not after and plan
    if not headed and any(re.match(r" {0,3}#{1,6}[ \t]|<h[1-6]", line) for line in (*lines[:start], *lines[end + 1 :])):
        if not plan and _OUTCOME.match(after.partition("\n")[0]):
            return _unclear(
                f"An answer is in fenced code (line {start + 1}) with other text around it. Write {_FORM}. {_QUOTING}"
            )
        if plan and not any(line.startswith("#") for line in lines[:start]) and len("\n".join(lines)) <= 3000:
            return _unclear(
                f"A plan is in fenced code (line {start + 1}) with other text around it. Send it alone. {_QUOTING}"
            )
        return None
    if len(found) > 1:
        if all(isinstance(one, Planned) for _, _, one in found) and len(before) + len(after) <= _MOST_PROSE:
            return _unclear(
                f"There are two plans in one text (lines {start + 1} and {found[1][0] + 1}). Send one. {_QUOTING}"
            )
        return None
    if headed or (len(blocks) == 1 and _is_paragraph(before) and _is_paragraph(after)):
        return answer
    prose = len(before) + len(after)
    if plan and len(blocks) == 1 and prose <= 2 * _MOST_PROSE and asked.may_plan and asked.turn is not Turn.DISPATCH:
        return replace(
            _unclear(
                f"There is a plan in fenced code (line {start + 1}) between paragraphs of text, so it may be an "
                "example. If it is your plan, send it alone: `---`, `type: plan`, `---`, `## DAG` and the block. "
                f"{SURE}"
            ),
            is_claim=True,
        )
    return None


def _tried(inner: str, line: int, asked: Asked) -> Answer | None:
    """The structured answer that a block is. Its errors are its meaning too."""
    if not inner or not (inner[0] in '{-\u2014#sStTpPdD"' or SUBTASKS.search(inner)):
        return None
    try:
        return _alone(inner, asked, line + 1)
    except MessageError as error:
        return Unclear(_problems(error, inner, line), "")


def _later(lines: list[str], inside: list[bool], start: int) -> list[tuple[int, tuple[Form, int]]]:
    """The first two forms whose front matter begins below the line `start`, outside fenced code, with its line."""
    found: list[tuple[int, tuple[Form, int]]] = []
    at, tries = start, 0
    while at < len(lines) and len(found) < 2 and tries < _MOST_TRIES:
        if not inside[at] and lines[at].strip() in ("---", "\u2014") and at > 0 and forms.may_begin(lines, at + 1):
            tries += 1
            try:
                one = forms.fronted(lines, at)
            except MessageError:
                one = None
            if one is not None and _is_later_form(one[0], lines[at + 1]):
                found.append((at, one))
                at = max(one[1], at + 1)
                continue
        at += 1
    return found


def _is_later_form(form: Form, first: str) -> bool:
    """In the middle of a text only what is plain counts: a type, or a status with headers of answers alone."""
    if not first.strip() or not (form.kind or form.status):
        return False
    return bool(form.kind) or (not form.unknown() and not {"title", "id"} & form.headers.keys())


def _starts(lines: list[str], inside: list[bool]) -> list[int]:
    """The lines on which fenced blocks begin."""
    starts, at = [], 0
    while at < len(lines):
        if inside[at]:
            starts.append(at)
            at = block_end(lines, at)
        at += 1
    return starts


def _moved(form: Form, by: int) -> Form:
    return (
        replace(form, lines={name: line + by for name, line in form.lines.items()}, body_line=form.body_line + by)
        if by
        else form
    )


# What a form means


def _of_form(form: Form, asked: Asked) -> Answer:
    """The meaning of a form with headers and a body, with all its problems at once."""
    kind = form.kind
    problems = _header_problems(form)
    if asked.turn is Turn.ANSWER and form.word("type") == "answer" and form.body and not problems:
        return Results(form.body)
    if not kind:
        kind = _implied(form)
        if form.headers.get("type", "") != "" or not kind:
            names = ", ".join(f"`{storable_line(name)[:60]}`" for name in list(form.written.values())[:12])
            where = f"{form.quoted('type')}: " if form.headers.get("type", "") != "" else ""
            return _unclear(f"Front matter with {names} is not a valid answer ({where}it needs {_FORM}).", *problems)
    body = split_body(form.body, path=PATH, first_line=form.body_line)
    match kind:
        case "reply":
            return _reply(form, body, problems, asked)
        case "plan":
            return _plan_form(form, body, problems, asked)
        case "question":
            text = (
                form.text("questions")
                or _section(body, "question", "questions")
                or form.body.strip()
                or form.text("text")
                or form.text("title")
            )
            if not text:
                problems.append("The question has no text. Write it below the headers.")
            offered = [said for name in sorted(forms.OPTIONS) if (said := form.text(name))]
            return Unclear(tuple(problems), "") if problems else Question("\n\n".join([text, *offered]))
        case "ack":
            if asked.turn is not Turn.DISPATCH:
                return _unclear(
                    f"{_upper(form.quoted('type'))}: an acknowledgement is not the work. Do it, and send the work.",
                    *problems,
                )
            return Unclear(tuple(problems), "") if problems else Acknowledged()
    if asked.answers and (answer := ballots.declared(form.word("verdict"), asked.answers)):
        return Results(form.body.strip() or answer, answer)
    quoted = _upper(form.quoted("verdict" if "verdict" in form.headers else "type"))
    return _unclear(f"{quoted}: this is a review, and none was asked for. Send the work: {_FORM}.", *problems)


def _implied(form: Form) -> str:
    """The type that the other headers imply; empty if that is none, or two."""
    meant = set()
    if form.headers.get("status", "") != "" or "answer" in form.headers:
        meant.add("reply")
    if words.VERDICTS.get(form.word("verdict")):
        meant.add("review")
    if "subtasks" in form.headers:
        meant.add("plan")
    if not meant and form.text("questions"):
        meant.add("question")
    return meant.pop() if len(meant) == 1 else ""


def _header_problems(form: Form, known: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with the headers themselves; `known` are more of them that the reader knows."""
    problems = [
        f"The headers {pair} say the same thing with different values. Keep one of them." for pair in form.twice
    ]
    for name in form.unknown():
        key = forms.name_of(name)
        if key in known:
            continue
        if key == "approved":
            problems.append(
                f"{_upper(form.quoted(key))}: an answer cannot approve anything; a person does. Remove the line."
            )
            continue
        meant = words.meant(
            name, ("type", "status", "answer", "verdict", "findings", "planned_actions", "results", "error", "failure")
        )
        if words.restrains(name):
            what = f"Did you mean `{meant}`? " if meant else ""
            problems.append(
                f"{_upper(form.quoted(key))}: this header is not known. It may limit or order the work, so it is not "
                f"dropped. {what}A side effect goes under `## Planned Actions`, which a person approves. Write it "
                "so, or remove the line."
            )
        else:
            what = (
                f"Did you mean `{meant}`? Write it so, or remove the line."
                if meant
                else "Remove the line, or write it into the text below."
            )
            problems.append(f"{_upper(form.quoted(key))}: this header is not known. {what}")
    return problems


def _reply(form: Form, body: Body, problems: list[str], asked: Asked) -> Answer:
    said = form.headers.get("status", "")
    status = form.status
    if form.word("status") in forms.PARTIAL:
        problems.append(
            f"{_upper(form.quoted('status'))}: a reply is either done or failed, with nothing in between. If the rest "
            "is not needed, write `status: done`; otherwise finish it, or write `status: failed` with `## Error` and "
            "`## Partial Results`."
        )
    elif said != "" and not status:
        problems.append(
            f"{_upper(form.quoted('status'))}: the status is not known. Write `status: done` or `status: failed`."
        )
    elif not status and "answer" in form.headers:
        status = "done"
    elif not status:
        problems.append("The reply has no status. Write `status: done` or `status: failed` below `type: reply`.")
    verdict = words.VERDICTS.get(form.word("verdict"))
    if verdict and not asked.answers:
        problems.append(
            f"{_upper(form.quoted('verdict'))}: a verdict belongs to a review, and none was asked for. Remove the line."
        )
    actions = _declared_actions(form)
    sections = [_named(section) for section in body.sections]
    for section in body.sections:
        near = words.skeleton(section.heading).strip(" :#").casefold()
        if near == "planned actions" and not section.is_called("Planned Actions"):
            problems.append(f"`## {section.heading}`: write `## Planned Actions`, in plain letters.")
    for name, heading in (("results", "Results"), ("error", "Error"), ("partial_results", "Partial Results")):
        if text := form.text(name):
            sections.insert(0, Section(heading, text))
    extra = [form.text(name) for name in ("summary", "text", "description") if form.text(name)]
    preamble = "\n\n".join([*extra, body.preamble]).strip() if extra else body.preamble
    if body.title:
        preamble = f"# {body.title}\n\n{preamble}".strip()
    if problems or not status:
        return Unclear(tuple(problems), "")
    final = form.word("failure")
    message = ReplyMessage(
        task_id="t",
        from_="a",
        status="done" if status == "done" else "failed",
        failure="permanent" if final == "permanent" else None,
        answer=storable_text(form.text("answer"))[:4096],
        sections=tuple(sections),
        preamble=preamble,
    )
    if status == "done" and not _has_body(message) and (message.answer or actions):
        return Results(message.answer, message.answer, actions)
    correction = asked.correction
    if status == "done" and not _has_body(message) and correction is not None and correction.claim:
        return _confirmed(correction.claim, asked)
    answer = _meaning(message)
    if isinstance(answer, Results):
        lines = answer.text.split("\n")
        if misplaced := next((lines[at] for at, _, is_section in _listed_actions(answer.text) if not is_section), None):
            return _unclear(_misplaced(misplaced))
        from mailboxd.formats.protocol import evasions

        if evasions.denies(answer.text) and not (correction is not None and correction.claim):
            return Unclear(
                (
                    f"The reply is `status: done`, but {excerpt(answer.text.partition(chr(10))[0], 140)} says that it "
                    f"was not possible. If so, write {FAILED}; otherwise send the work itself. "
                    f"{SURE}",
                ),
                "",
                is_claim=True,
            )
        actions = merged(actions, answer.planned_actions)
        return replace(answer, planned_actions=actions, summary=form.text("summary").strip() or answer.summary)
    return answer


def _has_body(message: ReplyMessage) -> bool:
    return bool(message.preamble.strip()) or any(section.text.strip() for section in message.sections)


def _named(section: Section) -> Section:
    """A section under the name that it has in a reply, if its heading is another spelling of that."""
    word = words.spelled(section.heading.strip(" :#*"))
    known = {
        "result": "Results",
        "results": "Results",
        "partial_result": "Partial Results",
        "partial_results": "Partial Results",
    }
    known |= {"error": "Error", "planned_actions": "Planned Actions", "planned_action": "Planned Actions"}
    return Section(known[word], section.text, section.line) if word in known else section


def _declared_actions(form: Form) -> tuple[Action, ...]:
    value = form.headers.get("planned_actions", "")
    return actions_of(Source(PATH, 1, {}), value, ("planned_actions",)) if value not in ("", []) else ()


def _confirmed(claim: str, asked: Asked) -> Answer:
    """The earlier answer, which the agent says is the result."""
    text = cleaned(claim)
    return _with_actions(text) if not asked.answers else Results(text)


def _section(body: Body, *names: str) -> str:
    return "\n\n".join(s.text for s in body.sections if words.spelled(s.heading.strip(" :#*")) in names).strip()


def _of_object(form: Form, asked: Asked) -> Answer | None:
    """The meaning of a JSON object; None if it is data."""
    inner = next((form.headers[name] for name in ("plan",) if isinstance(form.headers.get(name), dict)), None)
    if form.kind == "plan" or "subtasks" in form.headers or (inner is not None and _TASKS.search(form.source)):
        return _plan_if_meant(form.source, 1, asked, form)
    if form.kind:
        return _of_form(form, asked)
    is_error = form.word("type") == "error" and set(form.headers) - {"error"} <= _OF_AN_ERROR
    if is_error and _is_an_error(form.typed.get("error")):
        return _evaded(form.source, failure(form.text("error")), asked)
    own = bool(form.unknown()) or bool({"title", "id", "description", "severity"} & form.headers.keys())
    if form.headers.get("type", "") != "" or own:
        return None
    if form.status == "failed" and (form.text("error") or form.text("text")):
        return _of_form(
            form if form.text("error") else replace(form, headers={**form.headers, "error": form.text("text")}), asked
        )
    if form.word("status") in forms.PARTIAL:
        return _of_form(form, asked)
    if form.word("status") in _NOT_YET and set(form.headers) <= {"status", "text"}:
        return _of_form(form, asked)
    if form.status == "done" and form.headers.keys() & {
        "results",
        "answer",
        "text",
        "summary",
        "error",
        "planned_actions",
    }:
        return _of_form(form, asked)
    if set(form.headers) <= {"status"} and form.status == "done":
        return _of_form(form, asked)
    if asked.answers and "answer" in form.headers and form.twice:
        return _unclear(*_header_problems(form))
    parts = [name for name in form.headers if name not in forms.THOUGHTS]
    if len(parts) == 1 and parts[0] in ("answer", "results", "text") and not form.twice:
        text = form.text(parts[0])
        if asked.answers:
            return Results(text, ballots.declared(text, asked.answers))
        return (
            None
            if not text or (len(form.headers) == 1 and not isinstance(form.typed.get(parts[0]), str))
            else _plain(text, asked)
        )
    if parts == ["error"] and _is_an_error(form.typed.get("error")):
        return _evaded(form.source, failure(form.text("error")), asked)
    if asked.answers and "answer" in parts:
        return Results(form.source, ballots.declared(form.text("answer"), asked.answers))
    return None


def _is_an_error(value: object) -> bool:
    """Whether the value of `error` is a message, as programs give it, and not data about errors."""
    return isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("message"), str))


# Plans


def _plan_form(form: Form, body: Body, problems: list[str], asked: Asked) -> Answer:
    """The plan in a form `type: plan`: its section `## DAG`, else its body, else its headers."""
    if "subtasks" in form.headers and not form.body.strip():
        text, line = form.source, min(form.lines.values(), default=1)
    elif dag := next(
        (s for s in body.sections if words.spelled(s.heading.strip(" :#*")) in ("dag", "plan", "subtasks", "tasks")),
        None,
    ):
        text, line = dag.text, dag.line
        if any(SUBTASKS.search(section.text) for section in body.sections if section is not dag):
            problems.append("There are two plans in one answer. Write one `## DAG`.")
        problems += _restrained(section for section in body.sections if section is not dag)
    else:
        text, line = form.body, form.body_line
    try:
        answer = _planned(text, line, asked)
    except MessageError as error:
        return Unclear((*problems, *_problems(error, text, line - 1)), "")
    if isinstance(answer, Unclear):
        return replace(answer, problems=(*problems, *answer.problems))
    return Unclear(tuple(problems), "") if problems else answer


def _plan_if_meant(text: str, line: int, asked: Asked, form: Form | None = None) -> Answer | None:
    """The plan in a mapping, unless it is data: with other keys beside it, no entry names an agent that exists.

    `tasks` and `children` that nothing calls a plan are data too, or asked about if they are given to agents.
    """
    value = form.headers if form is not None else _mapping_of(text)
    if value is None:
        return _planned(text, line, asked)  # for its error
    named = form is not None and form.kind == "plan"
    keys = {forms.name_of(key): item for key, item in value.items()}
    children: Yaml = keys.get("subtasks", "")
    outer: Yaml = keys.get("plan", "")
    if isinstance(outer, dict) and "subtasks" not in keys:
        inner = {forms.name_of(key): item for key, item in outer.items()}
        children = inner.get("subtasks", "")
        keys = {key: item for key, item in keys.items() if key != "plan"}
        text = flow({**outer, **{key: item for key, item in value.items() if forms.name_of(key) == "synthesis"}})
    entries = list(children.values()) if isinstance(children, dict) else children if isinstance(children, list) else []
    written = value if form is None else form.written.values()
    if (
        not named
        and not isinstance(outer, dict)
        and not any(words.spelled(key) in ("subtasks", "sub_tasks") for key in written)
    ):
        return _perhaps_planned(text) if any(_names_agent(entry, asked) for entry in entries) else None
    if not named:
        if not entries or not all(isinstance(entry, dict) for entry in entries):
            own = keys.keys() <= _PLAN_KEYS and isinstance(children, (dict, list))
            return _planned(text, line, asked) if own and "subtasks" in keys else None
        if not keys.keys() <= _PLAN_KEYS and not any(_names_agent(entry, asked) for entry in entries):
            return None
        kind = words.spelled(str(keys.get("type", "plan")))
        if kind not in forms.TYPES and not any(_names_agent(entry, asked) for entry in entries):
            return None
    return _planned(text, line, asked)


def _restrained(sections: Iterable[Section]) -> list[str]:
    """What is wrong with sections beside a plan that limit, order or gate the work: nothing reads them there."""
    return [
        f"The section `## {storable_line(section.heading)[:80]}` (line {section.line}, "
        f"{excerpt(section.text.partition(chr(10))[0], 120)}) may limit, order or approve the work, and nothing "
        f"reads it "
        "beside a plan. Write it into the subtasks that it is about, as `planned_actions` (a person approves them), "
        "`depends_on`, `budget_usd`, `timeout` or `deadline`, or remove it."
        for section in headings.restraining(sections)
    ]


def _perhaps_planned(text: str) -> Unclear:
    problem = (
        f"The tasks in your answer ({excerpt(text.strip().partition(chr(10))[0], 120)}) are given to agents, but "
        "nothing says that they are your plan, so nothing was started. If they are, send them as `---`, `type: plan`, "
        "`---`, `## DAG` and a YAML block with `subtasks:`, each with `agent`, `description` and `depends_on`. "
        f"{SURE}"
    )
    return Unclear((problem,), text, is_claim=True)


_XML_AGENT = re.compile(
    r"\b(?:agent|assignee|assigned-?to|owner|executor)[ \t]*=[ \t]*[\"']@?([\w.-]{1,80})[\"']|"
    r"<(?:agent|assignee|assigned-?to|owner|executor)>\s{0,20}@?([\w.-]{1,80})\s{0,20}</",
    re.IGNORECASE,
)
_DIAGRAM = re.compile(r"(?:graph|flowchart|digraph|sequenceDiagram|@startuml)\b", re.IGNORECASE)
_LABEL = re.compile(r"[\[({\"|>][ \t]*@?([\w.-]{1,80}):[ \t]")
"""The label of a node that begins with who does it."""
_TOLD = frozenset({"title", "description", "instructions", "goal"})
"""Names of keys that say what is to be done."""
_OUTCOMES = frozenset({"results", "error", "answer", "verdict", "findings"})
"""Names of keys that say what came of it: such entries are a report about agents, and no plan."""


def _shares_out(text: str, asked: Asked) -> bool:
    """Whether data or XML, alone or in the only block of a text, tells agents that exist what to do: a plan in another
    shape than ours.
    """
    names = {agent.casefold() for agent in asked.agents or ()}
    if not asked.may_plan or asked.turn not in (Turn.WORK, Turn.SYNTHESIS) or len(text) > 20_000:
        return False
    if not any(name in text.casefold() for name in names):
        return False
    lines = text.split("\n")
    starts = _starts(lines, _fenced(lines))
    if len(starts) == 1:
        start, end = starts[0], block_end(lines, starts[0])
        if not all(map(_is_paragraph, ("\n".join(lines[:start]).strip(), "\n".join(lines[end + 1 :]).strip()))):
            return False
        text = "\n".join(lines[start + 1 : end]).strip()
    if text.startswith("<"):
        return any((found[1] or found[2]).casefold() in names for found in _XML_AGENT.finditer(text))
    if _DIAGRAM.match(text):
        return any(found[1].casefold() in names for found in _LABEL.finditer(text))
    if text.startswith("[["):
        return _tells_agents(_toml(text), asked)
    try:
        value = load(text, path=PATH, max_events=20_000, max_depth=MAX_DEPTH).value
    except MessageError:
        return False
    return _tells_agents(value, asked)


def _toml(text: str) -> Yaml:
    """The tables of a text in TOML as text, lists and mappings of text; nothing if it is none."""
    try:
        value = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    found = forms.mapping(json.dumps(value, default=str))
    return dict(found.headers) if found is not None else {}


def _tells_agents(value: Yaml, asked: Asked, depth: int = 2) -> bool:
    """Whether entries in the lists and mappings of a value, not deep inside, tell an agent what to do."""
    if isinstance(value, str) or depth < 0:
        return False
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict) and _names_agent(item, asked):
            keys = {forms.name_of(key) for key in item}
            if not keys & _OUTCOMES and (keys & _TOLD or any(not key.isascii() for key in item)):
                return True
        if _tells_agents(item, asked, depth - 1):
            return True
    return False


def _names_agent(entry: Yaml, asked: Asked) -> bool:
    if not isinstance(entry, dict):
        return False
    for key, value in entry.items():
        if words.KEYS.get(words.spelled(key)) == "agent" or words.foreign(key) == "agent":
            names = value if isinstance(value, list) else [value]
            said = [name.strip().lstrip("@").casefold() for name in names if isinstance(name, str)]
            if asked.agents is None or any(
                name in {SELF, *(agent.casefold() for agent in asked.agents)} for name in said
            ):
                return True
    return False


def _mapping_of(text: str) -> Mapping[str, Yaml] | None:
    try:
        value = load(text, path=PATH, max_events=600_000, max_depth=64).value if len(text) <= MAX_BYTES else None
    except MessageError:
        return None
    return value if isinstance(value, dict) else None


def _planned(text: str, line: int, asked: Asked) -> Answer:
    """The plan in this YAML, if the turn may be answered by one. Raises MessageError."""
    if asked.turn is Turn.DISPATCH:
        return replace(
            _unclear(
                "This is a plan, but the task was given to you: carry the plan out yourself. Send "
                f"its result: {_FORM}. {SURE}"
            ),
            is_claim=True,
        )
    if asked.turn is Turn.ANSWER:
        return _unclear("This is a plan. Only the question is to be answered, in plain text.")
    if asked.answers:
        allowed = ", ".join(f"`{answer}`" for answer in asked.answers)
        return _unclear(
            f"This is a plan, but the answer has to be one of {allowed}. Write it in the header `answer:` of a reply."
        )
    if not asked.may_plan:
        return _unclear(
            "This task cannot be divided further: the limit of depth or of subtasks is reached. Do it and send the "
            f"work, or answer {FAILED}."
        )
    calendar = Calendar(asked.now, asked.zone) if asked.now else None
    known = Known(asked.agents, asked.subtasks, calendar, by_person=False)
    return Planned(parse_plan(text, path=PATH, first_line=line, known=known))


# Text


def _plain(text: str, asked: Asked) -> Answer:
    """A text without structure: a vote, what seems to evade the work, or the result."""
    correction = asked.correction
    if asked.answers:
        return Results(text)
    from mailboxd.formats.protocol import evasions

    if correction is not None and correction.claim and evasions.confirms(text):
        return _confirmed(correction.claim, asked)
    if (correction is None or not correction.claim) and _is_quoted_form(text, asked):
        return Unclear(
            (f"All of the answer is quoted (`> `), so it may be somebody else's. Send it without. {SURE}",),
            text,
            is_claim=True,
        )
    in_place = "task.md" in text or (asked.turn is Turn.WORK and bool(asked.subtasks))
    found = evasions.evasion(text, asked.turn, asked.agents or ())
    if found is not None and (not in_place or found.kind is Kind.CALL):
        return _evaded(text, found, asked)
    if not in_place and (correction is None or not correction.claim) and _shares_out(text, asked):
        return _perhaps_planned(text)
    return _with_actions(text)


def _is_quoted_form(text: str, asked: Asked) -> bool:
    """Whether every line of a text is quoted, and what is quoted is a form or a plan."""
    lines = text.split("\n")
    if not all(line.startswith(">") or not line.strip() for line in lines):
        return False
    bare = "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines).strip()
    try:
        return _structured(bare, asked) is not None
    except MessageError:
        return True


def _evaded(text: str, found: Evasion, asked: Asked) -> Answer:
    """What seems to evade the work is asked about once; the second time it counts as it stands."""
    correction = asked.correction
    if correction is None or not correction.claim or found.kind is Kind.CALL:
        return Unclear((found.problem,), text, is_claim=found.kind is not Kind.CALL)
    if found.kind is Kind.QUESTION:
        return Question(text)
    if found.kind in (Kind.CLAIM, Kind.UNREADABLE):
        return _with_actions(text)
    if found.kind in (Kind.PROMISE, Kind.PLAN):  # which does not say by itself why that is a failure
        return Failure(f"the answer was {found.kind.value}, even when asked again: {text}")
    return Failure(text)


def _with_actions(text: str) -> Answer:
    """A result without front matter. A list under `## Planned Actions` declares actions and is no part of the result;
    prose there is."""
    lines = text.split("\n")
    actions: tuple[Action, ...] = ()
    kept, after = [], 0
    for start, end, is_section in _listed_actions(text):
        if not is_section:
            return _unclear(_misplaced(lines[start]))
        listed = read_actions("\n".join(lines[start + 1 : end]), path="Planned Actions", first_line=start + 2)
        actions = merged(actions, listed)
        kept += lines[after:start]
        after = end
    rest = "\n".join([*kept, *lines[after:]]).strip()
    return Results(rest or text, planned_actions=actions)


def _listed_actions(text: str) -> Iterator[tuple[int, int, bool]]:
    """Each list of actions below a heading like `Planned Actions`: the line of the heading, the line behind the part,
    and whether it is the section of that name. Fenced headings are quoted."""
    if not _ACTIONS.search(text):
        return
    lines = text.split("\n")
    inside = _fenced(lines)
    for start, line in enumerate(lines):
        found = None if inside[start] else _ACTIONS.match(line)
        if found is None:
            continue
        level = len(found["level"] or "") or 6
        ends = re.compile(rf" {{0,3}}#{{1,{level}}}[ \t]")
        later = range(start + 1, len(lines))
        end = next(
            (i for i in later if not inside[i] and (ends.match(lines[i]) or _ACTIONS.match(lines[i]))), len(lines)
        )
        if claims("\n".join(lines[start + 1 : end])):
            called = _named(Section(found["heading"])).is_called("Planned Actions")
            yield start, end, level == 2 and called


def _misplaced(line: str) -> str:
    return (
        f"There is a list of actions under {excerpt(line.strip())}, where no person would be asked about them. Write "
        f"the heading as `## Planned Actions`. {_QUOTING}"
    )


def _as_vote(answer: Answer, asked: Asked) -> Answer:
    """A result whose declared answer is one of those allowed, in their spelling. Others are asked again."""
    if not isinstance(answer, Results):
        return answer
    declared = (
        ballots.declared(answer.answer, asked.answers) if answer.answer else ballots.stated(answer.text, asked.answers)
    )
    from mailboxd.formats.protocol import evasions

    if not declared or (not answer.answer and evasions.leaves_open(answer.text)):
        return _unclear(ballots.problem(answer.answer or answer.text, asked.answers))
    if answer.answer and (other := ballots.stated(answer.text, asked.answers)) and other != declared:
        return _unclear(
            f"The header says `answer: {declared}`, and the text `{other}`. Write the one that you mean in both places."
        )
    return replace(answer, answer=declared)


def _passed_on(answer: Answer) -> Answer:
    """The answer to a question is text, a question to the operator, or none."""
    if isinstance(answer, Acknowledged | Reviewed | Failure):
        return _unclear(
            "Only an answer to the question is wanted: plain text, a `type: question` to the operator, or `REPLY_SKIP`."
        )
    return answer


# Reviews and drafts


def _reviewed(text: str) -> Answer:
    form = _review_form(text)
    if isinstance(form, Unclear):
        return form
    return verdicts.review_in_prose(text) if form is None else _of_review(form)


def _of_review(form: Form) -> Answer:
    inner = form.typed.get("review")
    if isinstance(inner, dict) and (nested := forms.mapping(json.dumps(inner))) is not None:
        form = nested
    body = split_body(form.body, path=PATH, first_line=form.body_line)
    listed = _section(body, *HEADINGS)
    known = (*HEADINGS, "summary")
    others = [s for s in body.sections if words.spelled(s.heading.strip(" :#*")) not in known]
    summary = "\n\n".join(
        filter(
            None,
            [
                form.text("summary"),
                form.text("text"),
                body.preamble,
                _section(body, "summary"),
                join_body("", "", others).strip(),
            ],
        )
    )
    kind = form.headers.get("type", "")
    if kind != "" and form.kind not in ("review", "reply"):
        return _unclear(f"{_upper(form.quoted('type'))}: only a review was asked for, in this form: {verdicts.FORM}.")
    if form.status == "failed" and "verdict" not in form.headers:
        return _unclear(
            "A review cannot fail. If you cannot judge the work, write `verdict: blocked` and say what is needed."
        )
    if listed or not isinstance(form.headers.get("findings", ""), str) or form.headers.get("findings"):
        loose = summary
    else:
        loose = summary if not _section(body, "summary") else join_body("", body.preamble, others).strip()
    return verdicts.review_in(form, listed, summary, loose, _header_problems(form, ("approved", "lgtm")))


def _review_form(text: str) -> Form | Unclear | None:
    """The form of a review, at the beginning of the text, behind a paragraph, or in its only fenced block.

    Two of them are asked about.
    """
    lines = text.split("\n")
    inside = _fenced(lines)
    candidates = [text]
    if (behind := _object_behind(text)) is not None:
        candidates.append(behind.source)
    inner, language = block_around(text)
    if language != "?":
        candidates.append(inner.strip("\n"))
    starts = _starts(lines, inside)
    if len(starts) == 1 and language == "?":
        start, end = starts[0], block_end(lines, starts[0])
        if _is_paragraph("\n".join(lines[:start]).strip()) and _is_paragraph("\n".join(lines[end + 1 :]).strip()):
            candidates.append("\n".join(lines[start + 1 : end]).strip("\n"))
    for candidate in candidates:
        form = forms.mapping(candidate)
        if (
            form is not None
            and {"verdict", "findings", "answer", "status", "approved", "type", "results", "review"}
            & form.headers.keys()
        ):
            return form
        rows = candidate.split("\n")
        first = forms.fronted(rows)
        if first is not None and not _is_review(first[0]):
            first = None
        later = _later(rows, _fenced(rows), first[1] if first is not None else 1)
        found = [*([(0, first)] if first is not None else []), *later]
        if len(found) > 1:
            where = ", ".join(f"line {line + 1}" for line, _ in found)
            return _unclear(
                f"There are two reviews in one text ({where}). Send only one, in this form: {verdicts.FORM}."
            )
        if found and _is_review(found[0][1][0]):
            return found[0][1][0]
    return None


def _is_review(form: Form) -> bool:
    return (
        bool(form.kind)
        or "verdict" in form.headers
        or ("findings" in form.headers and form.word("approved") in ("true", "false", "yes", "no"))
        or (form.source.startswith("status") and bool(words.VERDICTS.get(form.word("status"))))
    )


_SPEC_NAMES = {
    **{word: word for word in ("goal", "context", "instructions", "expected_output", "acceptance_criteria", "checks")},
    **{word: word for word in ("scope_in", "scope_out", "inputs", "outputs", "risks", "planned_actions")},
    **dict.fromkeys(("in_scope", "scope"), "scope_in"),
    **dict.fromkeys(("out_of_scope", "not_in_scope", "outside_the_scope"), "scope_out"),
    **dict.fromkeys(("expected_result", "expected_outputs"), "expected_output"),
    "success_criteria": "acceptance_criteria",
}
_MARKED_NAME = re.compile(
    r" {0,3}(?:#{1,6}[ \t]+(?P<heading>[^\n#]{1,60})#*|(?:[-*][ \t]+|\d{1,2}[.)][ \t]+)?"
    r"(?:\*\*(?P<bold>[^*\n:]{1,40}):?\*\*:?|"
    r"(?P<plain>[A-Za-z][A-Za-z _-]{1,30}):)(?P<rest>[^\n]*))"
)


def _drafted(text: str) -> Drafted | Unclear:
    """The spec in the answer of a drafting turn, whose sections may have headings of any level, or be JSON."""
    inner, language = block_around(text)
    text = inner.strip("\n") if language != "?" else text
    if (form := forms.mapping(text)) is not None:
        parts = {_spec_name(key): form.text(forms.name_of(key)) for key in form.written.values()}
        text = "\n\n".join(
            f"## {name.replace('_', ' ').title()}\n\n{value}" for name, value in parts.items() if name and value
        )
    text = _with_spec_headings(text)
    paragraphs = text.rstrip().split("\n\n")
    from mailboxd.formats.protocol import evasions

    if len(paragraphs) > 1 and evasions.manners(paragraphs[-1]):
        text = "\n\n".join(paragraphs[:-1])
    spec = rewritten(Spec(""), text)
    if spec is not None:
        return Drafted(spec)
    shown = excerpt(text.strip().partition("\n")[0], 120)
    return _unclear(f"{shown} has no section of a spec. Do not do the task. {_WANTED[Turn.DRAFT]}")


def _spec_name(heading: str) -> str:
    word = words.spelled(heading.strip(" :#*"))
    return _SPEC_NAMES.get(word) or _SPEC_NAMES.get(words.KEYS.get(word, ""), "")


def _with_spec_headings(text: str) -> str:
    lines = text.split("\n")
    inside = _fenced(lines)
    for index, line in enumerate(lines):
        found = None if inside[index] else _MARKED_NAME.fullmatch(line)
        if found and (name := _spec_name(found["heading"] or found["bold"] or found["plain"] or "")):
            rest = (found["rest"] or "").strip(" :")
            lines[index] = f"## {name.replace('_', ' ').title()}" + (f"\n\n{rest}" if rest else "")
    return "\n".join(lines)


# Messages of peers


def answer_of(message: AnyMessage, answers: tuple[str, ...] = ()) -> Answer:
    """The answer in a message from a peer: a reply, plan, question or ack.

    One of the allowed `answers`, if there are any, is in our spelling then. Another one stays what it is, and counts
    for nothing: the peer's daemon has asked for one of them already.
    """
    try:
        answer = _meaning(message)
        voted = _as_vote(answer, Asked(answers=answers)) if answers else answer
        return answer if isinstance(voted, Unclear) else voted
    except MessageError as error:
        return Unclear((storable_line(str(error)),), message.text)


def _meaning(message: AnyMessage) -> Answer:
    match message:
        case ReplyMessage(status="done"):
            if not _is_no_error(message.section("Error")):
                problem = (
                    "The reply is `done` but has a section `## Error`. Write `status: failed`, or remove the section."
                )
                return Unclear((problem,), message.text)
            results = message.results or _without(message, "Planned Actions", "Error", "Partial Results")
            if not results:
                return Unclear(
                    ("The reply is `done` but has no results. Write them under `## Results`.",), message.text
                )
            actions = merged(message.planned_actions, actions_in(message.sections))
            # under `## Results` it is part of the result
            apart = message.section("Summary") if message.section("Results") else ""
            return Results(results, message.answer, actions, summary=apart)
        case ReplyMessage():
            reason, partial = message.section("Error"), message.section("Partial Results")
            error = reason or _without(message, "Partial Results")
            partial = partial or (message.section("Results") if reason else "")
            partial = "" if _is_no_error(partial) else partial
            final = message.failure == "permanent"
            return Failure(error or "the agent failed and gave no reason", partial, final)
        case PlanMessage():
            dag = next((section for section in message.sections if section.is_called("DAG")), None)
            text, line = (dag.text, dag.line) if dag else (message.preamble, 1)
            return Planned(parse_plan(text, path=PATH, first_line=line, is_file=True))
        case QuestionMessage():
            question = message.section("Question") or message.text or message.title
            return Question(question) if question else Unclear(("The question has no text.",), "")
        case ReviewMessage():
            return Reviewed(message.verdict, summary_of(message), message.findings)
        case AckMessage():
            return Acknowledged()
    return Unclear((f"a message of type {message.type} is not an answer",), message.text)


def summary_of(review: ReviewMessage) -> str:
    """The summary, with findings that the reviewer listed in prose."""
    named = [section for section in review.sections if words.spelled(section.heading.strip(" :#*")) in HEADINGS]
    summary = review.section("Summary") or _without(review, *(section.heading for section in named))
    prose = "" if review.findings else "\n\n".join(section.text for section in named)
    return "\n\n".join(filter(None, [summary, prose]))


# Parts of texts


def _unclear(*problems: str) -> Unclear:
    return Unclear(problems, "")


def _problems(error: MessageError, text: str, before: int = 0) -> tuple[str, ...]:
    """Each of the errors as a paragraph that quotes its line. `before`: lines of the answer above `text`."""
    return tuple(_problem(one, text.split("\n"), before) for one in getattr(error, "all", (error,)))


def _problem(error: MessageError, lines: list[str], before: int) -> str:
    at = (error.line or 0) - before - 1
    quoted = (
        f" Line {error.line} is {excerpt(lines[at], 160)}."
        if error.line and 0 <= at < len(lines) and lines[at].strip()
        else ""
    )
    return storable_line(f"{error}{'' if str(error).endswith(('.', '!', '?')) else '.'}{quoted}")


def _line(text: str, inner: str) -> int:
    return 2 if inner != text else 1


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_no_error(text: str) -> bool:
    return words.spelled(text.strip(" .*`\n")) in _NO_ERROR


def _fenced(lines: list[str]) -> list[bool]:
    """Which of the lines are fenced code. An unclosed fence is ignored."""
    inside, unclosed = fenced(lines)
    return inside if unclosed is None else inside[:unclosed] + [False] * (len(lines) - unclosed)


def _is_paragraph(text: str) -> bool:
    """Whether the text is at most one paragraph of prose."""
    return "```" not in text and "~~~" not in text and "\n\n" not in text and not text.startswith("#")


def _is_failed_body(text: str) -> bool:
    """Whether the text is the body of a failed reply: only its sections, below a paragraph at most, with text under
    `## Error`.
    """
    try:
        body = split_body(text, path=PATH)
    except MessageError:
        return False  # too many headings to be a reply: a long result
    sections = body.sections
    if body.title or not _is_paragraph(body.preamble):
        return False
    errors = [section.text for section in sections if section.is_called("Error")]
    others = (section for section in sections if not section.is_called("Error"))
    own = all(section.is_called("Results") or section.is_called("Partial Results") for section in others)
    return own and any(not _is_no_error(error) for error in errors)


def _without(message: AnyMessage, *headings: str) -> str:
    """The body without some of its sections: the answer if its author forgot the heading."""
    rest = [f"## {s.heading}\n\n{s.text}" for s in message.sections if not any(map(s.is_called, headings))]
    return "\n\n".join(part for part in (message.preamble, *rest) if part)
