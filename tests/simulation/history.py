"""One simulated history from its first step to its rest, and how to see it again."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from mailboxd.core.effects import Compose, LookUp, Perform, Prepare, RunCheck, RunTurn, Verify
from mailboxd.core.events import Role
from mailboxd.core.inputs import CheckEnded, Clarification, Remedy, Reply, SpecWritten, TurnEnded, Unblock
from mailboxd.core.outcomes import Results, Reviewed, Succeeded
from mailboxd.core.vocabulary import CheckVerdict, Turn, Verdict, Waiting
from mailboxd.engine.engine import Engine
from mailboxd.ledger import event_log
from mailboxd.ledger.reports import Report
from mailboxd.ledger.store import Order
from mailboxd.perform import turns
from mailboxd.perform.message_builder import composed
from tests.ledger.shapes import well_shaped
from tests.simulation.acting import carry_out, settled
from tests.simulation.happenings import step
from tests.simulation.laws import Book, looked_at, resting, standing
from tests.simulation.script import OWN
from tests.simulation.world import World, new_engine

STEPS = 70
MOST_ROUNDS = 400


class Broken(AssertionError):
    """A history in which a law does not hold; says how to run it again."""


def run(seed: int, steps: int = STEPS, dialect: str = "") -> set[tuple[str, str]]:
    """Play one history and check every law on the way; the (phase, trigger) pairs it took. Raises Broken.

    With a `dialect` every answer is written and read: it is what was meant, or is asked about.
    """
    world = World.begin(seed, dialect)
    book = Book(world.store)
    try:
        for _ in range(steps):
            step(world)
            book.read()
            standing(world.store)
            looked_at(onlooker(world))
        settle_down(world, book)
        resting(world.store)
        event_log.check(world.store.db)
        well_shaped(Report(world.store.db))
    except Exception as problem:
        steps_shown = "\n  ".join(world.journal[-12:])
        raise Broken(
            f"seed {seed}: {type(problem).__name__}: {problem}\nthe last steps:\n  {steps_shown}\n"
            f"again: SEED={seed} DIALECT={dialect} .venv/bin/pytest tests/simulation -k every_law"
        ) from problem
    finally:
        world.store.close()
    return book.taken


def settle_down(world: World, book: Book) -> None:
    """No more faults: every agent does its work, questions are answered, holds end. Then nothing more may happen."""
    world.journal.append("settle down")
    world.engine.settings = replace(world.engine.settings, heartbeat=0.0)  # what waits for a person sends them for ever
    world.away = {"ghost"}
    world.look_again()
    for _ in range(MOST_ROUNDS):
        with world.engine.batch():
            world.engine.tick()
            world.engine.schedule()
        done = sum([_perform(world, order) for order in world.store.outbox.pending(world.clock.now(), 500)])
        done += settled(world) + _hear_peers(world) + _mend_specs(world) + _let_go_on(world)
        book.read()
        standing(world.store)
        looked_at(onlooker(world))
        if done == 0:
            due = world.store.schedule.next_due(world.clock.now())
            if due is None:
                return
            world.clock.text = max(due, world.clock.text)
    raise AssertionError(f"it does not come to rest in {MOST_ROUNDS} rounds")


def onlooker(world: World) -> Engine:
    """An engine that knows what the world's does, and draws nothing from its chance."""
    engine = new_engine(world.store, world.clock, Random(0))
    world.configure(engine)
    engine.settings, engine.now = world.engine.settings, world.clock.now()
    return engine


def _perform(world: World, order: Order) -> int:
    """One effect, without trouble."""
    world.flights.pop(order.id, None)
    ended: TurnEnded | None = None
    said = Succeeded("fine")
    match order.effect:
        case RunTurn(turn=Turn.REVIEW) as effect:
            approved = Reviewed(Verdict.APPROVED, "fine")
            ended = turns.ended(order, effect, said, approved)
        case RunTurn() | LookUp() as effect:
            ended = turns.ended(order, effect, said, Results("fine", "yes"))
        case Compose(attempt_id):
            answer = composed(world.store, world.task(order.task))
            ended = TurnEnded(Turn.SYNTHESIS, attempt_id, OWN, said, answer)
        case Prepare() | Perform() | Verify():
            carry_out(world, order, smoothly=True)
            return 1
        case RunCheck(_, attempt_id, check):
            world.check(order, CheckEnded(check.id, attempt_id, CheckVerdict.PASSED, "fine", ""))
            return 1
        case _:
            pass
    with world.engine.batch():
        if ended is not None:
            world.engine.handle(order.task, ended)
        world.store.outbox.finish(order.id)
    return 1


def _mend_specs(world: World) -> int:
    """Nobody drafts any more, so a person writes the specs that are weak or were sent back."""
    drafts = world.tasks_where(
        "phase = 'spec_draft' AND coalesce(json_extract(mending, '$.waiting_for'), '') <> 'turn'"
    )
    for task in drafts:
        said = replace(task.spec, goal=task.spec.goal or "Anything", acceptance_criteria=("one page",))
        world.handle(task.id, SpecWritten(said), Role.OPERATOR)
    return len(drafts)


def _let_go_on(world: World) -> int:
    """The operator raises every budget that is used up."""
    held = world.tasks_where("held <> '' AND completed_at IS NULL")
    for task in held:
        with world.engine.batch():
            world.engine.command(task, Unblock(Remedy.RETRY, budget_usd=1000.0), "operator")
    return len(held)


def _hear_peers(world: World) -> int:
    waiting = world.attempts("waiting_for IN ('reply', 'answer')")
    for attempt in waiting:
        if attempt.waiting_for is Waiting.ANSWER:
            world.handle(attempt.task, Clarification("operator", "go on"))
        else:
            world.handle(attempt.task, Reply(attempt.executor, Results("fine", "yes"), attempt.id, attempt.reply_token))
    return len(waiting)
