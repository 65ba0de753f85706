"""The watcher says "look". Real inotify; the only clock is the argument of `check`."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import clock_gettime, monotonic, pthread_getcpuclockid, sleep

import pytest
from watchdog.utils import BaseThread

from mailboxd.core.entrance import Entrance, Way
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import deliver
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.formats.mailbox.watcher import Watcher
from mailboxd.host.wakeup import Wake, WakeReason
from tests.mailbox.moving import archive, reject

PATIENCE = 10.0
"""Seconds until a test gives up on an event; it comes within a millisecond."""


class Sleeper:
    """Sleeps as the daemon does, counts what ends its sleep, and waits for it."""

    def __init__(self, ws: Workspace) -> None:
        self.pokes = 0
        self.now = 0.0
        self.ws = ws
        self.selector = selectors.DefaultSelector()
        self.wake = Wake(self.selector, ws.root)
        self.watcher = Watcher(ws, self.wake)

    def woken_by(self, action: Callable[[], object]) -> bool:
        """Whether `action` ends a sleep."""
        if not self.watcher.reason:
            assert self.proven()  # all that came before is reported
        self.take()
        action()
        return self.wake.wait(PATIENCE).mail

    def take(self) -> None:
        """Forget what has been reported until now."""
        self.pokes += self.wake.wait(0.0).mail

    def quiet(self, action: Callable[[], object]) -> bool:
        """Whether nothing is reported of `action`: a probe after it is, and events keep their order."""
        assert self.proven()
        self.take()
        before = self.pokes
        action()
        assert self.proven()
        self.take()
        return self.pokes == before

    def proven(self) -> bool:
        """Let time pass until the watcher tests itself, and wait until both probes were reported."""
        self.now += 30.0
        self.watcher.check(self.now)
        deadline = monotonic() + PATIENCE
        while self.watcher._unconfirmed and monotonic() < deadline:
            sleep(0.001)
        return not self.watcher._unconfirmed

    def close(self) -> None:
        self.watcher.close()
        self.wake.close()
        self.selector.close()


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


@pytest.fixture
def sleeper(ws: Workspace) -> Iterator[Sleeper]:
    sleeper = Sleeper(ws)
    sleeper.watcher.start(0.0)
    yield sleeper
    sleeper.close()


def test_the_watcher_tests_itself(sleeper: Sleeper) -> None:
    assert sleeper.proven()
    assert not sleeper.watcher.check(sleeper.now + 29.0)
    assert sleeper.watcher.reason == ""
    assert sleeper.pokes == 0
    assert [path.name for path in sleeper.ws.inbox.iterdir()] == []


def test_every_way_to_add_a_file_is_noticed(sleeper: Sleeper, tmp_path: Path) -> None:
    inbox = sleeper.ws.inbox
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("x")
    hidden = inbox / ".x.tmp"
    hidden.write_text("x")

    assert sleeper.woken_by(lambda: (inbox / "plain.md").write_text("x"))
    assert sleeper.woken_by(lambda: hidden.rename(inbox / "renamed.md"))
    assert sleeper.woken_by(lambda: (inbox / "linked.md").hardlink_to(elsewhere))
    assert sleeper.woken_by(lambda: elsewhere.rename(inbox / "moved.md"))
    assert sleeper.woken_by(lambda: deliver(inbox, "delivered.md", b"x"))
    assert sleeper.woken_by(lambda: os.mkfifo(inbox / "pipe"))
    assert sleeper.woken_by(lambda: (inbox / "link").symlink_to("nowhere"))
    assert sleeper.woken_by(lambda: (inbox / os.fsdecode(b"\xff")).touch())


def test_a_rename_is_distinguished_from_all_other_ways_to_add_a_file(sleeper: Sleeper, tmp_path: Path) -> None:
    inbox = sleeper.ws.inbox
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("x")

    def renamed(action: Callable[[], object]) -> set[str]:
        assert sleeper.woken_by(action)
        assert sleeper.proven()  # all of its events are reported
        return {name for name, came in sleeper.watcher.arrived().items() if came.way is Way.RENAMED}

    def append() -> None:
        (inbox / ".late.tmp").write_text("x")
        (inbox / ".late.tmp").rename(inbox / "late.md")
        with (inbox / "late.md").open("a") as file:
            file.write("more")

    assert renamed(lambda: (inbox / "plain.md").write_text("x")) == set()
    assert renamed(lambda: (inbox / "linked.md").hardlink_to(elsewhere)) == set()
    assert renamed(lambda: shutil.copy2(elsewhere, inbox / "copied.md")) == set()
    assert renamed(lambda: elsewhere.rename(inbox / "moved.md")) == {"moved.md"}
    assert renamed(lambda: (inbox / "moved.md").rename(inbox / "again.md")) == {"again.md"}
    assert renamed(lambda: deliver(inbox, "delivered.md", b"x", renamed=True)) == {"delivered.md"}
    assert renamed(append) == set()
    assert sleeper.watcher.arrived() == {}


def test_the_program_that_a_file_is_prepared_by_is_noticed_with_its_rename(sleeper: Sleeper, tmp_path: Path) -> None:
    inbox = sleeper.ws.inbox

    def came(action: Callable[[], object]) -> dict[str, Entrance]:
        assert sleeper.woken_by(action)
        assert sleeper.proven()
        return {name: how for name, how in sleeper.watcher.arrived().items() if name.endswith(".md")}

    def forge() -> None:
        (tmp_path / ".mailboxd-root-1.tmp").write_text("x")
        (tmp_path / ".mailboxd-root-1.tmp").rename(inbox / "forged.md")

    by_hub = came(lambda: deliver(inbox, "a.md", b"x", renamed=True, program="hub"))
    assert by_hub == {"a.md": Entrance(None, Way.RENAMED, "hub")}
    assert came(lambda: deliver(inbox, "b.md", b"y", renamed=True)) == {"b.md": Entrance(None, Way.RENAMED)}
    assert came(forge) == {"forged.md": Entrance(None, Way.RENAMED)}
    assert came(lambda: (inbox / "plain.md").write_text("x")) == {"plain.md": Entrance(None, Way.IN_PLACE)}


def test_the_end_of_a_slow_writer_is_noticed_and_its_writes_are_not(sleeper: Sleeper) -> None:
    writer = (sleeper.ws.inbox / ".slow").open("wb", buffering=0)
    (sleeper.ws.inbox / ".slow").rename(sleeper.ws.inbox / "slow.md")
    assert sleeper.woken_by(lambda: (sleeper.ws.inbox / "other.md").touch())

    def write() -> None:
        for _ in range(100):
            writer.write(b"more")

    assert sleeper.quiet(write)
    assert sleeper.woken_by(writer.close)


def test_reads_temporary_files_and_own_moves_are_not_noticed(sleeper: Sleeper) -> None:
    ws = sleeper.ws
    for name in ("read.md", "archived.md", "rejected.md", "deleted.md"):
        assert sleeper.woken_by(lambda name=name: (ws.inbox / name).write_bytes(b"text"))  # type: ignore[misc]
    assert sleeper.quiet(lambda: None)

    def ours() -> None:
        (ws.inbox / "read.md").read_bytes()
        list(ws.inbox.iterdir())
        (ws.inbox / ".hidden").write_text("x")
        (ws.inbox / "x.md~").write_text("x")
        archive(ws, "archived.md", None, b"text", "2026-11-21", lambda path: False)
        reject(ws, "rejected.md", None, b"text", {"rule": "alias"}, lambda path: False)
        deliver(ws.outbox, "out.md", b"text")
        (ws.inbox / "deleted.md").unlink()

    assert sleeper.quiet(ours)


def test_a_file_that_is_moved_away_does_not_hold_back_the_next_arrival(sleeper: Sleeper) -> None:
    """watchdog waits half a second for the other half of a move; the best of five, because the machine may be busy."""

    def seconds() -> float:
        (sleeper.ws.inbox / "x.md").touch()
        assert sleeper.proven()
        sleeper.take()
        begun = monotonic()
        (sleeper.ws.inbox / "x.md").rename(sleeper.ws.root / "elsewhere")
        (sleeper.ws.inbox / "y.md").write_text("x")
        assert sleeper.wake.wait(PATIENCE).mail
        return monotonic() - begun

    assert min(seconds() for _ in range(5)) < 0.4


def test_a_temporary_file_ends_no_sleep_and_its_final_name_does(sleeper: Sleeper) -> None:
    hidden = sleeper.ws.inbox / ".x.tmp"

    assert sleeper.quiet(lambda: hidden.write_text("x"))
    hidden.rename(sleeper.ws.inbox / "x.md")
    assert sleeper.wake.wait(PATIENCE) == WakeReason(mail=True)
    assert sleeper.quiet(lambda: None)


def test_files_beside_the_inbox_wake_nothing_even_while_it_is_missing(sleeper: Sleeper) -> None:
    assert sleeper.quiet((sleeper.ws.mailbox / "prepared.md").touch)

    assert sleeper.woken_by(sleeper.ws.inbox.rmdir)
    assert sleeper.watcher.check(sleeper.now)
    assert sleeper.watcher.reason
    (sleeper.ws.mailbox / "another.md").touch()
    assert sleeper.wake.wait(0.1) == WakeReason(by_timer=True)
    assert sleeper.woken_by(sleeper.ws.inbox.mkdir)
    assert sleeper.watcher.check(sleeper.now)
    assert sleeper.proven()
    assert sleeper.watcher.reason == ""


@pytest.mark.slow
def test_watching_continues_after_more_events_than_the_kernel_keeps(sleeper: Sleeper) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 1):  # each file is made and closed
        (sleeper.ws.inbox / f".{number}").touch()

    sleep(0.5)
    assert sleeper.proven()
    assert sleeper.watcher.reason == ""
    assert sleeper.woken_by((sleeper.ws.inbox / "x.md").touch)


def test_an_edit_of_a_task_is_noticed_and_a_rendering_is_not(sleeper: Sleeper) -> None:
    files = TaskFiles(sleeper.ws)
    assert sleeper.woken_by(lambda: files.write("t1", b"rendered"))
    assert sleeper.quiet(lambda: None)
    path = sleeper.ws.tasks / "t1" / "task.md"

    assert sleeper.quiet(lambda: files.write("t1", b"rendered again"))
    assert sleeper.woken_by(lambda: path.write_text("edited"))
    assert sleeper.quiet(lambda: (path.parent / "notes.txt").write_text("an agent's own"))
    assert sleeper.woken_by(path.unlink)


def test_a_dropped_task_directory_is_noticed(sleeper: Sleeper, tmp_path: Path) -> None:
    (tmp_path / "t9").mkdir()
    (tmp_path / "t9" / "task.md").write_text("a plan")

    assert sleeper.woken_by(lambda: (tmp_path / "t9").rename(sleeper.ws.tasks / "t9"))


def watches() -> int:
    """The inotify watches of this process (proc_pid_fdinfo(5))."""
    found = 0
    for info in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # that of this listing
            found += info.read_text().count("inotify wd:")
    return found


def test_a_checkout_inside_a_task_takes_no_watches(sleeper: Sleeper, tmp_path: Path) -> None:
    task = sleeper.ws.tasks / "t1"
    checkout, elsewhere = task / "node_modules", tmp_path / "repository"
    assert sleeper.woken_by(task.mkdir)
    assert sleeper.proven()
    before = watches()

    for number in range(50):
        (checkout / f"p{number}" / "lib").mkdir(parents=True)
        (elsewhere / f"p{number}").mkdir(parents=True)
    elsewhere.rename(task / "moved")
    assert sleeper.proven()
    assert watches() == before
    assert sleeper.watcher.reason == ""
    sleeper.watcher.close()
    sleeper.watcher.start(sleeper.now)
    assert sleeper.proven()
    assert watches() == before

    assert sleeper.woken_by(lambda: (task / "task.md").write_text("a task"))
    assert sleeper.quiet(lambda: (checkout / "p1" / "task.md").write_text("no task"))
    assert sleeper.woken_by(lambda: checkout.rename(sleeper.ws.tasks / "t2"))


@pytest.mark.parametrize("what", ["inbox", "mailbox", "tasks"])
def test_a_directory_that_was_deleted_and_made_again_is_watched_again(sleeper: Sleeper, what: str) -> None:
    path = {"inbox": sleeper.ws.inbox, "mailbox": sleeper.ws.mailbox, "tasks": sleeper.ws.tasks}[what]
    shutil.rmtree(path)
    assert sleeper.watcher.check(1.0)
    assert sleeper.watcher.reason
    assert str(path.name) in sleeper.watcher.reason

    Workspace.create(sleeper.ws.root)
    assert sleeper.watcher.check(2.0)
    assert sleeper.proven()
    assert sleeper.watcher.reason == ""
    assert sleeper.woken_by(lambda: (sleeper.ws.inbox / "x.md").touch())
    assert sleeper.woken_by(lambda: (sleeper.ws.tasks / "t1").mkdir())


def test_an_inbox_that_was_renamed_and_replaced_is_watched_again(sleeper: Sleeper) -> None:
    sleeper.ws.inbox.rename(sleeper.ws.root / "old")
    sleeper.ws.inbox.mkdir()

    assert sleeper.watcher.check(1.0)
    assert sleeper.proven()
    assert sleeper.woken_by(lambda: (sleeper.ws.inbox / "x.md").touch())


def test_the_replacing_of_a_directory_is_reported(sleeper: Sleeper) -> None:
    assert sleeper.woken_by((sleeper.ws.inbox / "x.md").touch)
    assert not sleeper.watcher.check(sleeper.now)
    (sleeper.ws.inbox / "x.md").unlink()
    assert sleeper.proven()  # the file was closed after it was created: that is reported, too
    for action in (sleeper.ws.inbox.rmdir, sleeper.ws.inbox.mkdir):
        sleeper.take()
        action()
        assert sleeper.wake.wait(PATIENCE) == WakeReason(mail=True, everything=True)
        assert sleeper.watcher.check(sleeper.now)
    assert not sleeper.watcher.check(sleeper.now)


def test_a_workspace_without_directories_is_survived_and_said(tmp_path: Path) -> None:
    sleeper = Sleeper(Workspace(tmp_path))
    sleeper.watcher.start(0.0)
    sleeper.take()

    assert sleeper.watcher.reason
    assert "No such file" in sleeper.watcher.reason
    assert not sleeper.watcher.check(1.0)
    Workspace.create(tmp_path)
    assert sleeper.watcher.check(2.0)
    assert sleeper.woken_by(lambda: (sleeper.ws.inbox / "x.md").touch())
    sleeper.close()


def test_a_watcher_whose_threads_died_is_found_out_and_replaced(sleeper: Sleeper) -> None:
    assert sleeper.proven()
    assert sleeper.watcher._observer is not None
    for emitter in list(sleeper.watcher._observer.emitters):
        emitter.stop()
        emitter.join()

    assert not sleeper.watcher.check(sleeper.now + 31.0)
    assert sleeper.watcher.check(sleeper.now + 37.0)
    assert sleeper.proven()
    assert sleeper.watcher.reason == ""
    assert sleeper.woken_by(lambda: (sleeper.ws.tasks / "t1").mkdir())


@pytest.mark.slow
def test_an_observer_that_fails_to_stop_is_replaced(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once in hours of exchanging directories: watchdog raised KeyError for a path that it had forgotten."""
    stop = BaseThread.stop

    def stumble(self: BaseThread) -> None:
        stop(self)
        raise KeyError(b"tasks")

    tasks = sleeper.ws.tasks
    with monkeypatch.context() as patched:
        patched.setattr(BaseThread, "stop", stumble)
        tasks.rename(tasks.with_name("away"))
        tasks.mkdir()
        sleeper.watcher.check(sleeper.now + 1)
    assert sleeper.woken_by(lambda: (tasks / "t1").mkdir())


LIMITED = """
import os, resource, selectors, sys, time
from pathlib import Path
from mailboxd.host.wakeup import Wake
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.watcher import Watcher
ws = Workspace(Path(sys.argv[1]))
watcher = Watcher(ws, Wake(selectors.DefaultSelector(), ws.state))
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
watcher.start(0.0)
print(watcher.reason)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
print(watcher.check(10.0), watcher.check(30.0))
while watcher._unconfirmed:
    time.sleep(0.01)
print(watcher.reason)
watcher.close()
"""


def test_without_inotify_it_says_so_and_tries_again_later(ws: Workspace) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(ws.root)], capture_output=True, text=True, check=True)

    first, second, third = done.stdout.splitlines()
    assert "fs.inotify.max_user_instances" in first
    assert second == "False True"
    assert third == ""
    assert done.stderr == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_an_inbox_without_write_permission_is_reported_with_advice() -> None:
    with tempfile.TemporaryDirectory() as made:
        ws = Workspace(Path(made))
        Workspace.create(ws.root)
        for path in (ws.root, *ws.root.rglob("*")):
            os.chown(path, 65534, 65534)
        os.chown(ws.inbox, 0, 0)
        ws.inbox.chmod(0o733)
        selector = selectors.DefaultSelector()
        wake = Wake(selector, ws.state)
        watcher = Watcher(ws, wake)
        os.seteuid(65534)
        try:
            watcher.start(0.0)
        finally:
            os.seteuid(0)
            watcher.close()
            wake.close()
            selector.close()

    assert watcher.reason
    assert "chmod u+rwx" in watcher.reason


def test_starting_and_stopping_leaves_no_thread_and_no_descriptor(ws: Workspace) -> None:
    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    threads, descriptors = threading.active_count(), open_descriptors()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            sleeper = Sleeper(ws)
            sleeper.watcher.start(0.0)
            assert sleeper.proven()
            sleeper.watcher.close()
            sleeper.close()

    assert threading.active_count() == threads
    assert open_descriptors() == descriptors


@pytest.mark.slow
def test_five_thousand_files_at_once_wake_the_loop_at_least_once(sleeper: Sleeper) -> None:
    def flood() -> None:
        for number in range(5_000):
            (sleeper.ws.inbox / f"{number}.md").touch()

    assert sleeper.woken_by(flood)


@pytest.mark.slow
def test_an_idle_watcher_uses_no_processor_time(sleeper: Sleeper) -> None:
    assert sleeper.proven()
    watching = [thread for thread in threading.enumerate() if isinstance(thread, BaseThread)]
    assert watching
    before = sum(map(processor_time, watching))
    assert not threading.Event().wait(0.5)

    assert sum(map(processor_time, watching)) - before < 0.01


def processor_time(thread: threading.Thread) -> float:
    """Seconds on a processor; those of other tests' threads in this process do not count."""
    assert thread.ident is not None
    return clock_gettime(pthread_getcpuclockid(thread.ident))


def test_no_descriptor_of_the_watcher_is_passed_on_to_calls(sleeper: Sleeper) -> None:
    watching = [
        int(name)
        for name in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{name}") and "inotify" in os.readlink(f"/proc/self/fd/{name}")
    ]
    assert watching
    assert not any(map(os.get_inheritable, watching))
