"""One turn over ACP: initialize, a session, one prompt, its end. A signal or the clock cancels it.

Uses the SDK's connection without its typed client, which drops unknown updates and fails on unknown stop reasons.
Requests of the harness other than permissions (files, terminals) are answered with "method not found".
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acp import PROTOCOL_VERSION, RequestError
from acp.connection import Connection

from mailboxd.perform.agents.acp import session_updates, turn_files
from mailboxd.perform.agents.acp.harness import FrameTransport, Harness, Journal, Stop
from mailboxd.perform.agents.acp.permissions import PermissionQueue
from mailboxd.perform.agents.acp.session_updates import SessionUpdates
from mailboxd.perform.agents.acp.transport import HarnessInfo
from mailboxd.perform.agents.acp.turn_files import TurnRequest
from mailboxd.perform.agents.call_dir import TurnResult
from mailboxd.perform.agents.json_output import at, brief, text_at

_DRAIN_SECONDS = 1.0
"""Seconds to wait for the output of an ended process."""
_CLIENT = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
_T = TypeVar("_T")


class SetupFailed(Exception):
    """The prompt was not sent. `refused`: a retry would not help."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        self.refused = refused
        super().__init__(why)


class HarnessLost(Exception):
    """The harness ended before it answered."""


@dataclass(slots=True)
class Conversation:
    request: TurnRequest
    folder: Path
    updates: SessionUpdates
    permissions: PermissionQueue
    stop: Stop
    harness: Harness
    connection: Connection = field(init=False)

    async def open(self, journal: Journal) -> None:
        """Connect to its pipes."""
        wire = FrameTransport(await self.harness.reader(), await self.harness.writer(), journal)
        self.connection = Connection(self._on_message, wire)

    async def run(self, prompt: str, run_id: str) -> TurnResult:
        """Run the turn. Raises nothing, whatever the harness does."""
        try:
            await self._set_up()
        except SetupFailed as problem:
            if self.stop.received is not None:
                return session_updates.stopped(self.stop.received, run_id, confirmed=True)
            return (
                session_updates.refused(str(problem)) if problem.refused else session_updates.not_started(str(problem))
            )
        self.updates.listening = True
        params = {"sessionId": self.updates.session, "prompt": [{"type": "text", "text": prompt}]}
        turn = asyncio.ensure_future(self.connection.send_request("session/prompt", params))
        try:
            answer = await self._wait_for(turn, None)
        except TimeoutError:
            return await self._cancel(turn, run_id)
        except (HarnessLost, ConnectionError):
            return session_updates.lost(await self.harness.how_it_ended(_DRAIN_SECONDS), run_id)
        except RequestError as error:
            return session_updates.failed(error.code, _words(error), self.updates, run_id)
        return session_updates.completed(at(answer, "stopReason"), self.updates, run_id, at(answer, "usage"))

    async def close(self) -> None:
        """Close its pipes, on which a harness should exit."""
        with suppress(Exception):
            await self.connection.close()

    async def _set_up(self) -> None:
        info = await self.initialize()
        loads = at(info, "agentCapabilities", "loadSession") is True
        session = await self._session(loads)
        if not session:
            raise SetupFailed("it opened no session", refused=True)
        self.updates.session = session
        who = {"name": text_at(info, "agentInfo", "name"), "version": text_at(info, "agentInfo", "version")}
        turn_files.write(self.folder, turn_files.SESSION, {"session": session, "loads": loads, **who})

    async def initialize(self) -> object:
        """Its description of itself. Raises SetupFailed, also for another version of ACP."""
        params = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": _CLIENT, "clientInfo": _CLIENT_INFO}
        answer = await self._ask("initialize", params)
        if (version := at(answer, "protocolVersion")) != PROTOCOL_VERSION:
            raise SetupFailed(
                f"it speaks ACP {brief(str(version))[:20]}, mailboxd speaks {PROTOCOL_VERSION}", refused=True
            )
        return answer

    async def _session(self, loads: bool) -> str:
        """Resume the requested session if the harness can, else open a new one."""
        params = {"cwd": self.request.cwd, "mcpServers": []}
        if self.request.session and loads:
            try:
                answer = await self._ask("session/load", {**params, "sessionId": self.request.session})
            except SetupFailed:
                if self.request.asks or self.stop.received is not None:
                    raise
            else:
                self.updates.configured(answer)
                return self.request.session
        if self.request.asks:
            raise SetupFailed("it cannot load its session", refused=True)
        answer = await self._ask("session/new", params)
        self.updates.configured(answer)
        return text_at(answer, "sessionId")

    async def _ask(self, method: str, params: Mapping[str, object]) -> object:
        """A request before the prompt. Raises SetupFailed."""
        asked = asyncio.ensure_future(self.connection.send_request(method, dict(params)))
        try:
            return await self._wait_for(asked, self.request.patience)
        except TimeoutError:
            raise SetupFailed(f"no answer to {method} within {self.request.patience:g} s") from None
        except (HarnessLost, ConnectionError) as problem:
            raise SetupFailed(f"{await self.harness.how_it_ended(_DRAIN_SECONDS)}, during {method}") from problem
        except RequestError as error:
            hint = "; log in with its own command first" if error.code == _AUTH_REQUIRED else ""
            raise SetupFailed(f"{method}: {_words(error)}{hint}") from error
        finally:
            asked.cancel()

    async def _wait_for(self, asked: Awaitable[_T], seconds: float | None) -> _T:
        """The answer, within `seconds` or the turn's time. Raises TimeoutError (also on a signal), HarnessLost."""
        answer = asyncio.ensure_future(asked)
        stop = asyncio.ensure_future(self.stop.wait(seconds))
        gone = asyncio.ensure_future(self.harness.ended.wait())
        try:
            await asyncio.wait({answer, stop, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and gone.done():
                await asyncio.wait({answer}, timeout=_DRAIN_SECONDS)
                if not answer.done():
                    raise HarnessLost("the harness ended")
            if not answer.done():
                raise TimeoutError
            return answer.result()
        finally:
            stop.cancel()
            gone.cancel()

    async def _cancel(self, turn: asyncio.Future[Any], run_id: str) -> TurnResult:
        """Cancel the turn; it counts as cancelled only if the harness confirms it."""
        self.permissions.close()
        with suppress(ConnectionError, OSError):
            await self.connection.send_notification("session/cancel", {"sessionId": self.updates.session})
        await asyncio.wait({turn}, timeout=self.request.grace / 2)
        answered = turn.done() and not turn.cancelled() and turn.exception() is None
        turn.cancel()
        reason = at(turn.result(), "stopReason") if answered else None
        if reason == "end_turn":  # it ended just before
            return session_updates.completed(reason, self.updates, run_id, at(turn.result(), "usage"))
        if self.stop.received is not None:
            return session_updates.stopped(self.stop.received, run_id, confirmed=answered)
        return (
            session_updates.timed_out(self.updates, run_id)
            if answered
            else session_updates.lost("it did not stop in time", run_id)
        )

    async def _on_message(self, method: str, params: Any, is_notification: bool) -> Any:
        """Handle a message of the harness."""
        if method == "session/update":
            self.updates.update(params)
        if is_notification:
            return None
        if method != "session/request_permission":
            raise RequestError.method_not_found(method)
        tool = at(params, "toolCall")
        known = self.updates.tool(tool if isinstance(tool, dict) else {})
        return await self.permissions.decide(known, at(params, "options"))


_AUTH_REQUIRED = -32000
_CLIENT_INFO = {"name": "mailboxd", "title": "mailboxd", "version": "1"}


def _words(error: RequestError) -> str:
    details = at(error.data, "details") or at(error.data, "message")
    return brief(f"{error}: {details}" if isinstance(details, str) else str(error))


# Whether a harness starts and speaks ACP, for `mailboxd doctor`: `initialize` and nothing more

_PROBE_SECONDS = 30.0
_PROBE_EXIT_SECONDS = 1.0


def probe(name: str, argv: tuple[str, ...], cwd: str, environment: Mapping[str, str]) -> HarnessInfo:
    """Start a harness, initialize it, end it. Raises OSError if it cannot be run."""
    return asyncio.run(_probe(name, argv, cwd, environment))


async def _probe(name: str, argv: tuple[str, ...], cwd: str, environment: Mapping[str, str]) -> HarnessInfo:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        request = TurnRequest(argv, cwd, "", "", "", (), timeout=0, grace=_PROBE_EXIT_SECONDS, patience=_PROBE_SECONDS)
        harness = Harness.start(argv, cwd, folder, environment=environment)
        permissions = PermissionQueue(folder, folder, (), cwd)
        talk = Conversation(
            request, folder, SessionUpdates(), permissions, Stop(_PROBE_SECONDS, lambda: False), harness
        )
        journal = Journal(folder / "frames")
        try:
            await talk.open(journal)
            answer = await talk.initialize()
        except SetupFailed as problem:
            return HarnessInfo(name, str(problem))
        finally:
            await talk.close()
            await harness.end(_PROBE_EXIT_SECONDS)
            journal.close()
    loads = at(answer, "agentCapabilities", "loadSession") is True
    title, release = [brief(text_at(answer, "agentInfo", key))[:100] for key in ("name", "version")]
    return HarnessInfo(name, "", title, release, loads)
