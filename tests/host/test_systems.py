"""Each function of `host.linux`, and of `host.portable`, which has to do the same on any system, run on this one."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mailboxd.host import linux, portable
from mailboxd.host.linux import File

SYSTEMS = pytest.mark.parametrize("system", [linux, portable], ids=["linux", "portable"])


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that leads a session and has `out` open for writing and `in` for reading."""
    (tmp_path / "in").write_bytes(b"")
    with (tmp_path / "out").open("wb") as out, (tmp_path / "in").open("rb") as read:
        popen = subprocess.Popen(["sleep", "100"], stdout=out, stdin=read, start_new_session=True)
    yield popen
    popen.kill()
    popen.wait()


def file(path: Path) -> set[File]:
    return {(path.stat().st_dev, path.stat().st_ino)}


def test_both_have_the_same_functions() -> None:
    def functions(module: ModuleType) -> set[str]:
        return {name for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__}

    missing = functions(linux) - functions(portable)
    assert {name for name in missing if not name.startswith("_")} == {"parse_mounts"}


@SYSTEMS
def test_the_end_of_a_process_is_seen_whether_it_is_reaped_or_not(
    system: ModuleType, sleeper: subprocess.Popen[bytes]
) -> None:
    watched = system.watch(sleeper.pid)
    try:
        assert select.select([watched], [], [], 0)[0] == []
        assert system.session(sleeper.pid) == sleeper.pid
        system.kill_watched(watched, sleeper.pid)
        assert select.select([watched], [], [], 20)[0] == [watched]
        assert system.session(sleeper.pid) is None
        sleeper.wait()
        system.kill_watched(watched, sleeper.pid)
    finally:
        os.close(watched)
    with pytest.raises(ProcessLookupError):
        system.watch(sleeper.pid)


@SYSTEMS
def test_a_process_ends_with_its_parent(system: ModuleType) -> None:
    """It is born as a child of one that is killed."""
    code = f"""if True:
        import os, signal
        from {system.__name__} import end_with_parent
        parent, (read, write) = os.getpid(), os.pipe()
        if not os.fork():
            end_with_parent(parent)
            os.write(write, b"!")
            signal.pause()
        os.read(read, 1)
        os.kill(parent, signal.SIGKILL)
    """
    # both have the pipe: its end is the end of the second one
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, b"", b"")


@SYSTEMS
def test_a_process_is_known_by_its_start_and_what_it_has_open(
    system: ModuleType, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert sleeper.pid in system.pids()
    assert system.start_time(sleeper.pid) == system.start_time(sleeper.pid) != system.start_time(os.getpid())
    assert system.opens(sleeper.pid, file(tmp_path / "out"))
    assert system.opens(sleeper.pid, file(tmp_path / "out"), to_write=True)
    assert system.opens(sleeper.pid, file(tmp_path / "in"))
    assert not system.opens(sleeper.pid, file(tmp_path / "in"), to_write=True)
    assert not system.opens(sleeper.pid, file(tmp_path))
    assert system.command_line(sleeper.pid) == b"sleep\0" + b"100\0"
    assert system.boot_id() == system.boot_id() != ""


@SYSTEMS
def test_a_socket_has_an_address_however_long_its_path(system: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for path in (tmp_path / "s", folder / "s"):
            with system.socket_address(path) as address, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
                receiver.bind(address)
                sender.sendto(b"!", address)
                assert receiver.recv(1) == b"!"
            assert path.is_socket()


@SYSTEMS
def test_files_and_file_systems(system: ModuleType, tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as one:
        system.sync(one.fileno())
        system.sync_data(one.fileno())
        assert Path(system.path_of(one.fileno())).samefile(tmp_path / "a")
    assert any(tmp_path.is_relative_to(point) for point, _ in system.mounts())
    assert system.network_kind(tmp_path) in {"", "9p", "FUSE"}
    assert (system.available_memory() or 0) > 1 << 20
    mounts = system.Mounts()
    assert select.select([mounts], [], [], 0)[0] == []
    mounts.drain()
    mounts.close()


def test_a_file_without_a_name_and_a_lease_are_linux_alone(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as one, (tmp_path / "a").open("rb") as other:
        assert portable.is_being_written(other.fileno()) is None
        assert linux.is_being_written(other.fileno()) is True
        one.close()
        assert linux.is_being_written(other.fileno()) is False
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="not supported"):
            portable.open_unnamed(folder)
        assert portable.rename_new(folder, "a", folder, "b") is False
        assert linux.rename_new(folder, "a", folder, "b") is True
    finally:
        os.close(folder)


def test_a_switch_chooses_the_portable_functions() -> None:
    code = "from mailboxd.host.system import system; print(system.__name__)"
    for value, name in (("1", "mailboxd.host.portable"), ("0", "mailboxd.host.linux")):
        environ = {**os.environ, "MAILBOXD_PORTABLE": value}
        assert subprocess.check_output([sys.executable, "-c", code], env=environ, text=True).strip() == name


def test_a_signal_to_a_process_that_is_watched_does_not_reap_it(sleeper: subprocess.Popen[bytes]) -> None:
    watched = portable.watch(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGTERM)
    assert select.select([watched], [], [], 20)[0] == [watched]
    os.close(watched)
    assert sleeper.wait(5) == -signal.SIGTERM


LINUX = re.compile(
    r"os\.(fsync|fdatasync|pidfd_open|pipe2|O_TMPFILE)|F_SETLEASE|pidfd_send_signal|SOCK_(SEQPACKET|NONBLOCK)|syncfs\("
)


def test_nothing_outside_of_host_uses_what_linux_alone_offers() -> None:
    package = Path(linux.__file__).parents[1]
    found = [
        f"{file.relative_to(package)}: {line.strip()}"
        for file in package.rglob("*.py")
        if "host" not in file.parts
        for line in file.read_text(encoding="utf-8").splitlines()
        if LINUX.search(line)
    ]
    assert found == []
