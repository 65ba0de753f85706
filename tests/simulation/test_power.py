"""What a power cut takes with it, and what is done about it, in one workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from mailboxd.host.clock import ManualClock
from tests.simulation.house import House
from tests.simulation.processes import Processes

TASK = b"""---
type: task
task_id: job
from: operator
message_id: m-1
---

# Task: Job

## Instructions

Do it.

## DAG

```yaml
subtasks:
  x: {agent: carl, description: part x}
```
"""


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


def law() -> None:
    """The first of these, for whoever plants a fault."""
    with TemporaryDirectory() as root, founded(Path(root) / "ada") as made:
        test_a_turn_that_may_have_begun_before_a_power_cut_is_asked_about(made)


def begun(house: House) -> list[str]:
    """The kinds of calls that were made, in order."""
    return [process.argv[1] for process in house.processes.all]


def sent(house: House) -> Path:
    (file,) = house.ws.outbox.glob("*/*.task.*")
    return file


def test_a_turn_that_may_have_begun_before_a_power_cut_is_asked_about(house: House) -> None:
    house.drop("job.md", TASK, 1)
    house.work()
    assert begun(house) == ["agent"]
    house.lose_power(lambda _share: True)
    house.work()
    assert begun(house) == ["agent", "tasks"]
    assert house.store.db.execute("SELECT status FROM v_attempts WHERE session_key LIKE '%carl%'").fetchall() == [
        ("running",)
    ]


def test_a_message_that_a_power_cut_took_is_written_at_the_next_start(house: House) -> None:
    house.work()  # what an earlier daemon wrote is synced at once
    house.drop("job.md", TASK, 1)
    house.work()
    ((path, raw),) = house.store.messages.unsynced()
    (house.ws.mailbox / path).parent.mkdir(exist_ok=True)
    (house.ws.mailbox / path).write_bytes(raw[:10])  # half of it
    house.lose_power(lambda _share: True)
    house.work()
    assert sent(house).read_bytes() == raw
    house.clock.advance(2)
    house.work()
    assert house.store.messages.unsynced() == []


@pytest.mark.slow
def test_after_a_crash_alone_what_never_began_begins(house: House) -> None:
    """The boot is the same: a call without a directory was never made."""
    house.drop("job.md", TASK, 1)
    for moments in range(400):
        house.fuse.left = moments
        house.work()
        if (
            house.daemon is None
            and all(order.begun for order in house.store.outbox.pending("9999", 1))
            and not begun(house)
        ):
            marked = house.store.db.execute("SELECT count(*) FROM v_outbox WHERE begun IS NOT NULL").fetchone()
            if marked == (1,):
                break
    else:
        pytest.fail("no crash came between the mark and the call")
    house.fuse.left = None
    house.work()
    assert begun(house) == ["agent"]
