"""`mailboxd rebuild`: read the files, replay them into a new database, verify it, and only then put it in place."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailboxd import log_checkpoints
from mailboxd.config.settings import Settings
from mailboxd.engine.reports import Reports
from mailboxd.errors import WorldError
from mailboxd.intake.interpret import Intake
from mailboxd.keys import Trust
from mailboxd.mailbox import lock
from mailboxd.mailbox.files import world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.task_files import TaskFiles
from mailboxd.progress import Progress, silent, stepwise
from mailboxd.protocol.prompts import Templates
from mailboxd.rebuild.files import EARLIEST, Sources, read
from mailboxd.rebuild.finish import called, finish
from mailboxd.rebuild.replay import Mail, Replay, ReplayEngine
from mailboxd.rebuild.timeline import Step, timeline
from mailboxd.rebuild.workers import ENOUGH, WorkerProcess, processors
from mailboxd.store import event_log
from mailboxd.store.backup import (
    close_as_one_file,
    link_new,
    remove,
    replace_database,
    require_free,
    require_sound,
)
from mailboxd.store.database import connect, storage_errors
from mailboxd.store.integrity import Seal
from mailboxd.store.rebuild_store import DatabaseWriter, LogBatch, RebuildStore
from mailboxd.taskmd.sync import TaskMarkdown

# Writing the new database, in a second process if it is large. Its tables are then compared with those that the engine
# used.

SCRIBE = "mailboxd.rebuild.write_worker"
_OFTEN = 250
"""Steps between batches."""
_MUCH = 4 << 20
"""Bytes of messages that end a batch early: both processes hold them."""


class WriterProcess:
    """A writer in a process of its own."""

    def __init__(self, hand: WorkerProcess) -> None:
        self._hand = hand

    def write(self, told: LogBatch) -> None:
        """Raises WorldError if writing or verification failed."""
        self._hand.tell(told)

    def complete(self, beside: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Raises WorldError."""
        self._hand.tell(None)
        self._hand.tell(beside)
        self._hand.hear()

    def finish(self) -> str:
        """Wait for the fingerprint. Raises WorldError."""
        return str(self._hand.hear())


class Writing:
    """A new database at `path` that follows what is recorded in a store."""

    def __init__(self, store: RebuildStore, path: Path, writer: DatabaseWriter | WriterProcess) -> None:
        self._store = store
        self._path = path
        self._writer = writer
        self._steps = 0

    def step(self) -> None:
        """WorkerProcess over what was recorded, if it is enough. Call outside savepoints. Raises WorldError."""
        self._steps += 1
        if self._steps % _OFTEN == 0 or self._store.messages.size >= _MUCH:
            self._writer.write(self._store.take())

    def complete(self) -> None:
        """WorkerProcess over the rest. Raises WorldError."""
        self._writer.write(self._store.take())
        self._writer.complete(self._store.other_tables())

    def prove(self, progress: Progress) -> str:
        """The fingerprint. Raises WorldError unless the file is sound and its tables equal those of the store."""
        with closing(connect(self._path, read_only=True)) as db, storage_errors(db):
            require_sound(db, progress)
            progress("tables", 0, 0)
            if problems := event_log.differing(self._store.db, db):
                raise WorldError("the audit trail does not hold: " + "; ".join(problems))
        return self._writer.finish()


@contextmanager
def writing(store: RebuildStore, path: Path, beginning: str, steps: int) -> Iterator[Writing]:
    """Write a new database at `path`; about `steps` steps are expected. Raises WorldError."""
    if steps < ENOUGH or processors() == 1:
        with closing(DatabaseWriter(path, beginning)) as writer:
            yield Writing(store, path, writer)
    else:
        with WorkerProcess("writes the database", SCRIBE, str(path), beginning) as hand:
            yield Writing(store, path, WriterProcess(hand))


NOT_IN_THE_FILES = {
    "events": "the log begins anew: other numbers, hashes and words; what an agent said and used in a turn is gone",
    "ids": "of tasks, turns, artifacts, of messages that came in and of attempts that no message names",
    "messages": "at (of what was sent, or was archived and started nothing), stamp, undelivered, verified, signer",
    "attempts": (
        "those by turns of the own agent that failed or were cancelled, and so the numbers of later ones; of all:"
        " run_id, session_ref, usage, model, error_summary, acknowledged, token_echoed, escalated; how a live one is"
    ),
    "tasks": (
        "phase of own work that was begun and has not ended (looked up where .mailboxd/turns/ shows its call, else"
        " circuit_open, for a person to decide) and of work of a peer whose turn told its end (looked up); attempt, as"
        " above; updated_at of children, created_at of children that an agent planned, dispatched_at of tasks that"
        " had to wait; reason, findings, error, answer, failures, rework, stalls, not_before, due, heartbeat, held,"
        " mending, spent_*, turns, stronger; policy and spec where a command, a plan of an agent or a task.md set them"
    ),
    "artifacts": "those of earlier attempts, of children that ended before a retry, and partial results",
    "reviews, review_requests, check_runs, approvals, breakers": "not there: nothing in the files tells of them",
    "outbox, meta": "what was ordered and done; what OpenClaw had said of its agents is asked again",
}
"""What a rebuild does not restore; everything else is equal."""


@dataclass(slots=True)
class Account:
    """The result. `fingerprint` is the same for the same files."""

    database: str
    fingerprint: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    kept: str = ""


def make(
    ws: Workspace,
    settings: Settings,
    now: str,
    into: Path | None,
    progress: Progress = silent,
    trust: Trust | None = None,
) -> Account:
    """Rebuild the database as the new file `into`, or in place of the current one, which is kept beside it.

    `now` only names the kept one; `trust` tells whose signature is missing. Performs no effects. Raises LockedError if
    a daemon is running, UnavailableError if `into` exists, WorldError; nothing is replaced then.
    """
    with lock.acquire(ws, now):
        target = ws.database.with_name(f"{ws.database.name}.rebuilding")
        if into is not None:
            require_free(into)
            target = into.with_name(f".{into.name}.rebuilding")  # unverified, it must not be mistaken for a database
        with world_errors(f"write {target}"):
            remove(target)  # left by a rebuild that was killed
        account = Account(str(into or ws.database))
        try:
            with _not_collecting():
                _build(ws, settings, target, account, progress, trust)
            if into is not None:
                link_new(target, into)
                remove(target)
        except BaseException:
            remove(target)
            raise
        if into is None:
            stamp = now.replace(":", "").replace(".", "")
            kept = replace_database(target, ws.database, f"{ws.database.name}.replaced-{stamp}")
            account.kept = "" if kept is None else str(kept)
            Seal(ws.database).forget()
            log_checkpoints.set_aside(ws, stamp)
    return account


@contextmanager
def _not_collecting() -> Iterator[None]:
    """Disable garbage collection: a rebuild creates few cycles, and collection takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _build(
    ws: Workspace, settings: Settings, target: Path, account: Account, progress: Progress, trust: Trust | None
) -> None:
    found = read(ws, progress)
    steps, messages = deque(timeline(found)), len(found.came) + len(found.refusals) + len(found.sent)
    found.came.clear()  # each message is held by its step alone and freed with it
    desk = ReplayEngine.open(settings, found.sent, EARLIEST)
    try:
        with writing(desk.store, target, EARLIEST, len(steps)) as made:
            replay = _replay(ws, desk, found, stepwise(_each(steps), "messages", len(steps), progress), trust, made)
            made.complete()
            account.problems, account.differences = found.problems, replay.differences
            account.counts = {
                "messages": messages,
                "tasks": desk.store.tasks.count(),
                "open": len(desk.store.tasks.open_ids()),
                "events": desk.store.events(),
            }
            account.fingerprint = made.prove(progress)
        close_as_one_file(connect(target))
    finally:
        desk.store.close()


def _each(steps: deque[Step]) -> Iterator[Step]:
    """The steps in order, each released when it is done."""
    while steps:
        yield steps.popleft()


def _replay(
    ws: Workspace, desk: ReplayEngine, found: Sources, steps: Iterable[Step], trust: Trust | None, made: Writing
) -> Replay:
    intake = Intake(desk.engine)
    taskmd = TaskMarkdown(desk.engine, intake, TaskFiles(ws), Templates(ws.templates), Reports(desk.engine))
    replay = Replay(desk, Mail(desk, intake, lambda path: found.raw_of(ws, path), trust), taskmd)
    with desk.engine.batch():
        for step in steps:
            replay.perform(step)
            made.step()
        finish(replay, found, called(ws))
    with desk.engine.batch():
        desk.store.states.clear_ended(found.shown)  # tasks/ or tasks/.archive/ shows it already
    return replay
