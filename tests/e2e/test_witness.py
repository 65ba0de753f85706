"""The witness itself: whatever is broken in a finished workspace, it complains."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e import witness
from tests.e2e.support import Company, task

pytestmark = pytest.mark.slow

PLAN = {
    "x": {"agent": "beta", "description": "X"},
    "y": {"agent": "self", "description": "Y", "depends_on": ["x"]},
}


def sql(*statements: str) -> Callable[[Path], None]:
    def tamper(root: Path) -> None:
        with closing(sqlite3.connect(root / ".mailboxd" / "mailboxd.db")) as db:
            for trigger in ("events_are_never_changed", "events_are_never_removed"):
                db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            for statement in statements:
                assert db.execute(statement).rowcount > 0, statement
            db.commit()

    return tamper


def archived(root: Path) -> Path:
    return next(path for path in (root / "mailbox" / "archive").rglob("*.md") if path.name != "INDEX.md")


def sent(root: Path) -> Path:
    return next((root / "mailbox" / "outbox").glob("*/*"))


TAMPERINGS: dict[str, Callable[[Path], object]] = {
    "a result that no event knows": sql("UPDATE tasks SET result = 'x' WHERE local_id = 'job.x'"),
    "an attempt that no event ended": sql("UPDATE attempts SET status = 'failed'"),
    "a message that lies elsewhere": sql("UPDATE messages SET path = 'archive/x' WHERE name = 'go.md'"),
    "an event that was rewritten": sql("UPDATE events SET actor = 'me' WHERE seq = 2"),
    "an event in the middle that is gone": sql("DELETE FROM events WHERE seq = 5"),
    "a last event that is gone": sql("DELETE FROM events WHERE seq = (SELECT max(seq) FROM v_events)"),
    "bytes in the database that are others": sql("UPDATE bodies SET raw = x'00'"),
    "an effect that nobody performed": sql("UPDATE outbox SET state = 'pending'"),
    "turns that nobody ordered": sql("DELETE FROM outbox"),
    "an archived file that is gone": lambda root: archived(root).unlink(),
    "an archived file that was changed": lambda root: archived(root).write_text("x"),
    "an archived file that nobody knows": lambda root: shutil.copy(archived(root), f"{archived(root)}.copy"),
    "an archived file that was moved to rejected": lambda root: archived(root).rename(
        next((root / "mailbox/rejected").iterdir()) / "x.md"
    ),
    "a reason that is gone": lambda root: next((root / "mailbox/rejected").rglob("*.reason.json")).unlink(),
    "a sent message that is gone": lambda root: sent(root).unlink(),
    "a sent message that was changed": lambda root: sent(root).write_text("x"),
    "a temporary file that was left": lambda root: (root / "mailbox" / "archive" / ".x.tmp").write_text(""),
    "an arrival that was left": lambda root: (root / "mailbox" / "inbox" / "x.md").write_text("x"),
}


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Company:
    """One that has done its work. No test changes it."""
    company = Company(tmp_path_factory.mktemp("company"), {"alpha": {}, "beta": {}})
    alpha = company["alpha"]
    alpha.settle_in({"synthesis": "concat"})
    alpha.drop("go.md", task("job", plan=PLAN))
    alpha.drop("rubbish.md", b"---\nrubbish\n---\n")
    alpha.run()
    company.at_rest()
    return company


def test_every_kind_of_damage_is_noticed(company: Company, tmp_path: Path) -> None:
    unnoticed = []
    for number, (what, tamper) in enumerate(TAMPERINGS.items()):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(company["alpha"].root, copy)
        tamper(copy)
        if not witness.complaints([copy], company.ledger):
            unnoticed.append(what)
    assert unnoticed == []


def test_an_execution_too_many_is_noticed(company: Company, tmp_path: Path) -> None:
    for again in company.executions():
        ledger = tmp_path / "ledger"
        ledger.write_bytes(company.ledger.read_bytes() + json.dumps({**again, "run_id": "again"}).encode() + b"\n")
        complaints = witness.complaints(company.homes(), ledger)
        assert any("times" in complaint for complaint in complaints)
        assert any("ordered" in complaint for complaint in complaints)


def test_a_start_before_its_dependency_is_noticed(company: Company) -> None:
    case = witness.Case.load(company["alpha"].root)
    keys = {
        json.loads(event["data"])["task"]["key"]: event["task"]
        for event in case.events
        if event["kind"] == "task.created"
    }
    starts = [event for event in case.events if event["kind"] == "attempt.started" and event["task"] == keys["y"]]
    case.events = [event for event in case.events if event not in starts]
    place = next(
        n for n, event in enumerate(case.events) if event["kind"] == "attempt.started" and event["task"] == keys["x"]
    )
    case.events[place:place] = starts
    assert any("before" in complaint for complaint in witness.starts(case))
