"""An edit of a task.md that was made to an older version of the file: what came since is not taken back by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.inputs import NewTask, SpecWritten
from mailboxd.core.model import Policy, Spec
from mailboxd.formats.protocol.spec import rewritten
from mailboxd.surfaces.taskmd import sync
from tests.surfaces.edited import Desk

STEERED = "New instructions from operator:\n> Count the commas."


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "alpha")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("rendered", [False, True])
def test_new_instructions_are_not_taken_back_by_an_edit_of_the_version_before(
    desk: Desk, restarts: bool, rendered: bool
) -> None:
    """It was open in an editor, or no daemon ran that could have shown them."""
    before = desk.file.read_text()
    desk.steer()
    if rendered:
        desk.render()
    if restarts:
        desk.restart()
    desk.save(before.replace("Do job.", "Do job with care."))
    assert desk.instructions == f"Do job with care.\n\n{STEERED}"
    desk.save(before.replace("Do job.", "Do job with great care."))
    assert desk.instructions == f"Do job with great care.\n\n{STEERED}"
    assert "Count the commas" in desk.render()


@pytest.mark.parametrize("header", [True, False])
def test_an_agent_that_writes_the_file_as_it_read_it_takes_nothing_back(desk: Desk, header: bool) -> None:
    before = desk.file.read_text()
    desk.steer()
    desk.render()
    if not header:
        before = "\n".join(line for line in before.splitlines() if not line.startswith(("updated_at:", "rendered:")))
    desk.save(before.replace("## Working Notes\n", "## Working Notes\n\nHalf of it.\n"))
    assert desk.instructions == f"Do job.\n\n{STEERED}"
    assert desk.edits() == 0
    assert "Half of it." in desk.render()


def test_what_a_file_shows_is_kept_of_the_latest_ones_and_an_edit_of_another_counts_as_well(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "_MOST_SHOWN", 2)
    with desk.engine.batch():
        for name in ("a", "b", "c"):
            desk.engine.handle(None, NewTask(name, None, name, "operator", name, Spec(name, "Do."), Policy()))
    before = desk.render()
    assert len(desk.taskmd._shown) == 2
    desk.steer()
    desk.save(before.replace("Do job.", "Do job with care."))
    assert desk.instructions == f"Do job with care.\n\n{STEERED}"


def test_an_author_who_has_read_the_new_instructions_may_remove_them(desk: Desk) -> None:
    desk.steer()
    text = desk.render()
    assert STEERED in text
    desk.save(text.replace(f"\n\n{STEERED}", ""))
    assert desk.instructions == "Do job."


def test_a_second_edit_may_undo_the_first(desk: Desk) -> None:
    text = desk.file.read_text()
    desk.save(text.replace("Do job.", "Do it twice."))
    assert desk.instructions == "Do it twice."
    desk.save(text.replace("## Working Notes\n", "## Working Notes\n\nAs it was.\n"))
    assert desk.instructions == "Do job."


def test_a_spec_that_was_written_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "alpha", goal="")
    before = desk.file.read_text()
    written = rewritten(desk.spec, "## Expected Output\n\nTwo lines.\n")
    assert written is not None
    desk.clock.advance(1.0)
    desk.order(SpecWritten(written))
    desk.restart()
    desk.save(f"{before}\n## Scope Out\n\nTables.\n")
    assert (desk.spec.expected_output, desk.spec.scope_out) == ("Two lines.", "Tables.")
