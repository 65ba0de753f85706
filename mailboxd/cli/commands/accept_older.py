"""`mailboxd accept-older`: go on from a database that is older than the mailbox."""

from __future__ import annotations

import os

from mailboxd.cli.acting import OPERATOR, require_person
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_CONFIG, EXIT_LOCKED, EXIT_NO


@verb(
    "accept-older",
    "accept-older",
    "accept-older --json",
    exits={
        EXIT_NO: "the database is not older: nothing was done",
        EXIT_LOCKED: "a daemon is running here: stop it first",
        EXIT_CONFIG: "the configuration is wrong, or the log of events was changed",
    },
)
def command(session: Session) -> None:
    """Go on from a database that is older than archive/ and outbox/, as after a restored backup.

    The daemon refuses to serve such a database. By this order you accept it: every open task waits for you, because it
    may have been done after the copy was made. What came later is recorded from archive/ and outbox/: work that was
    answered is not done again if it is sent again, and work that was not becomes a task that waits, too. Nothing is
    run or sent. `mailboxd rebuild --replace` is the other way: it makes a database that knows all that is in the files.
    """
    from mailboxd import config, entrance, older
    from mailboxd.inbox.intake import Intake
    from mailboxd.keys.ring import Ring
    from mailboxd.keys.trust import Trust
    from mailboxd.workspace import lock

    require_person(OPERATOR)
    ws = session.workspace()
    loaded = config.load(ws.config)
    with lock.acquire(ws, session.clock.now()), entrance.engine(ws, loaded, accept_older=True) as core:
        trust = Trust.of(Ring.of(ws.root, os.environ), loaded.agent, loaded.signing.require)
        intake = Intake(core, accept_plain=loaded.inbox.accept_plain_files, trust=trust)
        account = older.accept(core, intake, ws)
    if session.as_json:
        say(to_json({"why": account.why, "messages": account.messages, "waiting": account.waiting}))
        return
    say(plain(f"accepted: {account.why}"))
    say(f"{account.messages} messages that came later are on record; {len(account.waiting)} tasks wait for you")
    for local_id in account.waiting:
        say(plain(f"  {local_id}: `mailboxd why {local_id}`, then `mailboxd unblock {local_id} --retry` or `cancel`"))
    say("next: `mailboxd run`, or start its service again")
