"""What the hub process reports: to the daemons here, and to `mailboxd hub status`."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, replace

from mailboxd.core.times import to_text
from mailboxd.errors import WorldError
from mailboxd.formats.health import Grade
from mailboxd.hub.files.membership import STATUS
from mailboxd.hub.files.spool import NEW, SENT
from mailboxd.hub.files.status import ProcessStatus, SpoolStatus
from mailboxd.hub.files.view import HEARD, PEERS, Heard, HubInfo, PeerInfo
from mailboxd.hub.process.here import ThisHost, logged
from mailboxd.hub.process.jobs_given import JobsGiven
from mailboxd.hub.process.jobs_held import JobsHeld
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.receipts import Receipts
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Workspaces
from mailboxd.hub.wire import names
from mailboxd.hub.wire.presence import HostSigns

_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Reporting:
    """The reports of one hub process."""

    here: ThisHost
    workspaces: Workspaces
    under_way: UnderWay
    receipts: Receipts
    presence: Presence
    jobs_given: JobsGiven
    jobs_held: JobsHeld
    _info: HubInfo | None = None
    _heard: Heard | None = None
    """The last report to the daemons."""

    def say_trouble(self, why: str) -> None:
        """Why nothing can be sent or received; empty if it can."""
        if why != self.here.trouble:
            _log.log(logging.WARNING if why else logging.INFO, "%s", why or f"connected to {self.here.server}")
            self.here.trouble = why
            self.tell_daemons()

    def look_around(self) -> None:
        """Read the settings and find the workspaces again, and tell the daemons; stop if this host left the hub."""
        if not self.here.membership.exists() or self._has_joined_again():
            self.here.stopping.set()
            return
        with logged("read its settings"):
            self.here.settings = self.here.membership.settings()
        self.workspaces.find()
        self.tell_daemons()

    def _has_joined_again(self) -> bool:
        """Whether this host has another key now: it left the hub while this process ran, and joined again."""
        with logged("read its key"):
            if self.here.membership.key() != self.here.key:
                _log.warning("this host has joined again: start the hub process again: mailboxd hub run")
                return True
        return False

    def tell_daemons(self) -> None:
        """Write what the daemons need to know, if it is news; nothing once this host has left the hub."""
        if not self.here.membership.exists():
            return
        send, hosts = self.here.settings.send, self.here.keys.members().hosts.keys() - {self.here.settings.host}
        with logged("read who is invited"):
            hosts |= self.here.membership.invited().keys()  # work for them waits until they have joined
        peers = {
            f"{host}.{agent.lower()}": PeerInfo(card.role, names.permits(send, f"{host}.{agent}"))
            for host, state in self.presence.hosts.items()
            for agent, card in state.agents.items()
        }
        info = HubInfo(self.here.settings.host, tuple(sorted(hosts)), peers, self.jobs_given.known())
        info = replace(info, is_complete=self.presence.is_complete())
        signs = {host: self.presence.hosts[host].at if host in self.presence.hosts else "" for host in hosts}
        unwell = {
            f"{host}.{agent.lower()}": card.health
            for host, state in self.presence.hosts.items()
            for agent, card in state.agents.items()
            if card.health in (Grade.RED, Grade.OFF)
        }
        refused = {held.to: held.why for held in self.under_way.waiting.values() if held.to}
        older = tuple(sorted(host for host, state in self.presence.hosts.items() if state.is_older))
        heard = Heard(self.here.trouble, signs, refused, self.jobs_given.trouble, unwell, older, self.here.full)
        if (is_changed := info != self._info) or heard.is_news(self._heard):
            with logged("tell the daemons"):
                if is_changed:
                    self._write(PEERS, info.to_bytes())
                self._write(HEARD, heard.to_bytes())
                self._info, self._heard = info, heard
            for agent in self.workspaces.local:
                self.workspaces.wake(agent)

    def _write(self, name: str, raw: bytes) -> None:
        with self.here.membership.state.writing() as folder:
            self.here.membership.state.write(folder, name, raw)

    def status(self) -> ProcessStatus:
        """For `mailboxd hub status`."""
        waiting: dict[str, SpoolStatus] = {}
        for one in self.workspaces.spools():
            with suppress(WorldError):
                since = one.spool.waiting_since()
                waiting[one.agent.lower()] = {
                    "new": len(one.spool.names(NEW)),
                    "sent": len(one.spool.names(SENT)),
                    "since": "" if since is None else to_text(since),
                }
        return {
            "pid": os.getpid(),
            "at": self.here.clock.now(),
            "host": self.here.settings.host,
            "servers": self.here.settings.servers,
            "send": self.here.settings.send,
            "accept": self.here.settings.accept,
            "trouble": self.here.trouble or self.here.full,
            "refused_by_server": sorted({held.why for held in self.under_way.waiting.values()}),
            "hosts": {
                host: self.presence.hosts.get(host, HostSigns()).model_dump()
                for host in self.here.keys.members().hosts
                if host != self.here.settings.host
            },
            "foreign": self.here.foreign,
            "flooding": self.here.flooding,
            "fork": self.here.fork,
            "copies": self.here.copies,
            "agents": waiting,
            "pools": {
                "served": self.jobs_held.status(),
                "given": self.jobs_given.status(),
                "trouble": self.jobs_given.trouble,
            },
            "owed": len(self.receipts.owed),
            "held": self.presence.held,
            "counts": self.here.counts,
        }

    def write_status(self) -> None:
        with logged("write its status"):
            if self.here.membership.exists():
                self._write(STATUS, json.dumps(self.status()).encode())
