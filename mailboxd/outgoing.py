"""What we say: prompts of turns and messages to peers, made from the store at the moment they are sent.

A message that was written once is never made again: its file in outbox/ is what a repetition sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mailboxd.core.effects import Bounce, RunTurn, Send
from mailboxd.core.specs import DERIVED_CRITERION
from mailboxd.core.terms import Gate, Phase, Turn
from mailboxd.core.text import first_line
from mailboxd.core.types import Attempt, Spec, Task
from mailboxd.core.view import Limits
from mailboxd.errors import MessageError
from mailboxd.messages import codec
from mailboxd.messages.context import Carried, Cut, Upstream, carry, shorten
from mailboxd.messages.models import (
    AnswerMessage,
    CancelMessage,
    QuestionMessage,
    ReplyMessage,
    SteerMessage,
    TaskMessage,
)
from mailboxd.messages.prompts import (
    DispatchBody,
    Peer,
    ReplyBody,
    ReviewPrompt,
    SynthesisPrompt,
    WorkPrompt,
    render_dispatch_body,
    render_reply_body,
    render_review,
    render_synthesis,
    render_work,
)
from mailboxd.messages.templates import Templates
from mailboxd.store.store import Store

_LARGEST_RESULT = 900_000
"""Bytes of a result that fit into one message with its headers (the largest message is 1 MiB)."""


@dataclass(frozen=True, slots=True)
class Said:
    """A text to send, and what of its sources did not fit."""

    text: str
    cuts: tuple[Cut, ...] = ()


@dataclass(slots=True)
class Outgoing:
    """Renders for one workspace. `keep` writes a text that is cut in full to a file and names it."""

    agent: str
    store: Store
    templates: Templates
    limits: Limits
    context_bytes: int
    keep: Callable[[Task], str]
    peers: Callable[[], Sequence[Peer]]

    def prompt(self, effect: RunTurn, task: Task) -> Said:
        """The text of a turn of an agent over work of ours."""
        match effect.turn:
            case Turn.SYNTHESIS:
                return self._synthesis(task, effect)
            case Turn.REVIEW:
                return self._review(task, effect)
            case _:
                return self._work(task, effect)

    def dispatch(self, effect: RunTurn, task: Task, attempt: Attempt, now: str) -> tuple[bytes, tuple[Cut, ...]]:
        """The `task` message that gives a child to a peer (protocol section 2)."""
        spec, cuts = self._with_context(task)
        if spec.acceptance_criteria == (DERIVED_CRITERION,):
            spec = replace(spec, acceptance_criteria=())  # nobody said it: the receiver may derive it for itself
        policy = task.policy
        message = TaskMessage.model_validate(
            {
                "from": self.agent,
                "to": effect.agent,
                "task_id": task.task_id,
                "subtask_id": task.subtask_id or task.key or task.local_id,
                "message_id": effect.message_id,
                "attempt": attempt.ordinal,
                "attempt_id": attempt.id,
                "root_task_id": self._root_task_id(task),
                "depth": min(task.depth, 1000),
                "deadline": policy.deadline,
                "priority": policy.priority or None,
                "reply_token": attempt.reply_token,
                "timeout": policy.timeout,
                "idempotent": policy.idempotent or None,
                "traceparent": task.origin.traceparent,
                "sent_at": now,
            }
        )
        body = render_dispatch_body(self.templates, DispatchBody(task.title, spec, _joined(task.findings, effect.note)))
        return codec.render(codec.with_body(message, body)), cuts

    def message(self, effect: Send, task: Task, now: str) -> bytes:
        """A reply, question, cancel or steer about a task."""
        if effect.type == "reply":
            try:
                return self._reply(effect, task, now)
            except MessageError:
                # A result that no message can hold (thousands of headings, say): the sender still gets an answer.
                where = f"The result does not fit into a message. It is in the file {self.keep(task)}."
                return self._reply(effect, replace(task, result=where, error=first_line(task.error)), now)
        if effect.type == "question":
            headers = self._upward(effect, task) | {"preamble": effect.note}
            return codec.render(QuestionMessage.model_validate(headers))
        headers = self._downward(effect, task) | {"preamble": effect.note}
        match effect.type:
            case "cancel":
                return codec.render(CancelMessage.model_validate(headers))
            case "steer":
                return codec.render(SteerMessage.model_validate(headers))
            case _:
                return codec.render(AnswerMessage.model_validate(headers))

    def bounce(self, effect: Bounce, now: str) -> bytes:
        """The failure reply for a task that was rejected."""
        message = ReplyMessage.model_validate(
            {
                "from": self.agent,
                "to": effect.to,
                "task_id": effect.task_id,
                "subtask_id": effect.subtask_id,
                "message_id": effect.message_id,
                "in_reply_to": effect.in_reply_to,
                "attempt_id": effect.attempt_id,
                "reply_token": effect.reply_token,
                "status": "failed",
                "completed_at": now,
            }
        )
        body = render_reply_body(self.templates, ReplyBody(error=f"The task was rejected: {effect.error}"))
        return codec.render(codec.with_body(message, body))

    def composed(self, task: Task) -> tuple[str, str]:
        """Result and declared answer of a coordinating task, made of its children's without a model."""
        done = [child for child in self.store.children(task.id) if child.phase is Phase.COMPLETED]
        if task.broadcast and task.policy.join != "all":
            winner = self._winner(task, done)
            return winner.result, winner.answer
        if not task.broadcast and task.policy.synthesis == "none":
            return f"{len(done)} children completed.", ""
        return "\n\n".join(f"### {child.key} (from agent {child.executor})\n\n{child.result}" for child in done), ""

    # -------------------------------------------------------------- inside

    def _work(self, task: Task, effect: RunTurn) -> Said:
        spec, cuts = self._with_context(task)
        prompt = WorkPrompt(
            local_id=task.local_id,
            attempt=task.attempt,
            agent=self.agent,
            sender=task.sender,
            title=task.title,
            spec=spec,
            peers=tuple(self.peers()),
            findings=task.findings,
            note=effect.note,
            depth_left=max(self.limits.depth - task.depth - 1, 0),
            children_left=self.limits.children,
            may_ask=True,
            deadline=task.policy.deadline,
        )
        return Said(render_work(self.templates, prompt), cuts)

    def _synthesis(self, task: Task, effect: RunTurn) -> Said:
        done = [child for child in self.store.children(task.id) if child.phase is Phase.COMPLETED]
        carried = self._carry(done)
        prompt = SynthesisPrompt(
            local_id=task.local_id,
            attempt=task.attempt,
            agent=effect.agent,
            sender=task.sender,
            title=task.title,
            spec=task.spec,
            results=carried.text,
            findings=task.findings,
            note=effect.note,
        )
        return Said(render_synthesis(self.templates, prompt), carried.cuts)

    def _review(self, task: Task, effect: RunTurn) -> Said:
        prompt = ReviewPrompt(
            local_id=task.local_id,
            attempt=max(task.attempt, 1),
            gate=effect.gate or Gate.QUALITY_GATE,
            title=task.title,
            spec=task.spec,
            executor=task.executor,
            result=task.result,
            earlier=task.findings,
        )
        return Said(render_review(self.templates, prompt))

    def _with_context(self, task: Task) -> tuple[Spec, tuple[Cut, ...]]:
        """The spec with the results of the task's dependencies in its Context, named and marked as data."""
        needs = self.store.dependencies(task.id)
        if not needs:
            return task.spec, ()
        carried = self._carry(needs)
        return replace(task.spec, context=_joined(task.spec.context, carried.text)), carried.cuts

    def _carry(self, tasks: Sequence[Task]) -> Carried:
        by_key = {task.key: task for task in tasks}
        sources = [Upstream(task.key, task.executor, task.result) for task in tasks]
        return carry(sources, self.context_bytes, lambda source: self.keep(by_key[source.key]))

    def _winner(self, task: Task, done: Sequence[Task]) -> Task:
        if task.policy.join == "first":
            return min(done, key=lambda child: child.completed_at or "")
        answers = [child.answer or child.result.strip() for child in done]
        return max(done, key=lambda child: answers.count(child.answer or child.result.strip()))

    def _reply(self, effect: Send, task: Task, now: str) -> bytes:
        done = task.phase is Phase.COMPLETED
        status = {"status": "done" if done else "failed", "completed_at": now, "answer": task.answer if done else ""}
        message = ReplyMessage.model_validate(self._upward(effect, task) | status)
        result, _ = shorten(task.result, _LARGEST_RESULT, lambda: self.keep(task))
        body = ReplyBody(
            results=result or "(no text)" if done else "",
            planned_actions=task.planned_actions if done else "",
            error="" if done else task.error or task.reason or "failed",
            partial="" if done else self._partial(task),
        )
        return codec.render(codec.with_body(message, render_reply_body(self.templates, body)))

    def _partial(self, task: Task) -> str:
        done = [child for child in self.store.children(task.id) if child.phase is Phase.COMPLETED]
        return self._carry(done).text if done else shorten(task.result, self.context_bytes, lambda: self.keep(task))[0]

    def _upward(self, effect: Send, task: Task) -> dict[str, object]:
        """The headers of a message to whoever gave us the task: its ids, as they were given."""
        origin = task.origin
        return {
            "from": self.agent,
            "to": effect.to,
            "task_id": task.task_id,
            "subtask_id": task.subtask_id or task.key or None,
            "message_id": effect.message_id,
            "in_reply_to": origin.message_id,
            "attempt": origin.attempt or None,
            "attempt_id": origin.attempt_id,
            "reply_token": origin.reply_token,
            "root_task_id": origin.root_task_id,
            "traceparent": origin.traceparent,
        }

    def _downward(self, effect: Send, task: Task) -> dict[str, object]:
        """The headers of a message to the peer that has the task: the ids it was dispatched with."""
        attempt = self.store.attempt(task.id, task.attempt)
        return {
            "from": self.agent,
            "to": effect.to,
            "task_id": task.task_id,
            "subtask_id": task.subtask_id or task.key or task.local_id,
            "message_id": effect.message_id,
            "attempt": attempt.ordinal if attempt else None,
            "attempt_id": attempt.id if attempt else None,
        }

    def _root_task_id(self, task: Task) -> str:
        root = self.store.task(task.root)
        return (root.origin.root_task_id or root.task_id) if root else task.task_id


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
