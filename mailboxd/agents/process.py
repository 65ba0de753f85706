"""One call of an agent's program: a child process whose every trace is in one directory.

    <call>/prompt.md    the message, 0600: never in the argument list, never in a log
    <call>/call         the mark, made right before the spawn: without it the program provably never ran.
                        Line 1: argv. Line 2: pid, boot id: how a later daemon finds the child again.
                        flock'd through a descriptor that the child inherits: held = somebody of this call is alive
    <call>/stdout, <call>/stderr

The mark is made durable, unless its caller has committed one of its own: then it only has to outlive this process.
It is one file, because files that are made and soon removed are what a call costs the kernel most.
Mark first, then act: a crash between the two reads as "may have run" and is looked up, where the other order would
run the work twice. Nothing here blocks: a caller waits for `Child.pidfd` in its own selector and then reaps.

A call has ended when *its own process* has. Grandchildren may outlive it and hold the lock and the output files;
they are neither waited for nor believed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from mailboxd.agents.callfiles import (
    CALL,
    OUTPUT_CAP,
    UNUSED,
    Exit,
    make_directory,
    open_empty,
    open_regular,
    read_exit,
    refusal,
    sync,
    world,
    write,
)
from mailboxd.agents.liveness import has_ended, leader, record
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.errors import UnavailableError, WorldError

_PERMANENT = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.E2BIG}
)


class State(StrEnum):
    """What a call's directory proves about its program."""

    NEVER_STARTED = "never_started"
    RUNNING = "running"
    ENDED = "ended"


class NotStarted(UnavailableError):
    """The program could not be executed: missing, not executable, wrong format, no memory. Nothing has run."""

    def __init__(self, program: str, problem: OSError) -> None:
        self.program = program
        self.permanence = Permanence.PERMANENT if problem.errno in _PERMANENT else Permanence.TRANSIENT
        super().__init__(f"cannot run {program!r}: {problem.strerror}")

    def require_lasting(self) -> None:
        """Raise WorldError where the machine has refused, and may not the next time: nothing is judged by that."""
        if self.permanence is Permanence.TRANSIENT:
            raise WorldError(str(self)) from self.__cause__

    @property
    def outcome(self) -> Failed:
        """The same as the outcome of a turn: it never reached the agent and costs no attempt."""
        return Failed(str(self), permanence=self.permanence, started=False)


class Child:
    """A running call: a child of this process, or one that an earlier daemon started and this one adopted.

    `pidfd` becomes readable when the process has ended. Unregister it before `reap`, which closes it.
    """

    def __init__(self, directory: Path | str, pid: int, pidfd: int, popen: subprocess.Popen[bytes] | None) -> None:
        self.directory = directory
        self.pid = pid
        self.pidfd = pidfd
        self._popen = popen
        self._reaped = False

    @property
    def adopted(self) -> bool:
        """Whether an earlier daemon started it: its exit status is then lost."""
        return self._popen is None

    def reap(self, cap: int = OUTPUT_CAP) -> Exit | None:
        """Collect the ended process and what it wrote, at most `cap` bytes; None while it is still running.

        Raises WorldError if the output cannot be read.
        """
        if self._popen is not None:
            rc = self._popen.poll()
            if rc is None:
                return None
        elif self._reaped or has_ended(self.pidfd):
            rc = None
        else:
            return None
        exit_ = read_exit(self.directory, rc, cap)  # if that fails, it can be tried again
        if not self._reaped:
            os.close(self.pidfd)
            self._reaped = True
        return exit_

    def leave(self) -> None:
        """Let it run on without us; whoever comes next adopts it."""
        if not self._reaped:
            os.close(self.pidfd)
            self._reaped = True

    def terminate(self) -> None:
        """SIGTERM to the whole process group; nothing if it has ended. OpenClaw then aborts the turn and exits 143."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole process group; nothing if it has ended. The turn may go on inside the gateway."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self._reaped and not self._is_collected():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _is_collected(self) -> bool:
        """Whether its pid may belong to anybody: also while its output cannot be read. Others collect adopted ones."""
        return has_ended(self.pidfd) if self._popen is None else self._popen.returncode is not None


def spawn(
    directory: Path | str, argv: Sequence[str], env: Mapping[str, str], cwd: str | None = None, *, marked: bool = False
) -> Child:
    """Start `argv` as the one call of `directory`, in a session of its own, with exactly `env`.

    `marked`: that it begins is on record elsewhere, with the boot of the machine; the mark here is not synced.
    Raises NotStarted if it could not be executed (the directory is then as if nothing had been tried), WorldError if
    the call was started before, or if the machine refuses (a child may then be alive: `adopt` finds it).
    """
    try:
        make_directory(directory)
        call = _unmarked(directory)
        try:
            popen = _spawn_marked(directory, call, argv, env, cwd, durable=not marked)
            # Taken before anybody can reap the child, so it is this process and no successor of its pid.
            pidfd = os.pidfd_open(popen.pid)
            # Without this record the child is still found, through the lock: not worth losing a running child over.
            with suppress(OSError):
                record(call, popen.pid)
        finally:
            os.close(call)
    except OSError as problem:
        raise refusal(directory, problem) from problem
    return Child(directory, popen.pid, pidfd, popen)


def _unmarked(directory: Path | str) -> int:
    """The file of the mark, empty; a spare directory has one. Raises WorldError if there is a mark, OSError."""
    mark, flags = f"{directory}/{CALL}", os.O_RDWR | os.O_APPEND
    if os.path.lexists(mark):
        raise WorldError(f"{directory}: this call was started before; one directory is one call")
    try:
        os.rename(f"{directory}/{UNUSED}", mark)  # noqa: PTH104
    except FileNotFoundError:
        flags |= os.O_CREAT | os.O_EXCL
    return open_regular(mark, flags)


def _spawn_marked(
    directory: Path | str, call: int, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, *, durable: bool
) -> subprocess.Popen[bytes]:
    try:
        # Somebody may ask at this moment who holds it; he has gone when it is tried again.
        fcntl.flock(call, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write(call, json.dumps(list(argv)).encode() + b"\n")
        if durable:
            sync(directory)
            sync(Path(directory).parent)
        return _spawn_writing(directory, call, argv, env, cwd)
    except (NotStarted, OSError):
        os.unlink(f"{directory}/{CALL}")  # noqa: PTH108
        sync(directory)
        raise


def _spawn_writing(
    directory: Path | str, lock: int, argv: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> subprocess.Popen[bytes]:
    stdout = open_empty(f"{directory}/stdout", os.O_WRONLY | os.O_APPEND)
    try:
        stderr = open_empty(f"{directory}/stderr", os.O_WRONLY | os.O_APPEND)
        try:
            return _execute(argv, env, cwd, stdout, stderr, lock)
        finally:
            os.close(stderr)
    finally:
        os.close(stdout)


def _execute(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stdout: int, stderr: int, lock: int
) -> subprocess.Popen[bytes]:
    try:
        # No RLIMIT_FSIZE: it would also strike the program's own database and logs. See `output_size`.
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=dict(env),
            cwd=cwd,
            pass_fds=(lock,),
            start_new_session=True,
        )
    except OSError as problem:
        raise NotStarted(argv[0], problem) from problem


def adopt(directory: Path | str) -> Child | None:
    """The still running call of `directory`, started by an earlier daemon; None if it has ended or never ran.

    The process is known by the lock that it holds (a pid may have been recycled, the record may be a lie or missing
    after a crash). Its exit status is lost: `reap` gives rc None. Raises WorldError.
    """
    with world(directory), suppress(FileNotFoundError):
        pid = leader(directory)
        if pid is None:
            return None
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        is_it = False
        try:
            # Asked again, now that the descriptor pins the process: it may have ended and been replaced meanwhile.
            is_it = leader(directory) == pid
        finally:
            if not is_it:
                os.close(pidfd)
        return Child(directory, pid, pidfd, None) if is_it else None
    return None


def state(directory: Path | str) -> State:
    """What is provable about the call of `directory`, without side effects. Raises WorldError."""
    try:
        return State.ENDED if leader(directory) is None else State.RUNNING
    except FileNotFoundError:
        return State.NEVER_STARTED
    except OSError as problem:
        raise refusal(directory, problem) from problem
