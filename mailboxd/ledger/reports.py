"""Read-only queries for people and scripts; the results are plain JSON values.

A `Report` needs neither configuration nor engine, so `mailboxd status` starts fast and works whatever else is broken.
Each method reads one snapshot while the daemon may be writing. Times are ISO-8601 UTC; results name tasks by local id.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mailboxd.core.sanitize import one_line
from mailboxd.core.vocabulary import TERMINAL, Mode, Phase, WaitsFor, child_status, is_id, state_of, task_status
from mailboxd.errors import DamagedError, UnavailableError, WorldError
from mailboxd.ledger.conditions import BELOW, LABELLED, NEED, OPEN, REASON, RUNNABLE
from mailboxd.ledger.database import connect, other_schema, recreation, schema_version, store_error
from mailboxd.ledger.meta import PEERS, Meta
from mailboxd.ledger.presence import require_database

if TYPE_CHECKING:
    from mailboxd.core.events import Kind
    from mailboxd.core.explain.model import Ending, Snapshot
    from mailboxd.core.explain.overview_details import CallDetails, Memory
    from mailboxd.core.explain.task_details import EventRow, NoticeRow, ReceivedMessage, TaskRow, TreeNode, WaitingTask
    from mailboxd.core.spending import Standing
    from mailboxd.core.standstill import Standstill

Row = dict[str, Any]

RECENT = 10
_CANDIDATES = 10
_LISTED = "`mailboxd ls --all --children` lists all"
_LAST = "\U0010ffff"
SUMMARY = (
    f't.id, t.local_id, t.task_id, t.key, t.title, t.mode, t.phase, {NEED} AS need, t.sender AS "from",'
    " t.executor AS agent, t.attempt,"
    " t.result <> '' AS has_result, t.kids AS children_total, t.kids_completed AS children_completed,"
    f" t.kids_failed AS children_failed, {REASON} AS reason, t.created_at, t.updated_at"
)
"""The columns of `tasks t` for a one-line summary; see `summary`."""


@contextmanager
def opened(path: Path) -> Iterator[Report]:
    """Open a report on the database. Raises UnavailableError if there never was one, WorldError if it is damaged."""
    require_database(path)
    db = connect(path, read_only=True)
    try:
        yield Report(db)
    except sqlite3.Error as error:
        if another := _of_another(db):
            raise WorldError(f"{path}: the database {another}") from error
        found = store_error(error, "cannot be read", path)
        if isinstance(found, DamagedError):
            raise DamagedError(f"{found}; {recreation(path)}") from error
        raise found from error
    finally:
        db.close()


def _of_another(db: sqlite3.Connection) -> str:
    try:
        return other_schema(schema_version(db))
    except WorldError:
        return ""


class Report:
    """Queries on the database of one workspace."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything inside from one snapshot. May be nested."""
        if self.db.in_transaction:
            yield
            return
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            self.db.execute("COMMIT")

    def rows(self, sql: str, *args: object) -> list[Row]:
        cursor = self.db.execute(sql, args)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, values, strict=True)) for values in cursor]

    def has_table(self, name: str) -> bool:
        """Whether the database has this table: one that an earlier mailboxd left has none of the later ones."""
        return self.db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None

    def has_column(self, table: str, name: str) -> bool:
        """Whether the table of this database has the column."""
        sql = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
        return self.db.execute(sql, (table, name)).fetchone() is not None

    def find(self, name: str) -> str:
        """The id of the task with this id or local id, or a unique prefix of one.

        A prefix of a task and its subtasks means the task. Raises UnavailableError.
        """
        if not is_id(name):  # then it is no prefix either
            raise UnavailableError(f"there is no task {ascii(name)[:200]}; {_LISTED}")
        exact = self.db.execute("SELECT id FROM tasks WHERE local_id = ?1 OR id = ?1", (name,)).fetchone()
        if exact is not None:
            return str(exact[0])
        matches = self.beginning(name)
        if not matches:
            raise UnavailableError(self._not_taken(name) or f"there is no task {name}; {_LISTED}")
        top = matches[0]
        if any(not local_id.startswith(f"{top[1]}.") for _, local_id in matches[1:]):
            some = ", ".join(local_id for _, local_id in matches[:8]) + (" ..." if len(matches) > 8 else "")
            raise UnavailableError(f"{name} fits several tasks: {some}; write more of the name")
        return str(top[0])

    def beginning(self, name: str) -> list[tuple[str, str]]:
        """Id and local id of the tasks of which either begins so, at most 1000, those with short names first."""
        rows = self.db.execute(
            "SELECT id, local_id FROM tasks WHERE (local_id >= ?1 AND local_id < ?2) OR (id >= ?1 AND id < ?2)"
            " ORDER BY length(local_id), local_id LIMIT 1000",
            (name, name + _LAST),
        )
        return list(rows)

    def _not_taken(self, name: str) -> str:
        """That, and why, the text which was to start this task was refused; empty if there is none."""
        if not self.has_table("refused_files"):
            return ""
        sql = "SELECT why, line, kept_as, dismissed FROM refused_files WHERE local_id = ? AND task IS NULL"
        if (row := self.db.execute(sql, (name,)).fetchone()) is None:
            return ""
        why, line, kept_as, dismissed = row
        file = f"tasks/{name}/task.md"
        place = "" if why.startswith(f"{file}:") else f"{file}:{line}: " if line else f"{file}: "
        listed = "it was dismissed" if dismissed else "`mailboxd inbox` lists it, with what to do"
        kept = f"its text is kept as {kept_as}"
        return one_line(f"there is no task {name}, for {file} is not taken: {place}{why}; {kept}; {listed}")

    def with_prefix(self, name: str, limit: int) -> list[tuple[str, str]]:
        """Local id and title of tasks whose local id has this prefix, roots first."""
        rows = self.db.execute(
            "SELECT local_id, title FROM tasks WHERE local_id >= ?1 AND local_id < ?2"
            " ORDER BY depth, local_id LIMIT ?3",
            (name, name + _LAST, limit),
        )
        return list(rows)

    def open_roots(self, limit: int | None = None) -> tuple[int, list[TaskRow]]:
        """The number of open root tasks, and the first ones, oldest first."""
        open_ = f"t.parent IS NULL AND {OPEN}"
        rows = self.rows(
            f"SELECT {SUMMARY} FROM tasks t WHERE {open_} ORDER BY t.seq LIMIT ?", -1 if limit is None else limit
        )
        counted = f"SELECT count(*) FROM tasks t INDEXED BY tasks_open_by_sender WHERE {open_}"  # covered by the index
        roots: list[Any] = [summary(row) for row in rows]
        return self.db.execute(counted).fetchone()[0], roots

    def tree(self, task_id: str) -> TreeNode:
        """The task with its descendants: `children` in each, `depends_on` by key.

        `running_since` is the start of its running attempt.
        """
        from mailboxd.core.explain.why import waits_at_peer

        with self.snapshot():
            at_peers = self.has_table("waits_at_peers")
            waits = "w.waits_for, w.why" if at_peers else "NULL AS waits_for, NULL AS why"
            rows = self.rows(
                f"{BELOW} SELECT {SUMMARY}, t.parent, t.result_summary, t.error, t.held, a.started_at AS running_since,"
                f" a.executor, {waits} FROM below b JOIN tasks t ON t.id = b.id"
                " LEFT JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt AND a.status = 'running'"
                f"{' LEFT JOIN waits_at_peers w ON w.attempt = a.id' if at_peers else ''}"
                " ORDER BY t.depth, t.seq",
                task_id,
            )
            needs = self.db.execute(
                f"{BELOW} SELECT d.task, CASE WHEN n.parent IS t.parent THEN n.key ELSE n.local_id END"
                " FROM below b JOIN dependencies d ON d.task = b.id JOIN tasks t ON t.id = d.task"
                " JOIN tasks n ON n.id = d.needs ORDER BY n.seq",
                (task_id,),
            ).fetchall()
        nodes: dict[str, Any] = {}
        above: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
        for row in rows:
            parent = nodes.get(row.pop("parent") or "")
            executor, waits_for, why = (row.pop(name) for name in ("executor", "waits_for", "why"))
            nodes[row["id"]] = node = summary(row, as_child=parent is not None)
            node["waits_at_peer"] = waits_at_peer(executor, WaitsFor(waits_for), why) if waits_for else ""
            above.append((node, parent))
            node |= {"depends_on": [], "children": []}
            if parent is not None:
                parent["children"].append(node)
        for task, need in needs:
            nodes[task]["depends_on"].append(need)
        for node, parent in reversed(above):  # what is below comes first
            if parent is not None and (waits := node["waits_at_peer"]) and not parent["waits_at_peer"]:
                parent["waits_at_peer"] = waits if node["children"] else f"{node['local_id']} {waits}"
        root: TreeNode = nodes[task_id]
        return root

    def events(
        self,
        task_id: str | None = None,
        *,
        tree: bool = False,
        kind: Kind | None = None,
        after: int = 0,
        brief: bool = False,
    ) -> Iterator[EventRow]:
        """Events after number `after`, oldest first: all, those of one task, or with `tree` of its descendants too;
        with `kind` only those of this kind.

        `brief`: their texts do not mention phases that were only passed.
        """
        from mailboxd.ledger.event_log import sentence

        scope = _events_of(task_id, tree=tree, kind=kind)
        cursor = self.db.execute(
            "SELECT e.seq, e.at, e.kind, e.task, t.local_id, e.role, e.actor, e.data, e.hash FROM events e"
            f" LEFT JOIN tasks t ON t.id = e.task WHERE e.seq > ?1{scope} ORDER BY e.seq",
            (after,) if task_id is None else (after, task_id),
        )
        for seq, at, kind, task, name, role, actor, data, digest in cursor:
            text = sentence(kind, task, data, role, actor, name or "", brief=brief)
            yield {
                "seq": seq, "at": at, "kind": kind, "task": name, "task_id": task, "role": role, "actor": actor,
                "text": text, "data": _without_tokens(json.loads(data)), "hash": digest,
            }  # fmt: skip

    def before_latest(self, count: int, task_id: str | None, *, tree: bool, kind: Kind | None = None) -> int:
        """The number after which the latest `count` of these events come."""
        found = self.db.execute(
            f"SELECT e.seq FROM events e WHERE 1{_events_of(task_id, tree=tree, kind=kind)}"
            " ORDER BY e.seq DESC LIMIT 1 OFFSET ?1",
            (count,) if task_id is None else (count, task_id),
        ).fetchone()
        return 0 if found is None else int(found[0])

    def count_events(self, after: int, until: int, task_id: str | None, *, tree: bool, kind: Kind | None = None) -> int:
        """How many events there are after number `after`, up to and with `until`; of whom as in `events`."""
        scope = _events_of(task_id, tree=tree, kind=kind)
        sql = f"SELECT count(*) FROM events e WHERE e.seq > {after:d} AND e.seq <= ?1{scope}"
        return int(self.db.execute(sql, (until,) if task_id is None else (until, task_id)).fetchone()[0])

    def notices(self, task_id: str) -> list[NoticeRow]:
        """Alarms, rejected and doubtful messages about a task, doubts about its plan and task.md, and a refused edit of
        it, oldest first.
        """
        from mailboxd.ledger.event_log import sentence

        rows = self.db.execute(
            "SELECT at, kind, data, role, actor FROM events WHERE task = ?"
            " AND (kind IN ('alarm', 'message.rejected', 'task.doubted')"
            " OR kind = 'message.received' AND json_extract(data, '$.message.notice') IS NOT NULL)"
            " ORDER BY seq DESC LIMIT ?",
            (task_id, RECENT),
        ).fetchall()
        notices: list[NoticeRow] = [
            {"at": at, "text": sentence(kind, task_id, data, role, actor, "")}
            for at, kind, data, role, actor in reversed(rows)
        ]
        return sorted([*notices, *self._refused_edits(task_id)], key=lambda notice: notice["at"])

    def _refused_edits(self, task_id: str) -> list[NoticeRow]:
        if not self.has_table("refused_files"):
            return []
        sql = (
            "SELECT at, 'an edit was refused: ' || why || '; its text is kept as ' || kept_as AS text"
            " FROM refused_files WHERE task = ? AND dismissed IS NULL"
        )
        rows: list[Any] = self.rows(sql, task_id)
        return rows

    def strangers(self, names: Sequence[str]) -> set[str]:
        """Those of these names that are no local ids of tasks. Reads an index only."""
        sql = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT local_id FROM tasks)"
        return {row[0] for row in self.db.execute(sql, (json.dumps(names),))}

    def live(self, names: Sequence[str], most: int) -> set[str]:
        """The first `most` of these local ids whose tasks have not ended."""
        sql = f"SELECT value FROM json_each(?) CROSS JOIN tasks ON local_id = value WHERE {OPEN} LIMIT ?"
        return {row[0] for row in self.db.execute(sql, (json.dumps(names), most))}

    def local_id(self, task_id: str) -> str:
        return str(self.db.execute("SELECT local_id FROM tasks WHERE id = ?", (task_id,)).fetchone()[0])

    def names_below(self, task_id: str) -> set[str]:
        """The local ids of the task and its descendants."""
        rows = self.db.execute(f"{BELOW} SELECT t.local_id FROM below b JOIN tasks t ON t.id = b.id", (task_id,))
        return {row[0] for row in rows}

    def agent(self) -> str | None:
        """The agent of the latest daemon here, which is known also while the configuration is invalid."""
        return Meta(self.db).get("agent")

    def configuration(self) -> str | None:
        """The fingerprint of the configuration that the latest daemon has read; None if it said none."""
        return Meta(self.db).get("configuration")

    def agents(self) -> list[str]:
        """The agents of this OpenClaw, as the latest daemon found; empty if none has."""
        return Meta(self.db).agents()

    def reachable(self, own: str) -> list[str]:
        """The other agents that this one may give work to, by OpenClaw's latest answer."""
        return Meta(self.db).reachable(own)

    def peers(self) -> dict[str, Any]:
        """What OpenClaw answered to the latest daemon about agents and their rules; empty if nothing."""
        return Meta(self.db).peers()

    def refused(self, own: str, agent: str) -> str | None:
        """As `Meta.refused`."""
        return Meta(self.db).refused(own, agent)

    def phase(self, task_id: str) -> str:
        return str(self.db.execute("SELECT phase FROM tasks WHERE id = ?", (task_id,)).fetchone()[0])

    def last_event(self) -> int:
        return int(self.db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def last_event_before(self, moment: str) -> int:
        """The number of the last event before this time. Reads the events from there on."""
        found = self.db.execute("SELECT seq FROM events WHERE at < ? ORDER BY seq DESC LIMIT 1", (moment,)).fetchone()
        return 0 if found is None else int(found[0])

    def last_event_at(self) -> str | None:
        """When something was last recorded."""
        found = self.db.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return None if found is None else str(found[0])

    def phases(self) -> dict[str, int]:
        """The number of tasks in each phase."""
        return dict(self.db.execute("SELECT phase, count(*) FROM tasks GROUP BY phase ORDER BY phase"))

    def messages(self) -> dict[str, int]:
        """The number of judged files, of those in archive/ and rejected/, and of messages sent."""
        row = self.rows(
            "SELECT count(*) FILTER (WHERE direction = 'in') AS judged,"
            " count(*) FILTER (WHERE direction = 'in' AND path IS NOT NULL AND verdict <> 'rejected') AS archived,"
            " count(*) FILTER (WHERE direction = 'in' AND path IS NOT NULL AND verdict = 'rejected') AS rejected,"
            " count(*) FILTER (WHERE direction = 'out') AS sent FROM messages"
        )[0]
        return {name: int(value) for name, value in row.items()}

    def unfiled(self) -> set[str]:
        """Names of judged files that are still in the inbox."""
        return {row[0] for row in self.db.execute("SELECT name FROM messages WHERE path IS NULL")}

    def pending_approvals(self) -> int:
        """The number of pending approvals."""
        return int(self.db.execute("SELECT count(*) FROM approvals WHERE status = 'pending'").fetchone()[0])

    def next_to_change(self) -> list[str]:
        """Ids of tasks that may be the next to change without an operator."""
        found: dict[str, None] = {}
        for sql in (
            # two queries, each in index order: sorting would read all tasks
            f"SELECT id FROM tasks INDEXED BY tasks_open WHERE {OPEN} AND {RUNNABLE}"
            " AND not_before IS NULL ORDER BY seq LIMIT ?",
            f"SELECT id FROM tasks WHERE not_before IS NOT NULL AND {RUNNABLE} ORDER BY not_before, seq LIMIT ?",
            "SELECT task FROM outbox WHERE state = 'pending' AND task <> '' ORDER BY seq LIMIT ?",
            "SELECT id FROM tasks WHERE due IS NOT NULL ORDER BY due LIMIT ?",
        ):
            found |= dict.fromkeys(row[0] for row in self.db.execute(sql, (_CANDIDATES,)))
        return list(found)

    def task_snapshot(self, tasks: Sequence[str], now: str, daemon: int | None, *, neighbours: bool = True) -> Snapshot:
        """These tasks at `now`, for `explain.why`."""
        from mailboxd.ledger import explain_queries  # for what there is to explain, which often is nothing

        with self.snapshot():
            return explain_queries.load(self.db, tasks, now, daemon, neighbours=neighbours)

    def standstill(self) -> Standstill | None:
        """That everything is paused, as the daemon has heard; None: it is not."""
        return Meta(self.db).standstill()

    def endings(self) -> tuple[Ending, ...]:
        """The orders that are held to end a task, the next first."""
        from mailboxd.ledger import explain_queries

        return explain_queries.endings(self.db) if self.holds_orders() else ()

    def holds_orders(self) -> bool:
        """Whether an order to end a task is held."""
        return self.has_table("held_orders") and self.db.execute("SELECT 1 FROM held_orders").fetchone() is not None

    def room(self) -> CallDetails | None:
        """How many calls run, and how many may; `memory` if it prevents more. None before the first daemon."""
        room = Meta(self.db).room()
        if room is None:
            return None
        memory: Memory | None = None
        if room.is_short and room.free_bytes is not None:
            memory = {"free": room.free_bytes, "call": room.call_bytes}
        return {
            "running": len(room.running),
            "most": room.most,
            "most_per_agent": room.per_agent,
            "lane": json.loads(Meta(self.db).get(PEERS) or "{}").get("lane"),
            "memory": memory,
        }

    def limits(self) -> dict[str, int] | None:
        """The limits of the latest daemon, by their names in the configuration; None before the first daemon."""
        return Meta(self.db).limits()

    def spending(self, now: str) -> Standing | None:
        """What is spent of the caps of the day, as the latest daemon counted; None before the first daemon."""
        found = Meta(self.db).spending(now)
        return None if found is None else found[0]

    def received(self, message_id: str) -> ReceivedMessage | None:
        """What became of a received message; None if it was not judged yet."""
        rows: list[Any] = self.rows(
            "SELECT id, verdict, task, reason FROM messages WHERE message_id = ? AND direction = 'in'"
            " ORDER BY id LIMIT 1",
            message_id,
        )
        if not rows:
            return None
        found: ReceivedMessage = rows[0] | {"reason": json.loads(rows[0]["reason"] or "null")}
        return found

    def committed(self, host: str, message_ids: Iterable[str]) -> dict[str, str]:
        """The digests of those of these messages that were received from a host, by their ids.

        Another host may have sent something else under them.

        A rejected one counts only if nothing else came under its id.
        """
        rows = self.db.execute(
            "SELECT message_id, sha256 FROM messages WHERE message_id IN (SELECT value FROM json_each(?1))"
            " AND direction = 'in' AND sha256 IS NOT NULL"
            " AND (sender IS NULL OR substr(lower(sender), 1, length(?2)) = ?2)"
            " ORDER BY verdict <> 'rejected', id DESC",
            (json.dumps(list(message_ids)), f"{host}."),
        )
        return dict(rows.fetchall())

    def executor_of(self, attempt: str) -> str:
        """The agent, or the pool, to which an attempt was given; empty if there is none of this id."""
        found = self.db.execute("SELECT executor FROM attempts WHERE id = ?", (attempt,)).fetchone()
        return "" if found is None else str(found[0])

    def has_ended(self, host: str, message_id: str) -> bool:
        """Whether the work that this message of a host brought is over, and nothing that it ordered is left to do."""
        rows = self.db.execute(
            "SELECT 1 FROM messages m JOIN tasks t ON t.id = m.task WHERE m.message_id = ?1 AND m.direction = 'in'"
            " AND substr(lower(m.sender), 1, length(?3)) = ?3 AND t.phase IN (SELECT value FROM json_each(?2))"
            " AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.task = t.id AND o.state = 'pending')",
            (message_id, json.dumps(sorted(TERMINAL)), f"{host}."),
        )
        return rows.fetchone() is not None

    def given_to_hosts(self) -> list[Row]:
        """The work that agents of other hosts have taken and not finished: message, attempt, task, receiver."""
        return self._given("*.*")

    def given_to_host(self, host: str) -> list[Row]:
        """That which agents of one host have."""
        return self._given(f"{host}.*")

    def _given(self, receivers: str) -> list[Row]:
        return self.rows(
            "SELECT max(m.message_id) AS message_id, m.sha256, m.receiver, a.id AS attempt, a.task"
            " FROM tasks t INDEXED BY tasks_open CROSS JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
            " JOIN messages m ON m.task = a.task AND m.direction = 'out' AND m.type = 'task'"
            f" WHERE {OPEN} AND m.receiver = a.executor AND lower(a.executor) GLOB ?"
            " AND a.status = 'running' AND a.waiting_for IN ('reply', 'answer')"
            " GROUP BY a.id",
            receivers,
        )

    def given(self, tasks: Sequence[str]) -> list[Row]:
        """The latest message with which each of these tasks was given to an agent: message, task, receiver."""
        return self.rows(
            "SELECT max(message_id) AS message_id, task, receiver FROM messages"
            " WHERE task IN (SELECT value FROM json_each(?)) AND direction = 'out' AND type = 'task'"
            " GROUP BY task, receiver",
            json.dumps(tasks),
        )

    def said_to_host(self, host: str, since: str) -> list[Row]:
        """The results, answers and orders that agents of another host have taken, the newest first."""
        return self.rows(
            "SELECT message_id, sha256, receiver, path FROM messages WHERE direction = 'out' AND verdict = 'sent'"
            " AND type NOT IN ('task', 'progress', 'ack') AND lower(receiver) GLOB ? AND at >= ?"
            " ORDER BY id DESC LIMIT 1000",
            f"{host}.*",
            since,
        )

    def over(self, attempts: Iterable[str]) -> set[str]:
        """Those of these attempts whose results are no longer needed."""
        rows = self.db.execute(
            "SELECT a.id FROM attempts a JOIN tasks t ON t.id = a.task"
            " WHERE a.id IN (SELECT value FROM json_each(?)) AND (a.status NOT IN ('running', 'unknown')"
            " OR a.ordinal < t.attempt OR t.phase IN (SELECT value FROM json_each(?)))",
            (json.dumps(list(attempts)), json.dumps(sorted(TERMINAL))),
        )
        return {attempt for (attempt,) in rows}


def _events_of(task_id: str | None, *, tree: bool, kind: Kind | None = None) -> str:
    """The condition on events `e` for one task (?2), with `tree` also for those below it, and for one kind."""
    of_kind = "" if kind is None else f" AND e.kind = '{kind.value}'"
    if task_id is None:
        return of_kind
    below = BELOW.replace("?1", "?2")
    return of_kind + (f" AND e.task IN ({below} SELECT id FROM below)" if tree else " AND e.task = ?2")


def summary(row: Row, *, as_child: bool = False) -> Row:
    """A row of `SUMMARY` with its `state`, and with `status` in place of `has_result`."""
    status = status_of(row, has_result=bool(row.pop("has_result")), as_child=as_child)
    return with_state(row) | {"status": status}


def with_state(row: Row) -> Row:
    """A row with `phase` and `need`, and with the `state` that they are."""
    return row | {"state": state_of(row["phase"], row["need"])}


def status_of(row: Row, *, has_result: bool, as_child: bool = False) -> str:
    """The status that its own task.md shows, or `as_child` that of its parent. Needs phase, mode and attempt."""
    phase, attempted = Phase(row["phase"]), row["attempt"] > 0
    if as_child:
        return child_status(phase, attempted=attempted)
    return task_status(phase, Mode(row["mode"]), attempted=attempted, has_result=has_result)


def _without_tokens(data: Any) -> Any:
    """Hide reply tokens: they authorize replies."""
    if isinstance(data, dict):
        return {name: "(hidden)" if name == "reply_token" else _without_tokens(item) for name, item in data.items()}
    return [_without_tokens(item) for item in data] if isinstance(data, list) else data


# Tasks that wait for an agent.

_SHOWN = f"t.local_id AS task, t.title, t.phase, {NEED} AS need, t.executor AS agent, t.attempt"


_ANY_OR_LABELLED = f"(?1 IS NULL OR {LABELLED.replace('?', '?1')})"


def ready(report: Report, label: str | None, limit: int) -> list[WaitingTask]:
    """Tasks that start as soon as a slot is free, in scheduling order but for ageing; those with the label, if one is
    given.
    """
    sql = (
        f"SELECT {_SHOWN} FROM tasks t WHERE {RUNNABLE} AND {_ANY_OR_LABELLED}"
        " ORDER BY t.priority DESC, t.by_person DESC, t.seq LIMIT ?2"
    )
    rows: list[Any] = [with_state(row) for row in report.rows(sql, label, limit)]
    return rows


def of_executor(report: Report, agent: str, label: str | None, limit: int) -> list[WaitingTask]:
    """The agent's tasks that are ready or executing."""
    rows = report.rows(
        f"SELECT {_SHOWN} FROM tasks t WHERE t.executor = ?2 COLLATE NOCASE AND (({RUNNABLE}) OR t.phase = 'executing')"
        f" AND {_ANY_OR_LABELLED} ORDER BY t.priority DESC, t.seq LIMIT ?3",
        label,
        agent,
        limit,
    )
    found: list[Any] = [with_state(row) for row in rows]
    return found


def at_gates(report: Report, agent: str, label: str | None, gates: tuple[str, ...]) -> list[tuple[str, WaitingTask]]:
    """Tasks, with their ids, at one of `gates` where the agent was asked for a review. A view tells if it still is."""
    marks = ", ".join("?" * len(gates))
    rows = report.rows(
        f"SELECT t.id, {_SHOWN} FROM tasks t WHERE {_ANY_OR_LABELLED} AND t.phase IN ({marks})"
        " AND EXISTS (SELECT 1 FROM review_requests r"
        "  WHERE r.task = t.id AND r.gate = t.phase AND r.reviewer = ? COLLATE NOCASE)"
        " ORDER BY t.priority DESC, t.seq",
        label,
        *gates,
        agent,
    )
    found: list[Any] = [(row.pop("id"), with_state(row)) for row in rows]
    return found
