"""Tasks as cards: made once, moved one way, never where OpenClaw would give them to agents of its own."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailboxd.engine import open
from mailboxd.formats import config
from mailboxd.ledger.attention_queries import GivenTask
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.process_table import Caps, ProcessTable
from mailboxd.perform.workboard import AGAIN, KEPT, Workboard, column
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import Stage, make

BOARD = """#!/bin/sh
printf "%s\\n" "$3" "$4" >> {place}/said
[ -e {place}/away ] && echo '{{"ok":false,"error":{{"message":"unknown method"}}}}' && exit 1
status=$(printf %s "$4" | sed 's/.*"status": "\\([a-z]*\\)".*/\\1/')
echo "{{\\"card\\":{{\\"id\\":\\"c1\\",\\"status\\":\\"$status\\"}}}}"
"""


class Board:
    """A workspace with cards."""

    def __init__(self, stage: Stage, place: Path, selector: selectors.BaseSelector) -> None:
        self.stage, self.place = stage, place
        self.calls = ProcessTable(stage.ws.turns, selector, dict(os.environ), 1 << 20, 0.2, Caps(1, 1))
        self.program = place / "openclaw"
        self.program.write_text(BOARD.format(place=place))
        self.program.chmod(0o755)
        self.board: Workboard | None = None

    def round(self) -> list[tuple[str, dict[str, Any]]]:
        """The requests of one round of the daemon."""
        with open.engine(self.stage.ws, config.load(self.stage.ws.config)) as engine:
            engine.clock = self.stage.clock
            if self.board is None:
                self.board = Workboard(engine, self.calls, GatewayCalls((str(self.program),)), enabled=True)
            self.board.engine = engine
            self.board.perform()
            while self.calls.running:
                with engine.batch():
                    for call, exit_ in self.calls.ended():
                        assert self.board.ended(call, exit_)
            self.calls.discard_recorded()
        said = self.place / "said"
        lines = said.read_text().splitlines() if said.exists() else []
        said.unlink(missing_ok=True)
        pairs = zip(lines[::2], lines[1::2], strict=True)
        return [(method, json.loads(params.removeprefix("--params="))) for method, params in pairs]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    with selectors.DefaultSelector() as selector:
        yield Board(make(tmp_path / "alpha", ""), tmp_path, selector)


def test_a_task_is_one_card_that_follows_it(board: Board) -> None:
    board.stage.create("job")
    ((method, params),) = board.round()
    assert (method, params["status"], params["agentId"]) == ("workboard.cards.create", "running", "alpha")
    assert params["title"].startswith("job: ")
    assert board.round() == []
    board.stage.start()
    board.stage.end_turn("job", "The result itself.")
    assert board.round() == [("workboard.cards.update", {"id": "c1", "patch": {"status": "done"}})]
    assert board.board is not None
    board.stage.clock.advance(KEPT + 1)
    assert board.round() == []
    assert board.board._cards == {}, "what is kept is bounded by the work that is looked at"
    board.stage.clock.advance(-KEPT - 1)
    board.board = None  # another daemon
    ((method, again),) = board.round()
    assert (method, again["idempotencyKey"], again["status"]) == (
        "workboard.cards.create", params["idempotencyKey"], "done"
    )  # fmt: skip


def test_what_waits_for_a_person_is_blocked(board: Board) -> None:
    ask(board.stage, "site", PUBLISH)
    ((_, params),) = board.round()
    assert params["status"] == "blocked"


def test_a_gateway_without_the_board_is_left_alone_for_a_while(board: Board) -> None:
    (board.place / "away").touch()
    board.stage.create("job")
    assert len(board.round()) == 1
    assert board.board is not None
    assert board.board.trouble.endswith("was not written, and is tried again: unknown method")
    assert board.round() == []
    (board.place / "away").unlink()
    board.stage.clock.advance(AGAIN)
    assert len(board.round()) == 1
    assert board.board.trouble == ""


@pytest.mark.parametrize("phase", ["spec_draft", "execution_ready", "executing", "quality_gate", "completed", "failed"])
@pytest.mark.parametrize("need", ["", "question", "subtasks"])
def test_no_card_is_ever_where_openclaw_takes_it(phase: str, need: str) -> None:
    task = GivenTask("tsk_1", "job", "Job", phase, phase in ("completed", "failed"), need)
    assert column(task) in ("running", "blocked", "review", "done")
