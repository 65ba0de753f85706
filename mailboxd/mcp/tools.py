"""The eleven tools of the protocol (section 6), as a table: what each takes, who is shown it, what it does."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from mailboxd.core.approvals import ActionDeclared, Approval, ApprovalDecision, Resolve
from mailboxd.core.events import Role
from mailboxd.core.inputs import (
    Cancel,
    Checkpoint,
    FileMade,
    Input,
    NewTask,
    OpenCircuit,
    Remedy,
    Retry,
    ReviewGiven,
    ReviewKind,
    Start,
    Unblock,
)
from mailboxd.core.model import Finding, Spec, Task
from mailboxd.core.roles import REVIEWERS, Verb, may, require
from mailboxd.core.vocabulary import Gate, Phase, Verdict, root_local_id, same_agent
from mailboxd.engine.engine import Engine
from mailboxd.errors import MessageError, Refused, UnavailableError
from mailboxd.host import process
from mailboxd.intake.interpret import Intake
from mailboxd.mailbox.files import directory, open_regular
from mailboxd.mailbox.layout import STATE
from mailboxd.mcp import arguments as args
from mailboxd.mcp.tokens import Caller
from mailboxd.protocol.spec import read_action
from mailboxd.store import reports, task_report
from mailboxd.store.reports import Report
from mailboxd.store.task_report import details

# ---------------------------------------------------------------------------------------------------------------------
# A file that a caller names as evidence: found below the workspace without following a link, read and hashed by us.

MOST_BYTES = 256 * 1024 * 1024
_PART = 1 << 20


def digest(root: Path, path: str) -> tuple[str, str]:
    """The `workspace:` URI of the file and its SHA-256. Raises Refused for anything but a readable regular file."""
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path or path.startswith("/") or ".." in parts or parts[0] == STATE:
        hint = "Write it relative to the workspace, without .. in it."
        raise Refused("outside-workspace", f"{path[:200]!r} does not name a file of the workspace", hint)
    try:
        with directory(root, *parts[:-1]) as fd:
            file = open_regular(fd, parts[-1])
            if file is None:
                raise Refused("no-such-file", f"there is no regular file {path[:200]!r}", "Links do not count.")
            try:
                return f"workspace:{'/'.join(parts)}", _sha256(file, path)
            finally:
                os.close(file)
    except OSError as error:
        raise Refused("no-such-file", f"{path[:200]!r} cannot be read: {error.strerror}") from error


def _sha256(file: int, path: str) -> str:
    if os.fstat(file).st_size > MOST_BYTES:
        raise Refused("file-too-large", f"{path[:200]!r} is larger than {MOST_BYTES} bytes")
    whole, read = hashlib.sha256(), 0
    while read <= MOST_BYTES and (part := os.pread(file, _PART, read)):
        whole.update(part)
        read += len(part)
    return whole.hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# What each tool does: the same inputs and questions as every other entrance, in the caller's role and name.

Answer = dict[str, Any]

_OPERATOR = "operator"
_MOST_CHARACTERS = 50_000
"""Of one text in an answer: what is longer is read from task.md."""
_SHOWN = (
    "local_id", "parent", "title", "phase", "status", "mode", "from", "agent", "reason", "error", "findings",
    "result_summary", "planned_actions", "due",
)  # fmt: skip
_CHILD = ("key", "local_id", "title", "agent", "phase", "depends_on", "result_summary", "error")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool: the engine, who calls, and the workspace's directory."""

    engine: Engine
    caller: Caller
    root: Path

    def task(self, name: str) -> Task:
        store = self.engine.store
        found = store.tasks.by_local_id(name) or store.tasks.get(name)
        if found is None:
            raise Refused("no-such-task", f"there is no task {name}", "task_list_ready names those that wait for you.")
        return found

    def hear(self, task: Task, heard: Input) -> Answer:
        """Let it happen, in one transaction; how the task stands then."""
        with self.engine.batch():
            events = self.engine.hear(task.id, heard, self.caller.role, self.caller.name)
        return self.standing(task) | {"recorded": [str(event.kind) for event in events]}

    def standing(self, task: Task) -> Answer:
        now = self.engine.store.tasks.get(task.id) or task
        return {"task": now.local_id, "phase": str(now.phase), "reason": now.reason}


def create(call: Call, given: args.Create) -> Answer:
    """A root task of the operator. The same task_id again is the same work."""
    require(call.caller.role, Verb.CREATE)
    engine = call.engine
    spec = Spec(
        goal=given.title,
        instructions=given.instructions,
        context=given.context,
        expected_output=given.expected_output,
        acceptance_criteria=tuple(given.acceptance_criteria),
    )
    with engine.batch():
        known = engine.store.tasks.by_work(_OPERATOR, given.task_id, None)
        if known is not None:
            return call.standing(known) | {"created": False}
        local_id = Intake(engine).free_local_id(root_local_id(given.task_id, None))
        new = NewTask(given.task_id, None, local_id, _OPERATOR, given.title, spec, engine.settings.policy)
        engine.hear(None, new, call.caller.role, call.caller.name)
    return {"task": local_id, "phase": str(call.task(local_id).phase), "created": True}


def get(call: Call, given: args.OfTask) -> Answer:
    require(call.caller.role, Verb.READ)
    task = call.engine.read(call.task(given.task).id, call.caller.role, call.caller.name)
    known = details(Report(call.engine.store.db), task.id)
    attempt = call.engine.store.tasks.attempt(task.id, task.attempt) if task.attempt else None
    whole = {
        **{name: known[name] for name in _SHOWN},
        "attempt": task.attempt,
        "attempt_id": attempt.id if attempt else None,
        "spec": {name: value for name, value in known["spec"].items() if value},
        "results": known["results"],
        "children": [{name: child[name] for name in _CHILD} for child in known["children"]],
        "reviews": known["reviews"],
        "artifacts": known["artifacts"],
    }
    return {name: _cut(value) for name, value in whole.items() if value not in (None, "", [], {})}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return f"{value[:_MOST_CHARACTERS]}… ({len(value)} characters; the whole stands in its task.md)"
    if isinstance(value, dict):
        return {name: _cut(inner) for name, inner in value.items()}
    return value


def list_ready(call: Call, given: args.ListReady) -> Answer:
    """What waits for this caller: its own work, verdicts that it owes, or, for who may read all, what starts next."""
    role, name = call.caller.role, call.caller.name
    require(role, Verb.READ)
    report = Report(call.engine.store.db)
    if role is Role.EXECUTOR:
        return {"tasks": reports.of_executor(report, name, given.limit)}
    if role in REVIEWERS:
        gates = (Gate.QUALITY_GATE,) if role is Role.QUALITY_REVIEWER else (Gate.SPEC_REVIEW, Gate.SPEC_GATE)
        asked = (row for row in reports.at_gates(report, name, gates) if _owes(call, row.pop("id")))
        return {"tasks": list(islice(asked, given.limit))}
    return {"tasks": reports.ready(report, given.limit)}


def _owes(call: Call, task_id: str) -> bool:
    """Whether the caller was asked for a verdict on the present attempt and has given none."""
    view, name = call.engine.store.tasks.view(task_id), call.caller.name
    asked = any(same_agent(one.reviewer, name) for one in view.asked_reviewers)
    return asked and not any(same_agent(review.reviewer, name) for review in view.reviews)


def transition(call: Call, given: args.Transition) -> Answer:
    """The orders that the state machine has, by the phase that they lead to; there is no other way to move a task."""
    role = call.caller.role
    require(role, Verb.COMMAND if role is Role.OPERATOR else Verb.TRANSITION)
    with call.engine.batch():
        task = call.task(given.task)
        order = _order(task, Phase(given.to), given.note)
        if role is Role.OPERATOR:
            events = call.engine.command(task, order, call.caller.name)
        else:
            events = call.engine.hear(task.id, order, role, call.caller.name)
    return call.standing(task) | {"recorded": [str(event.kind) for event in events]}


def _order(task: Task, to: Phase, note: str) -> Cancel | Retry | Unblock:
    if to is Phase.CANCELLED:
        return Cancel(_OPERATOR, note)
    if task.phase is Phase.CIRCUIT_OPEN or task.held:
        remedies = {Phase.EXECUTION_READY: Remedy.RETRY, Phase.COMPLETED: Remedy.ACCEPT, Phase.FAILED: Remedy.FAIL}
        return Unblock(remedies[to], note)
    if to is Phase.EXECUTION_READY:
        return Retry(note)
    raise Refused(
        "illegal-transition",
        f"{task.local_id} is {task.phase}: nobody can order {to}",
        "Only an open circuit is accepted or given up; work is completed by its attempts and gates.",
    )


def start_attempt(call: Call, given: args.OfTask) -> Answer:
    require(call.caller.role, Verb.START_ATTEMPT)
    return call.hear(call.task(given.task), Start())


def open_circuit(call: Call, given: args.OpensCircuit) -> Answer:
    require(call.caller.role, Verb.OPEN_CIRCUIT)
    return call.hear(call.task(given.task), OpenCircuit(given.reason))


def record_checkpoint(call: Call, given: args.RecordCheckpoint) -> Answer:
    require(call.caller.role, Verb.CHECKPOINT)
    return call.hear(call.task(given.task), Checkpoint(given.note, given.attempt_id))


def record_artifact(call: Call, given: args.RecordArtifact) -> Answer:
    """The file is hashed before the engine is asked, so that no transaction waits for a disk."""
    require(call.caller.role, Verb.ARTIFACT)
    task = call.task(given.task)
    uri, sha256 = digest(call.root, given.path)
    made = FileMade(given.kind, uri, sha256, given.summary or uri, given.attempt_id)
    return call.hear(task, made) | {"uri": uri, "sha256": sha256}


def append_review(call: Call, given: args.AppendReview) -> Answer:
    kind = ReviewKind(given.kind)
    require(call.caller.role, Verb.REVIEW_SPEC if kind is ReviewKind.SPEC else Verb.REVIEW_QUALITY)
    findings = tuple(Finding(**finding.model_dump()) for finding in given.findings)
    said = ReviewGiven(kind, Verdict(given.verdict), given.summary, findings, given.attempt_id)
    return call.hear(call.task(given.task), said)


def request_approval(call: Call, given: args.RequestApproval) -> Answer:
    """An action more that a person has to approve, with the rules of the section `## Planned Actions`."""
    require(call.caller.role, Verb.REQUEST_APPROVAL)
    task = call.task(given.task)
    try:
        action = read_action(given.action.model_dump(exclude_unset=True))
    except MessageError as error:
        raise Refused(error.rule, error.problem, error.hint) from error
    return call.hear(task, ActionDeclared(action)) | {"action": action.id}


def resolve_approval(call: Call, given: args.ResolveApproval) -> Answer:
    """A decision. A person's is recorded under the name that the operating system has for whoever runs this."""
    require(call.caller.role, Verb.RESOLVE_APPROVAL)
    row = _approval(call, given.approval_id)
    decided = Resolve(row.id, ApprovalDecision(given.decision), given.note)
    caller = call.caller
    if caller.role is Role.OPERATOR:
        caller = replace(caller, name=process.name())
    task = call.task(row.task)
    return replace(call, caller=caller).hear(task, decided) | {"approval": row.id, "decision": given.decision}


def _approval(call: Call, name: str) -> Approval:
    """The approval with this id, or short id. Raises Refused."""
    try:
        found = call.engine.store.approvals.get(task_report.find(Report(call.engine.store.db), name))
    except UnavailableError as error:
        raise Refused("no-such-approval", str(error)) from error
    if found is None:
        raise AssertionError(f"{name} was found and is not there")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The eleven tools of the protocol (section 6), as a table: what each takes, who is shown it, what it does.

V = Verb


@dataclass(frozen=True, slots=True)
class Tool:
    """`verbs`: whoever may do one of them is shown the tool. `reads`: it changes nothing. `ends`: it may end work.

    `again`: a second call with the same arguments changes nothing more.
    """

    says: str
    takes: type[args.Arguments]
    act: Callable[[Call, Any], Answer]
    verbs: frozenset[Verb]
    reads: bool = False
    ends: bool = False
    again: bool = False


def _tool(
    says: str, takes: type[args.Arguments], act: Callable[[Call, Any], Answer], *verbs: Verb, **is_: bool
) -> Tool:
    return Tool(says, takes, act, frozenset(verbs), **is_)


TOOLS: Mapping[str, Tool] = {
    "task_create": _tool("Create a root task.", args.Create, create, V.CREATE, again=True),
    "task_get": _tool("Read a task: spec, state, results, reviews.", args.OfTask, get, V.READ, reads=True),
    "task_transition": _tool(
        "Cancel, retry (execution_ready), or decide an open circuit.",
        args.Transition,
        transition,
        V.TRANSITION,
        V.COMMAND,
        ends=True,
    ),
    "task_start_attempt": _tool("Start the next attempt now.", args.OfTask, start_attempt, V.START_ATTEMPT),
    "task_record_checkpoint": _tool(
        "Report progress; extends the lease.", args.RecordCheckpoint, record_checkpoint, V.CHECKPOINT
    ),
    "task_record_artifact": _tool(
        "Record a file of the workspace as evidence.", args.RecordArtifact, record_artifact, V.ARTIFACT
    ),
    "task_append_review": _tool(
        "Give your verdict on a task that you were asked to review; the first one counts.",
        args.AppendReview,
        append_review,
        V.REVIEW_SPEC,
        V.REVIEW_QUALITY,
        again=True,
    ),
    "task_request_approval": _tool(
        "Ask a person to approve a side effect.", args.RequestApproval, request_approval, V.REQUEST_APPROVAL
    ),
    "task_resolve_approval": _tool(
        "Decide an approval.", args.ResolveApproval, resolve_approval, V.RESOLVE_APPROVAL, ends=True
    ),
    "task_open_circuit": _tool(
        "Stop trying; the operator decides.", args.OpensCircuit, open_circuit, V.OPEN_CIRCUIT, ends=True
    ),
    "task_list_ready": _tool("List what waits for you.", args.ListReady, list_ready, V.READ, reads=True),
}


def shown(caller: Caller) -> dict[str, Tool]:
    """The tools of the caller's role."""
    return {name: tool for name, tool in TOOLS.items() if any(may(caller.role, verb) for verb in tool.verbs)}


def run(call: Call, name: str, values: object) -> Answer:
    """Do it. Raises Refused with the rule that a wrong call breaks, PlanError, WorldError.

    A tool that the role is not shown can be called all the same: the act asks the matrix, and names the rule.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise Refused("no-such-tool", f"there is no tool {name[:100]!r}", f"You have: {', '.join(shown(call.caller))}.")
    if name not in shown(call.caller):
        verbs = " or ".join(sorted(tool.verbs))
        raise Refused("permission-denied", f"the role {call.caller.role} may not {verbs}")
    return tool.act(call, args.checked(tool.takes, values))
