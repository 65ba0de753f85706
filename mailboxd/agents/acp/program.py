"""The program: one turn of a harness, with the contract of `openclaw agent --json` (see `agents.gateway.program`).

exit status 0    the harness ended the turn well; stdout is a result
exit status 1    anything else: a result, or {"ok": false, "error": {"message"}} with `runId` once it was prompted
143, 130         stopped by SIGTERM, SIGINT; stderr says so if the harness did not confirm it
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from mailboxd.agents.acp import acpx, session_updates, turn_files
from mailboxd.agents.acp.harness import Harness, Journal, Stop
from mailboxd.agents.acp.permissions import Parking
from mailboxd.agents.acp.session_updates import Ended, Hearing
from mailboxd.agents.acp.turn_files import Order
from mailboxd.agents.call_dir import read_capped
from mailboxd.agents.nesting_guard import inside_agent
from mailboxd.host import wakeup

# ---------------------------------------------------------------------------------------------------------------------
# Which files changed while a harness worked, and how.
#
# What changed is seen on the disk: sizes and times before and after. What stood there before is what git has committed,
# or what the harness says it replaced. git is only asked for the objects that it keeps: `git diff` would run programs
# that the directory's own configuration names, and a harness may have written that.

_MOST_FILES = 20_000
_SKIPPED = frozenset({".git", ".mailboxd", "node_modules", ".venv", "__pycache__"})
_FILE_CAP = 262_144
_DIFF_CAP = 524_288
_NAMED = 1_000

Stamps = Mapping[str, tuple[int, int, int]]


def stamps(root: str) -> Stamps:
    """Size, time and inode of the regular files below `root`, at most 20,000; links are not followed.

    Of a whole workspace without mail and tasks: those are ours to change.
    """
    ours = [str(Path(root, name)) for name in ("mailbox", "tasks")] if Path(root, ".mailboxd").is_dir() else []
    found: dict[str, tuple[int, int, int]] = {}
    folders = [root]
    while folders and len(found) < _MOST_FILES:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED and entry.path not in ours:
                        folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and len(found) < _MOST_FILES:
                    status = entry.stat(follow_symlinks=False)
                    found[os.path.relpath(entry.path, root)] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def touched(root: str, before: Stamps, after: Stamps, said: Iterable[str]) -> list[str]:
    """The files that changed, relative to `root`: as the disk shows it, and as the harness says."""
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    for path in said:
        if not (name := _name(root, path)).startswith("../"):
            changed.add(name)
    return sorted(changed)[:_NAMED]


def _name(root: str, path: str) -> str:
    return os.path.relpath(os.path.realpath(os.path.join(root, path)), root)  # noqa: PTH118


def diff(root: str, names: Iterable[str], before: Stamps, said: Iterable[tuple[str, str, str]]) -> str:
    """How they changed, as a unified diff, cut where it becomes too long."""
    told: dict[str, list[tuple[str, str]]] = {}
    for path, old, new in said:
        told.setdefault(_name(root, path), []).append((old, new))
    parts: list[str] = []
    size = 0
    for name in names:
        part = _changed(root, name, name in before, told.get(name, ()))
        size += len(part)
        if size > _DIFF_CAP:
            parts.append(f"(cut: the rest, from {name} on, would make it longer than {_DIFF_CAP} characters)\n")
            break
        parts.append(part)
    return "".join(parts)


def _changed(root: str, name: str, existed: bool, said: Iterable[tuple[str, str]]) -> str:
    committed = _committed(root, name)
    if committed is not None or not existed:
        return _one(name, committed or b"", _now(root, name))
    shown = "".join(_one(name, old.encode(), new.encode()) for old, new in said)
    return shown or f"{name} changed; what stood there before is not known\n"


def _one(name: str, old: bytes, new: bytes) -> str:
    if old == new:
        return ""
    try:
        texts = [raw.decode() for raw in (old, new)]
    except UnicodeDecodeError:
        return f"Binary file {name} differs\n"
    if "\0" in texts[0] + texts[1]:
        return f"Binary file {name} differs\n"
    lines = [text.splitlines(keepends=True) for text in texts]
    names = ("a/" + name if old else "/dev/null", "b/" + name if new else "/dev/null")
    shown = difflib.unified_diff(lines[0], lines[1], names[0], names[1])
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in shown)


def _now(root: str, name: str) -> bytes:
    try:
        raw, truncated = read_capped(Path(root, name), _FILE_CAP)
    except OSError:
        return b""
    return raw + b"\0" if truncated else raw  # what is too long is shown as a binary file is


def _committed(root: str, name: str) -> bytes | None:
    """What git has of it, without any filter; None where there is no git, or it has nothing."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", root, "cat-file", "blob", f"HEAD:./{name}"]
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as git:
            raw = git.stdout.read(_FILE_CAP + 1) if git.stdout else b""
            if len(raw) > _FILE_CAP:
                git.kill()
                return raw + b"\0"
    except OSError:
        return None
    return raw if git.returncode == 0 else None


# ---------------------------------------------------------------------------------------------------------------------
# The program: one turn of a harness, with the contract of `openclaw agent --json` (see `agents.gateway.program`).

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
        ended = asyncio.run(_turn(path.parent, turn_files.read_request(path)))
    except (OSError, ValueError) as error:
        ended = session_updates.not_begun(str(error))
    _put(sys.stderr, ended.said)
    if ended.value is not None:
        _put(sys.stdout, json.dumps(ended.value, ensure_ascii=False))
    return ended.status


async def _turn(folder: Path, wanted: Order) -> Ended:
    if inside_agent(os.environ):
        return session_updates.refused("an agent does not act as the operator")
    heard = Hearing()
    parking = Parking(folder, Path(wanted.state), wanted.capabilities, wanted.cwd, wanted.asks)
    turn = _Turn(folder, wanted, heard, parking, Stop(wanted.timeout, lambda: parking.waiting > 0))
    turn.stop.listen()
    before = stamps(wanted.cwd)
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
            return session_updates.refused("acpx cannot ask what became of a turn")
        argv = self.order.argv if direct else acpx.argv(self.order, prompt)
        try:
            harness = Harness.start(argv, self.order.cwd, self.folder, feeds=direct)
        except OSError as error:
            return session_updates.not_begun(f"{argv[0]}: {error.strerror}")
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
            return session_updates.not_begun(f"{missing}: run `pip install 'mailboxd[acp]'`")
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
                turn_files.write(self.folder, turn_files.PROGRESS, {"number": self._told, "note": told})
                wakeup.poke(Path(self.order.state))
                await asyncio.sleep(_CHECKPOINT)
            else:
                await asyncio.sleep(0.1)

    def account(self, before: Stamps) -> None:
        """Note what has changed, for the daemon to keep."""
        root = self.order.cwd
        names = touched(root, before, stamps(root), self.heard.touched)
        shown = names if self.stop.received is None else names[:_NAMED_WHEN_STOPPED]
        text = diff(root, shown, before, self.heard.diffs)
        with suppress(OSError):
            turn_files.write(
                self.folder, turn_files.CHANGES, {"files": names, "diff": text, "refused": self.parking.refused[:100]}
            )


def _put(stream: TextIO, text: str) -> None:
    if text:
        # A half of a surrogate pair becomes the escape that it is in JSON.
        stream.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        stream.flush()
