"""What hosts tell each other directly, signed, and stored nowhere: what waits for a person.

Only the hosts that `show` or `decide` in hub.yaml names are told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mailboxd.core.times import to_epoch
from mailboxd.hub import protocol
from mailboxd.hub.cards import HostSigns, News, opened, sealed

if TYPE_CHECKING:
    from mailboxd.hub.process import Hub

_AGAIN = 60.0
"""Seconds after which a host is told again what it was told before."""
_MOST_ITEMS = 200
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Talk:
    """What one hub process tells and hears."""

    hub: Hub
    _told: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    """When each host was told, and what."""

    async def tell(self) -> None:
        """Tell the other hosts what waits for a person here."""
        hub, now = self.hub, self.hub.clock.monotonic()
        items = [item for one in hub.local.values() for item in hub.standings.items(one)][:_MOST_ITEMS]
        for host in self._interested():
            news = News(items=tuple(items), may_decide=protocol.permits(hub.settings.decide, host))
            content = news.model_dump(exclude_defaults=True)
            at, told = self._told.get(host, (0.0, None))
            if content != told or now - at >= _AGAIN:
                await self._say(host, {"kind": "news", **content})
                self._told[host] = now, content
        for host in self._told.keys() - set(self._interested()):
            await self._say(host, {"kind": "news"})  # it may no longer know
            del self._told[host]

    def _interested(self) -> Iterator[str]:
        """The hosts that are there and may know what waits here."""
        allowed = (*self.hub.settings.show, *self.hub.settings.decide)
        return (host for host, signs in self.hub.hosts.items() if signs.at and protocol.permits(allowed, host))

    async def _say(self, host: str, content: dict[str, Any]) -> None:
        hub = self.hub
        whole = {**content, "from": hub.settings.host, "to": host, "at": hub.clock.now()}
        await hub.nc.publish(protocol.talk(host, hub.settings.host), sealed(hub.key, whole))

    def hear(self, host: str, raw: bytes) -> None:
        """Take what another host says, if it signed it for this one."""
        hub = self.hub
        content = opened(raw, hub.keys(host))
        if content is None:
            hub.note_foreign(protocol.talk(hub.settings.host, host))
            return
        if (content.get("from"), content.get("to")) != (host, hub.settings.host):
            return
        try:
            to_epoch(str(content.get("at")))
            if content.get("kind") == "news":
                self._hear_news(host, News.model_validate(content))
        except (ValidationError, ValueError) as error:
            _log.debug("what %s says cannot be read: %s", host, error)

    def _hear_news(self, host: str, news: News) -> None:
        known = self.hub.hosts.get(host, HostSigns())
        if news.at > known.news.at:  # else an old one, repeated
            self.hub.hosts[host] = known.model_copy(update={"news": news})
