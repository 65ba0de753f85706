"""The journal has what was committed, whatever happens between a commit and its line."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.effects import Notify
from mailboxd.core.events import Event, Kind
from mailboxd.core.vocabulary import Notice
from mailboxd.engine.engine import Engine
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.ledger import journal
from mailboxd.ledger.journal import Journal
from mailboxd.ledger.opening import open_workspace
from mailboxd.ledger.store import Store
from mailboxd.ledger.written import Written


class Stage:
    """A workspace in which events are recorded, a day at a time if wanted."""

    def __init__(self, root: Path) -> None:
        Workspace.create(root)
        self.ws = Workspace(root)
        self.clock = ManualClock("2026-03-01T23:50:00.000Z")
        self.engine = self.open()

    def open(self) -> Engine:
        return Engine(open_workspace(self.ws.database, self.clock.now()), Settings("alpha"), self.clock)

    @property
    def store(self) -> Store:
        return self.engine.store

    def record(self, why: str = "x", engine: Engine | None = None) -> None:
        engine = engine or self.engine
        with engine.batch():
            engine.record(Event(Kind.ALARM, None, {"at": engine.now, "what": "test", "why": why}))

    def lines(self) -> list[dict[str, Any]]:
        return [dict(entry.said) for entry in journal.entries(journal.files_of(self.ws.root))]

    def events(self) -> list[int]:
        return [line["seq"] for line in self.lines() if "seq" in line]

    def trouble(self) -> str:
        assert self.store.journal is not None
        return self.store.journal.trouble


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "ws")


def test_each_event_is_a_line_of_its_day(stage: Stage) -> None:
    stage.record("one")
    stage.clock.advance(1200)
    stage.record("two")
    files = journal.files_of(stage.ws.root)
    assert [path.name for path in files] == ["2026-03-01.jsonl", "2026-03-02.jsonl"]
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600, 0o600]
    first, second = ([json.loads(line) for line in path.read_text().splitlines()] for path in files)
    assert [line["data"]["why"] for line in (*first, *second) if "seq" in line] == ["one", "two"]
    assert second[0]["after"][:2] == [1, first[1]["hash"]]
    assert all(line.isascii() for path in files for line in path.read_text().splitlines())


def test_orders_and_what_became_of_them_are_there_too(stage: Stage) -> None:
    with stage.engine.batch():
        stage.engine.record(Event(Kind.ALARM, None, {"at": stage.engine.now, "what": "test", "why": "x"}))
        stage.engine.store.outbox.add("ntf_1", "", Notify(Notice.FAILED), stage.engine.now)
    with stage.engine.batch():
        stage.engine.store.outbox.finish("ntf_1")
    states = [line["row"]["state"] for line in stage.lines() if line.get("table") == "outbox"]
    assert states == ["pending", "done"]


def test_what_a_crash_kept_from_the_journal_comes_with_the_next_commit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.record()
    with monkeypatch.context() as crashed:
        crashed.setattr(Journal, "append", lambda *_: None)
        stage.record()
    assert stage.events() == [1]
    stage.store.close()
    stage.engine = stage.open()
    stage.record()
    assert stage.events() == [1, 2, 3]


def test_what_another_process_left_out_comes_with_a_round_that_records_nothing(stage: Stage) -> None:
    other = stage.open()
    other.store.journal = None  # it dies before its lines
    stage.record(engine=other)
    with stage.engine.batch():
        pass
    assert stage.events() == [1]
    other.store.close()


def test_half_a_line_is_cut_off_and_written_again(stage: Stage) -> None:
    stage.record()
    stage.record()
    (file,) = journal.files_of(stage.ws.root)
    stage.store.close()
    os.truncate(file, file.stat().st_size - 9)
    assert stage.events() == [1]
    stage.engine = stage.open()
    stage.record()
    assert stage.events() == [1, 2, 3]


@pytest.mark.parametrize("written", [b"", b'{"format":"mailboxd-jour'])
def test_a_day_that_was_begun_and_has_no_line_yet_is_begun_again(stage: Stage, written: bytes) -> None:
    stage.record()
    stage.store.close()
    (journal.folder_of(stage.ws.root) / "2026-03-02.jsonl").write_bytes(written)
    stage.clock.advance(1200)
    stage.engine = stage.open()
    stage.record()
    assert stage.events() == [1, 2]


def test_two_processes_continue_the_same_journal(stage: Stage) -> None:
    other = stage.open()
    for engine in (stage.engine, other, other, stage.engine):
        stage.record(engine=engine)
    stage.clock.advance(1200)
    for engine in (other, stage.engine, other):
        stage.record(engine=engine)
    assert stage.events() == [1, 2, 3, 4, 5, 6, 7]


def test_a_full_disk_delays_the_journal_and_not_the_work(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.record()

    def full(fd: int, raw: bytes) -> int:
        real(fd, bytes(raw)[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    real = os.write
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        stage.record()
    assert "No space left on device" in stage.trouble()
    stage.record()
    assert stage.trouble() == ""
    assert stage.events() == [1, 2, 3]


def test_a_deleted_journal_is_written_again_from_the_database(stage: Stage) -> None:
    stage.record()
    stage.clock.advance(1200)
    stage.record()
    before = stage.lines()
    for path in journal.files_of(stage.ws.root):
        path.unlink()
    stage.record()
    assert stage.events() == [1, 2, 3]
    assert [line for line in before if "seq" in line] == [line for line in stage.lines() if "seq" in line][:2]


STEPS = (
    "record",
    "record in another process",
    "crash before the line",
    "tear the last line",
    "reopen",
    "next day",
    "delete",
)


@pytest.mark.slow
@given(st.lists(st.sampled_from(STEPS), max_size=14))
def test_whatever_happens_in_between_the_next_commit_completes_the_journal(steps: list[str]) -> None:
    with TemporaryDirectory() as root:
        stage = Stage(Path(root) / "ws")
        other = stage.open()
        for step in steps:
            match step:
                case "record":
                    stage.record()
                case "record in another process":
                    stage.record(engine=other)
                case "crash before the line":
                    continued, stage.store.journal = stage.store.journal, None
                    stage.record()
                    stage.store.journal = continued
                case "tear the last line":
                    for file in journal.files_of(stage.ws.root)[-1:]:
                        os.truncate(file, max(file.stat().st_size - 5, 0))
                case "reopen":
                    stage.store.close()
                    stage.engine = stage.open()
                case "next day":
                    stage.clock.advance(86_400)
                case _:
                    for file in journal.files_of(stage.ws.root):
                        file.unlink()
        stage.record()
        assert stage.trouble() == ""
        assert stage.events() == list(range(1, stage.store.last_event() + 1))
        for engine in (stage.engine, other):
            engine.store.close()


PARTS = ("event", "order", "begin", "prompt", "postpone", "finish", "hasten", "value", "message", "undone")


class _Undone(Exception):
    pass


def _write(store: Store, part: str, number: int) -> None:
    """Write something of which the journal has lines."""
    now, order = f"2026-03-0{1 + number // 20}T00:00:00.000Z", f"ntf_{number}"
    pending = [row[0] for row in store.db.execute("SELECT id FROM v_outbox WHERE state = 'pending'")]
    match part:
        case "event":
            store.append([Event(Kind.ALARM, None, {"at": now, "what": "caf\u00e9", "why": f"{number}"})] * 2, now)
        case "order":
            store.outbox.add(order, "", Notify(Notice.FAILED), now)
        case "begin":
            store.outbox.begin(pending[0] if pending else "", "boot")
        case "prompt" if pending:
            prompt = store.prompts.keep(f"caf\u00e9 {number % 4}".encode(), 100, is_message=False)
            store.outbox.begin(pending[0], "boot", prompt)
        case "prompt":
            pass
        case "postpone":
            for one in pending:
                store.outbox.postpone(one, now)
        case "finish":
            store.outbox.finish(pending[-1] if pending else "")
        case "hasten":
            store.outbox.hasten_notices()
        case "value":
            store.meta.set(f"test.{number % 3}", f"{number % 2}")
        case "message":
            message = f"msg_{number}"
            row = {"id": message, "direction": "out", "verdict": "sent", "name": "x", "stamp": {}}
            store.messages.keep_body(message, b"caf\xe9")
            store.append([Event(Kind.MESSAGE_SENT, None, {"at": now, "message": row})], now)
        case _:
            with suppress(_Undone), store.savepoint():
                for rolled_back in ("event", "value", "order", "prompt", "postpone"):
                    _write(store, rolled_back, number)
                raise _Undone


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6), max_size=8))
def test_lines_that_were_not_read_back_are_those_of_the_database(transactions: list[list[str]]) -> None:
    with TemporaryDirectory() as root:
        stage = Stage(Path(root) / "ws")
        copy = Path(root) / "copy"
        Workspace.create(copy)
        reading, number = Journal(copy), 0
        for parts in [["event"], *transactions]:
            with suppress(_Undone), stage.store.transaction():
                for part in parts:
                    number += 1
                    _write(stage.store, part, number)
                if parts == ["undone"]:
                    raise _Undone
            reading.append(stage.store.db, Written())
            assert (stage.trouble(), reading.trouble) == ("", "")
        ours, theirs = ([path.read_bytes() for path in journal.files_of(one)] for one in (stage.ws.root, copy))
        assert ours == theirs
        reading.close()
        stage.store.close()


@pytest.mark.parametrize("block", [7, 64, 1 << 16])
def test_the_end_is_found_once_wherever_blocks_end(stage: Stage, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        stage.record("x" * number)
    stage.store.close()
    monkeypatch.setattr(journal, "_BLOCK", block)
    found: list[journal.Position] = []
    find = journal._last_position

    def counted(file: int, name: str) -> journal.Position:
        found.append(find(file, name))
        return found[-1]

    monkeypatch.setattr(journal, "_last_position", counted)
    stage.engine = stage.open()
    stage.record("later")
    stage.store.close()
    assert [one.tip.seq for one in found] == [20]
    assert found[0].revs["meta"] > 0
    assert stage.events() == list(range(1, 22))


def test_lines_are_not_read_back(stage: Stage) -> None:
    with stage.engine.batch():
        _write(stage.store, "event", 1)
    asked: list[str] = []
    stage.store.db.set_trace_callback(asked.append)
    with stage.engine.batch():
        for part in PARTS[:-1]:
            _write(stage.store, part, 2)
    stage.store.db.set_trace_callback(None)
    assert not asked[asked.index("COMMIT") + 1 :]


def test_notices_that_failed_are_all_tried_again(stage: Stage) -> None:
    with stage.engine.batch():
        for part, number in (("order", 1), ("order", 2), ("postpone", 3), ("hasten", 4)):
            _write(stage.store, part, number)
        due = [order.id for order in stage.store.outbox.pending("2026-01-01T00:00:00.000Z", 9)]
    assert due == ["ntf_1", "ntf_2"]


def test_bytes_that_are_not_utf8_are_read_back(tmp_path: Path) -> None:
    raw, day = b"caf\xe9", tmp_path / "2026-11-26.jsonl"
    line = json.dumps({"body": "msg_1", "raw": raw.decode("utf-8", "surrogateescape")})
    day.write_text(f"{line}\n", encoding="ascii")
    (entry,) = journal.entries([day])
    assert entry.said["raw"].encode("utf-8", "surrogateescape") == raw


def test_a_link_in_place_of_its_file_is_not_followed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine\n")
    journal.folder_of(stage.ws.root).mkdir()
    (journal.folder_of(stage.ws.root) / "2026-03-01.jsonl").symlink_to(tmp_path / "target")
    stage.record()
    assert "cannot be continued" in stage.trouble()
    assert (tmp_path / "target").read_text() == "mine\n"


def test_a_file_that_is_no_journal_is_not_continued(stage: Stage) -> None:
    journal.folder_of(stage.ws.root).mkdir()
    file = journal.folder_of(stage.ws.root) / "2026-03-01.jsonl"
    file.write_text('{"seq": 1}\n{"seq":"x"}\n')
    stage.record()
    assert "a line that mailboxd did not write" in stage.trouble()
    assert file.read_text() == '{"seq": 1}\n{"seq":"x"}\n'
