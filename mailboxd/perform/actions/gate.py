"""The gate of one approval: its directory, Lobster as the gate, and the files that the approval is bound to.

`.mailboxd/gates/<approval>/` (0700) contains:

lock                    locked by the runner while it lives
payload                 the content of a file to be written, as previewed
verify.txt              the files that `verify` names, as previewed
effect/                 the call directory of the program, see `agents.call_dir`
workflow.lobster.yaml, preview.txt, state/, token.json      Lobster's, if it is the gate
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.core.approvals import Action, ActionKind
from mailboxd.errors import NOT_NOW, Refused, require_seen
from mailboxd.formats.mailbox.files import directory, publish, read_file, read_up_to, world_errors
from mailboxd.formats.mailbox.layout import STATE, Workspace
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.host.flock import try_lock
from mailboxd.host.system import system
from mailboxd.perform.actions.result import plain_environment
from mailboxd.perform.agents import process
from mailboxd.perform.agents.process import Child

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
LARGEST = 16 << 20
"""Maximum bytes of a file that is written, replaced or previewed."""


def existing_gates(root: Path) -> list[str]:
    """The approvals that have a gate, oldest first. Raises WorldError."""
    with world_errors("list the gates"):
        try:
            with directory(root, STATE, "gates") as gates:
                names = os.listdir(gates)  # noqa: PTH208 - of a descriptor, so no link is followed
                return sorted(name for name in names if name.startswith("apr_"))
        except FileNotFoundError:
            return []


@dataclass(frozen=True, slots=True)
class GateDir:
    """The directory of one approval's gate. It need not exist before `create`."""

    root: Path
    approval: str

    @property
    def path(self) -> Path:
        return Workspace(self.root).gates / self.approval

    @property
    def effect(self) -> Path:
        return self.path / "effect"

    @property
    def workflow(self) -> Path:
        return self.path / "workflow.lobster.yaml"

    @property
    def state(self) -> Path:
        """LOBSTER_STATE_DIR."""
        return self.path / "state"

    def create(self) -> None:
        """Create it empty, replacing what an earlier daemon left. Raises WorldError."""
        with world_errors(f"create the gate {self.approval}"), directory(self.root, STATE) as fd:
            with suppress(FileExistsError):
                os.mkdir("gates", 0o700, dir_fd=fd)
            with directory(self.root, STATE, "gates") as gates:
                self.remove()
                os.mkdir(self.approval, 0o700, dir_fd=gates)
                system.sync(gates)

    def remove(self) -> None:
        """Remove it as far as possible: a program may have nested directories without end."""
        with suppress(OSError, RecursionError), directory(self.root, STATE, "gates") as gates:
            shutil.rmtree(self.approval, ignore_errors=True, dir_fd=gates)

    def write(self, name: str, raw: bytes, mode: int = 0o600) -> Path:
        """Write a new file into the gate. Raises WorldError."""
        with world_errors(f"write {name} of the gate {self.approval}"), self._opened() as fd:
            publish(fd, name, raw)
            os.chmod(name, mode, dir_fd=fd)
            system.sync(fd)
        return self.path / name

    def read(self, name: str) -> bytes | None:
        """The content of a file of the gate; None unless it is a regular file. Raises WorldError."""
        with world_errors(f"read {name} of the gate {self.approval}"):
            try:
                with self._opened() as fd:
                    return read_regular(fd, name, LARGEST)
            except OSError as error:
                if error.errno in _NOT_THERE:
                    return None
                raise

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Raises Refused if another process holds it, or if there is no such gate."""
        try:
            with self._opened() as fd:
                lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
        except OSError as error:
            require_seen(f"the gate {self.approval}", error)
            problem = f"the gate {self.approval} cannot be opened: {error.strerror}"
            raise Refused("no-such-approval", problem, "Ask again for the action.") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused("begun-already", f"{self.approval} is already being performed") from None
            yield
        finally:
            os.close(lock)

    def is_locked(self) -> bool:
        """Whether its runner is alive; True if that cannot be checked, since a runner presumed dead is given up."""
        try:
            with self._opened() as fd:
                lock = os.open("lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError as error:
            return error.errno in NOT_NOW
        try:
            return not try_lock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)

    def running_program(self) -> Child | None:
        """The action's program if it is alive, even without its runner. Raises WorldError."""
        return process.adopt(self.effect) if self.effect.is_dir() else None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with directory(self.root, STATE, "gates", self.approval) as fd:
            yield fd


def read_regular(dir_fd: int, name: str, most: int) -> bytes | None:
    """The content of a file; None if it is not regular or longer than `most` bytes. Raises OSError."""
    raw = read_file(dir_fd, name, most + 1)
    return None if raw is None or len(raw) > most else raw


# Lobster as the gate: its workflow, command lines and answers. All pure.
#
# Lobster starts the effect step at most once per token and guarantees nothing else: its tokens are unsigned, it reads
# the file again on resuming, and a step survives when Lobster is killed. So the step is mailboxd's runner, which asks
# the database, and Lobster's word alone proves nothing.

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


@dataclass(frozen=True, slots=True)
class LobsterAnswer:
    """Lobster's status: `needs_approval` with the `id` for resuming, `ok`, `cancelled`, or empty with an `error`."""

    status: str
    id: str = ""
    error: str = ""


def workflow(approval: str, preview: Path, effect: Sequence[str]) -> bytes | None:
    """The workflow that gates one effect; None if a path has characters that Lobster or YAML would interpret.

    Uses the packaged template only: an agent could write one in the workspace.
    """
    values = {"approval": approval, "preview": shlex.join(["cat", "--", str(preview)]), "effect": shlex.join(effect)}
    if any("${" in value or not value.isprintable() for value in values.values()):
        return None
    quoted = {name: value.replace("'", "''") for name, value in values.items()}
    text = Templates(None).render("approval-recovery.lobster.yaml", **quoted)
    lines = (line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return "".join(lines).encode()


def run_argv(program: Sequence[str], workflow_file: Path) -> tuple[str, ...]:
    return (*program, "run", "--mode", "tool", "--file", str(workflow_file))


def resume_argv(program: Sequence[str], gate: str, *, approve: bool) -> tuple[str, ...]:
    """Resumes by the gate's id; its token would be visible in the process list."""
    return (*program, "resume", "--id", gate, "--approve", "yes" if approve else "no")


def lobster_environment(environ: Mapping[str, str], state: Path) -> dict[str, str]:
    """The environment of Lobster and of its steps' shells."""
    return plain_environment(environ) | {"LOBSTER_STATE_DIR": str(state)}


def parse_answer(stdout: bytes) -> LobsterAnswer:
    """Parse the single JSON document on Lobster's standard output; anything else is an error."""
    try:
        answer = json.loads(stdout)
        if answer["protocolVersion"] != 1:
            return LobsterAnswer("", error=f"its protocol is version {answer['protocolVersion']!r}, not 1")
        if answer["ok"] is not True:
            return LobsterAnswer("", error=str(answer["error"]["message"]))
        if answer["status"] != "needs_approval":
            return LobsterAnswer(str(answer["status"]))
        gate = answer["requiresApproval"]["approvalId"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return LobsterAnswer("", error="its answer cannot be parsed")
    if not isinstance(gate, str) or not _ID.fullmatch(gate):
        return LobsterAnswer("", error="its gate has an invalid id")
    return LobsterAnswer("needs_approval", id=gate)


# An approval is also bound to the bytes of files, as they were when a person was asked.

_HASHED = 4 << 20
"""Maximum bytes hashed of one file; the daemon waits for it."""
_HASHED_IN_TOTAL = 64 << 20
"""Maximum bytes hashed for one command, which may name thousands of files."""
_VERIFY = "verify.txt"
"""In the gate: `verify_lines` when a person was asked."""


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def content_sha256(action: Action, gate: GateDir) -> str:
    """The SHA-256 of the files that the action would use now: its payload, or the files that its commands name.

    Empty if it uses none. Raises WorldError.
    """
    own, verify = "", verify_lines(action, str(gate.root))
    if action.kind is ActionKind.FILE:
        own = sha256(gate.read("payload") or b"")
    elif action.kind is ActionKind.COMMAND:
        lines = [f"{name} {found}" for name, found in named_files(action.argv, action.cwd, str(gate.root))]
        own = sha256("\n".join(lines).encode()) if lines else ""
    return sha256("\n".join([own, *verify]).encode()) if verify else own


def verify_lines(action: Action, root: str) -> list[str]:
    """A line for each file of the workspace that `verify` names. `verify` runs without another approval."""
    return [f"{name} {found}" for name, found in named_files(action.verify, action.cwd, root)]


def write_verify(action: Action, gate: GateDir) -> None:
    """Write what `verify` is bound to into the action's new gate. Raises WorldError."""
    gate.write(_VERIFY, "\n".join(verify_lines(action, str(gate.root))).encode())


def is_verify_as_approved(action: Action, gate: GateDir) -> bool:
    """Whether the files that `verify` names are unchanged since the preview. Raises WorldError."""
    return gate.read(_VERIFY) == "\n".join(verify_lines(action, str(gate.root))).encode()


_INTERPRETER = re.compile(r"(ba|da|k|z)?sh|fish|python[0-9.]*|pypy[0-9.]*|node|deno|bun|perl|ruby|php|lua|awk|make")


def programs(action: Action, root: str) -> frozenset[str]:
    """Which of the files that a command names it executes, and does not write: itself, its script, executables."""
    words = [*action.argv[:1]]
    if words and _INTERPRETER.fullmatch(words[0].rpartition("/")[2]):
        words += [word for word in action.argv[1:] if not word.startswith("-")][:1]
    run = {name for name, _ in named_files(words, action.cwd, root)}
    named = (name for name, _ in named_files(action.argv, action.cwd, root))
    return frozenset(run | {name for name in named if os.access(os.path.join(root, name), os.X_OK)})  # noqa: PTH118


def named_files(arguments: Sequence[str], cwd: str, root: str) -> Iterator[tuple[str, str]]:
    """The files of the workspace that arguments of a command name, each with its SHA-256: agents can change them.

    Links and `..` after them are followed, as the command would. A file of more than 4 MiB is identified by size and
    time, and so is every file once 64 MiB were hashed.
    """
    room = _HASHED_IN_TOTAL
    base = os.path.join(root, cwd)  # noqa: PTH118 - arbitrary text until it is opened
    seen = set()
    for argument in arguments:
        for text in (argument, argument.partition("=")[2], argument.partition("@")[2]):
            path = os.path.join(base, text)  # noqa: PTH118
            plain = os.path.normpath(path)
            below = plain.startswith(f"{root}/") and not plain.startswith(f"{root}/{STATE}/")
            if not text or "\0" in text or not below or path in seen:
                continue
            found, size = _identify(path, min(room, _HASHED))
            if found:
                room -= size
                seen.add(path)
                yield plain[len(root) + 1 :], found


def _identify(path: str, most: int) -> tuple[str, int]:
    """A file's hash, and how many bytes were read for it; size and time if it has more than `most` bytes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        return "", 0
    except OSError as problem:
        require_seen(path, problem)  # the approval would be bound to less than was previewed
        return "", 0
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return "", 0
        if status.st_size > most:
            return f"{status.st_size}:{status.st_mtime_ns}", 0
        raw = read_up_to(fd, _HASHED)
        return hashlib.sha256(raw).hexdigest(), len(raw)
    except OSError as problem:
        require_seen(path, problem)
        return "", 0
    finally:
        os.close(fd)
