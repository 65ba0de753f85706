"""`mailboxd log` and `watch`: events, one sentence each, and live progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from mailboxd import attention, health
from mailboxd.cli import live, task_output
from mailboxd.cli.live import follow, print_event
from mailboxd.cli.session import Session, agent_of, task_argument, verb
from mailboxd.cli.text import say, to_json
from mailboxd.errors import EXIT_NO
from mailboxd.mailbox import lock

if TYPE_CHECKING:
    from mailboxd.mailbox.layout import Workspace
    from mailboxd.store.reports import Report


@verb(
    "log",
    "log",
    "log q3-report --tree",
    "log --since 1200 --json",
    "log -n 20 --follow",
)
@task_argument(required=False)
@click.option("--tree", is_flag=True, help="Include the events of all subtasks.")
@click.option("--since", type=click.IntRange(min=0), metavar="SEQ", help="Only events after this number.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Only the latest N events.")
@click.option("-f", "--follow", "following", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("-v", "--verbose", is_flag=True, help="Also mention phases that were passed automatically.")
def log_command(
    session: Session, task: str | None, tree: bool, since: int | None, lines: int | None, following: bool, verbose: bool
) -> None:
    """Show what happened in one task or in the whole workspace, one event per line.

    Reads the database, so it does not depend on where the daemon logs. --json prints a list, or one object per line
    with --follow.
    """
    with session.report() as report:
        wanted = None if task is None else report.find(task)
        after = since or 0
        if lines is not None:
            after = max(after, report.before_latest(lines, wanted, tree=tree))
        if following:
            follow(session, report, print_event, after=after, task=wanted, tree=tree, brief=not verbose)
        elif session.as_json:
            _print_list(report.events(wanted, tree=tree, after=after))
        else:
            for event in report.events(wanted, tree=tree, after=after, brief=not verbose):
                print_event(event)


def _print_list(events: Any) -> None:
    """Write a JSON array incrementally: a history may not fit in memory."""
    opening = "["
    for event in events:
        say(f"{opening}{to_json(event, indent=None)}", newline=False)
        opening = ",\n "
    say("[]" if opening == "[" else "]")


_ENDED = ("completed", "failed", "cancelled")
_TREES = 6
_EVENTS = 200


@verb(
    "watch",
    "watch",
    "watch q3-report",
    "watch --json | jq -r .text",
    "watch q3-report --since 1200 | tee q3.log",
    exits={EXIT_NO: "TASK failed or was cancelled"},
)
@task_argument(required=False)
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Print events after this number (default: all of TASK).",
)
def watch_command(session: Session, task: str | None, since: int | None) -> int | None:
    """Watch the open tasks, or TASK and its subtasks, until you press q or Ctrl-C or TASK ends.

    On a terminal the view is redrawn twice a second. With the extra `tui`, that of the open tasks has keys to act: j, k
    move, Enter opens, a answers or approves, r retries, c cancels, / filters, s searches. Otherwise, or with --json,
    prints one line per event: for TASK from its beginning, for the workspace from now on.
    """
    ws = session.workspace()
    with session.report() as report:
        wanted = None if task is None else report.find(task)
        watching = _Watching(session, ws, report, wanted)
        if live.is_interactive() and not session.as_json and since is None:
            if wanted is None and find_spec("textual") is not None:
                _board(session, ws)
                return None
            live.show(watching.picture, watching.is_over)
        else:
            after = since if since is not None else report.last_event() if wanted is None else 0
            follow(session, report, print_event, after=after, task=wanted, tree=True, is_over=watching.is_over)
        return EXIT_NO if watching.phase() in ("failed", "cancelled") else None


def _board(session: Session, ws: Workspace) -> None:
    """The screen in which a person also acts."""
    from mailboxd.cli.board import Board
    from mailboxd.engine import open
    from mailboxd.web.page_models import PageModels
    from mailboxd.web.workspaces import FormActions, WebWorkspace, WebWorkspaces, settings

    actions = FormActions(lambda workspace: open.engine(workspace.ws, settings(workspace)), session.clock)
    Board(PageModels(WebWorkspaces([ws.root]), session.clock), actions, WebWorkspace(ws)).run()


@dataclass(slots=True)
class _Watching:
    """The watched tasks. Trees are read again only after an event: reading a large one is slower than redrawing."""

    session: Session
    ws: Workspace
    report: Report
    task: str | None
    _read: int = -1
    _trees: list[dict[str, Any]] = field(default_factory=list)
    _events: list[dict[str, Any]] = field(default_factory=list)
    _phases: dict[str, int] = field(default_factory=dict)

    def phase(self) -> str:
        """The phase of the task; empty for a whole workspace."""
        return "" if self.task is None else self.report.phase(self.task)

    def is_over(self) -> bool:
        return self.phase() in _ENDED

    def picture(self, room: int, height: int) -> list[str]:
        self._refresh()
        pid = lock.holder(self.ws)
        now = self.session.clock.now()
        grade, _ = health.read(self.ws, pid, now, self.session.clock.monotonic())
        title = f"{agent_of(self.ws) or 'mailboxd'}  {self.ws.root}"
        waiting = attention.of(self.ws, self.report, self.session.clock, self.session.program(self.ws))
        screen = task_output.ScreenState(
            now, title, grade, pid is not None, waiting.states(self._phases), waiting.as_json(), self._trees,
            self._events,
        )  # fmt: skip
        return task_output.screen_lines(screen, room, height)

    def _refresh(self) -> None:
        last = self.report.last_event()
        if last == self._read:
            return
        with self.report.snapshot():
            last = self.report.last_event()
            roots = [self.task] if self.task is not None else self._open()
            self._trees = [self.report.tree(root) for root in roots]
            self._phases = self.report.phases()
            after = max(self._read, last - _EVENTS, 0)
            self._events += self.report.events(self.task, tree=True, after=after, brief=True)
        del self._events[:-_EVENTS]
        self._read = last

    def _open(self) -> list[str]:
        """The newest open tasks."""
        rows = [row["id"] for row in self.report.tasks() if row["phase"] not in _ENDED]
        return rows[-_TREES:]
