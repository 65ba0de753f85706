"""Which workspaces a user has: noted by `init` and `run`, believed by nobody more than needed."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from mailboxd.errors import ConfigError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import registry
from mailboxd.formats.user.state import UserState


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def _made(root: Path) -> Path:
    Workspace.create(root)
    return root


def _known(environ: dict[str, str]) -> list[Path]:
    return [ws.root for ws in registry.workspaces(environ)]


def test_there_is_none_at_first_and_looking_makes_nothing(tmp_path: Path, environ: dict[str, str]) -> None:
    assert _known(environ) == []
    assert not (tmp_path / "state").exists()


def test_workspaces_come_once_and_in_order_readable_by_their_user_only(tmp_path: Path, environ: dict[str, str]) -> None:
    first, second = _made(tmp_path / "a"), _made(tmp_path / "b")
    assert [registry.register(root, environ) for root in (first, second, first)] == [True, True, True]
    assert _known(environ) == [first, second]
    file = UserState.of(environ).folder / registry.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_name_that_is_not_text_is_preserved(tmp_path: Path, environ: dict[str, str]) -> None:
    odd = _made(Path(os.fsdecode(os.fsencode(tmp_path) + b"/w\xff\nx")))
    assert registry.register(odd, environ)
    assert _known(environ) == [odd]


def test_one_that_has_vanished_is_passed_over_and_dropped_with_the_next(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    gone, kept = _made(tmp_path / "gone"), _made(tmp_path / "kept")
    registry.register(gone, environ)
    shutil.rmtree(gone)
    assert _known(environ) == []
    registry.register(kept, environ)
    assert json.loads((UserState.of(environ).folder / registry.FILE).read_text()) == [str(kept)]


def test_what_is_no_workspace_is_not_noted(tmp_path: Path, environ: dict[str, str]) -> None:
    assert not registry.register(tmp_path / "nothing", environ)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / ".mailboxd").symlink_to(_made(tmp_path / "real") / ".mailboxd")
    assert not registry.register(linked, environ)
    assert _known(environ) == []


@pytest.mark.parametrize("said", ["", "{", "7", "null", '{"a": 1}', '[1, "relative", "/with\\u0000nul", null]'])
def test_a_damaged_list_is_empty_and_replaced(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    root = _made(tmp_path / "a")
    registry.register(root, environ)
    (UserState.of(environ).folder / registry.FILE).write_text(said)
    assert _known(environ) == []
    assert registry.register(root, environ)
    assert _known(environ) == [root]


def test_a_list_that_others_may_write_is_not_believed(tmp_path: Path, environ: dict[str, str]) -> None:
    registry.register(_made(tmp_path / "a"), environ)
    file = UserState.of(environ).folder / registry.FILE
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 600"):
        registry.workspaces(environ)
    assert registry.register(_made(tmp_path / "b"), environ)
    assert _known(environ) == [tmp_path / "b"]


@pytest.mark.parametrize("home", ["/nonexistent", "/dev/null", "/proc/version"])
def test_an_account_without_a_home_runs_all_the_same(tmp_path: Path, home: str) -> None:
    assert not registry.register(_made(tmp_path / "a"), {"HOME": home})
    assert registry.workspaces({"HOME": home}) == []


def test_the_oldest_go_when_there_are_too_many(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MOST", 2)
    roots = [_made(tmp_path / name) for name in "abc"]
    for root in roots:
        registry.register(root, environ)
    assert _known(environ) == roots[1:]
