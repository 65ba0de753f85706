"""What each configured harness says of itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from mailboxd.agents.acp import transport
from mailboxd.agents.acp.hello import Hello, hello
from mailboxd.config.acp import AcpSection, HarnessSection


def hellos(root: Path, acp: AcpSection, environ: Mapping[str, str]) -> tuple[Hello, ...]:
    """One after the other: a harness may be large."""
    return tuple(_hello(root, name, harness, acp.acpx[0], environ) for name, harness in acp.harnesses.items())


def _hello(root: Path, name: str, harness: HarnessSection, acpx: str, environ: Mapping[str, str]) -> Hello:
    try:
        cwd = transport.directory(root, harness.cwd)
    except OSError as problem:
        return Hello(name, f"it has nowhere to work: {problem.strerror} (cwd: {harness.cwd})")
    if harness.backend == "acpx" and shutil.which(acpx, path=environ.get("PATH")) is None:
        return Hello(name, f"{acpx} cannot be run: there is no such program in PATH")
    return hello(name, harness.argv, cwd, transport.environment(environ, harness.environment))
