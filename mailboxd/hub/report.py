"""How it stands with the hub, from the files of the hub process: for `mailboxd hub status` and the doctor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mailboxd.core.sanitize import first_line
from mailboxd.host import wakeup
from mailboxd.hub.membership import Membership
from mailboxd.hub.spool import NOT_RUNNING

STATUS = "status.json"


@dataclass(frozen=True, slots=True)
class HubReport:
    """The status of this host's part in the hub."""

    facts: dict[str, Any]
    """As the hub process wrote them last, with the settings of this host."""

    @property
    def trouble(self) -> str:
        """Why nothing can be sent or received; empty if it can."""
        return str(self.facts["trouble"])

    def lines(self) -> Iterator[str]:
        facts = self.facts
        yield f"host {facts['host']}, server {', '.join(facts['servers'])}: {self.trouble or 'connected'}"
        for host, state in sorted(facts.get("hosts", {}).items()):
            agents = ", ".join(sorted(state["agents"])) or "no agents"
            yield f"  {host}: last heard of at {state['at']}, {agents}" if state["at"] else f"  {host}: never heard of"
        for agent, places in sorted(facts.get("agents", {}).items()):
            if any(places.values()):
                yield f"  {agent}: {places['new']} not yet with the server, {places['sent']} without a receipt yet"
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
