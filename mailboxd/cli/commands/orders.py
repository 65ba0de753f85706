"""`mailboxd edit|retry|pause|resume|cancel|answer|accept|fail`: operator orders about a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mailboxd.cli import elsewhere
from mailboxd.cli.operator_actions import OPERATOR, carry_out, carry_out_any, edited, give, read_text
from mailboxd.cli.session import Header, Session, Text, task_argument, verb
from mailboxd.cli.text import say

if TYPE_CHECKING:
    from mailboxd.core.events import Event
    from mailboxd.core.model import Spec, Task
    from mailboxd.engine.engine import Engine


@verb(
    "cancel",
    "cancel q3-report",
    'cancel q3-report.extract --reason "the figures have changed"',
    "cancel beta.writer:q3-report",
)
@task_argument()
@click.option("--reason", type=Text(), default="", help="Recorded, and sent to the executing peer.")
def cancel_command(session: Session, task: str, reason: str) -> int | None:
    """Cancel a task and its subtasks, and stop their running turns. This is final.

    A task of an agent on another host is called HOST.AGENT:TASK.
    """
    from mailboxd.core.inputs import Cancel

    if place := elsewhere.found(task):
        from mailboxd.protocol.messages import CancelMessage

        return elsewhere.decide(session, place[0], CancelMessage, place[1], preamble=reason)
    give(session, task, Cancel(OPERATOR, reason))
    return None


_MAX_TEXT = 1 << 20


@verb(
    "retry",
    "retry q3-report.extract",
    'retry q3-report.extract --note "the figures are on page 12"',
    "retry q3-report --only-failed",
    "retry q3-report.extract --with-dependants --instructions notes.md",
    "retry q3-report --budget-usd 5",
)
@task_argument()
@click.option("--note", type=Text(), default="", help="Information for the next attempt.")
@click.option("--instructions", metavar="FILE", help="The same, from FILE (- is standard input).")
@click.option("--only-failed", is_flag=True, help="Only failed or blocked tasks, TASK or any below it.")
@click.option("--with-dependants", is_flag=True, help="Also completed tasks that used the result of TASK.")
@click.option("--budget-usd", type=Header("budget_usd", "USD"), help="New total cost limit of a task on hold.")
@click.option("--budget-tokens", type=Header("budget_tokens", "N"), help="New total token limit of a task on hold.")
def retry_command(
    session: Session, task: str, note: str, instructions: str | None, only_failed: bool, with_dependants: bool,
    budget_usd: float | None, budget_tokens: int | None,
) -> None:  # fmt: skip
    """Run a task again, with what failed because of it; all other good results are kept.

    TASK may be blocked: it gets a fresh set of attempts. It may be on hold, its budget used up: it goes on. It may have
    completed: the tasks above it are then reopened and combine their results again. A task that is pausing after a
    failure runs immediately. `mailboxd why TASK` explains what blocks it.
    """
    from mailboxd.core.inputs import Remedy, Retry, Unblock
    from mailboxd.core.vocabulary import Phase

    if only_failed and with_dependants:
        raise click.UsageError("--only-failed and --with-dependants are mutually exclusive")
    more = "" if instructions is None else read_text(instructions, _MAX_TEXT).strip()
    words = "\n\n".join(filter(None, [note, more]))
    budgets = (budget_usd, budget_tokens)

    def act(engine: Engine, found: Task, user: str) -> Sequence[Event]:
        blocked = found.phase is Phase.CIRCUIT_OPEN or found.held
        again = (
            Unblock(Remedy.RETRY, words, *budgets)
            if budgets != (None, None) or (blocked and not (only_failed or with_dependants))
            else Retry(words, only_failed, with_dependants)
        )
        return engine.command(found, again, user)

    carry_out(session, task, act)


def _with_note(order: str, example: str, text: str) -> click.Command:
    """The command of an order that needs no more than a note."""

    @verb(example.partition(" ")[0], example, text=text)
    @task_argument()
    @click.option("--note", type=Text(), default="", help="The reason, shown wherever the task is.")
    def command(session: Session, task: str, note: str) -> None:
        from mailboxd.core.operator_orders import BY_NAME
        from mailboxd.engine import operator_commands

        carry_out(
            session, task, lambda engine, found, user: operator_commands.give(engine, found, BY_NAME[order], note, user)
        )

    return command


accept_command = _with_note(
    "unblock-accept",
    "accept q3-report.extract",
    "Complete a blocked task with its last good result.",
)
fail_command = _with_note(
    "unblock-fail",
    'fail q3-report.extract --note "the source is gone"',
    "Fail a blocked task, and the tasks that depend on it.",
)
pause_command = _with_note(
    "pause",
    'pause q3-report --note "until the audit is over"',
    """Pause a task and everything below it: running turns finish, and no other starts.

    Deadlines still pass, answers and replies still count, and an approved action still runs.
    """,
)


@verb("resume", "resume q3-report", "resume --agent analyst")
@task_argument(required=False)
@click.option("--note", type=Text(), default="", help="Record this with the order.")
@click.option("--agent", type=Header("from", "ID"), help="Close this agent's circuit breaker (instead of TASK).")
def resume_command(session: Session, task: str | None, note: str, agent: str | None) -> None:
    """Resume a paused task, or close an agent's circuit breaker."""
    from mailboxd.core.inputs import Resume

    if (task is None) is (agent is None):
        raise click.UsageError("give a task, or an agent with --agent")
    if agent is not None:
        carry_out_any(session, lambda engine, user: engine.close_breaker(agent, user), {})
    elif task is not None:
        give(session, task, Resume(note))


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
        from mailboxd.protocol.messages import AnswerMessage

        words = _text_or_file(text, file, "answer")
        return elsewhere.decide(session, place[0], AnswerMessage, place[1], preamble=words)
    words = _text_or_file(text, file, "answer") if text or file else _answer_in_editor(session, task)
    carry_out(session, task, lambda engine, found, user: operator_commands.answer(engine, found, words, user))
    return None


def _answer_in_editor(session: Session, task: str) -> str:
    """The answer, written below the question. Raises UsageError, Refused."""
    from mailboxd.errors import Refused

    with session.report() as report:
        task_id = report.find(task)
        standing = report.task_snapshot([task_id], session.clock.now(), None, neighbours=False).tasks[task_id]
    if standing.question is None:
        raise Refused("no-question", f"{standing.local_id} has not asked anything")
    return edited(f"{standing.local_id} asks:\n\n{standing.question.text}", "") or _text_or_file((), None, "answer")


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
    """Change what a task must achieve: its spec until its first attempt starts, its instructions at any time.

    TEXT is added as instructions; nothing running is stopped. They are delivered as soon as possible, and the output
    says how: to a mailboxd peer immediately, to a running turn by a following turn in the same session, otherwise to
    the next attempt.

    Sections of a spec in FILE replace the existing ones; others are kept. `mailboxd show TASK --spec` shows them.
    Without a text, $VISUAL or $EDITOR opens with the spec; once an attempt has started, for instructions.
    """
    from mailboxd.core.inputs import Steer
    from mailboxd.protocol.spec import taken_apart

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
    from mailboxd.protocol.spec import render_spec
    from mailboxd.store.task_queries import spec_of

    with session.report() as report:
        found, spec = spec_of(report, report.find(task))
    name = found["task"]
    if found["phase"] not in BEFORE_EXECUTION:
        head = f"New instructions for {name}."
        words = edited(head, "") or _text_or_file((), None, "instructions")
        give(session, name, Steer(OPERATOR, words))
        return
    problem = f"its spec is weak: {found['lacks']}" if found["lacks"] else "its spec can be changed"
    head = f"{name}: {problem}\nEmpty sections are ignored; the criteria are a list."
    after = edited(head, render_spec(spec))
    if after is None:
        say(f"{name}: unchanged", err=True)
        return
    _write(session, name, after, base=spec)


def _write(session: Session, task: str, text: str, base: Spec | None = None) -> None:
    """Record the text as the operator's; `base` is the spec that was edited."""
    from mailboxd.core.inputs import SpecWritten
    from mailboxd.errors import MessageError, Refused
    from mailboxd.protocol.spec import rewritten

    def act(engine: Engine, found: Task, user: str) -> Sequence[Event]:
        if base is not None and found.spec != base:
            raise Refused("spec-changed", f"{found.local_id}: its spec changed while you edited it", "Edit it again.")
        spec = rewritten(found.spec, text)
        if spec is None:
            raise MessageError("no-spec", "it has no section of a spec", "Write `## Acceptance Criteria`, for example.")
        return engine.command(found, SpecWritten(spec), user)

    carry_out(session, task, act)
