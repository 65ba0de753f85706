"""Every interleaving of a daemon and a command that write one database, with one crash and one repetition.

Two small protocols: commit, memory, journal (what a process knows and what the journal has are those of the database,
however many others commit, and wherever one of them dies), and an order and its answer (a person whose command died
gives the order again).

Breadth first over states; a state is reached again by taking its steps again. Stores, engine and journal are the real
ones, on files. A crash leaves the process where it is; a power failure also takes what was not synced.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from mailboxd.core.effects import RunTurn
from mailboxd.core.inputs import Cancel, NewTask, Pause
from mailboxd.core.model import Policy, Spec
from mailboxd.core.outcomes import Results, Succeeded
from mailboxd.core.vocabulary import OPERATORS, Phase
from mailboxd.engine.engine import Engine
from mailboxd.errors import Refused
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.host.ids import Ids
from mailboxd.ledger import event_log, journal
from mailboxd.ledger.database import connect
from mailboxd.ledger.opening import open_workspace
from mailboxd.perform import turns

MOST_STATES = 5_000
MOST_ORDERS = 2
OPERATOR = next(iter(OPERATORS))


class Died(BaseException):
    """The process ends here."""


class Machine:
    """A workspace on a disk of which it is known what was synced, a daemon, and the commands of a person."""

    def __init__(self, root: Path) -> None:
        Workspace.create(root)
        self.ws = Workspace(root)
        self.clock = ManualClock()
        self.synced: dict[int, int] = {}
        """The size that each file of the journal had when it was synced, by its inode."""
        self.numbers = Random(1)
        self.daemon: Engine | None = self.open()
        self.orders: list[str] = []
        self.crashed = self.repeated = False
        self.lost_answer = ""
        """The order whose command died after its commit."""
        with self.daemon.batch():
            spec = Spec(goal="t", instructions="Do it.", expected_output="A line.")
            self.daemon.handle(None, NewTask("t", None, "t", "boss", "t", spec, Policy()))

    def open(self) -> Engine:
        store = open_workspace(self.ws.database, self.clock.now())
        settings = Settings("main", Policy())
        return Engine(store, settings, self.clock, Ids(self.numbers.getrandbits), Random(0), lambda: "token")

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What may happen next, by name."""
        faults = ("",) if self.crashed else ("", " and dies before the journal", " and dies within a line")
        if self.daemon is None:
            yield "the daemon starts", self._start
        else:
            for fault in faults:
                yield f"the daemon has a round{fault}", partial(self._round, fault)
        if len(self.orders) < MOST_ORDERS:
            for order in ("pause", "cancel"):
                for fault in faults:
                    yield f"a person orders {order}{fault}", partial(self._order, order, fault)
        if self.lost_answer and not self.repeated:
            yield "the person orders it again", self._repeat
        if not self.crashed:
            yield "the power fails", self._power_failure

    # the daemon

    def _start(self) -> None:
        self.daemon = self.open()

    def _round(self, fault: str) -> None:
        """Record the end of the turn, if one is ordered; start what is ready."""
        daemon = self.daemon
        assert daemon is not None
        with self._dies(fault), daemon.batch():
            for order in daemon.store.outbox.pending(daemon.now, 10):
                if isinstance(order.effect, RunTurn):
                    done = turns.ended(order, order.effect, Succeeded("Text."), Results("Text."))
                    daemon.handle(order.task, done)
                    daemon.store.outbox.finish(order.id)
            daemon.tick()
            daemon.schedule()
        if fault:
            daemon.store.db.close()
            self.daemon = None

    # the person

    def _order(self, order: str, fault: str = "") -> None:
        """A command: a process of its own, which looks the task up, gives the order and tells what became of it."""
        self.orders.append(order)
        engine = self.open()
        task = engine.store.tasks.by_local_id("t")
        assert task is not None
        answered = False
        with self._dies(fault), suppress(Refused), engine.batch():
            engine.command(task, Cancel(OPERATOR, "") if order == "cancel" else Pause(), "ann")
            answered = True
        if fault:
            engine.store.db.close()
            self.lost_answer = order if answered else ""
        else:
            engine.store.close()

    def _repeat(self) -> None:
        self.repeated = True
        before = self.effective()
        self._order(self.lost_answer)
        self.orders.pop()
        assert self.effective() == before, f"{self.lost_answer} took effect twice"

    def effective(self) -> tuple[object, ...]:
        with closing(connect(self.ws.database)) as db:
            return tuple(db.execute("SELECT phase, held, attempt, result FROM v_tasks").fetchall())

    # faults

    @contextmanager
    def _dies(self, fault: str) -> Iterator[None]:
        """With a fault, the process dies between its commit and the end of its lines in the journal."""
        with pytest.MonkeyPatch.context() as disk:
            disk.setattr(os, "fdatasync", self._fdatasync)
            if fault:
                self.crashed = True
                disk.setattr(journal, "_write", _torn if fault.endswith("line") else _nothing)
            with suppress(Died):
                yield

    def _fdatasync(self, file: int) -> None:
        seen = os.fstat(file)
        self.synced[seen.st_ino] = seen.st_size

    def _power_failure(self) -> None:
        """The database was synced by its commits; of the journal only what `fdatasync` was called for is left."""
        self.crashed = True
        if self.daemon is not None:
            self.daemon.store.db.close()
            self.daemon = None
        for path in journal.files_of(self.ws.root):
            os.truncate(path, self.synced.get(path.stat().st_ino, 0))

    # what is seen

    def key(self) -> object:
        """What makes two states the same: everything but ids, times and the way to them."""
        with closing(connect(self.ws.database)) as db:
            orders = tuple(db.execute("SELECT kind, state FROM v_outbox ORDER BY seq"))
        behind = self.recorded() - len(self.journaled())
        known = None if self.daemon is None else self.daemon.store.last_recorded - self.recorded()
        faults = (self.crashed, self.repeated, self.lost_answer, len(self.orders))
        return (self.effective(), orders, behind, known, self.unsynced(), faults)

    def unsynced(self) -> bool:
        return any(self.synced.get(path.stat().st_ino, 0) < path.stat().st_size for path in self._files())

    def journaled(self) -> list[tuple[int, str]]:
        """Number and hash of each event in the journal, without half a last line."""
        found = []
        for path in self._files():
            raw = path.read_bytes()
            said = [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
            found += [(line["seq"], line["hash"]) for line in said if "seq" in line]
        return found

    def _files(self) -> list[Path]:
        return journal.files_of(self.ws.root)

    def recorded(self) -> int:
        """The number of events in the log."""
        with closing(connect(self.ws.database)) as db:
            return event_log.tip(db).seq

    def close(self) -> None:
        if self.daemon is not None:
            self.daemon.store.close()


def _nothing(_file: int, _raw: bytes) -> None:
    raise Died


def _torn(file: int, raw: bytes) -> None:
    os.write(file, raw[: len(raw) // 2])
    raise Died


def _holds(machine: Machine, path: tuple[str, ...]) -> None:
    """What holds in every state."""
    with closing(connect(machine.ws.database)) as db:
        event_log.check(db)  # the chain holds, and the tables are the fold of the log: no one decided on old memory
        log = db.execute("SELECT seq, hash FROM v_events ORDER BY seq").fetchall()
        phases = [phase for (phase,) in db.execute("SELECT phase FROM v_tasks")]
        open_turns = db.execute(
            "SELECT count(*) FROM v_outbox WHERE kind = 'run_turn' AND state = 'pending'"
        ).fetchone()
        steps = [
            step
            for (text,) in db.execute("SELECT data FROM v_events ORDER BY seq")
            for step in json.loads(text).get("passed", ())
        ]
    assert machine.journaled() == log[: len(machine.journaled())], f"the journal tells another story: {path}"
    assert all(one["to"] == other["from"] for one, other in pairwise(steps)), f"a phase was skipped: {path}"
    assert open_turns[0] <= 1, f"two turns at once: {path}"
    assert len(phases) == 1, f"a task was lost: {path}"


def settle(machine: Machine, path: tuple[str, ...]) -> None:
    """However it came about, the next daemon completes the journal, and the task ends or waits for the person."""
    if machine.daemon is None:
        machine._start()
    for _ in range(3):
        machine._round("")
    _holds(machine, path)
    assert machine.daemon is not None
    trouble = machine.daemon.store.journal.trouble if machine.daemon.store.journal else "there is none"
    assert not trouble, f"{trouble}: {path}"
    assert len(machine.journaled()) == machine.recorded(), f"the journal lacks events: {path}"
    task = machine.daemon.store.tasks.by_local_id("t")
    assert task is not None
    wanted = Phase.CANCELLED if task.phase is Phase.CANCELLED else Phase.COMPLETED
    assert task.phase is wanted or task.held, f"{task.phase}: {path}"


def reached(root: Path, path: tuple[str, ...]) -> Machine:
    """The state at the end of these steps."""
    machine = Machine(root)
    for name in path:
        dict(machine.steps())[name]()
    return machine


@pytest.mark.slow
def test_memory_journal_and_orders_are_those_of_the_database(
    record_property: Callable[[str, object], None],
) -> None:
    states = law()
    record_property("states", states)
    print(f"{states} states")
    assert states > 100


def law() -> int:
    """Explore the scope; returns the number of states. Raises AssertionError, with the way to the state."""
    with TemporaryDirectory() as root:
        return _explore(Path(root))


def _explore(root: Path) -> int:
    seen: set[object] = set()
    frontier: deque[tuple[str, ...]] = deque([()])
    number = 0
    while frontier:
        path = frontier.popleft()
        number += 1
        machine = reached(root / str(number), path)
        mark = machine.key()
        if mark not in seen:
            seen.add(mark)
            _holds(machine, path)
            frontier.extend((*path, name) for name, _ in machine.steps())
            settle(machine, path)
        machine.close()
        assert len(seen) < MOST_STATES, "the scope is too large"
    return len(seen)
