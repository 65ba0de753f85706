"""Thousands of results that one task needs, or that a failure reply tells of: what is passed on is cut to fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.effects import RunTurn, Send
from mailboxd.core.outcomes import Failure, Results, Succeeded
from mailboxd.core.vocabulary import Phase
from mailboxd.protocol.messages import ReplyMessage, TaskMessage, parse_message
from tests.core.desk import Desk, child, plan

pytestmark = pytest.mark.slow
COUNT = 2_500
NAMES = [f"quotation-of-the-supplier-{number:04}-for-the-autumn-catalogue" for number in range(COUNT)]


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


def test_a_task_that_needs_thousands_of_results_is_told_of_them_in_one_message(desk: Desk, tmp_path: Path) -> None:
    (turn,) = desk.orders(RunTurn, "t.sum")
    message = parse_message(desk.dispatch(turn, "t.sum", tmp_path), "sum.md").message
    assert isinstance(message, TaskMessage)
    context = message.section("context")
    assert f"The price of t.{NAMES[0]} is 7 EUR." in context
    assert f"of {COUNT} results, are shown." in context


def test_a_failure_reply_over_thousands_of_results_is_sent(desk: Desk, tmp_path: Path) -> None:
    desk.ends("t.sum", Failure("The prices cannot be added.", permanent=True))
    assert desk.phase("t") is Phase.FAILED
    (reply,) = desk.orders(Send, "t")
    message = parse_message(desk.message(reply, "t", tmp_path), "reply.md").message
    assert isinstance(message, ReplyMessage)
    assert message.status == "failed"
    assert f"The price of t.{NAMES[0]} is 7 EUR." in message.section("partial results")
