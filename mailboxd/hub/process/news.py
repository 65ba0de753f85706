"""What waits for a person here, in words: told to the hosts that `show` and `decide` in hub.yaml name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nats.errors import Error as NatsError
from pydantic import ValidationError

from mailboxd.errors import UnavailableError
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.requests import Requests
from mailboxd.hub.process.workspaces import Workspaces
from mailboxd.hub.wire import names
from mailboxd.hub.wire.presence import HostSigns, News, is_repeated

_MOST_ITEMS = 200
_PATIENCE = 5.0
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Telling:
    """What one hub process tells the others, and what it was told."""

    here: ThisHost
    workspaces: Workspaces
    presence: Presence
    requests: Requests
    _told: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """What each host knows, and the run of its hub process that was told."""

    def __post_init__(self) -> None:
        self.requests.handlers["news"] = self.hear

    async def tell(self) -> None:
        """Tell the hosts that may know it what has changed."""
        items = [item for one in self.workspaces.local.values() for item in self.workspaces.items(one)][:_MOST_ITEMS]
        wanted: dict[str, dict[str, Any]] = {}
        for host, signs in self.presence.hosts.items():
            settings = self.here.settings
            if signs.card is not None and names.permits((*settings.show, *settings.decide), host):
                news = News(items=tuple(items), may_decide=names.permits(settings.decide, host))
                wanted[host] = news.model_dump(exclude_defaults=True)
            elif host in self._told:
                wanted[host] = {}  # it may no longer know
        await asyncio.gather(*(self._tell(host, content) for host, content in wanted.items()))

    async def _tell(self, host: str, content: dict[str, Any]) -> None:
        now = (self.presence.run_of(host), content)
        if self._told.get(host, ("", {})) == now:
            return
        order = {"run": self.presence.run, "number": next(self.presence.numbers)}
        try:
            await self.requests.ask(host, "news", {**content, **order}, _PATIENCE)
        except (NatsError, UnavailableError) as error:
            _log.debug("%s was not told what waits here: %s", host, error)  # it is told again, or begins anew
            return
        self._told[host] = now
        if not content:
            del self._told[host]

    async def hear(self, host: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take what a host says waits there. Raises UnavailableError."""
        try:
            news = News.model_validate(content)
        except ValidationError as error:
            raise UnavailableError("it does not understand this; its mailboxd may be older") from error
        known = self.presence.hosts.get(host, HostSigns())
        if not is_repeated(news, known.news, known.ended):
            self.presence.hosts[host] = known.model_copy(update={"news": news})
        return {}
