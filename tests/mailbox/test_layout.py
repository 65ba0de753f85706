"""Protocol section 1: the workspace."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.formats.mailbox.layout import Workspace


def test_creating_makes_every_directory_for_its_owner_only_and_says_what_it_made(tmp_path: Path) -> None:
    root = tmp_path / "agent"

    made = Workspace.create(root)

    ws = Workspace(root)
    assert made[0] == "."
    for path in (ws.inbox, ws.outbox, ws.archive, ws.rejected, ws.tasks, ws.turns, ws.templates):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert str(path.relative_to(root)) in made


def test_creating_again_makes_nothing_and_changes_no_mode(tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    Workspace(tmp_path).inbox.chmod(0o733)

    assert Workspace.create(tmp_path) == []
    assert stat.S_IMODE(Workspace(tmp_path).inbox.stat().st_mode) == 0o733


@pytest.mark.parametrize("path", ["mailbox", "mailbox/inbox", "tasks", ".mailboxd"])
def test_creating_never_goes_through_a_link(tmp_path: Path, path: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = tmp_path / "agent"
    (root / path).parent.mkdir(parents=True)
    (root / path).symlink_to(elsewhere)

    with pytest.raises(ConfigError, match="symbolic link"):
        Workspace.create(root)

    assert list(elsewhere.iterdir()) == []


def test_creating_over_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("mine")

    with pytest.raises(ConfigError, match="not a directory"):
        Workspace.create(tmp_path)


def test_a_workspace_is_found_from_any_directory_below_it(tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)

    assert Workspace.find(below).root == tmp_path.resolve()


def test_a_workspace_that_is_reached_through_a_link_is_the_same_workspace(tmp_path: Path) -> None:
    real = tmp_path / "real"
    Workspace.create(real)
    (tmp_path / "link").symlink_to(real)

    assert (
        Workspace.find(tmp_path / "link") == Workspace.find(Path("/"), tmp_path / "link") == Workspace(real.resolve())
    )


def test_without_a_workspace_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="mailboxd init"):
        Workspace.find(tmp_path)
    with pytest.raises(UnavailableError, match="mailboxd init"):
        Workspace.find(tmp_path, tmp_path / "nowhere")


def test_an_explicit_workspace_is_not_searched_for_above(tmp_path: Path) -> None:
    Workspace.create(tmp_path)
    below = tmp_path / "below"
    below.mkdir()

    with pytest.raises(UnavailableError):
        Workspace.find(tmp_path, below)


def test_a_loop_of_links_is_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(UnavailableError):
        Workspace.find(tmp_path, tmp_path / "loop")
