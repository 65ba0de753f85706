"""The arguments of the tools, checked strictly: no key that is not declared, no value of another type, all bounded.

Schemas stand in every agent's context. So they carry no titles and no bounds that an agent would not count anyway;
these are checked all the same, and a refusal says what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mailboxd.core.sanitize import storable_text
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import Refused

_MOST_PROBLEMS = 5


def _id(value: str) -> str:
    if not is_id(value):
        raise ValueError("write an id: 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without ..")
    return value


def _words(least: int, most: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        value = storable_text(value)
        if len(value.strip()) < least or len(value) > most:
            raise ValueError(f"write {least} to {most} characters")
        return value

    return check


Id = Annotated[str, AfterValidator(_id)]
Line = Annotated[str, AfterValidator(_words(1, 500))]
Note = Annotated[str, AfterValidator(_words(1, 4_000))]
MaybeNote = Annotated[str, AfterValidator(_words(0, 4_000))]
Body = Annotated[str, AfterValidator(_words(0, 200_000))]


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class OfTask(Arguments):
    task: Id


class Create(Arguments):
    task_id: Id
    title: Line
    instructions: Body = ""
    context: Body = ""
    expected_output: Body = ""
    acceptance_criteria: Annotated[list[Line], Field(max_length=100)] = []


class Transition(OfTask):
    to: Literal["cancelled", "execution_ready", "completed", "failed"]
    note: MaybeNote = ""


class RecordCheckpoint(OfTask):
    note: Note
    attempt_id: Id | None = None


class RecordArtifact(OfTask):
    kind: Literal["primary_output", "test_report", "diff", "review_report", "other"]
    path: Annotated[Line, Field(description="below the workspace")]
    summary: MaybeNote = ""
    attempt_id: Id | None = None


class FindingArgument(Arguments):
    severity: Literal["critical", "major", "minor"]
    message: Note
    file: Line | None = None
    line: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    artifact_uri: Line | None = None


class AppendReview(OfTask):
    kind: Literal["spec", "quality"]
    verdict: Literal["approved", "changes_requested", "blocked"]
    summary: Note
    findings: Annotated[list[FindingArgument], Field(max_length=200)] = []
    attempt_id: Id | None = None


class ActionArgument(Arguments):
    """What may stand there at all; what a kind needs is checked as in the section `## Planned Actions`."""

    id: Id
    kind: Literal["command", "message", "file", "http", "manual"]
    action: str = ""
    risk: str = ""
    idempotency_key: str = ""
    argv: list[str] = []
    cwd: str = ""
    env: list[str] = []
    timeout: int = 0
    channel: str = ""
    target: str = ""
    account: str = ""
    text: str = ""
    path: str = ""
    content: str = ""
    source: str = ""
    method: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    body: str = ""
    verify: list[str] = []
    undo: list[str] = []


class RequestApproval(OfTask):
    action: ActionArgument


class ResolveApproval(Arguments):
    approval_id: Id
    decision: Literal["approved", "rejected", "request_changes"]
    note: MaybeNote = ""


class OpensCircuit(OfTask):
    reason: Note


class ListReady(Arguments):
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def checked(kind: type[Arguments], values: object) -> Arguments:
    """The arguments of a call. Raises Refused, naming each argument that is wrong and what to write."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        said = [f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in found[:_MOST_PROBLEMS]]
        raise Refused("bad-arguments", "; ".join(said), f"It takes: {', '.join(kind.model_fields)}.") from error


def schema(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of the arguments: nothing in it but what a caller needs."""
    whole = kind.model_json_schema()
    return _plain(whole, whole.get("$defs", {}))


_SHOWN = ("type", "properties", "required", "additionalProperties", "items", "enum", "description")


def _plain(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return _plain(definitions[node["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in node:  # X or null: leaving it out says the same
        return _plain(next(choice for choice in node["anyOf"] if choice.get("type") != "null"), definitions)
    kept = {name: node[name] for name in _SHOWN if name in node}
    if "properties" in kept:
        kept["properties"] = {name: _plain(inner, definitions) for name, inner in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _plain(kept["items"], definitions)
    return kept
