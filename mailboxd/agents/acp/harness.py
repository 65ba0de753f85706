"""The process of a harness: in a session of its own, and ended together with everything that stayed in it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mailboxd.agents.acp import notes
from mailboxd.agents.inside import marked
from mailboxd.agents.liveness import identity

_LIMIT = 8 * 1024 * 1024
"""Bytes that are read ahead."""


class Harness:
    """A running one. Its errors go where the program's own go: a file, which the daemon keeps small."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)
        self.ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        cwd: str,
        folder: Path,
        *,
        feeds: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> Harness:
        """Without an `environment` it has ours; without `feeds` nothing is said to it. Raises OSError."""
        popen = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if feeds else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if environment is None else subprocess.DEVNULL,
            cwd=cwd,
            env=marked(os.environ if environment is None else environment),
            start_new_session=True,
        )
        notes.write(folder, notes.HARNESS, identity(popen.pid))
        return cls(popen)

    async def reader(self) -> asyncio.StreamReader:
        """What it says."""
        reader = asyncio.StreamReader(_LIMIT)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._popen.stdout)
        return reader

    async def writer(self) -> asyncio.StreamWriter:
        """What it is told."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, self._popen.stdin)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    def signal(self, number: signal.Signals) -> None:
        """To its whole group; until it is reaped its number is nobody else's."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)

    def interrupt(self) -> None:
        """SIGINT to it alone: what it has started it has to tell itself."""
        self._popen.send_signal(signal.SIGINT)

    async def end(self, patience: float) -> None:
        """Its turn is over: `patience` seconds to go by itself, as many more after SIGTERM, then it is killed."""
        await self._wait(patience)
        if not self.ended.is_set():
            self.signal(signal.SIGTERM)
            await self._wait(patience)
        self.signal(signal.SIGKILL)  # also what it has started and left behind
        await self.ended.wait()
        self._popen.wait()
        os.close(self._pidfd)

    async def how_it_ended(self, seconds: float) -> str:
        """In words, for whoever has lost it; without reaping it."""
        await self._wait(seconds)
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return "the harness has closed its output"
        if found.si_code == os.CLD_EXITED:
            return f"the harness ended with exit status {found.si_status}"
        return f"the harness was killed by signal {found.si_status}"

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), seconds)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.ended.set()
