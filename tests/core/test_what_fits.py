"""What is passed on is cut to fit into a message, and names the file with the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.effects import RunTurn, Send
from mailboxd.core.outcomes import Failure, Question, Results, Succeeded
from mailboxd.core.vocabulary import Phase
from mailboxd.formats.protocol.messages import QuestionMessage, ReplyMessage, TaskMessage, parse_message
from tests.core.desk import Desk, child, plan

COUNT = 2_500
NAMES = [f"quotation-of-the-supplier-{number:04}-for-the-autumn-catalogue" for number in range(COUNT)]


LONG = "Which of these is meant? " + "word " * 300_000


@pytest.fixture(scope="module")
def desk() -> Desk:
    """All parts are done, and `sum`, which needs them, has been given to bob."""
    desk = Desk(slots=COUNT, slots_per_agent=COUNT)
    desk.give(sender="beta", plan=plan(*(child(name, "amy") for name in NAMES), child("sum", "bob", *NAMES)))
    while desk.tick():
        pass
    desk.start()
    while len(turns := desk.pending(RunTurn)) > 1:
        for order in turns:
            text = f"The price of {desk.name(order)} is 7 EUR."
            desk.settles(order, desk.end_of(order, Succeeded(text), Results(text)))
    desk.start()
    return desk


@pytest.mark.slow
def test_a_task_that_needs_thousands_of_results_is_told_of_them_in_one_message(desk: Desk, tmp_path: Path) -> None:
    (turn,) = desk.orders(RunTurn, "t.sum")
    message = parse_message(desk.dispatch(turn, "t.sum", tmp_path), "sum.md").message
    assert isinstance(message, TaskMessage)
    context = message.section("context")
    assert f"The price of t.{NAMES[0]} is 7 EUR." in context
    assert f"of {COUNT} results, are shown." in context


@pytest.mark.slow
def test_a_failure_reply_over_thousands_of_results_is_sent(desk: Desk, tmp_path: Path) -> None:
    desk.ends("t.sum", Failure("The prices cannot be added.", permanent=True))
    assert desk.phase("t") is Phase.FAILED
    (reply,) = desk.orders(Send, "t")
    message = parse_message(desk.message(reply, "t", tmp_path), "reply.md").message
    assert isinstance(message, ReplyMessage)
    assert message.status == "failed"
    assert f"The price of t.{NAMES[0]} is 7 EUR." in message.section("partial results")


def test_a_question_that_no_message_holds_is_asked_all_the_same(tmp_path: Path) -> None:
    desk = Desk()
    desk.give(sender="beta")
    desk.ends("t", Question(LONG))
    (question,) = desk.orders(Send, "t")
    message = parse_message(desk.message(question, "t", tmp_path), "question.md").message
    assert isinstance(message, QuestionMessage)
    assert message.text.startswith("Which of these is meant?")
    assert f"of {len(LONG)} bytes are shown." in message.text
