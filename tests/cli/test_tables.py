"""Tables of the terminal: which column is cut first where there is no room."""

from __future__ import annotations

import pytest

from mailboxd.cli.text import table, width


def test_a_long_name_is_cut_before_what_stands_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name, came = f"archive/2026-11-28/{'long' * 12}.md", "owned by root (uid 0)"
    _, row = table(("TYPE", "FILE", "CAME"), [("task", name, came)], cut=1)
    assert row.endswith(came)
    assert "archive/2026-11" in row
    assert width(row) <= 80
    _, row = table(("TYPE", "FILE", "CAME"), [("task", "a.md", came)], cut=1)
    assert row == f"task  a.md  {came}"
