"""The seal of a database: it shows an older one, and that nobody else has written since."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.errors import OutdatedError
from mailboxd.host.progress import Progress
from mailboxd.ledger.event_log import Tip
from mailboxd.ledger.integrity import Seal
from mailboxd.ledger.opening import open_workspace
from mailboxd.ledger.store import Store

NOW = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with three events, verified, sealed and closed."""
    path = tmp_path / "state" / "mailboxd.db"
    path.parent.mkdir()
    store = open_workspace(path, NOW)
    happen(store, 3)
    assert not store.is_sealed()
    assert store.verify_log() == ""
    store.trust_log()
    store.close()
    return path


def happen(store: Store, count: int = 1, why: str = "") -> None:
    for number in range(count):
        with store.transaction():
            store.append([Event(Kind.ALARM, None, {"at": NOW, "what": f"{number}", "why": why})], NOW)


def is_sealed(path: Path) -> bool:
    with closing(open_workspace(path, NOW)) as store:
        return store.is_sealed()


def test_the_seal_stands_after_a_close_and_after_more_was_recorded(path: Path) -> None:
    assert is_sealed(path)
    with closing(open_workspace(path, NOW)) as store:
        happen(store)
    assert is_sealed(path)


def test_the_seal_stands_when_two_of_ours_write_in_turn(path: Path) -> None:
    with closing(open_workspace(path, NOW)) as daemon:
        happen(daemon)
        with closing(open_workspace(path, NOW)) as command:
            happen(command)
        happen(daemon)
        assert daemon.is_sealed()
        assert daemon.checkpoint()
        assert daemon.is_sealed()
    assert is_sealed(path)


def foreign(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


def test_what_another_program_wrote_is_compared_at_the_next_commit_and_counts_if_nothing_follows_from_it(
    path: Path,
) -> None:
    with closing(open_workspace(path, NOW)) as store:
        happen(store)
        foreign(path, "INSERT INTO meta (name, value) VALUES ('foreign', '')")
        happen(store)
        assert store.is_sealed()
    assert is_sealed(path)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO breakers VALUES ('beta', 'open', 3, 1, NULL, '')",
        "INSERT INTO events SELECT seq + 1, at, kind, task, role, actor, data, 'x' FROM events WHERE seq = 4",
    ],
)
def test_a_row_that_another_program_changed_is_refused_by_whoever_writes_next(path: Path, statement: str) -> None:
    with closing(open_workspace(path, NOW)) as daemon:
        happen(daemon)
        foreign(path, statement)
        with closing(open_workspace(path, NOW)) as command, pytest.raises(OutdatedError, match="rebuild --replace"):
            happen(command)
        for _ in range(2):
            with pytest.raises(OutdatedError, match="another program changed what was recorded"):
                happen(daemon)
    assert not is_sealed(path)


def test_a_command_that_has_committed_and_not_sealed_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has recorded is no change by another program, and nothing is compared."""
    committed, waits = Flag(), Flag()

    def record() -> None:
        with closing(open_workspace(path, NOW)) as command:
            assert command.seal is not None
            write = command.seal.write

            def late(tip: Tip) -> None:
                committed.set()
                assert waits.wait(10)
                write(tip)

            monkeypatch.setattr(command.seal, "write", late)
            happen(command)

    with closing(open_workspace(path, NOW)) as daemon:
        happen(daemon)
        assert daemon.seal is not None
        (command := Thread(target=record)).start()
        assert committed.wait(10)
        held = daemon.seal.held

        def waited() -> AbstractContextManager[None]:
            waits.set()
            return held()

        monkeypatch.setattr(daemon.seal, "held", waited)
        monkeypatch.setattr(daemon, "_difference", None)  # would be called to compare
        happen(daemon)
        command.join()
        assert daemon.seal.is_intact
        assert not daemon.seal.is_broken


def test_a_start_after_a_broken_seal_reads_the_log_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(path)  # as if a commit had ended before its line
    compared: list[str] = []
    difference = Store._difference

    def counted(store: Store, progress: Progress) -> str:
        compared.append("log")
        return difference(store, progress)

    monkeypatch.setattr(Store, "_difference", counted)
    with closing(open_workspace(path, NOW)) as store:
        assert not store.is_sealed()
        assert store.verify_log() == ""
        store.trust_log()
        assert store.is_sealed()
        happen(store)
    assert is_sealed(path)
    assert compared == ["log"]


def test_a_file_that_was_replaced_or_changed_is_not_sealed(path: Path, tmp_path: Path) -> None:
    shutil.copy2(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    assert not is_sealed(path)


def test_a_seal_that_cannot_be_read_or_is_gone_refuses_nothing(path: Path) -> None:
    seal = path.with_name("mailboxd.db.seal")
    for raw in (b"", b"{", b"[]", b'{"seq": 1}', b"\xff" * 512):
        seal.write_bytes(raw)
        assert not is_sealed(path)
    seal.unlink()
    assert not is_sealed(path)


@pytest.mark.parametrize("more", [1, 100])
def test_a_database_that_ends_before_the_sealed_event_is_opened_only_when_it_is_accepted(
    path: Path, tmp_path: Path, more: int
) -> None:
    shutil.copyfile(path, tmp_path / "copy")
    with closing(open_workspace(path, NOW)) as store:
        happen(store, more)
    shutil.copyfile(tmp_path / "copy", path)
    for _ in range(2):
        with pytest.raises(OutdatedError, match="accept-older"):
            open_workspace(path, NOW)
    with closing(open_workspace(path, NOW, accept_older=True)) as store:
        assert f"event {3 + more} was recorded here" in store.outdated
        happen(store, 1, "other")
    with pytest.raises(OutdatedError):  # what was recorded meanwhile does not hide it
        open_workspace(path, NOW)


def test_another_log_of_the_same_length_is_an_older_one_that_went_on(path: Path, tmp_path: Path) -> None:
    shutil.copyfile(path, tmp_path / "copy")
    with closing(open_workspace(path, NOW)) as store:
        happen(store)
    shutil.copyfile(tmp_path / "copy", path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "INSERT INTO events SELECT seq + 1, at, kind, task, role, actor, data, 'x' FROM events WHERE seq = 3"
        )
        db.commit()
    with pytest.raises(OutdatedError, match="event 4 of its log is different"):
        open_workspace(path, NOW)


def test_the_line_is_written_in_its_place(path: Path) -> None:
    seal = path.with_name("mailboxd.db.seal")
    before = seal.stat()
    with closing(open_workspace(path, NOW)) as store:
        happen(store, 5)
    after = seal.stat()
    assert (after.st_ino, after.st_size, after.st_mode & 0o777) == (before.st_ino, before.st_size, 0o600)
    line = Seal(path).read()
    assert line is not None
    assert line.tip.seq == 8


@pytest.mark.parametrize("ending", ["", "-wal"])
@pytest.mark.parametrize("then", ["record", "checkpoint", "close"])
def test_bytes_that_are_written_into_an_open_database_without_sqlite_break_the_seal(
    path: Path, ending: str, then: str
) -> None:
    with closing(open_workspace(path, NOW)) as store:
        happen(store)
        if not ending:
            assert store.checkpoint()
            assert store.is_sealed()
        with Path(f"{path}{ending}").open("r+b") as file:
            first = file.read(1)
            file.seek(0)
            file.write(first)
        if then == "record":
            happen(store)
        elif then == "checkpoint":
            assert store.checkpoint()
    assert not is_sealed(path)


@pytest.mark.parametrize("seq", [-1, 10**30])
def test_a_seal_that_names_an_impossible_event_names_one_that_the_log_does_not_have(path: Path, seq: int) -> None:
    path.with_name(f"{path.name}.seal").write_text(f'{{"seq":{seq},"hash":"x","files":[]}}')
    with pytest.raises(OutdatedError, match="the database is older"):
        open_workspace(path, NOW)
