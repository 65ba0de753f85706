"""What every message has (protocol section 2): common headers, unknown headers, a body of sections.

A model made in Python holds to the same rules as one that was read, so whatever can be made can be written and read
back equal. Text is brought into its normal form when the model is made (`text`, `sections`); everything else that is
not right raises pydantic's ValidationError. Reading files, with errors for their authors, is `codec`.

Unknown headers are kept as pydantic extras, as the structure of text that stood there. One that has the name of a
part of the body (`title: ...` is a header too) is kept under that name and a colon; `unknown_headers` undoes this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from mailboxd.core.approvals import Action, merged
from mailboxd.core.model import Finding, Overrides, Spec
from mailboxd.core.sanitize import storable_line, storable_text
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Gate, Join, Runtime, Synthesis, Verdict, is_id
from mailboxd.protocol import headers
from mailboxd.protocol.front_matter import DECLARATIONS
from mailboxd.protocol.headers import NOTHING_SAID, OVERRIDES
from mailboxd.protocol.markdown import Section, join_body, trim
from mailboxd.protocol.spec import derive_spec
from mailboxd.protocol.strict_yaml import UNSTORABLE, Yaml

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
