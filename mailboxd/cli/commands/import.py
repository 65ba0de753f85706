"""`mailboxd import`: take over a clawflow workspace as it is."""

from __future__ import annotations

from mailboxd.cli.acting import OPERATOR, require_person
from mailboxd.cli.bars import bars
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_CONFIG, EXIT_LOCKED, EXIT_NO


@verb(
    "import",
    "import",
    "import --workspace ~/.openclaw/workspace-analyst --json",
    exits={
        EXIT_NO: "some of it could not be taken over; it is said which",
        EXIT_LOCKED: "a daemon is running here: stop it first",
        EXIT_CONFIG: "the configuration is wrong",
    },
)
def command(session: Session) -> int:
    """Take over a workspace in which clawflow was run without mailboxd: its archive, and its tasks in flight.

    Run it once, after `mailboxd init` and before `mailboxd run`. Archived messages count as known from then on. Each
    task goes on where its task.md says it is: what is done stays done, what was dispatched waits for its reply, what
    was in progress here starts again. Nothing is moved; running it again takes only what is new.
    """
    from mailboxd import config
    from mailboxd.daemon import assemble

    require_person(OPERATOR)
    ws = session.workspace()
    with assemble.importer(ws, config.load(ws.config)) as take_over, bars() as progress:
        account = take_over(progress)
    if session.as_json:
        problems = [{"path": path, "problem": problem} for path, problem in account.problems]
        counts = {"messages": account.messages, "tasks": account.tasks, "known": account.known}
        say(to_json(counts | {"problems": problems}))
        return EXIT_NO if problems else 0
    say(f"{account.messages} archived messages and {len(account.tasks)} tasks taken over; {account.known} known before")
    for local_id in account.tasks:
        say(plain(f"  {local_id}"))
    for path, problem in account.problems:
        say(plain(f"{path}: {problem}"), err=True)
    say("next: `mailboxd status`, then `mailboxd run`")
    return EXIT_NO if account.problems else 0
