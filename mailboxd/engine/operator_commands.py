"""The orders and decisions of a person, the same on a terminal and on the page.

Each function is called inside one batch of the engine: either all of it counts, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mailboxd.core.approvals import Approval
from mailboxd.core.conversation import SKIP
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import Clarification
from mailboxd.core.model import Task
from mailboxd.core.operator_orders import OPERATOR, OperatorOrder
from mailboxd.core.vocabulary import Phase
from mailboxd.engine.engine import Engine
from mailboxd.errors import UnavailableError
from mailboxd.formats.protocol.spec import rewritten
from mailboxd.ledger.attention_queries import waiting_because_of
from mailboxd.ledger.task_queries import find_approval

ALL = "all"
CAUSE = "cause:"
"""Begins the name of all circuits that are open, and of all hand-overs that are held, for one reason."""


def tasks_of(engine: Engine, cause: str) -> list[Task]:
    """The tasks whose circuits are open, or that are held as hand-overs, for this reason (`cause:ID`), oldest first.

    Raises UnavailableError.
    """
    found = waiting_because_of(engine.store.report, cause.removeprefix(CAUSE))
    if not found:
        raise UnavailableError(
            f"no task has stopped because of {ascii(cause)[1:-1][:100]}: `mailboxd inbox` lists what is"
        )
    return [task for task_id in found if (task := engine.store.tasks.get(task_id)) is not None]


def tasks_named(engine: Engine, names: Sequence[str]) -> list[Task]:
    """The tasks of a cause (`cause:ID`), or those with these names (see `Report.find`), each once.

    Raises UnavailableError.
    """
    if len(names) == 1 and names[0].startswith(CAUSE):
        return tasks_of(engine, names[0])
    report = engine.store.report
    found = dict.fromkeys(report.find(name) for name in names)
    return [task for task_id in found if (task := engine.store.tasks.get(task_id)) is not None]


def requested(engine: Engine, names: Sequence[str]) -> Iterator[Approval]:
    """The approvals with these names, each once. Raises UnavailableError."""
    report = engine.store.report
    for name in dict.fromkeys(find_approval(report, name) for name in names):
        row = engine.store.approvals.get(name)
        if row is not None:
            yield row


def answer(engine: Engine, task: Task, text: str, user: str) -> list[Event]:
    """Answer the open question of a task; where its spec is asked about, the text is sections of it. Raises Refused."""
    spec = rewritten(task.spec, text) if task.phase is Phase.SPEC_DRAFT else None
    return engine.command(task, Clarification(OPERATOR, text, text == SKIP, spec), user)


def dismiss(engine: Engine, names: Sequence[str], user: str) -> list[Event]:
    """Take rejected files and doubts (see `Messages.to_look_at` and `Doubts.to_look_at`), refused task.md (names of
    tasks) and notices (whom they did not reach) off the inbox; `all`: all.

    Raises UnavailableError.
    """
    found: dict[str, str] = {}
    doubted: dict[str, str] = {}
    dismissed = []
    refused, untold = engine.store.refused_files.to_look_at(), engine.store.untold_notices.to_look_at()
    for name in names:
        for addressee in untold if name == ALL else [name] if name in untold else []:
            data = {"at": engine.now, "to": addressee, "how": f"dismissed by {user}"}
            dismissed.append(Event(Kind.NOTICE_SETTLED, None, data, Role.OPERATOR, user))
            engine.record(dismissed[-1])
        called = engine.store.messages.to_look_at("" if name == ALL else name)
        plans = engine.store.doubts.to_look_at("" if name == ALL else name)
        if not called and not plans and name not in (ALL, *refused, *untold):
            rule = "name a file, a task, or the end of an id; `mailboxd inbox` lists all"
            raise UnavailableError(f"nothing in the inbox is called {ascii(name)[:100]}: {rule}")
        found, doubted = found | called, doubted | plans
        for local_id in refused if name == ALL else [name] if name in refused else []:
            dismissed.append(settled(engine, local_id, "dismissed", user))
            engine.record(dismissed[-1])
    for id_, name in found.items():
        data = {"at": engine.now, "id": id_, "name": name, "by": user}
        dismissed.append(Event(Kind.MESSAGE_DISMISSED, None, data, Role.OPERATOR, user))
        engine.record(dismissed[-1])
    for id_, task in doubted.items():
        data = {"at": engine.now, "id": id_, "by": user}
        dismissed.append(Event(Kind.DOUBT_DISMISSED, task, data, Role.OPERATOR, user))
        engine.record(dismissed[-1])
    return dismissed


def settled(engine: Engine, local_id: str, how: str, user: str = "") -> Event:
    """The event by which nobody has to look at a refused task.md any more."""
    row = engine.store.refused_files.get(local_id)
    data = {"at": engine.now, "local_id": local_id, "file": f"tasks/{local_id}/task.md", "how": how, "by": user}
    role = Role.OPERATOR if user else Role.ORCHESTRATOR
    return Event(Kind.EDIT_SETTLED, row.task if row else None, data, role, user or "mailboxd")


def give(engine: Engine, task: Task, order: OperatorOrder, values: Mapping[str, Any], user: str) -> list[Event]:
    """Give an order with these values of its fields. Raises Refused."""
    if order.input is Clarification:
        return answer(engine, task, values["text"], user)
    return engine.command(task, order.given(values), user)
