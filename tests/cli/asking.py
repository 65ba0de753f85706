"""Tasks that wait for a person, and what the daemon and its runner would say of their actions."""

from __future__ import annotations

from mailboxd.core.approvals import Action, ActionEnded, ActionKind, ActionPrepared, ActionStarted, Performed, digest
from mailboxd.core.effects import Prepare
from mailboxd.core.inputs import NO_ORIGIN, NewTask
from mailboxd.core.model import Origin, Policy, Spec
from mailboxd.host.clock import SystemClock
from tests.cli.stage import Stage, task_of

PUBLISH = Action(
    "publish", ActionKind.COMMAND, action="Publish the site", argv=("make", "publish"), undo=("make", "unpublish")
)
TELL = Action("tell", ActionKind.MANUAL, action="Tell the team")


def ask(
    stage: Stage, name: str, *actions: Action, preview: str = "make publish, in site/", at: str = "",
    origin: Origin = NO_ORIGIN,
) -> list[str]:  # fmt: skip
    """A task that has done its work and waits for a person; the ids of its approvals, in the order of the actions.

    It is asked now, for a command decides by the real clock, or `at` another time.
    """
    stage.clock.text = at or max(stage.clock.now(), SystemClock().now())
    with stage.engine() as engine:
        spec = Spec(goal=name, instructions="Do it", expected_output="One line", planned_actions=actions)
        engine.handle(
            None, NewTask(name, None, name, "operator", f"Do {name}", spec, Policy(backoff_base=0.0), origin=origin)
        )
    stage.start()
    stage.end_turn(name, "The site is built: site/index.html.")
    return prepare(stage, preview)


def prepare(stage: Stage, preview: str = "make publish, in site/") -> list[str]:
    """The daemon prepares what is ordered; the ids of the approvals."""
    ids = []
    with stage.engine() as engine:
        for order in engine.store.outbox.pending(stage.clock.now(), 100):
            if isinstance(effect := order.effect, Prepare):
                seen = digest(effect.action)
                gate = "builtin: lobster is not installed"
                said = ActionPrepared(effect.approval_id, effect.action, preview, seen, gate, undoes=effect.undoes)
                engine.handle(order.task, said)
                engine.store.outbox.finish(order.id)
                ids.append(effect.approval_id)
    return ids


def perform(stage: Stage, approval_id: str, state: Performed = Performed.DONE) -> None:
    """The runner begins an approved action and ends it."""
    with stage.engine() as engine:
        row = engine.store.approvals.get(approval_id)
        assert row is not None
        engine.handle(row.task, ActionStarted(row.id, row.digest))
        engine.handle(row.task, ActionEnded(row.id, state, "exit status 0", "published"))


def expire(stage: Stage) -> None:
    """A day later."""
    stage.clock.advance(90_000)
    with stage.engine() as engine:
        engine.tick()


def asked(stage: Stage, name: str) -> list[str]:
    """How the approvals of a task stand."""
    with stage.engine() as engine:
        return [row.status.value for row in engine.store.approvals.of_task(task_of(engine, name).id)]
