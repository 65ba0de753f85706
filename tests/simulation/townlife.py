"""The history of one town: what happens to it, until it comes to rest; how to see it again, and how to make it short.

Every step draws from a chance of its own, seeded by the history's seed and the step's number. So a step that is left
out changes the others only through what it did, and a failing history can be cut down (`shortest`).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mailboxd.core.inputs import Cancel, Clarification, OperatorInput, Remedy, Retry, Steer, Unblock
from mailboxd.errors import Refused
from mailboxd.ledger import event_log
from tests.simulation import laws, townlaws
from tests.simulation.house import House
from tests.simulation.town import Town

STEPS = 90
MOST_ROUNDS = 500


class Broken(AssertionError):
    """A history in which a law does not hold; says how to run it again."""


def run(seed: int, steps: Sequence[int] = range(STEPS), shown: list[str] | None = None) -> Counter[str]:
    """Play one history and check every law on the way; what it reached. Raises Broken.

    `shown` receives what happened.
    """
    root = Path(tempfile.mkdtemp(prefix="town-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        with Town.founded(seed, root) as town:
            journal = town.journal = [] if shown is None else shown
            try:
                for number in steps:
                    step(town, number)
                town.script.random.seed(f"{seed}/end")
                _come_to_rest(town)
                _at_rest(town)
            except Exception as problem:
                raise _broken(town, steps, journal, problem) from problem
            return townlaws.counts(town)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def shortest(seed: int, steps: Sequence[int] = range(STEPS)) -> list[int]:
    """The steps that are needed for that history to break a law: leaves out larger parts first, then smaller ones."""
    left = list(steps)
    size = max(len(left) // 2, 1)
    while size:
        at = 0
        while at < len(left):
            without = left[:at] + left[at + size :]
            if _breaks(seed, without):
                left = without
            else:
                at += size
        size //= 2
    return left


def _breaks(seed: int, steps: Sequence[int]) -> bool:
    try:
        run(seed, steps)
    except Broken:
        return True
    return False


def _broken(town: Town, steps: Sequence[int], journal: Sequence[str], problem: Exception) -> Broken:
    last = "\n  ".join(journal[-15:])
    again = f"SEED={town.seed} .venv/bin/pytest tests/simulation/test_town.py -k every_law"
    text = f"town {town.seed} with the steps {list(steps)}: {type(problem).__name__}: {problem}"
    return Broken(f"{text}\nthe last that happened:\n  {last}\nagain: {again}; SHRINK=1 makes it short")


# -------------------------------------------------------------- what happens


def _work(town: Town) -> None:
    _house(town).work(town.script.random.choice((1, 3, 60)))


def _land(town: Town) -> None:
    running = town.processes.running()
    if running:
        town.land(town.script.random.choice(running))


def _arrive(town: Town) -> None:
    """Of what is under way any comes next: that is how messages overtake each other."""
    if town.letters:
        town.arrive(town.letters.pop(town.script.random.randrange(len(town.letters))))


def _errand(town: Town) -> None:
    town.arrive(town.task())


def _again(town: Town) -> None:
    """A message that arrived long ago comes once more."""
    if town.carried:
        town.arrive(town.script.random.choice(town.carried))


def _forge(town: Town) -> None:
    """A copy of a reply in another name, perhaps before the reply itself comes: it must lead to nothing."""
    replies = [letter for letter in town.letters or town.carried if b"\ntype: reply\n" in letter.raw]
    if replies:
        letter = town.script.random.choice(replies)
        name = f"forged-{town.next_number()}"
        raw = re.sub(rb"\nfrom: \S+", b"\nfrom: mallory", letter.raw)
        raw = re.sub(rb"\nmessage_id: \S+", f"\nmessage_id: {name}".encode(), raw)
        raw = re.sub(rb"made by \w+", b"made by mallory", raw)
        town.arrive(replace(letter, name=name, raw=raw))


def _crash(town: Town) -> None:
    """At once, and what ran ends while nobody looks, or goes on."""
    house = _house(town)
    house.die()
    house.crashes["at once"] += 1
    for process in town.processes.running():
        if process.house == house.name and town.script.chance(0.3):
            town.land(process)


def _cut_power(town: Town) -> None:
    """Of a whole machine. What its calls had handed over by then has arrived."""
    house = _house(town)
    for process in town.processes.running():
        if process.house == house.name and town.script.chance(0.5):
            town.land(process)
    house.lose_power(town.script.chance)
    house.crashes["power"] += 1


def _spoil(town: Town) -> None:
    house = _house(town)
    town.break_something(house)
    house.work()


def _wait(town: Town) -> None:
    town.clock.advance(town.script.random.choice((1.0, 10.0, 60.0, 600.0, 8000.0)))


def _cancel(town: Town) -> None:
    """The operator cancels something, by a message or by a command."""
    house = _house(town)
    rows = house.store.db.execute(
        "SELECT id, task_id, sender FROM v_tasks WHERE phase NOT IN ('completed', 'failed', 'cancelled') ORDER BY seq"
    ).fetchall()
    if rows and house.daemon is not None:
        task, task_id, sender = town.script.random.choice(rows)
        if sender == "operator":
            name = f"op-{town.next_number()}"
            town.arrive(town.letter(house.name, name, f"type: cancel\ntask_id: {task_id}", "no longer needed"))
        elif town.script.chance(0.3):
            _command(house, task, Cancel("operator", "no longer needed"))


def _retry(town: Town) -> None:
    """The operator tries again what has failed, with what was cancelled for it."""
    house = _house(town)
    failed = house.store.db.execute("SELECT id FROM v_tasks WHERE phase = 'failed' AND parent IS NULL").fetchall()
    if failed and house.daemon is not None:
        _command(house, town.script.random.choice(failed)[0], Retry())


def _steer(town: Town) -> None:
    """New instructions for something that was given away: they cross with whatever comes back."""
    house = _house(town)
    rows = house.store.db.execute("SELECT task FROM v_attempts WHERE waiting_for = 'reply' ORDER BY id").fetchall()
    if rows and house.daemon is not None:
        _command(house, town.script.random.choice(rows)[0], Steer("operator", "use blue"))


def _operate(town: Town) -> None:
    """Somebody answers what is asked, and decides about open circuits."""
    _attend(_house(town), Remedy.RETRY if town.script.chance(0.6) else Remedy.FAIL)


HAPPENINGS: Mapping[str, tuple[float, Callable[[Town], None]]] = {
    "work": (40, _work),
    "land": (45, _land),
    "arrive": (10, _arrive),
    "errand": (7, _errand),
    "again": (4, _again),
    "forge": (4, _forge),
    "crash": (5, _crash),
    "power": (3, _cut_power),
    "spoil": (8, _spoil),
    "wait": (7, _wait),
    "cancel": (2, _cancel),
    "operate": (4, _operate),
    "retry": (4, _retry),
    "steer": (2, _steer),
}
"""What may happen in a step -> how often, and how."""


def step(town: Town, number: int) -> None:
    """Let the step of that number happen, and check every law after it."""
    town.script.random.seed(f"{town.seed}/{number}")
    name = town.script.one_of(**{name: weight for name, (weight, _) in HAPPENINGS.items()})
    town.journal.append(f"{number} {name}")
    HAPPENINGS[name][1](town)
    for house in town.houses.values():
        if not house.store.db.in_transaction:
            house.book.read()
            laws.standing(house.store)
    townlaws.standing(town)


def _house(town: Town) -> House:
    return town.script.random.choice(list(town.houses.values()))


# -------------------------------------------------------------- the end


def _come_to_rest(town: Town) -> None:
    """No more faults: everything arrives, every turn succeeds, people decide. Then nothing more may happen."""
    town.smooth = True
    town.journal.append("no more faults")
    for house in town.houses.values():
        house.fuse.left = house.fuse.refusals = None
    for _ in range(MOST_ROUNDS):
        moved = sum([_carry_on(town, house) for house in town.houses.values()])
        running = town.processes.running()
        for process in running:
            town.land(process)
        letters, town.letters = town.letters, []
        for letter in letters:
            town.arrive(letter)
        if not (moved or running or letters) and not _time_passes(town):
            return
    raise AssertionError(f"it does not come to rest in {MOST_ROUNDS} rounds")


def _carry_on(town: Town, house: House) -> int:
    moved = house.work()
    assert house.daemon is not None, f"{house.name} cannot start: {house.fuse.where}"
    house.daemon.engine.settings = replace(house.daemon.engine.settings, heartbeat=0.0)
    attended = _attend(house, Remedy.FAIL)
    house.book.read()
    laws.standing(house.store)
    return moved + attended


def _time_passes(town: Town) -> bool:
    """To the next moment at which something is due, or has to be synced; False if there is none."""
    now = town.clock.now()
    dues = [house.store.schedule.next_due(now) for house in town.houses.values()]
    due = min((due for due in dues if due is not None), default=None)
    if due is not None:
        town.clock.text = max(due, now)
        return True
    syncs = any(house.daemon and house.daemon.effects.starting.dispatches.due for house in town.houses.values())
    if syncs:
        town.clock.advance(1.0)
    return syncs


def _at_rest(town: Town) -> None:
    for house in town.houses.values():
        laws.resting(house.store)
        event_log.check(house.store.db)
    townlaws.resting(town)


# -------------------------------------------------------------- people


def _attend(house: House, remedy: Remedy) -> int:
    """Answer every question to a person, decide every open circuit; how many."""
    if house.daemon is None:
        return 0
    asked = "SELECT t.id FROM v_attempts a JOIN v_tasks t ON t.id = a.task AND t.attempt = a.ordinal WHERE"
    asked += " a.waiting_for = 'answer' AND (t.sender = 'operator' OR t.parent IS NOT NULL)"
    done = 0
    for (task,) in house.store.db.execute(asked).fetchall():
        done += _command(house, task, Clarification("operator", "the red one"))
    for (task,) in house.store.db.execute("SELECT id FROM v_tasks WHERE phase = 'circuit_open'").fetchall():
        done += _command(house, task, Unblock(remedy))
    return done


def _command(house: House, task: str, heard: OperatorInput) -> bool:
    assert house.daemon is not None
    core = house.daemon.engine
    with core.batch():
        found = house.store.tasks.get(task)
        assert found is not None
        try:
            if isinstance(heard, Clarification | Steer):
                core.handle(task, heard)
            else:
                core.command(found, heard, "operator")
        except Refused:
            return False
    return True
