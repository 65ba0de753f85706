"""What one round of the daemon records together, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.effects import Send
from mailboxd.core.inputs import Cancel
from mailboxd.engine.engine import Pacing
from mailboxd.errors import WorldError
from mailboxd.formats.config.settings import Pace
from mailboxd.formats.mailbox import maildir
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import write
from mailboxd.host.process import Reserve
from tests.simulation.test_power import TASK, founded


def test_mail_and_the_turn_that_it_lets_begin_are_one_transaction(tmp_path: Path) -> None:
    """The turn begins after the one commit: a daemon that dies before it takes the file again, and no turn is known."""
    with founded(tmp_path / "ada") as house:
        house.work()
        said: list[str] = []
        house.store.db.set_trace_callback(said.append)
        house.drop("job.md", TASK, 1)
        assert house.daemon is not None
        house.daemon._schedule.request_all()
        house.daemon.round()
        assert said.count("COMMIT") == 1
        assert house.processes.all


def test_a_round_without_mail_is_one_transaction(tmp_path: Path) -> None:
    """The mark of a turn that follows from another one's end costs no commit of its own."""
    with founded(tmp_path / "ada") as house:
        house.work()
        said: list[str] = []
        house.store.db.set_trace_callback(said.append)
        assert house.daemon is not None
        house.daemon.round()
        assert said.count("COMMIT") == 1


def test_mail_that_there_was_no_memory_to_take_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing of the message: the process ends, and the next one takes it."""

    def refuse(*_: object) -> None:
        raise MemoryError

    with founded(tmp_path / "ada") as house:
        house.work()
        house.drop("job.md", TASK, 1)
        assert house.daemon is not None
        house.daemon._schedule.request_all()
        with monkeypatch.context() as patched:
            patched.setattr("mailboxd.engine.intake.interpret.Intake.receive", refuse)
            with pytest.raises(MemoryError):
                house.daemon.round()
        house.die()
        house.work()
        taken = house.store.db.execute("SELECT verdict FROM v_messages WHERE direction = 'in'").fetchall()
        assert taken == [("accepted",)]


def test_the_beginning_of_a_turn_needs_no_round_of_its_own(tmp_path: Path) -> None:
    """It is noted as running in the transaction that lets it begin: the next round is that of its end."""
    with founded(tmp_path / "ada") as house:
        house.work()
        assert house.daemon is not None
        house.drop("job.md", TASK, 1)
        house.daemon._schedule.request_all()
        house.daemon._record_round(look=True)
        assert house.processes.all == []
        house.daemon.effects.perform()
        assert len(house.processes.all) == 1
        said: list[str] = []
        house.store.db.set_trace_callback(said.append)
        while house.daemon.round():
            pass
        assert [sql for sql in said if "meta VALUES ('room'" in sql] == []


def test_what_cannot_begin_neither_keeps_what_was_sent_from_the_disk_nor_the_loop_awake(tmp_path: Path) -> None:
    """The message is written and is to be synced a second later; its call is refused for as long as that lasts."""
    with founded(tmp_path / "ada") as house:
        house.work()
        house.ws.turns.rename(tmp_path / "away")
        house.drop("job.md", TASK, 1)
        house.work()
        house.work()
        assert house.daemon is not None
        assert len(house.store.messages.unsynced()) == 1
        house.daemon.pace = Pace(rescan=30.0, render=0.0, drain=0.0)
        house.clock.advance(2)
        house.work()
        assert house.daemon._timeout() > 0
        assert house.store.messages.unsynced() == []
        (tmp_path / "away").rename(house.ws.turns)
        house.clock.advance(5)  # a failure is retried then
        house.work()
        assert len(house.processes.all) == 1


def test_a_message_whose_call_was_overtaken_lies_in_the_outbox_as_the_record_says(tmp_path: Path) -> None:
    """It was kept in the round that marked its call, which had to wait; then the work was cancelled."""
    with founded(tmp_path / "ada") as house:
        house.work()
        house.drop("job.md", TASK, 1)
        assert house.daemon is not None
        house.daemon._schedule.request_all()
        house.daemon._record_round(look=True)
        house.daemon.effects.starting._fresh.clear()
        child = house.store.tasks.by_local_id("job.x")
        assert child is not None
        with house.daemon.engine.batch():
            house.daemon.engine.command(child, Cancel("ops"), "ops")
        house.work()
        assert house.processes.all == []
        ((path, raw),) = house.store.messages.unsynced()
        house.clock.advance(2)
        house.work()
        assert (house.ws.mailbox / path).read_bytes() == raw


def test_a_disk_that_takes_no_message_delays_its_file_and_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise WorldError("no room")

    with founded(tmp_path / "ada") as house:
        house.work()
        for writes in ("put", "restore"):
            monkeypatch.setattr(maildir, writes, refuse)
        house.drop("job.md", TASK, 1)
        for _ in range(3):
            house.clock.advance(2)
            house.work()
        assert len(house.processes.all) == 1
        assert not list(house.ws.outbox.glob("*/*.task.*"))
        monkeypatch.undo()
        house.clock.advance(2)
        house.work()
        assert len(list(house.ws.outbox.glob("*/*.task.*"))) == 1
        assert house.store.messages.unsynced() == []


def test_while_no_call_may_begin_for_want_of_descriptors_a_sync_that_is_due_keeps_nobody_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reserve, "refill", lambda _reserve: None)
    with founded(tmp_path / "ada") as house:
        house.work()
        house.drop("job.md", TASK, 1)
        house.work()
        assert house.daemon is not None
        house.daemon.reserve.why = "there are none"
        house.daemon.pace = Pace(rescan=30.0, render=0.0, drain=0.0)
        house.clock.advance(2)
        house.work()
        assert house.store.messages.unsynced()
        assert house.daemon._timeout() > 0


def test_messages_that_wait_hold_up_no_other_work_and_are_not_written_again_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as one page has, for an agent that takes nothing now: what was ordered after them is performed."""
    written: list[str] = []

    def noted(ws: Workspace, path: str, raw: bytes) -> None:
        written.append(path)
        write(ws, path, raw)

    monkeypatch.setattr("mailboxd.perform.effect_runner.BATCH", 2)
    monkeypatch.setattr(maildir, "write", noted)
    monkeypatch.setattr(Pacing, "is_shut", lambda _pacing, agent: agent == "dora")
    with founded(tmp_path / "ada") as house:
        house.drop("job.md", TASK, 1)
        house.work()
        assert house.daemon is not None
        child = house.store.tasks.by_local_id("job.x")
        assert child is not None
        with house.daemon.engine.batch():
            for number in range(4):
                steer = Send(house.daemon.engine.new_id("msg"), "steer", "dora", "Faster.")
                house.store.outbox.add(f"snd_{number}", child.id, steer, "2026")
        house.drop(
            "next.md",
            TASK.replace(b"task_id: job", b"task_id: next").replace(b"m-1", b"m-2").replace(b"carl", b"erin"),
            2,
        )
        house.work()
        house.work()
        assert len(house.processes.all) == 2
        assert len(written) == 4
