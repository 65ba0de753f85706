"""The memory of a host with several idle agents, as PSS: what several processes share counts once.

Their daemons are served by one process (`mailboxd run --all`), or each is started by itself. Each agent is set up as
`mailboxd setup` does it: typed tools on a port, and turns over the gateway (the workspace is
paired with one that does not answer, which the program waits for as for any other).
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import processes
from bench.daemon import Daemon
from bench.processes import Broken
from bench.workshop import MAILBOXD, Workshop, say
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import registry
from mailboxd.perform.agents.gateway import pairing
from mailboxd.perform.agents.gateway.pairing import Device, Pairing
from mailboxd.perform.agents.gateway.transport import pairing_file

SIZES = (1, 4, 12)
TOGETHER = "by run --all"
_KINDS = {"mailboxd.perform.agents.gateway": "turns", "mcp": "typed tools"}
_REST_SECONDS = 300
"""Within which a host has come to rest: what nobody asks ends after two minutes."""


def measure(shop: Workshop) -> dict[str, Any]:
    """Memory after the start and at rest; that of a daemon that has worked is in the part `idle`. Raises Broken."""
    found: dict[str, Any] = {}
    for count in SIZES[-1:] if shop.quick else SIZES:
        found[f"{count} agents"] = _host(shop, count, together=False)
        found[f"{count} agents {TOGETHER}"] = _host(shop, count, together=True)
    return found


def _host(shop: Workshop, count: int, *, together: bool) -> dict[str, Any]:
    state = shop.place("state")
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    say(f"host: {count} agents{f' {TOGETHER}' if together else ''}")
    with ExitStack() as held:
        daemons = [_agent(shop, env, number) for number in range(count)]
        host = _Host(daemons, state)
        if together:
            for daemon in daemons:
                registry.register(daemon.root.resolve(), env)
            with (state / "log").open("ab") as log:
                parent = processes.start([MAILBOXD, "run", "--all"], state, log, env)
            held.callback(host.end, parent)
            host.parent = parent.pid
        else:
            for daemon in daemons:
                held.enter_context(daemon)
        host.wait_until_started()
        started = host.memory()
        until = time.monotonic() + _REST_SECONDS
        while "typed tools" in host.kinds().values() and time.monotonic() < until:
            time.sleep(1)
        return {"at the start": started, "at rest": host.memory()}


def _agent(shop: Workshop, env: Mapping[str, str], number: int) -> Daemon:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    daemon = Daemon(shop, f"agent{number}", env=env)
    with (daemon.root / ".mailboxd" / "config.yaml").open("a") as config:
        config.write(f"mcp: {{port: {port}}}\n")
    paired = Pairing("ws://127.0.0.1:9", f"bench{number}", Device(secrets.token_bytes(32)), "token")
    pairing.write(pairing_file(daemon.root.resolve(), env), paired)
    return daemon


@dataclass
class _Host:
    daemons: list[Daemon]
    state: Path
    parent: int | None = None
    """The process that serves all."""

    def wait_until_started(self) -> None:
        wanted = 3 * len(self.daemons) + (self.parent is not None)
        until = time.monotonic() + 120
        while len(self.kinds()) < wanted:
            if time.monotonic() > until:
                raise Broken(f"host: not all programs have started: {sorted(self.kinds().values())}")
            time.sleep(0.2)
        time.sleep(5)  # until they have imported what they need

    def kinds(self) -> dict[int, str]:
        """The processes of these agents, and what each is."""
        places = [str(daemon.root) for daemon in self.daemons]
        found = {} if self.parent is None else {self.parent: "parent"}
        found |= {pid: "daemons" for place in places if (pid := lock.holder(Workspace(Path(place))))}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(word in places or word.startswith(str(self.state)) for word in words):
                found.setdefault(int(entry.name), next((_KINDS[word] for word in words if word in _KINDS), "other"))
        return found

    def memory(self) -> dict[str, Any]:
        """MB (10^6 bytes) of PSS, of each kind and of all; and of RSS, which counts shared pages for each process."""
        found: dict[str, Any] = {"PSS MB": 0.0, "RSS MB": 0.0}
        for pid, kind in self.kinds().items():
            pss, rss = processes.shares_mb(pid)
            found["PSS MB"] += pss
            found["RSS MB"] += rss
            found[f"{kind}, PSS MB"] = found.get(f"{kind}, PSS MB", 0.0) + pss
            found[kind] = found.get(kind, 0) + 1
        return {name: round(value, 1) for name, value in found.items()}

    def end(self, parent: subprocess.Popen[bytes]) -> None:
        """End the parent, and the daemons, which have groups of their own."""
        daemons = [pid for pid, kind in self.kinds().items() if kind == "daemons"]
        processes.end(parent)
        for pid in daemons:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
