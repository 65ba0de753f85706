"""Work that repeats, for commands: how it is shown, and the orders of a person about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mailboxd.cli.operator_actions import carry_out_any
from mailboxd.cli.session import Session
from mailboxd.cli.text import dated, fit
from mailboxd.core.local_time import told
from mailboxd.core.repetition import counted
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.vocabulary import state_words
from mailboxd.formats.config.operator_zone import called
from mailboxd.ledger.later import as_row, history, repetition_called

if TYPE_CHECKING:
    from mailboxd.core.events import Event
    from mailboxd.core.explain.overview_details import ShownRepetition
    from mailboxd.core.repetition import Repetition
    from mailboxd.engine.engine import Engine
    from mailboxd.ledger.reports import Report

_RUNS = 20


def is_repeated(session: Session, name: str) -> bool:
    """Whether work that repeats is called so."""
    return bool(_id_of(session, name))


def _id_of(session: Session, name: str) -> str:
    if not session.workspace().database.exists():
        return ""
    with session.report() as report:
        found = repetition_called(report, name)
        return "" if found is None else found.id


def order(session: Session, name: str, act: Callable[[Engine, Repetition, str], Event]) -> None:
    """Carry out a person's order about the repetition `name`. Raises as `operator_actions.carry_out_any`."""
    facts: dict[str, Any] = {}
    known = _id_of(session, name)

    def about(engine: Engine, user: str) -> list[Event]:
        one = engine.store.repetitions.named(known)
        if one is None:
            raise AssertionError(f"{name} was found but does not exist")
        event = act(engine, one, user)
        now = engine.store.repetitions.named(one.id) or one
        facts.update(repetition=now.name, next_at=now.next_at, paused=now.paused, ended=now.ended)
        return [event]

    carry_out_any(session, about, facts)


def show(session: Session, report: Report, one: Repetition) -> None:
    """Print a repetition with its latest runs."""
    found: ShownRepetition = {**as_row(report, one), "history": history(report, one, _RUNS)}
    session.show(found, _lines(found, session.clock.now(), session.program(session.workspace())))


def _lines(found: ShownRepetition, now: str, program: str) -> Iterator[str]:
    place = called(found["zone"])
    yield f"{found['name']}: {fit(found['title'], 200)}"
    state = found["ended"] or found["paused"] or f"next {told(found['at'], place)}"
    is_open = f", when {found['open']} has ended" if found["open"] and found["at"] <= now and not found["ended"] else ""
    missed = f", and {counted(found['missed_runs'])} missed" if found["missed_runs"] else ""
    shown = [
        ("repeats", f"{found['repeat']} ({found['zone'] or 'zone of the machine'})"),
        ("state", state + is_open),
        ("", f"-> {program} resume {found['name']}" if found["paused"] and not found["ended"] else ""),
        ("problem", found["problem"]),
        ("", f"-> {program} retry {found['name']}  # makes a run now" if found["problem"] else ""),
        ("missed", f"{found['missed']}{'; runs may overlap' if found['overlap'] else ''}"),
        ("runs", f"{found['runs']}{missed}"),
        ("from", found["sender"]),
        ("created", dated(found["created_at"], now)),
    ]
    for name, text in shown:
        if text:
            yield f"  {name:<9} {for_terminal(fit(text, 500))}"
    for run in found["history"]:
        yield f"  {told(run['at'], place)}  {for_terminal(run['task'])}  {state_words(run['phase'])}"
    if found["runs"] > len(found["history"]):
        yield f"  and {found['runs'] - len(found['history'])} earlier runs"
