"""The watcher says "look". Real inotify; the only clock is the one that `check` is told."""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from watchdog.utils import BaseThread

from mailboxd.host.wakeup import Wake, Woken
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.maildir import archive, deliver, reject
from mailboxd.mailbox.task_files import TaskFiles
from mailboxd.mailbox.watcher import TasksEar, Watcher

PATIENCE = 10.0
"""Seconds until a test gives up on an event; it comes within a millisecond."""


class Ears:
    """Sleeps as the daemon does, counts what a watcher says, and can wait for it."""

    def __init__(self, ws: Workspace) -> None:
        self.pokes = 0
        self.now = 0.0
        self.ws = ws
        self.selector = selectors.DefaultSelector()
        self.wake = Wake(self.selector, ws.root)
        self.watcher = Watcher(ws, self.selector, self.poke)

    def poke(self) -> None:
        self.pokes += 1
        self.wake.poke()

    def hear(self, action: Callable[[], object]) -> bool:
        """Whether `action` ends a sleep."""
        self.take()
        action()
        return self.wake.wait(PATIENCE, self.watcher, monotonic).mail

    def take(self) -> None:
        """What has happened until now is no news any more."""
        self.pokes += self.wake.wait(0.0, self.watcher, monotonic).mail

    def quiet(self, action: Callable[[], object]) -> bool:
        """Whether nothing is heard of `action`: a probe after it is heard, and events keep their order."""
        assert self.proven()
        self.take()
        before = self.pokes
        action()
        self.take()
        assert self.proven()
        return self.pokes == before

    def proven(self) -> bool:
        """Lets time pass until the watcher proves itself, and waits until both trees were heard."""
        self.now += 30.0
        self.watcher.check(self.now)
        return all(ear.heard.wait(PATIENCE) for ear in self.watcher._ears)

    def disturbed(self) -> bool:
        return self.watcher.is_disturbed

    def close(self) -> None:
        self.watcher.close()
        self.wake.close()
        self.selector.close()


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


@pytest.fixture
def ears(ws: Workspace) -> Iterator[Ears]:
    ears = Ears(ws)
    ears.watcher.start(0.0)
    yield ears
    ears.close()


def test_the_watcher_proves_that_it_hears(ears: Ears) -> None:
    assert ears.proven()
    assert not ears.watcher.check(ears.now + 29.0)
    assert ears.watcher.reason == ""
    assert ears.pokes == 0
    assert [path.name for path in ears.ws.inbox.iterdir()] == []


def test_every_way_to_bring_a_file_is_heard(ears: Ears, tmp_path: Path) -> None:
    inbox = ears.ws.inbox
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("x")
    hidden = inbox / ".x.tmp"
    hidden.write_text("x")

    assert ears.hear(lambda: (inbox / "plain.md").write_text("x"))
    assert ears.hear(lambda: hidden.rename(inbox / "renamed.md"))
    assert ears.hear(lambda: (inbox / "linked.md").hardlink_to(elsewhere))
    assert ears.hear(lambda: elsewhere.rename(inbox / "moved.md"))
    assert ears.hear(lambda: deliver(inbox, "delivered.md", b"x"))
    assert ears.hear(lambda: os.mkfifo(inbox / "pipe"))
    assert ears.hear(lambda: (inbox / "link").symlink_to("nowhere"))
    assert ears.hear(lambda: (inbox / os.fsdecode(b"\xff")).touch())


def test_a_rename_is_told_apart_from_all_other_ways_to_bring_a_file(ears: Ears, tmp_path: Path) -> None:
    inbox = ears.ws.inbox
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("x")

    def renamed(action: Callable[[], object]) -> set[str]:
        assert ears.hear(action)
        return ears.watcher.renamed()

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
    assert ears.watcher.renamed() == set()


def test_the_end_of_a_slow_writer_is_heard_and_its_writing_is_not(ears: Ears) -> None:
    writer = (ears.ws.inbox / ".slow").open("wb", buffering=0)
    (ears.ws.inbox / ".slow").rename(ears.ws.inbox / "slow.md")
    assert ears.hear(lambda: (ears.ws.inbox / "other.md").touch())

    def write() -> None:
        for _ in range(100):
            writer.write(b"more")

    assert ears.quiet(write)
    assert ears.hear(writer.close)


def test_reading_temporary_files_and_our_own_moves_are_not_heard(ears: Ears) -> None:
    ws = ears.ws
    for name in ("read.md", "archived.md", "rejected.md", "deleted.md"):
        assert ears.hear(lambda name=name: (ws.inbox / name).write_bytes(b"text"))  # type: ignore[misc]
    assert ears.quiet(lambda: None)

    def ours() -> None:
        (ws.inbox / "read.md").read_bytes()
        list(ws.inbox.iterdir())
        (ws.inbox / ".hidden").write_text("x")
        (ws.inbox / "x.md~").write_text("x")
        archive(ws, "archived.md", None, b"text", "2026-11-21", lambda path: False)
        reject(ws, "rejected.md", None, b"text", {"rule": "alias"}, lambda path: False)
        deliver(ws.outbox, "out.md", b"text")
        (ws.inbox / "deleted.md").unlink()

    assert ears.quiet(ours)


def test_files_that_were_just_archived_do_not_delay_the_next_arrival(ears: Ears) -> None:
    assert ears.hear(lambda: (ears.ws.inbox / "x.md").write_bytes(b"text"))
    archive(ears.ws, "x.md", None, b"text", "2026-11-21", lambda path: False)

    assert ears.hear(lambda: (ears.ws.inbox / "y.md").touch())


def test_moving_a_file_out_of_the_inbox_costs_the_watcher_nothing(ears: Ears) -> None:
    """What we do ourselves is not even noted by the kernel: to read that would cost more than the move does."""
    for name in ("x.md", "y.md"):
        (ears.ws.inbox / name).write_bytes(b"text")
    assert ears.proven()
    ears.take()

    archive(ears.ws, "x.md", None, b"text", "2026-11-21", lambda path: False)
    archive(ears.ws, "y.md", None, b"text", "2026-11-21", lambda path: False)

    assert not ears.selector.select(0)


def test_a_file_that_is_prepared_in_the_inbox_ends_no_sleep_and_its_name_does(ears: Ears) -> None:
    hidden = ears.ws.inbox / ".x.tmp"
    ears.take()
    hidden.write_text("x")

    assert ears.wake.wait(0.0, ears.watcher, monotonic) == Woken(by_timer=True)
    hidden.rename(ears.ws.inbox / "x.md")
    assert ears.wake.wait(PATIENCE, ears.watcher, monotonic) == Woken(mail=True)
    assert ears.wake.wait(0.0, ears.watcher, monotonic) == Woken(by_timer=True)


def test_what_is_made_beside_the_inbox_is_not_heard_unless_the_inbox_is_missing(ears: Ears) -> None:
    ears.take()
    (ears.ws.mailbox / "prepared.md").touch()
    assert not ears.selector.select(0)

    assert ears.hear(ears.ws.inbox.rmdir)
    assert ears.watcher.check(1.0)
    assert not ears.watcher.healthy
    (ears.ws.mailbox / "another.md").touch()
    assert ears.wake.wait(0.0, ears.watcher, monotonic) == Woken(by_timer=True)
    assert ears.hear(ears.ws.inbox.mkdir)
    assert ears.watcher.check(2.0)
    assert ears.proven()
    assert ears.watcher.healthy


def test_what_the_kernel_had_no_room_for_is_looked_for(ears: Ears) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    ears.take()
    for number in range(most // 2 + 1):  # each makes a file, and closes it
        (ears.ws.inbox / f".{number}").touch()

    assert ears.wake.wait(PATIENCE, ears.watcher, monotonic) == Woken(mail=True)
    assert ears.proven()
    assert ears.watcher.healthy


def test_more_than_one_reading_holds_is_heard_at_once(ears: Ears) -> None:
    ears.take()
    for number in range(200):  # two events each, of 224 bytes
        (ears.ws.inbox / f"{number:0200}.md").touch()

    assert ears.watcher.hear()
    assert not ears.selector.select(0)


def test_an_edit_of_a_task_is_heard_and_our_rendering_is_not(ears: Ears) -> None:
    files = TaskFiles(ears.ws)
    assert ears.hear(lambda: files.write("t1", b"rendered"))
    assert ears.quiet(lambda: None)
    path = ears.ws.tasks / "t1" / "task.md"

    assert ears.quiet(lambda: files.write("t1", b"rendered again"))
    assert ears.hear(lambda: path.write_text("edited"))
    assert ears.quiet(lambda: (path.parent / "notes.txt").write_text("an agent's own"))
    assert ears.hear(path.unlink)


def test_a_dropped_task_directory_is_heard(ears: Ears, tmp_path: Path) -> None:
    (tmp_path / "t9").mkdir()
    (tmp_path / "t9" / "task.md").write_text("a plan")

    assert ears.hear(lambda: (tmp_path / "t9").rename(ears.ws.tasks / "t9"))


@pytest.mark.parametrize("what", ["inbox", "mailbox", "tasks"])
def test_a_directory_that_was_deleted_and_made_again_is_heard_again(ears: Ears, what: str) -> None:
    path = {"inbox": ears.ws.inbox, "mailbox": ears.ws.mailbox, "tasks": ears.ws.tasks}[what]
    shutil.rmtree(path)
    assert ears.watcher.check(1.0)
    assert not ears.watcher.healthy
    assert str(path.name) in ears.watcher.reason

    Workspace.create(ears.ws.root)
    assert ears.watcher.check(2.0)
    assert ears.proven()
    assert ears.watcher.reason == ""
    assert ears.hear(lambda: (ears.ws.inbox / "x.md").touch())
    assert ears.hear(lambda: (ears.ws.tasks / "t1").mkdir())


def test_an_inbox_that_was_renamed_and_replaced_is_heard_again(ears: Ears) -> None:
    ears.ws.inbox.rename(ears.ws.root / "old")
    ears.ws.inbox.mkdir()

    assert ears.watcher.check(1.0)
    assert ears.proven()
    assert ears.hear(lambda: (ears.ws.inbox / "x.md").touch())


def test_the_replacing_of_a_directory_is_heard_itself(ears: Ears) -> None:
    assert ears.proven()
    assert ears.hear(lambda: (ears.ws.inbox / "x.md").touch())
    assert not ears.disturbed()  # mail is no reason to ask whether it is the same inbox
    (ears.ws.inbox / "x.md").unlink()
    assert ears.hear(ears.ws.inbox.rmdir)
    assert ears.disturbed()
    ears.watcher.check(ears.now)
    assert ears.hear(ears.ws.inbox.mkdir)
    assert ears.disturbed()
    ears.watcher.check(ears.now)
    assert not ears.disturbed()


def test_a_workspace_without_directories_is_survived_and_said(tmp_path: Path) -> None:
    ears = Ears(Workspace(tmp_path))
    ears.watcher.start(0.0)
    ears.take()

    assert not ears.watcher.healthy
    assert "No such file" in ears.watcher.reason
    assert not ears.watcher.check(1.0)
    Workspace.create(tmp_path)
    assert ears.watcher.check(2.0)
    assert ears.hear(lambda: (ears.ws.inbox / "x.md").touch())
    ears.close()


def test_a_watcher_whose_threads_died_is_found_out_and_replaced(ears: Ears) -> None:
    assert ears.proven()
    ear = ears.watcher._ears[1]
    assert isinstance(ear, TasksEar)
    assert ear._observer is not None
    for emitter in list(ear._observer.emitters):
        emitter.stop()
        emitter.join()

    assert not ears.watcher.check(ears.now + 31.0)
    assert ears.watcher.check(ears.now + 37.0)
    assert ears.proven()
    assert ears.watcher.reason == ""
    assert ears.hear(lambda: (ears.ws.tasks / "t1").mkdir())


def test_an_observer_that_stumbles_over_its_own_books_is_replaced(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once in hours of exchanging directories: watchdog stops, and then raises KeyError for a path it forgot."""
    stop = BaseThread.stop

    def stumble(self: BaseThread) -> None:
        stop(self)
        raise KeyError(b"tasks")

    tasks = ears.ws.tasks
    with monkeypatch.context() as patched:
        patched.setattr(BaseThread, "stop", stumble)
        tasks.rename(tasks.with_name("away"))
        tasks.mkdir()
        ears.watcher.check(ears.now + 1)
    assert ears.hear(lambda: (tasks / "t1").mkdir())


def test_a_poke_that_fails_does_not_end_the_watching(ws: Workspace) -> None:
    heard = threading.Event()

    def poke() -> None:
        if (ws.tasks / "second").exists():
            heard.set()
        raise RuntimeError("a bug")

    with selectors.DefaultSelector() as selector:
        watcher = Watcher(ws, selector, poke)
        watcher.start(0.0)
        (ws.tasks / "first").mkdir()
        (ws.tasks / "second").mkdir()

        assert heard.wait(PATIENCE)
        watcher.close()
    assert "a bug" in watcher.reason


LIMITED = """
import os, resource, selectors, sys
from pathlib import Path
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.watcher import Watcher
watcher = Watcher(Workspace(Path(sys.argv[1])), selectors.DefaultSelector(), lambda: None)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
watcher.start(0.0)
print(watcher.healthy, watcher.reason)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
print(watcher.check(10.0), watcher.check(30.0))
for ear in watcher._ears:
    ear.heard.wait(10)
print(watcher.healthy, watcher.reason)
watcher.close()
"""


def test_without_inotify_it_says_so_and_tries_again_later(ws: Workspace) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(ws.root)], capture_output=True, text=True, check=True)

    first, second, third = done.stdout.splitlines()
    assert first.startswith("False")
    assert "fs.inotify.max_user_instances" in first
    assert second == "False True"
    assert third.strip() == "True"
    assert done.stderr == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_an_inbox_where_we_may_not_write_is_said_with_advice() -> None:
    with tempfile.TemporaryDirectory() as made:
        ws = Workspace(Path(made))
        Workspace.create(ws.root)
        for path in (ws.root, *ws.root.rglob("*")):
            os.chown(path, 65534, 65534)
        os.chown(ws.inbox, 0, 0)
        ws.inbox.chmod(0o733)
        selector = selectors.DefaultSelector()
        watcher = Watcher(ws, selector, lambda: None)
        os.seteuid(65534)
        try:
            watcher.start(0.0)
        finally:
            os.seteuid(0)
            watcher.close()
            selector.close()

    assert not watcher.healthy
    assert "chmod u+rwx" in watcher.reason


def test_starting_and_stopping_leaves_no_thread_and_no_descriptor(ws: Workspace) -> None:
    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    threads, descriptors = threading.active_count(), open_descriptors()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            ears = Ears(ws)
            ears.watcher.start(0.0)
            assert ears.proven()
            ears.watcher.close()
            ears.close()

    assert threading.active_count() == threads
    assert open_descriptors() == descriptors


def test_five_thousand_files_at_once_are_heard_at_least_once(ears: Ears) -> None:
    def flood() -> None:
        for number in range(5_000):
            (ears.ws.inbox / f"{number}.md").touch()

    assert ears.hear(flood)


@pytest.mark.slow
def test_an_idle_watcher_uses_no_processor_time(ears: Ears) -> None:
    assert ears.proven()
    before = resource.getrusage(resource.RUSAGE_SELF)
    assert not threading.Event().wait(0.5)
    after = resource.getrusage(resource.RUSAGE_SELF)

    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.02
