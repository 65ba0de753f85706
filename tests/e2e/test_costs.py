"""What one message and one child cost, as counts of operations: exact, the same on any machine, at any load.

A count belongs to one unit (stated below, exactly), to a round of the daemon (bounded, however much one round brings),
or to a rendering of task.md (time decides how many there are). Whoever makes a unit cheaper or dearer states the new
number here, and in docs/decisions/0008-what-costs-time.md if it matters.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
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

PER_MESSAGE = {
    "sql:log.write": 2,  # it came; it was filed
    "sql:projection.project": 2,
    "sql:messages.awaits_filing": 1,
    "sql:messages.earlier": 1,
    "sql:messages.keep_body": 1,
    "sql:messages.body": 1,
    "sql:store.savepoint": 2,  # begun, and kept
    "sql:tasks.child": 1,
    "sql:tasks.given_root": 1,
}
"""A reply to a task that nobody knows. No commit, no fsync: what is durable is so for all of a round."""

PER_CHILD = {
    "process:process.spawn": 1,
    "sql:accounts.used_up": 1,  # what its turn took, on its own account and on that of its tree
    "sql:log.write": 13,
    "sql:births.bear": 1,
    "sql:projection.project": 10,
    "sql:spending.usage_recorded": 3,
    "sql:store.savepoint": 2,
    "sql:messages.keep_body": 1,
    "sql:outbox.begin": 1,
    "sql:outbox.finish": 1,
    "sql:outbox.order": 1,
    "sql:recent.task": 1,
    "sql:tasks.dependencies": 1,
    "sql:tasks.has_open_children": 2,
    "sql:tasks.is_free": 1,
    "sql:tasks.view": 2,
}
"""A child for another agent, from the plan to its result, without what the rounds in which it happens cost.

No fsync: one commit of the round is the mark of all calls that it lets begin, and its messages are synced together. No
file is removed: those of its call are given to a later one.
"""

PER_ROUND = 9
"""No single statement of a round is made more often than this in it, however much the round brings."""
ROUNDS_PER_CHILD = 3
"""It ends in one, in which what follows begins as well; the rest is what time brings, and wake-ups for nothing."""
OF_ROUNDS = frozenset(
    "sql:" + name
    for name in (
        "accounts.breaker", "accounts.broken", "accounts.latest_turn", "approvals.expired_approvals",
        "db.transaction", "log.read", "log.tip", "messages.archive_days", "messages.filed", "messages.filed_as",
        "messages.note_synced", "messages.unfiled",
        "messages.unsynced_messages", "outbox.file_is_fresh", "outbox.has_stale_files", "outbox.is_stale",
        "outbox.mark_for_rendering", "outbox.order_of", "outbox.pending", "outbox.stale_files",
        "ready.busy", "ready.due", "ready.has_backoff", "ready.has_pending",
        "ready.last_event", "ready.next_due", "ready.note_paced", "ready.note_room", "ready.ready",
        "recent.data_version", "store.meta", "store.set_meta",
    )
)  # fmt: skip
ONCE = re.compile(
    r"\w+:(db\.(connect|migrate|schema_version)|opening\.|whole\.|examine\.|watcher\.|wake\.|pulse\.|files\.append_line|evidence\.hash_at)"
)
"""What opening and watching costs: once for each run. The head of the log is written once a day, and at the end."""

GROWING = "events|tasks|dependencies|attempts|messages|bodies|outbox|artifacts|approvals|reviews|review_requests"
SCANNED = re.compile(
    rf"SCAN (?:{GROWING})\b(?! USING (?:COVERING )?INDEX (\w+))|SCAN \w+ USING (?:COVERING )?INDEX (\w+)"
    rf"|SEARCH (?!events)(?:{GROWING})\b(?! USING)"
)
"""The last is how SQLite calls the search for the least of a column without an index: it goes through all rows. Of the
events only the last is asked for, by their key."""
OF_THE_OPEN = frozenset(
    {
        "approvals_pending", "breakers_open", "messages_unfiled_by_name", "outbox_open",
        "tasks_due", "tasks_deadline", "tasks_heartbeat", "tasks_held", "tasks_open", "tasks_pausing", "tasks_runnable",
        "tasks_runnable_by_children",
    }
)  # fmt: skip
"""Indexes of what is open: they may be gone through, they do not grow with what was ever done."""


@dataclass(frozen=True)
class Run:
    """What one run of the daemon did, from its start to the moment at which there was nothing left to do."""

    seen: Counter[str]
    statements: Mapping[str, str]

    @property
    def rounds(self) -> int:
        return self.seen["sql:db.transaction"] // 2  # begun, and committed


def counted(agent: Agent, out: Path) -> Run:
    program = Path(__file__).with_name("counted.py")
    command = [sys.executable, str(program), str(out), "run", "--until-idle"]
    done = subprocess.run(
        command, cwd=agent.root, env=environment(), check=False, timeout=900, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(out.read_text())
    return Run(Counter(said["seen"]), said["statements"])


def drop_replies(agent: Agent, series: str, count: int) -> None:
    for number in range(count):
        agent.drop(f"{series}-{number:05}.md", reply("nowhere", f"{series}-{number:05}", "beta"))


_BY_TIME = (
    "sql:store.checkpoint",
    "bytes:",
    "sql:rendering",
    "removed:rendering",
    "fsync:rendering",
    "fsync:outbox.sync",
    "syncfs:outbox.sync",
)
"""What is done when enough time has gone by, however much there is to do."""


def grown(less: Run, more: Run, units: int, stated: Mapping[str, int]) -> Iterator[str]:
    """Every operation that `units` more units did not cost exactly what is stated, in words."""
    rounds = max(more.rounds - less.rounds, 0)
    for name in sorted({*less.seen, *more.seen, *stated}):
        if name.startswith(_BY_TIME) or ONCE.match(name):
            continue
        difference = more.seen[name] - less.seen[name]
        if name in OF_ROUNDS:
            if abs(difference) > PER_ROUND * (rounds + 1):
                yield f"{name}: {difference} more, in {rounds} more rounds"
        elif difference != units * stated.get(name, 0):
            yield f"{name}: {difference / units} for each unit, stated are {stated.get(name, 0)}"


def test_a_message_costs_so_many_operations_with_or_without_a_history(found: Found, tmp_path: Path) -> None:
    """Forty messages, eighty, and forty again after two thousand."""
    alpha = found({"alpha": {}})["alpha"]
    drop_replies(alpha, "first", 1)
    counted(alpha, tmp_path / "first")  # what is made once is made now
    drop_replies(alpha, "a", MESSAGES)
    less = counted(alpha, tmp_path / "less")
    drop_replies(alpha, "b", 2 * MESSAGES)
    more = counted(alpha, tmp_path / "more")
    assert list(grown(less, more, MESSAGES, PER_MESSAGE)) == []
    assert more.seen["syncfs:mail.archive_many"] == less.seen["syncfs:mail.archive_many"] == 1

    drop_replies(alpha, "c", 2000)
    counted(alpha, tmp_path / "many")
    drop_replies(alpha, "d", MESSAGES)
    late = counted(alpha, tmp_path / "late")
    assert list(grown(less, late, 1, {})) == []


def test_a_child_costs_so_many_operations(found: Found, tmp_path: Path) -> None:
    runs = []
    for count in (CHILDREN, 2 * CHILDREN):
        company = found(
            {"alpha": {}, "beta": {"default": {"reply": "Done."}}},
            synthesis="concat",
            limits={"turns": 2, "turns_per_agent": 2},
        )
        alpha = company["alpha"]
        plan = {f"n{number:03}": {"agent": "beta", "description": "N"} for number in range(count)}
        alpha.drop("go.md", task("job", plan=plan))
        runs.append(counted(alpha, tmp_path / f"{count}"))
        assert alpha.phase("job") == "completed"
    less, more = runs
    assert list(grown(less, more, CHILDREN, PER_CHILD)) == []
    assert more.rounds - less.rounds <= ROUNDS_PER_CHILD * CHILDREN
    _no_growing_table_is_gone_through(alpha, more)


def _no_growing_table_is_gone_through(agent: Agent, run: Run) -> None:
    """How SQLite carries out each statement that the daemon made."""
    gone_through = []
    with closing(sqlite3.connect(agent.root / ".mailboxd" / "mailboxd.db")) as db:
        for name, sql in run.statements.items():
            if re.match(r"\s*(SELECT|UPDATE|WITH|DELETE|INSERT)\b", sql) is None or ONCE.match(name):
                continue
            for *_, step in db.execute(f"EXPLAIN QUERY PLAN {sql}"):
                found = SCANNED.search(step)
                if found is not None and not OF_THE_OPEN & set(found.groups()):
                    gone_through.append(f"{name}: {step}")
    assert gone_through == []
