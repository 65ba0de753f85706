"""Answers commands and the page, on a socket in this host's directory, and asks other hosts for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.host.system import system
from mailboxd.hub.client.report import SOCKET
from mailboxd.hub.files.status import ProcessStatus
from mailboxd.hub.process.founding import Founding
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.probe import probe
from mailboxd.hub.process.queries import answer
from mailboxd.hub.process.requests import Requests
from mailboxd.hub.process.workspaces import Workspaces


@dataclass(slots=True)
class Commands:
    """The questions of commands to one hub process, and those of other hosts' commands."""

    here: ThisHost
    workspaces: Workspaces
    presence: Presence
    requests: Requests
    founding: Founding
    status: Callable[[], ProcessStatus]
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.requests.handlers["question"] = self._answer

    async def _answer(self, host: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        question = content.get("question")
        if not isinstance(question, dict):
            raise UnavailableError("no question")
        async with self._one:  # the answers may take long, and they share the indexes
            return {
                "answer": await asyncio.to_thread(answer, self.here.settings, self.workspaces.local, host, question)
            }

    async def ask(self, question: Mapping[str, Any], hosts: Sequence[str], seconds: float) -> dict[str, dict[str, Any]]:
        """Ask these hosts, or all others, at the same time; the answers, and why the others gave none."""
        answers: dict[str, Any] = {}
        silent: dict[str, Any] = {}
        others = sorted(self.here.keys.members().hosts.keys() - {self.here.settings.host})

        async def one(host: str) -> None:
            try:
                if host not in others:
                    raise UnavailableError("the hub has no such host")
                found = await self.requests.ask(host, "question", {"question": question}, seconds)
                answers[host] = found.get("answer")
            except NoRespondersError:
                silent[host] = "its hub process is not connected to the server"
            except NatsTimeout:
                silent[host] = f"it did not answer within {seconds:g} s"
            except NatsError as error:
                silent[host] = self.presence.silence(host) or f"it cannot be asked: {self.here.trouble or error}"
            except UnavailableError as refusal:
                silent[host] = str(refusal)

        await asyncio.gather(*map(one, hosts or others))
        return {"answers": answers, "silent": silent}

    async def listen(self) -> asyncio.Server:
        with system.socket_address(self.here.membership.folder / SOCKET) as address:
            return await asyncio.start_unix_server(self._serve, address)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError, NatsError, MailboxdError):
            said = json.loads(await reader.readline())
            found: Mapping[str, object]
            if "status" in said:
                await self.presence.look()
                found = self.status()
            elif "revoke" in said:
                found = await self.founding.revoked(said["revoke"], said["export"])
            elif "probe" in said:
                found = await probe(self.here, self.requests.trial)
            else:
                found = await self.ask(said["question"], said["hosts"], float(said["seconds"]))
            writer.write(json.dumps(found).encode())
            await writer.drain()
        writer.close()
