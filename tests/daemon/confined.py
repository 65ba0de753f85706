"""Runs a program under what a unit of ours demands, as far as that can be had without systemd itself.

    python -m tests.daemon.confined UNIT WRITABLE PROGRAM ARGUMENT...

Taken from the unit: NoNewPrivileges and an empty CapabilityBoundingSet; ProtectSystem=strict with its ReadWritePaths
(everything but WRITABLE, /dev, /proc and /sys is read-only); SystemCallFilter with its sets as `systemd-analyze
syscall-filter` has them, SystemCallErrorNumber, RestrictAddressFamilies, RestrictNamespaces, MemoryDenyWriteExecute if
it is there; UMask. Not emulated:
IPAddressDeny (needs a control group), PrivateTmp, ProtectHome, PrivateUsers, PrivateDevices, ProtectProc.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SECCOMP = "libseccomp.so.2"
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_SET_NO_NEW_PRIVS, _CAPBSET_DROP = 38, 24
_EQ, _MASKED_EQ = 4, 7
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_WRITE, _EXEC = 2, 4
_MAPPING = ("mmap", "mprotect", "pkey_mprotect")
_KEPT = ("/dev", "/proc", "/sys")

libc = ctypes.CDLL(None, use_errno=True)


class _Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def can_be_confined() -> str:
    """Why nothing can be confined on this machine; empty if it can."""
    if shutil.which("systemd-analyze") is None:
        return "systemd is not installed"
    try:
        ctypes.CDLL(SECCOMP)
    except OSError:
        return "libseccomp is not installed"
    trial = subprocess.run([sys.executable, __file__, "--trial"], check=False, capture_output=True, text=True)
    return "" if trial.returncode == 0 else f"no namespaces here: {trial.stderr.strip()[-200:]}"


def settings(unit: Path) -> dict[str, list[str]]:
    """What a unit says, by directive."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"([A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def allowed_calls(unit: dict[str, list[str]]) -> set[str]:
    """The system calls that the unit leaves, in systemd's own expansion."""
    allowed: set[str] = set()
    for line in unit["SystemCallFilter"]:
        calls = set(_expanded(line.removeprefix("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed


def _expanded(names: list[str]) -> Iterator[str]:
    for name in names:
        if not name.startswith("@"):
            yield name
            continue
        said = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True)
        members = [line.strip() for line in said.stdout.splitlines()[1:]]
        yield from _expanded([member for member in members if member and not member.startswith("#")])


def _called(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _enter_namespaces() -> None:
    uid, gid, root = os.getuid(), os.getgid(), os.geteuid() == 0
    _called(libc.unshare(_NEWNS if root else _NEWNS | _NEWUSER), "unshare")
    if not root:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    _mount("/", _REC | _PRIVATE)


def _mount(path: str, flags: int, source: str | None = None) -> None:
    done = libc.mount((source or "none").encode(), os.fsencode(path), None, ctypes.c_ulong(flags), None)
    _called(done, f"mount {path}")


def _make_read_only(writable: str) -> None:
    _mount(writable, _BIND | _REC, writable)
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4])
        if point.startswith(_KEPT) or f"{point}/".startswith(f"{writable}/"):
            continue
        locked = 2 | 4 | 8 | 1024  # nosuid, nodev, noexec, noatime: cannot be taken off in a user namespace
        kept = os.statvfs(point).f_flag & locked
        _mount(point, _REMOUNT | _BIND | _RDONLY | kept)


def _drop_capabilities() -> None:
    for capability in range(64):
        libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _called(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _called(libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())), "capset")


def _filter_calls(unit: dict[str, list[str]], allowed: set[str]) -> None:
    lib = ctypes.CDLL(SECCOMP)
    lib.seccomp_init.restype = ctypes.c_void_p
    refused = _ERRNO | getattr(errno, unit["SystemCallErrorNumber"][0])
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(refused)))

    def rule(action: int, name: str, *compares: _Compare) -> None:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            array = (_Compare * len(compares))(*compares)
            lib.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(compares), array)

    strict = unit.get("MemoryDenyWriteExecute") == ["yes"]
    with_rules = {"socket", "clone", "clone3", "unshare", "setns", *(_MAPPING if strict else ())}
    for name in allowed - with_rules:
        rule(_ALLOW, name)
    if strict:
        for bits in (0, _WRITE, _EXEC):
            rule(_ALLOW, "mmap", _Compare(2, _MASKED_EQ, _WRITE | _EXEC, bits))
        for name in ("mprotect", "pkey_mprotect"):
            rule(_ALLOW, name, _Compare(2, _MASKED_EQ, _EXEC, 0))
    for family in unit["RestrictAddressFamilies"][0].split():
        rule(_ALLOW, "socket", _Compare(0, _EQ, getattr(socket, family), 0))
    assert unit["RestrictNamespaces"] == ["yes"]
    rule(_ALLOW, "clone", _Compare(0, _MASKED_EQ, _NAMESPACES, 0))
    rule(_ERRNO | errno.ENOSYS, "clone3")  # its flags lie in memory; as systemd does, so that clone is used
    if lib.seccomp_load(context) != 0:
        raise OSError("seccomp_load failed")


def main() -> None:
    if sys.argv[1:] == ["--trial"]:
        _enter_namespaces()
        return
    unit, writable = settings(Path(sys.argv[1])), sys.argv[2]
    allowed = allowed_calls(unit)
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]
    _enter_namespaces()
    _make_read_only(writable)
    os.chdir(Path.cwd())  # the directory of the new mount, not the one below it
    os.umask(int(unit["UMask"][0], 8))
    _drop_capabilities()
    _filter_calls(unit, allowed)
    os.execvp(sys.argv[3], sys.argv[3:])


if __name__ == "__main__":
    main()
