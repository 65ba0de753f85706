"""Replays the past step by step through the engine and the intake of the daemon.

The files show the end and the result of a turn, not what the agent did in it. So turns begin and end here as the files
say, and nothing is called, sent or written.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from mailboxd.clock import ManualClock
from mailboxd.config.settings import Settings
from mailboxd.core.effects import Bounce, Effect, LookUp, RunTurn, Send
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import (
    Cancel,
    Clarification,
    Edited,
    ImportedDispatched,
    ImportedDone,
    ImportedFailed,
    Input,
    Reply,
    Retry,
    SpecWritten,
    Start,
    TurnEnded,
)
from mailboxd.core.model import Attempt, Plan, Spec, Task
from mailboxd.core.outcomes import (
    Failed,
    Failure,
    Outcome,
    Permanence,
    Planned,
    Question,
    Results,
    Reviewed,
    Succeeded,
    Unknown,
)
from mailboxd.core.reviews import fence
from mailboxd.core.specs import criteria
from mailboxd.core.task_view import TaskView
from mailboxd.core.vocabulary import AttemptStatus, Gate, Phase, Turn, Verdict, Waiting, same_agent
from mailboxd.effects.message_builder import row_of_sent
from mailboxd.engine.engine import Engine
from mailboxd.errors import MessageError, PlanError, Refused
from mailboxd.ids import Ids, time_of
from mailboxd.intake.archive import InboxFile, message_row
from mailboxd.intake.interpret import Intake
from mailboxd.keys import Trust
from mailboxd.protocol.messages import parse_message
from mailboxd.protocol.plan import DagNode
from mailboxd.protocol.taskmd import TaskFile
from mailboxd.rebuild.files import Came, Refusal, Sent
from mailboxd.rebuild.timeline import Adopt, Ask, Begin, Close, Create, Receive, Refuse, Step
from mailboxd.store.outbox import Outbox
from mailboxd.store.rebuild_store import RebuildStore
from mailboxd.taskmd.sync import TaskMarkdown

# The engine of a rebuild: its clock and ids come from the files. An effect with a message in outbox/ counts as
# performed, and its order takes the id of that message.

_SEED = 0
"""Fixed, so that the same files give the same database."""


class GivenIds(Ids):
    """Ids known from files first; then ids made from the time and a fixed sequence."""

    def __init__(self) -> None:
        random = Random(_SEED)  # noqa: S311 - need not be unguessable
        super().__init__(random.getrandbits)
        self._given: dict[str, deque[str]] = {}

    def give(self, prefix: str, name: str) -> None:
        """Set the next id with this prefix."""
        self._given.setdefault(prefix, deque()).append(name)

    def take_back(self) -> None:
        """Discard ids that were given but not used."""
        self._given.clear()

    def new(self, prefix: str, now: str) -> str:
        waiting = self._given.get(prefix)
        return waiting.popleft() if waiting else super().new(prefix, now)


@dataclass(slots=True)
class Ordered:
    """An effect that was ordered during the replay."""

    id: str
    task: str
    effect: Effect
    sent: Sent | None


class ReplayOutbox(Outbox):
    """Matches each effect that is ordered with the message in outbox/ that was sent for it."""

    def __init__(self, store: RebuildStore, sent: Sequence[Sent]) -> None:
        super().__init__(store.db)
        self._tasks = store.tasks
        self.ordered: list[Ordered] = []
        self.fresh: list[Ordered] = []
        """Those whose message was found but is not recorded yet."""
        self._of_task: dict[str, list[Effect]] = {}
        self.unmatched: dict[str, Sent] = {one.path: one for one in sent}
        self._by_work: dict[tuple[str, str], list[Sent]] = {}
        for one in sent:
            self._by_work.setdefault((one.message.type, one.of), []).append(one)

    def add(self, effect_id: str, task: str, effect: Effect, now: str) -> None:
        sent = self._find(task, effect, now)
        message_id = None if sent is None else sent.message.message_id
        if message_id is not None and isinstance(effect, Send | Bounce | RunTurn):
            effect = replace(effect, message_id=message_id)
            effect_id = effect_id if isinstance(effect, RunTurn) else message_id
        super().add(effect_id, task, effect, now)
        ordered = Ordered(effect_id, task, effect, sent)
        self.ordered.append(ordered)
        self._of_task.setdefault(task, []).append(effect)
        if sent is not None:
            self.fresh.append(ordered)

    def ordered_for(self, task: str) -> Sequence[Effect]:
        """The effects ordered for a task, in order."""
        return self._of_task.get(task, ())

    def _find(self, task: str, effect: Effect, now: str) -> Sent | None:
        match effect:
            case RunTurn(message_id=wanted, attempt_id=attempt_id) if wanted:
                known = self._by_work.get(("task", self._tasks.local_id(task)), [])
                fits = [one for one in known if one.message.attempt_id == attempt_id]
            case Send(type=kind):
                fits = self._by_work.get((kind, self._tasks.local_id(task)), [])
            case Bounce(task_id=task_id, in_reply_to=replied):
                known = self._by_work.get(("reply", task_id), [])
                fits = [one for one in known if one.message.in_reply_to == replied]
            case _:
                return None
        left = [one for one in fits if one.path in self.unmatched]
        exact = [one for one in left if time_of(one.message.message_id or "") == now]
        for one in exact or left:
            del self.unmatched[one.path]
            return one
        return None


class ReplayStore(RebuildStore):
    """The new database; it knows the messages in outbox/."""

    outbox: ReplayOutbox
    lies = ""
    """The path below mailbox/ of the message that is being replayed."""

    def know(self, sent: Sequence[Sent]) -> None:
        """Match orders with these messages from now on."""
        self.outbox = ReplayOutbox(self, sent)

    def append(self, events: Sequence[Event], now: str, left: TaskView | None = None) -> None:
        for event in events:
            if event.kind in (Kind.MESSAGE_RECEIVED, Kind.MESSAGE_REJECTED):
                # Saves a second event, which was a quarter of all events.
                event.data["message"]["path"] = self.lies
        super().append(events, now, left)


@dataclass(slots=True)
class ReplayEngine:
    """The engine with the clock of the replay."""

    engine: Engine
    store: ReplayStore
    clock: ManualClock
    ids: GivenIds
    tokens: deque[str] = field(default_factory=deque)
    _made: int = 0

    @classmethod
    def open(cls, settings: Settings, sent: Sequence[Sent], beginning: str) -> ReplayEngine:
        """Open an engine over an empty database."""
        store = ReplayStore.empty(beginning)
        store.know(sent)
        clock, ids = ManualClock(beginning), GivenIds()
        random = Random(_SEED)  # noqa: S311 - jitter of delays that are over
        desk = cls(Engine(store, settings, clock, ids, random), store, clock, ids)
        desk.engine.new_token = desk._token
        return desk

    def _token(self) -> str:
        """The token in the sent message; one for an attempt without a message is never compared."""
        self._made += 1
        return self.tokens.popleft() if self.tokens else hashlib.sha256(f"rebuilt {self._made}".encode()).hexdigest()


# Received messages, judged again by the intake and compared with where they are filed.

_MAX_FILE = 16 << 20


class _Diverged(Exception):
    """A message that was accepted is not accepted now: the files do not tell everything about its circumstances."""


@dataclass(slots=True)
class Mail:
    """Received messages; inside the transaction of the rebuild. `read` returns the bytes of a file below mailbox/."""

    desk: ReplayEngine
    intake: Intake
    read: Callable[[str], bytes | None]
    trust: Trust | None = None
    differences: list[str] = field(default_factory=list)
    """What could not be brought into the state that its file shows."""

    def receive(self, came: Came) -> None:
        """Receive an archived message."""
        self.desk.store.lies = came.path
        raw = self.read(came.path) or b""
        parsed = came.parsed
        if hashlib.sha256(raw).hexdigest() != parsed.sha256:
            try:
                parsed = parse_message(raw, came.name, max_bytes=_MAX_FILE)
            except MessageError as error:
                problem = f"it has changed while it was read: {error.problem}"
                self.differences.append(f"mailbox/{came.path}: {problem}")
                return
        file = InboxFile(came.name, raw, parsed.sha256, len(raw), {})
        self._doubt(came, raw)
        try:
            with self.desk.store.savepoint():
                if not came.day:
                    self._record(file, "imported", came)
                elif self.intake.receive(file, parsed) == "rejected":
                    raise _Diverged
        except _Diverged:
            self._record(file, "late", came)
            self.differences.append(f"mailbox/{came.path}: it counts as late here")

    def _doubt(self, came: Came, raw: bytes) -> None:
        """Report what the inbox would not accept today. It is accepted here, because it may be older than the key."""
        if self.trust is not None:
            try:
                self.trust.admit(self.trust.verify(raw, came.message), came.message.from_)
            except MessageError as error:
                self.differences.append(f"mailbox/{came.path}: taken as it lies there, but {error.problem}")

    def _record(self, file: InboxFile, verdict: str, came: Came) -> None:
        row = message_row(self.desk.engine, file, verdict, came.message)
        self.desk.store.messages.keep_body(row["id"], file.raw or b"")
        data = {"at": self.desk.engine.now, "message": row}
        self.desk.engine.record(Event(Kind.MESSAGE_RECEIVED, None, data, actor=came.message.from_))

    def refuse(self, refusal: Refusal) -> None:
        """Receive a rejected message."""
        said = refusal.reason
        raw = self.read(refusal.path) if said.get("sha256") else None
        file = InboxFile(said["name"], raw, said.get("sha256"), len(raw) if raw is not None else None, {})
        rule, problem, hint = said["rule"], said["problem"], str(said.get("hint", ""))
        error: MessageError | Refused = Refused(rule, problem, hint)
        if "line" in said:
            error = MessageError(rule, problem, hint, line=said["line"], field=said.get("field"))
        try:
            message = None if raw is None else parse_message(raw, said["name"], max_bytes=_MAX_FILE).message
        except MessageError:
            message = None
        self.desk.ids.give("msg", said["message"])
        self.desk.store.lies = refusal.path
        self.intake.reject(file, error, message)


# Work that began had a complete and reviewed spec, but hardly any file shows either.

_UNTOLD_SPEC = "As agreed before the work began; no file tells of it."
_UNTOLD_REVIEW = "It was approved, for the work began; no file tells of it."


def written(spec: Spec, sent: Sent | None) -> SpecWritten:
    """Complete a weak spec, as far as possible from the dispatch."""
    expected = sent.message.section("Expected Output") if sent else ""
    wanted = criteria(sent.message.section("Acceptance Criteria")) if sent else ()
    expected = expected or spec.expected_output or ("" if wanted else _UNTOLD_SPEC)
    return SpecWritten(replace(spec, expected_output=expected, acceptance_criteria=wanted or (expected,)))


def approved(view: TaskView) -> Iterator[TurnEnded]:
    """Approve the spec in every review."""
    for asked in view.asked_reviewers:
        review = Reviewed(Verdict.APPROVED, _UNTOLD_REVIEW)
        about = fence(view.task, view.attempt)
        yield TurnEnded(Turn.REVIEW, about, asked.reviewer, Succeeded(""), review, Gate.SPEC_REVIEW, called=False)


# The status words of task.md.

UNTOLD = "an attempt that no file tells of"
"""The error of an attempt that must have failed, because there was a later one."""
_LOST = "the database was made again from files, which do not say how this turn ended"


def as_it_came(written: TaskFile) -> TaskFile:
    """The file without its progress, which is replayed step by step."""
    dag = tuple(DagNode(node.planned) for node in written.dag)
    return replace(written, status="", results="", synthesised="", subtask_results=(), dag=dag)


def agrees(phase: Phase, status: str) -> bool:
    """Whether this status word of clawflow matches the phase."""
    ends = {"done": Phase.COMPLETED, "failed": Phase.FAILED, "cancelled": Phase.CANCELLED}
    return ends.get(status, Phase.CIRCUIT_OPEN) is phase


def outcome_of(status: str, text: str) -> Outcome:
    """The outcome of the last turn of a task with this status."""
    if status == "done":
        return Succeeded(text)
    if status == "failed":
        return Failed(text or _LOST, Permanence.PERMANENT)
    return Unknown(_LOST, looked_up=True)


ACTOR = "rebuild"
_MOST_TURNS = 2
"""Turns per ended attempt: new instructions add one to the turn that ran."""
_UNTOLD_ANSWER = "an answer that no file tells of"
_CANCELLED = re.compile(r"cancelled by ([A-Za-z0-9_][A-Za-z0-9._-]{0,127})(?:: (.*))?", re.DOTALL)


@dataclass(slots=True)
class Replay:
    """A rebuild, inside one transaction."""

    desk: ReplayEngine
    mail: Mail
    taskmd: TaskMarkdown

    @property
    def differences(self) -> list[str]:
        """What could not be brought into the state that its file shows."""
        return self.mail.differences

    def perform(self, step: Step) -> None:
        """Replay one step."""
        self.desk.clock.text = self.desk.engine.now = step.at
        match step.what:
            case Receive(came):
                self.mail.receive(came)
            case Refuse(refusal):
                self.mail.refuse(refusal)
            case Create(shown, whole):
                if self.desk.store.tasks.is_unused(shown.local_id):
                    written = shown.written if whole else as_it_came(shown.written)
                    self._try(step, lambda: self.taskmd.create_task(shown.local_id, written))
            case Adopt(shown):
                self._try(step, lambda: self._adopt(shown.local_id, shown.written))
            case Begin(task, sent):
                self._on(step, task, lambda found: self._begin(found, sent))
            case Ask(local_id, text) if step.name in self.desk.store.outbox.unmatched:  # otherwise it is about its spec
                self._on(step, ("", local_id), lambda found: self._ask(found, text))
            case Close(task, status, text):
                if not self._has_ended(task, status):
                    self._on(step, task, lambda found: self._close(found, status, text))
        self.desk.ids.take_back()
        self.desk.tokens.clear()
        self.record_sent()

    def record_sent(self) -> None:
        """Record the sent messages for which an order was found."""
        fresh, self.desk.store.outbox.fresh = self.desk.store.outbox.fresh, []
        for ordered in fresh:
            if ordered.sent is not None:
                self.sent(ordered.sent, ordered.task)
                if not isinstance(ordered.effect, RunTurn):
                    self.desk.store.outbox.finish(ordered.id)

    def sent(self, sent: Sent, task: str) -> None:
        """Record a message of outbox/."""
        message = sent.message
        raw = self.mail.read(sent.path) or b""
        row = row_of_sent(str(message.message_id), message.type, message.from_, message.to or "", sent.path, raw)
        at = max(message.sent_at or message.completed_at or "", self.desk.engine.now)
        self.desk.engine.record(Event(Kind.MESSAGE_SENT, task or None, {"at": at, "message": row}))

    def hear(self, task: Task, heard: Input, role: Role = Role.ORCHESTRATOR, actor: str = ACTOR) -> Task:
        """Apply an input; returns the task afterwards."""
        self.desk.engine.hear(task.id, heard, role, actor)
        return self.desk.store.tasks.get(task.id) or task

    def live(self, task: Task) -> Attempt | None:
        """The running attempt, or None."""
        attempt = self.desk.store.tasks.attempt(task.id, task.attempt) if task.attempt else None
        return attempt if attempt is not None and attempt.status is AttemptStatus.RUNNING else None

    def _adopt(self, local_id: str, written: TaskFile) -> None:
        task = self.desk.store.tasks.by_local_id(local_id)
        if task is None or task.phase.is_terminal:
            return
        known = {child.key for child in self.desk.store.tasks.children(task.id)}
        fresh = tuple(node.planned for node in written.dag if node.key not in known)
        if task.phase is Phase.EXECUTION_READY and any(node.dispatched_at for node in written.dag):
            task = self._started(task)
        attempt = self.live(task)
        if fresh and attempt is not None and attempt.waiting_for is Waiting.TURN and not known:
            planned = Planned(Plan(fresh))  # its agent answered with a plan, or wrote it into this file
            turn = self.waits_for(task, attempt)
            self.hear(task, TurnEnded(turn, attempt.id, attempt.executor, Succeeded(""), planned, called=False))
        elif fresh:
            self.hear(task, Edited(added=fresh))

    def _begin(self, task: Task, sent: Sent | None) -> None:
        """Start an attempt, that of `sent` if it was dispatched to a peer."""
        wanted = sent.message.attempt or 1 if sent is not None else task.attempt + 1
        if sent is None and task.phase is Phase.EXECUTING:
            return  # one of its children began earlier
        for _ in range(task.attempt, wanted - 1):
            task = self._again(task)
            task = self._started(task) if task.phase is Phase.EXECUTION_READY else task
            task = self._end(task, Failed(UNTOLD))
        if task.phase is Phase.EXECUTING and task.attempt < wanted:
            task = self._end(task, Failed(UNTOLD))
        if sent is not None and task.attempt < wanted:
            task = self._again(task)
        task = self._specified(task, sent)
        if task.phase is not Phase.EXECUTION_READY:
            return
        self._awaken(task)
        if sent is None and not same_agent(task.executor, self.desk.engine.settings.agent):
            self.hear(task, ImportedDispatched())  # it was dispatched, though no file shows by which message
            return
        if sent is not None and sent.message.attempt_id is not None:
            self.desk.ids.give("att", sent.message.attempt_id)
            self.desk.tokens.extend(token for token in (sent.message.reply_token,) if token)
        self.hear(task, Start(begun=sent is not None))

    def _specified(self, task: Task, sent: Sent | None) -> Task:
        if task.phase is Phase.SPEC_DRAFT:
            task = self.hear(task, written(task.spec, sent))
        if task.phase is Phase.SPEC_REVIEW:
            for review in approved(self.desk.store.tasks.view(task.id)):
                task = self.hear(task, review)
        return task

    def _again(self, task: Task) -> Task:
        """Run a task again that had ended but was dispatched later: an operator retried it, which no file shows."""
        over = task.phase is Phase.CIRCUIT_OPEN or bool(task.completed_at and task.completed_at < self.desk.engine.now)
        return self._reopened(task) if over else task

    def _awaken(self, task: Task) -> None:
        """Start the parent if it was requeued: children begin only while it executes."""
        parent = None if task.parent is None else self.desk.store.tasks.get(task.parent)
        if parent is not None and parent.phase is Phase.EXECUTION_READY:
            self._started(parent)

    def _started(self, task: Task) -> Task:
        self._awaken(task)
        return self.hear(task, Start())

    def _ask(self, task: Task, text: str) -> None:
        if task.phase is Phase.EXECUTION_READY:
            task = self.hear(task, Start())
        attempt = self.live(task)
        if attempt is not None and attempt.waiting_for is Waiting.TURN:
            ended = TurnEnded(
                self.waits_for(task, attempt), attempt.id, attempt.executor, Succeeded(text), Question(text)
            )
            self.hear(task, ended)

    def _has_ended(self, task: tuple[str, str], status: str) -> bool:
        """Whether the replay has already brought the task to this end, which is usual; reads only its phase."""
        phase = self.desk.store.states.phase(*task)
        return phase is not None and phase.is_terminal and agrees(phase, status)

    def _close(self, task: Task, status: str, text: str) -> None:
        """End the task as its file says."""
        if task.phase.is_terminal or (task.phase is Phase.CIRCUIT_OPEN and status in ("done", "failed")):
            task = self._reopened(task)
        if status == "cancelled":
            self._cancel(task, text)
            return
        own_gates = bool(task.policy.gates or task.spec.checks or task.planned_actions)
        if task.phase is Phase.EXECUTION_READY and not (status == "done" and own_gates):
            task = self._started(task)
        for _ in range(_MOST_TURNS):
            if (attempt := self.live(task)) is None or attempt.waiting_for is Waiting.CHILDREN:
                break
            task = self._end(task, outcome_of(status, text))
        if agrees(task.phase, status):
            return
        if status == "done":
            self.hear(task, ImportedDone(text))
        elif status == "failed":
            self.hear(task, ImportedFailed(text))

    def _reopened(self, task: Task) -> Task:
        self.desk.engine.command(task, Retry(), ACTOR)
        return self.desk.store.tasks.get(task.id) or task

    def _cancel(self, task: Task, text: str) -> None:
        said = _CANCELLED.fullmatch(text)
        by, reason = (said[1], said[2] or "") if said else (ACTOR, text)
        self.hear(task, Cancel(by, reason), Role.OPERATOR, by)

    def _end(self, task: Task, outcome: Outcome) -> Task:
        """End the running attempt with this outcome."""
        attempt = self.live(task)
        if attempt is None:
            return task
        if attempt.waiting_for is Waiting.REPLY and isinstance(outcome, Failed):
            said = Reply(attempt.executor, Failure(outcome.error), attempt.id)
            return self.hear(task, said)  # its turn ended long ago: only a message can end it
        if attempt.waiting_for is Waiting.ANSWER and not attempt.acknowledged:
            task = self.hear(task, Clarification("operator", _UNTOLD_ANSWER))
        answer = Results(outcome.text) if isinstance(outcome, Succeeded) else None
        turn = self.waits_for(task, attempt)
        return self.hear(task, TurnEnded(turn, attempt.id, attempt.executor, outcome, answer, called=False))

    def waits_for(self, task: Task, attempt: Attempt) -> Turn:
        """The turn that the attempt waits for."""
        for effect in reversed(self.desk.store.outbox.ordered_for(task.id)):
            if isinstance(effect, RunTurn | LookUp) and effect.attempt_id == attempt.id:
                return effect.turn
        return Turn.SYNTHESIS if self.desk.store.tasks.children(task.id) else Turn.WORK

    def _on(self, step: Step, task: tuple[str, str], act: Callable[[Task], None]) -> None:
        parent, key = task
        found = self.desk.store.tasks.child(parent, key) if parent else self.desk.store.tasks.by_local_id(key)
        if found is None:
            self.differences.append(f"{step.name}: nothing says how this task came into being")
            return
        self._try(step, lambda: act(found))

    def _try(self, step: Step, act: Callable[[], None]) -> None:
        try:
            with self.desk.store.savepoint():
                act()
        except (Refused, PlanError, MessageError) as error:
            self.differences.append(f"{step.name} at {step.at}: {error}")
