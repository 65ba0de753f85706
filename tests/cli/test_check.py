"""`mailboxd doctor --quick`: the workspace alone, without OpenClaw, whether a daemon runs or not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mailboxd.cli.program import program
from mailboxd.formats.mailbox.layout import Workspace


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "")  # nothing is asked of a program
    root = tmp_path / "ws"
    Workspace.create(root)
    (root / ".mailboxd/config.yaml").write_text("agent: alpha\n")
    return Workspace(root)


def check(ws: Workspace, *words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(program, ["doctor", "--quick", "-w", str(ws.root), "--json", *words])
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return done.exit_code, told


def errors(told: dict[str, Any]) -> dict[str, str]:
    return {one["id"]: one["text"] for one in told["findings"] if one["level"] == "error"}


def test_a_sound_workspace(ws: Workspace) -> None:
    status, told = check(ws)
    assert (status, told["healthy"], errors(told)) == (0, True, {})
    assert not {one["group"] for one in told["findings"]} & {"openclaw", "unknown"}


def test_a_link_a_missing_directory_and_open_doors(ws: Workspace) -> None:
    ws.archive.rmdir()
    ws.outbox.rmdir()
    ws.outbox.symlink_to("/tmp")
    status, told = check(ws)
    texts = [one["text"] for one in told["findings"] if one["id"] == "directories"]
    assert status == 1
    assert f"{ws.archive} is missing" in texts
    assert f"{ws.outbox} is a symbolic link, not a directory" in texts


def test_a_wrong_configuration_and_no_workspace_have_statuses_of_their_own(ws: Workspace, tmp_path: Path) -> None:
    ws.config.write_text("agent: alpha\nno-such-key: 1\n")
    status, told = check(ws)
    assert (status, list(errors(told))) == (78, ["config"])
    assert check(Workspace(tmp_path))[0] == 69


def test_old_temporary_files_in_the_inbox_are_reported(ws: Workspace) -> None:
    left, fresh = ws.inbox / ".half.md.swp", ws.inbox / "x.md~"
    left.touch()
    fresh.touch()
    os.utime(left, (1, 1))
    status, told = check(ws)
    (finding,) = [one for one in told["findings"] if one["id"] == "abandoned"]
    assert status == 0
    assert ".half.md.swp" in finding["text"]
    assert "x.md~" not in finding["text"]
