"""Everything the operator can order about a task, as one table.

Each row names an order, the input that it is, the function that carries it out, its fields, and how it is offered.
`decide` calls the function; the permission matrix, the engine, the CLI, the web page, the screen of `watch`, MCP and
`/mailbox` in chats read the other columns: options, forms, dialogs, arguments and the words of a chat are made of the
fields. CONTRIBUTING.md says how to add an order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from mailboxd.core import approved_actions, conversation, handovers, reviews, spec_drafting, specs
from mailboxd.core.budget import is_paused, over, paused_by, raised
from mailboxd.core.decision_builder import DecisionBuilder
from mailboxd.core.events import Kind, Role
from mailboxd.core.failure import restored
from mailboxd.core.fixpoint import cancel, end, stop_turns
from mailboxd.core.followed import is_in_vain
from mailboxd.core.following import let_go
from mailboxd.core.inputs import (
    Cancel,
    Clarification,
    OperatorInput,
    Pause,
    Redispatch,
    Remedy,
    Resume,
    Retry,
    SpecWritten,
    Steer,
    Unblock,
)
from mailboxd.core.lifecycle import (
    BEFORE_EXECUTION,
    Trigger,
    applies,
    redispatch_trigger,
    require_unblockable,
    retry_trigger,
)
from mailboxd.core.model import Policy, Spent, Task
from mailboxd.core.stopping import stopped
from mailboxd.core.vocabulary import OPERATORS, Gate, Phase, WeakSpec, is_id, same_agent
from mailboxd.errors import Refused

OPERATOR = "operator"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that decide whether an order makes sense for a task."""

    phase: Phase
    held: str = ""
    """Why it is on hold."""
    pausing: bool = False
    """It waits before its next attempt."""
    asks: bool = False
    """It has an open question."""
    has_result: bool = False
    coordinates: bool = False
    """It has subtasks."""

    @property
    def is_open(self) -> bool:
        """Its circuit is open."""
        return self.phase is Phase.CIRCUIT_OPEN

    @property
    def blocked(self) -> bool:
        return self.is_open or (bool(self.held) and not is_paused(self.held))


class FieldKind(StrEnum):
    """MONEY is in USD, at most a millionth exact; COUNT a number of 0 or more."""

    TEXT = "text"
    MONEY = "money"
    COUNT = "count"
    CHOICE = "choice"
    FLAG = "flag"


_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_COUNT = re.compile(r"[0-9]{1,12}")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of an order, in every place where the order can be given."""

    name: str
    kind: FieldKind
    label: str
    """Beside its input on the page and on the screen."""
    help: str
    """One sentence."""
    required: bool = False
    most: int = 4_000
    """Characters of a text."""
    choices: tuple[str, ...] = ()
    offered: Callable[[Situation], bool] = lambda _situation: True
    """Whether a form has it. Whoever writes a command may always give it."""
    also: tuple[str, ...] = ()
    """Other names by which it may be given: what the same thing is called in other orders."""

    def read(self, text: str) -> Any:
        """The value of what a person wrote; None for nothing. Raises Refused."""
        said = text.strip()
        match self.kind:
            case FieldKind.FLAG if said in (*_TRUE, *_FALSE):
                return said in _TRUE
            case _ if not said:
                if self.required:
                    raise Refused("bad-form", f"{self.label}: nothing is written", self.help)
                return None
            case FieldKind.MONEY if _AMOUNT.fullmatch(said):
                return float(said)
            case FieldKind.COUNT if _COUNT.fullmatch(said):
                return int(said)
            case FieldKind.CHOICE if said in self.choices:
                return said
            case FieldKind.TEXT if len(said) <= self.most:
                return said
        raise Refused("bad-form", f"{self.label}: {said[:60]!a} {self._wrong(said)}", self.help)

    def _wrong(self, said: str) -> str:
        return {
            FieldKind.MONEY: "is not an amount, like 2 or 0.5",
            FieldKind.COUNT: "is not a whole number",
            FieldKind.CHOICE: f"is not one of {', '.join(self.choices)}",
            FieldKind.FLAG: "is neither yes nor no",
            FieldKind.TEXT: f"... has {len(said)} characters; the maximum is {self.most}",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """One row of the table."""

    name: str
    input: type
    carry_out: Callable[[DecisionBuilder, Any], None]
    """Raises Refused where the task's state does not allow it."""
    fields: tuple[Field, ...] = ()
    make: Callable[..., OperatorInput] | None = None
    """The input, made of the values of the fields by their names; None where it takes more than fields."""
    makes_sense: Callable[[Situation], bool] = lambda _situation: False
    """Whether to offer it. The engine judges every order that is given."""
    label: str = ""
    """Its button on the web page; empty: the page does not offer it."""
    main: bool = False
    """The usual choice."""
    ends: bool = False
    """It ends the task: it is asked about once, and can be undone for some seconds (`intake.held_orders`)."""
    done: str = ""
    """The page's confirmation."""
    chat: str = ""
    """What a chat is answered, with `{task}` for its name; empty: `/mailbox` does not give it."""
    leads_to: Phase | None = None
    """The phase by which MCP's `task_transition` names it."""

    def offered(self, situation: Situation) -> tuple[Field, ...]:
        """The fields of its form in this situation."""
        return tuple(field for field in self.fields if field.offered(situation))

    def read(self, said: Mapping[str, str]) -> dict[str, Any]:
        """The values of its fields as a person wrote them. Raises Refused."""
        said = self.named(said)
        return {field.name: field.read(said.get(field.name, "")) for field in self.fields}

    def named(self, said: Mapping[str, _T]) -> dict[str, _T]:
        """What is said, by the names of its fields. Raises Refused if one is given by two names."""
        found: dict[str, _T] = {}
        for name, value in said.items():
            field = next((field.name for field in self.fields if name in field.also), name)
            if field in found:
                raise Refused("bad-form", f"{self.name}: {name} is the same as another field", f"Write {field} only.")
            found[field] = value
        return found

    @property
    def in_chat(self) -> tuple[Field, ...]:
        """The fields that are given in a chat, in the order of their words: what has to be given, and its text."""
        texts = [field for field in self.fields if field.kind is FieldKind.TEXT]
        return (*(field for field in self.fields if field.required and field not in texts[:1]), *texts[:1])

    def read_words(self, words: str) -> dict[str, Any]:
        """The values of its fields from a chat: a word for each of `in_chat`, and all that is left for the last.

        Raises Refused.
        """
        names = [field.name for field in self.in_chat]
        return self.read(dict(zip(names, words.split(maxsplit=len(names) - 1), strict=False)))

    @property
    def note(self) -> str:
        """The name of the field that says why, if it has one."""
        return next((field.name for field in self.fields if field.kind is FieldKind.TEXT and not field.required), "")

    def given(self, values: Mapping[str, Any]) -> OperatorInput:
        """The input with these values of its fields; those that are None or missing have their defaults."""
        if self.make is None:
            raise AssertionError(f"the order {self.name} takes more than its fields")
        return self.make(**{name: value for name, value in values.items() if value is not None})


# The orders.


def answer(builder: DecisionBuilder, order: Clarification) -> None:
    """Answer the task's open question. Raises Refused."""
    _require_sender(builder, order.sender, "answer")
    if builder.task.phase is Phase.SPEC_DRAFT:
        spec_drafting.clarified(builder, order)
    else:
        conversation.clarified(builder, order.sender, order.text, order.ends)


def steer(builder: DecisionBuilder, order: Steer) -> None:
    """Add instructions to the task's spec, and deliver them to running work. Raises Refused."""
    _require_sender(builder, order.sender, "new instructions")
    task = builder.task
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} {task.phase.told}: it takes no new instructions")
    require_not_acting(task)
    if task.phase is Phase.SPEC_DRAFT:
        more = "\n\n".join([task.spec.instructions, order.text])
        builder.record(Kind.STEERED, by=order.sender, text=order.text, into="in its spec, which is not complete yet")
        builder.amend("the spec is extended", spec=replace(task.spec, instructions=more), findings="")
        return
    conversation.steered(builder, order.sender, order.text)


def cancel_task(builder: DecisionBuilder, order: Cancel) -> None:
    """Raises Refused."""
    if builder.role is not Role.OPERATOR:
        _require_sender(builder, order.by, "cancel")
    if not applies(builder.task, Trigger.CANCELLED):
        raise Refused("ended", f"{builder.task.local_id} {builder.task.phase.told} already")
    reason = f": {order.reason}" if order.reason else ""
    cancel(builder, f"cancelled by {order.by}{reason}", by=order.by)


def retry(builder: DecisionBuilder, order: Retry) -> None:
    """Run the task again, end its pause after a failure, or ask reviewers whom nobody could ask. Raises Refused."""
    task = builder.task
    if task.phase is Phase.EXECUTION_READY and task.not_before is not None:
        what = "let it begin now" if task.begins_later else "skipped the backoff"
        changes = _told_next(task, order.instructions)
        builder.amend(f"the operator {what}", not_before=None, reason="retried by the operator", **changes)
        return
    if reviews.ask_again(builder, order.reviewers):
        return
    trigger = retry_trigger(builder.view)
    mending = task.mending
    if trigger is Trigger.REOPENED:
        more = "\n\n".join(filter(None, [task.spec.instructions, order.instructions]))
        changes = {"findings": "", "spec": replace(task.spec, instructions=more)}
        mending = spec_drafting.after(task, trigger)
    else:
        changes = {"findings": task.findings} | _told_next(task, order.instructions)
    changes["mending"] = replace(mending, questions=0)
    builder.move(trigger, "retried by the operator", **changes, **_fresh_start(task, builder.ctx.now))


def unblock(builder: DecisionBuilder, order: Unblock) -> None:
    """Decide about an open circuit, or release work that is held because its budget is used up. Raises Refused."""
    task = builder.task
    require_unblockable(task, order.remedy)
    match order.remedy:
        case Remedy.RETRY:
            _release(builder, order)
            if task.phase is Phase.CIRCUIT_OPEN:
                retry(builder, Retry(order.note))
        case Remedy.FAIL:
            end(builder, Trigger.OPERATOR_FAIL, order.note or "the operator gives up")
        case Remedy.ACCEPT:
            end(builder, Trigger.OPERATOR_ACCEPT, "the operator accepts the last good result", error="")


def pause(builder: DecisionBuilder, order: Pause) -> None:
    """Raises Refused."""
    task = builder.task
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} {task.phase.told} already")
    if task.held:
        raise Refused("held", f"{task.local_id} {task.held if is_paused(task.held) else stopped(task.held)} already")
    held = paused_by(builder.actor, order.note)
    builder.amend(held, held=held)


def resume(builder: DecisionBuilder, order: Resume) -> None:
    """Raises Refused."""
    task = builder.task
    if not is_paused(task.held):
        name = task.local_id
        hint = f"`mailboxd why {name}` says what it waits for."
        raise Refused("not-paused", f"{task.local_id} is not paused", hint)
    builder.amend(f"resumed by {builder.actor}" + (f": {order.note}" if order.note else ""), held="")


def write_spec(builder: DecisionBuilder, order: SpecWritten) -> None:
    """Raises Refused."""
    spec_drafting.written(builder, order.spec, f"the {OPERATOR}")


def _release(builder: DecisionBuilder, order: Unblock) -> None:
    """Raise the budgets that the order raises. Raises Refused when they would still be used up."""
    task, spent = builder.task, builder.view.spent
    changes = raised(task.policy, spent, order, builder.ctx.limits)
    policy = replace(task.policy, **changes)
    if why := over(policy, spent):
        hint = f"Raise it: `mailboxd retry {task.local_id}{_more(policy, spent)}`, or in the form of the task."
        raise Refused("over-budget", f"{task.local_id} is still over its budget: {why}", hint)
    held = task.held if is_paused(task.held) else ""
    if is_in_vain(task.held):
        let_go(builder)
    freed = {"origin": handovers.let_go(task, builder.ctx.now)} if handovers.is_held(task.held) else {}
    told = _told_next(task, order.note) if task.phase is not Phase.CIRCUIT_OPEN else {}
    if changes or task.held != held or told:
        builder.amend("released by the operator", policy=policy, held=held, **freed, **told)


def _told_next(task: Task, note: str) -> dict[str, Any]:
    """The changes by which the next attempt is given a note."""
    return {"findings": "\n\n".join(filter(None, [task.findings, note]))} if note else {}


def _more(policy: Policy, spent: Spent) -> str:
    """The options with which the budgets would be enough for as much work again."""
    options = ""
    if policy.budget_usd is not None and spent.usd >= policy.budget_usd:
        options += f" --budget-usd {max(2 * spent.usd, 0.01):.2f}"
    if policy.budget_tokens is not None and spent.tokens >= policy.budget_tokens:
        options += f" --budget-tokens {max(2 * spent.tokens, 1)}"
    return options


def _fresh_start(task: Task, now: str) -> dict[str, Any]:
    """The fields that a fresh start resets: end, counters, pauses, escalation, and a deadline that has passed."""
    changes: dict[str, Any] = {"failures": 0, "rework": 0, "stalls": 0, "not_before": None}
    changes |= {"completed_at": None, "cancelled_with_parent": False, "skipped": False}
    if task.policy.deadline is not None and task.policy.deadline <= now:
        changes["policy"] = replace(task.policy, deadline=None)
    return changes | restored(task)


def _require_sender(builder: DecisionBuilder, sender: str, what: str) -> None:
    """Orders also come by message, from the task's sender. Raises Refused for any other agent's."""
    task = builder.task
    if not same_agent(sender, task.sender) and sender not in OPERATORS:
        raise Refused("wrong-agent", f"{task.local_id} was given by {task.sender}; {what} from {sender} does not count")


def require_not_acting(task: Task) -> None:
    """Raise Refused while approved actions are about to run: they were approved for the work as it was."""
    if task.phase is Phase.READY_TO_RESUME:
        problem = f"{task.local_id}: its approved actions are running or about to run"
        raise Refused("about-to-run", problem, "Cancel it, or wait until they have ended.")


def change(builder: DecisionBuilder, new: Redispatch) -> None:
    """Give live work the text that its sender has sent again: as its spec, or as new instructions. Raises Refused.

    A result that waits for a verdict or an approval was made of the earlier text: nobody can decide about it any more.
    """
    task = builder.task
    if task.phase in BEFORE_EXECUTION:
        spec_drafting.written(builder, new.spec, task.sender)
    elif applies(task, Trigger.REDISPATCHED):
        why = "its sender sent the task again with another text"
        stop_turns(builder)
        approved_actions.void(builder, why)
        _run_again(builder, new, why)
    else:
        steer(builder, Steer(task.sender, f"The task was sent again. It now says:\n\n{new.text}"))


def redispatch(builder: DecisionBuilder, new: Redispatch) -> None:
    """Run ended work again for its sender. Work that had no attempt starts again with the review of its spec."""
    _run_again(builder, new, f"dispatched again as attempt {new.origin.attempt}")


def _run_again(builder: DecisionBuilder, new: Redispatch, reason: str) -> None:
    task, trigger = builder.task, redispatch_trigger(builder.task)
    unstarted = trigger is Trigger.RENEWED
    spec, _ = specs.derive(new.spec, task.policy.weak if unstarted else WeakSpec.DERIVE)
    changes = _fresh_start(task, builder.ctx.now)
    if new.deadline is not None:
        changes["policy"] = replace(task.policy, deadline=new.deadline)
    if unstarted:
        changes["mending"] = spec_drafting.after(task, trigger)
    builder.move(
        trigger,
        reason,
        origin=replace(new.origin, spec=specs.digest(spec)),
        spec=spec,
        planned_actions=spec.planned_actions,
        findings="" if unstarted else new.findings,
        **changes,
    )


def words_of(order: object) -> dict[str, str] | None:
    """The name of an order and the words that a person gave with it; None without words, or if they have an event of
    their own.
    """
    match order:
        case Clarification(_, text, ends):
            name, said = "answer", "" if ends else text
        case Cancel(_, reason):
            name, said = "cancel", reason
        case Retry(instructions):
            name, said = "retry", instructions
        case Unblock(remedy, note):
            name, said = remedy.value, note
        case _ if known := BY_INPUT.get(type(order)):
            name, said = known.name, getattr(order, known.note) if known.note else ""
        case _:
            name, said = "", ""
    return {"name": name, "note": said} if said.strip() else None


# The table.


def _retry(
    note: str = "", only_failed: bool = False, with_dependants: bool = False, reviewers: str | None = None
) -> Retry:
    """Raises Refused for reviewers that cannot be agents."""
    names = [name.strip() for name in reviewers.split(",")] if reviewers and reviewers.strip() != "none" else []
    if wrong := [name for name in names if not is_id(name)]:
        hint = "Write names of agents with commas between them, or none."
        raise Refused("bad-form", f"Other reviewers: {wrong[0][:60]!a} is not the name of an agent", hint)
    return Retry(note, only_failed, with_dependants, None if reviewers is None else tuple(names))


_NOTE = Field("note", FieldKind.TEXT, "Note", "The reason, shown wherever the task is.")
_OVER_BUDGET = "over budget"

OPERATOR_ORDERS: tuple[OperatorOrder, ...] = (
    OperatorOrder(
        "answer",
        Clarification,
        answer,
        (Field("text", FieldKind.TEXT, "Your answer", "Write an answer.", required=True, most=100_000),),
        makes_sense=lambda now: now.asks,
        label="Answer",
        main=True,
        done="Answered. The agent continues.",
        chat="Answered {task}: the agent goes on.",
    ),
    OperatorOrder(
        "steer",
        Steer,
        steer,
        (Field("text", FieldKind.TEXT, "Instructions", "Write what is to be done.", required=True, most=100_000),),
        make=lambda text: Steer(OPERATOR, text),
    ),
    OperatorOrder("spec", SpecWritten, write_spec),
    OperatorOrder(
        "unblock-retry",
        Unblock,
        unblock,
        (
            Field("note", FieldKind.TEXT, "Note", "Information for the next attempt."),
            Field(
                "budget_usd",
                FieldKind.MONEY,
                "New cost limit in USD",
                "New total cost limit of a task over its budget; without one, it may cost the same again.",
                offered=lambda now: now.held.startswith(_OVER_BUDGET),
            ),
            Field(
                "budget_tokens",
                FieldKind.COUNT,
                "New token limit",
                "New total token limit of a task over its budget; without one, it may use as many again.",
                offered=lambda now: now.held.startswith(_OVER_BUDGET),
            ),
        ),
        make=partial(Unblock, Remedy.RETRY),
        makes_sense=lambda now: now.blocked,
        label="Run again",
        main=True,
        done="It will run again.",
        leads_to=Phase.EXECUTION_READY,
    ),
    OperatorOrder(
        "unblock-accept",
        Unblock,
        unblock,
        (_NOTE,),
        make=partial(Unblock, Remedy.ACCEPT),
        makes_sense=lambda now: now.is_open and now.has_result,
        label="Accept the last result",
        done="Completed with its last good result.",
        leads_to=Phase.COMPLETED,
    ),
    OperatorOrder(
        "unblock-fail",
        Unblock,
        unblock,
        (_NOTE,),
        make=partial(Unblock, Remedy.FAIL),
        makes_sense=lambda now: now.is_open,
        label="Give up",
        ends=True,
        leads_to=Phase.FAILED,
    ),
    OperatorOrder(
        "retry",
        Retry,
        retry,
        (
            Field("note", FieldKind.TEXT, "Note", "Information for the next attempt."),
            Field(
                "only_failed",
                FieldKind.FLAG,
                "Only what failed",
                "Only what failed or stopped, TASK or any below it.",
                offered=lambda now: now.coordinates and now.phase is Phase.FAILED,
            ),
            Field(
                "with_dependants",
                FieldKind.FLAG,
                "Also what used its result",
                "Also completed tasks that used the result of TASK.",
                offered=lambda now: now.phase is Phase.COMPLETED,
            ),
            Field(
                "reviewers",
                FieldKind.TEXT,
                "Other reviewers",
                "Agents that review it in place of those who cannot be asked; `none` has it pass without a review.",
                offered=lambda now: now.phase.value in tuple(Gate),
            ),
        ),
        make=_retry,
        makes_sense=lambda now: not now.blocked and (now.phase in (Phase.FAILED, Phase.COMPLETED) or now.pausing),
        label="Run again",
        main=True,
        done="It will run again as soon as capacity allows.",
        chat="{task} will run again.",
        leads_to=Phase.EXECUTION_READY,
    ),
    OperatorOrder(
        "pause",
        Pause,
        pause,
        (_NOTE,),
        make=Pause,
        makes_sense=lambda now: not (now.phase.is_terminal or now.held or now.is_open or now.asks),
        label="Pause",
        done="Paused: running turns finish, and no other starts.",
        chat="{task} is paused: running turns finish, and no other starts.",
    ),
    OperatorOrder(
        "resume",
        Resume,
        resume,
        (_NOTE,),
        make=Resume,
        makes_sense=lambda now: is_paused(now.held),
        label="Resume",
        main=True,
        done="Resumed.",
        chat="{task} is resumed.",
    ),
    OperatorOrder(
        "cancel",
        Cancel,
        cancel_task,
        (Field("reason", FieldKind.TEXT, "Reason", "Recorded, and sent to the executing peer.", also=("note",)),),
        make=lambda reason="": Cancel(OPERATOR, reason),
        makes_sense=lambda now: not now.phase.is_terminal,
        label="Cancel the task",
        ends=True,
        chat="{task} is cancelled in 10 s. `/mailbox undo {task}` takes it back.",
        leads_to=Phase.CANCELLED,
    ),
)
BY_NAME: Mapping[str, OperatorOrder] = {order.name: order for order in OPERATOR_ORDERS}
BY_INPUT: Mapping[type, OperatorOrder] = {order.input: order for order in OPERATOR_ORDERS}


def sensible(situation: Situation) -> tuple[OperatorOrder, ...]:
    """The orders to offer in this situation."""
    return tuple(order for order in OPERATOR_ORDERS if order.makes_sense(situation))


def leading_to(phase: Phase, situation: Situation) -> OperatorOrder | None:
    """The order that moves a task in this situation to `phase`.

    Where none makes sense, one whose refusal says why; None where only a blocked task could be moved there.
    """
    orders = [order for order in OPERATOR_ORDERS if order.leads_to is phase]
    fallback = next((order for order in orders if order.input is not Unblock), None)
    return next((order for order in orders if order.makes_sense(situation)), fallback)
