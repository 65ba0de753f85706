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
import select
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Protocol

from mailboxd.agents.call_dir import (
    CALL,
    OUTPUT,
    OUTPUT_CAP,
    Exit,
    is_spoilt,
    make_directory,
    open_empty,
    open_regular,
    read_exit,
    refusal,
    sync,
    world,
    write,
)
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.errors import UnavailableError, WorldError

# ---------------------------------------------------------------------------------------------------------------------
# The seam between mailboxd and whatever carries a turn to its agent: one object decides the argv of every turn.
#
# A turn is a program that is started, watched and judged the same way whoever it is: it gets its message in a file and
# prints what `openclaw agent --json` prints (`agents.outcome` reads it), with the same exit codes, and SIGTERM aborts
# the turn. `OpenClaw`, the command line, is the default; another transport is another program with that contract.
# Looking up a lost turn and asking who is there stay with `OpenClaw`: they work without a connection.


class Dispatcher(Protocol):
    """What `relay` and `posting` need to know of a transport."""

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """The program of one turn of `agent`, with `timeout` in seconds. Raises ValueError for what is no turn."""
        ...


# ---------------------------------------------------------------------------------------------------------------------
# Is the process of a call still alive? Asked of the kernel, never of a pid in a file.
#
# The proof of life is a `flock` on a descriptor that the child inherited: it cannot be recycled as a pid can, and goes
# with its holders whatever way they die. The record of the call only says which of them is its own process.

_RECORD_CAP = 4 * 1024 * 1024
"""All arguments of a program (the kernel takes 2 MB of them, JSON may need more), and who it is."""
_STAT_CAP = 4096


def leader(directory: Path | str) -> int | None:
    """The pid of the call's own process while it lives and holds the lock, else None.

    None also of one that has put something else in the place of its lock. Raises FileNotFoundError if the call was
    never started, OSError.
    """
    try:
        lock = open_regular(f"{directory}/{CALL}", os.O_RDONLY)
    except OSError as problem:
        if is_spoilt(directory, problem):
            return None
        raise
    try:
        # Shared: those who only ask do not disturb each other.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _leading_holder(lock, os.fstat(lock))
    else:
        return None
    finally:
        os.close(lock)


def record(call: int, pid: int) -> None:
    """Write into the file of a call who it is: its pid, and the boot id. Raises OSError.

    It is not made durable: after a power cut the process is gone too. That it is this process, and no later one of its
    number, says the lock: to ask the kernel for more while it executes the program would wait for that.
    """
    write(call, json.dumps({"pid": pid, "boot_id": boot_id()}).encode() + b"\n")


def identity(pid: int) -> dict[str, object]:
    """What tells this process from a later one with its number."""
    return {"pid": pid, "start_time": _start_time(pid), "boot_id": boot_id()}


def survivors(leader: Mapping[str, object]) -> list[int]:
    """The living processes of the session that `leader` (an `identity`) has opened, also after its own end.

    Its number is nobody else's while any of them lives; if somebody else has it now, there is none.
    """
    pid, started = leader.get("pid"), leader.get("start_time")
    if type(pid) is not int or pid <= 1 or leader.get("boot_id") != boot_id():
        return []
    if _start_time(pid) not in (None, started):
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _session(int(name)) == pid]  # noqa: PTH208


def has_ended(pidfd: int) -> bool:
    """Whether the process behind the descriptor has ended; never blocks."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def has_writer(directory: Path | str) -> bool:
    """Whether somebody has an output file of the call open for writing, as far as the kernel tells us.

    A read lease is granted only on a file that nobody can write (F_SETLEASE in fcntl(2)). Who opens it meanwhile waits
    until it is closed here, and we are told: by a signal that is not SIGIO, which would end us.
    """
    for name in OUTPUT:
        with suppress(OSError):
            descriptor = open_regular(f"{directory}/{name}", os.O_RDONLY)
            try:
                fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
    return False


def kill_writers(directory: Path | str) -> None:
    """SIGKILL to every process that has an output file of the call open for writing, in whatever session it is.

    Who only reads them, like a person's `tail -f`, is left alone, and so are the writers of a file that has another
    name as well: that one is not the call's alone.
    """
    files = set()
    for name in OUTPUT:
        with suppress(OSError):
            seen = os.lstat(f"{directory}/{name}")
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1:
                files.add((seen.st_dev, seen.st_ino))
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:  # noqa: PTH208
        if pid == os.getpid() or not _writes(pid, files):
            continue
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
            try:
                if _writes(pid, files):  # asked again, now that the descriptor pins the process
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def _writes(pid: int, files: set[tuple[int, int]]) -> bool:
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                seen = entry.stat()
                if (seen.st_dev, seen.st_ino) in files and entry.stat(follow_symlinks=False).st_mode & stat.S_IWUSR:
                    return True  # the link has the rights with which the file was opened (proc_pid_fd(5))
    return False


def _leading_holder(call: int, lock: os.stat_result) -> int | None:
    recorded = _recorded(os.pread(call, _RECORD_CAP, 0))
    if recorded is not None:
        pid, boot = recorded
        # A record that points at somebody else's process, by accident or on purpose, must not get that one killed.
        return pid if boot == boot_id() and _leads(pid, lock) else None
    # No record: the earlier daemon died between the spawn and the record.
    names = os.listdir("/proc")  # noqa: PTH208 - the names are all that is wanted, of every process
    return next((int(name) for name in names if name.isdecimal() and _leads(int(name), lock)), None)


def _leads(pid: int, lock: os.stat_result) -> bool:
    """Whether it holds the lock and has opened a session of its own, as the process of a call does."""
    return _session(pid) == pid and _holds(pid, lock)


def _recorded(raw: bytes) -> tuple[int, str] | None:
    try:
        content = json.loads(raw.split(b"\n")[1])
        pid, boot = content["pid"], content["boot_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if type(pid) is not int or not isinstance(boot, str) or pid <= 1:
        return None
    return pid, boot


def _holds(pid: int, lock: os.stat_result) -> bool:
    if pid == os.getpid():
        return False
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                held = entry.stat()
                if (held.st_dev, held.st_ino) == (lock.st_dev, lock.st_ino):
                    return True
    return False


def _start_time(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def _session(pid: int) -> int | None:
    """The session that a living process belongs to."""
    fields = _stat_fields(pid)
    return int(fields[3]) if fields and fields[0] not in "ZX" else None


def _stat_fields(pid: int) -> list[str]:
    """/proc/<pid>/stat from the third field (index 0) on; the second may hold anything but ends with the last `)`."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        text = os.read(descriptor, _STAT_CAP)
    except ProcessLookupError:
        return []
    finally:
        os.close(descriptor)
    return text.rpartition(b")")[2].decode().split()


@cache
def boot_id() -> str:
    """Which start of the machine this is (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


# ---------------------------------------------------------------------------------------------------------------------
# One call of an agent's program: a child process whose every trace is in one directory.

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
        call = _create_mark(directory)
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


def _create_mark(directory: Path | str) -> int:
    """Create the empty mark. Raises WorldError if there is one, OSError."""
    try:
        return open_regular(f"{directory}/{CALL}", os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        raise WorldError(f"{directory}: this call was started before; one directory is one call") from None


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
