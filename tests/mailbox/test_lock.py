"""One daemon per workspace, whatever anybody deletes and by whatever way they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailboxd.errors import EXIT_LOCKED, LockedError
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.lock import acquire, holder

NOW = "2026-11-21T02:07:53.120Z"

DAEMON = """
import sys
from pathlib import Path
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.lock import acquire
with acquire(Workspace(Path(sys.argv[1])), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


KILLED_WHILE_IT_STARTS_SOMETHING = """
import os, select, signal, sys
from pathlib import Path
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.lock import acquire
lock = acquire(Workspace(Path(sys.argv[1])), sys.argv[2])
if os.fork() == 0:  # all descriptors are still open, as between fork and exec
    os.close(1)
    sys.stdin.read()
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
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


def test_a_second_daemon_reports_the_pid_of_the_first(ws: Workspace) -> None:
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
        with pytest.raises(LockedError, match="whose pid is unknown"):
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


def test_asking_for_the_holder_never_prevents_a_start(ws: Workspace) -> None:
    program = (
        "import sys; from pathlib import Path; from mailboxd.formats.mailbox.layout import Workspace;"
        "from mailboxd.formats.mailbox.lock import holder\nprint('go', flush=True)\n"
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


def test_the_lock_of_a_dead_daemon_is_waited_for_until_its_last_child_lets_go(ws: Workspace) -> None:
    """`rebuild --replace` right after a kill -9 said now and then that the dead one was still there."""
    arguments = [sys.executable, "-c", KILLED_WHILE_IT_STARTS_SOMETHING, str(ws.root), NOW]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as killed:
        assert killed.wait() == -signal.SIGKILL
        assert holder(ws) == killed.pid, "its child has the lock"
        assert killed.stdin is not None
        timer = threading.Timer(0.3, killed.stdin.close)
        timer.start()
        acquire(ws, NOW).release()
        timer.join()


def test_a_dead_daemon_whose_child_never_lets_go_is_not_waited_for_for_ever(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 3)
    arguments = [sys.executable, "-c", KILLED_WHILE_IT_STARTS_SOMETHING, str(ws.root), NOW]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as killed:
        assert killed.wait() == -signal.SIGKILL
        with pytest.raises(LockedError):
            acquire(ws, NOW)
