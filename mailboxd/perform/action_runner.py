"""The runner: performs one approved action in a separate process that may outlive its caller.

It checks everything in the database: no caller, be it the daemon, Lobster or anything else, can make it perform more
than what was approved, or perform it twice.

    hold the gate's lock -> commit ACTION_STARTED -> perform -> commit ACTION_ENDED

After a crash before the first commit, nothing has happened. After a later one, the action is `started` and its lock is
free: the daemon records it as `unknown`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Self

from mailboxd.core.approvals import (
    Action,
    ActionEnded,
    ActionKind,
    ActionNotBegun,
    ActionStarted,
    Approval,
    Performed,
    digest,
)
from mailboxd.core.sanitize import first_line, one_line
from mailboxd.engine.engine import Engine
from mailboxd.errors import BusyError, NoRoomError, Refused, WorldError
from mailboxd.formats.config import Config
from mailboxd.formats.config.settings import action_rules
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import SystemClock
from mailboxd.perform.actions.gate import GateDir, content_sha256, named_files, programs
from mailboxd.perform.actions.perform import perform
from mailboxd.perform.actions.result import ActionContext, ActionResult, NotNow

_PATIENCE = 60
"""How often it is tried to record an end: each time a lock is waited for as well (`BUSY_MS`)."""
_PAUSE = 1.0
_log = logging.getLogger("mailboxd")


def setting(ws: Workspace, config: Config, environ: Mapping[str, str]) -> ActionContext:
    """The environment of side effects; `environ` is the daemon's own."""
    return ActionContext(
        root=ws.root,
        environ=environ,
        monotonic=SystemClock().monotonic,
        rules=action_rules(config),
        timeout=config.actions.timeout_seconds,
        openclaw=config.openclaw.command,
        openclaw_environment=config.openclaw.environment,
        output_cap=config.limits.output_bytes,
    )


def run(engine: Engine, approval_id: str, setting: ActionContext, pause: Callable[[float], None]) -> Approval:
    """Perform it, and return its row as it is then.

    Raises Refused when it may not be performed, NotNow when the machine refuses for now (then nothing has happened),
    another WorldError.
    """
    place = GateDir(setting.root, approval_id)
    row = _row(engine, approval_id)
    with place.locked():
        found = digest(row.action, content_sha256(row.action, place), row.target_sha256)
        with engine.batch():
            engine.handle(row.task, ActionStarted(row.id, found))
            row = _row(engine, approval_id)
        if row.state is not Performed.STARTED:
            return row  # its key says that it was done before, or must not be
        try:
            end = _performed(row, place, setting)
        except NotNow as why:
            _record(engine, row.task, ActionNotBegun(row.id, first_line(str(why)), for_now=True), pause)
            raise
        _record(engine, row.task, ActionEnded(row.id, end.state, end.summary, end.report), pause)
    return _row(engine, approval_id)


def _record(engine: Engine, task: str, end: ActionEnded | ActionNotBegun, pause: Callable[[float], None]) -> None:
    """Record the end, retrying while the database is locked or the disk full: else it is lost. Raises WorldError."""
    for left in reversed(range(_PATIENCE)):
        try:
            with engine.batch():
                engine.handle(task, end)
        except (BusyError, NoRoomError):
            if not left:
                raise
            pause(_PAUSE)
        else:
            return


def _row(engine: Engine, approval_id: str) -> Approval:
    row = engine.store.approvals.get(approval_id)
    if row is None:
        raise Refused("no-such-approval", f"there is no approval {approval_id}", "See `mailboxd approve`.")
    return row


def _performed(row: Approval, place: GateDir, setting: ActionContext) -> ActionResult:
    """Whatever goes wrong from here on, it may have happened; but for NotNow, which is raised."""
    try:
        with _stoppable():
            before = _named_before(row.action, place)
            end = perform(row.action, row.idempotency_key, row.target_sha256, place, setting)
            try:
                return before.compared(end, _Named.by(row.action, place))
            except WorldError as why:
                unseen = f"whether its files changed while it ran could not be seen: {first_line(str(why))}"
                return replace(end, summary=f"{end.summary}; {unseen}")
    except _Stopped:
        return ActionResult(Performed.UNKNOWN, "the runner was told to stop in the middle of it")
    except NotNow:
        raise
    except Exception as error:
        _log.exception("the runner of effect %s failed", row.id)
        return ActionResult(Performed.UNKNOWN, f"the runner failed in the middle of it: {type(error).__name__}")


def _named_before(action: Action, place: GateDir) -> _Named:
    """Nothing has happened yet, so whatever cannot be read is a reason to try again. Raises NotNow."""
    try:
        return _Named.by(action, place)
    except WorldError as why:
        raise NotNow(str(why)) from why


@dataclass(frozen=True, slots=True)
class _Named:
    """The files of the workspace that a command names, by their hashes, and those of them that it executes."""

    files: Mapping[str, str]
    programs: frozenset[str]

    @classmethod
    def by(cls, action: Action, place: GateDir) -> Self:
        if action.kind is not ActionKind.COMMAND:
            return cls({}, frozenset())
        root = str(place.root)
        return cls(dict(named_files(action.argv, action.cwd, root)), programs(action, root))

    def compared(self, end: ActionResult, after: Self) -> ActionResult:
        """Note what was replaced after the check. A command may write the files that it names, but not what it runs."""
        changed = [name for name, found in self.files.items() if after.files.get(name, found) != found]
        if exchanged := [name for name in changed if name in self.programs]:
            what = f"{', '.join(exchanged)}, which it runs, is not the one that was approved"
        elif changed:
            what = f"changed while it ran: {', '.join(changed)}"
        else:
            return end
        return replace(end, summary=f"{end.summary}; {one_line(what)}")


class _Stopped(BaseException):
    """SIGTERM or SIGINT came while the effect was under way."""


@contextmanager
def _stoppable() -> Iterator[None]:
    """A signal ends the effect; what is recorded of it afterwards no signal interrupts."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        ignore()
        raise _Stopped

    def ignore() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        yield
    finally:
        ignore()
