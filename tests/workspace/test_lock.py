"""One daemon per workspace, whatever anybody deletes and by whatever way they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailboxd.errors import EXIT_LOCKED, LockedError
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.lock import acquire, holder

NOW = "2026-11-21T02:07:53.120Z"

DAEMON = """
import sys
from pathlib import Path
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.lock import acquire
with acquire(Workspace(Path(sys.argv[1])), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


@contextmanager
def daemon(ws: Workspace) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", DAEMON, str(ws.root), NOW]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
        child.kill()


def test_a_second_daemon_is_told_the_pid_of_the_first(ws: Workspace) -> None:
    with daemon(ws) as first, pytest.raises(LockedError, match=f"pid {first.pid} .* since {NOW}") as refused:
        acquire(ws, NOW)

    assert refused.value.exit_code == EXIT_LOCKED


def test_the_holder_is_known_without_disturbing_it(ws: Workspace) -> None:
    assert holder(ws) is None
    with daemon(ws) as first:
        assert holder(ws) == first.pid
        assert holder(ws) == first.pid
    assert holder(ws) is None


def test_the_lock_ends_with_its_process_however_it_dies(ws: Workspace) -> None:
    with daemon(ws) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        acquire(ws, NOW).release()


def test_deleting_every_file_of_ours_does_not_open_the_lock(ws: Workspace) -> None:
    with acquire(ws, NOW):
        ws.daemon_file.unlink()
        with pytest.raises(LockedError, match="did not say its pid"):
            acquire(ws, NOW)
        assert holder(ws) == 0


def test_the_lock_holds_through_a_link_to_the_workspace(
    ws: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("other") / "link"
    link.symlink_to(ws.root)

    with acquire(ws, NOW), pytest.raises(LockedError):
        acquire(Workspace(link), NOW)


def test_a_released_lock_can_be_taken_again(ws: Workspace) -> None:
    lock = acquire(ws, NOW)
    lock.release()
    lock.release()

    with acquire(ws, NOW):
        assert holder(ws) == os.getpid()


def test_asking_who_holds_it_never_keeps_a_daemon_from_starting(ws: Workspace) -> None:
    program = (
        "import sys; from pathlib import Path; from mailboxd.workspace.layout import Workspace;"
        "from mailboxd.workspace.lock import holder\nprint('go', flush=True)\n"
        "while True: holder(Workspace(Path(sys.argv[1])))"
    )
    asking = subprocess.Popen([sys.executable, "-c", program, str(ws.root)], stdout=subprocess.PIPE)
    try:
        assert asking.stdout is not None
        asking.stdout.readline()
        for _ in range(300):
            acquire(ws, NOW).release()
    finally:
        asking.kill()
        asking.communicate()


def test_nonsense_in_the_daemon_file_only_costs_the_pid(ws: Workspace) -> None:
    with acquire(ws, NOW):
        for nonsense in (b"", b"[1]", b'{"pid": "x"}', b"\xff"):
            ws.daemon_file.write_bytes(nonsense)
            assert holder(ws) == 0
