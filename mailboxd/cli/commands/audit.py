"""`mailboxd db verify`, `db head`, `search` and `export archive`: the record."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.bars import bars
from mailboxd.cli.key_option import key_option
from mailboxd.cli.session import Session, agent_of, task_argument, verb
from mailboxd.cli.text import stamp
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Phase, state_words
from mailboxd.errors import EXIT_NO, Refused
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.ledger import audit_queries
from mailboxd.ledger import search_index as search
from mailboxd.ledger.reports import opened
from mailboxd.ledger.search import SearchHit, SearchQuery, fts_query

if TYPE_CHECKING:
    from mailboxd.formats.keys import PublicKey

_HEAD = re.compile(r"([0-9]{1,15}):([0-9a-f]{64})", re.ASCII)


def noted_head(text: str | None) -> tuple[int, str] | None:
    """Number and hash of a head that was kept elsewhere, as `--head` has it; None without one. Raises UsageError."""
    if text is None:
        return None
    if (given := _HEAD.fullmatch(text)) is None:
        raise click.UsageError("--head: give SEQ:HASH, as printed by `db head`")
    return int(given[1]), given[2]


@verb(
    "verify",
    "db verify",
    "db verify --json",
    "db verify --head 1200:9f2c...",
    "db verify --key ~/alpha.pub",
    exits={EXIT_NO: "the record does not match (the first mismatch is shown)"},
)
@click.option("--head", metavar="SEQ:HASH", help="A previously recorded head (`mailboxd db head`).")
@key_option
def verify_command(session: Session, head: str | None, keys: tuple[PublicKey, ...]) -> int | None:
    """Verify the event log, the tables, all mailbox files and the journal.

    Changes nothing and may run beside a daemon. The record is proven as far as one of the keys has signed it: those
    given with --key, else the agent's own and those that are trusted here as the agent's.
    """
    from mailboxd.ledger.signed_heads import by_fingerprint, keys_at_hand
    from mailboxd.operate.verification import Audit

    noted = noted_head(head)
    ws = session.workspace()
    deciding = by_fingerprint(keys) if keys else keys_at_hand(ws, session.config().agent, os.environ)
    with session.report() as report, bars() as progress:
        account = Audit(ws, report, progress, deciding, noted).perform()
    finding = account.finding
    found = None if finding is None else asdict(finding)
    proven = account.proof.in_words(account.checked.get("events", 0))
    facts = {
        "holds": finding is None,
        "checked": account.checked,
        "proven": account.proof.facts(),
        "problem": found,
        "notes": account.notes,
    }
    counts = ", ".join(f"{count} {name}" for name, count in account.checked.items())
    problems = [f"note: {note}" for note in account.notes]
    problems += [] if finding is None else [f"checked: {counts}", str(finding)]
    for problem in problems:
        session.tell(problem, err=True)
    session.show(facts, [f"{counts}: everything matches the record", proven] if finding is None else ())
    return None if finding is None else EXIT_NO


@verb("head", "db head", "db head --json")
def head_command(session: Session) -> None:
    """Print the current head of the event log, the number and hash of its last event, to keep elsewhere.

    A truncated or rewritten log no longer matches it: check with `db verify --head`.
    """
    from mailboxd.ledger import event_log

    with session.report() as report:
        tip = event_log.tip(report.db)
    session.answer({"seq": tip.seq, "hash": tip.hash, "at": session.clock.now()}, f"{tip.seq}:{tip.hash}")


@verb(
    "search",
    "search revenue EMEA",
    "search '\"net revenue\"' --type message --since 2026-11-01",
    "search timeout --status failed --agent extractor --json",
    "search --hosts invoice",
    exits={EXIT_NO: "no matches"},
    view=True,
)
@click.argument("query", nargs=-1, required=True)
@click.option("--agent", metavar="ID", help="Only what this agent sent, did or received.")
@click.option("--task", metavar="TASK", help="Only this task and its subtasks.")
@click.option(
    "--status", metavar="WORD", help="Only tasks in this state: 'needs you', running, waiting, done; or phase."
)
@click.option("--since", metavar="TIME", help="From 2026-11-21 or 2026-11-21T08:00:00Z on.")
@click.option("--until", metavar="TIME", help="Before this time, or up to the end of this day.")
@click.option("--type", "kind", type=click.Choice(["message", "result", "event"]), help="Only this type.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of results.")
@click.option("--hosts", is_flag=True, help="Search the other hosts of the hub instead of this workspace.")
def search_command(session: Session, query: tuple[str, ...], hosts: bool, **said: Any) -> int | None:
    """Search messages, results and events, best matches first.

    All words must occur; "quoted words" must be adjacent; word* matches a prefix. Each search updates the index,
    .mailboxd/search.db, which can be deleted at any time.

    With --hosts, each other host is asked, and those that did not answer in five seconds are named. A host answers if
    `show` in its hub.yaml names this one.
    """
    if hosts:
        return _search_hosts(session, " ".join(query), **said)
    found = search_index(session.workspace(), " ".join(query), **said)
    session.show(found, [*_hits(found), *_perhaps_more(found, said["limit"])], _NO_MATCHES)
    return None if found else EXIT_NO


_NO_MATCHES = "no matches; word* also finds longer words"


def _perhaps_more(found: Sequence[Any], limit: int) -> list[str]:
    return [f"… these are the best {limit}; --limit N shows more"] if len(found) == limit else []


def _hits(found: Sequence[SearchHit]) -> Iterator[str]:
    for hit in found:
        of = f"{hit['host']}.{hit['agent']}:" if hit["host"] else ""
        said = f" ({state_words(hit['phase'], hit['need'])})" if hit["phase"] in set(Phase) else ""
        yield for_terminal(f"{stamp(hit['at'])}  {hit['type']:<7}  {of}{hit['task'] or '-'}{said}  {hit['where']}")
        yield for_terminal(f"    {hit['snippet']}")


def _search_hosts(session: Session, query: str, *, task: str | None, **said: Any) -> int | None:
    from mailboxd.hub.client.ask import search_hosts
    from mailboxd.hub.files.membership import Membership

    if task is not None:
        raise click.UsageError("--task is a task of this workspace; it does not go with --hosts")
    found = search_hosts(Membership.of(os.environ), _query(query, **said))
    session.show(found, _hits(found["hits"]))
    for host, why in found["silent"].items():
        session.tell(f"{host}: {why}", err=True)
    return None if found["hits"] else EXIT_NO


@verb("archive", "export archive q3 -o q3.audit.tar.gz", "export archive q3 -o q3.audit.tar.gz --whole")
@task_argument()
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), required=True,
    help="Write to FILE, which must not exist.",
)  # fmt: skip
@click.option(
    "--whole", is_flag=True,
    help="The events of all work from the first on, so that every hash can be checked: whoever gets it reads them all.",
)  # fmt: skip
@click.option("--open", "even_open", is_flag=True, help="Also work that has not ended, with its reply tokens.")
def archive_command(session: Session, task: str, output: Path, whole: bool, even_open: bool) -> None:
    """Export TASK and its subtasks with their messages, artifacts, task files and part of the event log.

    All of it is in a folder named after TASK, whose README.txt says what can be proven with it; `mailboxd audit FILE`
    checks that. Of other work it has numbers and hashes of events only. If the agent has a key, it signs the archive.
    """
    from mailboxd.ledger.signed_heads import keys_at_hand, own_key
    from mailboxd.operate.export import Export, export_task

    ws = session.workspace()
    with session.report() as report, bars() as progress:
        agent = report.agent() or agent_of(ws) or ""
        keys, key = keys_at_hand(ws, agent, os.environ), own_key(ws, os.environ)
        export = Export(ws, report.find(task), whole, even_open, key, keys, agent)
        count = export_task(export, report, output, progress)
    session.answer({"file": str(output), "files": count}, f"{output}: {count} files")


# `mailboxd search`: what is asked for, in the index that the search itself brings up to date.

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,3})\d*)?Z", re.ASCII)


def search_index(ws: Workspace, query: str, *, task: str | None = None, **said: Any) -> list[SearchHit]:
    """The hits, best first. Raises Refused for an invalid query or time, UnavailableError, WorldError."""
    wanted = _query(query, **said)
    with opened(ws.database) as report:
        agent = agent_of(ws) or report.agent() or ""
        if task is not None:
            tasks = tuple(task_id for task_id, _ in audit_queries.below(report.db, report.find(task)))
            wanted = replace(wanted, tasks=tasks)
    with search.index(ws) as index:
        return [{**hit, "agent": agent, "host": ""} for hit in index.find(wanted)]


def _query(
    query: str,
    *,
    agent: str | None = None,
    status: str | None = None,
    since: str | None = None,
    until: str | None = None,
    kind: str | None = None,
    limit: int = 20,
) -> SearchQuery:
    """Raises Refused for an invalid query or time."""
    fts_query(query)
    from_, before = ("" if since is None else moment(since)), ("" if until is None else moment(until, past=True))
    return SearchQuery(query, agent or "", (), status or "", from_, before, kind or "", limit)


def moment(text: str, *, past: bool = False) -> str:
    """A time in the format of events. A day means its start, or its end with `past`. Raises Refused."""
    try:
        if _DAY.fullmatch(text):
            return plus(f"{text}T00:00:00.000Z", 86_400.0 if past else 0.0)
        found = _MOMENT.fullmatch(text)
        if found is not None:
            return plus(f"{found[1]}.{(found[2] or '0').ljust(3, '0')}Z", 0.0)
    except ValueError:
        pass
    hint = "Write 2026-11-21 or 2026-11-21T08:00:00Z; times are UTC."
    raise Refused("bad-time", f"{ascii(text)[:60]} is not a time", hint)
