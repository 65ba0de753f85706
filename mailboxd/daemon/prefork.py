"""`mailboxd run --all`: one process imports everything, then forks a daemon for each workspace and keeps it running.

What was imported before is shared: a daemon takes half of the memory that it would take alone (docs/decisions/0024). It
is a process as any other, with its own session, directory, lock and health, and can be stopped by itself.

The parent is a small service manager, and to a daemon it looks like systemd: it starts one again by the same rules
(`daemon.restarts`), hears over sd_notify's protocol whether it is ready or stops, and kills one whose loop is silent.
To systemd itself it reports on all of them. It has one thread and opens no database, so nothing is shared that must not
be. When it dies, the daemons stop as on SIGTERM, and the next parent waits for their locks.
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# what a daemon imports when it needs it, the first task or the first morning at the latest: imported here, it is shared
import jinja2  # noqa: F401
import pydantic.dataclasses  # noqa: F401
import tzlocal  # noqa: F401

import mailboxd.formats.protocol.evasions
import mailboxd.hub.client.report
import mailboxd.perform.agents.gateway.pairing  # noqa: F401
from mailboxd.daemon import supervise
from mailboxd.daemon.restarts import MOST, PAUSE, WITHIN, Restarts, Then
from mailboxd.errors import ConfigError, UnavailableError, WorldError
from mailboxd.formats import health
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import registry
from mailboxd.host import log
from mailboxd.host.clock import SystemClock
from mailboxd.host.sdnotify import Listener, Notifier
from mailboxd.host.system import system
from mailboxd.host.wakeup import pipe, signals

_SILENT, _START, _AT_ONCE = 60.0, 120.0, 10.0
"""Seconds of silence after which a daemon is killed, unless systemd sets others for this process (WatchdogSec); those
while it starts (TimeoutStartSec); and those that it has after the second signal."""
_NEVER = float("inf")
_LOOK = 15.0
"""Seconds between two looks for workspaces that are new, gone, or whose directories cannot be used, and for what a
person has mended of one that was given up."""
_LATER = 600.0
"""Seconds after which one that was given up is tried again although nobody was seen to mend it: most of what keeps a
daemon from starting is not in a file that could be looked at."""
_log = logging.getLogger("mailboxd")


def serve_all(environ: Mapping[str, str], name_of: Callable[[Workspace], str]) -> Workspace | None:
    """Serve all workspaces of this user until a signal asks to stop.

    It returns several times, as fork(2) does: in each daemon the workspace to serve, which is its working directory; in
    this process None, once all daemons have ended. `name_of` names the agent of a workspace. Raises UnavailableError if
    there is no workspace, ConfigError inside an agent's turn, WorldError.
    """
    supervise.require_outside(environ)
    parent = _Parent(environ, name_of, Notifier(environ))
    parent.add_registered()
    if not parent.children:
        raise UnavailableError("this user has no workspace yet; `mailboxd setup` begins with your agents")
    gc.collect()
    gc.freeze()  # a collection would write into each object that is shared
    with ExitStack() as held:
        held.enter_context(registry.serving_all(environ))
        return parent.serve(held)


@dataclass(slots=True)
class _Child:
    """A workspace, and the daemon that runs there or may run again."""

    ws: Workspace
    name: str = ""
    notices: Listener | None = None
    pid: int = 0
    """0: none runs."""
    restarts: Restarts = field(default_factory=Restarts)
    start_at: float = 0.0
    """When it is started (monotonic clock), if it does not run."""
    silent_at: float = _NEVER
    """When it is killed, unless it says something."""
    is_ready: bool = False
    is_stopping: bool = False
    starts_again: bool = False
    """It was asked to stop, and then to run."""
    idle_because: str = ""
    """Why it does not run, as was said last."""
    given_up_until: float | None = None
    """It is not started before then, unless somebody has mended it, or this process is told; None: it is not given up.
    """
    configuration: tuple[int, ...] = ()
    """What tells the file from a changed one: as it was when the daemon was started last."""
    report: tuple[int, ...] = ()
    """The same of its last report, which is removed by who accepts or rebuilds the database: as it was at its end."""
    place: tuple[int, int] | None = None
    """Which directory the daemon was started in last."""
    is_gone: bool = False
    """The directory was deleted, moved or replaced, as was seen at the last look; a daemon there was told to end."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        return logging.LoggerAdapter(_log, {"agent": self.name})

    def hear(self, now: float) -> None:
        """Take in what it has notified."""
        assert self.notices is not None
        if said := self.notices.read():
            self.is_ready = self.is_ready or "READY" in said
            self.is_stopping = self.is_stopping or "STOPPING" in said
            soon = now + self.notices.watchdog_seconds
            self.silent_at = soon if self.is_ready else max(self.silent_at, soon)

    def is_mended(self) -> bool:
        """Whether its configuration was changed since it was started, or its database accepted or rebuilt since it
        ended.
        """
        now = _state_of(self.ws.config), _state_of(self.ws.state / health.FILE)
        return now != (self.configuration, self.report)

    def rest(self, level: int, why: str, until: float = _NEVER) -> None:
        """Leave it alone until then, and say why, unless that was said last."""
        self.start_at = until
        if why != self.idle_because:
            self.idle_because = why
            self.log.log(level, "%s", why)


@dataclass(slots=True)
class _Parent:
    environ: Mapping[str, str]
    name_of: Callable[[Workspace], str]
    notifier: Notifier
    clock: SystemClock = field(default_factory=SystemClock)
    children: dict[Path, _Child] = field(default_factory=dict)
    stops: int = 0
    is_reloaded: bool = False
    look_at: float = 0.0
    """When it looks for new workspaces (monotonic clock)."""
    _passed_on: int = 0
    """How many of the `stops` the daemons know of."""
    _unread: str = ""
    """Why it cannot look for new workspaces, as was said last."""
    _reported: str = ""
    _pid: int = field(default_factory=os.getpid)

    def add_registered(self) -> None:
        """Have each registered workspace served, also one whose daemon was stopped or given up."""
        for ws in registry.workspaces(self.environ):
            child = self.children.setdefault(ws.root, _Child(ws))
            child.name = self.name_of(ws)
            if child.pid:
                child.starts_again = child.is_stopping
            else:
                child.restarts, child.start_at, child.given_up_until = Restarts(), 0.0, None

    def add_new(self, now: float) -> None:
        """Have workspaces served that were registered meanwhile. What rests or was stopped is left alone."""
        self.look_at = now + _LOOK
        try:
            found = registry.workspaces(self.environ)
        except (ConfigError, WorldError) as error:
            if str(error) != self._unread:
                self._unread = str(error)
                _log.warning("new workspaces are not found: %s", error)
            return
        self._unread = ""
        for ws in found:
            if ws.root not in self.children:
                self.children[ws.root] = _Child(ws, self.name_of(ws))

    def end_homeless(self) -> None:
        """End the daemons whose directories are gone: at once, and if that is not heeded, at the next look by force."""
        for child in self.children.values():
            was_gone, child.is_gone = child.is_gone, _is_gone(child.ws.root, child.place if child.pid else None)
            if child.pid and child.is_gone:
                if was_gone:
                    os.kill(child.pid, signal.SIGKILL)
                    continue
                child.log.warning("%s is gone: its daemon (pid %d) is ended", child.ws.root, child.pid)
                child.starts_again = True  # in the directory that is there now, or as soon as there is one
                for number in (signal.SIGTERM, signal.SIGINT):  # the second one: without waiting for turns
                    os.kill(child.pid, number)

    def stop(self) -> None:
        self.stops += 1

    def reload(self) -> None:
        self.is_reloaded = True

    def serve(self, held: ExitStack) -> Workspace | None:
        """The loop. What is `held` is closed at its end, which in a daemon is right after the fork."""
        held.callback(signal.pthread_sigmask, signal.SIG_SETMASK, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        folder = held.enter_context(_folder(self.environ))
        selector = held.enter_context(selectors.DefaultSelector())
        woken = held.enter_context(_woken_by_signals(selector))
        held.enter_context(signals(self.stop, self.reload))
        while True:
            now = self.clock.monotonic()
            self._reap(now)
            if self.stops > self._passed_on:
                self._pass_on(now)
            if self.is_reloaded:
                self.is_reloaded = False
                self.add_registered()
            if self.look_at <= now and not self.stops:
                self.add_new(now)
                self.end_homeless()
            for child in self.children.values():
                if not self.stops and self._is_due(child, now):
                    if child.notices is None:
                        child.notices = self._listener(folder, selector, held)
                    if self._fork(child, now):
                        return child.ws
                elif child.silent_at <= now:
                    child.log.error("silent for too long: it is killed (pid %d)", child.pid)
                    child.silent_at = _NEVER
                    os.kill(child.pid, signal.SIGKILL)
            if self.stops and not self._running():
                _log.info("stopped: all daemons have ended")
                return None
            self._report()
            self._wait(selector, woken, now)

    def _running(self) -> list[_Child]:
        return [child for child in self.children.values() if child.pid]

    def _is_due(self, child: _Child, now: float) -> bool:
        """Whether it is to be started now. While another daemon holds the workspace, that is looked at in silence."""
        if child.pid or child.start_at > now:
            return False
        if child.given_up_until is not None:
            if now < child.given_up_until and not child.is_mended():
                child.start_at = now + _LOOK
                return False
            child.restarts, child.given_up_until = Restarts(), None
        try:
            holder = lock.holder(child.ws)
        except WorldError as error:
            child.rest(logging.ERROR, f"not started: {error}; tried again every {_LOOK:g} s", now + _LOOK)
            return False
        if holder is not None:
            who = f"the daemon with pid {holder}" if holder else "another daemon"
            child.rest(logging.WARNING, f"not started yet: waiting for {who}, which holds {child.ws.root}", now + PAUSE)
        return holder is None

    def _fork(self, child: _Child, now: float) -> bool:
        """Start the daemon; True in the new process."""
        assert child.notices is not None
        child.notices.read()  # what an earlier one has left
        child.restarts = child.restarts.started(now)
        child.is_ready = child.is_stopping = child.starts_again = False
        child.configuration, child.place, child.is_gone = _state_of(child.ws.config), _identity(child.ws.root), False
        # until the daemon has its own handlers: those of this process would swallow its signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        try:
            child.pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            child.rest(logging.ERROR, f"not started: {error.strerror}; tried again every {PAUSE:g} s", now + PAUSE)
            return False
        if not child.pid:
            self._become(child)
            return True
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child.silent_at, child.idle_because = now + _START, ""
        child.log.info("started with pid %d in %s", child.pid, child.ws.root)
        return False

    def _become(self, child: _Child) -> None:
        """In the new process: leave the parent's session, terminal, log and directory."""
        assert child.notices is not None
        log.leave_to_parent()
        os.setsid()
        system.end_with_parent(self._pid)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.environ.pop("WATCHDOG_PID", None)
        os.environ.update(child.notices.environ)
        with world_errors(f"enter {child.ws.root}"):
            os.chdir(child.ws.root)

    def _reap(self, now: float) -> None:
        for child in self._running():
            child.hear(now)
            ended, status = os.waitpid(child.pid, os.WNOHANG)
            if ended:
                child.pid, child.silent_at = 0, _NEVER
                self._after(child, os.waitstatus_to_exitcode(status), now)

    def _after(self, child: _Child, status: int, now: float) -> None:
        """Decide what follows the end of a daemon, and say so."""
        how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        if self.stops:
            child.rest(logging.INFO, f"ended ({how})")
            return
        if child.starts_again:
            child.start_at = now
            return
        match child.restarts.after(status, now):
            case Then.STOPPED:
                child.rest(logging.INFO, f"stopped ({how}); {self._again()}")
            case Then.LOCKED:
                child.start_at = now + PAUSE
            case Then.AGAIN:
                child.rest(logging.WARNING, f"ended ({how}); started again in {PAUSE:g} s", now + PAUSE)
            case Then.BROKEN:
                self._give_up(child, how, now)
            case Then.TOO_OFTEN:
                often = f"{MOST} starts in {WITHIN / 60:g} minutes, the last one ended with {how}"
                self._give_up(child, often, now)

    def _give_up(self, child: _Child, why: str, now: float) -> None:
        child.given_up_until, child.idle_because = now + _LATER, ""
        child.report = _state_of(child.ws.state / health.FILE)
        again = f"{self._again()}; a change of {child.ws.config} does too, within {_LOOK:g} s; else it is tried again"
        again = f"{again} in {_LATER / 60:g} minutes"
        child.rest(logging.ERROR, f"given up ({why}): mend what it has said; then {again}", now + _LOOK)

    def _again(self) -> str:
        return f"`kill -HUP {self._pid}` starts it again"

    def _pass_on(self, now: float) -> None:
        """Have all daemons stop: first when their turns have ended, then at once."""
        self._passed_on += 1
        is_first = self._passed_on == 1
        self.notifier.stopping("waiting for all daemons")
        if is_first:
            _log.info("stopping: waiting for %d daemons; a second signal stops without waiting", len(self._running()))
        for child in self._running():
            # another signal each time: two of a kind that come together are one
            os.kill(child.pid, signal.SIGTERM if is_first else signal.SIGINT)
            if not is_first:
                child.silent_at = min(child.silent_at, now + _AT_ONCE)

    def _report(self) -> None:
        """Tell systemd that this process lives, and how many daemons do."""
        self.notifier.watchdog()
        starting = [child.name for child in self._running() if not child.is_ready]
        served = [child for child in self.children.values() if child.pid or not child.is_gone]
        resting = [child.name for child in served if not child.pid]
        line = f"{len(served) - len(starting) - len(resting)} of {len(served)} daemons are ready"
        line += f"; starting: {', '.join(starting)}" if starting else ""
        line += f"; not running: {', '.join(resting)}" if resting else ""
        if line != self._reported and not self.stops:
            self._reported = line
            # those that cannot run do not keep the others waiting
            self.notifier.starting(line) if starting else self.notifier.ready(line)

    def _listener(self, folder: Path, selector: selectors.BaseSelector, held: ExitStack) -> Listener:
        with world_errors(f"listen in {folder}"):
            made = Listener(folder / str(len(selector.get_map())), self.notifier.watchdog_seconds or _SILENT)
        held.callback(made.close)
        selector.register(made, selectors.EVENT_READ)
        return made

    def _wait(self, selector: selectors.BaseSelector, woken: int, now: float) -> None:
        until = [_NEVER, *(child.silent_at for child in self._running())]
        if not self.stops:
            until += [self.look_at, *(child.start_at for child in self.children.values() if not child.pid)]
        if self.notifier.watchdog_seconds is not None:
            until.append(now + self.notifier.watchdog_seconds / 3)
        if log.catch_up():
            until.append(now + 1.0)
        soonest = min(until)
        selector.select(None if soonest == _NEVER else max(soonest - now, 0.0))
        with suppress(BlockingIOError):
            os.read(woken, 4096)


def _state_of(file: Path) -> tuple[int, ...]:
    """What tells the file from a changed one."""
    with suppress(OSError):
        found = file.stat()
        return found.st_ino, found.st_size, found.st_ctime_ns
    return ()


def _identity(directory: Path) -> tuple[int, int] | None:
    """Which directory is there; None if that cannot be read."""
    with suppress(OSError):
        found = directory.stat()
        return found.st_dev, found.st_ino
    return None


def _is_gone(root: Path, place: tuple[int, int] | None) -> bool:
    """Whether there is no directory any more, or another one than `place`; one that cannot be read is not gone."""
    try:
        found = root.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return place not in (None, (found.st_dev, found.st_ino))


@contextmanager
def _folder(environ: Mapping[str, str]) -> Iterator[Path]:
    """A private directory for sockets, with a short path: an address has at most 107 bytes."""
    owner, runtime = os.getpid(), environ.get("XDG_RUNTIME_DIR", "")
    with world_errors("make a directory for sockets"):
        path = Path(tempfile.mkdtemp(prefix="mailboxd-", dir=runtime if os.access(runtime, os.W_OK) else None))
    try:
        yield path
    finally:
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _woken_by_signals(selector: selectors.BaseSelector) -> Iterator[int]:
    """The end of a pipe that is readable after each signal, also one that says that a daemon has ended."""
    read, write = pipe()
    selector.register(read, selectors.EVENT_READ)
    earlier: Any = signal.signal(signal.SIGCHLD, lambda *_: None)
    before = signal.set_wakeup_fd(write)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGCHLD, earlier)
        os.close(read)
        os.close(write)
