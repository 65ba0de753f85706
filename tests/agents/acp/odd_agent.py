"""A real ACP agent, built on the SDK, that behaves as its arguments say. Run it as a program.

    odd_agent.py [BEHAVIOUR ...]

It says what it has updates in the file that ODD_LOG names, a JSON object a line: who reads that is an outside witness.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, run_agent, text_block, update_agent_message
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallLocation,
    ToolCallUpdate,
    Usage,
)

BEHAVIOURS = set(sys.argv[1:])
OPTIONS = [
    PermissionOption(option_id="yes-always", name="Always", kind="allow_always"),
    PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]


def log(**what: object) -> None:
    with Path(os.environ["ODD_LOG"]).open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), **what}) + "\n")


def raw(frame: object) -> None:
    """Frames that no SDK would send."""
    sys.stdout.buffer.write((frame if isinstance(frame, bytes) else json.dumps(frame).encode()) + b"\n")
    sys.stdout.buffer.flush()


class OddAgent:
    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.cwd = ""

    def on_connect(self, client: Client) -> None:
        self.client = client

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        if "mute" in BEHAVIOURS:
            await asyncio.sleep(3600)
        if "locked" in BEHAVIOURS:
            raise RequestError.auth_required()
        return InitializeResponse(
            protocol_version=99 if "future" in BEHAVIOURS else PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(load_session="loads" in BEHAVIOURS),
            agent_info=Implementation(name="odd", version="0.1"),
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self.cwd = cwd
        log(new_session=cwd, argv=sys.argv[1:], env=sorted(os.environ))
        return NewSessionResponse(session_id="ses-1")

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        self.cwd = cwd
        log(load_session=session_id)
        await self.say(session_id, "words of an earlier turn")
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        log(cancel=session_id)
        if "stubborn" not in BEHAVIOURS:
            self.cancelled.set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        text = "".join(block.text for block in prompt)
        log(prompt=text, session=session_id)
        return await self.behave(session_id, text)

    async def say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id=session_id, update=update_agent_message(text_block(text)))

    async def ask(self, session_id: str, call: str, kind: str, title: str, **more: Any) -> str:
        tool = ToolCallUpdate(tool_call_id=call, kind=kind, title=title, **more)  # type: ignore[arg-type]
        answer = await self.client.request_permission(session_id=session_id, tool_call=tool, options=OPTIONS)
        chosen = getattr(answer.outcome, "option_id", answer.outcome.outcome)
        log(asked=call, answer=chosen)
        return str(chosen)

    async def behave(self, session_id: str, text: str) -> PromptResponse:
        if "What happened?" in text:
            await self.say(session_id, "It is all done: 42." if "knows" in BEHAVIOURS else "NOT FINISHED\nhalf of it")
            return PromptResponse(stop_reason="end_turn")
        await self.say(session_id, "I begin. ")
        for behaviour in sys.argv[1:]:
            act = getattr(self, "do_" + behaviour.partition("=")[0].replace("-", "_"), None)
            if act is not None:
                stop = await act(session_id, behaviour.partition("=")[2])
                if stop is not None:
                    return PromptResponse(stop_reason=stop)
        await self.say(session_id, "The answer is 42.")
        usage = Usage(total_tokens=15, input_tokens=10, output_tokens=5, cached_read_tokens=2)
        return PromptResponse(stop_reason="end_turn", usage=usage)

    # -------------------------------------------------------------- behaviours

    async def do_waits(self, *_: str) -> str:
        await self.cancelled.wait()
        return "cancelled"

    async def do_stubborn(self, *_: str) -> None:
        """Neither session/cancel nor SIGTERM nor a closed pipe ends it, and it has a child that is no better."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import signal,time; signal.signal(15,1); time.sleep(3600)"])
        log(child=child.pid)
        await asyncio.sleep(3600)

    async def do_dies(self, *_: str) -> None:
        os._exit(7)

    async def do_killed(self, *_: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def do_dies_once(self, session_id: str, marker: str) -> None:
        if not Path(marker).exists():
            Path(marker).write_text("")
            os._exit(7)

    async def do_unknown_updates(self, session_id: str, *_: str) -> None:
        for update in ({"sessionUpdate": "hologram", "shape": [1, 2]}, {"sessionUpdate": 7}, "no update", None):
            raw({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session_id, "update": update}})

    async def do_unknown_stop(self, *_: str) -> None:
        raw({"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "enlightened"}})
        await asyncio.sleep(3600)

    async def do_large(self, session_id: str, *_: str) -> None:
        await self.say(session_id, "x" * 8_000_000)

    async def do_garbage(self, session_id: str, *_: str) -> None:
        for line in (
            b"npm WARN deprecated",
            b"\xff\xfe\x00",
            b"[1, 2]",
            b"5",
            b"null",
            b'{"jsonrpc": "2.0"',
            b"",
            b"{}",
        ):
            raw(line)
        raw({"jsonrpc": "2.0", "id": 999, "result": {}})
        raw({"jsonrpc": "2.0", "method": 5})
        raw({"jsonrpc": "2.0", "method": "session/update", "params": [1]})

    async def do_flood(self, session_id: str, *_: str) -> None:
        for number in range(20_000):
            await self.say(session_id, f"{number} ")

    async def do_stops(self, _: str, reason: str) -> str:
        return reason

    async def do_errs(self, *_: str) -> None:
        raise RequestError(-32001, "the model is on holiday", {"details": "HTTP 429"})

    async def do_writes(self, session_id: str, name: str) -> None:
        """It edits a file, and says so."""
        path = Path(self.cwd, name)
        old = path.read_text() if path.exists() else None
        answer = await self.ask(session_id, "w1", "edit", f"Write {name}", locations=[ToolCallLocation(path=str(path))])
        if answer.startswith("yes"):
            path.write_text((old or "") + "a new line\n")

    async def do_runs(self, session_id: str, name: str) -> None:
        """It wants to execute something; what it leaves is the witness."""
        if (
            await self.ask(session_id, "x1", "execute", f"touch {name}", raw_input={"command": ["touch", name]})
        ) == "yes":
            Path(self.cwd, name).touch()

    async def do_asks_twice(self, session_id: str, *_: str) -> None:
        async def one(name: str) -> None:
            if await self.ask(session_id, name, "execute", f"make {name}") == "yes":
                Path(self.cwd, name).touch()

        await asyncio.gather(one("first"), one("second"))

    async def do_terminal(self, session_id: str, *_: str) -> None:
        for name, call in (
            ("terminal", self.client.create_terminal(session_id=session_id, command="id")),
            ("write", self.client.write_text_file(session_id=session_id, path=f"{self.cwd}/x", content="x")),
            ("read", self.client.read_text_file(session_id=session_id, path="/etc/passwd")),
        ):
            try:
                await call
                log(refused=name, code=0)
            except RequestError as error:
                log(refused=name, code=error.code)

    async def do_until(self, _: str, file: str) -> None:
        while not Path(file).exists():
            await asyncio.sleep(0.02)

    async def do_slow(self, _: str, seconds: str) -> None:
        await asyncio.sleep(float(seconds))


if __name__ == "__main__":
    asyncio.run(run_agent(OddAgent()))  # type: ignore[arg-type]
