"""When work was given again, and cancelled, while it ended: what each of these meets in a rebuild is what it met."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.core.effects import Send
from mailboxd.core.inputs import Cancel, Retry
from mailboxd.rebuild import making
from tests.e2e.support import message, task
from tests.rebuild.compare import differences
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
