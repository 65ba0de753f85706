"""What every message has (protocol section 2): common headers, unknown headers, a body of sections.

A model made in Python holds to the same rules as one that was read, so whatever can be made can be written and read
back equal. Text is brought into its normal form when the model is made (`text`, `sections`); everything else that is
not right raises pydantic's ValidationError. Reading files, with errors for their authors, is `codec`.

Unknown headers are kept as pydantic extras, as the structure of text that stood there. One that has the name of a
part of the body (`title: ...` is a header too) is kept under that name and a colon; `unknown_headers` undoes this.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from mailboxd.core.terms import Gate, is_id
from mailboxd.core.times import to_epoch
from mailboxd.messages import headers
from mailboxd.messages.envelope import DECLARATIONS
from mailboxd.messages.sections import Section, join_body, trim
from mailboxd.messages.text import one_line
from mailboxd.messages.yaml_events import UNSTORABLE, Yaml

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
    return one_line(value) if isinstance(value, str) else value


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
