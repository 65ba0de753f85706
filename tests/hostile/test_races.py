"""Somebody who may write in the workspace swaps files and directories for links, as fast as it can, while we work.

It wants us to read a secret outside, or to write outside. It never gets either, the daemon survives it, and once it
stops everything goes on.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import (
    Found,
    found,  # noqa: F401 - the fixture
)
from tests.e2e.support import Agent, eventually, message, task

pytestmark = pytest.mark.slow

SECONDS = 0.7
SECRET = "the combination is 4-8-15-16-23-42"


@contextmanager
def somebody(swap: Callable[[], None]) -> Iterator[None]:
    """`swap` over and over in a thread of its own."""
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            with suppress(OSError):
                swap()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def exchanged(path: Path, elsewhere: Path, aside: Path) -> Callable[[], None]:
    """Puts a link to `elsewhere` in the place of a directory for a moment, then the directory again."""

    def swap() -> None:
        path.rename(aside)
        try:
            path.symlink_to(elsewhere)
            time.sleep(0.002)
            path.unlink()
        finally:
            aside.rename(path)

    return swap


def mail(number: int) -> str:
    """Now and then a task, which is worked on and answered; else something that is only judged and filed."""
    return message("cancel", f"c{number}") if number % 10 else task(f"t{number}", sender="beta", subtask_id="x")


def contents(top: Path) -> dict[str, str]:
    return {str(p.relative_to(top)): hashlib.sha256(p.read_bytes()).hexdigest() for p in top.rglob("*") if p.is_file()}


def everything(agent: Agent) -> bytes:
    read = b""
    for folder, _, names in os.walk(agent.root):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):  # what a call has left is removed while we look, as `walk` expects
                read += path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    return read


@pytest.mark.parametrize("kind", ["symbolic", "to a pipe"])
def test_a_file_that_becomes_a_link_between_two_scans_is_never_followed(
    found: Found,  # noqa: F811
    tmp_path: Path,
    kind: str,
) -> None:
    company = found({"alpha": {"default": {"reply": "Text."}}})
    alpha = company["alpha"]
    secret = tmp_path / "secret.md"
    secret.write_text(task("stolen", SECRET))
    good, link, target = (alpha.root / name for name in ("good.tmp", "link.tmp", "pipe.tmp"))
    os.mkfifo(target)
    count = 0

    def swap() -> None:
        nonlocal count
        count += 1
        good.write_text(mail(count))
        link.symlink_to(secret if kind == "symbolic" else target)
        good.rename(alpha.inbox / "x.md")
        link.rename(alpha.inbox / "x.md")

    alpha.start()
    with somebody(swap):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(0.1)
            assert alpha.process is not None
            assert alpha.process.poll() is None, alpha.last_words()
    (alpha.inbox / "x.md").unlink(missing_ok=True)
    alpha.drop("after.md", task("after"))
    alpha.until("after")
    assert count > 20
    assert "stolen" not in alpha.phases()
    assert SECRET.encode() not in everything(alpha)
    assert "Traceback" not in alpha.log.read_text()


@pytest.mark.parametrize(
    "place", ["mailbox", "mailbox/inbox", "mailbox/archive", "mailbox/outbox", "tasks", "tasks/live"]
)
def test_a_directory_that_becomes_a_link_between_two_scans_is_never_written_through(
    found: Found,  # noqa: F811
    tmp_path: Path,
    place: str,
) -> None:
    company = found({"alpha": {"default": {"reply": "Text."}}}, limits={"turns": 4, "turns_per_agent": 4})
    alpha = company["alpha"]
    elsewhere = tmp_path / "elsewhere"
    for name in ("inbox", "outbox", "archive", "rejected", "live"):
        (elsewhere / name).mkdir(parents=True)
    (elsewhere / "stolen.md").write_text(task("stolen", SECRET))
    (elsewhere / "inbox" / "stolen.md").write_text(task("stolen", SECRET))
    (elsewhere / "task.md").write_text("---\ntask_id: live\nmode: direct\nstatus: pending\n---\n\n# Task: x\n")
    before = contents(elsewhere)
    alpha.start()
    alpha.drop("live.md", task("live"))
    alpha.until("live")
    count = 0
    with somebody(exchanged(alpha.root / place, elsewhere, tmp_path / "aside")):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            count += 1
            with suppress(OSError):
                alpha.drop(f"{count}.md", mail(count))
            time.sleep(0.05)
            assert alpha.process is not None
            assert alpha.process.poll() is None, alpha.last_words()
    alpha.drop("after.md", task("after"))
    alpha.until("after")
    eventually(alpha.has_nothing_to_do, 30, alpha.last_words)
    stolen = {name for name in contents(elsewhere).items() ^ before.items() if "stolen" not in name[0]}
    # what the test itself dropped while the inbox was the link lies there, unread
    dropped = {hashlib.sha256(mail(number).encode()).hexdigest() for number in range(count + 1)}
    assert {name for name, digest in stolen if digest not in dropped} == set()
    assert contents(elsewhere).items() >= before.items()
    assert "stolen" not in alpha.phases()
    assert "Traceback" not in alpha.log.read_text()
