"""Opening the database of a workspace: only the one that belongs there, only if it is sound, and never a new one in
the place of one that is gone, nor one that is older than what was served here last.

Beside the database lies a mark, `mailboxd.db.id`, with the id that the database bears (`meta.uuid`). Mark without
database: it was deleted. A mark that names another: it was exchanged. A restored backup bears the id that it had; one
that `mailboxd rebuild` made bears none, and is given that of the mark.
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
from mailboxd.store.backup import back_up, settle
from mailboxd.store.database import connect, migrations, require_file, schema_version, worlds_errors
from mailboxd.store.integrity import Place, Seal
from mailboxd.store.store import Store

_UUID = "uuid"
_FORM = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def mark_of(database: Path) -> Path:
    """The file that says which database belongs here."""
    return database.with_name(f"{database.name}.id")


def open_workspace(database: Path, now: str, *, thorough: bool = False, accept_older: bool = False) -> Store:
    """The database of a workspace, made if there was none, migrated if it is of an older program (after a backup).

    `thorough`: every page is read first. Raises DamagedError when it is damaged, gone or another one, with what to do;
    OutdatedError when a later one was served here, unless `accept_older`; other WorldErrors when the disk refuses, a
    lock stays or it is newer than this program.
    """
    require_file(database)
    mark = mark_of(database)
    expected = _read_mark(mark)
    nothing = ""
    if database.exists() and database.stat().st_size:
        nothing = _prepare(database, expected, thorough=thorough)
        if nothing and not accept_older:
            raise OutdatedError(f"{older(database, nothing)}. {_put_aside(database)}")
    elif expected:
        nothing = f"the database {'is empty' if database.exists() else 'is gone'}, and there was one (says {mark.name})"
        if not accept_older:
            raise DamagedError(f"{database}: {nothing}. {_how(database)}")
    store = Store.open(database, now)
    try:
        with worlds_errors(store.db):
            known = store.meta.get(_UUID)
            store.seal = Seal(database)
            store.is_rebuilt = known is None and bool(expected) and not nothing
            if store.is_rebuilt:
                store.seal.forget()  # it is of the database before
            else:
                store.outdated = nothing or _behind(store, store.seal)
            if store.outdated and not accept_older:
                raise OutdatedError(older(database, store.outdated))
            if known is None:
                with store.transaction():
                    known = store.meta.get(_UUID) or expected or str(uuid4())
                    store.meta.set(_UUID, known)
        if not expected:
            _write_mark(mark, known)
        store.place = Place.of(database)
    except BaseException:
        store.close()
        raise
    return store


def _behind(store: Store, seal: Seal) -> str:
    """What shows that the log does not go through the event that was sealed last; empty when it does."""
    line = seal.read()
    if line is None or not line.tip.seq or store.hash_at(line.tip.seq) == line.tip.hash:
        return ""
    last = store.last_event()
    what = f"its log ends at event {last}" if last < line.tip.seq else f"event {line.tip.seq} of its log is another one"
    return f"{what}, and event {line.tip.seq} was recorded here (says the file beside it, .seal)"


def older(database: Path, what: str) -> str:
    """That the database knows less than the workspace, and every way to go on."""
    root = database.parent.parent
    return (
        f"{database}: the database is older than the rest of the workspace: {what}. It is a copy that was put back, or "
        "its -wal file was lost. Nothing was started. To go on, one of: "
        f"(1) put the newest database in its place, with the {database.name}-wal that belongs to it; "
        f"(2) `mailboxd -w {root} rebuild --replace` makes it again from archive/, outbox/ and tasks/; "
        f"(3) `mailboxd -w {root} accept-older` goes on from this one: open work then waits for you, and what came "
        "later is not done again"
    )


def changed(database: Path, what: str) -> str:
    """That the log is not what was recorded, and every way to go on."""
    root = database.parent.parent
    return (
        f"{database}: the log of events was changed: {what}. Nothing was started. To go on, one of: "
        f"(1) put a copy by `mailboxd backup` in its place and delete {database.name}-wal and {database.name}-shm; "
        f"(2) `mailboxd -w {root} rebuild --replace` makes it again from archive/, outbox/ and tasks/. "
        "Find out who wrote to the file"
    )


def _prepare(database: Path, expected: str, *, thorough: bool) -> str:
    """What has to be known, and done, before anything is written to a database that is there.

    Returned is what shows that it is an empty one in the place of another; empty if it is not.
    """
    own = _own_uuid(database)
    _require(database, own, expected)
    try:
        with closing(connect(database, read_only=True)) as db:
            version = schema_version(db)
            if expected and not version:
                return f"there is nothing in it, and there was (says {mark_of(database).name})"
            with worlds_errors(db):
                known = _uuid(db) if version else None
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
        logs = f"{database.name}-wal and {database.name}-shm"  # whose they are, nothing in them says
        raise DamagedError(
            f"{database}: this is another workspace's database: it is {known}, {mark.name} says {expected}. Put the "
            f"right one in its place, without the {logs} of this one, or, if this one is right, delete {mark}, and "
            f"{logs} if they are of the one that lay here before"
        )


def _foreign_log(database: Path, known: str | None) -> str:
    """That the -wal file beside the right database is another one's, and the ways to go on."""
    logs = f"{database.name}-wal and {database.name}-shm"
    return (
        f"{database}: the {database.name}-wal beside it is another database's: with it this one would be {known}, and "
        f"{mark_of(database).name} and the file itself say otherwise. Nothing was started. Put the {database.name}-wal "
        f"that belongs to it in its place and delete {database.name}-shm; if there is none, delete {logs}. Then "
        f"`mailboxd -w {database.parent.parent} run` says whether anything is missing"
    )


def _own_uuid(database: Path) -> str | None:
    """The id in the file itself, without its -wal: that may be the log of the database that lay there before."""
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            found = _uuid(db)
            return found if found and _FORM.fullmatch(found) else None
    except sqlite3.Error:
        return None  # it says nothing of itself until its log is read


def _uuid(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT value FROM meta WHERE name = ?", (_UUID,)).fetchone()
    return None if row is None else str(row[0])


def _keep(database: Path, version: int) -> None:
    """A copy of an older database before it is migrated; one that an interrupted migration left is made again."""
    copy = database.with_name(f"{database.name}.schema-{version}")
    copy.unlink(missing_ok=True)
    try:
        back_up(database, copy)
    except UnavailableError as error:
        raise WorldError(f"the database cannot be migrated without a backup: {error}") from error


def _put_aside(database: Path) -> str:
    """Copy what is there, once for the same bytes; a sentence about it."""
    try:
        with database.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
        kept = database.with_name(f"{database.name}.damaged-{digest}")
        if not kept.exists():
            for ending in ("-wal", ""):  # the database last: once it is there the copy is complete
                source = Path(f"{database}{ending}")
                if source.exists() and source.stat().st_size:
                    hidden = kept.with_name(f".{kept.name}.tmp")
                    shutil.copyfile(source, hidden)
                    hidden.chmod(0o600)
                    settle(hidden)
                    hidden.replace(f"{kept}{ending}")
    except OSError as error:
        return f"It could not be copied aside: {error.strerror}."
    return f"A copy of it is kept as {kept.name}."


def _how(database: Path) -> str:
    """What a person can do, in the order in which it should be tried."""
    root = database.parent.parent
    return (
        "Nothing is made anew by itself. To go on, one of: "
        f"(1) put a copy by `mailboxd backup` in the place of {database} and delete {database.name}-wal and "
        f"{database.name}-shm beside it; "
        f"(2) `mailboxd -w {root} rebuild --replace` makes it again from archive/, outbox/ and tasks/; "
        f"(3) to begin with nothing, move {database.name}* and heads.jsonl out of {database.parent}. "
        "Then `mailboxd audit verify`"
    )


def _read_mark(mark: Path) -> str:
    try:
        fd = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # nor waits for a pipe
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
            os.fsync(fd)
        finally:
            os.close(fd)
        hidden.replace(mark)
        settle(mark.parent)
    except OSError as error:
        raise WorldError(f"{mark}: cannot be written: {error.strerror}") from error
