"""The cost of a turn for its client: `openclaw agent` and mailboxd's WebSocket program, in one run.

    python -m bench.transport [--turns 20] [--at-once 4] [--in-flight 100]

Starts a real gateway and a model that answers at once (as the live tests do) and prints medians: how long a turn takes,
when its model is first called, the CPU (user and system) of its client, and the client's memory. Then it keeps
`--in-flight` turns in flight over the gateway at once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mailboxd.host.clock import SystemClock
from mailboxd.perform.agents import process
from mailboxd.perform.agents.ask import finish
from mailboxd.perform.agents.call_dir import PROMPT, Exit
from mailboxd.perform.agents.gateway.client import ApprovalPending, pair
from mailboxd.perform.agents.gateway.transport import GatewayTransport, Mark
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.process import Child
from tests.e2e.support import eventually
from tests.live.gateway import Gateway, run_of
from tests.live.model import Hang, Model

SECONDS = 300
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    wall: float
    first_call: float


@dataclass(slots=True)
class Stand:
    """A gateway, its model, and both ways to run a turn."""

    root: Path
    gateway: Gateway
    model: Model
    carrier: GatewayTransport

    def begin(self, by: str, call: str) -> Child:
        """Run a turn in a new session."""
        directory = self.root / call
        text = f"[mailboxd] work turn · task {call} · attempt 1\n\nSay something.\n"
        argv = (self.carrier if by == "gateway" else self.carrier.cli).turn_argv(
            "alpha", f"agent:alpha:mailboxd:{call}", directory / PROMPT, SECONDS
        )
        launcher = self.carrier if by == "gateway" else process
        return launcher.spawn(directory, argv, self.gateway.env, files={PROMPT: text.encode()})

    def turn(self, by: str, call: str) -> Cost:
        begun = time.monotonic()
        done(finish(self.begin(by, call), SECONDS))
        return Cost(time.monotonic() - begun, self.model.made(task=call)[0].at - begun)

    def pid(self, call: str) -> int:
        """The program that runs this turn."""
        return Mark.read(self.root / call).takers[-1]


def done(exit_: Exit) -> None:
    if exit_.rc != 0:
        sys.exit(f"a turn ended with {exit_.rc}: {(exit_.stdout + exit_.stderr).decode(errors='replace')}")


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used; for this process, those of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15] if pid == os.getpid() else fields[11:13])) / _TICKS


def memory(pid: int, field: str = "VmRSS") -> float:
    """Megabytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def show(name: str, costs: Sequence[Cost], spent: float, used: float, largest: float) -> None:
    wall, first = (statistics.median(getattr(cost, field) for cost in costs) for field in ("wall", "first_call"))
    print(
        f"{name:26} {wall:6.2f} s  {first:6.2f} s to the model  {used / len(costs):6.4f} s CPU  {largest:6.1f} MiB  "
        f"{len(costs) / spent:5.2f} turns/s",
        flush=True,
    )


def compare(stand: Stand, turns: int, at_once: int) -> None:
    for by in ("cli", "gateway"):
        stand.turn(by, f"warm{by}")  # the first turn of a gateway is slow for whoever asks
        for width in (1, at_once):
            pid = os.getpid() if by == "cli" else stand.pid(f"warm{by}")
            calls, before, begun = [f"{by}{width}x{number}" for number in range(turns)], cpu(pid), time.monotonic()
            with ThreadPoolExecutor(width) as pool:
                costs = list(pool.map(partial(stand.turn, by), calls))
            show(f"{by}, {width} at once", costs, time.monotonic() - begun, cpu(pid) - before, largest(by, pid))


def largest(by: str, pid: int) -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 if by == "cli" else memory(pid, "VmHWM")


def in_flight(stand: Stand, number: int) -> None:
    """Run turns at once; the model answers when all of them have reached it."""
    pid = stand.pid("warmgateway")
    stand.model.on(Hang("Done."))
    before, begun = cpu(pid), time.monotonic()
    children = [stand.begin("gateway", f"flying{one}") for one in range(number)]
    eventually(lambda: stand.model.most_at_once >= number, SECONDS)
    asked, resident = time.monotonic() - begun, memory(pid)
    stand.model.release()
    for child in children:
        done(finish(child, SECONDS))
    used = (cpu(pid) - before) / number
    print(f"{number} in flight: all models asked after {asked:.1f} s, {used:.4f} s CPU per turn, {resident:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transport")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=100)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Model() as model:
        root = Path(directory)
        gateway = Gateway(root, model.url, run_of(["alpha"]))
        widen(gateway, 2 * words.in_flight)
        try:
            gateway.start()
            url, device = f"ws://127.0.0.1:{gateway.port}", root / "gateway.json"
            if isinstance(pair(device, url, "alpha", gateway.token, SystemClock()), ApprovalPending):
                sys.exit("the gateway wants a person to approve the device")
            stand = Stand(root, gateway, model, GatewayTransport(OpenClaw(("openclaw",)), device, gateway.env))
            print(f"medians of {words.turns}, {os.cpu_count()} cores")
            compare(stand, words.turns, words.at_once)
            in_flight(stand, words.in_flight)
            stand.carrier.close()
        finally:
            gateway.close()


def widen(gateway: Gateway, turns: int) -> None:
    """Run turns at once on a freshly started gateway."""
    config = json.loads(gateway.config.read_text())
    config["agents"]["defaults"]["maxConcurrent"] = turns
    gateway.config.write_text(json.dumps(config))


if __name__ == "__main__":
    main()
