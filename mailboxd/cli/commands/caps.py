"""`mailboxd caps`: what a day may cost, for this agent and for all agents of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import Dollars, Session, verb
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.spending import NOTHING, Account, CapDetails, Spend, Standing, of_caps, standing_json
from mailboxd.errors import MailboxdError
from mailboxd.formats.mailbox import lock

if TYPE_CHECKING:
    from mailboxd.core.events import Event
    from mailboxd.engine.engine import Engine
    from mailboxd.engine.spending import Book, Caps, Ledger, Row
    from mailboxd.formats.config.model import Config
    from mailboxd.ledger.spending import Spending


@verb(
    "caps", "caps", "caps --usd 40 --today", "caps --usd 30 --tokens 30000000", "caps --host --usd 100 --today",
    "caps --confirm",
)  # fmt: skip
@click.option("--usd", type=Dollars(), metavar="N", help="US dollars a day; 0: no cap.")
@click.option("--tokens", type=click.IntRange(0, 10**12), metavar="N", help="Tokens a day; 0: no cap.")
@click.option(
    "--turns", type=click.IntRange(0, 1_000_000), metavar="N", help="Turns a day that report neither; 0: no cap."
)
@click.option("--today", is_flag=True, help="Raise it for today only.")
@click.option("--host", is_flag=True, help="The cap of all agents of this machine together.")
@click.option("--confirm", is_flag=True, help="Let the caps hold as they are, the agent's and the machine's.")
def caps_command(
    session: Session, usd: float | None, tokens: int | None, turns: int | None, today: bool, host: bool, confirm: bool
) -> None:
    """Show or change what the agent's turns may cost in a calendar day, and all agents' of this machine together.

    Reviews, questions and repairs count. When a cap is reached, running turns end and no new one begins, until the day
    ends or you raise it. Without --today the change is for good: in .mailboxd/config.yaml, or with --host in
    ~/.config/mailboxd/host.yaml. A running daemon takes it at once. The caps of a workspace that was made by an earlier
    mailboxd are only told until you change or confirm them.
    """
    given: dict[str, float | None] = {"usd": usd, "tokens": tokens, "turns": turns}
    changes = any(value is not None for value in given.values())
    if today and not changes:
        raise click.UsageError("say how much: --usd, --tokens or --turns")
    if confirm and (changes or today):
        raise click.UsageError("--confirm keeps the caps as they are; to change them, leave it out")
    if not changes and not confirm:
        _show(session, _reported(session) or _Book.of(session).standing())
        return
    from mailboxd.cli.operator_shell import require_operator
    from mailboxd.engine import spending

    book = _Book.of(session)
    require_operator()
    if confirm:
        for of_host in [True] if host else [False, True]:
            session.tell(f"confirmed in {book.write(session, host=of_host)}")
    else:
        account, raised = book.account(host=host), book.raised[host]
        if today:
            _require_raise(account, spending.with_amounts(account.caps, given), given)
            book.raise_today(session, spending.with_amounts(raised, given), host=host)
        else:
            was = book.of_host if host else book.of_agent
            path = book.write(session, host=host, to=spending.with_amounts(was.most, given))
            kept = spending.with_amounts(raised, {name: None if value is None else 0 for name, value in given.items()})
            if kept != raised:  # what is said now counts today as well, also if it is less
                book.raise_today(session, kept, host=host)
            session.tell(f"changed in {path}")
    book.recount(session)
    _poke_all(session) if host or confirm else _poke(session)
    _show(session, _Book.of(session).standing())


def _reported(session: Session) -> Standing | None:
    """What the running daemon has counted, as `status` shows it: to count here, the configuration has to be read first,
    which takes half a second.
    """
    if lock.holder(session.workspace()) is None:
        return None
    with session.report() as report:
        return report.spending(session.clock.now())


def _show(session: Session, standing: Standing) -> None:
    told = standing_json(standing, session.program(session.workspace()))
    session.show(told, map(for_terminal, _lines(told)))


def _require_raise(account: Account, to: Spend, given: Mapping[str, float | None]) -> None:
    for name in (name for name, value in given.items() if value is not None):
        if not account.caps.amount(name) or to.amount(name) <= account.caps.amount(name):
            raise click.UsageError(f"--today raises a cap, and this one is {of_caps(account.caps)}; leave --today out")


class _Book:
    """The caps and what is spent of them, as the files and the database have it."""

    def __init__(self, session: Session, config: Config) -> None:
        from mailboxd.engine import spending
        from mailboxd.host.clock import day_of
        from mailboxd.host.zone import named

        self.ws, self.config = session.workspace(), config
        self.now = session.clock.now()
        self.day = day_of(self.now, named(config.zone))
        self.of_agent: Caps = spending.of_agent(config)
        self.of_host: Caps = spending.of_host(os.environ)
        self.ledger: Ledger = spending.Ledger.of(os.environ, self.ws)
        self.found: Standing | None = None
        self.raised = (NOTHING, NOTHING)
        """What the agent's and the host's caps were raised to for this day."""

    @classmethod
    def of(cls, session: Session) -> _Book:
        from mailboxd.ledger.spending import Spending

        book = cls(session, session.config())
        with session.report() as report:
            book.found = book.count(Spending(report.db))
        return book

    def standing(self) -> Standing:
        assert self.found is not None
        return self.found

    def count(self, spent: Spending) -> Standing:
        """What is spent now."""
        from mailboxd.engine import spending

        account = self.ledger.book()
        row = self.row(spent, account)
        scope = spending.Scope(self.config.agent, self.ledger.own, self.day, self.of_agent, self.of_host)
        self.raised = (spent.raised(self.day.name), account.raised.get(self.day.name, NOTHING))
        return spending.standing(scope, row, self.raised[0], account, self.now)

    def row(self, spent: Spending, account: Book) -> Row:
        """What this workspace has spent, with what its daemon has reserved."""
        from mailboxd.engine.spending import Row

        row = account.rows.get(self.ledger.own) or Row()
        row.day, row.spent = self.day.name, spent.between(self.day.start, self.day.end)
        return row

    def write(self, session: Session, *, host: bool, to: Spend | None = None) -> str:
        """Write a cap for good; returns where."""
        from mailboxd.engine import spending

        if host:
            return str(spending.write_host(os.environ, self.of_host.most if to is None else to))
        return str(spending.write_agent(session.workspace(), self.of_agent.most if to is None else to))

    def account(self, *, host: bool) -> Account:
        return self.standing().host if host else self.standing().agent

    def raise_today(self, session: Session, to: Spend, *, host: bool) -> None:
        """Raise a cap for this day; of a measure in which `to` is 0, it is as it was."""
        if host:
            self.ledger.raise_host(self.day.name, self.now, to)
        else:
            _in_engine(session, self.config, lambda engine, user: _raise(engine, user, self.day.name, to))

    def recount(self, session: Session) -> None:
        """Tell `status`, `inbox` and other daemons at once, for there may be no daemon here that does."""
        fresh = _Book(session, session.config())

        def count(engine: Engine, _user: str) -> None:
            spent = engine.store.spending
            with fresh.ledger.changing(fresh.day.name, fresh.now) as account:
                account.rows[fresh.ledger.own] = fresh.row(spent, account)
            engine.store.meta.set_spending(fresh.count(spent), "")

        _in_engine(session, fresh.config, count)


def _in_engine(session: Session, config: Config, act: Any) -> None:
    from mailboxd.engine import open
    from mailboxd.host import process

    with open.engine(session.workspace(), config, lambda why: session.tell(why, err=True)) as engine, engine.batch():
        act(engine, process.name())


def _raise(engine: Engine, user: str, day: str, to: Spend) -> Sequence[Event]:
    from dataclasses import asdict

    from mailboxd.core.events import Event, Kind, Role

    text = of_caps(to) if to else "what it was"
    data = {"at": engine.now, "day": day, "caps": asdict(to), "text": text}
    event = Event(Kind.CAP_RAISED, None, data, Role.OPERATOR, user)
    engine.record(event)
    return [event]


def _lines(told: Sequence[CapDetails]) -> Iterator[str]:
    for one in told:
        yield f"{one['bar']}  {one['text']}"


def _poke(session: Session) -> None:
    from mailboxd.host import wakeup

    wakeup.poke(session.workspace().state)


def _poke_all(session: Session) -> None:
    """Wake the daemons of all workspaces of this user."""
    from mailboxd.formats.user import registry
    from mailboxd.host import wakeup

    _poke(session)
    with suppress(MailboxdError):
        for ws in registry.workspaces(os.environ):
            wakeup.poke(ws.state)
