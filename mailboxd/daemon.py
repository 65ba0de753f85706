"""The daemon: wait, reap, scan, tick, schedule in one transaction, then perform what it ordered. And again.

One thread. It sleeps in one selector, on the pidfds of its calls, a pipe that the watcher and signals write to, and a
socket that the CLI pokes. What it must not forget is in the database before it acts, so it may die anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from mailboxd.archiving import Archiving
from mailboxd.arrivals import Arrivals
from mailboxd.calls import Calls
from mailboxd.core.times import to_epoch
from mailboxd.engine import Engine
from mailboxd.errors import ConfigError, StoreError, WorldError
from mailboxd.peers import Peers
from mailboxd.relay import Relay
from mailboxd.sdnotify import Notifier
from mailboxd.taskmd import TaskMarkdown
from mailboxd.wake import Wake
from mailboxd.workspace.watcher import Watcher

_ANXIOUS = 5.0
"""Seconds between two looks while something is wrong."""
_SOONEST = 0.02
_HELD_UP = 1.0
_FILING, _LOOKING, _RENDERING = "filing mail", "reading the mailbox", "writing task files"
_SENDING = "sending"
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things are looked at without being asked, in seconds."""

    rescan: float = 30.0
    render: float = 0.2
    drain: float = 60.0


@dataclass(slots=True)
class Daemon:
    engine: Engine
    arrivals: Arrivals
    relay: Relay
    archiving: Archiving
    taskmd: TaskMarkdown
    peers: Peers
    calls: Calls
    watcher: Watcher
    wake: Wake
    notifier: Notifier
    pace: Pace
    reports: list[Callable[[], None]]
    on_events: Callable[[int], int]
    """Tells the log what was recorded after that event, by whomever; returns the last one it has told."""
    _told: int = 0
    _stopping: int = 0
    _look: bool = True
    _look_at: float = 0.0
    _wait_until: float | None = None
    _rendered_at: float = 0.0
    _troubles: dict[str, str] = field(default_factory=dict)
    """What the disk refuses at the moment, by what was tried."""

    def run(self, *, until_idle: bool = False) -> None:
        """Serve until a signal asks to stop, or, with `until_idle`, until there is nothing left to do.

        Raises WorldError when the database or the disk fails: then the process must end and be started again.
        """
        self._start()
        idle_rounds = 0
        while not self._stopping:
            busy = self._turn()
            idle_rounds = idle_rounds + 1 if until_idle and not busy and self._is_idle() else 0
            if idle_rounds == 2:
                break
            self._look = self._look or idle_rounds == 1  # a file may have come while the last one was finished
            self._sleep(0.0 if busy or idle_rounds else self._timeout())
        self.notifier.stopping("waiting for running turns")
        if self._stopping and self.calls.running:
            _log.info("stopping: %d calls are running; a second signal does not wait for them", len(self.calls.running))
        self._drain()
        _log.info("stopped")

    def stop(self) -> None:
        """Asked to stop: once = drain, twice = at once. Nothing is lost either way."""
        self._stopping += 1
        self.wake.poke()

    # -------------------------------------------------------------- one round

    def _start(self) -> None:
        mono = self.engine.clock.monotonic()
        self._told = self.engine.store.last_event()
        self.calls.left_over(self.engine.store.is_done)
        self.watcher.start(mono)
        self.peers.load()
        self.peers.ask()
        while self.peers.must_wait and not self._stopping:
            self._sleep(1.0)
            self.calls.expire(self.engine.clock.monotonic())
            self._reap()
        with self.engine.batch():
            try:
                self.taskmd.restore()
            except StoreError:
                raise
            except WorldError as error:
                self._trouble(_LOOKING, error)
        self.notifier.ready(f"agent {self.engine.settings.agent}")
        _log.info("ready: agent %s", self.engine.settings.agent)

    def _turn(self) -> bool:
        """One round; returns whether there is more to do at once."""
        mono = self.engine.clock.monotonic()
        self.calls.expire(mono)
        look = self._look or mono >= self._look_at or (self._wait_until is not None and mono >= self._wait_until)
        more = self._record_round(look)
        if self._stopping:
            return more
        begun = self._perform() + self._file()
        begun += self._render(mono)
        return more or begun > 0 or bool(self.reports)

    def _record_round(self, look: bool) -> bool:
        """Everything this wake-up brought, in one transaction."""
        more = False
        with self.engine.batch():
            self._take_reports()
            self._take_ended()
            if look and not self._stopping:
                more = self._take_files()
            self.engine.tick()
            if not self._stopping:
                self.engine.schedule()
        self.calls.sweep()
        self._told = self.on_events(self._told)
        return more

    def _take_reports(self) -> None:
        reports, self.reports[:] = list(self.reports), []
        for report in reports:
            report()

    def _take_ended(self) -> None:
        for call, exit_ in self.calls.ended():
            if self.peers.owns(call):
                self.peers.ended(call, exit_)
                if self.peers.too_old:
                    raise ConfigError(self.peers.too_old)
            else:
                self.relay.ended(call, exit_)

    def _reap(self) -> None:
        with self.engine.batch():
            self._take_ended()

    def _take_files(self) -> bool:
        """Judge what lies in the inbox and what was written below tasks/; whether there is more of it."""
        now = to_epoch(self.engine.now)
        mono = self.engine.clock.monotonic()
        self._look, self._wait_until = False, None
        self.watcher.check(mono)
        self.archiving.try_again()
        well = self.watcher.healthy and not self._troubles
        self._look_at = mono + (self.pace.rescan if well else min(self.pace.rescan, _ANXIOUS))
        moments: list[float] = []
        try:
            if _FILING not in self._troubles:  # else judge no more: the inbox is left as it is
                taken = self.arrivals.take(now)
                moments, self._look = taken.moments, taken.more
            seen = self.taskmd.look(now)
        except StoreError:
            raise
        except WorldError as error:
            self._trouble(_LOOKING, error)
            return False
        self._well(_LOOKING)
        due = moments if seen.look_again is None else [*moments, seen.look_again]
        if due:
            self._wait_until = mono + max(min(due) - now, _SOONEST)
        self._look = self._look or seen.truncated
        return self._look

    def _perform(self) -> int:
        try:
            begun = self.relay.perform()
        except StoreError:
            raise
        except WorldError as error:
            return self._trouble(_SENDING, error)
        self._well(_SENDING)
        return begun

    def _file(self) -> int:
        try:
            moved = self.archiving.perform()
        except WorldError as error:
            return self._trouble(_FILING, error)
        self._well(_FILING)
        return moved

    def _render(self, mono: float) -> int:
        """Coalesced: what changed within `render` seconds becomes one writing."""
        if mono - self._rendered_at < self.pace.render:
            return 0
        try:
            written = self.taskmd.perform()
        except WorldError as error:
            self._rendered_at = self.engine.clock.monotonic() + _ANXIOUS
            return self._trouble(_RENDERING, error)
        self._well(_RENDERING)
        held_up = not written and self.engine.store.stale_files()  # somebody is writing that very file
        self._rendered_at = self.engine.clock.monotonic() + (_HELD_UP if held_up else 0.0)
        return written

    def _trouble(self, where: str, error: WorldError) -> int:
        """The disk refuses something that can wait: say so once, and go on with what works."""
        if self._troubles.get(where) != str(error):
            self._troubles[where] = str(error)
            self.notifier.status(f"TROUBLE {where}: {error}")
            _log.error("%s: %s", where, error)
        return 0

    def _well(self, where: str) -> None:
        if self._troubles.pop(where, None) is not None:
            self._look = True
            self.notifier.status(f"agent {self.engine.settings.agent}")
            _log.info("%s: works again", where)

    # -------------------------------------------------------------- waiting

    def _timeout(self) -> float:
        """Seconds until something is due by itself."""
        mono, now = self.engine.clock.monotonic(), self.engine.clock.now()
        moments = [self._look_at - mono]
        if self._wait_until is not None:
            moments.append(self._wait_until - mono)
        if (deadline := self.calls.next_deadline()) is not None:
            moments.append(deadline - mono)
        # Counted from the last round, not from now: what became due in between has not been looked at.
        if (due := self.engine.store.next_due(self.engine.now)) is not None:
            moments.append(to_epoch(due) - to_epoch(now))
        if self.engine.store.stale_files():
            moments.append(self._rendered_at + self.pace.render - mono)
        if self.notifier.watchdog_seconds is not None:
            moments.append(self.notifier.watchdog_seconds / 3)
        return max(min(moments), 0.0)

    def _sleep(self, seconds: float) -> None:
        self.notifier.watchdog()
        for key, _ in self.calls.selector.select(seconds):
            if key.data is self.wake:
                self.wake.drain()
                self._look = True

    def _is_idle(self) -> bool:
        """Nothing runs, nothing is ordered, nothing is about to happen by itself."""
        store = self.engine.store
        return not (
            self.calls.running
            or self.reports
            or self._look
            or self._wait_until is not None
            or store.stale_files()
            or self.archiving.waiting()
            or store.has_pending()
            or store.has_backoff()
        )

    def _drain(self) -> None:
        """Let running calls end; what has not ended by then goes on, and the next daemon adopts it."""
        deadline = self.engine.clock.monotonic() + self.pace.drain
        while self.calls.running and self._stopping < 2 and self.engine.clock.monotonic() < deadline:
            self._sleep(min(1.0, max(deadline - self.engine.clock.monotonic(), 0.0)))
            self.calls.expire(self.engine.clock.monotonic())
            self._record_round(look=False)
        if self._stopping < 2:
            with suppress(WorldError):
                self._file()
                self.taskmd.perform(limit=1000)
        self._record_round(look=False)
