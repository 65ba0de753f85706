"""Queries for commands and pages: everything about one task, approvals, and lists of tasks, events and messages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from mailboxd.core.events import Kind
from mailboxd.core.json_codec import from_json, to_json
from mailboxd.core.model import Policy, Spec, Stronger, Usage
from mailboxd.core.specs import lint, problems_text
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Join, Mode, Phase, Synthesis, is_id, state_of
from mailboxd.core.votes import Copy, votes_of
from mailboxd.errors import UnavailableError
from mailboxd.ledger.conditions import BELOW, ENDED, LABELLED, NEED, OPEN, REASON, SUITS, in_state
from mailboxd.ledger.policies import Policies
from mailboxd.ledger.prompts import text_of
from mailboxd.ledger.reports import RECENT, SUMMARY, Report, Row, status_of, summary, with_state
from mailboxd.ledger.told import given, told

if TYPE_CHECKING:
    from mailboxd.core.explain.task_details import (
        AncestorRow,
        ApprovalDetails,
        ApprovalRow,
        ArtifactRow,
        AttemptResult,
        AttemptRow,
        BelowCounts,
        CheckRunDetails,
        ChildRow,
        DecidedUnder,
        DependencyRow,
        DoubtRow,
        EventRow,
        HeldOrderRow,
        HistoryLine,
        ListedMessage,
        ListedTask,
        MessageRow,
        PromptFields,
        QuestionRow,
        ReviewRow,
        SpecReport,
        Split,
        Successor,
        TaskDetails,
        TaskFacts,
        TaskRow,
        TurnRow,
        Undo,
        VoteRow,
        WholeMessage,
    )

_TASK = (
    f"t.id, t.local_id, t.task_id, t.subtask_id, t.title, t.mode, t.phase, {NEED} AS need, t.sender, t.executor,"
    " t.runtime, t.key,"
    f" t.depth, {REASON} AS reason, t.error, t.findings, t.notes, t.answer, t.result, t.result_summary,"
    " t.planned_actions,"
    " t.spec, t.policy, t.attempt, t.held, t.spent_tokens, t.spent_usd, t.turns, t.stronger, t.failures,"
    " t.rework, t.stalls, t.circuit_open, t.not_before, t.due, t.broadcast, t.origin,"
    " t.created_at, t.updated_at, t.dispatched_at, t.completed_at, p.local_id AS parent, r.local_id AS root"
)
_AS_IT_IS = (
    "id", "local_id", "task_id", "subtask_id", "title", "mode", "phase", "need", "key", "depth", "parent", "root",
    "runtime", "reason", "error", "findings", "notes", "answer", "result_summary", "not_before", "due",
    "created_at", "updated_at", "dispatched_at", "completed_at",
)  # fmt: skip


def details(report: Report, task_id: str, *, children: bool = True) -> TaskDetails:
    """A task with its attempts, turns, children (possibly many), dependencies, reviews, artifacts, approvals, messages.

    Reply tokens are left out. Raises KeyError for an unknown id.
    """
    with report.snapshot():
        found = report.rows(
            f"SELECT {_TASK} FROM tasks t LEFT JOIN tasks p ON p.id = t.parent LEFT JOIN tasks r ON r.id = t.root"
            " WHERE t.id = ?",
            task_id,
        )
        if not found:
            raise KeyError(task_id)
        return {
            **_task(found[0]),
            "attempts": _attempts(report, task_id),
            "turns": turns(report, task_id),
            "dependencies": _dependencies(report, task_id),
            "children": _children(report, task_id) if children else [],
            "votes": _votes(report, task_id),
            "reviews": _reviews(report, task_id),
            "artifacts": _artifacts(report, task_id),
            "approvals": approvals(report, " WHERE a.task = ?", task_id),
            "messages": _messages(report, task_id),
            "doubts": _doubts(report, task_id),
            "held_orders": list_held_orders(report, task_id),
            "given": given(report, task_id),
            "told": told(report, task_id),
        }


def _task(row: Row) -> TaskFacts:
    policy = _whole(Policy, row["policy"])
    found = {name: row[name] for name in _AS_IT_IS} | {
        "state": state_of(row["phase"], row["need"]),
        "status": status_of(row, has_result=bool(row["result"])),
        "from": row["sender"],
        "reply_to": json.loads(row["origin"]).get("reply_to"),
        "agent": row["executor"],
        "broadcast": bool(row["broadcast"]),
        "spec": _whole(Spec, row["spec"]),
        "policy": policy,
        "results": row["result"],
        "planned_actions": json.loads(row["planned_actions"]),
        "held": row["held"] or None,
        "spent": {
            "usd": row["spent_usd"],
            "tokens": row["spent_tokens"],
            "turns": row["turns"],
            "budget_usd": policy["budget_usd"],
            "budget_tokens": policy["budget_tokens"],
        },
        "escalated": _whole(Stronger, row["stronger"]),
        "circuit": {
            "open": bool(row["circuit_open"]),
            "held_until": row["due"] if row["circuit_open"] else None,
            "failures": row["failures"],
            "max_attempts": policy["max_attempts"],
            "rework": row["rework"],
            "stalls": row["stalls"],
        },
    }
    return cast("TaskFacts", found)


def _whole(kind: Callable[..., Any], text: str) -> Row:
    """A value of the core with its defaults, which the database omits."""
    value = from_json(kind, json.loads(text))
    return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}


def spec_of(report: Report, task_id: str) -> tuple[SpecReport, Spec]:
    """The spec of the task with this id; `lacks` names what is missing."""
    columns = f"t.local_id AS task, t.title, t.phase, {NEED} AS need, t.spec, t.policy"
    row = with_state(report.rows(f"SELECT {columns} FROM tasks t WHERE t.id = ?", task_id)[0])
    policy, text = from_json(Policy, json.loads(row.pop("policy"))), row["spec"]
    spec = from_json(Spec, json.loads(text))
    found = row | {"lacks": problems_text(lint(spec, policy.weak)), "spec": _whole(Spec, text)}
    return cast("SpecReport", found), spec


def _votes(report: Report, task_id: str) -> list[VoteRow]:
    """How the copies voted that decided the outcome of a task, of the subtask whose result is its own, or of those of
    which its result is made; `vote` is the key of what was voted on.
    """
    deciding: str | None = task_id
    while deciding is not None:
        (one,) = report.rows("SELECT id, key, broadcast, mode, policy FROM tasks WHERE id = ?", deciding)
        said = from_json(Policy, json.loads(one["policy"]))
        if one["broadcast"]:
            return _copies(report, one)
        if one["mode"] == Mode.DIRECT:
            return []
        if said.synthesis in tuple(Synthesis):
            polls = report.rows(
                "SELECT id, key, policy FROM tasks WHERE parent = ? AND broadcast = 1 ORDER BY seq", deciding
            )
            return [row for poll in polls for row in _copies(report, poll)]
        found = report.rows("SELECT id FROM tasks WHERE parent = ? AND key = ?", deciding, said.synthesis)
        deciding = found[0]["id"] if found else None
    return []


def _copies(report: Report, poll: Row) -> list[VoteRow]:
    """The votes of the copies of a broadcast; none if not the majority decides."""
    if from_json(Policy, json.loads(poll["policy"])).join is not Join.MAJORITY:
        return []
    rows = report.rows(
        "SELECT key, executor, phase, answer, result FROM tasks WHERE parent = ? ORDER BY seq", poll["id"]
    )
    copies = [Copy(row["key"], row["executor"], Phase(row["phase"]), row["answer"], row["result"]) for row in rows]
    votes: list[Any] = [{"vote": poll["key"]} | asdict(one) for one in votes_of(copies)]
    return votes


def _attempts(report: Report, task_id: str) -> list[AttemptRow]:
    rows: list[Any] = report.rows(
        "SELECT id, ordinal, executor, executor_kind, runtime, worker_ref, status, waiting_for, session_key,"
        " session_ref, run_id, error_summary, usage, question_turns, model, escalated, silent, started_at, finished_at"
        " FROM attempts WHERE task = ? ORDER BY ordinal",
        task_id,
    )
    return [
        row
        | {
            "usage": _whole(Usage, row["usage"]),
            "silent": bool(row["silent"]),
            "seconds": _seconds(row["started_at"], row["finished_at"]),
        }
        for row in rows
    ]


_OF_A_TURN = ("purpose", "agent", "attempt", "outcome", "model", "run", "session", "session_key", "prompt", "usage")


def turns(report: Report, task_id: str) -> list[TurnRow]:
    """The turns of a task, those that have ended and then those that run: what was asked, and by what.

    `number` counts them from 1; `outcome` is None while one runs. What is not reported, or was recorded by an earlier
    version, is None.
    """
    ended = report.rows(
        "SELECT at, json_extract(data, '$.turn') AS turn FROM events WHERE task = ?"
        " AND kind IN ('turn.ended', 'attempt.ended') AND json_extract(data, '$.turn.outcome') IS NOT NULL"
        " ORDER BY seq",
        task_id,
    )
    running = _running_turns(report, task_id) if report.has_table("prompts") else []
    found = [(row["at"], json.loads(row["turn"])) for row in ended]
    for row in running:
        turn = json.loads(row["turn"])
        said = {"purpose": turn["turn"], "attempt": turn["attempt_id"], "prompt": json.loads(row["prompt"])}
        found.append((None, turn | said))
    rows: list[Any] = [
        {"number": number, "at": at} | {name: turn.get(name) for name in _OF_A_TURN}
        for number, (at, turn) in enumerate(found, 1)
    ]
    return rows


def _running_turns(report: Report, task_id: str) -> list[Row]:
    return report.rows(
        "SELECT data AS turn, prompt FROM outbox WHERE task = ? AND kind = 'run_turn' AND state = 'pending'"
        " AND prompt IS NOT NULL ORDER BY seq",
        task_id,
    )


def prompt_of(report: Report, task_id: str, number: int) -> tuple[TurnRow, PromptFields, bytes | None]:
    """A turn of a task, its prompt, and the exact bytes that its agent was given; None if they were not kept.

    Raises UnavailableError if there is no such turn, or nothing was recorded of its prompt.
    """
    known = turns(report, task_id)
    turn = known[number - 1] if 0 < number <= len(known) else None
    if turn is None or turn["prompt"] is None:
        what = "has no turn" if turn is None else "has no record of the prompt of its turn"
        raise UnavailableError(f"the task {what} {number}; it has {len(known)}")
    prompt = turn["prompt"]
    return turn, prompt, text_of(report.db, prompt["sha256"], task_id) if report.has_table("prompts") else None


def _seconds(started_at: str, finished_at: str | None) -> float | None:
    """The duration; None while it runs."""
    return None if finished_at is None else round(to_epoch(finished_at) - to_epoch(started_at), 3)


def _dependencies(report: Report, task_id: str) -> list[DependencyRow]:
    rows = report.rows(
        f"SELECT t.key, t.local_id, t.phase, {NEED} AS need FROM dependencies d JOIN tasks t ON t.id = d.needs"
        " WHERE d.task = ? ORDER BY t.seq",
        task_id,
    )
    needed: list[Any] = [with_state(row) for row in rows]
    return needed


def _children(report: Report, task_id: str) -> list[ChildRow]:
    rows = report.rows(
        f"SELECT t.id, t.local_id, t.key, t.title, t.executor AS agent, t.mode, t.phase, {NEED} AS need, t.attempt,"
        " t.result_summary, t.error, t.dispatched_at, t.completed_at FROM tasks t WHERE t.parent = ? ORDER BY t.seq",
        task_id,
    )
    needs: dict[str, list[str]] = {row["id"]: [] for row in rows}
    for child, key in report.db.execute(
        "SELECT d.task, CASE WHEN n.parent IS t.parent THEN n.key ELSE n.local_id END FROM tasks t"
        " JOIN dependencies d ON d.task = t.id JOIN tasks n ON n.id = d.needs WHERE t.parent = ? ORDER BY n.seq",
        (task_id,),
    ):
        needs[child].append(key)
    children: list[Any] = [
        with_state(row) | {"status": status_of(row, has_result=False, as_child=True), "depends_on": needs[row["id"]]}
        for row in rows
    ]
    return children


def _reviews(report: Report, task_id: str) -> list[ReviewRow]:
    rows: list[Any] = report.rows(
        "SELECT id, gate, round, reviewer, verdict, summary, findings, at, given_at FROM reviews"
        " WHERE task = ? ORDER BY id",
        task_id,
    )
    return [row | {"findings": [_FINDING | one for one in json.loads(row["findings"])]} for row in rows]


_FINDING = {"severity": "", "message": "", "file": None, "line": None, "artifact_uri": None}


def is_unfetched(uri: str, sha256: str) -> bool:
    """Whether an artifact is elsewhere, and nobody has read it yet."""
    return sha256 in ("", _OF_NOTHING) and not uri.startswith(("mailboxd:", "workspace:"))


_OF_NOTHING = hashlib.sha256(b"").hexdigest()


def _artifacts(report: Report, task_id: str) -> list[ArtifactRow]:
    """`sha256` is None of what nobody has fetched, and empty for what has no text; for both, earlier versions recorded
    the hash of no bytes.
    """
    rows: list[Any] = report.rows(
        "SELECT id, kind, uri, sha256, summary, produced_by, at FROM artifacts WHERE task = ? ORDER BY id", task_id
    )
    return [row | {"sha256": _digest_of(row["uri"], row["sha256"])} for row in rows]


def _digest_of(uri: str, sha256: str) -> str | None:
    if is_unfetched(uri, sha256):
        return None
    return "" if sha256 == _OF_NOTHING and uri.startswith("mailboxd:") else sha256


def approvals(report: Report, where: str = "", *values: str) -> list[ApprovalRow]:
    """Approvals, oldest first, with who had approved one that is void now (`approved_by`); `where` is a condition on
    `approvals a JOIN tasks t`.
    """
    rows: list[Any] = report.rows(
        "SELECT a.id, lower(substr(a.id, -6)) AS short_id, t.local_id AS task, a.attempt, a.purpose, a.status, a.state,"
        " a.requested_action, a.side_effect_kind, a.risk, a.digest, a.idempotency_key, a.gate, a.requested_by, a.at,"
        " a.expires_at, a.resolved_by, a.resolved_at, a.note, a.started_at, a.finished_at, a.summary, a.artifact,"
        " (SELECT json_extract(e.data, '$.changes.resolved_by') FROM events e WHERE a.void AND e.task = a.task"
        " AND e.kind = 'approval.resolved' AND json_extract(e.data, '$.approval') = a.id"
        " AND json_extract(e.data, '$.changes.status') = 'approved') AS approved_by,"
        f" a.void, a.origin, a.action, a.preview FROM approvals a JOIN tasks t ON t.id = a.task{where}"
        " ORDER BY a.rowid",
        *values,
    )
    held = {one.approval: {"at": one.due, "by": one.by} for one in report.endings() if one.approval}
    return [
        row | {"action": json.loads(row["action"]), "void": bool(row["void"]), "rejection": held.get(row["id"])}
        for row in rows
    ]


def _messages(report: Report, task_id: str) -> list[MessageRow]:
    rows: list[Any] = report.rows(
        'SELECT id, message_id, direction, type, sender AS "from", receiver AS "to", verdict, verified, name, path, at,'
        f" {_entrance(report)} FROM messages WHERE task = ? ORDER BY id",
        task_id,
    )
    return rows


def _entrance(report: Report) -> str:
    """The columns about how the file of a message came; a database of an earlier version has none of them."""
    names = ("owner_uid", "owner", "came", "claimed")
    return ", ".join(names if report.has_column("messages", "came") else (f"NULL AS {name}" for name in names))


def _doubts(report: Report, task_id: str) -> list[DoubtRow]:
    """What its messages and plans, and refused texts of its task.md, may have meant; `dismissed` is when a person had
    seen it.
    """
    said = (
        "SELECT id, at, name || ': ' || notice AS text, dismissed FROM messages WHERE task = ?1 AND notice IS NOT NULL"
    )
    if report.has_table("refused_files"):
        said += (
            " UNION ALL SELECT local_id, at, 'an edit was refused: ' || why || '; kept as ' || kept_as, dismissed"
            " FROM refused_files WHERE task = ?1"
        )
    if report.has_table("doubts"):
        said += " UNION ALL SELECT id, at, about || ': ' || text, dismissed FROM doubts WHERE task = ?1"
    rows: list[Any] = report.rows(f"{said} ORDER BY at", task_id)
    return rows


# Approvals by short id, with what was asked, decided and done.

_SHORTEST = 6
_NAME = re.compile(r"[0-9A-Za-z_]{3,40}")
_CALLED = f"upper(substr(a.id, -max(length(?1), {_SHORTEST}), length(?1))) = upper(?1)"
"""An approval whose id ends so, or whose short id begins so."""
_SHOWN = 8
_KINDS = (
    "approval.requested",
    "approval.resolved",
    "action.started",
    "action.delayed",
    "action.ended",
    "undo.requested",
)


def find_approval(report: Report, name: str) -> str:
    """The id of the approval with this id, suffix or unique beginning of the short id, ignoring case, or the only one
    that its task asks for, which is named as for `Report.find`.

    Of a task, pending requests count before others. Raises UnavailableError.
    """
    if is_id(name) and (task := find_exact(report, name)) is not None:
        return _only_approval(report, task, name)
    rows = _called(report, name) if _NAME.fullmatch(name) else []
    if is_id(name) and (tasks := report.beginning(name)):
        if not rows:
            return _only_approval(report, report.find(name), name)
        if len(name) < _SHORTEST:
            request = rows[0]["id"][-_SHORTEST:].lower()
            raise UnavailableError(f"{name} fits the task {tasks[0][1]} and the request {request}; write more of it")
    if _NAME.fullmatch(name) is None:
        raise UnavailableError(
            f"{ascii(name)[:100]} names no approval: write its short id, like 3f9k2q, or more of the end of its id, "
            "or the task that asks; `mailboxd approve` lists them"
        )
    exact = [row for row in rows if row["id"].upper() == name.upper()]
    if len(exact or rows) == 1:
        return str((exact or rows)[0]["id"])
    if not rows:
        raise UnavailableError(f"there is no approval {name}; `mailboxd approve --history` lists them")
    some = "; ".join(f"{row['id']} ({row['local_id']}, {row['status']})" for row in rows[:_SHOWN])
    more = " ..." if len(rows) > _SHOWN else ""
    raise UnavailableError(f"{name} fits several approvals: {some}{more}; write more of the id")


def is_request(report: Report, name: str) -> bool:
    """Whether an approval's id ends so, or its short id begins so."""
    return _NAME.fullmatch(name) is not None and bool(_called(report, name))


def _called(report: Report, name: str) -> list[Row]:
    """The approvals that may be meant by this name, the oldest first."""
    return report.rows(
        "SELECT a.id, t.local_id, a.status, a.requested_action FROM approvals a JOIN tasks t ON t.id = a.task"
        f" WHERE {_CALLED} ORDER BY a.rowid LIMIT ?2",
        name,
        _SHOWN + 1,
    )


def _only_approval(report: Report, task: str, name: str) -> str:
    """The request of a task: its pending one, or if none is, its only one. Raises UnavailableError."""
    rows = approvals(report, " WHERE a.task = ?1", task)
    chosen = [row for row in rows if row["status"] == "pending"] or rows
    if not chosen:
        raise UnavailableError(f"{name} has not asked for an approval; `mailboxd approve` lists those that have")
    if len(chosen) > 1:
        some = "; ".join(f"{row['short_id']} ({row['requested_action']})" for row in chosen[:_SHOWN])
        raise UnavailableError(f"{name} has {len(chosen)} requests: {some}; name one by its id")
    return str(chosen[0]["id"])


def list_approvals(report: Report, *, everything: bool = False, task_id: str | None = None) -> list[ApprovalRow]:
    """Pending approvals, or with `everything` all, oldest first; of one task and its descendants if given."""
    where, args = [] if everything else ["a.status = 'pending'"], []
    if task_id is not None:
        where.append(f"a.task IN ({BELOW} SELECT id FROM below)")
        args.append(task_id)
    return approvals(report, f" WHERE {' AND '.join(where)}" if where else "", *args)


def approval_report(report: Report, approval_id: str) -> ApprovalDetails:
    """An approval: `taken_back` are the requests to undo it, `history` its events, `policy` the configuration under
    which it was decided: the number of its event, and its fields; None before that, or if it is not recorded.
    """
    with report.snapshot():
        row = approvals(report, " WHERE a.id = ?1", approval_id)[0]
        undone = approvals(report, " WHERE a.origin = ?1 AND a.purpose = 'undo'", approval_id)
        task = report.rows("SELECT task FROM approvals WHERE id = ?", approval_id)[0]["task"]
        events = [
            event
            for event in report.events(task)
            if event["kind"] in _KINDS and _about(event["data"]["approval"]) == approval_id
        ]
        decided = [event["data"] for event in events if event["kind"] == "approval.resolved"]
        seq = decided[-1].get("policy") if decided else None  # the latest: an approval may have become void
        policy: DecidedUnder | None = None
        if seq is not None:
            policy = {"event": seq, "fields": Policies(report.db).at(seq).fields}
    history: list[HistoryLine] = [
        {"at": event["at"], "kind": event["kind"], "actor": event["actor"], "text": event["text"]} for event in events
    ]
    short: list[Undo] = [
        {
            "id": one["id"], "short_id": one["short_id"], "status": one["status"], "state": one["state"],
            "summary": one["summary"],
        } for one in undone
    ]  # fmt: skip
    return {**row, "taken_back": short, "history": history, "policy": policy}


def _about(named: str | Row) -> str:
    return named if isinstance(named, str) else str(named["id"])


def approvals_with_prefix(report: Report, incomplete: str, limit: int) -> list[tuple[str, str]]:
    """Short ids of pending approvals with this prefix, each with its action."""
    rows = report.db.execute(
        "SELECT lower(substr(id, -?3)), requested_action FROM approvals WHERE status = 'pending'"
        " AND lower(substr(id, -?3, length(?1))) = lower(?1) ORDER BY rowid LIMIT ?2",
        (incomplete, limit, _SHORTEST),
    )
    return list(rows)


# Pages of tasks, events, results and messages.

_PAGE_SUMMARY = f"{SUMMARY}, t.error, t.result_summary, t.parent, t.spent_usd, t.spent_tokens"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks to list; empty fields match any. `words` must occur in name or title; `parent` is an id.

    `state` is one of the four words or of the kinds of done (`vocabulary.STATES`).

    Without any field only root tasks, unless `children` is set.
    """

    state: str = ""
    phase: str = ""
    agent: str = ""
    label: str = ""
    words: str = ""
    parent: str = ""
    children: bool = False
    names: tuple[str, ...] | None = None
    """Local ids; None: any."""
    ids: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    """Local ids."""
    suits: str = ""
    """Only those for which this order of `conditions.SUITS` makes sense."""

    @property
    def narrows(self) -> bool:
        """Whether it asks for more than all root tasks, so that subtasks are among what is found."""
        return bool(self.state or self.phase or self.agent or self.label or self.words or self.names is not None)


def list_tasks(
    report: Report, wanted: Filter, *, limit: int | None = None, offset: int = 0
) -> tuple[list[ListedTask], int]:
    """A page of tasks, open ones first and then by last change, and the total number.

    Without a limit: all open ones, and the 10 that ended last.
    """
    where, args = ["1"], []
    if wanted.parent:
        where.append("t.parent = ?")
        args.append(wanted.parent)
    elif not (wanted.children or wanted.narrows):
        where.append("t.parent IS NULL")
    if wanted.state:
        where.append(in_state(wanted.state))
    if wanted.phase:
        where.append("t.phase = ?")
        args.append(wanted.phase)
    if wanted.agent:
        where.append("t.executor = ? COLLATE NOCASE")
        args.append(wanted.agent)
    if wanted.label:
        where.append(LABELLED)
        args.append(wanted.label)
    if wanted.names is not None:
        where.append("t.local_id IN (SELECT value FROM json_each(?))")
        args.append(json.dumps(wanted.names))
    if wanted.ids is not None:
        where.append("t.id IN (SELECT value FROM json_each(?))")
        args.append(json.dumps(wanted.ids))
    if wanted.without:
        where.append("t.local_id NOT IN (SELECT value FROM json_each(?))")
        args.append(json.dumps(wanted.without))
    if wanted.suits:
        where.append(SUITS[wanted.suits])
    for word in wanted.words.split()[:8]:
        where.append("(instr(lower(t.title), ?) OR instr(lower(t.local_id), ?))")
        args += [word.lower(), word.lower()]
    kept = " AND ".join(where)
    with report.snapshot():
        count = f"SELECT count(*), count(*) FILTER (WHERE {OPEN}) FROM tasks t WHERE {kept}"
        total, open_count = report.db.execute(count, args).fetchone()
        order = f"t.phase IN {ENDED}, t.updated_at DESC, t.seq DESC"
        sql = f"SELECT {_PAGE_SUMMARY} FROM tasks t WHERE {kept} ORDER BY {order} LIMIT ? OFFSET ?"
        rows = report.rows(sql, *args, open_count + RECENT if limit is None else limit, offset)
    listed: list[Any] = [summary(row, as_child=row["parent"] is not None) for row in rows]
    return listed, total


def find_exact(report: Report, name: str) -> str | None:
    """The id of the task with exactly this local id or id."""
    row = report.db.execute("SELECT id FROM tasks WHERE local_id = ?1 OR id = ?1", (name,)).fetchone()
    return None if row is None else str(row[0])


def sent_before(report: Report, sender: str, task_id: str) -> TaskRow | None:
    """The task that this sender calls so."""
    where = "t.task_id = ? AND t.subtask_id IS NULL AND t.sender = ? AND t.parent IS NULL"
    rows: list[Any] = [
        summary(row) for row in report.rows(f"SELECT {SUMMARY} FROM tasks t WHERE {where}", task_id, sender)
    ]
    return rows[0] if rows else None


def titles(report: Report, names: Collection[str]) -> dict[str, str]:
    """The titles of the tasks with these local ids."""
    rows = report.db.execute(
        "SELECT local_id, title FROM tasks WHERE local_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(names)),),
    )
    return dict(rows.fetchall())


def list_agents(report: Report, limit: int) -> list[str]:
    """The agents that have or had tasks here."""
    rows = report.db.execute("SELECT DISTINCT executor FROM tasks ORDER BY executor LIMIT ?", (limit,))
    return [row[0] for row in rows]


def ancestors(report: Report, task_id: str) -> list[AncestorRow]:
    """The ancestors of a task, the root first."""
    rows: list[Any] = report.rows(
        "WITH RECURSIVE above (id, step) AS (SELECT parent, 1 FROM tasks WHERE id = ? UNION ALL"
        " SELECT t.parent, step + 1 FROM above a JOIN tasks t ON t.id = a.id WHERE t.parent IS NOT NULL)"
        " SELECT t.local_id, CASE WHEN t.key = '' THEN t.local_id ELSE t.key END AS key, t.title FROM above a"
        " JOIN tasks t ON t.id = a.id ORDER BY step DESC",
        task_id,
    )
    return rows


def latest_events(report: Report, task_id: str | None, limit: int, offset: int = 0) -> list[EventRow]:
    """The last events of a task, or of all, latest first, without the `offset` last ones; reply tokens are hidden."""
    after = report.before_latest(offset + limit, task_id, tree=False)
    some = count_events(report, task_id) - offset if offset and task_id else limit
    return list(islice(report.events(task_id, after=after), min(limit, max(some, 0))))[::-1]


_AFTER_QUESTION = (
    "SELECT a.{} FROM events a WHERE a.task = q.task AND a.seq > q.seq AND (a.kind IN"
    " ('question.asked', 'attempt.ended') OR"
    " coalesce(json_extract(a.data, '$.attempt_changes.waiting_for'), '') NOT IN ('', 'answer')) ORDER BY a.seq LIMIT 1"
)
"""What ended a question (`q`): another one, or that the attempt goes on."""


def questions(report: Report, task_id: str, limit: int) -> list[QuestionRow]:
    """The last questions that the task asked, oldest first: when, whom and what; and who ended each by an answer, when
    (`by`, `ended_at`; None while it is open, and for one that another followed).
    """
    goes_on = f"({_AFTER_QUESTION.format('kind')}) NOT IN ('question.asked', 'attempt.ended')"
    rows: list[Any] = report.rows(
        "SELECT q.at, json_extract(q.data, '$.to') AS \"to\", json_extract(q.data, '$.text') AS text,"
        f" CASE WHEN {goes_on} THEN ({_AFTER_QUESTION.format('actor')}) END AS by,"
        f" CASE WHEN {goes_on} THEN ({_AFTER_QUESTION.format('at')}) END AS ended_at"
        " FROM events q WHERE q.task = ? AND q.kind = ? ORDER BY q.seq DESC LIMIT ?",
        task_id,
        Kind.QUESTION_ASKED,
        limit,
    )
    return rows[::-1]


_MOST_BELOW = 5_000
"""Open tasks below one that are looked at for what needs a person."""


def needing_below(report: Report, task_id: str, limit: int) -> tuple[list[str], int]:
    """The open tasks below this one that wait for a person themselves, oldest first, and their number."""
    rows = report.db.execute(
        f"WITH RECURSIVE below (id) AS (SELECT c.id FROM tasks c WHERE c.parent = ?1 AND {_OPEN_CHILD}"
        f" UNION ALL SELECT c.id FROM below b JOIN tasks c ON c.parent = b.id WHERE {_OPEN_CHILD} LIMIT {_MOST_BELOW})"
        f" SELECT t.id, {NEED} AS need FROM below JOIN tasks t ON t.id = below.id"
        " WHERE need IS NOT NULL AND need <> 'subtasks' ORDER BY t.updated_at, t.seq",
        (task_id,),
    ).fetchall()
    return [row[0] for row in rows[:limit]], len(rows)


_OPEN_CHILD = OPEN.replace("phase", "c.phase")


def progress(report: Report, task_id: str) -> BelowCounts:
    """How far the work below a task is."""
    found: list[Any] = report.rows(
        "WITH RECURSIVE split (id, kids, done, failed, cancelled) AS (SELECT id, kids, kids_completed, kids_failed,"
        " kids_cancelled FROM tasks WHERE id = ? UNION ALL SELECT t.id, t.kids, t.kids_completed, t.kids_failed,"
        " t.kids_cancelled FROM split s JOIN tasks t ON t.parent = s.id WHERE t.kids > 0)"
        " SELECT coalesce(sum(kids), 0) AS total, coalesce(sum(done), 0) AS done, coalesce(sum(failed), 0) AS failed,"
        " coalesce(sum(cancelled), 0) AS cancelled FROM split",
        task_id,
    )
    row: BelowCounts = found[0]
    return row


def split(report: Report, task_id: str) -> Split:
    """How many subtasks the task has (`children_total`), and since when (`children_since`)."""
    found: list[Any] = report.rows(
        "SELECT t.kids AS children_total, (SELECT c.created_at FROM tasks c WHERE c.parent = t.id ORDER BY c.seq"
        " LIMIT 1) AS children_since FROM tasks t WHERE t.id = ?",
        task_id,
    )
    row: Split = found[0]
    return row


def list_held_orders(report: Report, task_id: str | None = None) -> list[HeldOrderRow]:
    """The orders that are held for some seconds, oldest first: all, or those about one task."""
    if not report.has_table("held_orders"):
        return []
    rows: list[Any] = report.rows(
        "SELECT h.id, h.name, h.approval, h.by, h.at, h.due, t.local_id AS task, t.title FROM held_orders h"
        " JOIN tasks t ON t.id = h.task WHERE ?1 IS NULL OR h.task = ?1 ORDER BY h.due, h.id",
        task_id,
    )
    return rows


def count_events(report: Report, task_id: str) -> int:
    return int(report.db.execute("SELECT count(*) FROM events WHERE task = ?", (task_id,)).fetchone()[0])


def list_results(report: Report, task_id: str, limit: int, most: int) -> list[AttemptResult]:
    """The results of the last `limit` attempts, oldest first, each cut at `most` characters."""
    rows: list[Any] = report.rows(
        "SELECT r.id, a.ordinal, r.produced_by, r.at, substr(r.body, 1, ?) AS body, length(r.body) AS length"
        " FROM artifacts r LEFT JOIN attempts a ON a.id = r.attempt"
        " WHERE r.task = ? AND r.kind = 'primary_output' ORDER BY r.id DESC LIMIT ?",
        most,
        task_id,
        limit,
    )
    return rows[::-1]


def list_check_runs(report: Report, task_id: str, limit: int) -> list[CheckRunDetails]:
    """Results of the spec's checks, latest first."""
    rows: list[Any] = report.rows(
        "SELECT c.id, c.verdict, c.summary, c.at, a.ordinal FROM check_runs c LEFT JOIN attempts a ON a.id = c.attempt"
        " WHERE c.task = ? ORDER BY c.at DESC, c.id LIMIT ?",
        task_id,
        limit,
    )
    return rows


def find_message(report: Report, row_id: str) -> tuple[WholeMessage, bytes | None] | None:
    """A message by the id of its row, with its bytes; None if they were not kept."""
    rows: list[Any] = report.rows(
        'SELECT m.id, m.message_id, m.direction, m.type, m.sender AS "from", m.receiver AS "to", m.verdict, m.verified,'
        " m.signer, m.name, m.path, m.size, m.reason, m.dismissed, m.at, t.local_id AS task, b.raw,"
        f" {_entrance(report)} FROM messages m"
        " LEFT JOIN tasks t ON t.id = m.task LEFT JOIN bodies b ON b.message = m.id AND m.direction = 'in'"
        " WHERE m.id = ?",
        row_id,
    )
    if not rows:
        return None
    raw: bytes | None = rows[0].pop("raw")
    return rows[0] | {"reason": json.loads(rows[0]["reason"] or "null")}, raw


def successor(report: Report, row_id: str) -> Successor | None:
    """The message that was accepted in place of a rejected one."""
    rows: list[Any] = report.rows(
        "SELECT n.id, coalesce(t.local_id, '') AS task, coalesce(t.title, '') AS title FROM messages m"
        " JOIN messages n ON n.rowid > m.rowid AND n.at = m.dismissed AND n.direction = 'in' AND n.verdict = 'accepted'"
        " AND (n.name = m.name OR n.task_id = m.task_id) LEFT JOIN tasks t ON t.id = n.task"
        " WHERE m.id = ? AND m.verdict = 'rejected' ORDER BY n.rowid LIMIT 1",
        row_id,
    )
    return rows[0] if rows else None


def list_messages(report: Report, *, limit: int, offset: int = 0, verdict: str = "") -> tuple[list[ListedMessage], int]:
    """A page of messages, latest first, and the total number; `verdict` narrows them."""
    where, args = ("m.verdict = ?", [verdict]) if verdict else ("1", [])
    total = int(report.db.execute(f"SELECT count(*) FROM messages m WHERE {where}", args).fetchone()[0])
    rows: list[Any] = report.rows(
        'SELECT m.id, m.direction, m.type, m.sender AS "from", m.receiver AS "to", m.verdict, m.name, m.at,'
        f" t.local_id AS task FROM messages m LEFT JOIN tasks t ON t.id = m.task WHERE {where}"
        " ORDER BY m.at DESC, m.id DESC LIMIT ? OFFSET ?",
        *args,
        limit,
        offset,
    )
    return rows, total
