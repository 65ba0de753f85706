"""Whether the harnesses that may work for the agent can be had."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from mailboxd.agents.acp import transport
from mailboxd.agents.acp.probe import HarnessInfo, probe
from mailboxd.config.model import AcpSection, HarnessSection
from mailboxd.doctor.facts import Facts, Finding, edit, note, ok, warning


def harnesses(facts: Facts) -> Iterator[Finding]:
    for found in facts.harnesses or ():
        yield _judged(found, facts.settings.path)


def _judged(found: HarnessInfo, config: str) -> Finding:
    what = f"the harness {found.name}"
    if found.problem:
        text = f"{what} cannot be had, and its tasks wait: {found.problem}"
        mends = [edit(config, f"acp.harnesses.{found.name}")]
        if "pip install" in found.problem:
            mends.insert(0, "pip install 'mailboxd[acp]'")
        return warning("harness", text, *mends)
    who = " ".join(filter(None, [found.title, found.version])) or "no name"
    if not found.loads:
        text = f"{what} ({who}) speaks ACP; it cannot load a session again, so a turn that is cut off stays unknown"
        return note("harness", text)
    return ok("harness", f"{what} ({who}) speaks ACP, and can be asked about a turn that was cut off")


# ---------------------------------------------------------------------------------------------------------------------
# What each configured harness says of itself.


def probe_harnesses(root: Path, acp: AcpSection, environ: Mapping[str, str]) -> tuple[HarnessInfo, ...]:
    """One after the other: a harness may be large."""
    return tuple(_hello(root, name, harness, acp.acpx[0], environ) for name, harness in acp.harnesses.items())


def _hello(root: Path, name: str, harness: HarnessSection, acpx: str, environ: Mapping[str, str]) -> HarnessInfo:
    try:
        cwd = transport.directory(root, harness.cwd)
    except OSError as problem:
        return HarnessInfo(name, f"it has nowhere to work: {problem.strerror} (cwd: {harness.cwd})")
    if harness.backend == "acpx" and shutil.which(acpx, path=environ.get("PATH")) is None:
        return HarnessInfo(name, f"{acpx} cannot be run: there is no such program in PATH")
    return probe(name, harness.argv, cwd, transport.environment(environ, harness.environment))
