"""The cost of a message to another host, from the sender's spool to the arrival of the receiver's receipt.

    python -m bench.hub [--messages 1000] [--agents 1,2,4,8] [--size 1024]

Two hosts on this machine, each with its hub process and a real daemon per agent, and a real NATS server that flushes
every message. Each agent of alpha sends that many messages to one agent of beta, whose daemon commits each of them.
Compare CPU per message, not time, because everything here shares one disk and the same cores.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from mailboxd.formats.keys import signed
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.ids import Ids
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.spool import NEW, SENT, Spool
from tests.e2e.support import cpu_ticks, message
from tests.hub.farm import Farm

_TICK = 0.01
_NOW = "2026-11-25T00:00:00.000Z"


def measure(folder: Path, agents: int, count: int, size: int) -> dict[str, float]:
    """Messages per second, and milliseconds of CPU per message by process."""
    names = [f"a{number}" for number in range(agents)]
    work = {name: {"mailbox": "true"} for name in names}
    farm = Farm(folder, {"alpha": work, "beta": work})
    try:
        farm.start()
        spools = {name: Spool(Workspace(farm["alpha"][name].root)) for name in names}
        key, ids, body = Membership.of(farm["alpha"].env).key(), Ids(), "x" * max(size - 600, 1)
        # a progress report about no task: the receiver commits and files it, and does nothing else
        texts = {
            (name, message_id): signed(
                message(
                    "progress", "none", body, sender=f"alpha.{name}", to=f"beta.{name}", message_id=message_id
                ).encode(),
                key,
            )
            for name in names
            for message_id in (ids.new("msg", _NOW) for _ in range(count))
        }
        watched = {
            "sender's hub": farm["alpha"].process,
            "receiver's hub": farm["beta"].process,
            "server": farm.server.process,
            "receiver's daemons": farm["beta"][names[0]].process,
        }
        pids = {name: process.pid for name, process in watched.items() if process is not None}
        before = {name: cpu_ticks(pid) for name, pid in pids.items()}
        began = time.monotonic()
        for (name, message_id), raw in texts.items():
            spools[name].put(message_id, raw)
        while any(spool.names(NEW) or spool.names(SENT) for spool in spools.values()):
            time.sleep(0.05)
        seconds = time.monotonic() - began
        total = agents * count
        used = {name: (cpu_ticks(pid) - before[name]) * _TICK * 1e3 for name, pid in pids.items()}
        used["receiver's daemons"] *= agents  # they do the same
        return {"per second": total / seconds, **{name: spent / total for name, spent in used.items()}}
    finally:
        farm.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hub")
    parser.add_argument("--messages", type=int, default=1000, help="per agent")
    parser.add_argument("--agents", default="1,2,4,8")
    parser.add_argument("--size", type=int, default=1024)
    said = parser.parse_args()
    for agents in map(int, said.agents.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder) / "farm", agents, said.messages, said.size)
        print(f"{agents} agents: " + ", ".join(f"{name} {value:.2f}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
