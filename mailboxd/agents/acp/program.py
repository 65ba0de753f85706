"""One turn of a harness, with the contract of `openclaw agent --json` (see `agents.gateway.program`).

exit status 0    the turn succeeded; stdout is its result
exit status 1    anything else: a result, or {"ok": false, "error": {"message"}}, with `runId` once it was prompted
143, 130         stopped by SIGTERM, SIGINT; stderr says so if the harness did not confirm the cancellation
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from mailboxd.agents.acp import session_updates, turn_files
from mailboxd.agents.acp.harness import FrameTransport, Harness, Journal, Stop, TooLarge
from mailboxd.agents.acp.permissions import PermissionQueue, describe
from mailboxd.agents.acp.session_updates import SessionUpdates, TurnResult
from mailboxd.agents.acp.turn_files import TurnRequest
from mailboxd.agents.call_dir import read_capped
from mailboxd.agents.json_output import at, brief, text_at
from mailboxd.agents.openclaw import inside_agent
from mailboxd.host import wakeup
from mailboxd.host.pip_extras import to_add

_PROGRESS_SECONDS = 5.0
"""Minimum time between two progress reports."""
_EXIT_SECONDS = 2.0
"""Time for a harness to exit after its turn."""
_MAX_DIFFS_WHEN_STOPPED = 50
"""Changed files that are compared after a signal, when time is short."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one turn; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mailboxd.agents.acp", allow_abbrev=False)
    parser.add_argument("--order", type=Path, required=True)
    path: Path = parser.parse_args(arguments).order
    try:
        ended = asyncio.run(_turn(path.parent, turn_files.read_request(path)))
    except (OSError, ValueError) as error:
        ended = session_updates.not_started(str(error))
    _put(sys.stderr, ended.said)
    if ended.value is not None:
        _put(sys.stdout, json.dumps(ended.value, ensure_ascii=False))
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
    """A turn with either backend."""

    folder: Path
    request: TurnRequest
    updates: SessionUpdates
    permissions: PermissionQueue
    stop: Stop
    _reports: int = field(default=0)

    async def run(self, journal: Journal) -> TurnResult:
        prompt = self.folder / "prompt.md"
        direct = self.request.backend == "direct"
        if self.request.asks and not direct:
            return session_updates.refused("acpx cannot ask about an earlier turn")
        argv = self.request.argv if direct else acpx_argv(self.request, prompt)
        try:
            harness = Harness.start(argv, self.request.cwd, self.folder, feeds=direct)
        except OSError as error:
            return session_updates.not_started(f"{argv[0]}: {error.strerror}")
        try:
            if direct:
                return await self._converse(harness, journal, prompt.read_text(encoding="utf-8"))
            frames = AcpxFrames(self.updates, self.permissions.refused)
            return await acpx_turn(harness, self.request, frames, self.stop, journal, self.folder.name)
        finally:
            await harness.end(_EXIT_SECONDS if self.stop.received is None else self.request.grace / 8)

    async def _converse(self, harness: Harness, journal: Journal, prompt: str) -> TurnResult:
        try:
            from mailboxd.agents.acp.conversation import Conversation
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


def _put(stream: TextIO, text: str) -> None:
    if text:
        # a lone surrogate becomes its JSON escape
        stream.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        stream.flush()


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


# The same turn through `acpx exec`, which prints the frames of both directions, one per line (tested with 0.19.1). It
# cannot ask an operator: whatever exceeds the capabilities is denied and listed. Its exit status is 0 even for a
# refused or cancelled turn, so the answer to the prompt among the frames decides. If the harness crashes there is none.

_ACPX_KINDS = {
    "read": ("read", "search"),
    "edit": ("edit", "delete", "move"),
    "execute": ("execute",),
    "network": ("fetch",),
}
_ACPX_NEVER = ("switch_mode", "other")
_ACPX_EXTRA_SECONDS = 30
"""Seconds added to the timeout of acpx, which would not wait for the harness to confirm a cancellation."""


def acpx_argv(request: TurnRequest, prompt: Path) -> tuple[str, ...]:
    """The command of one turn. What is not granted is denied by kind, whatever its title says."""
    given = [kind for name, kinds in _ACPX_KINDS.items() if name in request.capabilities for kind in kinds]
    denied = [kind for kinds in _ACPX_KINDS.values() for kind in kinds if kind not in given]
    policy = {"autoApprove": [*given, "think"], "autoDeny": [*denied, *_ACPX_NEVER], "defaultAction": "deny"}
    options = ("--agent", shlex.join(request.argv), "--format", "json", "--json-strict", "--cwd", request.cwd)
    limits = (
        "--timeout",
        str(request.timeout + _ACPX_EXTRA_SECONDS),
        "--no-fs",
        "--no-terminal",
        "--permission-policy",
        json.dumps(policy),
    )
    return (*request.acpx, *options, *limits, "exec", "--file", str(prompt))


async def acpx_turn(
    acpx: Harness, request: TurnRequest, frames: AcpxFrames, stop: Stop, journal: Journal, run_id: str
) -> TurnResult:
    """Read its frames until it ends. Raises nothing, whatever it prints."""
    read = asyncio.ensure_future(_read_frames(acpx, frames, journal))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({read, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if interrupted := not read.done():
        acpx.interrupt()  # it cancels the prompt
        await asyncio.wait({read}, timeout=request.grace / 2)
    with suppress(TooLarge):
        if read.done():
            await read
    return _acpx_result(frames, stop, run_id, interrupted)


def _acpx_result(frames: AcpxFrames, stop: Stop, run_id: str, interrupted: bool) -> TurnResult:
    reason = at(frames.answer, "result", "stopReason")
    if stop.received is not None and reason != "end_turn":
        return session_updates.stopped(stop.received, run_id, confirmed=reason == "cancelled" or not frames.prompted)
    if interrupted and reason == "cancelled":
        return session_updates.timed_out(frames.updates, run_id)
    if reason is not None:
        return session_updates.completed(reason, frames.updates, run_id, at(frames.answer, "result", "usage"))
    if frames.answer is not None:
        code = at(frames.answer, "error", "code")
        error = brief(text_at(frames.answer, "error", "message"))
        return session_updates.failed(code if isinstance(code, int) else 0, error, frames.updates, run_id)
    if not frames.prompted:
        return session_updates.not_started(frames.problem or "acpx ended before it sent the prompt")
    return session_updates.lost(frames.problem or "acpx ended without an answer", run_id)


class AcpxFrames:
    """Extracts the prompt, its answer, and what was denied."""

    def __init__(self, updates: SessionUpdates, refused: list[str]) -> None:
        self.updates, self.refused = updates, refused
        self.answer: dict[str, Any] | None = None
        self.problem = ""
        self.prompted = False
        self._prompt: object = None
        self._asked: dict[object, tuple[dict[str, Any], object]] = {}

    def take(self, frame: dict[str, Any]) -> None:
        method, number = frame.get("method"), frame.get("id")
        if method == "session/prompt":
            self._prompt, self.prompted = number, True
            self.updates.session, self.updates.listening = text_at(frame, "params", "sessionId"), True
        elif method == "session/update":
            self.updates.update(frame.get("params"))
        elif method == "session/request_permission":
            tool = at(frame, "params", "toolCall")
            known = self.updates.tool(tool if isinstance(tool, dict) else {})
            self._asked[number] = known, at(frame, "params", "options")
        elif (outcome := at(frame, "result", "outcome")) is not None and number in self._asked:
            self._answered(*self._asked.pop(number), at(outcome, "optionId"))
        elif method is None and self.prompted and number == self._prompt:  # both sides count their requests from 0
            self.answer = frame
        elif "error" in frame:
            self.problem = brief(text_at(frame, "error", "message"))

    def _answered(self, tool: dict[str, Any], options: object, chosen: object) -> None:
        offered = [item for item in options if isinstance(item, dict)] if isinstance(options, list) else []
        kind = next((text_at(item, "kind") for item in offered if item.get("optionId") == chosen), "")
        if not kind.startswith("allow"):
            self.refused.append(f"{describe(tool)} (acpx cannot ask for approval)")


async def _read_frames(acpx: Harness, frames: AcpxFrames, journal: Journal) -> None:
    wire = FrameTransport(await acpx.reader(), None, journal)
    while (frame := await wire.receive()) is not None:
        frames.take(frame)
