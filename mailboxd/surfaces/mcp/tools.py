"""The eleven tools of the protocol (section 6): their arguments, what they do, and which roles may use them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from mailboxd.core import operator_orders
from mailboxd.core.approvals import Action, ActionDeclared, ActionKind, Approval, ApprovalDecision
from mailboxd.core.events import Role
from mailboxd.core.inputs import (
    Checkpoint,
    FileMade,
    Input,
    OpenCircuit,
    OperatorInput,
    ReviewGiven,
    ReviewKind,
    Start,
)
from mailboxd.core.model import Finding, Spec, Task
from mailboxd.core.operator_orders import BY_NAME, OPERATOR_ORDERS, FieldKind, Situation, leading_to
from mailboxd.core.roles import REVIEWERS, Verb, may, require
from mailboxd.core.sanitize import storable_text
from mailboxd.core.vocabulary import ADDRESS, Gate, Phase, Verdict, is_id, same_agent, state_of
from mailboxd.engine import operator_commands
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import decisions
from mailboxd.engine.intake.interpret import Intake, differs
from mailboxd.errors import MessageError, Refused, UnavailableError
from mailboxd.formats.config.model import ID_FORM, such
from mailboxd.formats.mailbox.files import digest_of, directory
from mailboxd.formats.mailbox.layout import STATE
from mailboxd.formats.protocol.headers import LABEL, MAX_NAMES
from mailboxd.formats.protocol.markdown import Section
from mailboxd.formats.protocol.messages import TaskMessage
from mailboxd.formats.protocol.spec import read_action, spec_sections
from mailboxd.host import process
from mailboxd.ledger import reports, task_queries
from mailboxd.ledger.attention_queries import need_of
from mailboxd.ledger.task_queries import details
from mailboxd.surfaces.mcp.tokens import Caller

# Arguments

_MAX_PROBLEMS = 5
_MAX_PAYLOAD = 10_000
_ADDRESS = re.compile(r"[\x21-\x7e]+")


def _words(least: int, most: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        value = storable_text(value)
        if len(value.strip()) < least or len(value) > most:
            raise ValueError(f"write {least} to {most} characters")
        return value

    return check


def _small(value: dict[str, Any]) -> dict[str, Any]:
    written = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # a ValueError for what is not JSON
    if len(written) > _MAX_PAYLOAD:
        raise ValueError(f"write at most {_MAX_PAYLOAD} bytes of JSON; more belongs into an artifact")
    return value


def _address(value: str) -> str:
    """An address outside the workspace: a web page, or the URN of a ticket, without credentials."""
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = urlsplit("")
    known = bool(parts.hostname) if parts.scheme in ("http", "https") else bool(parts.path) and parts.scheme == "urn"
    if not known or len(value) > 2_000 or "@" in parts.netloc or _ADDRESS.fullmatch(value) is None:
        raise ValueError("write an address like https://example.org/pull/7 or urn:ticket:OPS-7, without a password")
    return value


Id = Annotated[str, such(is_id, f"write an id: {ID_FORM}, without ..")]
Label = Annotated[str, such(LABEL.fullmatch, "write a label: 1 to 64 of A-Z a-z 0-9 . _ : / -")]
ReplyTo = Annotated[str, such(ADDRESS.fullmatch, "write CHANNEL:TARGET or session:KEY, like telegram:@ann")]
PhaseName = Annotated[str, such(set(Phase).__contains__, f"write one of {', '.join(Phase)}")]
Line = Annotated[str, AfterValidator(_words(1, 500))]
Note = Annotated[str, AfterValidator(_words(1, 4_000))]
MaybeNote = Annotated[str, AfterValidator(_words(0, 4_000))]
Body = Annotated[str, AfterValidator(_words(0, 200_000))]


class Arguments(BaseModel):
    """Checked strictly: no undeclared key, no other type, everything bounded."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    also: ClassVar[Mapping[str, str]] = {}
    """The names by which the protocol publishes arguments, where ours are shorter: both are taken, ours are shown."""

    @model_validator(mode="before")
    @classmethod
    def _by_our_names(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if twice := [f"{name} and {cls.also[name]}" for name in cls.also if name in given and cls.also[name] in given]:
            raise ValueError(f"{', '.join(twice)} are the same argument; write one of them")
        return {cls.also.get(name, name): value for name, value in given.items()}


class TaskArguments(Arguments):
    also = {"task_id": "task"}
    task: Id


class Get(TaskArguments):
    include_events_limit: Annotated[int, Field(ge=0, le=200, description="latest events")] = 0


class Transition(TaskArguments):
    also = TaskArguments.also | {"to_phase": "to"}
    from_phase: Annotated[PhaseName, Field(description="refused if it has left this phase")]
    to: Literal["cancelled", "execution_ready", "completed", "failed"]
    reason: Note


_ORDERED = tuple(order for order in OPERATOR_ORDERS if order.fields)


def _argument(field: operator_orders.Field) -> tuple[Any, Any]:
    """A field of an order as an argument that may be left out."""
    kinds: dict[FieldKind, Any] = {
        FieldKind.TEXT: Annotated[str, AfterValidator(_words(0, field.most))],
        FieldKind.MONEY: Annotated[float, Field(ge=0, le=1e9)],
        FieldKind.COUNT: Annotated[int, Field(ge=0, le=10**12)],
        FieldKind.CHOICE: Literal[field.choices] if field.choices else str,
        FieldKind.FLAG: bool,
    }
    return kinds[field.kind] | None, Field(None, description=field.help)


_ORDER_ARGUMENTS: dict[str, Any] = {
    "order": (Literal[tuple(order.name for order in _ORDERED)], ...),
    **{name: _argument(field) for order in _ORDERED for field in order.fields for name in field.also},
    **{field.name: _argument(field) for order in _ORDERED for field in order.fields},
}
GiveOrder = create_model("GiveOrder", __base__=TaskArguments, **_ORDER_ARGUMENTS)


class RecordCheckpoint(TaskArguments):
    note: Note
    checkpoint_type: Id = "progress"
    payload: Annotated[dict[str, Any], AfterValidator(_small)] = {}
    attempt_id: Id | None = None


class RecordArtifact(TaskArguments):
    kind: Literal["primary_output", "test_report", "diff", "review_report", "other"]
    path: Annotated[Line, Field(description="of a file below the workspace")] | None = None
    uri: Annotated[str, AfterValidator(_address), Field(description="of a PR, ticket or page instead")] | None = None
    summary: MaybeNote = ""
    attempt_id: Id | None = None


class FindingArgument(Arguments):
    severity: Literal["critical", "major", "minor"]
    message: Note
    file: Line | None = None
    line: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    artifact_uri: Line | None = None


class AppendReview(TaskArguments):
    also = TaskArguments.also | {"review_type": "kind"}
    kind: Literal["spec", "quality"]
    verdict: Literal["approved", "changes_requested", "blocked"]
    summary: Note
    findings: Annotated[list[FindingArgument], Field(max_length=200)] = []
    attempt_id: Id | None = None


def _action_schema() -> dict[str, Any]:
    """The fields of all kinds; what a kind requires is checked as in the section `## Planned Actions`."""
    words = {"type": "array", "items": {"type": "string"}}
    kinds: dict[type, dict[str, Any]] = {int: {"type": "integer"}, tuple: words}
    properties = {one.name: kinds.get(type(one.default), {"type": "string"}) for one in fields(Action)}
    properties["kind"] = {"type": "string", "enum": list(ActionKind)}
    properties["headers"] = {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["id", "kind"], "additionalProperties": False}


class Create(Arguments):
    """The parts of a spec, as the sections of a task message."""

    task_id: Id
    title: Line
    goal: Body = ""
    instructions: Body = ""
    context: Body = ""
    expected_output: Body = ""
    scope_in: Body = ""
    scope_out: Body = ""
    inputs: Body = ""
    outputs: Body = ""
    acceptance_criteria: Annotated[list[Line], Field(max_length=100)] = []
    risks: Body = ""
    planned_actions: Annotated[
        list[dict[str, Any]], Field(max_length=100, description="as of task_request_approval")
    ] = []
    labels: Annotated[list[Label], Field(max_length=MAX_NAMES)] = []
    reply_to: Annotated[ReplyTo, Field(description="CHANNEL:TARGET or session:KEY that gets its result")] | None = None


class RequestApproval(TaskArguments):
    action: Annotated[dict[str, Any], WithJsonSchema(_action_schema())]


class ResolveApproval(Arguments):
    also = {"resolution": "decision"}
    approval_id: Id
    decision: Literal["approved", "rejected", "request_changes"]
    note: MaybeNote = ""


class OpenCircuitArguments(TaskArguments):
    reason: Note


class ListReady(Arguments):
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    label: Label | None = None


def checked(kind: type[Arguments], values: object) -> Arguments:
    """Validate the arguments of a call. Raises Refused, which names each wrong argument and what to write."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [
            f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in found[:_MAX_PROBLEMS]
        ]
        raise Refused("bad-arguments", "; ".join(problems), f"It takes: {', '.join(kind.model_fields)}.") from error


def input_schema(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of the arguments. It is part of every agent's context: no titles, and no bounds."""
    whole = kind.model_json_schema()
    return _plain(whole, whole.get("$defs", {}))


_SCHEMA_KEYS = ("type", "properties", "required", "additionalProperties", "items", "enum", "description")


def _plain(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return _plain(definitions[node["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in node:  # X or null: the argument can be omitted instead
        return _plain(next(choice for choice in node["anyOf"] if choice.get("type") != "null"), definitions)
    kept = {name: node[name] for name in _SCHEMA_KEYS if name in node}
    if "properties" in kept:
        kept["properties"] = {name: _plain(inner, definitions) for name, inner in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _plain(kept["items"], definitions)
    return kept


# A file that a caller names as evidence

MAX_ARTIFACT_BYTES = 256 * 1024 * 1024


def file_digest(root: Path, path: str) -> tuple[str, str]:
    """The `workspace:` URI of the file and its SHA-256; links are not followed. Raises Refused unless it is a file."""
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path or path.startswith("/") or ".." in parts or parts[0] == STATE:
        hint = "Give a path relative to the workspace, without `..`."
        raise Refused("outside-workspace", f"{path[:200]!r} is not a path in the workspace", hint)
    try:
        with directory(root, *parts[:-1]) as fd:
            found = digest_of(fd, parts[-1], MAX_ARTIFACT_BYTES)
    except OSError as error:
        raise Refused("no-such-file", f"{path[:200]!r} cannot be read: {error.strerror}") from error
    if found is None:
        raise Refused("no-such-file", f"there is no regular file {path[:200]!r}", "Links are not followed.")
    if found[1] > MAX_ARTIFACT_BYTES:
        raise Refused("file-too-large", f"{path[:200]!r} is larger than {MAX_ARTIFACT_BYTES} bytes")
    return f"workspace:{'/'.join(parts)}", found[0]


# The tools, in the caller's role and name

Answer = dict[str, Any]

_OPERATOR = "operator"
_MAX_TEXT = 50_000
"""Characters of one text in a result; task.md has the rest."""
_TASK_KEYS = (
    "local_id", "parent", "title", "state", "phase", "need", "status", "mode", "from", "agent", "reason",
    "error", "findings", "result_summary", "planned_actions", "due",
)  # fmt: skip
_EVENT_KEYS = ("at", "kind", "role", "actor", "text")
_CHILD_KEYS = ("key", "local_id", "title", "agent", "state", "phase", "depends_on", "result_summary", "error")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool; `root` is the workspace's directory."""

    engine: Engine
    caller: Caller
    root: Path

    def task(self, name: str) -> Task:
        store = self.engine.store
        found = store.tasks.by_local_id(name) or store.tasks.get(name)
        if found is None:
            raise Refused("no-such-task", f"there is no task {name}", "task_list_ready lists those that wait for you.")
        return found

    def record(self, task: Task, heard: Input) -> Answer:
        """Apply an input in one transaction; returns the task's new state."""
        with self.engine.batch():
            events = self.engine.handle(task.id, heard, self.caller.role, self.caller.name)
        return self.state(task) | {"recorded": [str(event.kind) for event in events]}

    def state(self, task: Task) -> Answer:
        now = self.engine.store.tasks.get(task.id) or task
        need = need_of(self.engine.store.report, now.id)
        facts = {"state": str(state_of(now.phase, need)), "phase": str(now.phase)}
        return {"task": now.local_id, **facts, "reason": now.reason}


def create(call: ToolCall, given: Create) -> Answer:
    """Create a root task for the operator, as its message would. Repeating the call has no further effect."""
    require(call.caller.role, Verb.CREATE)
    engine = call.engine
    message = _message(given)
    with engine.batch():
        known = engine.store.tasks.by_work(_OPERATOR, given.task_id, None)
        if known is None:
            task = Intake(engine).new_task(message, call.caller.role, call.caller.name)
        elif differs(known.origin, message):
            hint = "Other work needs another task_id; task_transition to execution_ready runs ended work again."
            raise Refused("id-conflict", f"{known.local_id} exists, with other content", hint)
        else:
            task = known
    return call.state(task) | {"created": known is None}


def _message(given: Create) -> TaskMessage:
    """The message that creates this task. Raises Refused."""
    said = given.model_dump(include=set(Spec.__dataclass_fields__) - {"planned_actions", "acceptance_criteria"})
    try:
        actions = tuple(map(read_action, given.planned_actions))
    except MessageError as error:
        raise Refused(error.rule, error.problem, error.hint) from error
    spec = Spec(**said, acceptance_criteria=tuple(given.acceptance_criteria), planned_actions=actions)
    sections = tuple(Section(heading, text) for heading, text in spec_sections(spec))
    named = {"task_id": given.task_id, "from": _OPERATOR, "title": given.title, "labels": tuple(given.labels) or None}
    return TaskMessage.model_validate({**named, "reply_to": given.reply_to, "sections": sections})


def get(call: ToolCall, given: Get) -> Answer:
    require(call.caller.role, Verb.READ)
    task = call.engine.read(call.task(given.task).id, call.caller.role, call.caller.name)
    report = call.engine.store.report
    known = details(report, task.id)
    attempt = call.engine.store.tasks.attempt(task.id, task.attempt) if task.attempt else None
    whole = {
        **_only(_TASK_KEYS, known),
        "attempt": task.attempt,
        "attempt_id": attempt.id if attempt else None,
        "executor_kind": str(attempt.executor_kind) if attempt else None,
        "labels": known["policy"]["labels"],
        "spec": {name: value for name, value in known["spec"].items() if value},
        "results": known["results"],
        "children": [_only(_CHILD_KEYS, child) for child in known["children"]],
        "reviews": known["reviews"],
        "artifacts": known["artifacts"],
        "events": [
            _only(_EVENT_KEYS, event)
            for event in task_queries.latest_events(report, task.id, given.include_events_limit)
        ],
    }
    return {name: _cut(value) for name, value in whole.items() if value not in (None, "", [], {})}


def _only(names: Sequence[str], row: Mapping[str, object]) -> Answer:
    return {name: row[name] for name in names}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return f"{value[:_MAX_TEXT]}… ({len(value)} characters; task.md has all of it)"
    if isinstance(value, dict):
        return {name: _cut(inner) for name, inner in value.items()}
    return value


def list_ready(call: ToolCall, given: ListReady) -> Answer:
    """The caller's own work, the reviews it owes or, for roles that may read everything, the tasks that start next."""
    role, name = call.caller.role, call.caller.name
    require(role, Verb.READ)
    report = call.engine.store.report
    if role is Role.EXECUTOR:
        return {"tasks": reports.of_executor(report, name, given.label, given.limit)}
    if role in REVIEWERS:
        gates = (Gate.QUALITY_GATE,) if role is Role.QUALITY_REVIEWER else (Gate.SPEC_REVIEW, Gate.SPEC_GATE)
        asked = (row for task, row in reports.at_gates(report, name, given.label, gates) if _owes(call, task))
        return {"tasks": list(islice(asked, given.limit))}
    return {"tasks": reports.ready(report, given.label, given.limit)}


def _owes(call: ToolCall, task_id: str) -> bool:
    """Whether the caller was asked to review the current attempt and has not done so."""
    view, name = call.engine.store.tasks.view(task_id), call.caller.name
    asked = any(same_agent(one.reviewer, name) for one in view.asked_reviewers)
    return asked and not any(same_agent(review.reviewer, name) for review in view.reviews)


def transition(call: ToolCall, given: Transition) -> Answer:
    """Give the order that leads to the phase `to`; only these transitions can be ordered."""
    role = call.caller.role
    require(role, Verb.COMMAND if role is Role.OPERATOR else Verb.TRANSITION)
    with call.engine.batch():
        task = call.task(given.task)
        if task.phase != given.from_phase:
            problem = f"{task.local_id} is {task.phase}, not {given.from_phase}: {task.reason}"
            raise Refused("stale-phase", problem, "Read it with task_get, and decide again.")
        order = _order(task, Phase(given.to), given.reason)
        if role is Role.OPERATOR:
            events = call.engine.command(task, order, call.caller.name)
        else:
            events = call.engine.handle(task.id, order, role, call.caller.name)
    return call.state(task) | {"recorded": [str(event.kind) for event in events]}


def _order(task: Task, to: Phase, note: str) -> OperatorInput:
    # with a result or not: the engine says that none is there
    order = leading_to(to, Situation(task.phase, task.held, task.not_before is not None, has_result=True))
    if order is None or order.make is None:
        raise Refused(
            "illegal-transition",
            f"{task.local_id} is {task.phase}: it cannot be moved to {to}",
            "Only a task that stopped can be accepted or failed; other work ends by its attempts and gates.",
        )
    return order.given({order.note: note})


def give_order(call: ToolCall, given: TaskArguments) -> Answer:
    """Give an order of the table, with values of its fields. It is carried out at once."""
    require(call.caller.role, Verb.COMMAND)
    order = BY_NAME[given.order]  # type: ignore[attr-defined]  # a model that is made of the table
    said = order.named(given.model_dump(exclude_none=True, exclude={"task", "order"}))
    names = {field.name for field in order.fields}
    if unknown := [name for name in said if name not in names]:
        hint = f"It takes: {', '.join(sorted(names)) or 'nothing'}."
        raise Refused("bad-arguments", f"{order.name} has no field {', '.join(unknown)}", hint)
    if missing := [field.name for field in order.fields if field.required and not said.get(field.name)]:
        raise Refused("bad-arguments", f"{order.name} needs {', '.join(missing)}", "Write it.")
    with call.engine.batch():
        task = call.task(given.task)
        events = operator_commands.give(call.engine, task, order, said, process.name())
    return call.state(task) | {"recorded": [str(event.kind) for event in events]}


def start_attempt(call: ToolCall, given: TaskArguments) -> Answer:
    require(call.caller.role, Verb.START_ATTEMPT)
    return call.record(call.task(given.task), Start())


def open_circuit(call: ToolCall, given: OpenCircuitArguments) -> Answer:
    require(call.caller.role, Verb.OPEN_CIRCUIT)
    return call.record(call.task(given.task), OpenCircuit(given.reason))


def record_checkpoint(call: ToolCall, given: RecordCheckpoint) -> Answer:
    require(call.caller.role, Verb.CHECKPOINT)
    return call.record(
        call.task(given.task), Checkpoint(given.note, given.attempt_id, given.checkpoint_type, given.payload)
    )


def record_artifact(call: ToolCall, given: RecordArtifact) -> Answer:
    """Record a file, or an address. A file is hashed first, so that no transaction waits for the disk."""
    require(call.caller.role, Verb.ARTIFACT)
    task = call.task(given.task)
    if (given.path is None) == (given.uri is None):
        raise Refused("bad-arguments", "give either the path of a file or a uri", "A uri is not fetched or hashed.")
    uri, sha256 = (given.uri, "") if given.uri else file_digest(call.root, given.path or "")
    made = FileMade(given.kind, uri, sha256, given.summary or uri, given.attempt_id)
    return call.record(task, made) | {"uri": uri, "sha256": sha256}


def append_review(call: ToolCall, given: AppendReview) -> Answer:
    kind = ReviewKind(given.kind)
    require(call.caller.role, Verb.REVIEW_SPEC if kind is ReviewKind.SPEC else Verb.REVIEW_QUALITY)
    findings = tuple(Finding(**finding.model_dump()) for finding in given.findings)
    said = ReviewGiven(kind, Verdict(given.verdict), given.summary, findings, given.attempt_id)
    return call.record(call.task(given.task), said)


def request_approval(call: ToolCall, given: RequestApproval) -> Answer:
    """Declare another action that needs approval, with the rules of the section `## Planned Actions`."""
    require(call.caller.role, Verb.REQUEST_APPROVAL)
    task = call.task(given.task)
    try:
        action = read_action(given.action)
    except MessageError as error:
        raise Refused(error.rule, error.problem, error.hint) from error
    return call.record(task, ActionDeclared(action)) | {"action": action.id}


def resolve_approval(call: ToolCall, given: ResolveApproval) -> Answer:
    """Decide an approval, as the system's user in every role: anybody with a shell can choose another name."""
    require(call.caller.role, Verb.RESOLVE_APPROVAL)
    row = _approval(call, given.approval_id)
    task, decision, role = call.task(row.task), ApprovalDecision(given.decision), call.caller.role
    if same_agent(call.caller.name, task.executor):
        raise Refused("own-work", f"{call.caller.name} executes {task.local_id}, and may not decide about it")
    with call.engine.batch():
        (done,) = decisions.decide(call.engine, [row.id], decision, given.note, process.name(), role=role)
    recorded = {"recorded": [str(event.kind) for event in done.events]}
    return call.state(task) | recorded | {"approval": row.id, "decision": given.decision}


def _approval(call: ToolCall, name: str) -> Approval:
    """The approval with this id, or short id. Raises Refused."""
    try:
        found = call.engine.store.approvals.get(task_queries.find_approval(call.engine.store.report, name))
    except UnavailableError as error:
        raise Refused("no-such-approval", str(error)) from error
    if found is None:
        raise AssertionError(f"{name} was found and is not there")
    return found


# The table of tools

V = Verb


@dataclass(frozen=True, slots=True)
class Tool:
    """A role sees the tool if it may do one of `verbs`. The last three are hints for the client.

    `destructive`: it may end work. `idempotent`: repeating a call has no further effect.
    """

    description: str
    arguments: type[Arguments]
    handler: Callable[[ToolCall, Any], Answer]
    verbs: tuple[Verb, ...]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False


TOOLS: Mapping[str, Tool] = {
    "task_create": Tool("Create a root task.", Create, create, (V.CREATE,), idempotent=True),
    "task_get": Tool("Read a task: spec, state, results, reviews, events.", Get, get, (V.READ,), read_only=True),
    "task_transition": Tool(
        "Cancel, retry (execution_ready), or decide about a task that stopped.", Transition, transition,
        (V.TRANSITION, V.COMMAND), destructive=True,
    ),
    "task_order": Tool(
        "Give any order about a task, with its fields: answer, retry with a higher budget, pause, cancel ...",
        GiveOrder, give_order, (V.COMMAND,), destructive=True,
    ),
    "task_start_attempt": Tool("Start the next attempt now.", TaskArguments, start_attempt, (V.START_ATTEMPT,)),
    "task_record_checkpoint": Tool(
        "Report progress; extends the lease.", RecordCheckpoint, record_checkpoint, (V.CHECKPOINT,)
    ),
    "task_record_artifact": Tool(
        "Record a file of the workspace, or a uri, as evidence.", RecordArtifact, record_artifact, (V.ARTIFACT,)
    ),
    "task_append_review": Tool(
        "Review a task that you were asked to review; the first verdict counts.", AppendReview, append_review,
        (V.REVIEW_SPEC, V.REVIEW_QUALITY), idempotent=True,
    ),
    "task_request_approval": Tool(
        "Request approval of a side effect.", RequestApproval, request_approval, (V.REQUEST_APPROVAL,)
    ),
    "task_resolve_approval": Tool(
        "Decide an approval.", ResolveApproval, resolve_approval, (V.RESOLVE_APPROVAL,), destructive=True
    ),
    "task_open_circuit": Tool(
        "Stop trying; the operator decides.", OpenCircuitArguments, open_circuit, (V.OPEN_CIRCUIT,), destructive=True
    ),
    "task_list_ready": Tool("List what waits for you.", ListReady, list_ready, (V.READ,), read_only=True),
}  # fmt: skip


def tools_of(caller: Caller) -> dict[str, Tool]:
    """The tools of the caller's role."""
    return {name: tool for name, tool in TOOLS.items() if any(may(caller.role, verb) for verb in tool.verbs)}


def run(call: ToolCall, name: str, values: object) -> Answer:
    """Run a call. Raises Refused with the rule that it breaks, PlanError, WorldError.

    Handlers check the permission matrix as well, because a role may use a tool with only some arguments.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise Refused("no-such-tool", f"there is no tool {name[:100]!r}", f"Tools: {', '.join(tools_of(call.caller))}.")
    if name not in tools_of(call.caller):
        verbs = " or ".join(sorted(tool.verbs))
        raise Refused("permission-denied", f"the role {call.caller.role} may not {verbs}")
    return tool.handler(call, checked(tool.arguments, values))
