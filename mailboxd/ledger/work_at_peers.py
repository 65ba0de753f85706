"""What other agents of this user call the work that they were given, as their own databases have it.

Who gave it knows that it lies in the peer's mailbox; only the peer knows that it was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mailboxd.core.vocabulary import Waiting
from mailboxd.errors import MailboxdError
from mailboxd.formats.user import registry
from mailboxd.ledger.reports import Row, opened

if TYPE_CHECKING:
    from mailboxd.core.explain.model import Snapshot
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.ledger.reports import Report

_MOST = 20
"""Tasks of an explanation of which peers are asked."""


def names(report: Report, snapshot: Snapshot, environ: Mapping[str, str]) -> dict[str, str]:
    """The local ids that the work has at its peers, by the ids of its tasks; without peers that cannot be read."""
    waiting = {
        task.id: task.attempts[-1].executor
        for task in snapshot.tasks.values()
        if task.attempts and task.attempts[-1].waiting_for is Waiting.REPLY and not task.phase.is_terminal
    }
    given = report.given(list(waiting)[:_MOST]) if waiting else []
    given = [row for row in given if row["receiver"] == waiting[row["task"]]]
    found: dict[str, str] = {}
    with suppress(MailboxdError):
        for ws in registry.workspaces(environ) if given else ():
            with suppress(MailboxdError, OSError):
                found |= _at(ws, given)
    return found


def _at(ws: Workspace, given: Sequence[Row]) -> dict[str, str]:
    """Raises MailboxdError, OSError."""
    with opened(ws.database) as report:
        agent = report.agent()
        here = [row for row in given if row["receiver"] == agent]
        judged = [(row["task"], report.received(row["message_id"])) for row in here]
        return {task: report.local_id(one["task"]) for task, one in judged if one is not None and one["task"]}
