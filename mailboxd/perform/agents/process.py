"""One call of an agent's program: a child process whose traces are all in one directory.

    <call>/prompt.md    the message, 0600: never in the argument list or in a log
    <call>/call         the mark, created right before the spawn: without it the program provably never ran.
                        Line 1: argv. Line 2: pid and boot id, by which a later daemon finds the child.
                        flock'd through a descriptor that the child inherits: held = a process of this call is alive
    <call>/stdout, <call>/stderr

The mark is made durable, unless the caller has committed the start elsewhere. It precedes the spawn, so that a crash
between the two reads as "may have run" and is looked up; the other order could run the work twice. Nothing here blocks:
callers wait for `Child.pidfd` in their own selector and then reap.

A call has ended when *its own process* has. Grandchildren may outlive it and hold the lock and the output files; they
are neither waited for nor trusted.

This module is its life, in order: it is made and marked (`claim`), spawned, watched (`Child`), read when it has ended,
and its directory is handed on to the next call or removed. After a crash, `state` says how far it came, and `adopt`
takes over one that runs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Protocol

from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.host.system import IS_LINUX, system
from mailboxd.perform.agents.alive import has_ended, leader, record
from mailboxd.perform.agents.call_dir import (
    CALL,
    OUTPUT,
    OUTPUT_CAP,
    PROMPT,
    STDERR_CAP,
    TOOL,
    Exit,
    overwrite,
    refusal,
    sync,
    world,
    write,
    written,
)

NO_FILES: Mapping[str, bytes] = {}
_FILES = (PROMPT, *OUTPUT, TOOL, CALL)
"""What may be in its directory. The mark is removed last: without it, the call would count as never run."""
_PLAIN = frozenset({PROMPT, *OUTPUT, CALL})
_PRIVATE = 0o700
_NEW_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores and other programs do not expect to be ignored."""
_NO_PROCESS = frozenset({errno.EAGAIN, errno.ENOMEM})
_PERMANENT = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.E2BIG}
)


class TurnTransport(Protocol):
    """Decides which program runs a turn: OpenClaw's command line, or another program with the same contract.

    The program gets its message in a file, prints what `openclaw agent --json` prints (see `agents.outcome`) with the
    same exit status, and aborts the turn on SIGTERM.
    """

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """The program of one turn of `agent`; `timeout` in seconds. Raises ValueError for invalid arguments."""
        ...


class Launcher(Protocol):
    """Starts calls and finds them again: this module, or `agents.gateway` for turns without a process."""

    def spawn(
        self,
        directory: Path | str,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None = None,
        *,
        files: Mapping[str, bytes] = NO_FILES,
        marked: bool = False,
    ) -> Child:
        """Start the only call of `directory`."""
        ...

    def adopt(self, directory: Path | str) -> Child | None:
        """The running call of `directory`, started by an earlier daemon."""
        ...

    def state(self, directory: Path | str) -> State:
        """The state of a call, as its directory proves it."""
        ...


class State(StrEnum):
    """The state of a call's program, as the call's directory proves it."""

    NEVER_STARTED = "never_started"
    RUNNING = "running"
    ENDED = "ended"


class NotStarted(UnavailableError):
    """The program could not be executed; nothing has run."""

    def __init__(self, program: str, problem: OSError) -> None:
        self.program = program
        self.permanence = Permanence.PERMANENT if problem.errno in _PERMANENT else Permanence.TRANSIENT
        super().__init__(f"cannot run {program!r}: {problem.strerror}")

    def require_lasting(self) -> None:
        """Raise WorldError if the machine refused temporarily, which says nothing about the program."""
        if self.permanence is Permanence.TRANSIENT:
            raise WorldError(str(self)) from self.__cause__

    @property
    def outcome(self) -> Failed:
        """The outcome of the turn: it never reached the agent and costs no attempt."""
        return Failed(str(self), permanence=self.permanence, started=False)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What happens to a call whose gateway died. `stage`: how far that is, in words; empty if it is over.

    `since`: when it began, or ended (monotonic clock).
    """

    stage: str
    since: float


class Child:
    """A running call: a child of this process, or one that an earlier daemon started and this one adopted.

    `pidfd` becomes readable when the process has ended. Unregister it before `reap`, which closes it.
    """

    is_process = True
    """False if another program carries it among others."""

    def __init__(self, directory: Path | str, pid: int, pidfd: int, *, adopted: bool = False) -> None:
        self.directory = directory
        self.pid = pid
        self.pidfd = pidfd
        self.adopted = adopted
        """An earlier daemon started it, so that its exit status is lost."""
        self._rc: int | None = None
        self._is_collected = False
        """It was waited for: its pid may be reused."""
        self._reaped = False

    def reap(self, cap: int = OUTPUT_CAP) -> Exit | None:
        """Collect the ended process and at most `cap` bytes of its output; None while it is running.

        Raises WorldError if the output cannot be read.
        """
        if not self._has_ended():
            return None
        exit_ = read_exit(self.directory, self._rc, cap)  # first, so that it can be retried if it fails
        if not self._reaped:
            os.close(self.pidfd)
            self._reaped = True
        return exit_

    def recovery(self) -> Recovery | None:
        """The recovery of the call by its gateway, if there is or was one."""
        return None

    def leave(self) -> None:
        """Leave it running; a later daemon adopts it."""
        if not self._reaped:
            os.close(self.pidfd)
            self._reaped = True

    def terminate(self) -> None:
        """SIGTERM to the whole process group; nothing if it has ended. OpenClaw then aborts the turn and exits 143."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole process group; nothing if it has ended. The turn may continue inside the gateway."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._reaped or self._is_collected or (self.adopted and has_ended(self.pidfd)):
            return  # its pid may have been reused
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _has_ended(self) -> bool:
        if self._reaped or self._is_collected:
            return True
        if self.adopted:
            return has_ended(self.pidfd)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self._rc, self._is_collected = os.waitstatus_to_exitcode(status), True
        return self._is_collected


def spawn(
    directory: Path | str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None = None,
    *,
    files: Mapping[str, bytes] = NO_FILES,
    marked: bool = False,
) -> Child:
    """Start `argv` as the only call of `directory`, in its own session, with exactly `env`.

    `files` are written into the directory before, by name: the prompt. `marked`: the start is committed elsewhere, with
    the boot id, so the mark is not synced.
    Raises NotStarted if it could not be executed (the mark is removed again), WorldError if the call was started
    before or the machine refuses (a child may then be alive: `adopt` finds it).
    """
    try:
        call = claim(directory, argv, files, durable=not marked)
        try:
            try:
                if cwd is None:
                    pid = _execute(directory, call, argv, env)
                else:
                    with _working_in(cwd, argv[0]):
                        pid = _execute(directory, call, argv, env)
            except (NotStarted, OSError):
                disclaim(directory)
                raise
            # opened before the child is reaped, so it is this process and not a successor of its pid
            pidfd = system.watch(pid)
            # without this record the child is still found through the lock
            with suppress(OSError):
                record(call, pid)
        finally:
            os.close(call)
    except OSError as problem:
        raise refusal(directory, problem) from problem
    return Child(directory, pid, pidfd)


def claim(directory: Path | str, argv: Sequence[str], files: Mapping[str, bytes], *, durable: bool) -> int:
    """Create the directory of a call (0700), these files, and the mark; returns the mark's locked descriptor, which the
    call inherits.

    The files are not synced: only the program started next reads them, and a power failure ends that too.
    Raises WorldError if the call was started before, OSError.
    """
    mark = f"{directory}/{CALL}"
    try:
        seen = os.lstat(directory)
    except FileNotFoundError:
        os.mkdir(directory, _PRIVATE)  # noqa: PTH102
    else:  # of an earlier try, which did not get as far as the mark, or handed on by an ended call
        if not stat.S_ISDIR(seen.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(directory))
        if os.path.lexists(mark):
            raise WorldError(f"{directory}: this call was started before; one directory is one call")
        if stat.S_IMODE(seen.st_mode) != _PRIVATE:
            os.chmod(directory, _PRIVATE)  # noqa: PTH101
        for name in {PROMPT, *OUTPUT} - files.keys():
            with suppress(FileNotFoundError):
                os.unlink(f"{directory}/{name}")  # noqa: PTH108
    for name, content in files.items():
        overwrite(f"{directory}/{name}", content)
    call = os.open(mark, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # fails if a check holds the lock right now; the retry succeeds
        fcntl.flock(call, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write(call, json.dumps(list(argv)).encode() + b"\n")
        if durable:
            sync(directory)
            sync(Path(directory).parent)
    except OSError:
        os.close(call)
        disclaim(directory)
        raise
    return call


def disclaim(directory: Path | str) -> None:
    """Remove the mark of a call that has not started. Raises OSError."""
    os.unlink(f"{directory}/{CALL}")  # noqa: PTH108
    sync(directory)


def _execute(directory: Path | str, lock: int, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Spawn the program; returns its pid. It inherits its output, the lock and nothing else.

    No RLIMIT_FSIZE, which would also limit the program's own database and logs; see `output_size`.
    Raises NotStarted, OSError if it cannot have its output.
    """
    _keep_descriptors()
    os.set_inheritable(lock, True)
    stdout, stderr = [f"{directory}/{name}" for name in OUTPUT]
    program = _found(argv[0], env)
    try:
        return os.posix_spawn(
            program,
            tuple(argv),
            env,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, stdout, _NEW_OUTPUT, 0o600),
                (os.POSIX_SPAWN_OPEN, 2, stderr, _NEW_OUTPUT, 0o600),
            ),
            setsid=True,
            setsigdef=_IGNORED,
        )
    except OSError as problem:
        # stderr is the last that is opened: with it, what failed is the program
        if problem.errno in _NO_PROCESS or os.path.lexists(stderr):
            raise NotStarted(argv[0], problem) from problem
        raise OSError(problem.errno, problem.strerror, stdout) from problem


def _found(program: str, env: Mapping[str, str]) -> str:
    """The path of the program, on the PATH that it will have itself. Raises NotStarted."""
    found = program if "/" in program else shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None:
        raise NotStarted(program, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    return found


@contextmanager
def _working_in(cwd: str, program: str) -> Iterator[None]:
    """Work in this directory meanwhile, since a program begins where this process is. Raises NotStarted."""
    try:
        before = os.open(".", os.O_PATH if IS_LINUX else os.O_RDONLY)
    except OSError as problem:
        raise NotStarted(program, problem) from problem
    try:
        try:
            os.chdir(cwd)
        except OSError as problem:
            raise NotStarted(program, problem) from problem
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@cache
def _keep_descriptors() -> None:
    """Pass on none with which this process was started; what it opens itself is never passed on (PEP 446)."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208
        if int(name) > 2:
            with suppress(OSError):  # the one of the listing
                os.set_inheritable(int(name), False)


def read_exit(directory: Path | str, rc: int | None, cap: int = OUTPUT_CAP) -> Exit:
    """The output of an ended call, at most `cap` bytes of stdout. Raises WorldError.

    Missing files count as empty, and so does anything the call put in their place.
    """
    try:
        stdout, truncated, is_open = written(directory, "stdout", cap)
        stderr, _, is_open_too = written(directory, "stderr", STDERR_CAP)
    except OSError as problem:
        raise refusal(directory, problem) from problem
    return Exit(rc, stdout, stderr, truncated, is_open or is_open_too)


def hand_on(directory: Path | str, successor: Path | str) -> None:
    """Make the directory of an ended call that of another one, which then looks as if an earlier try of it had failed.

    Most of the cost of a call would be the inodes that are made and removed for it. One that holds more than a plain
    call's files is removed instead.
    """
    try:
        if stat.S_ISDIR(os.lstat(directory).st_mode) and _PLAIN.issuperset(os.listdir(directory)):  # noqa: PTH208
            os.unlink(f"{directory}/{CALL}")  # noqa: PTH108 - first: with it, the successor would count as started
            os.rename(directory, successor)  # noqa: PTH104
            return
    except OSError:
        pass
    remove(directory)


def remove(directory: Path | str) -> None:
    """Remove the directory of a call with its contents, as far as possible."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in _FILES:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        os.rmdir(directory)  # noqa: PTH106 - pathlib costs more than the system call
    except OSError:  # it contains other files, or is gone
        with suppress(RecursionError):  # directories nested too deep
            shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):  # a link or a file in its place
            os.unlink(directory)  # noqa: PTH108


def adopt(directory: Path | str) -> Child | None:
    """The running call of `directory`, started by an earlier daemon; None if it has ended or never ran.

    The process is identified by the lock it holds: a pid may be reused, the record forged or missing. Its exit status
    is lost: `reap` gives rc None. Raises WorldError.
    """
    with world(directory), suppress(FileNotFoundError):
        pid = leader(directory)
        if pid is None:
            return None
        try:
            pidfd = system.watch(pid)
        except ProcessLookupError:
            return None
        is_it = False
        try:
            # checked again, now that the descriptor pins the process
            is_it = leader(directory) == pid
        finally:
            if not is_it:
                os.close(pidfd)
        return Child(directory, pid, pidfd, adopted=True) if is_it else None
    return None


def state(directory: Path | str) -> State:
    """The state of the call of `directory`, without side effects. Raises WorldError."""
    try:
        return State.ENDED if leader(directory) is None else State.RUNNING
    except FileNotFoundError:
        return State.NEVER_STARTED
    except OSError as problem:
        raise refusal(directory, problem) from problem
