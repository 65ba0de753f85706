"""Approvals and checks are bound to the current content of the files that a command names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mailboxd.perform.actions import gate
from mailboxd.perform.actions.gate import named_files


def test_files_of_the_workspace_are_named_once_with_their_hash(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("true\n")
    (tmp_path / ".mailboxd").mkdir()
    (tmp_path / ".mailboxd" / "config.yaml").write_text("x")
    words = ["sh", "run.sh", "./run.sh", "--file=run.sh", ".mailboxd/config.yaml", "/etc/passwd", "gone", "\0"]
    assert dict(named_files(words, "", str(tmp_path))) == {"run.sh": hashlib.sha256(b"true\n").hexdigest()}


def test_of_very_much_only_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may name thousands of files, and the daemon waits meanwhile."""
    monkeypatch.setattr(gate, "_HASHED_IN_TOTAL", 25)
    for name in "abc":
        (tmp_path / name).write_text("ten bytes.")
    a, b, c = dict(named_files("abc", "", str(tmp_path))).values()
    assert a == b == hashlib.sha256(b"ten bytes.").hexdigest()
    assert c == f"10:{(tmp_path / 'c').stat().st_mtime_ns}"
