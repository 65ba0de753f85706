"""Checks of the workspace: directories, file system, database, daemon, mailbox and keys."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from mailboxd.core.sanitize import first_line, for_file_name
from mailboxd.core.standstill import OVER
from mailboxd.core.times import to_epoch
from mailboxd.errors import EXIT_LOCKED, ConfigError
from mailboxd.formats import health
from mailboxd.formats.health import Component, failed_starts, stopping
from mailboxd.formats.keys import Keyring, Trusted, known_as, require_extra
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace, is_temporary
from mailboxd.formats.mailbox.maildir import REASON, walk
from mailboxd.formats.user import standstills
from mailboxd.formats.user.registry import server_for
from mailboxd.host.pip_extras import to_add
from mailboxd.host.system import system
from mailboxd.host.systemd_units import ServiceUnit, installed_for, unit_running
from mailboxd.ledger import attention
from mailboxd.ledger.database import recreation
from mailboxd.ledger.integrity import DatabaseCheck
from mailboxd.operate.doctor.facts import (
    CheckResult,
    Daemon,
    Directory,
    Facts,
    Filesystem,
    Keys,
    MailboxFacts,
    WorkspaceFacts,
    edit,
    error,
    note,
    ok,
    warning,
)

if TYPE_CHECKING:
    from mailboxd.host.clock import Clock

NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "gfs2",
        "ocfs2", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs",
    }
)  # fmt: skip
"""Machines that share these do not see each other's locks and shared memory: SQLite's WAL breaks."""
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MB = 1_000_000
ERROR_BYTES, WARNING_BYTES = 100 * _MB, 1_000 * _MB
ERROR_FILES, WARNING_FILES = 1_000, 10_000
_SHOWN = 5


def found(facts: Facts) -> Iterator[CheckResult]:
    if facts.not_a_workspace:
        text = f"{facts.not_a_workspace} is not a mailboxd workspace"
        agent = _agent_at(facts, facts.not_a_workspace)
        init = shlex.join(["mailboxd", "init", facts.not_a_workspace, "--agent", agent])
        yield error("workspace", text, init if agent else "mailboxd setup")
    elif facts.workspace is None:
        text = "no workspace here: only the machine and OpenClaw were checked"
        homes = [peer.workspace for peer in facts.peers or () if peer.workspace]
        elsewhere = [shlex.join(["mailboxd", "-w", home, "doctor"]) for home in homes[:_SHOWN]]
        yield note("workspace", text, *elsewhere, "mailboxd setup")


def config(facts: Facts) -> Iterator[CheckResult]:
    if facts.settings.problem:
        yield error("config", facts.settings.problem, _valid_configuration(facts))
        if facts.program is None:
            yield note("openclaw", "OpenClaw was not checked: the configuration says how it is called")
    elif facts.settings.path:
        yield ok("config", f"the configuration is valid (agent {facts.settings.agent})")


def _agent_at(facts: Facts, root: str) -> str:
    """The agent of this workspace: of its configuration, else the one that OpenClaw runs there; empty if unknown."""
    there = (peer.id for peer in facts.peers or () if PurePath(peer.workspace) == PurePath(root))
    return (facts.settings.agent if facts.workspace is not None else "") or next(there, "")


def directories(facts: Facts, workspace: WorkspaceFacts) -> Iterator[CheckResult]:
    agent = _agent_at(facts, workspace.root)
    results = [result for one in workspace.directories for result in _directory(one, workspace, agent)]
    yield from results or [ok("directories", f"all directories of {workspace.root} exist, are yours and writable")]


def _directory(one: Directory, workspace: WorkspaceFacts, agent: str) -> Iterator[CheckResult]:
    path = workspace.root if one.path == "." else f"{workspace.root}/{one.path}"
    quoted = shlex.quote(path)
    if one.kind == "missing":
        init = shlex.join(["mailboxd", "init", workspace.root, "--agent", agent])
        yield error("directories", f"{path} is missing", init if agent else "mailboxd setup")
    elif one.kind != "directory":
        yield error("directories", f"{path} is {one.kind}, not a directory", f"mv {quoted} {quoted}.away")
    elif not one.writable:
        text = f"{path} is not writable (owner {one.owner}, mode {one.mode:04o})"
        fix = f"chmod u+rwx {quoted}" if one.owner == workspace.user else f"sudo chown -R {workspace.user} {quoted}"
        yield error("directories", text, fix)
    elif one.owner != workspace.user:
        text = f"{path} belongs to user {one.owner}, you are {workspace.user}: a daemon of one locks out the other"
        yield warning("directories", text, f"sudo chown -R {workspace.user} {quoted}")
    elif one.mode & 0o022:
        text = f"other users can write to {path} (mode {one.mode:04o}): they can give the agent work"
        yield warning("directories", text, f"chmod go-w {quoted}")
    elif one.path == ".mailboxd" and one.mode & 0o077:
        yield warning("directories", f"other users can read {path} (mode {one.mode:04o})", f"chmod 700 {quoted}")


def filesystem(facts: Facts, found: Filesystem) -> Iterator[CheckResult]:
    if found.type in NETWORK:
        text = f"{_place(facts)} is on a network file system ({found.type} at {found.mount}): it damages the database"
        yield error("filesystem", text, _move(facts))
    elif found.type in IN_MEMORY:
        text = f"{_place(facts)} is in memory ({found.type} at {found.mount}): a reboot loses it"
        yield warning("filesystem", text, _move(facts))
    elif found.type.startswith("fuse"):
        text = f"{_place(facts)} is on {found.type}, which may not be safe for a database"
        yield warning("filesystem", text, _move(facts))
    else:
        yield ok("filesystem", f"{found.type}, local")


def _move(facts: Facts) -> str:
    agent = facts.settings.agent or "AGENT"
    return f"openclaw config set agents.entries.{agent}.workspace LOCAL_DIRECTORY  # and move the files"


def space(facts: Facts, found: Filesystem) -> Iterator[CheckResult]:
    free, usage = f"{found.free_bytes // _MB:,} MB", f"du -xhd2 {_root(facts)} | sort -h"
    if found.free_bytes < ERROR_BYTES:
        yield error("space", f"only {free} of disk space are free", usage)
    elif found.free_bytes < WARNING_BYTES:
        yield warning("space", f"only {free} of disk space are free", usage)
    else:
        yield ok("space", f"{free} of disk space are free")
    if found.free_files is not None and found.free_files < WARNING_FILES:
        result = error if found.free_files < ERROR_FILES else warning
        inodes = f"du -x --inodes {shlex.quote(found.mount)} | sort -n | tail"
        yield result("inodes", f"only {found.free_files} more files can be created on {found.mount}", inodes)


_REBUILD = "mailboxd db rebuild --replace  # from mailbox/archive/events/; stop the daemon first"


def database(facts: Facts, found: DatabaseCheck) -> Iterator[CheckResult]:
    path = shlex.quote(found.path)
    if found.lost:
        yield error("database", f"{found.path}: {found.lost}", _REBUILD)
    elif not found.exists:
        yield note("database", "there is no database yet", _start(facts))
    elif found.damage:
        text = f"{found.path} is damaged: {'; '.join(found.damage[:_SHOWN])}"
        yield error("database", text, _REBUILD, f"sqlite3 {path} .recover | sqlite3 {path}.recovered")
    elif found.schema > found.known:
        text = f"the database has schema {found.schema}, this mailboxd knows {found.known}"
        yield error("database", text, "mailboxd --version  # install the newer version that wrote it")
    elif found.schema < found.known:
        text = f"the database has schema {found.schema}, the daemon upgrades it to {found.known} when it starts"
        yield note("database", text, _start(facts))
    elif found.broken:
        yield error("database", f"the audit trail is broken: {found.broken}", "mailboxd db verify")
    else:
        yield ok("database", f"the database is intact (schema {found.schema}), the chain of its newest events too")


def daemon(facts: Facts, found: Daemon) -> Iterator[CheckResult]:
    if found.paused:
        yield warning("paused", f"{found.paused}: nothing begins in any workspace", OVER)
    if found.gave_up:
        record = facts.database is not None and recreation(Path(facts.database.path)) in found.gave_up
        fix = _REBUILD if record else _start(facts)
        yield error("daemon", f"no daemon is running, the latest start failed: {found.gave_up}", fix)
    elif found.starts_soon:
        yield note("daemon", f"no daemon is running yet: {attention.STARTS_SOON}")
    elif found.pid is None:
        waiting = facts.mailbox.waiting if facts.mailbox is not None else 0
        if waiting:
            yield warning("daemon", f"no daemon is running; files waiting in the inbox: {waiting}", _start(facts))
        else:
            yield note("daemon", "no daemon is running", _start(facts))
    elif found.inside_agent:
        text = f"the daemon (pid {found.pid}) runs inside an agent's turn: OpenClaw refuses its calls"
        yield error("daemon", text, f"{_restart(found.pid)}  # in your own shell")
    elif found.stopping:
        yield warning("daemon", f"the daemon {found.stopping}", attention.start_after(found.pid, "mailboxd"))
    else:
        how = f"as {found.service.name}" if found.service is not None else "started manually"
        yield ok("daemon", f"the daemon is running, pid {found.pid or 'unknown'}, {how}")
        if found.outdated:
            text = "the changed configuration counts after a restart of the daemon"
            yield warning("daemon", text, _start(facts))
    if found.stuck:
        places = f"{_root(facts)}/mailbox/inbox {_root(facts)}/mailbox/archive"
        yield warning(
            "emptying-the-inbox", found.stuck, f"ls -la {places}; lsattr {places}  # then: chattr -i, or chmod"
        )


def _start(facts: Facts) -> str:
    """The command that starts the daemon anew, or what it needs before."""
    if facts.settings.problem:
        return _valid_configuration(facts)
    pid, service = (facts.daemon.pid, facts.daemon.service) if facts.daemon is not None else (None, None)
    if service is not None:
        return service.start(pid)
    return _restart(pid) if pid else "mailboxd run"


def _restart(pid: int | None) -> str:
    """Commands that start the daemon again by hand: its turns may keep it for a while, and two never run."""
    return f"kill {pid}; until mailboxd run || [ $? != {EXIT_LOCKED} ]; do sleep 1; done"


def _valid_configuration(facts: Facts) -> str:
    return facts.settings.fix or edit(facts.settings.path, "then: mailboxd config")


def mailbox(facts: Facts, found: MailboxFacts) -> Iterator[CheckResult]:
    if found.rejected:
        text = f"rejected files in mailbox/rejected/: {found.rejected}"
        yield note("rejected", text, f"cat {_root(facts)}/mailbox/rejected/*/*.reason.json")
    if found.stale:
        text = f"temporary files in mailbox/inbox/ that are older than ten minutes: {_some(found.stale)}"
        yield note("abandoned", text, f"ls -lA {_root(facts)}/mailbox/inbox")


def _place(facts: Facts) -> str:
    return facts.workspace.root if facts.workspace is not None else "."


def _root(facts: Facts) -> str:
    return shlex.quote(_place(facts))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


# Probes. They write nothing.

_AGENT_VARIABLES = (b"OPENCLAW_SHELL=exec", b"OPENCLAW_SUBAGENT_EXEC=1")
_STALE_SECONDS = 600.0
"""Age at which a temporary file is no longer being written."""


def probe_workspace(ws: Workspace) -> WorkspaceFacts:
    """The state of its directories. Raises nothing."""
    paths = (ws.root, ws.inbox, ws.outbox, ws.archive, ws.rejected, ws.tasks, ws.state, ws.turns)
    return WorkspaceFacts(str(ws.root), os.geteuid(), tuple(_probe_directory(path, ws.root) for path in paths))


def probe_filesystem(ws: Workspace) -> Filesystem:
    """Type and free space of the workspace's file system. Raises OSError."""
    kind, mount = mount_of(ws.root, system.mounts())
    stats = os.statvfs(ws.root)
    free_files = stats.f_favail if stats.f_files else None
    return Filesystem(kind, mount, stats.f_bavail * stats.f_frsize, free_files)


def mount_of(path: Path, mounts: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Type and mount point of the file system of `path` (a real path); ("unknown", "/") if none matches."""
    found, longest = ("unknown", "/"), 0
    for point, kind in mounts:
        depth = len(Path(point).parts)
        if depth >= longest and path.is_relative_to(point):  # a later mount covers an earlier one
            found, longest = (kind, point), depth
    return found


def probe_daemon(ws: Workspace, environ: Mapping[str, str], clock: Clock) -> Daemon:
    """The process that holds the lock, and how it was started; without one, its installed unit and why the latest one
    could not start. Raises WorldError.
    """
    pid, standstill = lock.holder(ws), standstills.standstill(environ)
    paused = "" if standstill is None else first_line(standstill.text)
    if not pid:
        gave_up = failed_starts(ws, clock.now(), clock.monotonic()).why if pid is None else ""
        installed = installed_for(ws.root, environ)
        return Daemon(
            pid,
            ServiceUnit(installed) if installed else server_for(ws.root, environ),
            gave_up=gave_up,
            paused=paused,
            starts_soon=pid is None and attention.starts_soon(ws),
        )
    environment = _environment(pid)
    _, troubles = health.read(ws, pid, clock.now(), clock.monotonic())
    is_inside = any(variable in environment for variable in _AGENT_VARIABLES)
    return Daemon(
        pid,
        unit_running(pid) or server_for(ws.root, environ),
        is_inside,
        outdated=attention.is_change_unread(ws),
        paused=paused,
        stopping=stopping(ws, pid, clock.now()),
        stuck=next((first_line(one.why) for one in troubles if one.where == Component.LEFT), ""),
    )


def probe_mailbox(ws: Workspace, now: str) -> MailboxFacts:
    """Count the files in inbox/ and rejected/. Raises OSError."""
    rejected = 0
    with suppress(FileNotFoundError):
        rejected = sum(not path.name.endswith(REASON) for path in walk(ws, PurePosixPath("rejected"), 1))
    stale = tuple(sorted(for_file_name(name) for name in _temporary(ws.inbox, to_epoch(now) - _STALE_SECONDS)))
    return MailboxFacts(rejected, sum(1 for _ in _names(ws.inbox)), stale)


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
        return Directory(shown, f"inaccessible ({error.strerror})")
    if not stat.S_ISDIR(status.st_mode):
        return Directory(shown, "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a file")
    writable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    return Directory(shown, "directory", status.st_uid, stat.S_IMODE(status.st_mode), writable)


def _environment(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


# Signing keys

_OPERATOR = "operator"


def signing_keys(facts: Facts, found: Keys) -> Iterator[CheckResult]:
    results = [*_unusable(found), *_missing(found), *_unknown(found, facts)]
    yield from results
    if not results and (found.own or found.trusted):
        trusted = f"the keys of {', '.join(found.trusted)} are trusted" if found.trusted else "no key is trusted"
        signed = "messages of this daemon are signed" if found.own else "messages of this daemon are not signed"
        yield ok("keys", f"{signed}, {trusted}")


def _unusable(found: Keys) -> Iterator[CheckResult]:
    needed = bool(found.required or found.own or found.trusted)
    if needed and not found.extra:
        text = "signatures are configured, and the packages for them are not installed"
        yield error("keys-extra", text, to_add("signing"))
    for problem in found.problems:
        yield error("keys-unusable", problem, f"ls -la {shlex.quote(found.folder)}")
    if found.mode & 0o022:
        text = f"other users can write to {found.folder} (mode {found.mode:04o}): they could replace keys"
        yield error("keys-folder", text, f"chmod 700 {shlex.quote(found.folder)}")


def _missing(found: Keys) -> Iterator[CheckResult]:
    for name in found.required:
        if name not in found.trusted:
            text = f"signing.require names {name}, but no key of {name} is trusted: all its messages are rejected"
            yield error("keys-required", text, f"mailboxd connect keys trust {name} FILE_OR_KEY")
    if not found.own and found.trusted:
        text = "this agent has no key: messages of its daemon are not signed"
        yield note("keys-own", text, "mailboxd connect keys create")


def _unknown(found: Keys, facts: Facts) -> Iterator[CheckResult]:
    """Keys of agents that do not exist: left over, or a typo."""
    if facts.peers is None:
        return
    existing = {peer.id.lower() for peer in facts.peers} | {_OPERATOR}
    for name in sorted(set(found.trusted) - existing):
        text = f"a key of {name} is trusted, but OpenClaw has no agent {name}"
        yield warning("keys-unknown", text, f"mailboxd connect keys untrust {name}")


T = TypeVar("T")


def probe_keys(root: Path, required: Iterable[str], environ: Mapping[str, str]) -> Keys:
    """The keys of the workspace at `root`. Raises WorldError if they cannot be read."""
    keyring, problems = Keyring.of(root, environ), list[str]()

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigError as error:
            problems.append(str(error))
            return None

    extra = attempt(_has_extra) is not None
    problems.clear()  # a missing extra is not a problem of a key
    own = attempt(lambda: keyring.private(keyring.own_file)) if extra else None
    operator = attempt(lambda: keyring.private(keyring.operator_file)) if extra else None
    trusted: tuple[Trusted, ...] = attempt(keyring.trusted) or ()
    mode, owner = 0o700, os.geteuid()
    with suppress(OSError):
        status = keyring.folder.lstat()
        mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
    return Keys(
        str(keyring.folder),
        tuple(problems),
        own is not None,
        operator is not None,
        tuple(sorted({row.name for row in trusted})),
        tuple(sorted(map(known_as, required))),
        extra,
        mode,
        owner,
    )


def _has_extra() -> bool:
    require_extra()
    return True
