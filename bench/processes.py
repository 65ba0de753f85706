"""The processes that the bench starts; none outlives it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_running: set[subprocess.Popen[bytes]] = set()


class Broken(Exception):
    """Something could not be measured; the text tells the reader of the results why."""


def start(
    argv: Sequence[str | Path],
    cwd: Path,
    out: IO[bytes] | int,
    env: Mapping[str, str] | None = None,
    err: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in its own group; its errors go to its output unless `err` is given. Raises Broken."""
    try:
        process = subprocess.Popen(
            [str(word) for word in argv],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT if err is None else err,
            start_new_session=True,
        )
    except OSError as problem:
        raise Broken(f"{Path(str(argv[0])).name}: cannot be started: {problem.strerror}") from problem
    _running.add(process)
    return process


def run(argv: Sequence[str | Path], cwd: Path, seconds: float, env: Mapping[str, str] | None = None) -> bytes:
    """The output of a program that has to succeed within `seconds`. Raises Broken."""
    return timed(argv, cwd, seconds, env)[0]


def timed(
    argv: Sequence[str | Path], cwd: Path, seconds: float, env: Mapping[str, str] | None = None
) -> tuple[bytes, float]:
    """The output, and the seconds of CPU that the program took without its children. Raises Broken."""
    with tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as wrong:
        process = start(argv, cwd, written.fileno(), env, wrong.fileno())
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its account is there until it is reaped
            cpu = _own_cpu(process.pid)
        finally:
            stopped = not timer.is_alive()
            timer.cancel()
            end(process)
        for file in (written, wrong):
            file.seek(0)
        out, err = written.read(), wrong.read()
    if stopped:
        raise Broken(f"{Path(str(argv[0])).name}: stopped after {seconds:.0f} s")
    if process.returncode:
        said = (err.strip() or out.strip()).decode(errors="replace").splitlines()
        raise Broken(f"{Path(str(argv[0])).name}: exit {process.returncode}: {said[-1][:300] if said else ''}")
    return out, cpu


def _own_cpu(pid: int) -> float:
    """proc_pid_stat(5): utime and stime, which do not count children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what is left of its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _running.discard(process)


def end_all() -> None:
    for process in list(_running):
        end(process)


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory, now and at its peak, in MB (10^6 bytes)."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    now, most = (int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return round(now, 1), round(most, 1)


def switches(pid: int) -> int:
    """How often its threads have gone to sleep."""
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):
            count += int(status.read_text().partition("voluntary_ctxt_switches:")[2].split()[0])
    return count


def ran(pid: int) -> float:
    """Seconds that its threads have run, as the kernel's scheduler counts them. Raises OSError if it does not."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def shares_mb(pid: int) -> tuple[float, float]:
    """The process's share of the memory in use (PSS), and what is resident (RSS), in MB. Raises OSError."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) * 1024 / 1e6 for name, _, rest in (line.partition(":") for line in lines)}
    return sizes["Pss"], sizes["Rss"]
