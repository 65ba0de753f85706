"""The files with new instructions for turns that run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailboxd.perform.steering import Steering
from tests.surfaces.edited import Desk

TEXT = "Count the commas."


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """With an attempt whose turn is ordered; nothing runs here."""
    made = Desk(tmp_path / "alpha")
    with made.engine.batch():
        made.engine.schedule()
    return made


def session(desk: Desk) -> str:
    attempt = desk.engine.store.tasks.attempt(desk.id, 1)
    assert attempt is not None
    return attempt.session_key


def files(desk: Desk) -> list[Path]:
    return sorted((desk.ws.state / "steering").glob("*"))


@pytest.mark.parametrize("restarts", [False, True])
def test_instructions_are_there_until_the_end_of_the_turn_is_recorded_and_what_was_given_is_read_until_then(
    desk: Desk, restarts: bool
) -> None:
    """Also when the turn itself is over: its session may still be asked what was submitted in it."""
    steering = Steering(desk.engine, desk.ws)
    steering.perform()
    assert steering.heard(session(desk)) == ""
    desk.steer()
    steering.perform()
    (file,) = files(desk)
    assert json.loads(file.read_text()) == {"session": session(desk), "text": TEXT}
    file.with_suffix(".given").write_text(json.dumps({"life": "x", "text": TEXT}))
    if restarts:
        steering = Steering(desk.engine, desk.ws)
    else:
        steering.perform()
    assert steering.heard(session(desk)) == TEXT
    with desk.engine.batch():  # as the end of the turn is recorded
        desk.engine.store.db.execute("UPDATE attempts SET steered = ''")
    steering.perform()
    assert files(desk) == []


def test_looking_for_instructions_is_one_search_of_an_index_that_is_mostly_empty(desk: Desk) -> None:
    """And where it was empty, it is not searched again before an attempt is steered."""
    statements: list[str] = []
    steering = Steering(desk.engine, desk.ws)
    desk.engine.store.cache.forget()
    desk.engine.store.db.set_trace_callback(statements.append)
    steering.perform()
    steering.perform()
    desk.engine.store.db.set_trace_callback(None)
    (sql,) = statements
    plan = desk.engine.store.db.execute(f"EXPLAIN QUERY PLAN {sql}").fetchone()[3]
    assert "attempts_steered" in plan
