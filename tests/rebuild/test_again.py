"""When work was given again, and cancelled, while it ended: what each of these meets in a rebuild is what it met."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.core.effects import RunTurn, Send
from mailboxd.core.inputs import Cancel, Clarification, Order, Remedy, Retry, TurnEnded, Unblock
from mailboxd.core.outcomes import Acknowledged, Answer, Failed, Outcome, Permanence, Question, Succeeded
from mailboxd.rebuild import making
from tests.e2e.support import message, reply, task
from tests.rebuild.compare import differences, read
from tests.rebuild.mailroom import SETTINGS, Mailroom

NOW = "2026-03-02T00:00:00.000Z"
_CANCEL = message("cancel", "t", "No longer needed.", sender="boss").encode()


def _again(attempt: int) -> bytes:
    return task("t", sender="boss", attempt=attempt, attempt_id=f"again-{attempt}").encode()


def _ordered(room: Mailroom, order: Retry | Cancel) -> None:
    """A person orders it."""
    found = room.engine.store.by_local_id("t")
    assert found is not None
    with room.engine.batch():
        room.engine.command(found, order, "ops")


def _cancelled_then_again(room: Mailroom) -> None:
    room.put(_CANCEL)
    room.clock.advance(1.0)
    room.put(_again(2))


def _cancelled_then_again_and_done(room: Mailroom) -> None:
    room.put(_CANCEL)
    room.look()
    room.done("Too late.")
    room.clock.advance(1.0)
    room.put(_again(2))
    room.look()
    room.clock.advance(1.0)
    room.done("Second.")


def _cancelled_then_asked_again(room: Mailroom) -> None:
    room.put(_CANCEL)
    room.look()
    room.clock.advance(1.0)
    room.put(task("t", "Once more", sender="boss").encode())


def _cancelled_by_a_person_then_again(room: Mailroom) -> None:
    _ordered(room, Cancel("ops"))
    room.settle()
    room.clock.advance(1.0)
    room.put(_again(2))


def _again_then_cancelled_too_late(room: Mailroom) -> None:
    room.done("First.")
    room.clock.advance(1.0)
    room.put(_again(2))
    room.look()
    room.clock.advance(1.0)
    room.put(_CANCEL)
    room.clock.advance(1.0)
    room.done("Second.")


def _again_then_cancelled(room: Mailroom) -> None:
    room.done("First.")
    room.settle()
    room.put(_again(2))
    room.look()
    room.clock.advance(1.0)
    room.put(_CANCEL)


def _again_while_it_ends(room: Mailroom) -> None:
    room.put(_again(2))
    room.clock.advance(1.0)
    room.done("First.")
    room.settle()
    room.look()
    room.clock.advance(1.0)
    room.done("Second.")


def _overtaken_then_cancelled_then_asked_again(room: Mailroom) -> None:
    room.done("First.")
    room.clock.advance(1.0)
    room.put(_again(2))
    room.look()
    room.settle()
    room.clock.advance(1.0)
    room.put(_CANCEL)
    room.look()
    room.clock.advance(1.0)
    room.put(_again(2) + b"Once more.\n")


def _again_before_the_reply_is_written(room: Mailroom) -> None:
    room.put(_again(2))
    room.done("First.")
    room.look()
    room.clock.advance(1.0)
    room.done("Second.")


HISTORIES = (
    _cancelled_then_again,
    _cancelled_then_again_and_done,
    _cancelled_then_asked_again,
    _cancelled_by_a_person_then_again,
    _overtaken_then_cancelled_then_asked_again,
    _again_then_cancelled_too_late,
    _again_then_cancelled,
    _again_while_it_ends,
    _again_before_the_reply_is_written,
)


@pytest.mark.parametrize("happens", HISTORIES)
def test_work_that_is_given_again_is_given_when_it_was(tmp_path: Path, happens: Callable[[Mailroom], None]) -> None:
    """Of a message that changes no more than whom the reply names, no file says when it was taken."""
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    room.look()
    room.clock.advance(1.0)
    happens(room)
    room.clock.advance(1.0)
    room.look()
    room.settle()
    room.close()
    account = making.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert differences(room.ws.database, tmp_path / "one.db") == []
    assert account.differences == []


def _retried_by_a_person(room: Mailroom) -> None:
    _ordered(room, Retry())


def _given_again_by_its_sender(room: Mailroom) -> None:
    room.put(_again(2))
    room.look()


@pytest.mark.parametrize("again", [_given_again_by_its_sender, _retried_by_a_person])
def test_an_end_that_was_overtaken_before_its_reply_was_written_is_not_told(
    tmp_path: Path, again: Callable[[Mailroom], None]
) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    room.look()
    room.done("First.")
    room.clock.advance(1.0)
    again(room)
    room.look()
    room.settle()
    assert list(room.ws.outbox.iterdir()) == []
    room.clock.advance(1.0)
    room.done("Second.")
    room.settle()
    (told,) = room.ws.outbox.iterdir()
    assert "status: done" in told.read_text()
    assert not [order for order in room.engine.store.pending(room.clock.now(), 500) if isinstance(order.effect, Send)]
    room.close()


@pytest.mark.parametrize("is_told_first", [False, True])
def test_ended_work_whose_end_before_was_told_or_overtaken_is_told_of_when_it_is_asked_for_again(
    tmp_path: Path, is_told_first: bool
) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    room.look()
    if is_told_first:
        room.done("First.")
        room.settle()
        room.clock.advance(1.0)
        room.put(_again(2))
        room.look()
        room.clock.advance(1.0)
        room.put(_CANCEL)
        room.look()
        room.clock.advance(1.0)
        room.put(_again(2) + b"Once more.\n")
    else:
        _overtaken_then_cancelled_then_asked_again(room)
    room.look()
    room.settle()
    told = max(room.ws.outbox.glob("*.reply.t.md")).read_text()
    assert "attempt_id: again-2" in told
    assert "cancelled by boss" in told
    room.close()


# ---------------------------------------------------------------- what a person did by command, which no file tells


def _turn(room: Mailroom, outcome: Outcome, answer: Answer | None = None) -> None:
    """The turn of the own agent that is ordered ends so."""
    room.look()
    (order,) = (one for one in room.engine.store.pending(room.clock.now(), 500) if isinstance(one.effect, RunTurn))
    turn = order.effect
    assert isinstance(turn, RunTurn)
    room.reports.append(lambda: room._take(order, TurnEnded(turn.turn, turn.attempt_id, turn.agent, outcome, answer)))
    room.look()
    room.settle()
    room.clock.advance(1.0)


def _asked_and_answered(room: Mailroom) -> None:
    _turn(room, Succeeded("Which?"), Question("Which?"))
    _ordered(room, Clarification("operator", "That one."))
    room.look()
    room.done("Done.")


def _asked_and_answered_and_failed(room: Mailroom) -> None:
    _turn(room, Succeeded("Which?"), Question("Which?"))
    _ordered(room, Clarification("operator", "That one."))
    _turn(room, Failed("it cannot be", Permanence.PERMANENT))


def _instructed_between_two_attempts(room: Mailroom) -> None:
    _turn(room, Failed("overloaded"))
    room.put(message("steer", "t", "Shorter.", sender="boss").encode())
    room.look()
    room.clock.advance(1.0)
    room.look()
    room.done("Done.")


@pytest.mark.parametrize(
    "happens", [_asked_and_answered, _asked_and_answered_and_failed, _instructed_between_two_attempts]
)
def test_work_that_has_ended_is_not_waited_for(tmp_path: Path, happens: Callable[[Mailroom], None]) -> None:
    """Neither for the answer that a person gave by command, nor for a turn that new instructions would have made."""
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    happens(room)
    room.settle()
    room.close()
    account = making.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    now, then = read(tmp_path / "one.db")["tasks"]["t",], read(room.ws.database)["tasks"]["t",]
    assert (now["phase"], now["result"], now["completed_at"]) == (then["phase"], then["result"], then["completed_at"])
    assert account.differences == []


def _given(room: Mailroom) -> str:
    """The attempt that the peer has been given."""
    room.look()
    (order,) = (one for one in room.engine.store.pending(room.clock.now(), 500) if isinstance(one.effect, RunTurn))
    assert isinstance(order.effect, RunTurn)
    found = room.engine.store.task(order.task)
    assert found is not None
    room.give_out(found, order.effect)
    room.clock.advance(1.0)
    effect, taken = order.effect, Succeeded("Taken.")
    ended = TurnEnded(effect.turn, effect.attempt_id, effect.agent, taken, Acknowledged())
    room.reports.append(lambda: room._take(order, ended))
    room.look()
    return effect.attempt_id


def _said(room: Mailroom, attempt: str, text: str, **more: str) -> None:
    """The peer replies."""
    raw = reply("t", "x", "beta", text, attempt_id=attempt, **more)
    room.put((raw.replace("## Results", "## Error") if more else raw).encode())
    room.look()
    room.clock.advance(5.0)
    room.look()


def _of(room: Mailroom, local_id: str, order: Order) -> None:
    found = room.engine.store.by_local_id(local_id)
    assert found is not None
    with room.engine.batch():
        room.engine.command(found, order, "ops")
    room.clock.advance(1.0)


def _tried_until_its_circuit_was_open(room: Mailroom) -> None:
    for number in range(3):
        _said(room, _given(room), f"Not {number}.", status="failed")
    _of(room, "t.x", Unblock(Remedy.RETRY))


def _completed_and_retried(room: Mailroom) -> None:
    _said(room, _given(room), "Bad.")
    room.done("Together, badly.")
    room.settle()
    room.clock.advance(1.0)
    _of(room, "t.x", Retry())


def _failed_and_retried(room: Mailroom) -> None:
    _said(room, _given(room), "Not at all.", status="failed")
    room.settle()
    _of(room, "t.x", Retry())


@pytest.mark.parametrize(
    "happens",
    [
        _tried_until_its_circuit_was_open,
        _completed_and_retried,
        _failed_and_retried,
    ],
)
@pytest.mark.parametrize("is_replied", [True, False])
def test_what_was_sent_to_a_peer_again_had_been_retried(
    tmp_path: Path, happens: Callable[[Mailroom], None], is_replied: bool
) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    attempts = 1 if happens is _failed_and_retried else 3
    plan = {"x": {"agent": "beta", "description": "X", "max_attempts": attempts}}
    room.put(task("t", sender="boss", plan=plan).encode())
    room.look()
    happens(room)
    attempt = _given(room)
    if is_replied:
        _said(room, attempt, "Good.")
        room.done("Together.")
    room.settle()
    room.close()
    account = making.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    now, then = (read(path)["tasks"] for path in (tmp_path / "one.db", room.ws.database))
    for name in now:
        assert [now[name][key] for key in ("phase", "attempt", "result")] == [
            then[name][key] for key in ("phase", "attempt", "result")
        ]
    assert account.differences == []
