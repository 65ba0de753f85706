"""`mailboxd rebuild`: the database again, from the files alone."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mailboxd.cli.acting import OPERATOR, require_person
from mailboxd.cli.bars import bars
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_CONFIG, EXIT_LOCKED, EXIT_NO


@verb(
    "rebuild",
    "rebuild --into /tmp/again.db",
    "rebuild --replace",
    exits={
        EXIT_NO: "it was made, and some of it is not as its file says; it is said which",
        EXIT_LOCKED: "a daemon is running here: stop it first",
        EXIT_CONFIG: "the configuration is wrong",
    },
)
@click.option("--into", type=click.Path(path_type=Path), metavar="FILE", help="Make this new file, and change nothing.")
@click.option("--replace", is_flag=True, help="Put it in the place of the database, which is kept beside it.")
def command(session: Session, into: Path | None, replace: bool) -> int:
    """Make the database again from archive/, rejected/, outbox/ and tasks/ alone.

    The messages are replayed in their order through the same engine; what only a task.md knows is taken from there.
    Nothing is called or sent: what lies in outbox/ counts as sent, and turns that were under way are looked up by the
    next daemon. The same files make the same database. docs/audit.md names what is not in the files.
    """
    if (into is None) is not replace:
        raise click.UsageError("say where to: --into FILE, or --replace for the workspace's own database")
    from mailboxd import config, entrance
    from mailboxd.keys.ring import Ring
    from mailboxd.keys.trust import Trust
    from mailboxd.rebuild import making

    require_person(OPERATOR)
    ws = session.workspace()
    with bars() as progress:
        loaded = config.load(ws.config)
        trust = Trust.of(Ring.of(ws.root, os.environ), loaded.agent, loaded.signing.require)
        account = making.make(ws, entrance.settings(loaded), session.clock.now(), into, progress, trust)
    if session.as_json:
        problems = [{"path": path, "problem": problem} for path, problem in account.problems]
        facts = {"database": account.database, "kept": account.kept or None, "fingerprint": account.fingerprint}
        missing = {"not_in_the_files": making.NOT_IN_THE_FILES}
        said = facts | account.counts | {"differences": account.differences, "problems": problems} | missing
        say(to_json(said))
    else:
        counts = ", ".join(f"{count} {name}" for name, count in account.counts.items())
        say(f"{account.database}: {counts}; fingerprint {account.fingerprint}")
        for table, what in making.NOT_IN_THE_FILES.items():
            say(f"not in the files: {table}: {what}")
        for path, problem in account.problems:
            say(plain(f"{path}: {problem}"), err=True)
        for difference in account.differences:
            say(plain(difference), err=True)
        if account.kept:
            say(f"the one before is kept as {account.kept}")
    return EXIT_NO if account.problems or account.differences else 0
