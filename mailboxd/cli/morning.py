"""The overview as text: `mailboxd status` of one workspace or of all, and what `mailboxd` alone says needs the person.

Only what there is to say has a line: where nothing waits, it is six lines at most.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mailboxd.cli.session import Session, agent_of
from mailboxd.cli.task_output import attention_lines
from mailboxd.cli.text import fit, lasted, meter, room, when
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.spending import of_cap
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import State
from mailboxd.errors import UnavailableError
from mailboxd.formats.health import Grade
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.ledger import overview
from mailboxd.ledger.overview import Decision, Later, Overview, Place, Result, Section

if TYPE_CHECKING:
    pass

MOST_DECISIONS = 10
MOST_LINES = 5
"""Lines of each other section, unless all are asked for."""
MOST_NEEDS = 20
"""Lines of `mailboxd` alone."""
_INDENT = 11
_NARROWEST = 20


def here(session: Session, ws: Workspace) -> Overview:
    """The overview of one workspace. Raises UnavailableError, WorldError."""
    program, paused = session.program(ws), session.paused()
    with session.report() as report:
        agent = agent_of(ws) or report.agent() or ""
        return overview.read(ws, report, session.clock, agent, program, session.seen(ws), paused=paused)


def everywhere(session: Session, *, most: int | None = overview.MOST) -> Overview:
    """The overview of all workspaces of this user that exist, and of the other hosts of the hub.

    Raises ConfigError, WorldError of the list of workspaces.
    """
    from mailboxd.formats.user import registry
    from mailboxd.hub.client.other_hosts import other_hosts

    hosts = other_hosts(os.environ, session.clock.now())
    roots = [ws.root for ws in registry.workspaces(os.environ)]
    return overview.everywhere(session.clock, os.environ, roots, lambda ws: agent_of(ws) or "", hosts, most=most)


# Status


def lines(
    found: Overview,
    room: int,
    program: str,
    *,
    most: int | None = MOST_LINES,
    next_: str = "",
    several: bool = False,
    health: Iterable[str] | None = None,
) -> Iterator[str]:
    """The overview in at most `room` columns; `program` begins a command, `next_` is what happens next by itself.

    `most`: of each section at most so many lines; None: all that were read. `several`: each line names its agent.
    `health`: what is not well, where the caller knows more of it.
    """
    troubles = _health(found, program, several) if health is None else health
    for name, texts in _sections(found, max(room - _INDENT, _NARROWEST), program, most, next_, several, troubles):
        for number, text in enumerate(texts):
            yield f"{'' if number else name:<{_INDENT - 2}}  {text}".rstrip()


def _sections(
    found: Overview, room: int, program: str, most: int | None, next_: str, several: bool, health: Iterable[str]
) -> Iterator[tuple[str, Iterable[str]]]:
    """The sections that have something to say, each with its lines."""
    decisions = MOST_DECISIONS if most is not None else None
    quiet = found.is_quiet and most is not None
    yield "health", health
    if not found.decide.total and not found.failed.total and not found.silent:
        yield "needs you", ["nothing"]
    yield f"decide {found.decide.total}", _decisions(found.decide, found.at, room, program, decisions, several)
    yield f"failed {found.failed.total}", _decisions(found.failed, found.at, room, program, most, several)
    yield "finished", _finished(found.finished, found.at, room, program, 1 if quiet else most, several)
    yield "running", _running(found, room, program, 1 if quiet else most, next_, several)
    yield "later", _later(found.later, room, program, 1 if quiet else most, several)
    yield "spent", _spent(found, room, most)


def _health(found: Overview, program: str, several: bool) -> Iterator[str]:
    """The places that are not green, each with what is wrong, and does not wait for the person."""
    waiting = {(one.place, one.item.text) for one in found.decide.lines}
    for place in found.places:
        if place.grade in (Grade.GREEN, Grade.OFF):  # work without a daemon is in `decide`
            continue
        about = _about(place.place, several)
        its = _program(place.place, program, several) + " doctor" if not place.place.host else "mailboxd hub status"
        texts = [f"{trouble} (`{its}`)" for trouble in place.troubles if (place.place, trouble) not in waiting]
        yield from (f"{about}{place.grade}{f': {for_terminal(text)}' if text else ''}" for text in texts or [""])


def _name(place: Place) -> str:
    """How a place is called: `agent`, or `host.agent`."""
    own = place.agent or place.workspace
    return own if not place.host or own.startswith(place.host) else f"{place.host}.{own}"


def _program(place: Place, program: str, several: bool) -> str:
    """How a command about the place begins."""
    return f"mailboxd -w {shlex.quote(place.workspace)}" if several and place.workspace else program


def _about(place: Place, several: bool) -> str:
    return f"{for_terminal(_name(place))}: " if several else ""


def _more(total: int, shown: int, how: str) -> Iterator[str]:
    if total > shown:
        yield f"and {total - shown:,} more: `{how}`"


def _decisions(
    section: Section[Decision], now: str, room: int, program: str, most: int | None, several: bool
) -> Iterator[str]:
    shown = section.lines[:most]
    for one in shown:
        about, its = _about(one.place, several), _program(one.place, program, several)
        first, *others = attention_lines([one.item.as_json()], now, max(room - len(about), _NARROWEST), its)
        yield about + first
        yield from others
    yield from _more(section.total, len(shown), f"{program} status --host --all" if several else f"{program} inbox")


def _finished(
    section: Section[Result], now: str, room: int, program: str, most: int | None, several: bool
) -> Iterator[str]:
    shown = section.lines[:most]
    for one in shown:
        about = f"{_about(one.place, several)}{for_terminal(one.task)}"
        said = one.answer or one.title
        age = f" ({when(one.at, now)})"
        yield fit(f"{about}: {said}", max(room - len(age), _NARROWEST)) + age
    if not section.total:
        return
    newest = shown[0] if shown else None
    if newest is not None:
        its = _program(newest.place, program, several)
        others = f"  # one of {section.total:,} that you have not read" if section.total > 1 else ""
        yield f"  -> {its} show {newest.task}{others}"


def _running(found: Overview, room: int, program: str, most: int | None, next_: str, several: bool) -> Iterator[str]:
    # what is to begin at a set time is in `later`
    waiting = max(sum(place.states.get(State.WAITING, 0) - place.scheduled for place in found.places), 0)
    shown = found.running.lines[:most]
    size = max((len(_about(one.place, several) + one.task) for one in shown), default=0)
    others = [f"{found.running.total - len(shown):,} more run"] if found.running.total > len(shown) else []
    others += [f"{waiting:,} wait" + (f", next: {next_}" if next_ and not shown else "")] if waiting else []
    how = "" if several else f" (`{program} ls`)"
    rest = fit(" and ".join(others), max(room - len(how), _NARROWEST)) + how if others else ""
    for number, one in enumerate(shown, 1):
        planned = one.planned - one.skipped
        bar = f"{meter(one.done, planned)} {one.done:,} of {planned:,}, " if planned > 0 else ""
        since = f"for {lasted(to_epoch(found.at) - to_epoch(one.since))} ({for_terminal(one.by)})"
        name = f"{_about(one.place, several)}{for_terminal(one.task)}"
        last = f"; {rest}" if rest and number == len(shown) and most == 1 else ""
        left = room - size - len(bar) - len(since) - len(last) - 4
        title = fit(one.title, left) if left >= _NARROWEST and one.title != one.task else ""
        yield f"{name:<{size}}  {bar}{since}{last}  {title}".rstrip()
    if rest and (most != 1 or not shown):
        yield rest


def _later(section: Section[Later], room: int, program: str, most: int | None, several: bool) -> Iterator[str]:
    shown = section.lines[:most]
    for one in shown:
        late = f" ({one.open} has not ended)" if one.open else ""
        times = one.paused or f"{f'{one.repeat}, next ' if one.repeat else ''}{one.told}{late}"
        title = f": {one.title}" if one.title != one.name else ""
        hidden = section.total - len(shown)
        more = f"; and {hidden:,} more" if hidden and most == 1 else ""
        yield fit(f"{_about(one.place, several)}{one.name} {times}{title}", max(room - len(more), _NARROWEST)) + more
    if most != 1:
        yield from _more(section.total, len(shown), f"{program} status --all")


def _spent(found: Overview, room: int, most: int | None) -> Iterator[str]:
    """Today: all agents of the machine, which is never cut, then each agent."""
    spenders = [one for one in found.spent.agents if one.standing is not None]
    told = [for_terminal(f"{one.place.agent} {of_cap(one.standing.agent)}") for one in spenders if one.standing]
    host = found.spent.host
    ours = [of_cap(host.host)] if host is not None else []
    if not told:
        return
    if most is None:
        yield from (*ours, *told)
        return
    hidden = [f"and {len(told) - most:,} agents more"] if len(told) > most else []
    whole, rest = "".join(ours), "; ".join([*told[:most], *hidden])
    left = room - len(whole) - 2 * bool(whole)
    yield "; ".join(filter(None, [whole, fit(rest, left) if left >= _NARROWEST else ""]))


# What needs the person: `mailboxd` alone

BEGIN = ("mailboxd demo    # agents at work, in half a minute", "mailboxd setup   # begins with your own agents")
"""How to begin, for who has no workspace yet."""


def alone(session: Session) -> None:
    """Print what needs this person: in the workspace of -w or around the current directory, else in all of theirs."""
    try:
        ws = session.workspace()
    except UnavailableError:
        if session.path is not None:
            raise
        found = everywhere(session)
        session.show(found.as_json(), needs(found, room(), "mailboxd", several=True) if found.places else BEGIN)
    else:
        found = here(session, ws)
        session.show(found.as_json(), needs(found, room(), session.program(ws), several=False))


def needs(found: Overview, columns: int, program: str, *, several: bool) -> Iterator[str]:
    """A line for each thing that needs the person, with its command; or that nothing does, and what runs."""
    waiting = (*found.decide.lines, *found.failed.lines)[:MOST_NEEDS]
    for one in waiting:
        about = f"{_about(one.place, several)}{for_terminal(f'{one.item.task}: ' if one.item.task else '')}"
        command = f"  -> {for_terminal(one.item.command)}"
        yield about + fit(one.item.text, max(columns - len(about) - len(command), 2 * _NARROWEST)) + command
    total = found.decide.total + found.failed.total
    yield from _more(total, len(waiting), f"{program} status --host --all" if several else f"{program} inbox --all")
    for place in found.silent:
        yield f"{for_terminal(_name(place.place))}: {fit(place.troubles[0], columns)}  -> mailboxd hub status"
    if not total and not found.silent:
        yield "nothing needs you"
    if found.finished.total:
        results = "result" if found.finished.total == 1 else "results"
        yield f"{found.finished.total:,} {results} that you have not read: `{program} status{' --host' * several}`"
    elif not total:
        yield next(_running(found, columns, program, 1, "", several), "nothing runs")
