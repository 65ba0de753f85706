"""The files of a turn that is answered by tool; its session is asked for before what was submitted counts."""

from __future__ import annotations

import json
import os
import selectors
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.effects import RunTurn
from mailboxd.core.outcomes import Aborted, Failed, Outcome, Results, Succeeded, Unclear, Unknown
from mailboxd.engine.reports import Reports
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.answer import Asked
from mailboxd.formats.protocol.answer_tools import tools_for
from mailboxd.ledger.store import Order
from mailboxd.perform.agents.answer_calls import RefusedTooOften, Submitted, ToolCall
from mailboxd.perform.answers_by_tool import (
    VERSION,
    AnswersByTool,
    EndedTurn,
    beside,
    counted,
    read_submitted,
)
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.process_table import ProcessTable
from tests.core.desk import Desk
from tests.e2e.support import eventually
from tests.protocol.test_answer_tools import work

_PROGRAM = """\
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
assert sys.argv[2:5] == ["gateway", "call", "chat.history"], sys.argv
asked = json.loads(sys.argv[5].removeprefix("--params="))
assert asked["limit"] == 200, asked
session = root / "session.json"
if not session.exists():
    sys.exit(1)
print(session.read_text())
"""
RIGHT = {"name": "mailboxd_finish", "arguments": {"result": "Done."}}
ENDED = Succeeded("", run_id="run_1")


class Turns:
    """A desk with one turn, the folder that daemon and plugin share, and an OpenClaw that shows its session."""

    def __init__(self, root: Path, selector: selectors.BaseSelector) -> None:
        self.root = root
        self.folder = root / ".mailboxd" / "answers"
        self.folder.mkdir(parents=True)
        (root / "turns").mkdir()
        (root / "program.py").write_text(_PROGRAM)
        self.desk = Desk()
        self.desk.give()
        self.desk.start()
        self.calls = ProcessTable(root / "turns", selector, dict(os.environ), 1 << 20, 1.0)
        command = (sys.executable, str(root / "program.py"), str(root))
        self.reports = Reports(self.desk.engine)
        self.hidden: set[str] = set()
        self.tools = AnswersByTool(
            self.desk.engine, self.calls, Workspace(root), GatewayCalls(command), self.reports, True,
            self.hidden.__contains__,
        )  # fmt: skip
        self.found: list[tuple[Outcome, Submitted | RefusedTooOften | None]] = []
        self.tools.report = self._take

    def _take(self, ended: EndedTurn, submitted: Submitted | RefusedTooOften | None) -> None:
        self.found.append((ended.how, submitted))

    @property
    def order(self) -> Order:
        (order,) = self.desk.pending(RunTurn)
        return order

    @property
    def turn(self) -> RunTurn:
        assert isinstance(self.order.effect, RunTurn)
        return self.order.effect

    def plugin_is_there(self, version: int = VERSION) -> None:
        (self.folder / "plugin.json").write_text(json.dumps({"version": version}))

    def offer(self) -> Path:
        """The file of the turn."""
        before = {*self.folder.iterdir()}
        self.tools.offer(self.turn, "t", tools_for(work()), ["old"])
        (made,) = {*self.folder.iterdir()} - before
        return made

    def keep(self, file: Path, token: str = "", **said: Any) -> None:
        what = {"token": token or self.turn.turn_id, "calls": [RIGHT], **said}
        file.with_suffix(".said.json").write_text(json.dumps(what))

    def session(self, *calls: Mapping[str, Any], text: str = "") -> None:
        prompt = {"role": "user", "content": "[mailboxd] work turn · task t · attempt 1"}
        parts = [{"type": "toolCall", "id": "c", **call} for call in calls]
        reply = {"role": "assistant", "content": [{"type": "text", "text": text}, *parts]}
        (self.root / "session.json").write_text(json.dumps({"messages": [prompt, reply]}))

    def look(self) -> None:
        self.tools.ask()
        ((call, exit_),) = eventually(lambda: list(self.calls.ended()))
        with self.desk.engine.batch():
            self.tools.ended(call, exit_)
            self.reports.record_all()


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    with selectors.DefaultSelector() as selector:
        yield Turns(tmp_path, selector)


def test_a_turn_has_tools_where_a_plugin_says_that_it_is_there(turns: Turns) -> None:
    assert not turns.tools.are_for(turns.turn)
    turns.plugin_is_there(version=VERSION + 1)
    assert not turns.tools.are_for(turns.turn)
    turns.plugin_is_there()
    assert turns.tools.are_for(turns.turn)
    turns.hidden.add(turns.turn.agent)
    assert not turns.tools.are_for(turns.turn)
    turns.hidden.clear()
    turns.tools.enabled = False
    assert not turns.tools.are_for(turns.turn)


def test_the_file_of_a_turn_names_its_tools_and_what_their_checks_need(turns: Turns) -> None:
    said = json.loads(turns.offer().read_text())
    assert (said["version"], said["token"], said["kind"]) == (VERSION, turns.turn.turn_id, "work")
    assert said["tools"][0]["name"] == "mailboxd_finish"
    assert said["subtasks"] == ["old"]
    assert {"agent", "depends_on", "timeout"} <= {*said["keys"]}


def test_a_turn_that_was_not_offered_its_tools_is_the_last_one_of_that_agent(turns: Turns) -> None:
    """Until the plugin says once more that it is there."""
    turns.plugin_is_there()
    for is_offered in (True, False):
        file = turns.offer()
        if is_offered:
            file.with_suffix(".offered").write_text(turns.turn.turn_id)
        turns.tools.recorded(turns.turn, ENDED)
        turns.tools.ask()
        assert [one.name for one in turns.folder.iterdir()] == ["plugin.json"]
        assert turns.tools.are_for(turns.turn) is is_offered
    (turns.folder / "plugin.json").unlink()
    assert not turns.tools.are_for(turns.turn)
    turns.plugin_is_there()
    assert turns.tools.are_for(turns.turn)


def test_what_was_submitted_counts_once_its_session_holds_it(turns: Turns) -> None:
    turns.keep(turns.offer())
    turns.session(RIGHT, text="Here it is.")
    assert turns.tools.hold(turns.order, turns.turn, ENDED)
    assert turns.tools.busy() == {turns.order.id}
    turns.look()
    ((how, submitted),) = turns.found
    assert isinstance(submitted, Submitted)
    assert counted(how, submitted) == Succeeded("Done.", run_id="run_1")
    assert read_submitted(submitted, Asked()) == Results("Done.")
    assert [made.body for made in beside(submitted)] == ["Here it is."]
    assert turns.tools.busy() == set()


def test_a_forged_file_counts_for_nothing(turns: Turns) -> None:
    turns.keep(turns.offer())
    turns.session(text="I could not judge it.")
    assert turns.tools.hold(turns.order, turns.turn, ENDED)
    turns.look()
    assert turns.found == [(ENDED, None)]
    assert counted(ENDED, None) == ENDED


def test_nothing_is_asked_for_without_a_file_of_this_turn(turns: Turns) -> None:
    assert not turns.tools.hold(turns.order, turns.turn, ENDED)
    file = turns.offer()
    assert not turns.tools.hold(turns.order, turns.turn, ENDED)
    turns.keep(file, token="trn_other")
    assert not turns.tools.hold(turns.order, turns.turn, ENDED)


@pytest.mark.parametrize(
    ("how", "asks"),
    [
        (Failed("the turn timed out"), True),
        (Failed("ECONNREFUSED", started=False), False),
        (Aborted("cancelled"), False),
        (Unknown("gateway closed", "run_1"), False),
        (Unknown("gone", "run_1", looked_up=True), True),
    ],
)
def test_a_run_that_has_ended_otherwise_may_have_submitted_its_answer(turns: Turns, how: Outcome, asks: bool) -> None:
    turns.keep(turns.offer())
    turns.session(RIGHT)
    assert turns.tools.hold(turns.order, turns.turn, how) is asks
    if asks:
        turns.look()
        ((_, submitted),) = turns.found
        assert isinstance(counted(how, submitted), Succeeded)


def test_a_session_that_cannot_be_had_is_asked_for_again(turns: Turns) -> None:
    turns.keep(turns.offer())
    order, turn = turns.order, turns.turn
    assert turns.tools.hold(order, turn, ENDED)
    turns.look()
    assert turns.found == []
    assert turns.desk.pending(RunTurn) == []
    turns.desk.clock.advance(3)
    turns.session(RIGHT)
    assert turns.tools.hold(turns.order, turn, ENDED)
    turns.look()
    assert len(turns.found) == 1


def test_refused_too_often_is_a_failed_attempt(turns: Turns) -> None:
    turns.keep(turns.offer(), calls=[], refusals=5, problems=["result: is missing"])
    turns.session(*[{**RIGHT, "arguments": {}}] * 5)
    assert turns.tools.hold(turns.order, turns.turn, ENDED)
    turns.look()
    ((how, refused),) = turns.found
    outcome = counted(how, refused)
    assert isinstance(outcome, Failed)
    assert "result: is missing" in outcome.error
    assert outcome.run_id == "run_1"


def test_two_answers_in_one_reply_are_asked_about() -> None:
    other = ToolCall("mailboxd_fail", {"error": "No."})
    answer = read_submitted(Submitted(ToolCall("mailboxd_finish", {"result": "Done."}), other=other), Asked())
    assert isinstance(answer, Unclear)
    assert "`mailboxd_finish` and `mailboxd_fail`" in answer.problems[0]


def test_what_a_daemon_that_died_has_left_is_removed_once_its_turn_is_over(turns: Turns) -> None:
    file = turns.offer()
    file.with_suffix(".offered").write_text("x")
    turns.plugin_is_there()
    turns.tools._offered.clear()  # another daemon's
    turns.tools.tidy(lambda _: False)
    turns.tools.ask()
    assert file.exists()
    turns.tools.tidy(turns.turn.turn_id.__eq__)
    turns.tools.ask()
    assert [one.name for one in turns.folder.iterdir()] == ["plugin.json"]


@pytest.mark.parametrize("ending", [".said.json", ".offered"])
def test_what_a_run_wrote_after_its_turn_was_over_is_removed(turns: Turns, ending: str) -> None:
    """And not while another turn of the session goes on."""
    file, turn_id = turns.offer(), turns.turn.turn_id
    turns.keep(file)
    file.with_suffix(".offered").write_text(turn_id)
    orphan = file.with_suffix(ending)
    turns.tools._offered.clear()
    file.write_text(json.dumps({"version": VERSION, "token": "another", "tools": []}))
    turns.tools.tidy(turn_id.__eq__)
    turns.tools.ask()
    assert file.exists()
    for one in {*turns.folder.iterdir()} - {orphan}:
        one.unlink()
    turns.tools.tidy(turn_id.__eq__)
    turns.tools.ask()
    assert not orphan.exists()
