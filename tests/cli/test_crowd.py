"""Commands that show only some of many tasks print the true number, on lines that fit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.stage import Stage, child, make
from tests.ledger.crowd import multiply

PHASES = ("circuit_open", "awaiting_approval", "cancelled", "ready_to_resume", "executing", "failed")


@pytest.fixture
def crowd(tmp_path: Path) -> Stage:
    stage = make(tmp_path / "alpha")
    stage.create("big", child("a"))
    with closing(sqlite3.connect(stage.ws.database)) as db, db:
        multiply(db, "big.a", 1_000, dict.fromkeys(PHASES, 100))
        db.execute("UPDATE tasks SET reason = 'for a reason of its own: ' || seq WHERE phase = 'circuit_open'")
    return stage


def test_status_counts_all_that_are_blocked_and_lists_some(crowd: Stage) -> None:
    found = crowd.json("status")
    no_daemon = 1
    assert (found["attention_count"], len(found["attention"])) == (100 + no_daemon, 50 + no_daemon)
    shown = crowd.run("status").output
    listed = shown.count("stopped because")
    assert f"and {100 - listed} more: `{crowd.program} inbox`\n" in shown


def test_the_lines_of_status_fit_on_eighty_columns(crowd: Stage) -> None:
    for options in ((), ("--all",)):
        shown = crowd.run("status", *options, env={"COLUMNS": "80"}).output.replace(str(crowd.ws.root), "")
        assert [line for line in shown.splitlines() if len(line) > 80 and "  # or, once seen" not in line] == []
    words = " ".join(shown.split())
    assert all(f"100 {word}" in words for word in ("cancelled", "failed"))
    assert "200 needs you" in words, "open circuits and approvals"
    assert "200 running" in words, "those whose approved actions run, too"


def test_the_metric_of_blocked_tasks_counts_all(crowd: Stage) -> None:
    assert "mailboxd_tasks_blocked 100" in crowd.run("export", "metrics").output.replace('{agent="alpha"}', "")
