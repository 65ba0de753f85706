"""Directories that are used again: nothing of one call may reach another, whatever the first one has left behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.agents.call_dir import Exit, Spares, read_exit, remove, write_prompt
from mailboxd.agents.process import State, spawn, state
from mailboxd.effects.process_table import Calls
from mailboxd.errors import WorldError
from tests.agents.test_process import ENVIRONMENT, ended

OUTLIVE = """
import os, sys, time
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        if not os.readlink(f"/proc/self/fd/{number}").endswith("/" + sys.argv[1]):
            os.close(number)
    except OSError:
        pass
open(sys.argv[2], "w").write("ready\\n")
time.sleep(100)
"""
"""A program that outlives its call: of its files it holds the one that is named, and nothing else."""
TOLD = (signal.SIGIO, signal.SIGURG)
"""By default the first one ends a process, and the second one is ignored."""
FILES = ["call", "prompt.md", "stderr", "stdout"]


@pytest.fixture
def kept(tmp_path: Path) -> Spares:
    return Spares(tmp_path)


@pytest.fixture
def leave(tmp_path: Path, groups: list[int]) -> Callable[[str], Path]:
    """Let a shell line be the first call, and end, but not what it has started in the background."""

    def left(line: str) -> Path:
        directory = tmp_path / "first"
        write_prompt(directory, b"The first prompt, which is longer than the second one.")
        child = spawn(directory, ["/bin/sh", "-c", line], ENVIRONMENT)
        groups.append(child.pid)
        ended(child)
        return directory

    return left


def inodes(directory: Path) -> set[int]:
    return {directory.stat().st_ino, *(path.stat().st_ino for path in directory.iterdir())}


def test_a_later_call_gets_the_files_of_an_earlier_one_and_nothing_that_was_in_them(
    kept: Spares, leave: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = leave("echo The first answer; echo Trouble >&2"), tmp_path / "second"
    before = inodes(first)
    kept.put(first.name)
    assert not first.exists()
    kept.take(second.name)
    monkeypatch.delattr(os, "mkdir")  # nobody tries to make what is there
    assert [path.read_bytes() for path in second.iterdir()] == [b""] * 4
    assert state(second) is State.NEVER_STARTED
    assert read_exit(second, None) == Exit(None, b"", b"")
    assert Path(write_prompt(second, b"The second.")).read_bytes() == b"The second."
    assert ended(spawn(second, ["/bin/echo", "Two"], ENVIRONMENT)) == Exit(0, b"Two\n", b"")
    assert state(second) is State.ENDED
    assert inodes(second) == before
    assert sorted(path.name for path in second.iterdir()) == FILES
    with pytest.raises(WorldError, match="started before"):
        spawn(second, ["/bin/echo", "Three"], ENVIRONMENT)


@pytest.mark.parametrize("holds", ["stdout", "stderr", "call"])
def test_what_a_program_may_still_write_to_is_given_to_nobody(
    kept: Spares, leave: Callable[[str], Path], tmp_path: Path, holds: str
) -> None:
    os.mkfifo(tmp_path / "ready")
    line = f"'{sys.executable}' '{tmp_path}/outlive.py' {holds} '{tmp_path}/ready' & read x < '{tmp_path}/ready'"
    (tmp_path / "outlive.py").write_text(OUTLIVE)
    first = leave(line)
    kept.put(first.name)
    kept.take("second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outlive.py", "ready"]


@pytest.mark.parametrize(
    "prepare",
    [
        lambda first: (first / "frames").touch(),
        lambda first: os.link(first / "stdout", first.parent / "also"),
        lambda first: (first / "stdout").chmod(0o644),
        lambda first: first.chmod(0o755),
        lambda first: ((first / "stdout").unlink(), (first / "stdout").symlink_to(first.parent / "target")),
        lambda first: os.mkfifo(first / "frames"),
    ],
    ids=["more files", "another name", "other rights", "other rights of its own", "a link", "a FIFO"],
)
def test_a_directory_that_is_not_as_we_made_it_is_removed(
    kept: Spares, leave: Callable[[str], Path], tmp_path: Path, prepare: Callable[[Path], object]
) -> None:
    (tmp_path / "target").write_bytes(b"untouched")
    first = leave("echo One")
    prepare(first)
    kept.put(first.name)
    kept.take("second")
    assert {path.name for path in tmp_path.iterdir()} <= {"target", "also"}
    assert (tmp_path / "target").read_bytes() == b"untouched"


def test_who_looks_into_a_file_while_it_is_emptied_ends_nobody(
    kept: Spares, leave: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    first = leave("echo One")
    truncate = os.ftruncate

    def looked_at(file: int, size: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        look = "import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)"
        subprocess.run([sys.executable, "-c", look, path], stderr=subprocess.DEVNULL, check=False)
        truncate(file, size)

    monkeypatch.setattr(os, "ftruncate", looked_at)
    before = {number: signal.signal(number, lambda number, _: heard.append(number)) for number in TOLD}
    try:
        kept.put(first.name)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert set(heard) == {signal.SIGURG}


def test_a_call_that_is_prepared_again_keeps_its_directory(
    kept: Spares, leave: Callable[[str], Path], tmp_path: Path
) -> None:
    kept.put(leave("echo One").name)
    write_prompt(tmp_path / "second", b"Its own.")
    kept.take("second")
    assert (tmp_path / "second" / "prompt.md").read_bytes() == b"Its own."
    kept.take("third")
    assert sorted(path.name for path in (tmp_path / "third").iterdir()) == ["call.unused", *FILES[1:]]


def test_one_that_somebody_has_removed_is_not_missed(
    kept: Spares, leave: Callable[[str], Path], tmp_path: Path
) -> None:
    first = leave("echo One")
    kept.put(first.name)
    remove(tmp_path / ".first")
    kept.take("second")
    kept.put(first.name)  # it is gone, too
    assert not list(tmp_path.iterdir())


def test_those_that_are_not_needed_go_and_so_do_those_of_an_earlier_daemon(
    leave: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / ".trn_of_an_earlier_daemon").mkdir()
    with selectors.DefaultSelector() as selector:
        calls = Calls(tmp_path, selector, {}, 1 << 20, 1.0)
        leave("echo One")
        calls.discard("first")
        calls.left_over(lambda _call: False)
        assert [path.name for path in tmp_path.iterdir()] == [".first"], "it may be needed soon"
        calls.left_over(lambda _call: False)
        assert not list(tmp_path.iterdir())
