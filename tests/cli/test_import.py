"""`mailboxd db import SOURCE`: what beads or Multi-Agent Protocol v1 kept goes on here, and is only read there."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mailboxd import foreign_import
from mailboxd.errors import UnavailableError
from tests.cli.stage import Stage

TABLES = """
CREATE TABLE issues (id TEXT PRIMARY KEY, title TEXT NOT NULL, description TEXT NOT NULL DEFAULT '',
    design TEXT NOT NULL DEFAULT '', acceptance_criteria TEXT NOT NULL DEFAULT '', notes TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'open', priority INTEGER NOT NULL DEFAULT 2, issue_type TEXT DEFAULT 'task',
    assignee TEXT, closed_at DATETIME);
CREATE TABLE dependencies (issue_id TEXT, depends_on_id TEXT, type TEXT DEFAULT 'blocks');
CREATE TABLE labels (issue_id TEXT, label TEXT);
"""
"""As beads makes them (internal/storage/sqlite/schema.go), without what is not read."""
ISSUES: list[dict[str, Any]] = [
    {"id": "bd-e1", "title": "Ship the shop", "issue_type": "epic", "description": "All of it."},
    {"id": "bd-e1.1", "title": "Design the basket", "status": "closed"},
    {"id": "bd-e1.2", "title": "Build the basket", "priority": 0, "acceptance_criteria": "- it adds up"},
    {"id": "bd-x", "title": "Fix the logo", "status": "in_progress", "assignee": "implementer"},
    {"id": "bd-d", "title": "Later", "status": "deferred"},
]
NAMES = ("bd-e1", "bd-e1.bd-e1.1", "bd-e1.bd-e1.2", "bd-x")
EDGES = [
    ("bd-e1.1", "bd-e1", "parent-child"),
    ("bd-e1.2", "bd-e1", "parent-child"),
    ("bd-e1.2", "bd-e1.1", "blocks"),
    ("bd-x", "bd-e1", "related"),
]
BLACKBOARD = {
    "agents": {
        "implementer": {"status": "done", "task": "bd-e1.2", "artifact": "shared/artifacts/implementer/out.md"},
        "researcher": {"status": "idle", "task": None, "artifact": None},
    },
    "tasks": {"bd-x": {"retry_count": 3, "last_error": "no vector", "circuit_status": "circuit_open"}},
    "signals": [{"from": "implementer", "to": "spec-reviewer", "type": "ready_for_review", "payload": "out.md"}],
}


def database(folder: Path) -> Path:
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "beads.db")) as db, db:
        db.executescript(TABLES)
        for issue in ISSUES:
            names = ", ".join(issue)
            db.execute(f"INSERT INTO issues ({names}) VALUES ({', '.join('?' * len(issue))})", tuple(issue.values()))
        db.executemany("INSERT INTO dependencies VALUES (?, ?, ?)", EDGES)
        db.execute("INSERT INTO labels VALUES ('bd-x', 'design')")
    return folder / "beads.db"


def exported(folder: Path) -> Path:
    folder.mkdir(parents=True)
    lines = []
    for issue in ISSUES:
        edges = [{"issue_id": a, "depends_on_id": b, "type": kind} for a, b, kind in EDGES if a == issue["id"]]
        lines.append(json.dumps({**issue, "dependencies": edges, "labels": ["design"] * (issue["id"] == "bd-x")}))
    (folder / "issues.jsonl").write_text("\n".join(lines))
    return folder / "issues.jsonl"


def project(root: Path) -> Path:
    database(root / ".beads")
    (root / "specs").mkdir()
    spec = "## Goal\nA basket that adds up\n\n## Scope\nNo payment.\n\n## Acceptance Criteria\n- [ ] it adds up\n"
    (root / "specs" / "bd-e1.2.md").write_text(spec)
    (root / "specs" / "bd-new.md").write_text("## Goal\nA new page\n\n## Acceptance Criteria\n- it opens\n")
    (root / "shared" / "artifacts" / "implementer").mkdir(parents=True)
    (root / "shared" / "artifacts" / "implementer" / "out.md").write_text("The basket.")
    (root / "shared" / "blackboard.json").write_text(json.dumps(BLACKBOARD))
    return root


@pytest.mark.parametrize("make", [database, exported])
def test_an_epic_becomes_a_plan_in_the_order_of_its_issues(stage: Stage, tmp_path: Path, make: Any) -> None:
    source = make(tmp_path / "shop" / ".beads")
    before = source.read_bytes()
    said = stage.json("db", "import", str(source))
    assert (sorted(said["tasks"]), said["problems"]) == (["bd-e1", "bd-x"], [])
    assert set(said["unmapped"]) == {
        "not imported, for their id or status (deferred): bd-d",
        "labels, of which a task.md has none: bd-x",
        "assignee, of which a task.md has none: bd-x",
        "relations that order nothing (related): bd-x -> bd-e1",
    }
    with stage.engine() as engine:
        tasks = {task.local_id: task for task in map(engine.store.tasks.by_local_id, NAMES) if task is not None}
    phases = {name: task.phase.value for name, task in tasks.items()}
    assert phases == {
        "bd-e1": "executing", "bd-e1.bd-e1.1": "completed", "bd-e1.bd-e1.2": "execution_ready",
        "bd-x": "execution_ready",
    }  # fmt: skip
    assert tasks["bd-e1.bd-e1.2"].policy.priority == 2
    assert source.read_bytes() == before
    again = stage.json("db", "import", str(source))
    assert (again["tasks"], again["known"]) == ([], 2)


def test_a_project_of_protocol_v1_brings_its_specs_and_what_its_agents_did(tmp_path: Path) -> None:
    found = foreign_import.read(project(tmp_path / "shop"))
    assert sorted(found.files) == ["bd-e1", "bd-new", "bd-x"]
    shop, new, logo = (found.files[name] for name in ("bd-e1", "bd-new", "bd-x"))
    basket = next(node for node in shop.dag if node.key == "bd-e1.2")
    assert "### Scope In\n\nNo payment." in basket.planned.instructions
    assert (basket.planned.depends_on, dict(shop.subtask_results)["bd-e1.2"]) == (("bd-e1.1",), "The basket.")
    assert (new.title, new.status, new.spec().acceptance_criteria) == ("A new page", "pending", ("it opens",))
    assert (logo.status, logo.results) == ("failed", "circuit open after 3 retries: no vector")
    assert "signals: implementer -> spec-reviewer: ready_for_review" in found.unmapped
    assert "agents without a task: researcher" in found.unmapped


def test_an_artifact_outside_of_the_project_is_not_read(tmp_path: Path) -> None:
    shop = project(tmp_path / "shop")
    (tmp_path / "secret").write_text("secret")
    board = json.loads(json.dumps(BLACKBOARD).replace("shared/artifacts/implementer/out.md", "../secret"))
    (shop / "shared" / "blackboard.json").write_text(json.dumps(board))
    found = foreign_import.read(shop)
    assert dict(found.files["bd-e1"].subtask_results)["bd-e1.2"] == "See ../secret."


@pytest.mark.parametrize(("name", "text"), [("notes.txt", "hello"), ("blackboard.json", "[1]"), ("issues.jsonl", "{")])
def test_what_is_neither_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / name).write_text(text)
    with pytest.raises(UnavailableError, match=name):
        foreign_import.read(tmp_path / "shared" / name)
    with pytest.raises(UnavailableError, match=r"no .beads/, no specs/"):
        foreign_import.read(tmp_path / "shared")
