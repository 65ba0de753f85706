"""The facts of one journal, collected event by event, and the rules that each event has to keep. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from mailboxd.core.approvals import Action, digest, in_words
from mailboxd.core.events import VERSION, Event, Kind, Role, passed, recorded_event
from mailboxd.core.json_codec import from_json
from mailboxd.core.lifecycle import TRANSITIONS, Trigger
from mailboxd.core.outcomes import PromptText
from mailboxd.core.people import may_decide
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Phase, same_agent
from mailboxd.operate.auditor.model import Check, Finding
from mailboxd.operate.auditor.place import NOWHERE, Place

_TIME = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\.\d{3}Z", re.ASCII)
SLACK = 60.0
"""Seconds by which times may go back: several processes write, each with the time at which it began."""
_BY_ITSELF = "mailboxd"


@dataclass(slots=True)
class Message:
    """A message that the journal has, received or sent."""

    seq: int
    where: Place
    at: str
    task: str | None
    row: Mapping[str, Any]
    path: str | None
    filed: Place = NOWHERE
    undelivered: bool = False

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def is_sent(self) -> bool:
        return self.row.get("direction") == "out"

    @property
    def message_id(self) -> str:
        return str(self.row.get("message_id") or "")

    @property
    def sha256(self) -> str | None:
        found = self.row.get("sha256")
        return found if isinstance(found, str) else None

    def text(self, name: str) -> str:
        """One of its fields, empty if it has none."""
        found = self.row.get(name)
        return found if isinstance(found, str) else ""


@dataclass(slots=True)
class Request:
    """A request for approval and what became of it, by the events."""

    row: dict[str, Any]
    seq: int
    where: Place
    resolved: Place = NOWHERE
    resolved_seq: int = 0
    decided: str = ""
    """The decision of a person; what became of it later does not change it."""
    decided_by: str = ""
    decided_at: str = ""
    decided_note: str = ""
    words: str = ""
    """The action that its digest covers, in words."""

    def text(self, name: str) -> str:
        found = self.row.get(name)
        return found if isinstance(found, str) else ""


@dataclass(slots=True)
class TaskFacts:
    local_id: str
    phase: str
    executor: str
    where: Place
    message_id: str = ""
    attempt_id: str = ""
    """Of the dispatch that brought it."""
    sender: str = ""
    executors: set[str] = field(default_factory=set)
    attempts: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may decide about approvals, as an event of the journal says from then on."""

    seq: int
    where: Place
    approvers: tuple[str, ...]


@dataclass(slots=True)
class Record:
    """What the events of a journal say."""

    tasks: dict[str, TaskFacts] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    """Path below mailbox/ -> id of the message that is recorded there."""
    prompts: dict[str, Place] = field(default_factory=dict)
    """SHA-256 of a prompt -> the event that names it."""
    kept: dict[str, Place] = field(default_factory=dict)
    """SHA-256 of a prompt whose text is in the journal -> the event that says so."""
    policies: list[Policy] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    first_at: str = ""
    last_at: str = ""
    partial: bool = False
    """Events are missing or withheld, so that what they made is not known: that is named already."""
    _latest: str = ""
    _latest_place: Place = NOWHERE
    _signed: str = ""
    """When the last head was signed; empty if an event that followed was earlier."""
    configured_agent: str = ""
    """Whose mailbox it is by its configuration; empty where no event says it."""
    agents: dict[str, int] = field(default_factory=dict)
    """How often a name is that of this mailbox's agent."""
    _keys: dict[str, str] = field(default_factory=dict)
    """Idempotency key -> the approval under which an action began."""
    _by_task: dict[str, list[Message]] | None = None

    def about(self, task: str | None) -> list[Message]:
        """The messages about a task, in the order of their events."""
        if self._by_task is None:
            self._by_task = {}
            for message in self.messages.values():
                if message.task is not None:
                    self._by_task.setdefault(message.task, []).append(message)
        return [] if task is None else self._by_task.get(task, [])

    def take(self, where: Place, said: Mapping[str, Any]) -> Iterator[Finding]:
        """An event whose line has the form of one."""
        at, seq = said["at"], said["seq"]
        self.first_at, self.last_at = self.first_at or at, at
        is_clock = said["kind"] == Kind.ALARM and said["data"].get("what") == "clock"
        yield from self.time(where, at, f"event {seq}", is_clock=is_clock)
        try:
            version = said["data"].get("v", 1)
            if type(version) is int and version > VERSION:
                self.notes[f"{where}: event {seq} was recorded by a newer mailboxd, and is not judged"] = None
                return
            event = recorded_event(said["kind"], said["task"], said["data"], said["role"], said["actor"])
            for kind_of, problem in self._judge(seq, where, at, event):
                if self.partial and kind_of in _FOLLOWS:
                    continue
                check = Check.APPROVALS if event.kind.startswith(("approval.", "action.")) else Check.RULES
                yield Finding(check, kind_of, where, f"event {seq} ({event.kind}): {problem}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}"[:200]
            yield Finding(Check.RULES, "no-event", where, f"event {seq} cannot be read as mailboxd writes it: {what}")

    def time(
        self, where: Place, at: str, what: str, *, is_clock: bool = False, is_head: bool = False
    ) -> Iterator[Finding]:
        """The time of the next event or head: it is not before that of an earlier event, unless the clock was set."""
        try:
            if _TIME.fullmatch(at) is None:
                raise ValueError(at)
            back, after = (to_epoch(before or at) - to_epoch(at) for before in (self._latest, self._signed))
        except ValueError:  # also a day or an hour that does not exist
            yield Finding(Check.TIMES, "no-time", where, f"the time of {what} is none: {at[:40]!r}")
            return
        if is_clock or is_head:
            self._signed = at if is_head else ""
        elif after > SLACK:
            # a daemon compares the clock with the last event when it starts, and knows nothing of its own heads
            self.notes[
                f"{where}: {what} is of {at}, and the head before it was signed at {self._signed}: the clock was set"
                " back meanwhile, or one of them is wrong"
            ] = None
            self._signed = ""
        if back > SLACK and not is_clock:
            problem = f"{what} is of {at}, and what stands before it ({self._latest_place}) is of {self._latest}"
            if self.counts.get(Kind.CONFIG_CHANGED) or is_head:
                yield Finding(Check.TIMES, "back", where, f"{problem}; no event says that the clock was set")
            else:
                self.notes[
                    f"{where}: {problem}. An earlier version wrote this, which did not record that the clock was set"
                    " back while no daemon ran"
                ] = None
        if (is_clock or back <= 0 or back > SLACK) and not is_head:
            self._latest, self._latest_place = at, where

    # The rules, by kind

    def _judge(self, seq: int, where: Place, at: str, event: Event) -> Iterator[tuple[str, str]]:
        data = event.data
        if data.get("at", at) != at:
            yield "other-time", f"it is of {at}, and its data is of {str(data['at'])[:40]}"
        if event.task is not None and event.kind is not Kind.TASK_CREATED and event.task not in self.tasks:
            yield "no-task", f"no event has made its task {event.task}"
        for artifact in data.get("artifacts", ()):
            if artifact["uri"].startswith("mailboxd:") and sha256(artifact["body"]) != artifact["sha256"]:
                yield "artifact", f"the text of the artifact {artifact['id'][:60]} has another SHA-256 than it says"
        self._count(event.kind)
        self._named_prompt(where, data)
        if event.kind == "config.changed":
            self.configured(seq, where, data)
        if event.kind is Kind.TASK_CREATED:
            yield from self._created(where, event)
        elif event.task in self.tasks:
            yield from self._steps(self.tasks[event.task], event)
        if event.kind is Kind.ATTEMPT_STARTED:
            yield from self._started(event)
        if (judge := _JUDGES.get(event.kind)) is not None:
            yield from judge(self, seq, where, at, event)

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _created(self, where: Place, event: Event) -> Iterator[tuple[str, str]]:
        task = event.data["task"] | event.data.get("changes", {})
        name, local_id = text_of(task["id"]), text_of(task["local_id"])
        if event.task != task["id"]:
            yield "other-task", f"it is about {event.task}, and makes {str(task['id'])[:60]}"
        if task["id"] in self.tasks:
            yield "made-twice", f"its task {task['id']} was made before ({self.tasks[task['id']].where})"
        if task["parent"] is not None and task["parent"] not in self.tasks:
            yield "no-task", f"no event has made the task above it, {str(task['parent'])[:60]}"
        origin = task.get("origin") or {}
        made = TaskFacts(local_id, text_of(event.data["task"]["phase"]), text_of(task["executor"]), where)
        made.message_id, made.attempt_id = text_of(origin.get("message_id")), text_of(origin.get("attempt_id"))
        made.sender = text_of(task.get("sender"))
        self.tasks[name] = made
        yield from self._steps(made, event)

    def _steps(self, task: TaskFacts, event: Event) -> Iterator[tuple[str, str]]:
        """The phases that the event passes follow the table of transitions, from the phase in which the task is."""
        for step in passed(event):
            if step["from"] != task.phase:
                yield "phase", f"it moves {task.local_id} from {step['from']}, and that is {task.phase}"
            try:
                target: str = TRANSITIONS.get((Phase(step["from"]), Trigger(step["trigger"])), "")
            except ValueError:
                target = ""
            if target != step["to"]:
                yield "phase", f"no rule moves a task from {step['from']} to {step['to']} by {step['trigger'][:60]!r}"
            task.phase = text_of(step["to"])
        changes = event.data.get("changes", {})
        phase = text_of(changes.get("phase", task.phase))
        if event.kind.startswith(("task.", "attempt.", "turn.")) and phase != task.phase:
            yield (
                "phase",
                f"it says that {task.local_id} is {phase}, and the phases that it passed lead to {task.phase}",
            )
            task.phase = phase
        if isinstance(changes.get("executor"), str):
            task.executor = changes["executor"]

    def _started(self, event: Event) -> Iterator[tuple[str, str]]:
        attempt = event.data["attempt"]
        task = self.tasks.get(attempt["task"])
        if attempt["task"] != event.task or task is None:
            yield "no-task", f"it is about {event.task}, and its attempt is of {str(attempt['task'])[:60]}"
            return
        if attempt["id"] in task.attempts:
            yield "made-twice", f"the attempt {attempt['id'][:60]} was started before"
        task.attempts.add(text_of(attempt["id"]))
        task.executors.add(text_of(attempt["executor"]))

    # Messages

    def _message(self, seq: int, where: Place, at: str, event: Event) -> Iterator[tuple[str, str]]:
        row = event.data["message"]
        text_of(row["id"])
        if not isinstance(row.get("reason"), dict | NoneType):
            raise TypeError("its reason is none")
        found = Message(seq, where, at, event.task, row, _path(row.get("path")))
        if found.id in self.messages:
            yield "message-twice", f"the message {found.id[:60]} was recorded before ({self.messages[found.id].where})"
        self.messages[found.id] = found
        own = found.text("sender") if found.is_sent else found.text("receiver")
        self.agents[own] = self.agents.get(own, 0) + 1
        if found.path is not None:
            yield from self._at(found, found.path)

    def _filed(self, _seq: int, where: Place, _at: str, event: Event) -> Iterator[tuple[str, str]]:
        found = self.messages.get(event.data["id"])
        if found is None:
            yield "no-message", f"no event has recorded the message {str(event.data['id'])[:60]}"
            return
        path = _path(event.data["path"])
        if path is None:
            raise ValueError("it names no path")
        if found.path is not None:
            yield "filed-twice", f"its message is filed already as {found.path[:120]}"
        found.path, found.filed = path, where
        place = "rejected" if found.text("verdict") == "rejected" else "archive"
        if not found.is_sent and path.partition("/")[0] != place:
            yield "other-place", f"a message that is {found.text('verdict')} is filed as {path[:120]}"
        yield from self._at(found, path)

    def _at(self, found: Message, path: str) -> Iterator[tuple[str, str]]:
        other = self.paths.setdefault(path, found.id)
        if other != found.id:
            yield "same-place", f"the message {other} is recorded at {path[:120]} as well"

    def _undelivered(self, _seq: int, _where: Place, _at: str, event: Event) -> Iterator[tuple[str, str]]:
        if (found := self.messages.get(event.data["id"])) is not None:
            found.undelivered = True
        yield from ()

    # Approvals and their actions

    def _requested(self, seq: int, where: Place, _at: str, event: Event) -> Iterator[tuple[str, str]]:
        row = dict(event.data["approval"])
        text_of(row["id"])
        if row["id"] in self.requests:
            yield "made-twice", f"the approval {row['id'][:60]} was requested before"
        request = self.requests[row["id"]] = Request(row, seq, where)
        if row["task"] != event.task:
            yield "other-task", f"it is about {event.task}, and requests an approval for {str(row['task'])[:60]}"
        if row["purpose"] != "permission":
            action = from_json(Action, row["action"])
            request.words = in_words(action)
            # earlier versions may have said it in other words
            if self.counts.get(Kind.CONFIG_CHANGED) and request.text("requested_action") != request.words:
                yield "other-words", f"it is shown as {request.text('requested_action')[:120]}, and is: {request.words}"
            if digest(action, row.get("content_sha256", ""), row.get("target_sha256", "")) != row["digest"]:
                yield (
                    "digest",
                    f"the digest of {row['id']} is not that of its action: {request.text('requested_action')[:80]}",
                )

    def _resolved(self, seq: int, where: Place, at: str, event: Event) -> Iterator[tuple[str, str]]:
        request, changes = self.requests.get(event.data["approval"]), event.data["changes"]
        if request is None:
            yield "no-request", f"no event has requested the approval {str(event.data['approval'])[:60]}"
            return
        status, before = text_of(changes["status"]), request.row.get("status", "pending")
        by = str(changes["resolved_by"])
        if before != "pending" and not (before == "approved" and status == "expired"):
            yield "decided-twice", f"it is {before} by {request.text('resolved_by')} already ({request.resolved})"
        if status in _DECISIONS:
            if event.role not in (Role.OPERATOR, Role.LOBSTER):
                yield "role", f"a decision by the role {event.role}, which may not decide"
            if by != event.actor:
                yield "other-actor", f"it was given by {event.actor[:80]}, and says that {by[:80]} decided"
            task = self.tasks.get(str(event.task))
            if task is not None and any(same_agent(by, name) for name in (task.executor, *task.executors) if name):
                yield "own-work", f"{by[:80]} has executed {task.local_id}, and may not decide about it"
            yield from self._by_policy(by, event.data.get("policy"))
            request.decided, request.decided_by, request.decided_at = status, by, at
            request.decided_note = str(changes.get("note") or "")
        elif by != _BY_ITSELF:
            yield "other-actor", f"what nobody decided is said to be by {by[:80]}"
        request.row |= changes
        request.resolved, request.resolved_seq = where, seq

    def _by_policy(self, by: str, seen: object) -> Iterator[tuple[str, str]]:
        """Whoever decided may do so by the configuration of then; `seen`: the event that the decider knew of it."""
        if type(seen) is int and all(one.seq != seen for one in self.policies) and not self.partial:
            yield (
                "no-policy",
                f"it names the policy of event {seen}, and that is no change of the configuration before it",
            )
        known = [one for one in self.policies if type(seen) is not int or one.seq <= seen]
        if known and not may_decide(by, known[-1].approvers):
            named = ", ".join(known[-1].approvers)[:200] or "every user of this machine"
            yield "no-approver", f"{by[:80]} was no approver then: {named} ({known[-1].where})"

    def _action(self, _seq: int, _where: Place, _at: str, event: Event) -> Iterator[tuple[str, str]]:
        request = self.requests.get(event.data["approval"])
        if request is None:
            yield "no-request", f"no event has requested the approval {str(event.data['approval'])[:60]}"
            return
        if event.kind is Kind.ACTION_STARTED:
            if request.row.get("status", "pending") != "approved":
                yield (
                    "not-approved",
                    f"the action began, and {request.text('id')} is {request.row.get('status', 'pending')}",
                )
            if request.row.get("state", ""):
                yield "began-twice", f"the action began before: it is {request.text('state')}"
            key = request.text("idempotency_key")
            if (other := self._keys.setdefault(key, request.text("id"))) != request.text("id") and key:
                before = self.requests[other]
                if before.text("state") in ("started", "done"):
                    yield "same-key", f"the key {key[:80]} was used by {other}, whose action is {before.text('state')}"
                self._keys[key] = request.text("id")
        request.row |= event.data["changes"]

    # Configuration

    def configured(self, seq: int, where: Place, data: Mapping[str, Any]) -> None:
        """Keep what an event says of the policy from then on."""
        named = data.get("changes", {}).get("agent")
        if isinstance(named, dict) and isinstance(named.get("new"), str):
            self.configured_agent = named["new"]
        approvers = approvers_of(data)
        if approvers is not None or self.policies:
            self.policies.append(Policy(seq, where, self.policies[-1].approvers if approvers is None else approvers))

    def _named_prompt(self, where: Place, data: Mapping[str, Any]) -> None:
        named = data.get("turn", {}).get("prompt")
        digest_ = named.get("sha256") if isinstance(named, dict) else named
        if isinstance(digest_, str):
            self.prompts.setdefault(digest_, where)
            if isinstance(named, dict) and named.get("text") == PromptText.KEPT:
                self.kept.setdefault(digest_, where)


_FOLLOWS = frozenset({"no-task", "no-message", "no-request", "phase", "not-approved"})
"""What follows from events that are missing."""
_DECISIONS = frozenset({"approved", "rejected", "request_changes"})
_Judge = Callable[[Record, int, Place, str, Event], Iterator[tuple[str, str]]]
_JUDGES: Mapping[str, _Judge] = {
    Kind.MESSAGE_RECEIVED: Record._message,
    Kind.MESSAGE_REJECTED: Record._message,
    Kind.MESSAGE_SENT: Record._message,
    Kind.MESSAGE_FILED: Record._filed,
    Kind.MESSAGE_UNDELIVERED: Record._undelivered,
    Kind.APPROVAL_REQUESTED: Record._requested,
    Kind.APPROVAL_RESOLVED: Record._resolved,
    Kind.ACTION_STARTED: Record._action,
    Kind.ACTION_DELAYED: Record._action,
    Kind.ACTION_ENDED: Record._action,
}


def approvers_of(data: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The approvers that an event of the configuration says are so from then on; None if it says nothing of them."""
    changed = data.get("changes", {}).get("approvals.approvers")
    new = changed.get("new") if isinstance(changed, dict) else None
    if not isinstance(new, list) or not all(isinstance(name, str) for name in new):
        return None
    return tuple(new)


def text_of(value: object) -> str:
    """A text as an event has it, empty for null. Raises TypeError for what is none."""
    if value is None or isinstance(value, str):
        return value or ""
    raise TypeError(f"{type(value).__name__} instead of a text")


def _path(value: object) -> str | None:
    """A path below mailbox/ as an event has it, or None for null. Raises TypeError, and ValueError for no such path."""
    path = text_of(value)
    if value is None:
        return None
    path.encode("utf-8", "surrogateescape")  # raises what no name of a file can have
    if "\0" in path or {"", ".", ".."} & set(path.split("/")):
        raise ValueError("it names no path below mailbox/")
    return path


def sha256(text: str) -> str:
    """Of a text in which lone surrogates stand for bytes that are not UTF-8; empty for others, which mean nothing."""
    try:
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    except UnicodeEncodeError:
        return ""
