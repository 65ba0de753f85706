"""A hub with 10,000 agents on 100 hosts: how soon a host knows them all, and the cost of a dispatch a minute from each.

    python -m bench.farm [--hosts 100] [--agents 100] [--seconds 60] [--rate 1]

One host is real: a daemon, and the hub process that founded the hub. The others are connections from this process to a
real server, each with its own key and permissions. They publish their cards as hosts do, and send work to each other
and to the real host: the sender signs each message, the server flushes it, the receiver verifies it and settles it with
a signed receipt. Everything shares the cores of this machine with the simulation: compare CPU, not time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import ssl
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

from mailboxd.formats.keys import PrivateKey, signed
from mailboxd.formats.protocol.front_matter import canonical
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.host.clock import SystemClock
from mailboxd.host.ids import Ids
from mailboxd.hub.files import server
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.view import HubInfo
from mailboxd.hub.process.api import streams_of
from mailboxd.hub.process.receiving import DIGEST, ID
from mailboxd.hub.wire import subjects
from mailboxd.hub.wire.members import Members, nkey_seed
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.presence import AgentCard, Card
from mailboxd.hub.wire.receipts import Receipt, digest
from mailboxd.hub.wire.sealing import open_sealed, seal
from mailboxd.hub.wire.signed_json import signed_json
from tests.e2e.support import cpu_ticks, message
from tests.hub.farm import Farm

_TICK = 0.01
_FETCH = 64
_HEARS = 10
"""One of this many simulated hosts subscribes to all cards: more than a thousand large messages a second would be too
much for the simulating process, though not for the server."""
_ROLE = "Checks figures against the ledger of its department"


@dataclass(slots=True)
class Simulated:
    """A simulated host, without daemons."""

    name: str
    key: PrivateKey
    keys: dict[str, PrivateKey]
    agents: tuple[str, ...]
    client: Client = field(default_factory=Client)
    sent: dict[str, tuple[float, str]] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    """Seconds until the receipt."""
    received: int = 0

    async def join(self, servers: Sequence[str], context: ssl.SSLContext, *, hears: bool) -> None:
        self.client = await nats.connect(
            list(servers), tls=context, nkeys_seed_str=nkey_seed(self.key), inbox_prefix=f"_INBOX.{self.name}",
            connect_timeout=60, error_cb=_quiet,
        )  # fmt: skip

        async def hear(_message: Any) -> None:
            """Subscribe to the cards of all others, which costs the server, too."""

        if hears:
            await self.client.subscribe(f"{subjects.CARDS}.*", cb=hear)

    async def say_card(self) -> None:
        """Once: nothing changes."""
        agents = {name: AgentCard(role=_ROLE, health="green", open=1) for name in self.agents}
        card = Card(host=self.name, at=SystemClock().now(), run=secrets.token_hex(8), number=1, agents=agents)
        content = card.model_dump(exclude_defaults=True)
        await self.client.publish(f"{subjects.CARDS}.{self.name}", signed_json(self.key, content))

    async def give_work(self, to: Sequence[Address], per_second: float, until: float) -> None:
        chance, ids, clock = random.Random(self.name), Ids(), SystemClock()
        while time.monotonic() < until:
            await asyncio.sleep(chance.expovariate(per_second))
            address, name = chance.choice(to), ids.new("msg", clock.now())
            sender = f"{self.name}.{chance.choice(self.agents)}"
            text = message("progress", "none", "x" * 500, sender=sender, to=str(address), message_id=name)
            raw = signed(text.encode(), self.key)
            self.sent[name] = (time.monotonic(), digest(raw))
            subject = str(subjects.mail_subject(address.host, self.name))
            headers = {"Nats-Msg-Id": secrets.token_hex(16), ID: name, DIGEST: digest(raw)}
            sealed = seal(raw, {address.host: self.keys[address.host].public})
            await streams_of(self.client).publish(subject, sealed, headers=headers, timeout=60)

    async def take(self) -> None:
        consumer = await streams_of(self.client).pull_subscribe_bind(stream=subjects.STREAM, durable=self.name)
        while True:
            with suppress(NatsError, TimeoutError):
                for one in await consumer.fetch(_FETCH, timeout=5):
                    await self._take(subjects.Subject.parse(one.subject), one.data)
                    await one.ack()

    async def _take(self, subject: subjects.Subject | None, raw: bytes) -> None:
        assert subject is not None
        public = self.keys[subject.sender].public
        if subject.kind == "receipt":
            receipt = Receipt.parse(raw)
            assert receipt is not None
            assert public.has_signed(receipt.content(), receipt.signature)
            if not receipt.is_final:
                return
            began, sha256 = self.sent.pop(receipt.message_id)
            assert (receipt.sha256, receipt.refused) == (sha256, "")
            self.took.append(time.monotonic() - began)
            return
        raw = open_sealed(raw, self.name, self.key)
        found = parse_message(raw, "message").message
        assert public.has_signed(canonical(raw), found.signature or "")
        self.received += 1
        receipt = Receipt(found.message_id or "", digest(raw), self.name, subject.sender, SystemClock().now())
        to = str(subjects.receipt_subject(subject.sender, self.name))
        headers = {"Nats-Msg-Id": secrets.token_hex(16)}
        await streams_of(self.client).publish(to, receipt.signed(self.key.sign).to_bytes(), headers=headers, timeout=60)


async def _quiet(_error: Exception) -> None:
    """Ignore errors of a connection that is being closed."""


def admitted(membership: Membership, count: int) -> dict[str, PrivateKey]:
    """Add hosts to the hub as if the founder had invited each of them."""
    settings, own = membership.settings(), membership.key()
    keys = {f"h{number}": PrivateKey.new() for number in range(count)}
    hosts = {settings.host: own.public, **{name: key.public for name, key in keys.items()}}
    listed = {name: {"key": str(key), "pools": []} for name, key in hosts.items()}
    membership.update(Members(2, listed).signed(own))
    server.configure(membership)
    return keys | {settings.host: own}


def written(pid: int) -> int:
    """Bytes that a process has had written to the disk."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])


@dataclass(slots=True)
class Usage:
    """CPU and memory of the real processes."""

    pids: dict[str, int]
    _before: dict[str, int] = field(default_factory=dict)
    _written: dict[str, int] = field(default_factory=dict)
    _began: float = 0.0

    def begin(self) -> None:
        self._before, self._began = {name: cpu_ticks(pid) for name, pid in self.pids.items()}, time.monotonic()
        self._written = {name: written(pid) for name, pid in self.pids.items()}

    def spent(self) -> dict[str, float]:
        """Seconds of CPU since `begin`."""
        return {name: (cpu_ticks(pid) - self._before[name]) * _TICK for name, pid in self.pids.items()}

    def lines(self, what: str, messages: int = 0) -> None:
        seconds = time.monotonic() - self._began
        for name, cpu in self.spent().items():
            memory = next(
                int(line.split()[1]) // 1024
                for line in Path(f"/proc/{self.pids[name]}/status").read_text().splitlines()
                if line.startswith("VmRSS")
            )
            each = f", {cpu * 1e3 / messages:.2f} ms for each message" if messages else ""
            disk = (written(self.pids[name]) - self._written[name]) / 1e3 / seconds
            usage = f"{100 * cpu / seconds:.1f} % of a core{each}, {memory} MB, {disk:.0f} KB/s written"
            print(f"{what}: {name}: {usage}", flush=True)


async def measure(farm: Farm, count: int, agents: int, seconds: float, rate: float) -> None:
    real = farm["real"]
    membership = Membership.of(real.env)
    keys = admitted(membership, count - 1)
    processes = {"server": farm.server.process, "hub process": real.process, "daemon": real["main"].process}
    usage = Usage({name: process.pid for name, process in processes.items() if process is not None})
    names = tuple(f"agent{number}" for number in range(agents))
    hosts = [Simulated(name, key, keys, names) for name, key in keys.items() if name != "real"]
    context = ssl.create_default_context(cadata=membership.certificate())
    for number, host in enumerate(hosts):
        await host.join(membership.settings().servers, context, hears=number % _HEARS == 0)
    usage.begin()
    began, told = time.monotonic(), real.folder / "peers.json"
    work = [asyncio.create_task(one) for host in hosts for one in (host.say_card(), host.take())]
    info = None
    while info is None or len(info.peers) < agents * len(hosts):
        await asyncio.sleep(0.1)
        info = HubInfo.parse(told.read_bytes())
        for task in work:
            if task.done():
                task.result()
    known, size = time.monotonic() - began, told.stat().st_size / 1e6
    print(f"{len(info.peers)} agents of {len(hosts)} hosts known after {known:.1f} s: {size:.1f} MB", flush=True)
    usage.lines("registration")

    usage.begin()
    await asyncio.sleep(min(seconds, 30))
    usage.lines("at rest")

    usage.begin()
    everybody = [Address(host.name, name) for host in hosts for name in names]
    everybody += [Address("real", "main")] * agents
    until = time.monotonic() + seconds
    await asyncio.gather(*(host.give_work(everybody, agents * rate / 60, until) for host in hosts))
    while any(host.sent for host in hosts) and time.monotonic() < until + 30:
        await asyncio.sleep(0.1)
    took = sorted(one for host in hosts for one in host.took)
    left = sum(len(host.sent) for host in hosts)
    print(f"work: {len(took)} messages in {seconds:g} s, {left} without a receipt; receipt after", end=" ")
    print(f"p50 {took[len(took) // 2]:.3f} s, p99 {took[len(took) * 99 // 100]:.3f} s", flush=True)
    usage.lines("work", len(took))
    for task in work:
        task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.farm")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--agents", type=int, default=100, help="per host")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1, help="dispatches of each agent a minute")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        farm = Farm(Path(folder) / "farm", {"real": {"main": {"mailbox": "true"}}})
        try:
            farm.start()
            asyncio.run(measure(farm, said.hosts, said.agents, said.seconds, said.rate))
        finally:
            farm.close()


if __name__ == "__main__":
    main()
