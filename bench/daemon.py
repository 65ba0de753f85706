"""The real daemon in its own workspace, with everything switched on; only the agent's program is a stub."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any

from bench import processes
from bench.graphs import Graph
from bench.processes import Broken
from bench.workshop import MAILBOXD, Workshop, drop, say

SETTINGS: dict[str, Any] = {
    # one agent, eight turns of it at once: what the peers are given too
    "limits": {
        "turns": 8,
        "turns_per_agent": 8,
        "turns_per_agent_hour": 0,
        "call_bytes": 1 << 20,
        "message_bytes": 64 << 20,
        "children": 10_000,
    },
    "openclaw": {"discovery": False},
    "synthesis": "none",
}
"""Settings that differ from the defaults; `call_bytes` says that the agent's program is small."""


class Daemon:
    """A workspace and the daemon that serves it, if one runs. As a context manager it removes both."""

    def __init__(
        self,
        shop: Workshop,
        name: str,
        *,
        hang: bool = False,
        limits: Mapping[str, Any] | None = None,
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """With `hang`, a turn runs until the daemon ends it; `command` is another program for turns."""
        self.root = shop.place(name)
        self.inbox = self.root / "mailbox" / "inbox"
        self.database = self.root / ".mailboxd" / "mailboxd.db"
        self.log = self.root / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.env = env
        self._alive = self.root / "alive"
        self._alive.touch()
        self.command("init", str(self.root), "--agent", "alpha")
        words = [*command] or [str(shop.agent), *(["--while", str(self._alive)] if hang else [])]
        config = {"agent": "alpha", **SETTINGS, "openclaw": {**SETTINGS["openclaw"], "command": words}}
        config["limits"] = {**SETTINGS["limits"], **(limits or {})}
        # a key on each line, as people write it: `status` reads the agent's name from such a line
        lines = "".join(
            f"{key}: {value if isinstance(value, str) else json.dumps(value)}\n" for key, value in config.items()
        )
        (self.root / ".mailboxd" / "config.yaml").write_text(lines, encoding="utf-8")

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._alive.unlink(missing_ok=True)
        self.kill()

    # ------------------------------------------------------------ the process

    def start(self) -> float:
        """Start it and wait until it is ready; returns the seconds. Raises Broken."""
        with self.log.open("ab") as log:
            said, begun = log.tell(), time.perf_counter()
            self.process = processes.start([MAILBOXD, "run"], self.root, log, self.env)
        until(lambda: b"ready: agent" in self.log.read_bytes()[said:], 120, self, pause=0.002)
        return time.perf_counter() - begun

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            processes.end(self.process)
            self.process = None

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(90)
        finally:
            self.kill()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self, *words: str) -> bytes:
        """Run a command of the installed program in this workspace. Raises Broken."""
        return processes.run([MAILBOXD, *words], self.root, 900)

    # ------------------------------------------------------------ what it is asked, what it has done

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=30)

    def query(self, sql: str, *values: object) -> list[Any]:
        with closing(self.connect()) as db:
            return db.execute(sql, values).fetchall()

    def work(self, name: str, graph: Graph, seconds: float) -> tuple[float, float]:
        """Drop a plan and wait until it has ended; returns seconds up to the reply, and of CPU. Raises Broken.

        The reply is the last thing that a task brings about: a file in outbox/, written after the commit.
        """
        ran, begun = processes.ran(self.pid), time.time()
        drop(self.inbox, f"{name}.md", plan(name, graph))
        reply = self.until_ended(name, seconds)
        return reply.stat().st_mtime - begun, processes.ran(self.pid) - ran

    def until_ended(self, name: str, seconds: float) -> Path:
        """Wait for the reply to a task. Raises Broken unless the task is completed in time."""
        with closing(self.connect()) as db:
            asked = "SELECT phase FROM v_tasks WHERE local_id = ?"
            replied = (
                "SELECT m.path FROM v_messages m JOIN v_tasks t ON t.id = m.task"
                " WHERE t.local_id = ? AND m.direction = 'out' AND m.type = 'reply' AND m.path IS NOT NULL"
            )
            until(lambda: db.execute(asked, (name,)).fetchone() not in (None, *_OPEN), seconds, self)
            until(lambda: db.execute(replied, (name,)).fetchone(), seconds, self)
            (phase,), (path,) = (db.execute(sql, (name,)).fetchone() for sql in (asked, replied))
        if phase != "completed":
            raise Broken(f"mailboxd: {name} is {phase}: {self.last_words()}")
        return self.root / "mailbox" / str(path)

    def until_quiet(self, seconds: float = 60.0) -> None:
        """Wait until no effect is pending and nothing is to be filed or rendered; does not wait for hanging turns."""
        pending = "SELECT 1 FROM v_unfinished WHERE kind <> 'run_turn' LIMIT 1"
        with closing(self.connect()) as db:
            until(lambda: db.execute(pending).fetchone() is None, seconds, self)

    def started_at(self, local_ids: Sequence[str]) -> list[int]:
        """When the agent's program started for each task, as it reports: nanoseconds of the wall clock."""
        with closing(self.connect()) as db:
            found = [
                db.execute("SELECT result FROM v_tasks WHERE local_id = ?", (name,)).fetchone() for name in local_ids
            ]
        return [int(result.split()[1]) for (result,) in found]

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-600:]


_OPEN = tuple((phase,) for phase in ("spec_draft", "spec_review", "execution_ready", "executing"))


def until(condition: Callable[[], object], seconds: float, daemon: Daemon, pause: float = 0.02) -> None:
    """Wait until the condition holds. Raises Broken on a timeout, or if the daemon has ended."""
    end, spoken = time.monotonic() + seconds, time.monotonic()
    while not condition():
        if time.monotonic() > end:
            raise Broken(f"mailboxd: not within {seconds:.0f} s: {daemon.last_words()}")
        if daemon.process is None or daemon.process.poll() is not None:
            raise Broken(f"mailboxd: the daemon has ended: {daemon.last_words()}")
        if time.monotonic() - spoken > 15:
            spoken = time.monotonic()
            say("  ... still working")
        time.sleep(pause)


def plan(name: str, graph: Graph) -> bytes:
    """A task message with a plan, in which each node is work for `beta`."""
    children = "\n".join(
        f"  n{node}: {{agent: beta, description: Node {node}, depends_on: [{', '.join(f'n{need}' for need in needs)}]}}"
        for node, needs in enumerate(graph)
    )
    return task(name, f"\n## DAG\n\n```yaml\nsubtasks:\n{children}\n```\n")


def task(name: str, more: str = "") -> bytes:
    """A task message of about a kilobyte."""
    words = "Do as it says, and say that it is done. " * 18
    head = f"---\ntype: task\ntask_id: {name}\nfrom: operator\nmessage_id: bench-{name}\n---\n\n# Task: {name}\n\n"
    return f"{head}## Instructions\n\n{words}\n\n## Expected Output\n\nOne line.\n{more}".encode()
