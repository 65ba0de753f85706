"""What the fields of the configuration are made of: texts of the file to typed values, numbers with unit and range."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from mailboxd.core.vocabulary import OPERATORS, is_id


def _whole(value: object) -> object:
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[0-9]{1,15}", value, re.ASCII) is None:
        raise ValueError("write a whole number in digits, like 4")
    return int(value)


def _number(value: object) -> object:
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value, re.ASCII) is None:
        raise ValueError("write a number, like 5 or 0.5")
    return float(value)


def _flag(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in ("true", "false"):
        raise ValueError("write true or false")
    return value == "true"


def _sequence(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _sender(value: str) -> str:
    if not is_id(value):
        raise ValueError("write an agent id: 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without ..")
    return value


def _agent(value: str) -> str:
    _sender(value)
    if value.lower() in OPERATORS:
        raise ValueError("rename the agent: operator and human are people, and what they send counts as such")
    return value


def _agent_or_nobody(value: str) -> str:
    return _agent(value) if value else value


def _harness(value: str) -> str:
    if not is_id(value):
        raise ValueError("name the harness with 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -")
    return value


def _model(value: str) -> str:
    if value and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}", value, re.ASCII) is None:
        raise ValueError("write the name of a model as OpenClaw has it, like openai/gpt-5")
    return value


def _argument(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("write a program or argument that is not empty")
    return value


def _variable(value: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value, re.ASCII) is None:
        raise ValueError("write the name of an environment variable, without its value")
    return value


def _directory(value: str) -> str:
    parts = value.split("/")
    if value and (not value.isprintable() or value.startswith("/") or any(part in ("", ".", "..") for part in parts)):
        raise ValueError("write a directory of the workspace, relative to it, like src or work/site")
    return value


def _person(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:@+$-]{0,127}", value, re.ASCII) is None:
        raise ValueError("write the name of a user of this machine, or key: and a fingerprint, like key:0f3a...")
    return value


def _recipient(value: str) -> str:
    if len(value) > 200 or not value.isprintable() or value.startswith("-") or value != value.strip():
        raise ValueError("write it as OpenClaw takes it: at most 200 characters, not beginning with a dash")
    return value


def _address(value: str) -> str:
    if not value:
        return value
    try:
        parts = urlsplit(value)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_fine = urlsplit(""), False
    plain = len(value) <= 500 and value.isprintable() and " " not in value
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine or not plain:
        raise ValueError("write an address like http://127.0.0.1:4318/v1/traces")
    if "@" in parts.netloc:
        raise ValueError("no password belongs here; it goes into the environment, OTEL_EXPORTER_OTLP_HEADERS")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Agent = Annotated[str, AfterValidator(_agent)]
AgentOrNobody = Annotated[str, AfterValidator(_agent_or_nobody)]
Model = Annotated[str, AfterValidator(_model)]
Sender = Annotated[str, AfterValidator(_sender)]
Senders = Annotated[tuple[Sender, ...], BeforeValidator(_sequence), Field(max_length=100)]
Agents = Annotated[tuple[Agent, ...], BeforeValidator(_sequence), Field(max_length=100)]
Arguments = Annotated[
    tuple[Annotated[str, AfterValidator(_argument)], ...],
    BeforeValidator(_sequence),
    Field(min_length=1, max_length=64),
]
MaybeArguments = Annotated[
    tuple[Annotated[str, AfterValidator(_argument)], ...], BeforeValidator(_sequence), Field(max_length=64)
]
Persons = Annotated[
    tuple[Annotated[str, AfterValidator(_person)], ...], BeforeValidator(_sequence), Field(max_length=100)
]
Recipient = Annotated[str, AfterValidator(_recipient)]
Address = Annotated[str, AfterValidator(_address)]
Directory = Annotated[str, AfterValidator(_directory)]
HarnessName = Annotated[str, AfterValidator(_harness)]
Commands = Annotated[tuple[Arguments, ...], BeforeValidator(_sequence), Field(max_length=100)]
Capabilities = Annotated[tuple[Literal["read", "edit", "execute", "network"], ...], BeforeValidator(_sequence)]
Variables = Annotated[
    tuple[Annotated[str, AfterValidator(_variable)], ...], BeforeValidator(_sequence), Field(max_length=100)
]


def said(default: Any, says: str) -> Any:
    """A field that is no number."""
    return Field(default, description=says)


def amount(default: float, unit: str, low: float, high: float, says: str) -> Any:
    """A field with a unit and both ends of its range: no number in the configuration is without them."""
    return Field(default, ge=low, le=high, description=says, json_schema_extra={"unit": unit})


class Section(BaseModel):
    """A group of keys. Values are checked strictly, never change, and no key is taken that is not declared."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", validate_default=False)
