"""Every interleaving, in small scopes: a daemon and an agent, with one crash, loss, repetition and unclear answer.

Breadth first over states. The steps are the functions that the daemon runs: the engine on its real tables, the decision
about a pending turn (`next_step`), the outcome of a lost one (`resolve`). Only the disk and the agent are played here.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from mailboxd.core.attempts import is_wanted
from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Policy, Spec
from mailboxd.core.outcomes import Unknown
from mailboxd.core.task_view import Limits
from mailboxd.engine.engine import Engine
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.protocol.answer import Asked
from mailboxd.host.clock import ManualClock
from mailboxd.host.ids import Ids
from mailboxd.ledger.database import connect
from mailboxd.ledger.store import Order, Store
from mailboxd.perform import turns
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.openclaw_runs import CheckAgain, FetchReply, LostTurn, parse_reply, parse_run, resolve
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.process import State
from mailboxd.perform.agents.scripted import program
from mailboxd.perform.turns import Next, next_step

MOST_STATES = 40_000
UNCLEAR = "---\ntype: reply\nstatus: perhaps\n---\n"


@dataclass(frozen=True, slots=True)
class Call:
    """A turn as the machine and the agent know it."""

    has_mark: bool = False
    is_alive: bool = False
    exit: Exit | None = None
    """What its files say; None while it runs, or if it never did."""
    worked: int = 0
    """How often the agent did the work."""
    reply: str | None = None
    """What the agent's session remembers."""
    asks_again: bool = False
    """It asks for another answer; the work is done."""


@dataclass(frozen=True, slots=True)
class World:
    """A state: the committed database, the calls, what the daemon has in memory, and the faults that may still come."""

    database: bytes
    calls: dict[str, Call] = field(default_factory=dict)
    children: frozenset[str] = frozenset()
    """Calls whose end this daemon will be told: those it started."""
    reported: frozenset[str] = frozenset()
    """Calls whose end this daemon has recorded."""
    boot: str = "first boot"
    number: int = 0
    """Makes ids of this step differ from those of earlier ones."""
    seconds: float = 0.0
    crash: bool = True
    loss: bool = True
    repetition: bool = True
    unclear: bool = False
    """An answer may still be unclear."""
    path: tuple[str, ...] = ()

    def with_call(self, turn: str, call: Call) -> World:
        return replace(self, calls={**self.calls, turn: call})


class Daemon:
    """The daemon in one step: the real engine over the database of a state."""

    def __init__(self, world: World) -> None:
        db = connect(None)
        if world.database:
            db.deserialize(world.database)
        self.store = Store(db) if world.database else Store.open(None, "")
        clock = ManualClock()
        clock.advance(world.seconds)
        numbers = Random(world.number)
        settings = Settings("main", Policy(backoff_base=10.0), Limits(), 0.0, 4, 4)
        self.engine = Engine(self.store, settings, clock, Ids(numbers.getrandbits), Random(0), lambda: "token")

    def pending(self) -> list[Order]:
        return self.store.outbox.pending(self.engine.clock.now(), 100)

    def leave(self, world: World, **changes: object) -> World:
        database = self.store.db.serialize()
        self.store.close()
        return replace(world, database=database, number=world.number + 1, **changes)  # type: ignore[arg-type]


Step = Callable[[World], Iterator[tuple[str, World]]]


# The daemon


def record(world: World) -> Iterator[tuple[str, World]]:
    """One transaction: what ended, what may start, which turns begin."""
    daemon, reported = Daemon(world), set(world.reported)
    with daemon.engine.batch():
        for order in daemon.pending():
            call = world.calls.get(order.id)
            if not isinstance(order.effect, RunTurn) or call is None or call.exit is None:
                continue
            exit_ = call.exit if order.id in world.children else Exit(None, call.exit.stdout)
            how = classify(exit_)
            daemon.engine.handle(
                order.task, turns.ended(order, order.effect, how, turns.answer(Asked(order.effect.turn), how))
            )
            daemon.store.outbox.finish(order.id)
            reported.add(order.id)
        daemon.engine.tick()
        daemon.engine.schedule()
    yield "record", daemon.leave(world, reported=frozenset(reported))


def mark(world: World) -> Iterator[tuple[str, World]]:
    """One transaction: the turns for which there is a slot are marked as begun."""
    daemon = Daemon(world)
    with daemon.engine.batch():
        for order in daemon.pending():
            if isinstance(order.effect, RunTurn) and order.begun is None:
                task = daemon.store.tasks.get(order.task)
                attempt = daemon.store.tasks.attempt(order.task, task.attempt) if task else None
                if task is not None and is_wanted(task, attempt, order.effect):
                    daemon.store.outbox.begin(order.id, world.boot)
                else:
                    daemon.store.outbox.finish(order.id)
    yield "mark", daemon.leave(world)


def perform(world: World) -> Iterator[tuple[str, World]]:
    """After the commit: the mark of a call, then its process. A crash may come in between."""
    daemon = Daemon(world)
    for order in daemon.pending():
        if not isinstance(order.effect, RunTurn) or order.id in world.children:
            continue
        call = world.calls.get(order.id, Call())
        found = State.RUNNING if call.is_alive else State.ENDED if call.has_mark else State.NEVER_STARTED
        step = next_step(found, order.begun, world.boot)
        if step is Next.REPORT and call.exit is None:  # marked, and the process never was: nothing was written
            yield "report", world.with_call(order.id, replace(call, exit=Exit(None, b"")))
        if step is Next.LOOK_UP:
            asking = Daemon(world)
            with asking.engine.batch():
                asking.engine.handle(
                    order.task, turns.ended(order, order.effect, Unknown("the machine restarted"), None)
                )
                asking.store.outbox.finish(order.id)
            yield "ask about it", asking.leave(world)
        if step is Next.START:
            assert not call.worked, "a call is started twice"
            call = replace(call, asks_again=order.effect.correction is not None)
            started = world.with_call(order.id, replace(call, has_mark=True, is_alive=True))
            yield "start", replace(started, children=world.children | {order.id})
            if world.crash:
                yield "crash before the spawn", _crashed(world.with_call(order.id, replace(call, has_mark=True)))
                yield "crash after the spawn", _crashed(started)
    daemon.store.close()


def crash(world: World) -> Iterator[tuple[str, World]]:
    if world.crash:
        yield "crash", _crashed(world)


def power_failure(world: World) -> Iterator[tuple[str, World]]:
    """The machine restarts: every call has ended, and what was not synced is gone: its directory, too."""
    if not world.crash:
        return
    for how, worked in (("after the work", True), ("before the work", False)):
        calls = {
            turn: _done(call, "Text.", has_mark=False) if call.is_alive and worked else Call(worked=call.worked)
            for turn, call in world.calls.items()
            if call.exit is None
        }
        yield f"power failure {how}", replace(_crashed(world), calls={**world.calls, **calls}, boot="second boot")


def _crashed(world: World) -> World:
    return replace(world, children=frozenset(), reported=frozenset(), crash=False)


def look_up(world: World) -> Iterator[tuple[str, World]]:
    """Ask OpenClaw's ledger about a lost turn."""
    daemon = Daemon(world)
    order = next((order for order in daemon.pending() if isinstance(order.effect, LookUp)), None)
    if order is None or not isinstance(order.effect, LookUp):
        daemon.store.close()
        return
    session = [(turn, call) for turn, call in world.calls.items() if call.reply is not None or call.is_alive]
    lost = LostTurn(order.effect.session_key, order.effect.run_id, waited=10_000.0, patience=100.0, ready_for=10_000.0)
    found = resolve(OpenClaw(("openclaw",)), lost, parse_run(_ledger(session)))
    if isinstance(found, FetchReply):
        reply = parse_reply(found.source, _history(session), found.run_id)
        found = resolve(OpenClaw(("openclaw",)), lost, parse_run(_ledger(session)), reply)
    assert not isinstance(found, FetchReply)
    if isinstance(found, CheckAgain):
        daemon.store.close()
        return
    with daemon.engine.batch():
        daemon.engine.handle(
            order.task, turns.ended(order, order.effect, found, turns.answer(Asked(order.effect.turn), found))
        )
        daemon.store.outbox.finish(order.id)
    yield "look up", daemon.leave(world)


def _ledger(calls: list[tuple[str, Call]]) -> Exit:
    if not calls:
        return _said(program.cli_error("Task not found: x."), 1)
    turn, call = calls[-1]
    status = "running" if call.is_alive else "succeeded" if call.reply is not None else "failed"
    return _said({"runId": turn, "status": status, "error": ""})


def _history(calls: list[tuple[str, Call]]) -> Exit:
    said = [{"role": "assistant", "content": [{"type": "text", "text": call.reply}], "__openclaw": {"runId": turn}}
            for turn, call in calls if call.reply is not None]  # fmt: skip
    return _said({"messages": said, "hasMore": False})


def _said(value: object, rc: int = 0) -> Exit:
    return Exit(rc, json.dumps(value).encode())


def repeat(world: World) -> Iterator[tuple[str, World]]:
    """The end of a turn is reported once more."""
    daemon = Daemon(world)
    if world.repetition and world.reported:
        turn = sorted(world.reported)[-1]
        order, exit_ = daemon.store.outbox.get(turn), world.calls[turn].exit
        assert isinstance(order.effect, RunTurn)
        assert exit_ is not None
        how = classify(exit_)
        with daemon.engine.batch():
            ended = turns.ended(order, order.effect, how, turns.answer(Asked(order.effect.turn), how))
            daemon.engine.handle(order.task, ended)
        yield "the end is reported again", daemon.leave(world, repetition=False)
    else:
        daemon.store.close()


# The agent


def agent(world: World) -> Iterator[tuple[str, World]]:
    """A running turn ends: with its reply, or with the reply lost, or before the agent took it."""
    for turn, call in world.calls.items():
        if not call.is_alive:
            continue
        done = _done(call, "Text.")
        told = _said(program.success(turn, "key", "prompt", "Text."))
        yield "the agent replies", world.with_call(turn, replace(done, exit=told))
        if world.unclear:
            told = _said(program.success(turn, "key", "prompt", UNCLEAR))
            said = replace(_done(call, UNCLEAR), exit=told)
            yield "its answer is unclear", replace(world, unclear=False).with_call(turn, said)
        if world.loss:
            lost = replace(world, loss=False)
            yield "its reply is lost", lost.with_call(turn, replace(done, exit=Exit(-9, b"")))
            gone = replace(call, is_alive=False, exit=Exit(-9, b""))
            yield "it never took the work", lost.with_call(turn, gone)


def _done(call: Call, reply: str, *, has_mark: bool = True) -> Call:
    """The call when the agent has answered; it does the work once in its session."""
    worked = call.worked + (not call.asks_again)
    return Call(has_mark=has_mark, worked=worked, reply=reply, asks_again=call.asks_again)


def wait(world: World) -> Iterator[tuple[str, World]]:
    """The pause after a failure is over."""
    if _pauses(world):
        yield "wait", replace(world, seconds=world.seconds + 1000.0)


def _pauses(world: World) -> bool:
    daemon = Daemon(world)
    paused = daemon.store.db.execute(
        "SELECT 1 FROM v_tasks WHERE not_before > ?", (daemon.engine.clock.now(),)
    ).fetchone()
    daemon.store.close()
    return paused is not None


# The exploration

_SEEN = (
    "SELECT phase, attempt, failures, stalls, result FROM v_tasks",
    "SELECT ordinal, status, waiting_for, run_id FROM v_attempts ORDER BY ordinal",
    "SELECT kind, state, begun, tries, not_before IS NULL FROM v_outbox ORDER BY seq",
)


def key(world: World) -> object:
    """What makes two states the same: everything but ids, times and the way to them."""
    db = sqlite3.connect(":memory:")
    db.deserialize(world.database)
    tables = tuple(tuple(db.execute(sql).fetchall()) for sql in _SEEN)
    orders = [row[0] for row in db.execute("SELECT id FROM v_outbox ORDER BY seq")]
    db.close()
    of_calls = tuple((orders.index(turn), call) for turn, call in world.calls.items())
    memory = tuple(sorted(orders.index(turn) for turn in world.children)), len(world.reported)
    faults = (world.crash, world.loss, world.repetition, world.unclear)
    return (tables, of_calls, memory, _pauses(world), *faults)


@dataclass(frozen=True, slots=True)
class Explored:
    states: int
    at_rest: list[World]
    """The states in which nothing more happens."""


def explore(first: World, steps: Iterable[Step], law: Callable[[World], None]) -> Explored:
    """Every state that can be reached, breadth first; `law` holds in each."""
    seen, frontier, at_rest = {key(first)}, deque([first]), []
    while frontier:
        world = frontier.popleft()
        before, moved = key(world), False
        for step in steps:
            for name, following in step(world):
                then = replace(following, path=(*world.path, name))
                mark = key(then)
                moved = moved or mark != before
                if mark not in seen:
                    seen.add(mark)
                    law(then)
                    frontier.append(then)
        if not moved:
            at_rest.append(world)
        assert len(seen) < MOST_STATES, "the scope is too large"
    return Explored(len(seen), at_rest)


def new_task() -> World:
    daemon = Daemon(World(b""))
    with daemon.engine.batch():
        spec = Spec(goal="job", instructions="Do it.", expected_output="A line.")
        daemon.engine.handle(None, NewTask("job", None, "job", "boss", "job", spec, Policy(backoff_base=10.0)))
    return daemon.leave(World(b""))


@pytest.mark.slow
def test_an_unclear_answer_is_asked_for_again_whatever_is_lost(record_property: Callable[[str, object], None]) -> None:
    """As below, with an answer that has to be asked for again: the work is repeated only after the session is lost."""
    explored = law_of_corrections()
    record_property("states", explored.states)
    print(f"{explored.states} states, {len(explored.at_rest)} at rest")
    asked = [world for world in explored.at_rest if not world.unclear]
    assert asked


def law_of_corrections() -> Explored:
    """Explore the scope of one turn whose answer may be unclear. Raises AssertionError, with the way to the state."""
    explored = explore(replace(new_task(), unclear=True), STEPS, _is_done_once)
    _all_are_done(explored)
    return explored


@pytest.mark.slow
def test_no_turn_runs_twice_and_no_result_is_lost(record_property: Callable[[str, object], None]) -> None:
    """Record, spawn, look up: with one crash, one lost reply and one repeated report, in every order."""
    explored = law()
    record_property("states", explored.states)
    print(f"{explored.states} states, {len(explored.at_rest)} at rest")
    assert explored.at_rest


def law() -> Explored:
    """Explore the scope of one turn. Raises AssertionError, with the way to the state."""
    explored = explore(new_task(), STEPS, _is_done_once)
    _all_are_done(explored)
    return explored


STEPS: tuple[Step, ...] = (record, mark, perform, crash, power_failure, look_up, repeat, agent, wait)


def _all_are_done(explored: Explored) -> None:
    for world in explored.at_rest:
        daemon = Daemon(world)
        ((phase, result),) = daemon.store.db.execute("SELECT phase, result FROM v_tasks").fetchall()
        daemon.store.close()
        assert (phase, result) == ("completed", "Text."), f"{phase}: {world.path}"


def _is_done_once(world: World) -> None:
    worked = sum(call.worked for call in world.calls.values())
    asked = any(call.reply == UNCLEAR for call in world.calls.values())
    spared = world.crash and world.loss  # without these no correcting turn is lost
    assert worked <= (1 if spared or not asked else 2), f"the work was done {worked} times: {world.path}"
    assert sum(call.is_alive for call in world.calls.values()) <= 1, f"two turns at once: {world.path}"
