"""Gathers the facts: what is cheap at once, what OpenClaw has to say in threads, for each question costs seconds.

A probe that fails, in whatever way, leaves its fact out and its reason in; the others go on.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from mailboxd import config as configuration
from mailboxd.agents.gateway.transport import pairing_file
from mailboxd.agents.json_output import brief
from mailboxd.agents.nesting_guard import inside_agent
from mailboxd.agents.openclaw import MINIMUM_VERSION, OpenClaw, child_environment
from mailboxd.clock import Clock
from mailboxd.config.model import AcpSection, LimitsSection, OpenClawSection
from mailboxd.doctor import agent, canary, harnesses, keys, machine, openclaw, workspace
from mailboxd.doctor import workspace as looking
from mailboxd.doctor.facts import Facts, Failure, Finding, Settings, warning
from mailboxd.doctor.keys import probe_keys
from mailboxd.doctor.openclaw import Questions, probe_transport
from mailboxd.errors import MailboxdError
from mailboxd.host import process
from mailboxd.integration.plugin import plugin_state
from mailboxd.integration.skill import skill_state
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.integrity import examine

AT_ONCE = 3
"""Questions to OpenClaw at the same time: each is a Node of 215 MB that keeps a core busy for a second."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is examined. `named` is a directory that was named as a workspace and is none."""

    ws: Workspace | None
    settings: Settings
    questions: Questions
    named: str = ""
    acp: AcpSection = field(default_factory=AcpSection)
    pairing: Path | None = None
    """Where the paired device is kept, if turns go over the gateway's WebSocket."""
    environ: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    """From whom nothing is taken unsigned."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One look: the name of its fact, what it is called, how a person looks, and the look itself."""

    fact: str
    name: str
    by_hand: str
    look: Callable[[], Any]


def subject(ws: Workspace | None, named: str, environ: Mapping[str, str]) -> Subject:
    """What there is to examine: the workspace with its configuration, or with none or a wrong one the defaults."""
    limits, openclaw, acp = LimitsSection(), OpenClawSection(), AcpSection()
    agent = problem = ""
    pairing: Path | None = None
    required: tuple[str, ...] = ()
    if ws is not None:
        try:
            config = configuration.load(ws.config)
            limits, openclaw, acp, agent = config.limits, config.openclaw, config.acp, config.agent
            required = tuple(config.signing.require)
            pairing = pairing_file(ws.root, environ) if openclaw.transport == "gateway" else None
        except MailboxdError as error:
            problem = str(error)
    path = str(ws.config) if ws is not None else ""
    settings = Settings(path, limits.turns, limits.call_bytes, agent, problem, shlex.join(openclaw.command))
    environment = child_environment(environ, openclaw.environment)
    questions = Questions(OpenClaw(openclaw.command), environment, agent)
    return Subject(ws, settings, questions, named, acp, pairing, environ, required)


def gather(
    about: Subject, environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None], *, near: bool = False
) -> Facts:
    """All facts, or those that are `near`: of this machine and the workspace, without asking OpenClaw anything.

    `tell` is given the name of what is looked at next. Raises nothing of a probe's.
    """
    known: dict[str, Any] = {}
    failures: list[Failure] = []
    for stage in (_near,) if near else (_near, _program, _openclaw, _plugin):
        for probe, value in _in_parallel(stage(about, known, clock), tell):
            if isinstance(value, Exception):
                failures.append(Failure(probe.name.replace(" ", "-"), _reason(value), probe.by_hand))
            else:
                known[probe.fact] = value
    return Facts(
        settings=about.settings,
        python=sys.version_info[:3],
        inside_agent=inside_agent(environ),
        named=about.named,
        failures=tuple(failures),
        now=clock.now(),
        **known,
    )


def _near(about: Subject, _: Mapping[str, Any], clock: Clock) -> Iterator[Probe]:
    yield Probe("inotify", "inotify", "sysctl fs.inotify", machine.probe_inotify)
    yield Probe("memory", "memory", "free", process.available)
    yield Probe("open_files", "open files", "ulimit -n", machine.probe_open_files)
    yield Probe("synchronised", "clock", "timedatectl", machine.synchronised)
    ws = about.ws
    if ws is None:
        return
    root = shlex.quote(str(ws.root))
    yield Probe("place", "workspace", f"ls -la {root}", lambda: looking.place(ws))
    yield Probe("filesystem", "file system", f"findmnt -T {root}", lambda: looking.probe_filesystem(ws, clock.now()))
    yield Probe("daemon", "daemon", "mailboxd status", lambda: looking.probe_daemon(ws))
    yield Probe("leftovers", "mailbox", f"ls -la {root}/mailbox", lambda: looking.probe_leftovers(ws, clock.now()))
    signatures = lambda: probe_keys(ws.root, about.required, about.environ)  # noqa: E731
    yield Probe("keys", "keys", "mailboxd keys list", signatures)
    yield Probe("database", "database", "mailboxd history --verify", lambda: examine(ws.database))
    yield Probe("skill", "skill", "mailboxd skill status", lambda: skill_state(ws.root))
    info = lambda: harnesses.probe_harnesses(ws.root, about.acp, about.environ)  # noqa: E731
    yield Probe("harnesses", "harnesses", "mailboxd config", info)


def _program(about: Subject, _: Mapping[str, Any], __: Clock) -> Iterator[Probe]:
    ask = about.questions
    program = shlex.quote(ask.openclaw.command[0])
    yield Probe("program", "openclaw", f"command -v {program}", ask.program)
    if ask.program().path is not None:
        yield Probe("release", "openclaw version", f"{program} --version", ask.release)
        yield Probe("runtime", "node", "node --version", ask.runtime)


def _openclaw(about: Subject, known: Mapping[str, Any], clock: Clock) -> Iterator[Probe]:
    ask, release = about.questions, known.get("release")
    if release is None or release.version is None or release.version < MINIMUM_VERSION:
        return
    yield Probe("peers", "agents", "openclaw agents list", ask.peers)
    yield Probe("agents", "allow lists", "openclaw config get agents --json", ask.agents)
    yield Probe("tools", "tools", "openclaw config get tools --json", lambda: ask.tools(release.version))
    if known["program"].stand_in:
        return
    plugin = lambda: plugin_state(ask.openclaw, ask.environment)  # noqa: E731
    yield Probe("gateway", "gateway", "openclaw gateway status", ask.gateway)
    device = about.pairing
    if device is not None:
        yield Probe(
            "transport", "transport", "mailboxd gateway status", lambda: probe_transport(ask.openclaw, device, clock)
        )
    yield Probe("plugin", "plugin", "mailboxd plugin status", plugin)
    if about.settings.agent:
        yield Probe("exec_policy", "exec approvals", "openclaw approvals get", ask.exec_policy)


def _plugin(about: Subject, known: Mapping[str, Any], clock: Clock) -> Iterator[Probe]:
    """What the plugin of the running gateway does with a message: OpenClaw's word for it is not enough."""
    state, gateway = known.get("plugin"), known.get("gateway")
    if about.ws is None or not about.settings.agent or state is None or state.problem:
        return
    if gateway is not None and gateway.connected and not gateway.failing:
        yield Probe("plugin_answer", "plugin answer", "mailboxd doctor --canary", lambda: canary.knock(about, clock))


def _reason(problem: Exception) -> str:
    """What a person is told of a probe that failed; a bug of ours in one must not hide what the others found."""
    text = brief(str(problem))
    return text if isinstance(problem, OSError | MailboxdError) and text else f"{type(problem).__name__} {text}".strip()


def _in_parallel(probes: Iterable[Probe], tell: Callable[[str], None]) -> Iterator[tuple[Probe, Any]]:
    """Each probe with what it found, or with the exception that it ended in, at most `AT_ONCE` at a time.

    The threads do not keep the program alive: whoever interrupts it does not wait for OpenClaw.
    """
    waiting: Sequence[Probe] = list(probes)
    queue: SimpleQueue[Probe] = SimpleQueue()
    done: SimpleQueue[tuple[Probe, Any]] = SimpleQueue()
    for probe in waiting:
        queue.put(probe)

    def work() -> None:
        with suppress(Empty):
            while True:
                probe = queue.get_nowait()
                tell(probe.name)
                done.put((probe, _looked(probe)))

    for _ in range(min(AT_ONCE, len(waiting))):
        Thread(target=work, daemon=True).start()
    for _ in waiting:
        yield done.get()


def _looked(probe: Probe) -> Any:
    try:
        return probe.look()
    except Exception as problem:
        return problem


def workspace_at(start: Path, explicit: Path | None) -> tuple[Workspace | None, str]:
    """The workspace, or None; and the directory that was named as one and is none."""
    try:
        return Workspace.find(start, explicit), ""
    except MailboxdError:
        return None, str(explicit.resolve()) if explicit is not None else ""


# ---------------------------------------------------------------------------------------------------------------------
# All checks, in the order of the report. This is the list to add one to.

Check = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Group:
    """Findings that belong together."""

    name: str
    checks: tuple[Check, ...]


GROUPS = (
    Group(
        "machine",
        (
            machine.python,
            machine.inside_agent,
            machine.inotify,
            machine.memory,
            machine.open_files,
            machine.clock,
        ),
    ),
    Group(
        "openclaw",
        (
            openclaw.program,
            openclaw.node,
            openclaw.version,
            openclaw.gateway,
            openclaw.gateway_version,
            openclaw.transport,
            openclaw.lane,
            agent.plugin,
        ),
    ),
    Group(
        "agent",
        (
            agent.agent,
            agent.workspace,
            agent.shared_workspace,
            agent.allowed,
            agent.tools,
            agent.exec_policy,
            agent.skill,
            harnesses.harnesses,
        ),
    ),
    Group(
        "workspace",
        (
            workspace.found,
            workspace.config,
            workspace.directories,
            workspace.one_device,
            workspace.filesystem,
            workspace.space,
            workspace.database,
            workspace.daemon,
            workspace.leftovers,
            keys.keys,
        ),
    ),
)


def judge(facts: Facts) -> Iterator[tuple[str, Finding]]:
    """Every finding with the name of its group; pure. Mends call OpenClaw as the configuration does."""
    command = "openclaw" if facts.program is not None and facts.program.stand_in else facts.settings.command
    for group in GROUPS:
        for check in group.checks:
            yield from ((group.name, _calling(command, finding)) for finding in check(facts))
    for failure in facts.failures:
        text = f"{failure.probe} could not be looked at: {failure.reason}"
        yield "unknown", warning(f"{failure.probe}-unknown", text, failure.by_hand)


def _calling(command: str, finding: Finding) -> Finding:
    mends = (
        f"{command}{mend.removeprefix('openclaw')}" if mend.startswith("openclaw ") else mend for mend in finding.mends
    )
    return replace(finding, mends=tuple(mends))
