"""`mailboxd cancel|retry|unblock|answer|steer|spec`: operator orders about a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mailboxd.cli.operator_actions import OPERATOR, Order, carry_out, carry_out_any, give, read_text
from mailboxd.cli.session import Header, Session, Text, task_argument, verb
from mailboxd.cli.text import folded, say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_BAD_MESSAGE, EXIT_NO

if TYPE_CHECKING:
    from mailboxd.core.events import Event
    from mailboxd.core.model import Spec


@verb(
    "cancel",
    "cancel q3-report",
    'cancel q3-report.extract --reason "the figures have changed"',
    exits={EXIT_NO: "the task has already ended"},
)
@task_argument()
@click.option("--reason", type=Text(), default="", help="Recorded, and sent to the executing peer.")
def cancel_command(session: Session, task: str, reason: str) -> None:
    """Cancel a task and its subtasks, and stop their running turns. This is final."""
    from mailboxd.core.inputs import Cancel

    give(session, task, Cancel(OPERATOR, reason))


_MAX_TEXT = 1 << 20


@verb(
    "retry",
    "retry q3-report.extract",
    'retry q3-report.extract --note "the figures are on page 12"',
    "retry q3-report --only-failed",
    "retry q3-report.extract --with-dependants --instructions notes.md",
    exits={EXIT_NO: "there is nothing to run again"},
)
@task_argument()
@click.option("--note", type=Text(), default="", help="Information for the next attempt.")
@click.option("--instructions", metavar="FILE", help="The same, from FILE (- is standard input).")
@click.option("--only-failed", is_flag=True, help="Only failed or blocked tasks, TASK or any below it.")
@click.option("--with-dependants", is_flag=True, help="Also completed tasks that used the result of TASK.")
def retry_command(
    session: Session, task: str, note: str, instructions: str | None, only_failed: bool, with_dependants: bool
) -> None:
    """Run a task again, with what failed because of it; all other good results are kept.

    TASK may have completed: the tasks above it are then reopened and combine their results again. A task that is
    pausing after a failure runs immediately.
    """
    from mailboxd.core.inputs import Retry

    if only_failed and with_dependants:
        raise click.UsageError("--only-failed and --with-dependants are mutually exclusive")

    more = "" if instructions is None else read_text(instructions, _MAX_TEXT).strip()
    give(session, task, Retry("\n\n".join(filter(None, [note, more])), only_failed, with_dependants))


@verb(
    "unblock",
    'unblock q3-report.extract --retry --note "the gateway is up again"',
    "unblock q3-report.extract --accept",
    "unblock q3-report.extract --fail",
    "unblock q3-report --retry --budget-usd 5",
    "unblock --agent analyst",
    exits={
        EXIT_NO: "not blocked, nothing to accept, or still over budget",
    },
)
@task_argument(required=False)
@click.option("--retry", "remedy", flag_value="retry", help="Run it again with a fresh set of attempts.")
@click.option("--accept", "remedy", flag_value="accept", help="Complete it with its last good result.")
@click.option("--fail", "remedy", flag_value="fail", help="Fail it, and the tasks that depend on it.")
@click.option("--note", type=Text(), default="", help="The reason; with --retry, given to the next attempt.")
@click.option("--budget-usd", type=Header("budget_usd", "USD"), help="With --retry: new total cost limit.")
@click.option("--budget-tokens", type=Header("budget_tokens", "N"), help="With --retry: new total token limit.")
@click.option("--agent", type=Header("from", "ID"), help="Close this agent's circuit breaker (instead of TASK).")
def unblock_command(
    session: Session,
    task: str | None,
    remedy: str | None,
    note: str,
    budget_usd: float | None,
    budget_tokens: int | None,
    agent: str | None,
) -> None:
    """Decide what happens to a blocked or over-budget task, or close an agent's circuit breaker.

    `mailboxd why TASK` explains what blocks it.
    """
    from mailboxd.core.inputs import Remedy, Unblock

    if agent is not None:
        if task is not None or remedy is not None or note or (budget_usd, budget_tokens) != (None, None):
            raise click.UsageError("--agent cannot be combined with a task or other options")
        carry_out_any(session, lambda engine, user: engine.close_breaker(agent, user))
        return
    if task is None:
        raise click.UsageError("give a task, or an agent with --agent")
    if remedy != "retry" and (budget_usd, budget_tokens) != (None, None):
        raise click.UsageError("--budget-usd and --budget-tokens require --retry")
    if remedy is None:
        raise click.UsageError("give one of --retry, --accept or --fail")
    give(session, task, Unblock(Remedy(remedy), note, budget_usd, budget_tokens))


@verb(
    "answer",
    'answer q3-report "Use the audited figures."',
    "answer q3-report --file answer.md",
    'answer q3-report -- "- Every figure names its month"',
    "answer q3-report REPLY_SKIP",
    exits={EXIT_NO: "the task has no open question"},
)
@task_argument()
@click.argument("text", nargs=-1, type=Text())
@click.option("--file", metavar="FILE", help="Read the answer from FILE (- is standard input).")
def answer_command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> None:
    """Answer a task's open question; it resumes in the same session.

    REPLY_SKIP means that there will be no answer, and the agent continues with what it has. If the question is about
    the spec, answer with its sections (`## Acceptance Criteria`) or with a list of criteria.
    """
    from mailboxd.engine import operator_commands

    words = _text_or_file(text, file, "answer")
    carry_out(session, task, lambda order: operator_commands.answer(order.engine, order.task, words, order.user))


@verb(
    "steer",
    'steer q3-report "Leave out the forecasts."',
    "steer q3-report.extract --file more.md",
    exits={EXIT_NO: "the task has ended"},
)
@task_argument()
@click.argument("text", nargs=-1, type=Text())
@click.option("--file", metavar="FILE", help="Read the instructions from FILE (- is standard input).")
def steer_command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> None:
    """Give a task further instructions. They are added to its spec; nothing running is stopped.

    They are delivered as soon as possible, and the output says how: to a mailboxd peer immediately, to a running turn
    by a following turn in the same session, otherwise to the next attempt.
    """
    from mailboxd.core.inputs import Steer

    give(session, task, Steer(OPERATOR, _text_or_file(text, file, "instructions")))


def _text_or_file(text: tuple[str, ...], file: str | None, name: str) -> str:
    """The text, from the arguments or a file. Raises UsageError."""
    words = (" ".join(text) if file is None else read_text(file, _MAX_TEXT)).strip()
    if not words or (file is not None and text):
        raise click.UsageError(f"give the {name} as TEXT or with --file")
    return words


_HEAD = """\
<!-- {name}: {problem}
This comment is removed. Empty sections are ignored; the criteria are a list. -->

"""


@verb(
    "spec",
    "spec q3-report",
    "spec q3-report --edit",
    "spec q3-report --file spec.md",
    exits={
        EXIT_NO: "the spec can no longer change",
        EXIT_BAD_MESSAGE: "the text is not a valid spec",
    },
)
@task_argument()
@click.option("--edit", is_flag=True, help="Edit it in $VISUAL or $EDITOR.")
@click.option("--file", metavar="FILE", help="Read sections from FILE (- is standard input).")
def spec_command(session: Session, task: str, edit: bool, file: str | None) -> None:
    """Show what a task must achieve and what its spec lacks, or change the spec with --edit or --file.

    The sections given replace the existing ones; others are kept. Possible until the first attempt starts.
    """
    if edit and file is not None:
        raise click.UsageError("--edit and --file are mutually exclusive")
    if file is not None:
        _write(session, task, read_text(file, _MAX_TEXT))
    elif edit:
        _edit(session, task)
    else:
        _show(session, task)


def _show(session: Session, task: str) -> None:
    from mailboxd.store.reports import spec_of

    with session.report() as report:
        found = spec_of(report, report.find(task))
    if session.as_json:
        say(to_json(found.as_json()))
        return
    from mailboxd.protocol.spec import spec_sections

    say(f"{found.local_id}: {for_terminal(found.title)}")
    say(f"  {found.phase}" + (f": its spec is weak: {for_terminal(found.lacks)}" if found.lacks else ""))
    for heading, text in spec_sections(found.spec):
        say(f"\n{heading}\n{folded(_plain_lines(text.strip()), '  ')}")


def _plain_lines(text: str) -> str:
    """`text` with every line sanitized."""
    return "\n".join(for_terminal(line) for line in text.split("\n"))


def _edit(session: Session, task: str) -> None:
    """Edit the spec in an editor; nothing happens if the text is unchanged."""
    from mailboxd.protocol.spec import render_spec
    from mailboxd.store.reports import spec_of

    with session.report() as report:
        found = spec_of(report, report.find(task))
    problem = f"its spec is weak: {found.lacks}" if found.lacks else f"it is {found.phase}"
    before = _HEAD.format(name=found.local_id, problem=problem.replace("--", "- -")) + render_spec(found.spec)
    after = click.edit(before, extension=".md")
    if after is None or after == before:
        say(f"{found.local_id}: unchanged", err=True)
        return
    _write(session, found.local_id, _without_head(after), edited=found.spec)


def _without_head(text: str) -> str:
    head, end, rest = text.partition("-->")
    return rest if end and head.lstrip().startswith("<!--") else text


def _write(session: Session, task: str, text: str, edited: Spec | None = None) -> None:
    """Record the text as the operator's; `edited` is the spec on which it is based."""
    from mailboxd.core.inputs import SpecWritten
    from mailboxd.errors import MessageError, Refused
    from mailboxd.protocol.spec import rewritten

    def act(order: Order) -> Sequence[Event]:
        if edited is not None and order.task.spec != edited:
            raise Refused(
                "spec-changed", f"{order.task.local_id}: its spec changed while you edited it", "Edit it again."
            )
        spec = rewritten(order.task.spec, text)
        if spec is None:
            raise MessageError("no-spec", "it has no section of a spec", "Write `## Acceptance Criteria`, for example.")
        return order.engine.command(order.task, SpecWritten(spec), order.user)

    carry_out(session, task, act)
