"""`mailboxd audit search`: what is asked for, in the index that the search itself brings up to date."""

from __future__ import annotations

import re
from typing import Any

from mailboxd.core.times import plus
from mailboxd.errors import Refused
from mailboxd.store import evidence
from mailboxd.store.report import opened
from mailboxd.store.search import Index, Wanted, matching
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.mail import read_message

FILE = "search.db"
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,3})\d*)?Z", re.ASCII)


def search(
    ws: Workspace,
    query: str,
    *,
    agent: str | None = None,
    task: str | None = None,
    status: str | None = None,
    since: str | None = None,
    until: str | None = None,
    kind: str | None = None,
    limit: int = 20,
) -> list[dict[str, Any]]:
    """What matches, the best first. Raises Refused for a query or a time that is none, UnavailableError, WorldError."""
    matching(query)
    tasks: tuple[str, ...] = ()
    if task is not None:
        with opened(ws.database) as report:
            tasks = tuple(task_id for task_id, _ in evidence.below(report.db, report.find(task)))
    wanted = Wanted(
        query,
        agent or "",
        tasks,
        status or "",
        "" if since is None else moment(since),
        "" if until is None else moment(until, past=True),
        kind or "",
        limit,
    )
    with Index(ws.state / FILE, ws.database, lambda path: read_message(ws, path)) as index:
        index.catch_up()
        return index.find(wanted)


def moment(text: str, *, past: bool = False) -> str:
    """A time as events have it. A day alone is its beginning, or with `past` its end. Raises Refused."""
    try:
        if _DAY.fullmatch(text):
            return plus(f"{text}T00:00:00.000Z", 86_400.0 if past else 0.0)
        found = _MOMENT.fullmatch(text)
        if found is not None:
            return plus(f"{found[1]}.{(found[2] or '0').ljust(3, '0')}Z", 0.0)
    except ValueError:
        pass
    hint = "Write 2026-11-21 or 2026-11-21T08:00:00Z; times are UTC."
    raise Refused("bad-time", f"{ascii(text)[:60]} is no time", hint)
