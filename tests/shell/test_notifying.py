"""People are told of a request: with real programs, on a real database, with a clock that the test moves."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from mailboxd import config
from mailboxd.core.effects import Notify
from mailboxd.core.times import plus
from mailboxd.effects.notifier import PAUSES, SECONDS, ApprovalNotifier, Ways
from mailboxd.effects.process_table import CallKind, Caps, ProcessTable
from mailboxd.engine import open
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.store.store import Order
from tests.cli.asking import PUBLISH, TELL, ask
from tests.cli.stage import Stage, make
from tests.e2e.support import eventually

SECRET = "hunter2"


@dataclass
class Bell:
    """A workspace whose requests are told, one round after the other."""

    stage: Stage
    calls: ProcessTable
    ways: Ways
    told: dict[str, dict[str, str]] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[Engine]:
        with open.engine(self.stage.ws, config.load(self.stage.ws.config)) as engine:
            engine.clock = self.stage.clock
            yield engine

    def orders(self, engine: Engine) -> list[Order]:
        pending = engine.store.outbox.pending(self.stage.clock.now(), 100)
        return [order for order in pending if isinstance(order.effect, Notify)]

    def ring(self) -> int:
        """Begin every notice that is due and wait for their ends; how many were begun."""
        with self.opened() as engine:
            reports = Reports(engine)
            notifying = ApprovalNotifier(engine, self.calls, self.stage.ws, self.ways, reports, _told=self.told)
            orders = self.orders(engine)
            for order in orders:
                assert isinstance(order.effect, Notify)
                notifying.begin(order, order.effect)
                assert self.calls.running or reports
            while self.calls.running:
                self.take_ended(notifying)
            with engine.batch():
                reports.record_all()
            self.calls.sweep(lambda _task: False)
        return len(orders)

    def take_ended(self, notifying: ApprovalNotifier) -> bool:
        """Whether nothing runs any more."""
        for call, exit_ in self.calls.ended():
            assert call.kind is CallKind.NOTICE
            assert call.order is not None
            notifying.ended(call.order, call, exit_)
        return not self.calls.running

    def states(self) -> list[str]:
        with self.opened() as engine:
            return [row[0] for row in engine.store.db.execute("SELECT state FROM outbox WHERE kind = 'notify'")]

    def alarms(self) -> list[str]:
        return [event["text"] for event in self.stage.json("log") if event["kind"] == "alarm"]


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Bell]:
    stage = make(tmp_path / "alpha", "approvals:\n  notify_command: [somebody]\n")
    with selectors.DefaultSelector() as selector:
        calls = ProcessTable(stage.ws.turns, selector, dict(os.environ), 1 << 20, 0.2, Caps(1, 1))
        yield Bell(stage, calls, Ways())
        for call in calls.running.values():
            call.child.kill()
        eventually(lambda: list(calls.ended()) is not None and not calls.running)


def program(tmp_path: Path, name: str, body: str) -> str:
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)


def test_a_program_gets_the_request_as_a_file_and_no_shell(bell: Bell, tmp_path: Path) -> None:
    keep = program(tmp_path, "keep", f'printf "%s\\n" "$@" > {tmp_path}/said; cp "$2" {tmp_path}/request.json')
    bell.ways = Ways((keep, "a b; $(touch /tmp/never)"))
    (one,) = ask(bell.stage, "job", replace(PUBLISH, risk="public"), preview="make publish")
    assert bell.ring() == 1
    first, file = (tmp_path / "said").read_text().splitlines()
    assert (first, file.endswith("/request.json")) == ("a b; $(touch /tmp/never)", True)
    told = json.loads((tmp_path / "request.json").read_text())
    assert (told["id"], told["task"], told["kind"], told["risk"]) == (one, "job", "command", "public")
    assert (told["preview"], told["requested_action"]) == ("make publish", "run make publish")
    assert told["decide"]["approve"] == ["mailboxd", "-w", str(bell.stage.ws.root), "approve", one[-6:].lower()]
    assert bell.states() == ["done"]
    assert list(bell.stage.ws.turns.iterdir()) == []
    assert bell.ring() == 0


def test_a_channel_is_told_how_to_decide_and_nothing_of_what_would_happen(bell: Bell, tmp_path: Path) -> None:
    openclaw = program(tmp_path, "openclaw", f'printf \'%s\\n\' "$@" > {tmp_path}/said; echo \'{{"messageId": "1"}}\'')
    bell.ways = Ways(channel="slack", target="#ops", account="work", openclaw=(openclaw,))
    action = replace(PUBLISH, action=SECRET, argv=("make", SECRET), risk="the site is public")
    (one,) = ask(bell.stage, "job", action, preview=SECRET)
    assert bell.ring() == 1
    said = (tmp_path / "said").read_text()
    assert said.startswith("message\nsend\n--channel=slack\n--target=#ops\n--account=work\n--message=")
    assert SECRET not in said
    short = one[-6:].lower()
    for part in (
        short,
        "task job",
        "command",
        "Named risk: the site is public",
        f"mailboxd approve {short}",
        "expires at",
    ):
        assert part in said, part
    assert bell.states() == ["done"]


@pytest.mark.parametrize("risk", ["see C:\\new", "[[reply_to_current]]"])
def test_words_that_openclaw_would_take_for_an_order_are_left_out(bell: Bell, tmp_path: Path, risk: str) -> None:
    openclaw = program(tmp_path, "openclaw", f'printf \'%s\\n\' "$@" > {tmp_path}/said; echo \'{{"messageId": "1"}}\'')
    bell.ways = Ways(channel="slack", target="#ops", openclaw=(openclaw,))
    ask(bell.stage, "job", replace(TELL, risk=risk))
    bell.ring()
    assert risk not in (said := (tmp_path / "said").read_text())
    assert "waits for your approval" in said
    assert bell.states() == ["done"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("echo the bell is broken >&2; exit 3", "exit status 3: the bell is broken"),
        ("kill -9 $$", "exit status -9"),
        (None, "cannot run"),
    ],
)
def test_a_notice_that_fails_is_tried_again_and_then_is_an_alarm(
    bell: Bell, tmp_path: Path, body: str | None, says: str
) -> None:
    bell.ways = Ways((program(tmp_path, "bell", body) if body else str(tmp_path / "none"),))
    ask(bell.stage, "job", TELL)
    for pause in PAUSES:
        assert bell.ring() == 1
        assert bell.states() == ["pending"]
        assert bell.ring() == 0  # not before its pause is over
        bell.stage.clock.advance(pause)
    assert not bell.alarms()
    assert bell.ring() == 1
    assert bell.states() == ["failed"]
    (alarm,) = bell.alarms()
    assert alarm.startswith("ALARM notice: could not notify anyone by command")
    assert says in alarm
    assert bell.stage.phase("job") == "awaiting_approval"


def test_what_hangs_is_stopped_and_takes_no_turns_slot_meanwhile(bell: Bell, tmp_path: Path) -> None:
    bell.ways = Ways((program(tmp_path, "bell", "exec sleep 600"),))
    ask(bell.stage, "job", TELL)
    with bell.opened() as engine:
        reports = Reports(engine)
        notifying = ApprovalNotifier(engine, bell.calls, bell.stage.ws, bell.ways, reports)
        (order,) = bell.orders(engine)
        assert isinstance(order.effect, Notify)
        notifying.begin(order, order.effect)
        assert bell.calls.orders() == {order.id}
        now = bell.stage.clock.monotonic()
        assert bell.calls.measure_capacity(now).has_slot()  # of one slot
        assert bell.calls.capacity.running == ()
        bell.calls.expire(now + SECONDS)
        eventually(lambda: bell.take_ended(notifying))
        with engine.batch():
            reports.record_all()
    assert bell.states() == ["pending"]


def test_only_the_way_that_failed_is_tried_again(bell: Bell, tmp_path: Path) -> None:
    count = program(tmp_path, "count", f"echo x >> {tmp_path}/counted")
    openclaw = program(tmp_path, "openclaw", f'test -e {tmp_path}/up && echo \'{{"messageId": "1"}}\'')
    bell.ways = Ways((count,), channel="slack", target="#ops", openclaw=(openclaw,))
    ask(bell.stage, "job", TELL)
    bell.ring()
    assert bell.states() == ["pending"]
    (tmp_path / "up").touch()
    bell.stage.clock.advance(PAUSES[0])
    bell.ring()
    assert bell.states() == ["done"]
    assert (tmp_path / "counted").read_text() == "x\n"


def test_nobody_is_told_of_what_is_decided(bell: Bell, tmp_path: Path) -> None:
    bell.ways = Ways((program(tmp_path, "bell", f"touch {tmp_path}/rang"),))
    (one,) = ask(bell.stage, "job", TELL)
    bell.stage.run("approve", one)
    bell.stage.clock.text = plus(bell.stage.clock.text, 60.0)
    bell.ring()
    assert not (tmp_path / "rang").exists()
    assert bell.states() == ["done"]


def test_without_a_way_nobody_is_told(tmp_path: Path) -> None:
    stage = make(tmp_path / "alpha")
    ask(stage, "job", TELL)
    with stage.engine() as engine:
        assert not [o for o in engine.store.outbox.pending(stage.clock.now(), 9) if isinstance(o.effect, Notify)]
