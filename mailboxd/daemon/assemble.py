"""Puts the parts of a workspace together: all of them for the daemon, some for taking a workspace over."""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

from mailboxd.core.model import Task
from mailboxd.daemon import stale_database
from mailboxd.daemon.clawflow_import import ImportResult, import_workspace
from mailboxd.daemon.delegation_file import DelegationFile
from mailboxd.daemon.event_logging import EventLogger
from mailboxd.daemon.gateway_orders import GatewayOrders
from mailboxd.daemon.health_writer import Health
from mailboxd.daemon.loop import Daemon
from mailboxd.daemon.peers import Peers
from mailboxd.daemon.view_writer import ViewWriter
from mailboxd.engine import spending
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import Archiver, ArchiveWatch
from mailboxd.engine.intake.arrivals import Arrivals, SenderQuota
from mailboxd.engine.intake.daily_index import DailyIndex
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.open import engine
from mailboxd.engine.policy import PolicyRecord
from mailboxd.engine.reports import Reports
from mailboxd.errors import ConfigError, MessageError, UnavailableError, WorldError
from mailboxd.formats.config import Config, fingerprint, load
from mailboxd.formats.config.model import HarnessSection
from mailboxd.formats.config.settings import Pace, settings
from mailboxd.formats.keys import Keyring, Trust, signed, signer
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import directory, world_errors
from mailboxd.formats.mailbox.inbox import Inbox
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import deliver, require_directories
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.formats.mailbox.watcher import Watcher
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.user import standstills
from mailboxd.host import disk
from mailboxd.host.clock import SystemClock
from mailboxd.host.listening import listen
from mailboxd.host.pip_extras import to_add
from mailboxd.host.process import Reserve
from mailboxd.host.progress import Progress
from mailboxd.host.system import system
from mailboxd.host.wakeup import Wake
from mailboxd.host.zone import named
from mailboxd.hub.files.membership import HostKeys, Membership
from mailboxd.hub.files.view import HubView
from mailboxd.hub.wire.names import permits
from mailboxd.ledger import attention, signed_heads
from mailboxd.ledger.opening import open_workspace
from mailboxd.perform.acp_turns import HarnessTurns
from mailboxd.perform.action_performer import ActionPerformer
from mailboxd.perform.action_runner import setting
from mailboxd.perform.agents import process as programs
from mailboxd.perform.agents.acp import transport as acp
from mailboxd.perform.agents.gateway import transport as gateway
from mailboxd.perform.agents.gateway.transport import QUESTIONS, GatewayTransport, granted
from mailboxd.perform.agents.openclaw import OpenClaw, child_environment
from mailboxd.perform.agents.sidecar import Sidecar
from mailboxd.perform.answers_by_tool import AnswersByTool
from mailboxd.perform.check_runner import CheckRunner
from mailboxd.perform.day_caps import DayCaps
from mailboxd.perform.delivery import DispatchedMessages, MessageDelivery
from mailboxd.perform.effect_runner import EffectRunner
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.hub_mail import HubMail
from mailboxd.perform.lost_turns import TurnLookup
from mailboxd.perform.message_builder import MessageBuilder, PromptBuilder
from mailboxd.perform.notifier import PeopleNotifier
from mailboxd.perform.process_table import Caps, ProcessTable
from mailboxd.perform.question_prompts import QuestionPrompts
from mailboxd.perform.steering import Steering
from mailboxd.perform.turns import TurnStarter
from mailboxd.perform.workboard import Workboard
from mailboxd.surfaces.taskmd.schedule import Retention
from mailboxd.surfaces.taskmd.sync import TaskMarkdown

_log = logging.getLogger("mailboxd")

# Sidecars that the configuration asks for: typed tools, the page, metrics.

_OTLP = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE")
"""The variables with credentials for a receiver of traces, as OpenTelemetry names them."""


def services(ws: Workspace, config: Config) -> Iterator[Sidecar]:
    """Each as a process of its own, which opens the database as a command does. Raises ConfigError."""
    if config.mcp.port:
        open_port = partial(listen, config.mcp.port, "`mcp.port`")
        yield _service(ws, "mcp", ("mcp",), "connect", "mcp", "serve", "--http", listen=open_port)
    if config.web.port:
        yield _service(ws, "web", ("starlette", "uvicorn"), "web", "--port", str(config.web.port))
    if config.metrics.port or config.metrics.otlp_endpoint:
        yield _service(ws, "metrics", ("prometheus_client", "opentelemetry"), "export", "metrics", "--serve")


def _service(
    ws: Workspace, extra: str, needs: tuple[str, ...], *words: str, listen: Callable[[], socket.socket] | None = None
) -> Sidecar:
    """With `listen` it runs only while it is asked."""
    if any(find_spec(name) is None for name in needs):
        raise ConfigError(f"{ws.config}: `{extra}` is set, but the extra is missing: {to_add(extra)}")
    argv = [sys.executable, "-P", "-m", "mailboxd.cli", *words, "--until-eof", "-w", str(ws.root)]
    if listen is not None:
        argv.append("--on-demand")
    passed = _OTLP if extra == "metrics" else ()
    return Sidecar(f"mailboxd {extra}", argv, child_environment(os.environ, passed), listen)


_STEP = 10_000
"""Events after which a start that takes long says how far it is."""


def _say_what_is_verified(health: Health, what: str, done: int, total: int) -> None:
    if done % _STEP == 0 and total > _STEP:
        health.notifier.starting(f"verifying {what}: {done:,} of {total:,} events")
        if not done:
            _log.info("verifying %s before the start (%d events): the seal of the database is broken", what, total)


@contextmanager
def daemon(ws: Workspace, config: Config, health: Health, polls: str) -> Iterator[Daemon]:
    """The whole daemon; the caller holds the workspace's lock (`serving`). `polls`: why they cannot be watched.

    Raises ConfigError, WorldError; OutdatedError when the files know more than the database.
    """
    clock = SystemClock()
    with ExitStack() as held:
        report_missing(config)
        store = open_workspace(ws.database, clock.now(), thorough=True)
        held.callback(store.close)
        stale_database.require_newest(ws, store, partial(_say_what_is_verified, health))
        selector = held.enter_context(selectors.DefaultSelector())
        environment = child_environment(os.environ, config.openclaw.environment)
        openclaw, paired = OpenClaw(config.openclaw.command), gateway.pairing_file(ws.root, os.environ)
        carrier = gateway.chosen(config.openclaw.transport, openclaw, paired, environment)
        calls = _calls(ws, config, selector, environment, carrier)
        core = Engine(store, settings(config), clock, goes_on=True)
        made = put_together(ws, config, core, calls, health, polls)
        with core.batch():
            store.meta.report("configuration", fingerprint(config))
        held.callback(made.calls.leave)
        for part in (made.peers.gateway, made.reserve, made.watcher, made.wake):
            held.callback(part.close)
        if carrier is not None:
            held.callback(carrier.close)
            with suppress(UnavailableError, WorldError):  # the first turn tries again, and says why it fails
                carrier.warm_up()
        for service in services(ws, config):
            held.callback(service.stop)
            made.services.append(service)
        yield made


@contextmanager
def importer(ws: Workspace, config: Config) -> Iterator[Callable[[Progress], ImportResult]]:
    """Take over a workspace and hold its lock. Raises LockedError when a daemon runs there, WorldError."""
    clock = SystemClock()
    with lock.acquire(ws, clock.now()), engine(ws, config) as core:
        intake = Intake(core, accept_plain=config.inbox.accept_plain_files)
        taskmd = TaskMarkdown(core, intake, TaskFiles(ws, settle_seconds=0.0), Templates(ws.templates), Reports(core))

        def take_over(progress: Progress) -> ImportResult:
            with core.batch():
                return import_workspace(core, ws, taskmd, progress)

        yield take_over


@dataclass(slots=True)
class _WhyInvalid:
    """Why the configuration of a workspace is invalid; read again only when the file has changed."""

    ws: Workspace
    _seen: int = 0
    _why: str = ""

    def __call__(self) -> str:
        changed = self.ws.config.stat().st_ctime_ns if self.ws.config.exists() else -1
        if changed != self._seen:
            item = attention.of_configuration(self.ws, os.getpid())
            self._seen, self._why = changed, item.text if item is not None else ""
        return self._why


def put_together(
    ws: Workspace, config: Config, core: Engine, calls: ProcessTable, health: Health, polls: str
) -> Daemon:
    """A daemon over an engine and a table of calls: what a simulation puts there it then runs with."""
    reports = Reports(core)
    openclaw = OpenClaw(config.openclaw.command)
    membership = Membership.of(os.environ)
    view = HubView(ws, config.agent, membership.state)
    peers = Peers(core, calls, openclaw, config.agent, enabled=config.openclaw.discovery, root=ws.root, hub=view)
    core.policy = PolicyRecord(core, ws, config, os.environ, "daemon", lives=True)
    core.may_reach, core.is_gone, core.is_remote = peers.may_reach, peers.is_gone, peers.is_remote
    templates = Templates(ws.templates)
    trust = Trust.of(Keyring.of(ws.root, os.environ), config.agent, config.signing.require)
    trust.host_key, trust.host = HostKeys(membership), lambda: view.info.host if view.info else ""
    trust.decides = lambda host: permits(membership.settings().decide, host)
    trust.serves = view.is_own
    hub = HubMail(view, lambda raw: signed(raw, membership.key()), peers.is_local)
    intake = Intake(core, accept_plain=config.inbox.accept_plain_files, trust=trust)
    taskmd = TaskMarkdown(core, intake, TaskFiles(ws, settle_seconds=config.inbox.settle_seconds), templates, reports)
    with world_errors(f"listen in {ws.state}"):
        wake = Wake(calls.selector, ws.state)
    quota = SenderQuota(config.limits.sender_messages, config.limits.sender_bytes)
    watcher = Watcher(ws, wake, polls)
    carrier = calls.launcher if isinstance(calls.launcher, GatewayTransport) else None
    gateway_calls = GatewayCalls(openclaw.command, carrier)
    inbox, patience = _inbox(ws, config, watcher), config.inbox.incomplete_seconds
    return Daemon(
        engine=core,
        arrivals=Arrivals(core, intake, inbox, patience, quota, partial(require_directories, ws)),
        effects=_effect_runner(ws, config, peers, templates, taskmd, reports, hub, gateway_calls),
        prompts=QuestionPrompts(core, calls, gateway_calls, config.notify.prompts and _may_ask(carrier)),
        # only over the connection do cards cost less than a process each
        workboard=Workboard(core, calls, gateway_calls, config.notify.workboard and carrier is not None),
        archiving=Archiver(core, ws, reports, ArchiveWatch(core, ws, reports)),
        taskmd=taskmd,
        index=DailyIndex(core.store, ws, core.clock),
        retention=Retention(core, ws, taskmd.files, config.tasks.keep_days * 86_400.0, reports),
        delegation=DelegationFile(ws, config, core, peers),
        heads=signed_heads.SignedHeads(core.store, core.clock, signed_heads.signer(ws, os.environ)),
        peers=peers,
        calls=calls,
        watcher=watcher,
        wake=wake,
        health=health,
        pace=_pace(config),
        reports=reports,
        reserve=Reserve(),
        room=partial(disk.why_low, ws.root),
        configuration=_WhyInvalid(ws),
        orders=GatewayOrders(core, ws, calls.selector, carrier, calls.environment),
        view=ViewWriter(core, ws),
        standstill=standstills.StandstillWatch(os.environ),
        on_events=EventLogger(core.store).log_after,
    )


def report_missing(config: Config) -> None:
    """Log each program that turns need and that is not there; else they would fail one by one."""
    environ = child_environment(os.environ, config.openclaw.environment)
    wanted = {"openclaw.command": config.openclaw.command[0]}
    for name, harness in config.acp.harnesses.items():
        wanted[f"acp.harnesses.{name}.argv"] = harness.argv[0]
    for key, program in wanted.items():
        if shutil.which(program, path=environ.get("PATH")) is None:
            _log.error(
                "%s: %r was not found on the PATH, so no turn can use it: install it or correct the key", key, program
            )


def _calls(
    ws: Workspace,
    config: Config,
    selector: selectors.BaseSelector,
    environment: Mapping[str, str],
    carrier: GatewayTransport | None,
) -> ProcessTable:
    limits = config.limits
    caps = Caps(limits.turns, limits.turns_per_agent or limits.turns, limits.call_bytes)
    if carrier is not None:
        caps = replace(caps, call_bytes=gateway.TURN_BYTES, programs=gateway.PROGRAMS)
    with (
        world_errors(f"keep calls in {ws.turns}"),
        suppress(FileNotFoundError),
        directory(ws.root, ws.state.name, ws.turns.name),
    ):
        pass  # not a link: prompts are written there, by its path
    return ProcessTable(
        ws.turns,
        selector,
        environment,
        limits.output_bytes,
        config.shutdown.grace_seconds,
        caps,
        system.available_memory,
        carrier or programs,
    )


def _inbox(ws: Workspace, config: Config, watcher: Watcher) -> Inbox:
    return Inbox(
        ws,
        watcher.arrived,
        settle_seconds=config.inbox.settle_seconds,
        incomplete_seconds=config.inbox.incomplete_seconds,
        max_bytes=config.limits.message_bytes,
    )


def _pace(config: Config) -> Pace:
    return Pace(
        rescan=config.inbox.rescan_seconds,
        render=config.tasks.render_seconds,
        drain=config.shutdown.drain_seconds,
    )


def _effect_runner(
    ws: Workspace,
    config: Config,
    peers: Peers,
    templates: Templates,
    taskmd: TaskMarkdown,
    reports: Reports,
    hub: HubMail,
    gateway_calls: GatewayCalls,
) -> EffectRunner:
    core, calls, openclaw = peers.engine, peers.calls, peers.openclaw
    keep = partial(_keep_result, ws)
    bytes_ = (config.limits.context_bytes, config.limits.background_bytes)
    prompting = PromptBuilder(
        config.agent, core.store, templates, core.settings.limits, *bytes_, keep, peers.offered, named(config.zone)
    )
    outgoing = MessageBuilder(config.agent, core.store, templates, keep, prompting, hub)
    transport = gateway_calls.transport
    dispatcher = transport or openclaw
    sign = signer(Keyring.of(ws.root, os.environ))
    posting = MessageDelivery(core, calls, dispatcher, outgoing, ws, peers.route, reports, hub, sign, peers.gateway)
    dispatches = DispatchedMessages(core, ws, reports)
    by_tools = config.answers.by == "auto"
    tools = AnswersByTool(core, calls, ws, gateway_calls, reports, by_tools, peers.hides_tools)
    recovery = TurnLookup(core, calls, openclaw, reports, peers.gateway, transport, tools.hold)
    checking = CheckRunner(core, calls, ws, os.environ, reports)
    harnesses = HarnessTurns(core, calls, ws, _harnesses(config), os.environ, reports)
    performing = ActionPerformer(core, calls, setting(ws, config, os.environ), config.approvals.lobster, reports)
    page = config.notify.link or (f"http://127.0.0.1:{config.web.port}" if config.web.port else "")
    notifying = PeopleNotifier(
        core, calls, ws, config.notify, gateway_calls, reports, zone=named(config.zone), page=page, together=True
    )
    boot = system.boot_id()
    of_agent = spending.LiveCaps(str(ws.config), lambda: spending.of_agent(load(ws.config)), spending.of_agent(config))
    host_file, of_user = spending.host_file(os.environ), partial(spending.of_host, os.environ)
    of_host = spending.LiveCaps(str(host_file), of_user, spending.UNCONFIRMED)
    caps = DayCaps(core, calls, spending.Ledger.of(os.environ, ws), of_agent, of_host, named(config.zone))
    starting = TurnStarter(
        core, calls, dispatcher, outgoing, dispatches, harnesses, sign, boot, reports, hub, tools, caps
    )
    steering = Steering(core, ws)
    performers = (starting, posting, recovery, checking, harnesses, performing, notifying, steering)
    return EffectRunner(core, calls, outgoing, *performers, taskmd.scan_task, reports)


def _may_ask(carrier: GatewayTransport | None) -> bool:
    """Whether the paired device has the scope for prompts."""
    return carrier is not None and QUESTIONS in granted(carrier.pairing)


def _harnesses(config: Config) -> Mapping[str, HarnessSection]:
    if config.acp.harnesses:
        acp.require_extra()
    return config.acp.harnesses


def _keep_result(ws: Workspace, task: Task, kind: str, text: str) -> str:
    """A text that is too long to be carried whole, as a file that can be read; relative to the workspace."""
    folder = task.task_id if task.parent else task.local_id  # a child's task_id is the local id of its parent
    try:
        with directory(ws.root, "tasks") as tasks, suppress(FileExistsError):
            os.mkdir(folder, 0o700, dir_fd=tasks)
        name = f"{kind}-{task.key or task.local_id}.md"
        name = deliver(ws.tasks / folder, name, text.encode(), below=ws.root)
    except (OSError, WorldError) as error:
        problem = f"its full result cannot be kept: {error}"
        raise MessageError("obstructed", problem, "Make room for that directory.", f"tasks/{folder}") from error
    return f"tasks/{folder}/{name}"
