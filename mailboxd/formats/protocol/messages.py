"""The types of messages, one frozen model per `type` (protocol section 2), and their files.

A model enforces the same rules as the parser, so that `parse_message(render_message(m), path).message == m` for every
message. Models normalize text (`text`, `sections`) and raise pydantic's ValidationError for anything else that is
wrong. `parse_message` trusts nothing: it returns a message or raises MessageError with rule, path, line, field and hint
for the author of the file; small mistakes that it accepts are in `warnings`.

Unknown headers are kept as pydantic extras, as structures of text. One that has the name of a part of the body
(`title: ...` is a header too) is kept under that name and a colon; `unknown_headers` undoes this.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mailboxd.core.approvals import Action, merged
from mailboxd.core.model import NO_OVERRIDES, Finding, GivenVerdict, Overrides, Plan, Spec
from mailboxd.core.repetition import Missed
from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.core.vocabulary import OPERATORS, Gate, Join, Runtime, Verdict, WaitsFor, is_id
from mailboxd.core.votes import Vote
from mailboxd.errors import MessageError
from mailboxd.formats.protocol import findings
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.dropped import read_sections, read_text
from mailboxd.formats.protocol.front_matter import MAX_FILE, Document, join, split
from mailboxd.formats.protocol.head import NOWHERE, Head, Place, read_head
from mailboxd.formats.protocol.headers import (
    CONVERTERS,
    OVERRIDES,
    PROTOCOL,
    Source,
    given_verdicts,
    near_misses,
    override_headers,
)
from mailboxd.formats.protocol.markdown import (
    MAX_MARKS,
    Body,
    Section,
    join_body,
    split_body,
    texts_by_name,
    trim,
)
from mailboxd.formats.protocol.plan import Known, parse_plan
from mailboxd.formats.protocol.spec import SPEC_NAMES, action_header, actions_of, derive_spec
from mailboxd.formats.protocol.strict_yaml import Yaml, value_text
from mailboxd.formats.protocol.words import SENDERS, meant, spelled
from mailboxd.host.ids import readable

MAX_TITLE = 1000
_READ = object()
"""The context of values that their converters have just read."""
_BODY = ("title", "preamble", "sections", "from_")
_MAY_BE_EMPTY = ("task_id", "answer")


def _if_text(normalize: Callable[[str], str]) -> BeforeValidator:
    """Normalizes text before it is validated; other types are left for the model to refuse."""
    return BeforeValidator(lambda value: normalize(value) if isinstance(value, str) else value)


Text = Annotated[str, _if_text(trim)]
Line = Annotated[str, _if_text(storable_line)]


class Message(BaseModel):
    """The common headers of all messages, and a body of title, preamble and level-2 sections.

    Ids follow protocol section 2; times are UTC with milliseconds; `timeout` is in seconds, `budget_usd` in US dollars
    (six places). None = the header is absent. A message without a `required` header is refused. The protocol requires
    the `expected` ones too, but nothing depends on them, so mailboxd only warns.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="allow",
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,  # most commands read no message, and the daemon builds a class in 10 ms when one comes
    )

    required: ClassVar[tuple[str, ...]] = ("task_id", "from")
    expected: ClassVar[tuple[str, ...]] = ()

    type: str
    protocol: str | None = None
    task_id: str = ""
    """Empty only in an approval that does not name a task."""
    subtask_id: str | None = None
    from_: str = Field(validation_alias="from", serialization_alias="from")
    to: str | None = None
    message_id: str | None = None
    in_reply_to: str | None = None
    attempt: int | None = None
    attempt_id: str | None = None
    root_task_id: str | None = None
    depth: int | None = None
    deadline: str | None = None
    priority: int | None = None
    reply_token: str | None = None
    gates: tuple[Gate, ...] | None = None
    reviewers: tuple[str, ...] | None = None
    max_attempts: int | None = None
    timeout: int | None = None
    idempotent: bool | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    traceparent: str | None = None
    attachments: tuple[str, ...] | None = None
    """Files that the hub carries along, as they are called in mailbox/attachments/ of the receiver."""
    sent_at: str | None = None
    completed_at: str | None = None
    signature: str | None = None

    title: Annotated[Line, Field(max_length=MAX_TITLE)] = ""
    """The H1 on one line; in a task, without the prefix `Task:`."""
    preamble: Text = ""
    """The text before the first section, without the title."""
    sections: tuple[Section, ...] = ()

    @field_validator("*")
    @classmethod
    def _as_it_is_read(cls, value: Any, info: ValidationInfo) -> Any:
        """The value of a header as its converter reads it from a file, by the same rules."""
        if info.context is _READ:
            return value
        convert = CONVERTERS.get((info.field_name or "").removesuffix("_"))
        if convert is None or value is None or (value == "" and info.field_name in _MAY_BE_EMPTY):
            return value
        try:
            return convert(_as_yaml(value), lambda _: None)
        except MessageError as error:
            raise PydanticCustomError(error.rule, "{problem}", {"problem": error.problem}) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing = [name for name in self.required if getattr(self, "from_" if name == "from" else name) in ("", None)]
        if missing:
            raise PydanticCustomError("missing-field", "required headers are missing: " + ", ".join(missing))
        return self

    @classmethod
    @cache
    def header_fields(cls) -> Mapping[str, str]:
        """Header name in the file -> field of the model, for the headers of this type in the order of writing."""
        fields = cls.model_fields
        names = {field: field.removesuffix("_") for field in fields if field not in _BODY or field == "from_"}
        first = ("type", "protocol", "task_id", "subtask_id", "from_", "to")
        return MappingProxyType({names[field]: field for field in dict.fromkeys((*first, *names))})

    def unknown_headers(self) -> dict[str, Yaml]:
        """The unknown headers by their names in the file."""
        return {key[:-1] if is_shadow(key) else key: value for key, value in (self.__pydantic_extra__ or {}).items()}

    def own_headers(self) -> dict[str, Yaml]:
        """The sender's own headers, which begin with `x-`: they stay with the work."""
        return {key: value for key, value in (self.__pydantic_extra__ or {}).items() if key.startswith("x-")}

    def section(self, name: str) -> str:
        """The text of all sections called `name` (ignoring case), or empty."""
        return self.texts.get(name.casefold(), "")

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """The texts of the sections by `Section.name`."""
        return texts_by_name(self.sections)

    @property
    def text(self) -> str:
        """The body as it is written, without its title."""
        return join_body("", self.preamble, self.sections).rstrip("\n")


def is_shadow(key: str) -> bool:
    """Whether an extra is a header with the name of a part of the body, followed by colons."""
    return key.endswith(":") and key.rstrip(":") in _BODY


def shadow(header: str) -> str:
    """The name of the extra that holds the unknown header `header`."""
    return header + ":" if header.rstrip(":") in _BODY else header


# The types.

_TASK = re.compile(r"\A(?:task:\s*)+", re.IGNORECASE)


def _task_title(text: str) -> str:
    return _TASK.sub("", storable_line(text))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


HANDED_ON = "x-handed-on"
"""The header of a task for another host with the chain of hand-overs that it is part of, which the host signs. Versions
that do not know it keep it like any header of the sender's own."""


class TaskMessage(Message):
    """A task, with a plan for it if there is a section `## DAG`."""

    expected = ("sent_at",)

    _calendar: Calendar | None = PrivateAttr(None)
    """When and where it was written: the dates in its plan are meant so."""

    type: Literal["task"] = "task"
    title: Annotated[str, _if_text(_task_title), Field(max_length=MAX_TITLE)] = ""
    synthesis: str | None = None
    join: Join | None = None
    labels: tuple[str, ...] | None = None
    background: bool | None = None
    answers: tuple[str, ...] | None = None
    """The answers of which the reply has to declare one."""
    runtime: Runtime | None = None
    harness: str | None = None
    model: str | None = None
    reply_to: str | None = None
    not_before: str | None = None
    """The work does not begin earlier."""
    repeat: str | None = None
    """How it is repeated, as it is written; None = it is done once."""
    missed: Missed | None = None
    overlap: bool | None = None
    delegation_path: tuple[str, ...] | None = None
    """The ancestors' agents, from the root to the sender, each with a digest of its goal."""
    planned_actions: tuple[Action, ...] = ()
    agent: str | None = None
    """Who does the work, if not the agent that receives it."""
    depends_on: tuple[str, ...] | None = None
    """What has to be completed before: ids or titles of tasks, or names of the files that brought them."""

    @cached_property
    def plan(self) -> Plan | None:
        """The plan in `## DAG`, if there is one. Raises MessageError."""
        dag = self.section("DAG")
        if not dag.strip():
            return None
        known = Known(calendar=self._calendar, by_person=self.from_ in OPERATORS)
        return parse_plan(dag, path="DAG", known=known, is_file=True)

    def spec(self) -> Spec:
        """The spec in its sections; missing parts are derived."""
        spec = derive_spec(self.title, self.preamble, self.sections)
        actions = merged(self.planned_actions, spec.planned_actions)
        return replace(spec, planned_actions=actions) if actions else spec

    def once(self) -> TaskMessage:
        """The message of one run of work that is repeated."""
        of_all = ("repeat", "missed", "overlap", "not_before", "message_id", "sent_at", "signature")
        return self.model_copy(update=dict.fromkeys(of_all))

    @cached_property
    def content(self) -> str:
        """A digest of the work: the body without the plan, and without what one attempt is told about another."""
        own = [(s.name, s.text) for s in self.sections if s.name not in ("dag", "findings")]
        return _digest(self.title, self.preamble, *chain.from_iterable(own))

    @property
    def terms(self) -> str:
        """A digest of the headers that override the policy, of `reply_to`, the planned actions and the plan."""
        said = override_headers(self.overrides()) | ({"reply_to": self.reply_to} if self.reply_to else {})
        said |= {"answers": self.answers} if self.answers else {}
        own = tuple(filter(None, (self.agent, self.depends_on)))
        return _digest(repr(said), repr(self.planned_actions), self.section("DAG"), *map(repr, own))

    def overrides(self) -> Overrides:
        """The headers that override the policy."""
        values = {name: value for name in OVERRIDES if (value := getattr(self, name)) is not None}
        if not values:
            return NO_OVERRIDES
        if "gates" in values:
            values["gates"] = frozenset(values["gates"])
        return Overrides(**values)


_DOUBT = re.compile(r"^\[mailboxd\] In doubt: (.+)$", re.MULTILINE)
VOTES = "x-votes"
"""The header of a reply with the votes that decided its result, for whoever reads it."""
VERDICTS = "x-verdicts"
"""The header of a reply with the verdicts of the gates that its result passed. Versions that do not know it keep it
like any header of the sender's own."""


class ReplyMessage(Message):
    """The outcome of a task. `answer` is the declared answer that a majority is counted by, or empty."""

    required = ("task_id", "from", "status")
    expected = ("subtask_id", "completed_at")

    type: Literal["reply"] = "reply"
    status: Literal["done", "failed"]
    failure: Literal["permanent", "transient"] | None = None
    """`permanent`: a retry would fail again. Without it, the sender decides whether to retry."""
    answer: str = ""
    usage_tokens: int | None = None
    cost_usd: float | None = None
    planned_actions: tuple[Action, ...] = ()

    @property
    def results(self) -> str:
        """`## Results` and the unknown sections after it, because models divide their results into sections."""
        known = ("Error", "Partial Results", "Planned Actions")
        parts: list[str] = []
        for section in self.sections:
            if section.is_called("Results"):
                parts.append(section.text)
            elif parts and not any(map(section.is_called, known)):
                parts.append(f"## {section.heading}\n\n{section.text}".rstrip())
        return "\n\n".join(filter(None, parts))

    @property
    def doubts(self) -> list[str]:
        """What may have been meant otherwise, as the daemon that did the work says."""
        return _DOUBT.findall(self.preamble)

    @property
    def verdicts(self) -> tuple[GivenVerdict, ...]:
        """The verdicts on the result that its sender says it was given there. Raises MessageError."""
        said = self.own_headers().get(VERDICTS, [])
        try:
            return given_verdicts(said, self.from_)
        except MessageError as error:
            raise MessageError(error.rule, f"{VERDICTS}: {error.problem}", error.hint, field=VERDICTS) from None


class AckMessage(Message):
    """A mailboxd peer has accepted a dispatch and will reply later."""

    type: Literal["ack"] = "ack"


class PlanMessage(Message):
    """A plan for a task, as YAML in the section `## DAG`."""

    type: Literal["plan"] = "plan"


class QuestionMessage(Message):
    """A question that must be answered before work continues. The text `REPLY_SKIP` ends the exchange."""

    type: Literal["question"] = "question"


class AnswerMessage(Message):
    """The answer to a question."""

    type: Literal["answer"] = "answer"


WAITS_FOR = "x-waits-for"
"""The header of a progress message that says what the work waits for, as `WaitsFor`. Versions that do not know it keep
it like any header of the sender's own."""


class ProgressMessage(Message):
    """A heartbeat or checkpoint of running work."""

    type: Literal["progress"] = "progress"

    @property
    def waits_for(self) -> WaitsFor | None:
        """What the work waits for; None if the message does not say so."""
        said = self.own_headers().get(WAITS_FOR)
        return WaitsFor(said) if isinstance(said, str) and said in set(WaitsFor) else None


class ReviewMessage(Message):
    """A reviewer's verdict. `findings` come from the header, else from the section `## Findings`."""

    required = ("task_id", "from", "verdict")

    type: Literal["review"] = "review"
    verdict: Verdict
    findings: tuple[Finding, ...] = ()


class SteerMessage(Message):
    """New instructions for running work."""

    type: Literal["steer"] = "steer"


class CancelMessage(Message):
    """The sender no longer wants the work."""

    type: Literal["cancel"] = "cancel"


class ApprovalMessage(Message):
    """A person's decision on a planned action. Intake checks whether it is genuine."""

    required = ("from", "approval_id", "decision")

    type: Literal["approval"] = "approval"
    approval_id: str
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
"""The message types by the value of their header `type`."""
_OF_ONE = {
    name: word
    for word, kind in MESSAGE_TYPES.items()
    for name in kind.header_fields()
    if name not in TaskMessage.header_fields()
}
"""Each header that a task cannot have, and the type that has it."""
_IN_A_TASK = frozenset({*TaskMessage.header_fields(), "title"})
_ALL_HEADERS = frozenset(name for kind in MESSAGE_TYPES.values() for name in kind.header_fields())


# Reading and writing message files.

PROTOCOL_VERSION = 2
_MAX_PLAIN_TITLE = 200
_MAX_FIRST_LINE = 2000
_FIRST_LINE = re.compile(r"\s*(?:#+|[-*+][ \t]+\[ ?\])(?P<title>[^\n]*)")
"""A first line that is marked as a heading or as an item of a list of things to do."""
_SMALL_HEADER = 4000
"""Bytes. Shorter front matter does not have 2,000 YAML events, which take two bytes each."""


@dataclass(frozen=True)
class Parsed:
    """A parsed file. `sha256` is the hash of its bytes; `plain` = it has no front matter.

    `assumed`: the required headers that it lacks, because the operator dropped it.
    """

    message: AnyMessage
    warnings: tuple[str, ...]
    """A doubt about the meaning of the file."""
    sha256: str
    plain: bool = False
    omitted: tuple[str, ...] = ()
    """The `expected` headers that are absent."""
    assumed: tuple[str, ...] = ()


def parse_message(
    raw: bytes, path: str, *, max_bytes: int = MAX_FILE, sha256: str | None = None, place: Place = NOWHERE
) -> Parsed:
    """Parse the message file `path` (protocol section 2) of at most `max_bytes`; `sha256` is its hash, if known.

    `place` is where it arrived: it says which agents a task may name, and what its deadline means.

    A file without front matter is a task from the operator, and so is one whose front matter lacks `type`, `task_id` or
    `from`, unless another header shows that something else was meant. Raises MessageError: the rules of
    `front_matter.split`, `markdown.split_body`, `head.read_head` and `headers`, and `newer-protocol`, `unknown-type`,
    `unknown-field`, `missing-field`.
    """
    document = split(raw, path, max_bytes=max_bytes)
    digest = sha256 or hashlib.sha256(raw).hexdigest()
    reader = _Reader(document, path, digest, place)
    if not document.has_header:
        task = reader.plain_task()
        task._calendar = place.calendar
        return Parsed(task, tuple(reader.warnings), digest, plain=True, assumed=("type", *TaskMessage.required))
    message = reader.message()
    if isinstance(message, TaskMessage):
        message._calendar = place.calendar
    return Parsed(message, tuple(reader.warnings), digest, omitted=reader.omitted, assumed=reader.assumed)


def render_message(message: Message) -> bytes:
    """The file of `message`. Raises MessageError if it exceeds a limit of `parse_message`."""
    title = f"Task: {message.title}" if isinstance(message, TaskMessage) and message.title else message.title
    return _file(message, join_body(title, message.preamble, message.sections))


def render_message_with(message: Message, body: str) -> bytes:
    """The file of `message` with the given body, which a template has made, instead of its own.

    Raises MessageError like `render_message`.
    """
    return _file(message, _trimmed(body))


def write_message(headers: Mapping[str, object], own: Mapping[str, Yaml], body: str) -> bytes:
    """The file of a message with these headers in the order of its model, the sender's `own` ones, and the given body.

    Headers that are None or empty are left out. Their values are mailboxd's, or were read from a message, a plan or the
    configuration: they are written as they are, and no model reads them again. Raises MessageError like
    `render_message`.
    """
    said = {name: value for name, value in headers.items() if value not in (None, "", ())}
    return _sendable({**said, **own}, _trimmed(body))


def _trimmed(body: str) -> str:
    text = trim(body)
    return f"{text}\n" if text else ""


def _sendable(header: Mapping[str, object], body: str) -> bytes:
    """The file, if its receiver would not refuse it for its size."""
    raw = join(header, body)
    # a mark takes a line, so that most bodies need not be read to know that they have few
    if len(raw) > MAX_FILE or body.count("\n") >= MAX_MARKS or raw.find(b"\n---\n") >= _SMALL_HEADER:
        path = f"{header['type']} to {header.get('to') or 'its receiver'}"
        split_body(split(raw, path).body, path=path)
    return raw


def _file(message: Message, body: str) -> bytes:
    header: dict[str, object] = {}
    fields = vars(message)
    for name, attribute in type(message).header_fields().items():
        value = fields[attribute]
        if attribute == "findings":
            value = (
                None
                if value == _section_findings(message.sections, fields["verdict"], [])
                else [_finding_header(item) for item in value]
            )
        elif attribute == "planned_actions":
            value = [action_header(action) for action in value] or None
        elif attribute == "reviewers" and value == ():
            value = "none"  # an empty list may be a field of a form that nobody filled in
        if value not in (None, ""):
            header[name] = value
    return _sendable(header | message.unknown_headers(), body)


@dataclass(slots=True)
class _Reader:
    """Converts one split file into a message."""

    document: Document
    path: str
    digest: str
    place: Place = NOWHERE
    warnings: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    """Our names of headers -> their names in the file, where these differ."""
    omitted: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def plain_task(self) -> TaskMessage:
        """The task of a file without front matter."""
        body = split_body(self.document.body, path=self.path, first_line=self.document.body_line)
        values = self._operators_task(self.document.body, body, {})
        said = self._headers_of_sections(body.sections, {})
        known = TaskMessage.header_fields()
        values |= {known[name]: self._convert(name, said[name]) for name in said}
        return TaskMessage.model_validate(values, context=_READ)

    def message(self) -> AnyMessage:
        header = self._spelt(self.document.header)
        present = {key for key in header if (self.written.get(key, key),) not in self.document.nulls}
        kind = self._kind(header, present)
        known, text = kind.header_fields(), self.document.body
        if kind is TaskMessage:
            missing = [name for name in ("type", *kind.required) if name not in present]
            unknown = [key for key in header if key not in known]
            near = {match: key for key, match in near_misses(unknown, missing).items()} if unknown else {}
            self._require_no_other_type(present, near)
            head = self._head({key: value for key, value in header.items() if key in present or key not in known})
            header, text = head.header, "\n\n".join(filter(None, [text.rstrip("\n"), head.text]))
            present = set(header)
        else:
            near = self._near_misses(header, known, present)
        self._check_present(kind, present, near, text.strip() or str(header.get("title", "")))
        body = split_body(text, path=self.path, first_line=self.document.body_line)
        if kind is TaskMessage:
            header |= self._headers_of_sections(body.sections, header)
            present = set(header)
        values: dict[str, Any] = {known[name]: self._convert(name, header[name]) for name in known if name in present}
        values |= {shadow(name): value for name, value in header.items() if name not in known}
        if self.assumed:
            values = self._operators_task(text, body, header) | values
        else:
            title = header.get("title", "") if kind is TaskMessage else ""
            title = body.title or (storable_line(title)[:MAX_TITLE] if isinstance(title, str) else "")
            values |= {"title": title, "preamble": body.preamble, "sections": body.sections}
        if issubclass(kind, ReviewMessage) and "findings" not in values:
            values["findings"] = _section_findings(body.sections, values.get("verdict"), self.warnings)
        try:
            return kind.model_validate(values, context=_READ)
        except ValidationError as error:
            raise self._model_error(error) from None

    def _kind(self, header: dict[str, Yaml], present: set[str]) -> type[AnyMessage]:
        """The model of the message; refuses newer protocols first, whose types are unknown here."""
        version = header.get("protocol", "")
        if isinstance(version, str) and PROTOCOL.fullmatch(version):
            major, _, minor = version.partition(".")
            if (int(major), int(minor or 0)) > (PROTOCOL_VERSION, 0):
                problem = f"this is protocol version {version}; this mailboxd supports {PROTOCOL_VERSION}"
                raise self._error("newer-protocol", problem, "Upgrade mailboxd and send it again.", "protocol")
        for key in header:
            if key.strip().casefold() == "approved":
                hint = "An approval is a separate message by a person."
                raise self._error("unknown-field", "a message cannot approve itself", hint, key)
        word = header["type"] if "type" in present else "task"
        word = word.strip().casefold() if isinstance(word, str) else word
        if self._is_of_another_tool(word, header):
            self.warnings.append(f"type: {excerpt(str(word))} is a word of another tool; it was taken as a task")
            word, _ = "task", header.pop("type")
            present.discard("type")
        elif "type" in present:
            header["type"] = word
        kind = MESSAGE_TYPES.get(word) if isinstance(word, str) else None
        if kind is None:
            problem = f"{excerpt(str(word))} is not a message type"
            raise self._error("unknown-type", problem, "Known: " + ", ".join(MESSAGE_TYPES) + ".", "type")
        return kind

    def _is_of_another_tool(self, word: Yaml, header: Mapping[str, Yaml]) -> bool:
        """Whether `type` is a tool's word for a kind of note or issue: nothing else in the head is of our protocol."""
        ours = ("protocol", "task_id", "subtask_id", "from", "attempt", "in_reply_to")
        if not isinstance(word, str) or word in MESSAGE_TYPES or not header.keys().isdisjoint(ours):
            return False
        return not meant(word, MESSAGE_TYPES) and word.replace("-", "").replace(" ", "").isalpha()

    def _spelt(self, header: dict[str, Yaml]) -> dict[str, Yaml]:
        """The headers of every type in our spelling: `Type`, `taskId`."""
        if header.keys() <= _ALL_HEADERS:
            return dict(header)
        found: dict[str, Yaml] = {}
        for key, value in header.items():
            name = spelled(key)
            is_other = key not in _ALL_HEADERS and name in _ALL_HEADERS and name not in header and key == key.strip("_")
            own = name if is_other else key
            if own in found:
                problem = f"{excerpt(self.written.get(own, own))} and {excerpt(key)} are the same header"
                raise self._error("duplicate-key", problem, "Keep one of them.", key)
            found[own] = value
            if own != key:
                self.written[own] = key
        return found

    def _head(self, header: dict[str, Yaml]) -> Head:
        """The headers of a task in our spelling. Raises MessageError."""
        senders = (key for key in header if key == "from" or (key not in _ALL_HEADERS and spelled(key) in SENDERS))
        by_person = header.get(next(senders, ""), "operator") in OPERATORS
        lines = self.document.lines
        try:
            head = read_head(header, _IN_A_TASK, self.place, by_person=by_person, lines=lines)
        except MessageError as error:
            raise self._error(error.rule, error.problem, error.hint, error.field) from None
        self.written |= {name: self.written.get(key, key) for name, key in head.written.items()}
        self.warnings += head.doubts
        return head

    def _headers_of_sections(self, sections: tuple[Section, ...], header: Mapping[str, Yaml]) -> dict[str, Yaml]:
        """What sections like `## Deadline` say, as headers. Raises MessageError."""
        said = read_sections(sections, header, self.place, self.path)
        self.warnings += said.doubts
        return said.header

    def _near_misses(self, header: dict[str, Yaml], known: Mapping[str, str], present: set[str]) -> dict[str, str]:
        """Headers that are probably misspelt: known header -> name in the file. Warns about each."""
        if header.keys() <= known.keys():
            return {}
        near = near_misses((key for key in header if key not in known), (name for name in known if name not in present))
        self.warnings += [f"unknown header {excerpt(key)}; did you mean {match}?" for key, match in near.items()]
        return {match: key for key, match in near.items()}

    def _hints(self, missing: Sequence[str], near: Mapping[str, str]) -> list[str]:
        return [f"Is {excerpt(near[name])} a misspelling of {name}?" for name in missing if name in near]

    def _require_no_other_type(self, present: set[str], near: Mapping[str, str]) -> None:
        """Refuse a message without `type` that another header gives away as no task."""
        if "type" in present:
            return
        hints = self._hints(("type",), near)
        for name, of in _OF_ONE.items():
            if name in present and (name != "status" or "task_id" in present):
                hints.append(f"{name} belongs to `type: {of}`: write that too.")
        if hints:
            raise self._error("missing-field", "required headers are missing: type", " ".join(hints), "type")

    def _check_present(self, kind: type[AnyMessage], present: set[str], near: dict[str, str], text: str) -> None:
        """Note which headers are absent; refuse a message without those that it needs."""
        self.omitted = tuple(name for name in kind.expected if name not in present)
        missing = tuple(name for name in ("type", *kind.required) if name not in present)
        if not missing:
            return
        hints = self._hints(missing, near)
        if kind is TaskMessage and not hints and text:
            self.assumed, self.omitted = missing, ()
            return
        problem = "required headers are missing: " + ", ".join(missing)
        problem += f"; also expected: {', '.join(self.omitted)}" if self.omitted else ""
        raise self._error("missing-field", problem, " ".join(hints) or "Add them, or write a text below.", missing[0])

    def _convert(self, name: str, value: Yaml) -> Any:
        if name == "type":
            return value
        try:
            if name == "planned_actions":
                return actions_of(Source(self.path, 1, self.document.lines), value, (name,))
            return CONVERTERS[name](value, lambda text: self.warnings.append(f"{name}: {text}"))
        except MessageError as error:
            raise self._error(error.rule, error.problem, error.hint, name) from None

    def _operators_task(self, text: str, body: Body, header: Mapping[str, Yaml]) -> dict[str, Any]:
        """The values of a task that the operator dropped with less than its required headers (protocol section 2).

        The whole text is the instructions; spec sections in it are used too. A text with a section `## Instructions` is
        parsed like the body of a task. The id contains the hash, so that another content is another task.
        """
        title, name = header.get("title"), header.get("id")
        stem, first = PurePath(self.path).stem, _FIRST_LINE.match(text[:_MAX_FIRST_LINE])
        last = self.document.body_line + self.document.body.count("\n")
        heading = body.title or next((one.heading for one in body.sections[:1] if one.line <= last), "")
        if not isinstance(title, str) or not title:
            title = storable_line(first["title"] if first else "") or heading
            title = title or storable_line(body.preamble[:_MAX_FIRST_LINE].partition("\n")[0])
        if len(title) > _MAX_PLAIN_TITLE:
            title = title[: _MAX_PLAIN_TITLE - 1] + "…"
        unique, stem = self.digest[:8], name if isinstance(name, str) else stem
        task_id = f"{stem[:119]}-{unique}" if is_id(stem) else readable(unique, stem, title)
        sections, doubts = read_text(text, body.sections, title, stem, self.place, is_repeated="repeat" in header)
        self.warnings += doubts
        preamble = body.preamble
        if not any(section.is_called("Instructions") for section in sections):
            stated = [section for section in sections if section.name in SPEC_NAMES]
            sections, preamble = (Section("Instructions", text.strip() or title), *stated), ""
        return {"task_id": task_id, "from_": "operator", "title": title, "preamble": preamble, "sections": sections}

    def _model_error(self, error: ValidationError) -> MessageError:
        """The error for what only the model checks: the title, and the form of unknown headers."""
        first = error.errors(include_url=False, include_input=False)[0]
        field = first.get("ctx", {}).get("field") or (str(first["loc"][0]) if first["loc"] else None)
        rule = first["type"] if "-" in first["type"] else "field-range"
        return self._error(rule, first["msg"], "", field)

    def _error(self, rule: str, problem: str, hint: str, field: str | None) -> MessageError:
        field = None if field is None else self.written.get(field, field)
        line = self.document.lines.get((field or "",), self.document.lines.get(()))
        return MessageError(rule, problem, hint, self.path, line, None if field is None else excerpt(field)[1:-1])


def _section_findings(sections: Sequence[Section], verdict: Verdict | None, problems: list[str]) -> tuple[Finding, ...]:
    """The findings in the text of a review, read as in the answer of a review turn; `problems` are added."""
    named = [section.text for section in sections if spelled(section.heading.strip(" :#*")) in findings.HEADINGS]
    asks = str(verdict) if verdict is Verdict.CHANGES_REQUESTED else ""
    return findings.in_text("\n\n".join(named), problems, asks)


def _as_yaml(value: object) -> Yaml:
    """The value of a header as a file has it, before it is converted."""
    if isinstance(value, tuple):
        return [_as_yaml(item) for item in value]
    if isinstance(value, Finding):
        return dict(_finding_header(value))
    return value if isinstance(value, str) else value_text(value)


def verdicts_header(verdicts: Iterable[GivenVerdict]) -> list[dict[str, Yaml]]:
    """The verdicts as the value of the header VERDICTS, which `given_verdicts` reads back."""
    return [
        {
            "gate": one.gate.value,
            "reviewer": one.reviewer,
            "verdict": one.verdict.value,
            "sha256": one.of,
            **({"summary": one.summary} if one.summary else {}),
            **({"findings": [dict(_finding_header(found)) for found in one.findings]} if one.findings else {}),
        }
        for one in verdicts
    ]


def votes_header(polls: Iterable[tuple[str, Iterable[Vote]]]) -> list[dict[str, Yaml]]:
    """The votes behind a result, by the key of what was voted on, as the value of the header VOTES, for people."""
    return [
        {
            **({"vote": key} if key else {}),
            "key": one.key,
            "agent": one.agent,
            **({"said": one.said} if one.said else {}),
            **({"why": one.why} if one.why else {}),
            "counts": "yes" if one.counts else "no",
        }
        for key, votes in polls
        for one in votes
    ]


def _finding_header(finding: Finding) -> dict[str, str]:
    values = {
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.file,
        "line": None if finding.line is None else str(finding.line),
        "artifact_uri": finding.artifact_uri,
    }
    return {name: value for name, value in values.items() if value is not None}
