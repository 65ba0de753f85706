"""The rows for `mailboxd.ledger.attention`: everything in the database that waits for a person."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mailboxd.core.handovers import is_held, reason_of
from mailboxd.core.vocabulary import FOR_PERSON, NO_SUCH_AGENT
from mailboxd.ledger.conditions import MISSING_AGENTS, NEED, OPEN, WAITING_FOR_PERSON
from mailboxd.ledger.open_tasks import OpenTasks, TaskForPerson, open_tasks
from mailboxd.ledger.reports import Report, Row

if TYPE_CHECKING:
    from mailboxd.core.explain.model import Snapshot

_APPROVALS = (
    "SELECT p.id, lower(substr(p.id, -6)) AS short_id, t.local_id AS task, p.requested_action AS text, p.at,"
    " p.expires_at FROM approvals p JOIN tasks t ON t.id = p.task WHERE p.status = 'pending'"
)
_REJECTED = "FROM messages INDEXED BY messages_rejected WHERE verdict = 'rejected' AND dismissed IS NULL"
_NOTICED = (
    "FROM messages m INDEXED BY messages_noticed LEFT JOIN tasks t ON t.id = m.task"
    f" WHERE m.notice IS NOT NULL AND m.dismissed IS NULL AND (m.at > ? OR ({OPEN}))"
)
"""Doubts about messages; not those about tasks that had ended before the user looked for the first time."""
_DOUBTED = f"FROM doubts d JOIN tasks t ON t.id = d.task WHERE d.dismissed IS NULL AND (d.at > ? OR ({OPEN}))"
"""The same about plans and task.md."""
_REFUSED = (
    "SELECT r.local_id, t.local_id AS task, r.at, r.why, r.line, r.kept_as FROM refused_files r"
    " LEFT JOIN tasks t ON t.id = r.task WHERE r.dismissed IS NULL"
)
_UNTOLD = (
    "SELECT addressee, count(*) AS count, min(at) AS at, max(again) AS again, why FROM untold_notices"
    " WHERE dismissed IS NULL GROUP BY addressee ORDER BY 3, 1"
)
"""Notices that have not reached people, one row for each addressee: one cause holds them up."""
_MISSING = f"SELECT key, value FROM {MISSING_AGENTS} WHERE value NOT LIKE '{NO_SUCH_AGENT}%'"
"""The agents for which tasks wait, and why. Not the own one, which is a trouble of the daemon."""
_ELSEWHERE = ("approval", "subtasks", "agent", "circuit")
"""Needs of tasks that are no items of their own: the decision is, or the subtasks, the agent, the circuit."""
MANY = 3
"""Circuits that are open, or hand-overs that are held, for one reason, from which on they are one item."""
_FAILED = (
    "SELECT id, completed_at FROM tasks t"
    " WHERE phase = 'failed' AND parent IS NULL AND subtask_id IS NULL AND completed_at > ? AND NOT EXISTS"
    " (SELECT 1 FROM events e WHERE e.task = t.id AND e.at = t.completed_at AND e.role = 'operator')"
    " ORDER BY completed_at, seq"
)
"""Failed tasks that are no part of another one, here or at the agent that sent them, and that no person has failed."""


_AT_PEERS = (
    "SELECT t.local_id AS task, a.executor, w.waits_for, w.why, w.at FROM waits_at_peers w"
    " JOIN attempts a ON a.id = w.attempt AND a.status = 'running'"
    " JOIN tasks t ON t.id = a.task AND t.attempt = a.ordinal"
    f" WHERE w.waits_for IN {tuple(sorted(map(str, FOR_PERSON)))} ORDER BY w.at, w.attempt"
)
"""Work that waits at a peer until somebody there acts."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one user has seen of failed tasks: what ended before `since`, and the tasks in `tasks` (id -> end); and the
    files that are not read and were dismissed (path -> time of its latest change). Of finished tasks, what ended
    before `read_since` is read, and so are those in `read` (id -> end).
    """

    since: str
    tasks: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    read_since: str = ""
    read: Mapping[str, str] = field(default_factory=dict)

    def has_file(self, path: str, changed: str) -> bool:
        return self.files.get(path, "") >= changed

    def has(self, task_id: str, ended: str) -> bool:
        return ended <= self.since or self.tasks.get(task_id, "") >= ended

    def has_read(self, task_id: str, ended: str) -> bool:
        return ended <= self.read_since or self.read.get(task_id, "") >= ended


@dataclass(frozen=True, slots=True)
class Waiting:
    """The items that wait for a person: the oldest of each sort, and their number in all."""

    open: OpenTasks
    tasks: Sequence[str]
    """Ids, except of those that only wait for the decisions in `approvals`."""
    agents: Sequence[Row]
    """Agents that are gone and for which several tasks wait: `agent`, `why`, `count`, `at`."""
    circuits: Sequence[Row]
    """Reasons for which many circuits are open: `why`, `count`, `at`, `names`."""
    handed_over: Sequence[Row]
    """Reasons for which many hand-overs are held, in the same form."""
    failed: Sequence[tuple[str, str]]
    """Failed tasks that the user has not seen: their ids, and when they ended."""
    approvals: Sequence[Row]
    rejected: Sequence[Row]
    noticed: Sequence[Row]
    """Doubts about messages, plans and task.md: `name` says which."""
    refused: Sequence[Row]
    """Texts of task.md."""
    untold: Sequence[Row]
    """Notices that have not reached people."""
    at_peers: Sequence[Row]
    """Work that waits at a peer until somebody there acts."""
    snapshot: Snapshot | None
    """The tasks, and what they wait for; None where there is nothing to explain."""
    total: int
    failures: int
    """The failed tasks that the user has not seen; `total` has them, too."""


def waiting_for_person(report: Report, now: str, daemon: int | None, seen: Seen, most: int | None) -> Waiting:
    """The items that wait for a person, at most `most` (None: all) of each sort. Costs O(open tasks)."""
    limit = -1 if most is None else most
    with report.snapshot():
        found = open_tasks(report)
        circuits, alone = _grouped(task for task in found.waiting if task.need == "circuit")
        handed_over, others = _grouped(task for task in found.waiting if _is_handed_over(task))
        one_by_one = {task.id for task in others}
        tasks = [
            task.id
            for task in found.waiting
            if task.need not in _ELSEWHERE and (task.id in one_by_one or not _is_handed_over(task))
        ]
        agents = _missing(report, found)
        approvals = report.rows(f"{_APPROVALS} ORDER BY p.at, p.id LIMIT ?", limit)
        rejected = report.rows(f"SELECT id, name, path, sender, reason, at {_REJECTED} ORDER BY id LIMIT ?", limit)
        noticed = report.rows(
            f"SELECT m.id, m.name, m.sender, m.notice, m.at, t.local_id AS task {_NOTICED} ORDER BY m.id LIMIT ?",
            seen.since,
            limit,
        )
        has_doubts = report.has_table("doubts")
        if has_doubts:
            noticed += report.rows(
                "SELECT d.id, d.about AS name, NULL AS sender, d.text AS notice, d.at, t.local_id AS task"
                f" {_DOUBTED} ORDER BY d.at, d.id LIMIT ?",
                seen.since,
                limit,
            )
        refused = report.rows(f"{_REFUSED} ORDER BY r.at, r.local_id") if report.has_table("refused_files") else []
        untold = report.rows(_UNTOLD) if report.has_table("untold_notices") else []
        at_peers = report.rows(_AT_PEERS) if report.has_table("waits_at_peers") else []
        unseen = unseen_failures(report, seen)
        failed = unseen[:most]
        shown = tasks[:most] + [row["task"] for row in agents if row["count"] == 1] + [task.id for task in alone[:most]]
        explained, snapshot = [*shown, *(task for task, _ in failed)], None
        if explained or report.holds_orders():
            snapshot = report.task_snapshot(explained, now, daemon, neighbours=False)
        listed: tuple[Sized, ...] = (tasks, agents, alone, circuits, handed_over, unseen, refused, untold, at_peers)
        total = sum(map(len, listed)) + report.pending_approvals()
        total += report.db.execute(f"SELECT count(*) {_REJECTED}").fetchone()[0]
        for doubts in (_NOTICED, _DOUBTED) if has_doubts else (_NOTICED,):
            total += report.db.execute(f"SELECT count(*) {doubts}", (seen.since,)).fetchone()[0]
    parsed = [row | {"reason": json.loads(row["reason"] or "{}")} for row in rejected]
    several = [row for row in agents if row["count"] > 1][:most]
    reasons = (circuits[:most], handed_over[:most])
    rest = (noticed[:most], refused[:most], untold[:most], at_peers[:most])
    return Waiting(found, shown, several, *reasons, failed, approvals, parsed, *rest, snapshot, total, len(unseen))


def unseen_failures(report: Report, seen: Seen) -> list[tuple[str, str]]:
    """The failed tasks in the inbox of this user: their ids, and when they ended."""
    ended = report.db.execute(_FAILED, (seen.since,)).fetchall()
    return [(task, at) for task, at in ended if not seen.has(task, at)]


def oldest_unseen(report: Report, seen: Seen) -> str | None:
    """When the oldest failure or doubt came that this user has not seen, so that a later `Seen.since` would hide it."""
    doubts = [_NOTICED, *([_DOUBTED] if report.has_table("doubts") else [])]
    found = [at for _, at in unseen_failures(report, seen)[:1]]
    for letter, doubted in zip("md", doubts, strict=False):
        (at,) = report.db.execute(f"SELECT min({letter}.at) {doubted}", (seen.since,)).fetchone()
        found += [at] if at is not None else []
    return min(found, default=None)


def _is_handed_over(task: TaskForPerson) -> bool:
    """Whether it is held since it was handed over too often; of many such tasks only their reasons are items."""
    return task.need == "hold" and is_held(task.reason)


def _common(task: TaskForPerson) -> str:
    """The reason that it may have in common with others."""
    return reason_of(task.reason) if _is_handed_over(task) else task.reason


def _grouped(tasks: Iterable[TaskForPerson]) -> tuple[list[Row], list[TaskForPerson]]:
    """The reasons for which many of these tasks wait, and the tasks that stand for themselves."""
    reasons: dict[str, list[TaskForPerson]] = {}
    for task in tasks:
        reasons.setdefault(_common(task), []).append(task)
    common = [
        {"why": reason, "count": len(some), "at": some[0].at, "names": [task.local_id for task in some]}
        for reason, some in reasons.items()
        if len(some) >= MANY
    ]
    alone = [task for some in reasons.values() if len(some) < MANY for task in some]
    return common, sorted(alone, key=lambda task: task.at)


def _missing(report: Report, found: OpenTasks) -> list[Row]:
    """The agents that are gone and for which tasks wait, the one first that has been waited for longest."""
    tasks: dict[str, list[TaskForPerson]] = {}
    for task in found.waiting:
        if task.need == "agent":
            tasks.setdefault(task.executor, []).append(task)
    gone = dict(report.db.execute(_MISSING)) if tasks else {}
    return [
        {"agent": agent, "why": gone[agent], "count": len(some), "at": some[0].at, "task": some[0].id}
        for agent, some in tasks.items()
        if agent in gone
    ]


def waiting_because_of(report: Report, cause: str) -> list[str]:
    """The tasks whose circuit is open, or that are held as hand-overs, for this cause (`cause_of`), oldest first."""
    found = [task for task in open_tasks(report).waiting if task.need == "circuit" or _is_handed_over(task)]
    return [task.id for task in found if cause_of(_common(task)) == cause]


def opened_together(report: Report, task_id: str) -> dict[str, str]:
    """The tasks whose circuits were opened for the same reason within ten minutes of this one, this one included: the
    local ids by id, the first in order first. Empty if they are not many.
    """
    sql = (
        "SELECT o.id, o.local_id FROM tasks t JOIN tasks o ON o.phase = t.phase AND o.reason = t.reason AND o.held = ''"
        " AND abs(julianday(o.updated_at) - julianday(t.updated_at)) < 600 / 86400.0"
        " WHERE t.id = ? AND t.phase = 'circuit_open' ORDER BY o.id"
    )
    found = dict(report.db.execute(sql, (task_id,)).fetchall())
    return found if len(found) >= MANY else {}


def cause_of(reason: str) -> str:
    """The name of the cause of open circuits: six characters, the same for all that were opened for this reason."""
    return hashlib.sha256(reason.encode()).hexdigest()[:6]


def need_of(report: Report, task_id: str) -> str | None:
    """Why the task waits for a person, as an `attention.Need`; None if it does not."""
    row = report.db.execute(f"SELECT {NEED} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()
    return None if row is None else row[0]


def asked_of_person(report: Report, most: int) -> list[str]:
    """The tasks, at most so many, whose question is open to a person, the oldest question first."""
    query = f"SELECT w.id FROM {WAITING_FOR_PERSON} w WHERE w.need = 'question' ORDER BY w.updated_at, w.id LIMIT ?"
    return [str(row[0]) for row in report.db.execute(query, (most,))]


@dataclass(frozen=True, slots=True)
class GivenTask:
    """A task that was given to this workspace, in short. `need`: why it waits for a person; empty if it does not."""

    id: str
    local_id: str
    title: str
    phase: str
    has_ended: int
    need: str


def given_tasks(report: Report, since: str, most: int) -> list[GivenTask]:
    """The tasks without a parent that are open or have ended `since`, the latest first, at most so many."""
    query = (
        f"SELECT t.id, t.local_id, t.title, t.phase, t.completed_at IS NOT NULL, coalesce({NEED}, '') FROM tasks t"
        " WHERE t.parent IS NULL AND (t.completed_at IS NULL OR t.completed_at > ?) ORDER BY t.seq DESC LIMIT ?"
    )
    rows = report.db.execute(query, (since, most))
    return [GivenTask(*row) for row in rows]


def failed_at(report: Report, task_id: str) -> str | None:
    """When the task failed; None if it has not."""
    row = report.db.execute("SELECT completed_at FROM tasks WHERE id = ? AND phase = 'failed'", (task_id,)).fetchone()
    return None if row is None else str(row[0])


def failure(report: Report, task_id: str) -> Row | None:
    """The failed task: `id`, `attempt`, `phase` and `completed_at`; None if it has not failed."""
    sql = "SELECT id, attempt, phase, completed_at FROM tasks WHERE id = ? AND phase = 'failed'"
    return next(iter(report.rows(sql, task_id)), None)


def refused(report: Report) -> set[str]:
    """The local ids whose task.md was refused, dismissed or not."""
    rows = report.rows("SELECT local_id FROM refused_files") if report.has_table("refused_files") else []
    return {row["local_id"] for row in rows}


def is_refused(report: Report, local_id: str) -> bool:
    """Whether a text of this task.md was refused and not dismissed."""
    sql = "SELECT 1 FROM refused_files WHERE local_id = ? AND dismissed IS NULL"
    return report.has_table("refused_files") and report.db.execute(sql, (local_id,)).fetchone() is not None


def _is_doubted(report: Report, task_id: str) -> bool:
    """Whether something is doubtful about this task, and was not dismissed."""
    sql = "SELECT 1 FROM messages WHERE task = ?1 AND notice IS NOT NULL AND dismissed IS NULL"
    if report.has_table("doubts"):
        sql += " UNION ALL SELECT 1 FROM doubts WHERE task = ?1 AND dismissed IS NULL"
    return report.db.execute(sql, (task_id,)).fetchone() is not None


def is_untold(report: Report, addressee: str) -> bool:
    """Whether a notice has not reached this addressee and was not dismissed."""
    sql = "SELECT 1 FROM untold_notices WHERE addressee = ? AND dismissed IS NULL"
    return report.has_table("untold_notices") and report.db.execute(sql, (addressee,)).fetchone() is not None


def dismissible(report: Report, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Of these names the failed tasks (id -> end), and those that name something else that can be dismissed."""
    failed, others = {}, []
    for name in names:
        row = report.db.execute(
            "SELECT id, completed_at FROM tasks WHERE local_id = ? AND phase = 'failed'", (name,)
        ).fetchone()
        if row is not None:
            failed[row[0]] = row[1]
        if row is None or is_refused(report, name) or _is_doubted(report, row[0]):
            others.append(name)
    return failed, others


def pending_approval(report: Report, approval_id: str) -> Row | None:
    """The approval; None if it is decided."""
    return next(iter(report.rows(f"{_APPROVALS} AND p.id = ?", approval_id)), None)
