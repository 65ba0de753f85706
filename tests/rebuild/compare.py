"""Two databases, row by row, but for what docs/audit.md names as not in the files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]

OWN = "alpha"
NAMED: dict[str, set[str]] = {
    "tasks": {
        "id", "seq", "updated_at", "reason", "findings", "answer", "failures", "rework", "stalls", "not_before", "due",
        "heartbeat", "held", "mending", "spent_tokens", "spent_usd", "turns", "tree_turns", "stronger",
        "draft_result",
    },
    "attempts": {
        "id", "reply_token", "run_id", "session_ref", "usage", "model", "error_summary", "acknowledged", "escalated",
        "waiting_for", "token_echoed", "status", "finished_at",
    },
    "messages": {"id", "stamp", "verified", "signer"},
}  # fmt: skip


def read(path: Path) -> dict[str, dict[Key, Row]]:
    """What is compared, by keys that both have; ids of tasks are replaced by their names."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = {row["id"]: row["local_id"] for row in db.execute("SELECT id, local_id FROM tasks")}
        found: dict[str, dict[Key, Row]] = {}
        for table in ("tasks", "dependencies", "attempts", "messages", "artifacts"):
            rows = [_named(dict(row), names) for row in db.execute(f"SELECT * FROM {table}")]
            found[table] = {_key(table, row): row for row in rows}
        return found


def _named(row: Row, names: dict[str, str]) -> Row:
    return {column: names.get(value, value) if isinstance(value, str) else value for column, value in row.items()}


def _key(table: str, row: Row) -> Key:
    match table:
        case "tasks":
            return (row["local_id"],)
        case "dependencies":
            return (row["task"], row["needs"])
        case "attempts":
            return (row["task"], row["ordinal"])
        case "messages":
            return (row["path"],)
        case _:
            return (row["task"], row["kind"], row["sha256"])


def differences(one: Path, other: Path) -> list[str]:
    """What is not equal and not named."""
    before, after = read(one), read(other)
    found = []
    for table in ("tasks", "dependencies", "messages"):
        odd = sorted(before[table].keys() ^ after[table].keys(), key=str)
        found += [f"{table} {key}: only in the {'first' if key in before[table] else 'second'}" for key in odd]
    for table, ignored in NAMED.items():
        for key in sorted(before[table].keys() & after[table].keys(), key=str):
            found += _columns(table, key, before[table][key], after[table][key], ignored)
    return found


def _columns(table: str, key: Key, one: Row, other: Row, ignored: set[str]) -> list[str]:
    if table == "messages":
        if one["direction"] == "out" or one["verdict"] != "rejected":
            ignored = ignored | {"at"}
        if {one["verdict"], other["verdict"]} == {"sent", "undelivered"}:
            ignored = ignored | {"verdict"}
    elif table == "tasks":
        ignored = ignored | ({"created_at"} if one["parent"] else set()) | {"dispatched_at"}
        ignored = ignored | _unseen(one, other)
        if one["phase"] != "completed":
            ignored = ignored | {"error", "result", "result_summary", "planned_actions"}
    elif table == "attempts":
        ignored = ignored | {"started_at"}
    return [
        f"{table} {key}: {column}: {_short(one[column])} became {_short(other[column])}"
        for column in one
        if column not in ignored and one[column] != other[column]
    ]


def _unseen(one: Row, other: Row) -> set[str]:
    """Attempts that no file tells of: by turns of the own agent that failed, or given to a peer and not yet sent."""
    if one["executor"] != OWN:
        # the last attempt was never sent; or a turn told how it ended, and it is looked up
        told = (one["phase"], other["phase"]) in {("executing", "execution_ready"), ("execution_ready", "executing")}
        unsent = {"attempt"} if one["attempt"] == other["attempt"] + 1 else set()
        return unsent | ({"phase"} if told else set())
    under_way = one["phase"] in ("executing", "execution_ready") and one["attempt"] and not one["kids"]
    stopped = {"phase", "circuit_open"} if under_way and other["phase"] == "circuit_open" else set()
    untold = one["attempt"] > other["attempt"] > 0 or one["phase"] == "cancelled" or stopped
    return stopped | ({"attempt"} if untold else set())


def _short(value: Any) -> str:
    return json.dumps(value)[:120]
