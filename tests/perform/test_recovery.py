"""A lost turn is asked about by real programs; what they say is recorded as OpenClaw printed it."""

from __future__ import annotations

import json
import os
import selectors
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailboxd.core.effects import LookUp
from mailboxd.core.outcomes import Outcome, Succeeded, Unknown
from mailboxd.engine.reports import Reports
from mailboxd.perform.agents.gateway.transport import GatewayTransport
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.lost_turns import LookupReport, TurnLookup
from mailboxd.perform.process_table import ProcessTable
from tests.agents.recorded import recorded
from tests.agents.replay import Replay
from tests.agents.test_gateway import carrying
from tests.agents.test_gateway_recovery import ENDED, RUN, Recovery, history, prompt, says
from tests.core.desk import Desk
from tests.e2e.support import eventually

_PROGRAM = """\
import pathlib, sys
case = pathlib.Path(sys.argv[1]) / ("show" if sys.argv[2] == "tasks" else "history")
sys.stdout.write((case.with_suffix(".out")).read_text())
sys.exit(int((case.with_suffix(".rc")).read_text()))
"""


class Asked:
    """A desk with one lost turn, and an OpenClaw that prints what `says` was told."""

    def __init__(self, root: Path, selector: selectors.BaseSelector) -> None:
        self.root = root
        (root / "turns").mkdir()
        (root / "program.py").write_text(_PROGRAM)
        self.desk = Desk()
        self.desk.give()
        self.desk.ends("t", Unknown("gateway closed", "run_1"))
        self.reports = Reports(self.desk.engine)
        self.calls = ProcessTable(root / "turns", selector, dict(os.environ), 1 << 20, 1.0)
        command = (sys.executable, str(root / "program.py"), str(root))
        self.recovery = TurnLookup(self.desk.engine, self.calls, OpenClaw(command), self.reports)
        self.found: Outcome | None = None
        self.reports.route(LookupReport, self._take)

    def says(self, *, show: str, history: str) -> None:
        for name, case in (("show", show), ("history", history)):
            exit_ = recorded(case)
            (self.root / f"{name}.out").write_bytes(exit_.stdout)
            (self.root / f"{name}.rc").write_text(str(exit_.rc))

    def look(self) -> Outcome | None:
        """One look-up to its end: the outcome, or None when it is to be asked again later."""
        (order,) = self.desk.pending(LookUp)
        assert isinstance(order.effect, LookUp)
        self.found = None
        self.recovery.begin(order, order.effect)
        assert self.calls.running
        while order.id in self.recovery.busy():
            self.recovery.fetch_replies()
            ((call, exit_),) = eventually(lambda: list(self.calls.ended()))
            with self.desk.engine.batch():
                self.recovery.ended(order, call, exit_)
                self.reports.record_all()
        return self.found

    def _take(self, report: LookupReport) -> None:
        self.found = report.outcome

    def asked_again_after(self) -> float:
        """Seconds until it is asked again; they pass."""
        for seconds in range(1, 100):
            self.desk.clock.advance(1)
            if self.desk.pending(LookUp):
                return seconds
        raise AssertionError("it is not asked again")


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    with selectors.DefaultSelector() as selector:
        yield Asked(tmp_path, selector)


@pytest.mark.slow
def test_after_a_crash_the_time_counts_from_when_the_gateway_answers(asked: Asked) -> None:
    """OpenClaw runs an interrupted turn again within 25 s of being ready, however long it was down."""
    asked.says(show="tasks-show-gateway-down", history="err-gateway-down")
    for _ in range(4):
        assert asked.look() is None
        assert asked.asked_again_after() == 30
    asked.says(show="tasks-show-gateway-down", history="chat-history")
    assert asked.look() is None
    assert asked.asked_again_after() == 45
    outcome = asked.look()
    assert isinstance(outcome, Unknown)
    assert outcome.looked_up


def test_what_the_gateway_did_of_itself_after_it_came_back_is_taken(asked: Asked) -> None:
    asked.says(show="tasks-show-gateway-down", history="chat-history")
    assert asked.look() is None
    assert asked.asked_again_after() == 45
    asked.says(show="tasks-show-succeeded", history="chat-history")
    outcome = asked.look()
    assert outcome is not None
    assert getattr(outcome, "text", "") == "All done."


def test_while_the_gateway_is_away_nobody_is_asked_and_no_time_passes(asked: Asked) -> None:
    asked.says(show="tasks-show-gateway-down", history="chat-history-tool-killed-gateway")
    gateway = asked.recovery.gateway
    gateway.why = "refused"
    asked.desk.clock.advance(3600)
    (order,) = asked.desk.pending()
    assert isinstance(order.effect, LookUp)
    asked.recovery.begin(order, order.effect)
    assert not asked.calls.running
    gateway.why, gateway.answers_since = "", asked.desk.clock.monotonic()
    assert asked.look() is None
    assert asked.asked_again_after() == 45
    outcome = asked.look()
    assert isinstance(outcome, Unknown)
    assert "went away" in outcome.error


def test_a_turn_without_a_row_is_decided_45_s_after_the_gateway_answers_again(asked: Asked) -> None:
    asked.says(show="tasks-show-notfound", history="chat-history-none")
    asked.desk.clock.advance(3600)
    asked.recovery.gateway.answers_since = asked.desk.clock.monotonic() - 5
    assert asked.look() is None
    assert asked.asked_again_after() == 40


def test_it_is_given_up_after_the_timeout_and_two_minutes(asked: Asked) -> None:
    asked.says(show="tasks-show-gateway-down", history="err-gateway-down")
    asked.desk.clock.advance(600 + 119)
    run = json.loads(recorded("tasks-show-gateway-down").stdout)["runId"]
    assert asked.look() == Unknown("the gateway went away during the turn and is not back", run, looked_up=True)


# Over the gateway


def asked_over_the_gateway(asked: Asked, transport: GatewayTransport) -> Outcome | None:
    """One look-up by the gateway's program; None if it has to be made by the CLI."""
    asked.calls.launcher = asked.recovery.transport = transport
    (order,) = asked.desk.pending()
    assert isinstance(order.effect, LookUp)
    asked.recovery.begin(order, order.effect)
    ((call, exit_),) = eventually(lambda: list(asked.calls.ended()))
    with asked.desk.engine.batch():
        asked.recovery.ended(order, call, exit_)
        asked.reports.record_all()
    return asked.found


def test_a_paired_workspace_asks_its_gateway_and_waits_for_no_settling(asked: Asked, tmp_path: Path) -> None:
    gateway = Recovery(tmp_path)
    gateway.talk.key, gateway.talk.asked["sessionKey"] = "run_1", asked.desk.attempt().session_key
    resumed = history(prompt("run_1"), says(RUN, "It ran."), **ENDED, lastRunId=RUN)
    gateway.does_not_know_it().looks(resumed)
    with Replay(gateway.frames) as replay:
        gateway.talk.pair(replay.url)
        with carrying(gateway.talk.path) as transport:
            outcome = asked_over_the_gateway(asked, transport)
    assert outcome == Succeeded("It ran.", run_id=RUN)
    assert replay.complaints == []


def test_a_gateway_that_does_not_let_us_in_any_more_is_asked_by_the_cli(asked: Asked, tmp_path: Path) -> None:
    asked.says(show="tasks-show-succeeded", history="chat-history")
    with carrying(tmp_path / "nothing.json") as transport:
        assert asked_over_the_gateway(asked, transport) is None
        outcome = asked.look()
    assert isinstance(outcome, Succeeded)
    assert outcome.text == "All done."
