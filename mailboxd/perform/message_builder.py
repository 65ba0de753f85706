"""Builds prompts and outgoing messages from the store when they are sent.

A message is built once: a repetition sends its file in outbox/.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from mailboxd.core import handovers, plans
from mailboxd.core.approvals import Performed
from mailboxd.core.corrections import MOST
from mailboxd.core.decision_builder import sha256_of
from mailboxd.core.effects import Bounce, LookUp, RunTurn, Send
from mailboxd.core.lifecycle import review_round, round_follows, vote, winner
from mailboxd.core.model import Attempt, GivenVerdict, Plan, PlannedChild, Spec, Task
from mailboxd.core.outcomes import Correction, Failure, Planned, Results
from mailboxd.core.reviews import reviews_text
from mailboxd.core.sanitize import first_line, storable_line
from mailboxd.core.specs import DERIVED_CRITERION, digest, lint, problems_text, stated
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import POOL, Gate, Join, Mode, Phase, Synthesis, Turn
from mailboxd.core.votes import Copy, Vote, in_words, votes_of
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.answer import Asked
from mailboxd.formats.protocol.answer_tools import AnswerTool, tools_for
from mailboxd.formats.protocol.headers import RANGES
from mailboxd.formats.protocol.markdown import quote_fence
from mailboxd.formats.protocol.messages import (
    HANDED_ON,
    VERDICTS,
    VOTES,
    WAITS_FOR,
    AnswerMessage,
    CancelMessage,
    Message,
    ProgressMessage,
    QuestionMessage,
    ReplyMessage,
    SteerMessage,
    render_message,
    render_message_with,
    verdicts_header,
    votes_header,
    write_message,
)
from mailboxd.formats.protocol.prompts import (
    NOTHING_CARRIED,
    AnswerPrompt,
    AnyPrompt,
    Carried,
    CorrectionPrompt,
    Cut,
    DispatchBody,
    DraftPrompt,
    Peer,
    ReplyBody,
    ReviewPrompt,
    SynthesisPrompt,
    Templates,
    Upstream,
    WorkPrompt,
    carry,
    concatenate,
    render_body,
    render_prompt,
    shorten,
)
from mailboxd.formats.protocol.strict_yaml import Yaml, load
from mailboxd.host import ids
from mailboxd.ledger.store import Store
from mailboxd.ledger.tasks import declared_answers
from mailboxd.perform.hub_mail import AttachedFiles, HubMail

# Prompts of turns, and what they ask for.

_LITTLE = 65_536
"""Bytes that fit into a message of 1 MiB several times."""
_EXECUTES = frozenset({Turn.WORK, Turn.DISPATCH, Turn.SYNTHESIS})


Keep = Callable[[Task, str, str], str]
"""Writes a text in full to a file of this task, which is called after the second argument, and returns its path."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to send, and the cuts of sources that did not fit."""

    text: str
    cuts: tuple[Cut, ...] = ()
    tools: tuple[AnswerTool, ...] = ()
    """Those that the text says to answer by."""


@dataclass(slots=True)
class PromptBuilder:
    """Renders for one workspace. `keep` writes what was shortened to a file of the task and returns its path."""

    agent: str
    store: Store
    templates: Templates
    limits: Limits
    context_bytes: int
    background_bytes: int
    keep: Keep
    peers: Callable[[], Sequence[Peer]]
    zone: tzinfo | None = None
    """The operator's, for dates in plans; None = the machine's."""

    _decided_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The answers that were asked of tasks whose turns have not ended, by task: what `asked` would have to query."""

    def with_less(self) -> PromptBuilder:
        """The same, which passes on so little that it fits into any message."""
        context, background = min(self.context_bytes, _LITTLE), min(self.background_bytes, _LITTLE)
        return replace(self, context_bytes=context, background_bytes=background)

    def asked(self, effect: RunTurn | LookUp, task: Task, now: str = "") -> Asked:
        """What a turn asked for that has ended `now`."""
        decided_by = self._decided_by.pop(task.id, None)
        if effect.turn not in _EXECUTES:
            return Asked(effect.turn, may_plan=False, correction=effect.correction, now=now)
        peers = self.peers()  # none: it is not known who there is, and the core judges the names
        return Asked(
            effect.turn,
            agents=(self.agent, *(peer.name for peer in peers)) if peers else None,
            subtasks=self.store.tasks.keys_of_children(task.id) if task.mode is Mode.COORDINATING else (),
            answers=self.store.tasks.declared_answers(task.id) if decided_by is None else decided_by,
            may_plan=effect.turn is not Turn.DISPATCH and self._levels_below(task) > 0,
            correction=effect.correction,
            now=now,
            zone=self.zone,
        )

    def prompt(self, effect: RunTurn, task: Task, *, by_tools: bool = False) -> Prompt:
        """The prompt of a turn. `by_tools`: it is answered by tools, if there are any for such a turn."""
        prompt, cuts = self._values(effect, task)
        tools = tools_for(prompt) if by_tools else ()
        if tools and not isinstance(prompt, DraftPrompt | AnswerPrompt):
            prompt = replace(prompt, tools=tuple(tool.name for tool in tools))
        return Prompt(render_prompt(self.templates, prompt), cuts, tools)

    def _values(self, effect: RunTurn, task: Task) -> tuple[AnyPrompt, tuple[Cut, ...]]:
        if effect.correction is not None:
            return self._correction(task, effect, effect.correction), ()
        match effect.turn:
            case Turn.SYNTHESIS:
                return self._synthesis(task, effect)
            case Turn.REVIEW:
                return self._review(task, effect), ()
            case Turn.DRAFT:
                return self._draft(task, effect), ()
            case Turn.ANSWER:
                return self._answer(task, effect), ()
            case _:
                return self._work(task, effect)

    def with_context(self, task: Task, line: Sequence[Task], **changes: Any) -> tuple[Spec, tuple[Cut, ...]]:
        """The spec with what the task is a part of, what its dependencies brought, and what was done, in its Context.

        All of it is named and marked as data. `line`: the tasks from the root down to this one. `changes`: of other
        fields of the spec.
        """
        spec, needs = task.spec, self.store.tasks.dependencies(task.id)
        carried = self.carry([need for need in needs if need.phase is Phase.COMPLETED], task)
        background, before = "", NOTHING_CARRIED
        if task.parent is not None:
            background, before = self._background(task, line), self._round_before(task, line)
        done = self._performed([*needs, task])
        context = joined(spec.context, background, before.text, carried.text, done)
        inputs = "" if spec.inputs == spec.context else spec.inputs  # derived
        return replace(spec, context=context, inputs=inputs, **changes), (*before.cuts, *carried.cuts)

    def deciding(self, line: Sequence[Task]) -> tuple[str, ...]:
        """The answers on which something depends: those that are declared, else those that conditions name."""
        return self._declared(line) or self._deciding_answers(line)

    def declaring(self, spec: Spec, line: Sequence[Task]) -> tuple[Spec, tuple[str, ...]]:
        """The spec, which says that the answer has to be declared if something depends on it, and those declared."""
        declared = self._declared(line)
        if declared:
            declare = _DECLARE.format(f"one of {', '.join(declared)}, as one word", "one of them")
        elif answers := self._deciding_answers(line):
            what = f"what follows depends on whether it is {' or '.join(answers)}"
            declare = _DECLARE.format(what, "your answer")
        else:
            return spec, declared
        if declare in spec.instructions:  # its sender has said it
            return spec, declared
        return replace(stated(spec), instructions=joined(spec.instructions, declare)), declared

    def _declared(self, line: Sequence[Task]) -> tuple[str, ...]:
        self._decided_by[line[-1].id] = declared = declared_answers(reversed(line))
        return declared

    def _deciding_answers(self, line: Sequence[Task]) -> tuple[str, ...]:
        """The answers of the task, or of the broadcast that it is a copy of, that conditions of its plan name."""
        node, *above = reversed(line)
        if above and above[0].broadcast:
            node, *above = above
        if not above:  # only what is planned has conditions
            return ()
        choosing = filter(None, map(self.store.tasks.get, self.store.tasks.choosing_dependents(node.id)))
        found = [condition for one in choosing for condition in one.flow.when if condition.of == node.key]
        for of, whole in zip(("", node.key), above, strict=False):  # a round, and a part of one
            if whole.body is not None and whole.flow.until is not None and whole.flow.until.of == of:
                found.append(whole.flow.until)
        if not found:
            return ()
        return tuple(dict.fromkeys(answer for condition in found for answer in condition.answers))

    def _background(self, task: Task, line: Sequence[Task]) -> str:
        """Title, goal and Context of the task that this one is part of; empty for a root task, or if turned off."""
        above = part_of(line)
        if above is None or not task.policy.background or not self.background_bytes:
            return ""
        goal = above.spec.goal if above.spec.goal.strip() != above.title.strip() else ""
        raw = joined(above.title, goal, above.spec.context).encode("utf-8", "replace")
        text = raw[: self.background_bytes].decode("utf-8", "ignore")
        if len(raw) > self.background_bytes:
            text = f"{text}\n\n[mailboxd] cut: {len(text.encode())} of {len(raw)} bytes are shown."
        source = f"the task that {task.key} is a part of"
        return f"### Background\n\nWhat this is a part of. Do only your own part.\n\n{quote_fence(text, source)}"

    def _round_before(self, task: Task, line: Sequence[Task]) -> Carried:
        """The results of the round before this one, if the task is a round or part of one."""
        near = line[:-4:-1]
        latest, whole = next((pair for pair in pairwise(near) if pair[1].body is not None), (task, task))
        if latest is whole or latest.key == "1":
            return NOTHING_CARRIED
        rounds = {one.key: one for one in self.store.tasks.children(whole.id)}
        before = rounds[str(int(latest.key) - 1)]
        parts = [part for part in self.store.tasks.children(before.id) if part.phase is Phase.COMPLETED]
        carried = self.carry(parts or [before], task, f"round {before.key}: ")
        heading = f"### Round {latest.key} of at most {whole.flow.rounds * whole.attempt}"
        return replace(carried, text=f"{heading}\n\nThe results of the round before:\n\n{carried.text}")

    def carry(self, tasks: Sequence[Task], to: Task, prefix: str = "") -> Carried:
        """The results of `tasks` for the executor, or the sender, of the task `to`."""
        if not tasks:
            return NOTHING_CARRIED
        by_key = {f"{prefix}{task.key}": task for task in tasks}
        sources = [Upstream(f"{prefix}{task.key}", task.executor, task.result) for task in tasks]
        return carry(
            sources,
            self.context_bytes,
            keep_path=lambda source: self.keep(by_key[source.key], "result", source.text),
            keep_all=lambda text: self.keep(to, "results", text),
        )

    def previous(self, task: Task) -> str:
        """The result of the previous attempt, if there are findings about it to correct."""
        if not task.findings or not task.result:
            return ""
        return shorten(task.result, self.context_bytes, lambda: self.keep(task, "result", task.result))[0]

    def _work(self, task: Task, effect: RunTurn) -> tuple[WorkPrompt, tuple[Cut, ...]]:
        line = self.store.tasks.lineage(task)
        spec, cuts = self.with_context(task, line)
        prompt = WorkPrompt(
            local_id=task.local_id,
            attempt=task.attempt,
            agent=self.agent,
            sender=task.sender,
            title=task.title,
            spec=spec,
            findings=task.findings,
            previous=self.previous(task),
            note=effect.note,
            answers=self.deciding(line),
            deadline=task.policy.deadline,
            **self._forms(task),
        )
        return prompt, cuts

    def _forms(self, task: Task) -> dict[str, Any]:
        """What the executor may answer with besides a result: a plan (and how large), or a question."""
        return {
            "peers": tuple(self.peers()),
            "depth_left": self._levels_below(task),
            "children_left": self.limits.children,
            "may_ask": True,
        }

    def _levels_below(self, task: Task) -> int:
        """How many levels of subtasks are allowed below it."""
        return max(self.limits.depth - task.depth, 0)

    def _synthesis(self, task: Task, effect: RunTurn) -> tuple[SynthesisPrompt, tuple[Cut, ...]]:
        children = self.store.tasks.children(task.id)
        carried = self.carry([child for child in children if child.phase is Phase.COMPLETED], task)
        gone = [f"- {child.key}: {child.reason}" for child in children if child.phase is Phase.CANCELLED]
        not_done = f"### Not done\n\n{quote_fence(self._lines(gone), 'cancelled subtasks')}" if gone else ""
        prompt = SynthesisPrompt(
            local_id=task.local_id,
            attempt=task.attempt,
            agent=effect.agent,
            sender=task.sender,
            title=task.title,
            spec=task.spec,
            results=joined(carried.text, not_done, self._performed(children)),
            answers=self.deciding(self.store.tasks.lineage(task)),
            findings=task.findings,
            previous=self.previous(task),
            note=effect.note,
            **self._forms(task),
        )
        return prompt, carried.cuts

    def _performed(self, tasks: Sequence[Task]) -> str:
        """The approved actions of these tasks that ran, so that nobody plans or performs them again."""
        acting = [task.id for task in tasks if task.planned_actions]
        if not acting:
            return ""
        rows = [row for task_id in acting for row in self.store.approvals.of_task(task_id)]
        done = [f"- {row.requested_action}: {first_line(row.summary)}" for row in rows if row.state is Performed.DONE]
        if not done:
            return ""
        return f"### Actions that were performed, once\n\n{quote_fence(self._lines(done), 'approved actions')}"

    def _lines(self, lines: Sequence[str]) -> str:
        """The lines, as many as fit into the bytes of a context."""
        text = "\n".join(lines)
        raw = text.encode("utf-8", "replace")
        if len(raw) <= self.context_bytes:
            return text
        shown = raw[: self.context_bytes].decode("utf-8", "ignore").split("\n")[:-1]
        return "\n".join([*shown, f"[mailboxd] and {len(lines) - len(shown)} more"])

    def _under_review(self, task: Task) -> Spec:
        """The spec with what its executor will be given besides: what it is a part of, and what it depends on."""
        needs = [f"- {need.key}: {first_line(need.title)}" for need in self.store.tasks.dependencies(task.id)]
        listed = quote_fence(self._lines(needs), "the plan")
        given = f"### Dependencies\n\nIts executor is given the results of these:\n\n{listed}" if needs else ""
        spec = task.spec
        inputs = "" if spec.inputs == spec.context else spec.inputs  # derived
        background = self._background(task, self.store.tasks.lineage(task))
        return replace(spec, context=joined(spec.context, background, given), inputs=inputs)

    def _review(self, task: Task, effect: RunTurn) -> ReviewPrompt:
        return ReviewPrompt(
            local_id=task.local_id,
            attempt=review_round(task),
            gate=effect.gate or Gate.QUALITY_GATE,
            title=task.title,
            spec=self._under_review(task) if effect.gate is Gate.SPEC_REVIEW else task.spec,
            executor=task.executor,
            result=task.result,
            earlier=reviews_text(self.store.tasks.previous_reviews(task)),
            evidence="\n".join(f"{run.id}: {run.verdict}: {run.summary}" for run in self.store.tasks.check_runs(task)),
        )

    def _correction(self, task: Task, effect: RunTurn, correction: Correction) -> CorrectionPrompt:
        """The prompt that asks for another answer, with the forms that fit the turn."""
        attempts = {Turn.REVIEW: review_round(task), Turn.DRAFT: task.mending.drafts}
        asked = self.asked(effect, task)
        self._decided_by[task.id] = asked.answers
        executes = effect.turn in (Turn.WORK, Turn.SYNTHESIS)
        return CorrectionPrompt(
            turn=effect.turn,
            local_id=task.local_id,
            attempt=attempts.get(effect.turn, task.attempt),
            problems=correction.problems,
            is_last=correction.number >= MOST,
            is_claim=bool(correction.claim),
            note=effect.note,
            answers=asked.answers,
            may_plan=asked.may_plan and not asked.answers,
            **(self._forms(task) if executes else {}),
        )

    def _draft(self, task: Task, effect: RunTurn) -> DraftPrompt:
        return DraftPrompt(
            local_id=task.local_id,
            attempt=task.mending.drafts,
            agent=effect.agent,
            sender=task.sender,
            title=task.title,
            spec=task.spec,
            lacks=problems_text(lint(task.spec, task.policy.weak)),
            findings=task.findings,
            part_of=self._background(task, self.store.tasks.lineage(task)),
        )

    def _answer(self, task: Task, effect: RunTurn) -> AnswerPrompt:
        parent = self.store.tasks.get(task.parent) if task.parent else None
        above = parent or task
        return AnswerPrompt(
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


def part_of(line: Sequence[Task]) -> Task | None:
    """The task whose plan contains the last one of this line, which begins with the root; a copy counts as its
    broadcast."""
    return next((above for above in line[-2::-1] if not above.broadcast), None)


def joined(*texts: str) -> str:
    """The non-empty texts as paragraphs."""
    return "\n\n".join(filter(None, texts))


def composed(store: Store, task: Task) -> Results | Failure | Planned:
    """The outcome of a coordinating task, composed of its children's without a model; or its next round."""
    children = store.tasks.children(task.id)
    done = [child for child in children if child.phase is Phase.COMPLETED]
    if task.body is not None:
        return _after_round(store, task, task.body, len(children), done[-1])
    if task.broadcast and task.policy.join is not Join.ALL:
        copy = winner(task.policy.join, done)
        tally = in_words(votes_of(copies_of(children))) if task.policy.join is Join.MAJORITY else ""
        return Results(joined(copy.result, tally), copy.answer)
    if task.broadcast or task.policy.synthesis == Synthesis.CONCAT:
        return Results(concatenate([Upstream(child.key, child.executor, child.result) for child in done]))
    if task.policy.synthesis == Synthesis.NONE:
        return Results(f"{len(done)} children completed.")
    return _result_of(next(child for child in children if child.key == task.policy.synthesis))


def copies_of(children: Sequence[Task]) -> list[Copy]:
    """The copies of a broadcast, as far as their votes are concerned."""
    return [Copy(one.key, one.executor, one.phase, one.answer, one.result) for one in children]


def deciding_votes(store: Store, task: Task) -> list[tuple[str, Sequence[Vote]]]:
    """The votes behind the outcome of a task, by the key of what was voted on: its own, those of the subtask whose
    result is its own, or of all that its result is made of.
    """
    while not task.broadcast:
        if task.mode is Mode.DIRECT:
            return []
        children, key = store.tasks.children(task.id), task.policy.synthesis
        if key in tuple(Synthesis):
            polls = [child for child in children if child.broadcast and child.policy.join is Join.MAJORITY]
            return [(poll.key, votes_of(copies_of(store.tasks.children(poll.id)))) for poll in polls]
        deciding = next((child for child in children if child.key == key), None)
        if deciding is None:
            return []
        task = deciding
    if task.policy.join is not Join.MAJORITY:
        return []
    return [(task.key, votes_of(copies_of(store.tasks.children(task.id))))]


def _after_round(store: Store, task: Task, body: PlannedChild, rounds: int, latest: Task) -> Results | Planned:
    """The result of the latest round, with the answer that decides, or another round."""
    of = task.flow.until.of if task.flow.until is not None else ""
    said = next((part for part in store.tasks.children(latest.id) if of and part.key == of), latest)
    answer = vote(said.answer, said.result) if said.phase is Phase.COMPLETED else ""
    if round_follows(task, rounds, answer):
        return Planned(Plan((plans.round_of(body, rounds + 1),)))
    return Results(latest.result, answer)


def _result_of(child: Task) -> Results | Failure:
    """The child's result as its parent's outcome."""
    if child.phase is Phase.COMPLETED:
        return Results(child.result, child.answer)
    return Failure(f"its outcome was to be the result of {child.key}, which was {child.reason}", permanent=True)


_DECLARE = """\
Declare your answer: {}. Begin with these lines:

~~~
---
type: reply
status: done
answer: {}
---
## Results

The result itself
~~~"""

_M = TypeVar("_M", bound=Message)
MOST_TOKENS = RANGES["usage_tokens"][1]
_LARGEST_TEXT = 900_000
"""Bytes of a text that fit into one message with its headers (the largest message is 1 MiB)."""
_MOST_TOLD = 1000
"""Characters of a text in a verdict that goes with a result."""
_MOST_FINDINGS = 20
_LONGEST_SUBJECT = 200
"""Characters of type, receiver and task in a file name of outbox/."""


@dataclass(slots=True)
class MessageBuilder:
    """Renders for one workspace. `keep` as in PromptBuilder."""

    agent: str
    store: Store
    templates: Templates
    keep: Keep
    prompting: PromptBuilder
    hub: HubMail

    def dispatch(self, effect: RunTurn, task: Task, attempt: Attempt, now: str) -> tuple[bytes, tuple[Cut, ...]]:
        """The `task` message that gives a child to a peer (protocol section 2)."""
        try:
            return self._dispatch(effect, task, attempt, now, self.prompting)
        except MessageError:
            return self._dispatch(effect, task, attempt, now, self.prompting.with_less())

    def _dispatch(
        self, effect: RunTurn, task: Task, attempt: Attempt, now: str, prompting: PromptBuilder
    ) -> tuple[bytes, tuple[Cut, ...]]:
        line = self.store.tasks.lineage(task)
        sender, path = self.agent, tuple(dict.fromkeys(plans.delegation_path(line[:-1])))
        files = self.hub.attached(effect.agent, effect.message_id)
        chain: dict[str, Yaml] = {}
        if files is not None:
            sender, path = self.hub.name_for(effect.agent), self.hub.path_for(effect.agent, path)
            began, passed = handovers.handed_on(line[0])
            chain[HANDED_ON] = [began, *self.hub.path_for(effect.agent, passed)]
            prompting = replace(prompting, keep=partial(self._keep, files))
        # The receiver can derive a derived criterion. Planned actions are performed here and nowhere else.
        said = () if task.spec.acceptance_criteria == (DERIVED_CRITERION,) else task.spec.acceptance_criteria
        spec, cuts = prompting.with_context(task, line, acceptance_criteria=said, planned_actions=())
        spec, answers = prompting.declaring(spec, line)
        findings = joined(task.findings, effect.note)
        previous = self._previous(task, prompting)
        body = render_body(self.templates, DispatchBody(task.title, spec, findings, attempt.ordinal, previous))
        root, policy = line[0], task.policy
        budget_usd, budget_tokens = self.store.budgets.remaining(line)
        headers = {
            "type": "task",
            "task_id": task.task_id,
            "subtask_id": task.subtask_id or task.key or task.local_id,
            "from": sender,
            "to": effect.agent,
            "message_id": effect.message_id,
            "attempt": attempt.ordinal,
            "attempt_id": attempt.id,
            "root_task_id": root.origin.root_task_id or root.task_id,
            "depth": min(task.depth, 1000),
            "deadline": policy.deadline,
            "priority": policy.priority or None,
            "reply_token": attempt.reply_token,
            "timeout": policy.timeout,
            "idempotent": policy.idempotent or None,
            "budget_usd": budget_usd,
            "budget_tokens": None if budget_tokens is None else min(budget_tokens, MOST_TOKENS),
            "traceparent": ids.passed_on(task.root, root.origin.traceparent, attempt.id),
            "attachments": files.names if files is not None else (),
            "sent_at": now,
            "answers": answers,
            "model": policy.model,
            "delegation_path": path,
        }
        own = {name: load(text, path=name).value for name, text in task.extra if name.startswith("x-")}
        return write_message(headers, own | chain, body), cuts

    def message(self, effect: Send, task: Task, now: str) -> bytes:
        """A reply, question, cancel or steer about a task."""
        files = self.hub.attached(effect.to, effect.message_id)
        if effect.type == "reply":
            try:
                return self._reply(effect, task, now, files, self.prompting)
            except MessageError:
                # No message can hold the result (it may have thousands of headings); the sender still gets a reply.
                kept = self._keep(files, task, "result", task.result)
                where = f"The result does not fit into a message. It is in the file {kept}."
                task = replace(task, result=where, error=first_line(task.error))
                return self._reply(effect, task, now, files, self.prompting.with_less())
        note, _ = shorten(effect.note, _LARGEST_TEXT, lambda: self._keep(files, task, effect.type, effect.note))
        body: dict[str, object] = {"preamble": note, "attachments": (files.names or None) if files else None}
        if effect.type in ("question", "progress"):
            headers = self._upward(effect, task) | body
            if effect.waits_for:
                headers[WAITS_FOR] = effect.waits_for
            kind = QuestionMessage if effect.type == "question" else ProgressMessage
            return render_message(_valid(kind, headers))
        headers = self._downward(effect, task) | body
        match effect.type:
            case "cancel":
                return render_message(_valid(CancelMessage, headers))
            case "steer":
                return render_message(_valid(SteerMessage, headers))
            case _:
                headers["in_reply_to"] = self.store.messages.question_before(task.id, effect.message_id)
                return render_message(_valid(AnswerMessage, headers))

    def bounce(self, effect: Bounce, now: str) -> bytes:
        """The failure reply for a task that was rejected."""
        message = _valid(
            ReplyMessage,
            {
                "from": self.hub.name_for(effect.to),
                "to": effect.to,
                "task_id": effect.task_id,
                "subtask_id": effect.subtask_id,
                "message_id": effect.message_id,
                "in_reply_to": effect.in_reply_to,
                "attempt_id": effect.attempt_id,
                "reply_token": effect.reply_token,
                "status": "failed",
                "failure": "transient" if effect.may_pass else "permanent",
                "completed_at": now,
            },
        )
        body = render_body(self.templates, ReplyBody(error=f"The task was rejected: {effect.error}"))
        return render_message_with(message, body)

    def _previous(self, task: Task, prompting: PromptBuilder) -> str:
        """The previous result, for a peer without a daemon, or for a pool, where another host may have it next."""
        if not task.findings or not task.result:
            return ""
        before = self.store.tasks.attempt(task.id, task.attempt - 1)
        kept = before is not None and before.acknowledged and not task.executor.startswith(POOL)
        return "" if kept else prompting.previous(task)

    def _keep(self, files: AttachedFiles | None, task: Task, name: str, text: str) -> str:
        """Where the whole of a shortened text is, for the receiver of a message with these files."""
        if files is None:
            return self.keep(task, name, text)
        return files.add(text.encode(), ".md") or files.left_out(self.keep(task, name, text))

    def _reply(
        self, effect: Send, task: Task, now: str, files: AttachedFiles | None, prompting: PromptBuilder
    ) -> bytes:
        done = task.phase is Phase.COMPLETED
        status: dict[str, object] = {"status": "done" if done else "failed", "completed_at": now}
        status["failure"] = None if done else "permanent"  # all retries were made here
        spent = self.store.budgets.spent(task.id)
        status |= {"answer": task.answer if done else "", "cost_usd": spent.usd or None}
        status |= {"usage_tokens": min(spent.tokens, MOST_TOKENS) or None}
        keep = partial(self._keep, files)
        result, _ = shorten(task.result, _LARGEST_TEXT, lambda: keep(task, "result", task.result))
        polls = deciding_votes(self.store, task)
        body = ReplyBody(
            votes=tuple(storable_line(said) for _, votes in polls if (said := in_words(votes)) not in result),
            results=joined(result or "(no text)", self._made(files, task)) if done else "",
            error="" if done else task.error or task.reason or "failed",
            partial="" if done else self._partial(task, replace(prompting, keep=keep)),
            doubts=tuple(storable_line(doubt) for doubt in self.store.doubts.open_below(task.id)),
        )
        status["attachments"] = (files.names or None) if files else None
        if done and (verdicts := self._verdicts(task)):
            status[VERDICTS] = verdicts_header(verdicts)
        if polls:
            status[VOTES] = votes_header(polls)
        message = _valid(ReplyMessage, self._upward(effect, task) | status)
        return render_message_with(message, render_body(self.templates, body))

    def _verdicts(self, task: Task) -> list[GivenVerdict]:
        """The verdicts of the gates that the result passed here.

        None if its specification is no longer the one that its sender dispatched: they are about another task.
        """
        own = [one for one in self.store.tasks.result_reviews(task) if not one.given_at]
        if not own or digest(task.spec) != task.origin.spec:
            return []
        of = sha256_of(task.result)
        return [
            GivenVerdict(
                one.gate,
                one.reviewer,
                one.verdict,
                of,
                self.agent,
                one.summary[:_MOST_TOLD],
                tuple(replace(found, message=found.message[:_MOST_TOLD]) for found in one.findings[:_MOST_FINDINGS]),
            )
            for one in own
        ]

    def _made(self, files: AttachedFiles | None, task: Task) -> str:
        """The files that were recorded as made for a task, for a receiver that cannot read them here."""
        made = self.store.tasks.files(task.id) if files else ()
        lines = [
            f"- {first_line(summary)}: {files.add_artifact(path, sha256)}" for path, sha256, summary in made if files
        ]
        return "\n".join(["### Files", "", *lines]) if lines else ""

    def _partial(self, task: Task, prompting: PromptBuilder) -> str:
        done = [child for child in self.store.tasks.children(task.id) if child.phase is Phase.COMPLETED]
        if done:
            return prompting.carry(done, task).text
        return shorten(task.result, prompting.context_bytes, lambda: prompting.keep(task, "result", task.result))[0]

    def _upward(self, effect: Send, task: Task) -> dict[str, object]:
        """The headers of a message to the task's sender: its ids, as received."""
        origin = task.origin
        return {
            "from": self.hub.name_for(effect.to),
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
        attempt = self.store.tasks.attempt(task.id, effect.attempt)
        return {
            "from": self.hub.name_for(effect.to),
            "to": effect.to,
            "task_id": task.task_id,
            "subtask_id": task.subtask_id or task.key or task.local_id,
            "message_id": effect.message_id,
            "attempt": attempt.ordinal if attempt else None,
            "attempt_id": attempt.id if attempt else None,
        }


def _valid(kind: type[_M], headers: Mapping[str, object]) -> _M:
    """The message with these headers; those that are None are absent."""
    return kind.model_validate({name: value for name, value in headers.items() if value is not None})


def place_of(message_id: str, kind: str, to: str, local_id: str) -> str:
    """Where the file of a sent message is, below mailbox/: by the day of its id, and sorted by its time."""
    at = ids.time_of(message_id)
    if at is None:
        raise ValueError(f"{message_id!r} has no time")
    clock = at[11:23].replace(":", "").replace(".", "-")
    return f"outbox/{at[:10]}/{clock}.{f'{kind}.{to}.{local_id}'[:_LONGEST_SUBJECT]}.{message_id}.md"


def row_of_sent(
    message_id: str, kind: str, sender: str, to: str, path: str, raw: bytes, task_id: str = ""
) -> dict[str, object]:
    """The row of `messages` for a sent message; `path` is relative to mailbox/.

    `task_id`: what it is about, if that is no task here.
    """
    about = {"task_id": task_id} if task_id else {}
    return about | {
        "id": message_id,
        "direction": "out",
        "message_id": message_id,
        "type": kind,
        "sender": sender,
        "receiver": to,
        "verdict": "sent",
        "name": path.rpartition("/")[2],
        "path": path,
        "sha256": hashlib.sha256(raw).hexdigest(),
        "size": len(raw),
    }
