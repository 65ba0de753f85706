"""A decision under construction: the events and effects so far, and the task after them.

Local to one call of `decide`, which stays a pure function: the view and the events are the builder's own, and change in
place until the decision is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core import lifecycle
from mailboxd.core.effects import Effect, Notify
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.json_codec import fields_to_json
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.model import Attempt, Task, changed
from mailboxd.core.outcomes import Aborted, Failed, Failure, Outcome, Results, Succeeded, Unknown
from mailboxd.core.sanitize import first_line
from mailboxd.core.task_view import Context, Family, TaskView
from mailboxd.core.vocabulary import AttemptStatus, Notice, Waiting


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of `decide`: record the events, then perform the effects. Empty = nothing happens."""

    events: tuple[Event, ...] = ()
    effects: tuple[tuple[str, Effect], ...] = ()
    """Each with the id of the task it is for."""
    left: TaskView | None = None
    """The task, with its attempt, after the events."""
    born: tuple[Task, ...] = ()
    """The tasks that are created, after the events."""


@dataclass(slots=True)
class DecisionBuilder:
    view: TaskView
    """Its own: nobody else has it before the decision is done."""
    ctx: Context
    role: Role = Role.ORCHESTRATOR
    actor: str = "mailboxd"
    events: list[Event] = field(default_factory=list)
    effects: list[tuple[str, Effect]] = field(default_factory=list)
    born: list[Task] = field(default_factory=list)

    @property
    def task(self) -> Task:
        return self.view.task

    @property
    def attempt(self) -> Attempt | None:
        return self.view.attempt

    @property
    def live(self) -> Attempt:
        """The running attempt. Tracking when there is none is a bug."""
        attempt = self.view.attempt
        if attempt is None or attempt.status is not AttemptStatus.RUNNING:
            raise AssertionError(f"{self.task.local_id}: no live attempt")
        return attempt

    @property
    def family(self) -> Family:
        """Loaded by the engine for every input that can contain a plan."""
        if self.view.family is None:
            raise AssertionError(f"{self.task.local_id}: the family was not loaded")
        return self.view.family

    def is_ordered(self, turn_id: str) -> bool:
        """Whether the end of this turn has not been recorded yet. One without an id was not ordered."""
        return not turn_id or turn_id in self.view.turns

    def see(self, **changes: Any) -> None:
        """Change the view: what the decision knows of the task and its neighbours."""
        self.view.__dict__.update(changes)

    def done(self) -> Decision:
        return Decision(tuple(self.events), tuple(self.effects), self.view, tuple(self.born))

    def order(self, effect: Effect) -> None:
        self.effects.append((self.view.task.id, effect))

    def notify(self, what: Notice, approval_id: str = "") -> None:
        """Notify people, if they are to be notified of that."""
        if what in self.ctx.notices or self.task.reply_address(what):
            self.order(Notify(what, approval_id))

    def record(self, kind: Kind, **data: Any) -> None:
        """Record an event of the task."""
        self.events.append(Event(kind, self.view.task.id, {"at": self.ctx.now, **data}, self.role, self.actor))

    def move(self, trigger: Trigger, reason: str, **changes: Any) -> None:
        """Move the task to another phase. What follows at once from an event is part of it; a gate that is on has an
        event of its own.
        """
        task = self.view.task
        step, changes, moved = lifecycle.move(task, trigger, self.ctx.now, reason, **changes)
        self.see(task=moved, reviews=(), asked_reviewers=(), check_runs=(), ordered_checks=())
        values = fields_to_json(changes)
        is_gated = bool(task.policy.gates) and lifecycle.gate_on(task) is not None
        before = None if is_gated else self._extend(_FOLLOWED_BY_PHASES, passed=[step], changes=values)
        if before is None:
            self.record(Kind.TASK_TRANSITIONED, passed=[step], changes=values)
        elif (before.role, before.actor) != (self.role, self.actor):
            step["by"] = self.actor

    def amend(self, note: str = "", **changes: Any) -> None:
        task, now = self.view.task, self.ctx.now
        event, task = lifecycle.amend(task, now, note, by=self.actor, role=self.role, **changes)
        self.events.append(event)
        self.see(task=task)

    def checkpoint(self, note: str, **changes: Any) -> None:
        """Change fields of the live attempt, which continues."""
        attempt = self.live
        changes = {name: value for name, value in changes.items() if getattr(attempt, name) != value}
        if not changes and not note:
            return
        values, noted = fields_to_json(changes), {"note": note} if note else {}
        if self._extend(_FOLLOWED_BY_CHECKPOINTS, attempt=attempt.id, attempt_changes=values, **noted) is None:
            self.record(Kind.ATTEMPT_CHECKPOINT, attempt=attempt.id, note=note, attempt_changes=values)
        self.see(attempt=changed(attempt, **changes))

    def finish_attempt(self, status: AttemptStatus, error: str = "") -> None:
        """End the live attempt; the turn and the artifacts recorded just before are part of its end."""
        attempt = self.live
        changes: dict[str, Any] = {
            "status": status,
            "waiting_for": Waiting.NOTHING,
            "finished_at": self.ctx.now,
            **({"error_summary": error} if error else {}),
        }
        data = {"attempt": attempt.id, "ordinal": attempt.ordinal, "attempt_changes": fields_to_json(changes)}
        before = self._extend(_FOLLOWED_BY_THE_END, **data)
        if before is None:
            self.record(Kind.ATTEMPT_ENDED, **data)
        else:
            self.events[-1] = Event(Kind.ATTEMPT_ENDED, before.task, before.data, before.role, before.actor)
        self.see(attempt=changed(attempt, **changes))

    def resume_attempt(self, note: str, waiting_for: Waiting) -> None:
        """Take back that the latest attempt ended with an unknown outcome: it is known now."""
        if self.attempt is None:
            raise AssertionError(f"{self.task.local_id}: no attempt")
        changes: dict[str, Any] = {
            "status": AttemptStatus.RUNNING,
            "waiting_for": waiting_for,
            "finished_at": None,
            "error_summary": "",
        }
        self.record(
            Kind.ATTEMPT_CHECKPOINT, attempt=self.attempt.id, note=note, attempt_changes=fields_to_json(changes)
        )
        self.see(attempt=changed(self.attempt, **changes))

    def note_unknown_end(self, attempt_id: str, error: str) -> bool:
        """Note of the latest attempt, which was given up, that its turn may go on; False if it is another one."""
        attempt = self.attempt
        if attempt is None or attempt.id != attempt_id or attempt.status is not AttemptStatus.ABORTED:
            return False
        data = {"attempt": attempt.id, "note": error, "attempt_changes": {"error_summary": error}}
        if self._extend(_FOLLOWED_BY_CHECKPOINTS, **data) is None:
            self.record(Kind.ATTEMPT_CHECKPOINT, **data)
        self.see(attempt=changed(attempt, error_summary=error))
        return True

    def artifact(self, kind: str, body: str, summary: str, produced_by: str, *, uri: str = "", sha256: str = "") -> str:
        """Record an artifact of the task, a text or what is at `uri`; returns its id.

        What is elsewhere has no `sha256` until somebody has read it: that of no bytes would mean an empty file. What
        has no text, such as the end of an action without output, has what is said of it as its text.
        """
        body = body or ("" if uri or kind == "primary_output" else summary)
        artifact_id = self.ctx.new_id("art")
        artifact = {
            "id": artifact_id,
            "kind": kind,
            "attempt": self.attempt.id if self.attempt else None,
            "uri": uri or f"mailboxd:{self.task.local_id}/{artifact_id}",
            "sha256": sha256 or (sha256_of(body) if body else ""),
            "summary": summary,
            "produced_by": produced_by,
            "body": body,
        }
        if self._extend(_FOLLOWED_BY_THE_END, artifacts=[artifact]) is None:
            self.record(Kind.ARTIFACT_RECORDED, artifacts=[artifact])
        return artifact_id

    def _extend(self, kinds: Collection[Kind], **parts: Any) -> Event | None:
        """Add parts to the latest event of this decision and return it, if it is about the task and of such a kind.

        Lists grow, changes add up, and notes follow each other.
        """
        last = self.events[-1] if self.events else None
        if last is None or last.kind not in kinds or last.task != self.view.task.id:
            return None
        data = last.data
        assert isinstance(data, dict)  # as it was recorded
        for name, part in parts.items():
            known = data.get(name)
            if isinstance(known, list):
                known += part
            elif isinstance(known, dict):
                known |= part
            elif known and name == "note":
                data[name] = f"{known}; {part}"
            else:
                data[name] = part
        return last


_FOLLOWED_BY_PHASES = frozenset({Kind.TASK_CREATED, Kind.TASK_TRANSITIONED, Kind.ATTEMPT_STARTED, Kind.ATTEMPT_ENDED})
_FOLLOWED_BY_CHECKPOINTS = frozenset({Kind.ATTEMPT_CHECKPOINT, Kind.TURN_ENDED})
_FOLLOWED_BY_THE_END = frozenset({Kind.ATTEMPT_CHECKPOINT, Kind.TURN_ENDED, Kind.ARTIFACT_RECORDED})
"""The kinds of events that take in what follows from them in the same decision."""


# Late reports: recorded, without any other effect.

REST_SECONDS = 300.0
"""A text with less than a message's headers that comes so soon after one of the same name is the rest of it."""
REST_SHOWN_SECONDS = 86_400.0
"""How long health mentions the late rest of a message."""


def is_rest(*, is_whole: bool, in_place: bool, seconds: float) -> bool:
    """Whether a file is the late rest of the message of the same name that was taken `seconds` before.

    A shell's `>>` recreates a file that was taken. What has all required headers, or was renamed in, is whole.
    """
    return not is_whole and in_place and seconds < REST_SECONDS


def corrects(before: bytes, after: bytes) -> bool:
    """Whether a text is a corrected version of an earlier one of the same name, and not what followed it.

    It begins like that one, or repeats half of its lines.
    """
    old, new = ([line.strip() for line in raw.splitlines() if line.strip()] for raw in (before, after))
    first, begins = (next((line for line in lines if line != b"---"), b"") for lines in (old, new))
    return (first == begins != b"") or 2 * len({*old} & {*new}) >= len({*old}) > 0


def record_late(builder: DecisionBuilder, agent: str, attempt_id: str | None, said: str) -> None:
    builder.record(Kind.REPLY_LATE, agent=agent, attempt=attempt_id, said=said)


def record_late_end(builder: DecisionBuilder, agent: str, attempt_id: str, outcome: Outcome) -> None:
    """Record that a turn has ended for which nothing waits any more: what the agent said, or how it was stopped.

    That its work may go on all the same stays with its attempt, for who looks at the task.
    """
    match outcome:
        case Succeeded():
            record_late(builder, agent, attempt_id, outcome_text(outcome))
        case Failed(error) | Aborted(error):
            how = "stopped" if isinstance(outcome, Aborted) else "failed"
            builder.record(Kind.REPLY_LATE, agent=agent, attempt=attempt_id, said=first_line(error), how=how)
        case Unknown(error):
            if not builder.note_unknown_end(attempt_id, error):
                builder.record(Kind.REPLY_LATE, agent=agent, attempt=attempt_id, said=first_line(error), how="unknown")


def outcome_text(outcome: object) -> str:
    """An outcome or answer in one line."""
    match outcome:
        case Succeeded(text) | Results(text):
            return f"results: {first_line(text)}"
        case Failed(error) | Aborted(error) | Failure(error):
            return f"failed: {first_line(error)}"
        case Unknown(error):
            return f"unknown: {first_line(error)}"
        case _:
            return type(outcome).__name__.lower()
