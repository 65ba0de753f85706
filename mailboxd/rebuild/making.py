"""`mailboxd rebuild`: read the files, replay them into a new database, prove it; only then let it take its place."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd import heads
from mailboxd.inbox.intake import Intake
from mailboxd.keys.trust import Trust
from mailboxd.messages.templates import Templates
from mailboxd.progress import Progress, silent, stepwise
from mailboxd.rebuild.bounds import EARLIEST
from mailboxd.rebuild.desk import Desk
from mailboxd.rebuild.finish import called, finish
from mailboxd.rebuild.mail import Mail
from mailboxd.rebuild.reading import read
from mailboxd.rebuild.replay import Replay
from mailboxd.rebuild.sources import Sources
from mailboxd.rebuild.timeline import Step, timeline
from mailboxd.rebuild.writing import Writing, writing
from mailboxd.settings import Settings
from mailboxd.store.db import connect
from mailboxd.store.seal import Seal
from mailboxd.store.whole import close_as_one_file, put_in_place, put_where_nothing_is, remove, require_free
from mailboxd.taskfiles.taskmd import TaskMarkdown
from mailboxd.workspace import lock
from mailboxd.workspace.files import world_errors
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.taskfiles import TaskFiles

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
"""What a rebuilt database does not have as it was; everything else is equal."""


@dataclass(slots=True)
class Account:
    """What was made: `fingerprint` is the same for the same files."""

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
    """Make the database again, as a new file `into`, or in the place of the present one, which is kept beside it.

    `now` only names what is kept; `trust` says whose signature is missing. Performs nothing. Raises LockedError when a
    daemon runs there, UnavailableError when `into` exists, WorldError; then nothing was replaced.
    """
    with lock.acquire(ws, now):
        target = ws.database.with_name(f"{ws.database.name}.rebuilding")
        if into is not None:
            require_free(into)
            target = into.with_name(f".{into.name}.rebuilding")  # not proven, it has no name by which it is taken
        with world_errors(f"write {target}"):
            remove(target)  # of a rebuild that was killed
        account = Account(str(into or ws.database))
        try:
            with _not_collecting():
                _build(ws, settings, target, account, progress, trust)
            if into is not None:
                put_where_nothing_is(target, into)
                remove(target)
        except BaseException:
            remove(target)
            raise
        if into is None:
            stamp = now.replace(":", "").replace(".", "")
            kept = put_in_place(target, ws.database, f"{ws.database.name}.replaced-{stamp}")
            account.kept = "" if kept is None else str(kept)
            Seal(ws.database).forget()
            heads.set_aside(ws, stamp)
    return account


@contextmanager
def _not_collecting() -> Iterator[None]:
    """What a rebuild makes lives to its end or dies at once: few are in circles, and the search takes time."""
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
    found.came.clear()  # each message is held by its step alone, and goes with it: memory is for tables or for messages
    desk = Desk.open(settings, found.sent, EARLIEST)
    try:
        with writing(desk.store, target, EARLIEST, len(steps)) as made:
            replay = _replay(ws, desk, found, stepwise(_each(steps), "messages", len(steps), progress), trust, made)
            made.complete()
            account.problems, account.differences = found.problems, replay.differences
            account.counts = {
                "messages": messages,
                "tasks": desk.store.count_tasks(),
                "open": len(desk.store.open_tasks()),
                "events": desk.store.events(),
            }
            account.fingerprint = made.prove(progress)
        close_as_one_file(connect(target))
    finally:
        desk.store.close()


def _each(steps: deque[Step]) -> Iterator[Step]:
    """The steps in their order; none is held any longer."""
    while steps:
        yield steps.popleft()


def _replay(
    ws: Workspace, desk: Desk, found: Sources, steps: Iterable[Step], trust: Trust | None, made: Writing
) -> Replay:
    intake = Intake(desk.engine)
    taskmd = TaskMarkdown(desk.engine, intake, TaskFiles(ws), Templates(ws.templates), [])
    replay = Replay(desk, Mail(desk, intake, lambda path: found.raw_of(ws, path), trust), taskmd)
    with desk.engine.batch():
        for step in steps:
            replay.perform(step)
            made.step()
        finish(replay, found, called(ws))
    with desk.engine.batch():
        desk.store.leave_ended(found.shown)  # in tasks/.archive/ or here, it is shown already
    return replay
