"""One turn over ACP: initialize, a session, one prompt, its end. A signal or the clock cancels it.

Spoken by the SDK's connection, below its typed client: that one drops updates of unknown kinds and fails at an unknown
stop reason. What a harness asks of us beside permissions (files, terminals) is answered with "method not found".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION, RequestError
from acp.connection import Connection

from mailboxd.agents.acp import session_updates, turn_files
from mailboxd.agents.acp.harness import Harness, Journal, Stop, Wire
from mailboxd.agents.acp.permissions import Parking
from mailboxd.agents.acp.session_updates import Ended, Hearing
from mailboxd.agents.acp.turn_files import Order
from mailboxd.agents.json_output import at, brief, text_at

_LAST_WORDS = 1.0
"""Seconds in which an ended process may still be heard."""
_CLIENT = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
_T = TypeVar("_T")


class NotBegun(Exception):
    """The prompt was not sent. `refused`: no repetition changes that."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        self.refused = refused
        super().__init__(why)


class Lost(Exception):
    """The harness has ended, or does not answer."""


@dataclass(slots=True)
class Conversation:
    order: Order
    folder: Path
    heard: Hearing
    parking: Parking
    stop: Stop
    harness: Harness
    connection: Connection = field(init=False)

    async def open(self, journal: Journal) -> None:
        """Take its pipes."""
        wire = Wire(await self.harness.reader(), await self.harness.writer(), journal)
        self.connection = Connection(self._asked, wire)

    async def run(self, prompt: str, run_id: str) -> Ended:
        """Take the turn. Never raises for anything that a harness may do."""
        try:
            await self._introduce()
        except NotBegun as problem:
            if self.stop.received is not None:
                return session_updates.stopped(self.stop.received, run_id, confirmed=True)
            return session_updates.refused(str(problem)) if problem.refused else session_updates.not_begun(str(problem))
        self.heard.listening = True
        params = {"sessionId": self.heard.session, "prompt": [{"type": "text", "text": prompt}]}
        turn = asyncio.ensure_future(self.connection.send_request("session/prompt", params))
        try:
            answer = await self._in_time(turn, None)
        except TimeoutError:
            return await self._cancel(turn, run_id)
        except (Lost, ConnectionError):
            return session_updates.lost(await self.harness.how_it_ended(_LAST_WORDS), run_id)
        except RequestError as error:
            return session_updates.failed(error.code, _words(error), self.heard, run_id)
        return session_updates.result(at(answer, "stopReason"), self.heard, run_id, at(answer, "usage"))

    async def close(self) -> None:
        """Its pipes are closed: a harness with manners goes now."""
        with suppress(Exception):
            await self.connection.close()

    # -------------------------------------------------------------- before the prompt

    async def _introduce(self) -> None:
        hello = await self.hello()
        loads = at(hello, "agentCapabilities", "loadSession") is True
        session = await self._session(loads)
        if not session:
            raise NotBegun("it has opened no session", refused=True)
        self.heard.session = session
        who = {"name": text_at(hello, "agentInfo", "name"), "version": text_at(hello, "agentInfo", "version")}
        turn_files.write(self.folder, turn_files.SESSION, {"session": session, "loads": loads, **who})

    async def hello(self) -> object:
        """What it says of itself. Raises NotBegun, also if it speaks another version of ACP."""
        us = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": _CLIENT, "clientInfo": _US}
        said = await self._ask("initialize", us)
        if (spoken := at(said, "protocolVersion")) != PROTOCOL_VERSION:
            raise NotBegun(f"it speaks ACP {brief(str(spoken))[:20]}, mailboxd speaks {PROTOCOL_VERSION}", refused=True)
        return said

    async def _session(self, loads: bool) -> str:
        """Go on with the session that is asked for, where the harness can; else a new one."""
        place = {"cwd": self.order.cwd, "mcpServers": []}
        if self.order.session and loads:
            try:
                await self._ask("session/load", {**place, "sessionId": self.order.session})
            except NotBegun:
                if self.order.asks or self.stop.received is not None:
                    raise
            else:
                return self.order.session
        if self.order.asks:
            raise NotBegun("it cannot load its session again", refused=True)
        return text_at(await self._ask("session/new", place), "sessionId")

    async def _ask(self, method: str, params: Mapping[str, object]) -> object:
        """An answer of a harness that has not begun to work. Raises NotBegun."""
        asked = asyncio.ensure_future(self.connection.send_request(method, dict(params)))
        try:
            return await self._in_time(asked, self.order.patience)
        except TimeoutError:
            raise NotBegun(f"no answer to {method} within {self.order.patience:g} s") from None
        except (Lost, ConnectionError) as problem:
            raise NotBegun(f"{await self.harness.how_it_ended(_LAST_WORDS)}, during {method}") from problem
        except RequestError as error:
            hint = "; log in with its own command first" if error.code == _AUTH_REQUIRED else ""
            raise NotBegun(f"{method}: {_words(error)}{hint}") from error
        finally:
            asked.cancel()

    # -------------------------------------------------------------- while it works

    async def _in_time(self, asked: Awaitable[_T], seconds: float | None) -> _T:
        """The answer; without `seconds` the turn's own time counts. Raises TimeoutError (also on a signal), Lost."""
        answer = asyncio.ensure_future(asked)
        stop = asyncio.ensure_future(self.stop.wait(seconds))
        gone = asyncio.ensure_future(self.harness.ended.wait())
        try:
            await asyncio.wait({answer, stop, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and gone.done():
                await asyncio.wait({answer}, timeout=_LAST_WORDS)
                if not answer.done():
                    raise Lost("the harness ended")
            if not answer.done():
                raise TimeoutError
            return answer.result()
        finally:
            stop.cancel()
            gone.cancel()

    async def _cancel(self, turn: asyncio.Future[Any], run_id: str) -> Ended:
        """Ask it to stop, and believe only its word that it has."""
        self.parking.close()
        with suppress(ConnectionError, OSError):
            await self.connection.send_notification("session/cancel", {"sessionId": self.heard.session})
        await asyncio.wait({turn}, timeout=self.order.grace / 2)
        answered = turn.done() and not turn.cancelled() and turn.exception() is None
        turn.cancel()
        reason = at(turn.result(), "stopReason") if answered else None
        if reason == "end_turn":  # it had ended just before
            return session_updates.result(reason, self.heard, run_id, at(turn.result(), "usage"))
        if self.stop.received is not None:
            return session_updates.stopped(self.stop.received, run_id, confirmed=answered)
        return (
            session_updates.timed_out(self.heard, run_id)
            if answered
            else session_updates.lost("it did not stop in time", run_id)
        )

    async def _asked(self, method: str, params: Any, only_said: bool) -> Any:
        """What the harness says or wants."""
        if method == "session/update":
            self.heard.update(params)
        if only_said:
            return None
        if method != "session/request_permission":
            raise RequestError.method_not_found(method)
        tool = at(params, "toolCall")
        return await self.parking.decide(self.heard.tool(tool if isinstance(tool, dict) else {}), at(params, "options"))


_AUTH_REQUIRED = -32000
_US = {"name": "mailboxd", "title": "mailboxd", "version": "1"}


def _words(error: RequestError) -> str:
    details = at(error.data, "details") or at(error.data, "message")
    return brief(f"{error}: {details}" if isinstance(details, str) else str(error))
