"""The harness's process, in its own session; the frames over its pipes; and when a turn has to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mailboxd.host.system import system
from mailboxd.perform.agents.acp import turn_files
from mailboxd.perform.agents.alive import identity
from mailboxd.perform.agents.openclaw import mark_inside

_LIMIT = 8 * 1024 * 1024
"""Bytes read ahead."""


class Harness:
    """A running harness. Its stderr is that of this program: a file whose size the daemon limits."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._pidfd = system.watch(popen.pid)
        self.ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        cwd: str,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Harness:
        """Start it, by default with this process's environment. Raises OSError."""
        popen = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if environment is None else subprocess.DEVNULL,
            cwd=cwd,
            env=mark_inside(os.environ if environment is None else environment),
            start_new_session=True,
        )
        turn_files.write(folder, turn_files.HARNESS, identity(popen.pid))
        return cls(popen)

    async def reader(self) -> asyncio.StreamReader:
        """Its stdout."""
        reader = asyncio.StreamReader(_LIMIT)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._popen.stdout)
        return reader

    async def writer(self) -> asyncio.StreamWriter:
        """Its stdin."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, self._popen.stdin)
        return asyncio.StreamWriter(transport, protocol, None, loop)

    def signal(self, number: signal.Signals) -> None:
        """Signal its process group; the pid cannot be reused before it is reaped."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)

    async def end(self, patience: float) -> None:
        """Wait `patience` seconds for it to exit, as long again after SIGTERM, then kill its process group."""
        await self._wait(patience)
        if not self.ended.is_set():
            self.signal(signal.SIGTERM)
            await self._wait(patience)
        self.signal(signal.SIGKILL)  # also its remaining children
        await self.ended.wait()
        self._popen.wait()
        os.close(self._pidfd)

    async def how_it_ended(self, seconds: float) -> str:
        """Describe its end, without reaping it."""
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


# When a turn has to stop

_TICK = 0.25


@dataclass(slots=True)
class Stop:
    """Tells when a turn has to stop. `received` is the first signal; time while `parked()` does not count."""

    seconds: float
    parked: Callable[[], bool]
    received: signal.Signals | None = None
    _signalled: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT by stopping the turn instead of ending the program."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    async def wait(self, seconds: float | None = None) -> None:
        """Return when the turn has to stop; with `seconds`, after that time or on a signal."""
        clock = asyncio.get_running_loop().time
        left, checked = self.seconds if seconds is None else seconds, clock()
        while left > 0 and not self._signalled.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), min(_TICK, left))
            passed, checked = clock() - checked, clock()
            left -= 0.0 if seconds is None and self.parked() else passed

    def _on_signal(self, number: signal.Signals) -> None:
        self.received = self.received or number
        self._signalled.set()


# Frames over the pipes, one JSON object per line, and a journal of them. Unlike the SDK's own transport this one passes
# on updates and stop reasons that it does not know, and skips lines that are not JSON.

LARGEST = 64 * 1024 * 1024
"""Maximum bytes of a frame; a larger one ends the connection."""
_JOURNAL = 8 * 1024 * 1024
_JOURNALED = 65_536
"""Bytes of a frame kept in the journal."""


class TooLarge(Exception):
    """A frame is longer than `LARGEST`."""


class Journal:
    """Every line in both directions (`<` in, `>` out), until the file is full."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._left = _JOURNAL

    def note(self, direction: bytes, line: bytes) -> None:
        if self._left <= 0:
            return
        kept = line[:_JOURNALED] + (b"... (%d bytes)" % len(line) if len(line) > _JOURNALED else b"")
        self._left -= len(kept) + 3
        self._file.write(direction + b" " + kept.rstrip(b"\n") + b"\n")
        if self._left <= 0:
            self._file.write(b"! the journal is full\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class FrameTransport:
    """A transport for the SDK's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, journal: Journal) -> None:
        self._reader, self._writer, self._journal = reader, writer, journal

    async def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self._journal.note(b">", line)
        self._writer.write(line)
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next valid frame; None at the end of the stream. Raises TooLarge."""
        while line := await self._line():
            self._journal.note(b"<", line)
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                return message
        return None

    async def close(self) -> None:
        self._writer.close()

    async def _line(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                parts.append(await self._reader.readuntil(b"\n"))
            except asyncio.IncompleteReadError as end:
                parts.append(end.partial)
            except asyncio.LimitOverrunError as long:
                parts.append(await self._reader.readexactly(long.consumed))
                size += long.consumed
                if size > LARGEST:
                    raise TooLarge(f"a frame of more than {LARGEST} bytes") from None
                continue
            return b"".join(parts)
