"""The daemon's loop: wait; in one transaction collect results, take mail, handle timers and schedule; then act.

`round` says what that is. Whatever else a daemon does is a service, which is called when it has something to do
(`daemon.services`). What happens in this process marks the services that it concerns; what happens outside of it is
looked at when something pokes the daemon, and with each scan by the timer.

It has one thread and sleeps in one selector: on the pidfds of its calls, a pipe that the watcher and signal handlers
write to, and a socket for commands. Everything that must not be lost is in the database before the daemon acts on it,
so it may be killed at any point.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from mailboxd.core import breaker
from mailboxd.core.events import Event, Kind
from mailboxd.core.standstill import OVER, Standstill
from mailboxd.core.times import plus, to_epoch
from mailboxd.daemon.delegation_file import DelegationFile
from mailboxd.daemon.gateway_orders import GatewayOrders
from mailboxd.daemon.health_writer import Health
from mailboxd.daemon.peers import Peers
from mailboxd.daemon.scan_schedule import ScanSchedule
from mailboxd.daemon.services import NEVER, RELAXED, Checkpoints, Service
from mailboxd.daemon.surroundings import Surroundings
from mailboxd.daemon.view_writer import ViewWriter
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import held_orders, repetitions
from mailboxd.engine.intake.archive import Archiver
from mailboxd.engine.intake.arrivals import Arrivals, Mail
from mailboxd.engine.intake.daily_index import DailyIndex
from mailboxd.engine.reports import Happened, Reports
from mailboxd.errors import ConfigError, StoreError, WorldError
from mailboxd.formats.config.settings import Pace
from mailboxd.formats.health import Component, Grade, Stopping
from mailboxd.formats.mailbox.watcher import Watcher
from mailboxd.host import log
from mailboxd.host.process import Reserve
from mailboxd.host.wakeup import Wake, WakeReason
from mailboxd.ledger.signed_heads import SignedHeads
from mailboxd.perform.agents.sidecar import Sidecar
from mailboxd.perform.day_caps import SOON
from mailboxd.perform.effect_runner import EffectRunner
from mailboxd.perform.process_table import CallKind, ProcessTable
from mailboxd.perform.question_prompts import QuestionPrompts
from mailboxd.perform.senders import SenderNotifier
from mailboxd.perform.workboard import Workboard
from mailboxd.surfaces.taskmd.schedule import RenderSchedule, Retention
from mailboxd.surfaces.taskmd.sync import TaskMarkdown

_RETRY = 5.0
"""Seconds between two scans while something is wrong."""
_READ_AGAIN = 1.0
"""Seconds between two attempts to write log lines to a full pipe."""
_TIDY = 60.0
"""Seconds between two clean-ups of the directories of ended calls."""
_NAMED = 5
"""Tasks that are named of those a stopping daemon waits for."""
_CAN_WAIT = frozenset({Component.RENDERING, Component.RETENTION, Component.INDEX, Component.SIGNING, Component.CLEANUP})
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Daemon:
    engine: Engine
    arrivals: Arrivals
    effects: EffectRunner
    prompts: QuestionPrompts
    workboard: Workboard
    archiving: Archiver
    taskmd: TaskMarkdown
    retention: Retention
    index: DailyIndex
    heads: SignedHeads
    delegation: DelegationFile
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
    orders: GatewayOrders
    view: ViewWriter
    standstill: Callable[[], Standstill | None]
    """Returns the latest word about a standstill of all agents."""
    on_events: Callable[[int], int]
    """Logs the events after this number; returns the number of the last one."""
    services: list[Sidecar] = field(default_factory=list)
    """Processes that the daemon keeps running: page, tools, metrics."""
    paused: Standstill | None = None
    """The standstill, as this round has found it: nothing begins."""
    _logged_event: int = 0
    _stopping: int = 0
    _schedule: ScanSchedule = field(default_factory=ScanSchedule)
    _rendering: RenderSchedule = field(init=False)
    _surroundings: Surroundings = field(init=False)
    _work: Service = field(init=False)
    """Time passes for tasks, ready ones begin, and what was ordered is performed: whenever anything was recorded."""
    _capping: Service = field(init=False)
    """Whether what the day may cost lets turns begin: when one has ended, and from time to time."""
    _prompting: Service = field(init=False)
    _filing: Service = field(init=False)
    _writing: Service = field(init=False)
    """Of files that are out of date."""
    _listing: Service = field(init=False)
    _saving: Service = field(init=False)
    _inquiries: tuple[Service, ...] = ()
    """The services that record what they find, in the transaction of a round."""
    _upkeep: tuple[Service, ...] = ()
    """The services that follow a commit, in this order."""
    _next_due: float = 0.0
    """When the next timer of a task is due (monotonic clock)."""
    _is_stale: bool = False
    """A task.md is out of date, so the next one has to be written at a moment that is not settled yet."""
    _broken: Sequence[breaker.Breaker] = ()
    """The breakers that were not closed when health was last told of them."""

    def __post_init__(self) -> None:
        self._work = Service(self._perform, Component.SENDING)
        self._surroundings = Surroundings(
            self.engine,
            self.effects,
            self.peers,
            self.calls,
            self.health,
            self.configuration,
            self.services,
            self._work,
        )
        self._rendering = RenderSchedule(
            self.engine.clock,
            self.pace.render,
            write=lambda seconds: self._try(Component.RENDERING, lambda: self.taskmd.perform(seconds)),
            stale=self.engine.store.stale_files.exist,
            more=lambda: self.taskmd.more,
            is_troubled=lambda: self.health.is_troubled(Component.RENDERING),
            last_event=lambda: self._logged_event,
        )
        self._capping = Service(self._look_at_caps, slack=RELAXED)
        self._prompting = Service(self._prompt, slack=RELAXED)
        self._filing = Service(self._file, Component.FILING)
        self._writing = Service(self._write)
        self._listing = Service(self._list, Component.INDEX)
        self._saving = Service(Checkpoints(self.engine.store, self.engine.clock).perform)
        self._upkeep = (
            self._surroundings.agents,
            Service(self.delegation.perform, slack=RELAXED),
            Service(self._tidy, Component.CLEANUP, RELAXED),
            self._filing,
            self._prompting,
            Service(self.workboard.perform, slack=RELAXED),
            Service(self._check_archive, slack=RELAXED),
            self._writing,
            Service(self.retention.perform, Component.RETENTION, RELAXED),
            self._listing,
            self._saving,
            Service(self._sign, Component.SIGNING, RELAXED),
            self.view.service,
            self.orders.service,
        )
        self._inquiries = (
            *self._surroundings.inquiries,
            self._capping,
            Service(SenderNotifier(self.engine).perform, slack=RELAXED),
        )

    def run(self, *, until_idle: bool = False, placed: Callable[[], object] = bool) -> None:
        """Serve until a signal asks to stop, or, with `until_idle`, until there is nothing left to do.

        `placed` is called as soon as nothing says that OpenClaw runs the agent elsewhere.

        Raises WorldError when the database or the disk fails: then the process must end and be started again;
        ConfigError with `until_idle` if OpenClaw runs the agent elsewhere.
        """
        self.start()
        idle_rounds, is_placed = 0, False
        while not self._stopping:
            busy = self.round()
            if not is_placed and not self.peers.must_wait and not self._misplaced():
                placed()
                is_placed = True
            if until_idle and (why := self._misplaced()):
                raise ConfigError(f"{why}; `mailboxd -w {shlex.quote(str(self.peers.root))} doctor` says what mends it")
            idle_rounds = idle_rounds + 1 if until_idle and not busy and self._is_idle() else 0
            if idle_rounds == 2:
                break
            if idle_rounds == 1:
                self._schedule.request_all()  # a file may have come while the last one was finished
            self._sleep(0.0 if busy or idle_rounds else None)
        self._drain()
        with self.engine.batch():
            self.effects.starting.caps.leave()
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
            self.calls.enforce_limits(self.engine.clock.monotonic())
            self._poll_peers()
        with self.engine.batch():
            self.engine.policy()
            self.engine.store.meta.set_limits(self.engine.settings.bounds)
            self.engine.store.meta.set_ageing(self.engine.settings.ageing)
            self.paused = self.engine.store.meta.standstill()
            self.calls.is_shut = self.paused is not None
            self.engine.store.meta.report("agent", self.engine.settings.agent)
            if not self._misplaced():
                self._try(Component.SCANNING, self.taskmd.restore)
            self.effects.notifying.try_again()
        self.health.report(Component.DATABASE, "")
        self.health.notifier.ready(self.health.line)
        _log.info("ready: agent %s", self.engine.settings.agent)

    def round(self) -> bool:
        """Record what has happened, then perform what it ordered; returns whether there is more to do at once."""
        now = self.engine.clock.monotonic()
        self.calls.enforce_limits(now)
        if self.peers.enabled and not self._has_place():
            return False
        more = self._record_round(self._schedule.is_due(now))
        if self._stopping > 1:
            return more
        now = self.engine.clock.monotonic()
        self._serve((self._work,), now)
        self._report()  # after the calls have begun, because they run meanwhile
        self._serve(self._upkeep, now)
        if more:
            self._work.mark()
        return more or bool(self.reports) or self._next_service() <= self.engine.clock.monotonic()

    def _record_round(self, look: bool) -> bool:
        """Record what this wake-up brought, and start the work it allows, in one transaction."""
        more, db = False, self.engine.store.db
        recorded, mail = db.total_changes, self._read_mail() if look else None
        with self.engine.batch():
            self._hear_of_standstill()
            self.calls.is_shut = self.paused is not None or self._stopping > 0
            self._try(Component.COLLECTING, self._collect)
            if self.engine.costs:
                self._capping.mark(0.0 if self.effects.starting.caps.hold else self.engine.clock.monotonic() + SOON)
            if (at := self.peers.gateway.due) is not None:  # perhaps because of how a turn has ended
                self._surroundings.gateway.mark(at)
            mono = self.engine.clock.monotonic()
            self._serve(self._inquiries, mono)
            if look and not self.health.is_troubled(Component.SCANNING):
                more = self._take_files(mail)
            if not look and self._work.due > mono and db.total_changes == recorded:
                return False
            self._work.mark()
            if look or self._next_due <= mono:  # else no order that is held can be due
                held_orders.carry_out_due(self.engine)
                self._filing.mark()  # of the message that a rejection leaves
            more = self.engine.tick(self.arrivals.read_until()) or more
            if not self.calls.is_shut:
                repetitions.run_due(self.arrivals.intake, self.engine)
            return self._begin() or more

    def _hear_of_standstill(self) -> None:
        """Take over, and record, that a person has paused all agents or let them go on; inside a batch."""
        latest = self.standstill()
        said = None if latest is None or latest.over else latest
        if said != self.paused:
            kind = Kind.HOST_PAUSED if said is not None else Kind.HOST_RESUMED
            told = said or latest or Standstill("somebody", self.engine.now, over=True)
            self.engine.record(Event(kind, None, {"at": self.engine.now, "said": asdict(told)}, actor=told.by))
            self.engine.store.meta.set_standstill(said)
            self.paused = said
            if said is not None:
                _log.warning("%s: nothing begins; `%s` ends that", said.text, OVER)

    def _begin(self) -> bool:
        """Start ready work, inside a batch; returns whether there is more to do at once."""
        over, clock, store = 0, self.engine.clock, self.engine.store
        capacity = self.calls.measure_capacity(clock.monotonic())
        if not self.arrivals.is_catching_up:
            if not capacity.is_shut:
                self.engine.schedule(capacity)
            begins = not (self.reserve.why or capacity.is_shut)
            over = self.effects.mark(capacity, begins=begins, gateway_is_down=self.peers.gateway.is_down)
        due = store.schedule.next_due(self.engine.now)
        self._next_due = NEVER if due is None else clock.monotonic() + to_epoch(due) - to_epoch(clock.now())
        return over > 0

    def _perform(self) -> float | None:
        """Perform what was ordered, and say when there is something to do again for tasks."""
        if self.calls.capacity.is_short:
            self._work.mark(self.engine.clock.monotonic() + _RETRY)
        if self.reserve.why:
            return self._next_due
        try:
            self.effects.perform()
        finally:
            soon = self.engine.clock.monotonic() + SOON if self.effects.starting.caps.waits else NEVER
            self._capping.mark(soon)
            self._work.mark(min(self._next_due, self.effects.starting.dispatches.due or NEVER, soon))
            if self.effects.posting.hub.is_changed:
                self._surroundings.hub.mark()
        return None

    def _serve(self, services: Iterable[Service], now: float) -> None:
        """Call the services that are due. One whose failure is reported is retried a few seconds later."""
        for service in services:
            if service.due > now:
                continue
            service.due = NEVER
            try:
                at = service.perform()
            except StoreError:
                raise
            except WorldError as error:
                if service.where is None:
                    raise
                self._failed(service.where, error)
                at = self.engine.clock.monotonic() + _RETRY
            else:
                if service.where is not None:
                    self._recovered(service.where)
            if at is not None:
                service.mark(at)

    def _next_service(self) -> float:
        """When the next service has to be called, at the latest (monotonic clock)."""
        return min([one.due + one.slack for one in (self._work, *self._inquiries, *self._upkeep)])

    def _has_place(self) -> bool:
        """Record what OpenClaw reports about its agents, and continue to ask; returns whether work may be done here."""
        self._poll_peers()
        if self.peers.must_wait:
            return False
        self.health.report(Component.PLACE, why := self._misplaced())
        return not why

    def _misplaced(self) -> str:
        """Why nothing may be done here, since OpenClaw runs the agent elsewhere; empty if it may, or is not known."""
        return "" if self.peers.must_wait or self.peers.misplaced is None else self.peers.misplaced.text

    def _poll_peers(self) -> None:
        if self.peers.is_asking:
            with self.engine.batch():
                self._try(Component.COLLECTING, lambda: self._take_ended(CallKind.DISCOVERY))
        self._try(Component.DISCOVERY, self.peers.continue_asking)

    def _report(self) -> None:
        """Log what was recorded, and clean up after calls whose end was."""
        if self.engine.store.last_recorded != self._logged_event:
            self._logged_event = self.on_events(self._logged_event)
            self._is_stale = True
            self.view.mark()
            self.effects.steering.perform()  # first, because a tool may end at any moment
            if self.prompts.enabled:
                self._prompting.mark()
            if self._listing.due == NEVER:
                self._listing.mark()
            if self._saving.due == NEVER:
                self._saving.mark()
        if self._is_stale:
            self._is_stale, self._writing.due = False, self._rendering.due(turns=bool(self.calls.running))
        if self.engine.broken != self._broken:
            self._broken = self.engine.broken
            self._surroundings.agents.mark()
        self.calls.discard_recorded()
        if (journal := self.engine.store.journal) is not None:
            journal.sync()  # while calls run, so that the next transaction need not wait for it

    # what follows a commit

    def _tidy(self) -> float:
        self.calls.remove_leftovers(self.engine.store.outbox.is_settled)
        self.effects.starting.tools.tidy(self.engine.store.outbox.is_settled)
        return self.engine.clock.monotonic() + _TIDY

    def _file(self) -> float | None:
        moved = self.archiving.perform()
        self.health.report(Component.LEFT, self.archiving.stuck, Grade.AMBER)
        return 0.0 if moved else None

    def _check_archive(self) -> float:
        """Check archived files, and restore missing ones."""
        archive_watch = self.archiving.archive_watch
        archive_watch.check()
        self.health.report(Component.ARCHIVE, archive_watch.why, Grade.AMBER)
        return archive_watch.due

    def _write(self) -> float | None:
        turns = bool(self.calls.running)
        written = self._rendering.perform(turns=turns, mail=self._schedule.mail)
        is_stale = written or self.engine.store.stale_files.exist()  # what was written is recorded later
        return self._rendering.due(turns=turns) if is_stale else None

    def _list(self) -> float | None:
        self.index.perform(self._logged_event)
        return self.index.due

    def _prompt(self) -> float | None:
        at = self.prompts.perform()
        self.health.report(Component.SURFACES, self.prompts.trouble or self.workboard.trouble, Grade.AMBER)
        return at

    def _sign(self) -> float:
        return 0.0 if self.heads.perform() else self.engine.clock.monotonic() + _TIDY

    # what a transaction records

    def _look_at_caps(self) -> float:
        """See what is spent of the day's caps; turns that waited for them may begin."""
        caps, was_capped = self.effects.starting.caps, self.engine.is_capped
        waited = bool(caps.waits)
        self.engine.policy()
        again = caps.perform()
        if waited or was_capped is not self.engine.is_capped:
            self._work.mark()
        self.health.report(Component.SPENDING, caps.trouble, Grade.AMBER)
        return again

    def _collect(self) -> None:
        """Record the results of calls, and what was done since the last transaction."""
        try:
            self._take_ended()
            self.orders.collect()
        finally:
            self.reports.record_all()

    def _take_ended(self, kind: CallKind | None = None) -> None:
        for call, exit_ in self.calls.ended(kind):
            self._work.mark()
            if call.kind is CallKind.DISCOVERY:
                self.peers.ended(call, exit_)
                self._surroundings.rules.mark()
                self._surroundings.agents.mark()
                if self.peers.too_old:
                    raise ConfigError(self.peers.too_old)
            elif call.kind is CallKind.PROMPT:
                if not self.workboard.ended(call, exit_):
                    self.prompts.ended(call, exit_)
                self._prompting.mark()
            else:
                self.effects.ended(call, exit_)

    def _read_mail(self) -> Mail | None:
        """Read the files of inbox/ before the transaction, so that no command waits while a large plan is parsed."""
        schedule, mono = self._schedule, self.engine.clock.monotonic()
        schedule.mail, schedule.file_ready_at = False, None
        self._filing.mark()
        if schedule.tasks:  # something outside has changed that is not known, or may have
            self._surroundings.rules.mark()
            self._surroundings.hub.mark()
            self._capping.mark()
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
        self._is_stale = self.engine.store.stale_files.exist()  # a file may be missing, without any event
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
        self.health.report(Component.POLLING, self.watcher.polls, Grade.AMBER)
        self.health.report(Component.WATCHING, self.watcher.problem, Grade.AMBER)
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
        clocked = (self._schedule.next, self._next_service(), self.health.next_beat, self.calls.next_deadline())
        moments = [moment - mono for moment in clocked if moment is not None]
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
        """Whether nothing runs, nothing is ordered, no retry is pending, and nothing is about to become a question.

        What is ordered does not count while everything is paused: it would keep this daemon until a person resumes it.
        Nor do turns count while a cap is reached: until the day ends or a person raises it.
        """
        store, turns_wait = self.engine.store, self.engine.is_capped
        return not (
            (self.calls.has_work() or self.reports)
            or self._schedule.mail
            or self._schedule.file_ready_at is not None
            or store.stale_files.exist()
            or self.archiving.waiting()
            or (self.paused is None and store.schedule.has_pending(self.engine.clock.now(), turns=not turns_wait))
            or (self.paused is None and not turns_wait and store.schedule.has_backoff(self.engine.clock.now()))
            or store.schedule.next_asked(self.engine.now) is not None
        )

    def _named(self, calls: Iterable[str]) -> str:
        """These running calls in words, by their tasks: `the turns of q3, q4`."""
        found = [self.calls.running[call] for call in calls]
        names = sorted({self.engine.store.tasks.local_id(call.task) for call in found if call.task})
        if not names:
            return _running_calls(len(found))
        what = "turn" if all(call.kind in (CallKind.TURN, CallKind.HARNESS_TURN) for call in found) else "call"
        more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
        return f"the {what}{'s' * (len(found) > 1)} of {', '.join(names[:_NAMED])}{more}"

    def _drain(self) -> None:
        """Wait for running calls to end, and meanwhile take mail and orders but begin nothing.

        The next daemon adopts the calls that have not ended.
        """
        self.prompts.close()
        if self._stopping and (running := self.calls.has_work()):
            _log.info("stopping: waiting for %s; a second signal stops without waiting", _running_calls(running))
        self._stopping = max(self._stopping, 1)  # also when idle: nothing begins any more
        monotonic, awaited = self.engine.clock.monotonic, set(self.calls.running)
        since, deadline = self.engine.clock.now(), monotonic() + self.pace.drain
        while (runs := awaited & self.calls.running.keys()) and self._stopping < 2 and monotonic() < deadline:
            self.health.stop(Stopping(since, plus(since, self.pace.drain), self._named(runs)))
            busy = self.round()
            self._sleep(0.0 if busy else min(1.0, max(deadline - monotonic(), 0.0)))
        self.health.stop(Stopping(since, since, ""))
        self.orders.close()
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


def _running_calls(count: int) -> str:
    return "one running call" if count == 1 else f"{count} running calls"
