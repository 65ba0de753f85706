"""The permission matrix of the protocol (section 5). What is not in it is refused.

Only the orchestrator moves phases; the other roles add evidence or give orders. The engine calls `require` before every
input, so that no interface can bypass it. Conditions such as "own attempt" are checked with the task: by `require_read`
here, in `core.tool_evidence` and in `core.attempts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from mailboxd.core.approvals import (
    ActionDeclared,
    ActionEnded,
    ActionImpossible,
    ActionNotBegun,
    ActionPrepared,
    ActionStarted,
    ApprovalExpired,
    PermissionAsked,
    RequestUndo,
    Resolve,
)
from mailboxd.core.events import Role
from mailboxd.core.inputs import (
    Checkpoint,
    FileMade,
    Input,
    NewTask,
    OpenCircuit,
    ReviewGiven,
    ReviewKind,
    Start,
)
from mailboxd.core.model import Task
from mailboxd.core.operator_orders import BY_INPUT
from mailboxd.core.vocabulary import same_agent
from mailboxd.errors import Refused


class Verb(StrEnum):
    CREATE = "create"  # a root task; children only come from plans
    READ = "read"
    START_ATTEMPT = "start_attempt"
    CHECKPOINT = "checkpoint"
    ARTIFACT = "artifact"
    REVIEW_SPEC = "review_spec"
    REVIEW_QUALITY = "review_quality"
    REQUEST_APPROVAL = "request_approval"
    RESOLVE_APPROVAL = "resolve_approval"
    TRANSITION = "transition"
    OPEN_CIRCUIT = "open_circuit"
    COMMAND = "command"  # the operator's orders


MATRIX: Mapping[Role, frozenset[Verb]] = {
    Role.ORCHESTRATOR: frozenset(Verb) - {Verb.REVIEW_SPEC, Verb.REVIEW_QUALITY, Verb.COMMAND},
    Role.EXECUTOR: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT}),
    Role.SPEC_REVIEWER: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT, Verb.REVIEW_SPEC}),
    Role.QUALITY_REVIEWER: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT, Verb.REVIEW_QUALITY}),
    Role.LOBSTER: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT, Verb.REQUEST_APPROVAL, Verb.RESOLVE_APPROVAL}),
    Role.OPERATOR: frozenset({Verb.CREATE, Verb.READ, Verb.RESOLVE_APPROVAL, Verb.COMMAND}),
}

REVIEWERS = frozenset({Role.SPEC_REVIEWER, Role.QUALITY_REVIEWER})

_VERBS: Mapping[type, Verb] = {
    NewTask: Verb.CREATE,
    Start: Verb.START_ATTEMPT,
    Checkpoint: Verb.CHECKPOINT,
    FileMade: Verb.ARTIFACT,
    OpenCircuit: Verb.OPEN_CIRCUIT,
    ActionDeclared: Verb.REQUEST_APPROVAL,
    ActionPrepared: Verb.REQUEST_APPROVAL,
    PermissionAsked: Verb.REQUEST_APPROVAL,
    Resolve: Verb.RESOLVE_APPROVAL,
    **dict.fromkeys((ActionImpossible, ActionStarted, ActionNotBegun, ActionEnded, ApprovalExpired), Verb.TRANSITION),
    RequestUndo: Verb.COMMAND,
}


def verb_of(given: Input, role: Role) -> Verb:
    """The verb of this input from a caller in `role`."""
    if isinstance(given, ReviewGiven):
        return Verb.REVIEW_SPEC if given.kind is ReviewKind.SPEC else Verb.REVIEW_QUALITY
    if role is Role.OPERATOR and type(given) in BY_INPUT:  # from others it is a message, for the orchestrator to judge
        return Verb.COMMAND
    return _VERBS.get(type(given), Verb.TRANSITION)


def may(role: Role, verb: Verb) -> bool:
    return verb in MATRIX[role]


def require(role: Role, verb: Verb) -> None:
    """Raise Refused, naming the rule, unless `role` may do `verb`."""
    if verb not in MATRIX[role]:
        allowed = ", ".join(sorted(MATRIX[role]))
        raise Refused("permission-denied", f"the role {role} may not {verb}", f"It may: {allowed}.")


def require_read(role: Role, actor: str, task: Task) -> None:
    """Raise Refused unless `actor` may read this task: an executor its own, a reviewer what it is named for."""
    require(role, Verb.READ)
    if role is Role.EXECUTOR:
        require_executor(actor, task.executor, task)
    elif role in REVIEWERS:
        require_reviewer(actor, task)


def require_executor(actor: str, executor: str, task: Task) -> None:
    if not same_agent(actor, executor):
        raise Refused("wrong-agent", f"{task.local_id} was given to {executor}, not to {actor}")


def require_reviewer(actor: str, task: Task) -> None:
    """Raise Refused unless `actor` is a reviewer of the task and has not executed it."""
    if same_agent(actor, task.executor):
        raise Refused("own-work", f"{actor} executed {task.local_id} and may not review it")
    if not any(same_agent(actor, name) for name in task.policy.reviewers):
        raise Refused("not-a-reviewer", f"{actor} is not a reviewer of {task.local_id}")
