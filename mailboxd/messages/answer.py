"""What an agent said in a turn, or a peer in a message, and what it means: text to `core.inputs.Answer`.

Agents are sloppy, so the forms are few and the reading is generous: front matter with a `type:` of ours claims a
structure, and so does a `## DAG` section with `subtasks:`; everything else is the result, as it stands. A claimed
structure that cannot be read is `Unreadable` with the reason, so that the next attempt can mend it.
"""

from __future__ import annotations

import re

from mailboxd.core.actions import merged
from mailboxd.core.outcomes import (
    Acknowledged,
    Answer,
    Drafted,
    Failure,
    Planned,
    Question,
    Results,
    Reviewed,
    Silence,
    Unreadable,
)
from mailboxd.core.types import Plan, Spec
from mailboxd.errors import MessageError
from mailboxd.messages import codec
from mailboxd.messages.actions import claims
from mailboxd.messages.models import (
    AckMessage,
    AnyMessage,
    PlanMessage,
    QuestionMessage,
    ReplyMessage,
    ReviewMessage,
)
from mailboxd.messages.plan import parse_plan
from mailboxd.messages.sections import Section, split_body
from mailboxd.messages.spec import actions_in, rewritten
from mailboxd.messages.text import clean, one_line

SILENCE = frozenset({"REPLY_SKIP", "ANNOUNCE_SKIP", "HEARTBEAT_OK", "NO_REPLY"})
"""What OpenClaw's agents say when they say nothing."""
_NO_SUMMARY = "The tool run finished, but no final summary was produced."
"""What OpenClaw says in place of an agent that ran a tool and then said nothing."""

_PATH = "answer"
_TYPES = frozenset({"reply", "plan", "question", "ack", "review"})
_MOST_HEADER_LINES = 1000
_TYPE = re.compile(r"type[ \t]*:[ \t]*[\"']?([A-Za-z_-]{1,40})[\"']?[ \t]*(?:#.*)?")
_ACTIONS = re.compile(r"^ {0,3}##[ \t]+Planned Actions\b", re.MULTILINE | re.IGNORECASE)
_DAG = re.compile(r"^ {0,3}##[ \t]+DAG\b", re.MULTILINE | re.IGNORECASE)
_SUBTASKS = re.compile(r"^[ \t]*subtasks[ \t]*:", re.MULTILINE)
_FENCE = re.compile(r"(`{3,}|~{3,})[\w -]{0,40}")
_IDENTITY = {"task_id": "turn", "from": "agent"}


def read_answer(text: str) -> Answer:
    """What `text`, the whole answer of one turn, means. Never raises.

    A turn knows who answers what: `task_id` and `from` may be left out. Text is taken in its normal form
    (`text.clean`), without blank space around it.
    """
    text = clean(text).strip()
    if not text or text in SILENCE or text.startswith(_NO_SUMMARY):
        return Silence(text)
    said = _unwrapped(text)
    added = 0
    try:
        if _claimed_type(said) in _TYPES:
            said, added = _with_identity(said)
            return _meaning(codec.parse(said.encode(), _PATH).message)
        dag = _claimed_dag(said)
        return Planned(_plan(dag.text, dag.line)) if dag else _plain(text, said)
    except MessageError as error:
        if added and error.line is not None and error.line > len(_header_lines(said)[0]):
            error.line -= added
        return Unreadable(one_line(str(error)), text)


def _plain(text: str, said: str) -> Results:
    """A result without front matter. Actions in it count where it means to be a list of them; prose is part of it."""
    if not _ACTIONS.search(said):
        return Results(text)
    try:
        sections = split_body(said, path=_PATH).sections
    except MessageError:
        return Results(text)  # too many headings: a long result
    declared = [section for section in sections if section.is_called("Planned Actions") and claims(section.text)]
    return Results(text, planned_actions=actions_in(tuple(declared)))


def answer_of(message: AnyMessage) -> Answer:
    """What a message about given work means. Only reply, plan, question, ack and review mean anything."""
    try:
        return _meaning(message)
    except MessageError as error:
        return Unreadable(one_line(str(error)), message.text)


def _meaning(message: AnyMessage) -> Answer:
    match message:
        case ReplyMessage(status="done"):
            results = message.results or _without(message, "Planned Actions")
            if not results:
                return Unreadable("the reply is done, but has no results", message.text)
            return Results(results, message.answer, merged(message.planned_actions, actions_in(message.sections)))
        case ReplyMessage():
            partial = message.section("Partial Results")
            error = message.section("Error") or _without(message, "Partial Results")
            return Failure(error or "the agent failed and gave no reason", partial)
        case PlanMessage():
            dag = next((section for section in message.sections if section.is_called("DAG")), None)
            return Planned(_plan(dag.text, dag.line) if dag else _plan(message.preamble, 1))
        case QuestionMessage():
            question = message.section("Question") or message.text or message.title
            return Question(question) if question else Unreadable("the question has no text", "")
        case ReviewMessage():
            summary = message.section("Summary") or _without(message, "Findings")
            if not message.findings:  # a reviewer who lists them in prose has said them just the same
                summary = "\n\n".join(filter(None, [summary, message.section("Findings")]))
            return Reviewed(message.verdict, summary, message.findings)
        case AckMessage():
            return Acknowledged()
    return Unreadable(f"a {message.type} is no answer", message.text)


def _plan(yaml_text: str, first_line: int) -> Plan:
    return parse_plan(yaml_text, path=_PATH, first_line=first_line)


def read_draft(text: str) -> Drafted | Unreadable:
    """What `text`, the answer of a drafting turn (`draft.md.j2`), says of a spec."""
    try:
        said = rewritten(Spec(""), _unwrapped(clean(text).strip()))
    except MessageError as error:
        return Unreadable(one_line(str(error)), text)
    return Drafted(said) if said is not None else Unreadable("there is no section of a spec in it", text)


def _unwrapped(text: str) -> str:
    """What is inside, when the whole text is one fenced block around a structure of ours."""
    first, _, rest = text.partition("\n")
    inner, _, last = rest.rpartition("\n")
    fence = _FENCE.fullmatch(first.rstrip())
    if not fence or last.strip() != fence[1]:
        return text
    inner = inner.strip()
    return inner if inner.startswith(("---", "#")) else text


def _header_lines(text: str) -> tuple[list[str], bool]:
    """The lines of what looks like front matter, and whether it is closed."""
    lines = text.split("\n", _MOST_HEADER_LINES)
    if lines[0].rstrip() != "---":
        return [], False
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    return lines[1:end], end is not None


def _claimed_type(text: str) -> str:
    for line in _header_lines(text)[0]:
        if found := _TYPE.fullmatch(line.rstrip()):
            return found[1].lower()
    return ""


def _with_identity(text: str) -> tuple[str, int]:
    """`text` with the headers that a message needs and an answer does not, and how many lines they are."""
    header, closed = _header_lines(text)
    if not closed:
        return text, 0
    named = {line.partition(":")[0].strip() for line in header}
    added = [f"{name}: {value}" for name, value in _IDENTITY.items() if name not in named]
    lines = text.split("\n")
    return "\n".join([*lines[: len(header) + 1], *added, *lines[len(header) + 1 :]]), len(added)


def _claimed_dag(text: str) -> Section | None:
    if not _DAG.search(text):
        return None
    try:
        sections = split_body(text, path=_PATH).sections
    except MessageError:
        # Too many headings to be a plan: a long result.
        return None
    return next((s for s in sections if s.is_called("DAG") and _SUBTASKS.search(s.text)), None)


def _without(message: AnyMessage, heading: str) -> str:
    """The body without one of its sections: an answer whose author forgot the heading it belongs under."""
    rest = [f"## {s.heading}\n\n{s.text}" for s in message.sections if not s.is_called(heading)]
    return "\n\n".join(part for part in (message.preamble, *rest) if part)
