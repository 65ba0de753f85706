"""What keeps a turn from starting, as `why` says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailboxd.core.explain.model import AttemptSummary, OpenBreaker, PendingEffect, RunningCall, Snapshot, TaskSnapshot
from mailboxd.core.explain.why import cause_of, explain
from mailboxd.core.schedule import Capacity
from mailboxd.core.vocabulary import AttemptStatus, Phase, Waiting

EARLIER, NOW = "2026-11-21T11:59:00.000Z", "2026-11-21T12:00:00.000Z"
SOON, LATER = "2026-11-21T12:10:00.000Z", "2026-11-21T12:30:00.000Z"
READY = TaskSnapshot("tsk_t", "t", Phase.EXECUTION_READY, "Bob")
TURN = AttemptSummary(1, "Bob", AttemptStatus.RUNNING, Waiting.TURN, NOW)
ORDERED = replace(
    READY, phase=Phase.EXECUTING, attempts=(TURN,), pending=(PendingEffect("run_turn", "Bob", NOW, id="trn"),)
)
REVIEWED = replace(
    READY, phase=Phase.QUALITY_GATE, silent=("rex",), pending=(PendingEffect("run_turn", "rex", NOW, id="trn"),)
)


def seen(task: TaskSnapshot, **snapshot: Any) -> tuple[str, str | None]:
    cause = cause_of(task, Snapshot(NOW, 1, {task.id: task}, **{"room": Capacity(4), **snapshot}))
    return cause.kind, cause.at


@pytest.mark.parametrize(
    ("task", "snapshot", "kind", "at"),
    [
        (READY, {}, "ready", None),
        (replace(READY, held="over budget"), {}, "budget", None),
        (replace(READY, held_by="job"), {}, "budget", None),
        (READY, {"breakers": {"bob": OpenBreaker(LATER, "down")}}, "breaker", LATER),
        (READY, {"breakers": {"eve": OpenBreaker(LATER, "down")}}, "ready", None),
        (READY, {"breakers": {"bob": OpenBreaker(None)}}, "ready", None),
        (READY, {"breakers": {"bob": OpenBreaker(None)}, "calls": (RunningCall("bob", "u", NOW),)}, "breaker", None),
        (READY, {"gone": {"Bob": "there is no agent Bob"}}, "gone", None),
        (ORDERED, {"gone": {"Bob": "there is no agent Bob"}}, "gone", None),
        (READY, {"paced": {"Bob": LATER}}, "pace", LATER),
        (replace(READY, unmet=1), {"breakers": {"bob": OpenBreaker(LATER)}}, "dependency", None),
        (replace(READY, not_before=LATER), {"breakers": {"bob": OpenBreaker(LATER)}}, "backoff", LATER),
        (replace(READY, not_before=SOON), {"breakers": {"bob": OpenBreaker(LATER)}}, "breaker", LATER),
        (replace(READY, not_before=SOON), {"paced": {"Bob": LATER}}, "pace", LATER),
        (replace(READY, not_before=SOON), {"gone": {"Bob": "there is no agent Bob"}}, "gone", None),
        (replace(READY, not_before=SOON, held_by="job"), {}, "budget", None),
        (
            replace(READY, not_before=SOON),
            {"breakers": {"bob": OpenBreaker(None)}, "calls": (RunningCall("bob", "u", NOW),)},
            "backoff",
            SOON,
        ),
        (replace(READY, coordinates=True), {"breakers": {"bob": OpenBreaker(LATER)}}, "ready", None),
        (ORDERED, {"breakers": {"bob": OpenBreaker(LATER)}}, "breaker", LATER),
        (ORDERED, {"breakers": {"bob": OpenBreaker(LATER)}, "room": Capacity(4, ("trn",))}, "turn", NOW),
        (replace(ORDERED, held_by="job"), {}, "budget", None),
        (REVIEWED, {"breakers": {"rex": OpenBreaker(LATER)}}, "breaker", LATER),
        (replace(READY, phase=Phase.CIRCUIT_OPEN, held="over budget"), {}, "circuit", None),
        (replace(READY, phase=Phase.COMPLETED, held="over budget"), {}, "ended", None),
    ],
)
def test_the_first_thing_in_the_way_is_named(
    task: TaskSnapshot, snapshot: dict[str, Any], kind: str, at: str | None
) -> None:
    assert seen(task, **snapshot) == (kind, at)


@pytest.mark.parametrize(
    ("phase", "ordered", "kinds"),
    [
        (Phase.COMPLETED, EARLIER, ["ended", "sending"]),
        (Phase.COMPLETED, NOW, ["ended"]),  # it is being delivered
        (Phase.EXECUTING, EARLIER, ["turn"]),
    ],
)
def test_a_reply_that_a_finished_task_could_not_deliver_is_named_and_comes_next(
    phase: Phase, ordered: str, kinds: list[str]
) -> None:
    reply = PendingEffect("send", "", ordered, SOON, type="reply", to="ann")
    task = replace(ORDERED, phase=phase, pending=(*ORDERED.pending, reply) if phase is Phase.EXECUTING else (reply,))
    told = explain(Snapshot(NOW, 1, {task.id: task}, room=Capacity(4, ("trn",))), task.id)
    assert [cause.kind for cause in told.causes] == kinds
    if "sending" in kinds:
        assert told.causes[1].text.startswith("its reply to ann has not been delivered since ")
        assert told.next is not None
        assert (told.next.at, told.next.then) == (SOON, "it is sent again")
