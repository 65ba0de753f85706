"""What each tool does: the same inputs and questions as every other entrance, in the caller's role and name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from mailboxd.core.approvals import ActionDeclared, Approval, Decision, Resolve
from mailboxd.core.bytool import Checkpoint, FileMade, OpenCircuit, ReviewGiven, ReviewKind
from mailboxd.core.events import Role
from mailboxd.core.inputs import Cancel, Input, NewTask, Remedy, Retry, Start, Unblock
from mailboxd.core.local_ids import root_local_id
from mailboxd.core.roles import REVIEWERS, Verb, require
from mailboxd.core.terms import Gate, Phase, Verdict, same_agent
from mailboxd.core.types import Finding, Spec, Task
from mailboxd.engine import Engine
from mailboxd.errors import MessageError, Refused, UnavailableError
from mailboxd.host import person
from mailboxd.inbox.intake import Intake
from mailboxd.mcp import arguments as args
from mailboxd.mcp.caller import Caller
from mailboxd.mcp.files import digest
from mailboxd.messages.actions import read_action
from mailboxd.store import requests, waiting
from mailboxd.store.details import details
from mailboxd.store.report import Report

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
        found = store.by_local_id(name) or store.task(name)
        if found is None:
            raise Refused("no-such-task", f"there is no task {name}", "task_list_ready names those that wait for you.")
        return found

    def hear(self, task: Task, heard: Input) -> Answer:
        """Let it happen, in one transaction; how the task stands then."""
        with self.engine.batch():
            events = self.engine.hear(task.id, heard, self.caller.role, self.caller.name)
        return self.standing(task) | {"recorded": [str(event.kind) for event in events]}

    def standing(self, task: Task) -> Answer:
        now = self.engine.store.task(task.id) or task
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
        known = engine.store.work(_OPERATOR, given.task_id, None)
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
    attempt = call.engine.store.attempt(task.id, task.attempt) if task.attempt else None
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
        return {"tasks": waiting.of_executor(report, name, given.limit)}
    if role in REVIEWERS:
        gates = (Gate.QUALITY_GATE,) if role is Role.QUALITY_REVIEWER else (Gate.SPEC_REVIEW, Gate.SPEC_GATE)
        asked = (row for row in waiting.at_gates(report, name, gates) if _owes(call, row.pop("id")))
        return {"tasks": list(islice(asked, given.limit))}
    return {"tasks": waiting.ready(report, given.limit)}


def _owes(call: Call, task_id: str) -> bool:
    """Whether the caller was asked for a verdict on the present attempt and has given none."""
    view, name = call.engine.store.view(task_id), call.caller.name
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
    decided = Resolve(row.id, Decision(given.decision), given.note)
    caller = call.caller
    if caller.role is Role.OPERATOR:
        caller = replace(caller, name=person.name())
    task = call.task(row.task)
    return replace(call, caller=caller).hear(task, decided) | {"approval": row.id, "decision": given.decision}


def _approval(call: Call, name: str) -> Approval:
    """The approval with this id, or short id. Raises Refused."""
    try:
        found = call.engine.store.approval(requests.find(Report(call.engine.store.db), name))
    except UnavailableError as error:
        raise Refused("no-such-approval", str(error)) from error
    if found is None:
        raise AssertionError(f"{name} was found and is not there")
    return found
