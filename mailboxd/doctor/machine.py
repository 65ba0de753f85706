"""Checks of the machine: Python, inotify, memory, open files, clock. The probes are for Linux only."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mailboxd.agents.openclaw_versions import shown
from mailboxd.doctor.facts import CheckResult, Facts, Inotify, edit, error, note, ok, warning

MIN_PYTHON = (3, 11, 0)
MIN_WATCHES = 1_000
"""mailboxd watches mailbox/, tasks/ and each task's directory."""
MIN_INSTANCES = 4
"""A daemon takes two."""
MIN_OPEN_FILES = 256
"""A daemon needs about 30, and three for each turn."""
_MB = 1_000_000


def python(facts: Facts) -> Iterator[CheckResult]:
    found = shown(facts.python)
    if facts.python < MIN_PYTHON:
        wanted = shown(MIN_PYTHON)
        yield error("python", f"Python {found} is too old; {wanted} is needed", "uv python install 3.13")
    else:
        yield ok("python", f"Python {found}")


def inside_agent(facts: Facts) -> Iterator[CheckResult]:
    if facts.inside_agent:
        yield error(
            "inside-agent",
            "this is a shell inside an agent's turn (OPENCLAW_SHELL): OpenClaw runs no agents from here, and the "
            "daemon refuses to start",
            "mailboxd doctor  # in your own shell; do not unset the variable",
        )


def inotify(facts: Facts) -> Iterator[CheckResult]:
    found = facts.inotify
    if found is None:
        return
    instances, watches = found.max_instances - found.instances, found.max_watches - found.watches
    if instances < MIN_INSTANCES:
        text = f"{found.instances} of {found.max_instances} inotify instances are in use: new files are noticed late"
        yield warning("inotify-instances", text, _sysctl("max_user_instances", max(512, 2 * found.max_instances)))
    if watches < MIN_WATCHES:
        text = f"{found.watches} of {found.max_watches} inotify watches are in use: new files are noticed late"
        yield warning("inotify-watches", text, _sysctl("max_user_watches", max(524_288, 2 * found.max_watches)))
    if instances >= MIN_INSTANCES and watches >= MIN_WATCHES:
        text = f"inotify: {instances} of {found.max_instances} instances and {watches} of {found.max_watches} watches"
        yield ok("inotify", f"{text} are free")


def _sysctl(name: str, value: int) -> str:
    line = f"fs.inotify.{name}={value}"
    return f"echo {line} | sudo tee /etc/sysctl.d/60-mailboxd-{name.rpartition('_')[2]}.conf && sudo sysctl --system"


def memory(facts: Facts) -> Iterator[CheckResult]:
    if facts.memory is None:
        return
    one, turns = facts.settings.call_bytes, facts.settings.turns
    room = facts.memory // one
    available = f"{facts.memory // _MB:,} MB of memory are available"
    if room < 1:
        text = f"{available}; one turn needs {one // _MB} MB, so none starts"
        yield error("memory", text, "ps -eo rss,pid,args --sort -rss | head")
    elif room < turns:
        text = f"{available}: room for {room} of the {turns} turns that limits.turns allows; the others wait"
        yield warning("memory", text, edit(facts.settings.path, f"limits.turns: {room}"))
    else:
        yield ok("memory", f"{available}: {turns} concurrent turns need {turns * one // _MB:,} MB")


def open_files(facts: Facts) -> Iterator[CheckResult]:
    if facts.open_files is None:
        return
    if facts.open_files < MIN_OPEN_FILES:
        text = f"this shell allows only {facts.open_files} open files per process"
        yield warning("open-files", text, "ulimit -n 4096")
    else:
        yield ok("open-files", f"{facts.open_files} open files are allowed")


def clock(facts: Facts) -> Iterator[CheckResult]:
    latest = facts.database.latest if facts.database is not None else ""
    if facts.now and latest > facts.now:
        text = f"the clock was set back: it is {facts.now}, the newest event is from {latest}; timers fire late"
        yield warning("clock", text, "sudo timedatectl set-ntp true")
    elif facts.synchronised is False:
        text = "the clock is not synchronised (says the kernel): deadlines set on other machines may be off"
        yield note("clock", text, "sudo timedatectl set-ntp true")
    elif facts.synchronised is not None:
        yield ok("clock", "the clock is synchronised")


# Probes

_PROC = Path("/proc")
_LIMITS = _PROC / "sys/fs/inotify"
_TIMEX_BYTES, _TIMEX_STATUS_OFFSET, _STA_UNSYNC = 512, 40, 0x40
"""For `struct timex` on 64-bit Linux; the size is a generous upper bound."""


def probe_inotify() -> Inotify:
    """The limits, and what all processes of this user take of them. Raises OSError."""
    instances = watches = 0
    for descriptors in _own_processes():
        with suppress(OSError):  # the process has ended, or may not be inspected
            for descriptor in descriptors.iterdir():
                if str(descriptor.readlink()) == "anon_inode:inotify":
                    instances += 1
                    info = descriptors.parent / "fdinfo" / descriptor.name
                    text = info.read_text(encoding="ascii", errors="replace")
                    watches += len(re.findall(r"^inotify wd:", text, re.MULTILINE))
    return Inotify(instances, _limit("max_user_instances"), watches, _limit("max_user_watches"))


def _limit(name: str) -> int:
    return int((_LIMITS / name).read_text(encoding="ascii"))


def _own_processes() -> Iterator[Path]:
    """The fd directory of each process of this user: the limits are per user."""
    for process in _PROC.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if process.stat().st_uid == os.getuid():
                    yield process / "fd"


def probe_open_files() -> int:
    """The soft limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def probe_clock() -> bool | None:
    """Whether the kernel's clock is synchronised (a read-only adjtimex); None if that is unknown."""
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    if adjtimex is None or struct.calcsize("l") != 8:
        return None
    answer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: `modes` 0 changes nothing
    if adjtimex(answer) < 0:
        return None
    (status,) = struct.unpack_from("i", answer, _TIMEX_STATUS_OFFSET)
    return not status & _STA_UNSYNC
