"""The environment of a run: its directory, the agent's program, its sizes, and progress messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.processes import Broken

if TYPE_CHECKING:
    from bench.daemon import Daemon

MAILBOXD = Path(sys.executable).parent / "mailboxd"
_TMPFS = Path("/dev/shm")
TRUE = shutil.which("true") or "/bin/true"


@dataclass(slots=True)
class Workshop:
    """`root` is removed only at the end: on an ext4 without a journal, creating files is slower for minutes after
    others were removed. `quick`: fewer repetitions and smaller sizes.
    """

    root: Path
    quick: bool
    agent: Path
    peers: Path
    """The Python of the environment in which the peers are installed."""
    history: Daemon | None = None
    """A stopped daemon whose workspace has a long history."""

    @staticmethod
    def open(base: Path, peers: Path, *, quick: bool) -> Workshop:
        """Make a directory below `base`, which should be on a disk: on tmpfs a sync costs nothing. Raises Broken."""
        base = base.resolve()
        base.mkdir(parents=True, exist_ok=True)
        for left in base.glob("run-*"):  # of a bench that was killed
            if not Path("/proc", left.name.split("-")[1]).exists():
                shutil.rmtree(left, ignore_errors=True)
        root = Path(tempfile.mkdtemp(prefix=f"run-{os.getpid()}-", dir=base))
        # else each workspace leaves a row in the user's account of what is spent, which every daemon of theirs reads
        os.environ["XDG_STATE_HOME"] = str(root / "state")
        agent = root / "agent"
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise Broken("no C compiler (cc, gcc, clang): the agent's program of the bench has to be built")
        subprocess.run([compiler, "-O2", "-o", agent, Path(__file__).with_name("agent.c")], check=True)
        return Workshop(root, quick, agent, peers)

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @contextmanager
    def on_tmpfs(self) -> Iterator[Workshop]:
        """The same environment in a directory on tmpfs. Raises Broken."""
        if not os.access(_TMPFS, os.W_OK):
            raise Broken(f"{_TMPFS} cannot be written")
        with tempfile.TemporaryDirectory(prefix="mailboxd-bench-", dir=_TMPFS) as root:
            yield replace(self, root=Path(root))

    def pick(self, quick: int, full: int) -> int:
        """A size or a number of repetitions."""
        return quick if self.quick else full

    def place(self, name: str) -> Path:
        """A new, empty directory."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root))


_begun = time.monotonic()


def say(text: str) -> None:
    """Print progress."""
    print(f"[{time.monotonic() - _begun:6.1f} s] {text}", file=sys.stderr, flush=True)


def bare_spawn(argv: list[str], count: int, at_once: int) -> float:
    """Seconds per process when `count` processes are run, `at_once` at a time: the floor for every scheduler."""

    def work(share: int) -> None:
        for _ in range(share):
            subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
            )

    shares = [count // at_once + (place < count % at_once) for place in range(at_once)]
    begun = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(work, shares))
    return (time.perf_counter() - begun) / count


def drop(inbox: Path, name: str, raw: bytes) -> None:
    """Put a complete file into an inbox, by renaming it in; not synced."""
    hidden = inbox / f".{name}.tmp"
    hidden.write_bytes(raw)
    hidden.rename(inbox / name)


def deliver(directory: Path, name: str, raw: bytes) -> None:
    """Deliver a file durably: write, fsync, rename, fsync of the directory."""
    hidden = directory / f".{name}.tmp"
    with hidden.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    hidden.rename(directory / name)
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
