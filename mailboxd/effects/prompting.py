"""What we say in turns of agents over work of ours, made from the store at the moment they begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mailboxd.core.effects import RunTurn
from mailboxd.core.reviews import said_by
from mailboxd.core.terms import Gate, Phase, Turn
from mailboxd.core.types import Spec, Task
from mailboxd.core.view import Limits
from mailboxd.core.weakness import say, weaknesses
from mailboxd.messages.context import Carried, Cut, Upstream, carry, shorten
from mailboxd.messages.prompts import (
    AnswerPrompt,
    DraftPrompt,
    Peer,
    ReviewPrompt,
    SynthesisPrompt,
    WorkPrompt,
    render_answer,
    render_draft,
    render_review,
    render_synthesis,
    render_work,
)
from mailboxd.messages.templates import Templates
from mailboxd.store.store import Store


@dataclass(frozen=True, slots=True)
class Said:
    """A text to send, and what of its sources did not fit."""

    text: str
    cuts: tuple[Cut, ...] = ()


@dataclass(slots=True)
class Prompting:
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
            case Turn.DRAFT:
                return self._draft(task, effect)
            case Turn.ANSWER:
                return self._answer(task, effect)
            case _:
                return self._work(task, effect)

    def with_context(self, task: Task) -> tuple[Spec, tuple[Cut, ...]]:
        """The spec with the results of the task's dependencies in its Context, named and marked as data."""
        needs = self.store.dependencies(task.id)
        if not needs:
            return task.spec, ()
        carried = self.carry(needs)
        return replace(task.spec, context=joined(task.spec.context, carried.text)), carried.cuts

    def carry(self, tasks: Sequence[Task]) -> Carried:
        by_key = {task.key: task for task in tasks}
        sources = [Upstream(task.key, task.executor, task.result) for task in tasks]
        return carry(sources, self.context_bytes, lambda source: self.keep(by_key[source.key]))

    def previous(self, task: Task) -> str:
        """The result that has to be mended: of the attempt before, where there are findings about it."""
        if not task.findings or not task.result:
            return ""
        return shorten(task.result, self.context_bytes, lambda: self.keep(task))[0]

    # -------------------------------------------------------------- one for each kind of turn

    def _work(self, task: Task, effect: RunTurn) -> Said:
        spec, cuts = self.with_context(task)
        prompt = WorkPrompt(
            local_id=task.local_id,
            attempt=task.attempt,
            agent=self.agent,
            sender=task.sender,
            title=task.title,
            spec=spec,
            peers=tuple(self.peers()),
            findings=task.findings,
            previous=self.previous(task),
            note=effect.note,
            depth_left=max(self.limits.depth - task.depth - 1, 0),
            children_left=self.limits.children,
            may_ask=True,
            deadline=task.policy.deadline,
        )
        return Said(render_work(self.templates, prompt), cuts)

    def _synthesis(self, task: Task, effect: RunTurn) -> Said:
        done = [child for child in self.store.children(task.id) if child.phase is Phase.COMPLETED]
        carried = self.carry(done)
        prompt = SynthesisPrompt(
            local_id=task.local_id,
            attempt=task.attempt,
            agent=effect.agent,
            sender=task.sender,
            title=task.title,
            spec=task.spec,
            results=carried.text,
            findings=task.findings,
            previous=self.previous(task),
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
            earlier=said_by(self.store.earlier_reviews(task)),
            evidence="\n".join(f"{run.id}: {run.verdict}: {run.summary}" for run in self.store.check_runs(task)),
        )
        return Said(render_review(self.templates, prompt))

    def _draft(self, task: Task, effect: RunTurn) -> Said:
        prompt = DraftPrompt(
            local_id=task.local_id,
            attempt=task.mending.drafts,
            agent=effect.agent,
            sender=task.sender,
            title=task.title,
            spec=task.spec,
            lacks=say(weaknesses(task.spec, task.policy.weak)),
            findings=task.findings,
        )
        return Said(render_draft(self.templates, prompt))

    def _answer(self, task: Task, effect: RunTurn) -> Said:
        parent = self.store.task(task.parent) if task.parent else None
        above = parent or task
        prompt = AnswerPrompt(
            local_id=task.local_id,
            attempt=task.attempt,
            agent=effect.agent,
            executor=task.executor,
            title=task.title,
            spec=task.spec,
            parent_title=above.title,
            parent=above.spec,
            question=effect.note,
        )
        return Said(render_answer(self.templates, prompt))


def joined(*texts: str) -> str:
    """The texts that say something, as paragraphs."""
    return "\n\n".join(text for text in texts if text)
