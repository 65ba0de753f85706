"""How it stands with the hub, as the hub process says: for `mailboxd hub status`, fleet, page and doctor.

It answers on a socket. The file that it writes now and then is for what it was when it does not run.
"""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from mailboxd.core.sanitize import first_line
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import POOL
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.host.system import system
from mailboxd.hub.files.membership import STATUS, Membership
from mailboxd.hub.files.status import HubStatus, InvitedHost, PoolsStatus, SpoolStatus
from mailboxd.hub.files.view import NOT_RUNNING, older
from mailboxd.hub.wire.presence import AgentCard, HostSigns, MailCard, Waiting

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import AgentThere, HostRow, ItemThere, MailThere

SOCKET = "ask"
_MORE, _REVOKING = 5.0, 600.0
_AT_ONCE = 1 << 16
LARGEST = 64 << 20
SILENT = 60.0
"""Seconds without a card after which a host counts as silent."""
_DAY = 86_400.0
_GRADES = ("red", "amber", "green", "off")
"""Healths of agents, the worst first."""


@dataclass(frozen=True, slots=True)
class HubReport:
    """The status of this host's part in the hub."""

    facts: HubStatus
    """As the hub process wrote them last, with the settings of this host."""
    hosts: Mapping[str, HostSigns] = field(default_factory=dict)
    """The other hosts, as their last cards showed them."""

    @property
    def trouble(self) -> str:
        """Why nothing can be sent or received; empty if it can."""
        return self.facts["trouble"]

    @property
    def at(self) -> str:
        """When the hub process wrote this; empty if none did."""
        return self.facts.get("at", "")

    @property
    def agents(self) -> Mapping[str, SpoolStatus]:
        """The agents here, in lower case, and what waits in their spools."""
        return self.facts.get("agents", {})

    @property
    def waiting(self) -> dict[str, str]:
        """Since when the oldest message of an agent here waits for its receipt."""
        return {name: one["since"] for name, one in self.agents.items() if one["since"]}

    @property
    def stopped(self) -> int:
        """How much for this host the server no longer delivers, because it was delivered in vain."""
        return self.facts["held"].get("stopped", 0) if "held" in self.facts else 0

    @property
    def pool_troubles(self) -> dict[str, str]:
        """Why jobs that were given to a pool from here are done by nobody, and what to do, by role."""
        return self._pools["trouble"]

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The pools of hub.yaml that the hub's list does not let this host serve."""
        return tuple(sorted(role for role, one in self._pools["served"].items() if not one.get("may_serve", True)))

    @property
    def _pools(self) -> PoolsStatus:
        none: PoolsStatus = {"served": {}, "given": {}, "trouble": {}}
        return {**none, **self.facts["pools"]} if "pools" in self.facts else none

    def lines(self) -> Iterator[str]:
        facts = self.facts
        yield f"host {facts['host']}, server {', '.join(facts['servers'])}: {self.trouble or 'connected'}"
        for host, signs in sorted(self.hosts.items()):
            agents = ", ".join(sorted(signs.agents)) or "no agents"
            seen = f"last heard from at {signs.at}, {agents}" if signs.at else "never heard from"
            yield f"  {host}: {older(host) if signs.is_older else seen}"
        for agent, places in sorted(self.agents.items()):
            if places["since"]:
                waits = f"{places['new']} not yet with the server, {places['sent']} without a receipt yet"
                yield f"  {agent}: {waits}, since {places['since']}"
        if stopped := self.stopped:
            yield f"  {stopped} for {facts['host']} that the server no longer delivers: the hub process ended each time"
        yield from _pool_lines(self._pools)
        yield from _invited(facts["invited"])
        for role in self.unlisted:
            yield f"  pool:{role}: {not_listed(facts['host'], role, self._pools['served'])}"
        for role, why in sorted(self.pool_troubles.items()):
            yield f"  pool:{role}: {first_line(why)}"
        if fork := facts.get("fork"):
            yield f"  {fork}"
        for host, at in sorted(facts.get("flooding", {}).items()):
            yield f"  flooding: the host {host} said so much that it was dropped unread, last at {at}"
        for where, at in sorted(facts.get("copies", {}).items()):
            yield f"  a copy of this host asked at {at} to run at {where}, and was refused"
        for why in facts.get("refused_by_server", ()):
            yield f"  {first_line(why)}"
        for name, hosts in (
            ("send", facts["send"]),
            ("accept", facts["accept"]),
            ("show", facts["show"]),
            ("decide", facts["decide"]),
        ):
            yield f"  {name}: {', '.join(hosts) or 'nobody'}"

    def rows(self, now: str) -> list[HostRow]:
        """Each other host as the fleet shows it."""
        return [self._row(host, signs, now) for host, signs in sorted(self.hosts.items())]

    def _row(self, host: str, signs: HostSigns, now: str) -> HostRow:
        card = signs.card
        silent = older(host) if signs.is_older else silence(signs, now, self.trouble)
        agents = {f"{host}.{name}": _agent(one) for name, one in sorted(signs.agents.items())}
        items = [_as_here(host, item, may_decide=signs.news.may_decide) for item in signs.news.items]
        healths = {one.health for one in signs.agents.values()}
        return {
            "agent": None,
            "host": host,
            "workspace": "",
            "state": "silent" if silent else "ok",
            "why": silent,
            "seen": signs.at or None,
            "health": next((grade for grade in _GRADES if grade in healths), "off"),
            "agents": agents,
            "pools": dict(card.pools) if card else {},
            "open": sum(one.open for one in signs.agents.values()),
            "mail": _mail(card.mail) if card else None,
            "skew": signs.skew,
            "set_back_at": signs.set_back_at or None,
            "troubles": [*_troubles(signs, now)],
            "attention": items,
            "attention_count": sum(one.waiting for one in signs.agents.values()),
        }


def _agent(card: AgentCard) -> AgentThere:
    return {"role": card.role, "health": card.health, "open": card.open, "waiting": card.waiting}


def _mail(card: MailCard) -> MailThere:
    return {
        "out": card.out,
        "since": card.since,
        "held": card.held,
        "again": card.again,
        "repeats": card.repeats,
        "refused": card.refused,
    }


def silence(signs: HostSigns, now: str, trouble: str = "") -> str:
    """Why what is known of a host is stale; empty if it is not."""
    if signs.at and to_epoch(now) - to_epoch(signs.at) <= SILENT:
        return ""
    since = f"nothing has been heard from it since {signs.at}" if signs.at else "it was never heard from"
    return f"{since}; {trouble}" if trouble else since


def not_listed(host: str, role: str, roles: Iterable[str]) -> str:
    """That a host may not serve a pool that its hub.yaml names, and what to do."""
    command = f"mailboxd hub pools {host} {' '.join(sorted(roles))}"
    return f"the hub's list does not let {host} serve {POOL}{role}; on the host that founded the hub: {command}"


def _pool_lines(pools: PoolsStatus) -> Iterator[str]:
    for role, one in sorted(pools["served"].items()):
        lost = f", {one['lost']} taken over by others" if one["lost"] else ""
        yield f"  pool:{role} here: {one['agent']} has {one['held']} of at most {one['slots']} jobs{lost}"
    for role, hosts in sorted(pools["given"].items()):
        where = ", ".join(f"{count} with {host or 'no host yet'}" for host, count in sorted(hosts.items()))
        yield f"  pool:{role}, given from here: {where}"


def _invited(found: Mapping[str, InvitedHost]) -> Iterator[str]:
    for host, one in sorted(found.items()):
        if not one["used_by"]:
            yield f"  {host}: invited, and has not joined; its token is good until {one['until']}"
        if one["refused"]:
            yield f"  {host}: another host asked at {one['refused']} to be let in with its token, and was refused"


def _troubles(signs: HostSigns, now: str) -> Iterator[str]:
    mail = signs.card.mail if signs.card else None
    if mail is not None and mail.out:
        yield f"mail: {mail.out} without a receipt, the oldest since {mail.since}"
    if mail is not None and mail.held:
        yield f"mail: {mail.held} for it with the server, {mail.again} of them delivered before"
    if signs.set_back_at and to_epoch(now) - to_epoch(signs.set_back_at) < _DAY:
        yield f"at {signs.set_back_at} it had forgotten what it did: restored from a backup, or a copy of it runs"


def _as_here(host: str, item: Waiting, *, may_decide: bool) -> ItemThere:
    """An item that waits on another host, with the command to give here if a person here may decide there."""
    agent = f"{host}.{item.agent}"
    words = {"approval": f"approve {agent}:{item.id[-6:].lower()}", "question": f"answer {agent}:{item.task}"}
    here = words.get(item.kind) if may_decide else None
    return {
        "agent": agent,
        "kind": item.kind,
        "text": item.text,
        "command": f"mailboxd {here}" if here else f"ssh {host} {shlex.quote(item.command)}",
        "since": item.since,
        "task": item.task,
        "id": item.id,
        "details": item.details,
        "until": item.until,
        "tasks": item.tasks,
        "host": host,
        "may_decide": may_decide,
    }


def hub_report(membership: Membership) -> HubReport:
    """Raises UnavailableError if this host belongs to no hub, ConfigError, WorldError."""
    settings = membership.settings()
    said: dict[str, Any] = {}
    try:
        said = spoken(membership, {"status": True})
    except UnavailableError as error:
        with suppress(ValueError):
            said = json.loads(membership.state.read(STATUS, largest=LARGEST) or b"{}")
        said["trouble"] = str(error)
    invited = {host: asdict(one) for host, one in membership.invited().items()}
    lists = settings.model_dump(include={"send", "accept", "show", "decide"})
    ours = {"host": settings.host, "servers": settings.servers, "invited": invited}
    facts = cast(HubStatus, {**lists, **said, **ours})  # what another process says has no type; a test compares it
    if (stopped := membership.stopped()) is not None:
        facts["trouble"] = stopped.sentence(settings.host)
    elif membership.joining() is not None and "let into" not in facts["trouble"]:
        facts["trouble"] = f"this host has not been let into the hub yet; {facts['trouble']}"
    hosts = {}
    for host, state in facts.get("hosts", {}).items():
        try:
            hosts[host] = HostSigns.model_validate(state)
        except ValidationError:  # of another version
            hosts[host] = HostSigns()
    return HubReport(facts, hosts)


def spoken(membership: Membership, said: Mapping[str, Any], seconds: float = 0.0) -> dict[str, Any]:
    """The reply of this host's hub process, to something that takes it so long. Raises UnavailableError, WorldError."""
    raw = b""
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link,
            system.socket_address(membership.folder / SOCKET) as address,
        ):
            link.settimeout(seconds + _MORE)
            link.connect(address)
            link.sendall(json.dumps(said).encode() + b"\n")
            while part := link.recv(_AT_ONCE):
                raw += part
        found: dict[str, Any] = json.loads(raw)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise UnavailableError(NOT_RUNNING) from error
    except (OSError, ValueError) as error:
        raise UnavailableError(f"the hub process does not answer: {error}") from error
    return found


def revoked(membership: Membership, host: str, export: str = "") -> dict[str, dict[str, int]]:
    """Have the founder's hub process revoke a host; what it removed, by kind and the other host.

    `export`: a directory for that. Raises UnavailableError if it does not run, WorldError.
    """
    found = spoken(membership, {"revoke": host, "export": export}, _REVOKING)
    if "failed" in found:
        raise WorldError(f"{host} is revoked; what the server has from it and for it is there: {found['failed']}")
    removed: dict[str, dict[str, int]] = found["removed"]
    return removed
