"""`mailboxd db`: the database as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailboxd.cli.bars import bars
from mailboxd.cli.groups import LazyGroup
from mailboxd.cli.key_option import key_option
from mailboxd.cli.session import Session, verb
from mailboxd.errors import EXIT_LOCKED, EXIT_NO

if TYPE_CHECKING:
    from mailboxd.daemon.stale_database import Acceptance
    from mailboxd.formats.keys import PublicKey


db_command = LazyGroup(
    "db",
    {
        "Commands": {
            "verify": "audit", "head": "audit", "backup": "database", "rebuild": "database",
            "accept-older": "database", "import": "setup",
        }
    },
    help="Verify, back up, rebuild or import the record of this workspace.",
)  # fmt: skip


@verb("backup", "db backup /backup/analyst-2026-11-21.db", "db backup ../now.db --json")
@click.argument("file", type=click.Path(path_type=Path))
def backup_command(session: Session, file: Path) -> None:
    """Copy the database to a new FILE and verify the copy. A daemon may be running.

    Copy mailbox/ and tasks/ after it, so that no file named in the database is missing. To restore, stop the daemon,
    replace .mailboxd/mailboxd.db with the copy, delete mailboxd.db-wal and mailboxd.db-shm, and run
    `mailboxd db verify`.
    """
    from mailboxd.ledger.backup import back_up

    with bars() as progress:
        events = back_up(session.workspace().database, file, progress)
    session.answer({"file": str(file), "events": events}, f"{file}: {events} events, checked")


@verb(
    "rebuild",
    "db rebuild --into /tmp/again.db",
    "db rebuild --replace",
    exits={
        EXIT_NO: "rebuilt, but something is missing (it is listed)",
        EXIT_LOCKED: "a daemon is running (stop it first)",
    },
    operator=True,
)
@click.option("--into", type=click.Path(path_type=Path), metavar="FILE", help="Write FILE and change nothing else.")
@click.option("--replace", is_flag=True, help="Replace the database; the old one is kept beside it.")
@key_option
def rebuild_command(session: Session, into: Path | None, replace: bool, keys: tuple[PublicKey, ...]) -> int:
    """Rebuild the database from the journal in mailbox/archive/events/.

    The journal has every event; the text of received messages is read from archive/ and rejected/. Nothing is run or
    sent. Messages that a power failure cut off the end of the journal are recorded too, and open tasks then wait for
    your decision.

    The journal is proven as far as one of the keys has signed it: those given with --key, else the agent's own and
    those that are trusted here as the agent's. If a head names such a key and is not signed with it, nothing is built.
    """
    if (into is None) is not replace:
        raise click.UsageError("give --into FILE, or --replace to replace the workspace's database")
    from mailboxd.formats import config
    from mailboxd.formats.config.settings import settings
    from mailboxd.formats.keys import Keyring, Trust
    from mailboxd.ledger.signed_heads import by_fingerprint, keys_at_hand
    from mailboxd.operate.rebuild import rebuild

    ws = session.workspace()
    loaded = config.load(ws.config)
    deciding = by_fingerprint(keys) if keys else keys_at_hand(ws, loaded.agent, os.environ)
    with bars() as progress:
        trust = Trust.of(Keyring.of(ws.root, os.environ), loaded.agent, loaded.signing.require)
        account = rebuild(ws, settings(loaded), session.clock, into, progress, trust, deciding)
    taken_in = account.taken_in
    facts = {"database": account.database, "kept": account.kept or None}
    taken = None if taken_in is None else {"messages": taken_in.messages, "waiting": taken_in.waiting}
    counts = ", ".join(f"{count} {name}" for name, count in account.counts.items())
    lines = [f"{account.database}: {counts}", account.proof.in_words(account.counts["events"])]
    lines += [f"the old database is kept as {account.kept}"] if account.kept else []
    lines += [] if taken_in is None else map(session.runnable, _waiting(taken_in))
    session.answer(
        facts | account.counts | {"problems": account.problems, "proven": account.proof.facts(), "taken_in": taken},
        "\n".join(lines),
    )
    for problem in account.problems:
        session.tell(problem, err=True)
    return EXIT_NO if account.problems else 0


def _waiting(account: Acceptance) -> list[str]:
    """The files that the database did not know, and the tasks that wait for a decision."""
    return [
        f"recorded {account.messages} newer messages; {len(account.waiting)} tasks await your decision",
        *(f"  {name}: `mailboxd why {name}`, then `mailboxd retry {name}` or `cancel`" for name in account.waiting),
        "next: `mailboxd run`, or start the service again",
    ]


@verb("accept-older", "db accept-older", "db accept-older --json", operator=True)
def accept_older_command(session: Session) -> None:
    """Accept a database that is older than archive/ and outbox/, such as a restored backup.

    The daemon refuses to start on one. Afterwards every open task waits for a decision, because it may have been done
    since the copy was made. Newer messages in archive/ and outbox/ are recorded: answered work is not repeated, and
    unanswered work becomes a task that waits too. Nothing is run or sent. `mailboxd db rebuild --replace` is the
    alternative: it recovers everything from the journal.
    """
    from mailboxd.daemon import stale_database
    from mailboxd.daemon.health_writer import forget_end
    from mailboxd.engine import open
    from mailboxd.engine.intake.interpret import Intake
    from mailboxd.formats import config
    from mailboxd.formats.keys import Keyring, Trust
    from mailboxd.formats.mailbox import lock

    ws = session.workspace()
    loaded = config.load(ws.config)
    with lock.acquire(ws, session.clock.now()), open.engine(ws, loaded, accept_older=True) as core:
        trust = Trust.of(Keyring.of(ws.root, os.environ), loaded.agent, loaded.signing.require)
        intake = Intake(core, accept_plain=loaded.inbox.accept_plain_files, trust=trust)
        account = stale_database.accept(core, intake, ws)
        forget_end(ws)
    facts = {"why": account.why, "messages": account.messages, "waiting": account.waiting}
    session.answer(facts, "\n".join([f"accepted: {account.why}", *map(session.runnable, _waiting(account))]))
