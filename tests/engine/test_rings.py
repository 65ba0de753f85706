"""Rooms of agents that pass notes on, with real engines and databases and a clock that is moved: when does it end?"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC
from itertools import count
from pathlib import Path
from random import Random

import pytest

from mailboxd.core.effects import RunTurn
from mailboxd.core.handovers import Bounds
from mailboxd.engine.intake import provenance, repetitions
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.intake.provenance import Claims
from mailboxd.errors import Refused
from mailboxd.formats.keys import YES, Proof
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.messages import TaskMessage, parse_message
from mailboxd.host.clock import ManualClock
from tests.core.desk import DONE, Desk, child, plan

TASKS = 15
"""The limit of an hour in these rooms."""


class Room:
    """Agents of one OpenClaw, each with its workspace. Every turn takes a second, and so does the way to the next."""

    def __init__(self, root: Path, *names: str, bounds: Bounds) -> None:
        self.clock, self.numbers = ManualClock(), count()
        self.desks: dict[str, Desk] = {}
        homes = {name: ("", str(root / name)) for name in names}
        for name in names:
            ws = Workspace(root / name)
            ws.state.mkdir(parents=True)
            desk = Desk(database=ws.database, clock=self.clock).configured(agent=name, handovers=bounds)
            desk.knows_agents(homes)
            with desk.engine.batch():
                desk.store.meta.report("agent", name)
            self.desks[name] = desk

    def note(self, receiver: str, sender: str, text: str) -> str:
        """A note is written into an inbox and read; returns the name of its task."""
        name = f"note-{next(self.numbers)}"
        said = f"type: task\nfrom: {sender}\n" if sender else ""
        head = f"---\ntask_id: {name}\n{said}---\n"
        raw = f"{head}\n# Task: News\n\n## Instructions\n\n{text}\n".encode()
        verdict, rule = self.desks[receiver].receive(f"{name}.md", raw)
        assert verdict == "accepted", rule
        self.desks[receiver].start()
        return name

    def works(self, agent: str, name: str) -> bool:
        """Whether the agent is in a turn of it."""
        return bool(self.desks[agent].orders(RunTurn, name))

    def ends(self, agent: str, name: str) -> None:
        self.clock.advance(1)
        self.desks[agent].ends(name, DONE)
        self.clock.advance(1)

    def passed_on(self, hops: Iterator[tuple[str, str, str]], most: int) -> int:
        """How many turns it takes until a note is held: each agent writes the next one in its turn."""
        agent = "alpha"
        name = self.note(agent, "operator", "Begin.")
        for turns in range(1, most + 1):
            receiver, sender, text = next(hops)
            note = self.note(receiver, agent if sender == "own" else sender, text)
            self.ends(agent, name)
            if not self.works(receiver, note):
                assert self.desks[receiver].is_held(note)
                return turns
            agent, name = receiver, note
        pytest.fail(f"it goes on after {most} turns")


@pytest.mark.parametrize("seed", range(2))
def test_notes_of_agents_that_say_who_they_are_end_at_the_depth(tmp_path: Path, seed: int) -> None:
    """Whomever they choose, and whatever they write."""
    chance, names = Random(seed), ("alpha", "beta", "gamma")
    room = Room(tmp_path, *names, bounds=Bounds())
    hops = ((chance.choice(names), "own", chance.choice(["News.", f"News {number}."])) for number in count())
    assert room.passed_on(hops, 20) <= 9


@pytest.mark.parametrize("forged", ["", "many ghosts", "another"])
def test_notes_that_hide_where_they_come_from_end_at_the_limit_of_an_hour(tmp_path: Path, forged: str) -> None:
    room = Room(tmp_path, "alpha", "beta", bounds=Bounds(tasks=TASKS))

    def hops() -> Iterator[tuple[str, str, str]]:
        for number in count():
            receiver = ("beta", "alpha")[number % 2]
            sender = {"many ghosts": f"ghost-{number}", "another": receiver}.get(forged, forged)
            yield receiver, sender, f"News {number}."

    room.passed_on(hops(), 2 * TASKS + 3)


@pytest.mark.slow
@pytest.mark.parametrize("notes", [2, 30])
def test_a_fan_out_of_forged_notes_ends_too(tmp_path: Path, notes: int) -> None:
    """Each turn writes several; those that come in piles have a higher limit, as what a person drops at once."""
    room, tasks = Room(tmp_path, "alpha", "beta", bounds=Bounds(tasks=25)), count(1)
    turns, ends = deque([("alpha", room.note("alpha", "operator", "Begin."))]), False
    while not ends:
        agent, name = turns.popleft()
        if not room.works(agent, name):
            continue
        receiver = {"alpha": "beta", "beta": "alpha"}[agent]
        written = [room.note(receiver, "operator", f"News {next(tasks)}.") for _ in range(notes)]
        assert next(tasks) < 500, "it goes on"
        room.ends(agent, name)
        turns.extend((receiver, one) for one in written)
        ends = all(room.desks[receiver].is_held(one) for one in written)  # no way leads around this agent


def repeated(desk: Desk, minutes: int, number: int, proof: Proof | None = None) -> str:
    head = f"type: task\nfrom: operator\nrepeat: every {minutes} min\noverlap: true"
    parsed = parse_message(f"---\n{head}\n---\n\n# Work {number}\n\nDo it.\n".encode(), f"again-{number}.md").message
    assert isinstance(parsed, TaskMessage)
    intake = Intake(desk.engine, zone=UTC)
    with desk.engine.batch():
        came = provenance.of(desk.engine, Claims.of(parsed), proof)
        return repetitions.accept(intake, desk.engine, parsed, UTC, came)


def runs_of(desk: Desk, minutes: int) -> list[bool]:
    """What runs in so many minutes: whether each is held."""
    for _ in range(minutes):
        desk.clock.advance(60)
        with desk.engine.batch():
            repetitions.run_due(Intake(desk.engine, zone=UTC), desk.engine)
    return [bool(held) for (held,) in desk.sql("SELECT held <> '' FROM tasks ORDER BY rowid")]


def test_work_that_repeats_and_only_says_operator_ends_at_the_limit_of_an_hour(tmp_path: Path) -> None:
    desk = Room(tmp_path, "alpha", bounds=Bounds(tasks=3)).desks["alpha"]
    for number in range(3):
        assert repeated(desk, 1, number) == "accepted"
    with pytest.raises(Refused, match="sender_hour_tasks"):
        repeated(desk, 1, 3)
    assert repeated(desk, 1, 0) == "duplicate", "it is known"
    assert repeated(desk, 5, 4, Proof(YES, "fingerprint")) == "accepted", "a person has signed it"
    found = runs_of(desk, 5)
    assert len(found) == 16
    assert found.count(False) == 3 + 1, "three, and what is signed"


def test_what_a_person_repeats_is_held_neither_by_its_own_runs_nor_by_forged_notes(tmp_path: Path) -> None:
    room = Room(tmp_path, "alpha", bounds=Bounds(tasks=13))
    desk = room.desks["alpha"]
    assert repeated(desk, 5, 0) == "accepted"
    for number in range(14):
        room.note("alpha", "operator", f"News {number}.")
    assert desk.sql("SELECT count(*) FROM tasks WHERE held <> ''") == [(2,)]
    runs_of(desk, 120)
    assert desk.sql("SELECT count(*), sum(held <> '') FROM tasks WHERE origin LIKE '%rpt_%'") == [(24, 0)]


def test_a_ring_among_much_other_work_ends_at_the_limit_of_an_hour_and_that_work_goes_on(tmp_path: Path) -> None:
    room = Room(tmp_path, "alpha", "beta", bounds=Bounds(tasks=TASKS))
    for name in ("alpha", "beta"):
        room.note(name, "operator", "Something long.")
    hops = ((("beta", "alpha")[number % 2], "own", f"News {number}.") for number in count())
    room.passed_on(hops, 2 * TASKS + 3)
    name = room.note("beta", "operator", "A person's task.")
    assert room.works("beta", name)


def test_the_hour_passes(tmp_path: Path) -> None:
    room = Room(tmp_path, "alpha", "beta", bounds=Bounds(tasks=2))
    for number in range(2):
        assert room.works("beta", room.note("beta", "alpha", f"News {number}."))
    assert not room.works("beta", room.note("beta", "alpha", "News."))
    room.clock.advance(3601)
    assert room.works("beta", room.note("beta", "alpha", "Other news."))


@pytest.mark.slow
def test_a_fan_out_of_two_hundred_is_never_held(tmp_path: Path) -> None:
    """Neither one of a plan, nor one of notes, nor what a person drops at once."""
    room = Room(tmp_path, "alpha", "beta", bounds=Bounds())
    alpha, beta = room.desks["alpha"], room.desks["beta"]
    alpha.give("fan", plan(*(child(f"c{number}", "beta") for number in range(200))), sender="operator")
    alpha.start()
    orders = alpha.pending(RunTurn)
    assert len(orders) == 100, "as many as it has slots"
    for order in orders:
        assert isinstance(order.effect, RunTurn)
        name = alpha.name(order)
        raw = alpha.dispatch(order.effect, name, tmp_path).replace(b"from: main", b"from: alpha")
        assert beta.receive(f"{name}.md", raw) == ("accepted", "")
    for number in range(200):
        room.note("beta", "alpha", f"Part {number}.")
    for number in range(600):
        room.note("beta", "operator", f"Chapter {number}.")
    room.clock.advance(60)
    for _ in range(10):
        room.note("beta", "operator", "The same again.")
    assert beta.sql("SELECT count(*) FROM tasks WHERE held <> ''") == [(0,)]
