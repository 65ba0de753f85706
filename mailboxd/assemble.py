"""Puts the parts of a workspace together: for the daemon all of them, for a command the engine alone."""

from __future__ import annotations

import logging
import os
import selectors
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from mailboxd import config as configuration
from mailboxd.agents.openclaw import OpenClaw, child_environment, inside_agent
from mailboxd.archiving import Archiving
from mailboxd.arrivals import Arrivals
from mailboxd.calls import Calls
from mailboxd.clock import SystemClock
from mailboxd.config import Config
from mailboxd.core.describe import describe
from mailboxd.core.events import Kind
from mailboxd.core.types import Task
from mailboxd.daemon import Daemon, Pace
from mailboxd.engine import Engine, Settings
from mailboxd.errors import ConfigError, MessageError, WorldError
from mailboxd.intake import Intake
from mailboxd.messages.templates import Templates
from mailboxd.outgoing import Outgoing
from mailboxd.peers import Peers
from mailboxd.posting import Posting
from mailboxd.recovery import Recovery
from mailboxd.relay import Relay
from mailboxd.sdnotify import Notifier
from mailboxd.store import log
from mailboxd.store.store import Store
from mailboxd.taskmd import TaskMarkdown
from mailboxd.wake import Wake
from mailboxd.workspace import lock
from mailboxd.workspace.inbox import Inbox
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.mail import deliver
from mailboxd.workspace.taskfiles import TaskFiles
from mailboxd.workspace.watcher import Watcher

_log = logging.getLogger("mailboxd")


def settings(config: Config) -> Settings:
    """What decisions read of the configuration."""
    return Settings(
        agent=config.agent,
        policy=configuration.policy(config),
        limits=configuration.limits(config),
        jitter_share=config.retry.jitter,
        slots=config.limits.turns,
        slots_per_agent=config.limits.turns_per_agent,
    )


@contextmanager
def engine(ws: Workspace, config: Config) -> Iterator[Engine]:
    """The engine for a command: it records, and leaves effects to the daemon. Raises WorldError."""
    clock = SystemClock()
    store = Store.open(ws.database, clock.now())
    try:
        yield Engine(store, settings(config), clock)
    finally:
        store.close()


@contextmanager
def daemon(ws: Workspace, config: Config) -> Iterator[Daemon]:
    """The whole daemon, holding the workspace's lock.

    Raises LockedError when another one runs there, ConfigError inside an agent's turn, WorldError.
    """
    if inside_agent(os.environ):
        raise ConfigError(
            "OPENCLAW_SHELL is set: this is a shell inside an agent's turn, where OpenClaw refuses to call agents. "
            "Start the daemon from the operator's own shell or from systemd."
        )
    clock = SystemClock()
    with ExitStack() as held:
        held.enter_context(lock.acquire(ws, clock.now()))
        store = Store.open(ws.database, clock.now())
        held.callback(store.close)
        selector = held.enter_context(selectors.DefaultSelector())
        made = _put_together(ws, config, Engine(store, settings(config), clock), selector)
        held.callback(made.watcher.close)
        held.callback(made.wake.close)
        yield made


def _put_together(ws: Workspace, config: Config, core: Engine, selector: selectors.BaseSelector) -> Daemon:
    reports: list[Callable[[], None]] = []
    openclaw = OpenClaw(config.openclaw.command)
    environment = child_environment(os.environ, config.openclaw.environment)
    calls = Calls(ws.turns, selector, environment, config.limits.output_bytes, config.shutdown.grace_seconds)
    peers = Peers(core, calls, openclaw, config.agent, enabled=config.openclaw.discovery)
    core.may_reach = peers.may_reach
    templates = Templates(ws.templates)
    intake = Intake(core, accept_plain=config.inbox.accept_plain_files)
    taskmd = TaskMarkdown(core, intake, TaskFiles(ws, settle_seconds=config.inbox.settle_seconds), templates, reports)
    wake = Wake(selector, ws.state)
    return Daemon(
        engine=core,
        arrivals=Arrivals(core, intake, _inbox(ws, config), config.inbox.incomplete_seconds),
        relay=_relay(ws, config, peers, templates, taskmd, reports),
        archiving=Archiving(core, ws, reports),
        taskmd=taskmd,
        peers=peers,
        calls=calls,
        watcher=Watcher(ws, wake.poke),
        wake=wake,
        notifier=Notifier(os.environ),
        pace=_pace(config),
        reports=reports,
        on_events=lambda before: _narrate(core.store, before),
    )


def _inbox(ws: Workspace, config: Config) -> Inbox:
    return Inbox(
        ws,
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
    outgoing = Outgoing(
        config.agent,
        core.store,
        templates,
        core.settings.limits,
        config.limits.context_bytes,
        lambda task: _keep_result(ws, task),
        peers.offered,
    )
    posting = Posting(core, calls, openclaw, outgoing, ws, peers.route, reports)
    recovery = Recovery(core, calls, openclaw, reports)
    return Relay(core, calls, openclaw, outgoing, posting, recovery, taskmd.look_at, reports)


def _keep_result(ws: Workspace, task: Task) -> str:
    """A result that is too long to be carried whole, as a file that can be read; relative to the workspace."""
    folder = task.task_id if task.parent else task.local_id  # a child's task_id is the local id of its parent
    try:
        (ws.tasks / folder).mkdir(mode=0o700, exist_ok=True)
        name = deliver(ws.tasks / folder, f"result-{task.key or task.local_id}.md", task.result.encode())
    except (OSError, WorldError) as error:
        problem = f"its whole result cannot be kept: {error}"
        raise MessageError("obstructed", problem, "Make room for that directory.", f"tasks/{folder}") from error
    return f"tasks/{folder}/{name}"


_QUIET = frozenset({Kind.MESSAGE_FILED, Kind.ATTEMPT_CHECKPOINT, Kind.TASK_AMENDED, Kind.ARTIFACT_RECORDED})


def _narrate(store: Store, told: int) -> int:
    """Each event since `told` as a line of the log, in the words that `history` uses."""
    if not _log.isEnabledFor(logging.INFO):
        return told
    for recorded in log.read(store.db, after=told):
        told, event = recorded.seq, recorded.event
        level = logging.DEBUG if event.kind in _QUIET else logging.INFO
        name = store.local_id(event.task) if event.task else ""
        _log.log(level, "%s", describe(event, name), extra={"task": name} if name else {})
    return told
