"""The path of one task through the code, from the dropped file to its spawned turn: `make walk`.

The real daemon runs in this process, in a workspace of its own. A first task warms it up, so that what is imported or
compiled once is not on the path; then a second one is dropped, and every call of a function of mailboxd is noted, in
order, from the beginning of the round that takes the file to the spawning of the agent's process. What the watcher's
thread and the waiting for a wake-up do is left out: it depends on luck. It prints the functions by file, each where it
is entered first with how often it is called, and four counts: calls, functions, files, and how often the path goes on
in another file.

A tool for review, not a limit: read the printed path as a story, and look for the steps that it does not need.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from itertools import groupby, pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mailboxd
from bench.daemon import SETTINGS, task
from bench.workshop import drop
from mailboxd.cli import main as mailboxd_command
from mailboxd.daemon.loop import Daemon

PACKAGE = str(Path(mailboxd.__file__).parent)
SPAWNS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork"})
SECONDS = 60.0
"""The longest wait for each of the two turns, in seconds."""


class Walk:
    """Counts the calls of each function of mailboxd, in the order of the first ones, from a round to a spawn."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.recording = False
        self.spawned = threading.Event()
        self._dropped = Path()

    def profile(self, frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code is Daemon.round.__code__ and not self.spawned.is_set() and self._dropped.is_file():
            self.calls.clear()  # until here nothing was done with the file
            self.recording = True
        if self.recording:
            self.calls[code] += 1

    def audit(self, event: str, _args: Any) -> None:
        if event in SPAWNS and self.recording:
            self.recording = False
            self.spawned.set()

    def drop(self, inbox: Path, name: str) -> bool:
        """Drop a task and wait for its turn; returns whether it was spawned in time."""
        self._dropped = inbox / f"{name}.md"
        self.spawned.clear()
        drop(inbox, self._dropped.name, task(name))
        return self.spawned.wait(SECONDS)

    def report(self) -> str:
        path = [
            (str(Path(code.co_filename).relative_to(PACKAGE)), f"{code.co_qualname}{f' x{count}' if count > 1 else ''}")
            for code, count in self.calls.items()
            if not code.co_name.startswith("<")
        ]
        calls = sum(count for code, count in self.calls.items() if not code.co_name.startswith("<"))
        files = [file for file, _ in path]
        lines = []
        for file, functions in groupby(path, key=lambda entry: entry[0]):
            lines.append(f"{file}: {', '.join(name for _, name in functions)}")
        switches = sum(before != after for before, after in pairwise(files))
        counts = f"{calls} calls of {len(path)} functions in {len(set(files))} files"
        lines += ["", f"{counts}, {switches} switches between files"]
        return "\n".join(lines)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mailboxd-walk-") as base:
        root = Path(base) / "alpha"
        with redirect_stdout(None):
            _run(["init", str(root), "--agent", "alpha"])
        script = Path(base) / "script.yaml"
        script.write_text("agents: {alpha: {workspace: alpha}}\n", encoding="utf-8")
        command = [str(Path(sys.executable).parent / "mailboxd-scripted-openclaw"), "--script", str(script)]
        config = {"agent": "alpha", **SETTINGS, "openclaw": {**SETTINGS["openclaw"], "command": command}}
        (root / ".mailboxd" / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        walk = Walk()
        sys.addaudithook(walk.audit)
        driver = threading.Thread(target=_drive, args=(walk, root), daemon=True)
        driver.start()
        sys.setprofile(walk.profile)
        _run(["-w", str(root), "run", "--log-level", "warning"])
        sys.setprofile(None)
    if not walk.calls:
        print("walk: no turn was spawned; run `make test` to see what is broken", file=sys.stderr)
        return 1
    print(walk.report())
    return 0


def _drive(walk: Walk, root: Path) -> None:
    inbox = root / "mailbox" / "inbox"
    try:
        if walk.drop(inbox, "first") and _until(lambda: _has_ended(root, "first")):
            walk.drop(inbox, "second")
        else:
            walk.calls.clear()
    finally:
        walk.recording = False
        os.kill(os.getpid(), signal.SIGTERM)


def _has_ended(root: Path, name: str) -> bool:
    """Wait for task.md, which is written last."""
    with suppress(FileNotFoundError):
        return "status: done" in (root / "tasks" / name / "task.md").read_text(encoding="utf-8")
    return False


def _until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return met


def _run(words: list[str]) -> None:
    sys.argv = ["mailboxd", *words]
    with suppress(SystemExit):
        mailboxd_command()


if __name__ == "__main__":
    sys.exit(main())
