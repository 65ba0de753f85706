"""The machine and the versions that a run was measured on."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib import metadata
from pathlib import Path

from bench.workshop import Workshop


def facts(shop: Workshop) -> dict[str, str]:
    """Processor, cores, memory, kernel, file system, and the load before the run."""
    processors = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in processors if line.startswith("model name")), "unknown")
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory.split()[1]) * 1024 / 1e9:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(shop.root),
        "load before (1, 5, 15 minutes)": load,
    }


def _file_system(place: Path) -> str:
    """The type of the mount that `place` is on, and whether it has a journal."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    above = [mount for mount in mounts if place.is_relative_to(mount[1])]
    device, _, kind, *_ = max(above, key=lambda mount: len(mount[1]), default=("", "", "unknown"))
    if kind != "ext4":
        return kind
    return "ext4 " + ("with" if [*Path("/proc/fs/jbd2").glob(f"{Path(device).name}-*")] else "without") + " a journal"


def versions() -> dict[str, str]:
    """The versions of mailboxd, with its commit, and of what it is built on."""
    return {
        "mailboxd": f"{metadata.version('mailboxd')} {_commit()}".strip(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "watchdog": metadata.version("watchdog"),
        "pydantic": metadata.version("pydantic"),
    }


def _commit() -> str:
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"({said.stdout.strip()})"
