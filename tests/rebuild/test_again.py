"""When work was given again, and cancelled, while it ended: what each of these meets in a rebuild is what it met."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.rebuild import making
from tests.e2e.support import message, task
from tests.rebuild.compare import differences
from tests.rebuild.mailroom import SETTINGS, Mailroom

NOW = "2026-03-02T00:00:00.000Z"
_CANCEL = message("cancel", "t", "No longer needed.", sender="boss").encode()


def _again(attempt: int) -> bytes:
    return task("t", sender="boss", attempt=attempt, attempt_id=f"again-{attempt}").encode()


def _cancelled_then_again(room: Mailroom) -> None:
    room.put(_CANCEL)
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


HISTORIES = (_cancelled_then_again, _again_then_cancelled_too_late, _again_then_cancelled, _again_while_it_ends)


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
