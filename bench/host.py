"""The memory of a host with several idle agents, as PSS: what several processes share counts once.

Each agent is set up as `mailboxd setup` does it: typed tools on a port, and turns over the gateway (the workspace is
paired with one that does not answer, which the program waits for as for any other).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import processes
from bench.daemon import Daemon
from bench.processes import Broken
from bench.workshop import Workshop, say
from mailboxd.perform.agents.gateway import pairing
from mailboxd.perform.agents.gateway.pairing import Device, Pairing
from mailboxd.perform.agents.gateway.transport import pairing_file

SIZES = (1, 4, 12)
_KINDS = {"mailboxd.perform.agents.gateway": "turns", "mcp": "typed tools", "run": "daemons"}
_REST_SECONDS = 300
"""Within which a host has come to rest: what nobody asks ends after two minutes."""


def measure(shop: Workshop) -> dict[str, Any]:
    """Memory after the start and at rest; that of a daemon that has worked is in the part `idle`. Raises Broken."""
    return {f"{count} agents": _host(shop, count) for count in (SIZES[-1:] if shop.quick else SIZES)}


def _host(shop: Workshop, count: int) -> dict[str, Any]:
    state = shop.place("state")
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    say(f"host: {count} agents")
    with ExitStack() as held:
        daemons = [held.enter_context(_agent(shop, env, number)) for number in range(count)]
        _until_started(daemons, state)
        started = _memory(daemons, state)
        until = time.monotonic() + _REST_SECONDS
        while "typed tools" in _kinds(daemons, state).values() and time.monotonic() < until:
            time.sleep(1)
        return {"at the start": started, "at rest": _memory(daemons, state)}


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


def _until_started(daemons: list[Daemon], state: Path) -> None:
    until = time.monotonic() + 120
    while len(_kinds(daemons, state)) < 3 * len(daemons):
        if time.monotonic() > until:
            raise Broken(f"host: not all programs have started: {sorted(_kinds(daemons, state).values())}")
        time.sleep(0.2)
    time.sleep(5)  # until they have imported what they need


def _kinds(daemons: list[Daemon], state: Path) -> dict[int, str]:
    """The processes of these agents, and what each is."""
    places = [str(daemon.root) for daemon in daemons]
    found = {daemon.pid: "daemons" for daemon in daemons}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word in places or word.startswith(str(state)) for word in words):
            found.setdefault(int(entry.name), next((_KINDS[word] for word in words if word in _KINDS), "other"))
    return found


def _memory(daemons: list[Daemon], state: Path) -> dict[str, Any]:
    """MB (10^6 bytes) of PSS, of each kind and of all; and of RSS, which counts shared pages for each process."""
    kinds = _kinds(daemons, state)
    found: dict[str, Any] = {"PSS MB": 0.0, "RSS MB": 0.0}
    for pid, kind in kinds.items():
        pss, rss = processes.shares_mb(pid)
        found["PSS MB"] += pss
        found["RSS MB"] += rss
        found[f"{kind}, PSS MB"] = found.get(f"{kind}, PSS MB", 0.0) + pss
        found[kind] = found.get(kind, 0) + 1
    return {name: round(value, 1) for name, value in found.items()}
