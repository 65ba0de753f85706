"""What one turn costs its client: `openclaw agent` beside our program on the gateway's WebSocket, in one run.

    python -m bench.transport [--turns 20] [--at-once 4]

Starts a real gateway and a model that answers at once (as the live tests do) and prints medians: how long a turn takes,
the CPU (user and system) and memory of its client, and turns per second, one at a time and several at once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents.gateway.client import ApprovalPending, pair
from mailboxd.agents.gateway.transport import GatewayTransport
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.process import TurnTransport
from mailboxd.clock import SystemClock
from tests.live.gateway import Gateway, run_of
from tests.live.model import Model


@dataclass(frozen=True, slots=True)
class Cost:
    wall: float
    cpu: float
    memory: int


def measured(argv: Sequence[str], gateway: Gateway, place: Path) -> Cost:
    """One process from its start to its end. Its output is thrown away."""
    begun = time.monotonic()
    process = subprocess.Popen(
        list(argv), cwd=place, env=gateway.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode != 0:
        sys.exit(f"{argv[:4]} ended with {process.returncode}: {said.decode(errors='replace')}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def turn(by: TurnTransport, gateway: Gateway, root: Path, number: int) -> Callable[[], Cost]:
    """A turn in a session of its own."""
    call = f"trn_{type(by).__name__.lower()}{number}"
    place = root / call
    place.mkdir()
    file = place / "prompt.md"
    file.write_text(f"[mailboxd] work turn · task {call} · attempt 1\n\nSay something.\n", encoding="utf-8")
    argv = by.turn_argv("alpha", f"agent:alpha:mailboxd:{call}", file, 60)
    return lambda: measured(argv, gateway, place)


def show(name: str, costs: Sequence[Cost], spent: float) -> None:
    wall, cpu = (statistics.median(getattr(cost, field) for cost in costs) for field in ("wall", "cpu"))
    memory = statistics.median(cost.memory for cost in costs) / 2**20
    rate = len(costs) / spent
    print(f"{name:28} {wall:7.2f} s  {cpu:6.3f} s CPU  {memory:6.1f} MiB  {rate:5.2f} turns/s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transport")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Model() as model:
        root = Path(directory)
        gateway = Gateway(root, model.url, run_of(["alpha"]))
        try:
            gateway.start()
            compare(gateway, root, words.turns, words.at_once)
        finally:
            gateway.close()


def compare(gateway: Gateway, root: Path, turns: int, at_once: int) -> None:
    cli = OpenClaw(("openclaw",))
    device = root / "gateway.json"
    if isinstance(
        pair(device, f"ws://127.0.0.1:{gateway.port}", "alpha", gateway.token, SystemClock()), ApprovalPending
    ):
        sys.exit("the gateway wants a person to approve the device")
    transports: dict[str, TurnTransport] = {"cli": cli, "gateway": GatewayTransport(cli, device)}
    for number, by in enumerate(transports.values()):  # the first turn of a gateway is slow for whoever asks
        turn(by, gateway, root, 900 + number)()

    print(f"medians of {turns}, {os.cpu_count()} cores")
    for name, by in transports.items():
        alone = [turn(by, gateway, root, number)() for number in range(turns)]
        show(f"{name}, one at a time", alone, sum(cost.wall for cost in alone))
    for name, by in transports.items():
        waiting = [turn(by, gateway, root, 100 + number) for number in range(turns)]
        begun = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            together = list(pool.map(lambda one: one(), waiting))
        show(f"{name}, {at_once} at once", together, time.monotonic() - begun)


if __name__ == "__main__":
    main()
