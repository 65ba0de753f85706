"""`mailboxd backup`: a copy of the database, beside a daemon that goes on."""

from __future__ import annotations

from pathlib import Path

import click

from mailboxd.cli.bars import bars
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json


@verb("backup", "backup /backup/analyst-2026-11-21.db", "backup ../now.db --json")
@click.argument("file", type=click.Path(path_type=Path))
def command(session: Session, file: Path) -> None:
    """Copy the database to a new FILE, as it is at one moment. A daemon may run meanwhile; the copy is checked.

    Copy mailbox/ and tasks/ after it: files that are newer than the copy are then there, and none is missing that it
    names. To restore: stop the daemon, put the copy in the place of .mailboxd/mailboxd.db, delete mailboxd.db-wal and
    mailboxd.db-shm beside it, and run `mailboxd audit verify`.
    """
    from mailboxd.store.whole import back_up

    with bars() as progress:
        events = back_up(session.workspace().database, file, progress)
    say(to_json({"file": str(file), "events": events}) if session.as_json else f"{file}: {events} events, checked")
