"""Puts the parts of a workspace together: all of them for the daemon, some for taking a workspace over."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from mailboxd import heads, older
from mailboxd.agents import memory
from mailboxd.agents.acp import transport as acp
from mailboxd.agents.dispatcher import Dispatcher
from mailboxd.agents.gateway import transport as gateway
from mailboxd.agents.liveness import boot_id
from mailboxd.agents.openclaw import OpenClaw, child_environment
from mailboxd.clock import SystemClock
from mailboxd.config import Config
from mailboxd.config.acp import HarnessSection
from mailboxd.core.types import Task
from mailboxd.daemon import beside
from mailboxd.daemon.loop import Daemon
from mailboxd.daemon.narrating import Narrator
from mailboxd.daemon.pulse import Health
from mailboxd.effects.calls import Calls, Caps
from mailboxd.effects.checking import Checking
from mailboxd.effects.dispatches import Dispatches
from mailboxd.effects.harnesses import Harnesses
from mailboxd.effects.notifying import Notifying, Ways
from mailboxd.effects.outgoing import Outgoing
from mailboxd.effects.performing import Performing
from mailboxd.effects.posting import Posting
from mailboxd.effects.preparing import Preparing
from mailboxd.effects.prompting import Prompting
from mailboxd.effects.recovery import Recovery
from mailboxd.effects.relay import Relay
from mailboxd.effects.starting import Starting
from mailboxd.engine import Engine
from mailboxd.entrance import engine, setting, settings
from mailboxd.errors import MessageError, WorldError
from mailboxd.host import disk
from mailboxd.host.reserve import Reserve
from mailboxd.host.wake import Wake
from mailboxd.importing import Account, import_workspace
from mailboxd.inbox.archiving import Archiving
from mailboxd.inbox.arrivals import Arrivals
from mailboxd.inbox.custody import Custody
from mailboxd.inbox.intake import Intake
from mailboxd.inbox.senders import Timetable
from mailboxd.keys.ring import Ring
from mailboxd.keys.trust import Trust, signer
from mailboxd.messages.templates import Templates
from mailboxd.peers import Peers
from mailboxd.progress import Progress
from mailboxd.settings import Pace
from mailboxd.store.opening import open_workspace
from mailboxd.taskfiles.retention import Retention
from mailboxd.taskfiles.taskmd import TaskMarkdown
from mailboxd.workspace import lock
from mailboxd.workspace.files import directory, world_errors
from mailboxd.workspace.inbox import Inbox
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.mail import deliver, require_places
from mailboxd.workspace.taskfiles import TaskFiles
from mailboxd.workspace.watcher import Watcher


@contextmanager
def daemon(ws: Workspace, config: Config, health: Health, polls: str) -> Iterator[Daemon]:
    """The whole daemon; the caller holds the workspace's lock (`serving`). `polls`: why nothing can be heard there.

    Raises ConfigError, WorldError; OutdatedError when the files know more than the database.
    """
    clock = SystemClock()
    with ExitStack() as held:
        store = open_workspace(ws.database, clock.now(), thorough=True)
        held.callback(store.close)
        older.require_newest(ws, store, clock.now())
        selector = held.enter_context(selectors.DefaultSelector())
        calls = _calls(ws, config, selector)
        made = put_together(ws, config, Engine(store, settings(config), clock), calls, health, polls)
        held.callback(made.calls.leave)
        for part in (made.peers.gateway, made.reserve, made.watcher, made.wake):
            held.callback(part.close)
        for service in beside.services(ws, config):
            held.callback(service.stop)
            made.services.append(service)
        yield made


@contextmanager
def importer(ws: Workspace, config: Config) -> Iterator[Callable[[Progress], Account]]:
    """What takes a workspace over, holding its lock. Raises LockedError when a daemon runs there, WorldError."""
    clock = SystemClock()
    with lock.acquire(ws, clock.now()), engine(ws, config) as core:
        intake = Intake(core, accept_plain=config.inbox.accept_plain_files)
        taskmd = TaskMarkdown(core, intake, TaskFiles(ws, settle_seconds=0.0), Templates(ws.templates), [])

        def take_over(progress: Progress) -> Account:
            with core.batch():
                return import_workspace(core, ws, taskmd, progress)

        yield take_over


def put_together(ws: Workspace, config: Config, core: Engine, calls: Calls, health: Health, polls: str) -> Daemon:
    """A daemon over an engine and a table of calls: what a simulation puts there it then runs with."""
    reports: list[Callable[[], None]] = []
    openclaw = OpenClaw(config.openclaw.command)
    core.room = lambda: calls.room(core.clock.monotonic())
    peers = Peers(core, calls, openclaw, config.agent, enabled=config.openclaw.discovery)
    core.may_reach, core.is_gone = peers.may_reach, peers.is_gone
    templates = Templates(ws.templates)
    trust = Trust.of(Ring.of(ws.root, os.environ), config.agent, config.signing.require)
    intake = Intake(core, accept_plain=config.inbox.accept_plain_files, trust=trust)
    taskmd = TaskMarkdown(core, intake, TaskFiles(ws, settle_seconds=config.inbox.settle_seconds), templates, reports)
    with world_errors(f"listen in {ws.state}"):
        wake = Wake(calls.selector, ws.state)
    timetable = Timetable(config.limits.sender_messages, config.limits.sender_bytes)
    watcher = Watcher(ws, calls.selector, wake.poke, polls)
    inbox, patience = _inbox(ws, config, watcher), config.inbox.incomplete_seconds
    return Daemon(
        engine=core,
        arrivals=Arrivals(core, intake, inbox, patience, timetable, partial(require_places, ws)),
        relay=_relay(ws, config, peers, templates, taskmd, reports),
        archiving=Archiving(core, ws, reports, Custody(core, ws, reports)),
        taskmd=taskmd,
        retention=Retention(core, taskmd.files, config.tasks.keep_days * 86_400.0, reports),
        heads=heads.Heads(core, ws, heads.signer(ws, os.environ), reports),
        peers=peers,
        calls=calls,
        watcher=watcher,
        wake=wake,
        health=health,
        pace=_pace(config),
        reports=reports,
        reserve=Reserve(),
        room=partial(disk.why_low, ws.root),
        on_events=Narrator(core.store).tell,
    )


def _calls(ws: Workspace, config: Config, selector: selectors.BaseSelector) -> Calls:
    limits = config.limits
    with (
        world_errors(f"keep calls in {ws.turns}"),
        suppress(FileNotFoundError),
        directory(ws.root, ws.state.name, ws.turns.name),
    ):
        pass  # it is no link: prompts are written there, by its path
    return Calls(
        ws.turns,
        selector,
        child_environment(os.environ, config.openclaw.environment),
        limits.output_bytes,
        config.shutdown.grace_seconds,
        Caps(limits.turns, limits.turns_per_agent, limits.call_bytes),
        memory.available,
    )


def _inbox(ws: Workspace, config: Config, watcher: Watcher) -> Inbox:
    return Inbox(
        ws,
        watcher.renamed,
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


def _relay(
    ws: Workspace,
    config: Config,
    peers: Peers,
    templates: Templates,
    taskmd: TaskMarkdown,
    reports: list[Callable[[], None]],
) -> Relay:
    core, calls, openclaw = peers.engine, peers.calls, peers.openclaw
    keep = partial(_keep_result, ws)
    bytes_, offered = config.limits.context_bytes, peers.offered
    prompting = Prompting(config.agent, core.store, templates, core.settings.limits, bytes_, keep, offered)
    outgoing = Outgoing(config.agent, core.store, templates, keep, prompting)
    dispatcher: Dispatcher = openclaw
    if config.openclaw.transport == "gateway":
        dispatcher = gateway.ready(openclaw, gateway.pairing_file(ws.root, os.environ))
    sign = signer(Ring.of(ws.root, os.environ))
    posting = Posting(core, calls, dispatcher, outgoing, ws, peers.route, reports, sign, peers.gateway)
    dispatches = Dispatches(core, ws, reports)
    recovery = Recovery(core, calls, openclaw, reports, peers.gateway)
    checking = Checking(core, calls, ws, os.environ, reports)
    harnesses = Harnesses(core, calls, ws, _harnesses(config), config.acp.acpx, os.environ, reports)
    preparing = Preparing(core, calls, setting(ws, config, os.environ), config.approvals.lobster, reports)
    performing = Performing(preparing)
    told = config.approvals
    channel = (told.notify_channel, told.notify_target, told.notify_account)
    notifying = Notifying(core, calls, ws, Ways(told.notify_command, *channel, openclaw.command), reports)
    starting = Starting(core, calls, dispatcher, outgoing, dispatches, harnesses, sign, boot_id(), reports)
    performers = (starting, posting, recovery, checking, harnesses, performing, notifying)
    return Relay(core, calls, outgoing, *performers, taskmd.look_at, reports)


def _harnesses(config: Config) -> Mapping[str, HarnessSection]:
    if any(harness.backend == "direct" for harness in config.acp.harnesses.values()):
        acp.require_extra()
    return config.acp.harnesses


def _keep_result(ws: Workspace, task: Task) -> str:
    """A result that is too long to be carried whole, as a file that can be read; relative to the workspace."""
    folder = task.task_id if task.parent else task.local_id  # a child's task_id is the local id of its parent
    try:
        with directory(ws.root, "tasks") as tasks, suppress(FileExistsError):
            os.mkdir(folder, 0o700, dir_fd=tasks)
        name = f"result-{task.key or task.local_id}.md"
        name = deliver(ws.tasks / folder, name, task.result.encode(), below=ws.root)
    except (OSError, WorldError) as error:
        problem = f"its whole result cannot be kept: {error}"
        raise MessageError("obstructed", problem, "Make room for that directory.", f"tasks/{folder}") from error
    return f"tasks/{folder}/{name}"
