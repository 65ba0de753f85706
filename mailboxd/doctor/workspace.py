"""What mailboxd needs of the workspace, and what lies about in it."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mailboxd.core.sanitize import for_file_name
from mailboxd.core.times import to_epoch
from mailboxd.doctor.facts import (
    Daemon,
    Directory,
    Facts,
    Filesystem,
    Finding,
    Leftovers,
    Place,
    edit,
    error,
    note,
    ok,
    warning,
)
from mailboxd.mailbox import lock
from mailboxd.mailbox.layout import Workspace, is_temporary

NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "gfs2",
        "ocfs2", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs",
    }
)  # fmt: skip
"""Several machines may see these, and none of them the locks and shared memory of another: SQLite's WAL breaks."""
FLEETING = frozenset({"tmpfs", "ramfs"})
_MB = 1_000_000
NO_ROOM, LITTLE_ROOM = 100 * _MB, 1_000 * _MB
NO_FILES, FEW_FILES = 1_000, 10_000
SKEW_SECONDS = 2.0
_SHOWN = 5


def found(facts: Facts) -> Iterator[Finding]:
    if facts.named:
        text = f"{facts.named} is not a workspace of mailboxd"
        yield error("workspace", text, shlex.join(["mailboxd", "init", facts.named, "--agent", "AGENT"]))
    elif facts.place is None:
        text = "no workspace here: only the machine and OpenClaw are looked at"
        yield note("workspace", text, "mailboxd -w DIRECTORY doctor", "mailboxd init --agent AGENT")


def config(facts: Facts) -> Iterator[Finding]:
    if facts.settings.problem:
        yield error("config", facts.settings.problem, edit(facts.settings.path, "mailboxd config checks it"))
    elif facts.settings.path:
        yield ok("config", f"the configuration is valid (agent {facts.settings.agent})")


def directories(facts: Facts) -> Iterator[Finding]:
    place = facts.place
    if place is None:
        return
    findings = [finding for one in place.directories for finding in _directory(one, place)]
    yield from findings or [ok("directories", f"{place.root} is there, ours and writable")]


def _directory(one: Directory, place: Place) -> Iterator[Finding]:
    path = place.root if one.path == "." else f"{place.root}/{one.path}"
    quoted = shlex.quote(path)
    if one.kind == "missing":
        init = shlex.join(["mailboxd", "init", place.root, "--agent", "AGENT"])
        yield error("directories", f"{path} is missing", init)
    elif one.kind != "directory":
        yield error("directories", f"{path} is {one.kind}, no directory", f"mv {quoted} {quoted}.away")
    elif not one.writable:
        text = f"{path} cannot be written (owner {one.owner}, mode {one.mode:04o})"
        mend = f"chmod u+rwx {quoted}" if one.owner == place.user else f"sudo chown -R {place.user} {quoted}"
        yield error("directories", text, mend)
    elif one.owner != place.user:
        text = f"{path} belongs to user {one.owner}, you are {place.user}: a daemon of either locks out the other"
        yield warning("directories", text, f"sudo chown -R {place.user} {quoted}")
    elif one.mode & 0o022:
        text = f"{path} can be written by other users (mode {one.mode:04o}): they can give work to the agent"
        yield warning("directories", text, f"chmod go-w {quoted}")
    elif one.path == ".mailboxd" and one.mode & 0o077:
        yield warning("directories", f"{path} can be read by other users (mode {one.mode:04o})", f"chmod 700 {quoted}")


def one_device(facts: Facts) -> Iterator[Finding]:
    mail = [one for one in facts.place.directories if one.path.startswith("mailbox/")] if facts.place else []
    there = [one for one in mail if one.kind == "directory"]
    apart = sorted(one.path for one in there if one.device != there[0].device)
    if apart:
        text = f"{', '.join(apart)} and {there[0].path} are on different file systems: files cannot be renamed across"
        yield error("one-filesystem", text, "findmnt -R " + shlex.quote(facts.place.root if facts.place else "."))


def filesystem(facts: Facts) -> Iterator[Finding]:
    found, place = facts.filesystem, facts.place
    if found is None or place is None:
        return
    if found.type in NETWORK:
        yield error(
            "filesystem",
            f"{place.root} is on a network file system ({found.type} at {found.mount}): the database would be damaged",
            _move(facts),
        )
    elif found.type in FLEETING:
        text = f"{place.root} is in memory ({found.type} at {found.mount}): a restart of the machine loses it"
        yield warning("filesystem", text, _move(facts))
    elif found.type.startswith("fuse"):
        text = f"{place.root} is on {found.type}: whether a database is safe there nobody knows"
        yield warning("filesystem", text, _move(facts))
    else:
        yield ok("filesystem", f"{found.type}, local")
    if found.skew_seconds is not None and abs(found.skew_seconds) > SKEW_SECONDS:
        text = f"the file system's clock is {found.skew_seconds:+.1f} s off ours: files settle too early or late"
        yield warning("file-times", text, "sudo timedatectl set-ntp true")


def _move(facts: Facts) -> str:
    agent = facts.settings.agent or "AGENT"
    return f"openclaw config set agents.entries.{agent}.workspace LOCAL_DIRECTORY  # and move what is there"


def space(facts: Facts) -> Iterator[Finding]:
    found, place = facts.filesystem, facts.place
    if found is None or place is None:
        return
    has, size = f"{found.free_bytes // _MB:,} MB", f"du -xsh {shlex.quote(place.root)}/* | sort -h"
    if found.free_bytes < NO_ROOM:
        yield error("space", f"only {has} of disk are free", size)
    elif found.free_bytes < LITTLE_ROOM:
        yield warning("space", f"only {has} of disk are free", size)
    else:
        yield ok("space", f"{has} of disk are free")
    if found.free_files is not None and found.free_files < FEW_FILES:
        say = error if found.free_files < NO_FILES else warning
        inodes = f"du -x --inodes {shlex.quote(found.mount)} | sort -n | tail"
        yield say("inodes", f"only {found.free_files} more files can be made on {found.mount}", inodes)


def database(facts: Facts) -> Iterator[Finding]:
    found = facts.database
    if found is None:
        return
    path = shlex.quote(found.path)
    if not found.exists:
        yield note("database", "there is no database yet", "mailboxd run")
    elif found.damage:
        text = f"{found.path} is damaged: {'; '.join(found.damage[:_SHOWN])}"
        yield error("database", text, f"sqlite3 {path} .recover | sqlite3 {path}.recovered  # no daemon may run")
    elif found.schema > found.known:
        text = f"the database has schema {found.schema}, this mailboxd knows {found.known}"
        yield error("database", text, "pip install --upgrade mailboxd")
    elif found.schema < found.known:
        text = f"the database has schema {found.schema}, the next start of the daemon makes it {found.known}"
        yield note("database", text, "mailboxd run")
    elif found.broken:
        yield error("database", f"the audit trail does not hold: {found.broken}", "mailboxd history --verify")
    else:
        yield ok("database", f"the database is whole (schema {found.schema}), its newest events are chained")


def daemon(facts: Facts) -> Iterator[Finding]:
    found = facts.daemon
    if found is None:
        return
    if found.pid is None:
        waits = facts.leftovers.arrived if facts.leftovers is not None else 0
        unit = f'"mailboxd@$(systemd-escape --path {shlex.quote(facts.place.root if facts.place else ".")}).service"'
        start = ("mailboxd run", f"systemctl --user start {unit}")
        if waits:
            yield warning("daemon", f"no daemon runs, and {waits} in the inbox wait for one", *start)
        else:
            yield note("daemon", "no daemon runs", *start)
    elif found.inside_agent:
        text = f"the daemon (pid {found.pid}) runs inside an agent's turn: OpenClaw refuses its calls"
        yield error("daemon", text, f"kill {found.pid}; mailboxd run  # in your own shell")
    else:
        how = f"as {found.service}" if found.service else "started by hand"
        yield ok("daemon", f"the daemon runs, pid {found.pid or 'unknown'}, {how}")


def leftovers(facts: Facts) -> Iterator[Finding]:
    found = facts.leftovers
    if found is not None and found.rejected:
        root = facts.place.root if facts.place is not None else "."
        text = f"{found.rejected} rejected {'file lies' if found.rejected == 1 else 'files lie'} in mailbox/rejected/"
        yield note("rejected", text, f"cat {shlex.quote(root)}/mailbox/rejected/*.reason.json")
    if found is not None and found.abandoned:
        text = f"temporary names in mailbox/inbox/, for ten minutes and more: {_some(found.abandoned)}"
        yield note("abandoned", text, f"ls -lA {shlex.quote(facts.place.root if facts.place else '.')}/mailbox/inbox")
    if facts.database is None:
        return
    if circuits := facts.database.open_circuits:
        text = f"stopped after failures, until you decide: {_some(circuits)}"
        yield note("open-circuits", text, f"mailboxd why {circuits[0]}")
    if held := facts.database.held:
        yield note("held", f"held until you let them go on: {_some(held)}", f"mailboxd why {held[0]}")
    if agents := facts.database.broken_agents:
        text = f"these failed too often in a row, and get no turns for a while: {_some(agents)}"
        yield warning("breakers", text, "mailboxd status", f"mailboxd unblock --agent {agents[0]}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


# ---------------------------------------------------------------------------------------------------------------------
# What lies in the workspace, and where the workspace lies. Nothing is written but a file that has no name.

_MARKS = (b"OPENCLAW_SHELL=exec", b"OPENCLAW_SUBAGENT_EXEC=1")
_ABANDONED = 600.0
"""Seconds after which nobody is writing under a temporary name any more."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")


def place(ws: Workspace) -> Place:
    """The directories, each as it is. Raises nothing."""
    paths = (ws.root, ws.inbox, ws.outbox, ws.archive, ws.rejected, ws.tasks, ws.state, ws.turns)
    return Place(str(ws.root), os.geteuid(), tuple(_probe_directory(path, ws.root) for path in paths))


def probe_filesystem(ws: Workspace, now: str) -> Filesystem:
    """Kind, room and clock of the file system of the workspace. Raises OSError."""
    kind, mount = mounted(ws.root, Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
    room = os.statvfs(ws.root)
    free_files = room.f_favail if room.f_files else None
    return Filesystem(kind, mount, room.f_bavail * room.f_frsize, free_files, _skew(ws, now))


def mounted(path: Path, mountinfo: str) -> tuple[str, str]:
    """Type and mount point of the file system that `path` (without links) is on; ("unknown", "/") if none fits."""
    found, longest = ("unknown", "/"), 0
    for line in mountinfo.splitlines():
        fields, dash, rest = line.partition(" - ")
        words = fields.split(" ")
        if not dash or len(words) < 5:
            continue
        point = _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), words[4])
        depth = len(Path(point).parts)
        if depth >= longest and path.is_relative_to(point):  # of two at the same place the later covers the earlier
            found, longest = (rest.split(" ")[0], point), depth
    return found


def probe_daemon(ws: Workspace) -> Daemon:
    """Who holds the lock, and where it was started. Raises WorldError."""
    pid = lock.holder(ws)
    if not pid:
        return Daemon(pid)
    unit = _UNIT.search(_text(pid, "cgroup").decode("utf-8", "replace"))
    environment = _text(pid, "environ").split(b"\0")
    return Daemon(pid, unit[1] if unit else "", any(mark in environment for mark in _MARKS))


def probe_leftovers(ws: Workspace, now: str) -> Leftovers:
    """What lies about. Raises OSError."""
    rejected = sum(1 for name in _names(ws.rejected) if not name.endswith(".reason.json"))
    abandoned = tuple(sorted(for_file_name(name) for name in _temporary(ws.inbox, to_epoch(now) - _ABANDONED)))
    return Leftovers(rejected, sum(1 for _ in _names(ws.inbox)), abandoned)


def _temporary(directory: Path, before: float) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if is_temporary(entry.name) and entry.stat(follow_symlinks=False).st_mtime < before:
                yield entry.name


def _names(directory: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from (entry.name for entry in entries if not is_temporary(entry.name))


def _probe_directory(path: Path, root: Path) -> Directory:
    shown = str(path.relative_to(root))
    try:
        status = path.lstat()
    except FileNotFoundError:
        return Directory(shown, "missing")
    except OSError as error:
        return Directory(shown, f"out of reach ({error.strerror})")
    if not stat.S_ISDIR(status.st_mode):
        return Directory(shown, "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a file")
    writable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    return Directory(shown, "directory", status.st_uid, stat.S_IMODE(status.st_mode), writable, status.st_dev)


def _skew(ws: Workspace, now: str) -> float | None:
    try:
        fd = os.open(ws.state, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return os.fstat(fd).st_mtime - to_epoch(now)
    finally:
        os.close(fd)


def _text(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
