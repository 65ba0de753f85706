"""A table of processes without any process: calls outlive the daemon that made them, and die where nobody sees it.

`Processes` is what the machine knows: it survives crashes of daemons. `Table` is one daemon's view of it, the real
`ProcessTable` over children that are none. Pids are never looked at above this seam, so a number that is used twice
is not played here; `tests/agents/test_process.py` does that with real ones.
"""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.perform.agents.call_dir import CALL, OUTPUT_CAP, PROMPT, Exit, world
from mailboxd.perform.agents.process import NO_FILES, Child, State
from mailboxd.perform.process_table import Call, Caps, ProcessTable


@dataclass(slots=True)
class Process:
    """One call as the machine sees it. `how` is decided by the town when it ends."""

    house: str
    id: str
    argv: tuple[str, ...]
    prompt: bytes
    number: int
    alive: int
    """An eventfd that becomes readable at its end, as a pidfd does."""
    exit: Exit | None = None
    adopted: bool = False
    asked_to_end: bool = False
    reply: str | None = None
    """What the agent said, as its session remembers it; None: it never got that far."""
    accepted: bool = True
    marked_elsewhere: bool = False
    """Its directory was not synced before it was started."""

    @property
    def is_turn(self) -> bool:
        return self.argv[1] == "agent"

    @property
    def agent(self) -> str:
        return self.argv[self.argv.index("--agent") + 1]

    @property
    def session_key(self) -> str:
        return self.argv[self.argv.index("--session-key") + 1]


@dataclass(slots=True)
class Processes:
    """Everything that ever ran, in the order in which it began."""

    all: list[Process] = field(default_factory=list)

    def running(self) -> list[Process]:
        return [process for process in self.all if process.exit is None]

    def find(self, house: str, call_id: str) -> Process | None:
        found = [process for process in self.all if (process.house, process.id) == (house, call_id)]
        return found[-1] if found else None

    def start(self, house: str, call_id: str, argv: Sequence[str], prompt: bytes) -> Process:
        process = Process(house, call_id, tuple(argv), prompt, len(self.all), os.eventfd(0, os.EFD_NONBLOCK))
        if process.is_turn:
            twice = [other for other in self.running() if other.is_turn and other.session_key == process.session_key]
            assert not twice, f"two turns at once in the session {process.session_key}"
            assert self.find(house, call_id) is None, f"{house} has run the call {call_id} twice"
        self.all.append(process)
        return process

    def end(self, process: Process, exit_: Exit) -> None:
        process.exit = exit_
        os.eventfd_write(process.alive, 1)

    def close(self) -> None:
        for process in self.all:
            os.close(process.alive)


class FakeChild(Child):
    """A child whose pidfd is the machine's eventfd."""

    def __init__(self, directory: Path, process: Process, *, adopted: bool) -> None:
        super().__init__(directory, process.number + 1, os.dup(process.alive), adopted=adopted)
        self._process = process
        self._closed = False

    def reap(self, cap: int = OUTPUT_CAP) -> Exit | None:
        exit_ = self._process.exit
        if exit_ is not None:
            self.leave()
        # an exit status is told to the parent alone
        return Exit(None, exit_.stdout, exit_.stderr) if exit_ is not None and self.adopted else exit_

    def leave(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self.pidfd)

    def terminate(self) -> None:
        self._process.asked_to_end = True

    def kill(self) -> None:
        self._process.asked_to_end = True


class Table(ProcessTable):
    """The calls of one daemon in one house."""

    def __init__(
        self, house: str, turns: Path, processes: Processes, before: Callable[[str], None], per_agent: int = 1
    ) -> None:
        super().__init__(turns, selectors.DefaultSelector(), {}, OUTPUT_CAP, 5.0, Caps(4, per_agent))
        self._house = house
        self._processes = processes
        self._before = before
        """Told before everything that changes the world: there a crash may come."""

    def state(self, call_id: str) -> State:
        process = self._processes.find(self._house, call_id)
        if not (self.turns / call_id / CALL).exists():
            return State.NEVER_STARTED
        return State.RUNNING if process is not None and process.exit is None else State.ENDED

    def start(
        self,
        call: Call,
        argv: Sequence[str],
        now: float,
        *,
        files: Mapping[str, bytes] = NO_FILES,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        directory = Path(self._prepare(call.id))
        with world(directory):
            directory.mkdir(exist_ok=True)
            for name, content in files.items():
                (directory / name).write_bytes(content)
            self._before("mark")
            (directory / CALL).touch(exist_ok=False)
        self._before("spawn")
        process = self._processes.start(self._house, call.id, argv, files.get(PROMPT, b""))
        process.marked_elsewhere = call.marked
        self._before("spawned")
        self._follow(call, process, now, adopted=False)

    def adopt(self, call: Call, now: float) -> bool:
        process = self._processes.find(self._house, call.id)
        if process is None or process.exit is not None:
            return False
        self._follow(call, process, now, adopted=True)
        return True

    def _follow(self, call: Call, process: Process, now: float, *, adopted: bool) -> None:
        self._watch(call, FakeChild(self.turns / call.id, process, adopted=adopted), now)

    def left_behind(self, call_id: str) -> Exit:
        process = self._processes.find(self._house, call_id)
        if process is None or process.exit is None:
            return Exit(None, b"")
        return Exit(None, process.exit.stdout, process.exit.stderr)


def said(exit_value: object, rc: int = 0) -> Exit:
    """The exit of a program that printed this JSON."""
    return Exit(rc, json.dumps(exit_value).encode())
