"""The runner: an observed result is recorded even if another process holds the database at that moment."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from mailboxd.core.approvals import Action, Approval, ApprovalDecision, Performed, Resolve
from mailboxd.core.events import Role
from mailboxd.engine import open
from mailboxd.errors import EXIT_TRY_AGAIN, BusyError, WorldError
from mailboxd.formats import config
from mailboxd.perform import action_runner
from mailboxd.perform.actions.gate import GateDir
from mailboxd.perform.actions.result import ActionContext, ActionResult, NotNow
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import Stage


class Locked:
    """A database that another process locks while an effect happens, and for so many looks of the runner after it."""

    def __init__(self, path: Path, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.looks = looks
        monkeypatch.setattr("mailboxd.perform.action_runner.perform", self.perform)
        monkeypatch.setattr("mailboxd.ledger.database.BUSY_MS", 0)

    def perform(
        self, _action: Action, _key: str, _target: str, _place: GateDir, _setting: ActionContext
    ) -> ActionResult:
        self.db.execute("BEGIN IMMEDIATE")
        return ActionResult(Performed.DONE, "exit status 0", "published")

    def pause(self, _seconds: float) -> None:
        self.looks -= 1
        if not self.looks:
            self.db.execute("ROLLBACK")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The runner leaves them ignored, for its process ends then; this one goes on, and starts others."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def approved(stage: Stage) -> str:
    return approve(stage, PUBLISH)


def approve(stage: Stage, action: Action) -> str:
    (name,) = ask(stage, "site", action)
    with stage.engine() as engine:
        row = engine.store.approvals.get(name)
        assert row is not None
        GateDir(stage.ws.root, name).create()
        engine.handle(row.task, Resolve(name, ApprovalDecision.APPROVED, ""), Role.OPERATOR, "kim")
    return name


@pytest.fixture
def lock(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Locked]:
    locked = Locked(stage.ws.database, 3, monkeypatch)
    with closing(locked.db):
        yield locked


def perform(stage: Stage, approval: str, pause: Callable[[float], None]) -> Approval:
    settings = config.load(stage.ws.config)
    with open.engine(stage.ws, settings) as engine:
        return action_runner.run(engine, approval, action_runner.setting(stage.ws, settings, os.environ), pause)


def test_an_end_that_was_seen_is_recorded_when_a_lock_is_gone(stage: Stage, approved: str, lock: Locked) -> None:
    """A daemon that takes a plan of ten thousand holds the database longer than anybody waits for it."""
    row = perform(stage, approved, lock.pause)
    assert (row.state, row.summary, lock.looks) == (Performed.DONE, "exit status 0", 0)


def test_a_lock_that_stays_is_said_in_the_end(stage: Stage, approved: str, lock: Locked) -> None:
    lock.looks = 1000
    with pytest.raises(BusyError, match="locked"):
        perform(stage, approved, lock.pause)
    lock.db.execute("ROLLBACK")
    with stage.engine() as engine:
        row = engine.store.approvals.get(approved)
    assert row is not None
    assert row.state is Performed.STARTED


@pytest.mark.parametrize("reads", [0, 1])
def test_files_that_cannot_be_read_before_it_or_after_it_are_no_verdict(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    done, left = tmp_path / "done", iter(range(reads))
    act = replace(PUBLISH, argv=("/bin/sh", "-c", f"echo once >> {done}"), undo=())
    approval = approve(stage, act)

    def without_descriptors(*_: object) -> Iterator[tuple[str, str]]:
        if next(left, None) is None:
            raise WorldError("site.html: Too many open files")
        yield "site.html", "1" * 64

    monkeypatch.setattr(action_runner, "named_files", without_descriptors)
    if not reads:
        with pytest.raises(NotNow, match="Too many open files"):
            perform(stage, approval, stage.pause)
        assert not done.exists()
        return
    row = perform(stage, approval, stage.pause)
    unseen = "whether its files changed while it ran could not be seen: site.html: Too many open files"
    assert (row.state, row.summary) == (Performed.DONE, f"exit status 0; {unseen}")
    assert done.read_text() == "once\n"


@pytest.mark.slow
def test_a_machine_without_descriptors_is_no_verdict_about_an_action(stage: Stage, tmp_path: Path) -> None:
    """However few there are: nothing happened, and it can be tried again; or it happened, and is recorded as done."""
    done = tmp_path / "done"
    act = replace(PUBLISH, argv=("/bin/sh", "-c", f"echo once >> {done}"), undo=())
    approval = approve(stage, act)
    words = [sys.executable, "-P", "-m", "mailboxd.cli", "effect", "run", approval]
    for most in (7, 11, 15, 20, 40):
        shell = ["sh", "-c", f'ulimit -n {most} && exec "$@"', "-", *words]
        ended = subprocess.run(shell, cwd=stage.ws.root, capture_output=True, text=True, check=False, timeout=300)
        with stage.engine() as engine:
            row = engine.store.approvals.get(approval)
        assert row is not None
        if row.state is Performed.DONE:
            break
        assert (row.state, row.started_at) == (Performed.NOT, ""), (most, row.summary, ended.stderr)
        assert ended.returncode == EXIT_TRY_AGAIN, (most, ended.stderr)
        assert "Traceback" not in ended.stderr
    assert done.read_text() == "once\n"
