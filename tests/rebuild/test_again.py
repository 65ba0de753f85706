"""When work was given again, and cancelled, while it ended: what each of these meets in a rebuild is what it met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mailboxd.core.effects import RunTurn, Send
from mailboxd.core.events import Role
from mailboxd.core.inputs import Cancel, Clarification, Edited, Remedy, Retry, SpecWritten, TurnEnded, Unblock
from mailboxd.core.outcomes import Acknowledged, Answer, Failed, Outcome, Permanence, Question, Reviewed, Succeeded
from mailboxd.core.vocabulary import Verdict, WeakSpec
from mailboxd.rebuild import make
from tests.e2e.support import message, reply, task
from tests.rebuild.compare import differences, read
from tests.rebuild.mailroom import SETTINGS, Ended, Mailroom

NOW = "2026-03-02T00:00:00.000Z"
_CANCEL = message("cancel", "t", "No longer needed.", sender="boss").encode()


def _again(attempt: int) -> bytes:
    return task("t", sender="boss", attempt=attempt, attempt_id=f"again-{attempt}").encode()


def _ordered(room: Mailroom, order: Retry | Cancel) -> None:
    """A person orders it."""
    found = room.engine.store.tasks.by_local_id("t")
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
    account = make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
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
    assert not [
        order for order in room.engine.store.outbox.pending(room.clock.now(), 500) if isinstance(order.effect, Send)
    ]
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
    (order,) = (
        one for one in room.engine.store.outbox.pending(room.clock.now(), 500) if isinstance(one.effect, RunTurn)
    )
    turn = order.effect
    assert isinstance(turn, RunTurn)
    ended = TurnEnded(turn.turn, turn.attempt_id, turn.agent, outcome, answer, turn.gate)
    room.reports.append(Ended(order, ended))
    room.look()
    room.settle()
    room.clock.advance(1.0)


def _answered(room: Mailroom, text: str) -> None:
    """A person answers, by `mailboxd answer`."""
    found = room.engine.store.tasks.by_local_id("t")
    assert found is not None
    with room.engine.batch():
        room.engine.hear(found.id, Clarification("operator", text), Role.OPERATOR, "operator")


def _asked_and_answered(room: Mailroom) -> None:
    _turn(room, Succeeded("Which?"), Question("Which?"))
    _answered(room, "That one.")
    room.look()
    room.done("Done.")


def _asked_and_answered_and_failed(room: Mailroom) -> None:
    _turn(room, Succeeded("Which?"), Question("Which?"))
    _answered(room, "That one.")
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
    account = make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    now, then = read(tmp_path / "one.db")["tasks"]["t",], read(room.ws.database)["tasks"]["t",]
    assert (now["phase"], now["result"], now["completed_at"]) == (then["phase"], then["result"], then["completed_at"])
    assert account.differences == []


def _given(room: Mailroom) -> str:
    """The attempt that the peer has been given."""
    room.look()
    (order,) = (one for one in room.engine.store.outbox.pending(room.clock.now(), 500) if one.agent == "beta")
    assert isinstance(order.effect, RunTurn)
    found = room.engine.store.tasks.get(order.task)
    assert found is not None
    room.give_out(found, order.effect)
    room.clock.advance(1.0)
    effect, taken = order.effect, Succeeded("Taken.")
    ended = TurnEnded(effect.turn, effect.attempt_id, effect.agent, taken, Acknowledged())
    room.reports.append(Ended(order, ended))
    room.look()
    return effect.attempt_id


def _said(room: Mailroom, attempt: str, text: str, **more: str) -> None:
    """The peer replies."""
    raw = reply("t", "x", "beta", text, attempt_id=attempt, **more)
    room.put((raw.replace("## Results", "## Error") if more else raw).encode())
    room.look()
    room.clock.advance(5.0)
    room.look()


def _of(room: Mailroom, local_id: str, order: Retry | Unblock) -> None:
    found = room.engine.store.tasks.by_local_id(local_id)
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
    account = make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    now, then = (read(path)["tasks"] for path in (tmp_path / "one.db", room.ws.database))
    for name in now:
        assert [now[name][key] for key in ("phase", "attempt", "result")] == [
            then[name][key] for key in ("phase", "attempt", "result")
        ]
    assert account.differences == []


# ---------------------------------------------------------------- what came before the work began


@pytest.mark.parametrize("weak", [WeakSpec.DERIVE, WeakSpec.DRAFT, WeakSpec.ASK])
def test_what_was_sent_had_a_spec_and_passed_its_review(tmp_path: Path, weak: WeakSpec) -> None:
    """It is not sent again, and the reply to it counts."""
    room = Mailroom.begin(tmp_path / "ws", 0)
    settings = replace(SETTINGS, policy=replace(SETTINGS.policy, weak=weak))
    room.engine.settings = settings
    gates = {} if weak is not WeakSpec.DERIVE else {"gates": ["spec_review"], "reviewers": ["rex"]}
    plan = {"x": {"agent": "beta", "description": "X", **gates}}
    room.put(task("t", sender="boss", plan=plan).encode())
    room.look()
    if weak is WeakSpec.DERIVE:
        _turn(room, Succeeded(""), Reviewed(Verdict.APPROVED, "Good."))
    else:
        found = room.engine.store.tasks.by_local_id("t.x")
        assert found is not None
        with room.engine.batch():
            spec = replace(found.spec, acceptance_criteria=("It has four lines",))
            room.engine.hear(found.id, SpecWritten(spec), Role.OPERATOR, "ops")
        room.clock.advance(1.0)
    attempt = _given(room)
    room.settle()
    room.close()
    make.make(room.ws, settings, NOW, tmp_path / "one.db")
    now, then = (read(path) for path in (tmp_path / "one.db", room.ws.database))
    assert now["tasks"]["t.x",]["phase"] == then["tasks"]["t.x",]["phase"] == "executing"
    assert now["attempts"]["t.x", 1]["id"] == attempt
    if weak is not WeakSpec.DERIVE:
        assert "It has four lines" in now["tasks"]["t.x",]["spec"]


def test_a_question_about_a_spec_is_none_of_the_work(tmp_path: Path) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    settings = replace(SETTINGS, policy=replace(SETTINGS.policy, weak=WeakSpec.ASK))
    room.engine.settings = settings
    room.put(message("task", "t", "# Task: Go\n\n## Instructions\n\nGo.", sender="boss").encode())
    room.look()
    room.settle()
    room.clock.advance(1.0)
    _answered(room, "It has four lines.")
    room.look()
    room.settle()  # a daemon shows in task.md that it is at work
    room.clock.advance(1.0)
    room.done("Done.")
    room.settle()
    room.close()
    account = make.make(room.ws, settings, NOW, tmp_path / "one.db")
    (attempt,) = read(tmp_path / "one.db")["attempts"].values()
    assert (attempt["question"], attempt["question_turns"]) == ("", 0)
    assert read(tmp_path / "one.db")["tasks"]["t",]["phase"] == "completed"
    assert account.differences == []


@pytest.mark.parametrize("notes", ["", "A note."])
@pytest.mark.parametrize("is_over", [True, False])
def test_what_a_person_wrote_into_a_task_md_is_kept(tmp_path: Path, notes: str, is_over: bool) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    room.look()
    found = room.engine.store.tasks.by_local_id("t")
    assert found is not None
    with room.engine.batch():
        room.engine.hear(found.id, Edited(notes=notes, sections=(("Mine", "Mind the gap."),)))
    if is_over:
        room.done("Done.")
    room.settle()
    room.close()
    make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert read(tmp_path / "one.db")["tasks"]["t",]["sections"] == '[["Mine","Mind the gap."]]'
    assert read(tmp_path / "one.db")["tasks"]["t",]["notes"] == notes


def test_a_section_that_is_called_like_one_of_the_spec_and_is_none_is_kept_too(tmp_path: Path) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    room.look()
    found = room.engine.store.tasks.by_local_id("t")
    assert found is not None
    with room.engine.batch():
        room.engine.hear(found.id, Edited(sections=(("Checks", "Look at it twice."),)))
    room.settle()
    room.close()
    make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert read(tmp_path / "one.db")["tasks"]["t",]["sections"] == '[["Checks","Look at it twice."]]'


@pytest.mark.parametrize("kind", ["steer", "answer", "cancel"])
def test_what_came_with_its_task_while_no_daemon_ran_is_about_that_task(tmp_path: Path, kind: str) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    room.clock.advance(0.5)
    room.put(message(kind, "t", "Shorter.", sender="boss").encode())
    room.clock.advance(60.0)
    room.look()
    room.settle()
    room.close()
    make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    now, then = (read(path)["messages"] for path in (tmp_path / "one.db", room.ws.database))
    for path, row in then.items():
        assert (now[path]["verdict"], now[path]["task"]) == (row["verdict"], row["task"]), path
