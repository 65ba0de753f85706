"""`mailboxd cancel TASK`: the work is not wanted any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mailboxd.cli.operator_actions import OPERATOR, Order, carry_out, order_by_hand, read_text
from mailboxd.cli.session import Header, Session, Words, task_argument, verb
from mailboxd.cli.text import folded, say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_BAD_MESSAGE, EXIT_CONFIG, EXIT_NO

if TYPE_CHECKING:
    from mailboxd.core.events import Event
    from mailboxd.core.model import Spec


@verb(
    "cancel",
    "cancel q3-report",
    'cancel q3-report.extract --reason "the figures have changed"',
    exits={EXIT_NO: "it has ended already", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.option("--reason", type=Words(), default="", help="Why; it goes into the record and to whoever has the work.")
def cancel_command(session: Session, task: str, reason: str) -> None:
    """Cancel a task, and all that is below it. Running turns are stopped; a cancel is final."""
    from mailboxd.core.inputs import Cancel

    heard = Cancel(OPERATOR, reason)
    carry_out(session, task, lambda order: order.engine.command(order.task, heard, order.user))


# ---------------------------------------------------------------------------------------------------------------------
# `mailboxd retry TASK`: failed work runs again.

_MOST = 1 << 20


@verb(
    "retry",
    "retry q3-report.extract",
    'retry q3-report.extract --note "the figures are on page 12"',
    "retry q3-report --only-failed",
    "retry q3-report.extract --with-dependants --instructions notes.md",
    exits={EXIT_NO: "there is nothing to retry", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.option("--note", type=Words(), default="", help="What the next attempt has to know.")
@click.option("--instructions", metavar="FILE", help="The same, from a file; - is standard input.")
@click.option("--only-failed", is_flag=True, help="Only what failed or is blocked, at TASK and at any depth below it.")
@click.option("--with-dependants", is_flag=True, help="Also what completed with the result of TASK.")
def retry_command(
    session: Session, task: str, note: str, instructions: str | None, only_failed: bool, with_dependants: bool
) -> None:
    """Run work again, with what failed around it; every other good result is kept.

    TASK may have completed: whatever stands above it is opened as well, and puts its results together anew. A task
    that pauses after a failure does not wait any longer.
    """
    from mailboxd.core.inputs import Retry

    if only_failed and with_dependants:
        raise click.UsageError("--only-failed and --with-dependants: what failed has no dependants that ran")

    said = "" if instructions is None else read_text(instructions, _MOST).strip()
    heard = Retry("\n\n".join(filter(None, [note, said])), only_failed, with_dependants)
    carry_out(session, task, lambda order: order.engine.command(order.task, heard, order.user))


# ---------------------------------------------------------------------------------------------------------------------
# `mailboxd unblock TASK`: what an open circuit becomes.


@verb(
    "unblock",
    'unblock q3-report.extract --retry --note "the gateway is up again"',
    "unblock q3-report.extract --accept",
    "unblock q3-report.extract --fail",
    "unblock q3-report --retry --budget-usd 5",
    "unblock --agent analyst",
    exits={
        EXIT_NO: "it is not blocked, there is nothing to accept, or its budget would still be used up",
        EXIT_CONFIG: "the configuration is wrong",
    },
)
@task_argument(required=False)
@click.option("--retry", "remedy", flag_value="retry", help="Try again, with all attempts.")
@click.option("--accept", "remedy", flag_value="accept", help="The last good result counts: it is completed.")
@click.option("--fail", "remedy", flag_value="fail", help="Give up: it fails, and so does what needs it.")
@click.option("--note", type=Words(), default="", help="Why; with --retry the next attempt reads it.")
@click.option("--budget-usd", type=Header("budget_usd", "USD"), help="With --retry: what it may cost in all.")
@click.option("--budget-tokens", type=Header("budget_tokens", "N"), help="With --retry: the tokens it may use, in all.")
@click.option("--agent", type=Header("from", "ID"), help="Instead of a task: close the breaker of this agent.")
def unblock_command(
    session: Session,
    task: str | None,
    remedy: str | None,
    note: str,
    budget_usd: float | None,
    budget_tokens: int | None,
    agent: str | None,
) -> None:
    """Decide about a task whose circuit is open or which is over its budget, or close the breaker of an agent.

    `mailboxd why TASK` says what blocks it, and how to check.
    """
    from mailboxd.core.inputs import Remedy, Unblock

    if agent is not None:
        if task is not None or remedy is not None or note or (budget_usd, budget_tokens) != (None, None):
            raise click.UsageError("--agent is about no task: give it alone")
        order_by_hand(session, lambda engine, user: engine.close_breaker(agent, user))
        return
    if task is None:
        raise click.UsageError("name a task, or an agent with --agent")
    if remedy != "retry" and (budget_usd, budget_tokens) != (None, None):
        raise click.UsageError("a budget is raised together with --retry")
    if remedy is None:
        raise click.UsageError("say what it shall become: --retry, --accept or --fail")
    heard = Unblock(Remedy(remedy), note, budget_usd, budget_tokens)
    carry_out(session, task, lambda order: order.engine.command(order.task, heard, order.user))


# ---------------------------------------------------------------------------------------------------------------------
# `mailboxd answer TASK TEXT`: a task asked something.


@verb(
    "answer",
    'answer q3-report "Use the audited figures."',
    "answer q3-report --file answer.md",
    'answer q3-report -- "- Every figure names its month"',
    "answer q3-report REPLY_SKIP",
    exits={EXIT_NO: "it asked nothing", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.argument("text", nargs=-1, type=Words())
@click.option("--file", metavar="FILE", help="The answer, from a file; - is standard input.")
def answer_command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> None:
    """Answer the open question of a task; it goes on in the same session.

    REPLY_SKIP says that no answer will come: the agent goes on with what it has. Where its spec is what is asked about,
    the answer is sections of it (`## Acceptance Criteria`), or the criteria as a list.
    """
    from mailboxd.engine import operator_commands

    said = (" ".join(text) if file is None else read_text(file, _MOST)).strip()
    if not said or (file is not None and text):
        raise click.UsageError("give the answer as TEXT or with --file")

    carry_out(session, task, lambda order: operator_commands.answer(order.engine, order.task, said, order.user))


# ---------------------------------------------------------------------------------------------------------------------
# `mailboxd steer TASK TEXT`: new instructions for work that is under way.


@verb(
    "steer",
    'steer q3-report "Leave out the forecasts."',
    "steer q3-report.extract --file more.md",
    exits={EXIT_NO: "it has ended", EXIT_CONFIG: "the configuration is wrong"},
)
@task_argument()
@click.argument("text", nargs=-1, type=Words())
@click.option("--file", metavar="FILE", help="The instructions, from a file; - is standard input.")
def steer_command(session: Session, task: str, text: tuple[str, ...], file: str | None) -> None:
    """Give a task new instructions. They become part of its specification; nothing that runs is stopped.

    Who has the work hears of them as soon as possible: a mailboxd peer at once, a running turn by another turn of the
    same session behind it, and otherwise the next attempt. What is said tells which.
    """
    from mailboxd.core.events import Role
    from mailboxd.core.inputs import Steer

    said = (" ".join(text) if file is None else read_text(file, _MOST)).strip()
    if not said or (file is not None and text):
        raise click.UsageError("give the instructions as TEXT or with --file")
    heard = Steer(OPERATOR, said)
    carry_out(session, task, lambda order: order.engine.hear(order.task.id, heard, Role.OPERATOR, order.user))


# ---------------------------------------------------------------------------------------------------------------------
# `mailboxd spec TASK`: what a task must achieve, and writing it anew before the work begins.

_HEAD = """\
<!-- {name}: {problem}
Lines like this one are taken out. A section that is empty says nothing; the criteria are a list. -->

"""


@verb(
    "spec",
    "spec q3-report",
    "spec q3-report --edit",
    "spec q3-report --file spec.md",
    exits={
        EXIT_NO: "the spec can no longer change",
        EXIT_BAD_MESSAGE: "the text is no spec",
        EXIT_CONFIG: "the configuration is wrong",
    },
)
@task_argument()
@click.option("--edit", is_flag=True, help="Open it in $VISUAL or $EDITOR.")
@click.option("--file", metavar="FILE", help="Take the sections from a file; - is standard input.")
def spec_command(session: Session, task: str, edit: bool, file: str | None) -> None:
    """Show what a task must achieve, and what its spec lacks; with --edit or --file, write it anew.

    Sections count as they stand, what is left out stays. Possible until an attempt begins.
    """
    if edit and file is not None:
        raise click.UsageError("--edit and --file exclude each other")
    if file is not None:
        _write(session, task, read_text(file, _MOST))
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
    """`text` with every line fit to be printed."""
    return "\n".join(for_terminal(line) for line in text.split("\n"))


def _edit(session: Session, task: str) -> None:
    """What the editor leaves behind is the spec; nothing happens when it was left as it was."""
    from mailboxd.protocol.spec import render_spec
    from mailboxd.store.reports import spec_of

    with session.report() as report:
        found = spec_of(report, report.find(task))
    problem = f"its spec is weak: {found.lacks}" if found.lacks else f"it is {found.phase}"
    before = _HEAD.format(name=found.local_id, problem=problem.replace("--", "- -")) + render_spec(found.spec)
    after = click.edit(before, extension=".md")
    if after is None or after == before:
        say(f"{found.local_id}: left as it was", err=True)
        return
    _write(session, found.local_id, _without_head(after), edited=found.spec)


def _without_head(text: str) -> str:
    head, end, rest = text.partition("-->")
    return rest if end and head.lstrip().startswith("<!--") else text


def _write(session: Session, task: str, text: str, edited: Spec | None = None) -> None:
    """Record what was written, as the person who wrote it; `edited` is the spec that the text was made from."""
    from mailboxd.core.events import Role
    from mailboxd.core.inputs import SpecWritten
    from mailboxd.errors import MessageError, Refused
    from mailboxd.protocol.spec import rewritten

    def act(order: Order) -> Sequence[Event]:
        if edited is not None and order.task.spec != edited:
            raise Refused(
                "spec-changed", f"{order.task.local_id}: its spec changed while you edited it", "Edit it anew."
            )
        spec = rewritten(order.task.spec, text)
        if spec is None:
            raise MessageError("no-spec", "there is no section of a spec in it", "Write `## Acceptance Criteria`, say.")
        return order.engine.hear(order.task.id, SpecWritten(spec), Role.OPERATOR, order.user)

    carry_out(session, task, act)
