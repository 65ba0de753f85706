"""One turn of a harness, with the contract of `openclaw agent --json` (see `agents.gateway.program`).

exit status 0    the turn succeeded; stdout is its result
exit status 1    anything else: a result, or {"ok": false, "error": {"message"}}, with `runId` once it was prompted
143, 130         stopped by SIGTERM, SIGINT; stderr says so if the harness did not confirm the cancellation
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.host import wakeup
from mailboxd.host.pip_extras import to_add
from mailboxd.perform.agents.acp import session_updates, turn_files
from mailboxd.perform.agents.acp.harness import Harness, Journal, Stop
from mailboxd.perform.agents.acp.permissions import PermissionQueue
from mailboxd.perform.agents.acp.session_updates import SessionUpdates
from mailboxd.perform.agents.acp.turn_files import TurnRequest
from mailboxd.perform.agents.call_dir import TurnResult, read_capped
from mailboxd.perform.agents.openclaw import inside_agent

_PROGRESS_SECONDS = 5.0
"""Minimum time between two progress reports."""
_EXIT_SECONDS = 2.0
"""Time for a harness to exit after its turn."""
_MAX_DIFFS_WHEN_STOPPED = 50
"""Changed files that are compared after a signal, when time is short."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one turn; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mailboxd.perform.agents.acp", allow_abbrev=False)
    parser.add_argument("--order", type=Path, required=True)
    path: Path = parser.parse_args(arguments).order
    try:
        ended = asyncio.run(_turn(path.parent, turn_files.read_request(path)))
    except (OSError, ValueError) as error:
        ended = session_updates.not_started(str(error))
    for name, raw in ended.files:
        stream = sys.stdout if name == "stdout" else sys.stderr
        stream.buffer.write(raw)
        stream.flush()
    return ended.status


async def _turn(folder: Path, request: TurnRequest) -> TurnResult:
    if inside_agent(os.environ):
        return session_updates.refused("an agent does not act as the operator")
    updates = SessionUpdates()
    permissions = PermissionQueue(folder, Path(request.state), request.capabilities, request.cwd, request.asks)
    turn = _Turn(folder, request, updates, permissions, Stop(request.timeout, lambda: permissions.waiting > 0))
    turn.stop.listen()
    before = snapshot(request.cwd)
    journal = Journal(folder / "frames")
    reporting = asyncio.ensure_future(turn.report_progress())
    try:
        return await turn.run(journal)
    finally:
        reporting.cancel()
        turn.report_changes(before)
        journal.close()


@dataclass(slots=True)
class _Turn:
    folder: Path
    request: TurnRequest
    updates: SessionUpdates
    permissions: PermissionQueue
    stop: Stop
    _reports: int = field(default=0)

    async def run(self, journal: Journal) -> TurnResult:
        try:
            harness = Harness.start(self.request.argv, self.request.cwd, self.folder)
        except OSError as error:
            return session_updates.not_started(f"{self.request.argv[0]}: {error.strerror}")
        try:
            return await self._converse(harness, journal, (self.folder / "prompt.md").read_text(encoding="utf-8"))
        finally:
            await harness.end(_EXIT_SECONDS if self.stop.received is None else self.request.grace / 8)

    async def _converse(self, harness: Harness, journal: Journal, prompt: str) -> TurnResult:
        try:
            from mailboxd.perform.agents.acp.conversation import Conversation
        except ModuleNotFoundError as missing:
            return session_updates.not_started(f"{missing}: run `{to_add('acp')}`")
        talk = Conversation(self.request, self.folder, self.updates, self.permissions, self.stop, harness)
        await talk.open(journal)
        try:
            return await talk.run(prompt, self.folder.name)
        finally:
            await talk.close()

    async def report_progress(self) -> None:
        """Write the current activity, at most every few seconds, and wake the daemon."""
        reported = ""
        while True:
            if self.updates.note != reported:
                reported = self.updates.note
                self._reports += 1
                turn_files.write(self.folder, turn_files.PROGRESS, {"number": self._reports, "note": reported})
                wakeup.poke(Path(self.request.state))
                await asyncio.sleep(_PROGRESS_SECONDS)
            else:
                await asyncio.sleep(0.1)

    def report_changes(self, before: Snapshot) -> None:
        """Write down what changed, for the daemon."""
        root = self.request.cwd
        names = changed_files(root, before, snapshot(root), self.updates.touched)
        shown = names if self.stop.received is None else names[:_MAX_DIFFS_WHEN_STOPPED]
        text = diff(root, shown, before, self.updates.diffs)
        with suppress(OSError):
            turn_files.write(
                self.folder,
                turn_files.CHANGES,
                {"files": names, "diff": text, "refused": self.permissions.refused[:100]},
            )


# Which files changed, and how. Changes are detected by size and time. The old content is git's, or what the harness
# reports as replaced. Only `git cat-file` is used: `git diff` would run programs from the repository's configuration,
# which the harness may have written.

_MOST_FILES = 20_000
_SKIPPED = frozenset({".git", ".mailboxd", "node_modules", ".venv", "__pycache__"})
_FILE_CAP = 262_144
_DIFF_CAP = 524_288
_MAX_CHANGED = 1_000

Snapshot = Mapping[str, tuple[int, int, int]]


def snapshot(root: str) -> Snapshot:
    """Size, time and inode of the regular files below `root`, at most 20,000; links are not followed.

    In a workspace, mailbox/ and tasks/ are skipped: mailboxd changes them itself.
    """
    skipped = [str(Path(root, name)) for name in ("mailbox", "tasks")] if Path(root, ".mailboxd").is_dir() else []
    found: dict[str, tuple[int, int, int]] = {}
    folders = [root]
    while folders and len(found) < _MOST_FILES:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED and entry.path not in skipped:
                        folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and len(found) < _MOST_FILES:
                    status = entry.stat(follow_symlinks=False)
                    found[os.path.relpath(entry.path, root)] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def changed_files(root: str, before: Snapshot, after: Snapshot, reported: Iterable[str]) -> list[str]:
    """The files that changed on disk or are reported as changed, relative to `root`."""
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    for path in reported:
        if not (name := _relative(root, path)).startswith("../"):
            changed.add(name)
    return sorted(changed)[:_MAX_CHANGED]


def _relative(root: str, path: str) -> str:
    return os.path.relpath(os.path.realpath(os.path.join(root, path)), root)  # noqa: PTH118


def diff(root: str, names: Iterable[str], before: Snapshot, reported: Iterable[tuple[str, str, str]]) -> str:
    """A unified diff of these files, truncated if it becomes too long."""
    edits: dict[str, list[tuple[str, str]]] = {}
    for path, old, new in reported:
        edits.setdefault(_relative(root, path), []).append((old, new))
    parts: list[str] = []
    size = 0
    for name in names:
        part = _file_diff(root, name, name in before, edits.get(name, ()))
        size += len(part)
        if size > _DIFF_CAP:
            parts.append(f"(truncated at {name}: the limit is {_DIFF_CAP} characters)\n")
            break
        parts.append(part)
    return "".join(parts)


def _file_diff(root: str, name: str, existed: bool, reported: Iterable[tuple[str, str]]) -> str:
    committed = _committed(root, name)
    if committed is not None or not existed:
        return _diff(name, committed or b"", _current(root, name))
    shown = "".join(_diff(name, old.encode(), new.encode()) for old, new in reported)
    return shown or f"{name} changed; its earlier content is unknown\n"


def _diff(name: str, old: bytes, new: bytes) -> str:
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


def _current(root: str, name: str) -> bytes:
    try:
        raw, truncated = read_capped(Path(root, name), _FILE_CAP)
    except OSError:
        return b""
    return raw + b"\0" if truncated else raw  # an oversized file is treated as binary


def _committed(root: str, name: str) -> bytes | None:
    """The committed content, unfiltered; None without git or without such a file."""
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
