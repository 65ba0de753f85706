"""`mailboxd run`: locks the workspace, runs the daemon, and halts while the disk is full or the database is locked.

A full disk and a locked database usually resolve without help. A daemon whose commit failed for one of these reasons is
discarded, because its memory no longer matches the database. A new one starts from the database as after a crash:
running calls are adopted, and nothing is done twice. Any other failure of the machine ends the process with exit status
75, so that the supervisor restarts it or a person steps in.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mailboxd.daemon import assemble
from mailboxd.daemon.health_writer import Health
from mailboxd.daemon.loop import Daemon
from mailboxd.errors import BusyError, ConfigError, NoRoomError, StoreError, WorldError
from mailboxd.formats.config import Config
from mailboxd.formats.health import Component, Halt
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import registry
from mailboxd.host import disk
from mailboxd.host.clock import SystemClock
from mailboxd.host.sdnotify import Notifier
from mailboxd.host.system import system
from mailboxd.host.wakeup import signals
from mailboxd.ledger.database import storage_errors
from mailboxd.perform.agents.openclaw import INSIDE_MARK, inside_agent

_log = logging.getLogger("mailboxd")
_PAUSE = 5
"""Seconds between two checks whether it can continue."""
_STOP_INTERVAL = 0.2
"""Seconds between two checks for a request to stop, while a start is delayed."""


def serve(ws: Workspace, config: Config, *, until_idle: bool = False, allow_network: bool = False) -> None:
    """Serve the workspace until a signal asks to stop; with `until_idle`, until there is nothing left to do.

    Raises LockedError if another daemon runs there; ConfigError inside an agent's turn, and on a network file system
    that is not allowed; WorldError, which with `until_idle` includes a full disk and a locked database.
    """
    require_outside(os.environ)
    polls = _polls(ws, allowed=allow_network)
    clock = SystemClock()
    with lock.acquire(ws, clock.now()), Health(ws, clock, Notifier(os.environ), config.agent) as health:
        supervisor = _Supervisor(ws, config, health, polls)
        with signals(supervisor.stop, supervisor.rescan):
            supervisor.run(until_idle=until_idle)


def require_outside(environ: Mapping[str, str]) -> None:
    """Raise ConfigError inside an agent's turn."""
    if inside_agent(environ):
        raise ConfigError(
            f"this is a shell inside an agent's turn (OPENCLAW_SHELL, OPENCLAW_SUBAGENT_EXEC or {INSIDE_MARK} is set), "
            "where OpenClaw refuses to call agents. Start the daemon from the operator's own shell or from systemd."
        )


def _polls(ws: Workspace, *, allowed: bool) -> str:
    """Why the inbox must be polled; empty if it can be watched. Raises ConfigError."""
    kind = system.network_kind(ws.root)
    if kind and not allowed:
        raise ConfigError(
            f"{ws.root} is on a network file system ({kind}): another machine would not see its locks, and two daemons "
            "could corrupt the database. Move the workspace to a local disk; if only this "
            "machine ever uses it, `mailboxd run --allow-network-fs`"
        )
    return (
        f"{ws.root} is on a network file system ({kind}): the mailbox is polled, without file notifications"
        if kind
        else ""
    )


@dataclass(slots=True)
class _Supervisor:
    ws: Workspace
    config: Config
    health: Health
    polls: str
    daemon: Daemon | None = None
    stops: int = 0

    def stop(self) -> None:
        self.stops += 1
        if self.daemon is not None:
            self.daemon.stop()

    def rescan(self) -> None:
        if self.daemon is not None:
            self.daemon.wake.poke()

    def run(self, *, until_idle: bool) -> None:
        if not until_idle:
            self._delay_start()
        while not self.stops:
            try:
                self._run_one(until_idle)
                return
            except (NoRoomError, BusyError) as error:
                if until_idle:
                    raise
                self._wait_until_fixed(error)

    def _delay_start(self) -> None:
        """Wait before a start if earlier ones have failed, because systemd and others may restart without a pause."""
        failed, clock = self.health.failed, SystemClock()
        if not failed.starts:
            return
        starts = "1 start has" if failed.starts == 1 else f"{failed.starts} starts in a row have"
        why = f"{starts} failed, this one waits {failed.wait:.1f} s. The last one: {failed.why}"
        self.health.report(Component.DAEMON, why)
        until = clock.monotonic() + failed.wait
        while not self.stops and (left := until - clock.monotonic()) > 0:
            self.health.beat()
            select.select((), (), (), min(left, _STOP_INTERVAL))
        self.health.clear(Component.DAEMON)

    def _run_one(self, until_idle: bool) -> None:
        if made := self.ws.make_missing():
            _log.warning("made what was missing in the workspace: %s", ", ".join(made))
        with assemble.daemon(self.ws, self.config, self.health, self.polls) as daemon:
            self.daemon = daemon
            if self.stops:  # asked before the daemon existed
                daemon.stop()
            try:
                with storage_errors(daemon.engine.store.db):
                    # a copy, which does no work, is no workspace that others are to find
                    daemon.run(until_idle=until_idle, placed=partial(registry.register, self.ws.root, os.environ))
                if until_idle and not self.stops and (why := self.health.unread):
                    raise WorldError(why)  # idle because the mail cannot be read: that is not success
            finally:
                self.daemon = None

    def _wait_until_fixed(self, error: StoreError) -> None:
        """Take no mail and start no work until another try is worthwhile."""
        self.health.report(Component.DATABASE, f"HALT({_name(error)}): {error}")
        while not self.stops:
            for _ in range(_PAUSE):
                self.health.beat()
                select.select((), (), (), 1.0)
            missing = self._still_missing() if isinstance(error, NoRoomError) else ""
            if not missing:
                return
            self.health.report(Component.DATABASE, f"HALT({_name(error)}): {missing}")

    def _still_missing(self) -> str:
        database = self.ws.database
        try:
            return disk.why_not_enough(self.ws.state, database, Path(f"{database}-wal"))
        except OSError as error:
            return f"{self.ws.state}: {error.strerror}"


def _name(error: StoreError) -> Halt:
    return Halt.DISK_FULL if isinstance(error, NoRoomError) else Halt.DB_LOCKED
