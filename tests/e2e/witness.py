"""An independent witness: reads a database, the files and the ledger, and says which promises are broken.

Imports nothing of mailboxd and trusts none of its code: the hash chain, the fold of the events, the order of starts and
the count of executions are all worked out here again, from the protocol (sections 4, 6 and 7) alone.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_ENDED = frozenset({"completed", "failed", "cancelled"})
_REOPENS = frozenset(
    {
        *("operator: retry", "operator: retry, it had not started", "dispatched again"),
        *("the sender dispatched it again", "the sender dispatched it again, it had not started"),
    }
)
_WAITS_FOR_SOMEBODY = frozenset({"answer", "reply", "children"})


def complaints(workspaces: Iterable[Path], ledger: Path | None = None, *, at_rest: bool = True) -> list[str]:
    """Everything that is not as promised, one sentence each; empty when all of it holds.

    `at_rest`: the daemons have ended and had nothing left to do. Without it only what holds at any moment is asked.
    """
    found: list[str] = []
    cases = [Case.load(root) for root in workspaces]
    for case in cases:
        found += [f"{case.root.name}: {problem}" for problem in _of_one(case, at_rest)]
    if ledger is not None:
        found += _executions(cases, parse_run(ledger))
    return found


def _of_one(case: Case, at_rest: bool) -> Iterator[str]:
    yield from chain(case)
    if at_rest:
        yield from _journal(case)
    yield from fold(case)
    yield from starts(case)
    yield from _ends(case)
    yield from _mail(case, at_rest)
    if at_rest:
        yield from _liveness(case)
        yield from _litter(case)


@dataclass
class Case:
    """What one workspace says of itself: its tables, and its directory."""

    root: Path
    events: list[Row]
    tables: dict[str, list[Row]]
    bodies: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path) -> Case:
        path = root / ".mailboxd" / "mailboxd.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            db.execute("BEGIN")
            names = ("tasks", "attempts", "dependencies", "messages", "outbox", "breakers", "meta")
            tables = {name: [dict(row) for row in db.execute(f"SELECT * FROM v_{name}")] for name in names}
            events = [dict(row) for row in db.execute("SELECT * FROM v_events ORDER BY seq")]
            bodies = {row[0]: row[1] for row in db.execute("SELECT message, raw FROM v_bodies")}
        return cls(root, events, tables, bodies)

    def rows(self, table: str) -> list[Row]:
        return self.tables[table]

    @property
    def mailbox(self) -> Path:
        return self.root / "mailbox"

    def data(self, *kinds: str) -> Iterator[tuple[Row, dict[str, Any]]]:
        """The events of these kinds, each with its payload."""
        for event in self.events:
            if event["kind"] in kinds:
                yield event, json.loads(event["data"])


# ---------------------------------------------------------------- 6: the log


def digest(before: str, row: Sequence[object]) -> str:
    """The hash of an event: of the hash before it and of its columns."""
    return hashlib.sha256(json.dumps([before, *row], ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def chain(case: Case) -> Iterator[str]:
    before = "0" * 64
    for number, event in enumerate(case.events, 1):
        row = [event[name] for name in ("seq", "at", "kind", "task", "role", "actor", "data")]
        if event["seq"] != number:
            yield f"the log has a gap before event {event['seq']}"
            return
        if digest(before, row) != event["hash"]:
            yield f"event {number} is not what was recorded"
            return
        before = event["hash"]


def fold(case: Case) -> Iterator[str]:
    """State is the fold of the log: tasks, attempts and messages made again from nothing but events."""
    tasks: dict[str, Row] = {}
    attempts: dict[str, Row] = {}
    messages: dict[str, Row] = {}
    for event in case.events:
        data = json.loads(event["data"])
        match event["kind"]:
            case "task.created":
                tasks[event["task"]] = dict(data["task"])
            case "attempt.started":
                attempts[data["attempt"]["id"]] = dict(data["attempt"])
            case "message.received" | "message.rejected" | "message.sent":
                messages[data["message"]["id"]] = {**data["message"], "task": event["task"], "at": data["at"]}
            case "message.filed":
                messages[data["id"]]["path"] = data["path"]
            case "message.undelivered":
                messages[data["id"]]["verdict"] = "undelivered"
        if event["kind"].startswith(("task.", "attempt.", "turn.")) and "changes" in data:
            if event["task"] not in tasks:
                yield f"event {event['seq']} changes {event['task']}, which was never created"
                continue
            tasks[event["task"]] |= {"updated_at": data["at"], **data["changes"]}
        if "attempt_changes" in data:
            attempts[data["attempt"]] |= data["attempt_changes"]
    for table, folded in (("tasks", tasks), ("attempts", attempts), ("messages", messages)):
        yield from _compare(table, case.rows(table), folded)


def _compare(table: str, stored: list[Row], folded: Mapping[str, Row]) -> Iterator[str]:
    names = {row["id"] for row in stored}
    if names != set(folded):
        yield f"{table}: the log knows {len(folded)} rows, the table has {len(names)}"
    for row in stored:
        for name, value in folded.get(row["id"], {}).items():
            if name in row and _plain(row[name]) != _plain(value):
                yield f"{table} {row['id']}: {name} is {row[name]!r}, the events add up to {value!r}"


def _plain(value: Any) -> Any:
    """SQLite keeps a structure as JSON text and a truth value as a number."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


# ---------------------------------------------------------------- 9 and 10: order


def starts(case: Case) -> Iterator[str]:
    """A task starts when what it needs is completed and its parent executes; it has one live attempt at most."""
    phases: dict[str, str] = {}
    parents: dict[str, str | None] = {}
    needs: dict[str, list[str]] = {}
    met: dict[str, tuple[str, ...]] = {}
    live: Counter[str] = Counter()
    task_of: dict[str, str] = {}
    for event in case.events:
        task, data = event["task"], json.loads(event["data"])
        if task not in phases and event["kind"] != "task.created":
            continue  # of no task, or of one whose first event is missing
        match event["kind"]:
            case "task.created":
                phases[task] = data["task"]["phase"]
                parents[task], needs[task] = data["task"].get("parent"), data["needs"]
                joins = data["task"].get("flow", {}).get("needs_any", False)
                met[task] = ("completed", "cancelled") if joins else ("completed",)
            case "task.needs_changed":
                needs[task] = data["needs"]
            case "attempt.started":
                task_of[data["attempt"]["id"]] = task
                live[task] += 1
                waits = [need for need in needs[task] if phases.get(need) not in met[task]]
                if waits:
                    yield f"event {event['seq']}: {task} started before {waits} were completed"
                if parents[task] and phases[parents[task] or ""] != "executing":
                    yield f"event {event['seq']}: {task} started although its parent was not executing"
                if live[task] > 1:
                    yield f"event {event['seq']}: {task} has {live[task]} live attempts"
            case "attempt.ended":
                live[task_of[data["attempt"]]] -= 1
        for step in data.get("passed", ()):
            if phases[task] != step["from"]:
                yield f"event {event['seq']}: {task} leaves {step['from']}, but is {phases[task]}"
            phases[task] = step["to"]


def _ends(case: Case) -> Iterator[str]:
    for event in case.events:
        for step in json.loads(event["data"]).get("passed", ()):
            if step["from"] in _ENDED and step["trigger"] not in _REOPENS:
                yield f"event {event['seq']}: {event['task']} left {step['from']} by {step['trigger']!r}"


# ---------------------------------------------------------------- 1 to 3: mail


def _mail(case: Case, at_rest: bool) -> Iterator[str]:
    arrived = [row for row in case.rows("messages") if row["direction"] == "in"]
    known: Counter[str] = Counter(row["path"] for row in case.rows("messages") if row["path"])
    yield from (f"two messages say that they lie at {path}" for path, times in known.items() if times > 1)
    for row in arrived:
        yield from _arrival(case, row, at_rest)
    if at_rest:
        recorded = {row["path"] for row in arrived}
        yield from (f"{path} is known to nobody" for path in sorted(set(_files(case.mailbox)) - recorded))
    for row in case.rows("messages"):
        if row["direction"] == "out" and not (case.mailbox / row["path"]).is_file():
            yield f"{row['path']} was sent and is gone"
        elif row["direction"] == "out" and _sha256(case.mailbox / row["path"]) != row["sha256"]:
            yield f"{row['path']} is not what was sent"


def _arrival(case: Case, row: Row, at_rest: bool) -> Iterator[str]:
    what = f"{row['name']} ({row['id']})"
    place = "rejected/" if row["verdict"] == "rejected" else "archive/"
    if row["path"] is None:
        if at_rest:
            yield f"{what} was judged and never filed"
        return
    if not row["path"].startswith(place):
        yield f"{what} was {row['verdict']} and lies at {row['path']}"
    path = case.mailbox / row["path"]
    if not path.exists() and not path.is_symlink():
        yield f"{what}: {row['path']} is gone"
        return
    if row["verdict"] == "rejected" and not (path.parent / f"{path.name}.reason.json").is_file():
        yield f"{what}: no reason beside {row['path']}"
    if row["sha256"] is not None:
        if hashlib.sha256(case.bodies.get(row["id"], b"")).hexdigest() != row["sha256"]:
            yield f"{what}: the bytes in the database are not those that were judged"
        if _sha256(path) != row["sha256"]:
            yield f"{what}: {row['path']} has other bytes than were judged"


def _files(mailbox: Path) -> Iterator[str]:
    """What lies in the archive (by day) and in rejected/, where it may be anything."""
    yield from (
        str(path.relative_to(mailbox)) for path in (mailbox / "archive").glob("2*/*") if path.name != "INDEX.md"
    )
    for path in (mailbox / "rejected").glob("*/*"):
        if not path.name.endswith(".reason.json"):
            yield str(path.relative_to(mailbox))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _journal(case: Case) -> Iterator[str]:
    """The journal has the same events as the database."""
    lines = [
        json.loads(line)
        for path in sorted((case.mailbox / "archive" / "events").glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]
    written = [(line["seq"], line["hash"]) for line in lines if "seq" in line]
    recorded = [(event["seq"], event["hash"]) for event in case.events]
    if written != recorded:
        yield f"the journal has {len(written)} events, the database {len(recorded)}, or other ones"


# ---------------------------------------------------------------- 5 and 7: rest


def _held_by(case: Case, task: str | None) -> bool:
    """Whether the operator has to let this task, or one above it, go on."""
    rows = {row["id"]: row for row in case.rows("tasks")}
    while task is not None:
        if rows[task]["held"]:
            return True
        task = rows[task]["parent"]
    return False


def _is_kept_back(case: Case, task: Mapping[str, Any]) -> bool:
    """Whether it rests by right: a hold, a breaker that is open, all turns of the hour taken, an agent that is gone."""
    agent = task["executor"].lower()
    broken = any(row["agent"] == agent and row["state"] == "open" for row in case.rows("breakers"))
    paced = any(row["name"] == "paced" and f'"{agent}"' in row["value"] for row in case.rows("meta"))
    gone = any(row["name"] == "gone" and f'"{agent}"' in row["value"] for row in case.rows("meta"))
    return broken or paced or gone or _held_by(case, task["id"])


def _liveness(case: Case) -> Iterator[str]:
    """Everything has ended, or waits with a date or for somebody who is named."""
    live = {row["task"]: row for row in case.rows("attempts") if row["status"] == "running"}
    held = {row["id"] for row in case.rows("tasks") if _held_by(case, row["id"])}
    yield from (
        f"the effect {row['id']} ({row['kind']}) is still pending"
        for row in case.rows("outbox")
        if row["state"] == "pending" and not (row["kind"] == "run_turn" and row["task"] in held)
    )
    phases = {row["id"]: row["phase"] for row in case.rows("tasks")}
    unfinished = {row["task"] for row in case.rows("dependencies") if phases.get(row["needs"]) != "completed"}
    for task in case.rows("tasks"):
        attempt, phase, name = live.get(task["id"]), task["phase"], task["local_id"]
        if phase in _ENDED and attempt is not None:
            yield f"{name} is {phase} and its attempt {attempt['ordinal']} still runs"
        if phase == "executing" and (attempt is None or attempt["waiting_for"] not in _WAITS_FOR_SOMEBODY):
            yield f"{name} is executing and nobody works on it"
        if phase == "executing" and attempt is not None and attempt["waiting_for"] == "reply" and not task["due"]:
            yield f"{name} waits for a reply without a date"
        if (
            phase == "execution_ready"
            and task["id"] not in unfinished
            and phases.get(task["parent"] or "", "executing") == "executing"
            and not _is_kept_back(case, task)
        ):
            yield f"{name} could start, and nothing starts it"
        if phase == "circuit_open" and not task["due"]:
            yield f"{name} has an open circuit and no date"


def _litter(case: Case) -> Iterator[str]:
    for top in ("mailbox", "tasks"):
        for path in (case.root / top).rglob(".*"):
            yield f"left behind: {path.relative_to(case.root)}"
    arrivals = [path for path in (case.mailbox / "inbox").iterdir() if not path.name.endswith("~")]
    yield from (f"still in the inbox: {path.name}" for path in arrivals)


# ---------------------------------------------------------------- 4: the ledger


def parse_run(path: Path) -> list[Row]:
    """The lines of the scripted agents' own record; one that a kill cut short is left out."""
    entries = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def executions(entries: Iterable[Row]) -> list[Row]:
    """The calls that an agent worked in: accepted, and not only put into a mailbox."""
    return [entry for entry in entries if entry["event"] == "begin" and entry["accepted"] and entry["rule"] != -2]


def _executions(cases: list[Case], entries: list[Row]) -> Iterator[str]:
    """No turn runs that was not ordered, before it was ordered, or more often than it was ordered."""
    ordered: Counter[str] = Counter()
    first: dict[str, str] = {}
    idempotent: set[str] = set()
    for case in cases:
        policies = {row["id"]: json.loads(row["policy"]) for row in case.rows("tasks")}
        for row in case.rows("outbox"):
            if row["kind"] != "run_turn":
                continue
            key = json.loads(row["data"])["session_key"].lower()
            ordered[key] += 1
            first[key] = min(first.get(key, row["at"]), row["at"])
            if policies.get(row["task"], {}).get("idempotent"):
                idempotent.add(key)
    turns = [entry for entry in executions(entries) if not _is_errand(entry)]
    for key, times in Counter(entry["session_key"] for entry in turns).items():
        if key not in ordered:
            yield f"the ledger has a turn in {key} that nobody ordered"
        elif times > ordered[key] and key not in idempotent:
            yield f"{times} turns ran in {key}, {ordered[key]} were ordered"
    for entry in turns:
        if entry["at"] < first.get(entry["session_key"], entry["at"]):
            yield f"a turn in {entry['session_key']} ran before it was ordered"
    once = [entry for entry in turns if entry["session_key"] not in idempotent and entry["rule"] != -3]
    work = [entry for entry in once if "review" not in entry["kind"]]  # two turns may be asked again in the same words
    same = Counter((entry["session_key"], entry["message_sha256"]) for entry in work)
    for (key, _), times in same.items():
        if times > 1:
            yield f"the same message was carried out {times} times in {key}"


def _is_errand(entry: Row) -> bool:
    """A message that was handed over (a reply, a question, a cancel): no work is asked for."""
    return entry["kind"] in ("reply", "question", "answer", "cancel", "steer", "progress", "ack")
