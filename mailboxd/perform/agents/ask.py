"""Running a program and waiting for it, for commands at the terminal; the daemon never blocks like this."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mailboxd.perform.agents.call_dir import STDERR_CAP, Exit
from mailboxd.perform.agents.process import Child, NotStarted

_GRACE = 5.0


def ask(argv: Sequence[str], env: Mapping[str, str], timeout: float) -> Exit:
    """Run `argv` with exactly `env`, for at most `timeout` seconds (then SIGTERM, after 5 s SIGKILL to its group).

    The child has its own process group and is stopped when the caller is interrupted. Raises NotStarted.
    """
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as problem:
        raise NotStarted(argv[0], problem) from problem
    try:
        stdout, stderr = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        stdout, stderr = _stop(child)
    except BaseException:
        _stop(child)
        raise
    return Exit(child.returncode, stdout, stderr[:STDERR_CAP])


def finish(child: Child, timeout: float) -> Exit:
    """Wait for a call, for at most `timeout` seconds; then stop it as `ask` does. Raises WorldError."""
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    try:
        for seconds, stop in ((timeout, child.terminate), (_GRACE, child.kill), (_GRACE, child.kill)):
            if poll.poll(seconds * 1000):
                break
            stop()
    except BaseException:
        child.terminate()
        raise
    return child.reap() or Exit(None, b"")


def _stop(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            return child.communicate(timeout=_GRACE)
    return b"", b""
