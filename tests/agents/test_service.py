"""Sidecars: real processes, which are restarted when they end and exit when the daemon is gone."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mailboxd.host.listening import listen
from mailboxd.perform.agents import sidecar
from mailboxd.perform.agents.sidecar import Sidecar
from tests.e2e.support import eventually

LIVES = """
import os, sys
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
sys.stdin.read()
with open(sys.argv[1], "a") as file:
    file.write("read the end\\n")
"""
DIES = LIVES.replace("sys.stdin.read()", "sys.exit(3)")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "PAUSES", (0.01, 0.01, 0.01))


@pytest.fixture
def said(tmp_path: Path) -> Path:
    return tmp_path / "said"


def lines(said: Path) -> list[str]:
    return said.read_text().split("\n")[:-1] if said.exists() else []


@pytest.fixture
def started(said: Path) -> Iterator[Sidecar]:
    made = Sidecar("lives", [sys.executable, "-c", LIVES, str(said)], os.environ)
    eventually(lambda: lines(said))
    yield made
    made.stop()


def test_a_killed_sidecar_is_restarted(started: Sidecar, said: Path) -> None:
    os.kill(int(lines(said)[0]), signal.SIGKILL)
    eventually(lambda: len(lines(said)) == 2)


def test_a_sidecar_that_ends_at_once_is_restarted_with_delays(said: Path) -> None:
    dies = Sidecar("dies", [sys.executable, "-c", DIES, str(said)], os.environ)
    eventually(lambda: len(lines(said)) > 3)
    assert dies.trouble == "dies ended with status 3, again and again; the log says why"
    dies.stop()


def test_trouble_is_cleared_once_the_sidecar_has_run_for_a_while(said: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "_LONG_LIFE", 0.2)
    twice = LIVES.replace(
        "sys.stdin.read()", "len(open(sys.argv[1]).readlines()) < 3 and sys.exit(3); sys.stdin.read()"
    )
    came_back = Sidecar("twice", [sys.executable, "-c", twice, str(said)], os.environ)
    eventually(lambda: len(lines(said)) == 3)
    eventually(lambda: not came_back.trouble)
    came_back.stop()


def test_stop_ends_it_and_it_stays_ended(started: Sidecar, said: Path) -> None:
    [pid] = lines(said)
    started.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert lines(said) == [pid]


def test_a_program_that_is_missing_is_no_reason_to_die(caplog: pytest.LogCaptureFixture) -> None:
    missing = Sidecar("missing", ["/nowhere/at/all"], os.environ)
    eventually(lambda: "cannot be started" in caplog.text)
    missing.stop()


def test_it_reads_the_end_when_its_starter_is_killed(said: Path) -> None:
    program = (
        "import os, sys, threading\n"
        "from mailboxd.perform.agents.sidecar import Sidecar\n"
        f"Sidecar('lives', [sys.executable, '-c', {LIVES!r}, {str(said)!r}], os.environ)\n"
        "threading.Event().wait()\n"
    )
    starter = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", program])
    eventually(lambda: lines(said))
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    eventually(lambda: lines(said)[1:] == ["read the end"])


RESTS = """
import os, socket, sys
listening, memory = socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
with open(sys.argv[1], "a") as file:
    file.write(f"{os.pread(memory, 99, 0).decode()}\\n")
os.pwrite(memory, b"was here", 0)
if os.path.exists(sys.argv[1] + ".calls"):
    connection, _ = listening.accept()
    connection.sendall(b"served")
"""


@pytest.fixture
def resting(said: Path) -> Iterator[tuple[Sidecar, tuple[str, int]]]:
    """A sidecar that has looked whether there was something to do, and rests."""
    listening = listen(0, "a port")
    made = Sidecar("rests", [sys.executable, "-c", RESTS, str(said)], os.environ, lambda: listening)
    eventually(lambda: made.is_resting)
    yield made, listening.getsockname()
    made.stop()


def test_one_that_rests_is_started_for_a_caller_and_finds_what_it_left(
    resting: tuple[Sidecar, tuple[str, int]], said: Path
) -> None:
    sidecar, address = resting
    said.with_name("said.calls").touch()
    for _ in range(2):  # also of those who come while it ends, none is lost
        with socket.create_connection(address, timeout=20) as caller:
            assert caller.recv(99) == b"served"
    eventually(lambda: sidecar.is_resting)
    assert lines(said) == ["", "was here", "was here"]
    assert not sidecar.trouble


def test_one_that_rests_is_started_when_there_may_be_something_to_do(
    resting: tuple[Sidecar, tuple[str, int]], said: Path
) -> None:
    resting[0].wake()
    eventually(lambda: len(lines(said)) == 2)


def test_one_that_rests_does_not_listen_any_more_when_it_is_stopped(resting: tuple[Sidecar, tuple[str, int]]) -> None:
    sidecar, address = resting
    sidecar.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=20)


def test_a_port_that_is_taken_is_said_and_tried_again(said: Path) -> None:
    with listen(0, "a port") as other:
        port = other.getsockname()[1]
        waits = Sidecar("waits", [sys.executable, "-c", RESTS, str(said)], os.environ, partial(listen, port, "`p`"))
        eventually(lambda: "choose another `p`" in waits.trouble)
    eventually(lambda: waits.is_resting)
    waits.stop()
