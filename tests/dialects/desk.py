"""A desk in the inbox of alpha: files are dropped, the real intake takes them, and one sees what became of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from zoneinfo import ZoneInfo

from mailboxd.core.inputs import OperatorInput, Start, TurnEnded
from mailboxd.core.model import Policy, Task
from mailboxd.core.outcomes import Answer, Succeeded
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Turn
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import repetitions
from mailboxd.engine.intake.arrivals import Arrivals
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.reports import Reports
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.inbox import Inbox
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.host.clock import ManualClock
from mailboxd.ledger.store import Store
from mailboxd.surfaces.taskmd.sync import TaskMarkdown

NOW = "2026-11-26T09:00:00.000Z"


class Desk:
    """A workspace of alpha, its intake and its engine."""

    def __init__(self, root: Path, policy: Policy = Policy()) -> None:
        Workspace.create(root)
        self.ws, self.clock = Workspace(root), ManualClock(NOW)
        self.engine = Engine(Store.open(None, NOW), Settings(agent="alpha", policy=policy), self.clock)
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
        """Look until every file is judged, as the daemon does, and once more two minutes after the first look."""
        looks = 40
        while looks and not self._are_judged():
            self.look(3.0)
            looks -= 1
        self.look(3.0 * looks)

    def _are_judged(self) -> bool:
        judged = {name for (name,) in self.engine.store.db.execute("SELECT name FROM v_messages")}
        return all(file.name in judged for file in self.ws.inbox.iterdir())

    def take_task_file(self, local_id: str, raw: bytes) -> None:
        directory = self.ws.tasks / local_id
        directory.mkdir()
        (directory / "task.md").write_bytes(raw)
        files = TaskFiles(self.ws, settle_seconds=0.0)
        taskmd = TaskMarkdown(self.engine, self.intake, files, Templates(None), Reports(self.engine))
        with self.engine.batch():
            taskmd.scan(to_epoch(self.clock.now()) + 3600.0)

    def why_refused(self, local_id: str) -> str:
        """Why a task.md was refused; empty if it was not."""
        notes = self.engine.store.refused_files.get(local_id)
        return str(notes) if notes else ""

    def look(self, seconds: float) -> None:
        """One round, so many seconds later."""
        self.clock.advance(seconds)
        with self.engine.batch():
            self.arrivals.take(self.arrivals.read(to_epoch(self.clock.now())))
            self.engine.tick()
            repetitions.run_due(self.intake, self.engine)

    def may_start(self, task: Task) -> bool:
        with self.engine.batch():
            return task.id in [ready.task for ready in self.engine.store.schedule.ready(self.clock.now(), 10)]

    def end(self, task: Task, said: Answer) -> None:
        """It is started, and its turn ends with this answer."""
        with self.engine.batch():
            self.engine.handle(task.id, Start())
            attempt = self.engine.store.tasks.attempt(task.id, 1)
            assert attempt is not None
            self.engine.handle(task.id, TurnEnded(Turn.WORK, attempt.id, "alpha", Succeeded("said"), said))

    def start(self, task: Task) -> None:
        with self.engine.batch():
            self.engine.handle(task.id, Start())

    def doubts(self, task: Task) -> list[str]:
        """What is in doubt about it, and was not dismissed."""
        return self.engine.store.doubts.open_below(task.id)

    def command(self, task: Task, given: OperatorInput) -> None:
        with self.engine.batch():
            self.engine.command(task, given, "mira")

    def children(self, task: Task) -> list[Task]:
        return self.engine.store.tasks.children(task.id)

    def needs(self, task: Task) -> list[Task]:
        """What it waits for."""
        return self.engine.store.tasks.dependencies(task.id)

    def due(self) -> str | None:
        """When something is due next of itself."""
        return self.engine.store.schedule.next_due(self.clock.now())

    def next_asked(self) -> str | None:
        """When something that is not known becomes a question next."""
        return self.engine.store.schedule.next_asked(self.clock.now())

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
