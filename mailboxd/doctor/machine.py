"""What mailboxd needs of the machine."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mailboxd.doctor import versions
from mailboxd.doctor.facts import Facts, Finding, Inotify, edit, error, note, ok, warning

OLDEST_PYTHON = (3, 11, 0)
FEW_WATCHES = 1_000
"""mailboxd watches mailbox/, tasks/ and each task's directory."""
FEW_INSTANCES = 4
"""A daemon takes two."""
FEW_FILES = 256
"""A daemon needs about 30, and three for each turn."""
_MB = 1_000_000


def python(facts: Facts) -> Iterator[Finding]:
    found = versions.shown(facts.python)
    if facts.python < OLDEST_PYTHON:
        wanted = versions.shown(OLDEST_PYTHON)
        yield error("python", f"Python {found} is too old; {wanted} is needed", "uv python install 3.13")
    else:
        yield ok("python", f"Python {found}")


def inside_agent(facts: Facts) -> Iterator[Finding]:
    if facts.inside_agent:
        yield error(
            "inside-agent",
            "this is a shell inside an agent's turn (OPENCLAW_SHELL): OpenClaw calls no agents from here, and the "
            "daemon refuses to start",
            "mailboxd doctor  # in your own shell; never remove the mark",
        )


def inotify(facts: Facts) -> Iterator[Finding]:
    found = facts.inotify
    if found is None:
        return
    instances, watches = found.max_instances - found.instances, found.max_watches - found.watches
    if instances < FEW_INSTANCES:
        text = f"{found.instances} of {found.max_instances} inotify instances are taken: arrivals are seen late"
        yield warning("inotify-instances", text, _sysctl("max_user_instances", max(512, 2 * found.max_instances)))
    if watches < FEW_WATCHES:
        text = f"{found.watches} of {found.max_watches} inotify watches are taken: arrivals are seen late"
        yield warning("inotify-watches", text, _sysctl("max_user_watches", max(524_288, 2 * found.max_watches)))
    if instances >= FEW_INSTANCES and watches >= FEW_WATCHES:
        text = f"inotify: {instances} of {found.max_instances} instances and {watches} of {found.max_watches} watches"
        yield ok("inotify", f"{text} are free")


def _sysctl(name: str, value: int) -> str:
    line = f"fs.inotify.{name}={value}"
    return f"echo {line} | sudo tee /etc/sysctl.d/60-mailboxd-{name.rpartition('_')[2]}.conf && sudo sysctl --system"


def memory(facts: Facts) -> Iterator[Finding]:
    if facts.memory is None:
        return
    one, turns = facts.settings.call_bytes, facts.settings.turns
    room = facts.memory // one
    has = f"{facts.memory // _MB:,} MB of memory are free"
    if room < 1:
        yield error(
            "memory", f"{has}; one turn needs {one // _MB} MB, so none starts", "ps -eo rss,pid,args --sort -rss | head"
        )
    elif room < turns:
        text = f"{has}: room for {room} of the {turns} turns of limits.turns, the others wait"
        yield warning("memory", text, edit(facts.settings.path, f"limits.turns: {room}"))
    else:
        yield ok("memory", f"{has}: {turns} turns at once need {turns * one // _MB:,} MB")


def open_files(facts: Facts) -> Iterator[Finding]:
    if facts.open_files is None:
        return
    if facts.open_files < FEW_FILES:
        yield warning("open-files", f"this shell allows a process only {facts.open_files} open files", "ulimit -n 4096")
    else:
        yield ok("open-files", f"{facts.open_files} open files are allowed")


def clock(facts: Facts) -> Iterator[Finding]:
    latest = facts.database.latest if facts.database is not None else ""
    if facts.now and latest > facts.now:
        text = f"the clock was set back: it says {facts.now}, the newest event is of {latest}; what is timed is late"
        yield warning("clock", text, "sudo timedatectl set-ntp true")
    elif facts.synchronised is False:
        text = "the kernel says that nothing synchronises the clock: deadlines that others set may be off"
        yield note("clock", text, "sudo timedatectl set-ntp true")
    elif facts.synchronised is not None:
        yield ok("clock", "the clock is synchronised")


# ---------------------------------------------------------------------------------------------------------------------
# What the kernel says of this machine. Linux only.

_PROC = Path("/proc")
_LIMITS = _PROC / "sys/fs/inotify"
_TIMEX_BYTES, _STATUS_AT, _UNSYNCHRONISED = 512, 40, 0x40
"""`struct timex` on 64-bit Linux: more than large enough, where `status` lies in it, and its bit STA_UNSYNC."""


def probe_inotify() -> Inotify:
    """The limits, and what all processes of this user have taken. Raises OSError."""
    instances = watches = 0
    for descriptors in _own_processes():
        with suppress(OSError):  # gone meanwhile, or it lets nobody look
            for held in descriptors.iterdir():
                if str(held.readlink()) == "anon_inode:inotify":
                    instances += 1
                    text = (descriptors.parent / "fdinfo" / held.name).read_text(encoding="ascii", errors="replace")
                    watches += len(re.findall(r"^inotify wd:", text, re.MULTILINE))
    return Inotify(instances, _limit("max_user_instances"), watches, _limit("max_user_watches"))


def probe_open_files() -> int:
    """How many descriptors a process may have (the soft limit)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def synchronised() -> bool | None:
    """Whether something keeps the kernel's clock right (adjtimex, which only asks here); None where it cannot say."""
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    if adjtimex is None or struct.calcsize("l") != 8:
        return None
    answer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: `modes` 0 changes nothing
    if adjtimex(answer) < 0:
        return None
    (status,) = struct.unpack_from("i", answer, _STATUS_AT)
    return not status & _UNSYNCHRONISED


def _limit(name: str) -> int:
    return int((_LIMITS / name).read_text(encoding="ascii"))


def _own_processes() -> Iterator[Path]:
    """The descriptors of each process of this user: the limits count per user."""
    for process in _PROC.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if process.stat().st_uid == os.getuid():
                    yield process / "fd"
