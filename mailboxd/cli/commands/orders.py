"""`mailboxd edit|retry|pause|resume|cancel|undo|answer|resolve`: operator orders about a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli import elsewhere, repeating
from mailboxd.cli.operator_actions import carry_out, carry_out_any, edited, give, kept_if_refused, read_text
from mailboxd.cli.operator_shell import OPERATOR
from mailboxd.cli.session import Header, Session, Text, more_tasks, task_argument, verb
from mailboxd.cli.text import say
from mailboxd.core.operator_orders import BY_NAME, Field, FieldKind
from mailboxd.formats.mailbox import lock

if TYPE_CHECKING:
    from mailboxd.core.events import Event
    from mailboxd.core.model import Spec, Task
    from mailboxd.engine.engine import Engine


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The value of an order's field."""

    def __init__(self, field: Field) -> None:
        self._field = field
        shown = {FieldKind.MONEY: "USD", FieldKind.COUNT: "N"}
        self.name = "|".join(field.choices) or shown.get(field.kind, "TEXT")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from mailboxd.core.sanitize import storable_text
        from mailboxd.errors import Refused

        try:
            return self._field.read(storable_text(str(value)))
        except Refused as refused:
            self.fail(refused.problem, param, ctx)


def fields_of(*orders: str) -> Callable[[Any], Any]:
    """Decorate a command with an option for each field of these orders."""
    named = {field.name: field for order in orders for field in BY_NAME[order].fields}

    def decorate(command: Any) -> Any:
        for field in reversed(named.values()):
            options = [f"--{name.replace('_', '-')}" for name in (field.name, *field.also)]
            if field.kind is FieldKind.FLAG:
                command = click.option(*options, field.name, is_flag=True, help=field.help)(command)
            else:
                kind, needed = _Value(field), field.required
                command = click.option(*options, field.name, type=kind, required=needed, help=field.help)(command)
        return command

    return decorate


NOW = click.option("--now", is_flag=True, help="At once: it cannot be undone. Scripts use this.")


def _ending(order: str, session: Session, task: str, now: bool, values: Mapping[str, Any]) -> None:
    """Give an order that ends a task: where a daemon runs it is held for some seconds, unless it is to be `now`."""
    from mailboxd.engine.intake import held_orders

    later = not now and lock.holder(session.workspace()) is not None
    ordered = held_orders.hold if later else held_orders.give_now

    def act(engine: Engine, found: Task, user: str) -> Sequence[Event]:
        return ordered(engine, found, BY_NAME[order], values, user)

    carry_out(session, task, act)


def _ending_all(order: str, session: Session, names: Sequence[str], now: bool, values: Mapping[str, Any]) -> None:
    """As `_ending`, for several tasks, or all that wait for one reason: for all of them, or none."""
    from mailboxd.engine import operator_commands
    from mailboxd.engine.intake import held_orders

    later = not now and lock.holder(session.workspace()) is not None
    ordered = held_orders.hold if later else held_orders.give_now
    facts: dict[str, object] = {}

    def act(engine: Engine, user: str) -> Sequence[Event]:
        tasks = operator_commands.tasks_named(engine, names)
        facts["tasks"] = [known.local_id for known in tasks]
        return [event for known in tasks for event in ordered(engine, known, BY_NAME[order], values, user)]

    carry_out_any(session, act, facts)


@verb(
    "cancel",
    "cancel q3-report",
    'cancel q3-report.extract --reason "the figures have changed"',
    "cancel q3-report --now",
    "cancel draft-1 draft-2 draft-3",
    "cancel beta.writer:q3-report",
    "cancel cause:1f3a9c",
)
@task_argument()
@more_tasks()
@fields_of("cancel")
@NOW
def cancel_command(session: Session, task: str, more: tuple[str, ...], now: bool, **values: Any) -> int | None:
    """Cancel a task and its subtasks, and stop their running turns.

    The daemon waits for ten seconds, in which `mailboxd undo TASK` takes it back; then it is final. Without a daemon it
    is final at once. So it is for a task of an agent on another host, which is called HOST.AGENT:TASK. Work
    that repeats has no more runs; one that is open goes on.

    cause:ID, from `mailboxd inbox`, is every task that stopped for that one reason. Of several tasks all are cancelled,
    or none.
    """
    if more:
        _ending_all("cancel", session, [task, *more], now, values)
        return None
    if place := elsewhere.found(task):
        from mailboxd.formats.protocol.messages import CancelMessage

        return elsewhere.decide(session, place[0], CancelMessage, place[1], preamble=values["reason"] or "")
    from mailboxd.engine.operator_commands import CAUSE

    if task.startswith(CAUSE):
        _ending_all("cancel", session, [task], now, values)
        return None
    if repeating.is_repeated(session, task):
        from mailboxd.engine.intake import repetitions

        repeating.order(
            session, task, lambda engine, one, user: repetitions.end(engine, one, values["reason"] or "", user)
        )
        return None
    _ending("cancel", session, task, now, values)
    return None


@verb("undo", "undo q3-report", "undo draft-1 draft-2", "undo --action 3f9k2q")
@task_argument(required=False)
@more_tasks()
@click.option(
    "--action", metavar="ID", help="Have this performed action undone (instead of TASK), by the command it declared."
)
def undo_command(session: Session, task: str | None, more: tuple[str, ...], action: str | None) -> None:
    """Take back what is still held: a cancel, a rejection, a failure.

    Such orders about TASK are held for ten seconds. What --action asks for, the daemon prepares; it then needs your
    approval as every action does.
    """
    from mailboxd.engine import operator_commands
    from mailboxd.engine.intake import held_orders

    if (task is None) is (action is None):
        raise click.UsageError("give a task, or an action with --action")
    if action is not None:
        from mailboxd.cli.commands import approvals

        approvals.undo(session, action)
    elif more:

        def act(engine: Engine, user: str) -> Sequence[Event]:
            found = operator_commands.tasks_named(engine, [task or "", *more])
            return [event for one in found for event in held_orders.take_back(engine, one, user)]

        carry_out_any(session, act, {})
    else:
        carry_out(session, task or "", held_orders.take_back)


_MAX_TEXT = 1 << 20


@verb(
    "retry",
    "retry q3-report.extract",
    'retry q3-report.extract --note "the figures are on page 12"',
    "retry q3-report --only-failed",
    "retry q3-report.extract --with-dependants --instructions notes.md",
    "retry q3-report --budget-usd 5",
    "retry q3-report --reviewers editor",
    "retry cause:1f3a9c",
    "retry crawl-a crawl-b",
)
@task_argument()
@more_tasks()
@fields_of("retry", "unblock-retry")
@click.option("--instructions", metavar="FILE", help="The note, from FILE (- is standard input).")
def retry_command(session: Session, task: str, more: tuple[str, ...], instructions: str | None, **values: Any) -> None:
    """Run a task again, with what failed because of it.

    All other good results are kept. TASK may have stopped: it gets a fresh set of attempts, or goes on over its budget.
    It may have completed: the tasks above it are then reopened and combine their results again. A task that is pausing
    after a failure runs immediately. `mailboxd why TASK` explains what it waits for.

    cause:ID, from `mailboxd inbox`, is every task that stopped for that one reason. Work
    that repeats has a run now, and work that is to begin later begins. Of several tasks all run again, or none.
    """
    from mailboxd.core.vocabulary import Phase
    from mailboxd.engine import operator_commands

    whole = values["only_failed"] or values["with_dependants"]
    if values["only_failed"] and values["with_dependants"]:
        raise click.UsageError("--only-failed and --with-dependants are mutually exclusive")
    written = "" if instructions is None else read_text(instructions, _MAX_TEXT).strip()
    values["note"] = "\n\n".join(filter(None, [values["note"], written]))
    unblocks = {field.name for field in BY_NAME["unblock-retry"].fields}

    def act(engine: Engine, found: Task, user: str) -> Sequence[Event]:
        blocked = found.phase is Phase.CIRCUIT_OPEN or found.held
        raises = any(values[name] is not None for name in unblocks - {"note"})
        order = BY_NAME["unblock-retry" if raises or (blocked and not whole) else "retry"]
        given = {field.name: values[field.name] for field in order.fields}
        return operator_commands.give(engine, found, order, given, user)

    if not more and repeating.is_repeated(session, task):
        from mailboxd.engine.intake import repetitions
        from mailboxd.engine.intake.interpret import Intake

        repeating.order(session, task, lambda engine, one, user: repetitions.run_now(Intake(engine), engine, one, user))
        return
    if not more and not task.startswith(operator_commands.CAUSE):
        carry_out(session, task, act)
        return
    facts: dict[str, object] = {}

    def act_on_all(engine: Engine, user: str) -> Sequence[Event]:
        tasks = operator_commands.tasks_named(engine, [task, *more])
        facts["tasks"] = [known.local_id for known in tasks]
        return [event for known in tasks for event in act(engine, known, user)]

    carry_out_any(session, act_on_all, facts)


ALL = click.option("--all", "everything", is_flag=True, help="Every agent of this user on this host (instead of TASK).")


@verb(
    "pause",
    'pause q3-report --note "until the audit is over"',
    'pause --all --note "the provider is being changed"',
    exits={1: "with --all: a daemon that runs has not heard it, or the list of workspaces cannot be read"},
)
@task_argument(required=False)
@fields_of("pause")
@ALL
def pause_command(session: Session, task: str | None, everything: bool, **values: Any) -> int | None:
    """Pause a task with all below it, or every agent of the host.

    Running turns finish, and no other starts. Deadlines still pass, answers and replies still count. An approved action
    of a paused task still runs; with --all it waits, as checks, schedules and messages to other agents do, also in
    daemons that are started later. Mail is taken. Work that repeats has no runs until it is resumed, and makes up for
    none of them; after --all, as its `missed` says.
    """
    if (task is None) is not everything:
        raise click.UsageError("give a task, or --all")
    if everything:
        from mailboxd.cli import standstill

        return standstill.say(session, values["note"], over=False)
    if repeating.is_repeated(session, task or ""):
        from mailboxd.engine.intake import repetitions

        repeating.order(
            session, task or "", lambda engine, one, user: repetitions.pause(engine, one, values["note"] or "", user)
        )
        return None
    from mailboxd.engine import operator_commands

    carry_out(
        session,
        task or "",
        lambda engine, found, user: operator_commands.give(engine, found, BY_NAME["pause"], values, user),
    )
    return None


@verb(
    "resolve",
    "resolve q3-report.extract --done",
    'resolve q3-report.extract --failed --note "the source is gone"',
    "resolve q3-report.extract --failed --now",
)
@task_argument()
@click.option("--done", "remedy", flag_value="unblock-accept", help="It is complete, with its last good result.")
@click.option("--failed", "remedy", flag_value="unblock-fail", help="It has failed, and so have those that need it.")
@fields_of("unblock-accept", "unblock-fail")
@NOW
def resolve_command(session: Session, task: str, remedy: str | None, now: bool, **values: Any) -> None:
    """End a task that has stopped, as done or as failed.

    `mailboxd retry TASK` runs it again instead. After --failed the daemon waits for ten seconds, in which `mailboxd
    undo TASK` takes it back; without a daemon it is final at once.
    """
    if remedy is None:
        raise click.UsageError("say how it ends: --done or --failed")
    if remedy == "unblock-fail":
        _ending(remedy, session, task, now, values)
    elif now:
        raise click.UsageError("--now goes with --failed; --done is always at once")
    else:
        give(session, task, BY_NAME[remedy].given(values))


@verb(
    "resume",
    "resume q3-report",
    "resume --agent analyst",
    "resume --all",
    exits={1: "with --all: a daemon that runs has not heard it, or the list of workspaces cannot be read"},
)
@task_argument(required=False)
@fields_of("resume")
@click.option(
    "--agent", type=Header("from", "ID"), help="Let this agent, whose turns have stopped, go on (instead of TASK)."
)
@ALL
def resume_command(
    session: Session, task: str | None, agent: str | None, everything: bool, **values: Any
) -> int | None:
    """Resume what is paused, or let an agent whose turns have stopped go on.

    What is paused is a task, work that repeats, or with --all every agent of the host.
    """
    if (task is not None) + (agent is not None) + everything != 1:
        raise click.UsageError("give a task, or an agent with --agent, or --all")
    if everything:
        from mailboxd.cli import standstill

        return standstill.say(session, values["note"], over=True)
    if agent is not None:
        carry_out_any(session, lambda engine, user: engine.close_breaker(agent, user), {})
    elif task is not None and repeating.is_repeated(session, task):
        from mailboxd.engine.intake import repetitions

        repeating.order(
            session, task, lambda engine, one, user: repetitions.resume(engine, one, values["note"] or "", user)
        )
    elif task is not None:
        give(session, task, BY_NAME["resume"].given(values))
    return None


@verb(
    "answer",
    'answer q3-report "Use the audited figures."',
    "answer q3-report",
    "answer q3-report --file answer.md",
    'answer q3-report -- "- Every figure names its month"',
    "answer q3-report REPLY_SKIP",
    'answer beta.writer:q3-report "Use the audited figures."',
)
@task_argument()
@click.argument("text", nargs=-1, type=Text())
@click.option("--file", metavar="FILE", help="Read the answer from FILE (- is standard input).")
def answer_command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> int | None:
    """Answer a task's open question; it resumes in the same session. Without a text, $VISUAL or $EDITOR opens.

    REPLY_SKIP means that there will be no answer, and the agent continues with what it has. If the question is about
    the spec, answer with its sections (`## Acceptance Criteria`) or with a list of criteria. A task of an agent on
    another host is called HOST.AGENT:TASK.
    """
    from mailboxd.engine import operator_commands

    if place := elsewhere.found(task):
        from mailboxd.formats.protocol.messages import AnswerMessage

        words = _text_or_file(text, file, "answer")
        return elsewhere.decide(session, place[0], AnswerMessage, place[1], preamble=words)
    written = "" if text or file else _answer_in_editor(session, task)
    words = written or _text_or_file(text, file, "answer")
    with kept_if_refused(written):
        carry_out(session, task, lambda engine, found, user: operator_commands.answer(engine, found, words, user))
    return None


def _answer_in_editor(session: Session, task: str) -> str:
    """The answer, written below the question; empty: none. Raises UsageError, Refused."""
    from mailboxd.errors import Refused

    with session.report() as report:
        task_id = report.find(task)
        standing = report.task_snapshot([task_id], session.clock.now(), None, neighbours=False).tasks[task_id]
    if standing.question is None:
        raise Refused("no-question", f"{standing.local_id} has no open question")
    return edited(f"{standing.local_id} asks:\n\n{standing.question.text}", "") or ""


def _text_or_file(text: tuple[str, ...], file: str | None, name: str) -> str:
    """The text, from the arguments or a file. Raises UsageError."""
    words = (" ".join(text) if file is None else read_text(file, _MAX_TEXT)).strip()
    if not words or (file is not None and text):
        raise click.UsageError(f"give the {name} as TEXT or with --file")
    return words


@verb("edit", "edit q3-report", "edit q3-report --file spec.md", 'edit q3-report "Leave out the forecasts."')
@task_argument()
@click.argument("text", nargs=-1, type=Text())
@click.option("--file", metavar="FILE", help="Read the text, or sections of a spec, from FILE (- is standard input).")
def edit_command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> None:
    """Change a task: its spec until it starts, then its instructions.

    TEXT is added as instructions; nothing running is stopped. They are delivered as soon as possible, and the output
    says how: to a mailboxd peer immediately, to a running turn with its next tool result or by a following turn in the
    same session, otherwise to the next attempt.

    Sections of a spec in FILE replace the existing ones; others are kept. `mailboxd show TASK --spec` shows them.
    Without a text, $VISUAL or $EDITOR opens with the spec; once an attempt has started, for instructions.
    """
    from mailboxd.core.inputs import Steer
    from mailboxd.formats.protocol.spec import taken_apart

    if not (text or file):
        _edit(session, task)
        return
    words = _text_or_file(text, file, "instructions")
    if file and taken_apart(words)[1]:
        _write(session, task, words)
    else:
        give(session, task, Steer(OPERATOR, words))


def _edit(session: Session, task: str) -> None:
    """Edit the spec in an editor, or write instructions; nothing happens if the text is unchanged."""
    from mailboxd.core.inputs import Steer
    from mailboxd.core.lifecycle import BEFORE_EXECUTION
    from mailboxd.formats.protocol.spec import render_spec
    from mailboxd.ledger.task_queries import spec_of

    with session.report() as report:
        found, spec = spec_of(report, report.find(task))
    name = found["task"]
    if found["phase"] not in BEFORE_EXECUTION:
        head = f"New instructions for {name}."
        words = edited(head, "") or _text_or_file((), None, "instructions")
        with kept_if_refused(words):
            give(session, name, Steer(OPERATOR, words))
        return
    problem = f"its spec is weak: {found['lacks']}" if found["lacks"] else "its spec can be changed"
    head = f"{name}: {problem}\nEmpty sections are ignored; the criteria are a list."
    after = edited(head, render_spec(spec))
    if after is None:
        say(f"{name}: unchanged", err=True)
        return
    with kept_if_refused(after):
        _write(session, name, after, base=spec)


def _write(session: Session, task: str, text: str, base: Spec | None = None) -> None:
    """Record the text as the operator's; `base` is the spec that was edited."""
    from mailboxd.core.inputs import SpecWritten
    from mailboxd.errors import MessageError, Refused
    from mailboxd.formats.protocol.spec import rewritten

    def act(engine: Engine, found: Task, user: str) -> Sequence[Event]:
        if base is not None and found.spec != base:
            raise Refused("spec-changed", f"{found.local_id}: its spec changed while you edited it", "Edit it again.")
        spec = rewritten(found.spec, text)
        if spec is None:
            raise MessageError("no-spec", "it has no section of a spec", "Write `## Acceptance Criteria`, for example.")
        return engine.command(found, SpecWritten(spec), user)

    carry_out(session, task, act)
