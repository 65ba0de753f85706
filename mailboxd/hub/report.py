"""How it stands with the hub, from the files of the hub process: for `mailboxd hub status` and the doctor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.sanitize import first_line
from mailboxd.host import wakeup
from mailboxd.hub.membership import Membership
from mailboxd.hub.spool import NOT_RUNNING

STATUS = "status.json"


@dataclass(frozen=True, slots=True)
class HostSigns:
    """What the last card of another host said, and when it came."""

    at: str = ""
    said_at: str = ""
    """By its own clock."""
    agents: Mapping[str, str] = field(default_factory=dict)
    """Their roles, by their ids there."""
    skew: float = 0.0
    """Seconds that its clock is ahead of this one, as far as the card shows."""


@dataclass(frozen=True, slots=True)
class HubReport:
    """The status of this host's part in the hub."""

    facts: dict[str, Any]
    """As the hub process wrote them last, with the settings of this host."""

    @property
    def trouble(self) -> str:
        """Why nothing can be sent or received; empty if it can."""
        return str(self.facts["trouble"])

    @property
    def hosts(self) -> dict[str, HostSigns]:
        """The other hosts, as their last cards showed them."""
        return {host: HostSigns(**state) for host, state in self.facts.get("hosts", {}).items()}

    @property
    def waiting(self) -> dict[str, str]:
        """Since when the oldest message of an agent here waits for its receipt."""
        return {name: one["since"] for name, one in self.facts.get("agents", {}).items() if one["since"]}

    def lines(self) -> Iterator[str]:
        facts = self.facts
        yield f"host {facts['host']}, server {', '.join(facts['servers'])}: {self.trouble or 'connected'}"
        for host, signs in sorted(self.hosts.items()):
            agents = ", ".join(sorted(signs.agents)) or "no agents"
            yield f"  {host}: last heard of at {signs.at}, {agents}" if signs.at else f"  {host}: never heard of"
        for agent, places in sorted(facts.get("agents", {}).items()):
            if places["since"]:
                waits = f"{places['new']} not yet with the server, {places['sent']} without a receipt yet"
                yield f"  {agent}: {waits}, since {places['since']}"
        for why in facts.get("refused_by_server", ()):
            yield f"  {first_line(why)}"
        for name in ("send", "accept"):
            yield f"  {name}: {', '.join(facts[name]) or 'nobody'}"


def hub_report(membership: Membership) -> HubReport:
    """Raises UnavailableError if this host belongs to no hub, ConfigError, WorldError."""
    settings = membership.settings()
    facts: dict[str, Any] = {"trouble": NOT_RUNNING, **settings.model_dump(include={"send", "accept"})}
    with suppress(ValueError):
        facts |= json.loads(membership.state.read(STATUS) or b"{}")
    if not wakeup.poke(membership.folder):
        facts["trouble"] = NOT_RUNNING
    facts |= {"host": settings.host, "servers": settings.servers}
    return HubReport(facts)
