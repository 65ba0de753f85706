"""The types of messages, one frozen model per `type` (protocol section 2), and their files.

A model enforces the same rules as the parser, so that `parse_message(render_message(m), path).message == m` for every
message. Models normalize text (`text`, `sections`) and raise pydantic's ValidationError for anything else that is
wrong. `parse_message` trusts nothing: it returns a message or raises MessageError with rule, path, line, field and hint
for the author of the file; small mistakes that it accepts are in `warnings`.

Unknown headers are kept as pydantic extras, as structures of text. One that has the name of a part of the body
(`title: ...` is a header too) is kept under that name and a colon; `unknown_headers` undoes this.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from mailboxd.core.approvals import Action, merged
from mailboxd.core.model import Finding, Overrides, Spec
from mailboxd.core.sanitize import excerpt, storable_line, storable_text
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Gate, Join, Runtime, Synthesis, Verdict, is_id
from mailboxd.errors import MessageError
from mailboxd.protocol import headers
from mailboxd.protocol.front_matter import DECLARATIONS, MAX_FILE, Document, join, split
from mailboxd.protocol.headers import CONVERTERS, NOTHING_SAID, OVERRIDES, PROTOCOL, Source, findings
from mailboxd.protocol.markdown import Body, Section, join_body, split_body, trim
from mailboxd.protocol.spec import SPEC_SECTIONS, action_header, actions_of, derive_spec
from mailboxd.protocol.strict_yaml import UNSTORABLE, Yaml, load

MAX_TITLE = 1000
MAX_KEY = 128
_MAX_DEPTH = 15
_BODY = ("title", "preamble", "sections", "from_")


def _id(text: str) -> str:
    if not is_id(text):
        raise PydanticCustomError("bad-id", "this is not an id")
    return text


def _time(text: str) -> str:
    to_epoch(text)
    return text


def _text(value: object) -> object:
    return trim(value) if isinstance(value, str) else value


def _line(value: object) -> object:
    return storable_line(value) if isinstance(value, str) else value


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def whole(name: str) -> Any:
    """A field for a whole number within the range that `headers.RANGES` has for it."""
    low, high = headers.RANGES[name]
    return Field(default=None, ge=low, le=high)


def _matching(pattern: Any) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise PydanticCustomError("wrong-type", "this has another form")
        return text

    return AfterValidator(check)


Id = Annotated[str, AfterValidator(_id)]
Step = Annotated[str, _matching(headers.STEP)]
Time = Annotated[str, AfterValidator(_time)]
Text = Annotated[str, BeforeValidator(_text)]
Line = Annotated[str, BeforeValidator(_line)]
Money = Annotated[float, Field(ge=0, le=headers.MAX_BUDGET), AfterValidator(lambda x: round(x, 6))]


class Message(BaseModel):
    """What all messages have: the common headers, and a body of title, preamble and level-2 sections.

    Ids are as protocol section 2 has them; times are UTC with milliseconds; `timeout` is in seconds, `budget_usd` in
    US dollars (six places). None = the header is absent. `required` headers make a message acceptable; the protocol
    lists the `expected` ones as well, but nothing depends on them, so their absence is only a warning.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", populate_by_name=True, allow_inf_nan=False)

    required: ClassVar[tuple[str, ...]] = ("task_id", "from")
    expected: ClassVar[tuple[str, ...]] = ()

    type: str
    protocol: Annotated[str, _matching(headers.PROTOCOL)] | None = None
    task_id: Id | Literal[""] = ""
    """Empty only in an approval that names no task."""
    subtask_id: Id | None = None
    from_: Id = Field(validation_alias="from", serialization_alias="from")
    to: Id | None = None
    message_id: Id | None = None
    in_reply_to: Id | None = None
    attempt: int | None = whole("attempt")
    attempt_id: Id | None = None
    root_task_id: Id | None = None
    depth: int | None = whole("depth")
    deadline: Time | None = None
    priority: int | None = whole("priority")
    reply_token: Annotated[str, _matching(headers.TOKEN)] | None = None
    gates: Annotated[tuple[Gate, ...], AfterValidator(distinct)] | None = None
    reviewers: Annotated[tuple[Id, ...], Field(max_length=headers.MAX_NAMES), AfterValidator(distinct)] | None = None
    max_attempts: int | None = whole("max_attempts")
    timeout: int | None = whole("timeout")
    idempotent: bool | None = None
    budget_usd: Money | None = None
    budget_tokens: int | None = whole("budget_tokens")
    traceparent: Annotated[str, _matching(headers.TRACEPARENT)] | None = None
    sent_at: Time | None = None
    completed_at: Time | None = None
    signature: Annotated[str, _matching(headers.SIGNATURE)] | None = None

    title: Annotated[Line, Field(max_length=MAX_TITLE)] = ""
    """The H1 on one line; of a task without the word `Task:`."""
    preamble: Text = ""
    """What stands before the first section, without the title."""
    sections: tuple[Section, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing = [name for name in self.required if getattr(self, "from_" if name == "from" else name) in ("", None)]
        if missing:
            raise PydanticCustomError("missing-field", "required headers are missing: " + ", ".join(missing))
        for key, value in self.unknown_headers().items():
            if key in DECLARATIONS:
                raise PydanticCustomError("unknown-field", "the envelope declares the length and hash of the body")
            if key.strip().casefold() == "approved":
                raise PydanticCustomError("unknown-field", "`approved` is no header")
            _check_extra(key, {key: value}, _MAX_DEPTH)
        return self

    @classmethod
    def header_fields(cls) -> Mapping[str, str]:
        """The headers this type knows, by their name in the file, in the order of writing -> the model's field."""
        return _header_fields(cls)

    def unknown_headers(self) -> dict[str, Yaml]:
        """The headers that this type does not know, under the names they have in the file."""
        return {key[:-1] if is_shadow(key) else key: value for key, value in (self.__pydantic_extra__ or {}).items()}

    def section(self, name: str) -> str:
        """The text of the section `name` (case does not matter); of several, all of them; without one, ``."""
        return self.texts().get(name.casefold(), "")

    def texts(self) -> dict[str, str]:
        """What the sections say by their names, as they are looked for; of several of one name, all of them."""
        found: dict[str, str] = {}
        for section in self.sections:
            before = found.get(section.name)
            found[section.name] = f"{before}\n\n{section.text}" if before and section.text else before or section.text
        return found

    @property
    def text(self) -> str:
        """The body without its title, as it would be written."""
        return join_body("", self.preamble, self.sections).rstrip("\n")


def is_shadow(key: str) -> bool:
    """Whether an extra is a header that has the name of a part of the body, with colons behind it."""
    return key.endswith(":") and key.rstrip(":") in _BODY


def shadow(header: str) -> str:
    """The name of the extra that holds the unknown header `header`."""
    return header + ":" if header.rstrip(":") in _BODY else header


def _check_extra(header: str, value: Yaml, depth: int) -> None:
    """A structure of text, no deeper and with no longer keys than a reader takes."""

    def refuse(rule: str, problem: str) -> NoReturn:
        raise PydanticCustomError(rule, problem, {"field": header})

    if depth < 0:
        refuse("too-deep", "an unknown header is nested too deep")
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            refuse("control-char", "an unknown header holds text that no file can hold")
    elif isinstance(value, list):
        for item in value:
            _check_extra(header, item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not 1 <= len(key) <= MAX_KEY or UNSTORABLE.search(key):
                refuse("field-range", f"a name in an unknown header is empty or longer than {MAX_KEY} characters")
            _check_extra(header, item, depth - 1)
    else:
        refuse("wrong-type", "an unknown header is text, a list or a mapping")


@cache
def _header_fields(kind: type[Message]) -> Mapping[str, str]:
    names = {field: field.removesuffix("_") for field in kind.model_fields if field not in _BODY or field == "from_"}
    first = ("type", "protocol", "task_id", "subtask_id", "from_", "to")
    return MappingProxyType({names[field]: field for field in (*first, *(name for name in names if name not in first))})


# ---------------------------------------------------------------------------------------------------------------------
# The types of messages: one frozen model per `type` of the protocol (section 2). `message` has what they share.

_TASK = re.compile(r"\A(?:task:\s*)+", re.IGNORECASE)


def _task_title(value: object) -> object:
    return _TASK.sub("", storable_line(value)) if isinstance(value, str) else value


def _answer(value: object) -> object:
    return storable_text(value) if isinstance(value, str) else value


def _storable_finding(finding: Finding) -> Finding:
    """In the form in which it is read back: every text storable, an empty one absent."""
    if finding.severity not in headers.SEVERITIES:
        raise PydanticCustomError("wrong-type", "the severity of a finding is critical, major or minor")
    if finding.line is not None and not 1 <= finding.line <= headers.MAX_LINE:
        raise PydanticCustomError("field-range", "the line of a finding is out of range")
    file, uri = storable_text(finding.file or ""), storable_text(finding.artifact_uri or "")
    return Finding(finding.severity, storable_text(finding.message), file or None, finding.line, uri or None)


class TaskMessage(Message):
    """A piece of work. A `## DAG` section carries a plan for it."""

    expected = ("sent_at",)

    type: Literal["task"] = "task"
    title: Annotated[str, BeforeValidator(_task_title), Field(max_length=MAX_TITLE)] = ""
    synthesis: Synthesis | None = None
    join: Join | None = None
    runtime: Runtime | None = None
    harness: Id | None = None
    delegation_path: (
        Annotated[tuple[Step, ...], Field(max_length=headers.MAX_NAMES), AfterValidator(distinct)] | None
    ) = None
    """The agents above the receiver, from the first one down to the sender, each with a digest of its goal."""
    planned_actions: tuple[Action, ...] = ()

    def spec(self) -> Spec:
        """What the task must achieve: its spec sections, the missing ones derived."""
        texts = self.texts()
        spec = derive_spec(self.title, self.preamble, self.sections, lambda name: texts.get(name.casefold(), ""))
        actions = merged(self.planned_actions, spec.planned_actions)
        return replace(spec, planned_actions=actions) if actions else spec

    def overrides(self) -> Overrides:
        """What the headers say of the task's own policy."""
        said = {name: value for name in OVERRIDES if (value := getattr(self, name)) is not None}
        if not said:
            return NOTHING_SAID
        if "gates" in said:
            said["gates"] = frozenset(said["gates"])
        return Overrides(**said)


class ReplyMessage(Message):
    """What became of a task. `answer` is the declared answer a majority is counted over, `` if none is."""

    required = ("task_id", "from", "status")
    expected = ("subtask_id", "completed_at")

    type: Literal["reply"] = "reply"
    status: Literal["done", "failed"]
    failure: Literal["permanent", "transient"] | None = None
    """`permanent`: giving the work out again changes nothing. Without it, whoever gave it out decides by itself."""
    answer: Annotated[str, BeforeValidator(_answer), Field(max_length=headers.MAX_ANSWER)] = ""
    usage_tokens: int | None = whole("usage_tokens")
    cost_usd: Money | None = None
    planned_actions: tuple[Action, ...] = ()

    @property
    def results(self) -> str:
        """`## Results` and the unknown sections after it: a model that divides its result must not lose the rest."""
        known = ("Error", "Partial Results", "Planned Actions")
        parts: list[str] = []
        for section in self.sections:
            if section.is_called("Results"):
                parts.append(section.text)
            elif parts and not any(map(section.is_called, known)):
                parts.append(f"## {section.heading}\n\n{section.text}".rstrip())
        return "\n\n".join(filter(None, parts))


class AckMessage(Message):
    """A mailboxd peer has taken a dispatch and will reply later."""

    type: Literal["ack"] = "ack"


class PlanMessage(Message):
    """A plan for a task, as YAML in the section `## DAG`."""

    type: Literal["plan"] = "plan"


class QuestionMessage(Message):
    """Something has to be made clear before the work goes on. A text that is exactly `REPLY_SKIP` ends the exchange."""

    type: Literal["question"] = "question"


class AnswerMessage(Message):
    """The answer to a question."""

    type: Literal["answer"] = "answer"


class ProgressMessage(Message):
    """A heartbeat or checkpoint of running work."""

    type: Literal["progress"] = "progress"


class ReviewMessage(Message):
    """A reviewer's verdict. `findings` come from the header, else from a fenced YAML block in `## Findings`."""

    required = ("task_id", "from", "verdict")

    type: Literal["review"] = "review"
    verdict: Verdict
    findings: tuple[Annotated[Finding, AfterValidator(_storable_finding)], ...] = ()


class SteerMessage(Message):
    """New instructions for running work."""

    type: Literal["steer"] = "steer"


class CancelMessage(Message):
    """The sender does not want the work any more."""

    type: Literal["cancel"] = "cancel"


class ApprovalMessage(Message):
    """A person's decision on a planned action. Whether it is genuine is not for the codec to say."""

    required = ("from", "approval_id", "decision")

    type: Literal["approval"] = "approval"
    approval_id: Id
    decision: Literal["approved", "rejected", "request_changes"]


AnyMessage = (
    TaskMessage
    | ReplyMessage
    | AckMessage
    | PlanMessage
    | QuestionMessage
    | AnswerMessage
    | ProgressMessage
    | ReviewMessage
    | SteerMessage
    | CancelMessage
    | ApprovalMessage
)

MESSAGE_TYPES: dict[str, type[AnyMessage]] = {
    str(kind.model_fields["type"].default): kind for kind in get_args(AnyMessage)
}
"""Every type of message by its word in the header `type`."""


# Reading and writing message files.

PROTOCOL_VERSION = 2
_MAX_NEAR = 20
_MAX_NEAR_LENGTH = 40
_MAX_PLAIN_TITLE = 200
_MAX_FIRST_LINE = 2000
_UNDER_EVERY_LIMIT = 4000
"""Bytes: a shorter file has neither 2,000 YAML events nor 5,000 marks, for each takes two bytes."""
_YAML_OPENS = re.compile(r"^(?:```|~~~)[ \t]*+(?:ya?ml)?[ \t]*+\n", re.MULTILINE)
_YAML_CLOSES = re.compile(r"^(?:```|~~~)[ \t]*+$", re.MULTILINE)


@dataclass(frozen=True)
class Parsed:
    """A file, read. `sha256` is that of its bytes; `plain` says that it had no front matter."""

    message: AnyMessage
    warnings: tuple[str, ...]
    sha256: str
    plain: bool = False


def parse_message(raw: bytes, path: str, *, max_bytes: int = MAX_FILE, sha256: str | None = None) -> Parsed:
    """Reads the bytes of the message file `path` (protocol section 2), of which there may be `max_bytes`.

    `sha256` is that of the bytes, from who knows it.
    A file without front matter is a task from the operator. Raises MessageError: the rules of `front_matter.split`,
    `sections.split_body` and `headers`, and `newer-protocol`, `unknown-type`, `unknown-field`, `missing-field`.
    """
    document = split(raw, path, max_bytes=max_bytes)
    digest = sha256 or hashlib.sha256(raw).hexdigest()
    if not document.has_header:
        return Parsed(_plain_task(document.body, path, digest), (), digest, plain=True)
    reader = _Reader(document, path)
    message = reader.message()
    return Parsed(message, reader.warnings, digest)


def render_message(message: Message) -> bytes:
    """The file of `message`. Raises MessageError when it is over a limit that `parse` has."""
    title = f"Task: {message.title}" if isinstance(message, TaskMessage) and message.title else message.title
    return _file(message, join_body(title, message.preamble, message.sections))


def render_message_with(message: Message, body: str) -> bytes:
    """The file of `message` with a body that is text already, in place of its own: what a template has made.

    It is not taken apart and put together again: `parse` reads the same from it as from the parts.
    Raises MessageError as `render`.
    """
    text = trim(body)
    return _file(message, f"{text}\n" if text else "")


def _file(message: Message, body: str) -> bytes:
    header: dict[str, object] = {}
    said = vars(message)
    for name, field in type(message).header_fields().items():
        value = said[field]
        if field == "findings":
            value = None if value == _section_findings(message.sections) else [_finding_header(item) for item in value]
        elif field == "planned_actions":
            value = [action_header(action) for action in value] or None
        if value not in (None, ""):
            header[name] = value
    header |= message.unknown_headers()
    raw = join(header, body)
    if len(raw) < _UNDER_EVERY_LIMIT:
        return raw
    # What a receiver would refuse for its size must not be sent.
    path = f"{message.type} to {message.to or 'its receiver'}"
    split_body(split(raw, path).body, path=path)
    return raw


class _Reader:
    """The front matter and body of one file on their way to a message."""

    def __init__(self, document: Document, path: str) -> None:
        self._document = document
        self._path = path
        self._warnings: list[str] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)

    def message(self) -> AnyMessage:
        header = self._document.header
        said = {key for key in header if (key,) not in self._document.nulls}
        self._check_version(header.get("protocol", ""))
        kind = self._kind(header, said)
        known = kind.header_fields()
        near = self._near_misses(header, known, said)
        self._check_present(kind, said, near)
        values: dict[str, Any] = {known[name]: self._convert(name, header[name]) for name in known if name in said}
        values |= {shadow(name): value for name, value in header.items() if name not in known}
        body = split_body(self._document.body, path=self._path, first_line=self._document.body_line)
        values |= _body_values(body)
        if issubclass(kind, ReviewMessage) and "findings" not in values:
            values["findings"] = _section_findings(body.sections, self._warn)
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            raise self._model_error(error) from None

    def _check_version(self, version: Yaml) -> None:
        if isinstance(version, str) and PROTOCOL.fullmatch(version):
            major, _, minor = version.partition(".")
            if (int(major), int(minor or 0)) > (PROTOCOL_VERSION, 0):
                problem = f"this is protocol version {version}, mailboxd speaks {PROTOCOL_VERSION}"
                raise self._error("newer-protocol", problem, "Upgrade mailboxd and drop it again.", "protocol")

    def _kind(self, header: dict[str, Yaml], said: set[str]) -> type[AnyMessage]:
        if "type" not in said:
            self._check_present(None, said, {})
        word = header["type"]
        kind = MESSAGE_TYPES.get(word) if isinstance(word, str) else None
        if kind is None:
            problem = f"{excerpt(str(word))} is no type of message"
            raise self._error("unknown-type", problem, "Known: " + ", ".join(MESSAGE_TYPES) + ".", "type")
        for key in header:
            if key.strip().casefold() == "approved":
                hint = "An approval is a message of its own, by a person."
                raise self._error("unknown-field", "a message cannot approve itself", hint, key)
        return kind

    def _near_misses(self, header: dict[str, Yaml], known: Mapping[str, str], said: set[str]) -> dict[str, str]:
        """The headers that are probably misspelt: known header -> what stands there. Each is a warning."""
        # Bounded: difflib takes some 50 us for a pair of words, and a header may have a thousand keys.
        unknown = [key for key in header if key not in known and len(key) <= _MAX_NEAR_LENGTH][:_MAX_NEAR]
        absent = [name for name in known if name not in said] if unknown else []
        near = {}
        for key in unknown:
            for match in difflib.get_close_matches(key.casefold(), absent, n=1, cutoff=0.75):
                self._warn(f"unknown header {excerpt(key)}; did you mean {match}?")
                near[match] = key
        return near

    def _check_present(self, kind: type[AnyMessage] | None, said: set[str], near: dict[str, str]) -> None:
        required = ("type", *Message.required) if kind is None else kind.required
        expected = () if kind is None else kind.expected
        late = [name for name in expected if name not in said]
        if missing := [name for name in required if name not in said]:
            hints = [f"Did you mean {name} by {excerpt(near[name])}?" for name in missing if name in near]
            problem = "required headers are missing: " + ", ".join(missing)
            problem += f"; expected as well: {', '.join(late)}" if late else ""
            raise self._error("missing-field", problem, " ".join(hints), missing[0])
        self._warnings += [f"the header {name} is missing" for name in late]

    def _convert(self, name: str, value: Yaml) -> Any:
        if name == "type":
            return value
        try:
            if name == "planned_actions":
                return actions_of(Source(self._path, 1, self._document.lines), value, (name,))
            return CONVERTERS[name](value, lambda text: self._warn(f"{name}: {text}"))
        except MessageError as error:
            raise self._error(error.rule, error.problem, error.hint, name) from None

    def _model_error(self, error: ValidationError) -> MessageError:
        """What only the finished model can check: the title, and the shape of unknown headers."""
        first = error.errors(include_url=False, include_input=False)[0]
        field = first.get("ctx", {}).get("field") or (str(first["loc"][0]) if first["loc"] else None)
        rule = first["type"] if "-" in first["type"] else "field-range"
        return self._error(rule, first["msg"], "", field)

    def _error(self, rule: str, problem: str, hint: str, field: str | None) -> MessageError:
        line = self._document.lines.get((field or "",), self._document.lines.get(()))
        return MessageError(rule, problem, hint, self._path, line, None if field is None else excerpt(field)[1:-1])

    def _warn(self, text: str) -> None:
        self._warnings.append(text)


def _body_values(body: Body) -> dict[str, Any]:
    return {"title": body.title, "preamble": body.preamble, "sections": body.sections}


def _plain_task(text: str, path: str, digest: str) -> TaskMessage:
    """The task that a file without front matter is (protocol section 2).

    The whole text is the instructions; spec sections in it count as well. A text with a section `## Instructions`
    is laid out like the body of a task and is read as one. The id contains the hash: other bytes are other work.
    """
    stem = PurePath(path).stem
    task_id = f"{stem[:119] if is_id(stem) else 'task'}-{digest[:8]}"
    body = split_body(text, path=path)
    heading = body.title or (body.sections[0].heading if body.sections else "")
    title = heading or storable_line(body.preamble[:_MAX_FIRST_LINE].partition("\n")[0].lstrip("#"))
    if len(title) > _MAX_PLAIN_TITLE:
        title = title[: _MAX_PLAIN_TITLE - 1] + "…"
    if any(section.is_called("Instructions") for section in body.sections):
        return TaskMessage(
            task_id=task_id, from_="operator", title=title, preamble=body.preamble, sections=body.sections
        )
    stated = [section for section in body.sections if any(map(section.is_called, SPEC_SECTIONS))]
    whole = Section("Instructions", text)
    return TaskMessage(task_id=task_id, from_="operator", title=title, sections=(whole, *stated))


def _section_findings(sections: tuple[Section, ...], warn: Callable[[str], None] | None = None) -> tuple[Finding, ...]:
    """The findings in the first YAML block of `## Findings`. A block that cannot be read is prose, with a warning."""
    warn = warn or (lambda _: None)
    for section in sections:
        opening = _YAML_OPENS.search(section.text) if section.is_called("Findings") else None
        closing = _YAML_CLOSES.search(section.text, opening.end()) if opening else None
        if opening is None or closing is None:
            continue
        try:
            loaded = load(section.text[opening.end() : closing.start()], path="", first_line=section.line)
            return findings(loaded.value, warn)
        except MessageError as error:
            warn(f"the findings cannot be read as YAML: {error.problem}")
    return ()


def _finding_header(finding: Finding) -> dict[str, str]:
    values = {
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.file,
        "line": None if finding.line is None else str(finding.line),
        "artifact_uri": finding.artifact_uri,
    }
    return {name: value for name, value in values.items() if value is not None}
