"""What one message and one child cost, counted in operations: the same on any machine, at any load.

The bounds are stated here; docs/decisions/0008-what-costs-time.md says what was learned from them.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, environment, reply, task

pytestmark = pytest.mark.slow

MESSAGES = 40
"""More than mailboxd makes durable one by one."""
CHILDREN = 10

STATEMENTS_PER_MESSAGE = 17
"""For a reply to an unknown task: 12, and its share of the rounds."""
STATEMENTS_PER_CHILD = 60
"""From the plan to the result: its writes, its reads, and the statements of its rounds, of which load adds some."""

WRITES_PER_MESSAGE = {"INSERT bodies": 1, "INSERT events": 2, "INSERT messages": 1, "UPDATE messages": 1}
"""Received, and filed."""
ROWS_PER_CHILD = {
    "INSERT artifacts": 1,
    "INSERT attempts": 1,
    "INSERT bodies": 1,
    "INSERT events": 4,
    "INSERT messages": 1,
    "INSERT outbox": 1,
    "INSERT spending": 1,
    "INSERT tasks": 1,
}
UPDATES_PER_CHILD = {"UPDATE attempts": 1, "UPDATE messages": 0, "UPDATE outbox": 2, "UPDATE tasks": 4}
"""At most: what changes a row in one round is one statement, and how many rounds there are depends on the load."""
WRITES_BY_TIME = ("meta", "stale_files")
"""Tables that rounds write to, or that are written when enough time has passed."""

GROWING = (
    "events|tasks|dependencies|attempts|messages|bodies|prompts|outbox|artifacts|approvals|reviews|review_requests"
)
SCANNED = re.compile(
    rf"SCAN (?:{GROWING})\b(?! USING (?:COVERING )?INDEX (\w+))|SCAN \w+ USING (?:COVERING )?INDEX (\w+)"
    rf"|SEARCH (?!events)(?:{GROWING})\b(?! USING)"
)
"""The last is how SQLite describes a search for the minimum of a column without an index: it reads all rows. Of the
events only the last one is looked up, by key."""
INDEXES_OF_OPEN_WORK = frozenset(
    {
        "approvals_pending", "attempts_steered", "breakers_open", "messages_unfiled_by_name", "outbox_open",
        "tasks_due", "tasks_deadline", "tasks_heartbeat", "tasks_held", "tasks_open", "tasks_pausing", "tasks_runnable",
        "tasks_runnable_by_children", "sqlite_autoindex_held_orders_1", "messages_rejected", "messages_noticed",
        "doubts_open", "repetitions_by_name",
    }
)  # fmt: skip
"""These may be scanned: they do not grow with finished work."""


@dataclass(frozen=True)
class Run:
    """What the daemon did, from its start until it was idle."""

    seen: Counter[str]
    statements: frozenset[str]


def counted(agent: Agent, out: Path) -> Run:
    program = Path(__file__).with_name("counted.py")
    command = [sys.executable, str(program), str(out), "run", "--until-idle"]
    done = subprocess.run(
        command, cwd=agent.root, env=environment(), check=False, timeout=900, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(out.read_text())
    return Run(Counter(report["seen"]), frozenset(report["statements"]))


def drop_replies(agent: Agent, series: str, count: int) -> None:
    for number in range(count):
        agent.drop(f"{series}-{number:05}.md", reply("nowhere", f"{series}-{number:05}", "beta"))


def writes(less: Counter[str], more: Counter[str]) -> dict[str, int]:
    """How many more statements of each kind wrote to each table, except `WRITES_BY_TIME`."""
    kinds = {kind for kind in {*less, *more} if kind.partition(" ")[2] not in ("", *WRITES_BY_TIME)}
    return {kind: more[kind] - less[kind] for kind in kinds if more[kind] != less[kind]}


def test_a_message_costs_so_many_writes_with_or_without_a_history(found: Found, tmp_path: Path) -> None:
    """Forty messages, eighty, and forty again after two thousand."""
    alpha = found({"alpha": {}})["alpha"]
    drop_replies(alpha, "first", 1)
    counted(alpha, tmp_path / "first")  # pays for what is created only once
    drop_replies(alpha, "a", MESSAGES)
    forty = counted(alpha, tmp_path / "forty").seen
    drop_replies(alpha, "b", 2 * MESSAGES)
    eighty = counted(alpha, tmp_path / "eighty").seen
    assert writes(forty, eighty) == {kind: MESSAGES * count for kind, count in WRITES_PER_MESSAGE.items() if count}
    assert eighty["syncs"] - forty["syncs"] < MESSAGES / 4
    assert eighty["commits"] - forty["commits"] < MESSAGES / 4
    assert eighty["syncfs"] == forty["syncfs"] == 1
    assert eighty["processes"] == 0
    assert eighty["statements"] - forty["statements"] <= STATEMENTS_PER_MESSAGE * MESSAGES

    drop_replies(alpha, "c", 2000)
    counted(alpha, tmp_path / "many")
    counted(alpha, tmp_path / "again")  # lists in INDEX.md what the one before had no time for
    drop_replies(alpha, "d", MESSAGES)
    late = counted(alpha, tmp_path / "late").seen
    assert writes(forty, late) == {}
    assert late["statements"] - forty["statements"] <= STATEMENTS_PER_MESSAGE * MESSAGES / 4
    assert late["syncs"] - forty["syncs"] < MESSAGES / 4


def test_a_child_costs_one_process_and_so_many_writes(found: Found, tmp_path: Path) -> None:
    runs = []
    for count in (CHILDREN, 2 * CHILDREN):
        company = found(
            {"alpha": {}, "beta": {"default": {"reply": "Text."}}},
            synthesis="concat",
            limits={"turns": 2, "turns_per_agent": 2},
        )
        alpha = company["alpha"]
        counted(alpha, tmp_path / "first")  # creates the database
        plan = {f"n{number:03}": {"agent": "beta", "description": "N"} for number in range(count)}
        alpha.drop("go.md", task("job", plan=plan))
        runs.append(counted(alpha, tmp_path / f"{count}"))
        assert alpha.phase("job") == "completed"
    ten, twenty = (run.seen for run in runs)
    written = writes(ten, twenty)
    inserted = {kind: count for kind, count in written.items() if kind.startswith("INSERT")}
    assert inserted == {kind: CHILDREN * count for kind, count in ROWS_PER_CHILD.items()}
    assert written.keys() - inserted.keys() <= UPDATES_PER_CHILD.keys()
    for kind, count in UPDATES_PER_CHILD.items():
        assert written.get(kind, 0) <= CHILDREN * count, kind
    assert twenty["processes"] - ten["processes"] == CHILDREN
    assert twenty["statements"] - ten["statements"] <= STATEMENTS_PER_CHILD * CHILDREN
    assert scans_of_growing_tables(alpha, runs[-1].statements) == []


def scans_of_growing_tables(agent: Agent, statements: Iterable[str]) -> list[str]:
    """Every step, of how SQLite runs these statements, that reads a whole table which grows with finished work."""
    scans = []
    with closing(sqlite3.connect(agent.root / ".mailboxd" / "mailboxd.db")) as db:
        for sql in statements:
            if re.match(r"\s*(SELECT|UPDATE|WITH|DELETE|INSERT)\b", sql) is None:
                continue
            for *_, step in db.execute(f"EXPLAIN QUERY PLAN {sql}"):
                found = SCANNED.search(step)
                if found is not None and not INDEXES_OF_OPEN_WORK & set(found.groups()):
                    scans.append(f"{sql}: {step}")
    return scans
