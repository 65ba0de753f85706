"""Files as people and their tools drop them, with the meaning that a careful person gives them.

`files.yaml` has a line for each file of `files/`, and short files of its own (`text`). They are taken by the real
intake of alpha, beside whom there are beta, gamma and delta; it is Thursday, 26 November 2026, in Berlin.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from mailboxd.clock import ManualClock
from mailboxd.config.settings import Settings
from mailboxd.core.model import Policy, Task
from mailboxd.core.times import to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.intake.arrivals import Arrivals
from mailboxd.intake.interpret import Intake
from mailboxd.mailbox.inbox import Inbox
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.task_files import TaskFiles
from mailboxd.protocol.prompts import Templates
from mailboxd.store.store import Store
from mailboxd.taskmd.sync import TaskMarkdown

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "files.yaml").read_text(encoding="utf-8"))
DEFAULT = Policy()
NOW = "2026-11-26T09:00:00.000Z"


class Desk:
    """A workspace of alpha, its intake and its engine."""

    def __init__(self, root: Path) -> None:
        Workspace.create(root)
        self.ws, self.clock = Workspace(root), ManualClock(NOW)
        self.engine = Engine(Store.open(None, NOW), Settings(agent="alpha", policy=Policy()), self.clock)
        with self.engine.batch():
            known = dict.fromkeys(("alpha", "beta", "gamma", "delta"), ("", ""))
            self.engine.store.meta.report("peers", json.dumps({"known": known}))
        self.intake = Intake(self.engine, zone=ZoneInfo("Europe/Berlin"))
        self.inbox = Inbox(self.ws, settle_seconds=0.0)
        self.arrivals = Arrivals(self.engine, self.intake, self.inbox, incomplete=0.0)

    def drop(self, name: str, raw: bytes) -> None:
        path = self.ws.inbox / name
        hidden = path.with_name(f".{name}.part")
        hidden.write_bytes(raw)
        os.utime(hidden, (to_epoch(NOW), to_epoch(NOW)))
        hidden.rename(path)

    def take(self) -> None:
        """Look until every file is judged, as the daemon does."""
        for _ in range(40):
            now = to_epoch(self.clock.advance(3.0))
            with self.engine.batch():
                self.arrivals.take(self.arrivals.read(now))
                self.engine.tick()

    def take_task_file(self, local_id: str, raw: bytes) -> None:
        directory = self.ws.tasks / local_id
        directory.mkdir()
        (directory / "task.md").write_bytes(raw)
        files = TaskFiles(self.ws, settle_seconds=0.0)
        taskmd = TaskMarkdown(self.engine, self.intake, files, Templates(None), Reports(self.engine))
        with self.engine.batch():
            taskmd.scan(to_epoch(self.clock.now()) + 3600.0)

    @property
    def roots(self) -> list[Task]:
        rows = self.engine.store.db.execute("SELECT id FROM v_tasks WHERE parent IS NULL ORDER BY seq").fetchall()
        return [task for (name,) in rows if (task := self.engine.store.tasks.get(name)) is not None]

    def judged(self, name: str) -> tuple[str, str, str]:
        """The verdict on the file, its doubts, and why it was refused."""
        events = [e for _, e in self.engine.store.recorded_since(0) if "message" in e.data]
        of = [e.data for e in events if e.data["message"].get("name") == name]
        if not of:
            return "", "", ""
        message = of[-1]["message"]
        reason = message.get("reason") or {}
        said = f"{reason.get('field')}: {reason.get('problem', '')} {reason.get('hint', '')} line {reason.get('line')}"
        return message["verdict"], str(message.get("notice", "")), said


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_file_has_the_meaning_that_a_careful_person_gives_it(case: dict[str, Any], tmp_path: Path) -> None:
    desk = Desk(tmp_path / "alpha")
    for beside in case.get("beside", ()):
        desk.drop(beside["name"], beside["text"].encode())
        desk.take()
    before = len(desk.roots)
    raw = case["text"].encode() if "text" in case else (HERE / "files" / case["name"]).read_bytes()
    name = case.get("drop_as", case["name"])
    if "task" in case:
        desk.take_task_file(case["task"], raw)
        notes = desk.engine.store.refused_files.get(case["task"])
        verdict, doubt, refused = "rejected" if notes else "accepted", "", str(notes)
    else:
        desk.drop(name, raw)
        desk.take()
        verdict, doubt, refused = desk.judged(name)
    new = desk.roots[before:]
    held = "".join(task.held for task in new)
    said = refused if verdict == "rejected" else f"{doubt}{held}"
    for word in case.get("say", ()):
        assert word.casefold() in said.casefold(), f"{word!r} is not in: {said}"
    match case["reaction"]:
        case "refuse":
            assert (verdict, new) == ("rejected", []), f"{verdict}: {doubt}"
            return
        case "not-taken":
            assert new == []
            return
        case "take":
            assert (verdict, doubt, held) == ("accepted", "", ""), refused
        case "wait":
            assert (verdict, bool(held)) == ("accepted", True), refused
        case "doubt":
            assert verdict in ("accepted", "duplicate"), refused
            assert doubt
    if verdict == "duplicate":
        return
    (task,) = new
    assert case.get("title", task.title) == task.title
    assert task.sender == case.get("sender", "operator")
    assert task.policy.deadline == case.get("deadline")
    assert case.get("priority", task.policy.priority) == task.policy.priority
    assert len(task.spec.acceptance_criteria) == case.get("criteria", 1)
    children = desk.engine.store.tasks.children(task.id)
    assert [child.executor for child in children] == case.get("executors", [])
    assert [need.title for need in desk.engine.store.tasks.dependencies(task.id)] == case.get("after", [])
    if "limits" in case:
        policy = task.policy
        assert [policy.timeout, policy.budget_usd, policy.budget_tokens, policy.max_attempts] == [
            given if given is not None else default
            for given, default in zip(case["limits"], (DEFAULT.timeout, None, None, DEFAULT.max_attempts), strict=True)
        ]
    if "labels" in case:
        assert list(task.policy.labels) == case["labels"]
    for text in case.get("contains", ()):
        assert text in f"{task.spec.instructions}\n{task.spec.context}"
