"""The program: one turn of a harness, with the contract of `openclaw agent --json` (see `agents.gateway.program`).

exit status 0    the harness ended the turn well; stdout is a result
exit status 1    anything else: a result, or {"ok": false, "error": {"message"}} with `runId` once it was prompted
143, 130         stopped by SIGTERM, SIGINT; stderr says so if the harness did not confirm it
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from mailboxd.agents.acp import acpx, changes, ending, notes, order
from mailboxd.agents.acp.ending import Ended
from mailboxd.agents.acp.harness import Harness
from mailboxd.agents.acp.hearing import Hearing
from mailboxd.agents.acp.order import Order
from mailboxd.agents.acp.parking import Parking
from mailboxd.agents.acp.stopping import Stop
from mailboxd.agents.acp.wire import Journal
from mailboxd.agents.inside import inside_agent
from mailboxd.host import wake

_CHECKPOINT = 5.0
"""Seconds between two notes of what it is at."""
_GOING = 2.0
"""Seconds that a harness has to go when its turn has ended."""
_NAMED_WHEN_STOPPED = 50
"""Changed files that are compared when there is no time left."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Take one turn; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mailboxd.agents.acp", allow_abbrev=False)
    parser.add_argument("--order", type=Path, required=True)
    path: Path = parser.parse_args(arguments).order
    try:
        ended = asyncio.run(_turn(path.parent, order.read(path)))
    except (OSError, ValueError) as error:
        ended = ending.not_begun(str(error))
    _put(sys.stderr, ended.said)
    if ended.value is not None:
        _put(sys.stdout, json.dumps(ended.value, ensure_ascii=False))
    return ended.status


async def _turn(folder: Path, wanted: Order) -> Ended:
    if inside_agent(os.environ):
        return ending.refused("an agent does not act as the operator")
    heard = Hearing()
    parking = Parking(folder, Path(wanted.state), wanted.capabilities, wanted.cwd, wanted.asks)
    turn = _Turn(folder, wanted, heard, parking, Stop(wanted.timeout, lambda: parking.waiting > 0))
    turn.stop.listen()
    before = changes.stamps(wanted.cwd)
    journal = Journal(folder / "frames")
    telling = asyncio.ensure_future(turn.tell())
    try:
        return await turn.take(journal)
    finally:
        telling.cancel()
        turn.account(before)
        journal.close()


@dataclass(slots=True)
class _Turn:
    """A turn by either backend."""

    folder: Path
    order: Order
    heard: Hearing
    parking: Parking
    stop: Stop
    _told: int = field(default=0)

    async def take(self, journal: Journal) -> Ended:
        prompt = self.folder / "prompt.md"
        direct = self.order.backend == "direct"
        if self.order.asks and not direct:
            return ending.refused("acpx cannot ask what became of a turn")
        argv = self.order.argv if direct else acpx.argv(self.order, prompt)
        try:
            harness = Harness.start(argv, self.order.cwd, self.folder, feeds=direct)
        except OSError as error:
            return ending.not_begun(f"{argv[0]}: {error.strerror}")
        try:
            if direct:
                return await self._converse(harness, journal, prompt.read_text(encoding="utf-8"))
            frames = acpx.Frames(self.heard, self.parking.refused)
            return await acpx.turn(harness, self.order, frames, self.stop, journal, self.folder.name)
        finally:
            await harness.end(_GOING if self.stop.received is None else self.order.grace / 8)

    async def _converse(self, harness: Harness, journal: Journal, prompt: str) -> Ended:
        try:
            from mailboxd.agents.acp.conversation import Conversation
        except ModuleNotFoundError as missing:
            return ending.not_begun(f"{missing}: run `pip install 'mailboxd[acp]'`")
        talk = Conversation(self.order, self.folder, self.heard, self.parking, self.stop, harness)
        await talk.open(journal)
        try:
            return await talk.run(prompt, self.folder.name)
        finally:
            await talk.close()

    async def tell(self) -> None:
        """Note what it is at, at most one every few seconds, and wake the daemon."""
        told = ""
        while True:
            if self.heard.note != told:
                told = self.heard.note
                self._told += 1
                notes.write(self.folder, notes.PROGRESS, {"number": self._told, "note": told})
                wake.poke(Path(self.order.state))
                await asyncio.sleep(_CHECKPOINT)
            else:
                await asyncio.sleep(0.1)

    def account(self, before: changes.Stamps) -> None:
        """Note what has changed, for the daemon to keep."""
        root = self.order.cwd
        names = changes.touched(root, before, changes.stamps(root), self.heard.touched)
        shown = names if self.stop.received is None else names[:_NAMED_WHEN_STOPPED]
        text = changes.diff(root, shown, before, self.heard.diffs)
        with suppress(OSError):
            notes.write(
                self.folder, notes.CHANGES, {"files": names, "diff": text, "refused": self.parking.refused[:100]}
            )


def _put(stream: TextIO, text: str) -> None:
    if text:
        # A half of a surrogate pair becomes the escape that it is in JSON.
        stream.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        stream.flush()
