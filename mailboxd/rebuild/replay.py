"""The past, step by step, through the same engine and the same intake as the first time.

What an agent did in a turn is not in the files; its end and its result are. So a turn begins and ends here as the
files say, and nothing is called, sent or written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mailboxd.core.effects import LookUp, RunTurn
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
    Start,
    TurnEnded,
)
from mailboxd.core.outcomes import Failed, Failure, Outcome, Planned, Question, Results, Succeeded
from mailboxd.core.terms import AttemptStatus, Phase, Turn, Waiting, same_agent
from mailboxd.core.types import Attempt, Plan, Task
from mailboxd.effects.outgoing import row_of_sent
from mailboxd.errors import MessageError, PlanError, Refused
from mailboxd.messages.taskfile import TaskFile
from mailboxd.rebuild import specs
from mailboxd.rebuild.desk import Desk
from mailboxd.rebuild.ends import UNTOLD, agrees, as_it_came, outcome_of
from mailboxd.rebuild.mail import Mail
from mailboxd.rebuild.sources import Sent
from mailboxd.rebuild.timeline import Adopt, Ask, Begin, Close, Create, Receive, Refuse, Step
from mailboxd.taskfiles.taskmd import TaskMarkdown

ACTOR = "rebuild"
_MOST_TURNS = 2
"""Of an attempt that ends: new instructions make another turn behind the one that ran."""
_UNTOLD_ANSWER = "an answer that no file tells of"
_CANCELLED = re.compile(r"cancelled by ([A-Za-z0-9_][A-Za-z0-9._-]{0,127})(?:: (.*))?", re.DOTALL)


@dataclass(slots=True)
class Replay:
    """One rebuild; inside one batch."""

    desk: Desk
    mail: Mail
    taskmd: TaskMarkdown

    @property
    def differences(self) -> list[str]:
        """What could not be brought to where its file says it was."""
        return self.mail.differences

    def perform(self, step: Step) -> None:
        """Let one step of the past happen."""
        self.desk.clock.text = self.desk.engine.now = step.at
        match step.what:
            case Receive(came):
                self.mail.receive(came)
            case Refuse(refusal):
                self.mail.refuse(refusal)
            case Create(shown, whole):
                if self.desk.store.is_free(shown.local_id):
                    written = shown.written if whole else as_it_came(shown.written)
                    self._try(step, lambda: self.taskmd.create_task(shown.local_id, written))
            case Adopt(shown):
                self._try(step, lambda: self._adopt(shown.local_id, shown.written))
            case Begin(task, sent):
                self._on(step, task, lambda found: self._begin(found, sent))
            case Ask(local_id, text) if step.name in self.desk.store.unmatched:  # else it was asked about its spec
                self._on(step, ("", local_id), lambda found: self._ask(found, text))
            case Close(task, status, text):
                if not self._has_ended(task, status):
                    self._on(step, task, lambda found: self._close(found, status, text))
        self.desk.ids.take_back()
        self.desk.tokens.clear()
        self.record_sent()

    def record_sent(self) -> None:
        """Record the messages of ours that an order was found for."""
        fresh, self.desk.store.fresh = self.desk.store.fresh, []
        for ordered in fresh:
            if ordered.sent is not None:
                self.sent(ordered.sent, ordered.task)
                if not isinstance(ordered.effect, RunTurn):
                    self.desk.store.finish(ordered.id)

    def sent(self, sent: Sent, task: str) -> None:
        """Record a message that lies in outbox/."""
        message = sent.message
        raw = self.mail.read(sent.path) or b""
        row = row_of_sent(str(message.message_id), message.type, message.from_, message.to or "", sent.path, raw)
        at = max(message.sent_at or message.completed_at or "", self.desk.engine.now)
        self.desk.engine.record(Event(Kind.MESSAGE_SENT, task or None, {"at": at, "message": row}))

    def hear(self, task: Task, heard: Input, role: Role = Role.ORCHESTRATOR, actor: str = ACTOR) -> Task:
        """Let an input happen; the task as it is then."""
        self.desk.engine.hear(task.id, heard, role, actor)
        return self.desk.store.task(task.id) or task

    def live(self, task: Task) -> Attempt | None:
        """The attempt that runs, if one does."""
        attempt = self.desk.store.attempt(task.id, task.attempt) if task.attempt else None
        return attempt if attempt is not None and attempt.status is AttemptStatus.RUNNING else None

    # -------------------------------------------------------------- tasks

    def _adopt(self, local_id: str, written: TaskFile) -> None:
        task = self.desk.store.by_local_id(local_id)
        if task is None or task.phase.is_terminal:
            return
        known = {child.key for child in self.desk.store.children(task.id)}
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
        """An attempt begins, the one of `sent` if that was given to a peer."""
        wanted = sent.message.attempt or 1 if sent is not None else task.attempt + 1
        if sent is None and task.phase is Phase.EXECUTING:
            return  # a child of it has begun before
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
            self.hear(task, ImportedDispatched())  # somebody has it; no file shows that we sent it
            return
        if sent is not None and sent.message.attempt_id is not None:
            self.desk.ids.give("att", sent.message.attempt_id)
            self.desk.tokens.extend(token for token in (sent.message.reply_token,) if token)
        self.hear(task, Start(begun=sent is not None))

    def _specified(self, task: Task, sent: Sent | None) -> Task:
        if task.phase is Phase.SPEC_DRAFT:
            task = self.hear(task, specs.written(task.spec, sent))
        if task.phase is Phase.SPEC_REVIEW:
            for review in specs.approved(self.desk.store.view(task.id)):
                task = self.hear(task, review)
        return task

    def _again(self, task: Task) -> Task:
        """A later attempt of what is over here was sent: a person had retried it, which no file tells."""
        over = task.phase is Phase.CIRCUIT_OPEN or bool(task.completed_at and task.completed_at < self.desk.engine.now)
        return self._reopened(task) if over else task

    def _awaken(self, task: Task) -> None:
        """A child begins only where its parent executes: one that was given out again has begun again by then."""
        parent = None if task.parent is None else self.desk.store.task(task.parent)
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
        """Whether what was replayed has brought it there, as it mostly has; asked without reading the whole task."""
        phase = self.desk.store.phase_of(*task)
        return phase is not None and phase.is_terminal and agrees(phase, status)

    def _close(self, task: Task, status: str, text: str) -> None:
        """The task ends as its file says."""
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
        return self.desk.store.task(task.id) or task

    def _cancel(self, task: Task, text: str) -> None:
        said = _CANCELLED.fullmatch(text)
        by, reason = (said[1], said[2] or "") if said else (ACTOR, text)
        self.hear(task, Cancel(by, reason), Role.OPERATOR, by)

    def _end(self, task: Task, outcome: Outcome) -> Task:
        """The live attempt ends so."""
        attempt = self.live(task)
        if attempt is None:
            return task
        if attempt.waiting_for is Waiting.REPLY and isinstance(outcome, Failed):
            said = Reply(attempt.executor, Failure(outcome.error), attempt.id)
            return self.hear(task, said)  # its turn is over long since: only a message can end it
        if attempt.waiting_for is Waiting.ANSWER and not attempt.acknowledged:
            task = self.hear(task, Clarification("operator", _UNTOLD_ANSWER))
        answer = Results(outcome.text) if isinstance(outcome, Succeeded) else None
        turn = self.waits_for(task, attempt)
        return self.hear(task, TurnEnded(turn, attempt.id, attempt.executor, outcome, answer, called=False))

    def waits_for(self, task: Task, attempt: Attempt) -> Turn:
        """Which of its turns the attempt waits for."""
        for effect in reversed(self.desk.store.ordered_for(task.id)):
            if isinstance(effect, RunTurn | LookUp) and effect.attempt_id == attempt.id:
                return effect.turn
        return Turn.SYNTHESIS if self.desk.store.children(task.id) else Turn.WORK

    # -------------------------------------------------------------- inside

    def _on(self, step: Step, task: tuple[str, str], act: Callable[[Task], None]) -> None:
        parent, key = task
        found = self.desk.store.child(parent, key) if parent else self.desk.store.by_local_id(key)
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
