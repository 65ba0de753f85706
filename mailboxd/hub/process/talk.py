"""Questions and reports between hosts: direct, signed, and stored nowhere.

They tell what waits for a person, and ask to search and to see what is to be decided. Each answers only what `show` and
`decide` in its hub.yaml allow. Commands and the page ask through a socket in this host's directory (`asking`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nats.errors import Error as NatsError
from pydantic import ValidationError

from mailboxd.core.sanitize import first_line
from mailboxd.errors import MailboxdError
from mailboxd.host.system import system
from mailboxd.hub.client.report import SOCKET, silence
from mailboxd.hub.process.answers import answer
from mailboxd.hub.process.founding import Founding
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.probe import Canary, probe
from mailboxd.hub.process.workspaces import Workspaces
from mailboxd.hub.wire import names, subjects
from mailboxd.hub.wire.cards import HostSigns, News, is_repeated

_AGAIN = 60.0
"""Seconds after which a report to a host is repeated."""
_MOST_ITEMS = 200
_MOST_QUESTIONS, _LARGEST = 8, 1 << 20
"""Questions at the same time, and bytes of an answer."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Talk:
    """The questions and reports of one hub process."""

    here: ThisHost
    workspaces: Workspaces
    presence: Presence
    founding: Founding
    canary: Canary = field(init=False)
    _told: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    """The last report to each host, and its time."""
    _asked: dict[tuple[str, str], asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    """Questions without an answer, by host and id."""
    _answered: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=1_000))
    """Questions that came, by host and id: a repetition is not answered."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.canary = Canary(self.here.settings.host)

    async def tell(self) -> None:
        """Tell the other hosts what waits for a person here."""
        here, now = self.here, self.here.clock.monotonic()
        items = [item for one in self.workspaces.local.values() for item in self.workspaces.items(one)][:_MOST_ITEMS]
        for host in self._interested():
            news = News(items=tuple(items), may_decide=names.permits(here.settings.decide, host))
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
        allowed = (*self.here.settings.show, *self.here.settings.decide)
        return (host for host, signs in self.presence.hosts.items() if signs.at and names.permits(allowed, host))

    async def _say(self, host: str, content: dict[str, Any]) -> None:
        here = self.here
        order = {"run": self.presence.run, "number": next(self.presence.numbers)}
        whole = {**content, **order, "from": here.settings.host, "to": host}
        await here.nc.publish(subjects.talk(host, here.settings.host), here.said_to(host, whole))

    def hear(self, host: str, raw: bytes) -> None:
        """Take what another host says, if it signed it for this one."""
        here = self.here
        if self.canary.hears(host, raw):
            return
        if here.keys(host) is None:
            return
        content = here.heard_from(host, raw)
        if content is None:
            here.note_foreign(subjects.talk(here.settings.host, host))
            return
        if (content.get("from"), content.get("to")) != (host, here.settings.host):
            return
        try:
            match content.get("kind"), content.get("id"):
                case "news", _:
                    self._hear_news(host, News.model_validate(content))
                case "question", str(name) if (host, name) not in self._answered and len(name) < 100:
                    self._answered.append((host, name))
                    self._start(self._answer(host, name, content.get("question")))
                case "answer", str(name) if (answer := self._asked.get((host, name))) and not answer.done():
                    answer.set_result(content)
        except (ValidationError, ValueError) as error:
            _log.debug("what %s says cannot be read: %s", host, error)

    def _hear_news(self, host: str, news: News) -> None:
        known = self.presence.hosts.get(host, HostSigns())
        if not is_repeated(news, known.news, known.ended):
            self.presence.hosts[host] = known.model_copy(update={"news": news})

    # Questions

    async def ask(self, question: Mapping[str, Any], hosts: Sequence[str], seconds: float) -> dict[str, dict[str, Any]]:
        """Ask these hosts, or all others, at the same time; those that are silent are not waited for."""
        here, answers, silent = self.here, {}, {}
        others = sorted(here.keys.members().hosts.keys() - {here.settings.host})

        async def one(host: str) -> None:
            why = (
                silence(self.presence.hosts.get(host, HostSigns()), here.clock.now(), here.trouble)
                if host in others
                else ""
            )
            if why or host not in others:
                silent[host] = why or "the hub has no such host"
                return
            try:
                found = await asyncio.wait_for(self._ask(host, question), seconds)
            except TimeoutError:
                silent[host] = f"it did not answer within {seconds:g} s"
                return
            except NatsError as error:
                silent[host] = f"it cannot be asked: {here.trouble or error}"
                return
            if "answer" in found:
                answers[host] = found["answer"]
            else:
                silent[host] = first_line(str(found.get("refused", "")))

        await asyncio.gather(*map(one, hosts or others))
        return {"answers": answers, "silent": silent}

    async def _ask(self, host: str, question: Mapping[str, Any]) -> dict[str, Any]:
        name = secrets.token_hex(16)
        self._asked[host, name] = asyncio.get_running_loop().create_future()
        try:
            await self._say(host, {"kind": "question", "id": name, "question": question})
            return await self._asked[host, name]
        finally:
            del self._asked[host, name]

    async def _answer(self, host: str, name: str, question: object) -> None:
        here = self.here
        found: dict[str, Any]
        try:
            if not isinstance(question, dict) or len(self._tasks) > _MOST_QUESTIONS:
                found = {"refused": "it is busy with other questions" if isinstance(question, dict) else "no question"}
            else:
                async with self._one:  # the answers may take long, and they share the indexes
                    found = {
                        "answer": await asyncio.to_thread(answer, here.settings, self.workspaces.local, host, question)
                    }
        except MailboxdError as refusal:
            found = {"refused": first_line(str(refusal))}
        if len(json.dumps(found)) > _LARGEST:
            found = {"refused": "the answer is too large"}
        await self._say(host, {"kind": "answer", "id": name, **found})

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a question of another host was not answered: %s", first_line(str(error)))

    async def serve(self, status: Callable[[], dict[str, object]]) -> asyncio.Server:
        """Answer commands of this user, and what they ask other hosts."""
        with system.socket_address(self.here.membership.folder / SOCKET) as address:
            return await asyncio.start_unix_server(partial(self._serve_one, status), address)

    async def _serve_one(
        self, status: Callable[[], dict[str, object]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError, NatsError):
            said = json.loads(await reader.readline())
            found: Mapping[str, object]
            if "status" in said:
                found = status()
            elif "probe" in said:
                found = await probe(self.here, self.canary)
            elif "revoke" in said:
                found = await self.founding.revoked(said["revoke"], said["export"])
            else:
                found = await self.ask(said["question"], said["hosts"], float(said["seconds"]))
            writer.write(json.dumps(found).encode())
            await writer.drain()
        writer.close()
