"""Layered DAGs: 10,000 nodes worked through in order, 2,000 taken whole by a daemon and cancelled in one go."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from mailboxd.core.effects import Compose, RunTurn
from mailboxd.core.inputs import NewTask, TurnEnded
from mailboxd.core.model import Plan, PlannedChild, Policy, Spec
from mailboxd.core.outcomes import Results, Succeeded
from mailboxd.core.vocabulary import Synthesis, Turn
from mailboxd.engine.engine import Engine
from mailboxd.formats.config.settings import Settings
from mailboxd.ledger import event_log
from mailboxd.ledger.store import Store
from tests.e2e.conftest import Found
from tests.e2e.support import eventually, message, task

pytestmark = pytest.mark.slow

LAYERS, WIDTH = 100, 100


def needs(layer: int, place: int) -> tuple[str, ...]:
    """Each node needs the one below it and its neighbour, of the layer before."""
    return (f"n{layer - 1}-{place}", f"n{layer - 1}-{(place + 1) % WIDTH}") if layer else ()


class Ticking:
    """A clock that goes on by a millisecond whenever it is read: nothing waits."""

    def __init__(self) -> None:
        self.passed = 0

    def now(self) -> str:
        self.passed += 1
        seconds, milliseconds = divmod(self.passed, 1000)
        return f"2026-11-21T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}Z"

    def monotonic(self) -> float:
        return self.passed / 1000


def test_ten_thousand_nodes_are_worked_through_in_order() -> None:
    """Engine and database are the real ones, the turns are answered here: ten thousand processes take ten minutes."""
    store = Store.open(None, "2026-11-21T00:00:00.000Z")
    engine = Engine(
        store, Settings("alpha", Policy(synthesis=Synthesis.NONE), slots=WIDTH, slots_per_agent=WIDTH), Ticking()
    )
    children = tuple(
        PlannedChild(f"n{layer}-{place}", ("beta",), f"Node {layer} {place}", needs(layer, place))
        for layer in range(LAYERS)
        for place in range(WIDTH)
    )
    spec = Spec("Large", expected_output="All of it.")
    with engine.batch():
        engine.handle(
            None,
            NewTask("large", None, "large", "operator", "Large", spec, engine.settings.policy, plan=Plan(children)),
        )
    done = 0
    while True:
        with engine.batch():
            more = engine.tick()
            engine.schedule()
            before = done
            for order in store.outbox.pending(engine.now, 1000):
                match order.effect:
                    case RunTurn(attempt_id=attempt) | Compose(attempt_id=attempt):
                        turn = order.effect.turn if isinstance(order.effect, RunTurn) else Turn.SYNTHESIS
                        ended = TurnEnded(turn, attempt, "beta", Succeeded("Text."), Results("Text."))
                        engine.handle(order.task, ended)
                        store.outbox.finish(order.id)
                        done += 1
        if done == before and not more:
            break
    assert done == LAYERS * WIDTH + 1
    phases = dict(store.db.execute("SELECT phase, count(*) FROM v_tasks GROUP BY phase"))
    assert phases == {"completed": LAYERS * WIDTH + 1}
    assert event_log.verify_chain(store.db) is None
    assert _starts_follow_their_needs(store.db)
    store.close()


def _starts_follow_their_needs(db: sqlite3.Connection) -> bool:
    """Every start stands in the log after the end of everything it needs."""
    rows = db.execute(
        "SELECT count(*) FROM v_dependencies d JOIN v_attempts a ON a.task = d.task JOIN v_tasks n ON n.id = d.needs"
        " WHERE n.completed_at IS NULL OR n.completed_at > a.started_at"
    )
    with closing(rows):
        return bool(rows.fetchone()[0] == 0)


@pytest.mark.soak
def test_a_daemon_takes_two_thousand_nodes_begins_and_cancels_them_all(found: Found) -> None:
    company = found(
        {"alpha": {}, "beta": {"default": {"delay": 0.2, "reply": "Text."}}}, limits={"message_bytes": 4_000_000}
    )
    alpha = company["alpha"]
    plan = {
        f"n{layer}-{place}": {"agent": "beta", "description": "N", "depends_on": list(needs(layer, place))}
        for layer in range(LAYERS // 5)
        for place in range(WIDTH)
    }
    alpha.start()
    alpha.drop("go.md", task("large", plan=plan))
    eventually(lambda: len(company.executions()) >= 3, 60, alpha.last_words)
    assert len(alpha.phases()) == LAYERS // 5 * WIDTH + 1
    alpha.drop("stop.md", message("cancel", "large", "Enough."))
    eventually(lambda: alpha.phase("large") == "cancelled", 60, alpha.last_words)
    assert alpha.query("SELECT DISTINCT phase FROM v_tasks WHERE phase NOT IN ('cancelled', 'completed')") == []
    company.at_rest()
