"""Two agents with daemons, whose messages about one piece of work meet on the way: a cancel, a reply, rework.

Each is a workspace with real files, and the post between them is carried by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.inputs import Cancel, Clarification, Retry, Steer
from mailboxd.core.outcomes import (
    Aborted,
    Acknowledged,
    Answer,
    Failed,
    Outcome,
    Permanence,
    Question,
    Results,
    Succeeded,
)
from tests.e2e.support import message, task
from tests.rebuild.mailroom import SETTINGS, Mailroom

TREE = {"x": {"agent": "beta", "description": "X"}, "y": {"agent": "self", "description": "Y"}}
HOPELESS = Failed("It cannot be done.", Permanence.PERMANENT)


@dataclass(slots=True)
class Pair:
    """Alpha, who has given `job.x` to beta, and beta."""

    alpha: Mailroom
    beta: Mailroom
    carried: set[str] = field(default_factory=set)

    def ends(self, room: Mailroom, local_id: str, said: Answer | Failed | Aborted) -> None:
        """The turn that is ordered for a task ends; of a dispatch, after its message was written."""
        order, turn = room.turn_of(local_id)
        room.give_out(room.task(local_id), turn)
        outcome: Outcome
        outcome, answer = (said, None) if isinstance(said, Failed | Aborted) else (Succeeded("said"), said)
        room.ended(order, turn, outcome, answer)
        self.look(room)

    def look(self, room: Mailroom) -> None:
        for one in (self.alpha, self.beta):
            one.clock.advance(1.0)
        room.look()

    def post(self, giver: Mailroom, kind: str) -> list[str]:
        """What the one has written of that type arrives at the other; the texts."""
        taker = self.beta if giver is self.alpha else self.alpha
        giver.settle()
        texts = []
        for path in sorted(giver.ws.outbox.glob(f"*/*.{kind}.*")):
            if path.name not in self.carried:
                self.carried.add(path.name)
                texts.append(path.read_text())
                taker.put(path.read_bytes())
                self.look(taker)
        return texts

    def gives(self) -> None:
        """The work goes to beta, whose plugin says that it has arrived."""
        self.ends(self.alpha, "job.x", Acknowledged())
        self.post(self.alpha, "task")

    def retries(self) -> None:
        """The operator of alpha tries the whole of it again."""
        self.alpha.command("job", Retry())
        self.look(self.alpha)


def verdicts(room: Mailroom, kind: str) -> list[str]:
    received = "SELECT verdict FROM v_messages WHERE direction = 'in' AND type = ? ORDER BY id"
    return [verdict for (verdict,) in room.sql(received, kind)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(Mailroom.begin(tmp_path / "alpha", 0), Mailroom.begin(tmp_path / "beta", 1, "beta"))
    pair.alpha.put(task("job", plan=TREE, synthesis="concat").encode())
    pair.look(pair.alpha)
    pair.gives()
    yield pair
    for room in (pair.alpha, pair.beta):
        room.verify()
        room.close()


def test_a_cancel_names_the_attempt_that_it_ends_however_late_it_is_written(pair: Pair) -> None:
    pair.ends(pair.alpha, "job.y", HOPELESS)
    assert pair.alpha.task("job.x").phase == "cancelled"
    pair.retries()
    (cancel,) = pair.post(pair.alpha, "cancel")
    assert f"attempt_id: {pair.alpha.attempt('job.x', 1).id}" in cancel


def test_a_cancel_of_an_older_attempt_does_not_end_the_one_that_was_given_out_since(pair: Pair) -> None:
    pair.ends(pair.alpha, "job.y", HOPELESS)
    pair.retries()
    pair.gives()
    pair.post(pair.alpha, "cancel")
    assert verdicts(pair.beta, "cancel") == ["late"]
    assert pair.beta.task("job.x").phase == "executing"
    pair.ends(pair.beta, "job.x", Results("X, done."))
    pair.post(pair.beta, "reply")
    assert pair.alpha.task("job.x").phase == "completed"


def test_a_cancel_of_an_attempt_that_never_came_is_none_of_the_next_one(pair: Pair) -> None:
    pair.beta.put(message("cancel", "other", sender="alpha", subtask_id="z", attempt=1).encode())
    pair.look(pair.beta)
    pair.beta.put(task("other", sender="alpha", subtask_id="z", attempt=2, attempt_id="again-2").encode())
    pair.look(pair.beta)
    assert verdicts(pair.beta, "cancel") == ["orphan"]
    assert pair.beta.task("other.z").phase == "execution_ready"


def test_what_its_sender_cancelled_and_gives_out_again_is_worked_on(pair: Pair) -> None:
    """So a retry of the parent brings back what was cancelled with it, also where a peer has it."""
    pair.ends(pair.alpha, "job.y", HOPELESS)
    pair.post(pair.alpha, "cancel")
    assert pair.beta.task("job.x").phase == "cancelled"
    pair.ends(pair.beta, "job.x", Aborted("stopped"))
    pair.retries()
    pair.gives()
    assert pair.beta.task("job.x").phase == "executing"
    pair.ends(pair.beta, "job.x", Results("X, done."))
    (reply,) = pair.post(pair.beta, "reply")
    assert f"attempt_id: {pair.alpha.attempt('job.x', 2).id}" in reply
    assert (pair.alpha.task("job.x").phase, pair.alpha.task("job.x").result) == ("completed", "X, done.")


def test_what_somebody_else_cancelled_stays_cancelled_and_each_attempt_is_told_so(pair: Pair) -> None:
    pair.beta.command("job.x", Cancel("ops"))
    for ordinal in (1, 2):
        (reply,) = pair.post(pair.beta, "reply")
        told = pair.alpha.attempt("job.x", ordinal)
        assert f"attempt_id: {told.id}" in reply
        assert (told.status, told.error_summary) == ("failed", "cancelled by ops")
        assert "failure: permanent" in reply
        assert pair.alpha.task("job.x").phase == "failed"
        pair.retries()
        pair.gives()
        assert pair.beta.task("job.x").phase == "cancelled"


def _asks(pair: Pair, text: str) -> None:
    pair.ends(pair.beta, "job.x", Question(text))
    pair.post(pair.beta, "question")


def _is_helped(room: Mailroom, text: str) -> None:
    """The operator answers what the sender was asked."""
    room.handle("job.x", Clarification("operator", text))


def test_an_answer_to_an_earlier_question_is_none_to_the_one_that_is_open(pair: Pair) -> None:
    _asks(pair, "Which colour?")
    pair.ends(pair.alpha, "job.x", Results("Red."))
    _is_helped(pair.beta, "Blue.")
    _asks(pair, "Which size?")
    pair.post(pair.alpha, "answer")
    assert verdicts(pair.beta, "answer") == ["late"]
    assert pair.beta.attempt("job.x", 1).question == "Which size?"
    pair.ends(pair.alpha, "job.x", Results("Large."))
    pair.post(pair.alpha, "answer")
    assert verdicts(pair.beta, "answer") == ["late", "accepted"]


def test_an_answer_that_was_given_elsewhere_meanwhile_is_late(pair: Pair) -> None:
    _asks(pair, "Which colour?")
    pair.ends(pair.alpha, "job.x", Results("Red."))
    _is_helped(pair.beta, "Blue.")
    pair.post(pair.alpha, "answer")
    assert verdicts(pair.beta, "answer") == ["late"]


def test_new_instructions_that_cross_with_the_reply_are_late(pair: Pair) -> None:
    pair.ends(pair.beta, "job.x", Results("X, done."))
    pair.alpha.handle("job.x", Steer("operator", "In red."))
    pair.post(pair.alpha, "steer")
    assert verdicts(pair.beta, "steer") == ["late"]


def test_a_question_that_is_open_is_asked_of_the_attempt_that_takes_over(pair: Pair) -> None:
    pair.ends(pair.beta, "job.x", Question("Which colour?"))
    pair.ends(pair.alpha, "job.y", HOPELESS)
    pair.retries()
    pair.gives()
    first, second = pair.post(pair.beta, "question")
    assert f"attempt_id: {pair.alpha.attempt('job.x', 2).id}" in second
    assert "Which colour?" in first
    assert "Which colour?" in second
    assert pair.alpha.attempt("job.x", 2).question == "Which colour?"


def test_the_answer_to_a_question_that_was_put_twice_counts_whichever_of_the_two_it_names(pair: Pair) -> None:
    pair.ends(pair.beta, "job.x", Question("Which colour?"))
    pair.ends(pair.alpha, "job.y", HOPELESS)
    pair.retries()
    pair.gives()
    pair.beta.settle()
    first, _ = sorted(pair.beta.ws.outbox.glob("*/*.question.*"))
    asked = first.name.split(".")[0]
    answer = message("answer", "job", "Blue.", sender="alpha", subtask_id="x", in_reply_to=asked)
    pair.beta.put(answer.encode())
    pair.look(pair.beta)
    assert verdicts(pair.beta, "answer") == ["accepted"]
    assert pair.beta.attempt("job.x", 1).question == ""


def test_ended_work_that_was_never_told_of_is_told_when_it_is_asked_for_again(pair: Pair) -> None:
    pair.alpha.put(task("errand", sender="boss").encode())
    pair.look(pair.alpha)
    pair.alpha.put(message("cancel", "errand", sender="boss").encode())
    pair.look(pair.alpha)
    for again in ("m-2", "m-3"):
        pair.alpha.put(task("errand", sender="boss", message_id=again).encode())
        pair.look(pair.alpha)
        pair.alpha.settle()
        (told,) = pair.alpha.ws.outbox.glob("*/*.reply.*.errand.*")
        assert "cancelled by boss" in told.read_text()


def test_a_peer_whose_lease_is_over_is_told_of_the_cancel_too(pair: Pair) -> None:
    pair.alpha.clock.advance(SETTINGS.policy.reply_within)
    pair.look(pair.alpha)
    assert pair.alpha.task("job.x").phase == "circuit_open"
    pair.alpha.command("job.x", Cancel("ops"))
    pair.post(pair.alpha, "cancel")
    assert pair.beta.task("job.x").phase == "cancelled"


# Work that its sender dispatches again while its end is not reported yet


def dispatched_again(attempt: int, **headers: Any) -> bytes:
    return task("t", sender="boss", attempt=attempt, attempt_id=f"again-{attempt}", **headers).encode()


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Mailroom]:
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t", sender="boss").encode())
    room.look()
    room.clock.advance(1.0)
    yield room
    room.close()


@pytest.mark.parametrize("by_operator", [False, True])
def test_an_end_that_is_overtaken_before_its_reply_is_written_goes_unreported(
    room: Mailroom, by_operator: bool
) -> None:
    room.done("First.")
    if by_operator:
        room.command("t", Retry())
    else:
        room.put(dispatched_again(2))
    room.look()
    room.settle()
    assert list(room.ws.outbox.glob("*/*")) == []
    room.clock.advance(1.0)
    room.done("Second.")
    room.settle()
    (reply_,) = room.ws.outbox.glob("*/*")
    assert "status: done" in reply_.read_text()


@pytest.mark.parametrize("reported_first", [False, True])
def test_ended_work_is_reported_when_it_is_dispatched_again(room: Mailroom, reported_first: bool) -> None:
    room.done("First.")
    if reported_first:
        room.settle()
    for raw in (
        dispatched_again(2),
        message("cancel", "t", sender="boss").encode(),
        dispatched_again(2, message_id="m-2"),
    ):
        room.clock.advance(1.0)
        room.put(raw)
        room.look()
    room.settle()
    last = max(room.ws.outbox.glob("*/*.reply.*.t.*")).read_text()
    assert "attempt_id: again-2" in last
    assert "cancelled by boss" in last
