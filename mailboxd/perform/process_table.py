"""The calls that are running now: spawned or adopted, watched through their pidfds, stopped in time.

How many may run is decided here, by count and by memory, and nowhere else.
"""

from __future__ import annotations

import os
import select
import selectors
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from mailboxd.core.schedule import Capacity
from mailboxd.errors import WorldError
from mailboxd.ledger.store import Order
from mailboxd.perform.agents import process
from mailboxd.perform.agents.alive import has_ended, has_writer, kill_writers
from mailboxd.perform.agents.call_dir import (
    STDERR_CAP,
    Exit,
    cut_output,
    output_size,
    world,
)
from mailboxd.perform.agents.process import NO_FILES, Child, Launcher, Recovery, State, hand_on, read_exit, remove

PATIENCE = 35.0
"""Seconds past its own timeout after which a call is stopped: OpenClaw itself gives up 30 s past it."""
_STARTUP = 5.0
"""Seconds after its start during which a call is assumed not to have allocated its memory yet."""
_MEMORY_INTERVAL = 0.5
"""Seconds for which a measurement of the free memory is used."""
_KILL_AGAIN = 0.5
"""Least seconds between two SIGKILLs to the same call."""
_ASK_AGAIN = 30.0
"""Seconds between two checks whether a call whose time is over is still being recovered."""
_OUTPUT_INTERVAL = 0.25
"""Seconds between two checks of how much calls have written: an output can exceed its limit by that much.

Processes left behind by an ended call are checked too, as long as they can write to its output. RLIMIT_FSIZE is no
alternative: it would also limit every database and log that the program writes.
"""


@dataclass(frozen=True, slots=True)
class Caps:
    """How many calls may run at once, in all and per agent, and the memory that is reserved for each.

    `programs`: how many of them may be processes of OpenClaw's CLI, which may need more than `call_bytes`.
    """

    calls: int = 4
    per_agent: int = 1
    call_bytes: int = 225_443_840
    programs: int = 256


class CallKind(StrEnum):
    """The purpose of a call, which decides who takes its result."""

    DISCOVERY = "discovery"
    TURN = "turn"
    HARNESS_TURN = "harness turn"
    LOOKUP = "lookup"
    HARNESS_LOOKUP = "harness lookup"
    PROOF = "proof"
    MESSAGE = "message"
    CHECK = "check"
    GATE = "gate"
    GATE_CLOSING = "gate closing"
    ACTION = "action"
    VERIFY = "verify"
    NOTICE = "notice"
    PROMPT = "prompt"


@dataclass(slots=True)
class Call:
    """A child process; before its start, the request for one."""

    id: str
    kind: CallKind
    agent: str
    """The agent that it occupies; empty if none."""
    session_key: str
    timeout: float
    """Seconds that it may take."""
    order: Order | None = None
    """The order that it performs."""
    task: str = ""
    """The task with which it is stopped."""
    kill_leftovers: bool = False
    """When it ends, kill the processes that it left in its process group."""
    without_slot: bool = False
    """It does not count against the limits on calls."""
    marked: bool = False
    """Its start is committed, with the boot of the machine, so the mark in its directory needs no sync."""
    child: Child = field(init=False)
    started: float = field(init=False)
    """On the monotonic clock, as are `deadline` and `kill_at`."""
    deadline: float = field(init=False)
    stopped: str = ""
    """Why mailboxd stopped it."""
    kill_at: float | None = None


@dataclass(slots=True)
class ProcessTable:
    """The table of running calls. Directories of calls stand below `turns`."""

    turns: Path
    selector: selectors.BaseSelector
    environment: Mapping[str, str]
    output_cap: int
    grace: float
    caps: Caps = Caps()
    available: Callable[[], int | None] = lambda: None
    """Bytes of memory that programs may still take; None = not known."""
    launcher: Launcher = process
    """How calls are started and found again."""
    lane: int | None = None
    """How many turns the gateway runs at once, for all clients; this daemon uses at most half of them."""
    running: dict[str, Call] = field(default_factory=dict)
    is_shut: bool = False
    """A person has paused everything, so no work begins."""
    capacity: Capacity = field(init=False)
    """The free capacity in this round of the loop; each call that starts takes its slot."""
    _root: str = field(init=False)
    """`turns` as text: joining paths costs more than the system call."""
    _there: set[str] = field(init=False)
    """The calls that may have a directory: what earlier daemons left, and the calls of this one. The disk is not asked
    about any other: it has never started."""
    _ends: select.poll = field(default_factory=select.poll)
    """Where the ends of the running calls show."""
    _recorded: list[str] = field(default_factory=list)
    """Ended calls whose results the open transaction records."""
    _spare: list[str] = field(default_factory=list)
    """Ended calls whose directories are no longer needed, kept for the next calls: fewer than are running."""
    _open_outputs: dict[str, bool] = field(default_factory=dict)
    """Ended calls whose output a leftover process may still be writing; True: the output is no longer needed."""
    _memory: tuple[float, int | None] | None = None
    _output_checked: float = float("-inf")

    def __post_init__(self) -> None:
        self.capacity = Capacity(self.caps.calls, per_agent=self.caps.per_agent)
        self._root, self._there = str(self.turns), set()
        with world(self.turns), suppress(FileNotFoundError):
            self._there.update(os.listdir(self.turns))  # noqa: PTH208

    def directory(self, call_id: str) -> str:
        return f"{self._root}/{call_id}"

    def state(self, call_id: str) -> State:
        """The state in which an earlier daemon, or an earlier try, left this call. Raises WorldError."""
        return self.launcher.state(self.directory(call_id)) if call_id in self._there else State.NEVER_STARTED

    def file(self, call_id: str, name: str) -> str:
        """The path of a file that the call will be given."""
        return f"{self._root}/{call_id}/{name}"

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
        """Spawn it, with these files in its directory. Raises NotStarted (then nothing has run), WorldError."""
        environment = self.environment if environment is None else environment
        directory = self._prepare(call.id)
        child = self.launcher.spawn(directory, argv, environment, cwd, files=files, marked=call.marked)
        self._watch(call, child, now)

    def _prepare(self, call_id: str) -> str:
        """The directory of a call that begins; it exists already if an ended one could hand its own on."""
        self._there.add(call_id)
        directory = self.directory(call_id)
        if self._spare:  # its own, if it is made again
            spare = self._spare.pop(self._spare.index(call_id) if call_id in self._spare else -1)
            hand_on(self.directory(spare), directory)
        return directory

    def adopt(self, call: Call, now: float) -> bool:
        """Take over a call that an earlier daemon started; False when it has ended."""
        child = self.launcher.adopt(self.directory(call.id))
        if child is not None:
            self._watch(call, child, now)
        return child is not None

    def _watch(self, call: Call, child: Child, now: float) -> None:
        call.child, call.started, call.deadline = child, now, now + call.timeout
        self.running[call.id] = call
        if not call.without_slot:
            self.capacity.take(call.id, call.agent, call.session_key)
        self.selector.register(child.pidfd, selectors.EVENT_READ, call)
        self._ends.register(child.pidfd, select.POLLIN)

    def ended(self, kind: CallKind | None = None) -> Iterator[tuple[Call, Exit]]:
        """The calls (of this kind) that have ended since the last time, each with its output.

        Calls of other kinds are kept for later, and do not wake the loop again until then. So are calls whose output
        cannot be read now: after the others, WorldError is raised for them.
        """
        ends = {pidfd for pidfd, _ in self._ends.poll(0)}
        trouble: WorldError | None = None
        for call in [call for call in self.running.values() if call.child.pidfd in ends]:
            pidfd = call.child.pidfd
            with suppress(KeyError):
                self.selector.unregister(pidfd)
            if kind is not None and call.kind is not kind:
                continue
            if call.kill_leftovers:
                call.child.kill()  # before the reaping: until then its pid cannot be reused
            try:
                exit_ = call.child.reap(self.output_cap)
            except WorldError as error:
                trouble = trouble or error
                call.deadline, call.kill_at = float("inf"), None  # it has ended, so nothing is left to stop
                continue
            del self.running[call.id]
            self._ends.unregister(pidfd)
            if exit_ is not None:
                self._cut(call.child.directory, exit_)
                yield call, exit_
        if trouble is not None:
            raise trouble

    def has_work(self) -> int:
        """How many calls do something; one that waits for a person's answer does not."""
        return sum([call.kind is not CallKind.PROMPT for call in self.running.values()])

    def orders(self) -> set[str]:
        """The ids of the orders whose calls are running."""
        return {call.order.id for call in self.running.values() if call.order is not None}

    def leave(self) -> None:
        """Stop watching all calls; they keep running, and the next daemon adopts them."""
        for call in self.running.values():
            call.child.leave()
            self._ends.unregister(call.child.pidfd)
        self.running.clear()
        self._keep_spare(0)

    def left_behind(self, call_id: str) -> Exit:
        """The output of a call that ended while no daemon was running; its exit status is lost. Raises WorldError."""
        directory = self.directory(call_id)
        exit_ = read_exit(directory, None, self.output_cap)
        self._cut(directory, exit_)
        return exit_

    def _cut(self, directory: Path | str, exit_: Exit) -> None:
        """Truncate the output of an ended call to what is read of it: its directory may be kept for a long time."""
        if exit_.truncated or len(exit_.stderr) == STDERR_CAP:
            cut_output(directory, self.output_cap)
        if exit_.is_open:
            self._open_outputs[Path(directory).name] = False

    def discard(self, call_id: str) -> None:
        """Remove the directory of a call, because its result is no longer needed, or keep it for the next call.

        If a process that the call left running may still write there, it is removed once that process has ended.
        """
        if call_id in self._open_outputs:
            self._open_outputs[call_id] = True
        elif call_id in self._there:
            self._there.discard(call_id)
            self._spare.append(call_id)
            self._keep_spare(len(self.running))

    def _keep_spare(self, most: int) -> None:
        """Remove the directories that ended calls have left for the next ones, but for so many."""
        while len(self._spare) > most:
            remove(self.directory(self._spare.pop()))

    def _remove(self, call_id: str) -> None:
        remove(self.directory(call_id))
        self._there.discard(call_id)

    def discard_when_recorded(self, call_id: str) -> None:
        """Remove the directory of a call after the commit that records its result: until then it is the only copy."""
        self._recorded.append(call_id)

    def discard_recorded(self) -> None:
        """Call after a commit: remove the directories of the calls whose results it has recorded."""
        for call_id in self._recorded:
            self.discard(call_id)
        self._recorded.clear()

    def remove_leftovers(self, is_over: Callable[[str], bool]) -> None:
        """Remove directories of calls that are no longer needed. Raises WorldError, also if one cannot be removed.

        That of a failed call is kept, prompt and output, until its task has ended: an operator may want to see why.
        Other files there are left alone.
        """
        self._keep_spare(0)
        with world(self.turns), os.scandir(self.turns) as found:
            entries = list(found)
        kept, stays = self.running.keys() | self._open_outputs.keys(), ""
        for entry in entries:
            if entry.name in kept:
                continue
            is_directory = entry.is_dir(follow_symlinks=False)
            unused = entry.name.startswith(".") and is_directory
            if is_directory and has_writer(entry.path):
                self._open_outputs[entry.name] = False
            elif unused or is_over(entry.name.partition(".")[0]):
                self._remove(entry.name)
                stays = stays or (entry.path if os.path.lexists(entry) else "")
        if stays:
            raise WorldError(f"cannot remove {stays}, left by an ended call: check its permissions and remove it")

    def measure_capacity(self, now: float) -> Capacity:
        """Compute `capacity` for a round of the loop, by the number of calls and by memory."""
        most = self.caps.calls if self.lane is None else min(self.caps.calls, max(self.lane // 2, 1))
        turns, agents = [call for call in self.running.values() if not call.without_slot], dict[str, int]()
        for call in turns:
            agents[call.agent] = agents.get(call.agent, 0) + 1
        self.capacity = Capacity(
            most,
            tuple([call.id for call in turns]),
            self.free_bytes(now),
            self.caps.call_bytes,
            min(self.caps.per_agent, most),
            agents,
            {call.session_key for call in self.running.values()},
            self.is_shut,
        )
        return self.capacity

    def free_cli_processes(self) -> int:
        """How many more processes of OpenClaw's CLI may run, for turns and look-ups."""
        kinds = (CallKind.TURN, CallKind.MESSAGE, CallKind.LOOKUP, CallKind.PROOF)
        return self.caps.programs - sum(
            [call.kind in kinds and call.child.is_process for call in self.running.values()]
        )

    def free_bytes(self, now: float) -> int | None:
        """Memory for further calls; None = not known. Calls that have just started are counted as still to take it."""
        if self._memory is None or not 0 <= now - self._memory[0] < _MEMORY_INTERVAL:
            self._memory = (now, self.available())
        free = self._memory[1]
        if free is None:
            return None
        growing = sum([now - call.started < _STARTUP for call in self.running.values()])
        return max(free - growing * self.caps.call_bytes, 0)

    def stop(self, task: str, why: str, now: float) -> None:
        """Ask every call of a task to end; what does not within the grace is killed."""
        for call in self.running.values():
            if call.task == task:
                self._terminate(call, why, now)

    def enforce_limits(self, now: float) -> bool:
        """Stop calls that take too long or write too much; kill those that were asked to stop and did not.

        Returns whether any call was asked to end.
        """
        checks_output = not 0 <= now - self._output_checked < _OUTPUT_INTERVAL
        if checks_output:
            self._output_checked = now
            self._check_leftovers()
        acted = False
        for call in self.running.values():
            if now >= call.deadline and (has_ended(call.child.pidfd) or self._has_more_time(call, now)):
                continue  # it ended in time, but this process was stopped or the machine slept
            is_too_long = checks_output and output_size(call.child.directory) > self.output_cap
            if is_too_long:
                cut_output(call.child.directory, self.output_cap)
            if call.kill_at is not None:
                if now >= call.kill_at:
                    call.child.kill()
                    # a process in uninterruptible disk sleep does not die at once
                    call.kill_at = now + max(self.grace, _KILL_AGAIN)
                    acted = True
            elif now >= call.deadline or is_too_long:
                why = "timed out" if now >= call.deadline else f"wrote more than {self.output_cap} bytes"
                self._terminate(call, why, now)
                acted = True
        return acted

    def recovering(self) -> dict[str, Recovery]:
        """The calls whose gateway died and that are being recovered."""
        found = ((call.id, call.child.recovery()) for call in self.running.values())
        return {call_id: recovery for call_id, recovery in found if recovery is not None and recovery.stage}

    def _has_more_time(self, call: Call, now: float) -> bool:
        """Whether a call whose time is over has more, because its gateway died: none of its time passes until it is
        recovered, and one that was begun anew has all of it again."""
        recovery = call.child.recovery() if call.kill_at is None else None
        if recovery is None:
            return False
        call.deadline = now + _ASK_AGAIN if recovery.stage else recovery.since + call.timeout
        return call.deadline > now

    def _check_leftovers(self) -> None:
        """Kill the leftover processes of ended calls whose output exceeds the limit."""
        for call_id, is_discarded in list(self._open_outputs.items()):
            directory = self.directory(call_id)
            if not has_writer(directory):
                del self._open_outputs[call_id]
                if is_discarded:
                    self._remove(call_id)
            elif output_size(directory) > self.output_cap:
                kill_writers(directory)
                cut_output(directory, self.output_cap)

    def next_output_check(self) -> float:
        """When the output of calls is checked next (monotonic clock); infinity if none can write."""
        return self._output_checked + _OUTPUT_INTERVAL if self.running or self._open_outputs else float("inf")

    def next_deadline(self) -> float | None:
        """When `enforce_limits` next has to stop or kill a call (monotonic clock)."""
        moments = (call.deadline if call.kill_at is None else call.kill_at for call in self.running.values())
        return min(moments, default=None)

    def _terminate(self, call: Call, why: str, now: float) -> None:
        if call.kill_at is None:
            call.stopped = why
            call.kill_at = now + self.grace
            call.child.terminate()
