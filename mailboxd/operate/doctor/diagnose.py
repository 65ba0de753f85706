"""Run the probes and judge what they found: fast local probes first, then OpenClaw's in threads (seconds each).

A probe that fails leaves its fact None and adds a `ProbeFailure`; the other probes continue.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from mailboxd.errors import MailboxdError
from mailboxd.host.clock import Clock
from mailboxd.host.system import system
from mailboxd.ledger.integrity import check_database
from mailboxd.operate.doctor import agent, hub, jobs, machine, openclaw, workspace
from mailboxd.operate.doctor.facts import CheckResult, Facts, ProbeFailure, warning
from mailboxd.operate.doctor.openclaw import probe_transport
from mailboxd.operate.doctor.target import Target
from mailboxd.operate.integration import skill_state
from mailboxd.perform.agents.json_output import brief
from mailboxd.perform.agents.openclaw import inside_agent
from mailboxd.perform.agents.openclaw_versions import OLDEST

PARALLEL_PROBES = 3
"""Each call of OpenClaw is a Node process of 215 MB that keeps a core busy for a second."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Collects the fact `fact`. `name` is displayed; `command` does the same by hand."""

    fact: str
    name: str
    command: str
    run: Callable[[], Any]


# Probes


def collect(
    target: Target, environ: Mapping[str, str], clock: Clock, progress: Callable[[str], None], *, local: bool = False
) -> Facts:
    """Run all probes, or only the `local` ones, which do not call OpenClaw.

    `progress` is given the name of each probe before it runs. An exception of a probe becomes a `ProbeFailure`.
    """
    known: dict[str, Any] = {}
    failures: list[ProbeFailure] = []
    # how OpenClaw is called is in the configuration: with an invalid one, what is found would be about another
    for stage in (_local,) if local or target.settings.problem else (_local, _program, _openclaw, _plugin):
        for probe, value in _in_parallel(stage(target, known, clock), progress):
            if isinstance(value, Exception):
                failures.append(ProbeFailure(probe.name.replace(" ", "-"), _reason(value), probe.command))
            else:
                known[probe.fact] = value
    return Facts(
        settings=target.settings,
        python=sys.version_info[:3],
        inside_agent=inside_agent(environ),
        not_a_workspace=target.not_a_workspace,
        failures=tuple(failures),
        now=clock.now(),
        **known,
    )


def _local(target: Target, _: Mapping[str, Any], clock: Clock) -> Iterator[Probe]:
    yield Probe("memory", "memory", "free", system.available_memory)
    yield Probe("jobs", "units and crontab", "crontab -l", lambda: jobs.probe_jobs(target.environ))
    ws = target.ws
    if ws is None:
        return
    root, now = shlex.quote(str(ws.root)), clock.now()
    yield Probe("workspace", "workspace", f"ls -la {root}", lambda: workspace.probe_workspace(ws))
    yield Probe("filesystem", "file system", f"findmnt -T {root}", lambda: workspace.probe_filesystem(ws))
    yield Probe("daemon", "daemon", "mailboxd status", lambda: workspace.probe_daemon(ws, target.environ, clock))
    yield Probe("mailbox", "mailbox", f"ls -la {root}/mailbox", lambda: workspace.probe_mailbox(ws, now))
    probe_keys = lambda: workspace.probe_keys(ws.root, target.required, target.environ)  # noqa: E731
    yield Probe("keys", "keys", "mailboxd connect keys list", probe_keys)
    yield Probe("hub", "hub", "mailboxd hub status", lambda: hub.probe_hub(target.environ))
    yield Probe("database", "database", "mailboxd db verify", lambda: check_database(ws.database))
    yield Probe("skill", "skill", f"ls -la {root}/skills/mailboxd", lambda: skill_state(ws.root))
    probe_harnesses = lambda: agent.probe_harnesses(ws.root, target.acp, target.environ)  # noqa: E731
    yield Probe("harnesses", "harnesses", "mailboxd config", probe_harnesses)


def _program(target: Target, _: Mapping[str, Any], __: Clock) -> Iterator[Probe]:
    probes = target.openclaw
    program = shlex.quote(probes.openclaw.command[0])
    yield Probe("program", "openclaw", f"command -v {program}", probes.program)
    if probes.program().path is not None:
        yield Probe("release", "openclaw version", f"{program} --version", probes.release)


def _openclaw(target: Target, known: Mapping[str, Any], clock: Clock) -> Iterator[Probe]:
    probes, release = target.openclaw, known.get("release")
    if release is None or release.version is None or release.version < OLDEST:
        return
    yield Probe("peers", "agents", "openclaw agents list", probes.peers)
    yield Probe("agents", "allow lists", "openclaw config get agents --json", probes.agents)
    yield Probe("tools", "tools", "openclaw config get tools --json", lambda: probes.tools(release.version))
    if known["program"].scripted:
        return
    yield Probe("gateway", "gateway", "openclaw gateway status", probes.gateway)
    if (device := target.pairing) is not None:
        transport = lambda: probe_transport(probes.openclaw, device, clock)  # noqa: E731
        yield Probe("transport", "transport", "mailboxd connect gateway status", transport)
    yield Probe("plugin", "plugin", "openclaw plugins inspect mailboxd", probes.plugin)


def _plugin(target: Target, known: Mapping[str, Any], clock: Clock) -> Iterator[Probe]:
    """Try the plugin of the running gateway: that OpenClaw lists it does not mean that the gateway uses it."""
    state, gateway = known.get("plugin"), known.get("gateway")
    if state is None or state.problem or gateway is None or not gateway.connected:
        return
    yield Probe("plugin_parts", "plugin parts", "openclaw gateway call mailboxd.parts", target.openclaw.plugin_parts)
    if target.ws is not None and target.settings.agent:
        probe = lambda: agent.probe_plugin(target, clock)  # noqa: E731
        yield Probe("plugin_answer", "plugin answer", "mailboxd doctor --canary", probe)


def _reason(problem: Exception) -> str:
    text = brief(str(problem))
    return text if isinstance(problem, OSError | MailboxdError) and text else f"{type(problem).__name__} {text}".strip()


def _in_parallel(probes: Iterable[Probe], progress: Callable[[str], None]) -> Iterator[tuple[Probe, Any]]:
    """Each probe with its fact or the exception it raised; at most `PARALLEL_PROBES` run at a time.

    The threads are daemonic, so that Ctrl-C does not wait for OpenClaw.
    """
    pending: Sequence[Probe] = list(probes)
    queue: SimpleQueue[Probe] = SimpleQueue()
    done: SimpleQueue[tuple[Probe, Any]] = SimpleQueue()
    for probe in pending:
        queue.put(probe)

    def work() -> None:
        with suppress(Empty):
            while True:
                probe = queue.get_nowait()
                progress(probe.name)
                done.put((probe, _run(probe)))

    for _ in range(min(PARALLEL_PROBES, len(pending))):
        Thread(target=work, daemon=True).start()
    for _ in pending:
        yield done.get()


def _run(probe: Probe) -> Any:
    try:
        return probe.run()
    except Exception as problem:
        return problem


# Checks

Check = Callable[..., Iterable[CheckResult]]
"""It is given all facts, and then those that it needs: it is skipped if one of them is None."""

GROUPS: dict[str, dict[Check, tuple[str, ...]]] = {
    "configuration": {
        workspace.config: (),
    },
    "machine": {
        machine.python: (),
        machine.inside_agent: (),
        machine.memory: ("memory",),
        jobs.removed: ("jobs",),
        machine.clock: ("database",),
    },
    "openclaw": {
        openclaw.program: ("program",),
        openclaw.version: ("release",),
        openclaw.gateway: ("gateway",),
        openclaw.gateway_version: ("gateway",),
        openclaw.transport: ("transport",),
        openclaw.lane: ("agents",),
        openclaw.plugin: ("plugin",),
        openclaw.plugin_parts: ("plugin_parts",),
    },
    "agent": {
        agent.agent: ("peers",),
        agent.workspace: ("workspace",),
        agent.shared_workspace: ("workspace",),
        agent.allowed: ("agents", "tools"),
        agent.reviewers: ("agents", "tools"),
        agent.tools: ("agents", "tools"),
        agent.skill: ("skill",),
        agent.harnesses: ("harnesses",),
    },
    "workspace": {
        workspace.found: (),
        workspace.directories: ("workspace",),
        workspace.filesystem: ("filesystem",),
        workspace.space: ("filesystem",),
        workspace.database: ("database",),
        workspace.daemon: ("daemon",),
        workspace.mailbox: ("mailbox",),
        workspace.signing_keys: ("keys",),
        hub.hub: ("hub",),
    },
}
"""All checks in the order of the report, each with the facts that it needs."""


def judge(facts: Facts) -> Iterator[tuple[str, CheckResult]]:
    """Every result with the name of its group. Pure."""
    for group, checks in GROUPS.items():
        for check, needed in checks.items():
            found = [getattr(facts, name) for name in needed]
            if None not in found:
                yield from ((group, as_configured(facts, result)) for result in check(facts, *found))
    for failure in facts.failures:
        text = f"{failure.probe} could not be checked: {failure.reason}"
        yield "unknown", as_configured(facts, warning(f"{failure.probe}-unknown", text, failure.command))


def as_configured(facts: Facts, result: CheckResult) -> CheckResult:
    """The result, whose fixes call OpenClaw as the configuration does."""
    command = "openclaw" if facts.program is not None and facts.program.scripted else facts.settings.command
    fixes = (f"{command}{fix.removeprefix('openclaw')}" if fix.startswith("openclaw ") else fix for fix in result.fixes)
    return replace(result, fixes=tuple(fixes))
