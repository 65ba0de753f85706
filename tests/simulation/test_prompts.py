"""What a turn was asked: recorded before its call, and in the event of its end, wherever a daemon is cut off."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mailboxd.errors import DamagedError
from mailboxd.host.clock import ManualClock
from mailboxd.ledger import journal
from mailboxd.ledger.database import connect
from tests.simulation.house import House
from tests.simulation.processes import Process, Processes, said
from tests.simulation.townlaws import asked_as_recorded, ends_as_asked

TASK = b"""---
type: task
task_id: job
from: operator
message_id: m-1
---

# Task: Job

## Instructions

Count the ships.
"""
CHILD = """
## DAG

```yaml
subtasks:
  x: {agent: carl, description: part x}
```
"""
PLACES = ("own", "given away")


@contextmanager
def founded(root: Path) -> Iterator[House]:
    processes = Processes()
    made = House.build("ada", root, ManualClock(), Random(1), processes)
    try:
        yield made
    finally:
        made.die()
        made.store.close()
        processes.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with founded(tmp_path / "ada") as made:
        yield made


def task(place: str) -> bytes:
    return TASK if place == "own" else TASK + CHILD.encode()


def answer(house: House, process: Process, text: str, **by_agent: object) -> None:
    payload = {"payloads": [{"text": text}], "meta": {"stopReason": "stop", "agentMeta": by_agent}}
    house.processes.end(process, said({"runId": "run-1", "status": "ok", "result": payload}))


def turns(house: House) -> list[dict[str, Any]]:
    """The turns that have ended, as the log has them."""
    rows = house.store.db.execute(
        "SELECT data FROM v_events WHERE kind IN ('turn.ended', 'attempt.ended') ORDER BY seq"
    )
    return [json.loads(data)["turn"] for (data,) in rows if "turn" in json.loads(data)]


def killed(root: Path, place: str, moment: int) -> int:
    """Kill a daemon at this moment, then let another one go on; returns how many moments were left."""
    with founded(root / f"{moment}") as house:
        house.archive = {"prompts": "text"}
        house.drop("job.md", task(place), 1)
        house.fuse.left = moment
        house.work()
        left = house.fuse.left or 0
        asked_as_recorded(house)
        house.fuse.left = None
        house.work()
        asked_as_recorded(house)
        for process in house.processes.all:
            answer(house, process, "Seven.", usage={"input": 3, "output": 1})
        house.work()
        asked_as_recorded(house)
        ends_as_asked(house)
        assert house.processes.all
        return left


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_call_has_the_digest_of_its_prompt_if_the_daemon_is_killed_around_its_start(
    tmp_path: Path, place: str
) -> None:
    last = 10_000 - killed(tmp_path, place, 10_000)
    for moment in range(last - 9, last + 1):
        killed(tmp_path, place, moment)


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
def test_a_call_has_the_digest_of_its_prompt_wherever_the_daemon_is_killed(tmp_path: Path, place: str) -> None:
    """At each statement, change of a file and step of the start of a call, one house after the other."""
    for moment in range(1, 10_000 - killed(tmp_path, place, 10_000) + 1):
        killed(tmp_path, place, moment)


def test_the_end_of_a_turn_says_what_was_asked_and_by_what(house: House) -> None:
    house.drop("job.md", TASK, 1)
    house.work()
    (process,) = house.processes.all
    answer(house, process, "Seven.", provider="stub", model="stub-1", sessionId="s-1", usage={"input": 3})
    house.work()
    (turn,) = turns(house)
    digest = hashlib.sha256(process.prompt).hexdigest()
    assert turn["prompt"] == {"sha256": digest, "size": len(process.prompt)}
    assert (turn["model"], turn["run"], turn["session"]) == ("stub/stub-1", "run-1", "s-1")
    assert turn["session_key"] == process.session_key


def test_what_is_not_reported_is_null(house: House) -> None:
    house.drop("job.md", TASK, 1)
    house.work()
    (process,) = house.processes.all
    answer(house, process, "Seven.")
    house.work()
    (turn,) = turns(house)
    assert (turn["model"], turn["run"], turn["session"]) == (None, "run-1", None)


def test_without_text_only_the_digest_is_recorded(house: House) -> None:
    house.drop("job.md", TASK, 1)
    house.work()
    assert house.store.db.execute("SELECT * FROM v_prompts").fetchall() == []
    assert [line for line in lines(house) if "prompt" in line] == []


def lines(house: House) -> list[dict[str, Any]]:
    return [json.loads(line) for path in journal.files_of(house.ws.root) for line in path.read_text().splitlines()]


def test_a_text_that_is_too_large_is_said_to_be_left_out(house: House) -> None:
    house.archive = {"prompts": "text", "prompt_bytes": "10"}
    house.drop("job.md", TASK, 1)
    house.work()
    (process,) = house.processes.all
    answer(house, process, "Seven.")
    house.work()
    (turn,) = turns(house)
    assert turn["prompt"]["text"] == "left_out"
    assert house.store.db.execute("SELECT * FROM v_prompts").fetchall() == []


def test_a_kept_text_is_a_line_of_the_journal_and_rebuilt_from_it(house: House, tmp_path: Path) -> None:
    house.archive = {"prompts": "text"}
    house.store.journal = journal.Journal(house.ws.root)
    house.drop("job.md", TASK, 1)
    house.daemon = house._start()
    house.store.journal = journal.Journal(house.ws.root)
    house.work()
    (process,) = house.processes.all
    answer(house, process, "Seven.")
    house.work()
    found = [line for line in lines(house) if "prompt" in line]
    digest = hashlib.sha256(process.prompt).hexdigest()
    assert [(line["prompt"], line["text"]) for line in found] == [(digest, process.prompt.decode())]
    with closing(connect(tmp_path / "new.db")) as db:
        journal.fill(db, journal.entries(journal.files_of(house.ws.root)))
        for table in ("v_prompts", "v_outbox", "v_events"):
            sql = f"SELECT * FROM {table} ORDER BY 1"
            assert db.execute(sql).fetchall() == house.store.db.execute(sql).fetchall()


def test_a_changed_text_is_not_rebuilt(house: House, tmp_path: Path) -> None:
    house.archive = {"prompts": "text"}
    house.drop("job.md", TASK, 1)
    house.daemon = house._start()
    house.store.journal = journal.Journal(house.ws.root)
    house.work()
    (file,) = journal.files_of(house.ws.root)
    kept = [
        line.replace("Count the ships", "Sink the ships") if line.startswith('{"prompt":') else line
        for line in file.read_text().splitlines(keepends=True)
    ]
    file.write_text("".join(kept))
    with (
        closing(connect(tmp_path / "new.db")) as db,
        pytest.raises(DamagedError, match="the text of the prompt was changed"),
    ):
        journal.fill(db, journal.entries([file]))
