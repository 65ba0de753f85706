"""`mailboxd fleet status|watch|send`: every workspace of yours on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.commands import send as sending
from mailboxd.cli.params import Id
from mailboxd.cli.session import Session, agent_of, verb
from mailboxd.cli.text import columns, plain, say, to_json
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, MailboxdError, UnavailableError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mailboxd.cli.fleet import Row

INTERVAL = 1.0
"""Seconds between two looks of `watch`: each reads every workspace, 40 of them in about 0.1 s."""
_CONFIG = {EXIT_CONFIG: "others could have written the list of workspaces"}

_workspaces = click.argument("workspaces", nargs=-1, type=click.Path(file_okay=False, path_type=Path))


@click.group("fleet")
def command() -> None:
    """Look at every workspace on this machine, and send to an agent by its name.

    The workspaces are those that `mailboxd init` and `mailboxd run` were called for by this user; or those you name.
    """


@verb(
    "status",
    "fleet status",
    "fleet status --json | jq -r '.[] | select(.attention != []) | .agent'",
    "fleet status ~/agents/analyst ~/agents/writer",
    exits={**_CONFIG, EXIT_NO: "some workspace needs somebody: it is said which, and why"},
)
@_workspaces
def status(session: Session, workspaces: Sequence[Path]) -> int | None:
    """Show each workspace on one line, those first that need somebody.

    Somebody is needed where health is red, the workspace is gone or cannot be read, an approval or a blocked task waits
    for a person, or work lies there and no daemon runs. Amber alone is no such case. Of the blocked tasks that one is
    named which changed last the longest ago.
    """
    from mailboxd.cli import fleet

    found = fleet.rows(_roots(session, workspaces), session.clock)
    if session.as_json:
        say(to_json(found))
    elif found:
        for line in fleet.lines(found, columns()):
            say(line)
        say(fleet.summary(found))
    else:
        say("no workspaces are known; `mailboxd init` or `mailboxd run` in one makes it known", err=True)
    return EXIT_NO if fleet.needs_somebody(found) else None


@verb("watch", "fleet watch", "fleet watch --json", "fleet watch ~/agents/*", exits=_CONFIG)
@_workspaces
def watch(session: Session, workspaces: Sequence[Path]) -> None:
    """Show all of it again and again, until you press q or Ctrl-C.

    On a terminal a table; elsewhere, and with --json, a line for each workspace, and again whenever it has changed.
    """
    from mailboxd.cli import fleet, live

    def picture(room: int, height: int) -> list[str]:
        found = fleet.rows(_roots(session, workspaces), session.clock)
        table = list(fleet.lines(found, room))
        left_out = len(table) - (height - 2)
        shown = table if left_out <= 0 else [*table[: height - 3], f"… {left_out + 1} more"]
        return [*shown, fleet.summary(found), "q ends"]

    if live.is_watched() and not session.as_json:
        live.show(picture, lambda: False, INTERVAL)
        return
    told: dict[str, Row] = {}
    try:
        while True:
            for row in fleet.rows(_roots(session, workspaces), session.clock):
                _tell(session, row, told)
            session.pause(INTERVAL)
    except KeyboardInterrupt:
        return


def _tell(session: Session, row: Row, told: dict[str, Row]) -> None:
    """A row that is not as it was told last. What only grows older is no change."""
    from mailboxd.cli import fleet

    lasting = {name: value for name, value in row.items() if name not in ("latest", "attention", "troubles")}
    if told.get(row["workspace"]) == lasting:
        return
    told[row["workspace"]] = lasting
    if session.as_json:
        say(to_json({"at": session.clock.now(), **row}, indent=None))
        return
    (_, line) = fleet.lines([row], 1 << 16)
    say(f"{session.clock.now()}  {line}")


def _roots(session: Session, named: Sequence[Path]) -> list[Path]:
    from mailboxd import registry

    if not named and session.path is not None:
        named = [session.path]
    return [path.resolve() for path in named] or registry.noted(os.environ)


# ---------------------------------------------------------------- send


def _complete(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        known = _agents()
    except MailboxdError:
        return []
    return [CompletionItem(name, help=str(root)) for name, root in known if name.startswith(incomplete)]


@verb(
    "send",
    'fleet send writer "Write the report"',
    'git log -20 | mailboxd fleet send writer --title "Release notes" --wait -',
    exits={**sending.EXITS, **_CONFIG},
)
@click.argument("agent", type=Id(), shell_complete=_complete)
def send(session: Session, agent: str, **said: Any) -> int | None:
    """Give a task to AGENT, wherever its workspace is. Everything else is as with `mailboxd send`."""
    return sending.send(session, _workspace_of(agent), said)


_named_by_agent = {"to", "session_workspace", "session_json"}
send.params[1:1] = [param for param in sending.command.params if param.name not in _named_by_agent]


def _workspace_of(agent: str) -> Path:
    """The workspace of the agent. Raises UnavailableError if there is none, or more than one."""
    known = _agents()
    found = [root for name, root in known if name.lower() == agent.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(plain(str(root)) for root in found)
        raise UnavailableError(f"{agent} has several workspaces: {places}; name one: `mailboxd send --to DIRECTORY`")
    near = get_close_matches(agent, [name for name, _ in known], 1)
    hint = f"did you mean {near[0]}?" if near else "`mailboxd fleet status` lists those that are known"
    raise UnavailableError(f"no workspace of an agent {agent} is known on this machine; {hint}")


def _agents() -> list[tuple[str, Path]]:
    """Every agent whose workspace is there, with the workspace."""
    from mailboxd import registry

    found = []
    for ws in registry.workspaces(os.environ):
        try:
            name = agent_of(ws)
        except MailboxdError:
            continue
        if name is not None:
            found.append((name, ws.root))
    return found


for _verb in (status, watch, send):
    command.add_command(_verb)
