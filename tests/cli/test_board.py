"""The screen of `watch` in which a person acts, driven by textual's pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Any, TypeVar

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Button, DataTable, Input, Static

from mailboxd.cli.board import Act, Board
from mailboxd.core.model import Policy
from mailboxd.host.clock import SystemClock
from mailboxd.surfaces.web.page_models import PageModels
from mailboxd.surfaces.web.workspaces import FormActions, WebWorkspace, WebWorkspaces
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import Stage
from tests.cli.test_inbox import asks, loses, untold

W = TypeVar("W", bound=Widget)
HOSTILE = "[red]evil[/red] \x1b[31m [@click=app.quit]x[/]"


@pytest.fixture(autouse=True)
def _only_this_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilot waits until the process is idle, up to a second for each key while other threads of it are busy."""
    monkeypatch.setattr("textual._wait.process_time", thread_time)


def driven(stage: Stage, play: Callable[[Board, Pilot[None]], Awaitable[None]]) -> None:
    """Play on the board of this workspace."""

    async def run() -> None:
        clock = SystemClock()
        actions = FormActions(clock)
        board = Board(PageModels(WebWorkspaces([stage.ws.root]), clock), actions, WebWorkspace(stage.ws))
        async with board.run_test(size=(120, 40)) as pilot:
            async with asyncio.timeout(60):  # a loaded machine composes it later
                while not board.query(DataTable):
                    await pilot.pause(0.01)
            await settled(pilot)
            await play(board, pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[None]) -> None:
    """All that is on the screen has handled its messages: a process that gets no CPU looks idle to `pause` alone."""
    await pilot.pause()
    await pilot.press()


async def found(board: Board, pilot: Pilot[None], name: str, kind: type[W]) -> W:
    """This widget of the screen on top; a loaded machine composes it later."""
    async with asyncio.timeout(60):
        while (one := next(iter(board.screen.query(name).results(kind)), None)) is None:
            await pilot.pause(0.01)
    return one


def titles(board: Board) -> list[str]:
    table = board.query_one(DataTable)
    return [str(table.get_row_at(at)[1]) for at in range(table.row_count)]


def approvals(stage: Stage) -> list[Any]:
    return stage.sql("SELECT status, note FROM v_approvals")


def has_form(board: Board) -> bool:
    return isinstance(board.screen, Act)


async def to(board: Board, pilot: Pilot[None], words: str) -> None:
    """Move to the line with these words."""
    at = next((at for at, title in enumerate(titles(board)) if words in title), None)
    assert at is not None, f"no line with {words!r}: {titles(board)}"
    board.query_one(DataTable).move_cursor(row=at)
    await settled(pilot)


@pytest.mark.slow
def test_what_waits_comes_first_and_all_tasks_follow(stage: Stage) -> None:
    ask(stage, "site", PUBLISH)
    stage.create("quiet")

    async def play(board: Board, pilot: Pilot[None]) -> None:
        told = titles(board)
        first = next(at for at, title in enumerate(told) if "asks for your approval" in title)
        assert first < told.index("Do quiet")
        await to(board, pilot, "asks for your approval")
        assert "make publish, in site/" in str((await found(board, pilot, "#told", Static)).render())
        row = board.query_one(DataTable).cursor_row
        await pilot.press("j")
        assert board.query_one(DataTable).cursor_row == row + 1
        await pilot.press("k")
        assert board.query_one(DataTable).cursor_row == row
        await to(board, pilot, "Do quiet")
        await pilot.press("enter")
        assert "Received from operator" in str((await found(board, pilot, "#told", Static)).render())

    driven(stage, play)


def held(stage: Stage) -> list[dict[str, Any]]:
    return stage.sql("SELECT name, said FROM v_held_orders")


def test_an_approval_is_shown_as_it_is_and_decided_once(stage: Stage) -> None:
    ask(stage, "site", PUBLISH)

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "asks for your approval")
        await pilot.press("a")
        await pilot.press("enter")
        assert has_form(board)  # Enter alone approves nothing
        assert len(board.screen.query("#back")) == 1
        await pilot.click("#do2")  # a screen of its own asks once more
        await settled(pilot)
        (await found(board, pilot, "#do0", Button)).press()
        await settled(pilot)
        assert "required" in str((await found(board, pilot, "#refused", Static)).render())
        (await found(board, pilot, "#field-note", Input)).value = "not today"
        (await found(board, pilot, "#do0", Button)).press()
        await settled(pilot)
        assert not has_form(board)
        assert any("Reject" in title and "u takes it back" in title for title in titles(board))

    driven(stage, play)
    assert approvals(stage) == [{"status": "pending", "note": ""}], "it is held"
    assert [row["name"] for row in held(stage)] == ["reject"]


@pytest.mark.slow
def test_what_is_held_is_taken_back_by_one_key(stage: Stage) -> None:
    loses(stage)

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "stopped because")
        await pilot.press("c")
        await settled(pilot)
        labels = [str(button.label) for button in board.screen.query(Button)]
        assert labels == ["Cancel the task", "Back, change nothing"]
        (await found(board, pilot, "#do0", Button)).press()
        await settled(pilot)
        assert len(held(stage)) == 1
        await to(board, pilot, "Cancel the task")
        await pilot.press("u")
        await settled(pilot)

    driven(stage, play)
    assert (held(stage), stage.phase("job")) == ([], "circuit_open")


@pytest.mark.slow
def test_a_used_up_budget_is_raised_on_the_screen(stage: Stage) -> None:
    stage.create("job", policy=Policy(budget_usd=0.0))
    stage.start()

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "over budget")
        await pilot.press("a")
        await settled(pilot)
        (await found(board, pilot, "#field-budget_usd", Input)).value = "2.5"
        (await found(board, pilot, "#do0", Button)).press()
        await settled(pilot)
        assert not has_form(board)

    driven(stage, play)
    assert stage.json("show", "job")["policy"]["budget_usd"] == 2.5


def test_a_question_is_answered_by_keyboard_alone(stage: Stage) -> None:
    asks(stage)

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "Which figures?")
        await pilot.press("a", *"theirs", "enter")
        await settled(pilot)
        assert not has_form(board)

    driven(stage, play)
    assert "question" not in [item["kind"] for item in stage.json("inbox")]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "phase"), [("r", "execution_ready"), ("c", "circuit_open")])
def test_what_is_stuck_is_retried_or_cancelled(stage: Stage, key: str, phase: str) -> None:
    loses(stage)

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "stopped because")
        await pilot.press(key, "enter")
        await settled(pilot)

    driven(stage, play)
    assert stage.phase("job") == phase
    assert held(stage) == [], "Enter alone ends nothing"


@pytest.mark.slow
def test_a_key_that_does_not_apply_does_nothing(stage: Stage) -> None:
    stage.create("quiet")

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "Do quiet")
        await pilot.press("r")
        assert not has_form(board)

    driven(stage, play)


@pytest.mark.slow
def test_tasks_are_filtered_and_texts_are_searched(stage: Stage) -> None:
    stage.create("report")
    stage.start()
    stage.end_turn("report", "Mangoes were best.")
    stage.create("harvest")

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await pilot.press("/", *"harv")
        await settled(pilot)
        assert titles(board) == ["Do harvest"]
        await pilot.press("enter", "escape")
        assert {"Do harvest", "Do report"} <= set(titles(board))
        await pilot.press("s", *"mangoes", "enter")
        await settled(pilot)
        assert titles(board)[-1] == "Do report"
        assert "Do harvest" not in titles(board)

    driven(stage, play)


@pytest.mark.slow
def test_what_agents_say_is_no_markup(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", f"# {HOSTILE}\n")

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "Do job")
        await pilot.press("enter")
        told = str((await found(board, pilot, "#told", Static)).render())
        assert "[red]evil[/red] \\x1b[31m [@click=app.quit]x[/]" in told

    driven(stage, play)


@pytest.mark.slow
def test_circuits_of_one_cause_run_again_by_one_button(stage: Stage) -> None:
    names = [f"t{number}" for number in range(7)]
    for name in names:
        loses(stage, name)

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "7 tasks stopped for one reason")
        assert ", ".join(names) in str((await found(board, pilot, "#told", Static)).render())
        await pilot.press("r")
        await settled(pilot)
        assert [str(button.label) for button in board.screen.query(Button)] == ["Run again", "Back, change nothing"]
        (await found(board, pilot, "#do0", Button)).press()
        await settled(pilot)

    driven(stage, play)
    assert {stage.phase(name) for name in names} == {"execution_ready"}


@pytest.mark.slow
def test_notices_that_reach_nobody_are_dismissed(stage: Stage) -> None:
    untold(stage)

    async def play(board: Board, pilot: Pilot[None]) -> None:
        await to(board, pilot, "not reached")
        await pilot.press("a")
        await settled(pilot)
        assert [str(button.label) for button in board.screen.query(Button)] == ["Dismiss", "Back, change nothing"]
        (await found(board, pilot, "#do0", Button)).press()
        await settled(pilot)

    driven(stage, play)
    assert [item for item in stage.json("inbox") if item["kind"] == "notice"] == []
