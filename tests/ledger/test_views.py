"""The views are what others may read: each column that docs/database.md names, and no other."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.core.inputs import Pause
from mailboxd.core.model import Usage
from mailboxd.core.outcomes import Question
from tests.core.desk import DONE, Desk, child, plan

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "database.md").read_text(encoding="utf-8")


def promised() -> dict[str, set[str]]:
    """The columns of each view, as the page has them."""
    sections = re.split(r"^## `(v_\w+)`$", PAGE, flags=re.MULTILINE)[1:]
    return {
        view: {
            column
            for row in re.findall(r"^- (`[^:\n]*)", text, flags=re.MULTILINE)
            for column in re.findall(r"`(\w+)`", row)
        }
        for view, text in zip(sections[::2], sections[1::2], strict=True)
    }


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a small tree, opened as a person would open it."""
    path = tmp_path / "mailboxd.db"
    desk = Desk(database=path)
    desk.give(plan=plan(child("a", "bob"), child("b", "self", "a")))
    desk.ends("t.a", DONE, usage=Usage(10, 5, 0.5))
    desk.ends("t.b", Question("Which?"))
    desk.give("u")
    desk.command("u", Pause())
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened:
        yield opened


def test_every_view_has_exactly_the_columns_of_its_page(db: sqlite3.Connection) -> None:
    views = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
    assert {view: {row[1] for row in db.execute(f"PRAGMA table_info({view})")} for view in views} == promised()


def test_the_views_tell_what_happened(db: sqlite3.Connection) -> None:
    assert db.execute("SELECT local_id, phase, result FROM v_tasks ORDER BY seq").fetchall() == [
        ("t", "executing", ""),
        ("t.a", "completed", "done"),
        ("t.b", "executing", ""),
        ("u", "executing", ""),
    ]
    assert db.execute("SELECT t.key, n.key FROM v_dependencies d JOIN v_tasks t ON t.id = d.task JOIN v_tasks n"
                      " ON n.id = d.needs").fetchall() == [("b", "a")]  # fmt: skip
    assert db.execute("SELECT spent_usd, tree_turns FROM v_tasks WHERE local_id = 't'").fetchone() == (0.5, 2)
    assert {kind for (kind,) in db.execute("SELECT kind FROM v_unfinished")} == {"run_turn", "send", "task.md"}
    assert db.execute("SELECT kind FROM v_events WHERE seq = 1").fetchone() == ("task.created",)


def test_nobody_writes_through_a_view(db: sqlite3.Connection) -> None:
    for view in promised():
        with pytest.raises(sqlite3.OperationalError, match="cannot modify"):
            db.execute(f"DELETE FROM {view}")


def test_the_example_of_the_page_runs(db: sqlite3.Connection) -> None:
    (query,) = re.findall(r'^sqlite3 .* "(SELECT .*)"$', PAGE, flags=re.MULTILINE)
    assert [row[:2] for row in db.execute(query)] == [("u", "executing")]
