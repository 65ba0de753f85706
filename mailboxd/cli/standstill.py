"""`mailboxd pause --all` and `resume --all`: every agent of this user on this host stands still, or goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mailboxd.cli.operator_shell import require_operator
from mailboxd.cli.session import POLL_INTERVAL
from mailboxd.core.sanitize import for_terminal, storable_text
from mailboxd.core.standstill import OVER, Standstill
from mailboxd.errors import MailboxdError
from mailboxd.formats.mailbox import lock
from mailboxd.host import process, wakeup

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.formats.mailbox.layout import Workspace

_PATIENCE = 5.0
"""Seconds to wait until each daemon has heard it."""
UNHEARD = 1
"""Exit status: a daemon that runs has not heard it, or it is not known which daemons there are."""


def say(session: Session, note: str | None, *, over: bool) -> int | None:
    """Write it down, wake every daemon, and wait until each has heard it. Raises Refused, ConfigError, WorldError."""
    from mailboxd.formats.user import standstills

    require_operator()
    said = Standstill(process.name(), session.clock.now(), storable_text(note or "").strip(), over)
    standstills.say_standstill(os.environ, said)
    places, problem = _places(session)
    running = [ws for ws in places if lock.holder(ws) is not None]
    for ws in running:
        wakeup.poke(ws.state)
    unheard = _wait(session, running, said)
    rows = [
        {"workspace": str(ws.root), "daemon": {"running": ws in running}, "heard": ws not in unheard} for ws in places
    ]
    facts: dict[str, Any] = {"said": {"by": said.by, "at": said.at, "note": said.note, "over": over}, "daemons": rows}
    session.show(facts | ({"problem": problem} if problem else {}), _lines(said, rows, problem))
    return UNHEARD if unheard or problem else None


def _places(session: Session) -> tuple[list[Workspace], str]:
    """The workspaces of this user, and the one where this is said; and why the others are not known, else empty.

    What was said holds without the list, which only tells whom to wake.
    """
    from mailboxd.formats.user import registry

    found, problem = [], ""
    try:
        found = registry.workspaces(os.environ)
    except MailboxdError as error:
        problem = str(error)
    with suppress(MailboxdError):
        found.append(session.workspace())
    return list(dict.fromkeys(found)), problem


def _wait(session: Session, running: list[Workspace], said: Standstill) -> list[Workspace]:
    """The workspaces whose daemon has not heard it in time."""
    left, until = running, session.clock.monotonic() + _PATIENCE
    while left := [ws for ws in left if not _has_heard(ws, said)]:
        if session.clock.monotonic() >= until:
            break
        session.pause(POLL_INTERVAL)
    return left


def _has_heard(ws: Workspace, said: Standstill) -> bool:
    from mailboxd.ledger.reports import opened

    with suppress(MailboxdError), opened(ws.database) as report:
        return (report.standstill() is None) is said.over
    return False


def _lines(said: Standstill, rows: list[dict[str, Any]], problem: str) -> Iterator[str]:
    if said.over:
        yield "every agent goes on"
    else:
        yield f"every agent of this user on this host is paused: running turns end, nothing begins; `{OVER}` ends that"
    for row in rows:
        if not row["daemon"]["running"]:
            how = "no daemon runs" + ("" if said.over else "; one that is started holds as well")
        elif row["heard"]:
            how = "its daemon has heard it"
        else:
            how = "ITS DAEMON HAS NOT HEARD IT: another state directory (XDG_STATE_HOME), or stuck; see mailboxd doctor"
        yield for_terminal(f"  {row['workspace']}: {how}")
    if problem:
        yield for_terminal(
            f"  other workspaces are not known, so their daemons hear it only at their next look: {problem}"
        )
