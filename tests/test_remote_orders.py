"""Orders of people whom only OpenClaw's gateway knows: who counts, for what, and each of them once."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import pytest

from mailboxd.core.approvals import Action, ActionKind
from mailboxd.core.operator_orders import BY_NAME, OPERATOR_ORDERS, Field, FieldKind
from mailboxd.daemon import gateway_orders
from mailboxd.daemon.gateway_orders import GatewayOrders
from mailboxd.daemon.services import NEVER
from mailboxd.daemon.view_writer import ViewWriter
from mailboxd.engine import sending
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import remote_orders
from mailboxd.errors import Refused, WorldError
from mailboxd.perform.agents.call_dir import Exit
from tests.agents.recorded import printed
from tests.cli.asking import PUBLISH, TELL, ask, asked
from tests.cli.stage import Stage, make

ANN: dict[str, Any] = {"channel": "telegram", "sender": "111"}
OTHER: dict[str, Any] = {"channel": "telegram", "sender": "112"}
OWNER: dict[str, Any] = {"scopes": ["operator.read", "operator.write"]}
READER: dict[str, Any] = {"scopes": ["operator.read"]}
BROWSER: dict[str, Any] = {"device": "3c1f9a77", "scopes": ["operator.write"]}
RISKY = Action("drop", ActionKind.COMMAND, argv=("make", "drop"), risk="all data")
LISTED = "approvals:\n  approvers: [ann, 'chat:telegram:111', 'device:3c1f9a77']\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha", LISTED)


def order(
    stage: Stage, verb: str, name: str = "", text: str = "", by: Any = ANN, number: str = "", **more: object
) -> str:
    number = number or f"order-{len(stage.sql('SELECT seq FROM v_events')):08}"
    raw = {"id": number, "verb": verb, "name": name, "text": text, "by": by, "at": stage.clock.now(), **more}
    read = remote_orders.read(raw)
    if read is None:
        return "no order"
    with stage.engine() as engine:
        return remote_orders.carry_out(engine, stage.ws, read)


def short(approval_id: str) -> str:
    return approval_id[-6:].lower()


def digest_of(stage: Stage, name: str) -> str:
    return str(json.loads(order(stage, "card", name))["digest"])


def given(stage: Stage) -> list[str]:
    return [row["actor"] for row in stage.sql("SELECT actor FROM v_events WHERE kind = 'order.remote'")]


@pytest.mark.parametrize(("by", "name"), [(ANN, "chat:telegram:111"), (BROWSER, "device:3c1f9a77")])
def test_a_listed_person_approves_what_was_shown_and_is_recorded(stage: Stage, by: Any, name: str) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    digest = digest_of(stage, short(one))
    assert order(stage, "approve", short(one), f"{digest[:8]} looks good", by).startswith(f"Approved {short(one)}")
    row = stage.json("show", short(one))
    assert (row["status"], row["resolved_by"], row["note"]) == ("approved", name, "looks good")
    assert name in stage.run("log", "job").stdout


def test_nothing_is_approved_unseen_or_by_another_digest(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    assert "names the first eight digits" in order(stage, "approve", short(one))
    assert "(digest-mismatch)" not in order(stage, "approve", short(one), "00000000")
    assert "digest" in order(stage, "approve", short(one), "00000000")
    assert asked(stage, "job") == ["pending"]


@pytest.mark.parametrize(
    "by",
    [
        OTHER,
        OWNER,
        READER,
        {"channel": "telegram"},
        {"channel": "webchat", "sender": "111"},
        {"channel": "telegram", "sender": "111", "scopes": ["operator.admin"]},
        {"device": "3c1f9a78", "scopes": ["operator.admin"]},
        {"device": 3},
        {"sender": "ann"},
        {"name": "ann"},
        {},
        "ann",
    ],
)
def test_nobody_else_decides_whatever_they_say_of_themselves(stage: Stage, by: Any) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    digest = digest_of(stage, short(one))
    for verb, text in (("approve", digest[:8]), ("reject", "no"), ("changes", "no")):
        assert "Approved" not in order(stage, verb, short(one), text, by)
    stage.clock.advance(60)
    stage.carry_out_held()
    assert asked(stage, "job") == ["pending"]


def test_what_cannot_be_taken_back_is_left_to_a_command_unless_the_configuration_says_otherwise(stage: Stage) -> None:
    (one,) = ask(stage, "job", RISKY)
    digest = digest_of(stage, short(one))
    assert f"`mailboxd approve {short(one)}`" in order(stage, "approve", short(one), digest[:8])
    assert asked(stage, "job") == ["pending"]
    stage.ws.config.write_text(stage.ws.config.read_text() + "  by_chat: all\n")
    assert "Approved" in order(stage, "approve", short(one), digest[:8])


def test_an_order_that_is_handed_over_again_is_not_carried_out_again(stage: Stage) -> None:
    stage.create("job")
    first = order(stage, "pause", "job", "until noon", number="order-again")
    assert (first, stage.task("job").held != "") == ("job is paused: running turns finish, and no other starts.", True)
    assert stage.run("resume", "job").exit_code == 0
    assert order(stage, "pause", "job", "until noon", number="order-again") == first
    assert stage.task("job").held == ""
    sent = order(stage, "send", "", "Write it.\n\nAll of it.", number="order-sent")
    assert order(stage, "send", "", "Write it.\n\nAll of it.", number="order-sent") == sent
    assert len(list(stage.ws.inbox.iterdir())) == 1
    assert given(stage) == ["chat:telegram:111"] * 2


@pytest.mark.parametrize(
    ("verb", "text", "by"), [("cancel", "until noon", ANN), ("pause", "until one", ANN), ("pause", "until noon", OWNER)]
)
def test_another_order_under_an_id_that_was_given_is_not_answered_with_the_first(
    stage: Stage, verb: str, text: str, by: Any
) -> None:
    stage.create("job")
    order(stage, "pause", "job", "until noon", number="order-again")
    other = order(stage, verb, "job", text, by, number="order-again")
    assert other.startswith("Refused: another order was given under this id")
    assert len(given(stage)) == 1


def test_a_stranger_is_not_told_what_was_answered_to_somebody_else(stage: Stage) -> None:
    stage.create("job")
    order(stage, "pause", "job", number="order-again")
    assert order(stage, "pause", "job", by=OTHER, number="order-again").startswith("This mailbox does not know")


def test_the_same_words_of_one_person_soon_after_are_one_task(stage: Stage) -> None:
    order(stage, "send", "", "Write it.")
    again = order(stage, "send", "", "Write it.")
    assert again.startswith("Once only: ")
    assert order(stage, "send", "", "Write it.") == again, "a third time says no more, and is no reason for a fourth"
    order(stage, "send", "", "Write it.", OWNER)
    stage.clock.advance(121)
    order(stage, "send", "", "Write it.")
    assert len(list(stage.ws.inbox.iterdir())) == 3


def test_what_was_refused_may_be_sent_again_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise WorldError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(sending, "put", full)
        assert order(stage, "send", "", "Write it.").startswith("Refused: the disk is full")
    assert order(stage, "send", "", "Write it.").startswith("Sent to ")


def test_a_text_that_is_too_long_is_refused_and_never_cut(stage: Stage) -> None:
    assert "longer than 100000 characters" in order(stage, "send", "", "x" * 100_000 + " and not that")
    assert not list(stage.ws.inbox.iterdir())


def test_strangers_get_one_line_and_leave_no_trace(stage: Stage) -> None:
    stage.create("job")
    for verb, by in (("cancel", OTHER), ("card", OTHER), ("send", OTHER)):
        said = order(stage, verb, "job", "x", by)
        assert said == "This mailbox does not know chat:telegram:112. Its owner can name it in approvals.approvers."
    assert order(stage, "cancel", "job", "x", READER) == "no order"
    assert given(stage) == []


def test_the_gateways_owner_answers_pauses_cancels_and_sends_but_does_not_decide(stage: Stage) -> None:
    (one,) = ask(stage, "job", TELL)
    stage.create("other")
    assert "is paused" in order(stage, "pause", "other", by=OWNER)
    assert "is resumed" in order(stage, "resume", "other", by=OWNER)
    assert "is cancelled in 10 s" in order(stage, "cancel", "other", by=OWNER)
    assert "Taken back" in order(stage, "undo", "other", by=OWNER)
    assert "Sent to" in order(stage, "send", "", "More.", by=OWNER)
    assert "not among those who may decide" in order(
        stage, "approve", short(one), digest_of(stage, short(one)), by=OWNER
    )


def test_a_rejection_can_be_taken_back_for_ten_seconds(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    assert "/mailbox undo job" in order(stage, "reject", short(one), "not today")
    assert "Taken back" in order(stage, "undo", "job")
    order(stage, "reject", short(one), "not today")
    stage.clock.advance(10)
    stage.carry_out_held()
    assert stage.json("show", short(one))["resolved_by"] == "chat:telegram:111"


def test_every_order_of_the_table_is_given_in_chats_or_deliberately_not() -> None:
    """`retry` stands for what releases a task, too; a spec and instructions are no line in a chat."""
    left = {"steer", "spec", "unblock-retry", "unblock-accept", "unblock-fail"}
    assert {one.name for one in OPERATOR_ORDERS if not one.chat} == left


def test_the_view_names_the_orders_and_the_words_that_each_takes(stage: Stage) -> None:
    with stage.engine() as engine:
        writer = ViewWriter(engine, stage.ws)
        writer.service.perform()
    orders = json.loads((stage.ws.state / "view.json").read_text())["orders"]
    assert orders["answer"] == [{"name": "text", "required": True}]
    assert orders["cancel"] == [{"name": "reason", "required": False}]
    assert orders["retry"] == orders["pause"] == orders["resume"] == [{"name": "note", "required": False}]


def test_the_words_of_a_chat_are_the_fields_of_an_order_and_the_last_takes_what_is_left() -> None:
    hours = Field("hours", FieldKind.COUNT, "Hours", "Write a number.", required=True)
    order = replace(BY_NAME["pause"], fields=(*BY_NAME["pause"].fields, hours))
    assert order.read_words("3 until\nnoon ") == {"hours": 3, "note": "until\nnoon"}
    assert order.read_words("3") == {"hours": 3, "note": None}
    for words, says in (("", "nothing is written"), ("until noon", "is not a whole number")):
        with pytest.raises(Refused, match=says):
            order.read_words(words)


def test_a_field_may_be_given_by_the_name_it_has_in_other_orders() -> None:
    cancel = BY_NAME["cancel"]
    assert cancel.read({"note": "sold"}) == cancel.read({"reason": "sold"}) == {"reason": "sold"}
    with pytest.raises(Refused, match="note is the same as another field"):
        cancel.read({"reason": "sold", "note": "lost"})


def test_a_refused_order_says_why_and_changes_nothing(stage: Stage) -> None:
    assert order(stage, "cancel", "nothing").startswith("Refused: there is no task nothing")
    stage.create("job")
    assert "Write an answer" in order(stage, "answer", "job")
    assert order(stage, "answer", "job", "42").startswith("Refused: ")
    assert "job is not paused" in order(stage, "resume", "job").lower()


@pytest.mark.parametrize(
    "more",
    [{"verb": "shell"}, {"id": "../../x"}, {"id": "short"}, {"name": "a b"}, {"at": "soon"}, {"text": 3}, {"by": None}],
)
def test_what_is_no_order_is_none(more: dict[str, object]) -> None:
    raw = {"id": "order-0001", "verb": "pause", "name": "job", "text": "", "by": ANN, "at": "2026-11-21T12:00:00.000Z"}
    assert remote_orders.read(raw) is not None
    assert remote_orders.read({**raw, **more}) is None


def test_a_permission_has_a_digest_to_be_approved_by(stage: Stage) -> None:
    (one,) = ask(stage, "job", replace(PUBLISH, risk="x"))
    card = json.loads(order(stage, "card", short(one)))
    assert (card["risk"], card["is_reversible"], card["preview"] != "") == ("x", True, True)


def test_what_a_person_was_shown_before_the_decision_is_on_record_once(stage: Stage) -> None:
    (one,) = ask(stage, "job", PUBLISH)
    said = order(stage, "card", short(one), number="order-0001")
    assert order(stage, "card", short(one), number="order-0001") == said, "the gateway hands it over again"
    (told,) = stage.json("show", "job")["told"]
    assert (told["to"], told["what"]) == ("chat:telegram:111", "card")
    assert told["sha256"] == sha256(said.encode()).hexdigest()
    assert json.loads(said)["digest"] in told["words"]


def test_a_bug_in_one_order_undoes_it_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.create("job")
    with stage.engine() as engine:
        orders = GatewayOrders(engine, stage.ws, DefaultSelector(), None, {})
        given = {"id": "order-0001", "verb": "pause", "name": "job", "text": "", "by": ANN, "at": stage.clock.now()}
        with monkeypatch.context() as broken:
            broken.setattr(Engine, "record", lambda *_: 1 / 0)
            orders.take([given])
        orders.take([{**given, "id": "order-0002", "verb": "undo"}, "no order", {"id": "order-0003"}])
        assert "a bug in mailboxd" in orders.answers["order-0001"]
        assert "no order is held" in orders.answers["order-0002"]
        assert orders.answers["order-0003"].startswith("Refused: nobody vouches")
    assert stage.task("job").held == ""


class Answered:
    """A request to the gateway that has been answered."""

    def __init__(self, *orders: object) -> None:
        self.pidfd, self._other = os.pipe()
        self.orders, self.directory = orders, "nowhere"

    def reap(self) -> Exit:
        return printed({"orders": list(self.orders)})

    def leave(self) -> None:
        os.close(self.pidfd)
        os.close(self._other)


def asking(stage: Stage, engine: Engine, monkeypatch: pytest.MonkeyPatch, child: Answered) -> GatewayOrders:
    """Orders whose request has just been answered."""
    monkeypatch.setattr(gateway_orders, "has_ended", lambda _: True)
    orders = GatewayOrders(engine, stage.ws, DefaultSelector(), None, {})
    orders.service.due = NEVER
    orders._child = child  # type: ignore[assignment]
    orders._asked_at = engine.clock.monotonic()
    orders.selector.register(child.pidfd, EVENT_READ)
    return orders


def test_the_gateway_is_asked_again_after_an_order_that_failed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise WorldError("the disk is full")

    said = {"id": "order-0001", "verb": "pause", "name": "job", "text": "", "by": ANN, "at": stage.clock.now()}
    with stage.engine() as engine:
        orders = asking(stage, engine, monkeypatch, Answered(said))
        monkeypatch.setattr(gateway_orders, "carry_out", fail)
        with pytest.raises(WorldError):
            orders.collect()
        assert orders.service.due <= engine.clock.monotonic()


def test_two_daemons_of_one_agent_do_not_ask_in_turn_without_a_pause(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage.engine() as engine:
        orders = asking(stage, engine, monkeypatch, Answered())
        orders.collect()
        assert orders.service.due == pytest.approx(engine.clock.monotonic() + 3.0, abs=0.5)
