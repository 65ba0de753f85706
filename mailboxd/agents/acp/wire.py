"""Frames over the pipes of a harness, one JSON object a line, and the journal of them.

A transport for the SDK's connection. It takes what the protocol does not know: a line that is no JSON object is
journaled and passed over, an update of an unknown kind or an unknown stop reason arrives as it was said.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, BinaryIO

LARGEST = 64 * 1024 * 1024
"""Bytes of one frame; a larger one ends the connection."""
_JOURNAL = 8 * 1024 * 1024
_JOURNALED = 65_536
"""Bytes of one frame that the journal keeps."""


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


class Wire:
    """What the SDK calls a transport; without a writer, one that is only read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, journal: Journal) -> None:
        self._reader, self._writer, self._journal = reader, writer, journal

    async def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self._journal.note(b">", line)
        if self._writer is None:
            raise ConnectionError("there is nobody to tell")
        self._writer.write(line)
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next frame that is one; None at the end of the stream. Raises TooLarge."""
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
        if self._writer is not None:
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
