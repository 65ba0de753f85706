"""Answers of agents in turns and of peers in messages: text -> `core.outcomes.Answer`.

Agents are sloppy, so there are few forms and parsing is lenient. Front matter of an answer, a section `## DAG` with
`subtasks:`, and text that is nothing but a plan are structured answers; all other text is a result. A structured answer
that cannot be parsed is `Unclear` with the reason, so that the next attempt can correct it. It is never a result,
because a malformed failure must not count as a success.

Structure outside fenced code counts anywhere in the text. A fenced block counts only at the beginning of the text, or
if there is nothing else but one paragraph before and one after it. Sections of a reply are not searched for plans.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mailboxd.core.approvals import merged
from mailboxd.core.model import Plan, Spec
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
from mailboxd.core.sanitize import storable_line, storable_text
from mailboxd.core.vocabulary import Turn, Verdict
from mailboxd.errors import MessageError
from mailboxd.protocol.front_matter import DECLARATIONS
from mailboxd.protocol.markdown import Section, block_end, fenced, split_body
from mailboxd.protocol.messages import (
    MESSAGE_TYPES,
    AckMessage,
    AnyMessage,
    PlanMessage,
    QuestionMessage,
    ReplyMessage,
    ReviewMessage,
    parse_message,
)
from mailboxd.protocol.plan import MAX_BYTES, parse_plan
from mailboxd.protocol.spec import actions_in, claims, rewritten

SILENCE = frozenset({"REPLY_SKIP", "ANNOUNCE_SKIP", "HEARTBEAT_OK", "NO_REPLY"})
"""The words by which OpenClaw's agents decline to answer."""
_NO_SUMMARY = "The tool run finished, but no final summary was produced."
"""OpenClaw's text for an agent that ran a tool and then wrote nothing."""

_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060 \t\r\n"
"""Invisible characters that may precede an answer."""
_PATH = "answer"
_TYPES = frozenset({"reply", "plan", "question", "ack", "review"})
_MAX_HEADER_LINES = 1000
_KEY = re.compile(r"[\"']?([A-Za-z_][A-Za-z0-9_-]{0,40})[\"']?[ \t]*:(?:[ \t]+(.*))?")
_SLOPPY_STATUS = re.compile(r"[\"']?(status|verdict)[\"']?\s*:\s*(.*)", re.IGNORECASE)
"""As agents write it: without a space after the colon, which is not YAML, or with one that only looks like a space."""
_REMARK = re.compile(r"(?:^|[ \t]+)#.*")
_ACTIONS = re.compile(r"^ {0,3}##[ \t]+Planned Actions\b", re.MULTILINE | re.IGNORECASE)
_DAG = re.compile(r"^ {0,3}##[ \t]+DAG\b", re.MULTILINE | re.IGNORECASE)
_SUBTASKS = re.compile(r"(?:^|\{)[ \t]*[\"']?subtasks[\"']?[ \t]*:", re.MULTILINE)
_CHILD = re.compile(r"[ \t]+[\"']?[A-Za-z0-9_][A-Za-z0-9._-]*[\"']?[ \t]*:")
_OUTCOME = re.compile(r" {0,3}##[ \t]+(?:Results|Partial Results|Error|Findings)[ \t]*:?[ \t]*$", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6} [^\n]*")
_FENCE = re.compile(r"(`{3,}|~{3,})[\w -]{0,40}")
_JSON_PAIR = re.compile(r"[{,]\s*\"(\w{1,40})\"\s*:\s*(?:\"([^\"\n]{0,40})\")?")
_MAX_INVALID_JSON = 65_536
"""Characters of invalid JSON that are searched for keys."""
_IDENTITY = {"task_id": "turn", "from": "agent"}
_HEADERS = frozenset({*DECLARATIONS, *(name for kind in MESSAGE_TYPES.values() for name in kind.header_fields())})
_ANSWER_HEADERS = frozenset({"type", "status", "verdict", "answer", "findings", "decision", "planned_actions"})
"""Headers that only answers have. Front matter of known headers with one of these is an answer."""
_BODY = frozenset(
    {"error", "errors", "reason", "message", "result", "results", "partial_results", "output", "summary", "details"}
    | {"question", "note", "notes", "text", "dag", "plan", "subtasks"}
)
"""Keys that agents use for parts of the body when they write a whole answer as one mapping."""
_STATUS = frozenset({"done", "failed"})
_VERDICTS = frozenset(map(str, Verdict))
_MEANT = {"status": ("reply", _STATUS), "verdict": ("review", _VERDICTS)}
"""Headers that imply a missing `type:`, with their valid values."""
_NO_ERROR = frozenset({"", "none", "none.", "n/a", "-", "no error", "no errors", "nothing"})
_FORM = "`---`, `type: reply`, `status: done` or `status: failed`, `---`, `## Results` or `## Error`"
_QUOTING = "to quote such text in a result, put it into fenced code under `## Results` of a reply"


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


def read_answer(text: str, asked: Asked = Asked()) -> Answer:
    """Parse `text`, the whole answer of one turn that `asked`. Never raises.

    `task_id` and `from` may be missing, because the turn determines them. The text of the answer is storable and has no
    white space around it.
    """
    if asked.turn is Turn.DRAFT:
        return _read_draft(text)
    text = storable_text(text).strip().lstrip(_INVISIBLE)
    if not text or text in SILENCE or text.startswith(_NO_SUMMARY):
        return Silence(text)
    try:
        answer = _read(text)
    except MessageError as error:
        return Unclear((storable_line(str(error)),), text)
    return replace(answer, text=text) if isinstance(answer, Unclear) else answer


def _read(text: str) -> Answer:
    inner = _unwrapped(text)
    lines = inner.split("\n")
    inside = _fenced(lines)
    claimed = _structure(lines, inside)
    if claimed is not None:
        return claimed
    if inner != text:
        return _plain(text, inner)
    if True not in inside:
        return _plain(text, text)
    start = inside.index(True)
    end = block_end(lines, start)
    before, after = "\n".join(lines[:start]).strip(), "\n".join(lines[end + 1 :]).strip()
    framed = _is_paragraph(before) and _is_paragraph(after)
    headed = not after and _HEADING.fullmatch(before) is not None
    if before and not framed and not headed:
        return _plain(text, text)
    within = "\n".join(lines[start + 1 : end]).strip().split("\n")
    claimed = _structure(within, _fenced(within))
    if claimed is None or (headed and not isinstance(claimed, Planned)):
        return _plain(text, text)
    if (before or after) and not ((framed or headed) and isinstance(claimed, Planned)):
        return Unclear((f"an answer is in fenced code with other text around it; {_QUOTING}",), text)
    return claimed


def _structure(lines: list[str], inside: list[bool]) -> Answer | None:
    """The structured answer in these lines, or None for prose. `inside`: which lines are fenced code."""
    header, _ = _header_lines(lines)
    keys = _keys(header)
    later = _front_matters(lines, inside, len(header) + 1)
    if _is_front_matter(keys):
        if later:
            return Unclear((f"there are two answers in one text; send only one; {_QUOTING}",), "")
        return _with_front_matter(lines, header, keys)
    if len(later) == 1 and _keys(_header_lines(lines[later[0] :])[0]).get("type") == "plan":
        return _structure(lines[later[0] :], inside[later[0] :])
    if later:
        return Unclear((f"there is other text before the first `---` of the answer; {_QUOTING}",), "")
    if _is_failed_body("\n".join(lines)):
        return Unclear((f"there is a section `## Error` without front matter; begin with {_FORM}; {_QUOTING}",), "")
    plans = claimed_plans("\n".join(lines))
    if len(plans) > 1:
        return Unclear((f"there are two plans in one text; write one `## DAG`; {_QUOTING}",), "")
    return Planned(_plan(plans[0].text, plans[0].line)) if plans else _mapping(lines, inside)


def _with_front_matter(lines: list[str], header: list[str], keys: Mapping[str, str]) -> Answer:
    """An answer with front matter. A missing `type:` is added if only one type is possible."""
    kind = keys.get("type", "")
    rest = lines[len(header) + 2 :]
    missing = dict(_IDENTITY)
    if kind not in _TYPES:
        if "subtasks" in keys and not "".join(rest).strip():
            return Planned(_plan("\n".join(header), 2))
        known = keys.keys() <= _HEADERS or any(map(_OUTCOME.match, rest))
        meant = {of for name, (of, values) in _MEANT.items() if keys.get(name) in values}
        if "type" in keys or not known or len(meant) != 1:
            names = ", ".join(f"`{storable_line(name)}`" for name in keys)[:200]
            wanted = "`type: reply` and `status: done` or `status: failed`"
            return Unclear((f"front matter with {names} is not a valid answer: it needs {wanted}",), "")
        missing["type"] = meant.pop()
    text, added = _with_headers("\n".join(lines), header, missing)
    try:
        return _meaning(parse_message(text.encode(), _PATH).message)
    except MessageError as error:
        if error.line is not None and error.line > len(header) + 1:
            error.line = max(error.line - added, len(header) + 1)
        raise


def _plain(text: str, inner: str) -> Results:
    """A result without front matter. Planned actions in it count only if they are a list, not prose."""
    if not _ACTIONS.search(inner):
        return Results(text)
    try:
        sections = split_body(inner, path=_PATH).sections
    except MessageError:
        return Results(text)  # too many headings: a long result
    declared = [section for section in sections if section.is_called("Planned Actions") and claims(section.text)]
    return Results(text, planned_actions=actions_in(tuple(declared)))


def answer_of(message: AnyMessage) -> Answer:
    """The answer in a message from a peer: a reply, plan, question or ack."""
    try:
        return _meaning(message)
    except MessageError as error:
        return Unclear((storable_line(str(error)),), message.text)


def _meaning(message: AnyMessage) -> Answer:
    match message:
        case ReplyMessage(status="done"):
            if message.section("Error").strip().casefold() not in _NO_ERROR:
                problem = (
                    "the reply is `done` but has a section `## Error`: write `status: failed`, or remove the section"
                )
                return Unclear((problem,), message.text)
            results = message.results or _without(message, "Planned Actions")
            if not results:
                return Unclear(("the reply is `done` but has no results",), message.text)
            return Results(results, message.answer, merged(message.planned_actions, actions_in(message.sections)))
        case ReplyMessage():
            reason, partial = message.section("Error"), message.section("Partial Results")
            error = reason or _without(message, "Partial Results")
            partial = partial or (message.section("Results") if reason else "")
            final = message.failure == "permanent"
            return Failure(error or "the agent failed and gave no reason", partial, final)
        case PlanMessage():
            dag = next((section for section in message.sections if section.is_called("DAG")), None)
            return Planned(_plan(dag.text, dag.line) if dag else _plan(message.preamble, 1))
        case QuestionMessage():
            question = message.section("Question") or message.text or message.title
            return Question(question) if question else Unclear(("the question has no text",), "")
        case ReviewMessage():
            return Reviewed(message.verdict, summary_of(message), message.findings)
        case AckMessage():
            return Acknowledged()
    return Unclear((f"a message of type {message.type} is not an answer",), message.text)


def summary_of(review: ReviewMessage) -> str:
    """The summary, with findings that the reviewer listed in prose."""
    summary = review.section("Summary") or _without(review, "Findings")
    prose = "" if review.findings else review.section("Findings")
    return "\n\n".join(filter(None, [summary, prose]))


def _plan(yaml_text: str, first_line: int) -> Plan:
    return parse_plan(yaml_text, path=_PATH, first_line=first_line)


def _read_draft(text: str) -> Drafted | Unclear:
    """Parse `text`, the answer of a drafting turn (`draft.md.j2`)."""
    try:
        spec = rewritten(Spec(""), _unwrapped(storable_text(text).strip()))
    except MessageError as error:
        return Unclear((storable_line(str(error)),), text)
    return Drafted(spec) if spec is not None else Unclear(("it has no section of a spec",), text)


def _header_lines(lines: list[str]) -> tuple[list[str], bool]:
    """The lines that look like front matter, and whether it is closed."""
    if lines[0].rstrip() != "---":
        return [], False
    for index, line in enumerate(lines[1:_MAX_HEADER_LINES], 1):
        if line.rstrip() == "---":
            return lines[1:index], True
    # Not closed: assume that it ends at the first blank line.
    blank = next((index for index, line in enumerate(lines[1:_MAX_HEADER_LINES], 1) if not line.strip()), None)
    return lines[1:blank], False


def _keys(lines: list[str]) -> dict[str, str]:
    """The obvious keys of a YAML mapping with their values, in lower case."""
    found = (_KEY.fullmatch(line.rstrip()) or _SLOPPY_STATUS.fullmatch(line.rstrip()) for line in lines)
    return {key[1].lower(): _REMARK.sub("", key[2] or "").strip().strip("\"'").lower() for key in found if key}


def _is_front_matter(keys: Mapping[str, str]) -> bool:
    """Whether front matter with these keys is, or is meant as, that of an answer and not of a document."""
    if keys.get("type") in _TYPES or keys.get("status") in _STATUS or keys.get("verdict") in _VERDICTS:
        return True
    if not keys.keys().isdisjoint({"status", "verdict", "subtasks"}):
        return "title" not in keys
    return keys.keys() <= _HEADERS and not keys.keys().isdisjoint(_ANSWER_HEADERS)


def _front_matters(lines: list[str], inside: list[bool], start: int) -> list[int]:
    """The lines from `start` at which front matter of an answer begins, outside fenced code."""
    found = []
    for index in range(start, len(lines)):
        if inside[index] or lines[index].rstrip() != "---":
            continue
        end = index + 1
        while end < min(len(lines), index + _MAX_HEADER_LINES) and lines[end].strip() not in ("", "---"):
            end += 1
        keys = _keys(lines[index + 1 : end])
        decided = keys.get("status") in _STATUS or keys.get("verdict") in _VERDICTS
        if keys.get("type") in _TYPES or (decided and keys.keys() <= _HEADERS):
            found.append(index)
    return found


def _mapping(lines: list[str], inside: list[bool]) -> Answer | None:
    """The answer in text that is one YAML or JSON mapping: a plan, or an answer in an invalid form."""
    text = "\n".join(lines)
    keys = _json_keys(text) if text.startswith("{") else _keys(_first_paragraph(lines))
    if "subtasks" in keys or ({"plan", "dag"} & keys.keys() and _SUBTASKS.search(text)):
        return Planned(_plan(text, 1))
    # `Status: done` may begin any prose, and is a success in either case.
    decided = keys.get("status") == "failed" or keys.get("verdict") in _VERDICTS or keys.get("type") in _TYPES
    if decided and keys.keys() <= _HEADERS | _BODY and not text.startswith("#"):
        return Unclear((f"an answer must not be a bare mapping; its lines are {_FORM}; {_QUOTING}",), "")
    for index, line in enumerate(lines[:-1]):
        if not inside[index] and line.rstrip() == "subtasks:" and _CHILD.match(lines[index + 1]):
            return Unclear((f"there is a plan in the middle of the text; write it under `## DAG`; {_QUOTING}",), "")
    return None


def _first_paragraph(lines: list[str]) -> list[str]:
    """The first paragraph without headings and comments, if each line may belong to a mapping."""
    first: list[str] = []
    for line in lines[:_MAX_HEADER_LINES]:
        if line.startswith("#") or not (line.strip() or first):
            continue
        if not line.strip():
            break
        if not (line[0] in " \t-" or _KEY.fullmatch(line.rstrip())):
            return []
        first.append(line)
    return first


def _json_keys(text: str) -> dict[str, str]:
    """The keys of a JSON object with their values if they are text. Invalid JSON is searched for keys."""
    try:
        found = json.loads(text) if len(text) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        return dict(_JSON_PAIR.findall(text[:_MAX_INVALID_JSON]))
    if not isinstance(found, dict):
        return {}
    return {key: value if isinstance(value, str) else "" for key, value in found.items()}


def _fenced(lines: list[str]) -> list[bool]:
    """Which of the lines are fenced code. An unclosed fence is ignored."""
    inside, unclosed = fenced(lines)
    return inside if unclosed is None else inside[:unclosed] + [False] * (len(lines) - unclosed)


def _is_paragraph(text: str) -> bool:
    """Whether the text is at most one paragraph of prose."""
    return "```" not in text and "~~~" not in text and "\n\n" not in text and not text.startswith("#")


def _with_headers(text: str, header: list[str], wanted: Mapping[str, str]) -> tuple[str, int]:
    """`text` with the headers added that only messages need, and the number of added lines."""
    named = {line.partition(":")[0].strip() for line in header}
    added = [f"{name}: {value}" for name, value in wanted.items() if name not in named]
    lines = text.split("\n")
    at = len(header) + 1
    return "\n".join([*lines[:at], *added, *lines[at:]]), len(added)


def _is_failed_body(text: str) -> bool:
    """Whether the text is the body of a failed reply: only its sections, with text under `## Error`."""
    if not _OUTCOME.match(text.partition("\n")[0]):
        return False
    try:
        sections = split_body(text, path=_PATH).sections
    except MessageError:
        return False  # too many headings to be a reply: a long result
    errors = [section.text for section in sections if section.is_called("Error")]
    others = (section for section in sections if not section.is_called("Error"))
    own = all(section.is_called("Results") or section.is_called("Partial Results") for section in others)
    return own and any(error.strip().casefold() not in _NO_ERROR for error in errors)


def claimed_plans(text: str) -> list[Section]:
    """The sections `## DAG` of a text that have subtasks."""
    if not _DAG.search(text):
        return []
    try:
        sections = split_body(text, path=_PATH).sections
    except MessageError:
        return []  # too many headings to be a plan: a long result
    return [section for section in sections if section.is_called("DAG") and _SUBTASKS.search(section.text)]


def _unwrapped(text: str) -> str:
    """The content, if the whole text is one fenced block around sections or front matter."""
    first, _, rest = text.partition("\n")
    inner, _, last = rest.rpartition("\n")
    fence = _FENCE.fullmatch(first.rstrip())
    if not fence or last.strip() != fence[1]:
        return text
    inner = inner.strip()
    return inner if inner.startswith(("---", "#")) else text


def _without(message: AnyMessage, heading: str) -> str:
    """The body without one of its sections: the answer if its author forgot the heading."""
    rest = [f"## {s.heading}\n\n{s.text}" for s in message.sections if not s.is_called(heading)]
    return "\n\n".join(part for part in (message.preamble, *rest) if part)
