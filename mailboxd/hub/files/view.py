"""What is known of other hosts in the workspace of an agent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from mailboxd.core.times import moment, to_epoch
from mailboxd.core.vocabulary import NOT_KNOWN_YET, POOL
from mailboxd.errors import MailboxdError
from mailboxd.formats.health import Grade
from mailboxd.formats.mailbox.files import Stamp
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user.state import UserState
from mailboxd.host import wakeup
from mailboxd.hub.wire.names import Address, role_of

NOT_RUNNING = "the hub process is not running: mailboxd hub run"
SETTINGS, PEERS, HEARD = "hub.yaml", "peers.json", "heard.json"
_MOST_PEERS = 64 << 20
_TOLD, _SILENT = 60.0, 300.0
"""Seconds after which the daemons learn again that a host is alive, and after which it is silent."""
T = TypeVar("T")


def has_hub(environ: Mapping[str, str]) -> bool:
    """Whether this host belongs to a hub."""
    return (UserState.of(environ, "hub").folder / SETTINGS).exists()


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
    is_complete: bool = True
    """False while hosts may be missing: the hub process has just begun, and not heard of all of them yet."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, raw: bytes) -> HubInfo | None:
        try:
            found = json.loads(raw)
            peers = {str(name): PeerInfo(**info) for name, info in found["peers"].items()}
            pools = {str(role): PoolInfo.parse(info) for role, info in found["pools"].items()}
            return cls(found["host"], tuple(found["hosts"]), peers, pools, bool(found.get("is_complete", True)))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def older(host: str) -> str:
    """The sentence about a host that speaks an earlier version of the wire."""
    return f"the mailboxd of the host {host} is older, and this one does not understand it: upgrade it there"


@dataclass(frozen=True, slots=True)
class Heard:
    """The state of the hub: heard.json."""

    trouble: str = ""
    """Why nothing can be sent or received; empty if it can."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """When each of the other hosts was last heard from; empty = never."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Receivers, in lower case, whose mail the server does not take now, and why."""
    untaken: Mapping[str, str] = field(default_factory=dict)
    """Pools whose jobs from here are done by nobody, and why, by role."""
    unwell: Mapping[str, str] = field(default_factory=dict)
    """The agents on other hosts, in lower case, whose daemon does not run or does not work: its `health.Grade`."""
    older: tuple[str, ...] = ()
    """Hosts that speak an earlier version of the wire."""
    full: str = ""
    """Why the server takes no mail from this host for any other; empty if it does."""

    def to_bytes(self) -> bytes:
        """Without fields that daemons of earlier versions do not know, if there is nothing in them."""
        known = ("trouble", "hosts")
        return json.dumps({name: value for name, value in asdict(self).items() if name in known or value}).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Heard | None:
        try:
            found = json.loads(raw)
            return cls(**{**found, "older": tuple(found.get("older", ()))})
        except (ValueError, TypeError, AttributeError):
            return None

    def _lasting(self) -> tuple[object, ...]:
        return self.trouble, self.hosts.keys(), self.refused, self.untaken, self.unwell, self.older, self.full

    def is_news(self, told: Heard | None) -> bool:
        """Whether this is news: another problem, a new host, or a sign of life at least a minute later."""
        if told is None or told._lasting() != self._lasting():
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
    _path: str = field(init=False)
    """Text: this is asked for each turn, and pathlib costs more than the call."""

    def __post_init__(self) -> None:
        self._path = f"{self.state.folder}/{self.name}"

    def __call__(self) -> T | None:
        try:
            stamp = Stamp.of(os.lstat(self._path))
        except OSError:
            stamp = None
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

    def _is_older(self, host: str) -> bool:
        heard = self._heard()
        return heard is not None and host in heard.older

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
        is_known = address.host in info.hosts or address.host == info.host
        return address if is_known or self._may_be_more(info) else None

    def _may_be_more(self, info: HubInfo) -> bool:
        """Whether there may be hosts and pools of which nothing was heard yet."""
        return not info.is_complete or bool(self.trouble)

    def carries(self, agent: str) -> bool:
        """Whether mail for this name goes through the hub: an agent of a host, or a pool. Most names are neither."""
        if "." not in agent and not agent.startswith(POOL):
            return False
        return bool(role_of(agent)) or self.address(agent) is not None

    def is_informed(self, agent: str) -> bool:
        """Whether the hub process has said what the host of this agent offers, or which pools there are."""
        address, info = self.address(agent), self.info
        if info is None:
            return False
        if address is None:
            return role_of(agent) in info.pools or not self._may_be_more(info)
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
        if address.host not in (*info.hosts, info.host):
            return f"the hub has no host {address.host} as far as is known; {self.trouble or 'it is asking the others'}"
        if peer is None and any(name.startswith(f"{address.host}.") for name in info.peers):
            known = ", ".join(sorted(name for name in info.peers if name.startswith(f"{address.host}.")))
            return f"there is no agent {address.agent} on the host {address.host}, which has {known}"
        if peer is None and self._seen(address.host) and not self._is_older(address.host):
            return f"the host {address.host} has no agents"
        if peer is None:
            why = f"{NOT_KNOWN_YET}which agents the host {address.host} has"
            return f"{why}; {self.trouble}" if self.trouble else why
        return None if peer.permitted else f"hub.yaml of {info.host} does not let its agents give work to {address}"

    def _refused_pool(self, role: str) -> str | None:
        info = self.info
        pool = info.pools.get(role) if info is not None else None
        if info is None or pool is None:
            if self.is_member and (info is None or self._may_be_more(info)):
                return f"no host is known yet to serve {POOL}{role}; {self.trouble or 'the others are being asked'}"
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
        return heard.trouble or heard.full if heard is not None and self.poke() else NOT_RUNNING

    @property
    def absence(self) -> str:
        """That no hub process runs, so that no mail comes; empty if one does, or if there is no hub."""
        return NOT_RUNNING if self.is_member and not self.poke() else ""

    @property
    def is_full(self) -> bool:
        """Whether the server takes no mail from this host."""
        return (heard := self._heard()) is not None and bool(heard.full)

    def holds_up(self, agent: str) -> str:
        """The reason that delays mail for an agent on another host, or work for a pool; empty for any other name."""
        if not self.carries(agent) or (info := self.info) is None:
            return ""
        if trouble := self.trouble:
            return f"mail for {agent} waits for the hub: {trouble}"
        heard_of = self._heard()
        if heard_of is not None and (why := heard_of.refused.get(agent.lower())):
            return f"mail for {agent} waits: {why}"
        if why := self.untaken(agent):
            return why
        address = self.address(agent)
        if address is None:
            hosts = info.pools[role].hosts if (role := role_of(agent)) in info.pools else ()
            return f"no host has taken it yet; {agent} is served by {', '.join(hosts) or 'none'}"
        if heard_of is not None and address.host in heard_of.older:
            return f"mail for {address} waits: {older(address.host)}"
        if why := self.unwell(agent):
            return f"mail for {address} waits: {why}"
        seen = self._seen(address.host)
        at = moment(seen, seen) if seen else ""
        heard = (
            f"the host {address.host} was last heard from at {at}" if seen else f"{address.host} was never heard from"
        )
        return f"mail for {address} is under way through the hub, without a receipt yet; {heard}"

    def untaken(self, agent: str) -> str:
        """Why jobs for a pool are done by nobody, and what to do; empty if they are, and for any other name."""
        heard = self._heard()
        return heard.untaken.get(role_of(agent), "") if heard is not None else ""

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
