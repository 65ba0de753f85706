"""That only one hub process runs as this host: a copy of its directory elsewhere would take half of its mail."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from mailboxd.core.sanitize import first_line
from mailboxd.hub.files.membership import Stopped
from mailboxd.hub.process.here import RETRY, ThisHost
from mailboxd.hub.wire.copies import Rank, Running, yields
from mailboxd.hub.wire.signed_json import signed_json, verified_json
from mailboxd.hub.wire.subjects import copy_of, is_inbox_of

_GAP = 5.0
"""Seconds without a sign of life of its own after which a process may have missed a question."""
_PATIENCE = 6.0
"""Seconds for an answer, of one that is connected: more than that, so that it answers or doubts."""
_PAUSE = 0.5
_MOST = 100
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class OnlyOne:
    """What one hub process knows of others that run as this host."""

    here: ThisHost
    say_trouble: Callable[[str], None]
    own: Running = field(init=False)
    is_stopped: bool = False
    """Another one goes on."""
    _alive: float = 0.0
    _hearing: Subscription | None = None
    _deciding: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        where = f"{os.uname().nodename}:{self.here.membership.folder}"
        self.own = Running(secrets.token_hex(16), Rank.NEW, where)

    async def begin(self) -> None:
        """Ask before anything else is done; does not return on a copy that is refused."""
        if (stopped := self.here.membership.stopped()) is not None:
            await self._stop(stopped)
        await self.settled()

    async def settled(self) -> None:
        """Return once it is sure that this process is the only one; never, if another one has taken over."""
        if self._is_alone() and self.here.clock.monotonic() - self._alive > _GAP:
            self.doubt()
        if not self._is_alone():
            async with self._deciding:
                while not self._is_alone():
                    try:
                        await self._ask()
                    except (NatsError, OSError):
                        await asyncio.sleep(_PAUSE)
        self._alive = self.here.clock.monotonic()

    def _is_alone(self) -> bool:
        return self.own.rank is Rank.ALONE

    def doubt(self) -> None:
        """This process may have been out of touch."""
        if self._is_alone():
            self.own = replace(self.own, rank=Rank.UNSURE)

    async def _ask(self) -> None:
        """Ask, and then hear others ask: whoever hears itself would wait for an answer where there is nobody."""
        nonce, subject = secrets.token_hex(16), copy_of(self.here.settings.host)
        hearing, self._hearing = self._hearing, None
        if hearing is not None:
            with suppress(NatsError):
                await hearing.unsubscribe()
        raw, content = self._signed(self.own, nonce=nonce), dict[str, Any]()
        with suppress(NoRespondersError, TimeoutError, asyncio.TimeoutError):
            reply = await self.here.nc.request(subject, raw, timeout=_PATIENCE)
            content = verified_json(reply.data, self.here.key.public) or {}
        other = Running.parse(content)
        if other is not None and content.get("nonce") == nonce and yields(self.own, other):
            stopped = Stopped(other.where, self.here.clock.now(), replaced=self.own.rank is Rank.UNSURE)
            self.here.membership.stop(stopped)
            await self._stop(stopped)
        if not self.here.nc.is_connected:
            await asyncio.sleep(_PAUSE)
            return
        self._hearing = await self.here.nc.subscribe(subject, cb=self.hear)
        self.own = replace(self.own, rank=Rank.ALONE)
        await self.here.nc.publish(subject, self._signed(self.own))

    async def _stop(self, stopped: Stopped) -> None:
        self.is_stopped = True
        with suppress(NatsError, asyncio.TimeoutError):
            await asyncio.wait_for(self.here.nc.close(), RETRY)
        while self.here.membership.exists():
            self.say_trouble(stopped.sentence(self.here.settings.host))
            await asyncio.sleep(_PAUSE)
        self.here.stopping.set()
        await asyncio.Event().wait()

    async def hear(self, message: Msg) -> None:
        """Another one that runs as this host asks whether it may, or says that it does."""
        content = verified_json(message.data, self.here.key.public) or {}
        other = Running.parse(content)
        if other is None or other.run == self.own.run:
            return
        if not message.reply:
            await asyncio.sleep(secrets.randbelow(1_000) / 1_000)  # of two that came at once, one asks first
            self.doubt()
        elif is_inbox_of(self.here.settings.host, message.reply):
            answer = self._signed(self.own, nonce=str(content.get("nonce", ""))[:100])
            await self.here.nc.publish(message.reply, answer)
            if not yields(self.own, other):
                self._note(first_line(other.where))

    def _note(self, where: str) -> None:
        if where not in self.here.copies:
            _log.warning("a copy of this host asks to run at %s, and is refused", where)
        if where in self.here.copies or len(self.here.copies) < _MOST:
            self.here.copies[where] = self.here.clock.now()

    def _signed(self, running: Running, **more: str) -> bytes:
        return signed_json(self.here.key, running.content(**more))
