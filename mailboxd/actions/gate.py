"""The directory of one gate, `.mailboxd/gates/<approval>/` (0700), and the lock that says whether somebody acts.

lock                    flock'd by the runner for as long as it lives
payload                 the bytes that a file will have, as they were when a person was asked
effect/                 the program that is run, see `agents.process`
workflow.lobster.yaml, preview.txt, state/, token.json      Lobster's, where it is the gate
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents import process
from mailboxd.agents.process import Child
from mailboxd.errors import NOT_NOW, Refused, require_seen
from mailboxd.mailbox.files import directory, open_regular, publish, read_up_to, world_errors
from mailboxd.mailbox.layout import STATE as OURS
from mailboxd.mailbox.layout import Workspace
from mailboxd.protocol.prompts import Templates

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
LARGEST = 16 << 20
"""Bytes that a file may have which is written, or replaced, or shown."""


def standing_gates(root: Path) -> list[str]:
    """The approvals that have a gate, in the order they were asked for. Raises WorldError."""
    with world_errors("look at the gates"):
        if not os.path.lexists(f"{root}/{OURS}/gates"):  # asked after every event, and most workspaces have none
            return []
        try:
            with directory(root, OURS, "gates") as gates:
                names = os.listdir(gates)  # noqa: PTH208 - of a descriptor, which no link can stand for
                return sorted(name for name in names if name.startswith("apr_"))
        except FileNotFoundError:
            return []


@dataclass(frozen=True, slots=True)
class Place:
    """The gate of one approval. That it exists is `make`'s work and nobody's promise."""

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

    def make(self) -> None:
        """An empty one, whatever an earlier daemon has left there. Raises WorldError."""
        with world_errors(f"make the gate {self.approval}"), directory(self.root, OURS) as fd:
            with suppress(FileExistsError):
                os.mkdir("gates", 0o700, dir_fd=fd)
            with directory(self.root, OURS, "gates") as gates:
                self.remove()
                os.mkdir(self.approval, 0o700, dir_fd=gates)
                os.fsync(gates)

    def remove(self) -> None:
        """As far as it lets itself be removed: a program may have put directories in each other without end."""
        with suppress(OSError, RecursionError), directory(self.root, OURS, "gates") as gates:
            shutil.rmtree(self.approval, ignore_errors=True, dir_fd=gates)

    def keep(self, name: str, raw: bytes, mode: int = 0o600) -> Path:
        """Write a file of the gate that was not there. Raises WorldError."""
        with world_errors(f"write {name} of the gate {self.approval}"), self._opened() as fd:
            publish(fd, name, raw)
            os.chmod(name, mode, dir_fd=fd)
            os.fsync(fd)
        return self.path / name

    def kept(self, name: str) -> bytes | None:
        """What lies there; None unless it is a regular file. Raises WorldError."""
        with world_errors(f"read {name} of the gate {self.approval}"):
            try:
                with self._opened() as fd:
                    return read_regular(fd, name, LARGEST)
            except OSError as error:
                if error.errno in _NOT_THERE:
                    return None
                raise

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the one who acts. Raises Refused when somebody else is, or when there is no such gate."""
        try:
            with self._opened() as fd:
                lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
        except OSError as error:
            require_seen(f"the gate {self.approval}", error)
            problem = f"the gate {self.approval} cannot be entered: {error.strerror}"
            raise Refused("no-such-approval", problem, "Ask again for the action.") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused("begun-already", f"somebody is performing {self.approval} at this moment") from None
            yield
        finally:
            os.close(lock)

    def is_held(self) -> bool:
        """Whether a runner of it is alive, or that cannot be asked now: who is taken for dead is never heard again."""
        try:
            with self._opened() as fd:
                lock = os.open("lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError as error:
            return error.errno in NOT_NOW
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def orphan(self) -> Child | None:
        """The program that was run, still alive though its runner may not be. Raises WorldError."""
        return process.adopt(self.effect) if self.effect.is_dir() else None

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with directory(self.root, OURS, "gates", self.approval) as fd:
            yield fd


def read_regular(dir_fd: int, name: str, most: int) -> bytes | None:
    """A regular file, whole; None if it is none or longer than `most` bytes. Raises OSError."""
    fd = open_regular(dir_fd, name)
    if fd is None:
        return None
    try:
        raw = read_up_to(fd, most + 1)
    finally:
        os.close(fd)
    return None if len(raw) > most else raw


# ---------------------------------------------------------------------------------------------------------------------
# Lobster as the gate before an effect: the workflow, the command lines, what it answers. All pure.
#
# Lobster starts the effect step at most once for a token, and promises nothing else: its tokens are unsigned, the file
# is read again when it is resumed, and a step lives on when Lobster is killed. So the step is our runner, which asks
# the database, and nothing is ever concluded from Lobster's word alone.

_PLAIN = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Lobster's answer: `needs_approval` with the `id` to resume it by, `ok`, `cancelled`, or none with an `error`."""

    status: str
    id: str = ""
    error: str = ""


def workflow(approval: str, preview: Path, effect: Sequence[str]) -> bytes | None:
    """The workflow before one effect; None where a path has what Lobster or YAML would not leave alone.

    From the packaged template only: one in the workspace could be an agent's.
    """
    values = {"approval": approval, "preview": shlex.join(["cat", "--", str(preview)]), "effect": shlex.join(effect)}
    if any("${" in value or not value.isprintable() for value in values.values()):
        return None
    quoted = {name: value.replace("'", "''") for name, value in values.items()}
    text = Templates(None).render("approval-recovery.lobster.yaml", **quoted)
    kept = (line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return "".join(kept).encode()


def run_words(program: Sequence[str], workflow_file: Path) -> tuple[str, ...]:
    return (*program, "run", "--mode", "tool", "--file", str(workflow_file))


def resume_words(program: Sequence[str], gate: str, *, approve: bool) -> tuple[str, ...]:
    """By the id of the gate and not by its token, which everybody would see in the list of processes."""
    return (*program, "resume", "--id", gate, "--approve", "yes" if approve else "no")


def environment(environ: Mapping[str, str], state: Path) -> dict[str, str]:
    """All that Lobster and the shells of its steps are given, before what the runner needs."""
    return plain(environ) | {"LOBSTER_STATE_DIR": str(state)}


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """What the runner itself needs of an environment; its effect is given another one."""
    return {name: environ[name] for name in _PLAIN if environ.get(name)}


def read(stdout: bytes) -> Envelope:
    """The one JSON document on its standard output; anything else is an error."""
    try:
        said = json.loads(stdout)
        if said["protocolVersion"] != 1:
            return Envelope("", error=f"its protocol is version {said['protocolVersion']!r}, not 1")
        if said["ok"] is not True:
            return Envelope("", error=str(said["error"]["message"]))
        if said["status"] != "needs_approval":
            return Envelope(str(said["status"]))
        gate = said["requiresApproval"]["approvalId"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Envelope("", error="it gave no answer that can be read")
    if not isinstance(gate, str) or not _ID.fullmatch(gate):
        return Envelope("", error="it gave its gate an id that is none")
    return Envelope("needs_approval", id=gate)
