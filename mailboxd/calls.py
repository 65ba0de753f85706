"""The calls that are running now: spawned or adopted, watched through their pidfds, stopped in time."""

from __future__ import annotations

import select
import selectors
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.agents.callfiles import Exit, output_size, read_exit, write_prompt
from mailboxd.agents.process import Child, State, adopt, spawn, state

PATIENCE = 35.0
"""Seconds past its own timeout after which a call is stopped: OpenClaw itself gives up 30 s past it."""


@dataclass(slots=True)
class Call:
    """One child process. `deadline` is on the monotonic clock; `stopped` says why we stopped it."""

    id: str
    child: Child
    agent: str
    session_key: str
    deadline: float
    task: str = ""
    stopped: str = ""
    kill_at: float | None = None


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call that is about to be made: whom it occupies, for which task, and how many seconds it may take."""

    id: str
    agent: str
    session_key: str
    timeout: float
    task: str = ""


@dataclass(slots=True)
class Calls:
    """The table of running calls. Directories of calls stand below `turns`."""

    turns: Path
    selector: selectors.BaseSelector
    environment: Mapping[str, str]
    output_cap: int
    grace: float
    running: dict[str, Call] = field(default_factory=dict)
    _recorded: list[str] = field(default_factory=list)

    def directory(self, call_id: str) -> Path:
        return self.turns / call_id

    def state(self, call_id: str) -> State:
        """What an earlier daemon left of this call."""
        return state(self.directory(call_id))

    def prepare(self, call_id: str, prompt: bytes) -> Path:
        """Write the prompt of a call; returns its file. Raises WorldError."""
        return write_prompt(self.directory(call_id), prompt)

    def start(self, call: NewCall, argv: Sequence[str], now: float) -> None:
        """Spawn it. Raises NotStarted (then nothing has run), WorldError."""
        self._watch(call, spawn(self.directory(call.id), argv, self.environment), now)

    def adopt(self, call: NewCall, now: float) -> bool:
        """Take over a call that an earlier daemon started; False when it has ended."""
        child = adopt(self.directory(call.id))
        if child is not None:
            self._watch(call, child, now)
        return child is not None

    def _watch(self, call: NewCall, child: Child, now: float) -> None:
        running = Call(call.id, child, call.agent, call.session_key, now + call.timeout, call.task)
        self.running[call.id] = running
        self.selector.register(child.pidfd, selectors.EVENT_READ, running)

    def ended(self) -> Iterator[tuple[Call, Exit]]:
        """Every call that has ended since the last look, with what it left behind."""
        for call in list(self.running.values()):
            if not _is_readable(call.child.pidfd):
                continue
            self.selector.unregister(call.child.pidfd)
            exit_ = call.child.reap(self.output_cap)
            del self.running[call.id]
            if exit_ is not None:
                yield call, exit_

    def left_behind(self, call_id: str) -> Exit:
        """What a call left that ended while no daemon ran; its exit status is lost. Raises WorldError."""
        return read_exit(self.directory(call_id), None, self.output_cap)

    def discard(self, call_id: str) -> None:
        """Remove the directory of a call at once: its result is of no use to anybody."""
        shutil.rmtree(self.directory(call_id), ignore_errors=True)

    def discard_when_recorded(self, call_id: str) -> None:
        """Remove the directory of a call after the commit that records its result: until then it is the only copy."""
        self._recorded.append(call_id)

    def sweep(self) -> None:
        """The transaction is committed: remove what it has recorded."""
        while self._recorded:
            self.discard(self._recorded.pop())

    def left_over(self, is_done: Callable[[str], bool]) -> None:
        """Remove directories of calls whose results an earlier daemon recorded but did not come to remove."""
        for entry in self.turns.iterdir():
            if is_done(entry.name.partition(".")[0]):
                self.discard(entry.name)

    def is_busy(self, session_key: str) -> bool:
        """Whether a call of this session is in flight: there is never a second one."""
        return any(call.session_key == session_key for call in self.running.values())

    def of_agent(self, agent: str) -> int:
        return sum(1 for call in self.running.values() if call.agent == agent)

    def stop(self, task: str, why: str, now: float) -> None:
        """Ask every call of a task to end; what does not within the grace is killed."""
        for call in self.running.values():
            if call.task == task:
                self._terminate(call, why, now)

    def expire(self, now: float) -> None:
        """Stop what is over its time or writes without end; kill what was asked and did not end."""
        for call in self.running.values():
            if call.kill_at is not None:
                if now >= call.kill_at:
                    call.child.kill()
            elif now >= call.deadline:
                self._terminate(call, "timed out", now)
            elif output_size(call.child.directory) > self.output_cap:
                self._terminate(call, f"wrote more than {self.output_cap} bytes", now)

    def next_deadline(self) -> float | None:
        """When `expire` has something to do, on the monotonic clock."""
        moments = (call.deadline if call.kill_at is None else call.kill_at for call in self.running.values())
        return min(moments, default=None)

    def _terminate(self, call: Call, why: str, now: float) -> None:
        if call.kill_at is None:
            call.stopped = why
            call.kill_at = now + self.grace
            call.child.terminate()


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
