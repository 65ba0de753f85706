"""The daemon's loop: wait; in one transaction collect results, take mail, handle timers and schedule; then act.

It has one thread and sleeps in one selector: on the pidfds of its calls, a pipe that the watcher and signal handlers
write to, and a socket for commands. Everything that must not be lost is in the database before the daemon acts on it,
so it may be killed at any point.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from mailboxd import log
from mailboxd.agents.sidecar import Sidecar
from mailboxd.clock import Clock
from mailboxd.config.settings import Pace
from mailboxd.core import breaker
from mailboxd.core.events import Kind
from mailboxd.core.times import to_epoch
from mailboxd.daemon.health_writer import Health
from mailboxd.effects.effect_runner import EffectRunner
from mailboxd.effects.process_table import CallKind, ProcessTable
from mailboxd.effects.senders import SenderNotifier
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Happened, Reports
from mailboxd.errors import ConfigError, StoreError, WorldError
from mailboxd.health import Component, Grade
from mailboxd.host.process import Reserve
from mailboxd.host.wakeup import Wake, WakeReason
from mailboxd.intake import held_orders
from mailboxd.intake.archive import Archiver
from mailboxd.intake.arrivals import Arrivals, Mail
from mailboxd.intake.daily_index import DailyIndex
from mailboxd.mailbox.task_files import TaskFileChanges
from mailboxd.mailbox.watcher import Watcher
from mailboxd.peers import Peers
from mailboxd.signed_heads import SignedHeads
from mailboxd.store.database import LARGEST_WAL
from mailboxd.store.store import Store
from mailboxd.taskmd.schedule import RenderSchedule, Retention
from mailboxd.taskmd.sync import TaskMarkdown

_SLOW_SCAN = 0.02
"""A scan of tasks/ that takes longer, in seconds, is followed by a pause of `_PAUSE_FACTOR` times its length."""
_PAUSE_FACTOR = 50.0
_LONGEST_PAUSE = 30.0
_SHORTEST_WAIT = 0.02
_EARLY = 1 / 3
"""Fraction of the rescan interval by which a scan may be early if another timer has ended the sleep."""


@dataclass(slots=True)
class ScanSchedule:
    """Which directories to scan in the next round, and when to scan without a notification (monotonic clock).

    tasks/ may be large. It is skipped if only mail arrived, and for a while after a slow scan, because the daemon's own
    writes there cause notifications as well. The timer makes both be scanned.
    """

    mail: bool = True
    tasks: bool = True
    at: float = 0.0
    tasks_at: float = 0.0
    tasks_paused_until: float = 0.0
    """Until then, notifications cause no scan of tasks/; 0 = they do."""
    file_ready_at: float | None = None
    """When a deferred file may be ready."""
    _early: float = 0.0

    @property
    def next(self) -> float:
        """When the next scan is due without any notification."""
        at = min(self.at, self.tasks_at)
        if self.tasks and self.tasks_paused_until:
            at = min(at, self.tasks_paused_until)
        return at if self.file_ready_at is None else min(at, self.file_ready_at)

    def is_due(self, mono: float) -> bool:
        """Whether this round scans."""
        if mono >= self.next:
            self.request_all()
        return self.mail

    def request_all(self) -> None:
        self.mail = self.tasks = True
        self.tasks_paused_until = 0.0

    def scan_tasks(self, clock: Clock, look: Callable[[], TaskFileChanges]) -> TaskFileChanges:
        """Scan tasks/ if that is due; returns what changed."""
        begun = clock.monotonic()
        if not self.tasks or begun < self.tasks_paused_until:
            return TaskFileChanges()
        seen = look()
        ended = clock.monotonic()
        spent = ended - begun
        is_slow = spent >= _SLOW_SCAN and not seen.truncated  # a truncated scan is continued first
        self.tasks_paused_until = ended + min(spent * _PAUSE_FACTOR, _LONGEST_PAUSE) if is_slow else 0.0
        # while a file waits to settle, tasks/ is scanned each time: otherwise it would be forgotten
        self.tasks = seen.truncated or seen.next_scan_at is not None
        return seen

    def restart_timer(self, mono: float, seconds: float) -> None:
        """Set the next scan without a notification, of what this one scans, to `seconds` from now."""
        self.at, self._early = mono + seconds, seconds * _EARLY
        self.tasks_at = self.at if self.tasks else self.tasks_at

    def rescan_in(self, mono: float, seconds: list[float]) -> None:
        """Scan when the first deferred file may be ready; `seconds` are counted from `mono`."""
        if seconds:
            self.file_ready_at = mono + max(min(seconds), _SHORTEST_WAIT)

    def timer_fired(self, mono: float) -> None:
        """Scan the mail before any timeout is judged: a reply may be there although its notification is not.

        A scan that is due soon is made now as well, so that it does not cut the next sleep short.
        """
        self.mail = True
        if mono >= min(self.at, self.tasks_at) - self._early:
            self.request_all()

    def notify(self, everything: bool) -> None:
        """Scan the inbox in the next round; with `everything`, tasks/ as well."""
        self.mail, self.tasks = True, self.tasks or everything


# Checkpoints of the write-ahead log: when nothing has been recorded for a while, or when the log is large.
#
# SQLite makes one after every thousand pages, unless there is a reader, and never for the last pages. In an idle
# workspace the latest changes would then be in the log alone, and a copy of the main file would lack them.

QUIET = 2.0
"""Seconds without a commit after which a checkpoint is made."""
AGAIN = 5.0
"""Seconds after which a checkpoint that a reader blocked is tried again."""


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of one daemon. `due`: when the next one is due (monotonic clock); None = the log is empty."""

    store: Store
    clock: Clock
    due: float | None = None
    _seen: tuple[int, int] = (0, 0)

    def perform(self) -> None:
        """Make a checkpoint if it is time to. Raises WorldError."""
        mono, wal = self.clock.monotonic(), self.store.wal()
        if not wal[0]:
            self.due = None
            return
        if self.due is None or (wal != self._seen and wal[0] < LARGEST_WAL):
            self.due = mono + QUIET
        self._seen = wal
        if mono >= self.due:
            self.due = None if self.store.checkpoint() else mono + AGAIN
            self._seen = self.store.wal()


_RETRY = 5.0
"""Seconds between two scans while something is wrong."""
_READ_AGAIN = 1.0
"""Seconds between two attempts to write log lines to a full pipe."""
_PEERS = 15.0
"""Seconds between two checks of the daemons of peers."""
_LONG = 600.0
"""Seconds after which a peer without a daemon is a serious problem, and not just a restart."""
_RECOVERY = 3.0
"""Seconds between two checks of how far the recovery of turns is."""
_NAMED = 5
_TIDY = 60.0
"""Seconds between two clean-ups of the directories of ended calls."""
_CAN_WAIT = frozenset({Component.RENDERING, Component.RETENTION, Component.INDEX, Component.SIGNING, Component.CLEANUP})
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Daemon:
    engine: Engine
    arrivals: Arrivals
    effects: EffectRunner
    archiving: Archiver
    taskmd: TaskMarkdown
    retention: Retention
    index: DailyIndex
    heads: SignedHeads
    peers: Peers
    calls: ProcessTable
    watcher: Watcher
    wake: Wake
    health: Health
    pace: Pace
    reports: Reports
    reserve: Reserve
    room: Callable[[], str]
    """Returns a warning if the disk is almost full, else an empty string."""
    configuration: Callable[[], str]
    """Returns why the daemon could not start again with its configuration, else an empty string."""
    on_events: Callable[[int], int]
    """Logs the events after this number; returns the number of the last one."""
    services: list[Sidecar] = field(default_factory=list)
    """Processes that the daemon keeps running: page, tools, metrics."""
    _logged_event: int = 0
    _peers_at: float = float("-inf")
    _hub_at: float = float("-inf")
    _recovery_at: float = float("-inf")
    _invalid: str = ""
    """What was last said of the configuration."""
    _away: dict[str, float] = field(default_factory=dict)
    """When each awaited peer was first found without a daemon (monotonic clock)."""
    _stopping: int = 0
    _schedule: ScanSchedule = field(default_factory=ScanSchedule)
    _rendering: RenderSchedule = field(init=False)
    _checkpoints: Checkpoints = field(init=False)
    _senders: SenderNotifier = field(init=False)
    _tidied_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._checkpoints = Checkpoints(self.engine.store, self.engine.clock)
        self._senders = SenderNotifier(self.engine)
        self._rendering = RenderSchedule(
            self.engine.clock,
            self.pace.render,
            write=lambda seconds: self._try(Component.RENDERING, lambda: self.taskmd.perform(seconds)),
            stale=self.engine.store.stale_files.exist,
            more=lambda: self.taskmd.more,
            is_troubled=lambda: self.health.is_troubled(Component.RENDERING),
            last_event=lambda: self._logged_event,
        )

    def run(self, *, until_idle: bool = False) -> None:
        """Serve until a signal asks to stop, or, with `until_idle`, until there is nothing left to do.

        Raises WorldError when the database or the disk fails: then the process must end and be started again;
        ConfigError with `until_idle` if OpenClaw runs the agent elsewhere.
        """
        self.start()
        idle_rounds = 0
        while not self._stopping:
            busy = self.round()
            if until_idle and (why := self._misplaced()):
                raise ConfigError(f"{why}; `mailboxd -w {shlex.quote(str(self.peers.root))} doctor` says what mends it")
            idle_rounds = idle_rounds + 1 if until_idle and not busy and self._is_idle() else 0
            if idle_rounds == 2:
                break
            if idle_rounds == 1:
                self._schedule.request_all()  # a file may have come while the last one was finished
            self._sleep(0.0 if busy or idle_rounds else None)
        self.health.notifier.stopping("waiting for running turns")
        if self._stopping and self.calls.running:
            running = len(self.calls.running)
            calls = "one running call" if running == 1 else f"{running} running calls"
            _log.info("stopping: waiting for %s; a second signal stops without waiting", calls)
        self._drain()
        _log.info("stopped")

    def stop(self) -> None:
        """Stop: the first time after running calls have ended, the second time at once. Nothing is lost either way."""
        self._stopping += 1
        self.wake.poke()

    def start(self) -> None:  # what comes before the first round
        self._logged_event = self.engine.store.last_event()
        self._try(Component.INDEX, lambda: self.index.perform(self._logged_event))
        self.watcher.start(self.engine.clock.monotonic())
        self.peers.load()
        self._try(Component.DISCOVERY, self.peers.ask)
        while self.peers.must_wait and not self._stopping:
            self._sleep(1.0)
            self._poll_peers()
        with self.engine.batch():
            self.engine.store.meta.set_limits(self.engine.settings.bounds)
            self.engine.store.meta.report("agent", self.engine.settings.agent)
            if not self._misplaced():
                self._try(Component.SCANNING, self.taskmd.restore)
            self.effects.notifying.try_again()
        self.health.report(Component.DATABASE, "")
        self.health.notifier.ready(self.health.line)
        _log.info("ready: agent %s", self.engine.settings.agent)

    def round(self) -> bool:
        """Record what has happened, then perform what it ordered; returns whether there is more to do at once."""
        self._poll_peers()
        if self.peers.must_wait:
            return False
        self.health.report(Component.PLACE, why := self._misplaced())
        if why:
            return False
        more = self._record_round(self._schedule.is_due(self.engine.clock.monotonic()))
        if self._stopping:
            return more
        if not self.reserve.why:
            self._try(Component.SENDING, self.effects.perform)
        self._report()  # after the calls have begun, because they run meanwhile
        begun = self._try(Component.FILING, self.archiving.perform)
        begun += self._check_archive()
        begun += self._rendering.perform(turns=bool(self.calls.running), mail=self._schedule.mail)
        begun += self._try(Component.RETENTION, self.retention.perform)
        self._try(Component.INDEX, lambda: self.index.perform(self._logged_event))
        self._checkpoints.perform()
        return begun + self._try(Component.SIGNING, self.heads.perform) > 0 or more or bool(self.reports)

    def _misplaced(self) -> str:
        """Why nothing may be done here, since OpenClaw runs the agent elsewhere; empty if it may, or is not known."""
        return "" if self.peers.must_wait or self.peers.misplaced is None else self.peers.misplaced.text

    def _record_round(self, look: bool) -> bool:
        """Record what this wake-up brought in one transaction, and start the work it allows in a second one."""
        more, seen, look = False, self.arrivals.seen, look and not self._stopping
        mail = self._read_mail() if look else None
        with self.engine.batch():
            self._try(Component.COLLECTING, self._collect)
            self._judge_again()
            self._check_gateway()
            self._check_peers()
            self._check_hub()
            self._senders.perform()
            if look and not self.health.is_troubled(Component.SCANNING):
                more = self._take_files(mail)
            held_orders.carry_out_due(self.engine)
            more = self.engine.tick(self.arrivals.read_until()) or more
            if self.arrivals.seen == seen:
                return self._begin() or more
        with self.engine.batch():
            return self._begin() or more

    def _judge_again(self) -> None:
        """Judge anew what waits for other agents when those have changed, and in the first round for a configuration
        that may be new; inside a batch.
        """
        if self.peers.has_changed():
            self.engine.look_again()

    def _check_gateway(self) -> None:
        """Check whether the gateway accepts turns; inside a batch."""
        gateway = self.peers.gateway
        if gateway.poll(self.engine.clock.monotonic()):
            self.engine.gateway_is_back(gateway.unreached)
            gateway.unreached.clear()
        self.engine.store.meta.set_gateway(gateway.why)
        self.health.report(Component.GATEWAY, gateway.why)
        self._check_recovery()

    def _check_recovery(self) -> None:
        """Say which turns OpenClaw still has to resume, because its gateway died; inside a batch."""
        mono = self.engine.clock.monotonic()
        if mono < self._recovery_at:
            return
        self._recovery_at = mono + _RECOVERY
        store, recovering = self.engine.store, self.calls.recovering()
        store.meta.set_recovering({call_id.partition(".")[0]: one.stage for call_id, one in recovering.items()})
        found = (store.tasks.get(self.calls.running[call_id].task) for call_id in recovering)
        names = dict.fromkeys(task.local_id for task in found if task is not None)
        self.health.report(Component.RECOVERY, _in_recovery(len(recovering), list(names)), Grade.AMBER)

    def _check_peers(self) -> None:
        """Check every 15 s whether awaited peers have a daemon, and notify people of new problems; inside a batch."""
        mono = self.engine.clock.monotonic()
        if mono < self._peers_at:
            return
        self._peers_at = mono + _PEERS
        if (invalid := self.configuration()) != self._invalid:
            self._invalid = invalid
            if invalid:
                _log.warning("%s", invalid)
            else:
                _log.info("the configuration is valid again")
        away = self.peers.away(self.engine.store.schedule.awaited_peers())
        self.engine.store.meta.set_away(away)
        self._away = {name: self._away.get(name, mono) for name in away}
        lasts = any(mono - since >= _LONG for since in self._away.values())
        self.health.report(Component.PEERS, "; ".join(away.values()), Grade.RED if lasts else Grade.AMBER)
        self.effects.notifying.order_trouble_notices()

    def _check_hub(self) -> None:
        """Store why mail for other hosts is delayed; inside a batch."""
        hub, mono = self.effects.posting.hub, self.engine.clock.monotonic()
        if hub.is_changed or mono >= self._hub_at:
            self._hub_at = mono + _PEERS
            self.engine.store.meta.set_held_up(hub.held_up())
            self.engine.store.meta.set_holders(hub.holders())
            self.health.report(Component.HUB, hub.trouble(self.engine.now), Grade.AMBER)

    def _report(self) -> None:
        """Log what was recorded, and clean up after ended calls."""
        self._logged_event = self.on_events(self._logged_event)
        why, lasts = breaker.trouble(self.engine.broken)
        if missing := self.peers.own_missing():
            why, lasts = missing, True
        self.health.report(Component.AGENTS, why, Grade.RED if lasts else Grade.AMBER)
        self.health.report(Component.SERVICE, "; ".join(one.trouble for one in self.services if one.trouble))
        self.calls.discard_recorded()
        if (mono := self.engine.clock.monotonic()) - self._tidied_at >= _TIDY:
            self._tidied_at = mono
            self._try(Component.CLEANUP, lambda: self.calls.remove_leftovers(self.engine.store.outbox.is_settled))

    def _check_archive(self) -> bool:
        """Check archived files; return whether more missing ones are to be restored at once."""
        archive_watch = self.archiving.archive_watch
        more = archive_watch.check()
        self.health.report(Component.ARCHIVE, archive_watch.why, Grade.AMBER)
        return more

    def _begin(self) -> bool:
        """Start ready work, inside a batch; returns whether there is more to do at once."""
        capacity = self.calls.measure_capacity(self.engine.clock.monotonic())
        if self._stopping or self.arrivals.is_catching_up:
            return False
        self.engine.schedule(capacity)
        return self.effects.mark(capacity, begins=not (self.reserve.why or self.peers.gateway.is_down)) > 0

    def _collect(self) -> None:
        """Record the results of calls, and what was done since the last transaction."""
        try:
            self._take_ended()
        finally:
            self.reports.record_all()

    def _take_ended(self, kind: CallKind | None = None) -> None:
        for call, exit_ in self.calls.ended(kind):
            if call.kind is CallKind.DISCOVERY:
                self.peers.ended(call, exit_)
                if self.peers.too_old:
                    raise ConfigError(self.peers.too_old)
            else:
                self.effects.ended(call, exit_)

    def _poll_peers(self) -> None:
        """Record what OpenClaw reports about its agents, and continue to ask."""
        self.calls.enforce_limits(self.engine.clock.monotonic())
        if self.peers.is_asking:
            with self.engine.batch():
                self._try(Component.COLLECTING, lambda: self._take_ended(CallKind.DISCOVERY))
        self._try(Component.DISCOVERY, self.peers.continue_asking)

    def _read_mail(self) -> Mail | None:
        """Read the files of inbox/ before the transaction, so that no command waits while a large plan is parsed."""
        schedule, mono = self._schedule, self.engine.clock.monotonic()
        schedule.mail, schedule.file_ready_at = False, None
        if schedule.tasks or not self.health.is_green:  # else only mail has come, which does not wait for these checks
            self._check_environment(mono)
        schedule.restart_timer(mono, self.pace.rescan if self.health.is_green else min(self.pace.rescan, _RETRY))
        try:
            now = to_epoch(self.engine.clock.now())
            mail = self.arrivals.read(now, can_file=not self.health.is_troubled(Component.FILING))
        except WorldError as error:
            self._failed(Component.SCANNING, error)
            return None
        self._recovered(Component.SCANNING)
        return mail

    def _take_files(self, mail: Mail | None) -> bool:
        """Take the files of inbox/ and the edits in tasks/; returns whether there are more."""
        schedule, now, mono = self._schedule, to_epoch(self.engine.now), self.engine.clock.monotonic()
        try:
            taken = self.arrivals.take(mail)
            schedule.mail = taken.more
            seen = schedule.scan_tasks(self.engine.clock, lambda: self.taskmd.scan(now))
        except StoreError:
            raise
        except WorldError as error:
            self._failed(Component.SCANNING, error)
            return False
        self._recovered(Component.SCANNING)
        schedule.rescan_in(mono, [at - now for at in (*taken.scan_at, seen.next_scan_at) if at is not None])
        schedule.mail = schedule.mail or seen.truncated
        return schedule.mail

    def _check_environment(self, mono: float) -> None:
        """Check what the daemon depends on: watching, disk space, the journal, file descriptors."""
        if self.watcher.check(mono):
            self._schedule.tasks = True
        if self.watcher.inbox_was_replaced():
            self.reports.append(Happened(Kind.INBOX_REARMED, None, {"path": "mailbox/inbox"}))
        self.archiving.try_again()
        self.health.report(Component.WATCHING, self.watcher.reason, Grade.AMBER)
        self.health.report(Component.SPACE, self.room(), Grade.AMBER)
        journal = self.engine.store.journal
        self.health.report(Component.JOURNAL, journal.trouble if journal is not None else "", Grade.AMBER)
        self.reserve.refill()
        self.health.report(Component.DESCRIPTORS, self.reserve.why, Grade.AMBER)

    def _try(self, where: Component, perform: Callable[[], int | None]) -> int:
        """Perform and return how much was done. A failure of the disk is reported and retried in the next round."""
        try:
            done = perform() or 0
        except StoreError:
            raise
        except WorldError as error:
            return self._failed(where, error)
        self._recovered(where)
        return done

    def _failed(self, where: Component, error: WorldError) -> int:
        """Report a failure and continue with what works; it is retried in a few seconds."""
        can_wait = self.reserve.spend(error.__cause__) or where in _CAN_WAIT
        self.health.report(where, str(error), Grade.AMBER if can_wait else Grade.RED)
        self._schedule.at = min(self._schedule.at, self.engine.clock.monotonic() + _RETRY)
        return 0

    def _recovered(self, where: Component) -> None:
        if self.health.report(where, ""):
            self._schedule.request_all()

    # waiting

    def _timeout(self) -> float:
        """Seconds until the next timer."""
        mono = self.engine.clock.monotonic()
        if self.peers.must_wait or self.peers.misplaced is not None:
            return 1.0
        # From the time of the last round, not from now: what became due since then has not been handled.
        due, is_stale = self.engine.store.schedule.next_due(self.engine.now)
        rendering = self._rendering.due(turns=bool(self.calls.running)) if is_stale else None
        sync = None if self.reserve.why else self.effects.starting.dispatches.due
        clocked = (
            *(self._schedule.next, self.health.next_beat, self.calls.next_deadline()),
            *(sync, rendering, self._checkpoints.due, self.archiving.archive_watch.due, self.index.due),
            self.peers.gateway.due,
        )
        moments = [moment - mono for moment in clocked if moment is not None]
        if due is not None:
            moments.append(to_epoch(due) - to_epoch(self.engine.clock.now()))
        if self.calls.capacity.is_short:
            moments.append(_RETRY)
        if log.catch_up():
            moments.append(_READ_AGAIN)
        if (watchdog := self.health.notifier.watchdog_seconds) is not None:
            moments.append(watchdog / 3)
        return max(min(moments), 0.0)

    def _sleep(self, seconds: float | None) -> None:  # None = until something is due
        self.health.beat()
        monotonic = self.engine.clock.monotonic
        until = monotonic() + (self._timeout() if seconds is None else seconds)
        reason = self._wait(until)
        if reason.mail:
            self._schedule.notify(reason.everything)
        if seconds is None and (now := monotonic()) >= until:
            self._schedule.timer_fired(now)

    def _wait(self, until: float) -> WakeReason:
        """Wait until something happens or it is time; the limits of running calls are enforced meanwhile."""
        monotonic = self.engine.clock.monotonic
        while True:
            now = monotonic()
            seconds = max(min(until, self.calls.next_output_check()) - now, 0.0)
            reason = self.wake.wait(seconds)
            if not reason.by_timer or (now := monotonic()) >= until or self.calls.enforce_limits(now):
                return reason

    def _is_idle(self) -> bool:
        """Whether nothing runs, nothing is ordered, no retry is pending, and nothing is about to become a question."""
        store = self.engine.store
        return not (
            (self.calls.running or self.reports)
            or self._schedule.mail
            or self._schedule.file_ready_at is not None
            or store.stale_files.exist()
            or self.archiving.waiting()
            or store.schedule.has_pending()
            or store.schedule.has_backoff()
            or store.schedule.next_asked(self.engine.now) is not None
        )

    def _drain(self) -> None:
        """Wait for running calls to end; the next daemon adopts those that have not."""
        deadline = self.engine.clock.monotonic() + self.pace.drain
        while self.calls.running and self._stopping < 2 and self.engine.clock.monotonic() < deadline:
            self._sleep(min(1.0, max(deadline - self.engine.clock.monotonic(), 0.0)))
            self.calls.enforce_limits(self.engine.clock.monotonic())
            self._record_round(look=False)
            self._report()
        if self._stopping < 2:
            with suppress(WorldError):
                self._try(Component.FILING, self.archiving.perform)
                self._try(Component.SENDING, lambda: self.effects.starting.dispatches.sync(now=True))
                self.taskmd.perform()
        self._record_round(look=False)
        self._try(Component.SIGNING, self.heads.write)
        self._record_round(look=False)
        self._report()
        while self.index.due is not None and self._stopping < 2 and not self.health.is_troubled(Component.INDEX):
            self._try(Component.INDEX, lambda: self.index.perform(self._logged_event, now=True))


def _in_recovery(turns: int, tasks: list[str]) -> str:
    """The sentence about turns whose gateway died; empty if there are none."""
    if not turns:
        return ""
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    of = f" ({', '.join(tasks[:_NAMED])}{more})" if tasks else ""
    return (
        f"{turns} turn{'s' * (turns != 1)}{of} {'were' if turns != 1 else 'was'} under way when OpenClaw's gateway "
        f"died; OpenClaw resumes {'them' if turns != 1 else 'it'} by itself, and mailboxd waits for that"
    )
