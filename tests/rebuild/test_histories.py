"""A database rebuilt from its journal has exactly the rows of the lost one, over histories that a seed plays."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mailboxd.errors import DamagedError, UnavailableError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.ledger import event_log
from mailboxd.ledger.database import connect
from mailboxd.operate import rebuild as rebuilding
from mailboxd.operate.rebuild import RebuildResult, rebuild
from tests.e2e.support import task
from tests.rebuild.mailroom import SETTINGS, Mailroom, verify

STEPS = 120
CLOCK = ManualClock("2026-03-02T00:00:00.000Z")
NOT_COMPARED = {"stale_files", "migrations", "sqlite_sequence"}
"""Which task.md has to be written again, and when the schema was created."""
REPORTED = (
    "('room', 'paced', 'limits', 'gone', 'away', 'held_up', 'holders', 'gateway', 'peers', 'recovering', 'agent',"
    " 'configuration', 'ageing', 'spending')"
)


def play(root: Path, seed: int, steps: int = STEPS) -> Mailroom:
    room = Mailroom.begin(root, seed)
    for _ in range(steps):
        room.step()
    return room


def rows(path: Path) -> dict[str, set[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        where = {"meta": f" WHERE name NOT IN {REPORTED}"}
        return {
            name: {
                tuple(map(value_of, row)) for row in db.execute(f"SELECT * FROM {name}{where.get(name, '')}").fetchall()
            }
            for name in names
            if name not in NOT_COMPARED
        }


def value_of(column: object) -> object:
    """Structures as they are read: the order of their keys says nothing."""
    if isinstance(column, str) and column.startswith(("{", "[")):
        with suppress(ValueError):
            return json.dumps(json.loads(column), sort_keys=True)
    return column


def again(ws: Workspace, into: Path) -> RebuildResult:
    return rebuild(ws, SETTINGS, CLOCK, into)


SEEDS = [
    *range(2),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12)),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 300)),
]


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "in the middle"])
@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_the_rows_of_the_lost_database(tmp_path: Path, seed: int, settled: bool) -> None:
    room = play(tmp_path / "ws", seed)
    if settled:
        room.settle()
    room.close()
    account = again(room.ws, tmp_path / "one.db")
    assert (account.problems, account.taken_in) == ([], None)
    assert rows(tmp_path / "one.db") == rows(room.ws.database)
    verify(tmp_path / "one.db")


def test_twice_the_same_and_in_another_place_too(tmp_path: Path) -> None:
    room = play(tmp_path / "ws", 1)
    room.close()
    again(room.ws, tmp_path / "one.db")
    room.ws.database.unlink()
    shutil.copytree(room.ws.root, tmp_path / "copy", copy_function=shutil.copy2)
    again(room.ws, tmp_path / "two.db")
    again(Workspace(tmp_path / "copy"), tmp_path / "three.db")
    assert rows(tmp_path / "one.db") == rows(tmp_path / "two.db") == rows(tmp_path / "three.db")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_what_is_cut_off_the_end_is_taken_in_from_the_files_and_open_work_waits(tmp_path: Path, seed: int) -> None:
    room = play(tmp_path / "ws", seed)
    room.put(task("last").encode())
    room.clock.advance(1.0)
    room.look()
    room.settle()
    room.close()
    file = room.journal[-1]
    lines = file.read_bytes().splitlines(keepends=True)
    received = next(n for n, line in enumerate(lines) if b'"message.received"' in line and b'"last"' in line)
    created = next(n for n, line in enumerate(lines) if b'"task.created"' in line and b'"last"' in line)
    file.write_bytes(b"".join(lines[: min(received, created)]))

    account = again(room.ws, tmp_path / "one.db")

    assert account.taken_in is not None
    assert account.taken_in.messages >= 1
    with closing(sqlite3.connect(tmp_path / "one.db")) as db:
        open_ = db.execute("SELECT local_id, held, phase FROM v_tasks WHERE parent IS NULL AND completed_at IS NULL")
        for local_id, held, phase in open_:
            assert held or phase in ("circuit_open", "failed", "cancelled"), local_id
        assert db.execute("SELECT 1 FROM v_tasks WHERE local_id = 'last'").fetchone()


@pytest.mark.slow
def test_replaying_an_event_reads_no_table_from_end_to_end(tmp_path: Path) -> None:
    """Or a rebuild would take time with the square of the history."""
    room = play(tmp_path / "ws", 1)
    room.close()
    statements: set[str] = set()
    with closing(connect(room.ws.database, read_only=True)) as db, closing(event_log.empty_tables()) as fresh:
        fresh.set_trace_callback(statements.add)
        event_log.apply_events(db, fresh, 0)
        fresh.set_trace_callback(None)
        steps = [
            (sql, step)
            for sql in statements
            if sql.startswith(("INSERT", "UPDATE", "DELETE", "SELECT"))
            for *_, step in fresh.execute(f"EXPLAIN QUERY PLAN {sql}")
        ]
    harmless = (" USING INDEX", "CONSTANT ROW")  # the latter is a SELECT of values alone
    scans = [(sql, step) for sql, step in steps if step.startswith("SCAN") and not any(one in step for one in harmless)]
    assert scans == []


def test_a_line_that_says_one_thing_to_whoever_hashes_it_and_another_to_whoever_reads_it_is_named(
    tmp_path: Path,
) -> None:
    room = play(tmp_path / "ws", 1)
    room.close()
    lines = room.journal[0].read_text().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if '"task.amended"' in line)
    data = json.dumps(json.loads(lines[number])["data"] | {"changes": {"title": "Another"}})
    lines[number] = f'{lines[number].rstrip()[:-1]},"data":{data}}}\n'
    room.journal[0].write_text("".join(lines))
    with pytest.raises(DamagedError, match=f"line {number + 1} has a name twice"):
        again(room.ws, tmp_path / "one.db")


def test_half_a_last_line_is_as_if_it_had_not_been_written(tmp_path: Path) -> None:
    room = play(tmp_path / "ws", 2)
    room.settle()
    room.close()
    again(room.ws, tmp_path / "one.db")
    with room.journal[-1].open("ab") as file:
        file.write(b'{"seq":99999,"at":"2026')
    again(room.ws, tmp_path / "two.db")
    assert rows(tmp_path / "two.db") == rows(tmp_path / "one.db")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"task.created"', b'"task.deleted"', "is not what was recorded"),
        (b'"operator"', b'"0perator"', "is not what was recorded"),
        (b'{"seq":3,', b'{"seq":4,', "event 3 is missing before event 4"),
        (b'{"seq":3,', b'["seq":3,', "is not a line that mailboxd wrote"),
        (b'{"table":"outbox","row":{"seq"', b'{"table":"outbox","row":{"x; --"', "unknown columns"),
        (b'"mailboxd-journal-1"', b'"mailboxd-journal-2"', "format 'mailboxd-journal-2'"),
        (b'{"format":', b'{"kind":"approval.resolved","format":', "line 1 is not a line that mailboxd wrote"),
        (b'{"seq":3,', b'{"prompt":"","seq":3,', "is not a line that mailboxd wrote"),
        (b'"actor":', b'"actor":"user:bob","actor":', "line 2 has a name twice"),
        (b'"database":', b'"database":"","database":', "line 1 has a name twice"),
    ],
)
def test_a_changed_line_is_named_and_nothing_is_written(tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    room = play(tmp_path / "ws", 1)
    room.close()
    file = room.journal[0]
    raw = file.read_bytes()
    assert old in raw
    file.write_bytes(raw.replace(old, new, 1))
    with pytest.raises(DamagedError, match=said):
        again(room.ws, tmp_path / "one.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ws"]


def test_a_line_that_was_removed_is_missed(tmp_path: Path) -> None:
    room = play(tmp_path / "ws", 1)
    room.close()
    file = room.journal[0]
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"seq":5,')))
    with pytest.raises(DamagedError, match=r"line .*: event 5 is missing before event 6"):
        again(room.ws, tmp_path / "one.db")


def test_without_a_journal_it_is_refused(tmp_path: Path) -> None:
    room = play(tmp_path / "ws", 0, steps=10)
    room.close()
    shutil.rmtree(room.journal[0].parent)
    with pytest.raises(UnavailableError, match="there is no journal"):
        again(room.ws, tmp_path / "one.db")


def test_a_message_whose_file_is_missing_or_changed_is_named(tmp_path: Path) -> None:
    room = play(tmp_path / "ws", 3)
    room.settle()
    room.close()
    first, second = sorted(path for path in room.ws.archive.rglob("*.md") if path.name != "INDEX.md")[:2]
    first.unlink()
    second.write_text("changed")
    account = again(room.ws, tmp_path / "one.db")
    missing, changed = (str(path.relative_to(room.ws.root)) for path in (first, second))
    assert account.problems == [
        f"{missing} is missing: the new database lacks its bytes",
        f"{changed} was changed: the new database lacks its bytes",
    ]


@pytest.mark.slow
def test_events_that_only_the_replaced_database_has_are_reported(tmp_path: Path) -> None:
    room = play(tmp_path / "ws", 1)
    room.settle()
    room.close()
    file = room.journal[-1]
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-40]))
    account = rebuild(room.ws, SETTINGS, CLOCK, None)
    assert account.kept
    assert any("only in the copy that is kept" in problem for problem in account.problems)


def test_a_database_has_its_name_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild that is killed before leaves none that looks like one, and the next one is not refused for it."""
    room = play(tmp_path / "ws", 0, steps=10)
    room.close()
    into, seen = tmp_path / "one.db", set[str]()

    def watched(*args: object) -> None:
        assert not into.exists()
        seen.update(path.name for path in tmp_path.iterdir())
        finish(*args)  # type: ignore[arg-type]

    finish = rebuilding._finish
    monkeypatch.setattr(rebuilding, "_finish", watched)
    (tmp_path / ".one.db.rebuilding").write_bytes(b"left by one that was killed")
    again(room.ws, into)
    assert ".one.db.rebuilding" in seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.db", "ws"]


def test_a_name_that_is_taken_meanwhile_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = play(tmp_path / "ws", 0, steps=10)
    room.close()
    into, finish = tmp_path / "one.db", rebuilding._finish

    def taken(*args: object) -> None:
        into.write_text("mine")
        finish(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuilding, "_finish", taken)
    with pytest.raises(UnavailableError, match="the file exists already"):
        again(room.ws, into)
    assert into.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.db", "ws"]


def test_a_forged_message_in_the_archive_does_not_count_as_received_before(tmp_path: Path) -> None:
    """What nobody recorded is taken in as news, and held, never as history."""
    room = play(tmp_path / "ws", 0, steps=10)
    room.settle()
    room.close()
    day = next(path for path in room.ws.archive.iterdir() if path.name != "events")
    (day / "forged.md").write_text(task("forged"))
    os.utime(day / "forged.md")
    account = again(room.ws, tmp_path / "one.db")
    assert account.taken_in is not None
    with closing(sqlite3.connect(tmp_path / "one.db")) as db:
        (held,) = db.execute("SELECT held FROM v_tasks WHERE local_id = 'forged'").fetchone()
        assert held
        events = db.execute("SELECT data FROM v_events WHERE kind = 'alarm.raised' OR kind LIKE 'alarm%'").fetchall()
    assert any("older-database" in json.loads(data)["what"] for (data,) in events)
