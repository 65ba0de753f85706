"""`mailboxd send`: a task for an agent, as a message in its inbox."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.acting import read_text, require_person
from mailboxd.cli.params import Header, Words
from mailboxd.cli.sending import Draft, Wait, checked_plan, compose, receiver, signed_by, slug
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_BAD_MESSAGE, EXIT_NO, EXIT_TRY_AGAIN

if TYPE_CHECKING:
    from mailboxd.workspace.layout import Workspace

_MOST_TEXT = 1 << 20
_MOST_PLAN = 4 << 20
_HEADERS = ("gates", "reviewers", "priority", "deadline", "max_attempts", "timeout", "idempotent")

EXITS = {
    EXIT_NO: "--wait: the task failed or was cancelled",
    EXIT_BAD_MESSAGE: "the message or the plan cannot be accepted",
    EXIT_TRY_AGAIN: "--wait: it has not ended in time; or the disk failed",
}


@verb(
    "send",
    'send "Summarise inbox/q3.csv in five lines"',
    'send --title "Q3 report" --file brief.md --expected-output "a report of two pages"',
    "send --title Release --plan plan.yaml --gates quality_gate --reviewers critic",
    'git log -20 | mailboxd send --title "Release notes" -',
    'send --to ~/agents/writer --wait --wait-timeout 600 "Write the report"',
    exits=EXITS,
)
@click.argument("instructions", nargs=-1, type=Words())
@click.option("--title", type=Words(), default="", help="One line; default: the first line of the instructions.")
@click.option("--file", metavar="FILE", help="The instructions, from a file; - is standard input.")
@click.option("--context", type=Words(), default="", help="What has to be known.")
@click.option("--expected-output", type=Words(), default="", help="What the result must be.")
@click.option("--plan", metavar="FILE", help="A plan (`subtasks:` in YAML) to carry out; checked before it is sent.")
@click.option("--to", type=click.Path(file_okay=False, path_type=Path), help="Another agent's workspace.")
@click.option("--task-id", type=Header("task_id", "ID"), help="Default: made of the title.")
@click.option("--from", "sender", type=Header("from", "ID"), default="operator", show_default=True, help="Who asks.")
@click.option("--gates", type=Header("gates", "GATE,..."), help="Reviews: spec_review, spec_gate, quality_gate; none.")
@click.option("--reviewers", type=Header("reviewers", "ID,..."), help="The agents that review.")
@click.option("--priority", type=Header("priority", "N"), help="-100 to 100; higher goes first.")
@click.option("--deadline", type=Header("deadline", "TIME"), help="RFC 3339, like 2026-11-21T18:00:00Z.")
@click.option("--max-attempts", type=Header("max_attempts", "N"), help="1 to 100.")
@click.option("--timeout", type=Header("timeout", "SECONDS"), help="How long one turn may take.")
@click.option("--idempotent", is_flag=True, default=None, help="It may be repeated after an unknown outcome.")
@click.option("--wait", is_flag=True, help="Wait until the task has ended, and print its result.")
@click.option("--wait-timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer than this.")
def command(session: Session, **said: Any) -> int | None:
    """Give an agent a task: INSTRUCTIONS are the words of it (- reads them from standard input).

    Writes a message into the inbox of the workspace, or of the one that --to names, whole or not at all.
    """
    return send(session, said.pop("to"), said)


def send(session: Session, to: Path | None, said: dict[str, Any]) -> int | None:
    """Send what the options say into the workspace `to` (None: the session's); the exit status."""
    require_person(said["sender"])
    if said["wait_timeout"] is not None and not said["wait"]:
        raise click.UsageError("--wait-timeout goes with --wait; how long a turn may take is --timeout")
    ws = receiver(to) if to is not None else session.workspace()
    draft = _draft(ws, said)
    message_id, task_id = _ids(session, draft.title, said["task_id"])
    headers = {name: said[name] for name in _HEADERS if said[name] is not None}
    identity = {"task_id": task_id, "from": said["sender"], "message_id": message_id}
    raw = signed_by(ws, said["sender"], compose(draft, {**headers, **identity, "sent_at": session.clock.now()}))
    name = _deliver(ws, task_id, raw)
    sent = {"task_id": task_id, "message_id": message_id, "file": str(ws.inbox / name)}
    if said["wait"]:
        return _wait(Wait(session, ws, message_id, said["wait_timeout"]), sent["file"], elsewhere=to is not None)
    say(to_json(sent) if session.as_json else f"{task_id}\n{plain(sent['file'])}")
    return None


def _draft(ws: Workspace, said: dict[str, Any]) -> Draft:
    words = list(said["instructions"])
    source = said["file"] or ("-" if words == ["-"] else None)
    if source is not None and words not in ([], ["-"]):
        raise click.UsageError("give the instructions as words or from a file, not both")
    text = (read_text(source, _MOST_TEXT) if source else " ".join(words)).strip()
    title = said["title"].strip() or text.partition("\n")[0].lstrip("# ")[:200]
    if not title:
        raise click.UsageError("say what is to be done: INSTRUCTIONS, --file or --title")
    dag = ""
    if said["plan"] is not None:
        dag = checked_plan(read_text(said["plan"], _MOST_PLAN), said["plan"], ws.config)
    return Draft(title, text, said["context"], said["expected_output"], dag)


def _ids(session: Session, title: str, task_id: str | None) -> tuple[str, str]:
    from mailboxd.ids import Ids

    message_id = Ids().new("msg", session.clock.now())
    return message_id, task_id or slug(title, message_id[-6:].lower())


def _deliver(ws: Workspace, task_id: str, raw: bytes) -> str:
    from mailboxd.host import wake
    from mailboxd.workspace.mail import deliver

    # as a file name the id must be neither hidden nor one of those that editors use for themselves
    name = deliver(ws.inbox, f"task-{task_id}.md", raw, below=ws.root, renamed=True)
    wake.poke(ws.state)
    return name


def _wait(wait: Wait, file: str, *, elsewhere: bool) -> int | None:
    from mailboxd.workspace import lock

    session = wait.session
    if not session.as_json:
        say(f"sent {plain(file)}", err=True)
        if lock.holder(wait.ws) is None:
            say("no daemon runs there: it is done once `mailboxd run` is started", err=True)
    found = wait.result()
    if found is None:
        say(plain(_still(wait, file, elsewhere)), err=True)
        return EXIT_TRY_AGAIN
    done = found["phase"] == "completed"
    if session.as_json:
        say(to_json(found))
    elif done:
        say(plain(found["results"]))
    else:
        say(plain(f"{found['local_id']} {found['phase']}: {found['error'] or found['reason']}"), err=True)
    return None if done else EXIT_NO


def _still(wait: Wait, file: str, elsewhere: bool) -> str:
    if not wait.name:
        return f"nobody has taken {file} yet; it stays there"
    where = f"-w {shlex.quote(str(wait.ws.root))} " if elsewhere else ""
    return f"{wait.name} has not ended; it goes on, and `mailboxd {where}why {wait.name}` says how"
