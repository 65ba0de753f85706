"""The system calls underneath, each against the real kernel."""

from __future__ import annotations

import errno
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.errors import WorldError
from mailboxd.formats.mailbox.files import (
    creating,
    directory,
    hidden_name,
    move,
    move_by_link,
    open_regular,
    publish,
    publish_by_name,
    read_up_to,
    replace,
    world_errors,
    write,
)
from mailboxd.host.system import system

Move = Callable[[int, str, int, str], None]
Publish = Callable[[int, str, bytes], None]


@pytest.mark.parametrize("how", [move, move_by_link])
def test_a_move_never_replaces_anything(tmp_path: Path, how: Move) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")

    with directory(tmp_path) as fd:
        with pytest.raises(FileExistsError):
            how(fd, "a", fd, "b")
        how(fd, "a", fd, "c")

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"b": "b", "c": "a"}


@pytest.mark.parametrize("how", [move, move_by_link])
def test_a_move_takes_links_pipes_and_directories_as_they_are(tmp_path: Path, how: Move) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir" / "inside").mkdir(parents=True)

    with directory(tmp_path) as fd:
        for name in ("link", "fifo", "dir"):
            how(fd, name, fd, name + "2")

    assert (tmp_path / "link2").readlink() == Path("nowhere")
    assert (tmp_path / "fifo2").is_fifo()
    assert (tmp_path / "dir2" / "inside").is_dir()
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("how", [move, move_by_link])
def test_a_directory_is_not_moved_onto_another(tmp_path: Path, how: Move) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    with directory(tmp_path) as fd, pytest.raises(FileExistsError):
        how(fd, "a", fd, "b")


@pytest.mark.parametrize("how", [publish, publish_by_name])
def test_publishing_makes_a_private_file_and_never_replaces_one(tmp_path: Path, how: Publish) -> None:
    with directory(tmp_path) as fd:
        how(fd, "x.md", b"one")
        with pytest.raises(FileExistsError):
            how(fd, "x.md", b"two")

    assert [path.name for path in tmp_path.iterdir()] == ["x.md"]
    assert (tmp_path / "x.md").read_bytes() == b"one"
    assert (tmp_path / "x.md").stat().st_mode & 0o777 == 0o600


def test_replacing_asks_first_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "task.md").write_bytes(b"theirs")

    with directory(tmp_path) as fd:
        assert replace(fd, "task.md", b"ours", lambda: False) is None
        assert (tmp_path / "task.md").read_bytes() == b"theirs"
        stamp = replace(fd, "task.md", b"ours", lambda: True)

    assert stamp is not None
    assert stamp.ino == (tmp_path / "task.md").stat().st_ino
    assert [path.name for path in tmp_path.iterdir()] == ["task.md"]


@pytest.mark.parametrize("has_unnamed", [True, False])
def test_a_file_that_is_written_piece_by_piece_appears_whole_or_not_at_all(
    tmp_path: Path, has_unnamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "no unnamed files")

    if not has_unnamed:
        monkeypatch.setattr(system, "open_unnamed", none)
    whole = tmp_path / "whole"
    whole.write_bytes(b"another's")
    os.mkfifo(tmp_path / hidden_name("whole"))
    with directory(tmp_path) as fd:
        with pytest.raises(TypeError), creating(fd, "broken") as file:
            write(file, b"half of ", "and more")  # type: ignore[call-arg]
        with creating(fd, "whole") as file:
            for piece in (b"half of ", b"it"):
                write(file, piece)
                assert whole.read_bytes() == b"another's"
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    assert whole.read_bytes() == b"half of it"
    assert whole.stat().st_mode & 0o777 == 0o600


def test_a_trap_under_the_hidden_name_is_removed_not_opened(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    for trap in (lambda path: os.mkfifo(path), lambda path: path.symlink_to(victim)):
        trap(tmp_path / hidden_name("task.md"))
        with directory(tmp_path) as fd:
            replace(fd, "task.md", b"ours", lambda: True)

    assert victim.read_bytes() == b"mine"
    assert (tmp_path / "task.md").read_bytes() == b"ours"


def test_a_writer_is_seen_as_long_as_it_has_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    with path.open("wb"):
        fd = os.open(path, os.O_RDONLY)
        assert system.is_being_written(fd) is True
    assert system.is_being_written(fd) is False
    with path.open("rb"):
        assert system.is_being_written(fd) is False
    os.close(fd)


def test_a_writer_that_appears_during_the_check_kills_nothing(tmp_path: Path) -> None:
    """The kernel signals the holder of a lease when somebody opens the file: SIGIO would be the end of us."""
    path = tmp_path / "x.md"
    path.touch()
    program = "import sys\nprint('go', flush=True)\nwhile True: open(sys.argv[1], 'ab').close()"
    writer = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        answers = {system.is_being_written(fd) for _ in range(20_000)}
    finally:
        os.close(fd)
        writer.kill()
        writer.communicate()

    assert answers <= {True, False}


def test_only_regular_files_are_opened_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "dir").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))

    with directory(tmp_path) as fd:
        assert [open_regular(fd, name) for name in ("fifo", "link", "dir", "socket", "none")] == [None] * 5
    listener.close()


def test_reading_stops_where_it_was_told_to(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    fd = os.open(path, os.O_RDONLY)

    assert len(read_up_to(fd, 100)) == 100
    os.close(fd)


def test_a_directory_is_never_reached_through_a_link_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    with directory(tmp_path, "real"):
        pass
    with pytest.raises(OSError, match="link"), directory(tmp_path, "link"):
        pass


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    gc.collect()  # what other tests have left is closed now, and not while this one counts
    before = len(list(Path("/proc/self/fd").iterdir()))
    with directory(tmp_path, "a") as fd:
        publish(fd, "x", b"x")
        replace(fd, "x", b"y", lambda: True)
    for _ in range(3):
        with pytest.raises(FileNotFoundError), directory(tmp_path, "a", "b"):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_forbidden_directory_comes_with_advice() -> None:
    with (
        pytest.raises(WorldError, match=r"cannot read the inbox: Permission denied .*chmod"),
        world_errors("read the inbox"),
    ):
        raise PermissionError(13, "Permission denied")
