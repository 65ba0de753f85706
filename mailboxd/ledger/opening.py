"""Opening the database of a workspace: only the right one, only if it is sound, and never a new or older one in its
place.

The file `mailboxd.db.id` beside the database holds its id (`meta.uuid`). If it or a journal exists without a database,
the database was deleted; if the ids differ, it was replaced. A restored backup and a rebuilt database have the same id.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from mailboxd.errors import DamagedError, OutdatedError, UnavailableError, WorldError
from mailboxd.host.system import system
from mailboxd.ledger import event_log
from mailboxd.ledger.backup import back_up, make_durable
from mailboxd.ledger.database import (
    connect,
    mark_of,
    migrations,
    recreation,
    require_file,
    schema_version,
    storage_errors,
)
from mailboxd.ledger.event_log import Tip
from mailboxd.ledger.integrity import DatabaseFile, Seal
from mailboxd.ledger.journal import Journal, uuid_of
from mailboxd.ledger.presence import lost
from mailboxd.ledger.store import Store

_UUID = "uuid"
_FORM = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def open_workspace(database: Path, now: str, *, thorough: bool = False, accept_older: bool = False) -> Store:
    """Open the database of a workspace; create it if there never was one, and migrate an older schema after a backup.

    `thorough` reads every page first. Raises DamagedError with instructions if it is damaged, missing or another one;
    OutdatedError if a newer one was in use here, unless `accept_older`; other WorldErrors if the disk fails, a lock
    persists or the schema is newer than the program.
    """
    require_file(database)
    mark = mark_of(database)
    expected = _read_mark(mark)
    if nothing := lost(database):
        if not accept_older:
            raise DamagedError(f"{database}: {nothing}. {_how(database)}")
    elif database.exists() and database.stat().st_size:
        nothing = _prepare(database, expected, thorough=thorough)
        if nothing and not accept_older:
            raise OutdatedError(f"{older(database, nothing)}. {_put_aside(database)}")
    store = Store.open(database, now)
    try:
        with storage_errors(store.db):
            known = store.meta.get(_UUID)
            store.seal = Seal(database)
            journal = Journal(database.parent.parent)
            store.outdated = nothing or _behind(store, store.seal) or journal.ahead(store.db)
            if store.outdated and not accept_older:
                raise OutdatedError(older(database, store.outdated))
            if known is None:
                with store.transaction():
                    known = store.meta.get(_UUID) or expected or str(uuid4())
                    store.meta.set(_UUID, known)
        if not expected:
            _write_mark(mark, known)
        store.journal = journal
        store.file = DatabaseFile.of(database)
    except BaseException:
        store.close()
        raise
    return store


def _behind(store: Store, seal: Seal) -> str:
    """How it is known that the log lacks the event that was sealed last; empty if it does not."""
    line = seal.read()
    if line is None or not line.tip.seq or store.hash_at(line.tip.seq) == line.tip.hash:
        return ""
    last = store.last_event()
    what = f"its log ends at event {last}" if last < line.tip.seq else f"event {line.tip.seq} of its log is different"
    return f"{what}, but event {line.tip.seq} was recorded here, according to its .seal file"


def older(database: Path, what: str) -> str:
    """The error for a database that is older than the workspace, with the ways to continue."""
    root = database.parent.parent
    return (
        f"{database}: the database is older than the rest of the workspace: {what}. It is a restored copy, or its "
        "-wal file was lost. Nothing was started. To continue, one of: "
        f"(1) put the newest database in its place, with the {database.name}-wal that belongs to it; "
        f"(2) {recreation(database)}; "
        f"(3) `mailboxd -w {root} db accept-older` continues with this one: open tasks then need your attention, and "
        "what was done later is not repeated"
    )


def _prepare(database: Path, expected: str, *, thorough: bool) -> str:
    """Check, back up and rescue an existing database before anything is written to it.

    Returns how it is known that an empty database replaced another one, or an empty string.
    """
    own = _own_uuid(database)
    _require(database, own, expected)
    try:
        with closing(connect(database, read_only=True)) as db:
            version = schema_version(db)
            if expected and not version:
                return f"it is empty, but {mark_of(database).name} says that it was not"
            with storage_errors(db):
                known = uuid_of(db) or None if version else None
                if expected and own == expected != known:
                    raise OutdatedError(_foreign_log(database, known))
                found = [str(row[0]) for row in db.execute("PRAGMA quick_check(3)")] if thorough else ["ok"]
            if found != ["ok"]:
                raise DamagedError(f"{database}: the database is damaged: {'; '.join(found)}")
    except OutdatedError:
        raise
    except DamagedError as error:
        raise DamagedError(f"{error}. {_put_aside(database)} {_how(database)}") from error
    _require(database, known, expected)
    if 0 < version < len(migrations()):
        _keep(database, version)
    return ""


def _require(database: Path, known: str | None, expected: str) -> None:
    if expected and known not in (None, expected):
        mark = mark_of(database)
        logs = f"{database.name}-wal and {database.name}-shm"  # their contents do not say to which database they belong
        raise DamagedError(
            f"{database}: this is another workspace's database: its id is {known}, {mark.name} says {expected}. Put "
            f"the right one in its place, without the {logs} of this one. If this one is right, delete {mark}, and "
            f"also {logs} if they belong to the previous one"
        )


def _foreign_log(database: Path, known: str | None) -> str:
    """The error for a -wal file of another database, with the ways to continue."""
    logs = f"{database.name}-wal and {database.name}-shm"
    return (
        f"{database}: the {database.name}-wal beside it is another database's: with it the id would be {known}, "
        f"unlike {mark_of(database).name} and the file itself. Nothing was started. Restore the {database.name}-wal "
        f"that belongs to it and delete {database.name}-shm; if there is none, delete {logs}. Then "
        f"`mailboxd -w {database.parent.parent} run` says whether anything is missing"
    )


def _own_uuid(database: Path) -> str | None:
    """The id in the main file without its -wal, which may belong to the previous database."""
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            found = uuid_of(db)
            return found if _FORM.fullmatch(found) else None
    except sqlite3.Error:
        return None  # unknown until its log is read


def id_of(database: Path) -> str:
    """The id of the database that belongs here: of its mark, else its own; empty if there is neither."""
    return _read_mark(mark_of(database)) or (_own_uuid(database) if database.exists() else None) or ""


def _keep(database: Path, version: int) -> None:
    """Back up an older database before it is migrated, replacing the backup of an interrupted migration."""
    copy = database.with_name(f"{database.name}.schema-{version}")
    copy.unlink(missing_ok=True)
    try:
        back_up(database, copy)
    except UnavailableError as error:
        raise WorldError(f"the database cannot be migrated without a backup: {error}") from error


def _put_aside(database: Path) -> str:
    """Copy the files, once for the same bytes; returns a sentence about the copy."""
    try:
        with database.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
        kept = database.with_name(f"{database.name}.damaged-{digest}")
        if not kept.exists():
            for ending in ("-wal", ""):  # the database last: if it is there, the copy is complete
                source = Path(f"{database}{ending}")
                if source.exists() and source.stat().st_size:
                    hidden = kept.with_name(f".{kept.name}.tmp")
                    shutil.copyfile(source, hidden)
                    hidden.chmod(0o600)
                    make_durable(hidden)
                    hidden.replace(f"{kept}{ending}")
    except OSError as error:
        return f"It could not be copied: {error.strerror}."
    return f"A copy is kept as {kept.name}."


def _how(database: Path) -> str:
    """The remedies of the operator, in the order to try them."""
    return (
        "Nothing is recreated automatically. To continue, one of: "
        f"(1) restore a copy made by `mailboxd db backup` to {database} and delete {database.name}-wal and "
        f"{database.name}-shm; "
        f"(2) {recreation(database)}; "
        f"(3) to start from scratch, move {database.name}* and mailbox/archive/events out of the workspace. "
        "Then `mailboxd db verify`"
    )


def _read_mark(mark: Path) -> str:
    try:
        fd = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # does not block on a pipe
        try:
            return os.read(fd, 64).decode("ascii", "replace").strip()
        finally:
            os.close(fd)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise WorldError(f"{mark}: cannot be read: {error.strerror}") from error


def _write_mark(mark: Path, uuid: str) -> None:
    hidden = mark.with_name(f".{mark.name}.tmp")
    try:
        fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, f"{uuid}\n".encode("ascii"))
            system.sync(fd)
        finally:
            os.close(fd)
        hidden.replace(mark)
        make_durable(mark.parent)
    except OSError as error:
        raise WorldError(f"{mark}: cannot be written: {error.strerror}") from error


def last_event_of(database: Path) -> Tip | None:
    """The end of the log in a database that may be damaged; None if it cannot be read."""
    try:
        with closing(connect(database, read_only=True)) as db:
            return event_log.tip(db)
    except (WorldError, sqlite3.Error):
        return None
