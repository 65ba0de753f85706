"""What one round of the daemon records together, and in which order."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.test_power import TASK, founded


def test_mail_is_recorded_before_what_it_lets_begin(tmp_path: Path) -> None:
    """Who sent it waits for one commit, and not for the choosing of turns; the turn begins in the same round."""
    with founded(tmp_path / "ada") as house:
        house.work()
        said: list[str] = []
        house.store.db.set_trace_callback(said.append)
        house.drop("job.md", TASK, 1)
        assert house.daemon is not None
        house.daemon._looks.everywhere()
        house.daemon.round()
        kept = next(place for place, sql in enumerate(said) if "INTO bodies" in sql)
        begun = next(place for place, sql in enumerate(said) if sql.startswith("UPDATE outbox SET begun"))
        assert said[kept:begun].count("COMMIT") == 1
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


def test_the_beginning_of_a_turn_needs_no_round_of_its_own(tmp_path: Path) -> None:
    """It is noted as running in the transaction that lets it begin: the next round is that of its end."""
    with founded(tmp_path / "ada") as house:
        house.work()
        assert house.daemon is not None
        house.drop("job.md", TASK, 1)
        house.daemon._looks.everywhere()
        house.daemon._record_round(look=True)
        assert house.processes.all == []
        assert house.daemon.relay.perform() == 0
        assert len(house.processes.all) == 1
        said: list[str] = []
        house.store.db.set_trace_callback(said.append)
        while house.daemon.round():
            pass
        assert [sql for sql in said if "meta VALUES ('room'" in sql] == []
