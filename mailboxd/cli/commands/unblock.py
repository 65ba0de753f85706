"""`mailboxd unblock TASK`: what an open circuit becomes."""

from __future__ import annotations

import click

from mailboxd.cli.acting import carry_out, order_by_hand
from mailboxd.cli.params import Header, Words
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO


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
def command(
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
