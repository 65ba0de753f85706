"""The permission matrix of the protocol (section 5), as a table. What is not in it is refused.

Only the orchestrator moves phases; everyone else adds evidence or gives commands. The engine asks `require` before
every input, whatever entrance it came through, so that no entrance can go around it.
"""

from __future__ import annotations

from enum import StrEnum

from mailboxd.core.events import Role
from mailboxd.errors import Refused


class Verb(StrEnum):
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
    COMMAND = "command"  # cancel, retry, unblock, edit: what a person may order


MATRIX: dict[Role, frozenset[Verb]] = {
    Role.ORCHESTRATOR: frozenset(Verb) - {Verb.REVIEW_SPEC, Verb.REVIEW_QUALITY, Verb.COMMAND},
    Role.EXECUTOR: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT}),
    Role.SPEC_REVIEWER: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT, Verb.REVIEW_SPEC}),
    Role.QUALITY_REVIEWER: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT, Verb.REVIEW_QUALITY}),
    Role.LOBSTER: frozenset({Verb.READ, Verb.CHECKPOINT, Verb.ARTIFACT, Verb.REQUEST_APPROVAL, Verb.RESOLVE_APPROVAL}),
    Role.OPERATOR: frozenset({Verb.READ, Verb.RESOLVE_APPROVAL, Verb.COMMAND}),
}


def may(role: Role, verb: Verb) -> bool:
    return verb in MATRIX[role]


def require(role: Role, verb: Verb) -> None:
    """Raise Refused, naming the rule, unless `role` may do `verb`."""
    if not may(role, verb):
        allowed = ", ".join(sorted(MATRIX[role]))
        raise Refused("permission-denied", f"the role {role} may not {verb}", f"It may: {allowed}.")
