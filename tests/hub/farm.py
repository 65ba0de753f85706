"""Hosts of a hub as directories: each has its own state, workspaces and hub process; one runs the server."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nats
from nats.aio.client import Client

from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.status import HubStatus
from mailboxd.hub.process.api import all_of
from mailboxd.hub.wire.members import nkey_seed
from tests.e2e.support import MAILBOXD, Company, environment, eventually
from tests.ledger.shapes import require

SETTINGS = HubStatus(host="alpha", servers=(), send=(), accept=(), show=(), decide=(), invited={}, trouble="")
"""What `hub status` says of a host whose hub process has said nothing yet."""
SERVER = Path(sys.executable).parent / "nats-server"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Host(Company):
    """A host: a company of agents with a state directory and a hub process of its own."""

    patience = 60.0

    def __init__(self, root: Path, name: str, agents: Mapping[str, Any]) -> None:
        root.mkdir(parents=True)
        self.name = name
        self.state = root / "state"
        self.folder = self.state / "mailboxd" / "hub"
        self.log = root / "hub.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.within: tuple[str, ...] = ()
        """What starts the hub process, if it is to run elsewhere."""
        super().__init__(root, agents, {"XDG_STATE_HOME": str(self.state)})

    def hub(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """`mailboxd hub ...` as this host's user."""
        command, env = [*MAILBOXD, "hub", *words], environment(self.env)
        return subprocess.run(
            command, env=env, cwd=self.root, input=given, capture_output=True, text=True, timeout=120, check=False
        )

    def ordered(self, *words: str, given: str = "") -> str:
        done = self.hub(*words, given=given)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def start_hub(self, *options: str) -> None:
        with self.log.open("ab") as log:
            command = [*self.within, *MAILBOXD, "hub", "run", "-v", *options]
            self.process = subprocess.Popen(
                command, env=environment(self.env), cwd=self.root, stdout=log, stderr=log, start_new_session=True
            )

    def kill_hub(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop_hub(self) -> int:
        assert self.process is not None
        self.process.terminate()
        status = self.process.wait(30)
        self.process = None
        return status

    def let_in(self) -> None:
        """Have the founder let this host in, whose hub process does not run after that."""
        self.start_hub()
        eventually(lambda: not (self.folder / "joining.json").exists(), 30, self.last_words)
        self.kill_hub()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.hub("status", "--json").stdout)
        require(found, HubStatus)
        return found

    def is_connected_with(self, *hosts: str) -> bool:
        status = self.status()
        return not status["trouble"] and all(status["hosts"].get(host, {}).get("at") for host in hosts)

    def spooled(self, place: str) -> list[str]:
        """The messages in a place of the spools of all agents here."""
        return [path.name for path in self.root.glob(f"ws/*/.mailboxd/hub/{place}/*")]

    def refused(self) -> list[str]:
        """Why what arrived was refused."""
        texts = [path.read_text() for path in sorted(self.folder.glob("refused/*.json"))]
        return [json.loads(text)["reason"] for text in texts if text.endswith("}")]  # else it is being written

    def last_words(self) -> str:
        own = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
        return f"--- hub of {self.name}\n{own}" + "".join(
            f"\n--- {agent.name} of {self.name}\n{agent.last_words()}" for agent in self.agents.values()
        )

    def close(self) -> None:
        self.kill_hub()
        super().close()


@cache
def _founder(name: str, *options: str) -> tuple[TemporaryDirectory[str], Host]:
    kept = TemporaryDirectory()
    host = Host(Path(kept.name) / name, name, {})
    host.ordered("init", name, "--address", "127.0.0.1:4222", *options)
    return kept, host


def founder(folder: Path, name: str, *options: str) -> Host:
    """A host that has founded a hub with these options: a copy of one that did, for that takes a program a second."""
    host = Host(folder / name, name, {})
    shutil.copytree(_founder(name, *options)[1].state, host.state)
    return host


async def connected(host: Host, **options: Any) -> Client:
    """A connection to the server with the key of a host."""
    member = Membership.of(host.env)
    return await nats.connect(
        list(member.settings().servers),
        tls=ssl.create_default_context(cadata=member.certificate()),
        nkeys_seed_str=nkey_seed(member.key()),
        inbox_prefix=f"_INBOX.{host.name}",
        **options,
    )


def count(host: Host, stream: str) -> int:
    """How many messages the server has in a stream, as the founder may see: others may not look at all streams."""

    async def counted() -> int:
        client = await connected(host)
        try:
            key = Membership.of(host.env).key()
            return (await all_of(client, key).stream_info(stream)).state.messages
        finally:
            await client.close()

    return asyncio.run(counted())


class Server:
    """A NATS server with the configuration that the founder's `hub init` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder.parent / f"{folder.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.options: tuple[str, ...] = ()

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [str(SERVER), "-c", str(self.folder / "nats.conf"), *self.options]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Farm:
    """Hosts that belong to one hub. The first founds it and runs the server."""

    def __init__(
        self,
        root: Path,
        hosts: Mapping[str, Mapping[str, Any]],
        *,
        nodes: int = 1,
        address: str = "127.0.0.1",
        **settings: Any,
    ) -> None:
        self.hosts = {name: Host(root / name, name, agents) for name, agents in hosts.items()}
        for host in self.hosts.values():
            for agent in host.agents.values():
                agent.settle_in({"synthesis": "concat", **settings})
        founder, *others = self.hosts.values()
        ports = [free_port() for _ in range(nodes)]
        self.port = ports[0]
        allowed = ("--send", "*", "--accept", "*")
        addresses = [word for port in ports for word in ("--address", f"{address}:{port}")]
        founder.ordered("init", founder.name, *addresses, "--listen", f"{address}:{self.port}", *allowed)
        self.servers = [Server(founder.folder / "server")]
        if nodes == 1:
            self.servers[0].start()
        if nodes > 1:
            self._cluster(founder, ports)
            founder.start_hub()
        for host in others:
            host.ordered("join", *allowed, given=founder.ordered("invite", host.name, "--pool", "*"))
        if nodes > 1:
            founder.stop_hub()
            self._configure(ports)

    def _cluster(self, founder: Host, ports: list[int]) -> None:
        """More servers, as docs/scale.md says: copies of the directory, each with its cluster.conf."""
        first = self.servers[0].folder
        settings = founder.folder / "hub.yaml"
        settings.write_text(settings.read_text().replace("replicas: 1", f"replicas: {len(ports)}"))
        inner = [free_port() for _ in ports]
        routes = [f"nats://127.0.0.1:{port}" for port in inner]
        self.servers += [Server(founder.root / f"server{number}") for number in range(1, len(ports))]
        for number, server in enumerate(self.servers):
            server.folder.mkdir(exist_ok=True)
            cluster = {"name": "hub", "listen": f"127.0.0.1:{inner[number]}", "routes": routes}
            (server.folder / "cluster.conf").write_text(f"server_name: n{number}\ncluster: {json.dumps(cluster)}\n")
        (first / "nats.conf").write_text((first / "nats.conf").read_text() + "include cluster.conf\n")
        self._configure(ports)
        for server in self.servers:
            server.start()

    def _configure(self, ports: list[int]) -> None:
        """Copy the first server's configuration to the others; those that run read it again."""
        first = self.servers[0].folder
        text = (first / "nats.conf").read_text()
        for number, server in enumerate(self.servers[1:], 1):
            own = text.replace(f":{ports[0]}", f":{ports[number]}")
            for name in ("store", "nats.pid"):
                own = own.replace(f"{first}/{name}", f"{server.folder}/{name}")
            (server.folder / "nats.conf").write_text(own)
            if server.process is not None:
                server.process.send_signal(signal.SIGHUP)

    @property
    def server(self) -> Server:
        return self.servers[0]

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def these(self, *names: str) -> list[Host]:
        """These hosts, by default all."""
        return [self.hosts[name] for name in names or self.hosts]

    def start(self, *names: str) -> None:
        """Start every daemon and every hub process of these hosts, and wait until they have heard of each other."""
        for host in self.these(*names):
            for agent in host.agents.values():
                agent.start(wait=False)
        for host in self.these(*names):
            for agent in host.agents.values():
                agent.until_ready()
            host.start_hub()
        self.until_connected(*names)

    def until_connected(self, *names: str) -> None:
        names = names or tuple(self.hosts)
        for host in self.these(*names):
            eventually(lambda host=host: host.is_connected_with(*{*names} - {host.name}), 30, self.last_words)  # type: ignore[misc]

    def at_rest(self, *names: str) -> None:
        """Everything is done: nothing waits in a spool, and the witness finds nothing wrong."""
        for host in self.these(*names):
            eventually(lambda host=host: not (host.spooled("new") + host.spooled("sent")), 60, self.last_words)  # type: ignore[misc]
        for host in self.these(*names):
            host.at_rest()

    def last_words(self) -> str:
        logs = [server.log.read_text(errors="replace")[-1000:] for server in self.servers if server.log.exists()]
        server = "\n".join(logs)
        return "\n".join(host.last_words() for host in self.hosts.values()) + f"\n--- server\n{server}"

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        for server in self.servers:
            server.kill()
