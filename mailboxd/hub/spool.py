"""Between a daemon and the hub process: directories in a workspace, and what is known of agents on other hosts.

    .mailboxd/hub/new/<message_id>.md          from the daemon, not yet stored by the server
    .mailboxd/hub/sent/<message_id>.md         stored by the server; no receipt yet
    .mailboxd/hub/files/<message_id>/          the files that go with it, each named by its SHA-256
    .mailboxd/hub/receipts/<message_id>.json   the receiver's signed receipt, until the daemon has recorded it
    .mailboxd/hub/holders/<message_id>.json    which host has a job of a pool; the job stays in sent/ until it is over

A message is in `new` or `sent` until its receipt is durable. Everything may be repeated. The hub process writes beside
hub.yaml what the daemons of all workspaces need to know; without peers.json there is no hub:

    peers.json    the agents and pools of all hosts, when they have changed
    heard.json    the problem, and when each host was last heard from, every minute
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from mailboxd.core.times import moment, to_epoch
from mailboxd.core.vocabulary import POOL
from mailboxd.errors import MailboxdError
from mailboxd.health import Grade
from mailboxd.host import wakeup
from mailboxd.host.system import system
from mailboxd.hub.protocol import MOST_ATTACHED, Address, Receipt, role_of
from mailboxd.mailbox.files import Stamp, directory, lstat, publish, read_file, replace, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.user_state import UserState

NOT_RUNNING = "the hub process is not running: mailboxd hub run"
NEW, SENT, RECEIPTS, HOLDERS, ATTACHED = "new", "sent", "receipts", "holders", "files"
_FOLDER = "hub"
SETTINGS, PEERS, HEARD = "hub.yaml", "peers.json", "heard.json"
_LARGEST = 8 << 20
_MOST_PEERS = 64 << 20
_TOLD, _SILENT = 60.0, 300.0
"""Seconds after which the daemons learn again that a host is alive, and after which it is silent."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spool:
    """The directories of one workspace. Every method raises WorldError."""

    ws: Workspace

    def create(self) -> None:
        """Create the directories that are missing."""
        with world_errors(f"create {self.ws.state / _FOLDER}"):
            for names in ((), (NEW,), (SENT,), (RECEIPTS,), (HOLDERS,), (ATTACHED,)):
                path = (self.ws.state.name, _FOLDER, *names)
                with directory(self.ws.root, *path[:-1]) as above, suppress(FileExistsError):
                    os.mkdir(path[-1], 0o700, dir_fd=above)
                    system.sync(above)

    def put(self, message_id: str, raw: bytes) -> None:
        """Have a message sent; nothing if it is under way, or its receipt is there."""
        if not any(self._has(place, message_id) for place in (RECEIPTS, SENT)):
            self._publish(NEW, _file(message_id), raw)

    def attach(self, message_id: str, name: str, raw: bytes) -> None:
        """Have a file go with a message that will be put."""
        with self._open(ATTACHED) as above, suppress(FileExistsError):
            os.mkdir(message_id, 0o700, dir_fd=above)
            system.sync(above)
        self._publish(f"{ATTACHED}/{message_id}", name, raw)

    def attached(self, message_id: str) -> dict[str, int]:
        """The files that go with a message, and their sizes."""
        place = self.ws.state / _FOLDER / ATTACHED / message_id
        with world_errors(f"read {place}"), _if_there(), os.scandir(place) as entries:
            return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file()}
        return {}

    def attachment(self, message_id: str, name: str) -> bytes:
        """A file that goes with a message."""
        return self._read(f"{ATTACHED}/{message_id}", name, MOST_ATTACHED) or b""

    def _detach(self, message_id: str) -> None:
        if names := self.attached(message_id):
            for name in names:
                self._remove(f"{ATTACHED}/{message_id}", name)
            with world_errors(f"remove {ATTACHED}/{message_id}"), self._open(ATTACHED) as above, _if_there():
                os.rmdir(message_id, dir_fd=above)

    def stored(self, message_id: str) -> None:
        """The server has stored a message."""
        self._move(message_id, NEW, SENT)

    def again(self, message_id: str) -> None:
        """The server has lost a message: send it again."""
        self._move(message_id, SENT, NEW)

    def settle(self, receipt: Receipt) -> None:
        """Keep the receipt of a message, then give the message up."""
        self._publish(RECEIPTS, f"{receipt.message_id}.json", receipt.to_bytes())
        for place in (NEW, SENT):
            self._remove(place, _file(receipt.message_id))
        self._remove(HOLDERS, f"{receipt.message_id}.json")
        self._detach(receipt.message_id)

    def taken(self, receipt: Receipt, attempt: str) -> None:
        """A host has taken a job of a pool; the daemon gets the receipt, and the job stays."""
        holder = Holder(receipt.sender, receipt.at, attempt)
        with world_errors("write to holders"), self._open(HOLDERS) as fd:
            replace(fd, f"{receipt.message_id}.json", holder.to_bytes(), lambda: True)
        self._publish(RECEIPTS, f"{receipt.message_id}.json", receipt.to_bytes())

    def holder(self, message_id: str) -> Holder | None:
        """The host that has a job of a pool; None if unknown."""
        return Holder.parse(self._read(HOLDERS, f"{message_id}.json") or b"")

    def recorded(self, message_id: str) -> None:
        """The daemon has recorded a receipt."""
        self._remove(RECEIPTS, f"{message_id}.json")

    def names(self, place: str) -> list[str]:
        """The ids of the messages in a place, oldest first."""
        with (
            world_errors(f"read {self.ws.state / _FOLDER / place}"),
            self._open(place) as fd,
            os.scandir(fd) as entries,
        ):
            names = [entry.name for entry in entries]
            return sorted(name.rpartition(".")[0] for name in names if not name.startswith("."))

    def message(self, message_id: str) -> bytes | None:
        """The bytes of a message without receipt; None if there is none."""
        for place in (SENT, NEW):
            if (raw := self._read(place, _file(message_id))) is not None:
                return raw
        return self._read(SENT, _file(message_id))  # it may have moved in between

    def receipt(self, message_id: str) -> Receipt | None:
        return Receipt.parse(self._read(RECEIPTS, f"{message_id}.json") or b"")

    def waiting_since(self) -> float | None:
        """The time of the oldest message without receipt, in seconds since 1970."""
        oldest: list[float] = []
        for place in (NEW, SENT):
            for name in self.names(place)[:1]:  # ids are ordered by time
                with world_errors(f"read {place}"), self._open(place) as fd:
                    status = lstat(fd, _file(name))
                    oldest += [status.st_mtime] if status is not None else []
        return min(oldest, default=None)

    def _open(self, place: str) -> AbstractContextManager[int]:
        return directory(self.ws.root, self.ws.state.name, _FOLDER, *place.split("/"))

    def _has(self, place: str, message_id: str) -> bool:
        ending = "json" if place == RECEIPTS else "md"
        with world_errors(f"read {place}"), self._open(place) as fd:
            return lstat(fd, f"{message_id}.{ending}") is not None

    def _publish(self, place: str, name: str, raw: bytes) -> None:
        """Create a file, unless it is there."""
        with world_errors(f"write to {self.ws.state / _FOLDER / place}"), self._open(place) as fd:
            with suppress(FileExistsError):
                publish(fd, name, raw)
            system.sync(fd)

    def _move(self, message_id: str, source: str, target: str) -> None:
        # not synced: a power cut only has it sent again
        name = _file(message_id)
        with world_errors(f"move {name}"), self._open(source) as old, self._open(target) as new, _if_there():
            os.rename(name, name, src_dir_fd=old, dst_dir_fd=new)

    def _remove(self, place: str, name: str) -> None:
        with world_errors(f"remove {place}/{name}"), self._open(place) as fd, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)

    def _read(self, place: str, name: str, most: int = _LARGEST) -> bytes | None:
        with world_errors(f"read {place}/{name}"), self._open(place) as fd:
            return read_file(fd, name, most)


_if_there = partial(suppress, FileNotFoundError)


def _file(message_id: str) -> str:
    return f"{message_id}.md"


# Reports of the hub process to the daemon


@dataclass(frozen=True, slots=True)
class Holder:
    """The host that has a job of a pool, since when, and for which attempt of the sender."""

    host: str
    at: str
    attempt: str

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Holder | None:
        try:
            found = json.loads(raw)
            return cls(**{one.name: found[one.name] for one in fields(cls) if one.name in found})
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """An agent of another host."""

    role: str = ""
    permitted: bool = True
    """Whether hub.yaml lets agents of this host give work to it (`send`)."""


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool, the hosts that serve it, and whether hub.yaml lets agents of this host give work to it (`send`)."""

    hosts: tuple[str, ...] = ()
    permitted: bool = True
    agent: str = ""
    """The agent here that serves it, in lower case."""

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> PoolInfo:
        return cls(tuple(found["hosts"]), bool(found["permitted"]), str(found["agent"]))


@dataclass(frozen=True, slots=True)
class HubInfo:
    """The members of the hub: peers.json."""

    host: str
    """This host's name in the hub."""
    hosts: tuple[str, ...] = ()
    """The other hosts."""
    peers: Mapping[str, PeerInfo] = field(default_factory=dict)
    """Their agents by address."""
    pools: Mapping[str, PoolInfo] = field(default_factory=dict)
    """By role."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, raw: bytes) -> HubInfo | None:
        try:
            found = json.loads(raw)
            peers = {str(name): PeerInfo(**info) for name, info in found["peers"].items()}
            pools = {str(role): PoolInfo.parse(info) for role, info in found["pools"].items()}
            return cls(found["host"], tuple(found["hosts"]), peers, pools)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Heard:
    """The state of the hub: heard.json."""

    trouble: str = ""
    """Why nothing can be sent or received; empty if it can."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """When each of the other hosts was last heard from; empty = never."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Receivers, in lower case, whose mail the server does not take now, and why."""
    unwell: Mapping[str, str] = field(default_factory=dict)
    """The agents on other hosts, in lower case, whose daemon does not run or does not work: its `health.Grade`."""

    def to_bytes(self) -> bytes:
        """Without fields that daemons of earlier versions do not know, if there is nothing in them."""
        known = ("trouble", "hosts")
        return json.dumps({name: value for name, value in asdict(self).items() if name in known or value}).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Heard | None:
        try:
            return cls(**json.loads(raw))
        except (ValueError, TypeError):
            return None

    def is_news(self, told: Heard | None) -> bool:
        """Whether this is news: another problem, a new host, or a sign of life at least a minute later."""
        known = None if told is None else (told.trouble, told.hosts.keys(), told.refused, told.unwell)
        if told is None or known != (self.trouble, self.hosts.keys(), self.refused, self.unwell):
            return True
        since = ((told.hosts[host], at) for host, at in self.hosts.items() if at)
        return any(not before or to_epoch(at) - to_epoch(before) >= _TOLD for before, at in since)


@dataclass(slots=True)
class _Latest(Generic[T]):
    """The latest file of the hub process, read again whenever it has changed; None if there is none."""

    state: UserState
    name: str
    parse: Callable[[bytes], T | None]
    _stamp: Stamp | None = None
    _found: T | None = None
    _path: Path = field(init=False)

    def __post_init__(self) -> None:
        self._path = self.state.folder / self.name

    def __call__(self) -> T | None:
        stamp = None
        with suppress(OSError):
            stamp = Stamp.of(self._path.lstat())
        if stamp != self._stamp:
            self._stamp, self._found = stamp, None
            with suppress(MailboxdError):
                self._found = self.parse(self.state.read(self.name, largest=_MOST_PEERS) or b"")
        return self._found


@dataclass(slots=True)
class HubView:
    """The known state of the hub in the workspace of an agent."""

    ws: Workspace
    agent: str
    state: UserState
    """The directory of the hub process."""
    _info: _Latest[HubInfo] = field(init=False)
    _heard: _Latest[Heard] = field(init=False)

    def __post_init__(self) -> None:
        self._info = _Latest(self.state, PEERS, HubInfo.parse)
        self._heard = _Latest(self.state, HEARD, Heard.parse)

    @property
    def info(self) -> HubInfo | None:
        """None without a hub, and until the hub process has run."""
        return self._info()

    @property
    def is_member(self) -> bool:
        """Whether this host belongs to a hub."""
        return self.info is not None or (self.state.folder / SETTINGS).exists()

    def _seen(self, host: str) -> str:
        heard = self._heard()
        return heard.hosts.get(host, "") if heard is not None else ""

    def poke(self) -> bool:
        """Wake the hub process; whether it runs."""
        return wakeup.poke(self.state.folder)

    def address(self, agent: str) -> Address | None:
        """The address of an agent on a host of the hub; None for any other name.

        Until the hub process has said which hosts there are, every host may be one of them.
        """
        address = Address.parse(agent)
        if address is None:  # most names: no file is looked at for them
            return None
        if (info := self.info) is None:
            return address if self.is_member else None
        return address if address.host in info.hosts or address.host == info.host else None

    def carries(self, agent: str) -> bool:
        """Whether mail for this name goes through the hub: an agent of a host, or a pool. Most names are neither."""
        if "." not in agent and not agent.startswith(POOL):
            return False
        return bool(role_of(agent)) or self.address(agent) is not None

    def is_informed(self, agent: str) -> bool:
        """Whether the hub process has said what the host of this agent offers, or which pools there are."""
        address, info = self.address(agent), self.info
        if address is None or info is None:
            return info is not None
        return any(name.startswith(f"{address.host}.") for name in info.peers)

    def is_own(self, to: str) -> bool:
        """Whether a message to a pool is for this workspace's agent."""
        pool = self.info.pools.get(role_of(to)) if self.info is not None else None
        return pool is not None and pool.agent == self.agent.lower()

    def refused(self, agent: str) -> str | None:
        """Why an agent on another host, or a pool, may not be given work; None = it may, or it is neither."""
        if role := role_of(agent):
            return self._refused_pool(role)
        address, info = self.address(agent), self.info
        if address is None:
            return None
        if info is None:
            return f"the hub process has not said yet which hosts there are; {self.trouble or 'it is starting'}"
        peer = info.peers.get(str(address))
        if peer is None and any(name.startswith(f"{address.host}.") for name in info.peers):
            known = ", ".join(sorted(name for name in info.peers if name.startswith(f"{address.host}.")))
            return f"there is no agent {address.agent} on the host {address.host}, which has {known}"
        if peer is None:
            return f"the hub does not know yet which agents the host {address.host} has"
        return None if peer.permitted else f"hub.yaml of {info.host} does not let its agents give work to {address}"

    def _refused_pool(self, role: str) -> str | None:
        info = self.info
        pool = info.pools.get(role) if info is not None else None
        if info is None or pool is None:
            known = ", ".join(f"{POOL}{name}" for name in sorted(info.pools)) if info is not None else ""
            return f"no host of the hub serves {POOL}{role}" + (f"; there is {known}" if known else "")
        return None if pool.permitted else f"hub.yaml of {info.host} does not let its agents give work to {POOL}{role}"

    def offered(self) -> dict[str, str]:
        """The agents and pools that may be given work, with their roles."""
        info = self.info
        if info is None:
            return {}
        peers = {name: peer.role for name, peer in sorted(info.peers.items()) if peer.permitted}
        pools = {role: pool for role, pool in sorted(info.pools.items()) if pool.permitted}
        return peers | {f"{POOL}{role}": f"any of {', '.join(pool.hosts)}" for role, pool in pools.items()}

    @property
    def trouble(self) -> str:
        """Why nothing can be sent or received; empty if it can, or there is no hub."""
        if not self.is_member:
            return ""
        heard = self._heard()
        return heard.trouble if heard is not None and self.poke() else NOT_RUNNING

    def holds_up(self, agent: str) -> str:
        """The reason that delays mail for an agent on another host, or work for a pool; empty for any other name."""
        if not self.carries(agent) or (info := self.info) is None:
            return ""
        if trouble := self.trouble:
            return f"mail for {agent} waits for the hub: {trouble}"
        heard_of = self._heard()
        if heard_of is not None and (why := heard_of.refused.get(agent.lower())):
            return f"mail for {agent} waits: {why}"
        address = self.address(agent)
        if address is None:
            hosts = info.pools[role].hosts if (role := role_of(agent)) in info.pools else ()
            return f"no host has taken it yet; {agent} is served by {', '.join(hosts) or 'none'}"
        seen = self._seen(address.host)
        at = moment(seen, seen) if seen else ""
        heard = (
            f"the host {address.host} was last heard from at {at}" if seen else f"{address.host} was never heard from"
        )
        return f"mail for {address} is under way through the hub, without a receipt yet; {heard}"

    def unwell(self, agent: str) -> str:
        """Why an agent on another host does not take its mail, as that host says; empty if it does."""
        heard, address = self._heard(), self.address(agent)
        grade = heard.unwell.get(agent.lower()) if heard is not None and address is not None else None
        if grade is None or address is None:
            return ""
        if grade == Grade.OFF:
            return f"the host {address.host} says that no daemon runs for {address.agent}"
        return f"the host {address.host} says that the daemon of {address.agent} does not work"

    def silence(self, host: str, now: str) -> str:
        """A sentence that a host is silent; empty if it is not."""
        if self.info is None or host == self.info.host:
            return ""
        seen = self._seen(host)
        if seen and to_epoch(now) - to_epoch(seen) < _SILENT:
            return ""
        return f"nothing has been heard from the host {host}" + (f" since {moment(seen, now)}" if seen else "")
