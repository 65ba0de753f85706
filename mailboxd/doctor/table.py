"""All checks, in the order of the report. This is the list to add one to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from mailboxd.doctor.checks import agent, harnesses, keys, machine, openclaw, workspace
from mailboxd.doctor.facts import Facts
from mailboxd.doctor.finding import Finding, warning

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
