"""`mailboxd db rebuild`: replay the journal into a new database, and only then put it in place.

Every event, order and sent message is in the journal; the bytes of received messages are in their files. What a power
failure cut off the journal's end is found in archive/ and outbox/ and taken in as with any older database: it is
recorded, and open work waits for a decision. Nothing is inferred.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from mailboxd.daemon import stale_database
from mailboxd.daemon.health_writer import forget_end
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import UnavailableError
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.keys import Trust
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import read_messages
from mailboxd.host.clock import Clock
from mailboxd.host.progress import Progress, silent, stepwise
from mailboxd.ledger import event_log, journal, prompts, signed_heads
from mailboxd.ledger.backup import (
    close_as_one_file,
    link_new,
    remove,
    replace_database,
    require_free,
    require_sound,
)
from mailboxd.ledger.database import connect, transaction
from mailboxd.ledger.integrity import Seal
from mailboxd.ledger.opening import id_of, last_event_of
from mailboxd.ledger.store import Store

_LARGEST = 16 << 20


@dataclass(slots=True)
class RebuildResult:
    """The result, which is the same for the same journal and files."""

    database: str
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """The parts that are missing in the new database."""
    proof: signed_heads.Proof = signed_heads.NOTHING_PROVEN
    """How far signatures prove the journal."""
    taken_in: stale_database.Acceptance | None = None
    """Files that the journal did not have; None if it had all of them."""
    kept: str = ""
    """Where the previous database is now."""


def rebuild(
    ws: Workspace,
    settings: Settings,
    clock: Clock,
    into: Path | None,
    progress: Progress = silent,
    trust: Trust | None = None,
    keys: signed_heads.Keys = MappingProxyType({}),
) -> RebuildResult:
    """Rebuild the database as the new file `into`, or in place of the current one, which is kept beside it.

    Heads signed with one of `keys` prove the journal. Performs no effects. Raises LockedError if a daemon is running,
    UnavailableError if `into` exists or there is no journal, DamagedError if the journal is damaged or one of its heads
    is not signed as it claims, WorldError; then nothing is replaced.
    """
    now = clock.now()
    with lock.acquire(ws, now):
        target = ws.database.with_name(f"{ws.database.name}.rebuilding")
        if into is not None:
            require_free(into)
            target = into.with_name(f".{into.name}.rebuilding")  # incomplete, it must not be mistaken for a database
        account = RebuildResult(str(into or ws.database))
        try:
            with world_errors(f"write {target}"):
                remove(target)  # left by a rebuild that was killed
            _build(ws, target, account, progress, keys)
            _take_in(ws, settings, clock, target, account, trust)
            _finish(target, progress)
            if into is not None:
                link_new(target, into)
        except BaseException:
            remove(target)
            raise
        if into is not None:
            remove(target)
            return account
        _report_later_events(ws, account)
        stamp = now.replace(":", "").replace(".", "")
        kept = replace_database(target, ws.database, f"{ws.database.name}.replaced-{stamp}")
        account.kept = "" if kept is None else str(kept)
        Seal(ws.database).forget()
        forget_end(ws)
    return account


def _build(ws: Workspace, target: Path, account: RebuildResult, progress: Progress, keys: signed_heads.Keys) -> None:
    with world_errors(f"read {journal.folder_of(ws.root)}"):
        files = journal.files_of(ws.root)
        if not files:
            raise UnavailableError(
                f"{journal.folder_of(ws.root)}: there is no journal, so nothing can be rebuilt: restore a copy made by"
                f" `mailboxd db backup`, or take the files over into a new workspace with `mailboxd db import`"
            )
        with closing(connect(target)) as db:
            heads = list[tuple[str, signed_heads.Head]]()
            lines = signed_heads.collect(stepwise(journal.entries(files), "journal lines", 0, progress), heads)
            account.counts["events"] = journal.fill(db, lines, id_of(ws.database)).seq
            account.problems += [
                f"event {seq}: the text of its prompt, with the SHA-256 {sha256}, is not in the journal"
                for seq, sha256 in prompts.missing(db)
            ]
            account.proof = signed_heads.judge(heads, partial(event_log.hash_at, db), keys)
            with transaction(db):
                journal.keep_bodies(db, _bodies(ws, journal.without_body(db), account, progress))
                journal.mark_shown(db)


def _bodies(
    ws: Workspace, received: list[journal.Received], account: RebuildResult, progress: Progress
) -> Iterator[tuple[str, bytes]]:
    """The bytes of received messages, from their files; those that are missing or changed are problems."""
    paths = [message.path or f"inbox/{message.name}" for message in received]
    read = zip(received, paths, read_messages(ws, paths, _LARGEST), strict=True)
    for message, path, raw in stepwise(read, "messages", len(received), progress):
        if raw is None or hashlib.sha256(raw).hexdigest() != message.sha256:
            what = "is missing" if raw is None else "was changed"
            account.problems.append(f"mailbox/{path} {what}: the new database lacks its bytes")
        else:
            yield message.id, raw


def _take_in(
    ws: Workspace, settings: Settings, clock: Clock, target: Path, account: RebuildResult, trust: Trust | None
) -> None:
    """Record files that the journal does not have."""
    store = Store(connect(target))
    try:
        core = Engine(store, settings, clock)
        with core.batch():
            account.taken_in = stale_database.take_in(core, Intake(core, trust=trust), ws)
        account.counts |= {
            "messages": store.messages.count(),
            "tasks": store.tasks.count(),
            "open": len(store.tasks.open_ids()),
        }
    finally:
        store.close()


def _finish(target: Path, progress: Progress) -> None:
    db = connect(target)
    try:
        require_sound(db, progress)
    except BaseException:
        db.close()
        raise
    close_as_one_file(db)


def _report_later_events(ws: Workspace, account: RebuildResult) -> None:
    """Say so if the database to be replaced has events that the journal lacks: they remain in the copy only."""
    last = last_event_of(ws.database)
    if last is not None and last.seq > account.counts["events"]:
        account.problems.append(
            f"the previous database has events up to {last.seq}, the journal up to {account.counts['events']}: the"
            " later ones are only in the copy that is kept"
        )
