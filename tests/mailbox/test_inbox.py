"""Writers and files: what lies in an inbox, and what becomes of it. Real files, a told clock."""

from __future__ import annotations

import hashlib
import os
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailboxd.core.entrance import Entrance, Owner, Way
from mailboxd.errors import WorldError
from mailboxd.formats.mailbox.inbox import Inbox, Scan
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.process import name as user

NOW = 1_800_000_000.0
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


class Mover:
    """Says which files were renamed in, as the watcher does: all, unless a test says otherwise."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self.hears = True

    def __call__(self) -> dict[str, Entrance]:
        came = Entrance(None, Way.RENAMED)
        return {path.name: came for path in self._ws.inbox.iterdir()} if self.hears else {}


def renamed_in(ws: Workspace) -> Inbox:
    """An inbox all of whose files were renamed in."""
    return Inbox(ws, Mover(ws))


def put(ws: Workspace, name: str, raw: bytes = b"text\n", mtime: float = NOW) -> Path:
    path = ws.inbox / name
    path.write_bytes(raw)
    os.utime(path, (mtime, mtime))
    return path


def names(scan: Scan) -> list[str]:
    return [arrival.name for arrival in scan.arrivals]


def rules(scan: Scan) -> dict[str, str]:
    return {refusal.name: refusal.error.rule for refusal in scan.refused}


@contextmanager
def another_user(*owned: Path) -> Iterator[None]:
    for path in owned:
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared() -> Iterator[Workspace]:
    """A workspace that user nobody owns; pytest's own directories are closed to others."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        Workspace.create(root)
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield Workspace(root)


def test_a_file_without_a_writer_is_taken_at_once_with_its_bytes(ws: Workspace) -> None:
    path = put(ws, "x.md", b"\xff\x00raw")

    (arrival,) = renamed_in(ws).scan(NOW, 10).arrivals

    assert (arrival.name, arrival.raw, arrival.first_seen) == ("x.md", b"\xff\x00raw", NOW)
    assert arrival.sha256 == hashlib.sha256(b"\xff\x00raw").hexdigest()
    assert (arrival.stamp.ino, arrival.stamp.size, arrival.stamp.mtime) == (path.stat().st_ino, 5, NOW)
    assert path.exists()


def test_a_half_written_file_waits_as_long_as_its_writer_has_it_open(ws: Workspace) -> None:
    inbox = renamed_in(ws)
    with (ws.inbox / "x.md").open("wb", buffering=0) as writer:
        writer.write(b"first half, ")
        for later in (0, 5, 500):
            scan = inbox.scan(NOW + later, 10)
            assert names(scan) == []
            assert scan.next_scan_at is None
            assert scan.next_scan_at is None
        writer.write(b"second half")

    assert names(inbox.scan(NOW + 501, 10)) == []  # it was closed, and may be opened again
    assert [arrival.raw for arrival in inbox.scan(NOW + 502, 10).arrivals] == [b"first half, second half"]


def test_a_file_written_in_place_must_be_quiet_for_a_while_although_it_is_closed(ws: Workspace) -> None:
    inbox = Inbox(ws, settle_seconds=1.0)
    inbox.scan(NOW - 1, 10)
    for number in range(5):  # a loop of `echo ... >> x.md`
        with (ws.inbox / "x.md").open("ab") as writer:
            writer.write(b"line\n")
        scan = inbox.scan(NOW + number * 0.9, 10)
        assert names(scan) == []
        assert scan.next_scan_at == NOW + number * 0.9 + 1

    (arrival,) = inbox.scan(NOW + 4.6, 10).arrivals
    assert (arrival.raw, arrival.in_place) == (b"line\n" * 5, True)


def test_a_rename_that_is_noticed_after_the_file_was_seen_ends_the_wait(ws: Workspace) -> None:
    mover = Mover(ws)
    inbox = Inbox(ws, mover, settle_seconds=1.0)
    mover.hears = False
    inbox.scan(NOW - 1, 10)
    put(ws, "x.md")
    assert names(inbox.scan(NOW, 10)) == []
    mover.hears = True
    (arrival,) = inbox.scan(NOW, 10).arrivals
    assert not arrival.in_place


def test_what_was_renamed_in_and_then_appended_to_waits(ws: Workspace) -> None:
    mover = Mover(ws)
    inbox = Inbox(ws, mover, settle_seconds=1.0)
    path = put(ws, "x.md")
    assert names(inbox.scan(NOW, 10)) == ["x.md"]
    mover.hears = False
    with path.open("ab") as writer:
        writer.write(b"more")
    assert names(inbox.scan(NOW + 1, 10)) == []
    (arrival,) = inbox.scan(NOW + 2, 10).arrivals
    assert arrival.in_place


@pytest.mark.parametrize(("age", "taken"), [(0.0, False), (5.0, True)])
def test_what_lay_there_before_the_daemon_started_waits_only_if_it_was_just_written(
    ws: Workspace, age: float, taken: bool
) -> None:
    """Its time of modification can be set by its writer (`cp -p`), that of its last change cannot."""
    changed = put(ws, "x.md", mtime=1.0).stat().st_ctime
    assert names(Inbox(ws, settle_seconds=1.0).scan(changed + age, 10)) == (["x.md"] if taken else [])


def test_an_empty_file_waits_for_its_content_and_is_refused_after_a_minute(ws: Workspace) -> None:
    put(ws, "x.md", b"")
    inbox = renamed_in(ws)

    scan = inbox.scan(NOW + 1, 10)
    assert scan.next_scan_at == NOW + 60
    assert scan.next_scan_at == NOW + 60

    (refusal,) = inbox.scan(NOW + 60, 10).refused
    assert (refusal.error.rule, refusal.raw, refusal.sha256) == ("empty", b"", hashlib.sha256(b"").hexdigest())


def test_an_empty_file_that_is_filled_is_taken(ws: Workspace) -> None:
    put(ws, "x.md", b"")
    inbox = renamed_in(ws)
    inbox.scan(NOW, 10)
    put(ws, "x.md", b"now")

    assert names(inbox.scan(NOW + 1, 10)) == []
    assert names(inbox.scan(NOW + 2, 10)) == ["x.md"]


def test_a_temporary_name_is_ignored_until_it_is_renamed(ws: Workspace) -> None:
    inbox = renamed_in(ws)
    for name in (".x.tmp", "x.md~", "#x.md#", "4913", "x.md.crdownload"):
        put(ws, name, mtime=NOW - 600)
    (ws.inbox / ".#x.md").symlink_to("nobody@nowhere.1234")

    scan = inbox.scan(NOW, 10)
    assert (names(scan), rules(scan), scan.next_scan_at) == ([], {}, None)

    (ws.inbox / ".x.tmp").rename(ws.inbox / "x.md")
    scan = inbox.scan(NOW, 10)
    assert names(scan) == ["x.md"]
    assert len(list(ws.inbox.iterdir())) == 6


@pytest.mark.parametrize("target", ["/etc/shadow", "/dev/zero", "x.md", "nowhere", "../../message.md"])
def test_a_link_is_refused_and_its_target_never_opened(ws: Workspace, target: str) -> None:
    (ws.root / "message.md").write_text("valid")
    (ws.inbox / "x.md").symlink_to(target)

    (refusal,) = renamed_in(ws).scan(NOW, 10).refused

    assert (refusal.error.rule, refusal.raw, refusal.sha256) == ("symlink", None, None)
    assert refusal.stamp.ino == (ws.inbox / "x.md").lstat().st_ino


def test_pipes_sockets_and_directories_are_refused_without_being_opened(ws: Workspace) -> None:
    os.mkfifo(ws.inbox / "pipe.md")
    (ws.inbox / "dir.md").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(ws.inbox / "socket.md"))

    scan = renamed_in(ws).scan(NOW, 10)
    listener.close()

    assert rules(scan) == dict.fromkeys(["pipe.md", "dir.md", "socket.md"], "not-regular")


@as_root
def test_a_device_is_refused_without_being_opened(ws: Workspace) -> None:
    os.mknod(ws.inbox / "zero.md", 0o20666, os.makedev(1, 5))

    assert rules(renamed_in(ws).scan(NOW, 10)) == {"zero.md": "not-regular"}


def test_a_file_that_is_too_large_is_refused_unread_even_while_it_grows(ws: Workspace) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (ws.inbox / "sparse.md").open("wb") as writer:
        writer.truncate(10 << 30)
        put(ws, "edge.md", b"x" * (1 << 20))
        put(ws, "over.md", b"x" * ((1 << 20) + 1))
        scan = renamed_in(ws).scan(NOW, 10)

    assert rules(scan) == {"sparse.md": "too-large", "over.md": "too-large"}
    assert all(refusal.raw is None for refusal in scan.refused)
    assert names(scan) == ["edge.md"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10


@pytest.mark.parametrize("raw", [b"caf\xe9.md", b"a\nb.md", b"\x1b[2J.md"])
def test_a_name_that_is_no_text_is_refused_and_shown_escaped(ws: Workspace, raw: bytes) -> None:
    name = os.fsdecode(raw)
    put(ws, name)

    (refusal,) = renamed_in(ws).scan(NOW, 10).refused

    assert (refusal.name, refusal.error.rule) == (name, "bad-name")
    assert refusal.error.path.isprintable()
    str(refusal.error).encode()


def test_arrivals_come_in_the_order_of_their_times_then_names(ws: Workspace) -> None:
    for name, mtime in {"b": NOW - 1, "a": NOW - 1, "c": NOW - 9, "old": 0.0, "new": NOW}.items():
        put(ws, name, mtime=mtime)

    assert names(renamed_in(ws).scan(NOW, 10)) == ["old", "c", "a", "b", "new"]


def test_a_flood_of_older_files_does_not_overtake_what_was_seen_before(ws: Workspace) -> None:
    inbox = renamed_in(ws)
    put(ws, "patient", mtime=NOW)
    inbox.scan(NOW, 0)
    for number in range(20):
        put(ws, f"flood{number:02}", mtime=0)

    scan = inbox.scan(NOW, 1)

    assert names(scan) == ["patient"]
    assert scan.truncated


@pytest.mark.parametrize("mtime", [0.0, 4_000_000_000.0])
def test_a_file_from_the_past_or_the_future_does_not_wait(ws: Workspace, mtime: float) -> None:
    put(ws, "x.md", mtime=mtime)
    put(ws, "empty.md", b"", mtime=4_000_000_000.0)
    inbox = renamed_in(ws)

    assert names(inbox.scan(NOW, 10)) == ["x.md"]
    assert rules(inbox.scan(NOW + 60, 10)) == {"empty.md": "empty"}


def test_a_clock_that_is_set_back_makes_nobody_wait_longer(ws: Workspace) -> None:
    put(ws, "empty.md", b"", mtime=4_000_000_000.0)
    inbox = renamed_in(ws)
    inbox.scan(NOW, 10)
    inbox.scan(NOW - 86_400, 10)

    assert rules(inbox.scan(NOW - 86_400 + 60, 10)) == {"empty.md": "empty"}


def test_a_scan_reads_no_more_than_it_was_asked_for(ws: Workspace) -> None:
    for number in range(10):
        put(ws, f"{number}.md", mtime=NOW + number)
    inbox = renamed_in(ws)

    first = inbox.scan(NOW, 4)
    assert (names(first), first.truncated) == (["0.md", "1.md", "2.md", "3.md"], True)
    for name in names(first):
        (ws.inbox / name).unlink()
    assert names(inbox.scan(NOW, 4)) == ["4.md", "5.md", "6.md", "7.md"]
    last = inbox.scan(NOW, 100)
    assert (len(last.arrivals), last.truncated) == (6, False)


def test_a_scan_says_until_when_all_that_came_was_read(ws: Workspace) -> None:
    put(ws, "1.md")
    put(ws, "2.md")
    inbox = renamed_in(ws)
    assert inbox.scan(NOW, 1).read_until == 0  # who knows when the other one came
    (ws.inbox / "1.md").unlink()
    assert inbox.scan(NOW + 1, 1).read_until == NOW + 1
    put(ws, "3.md")
    put(ws, "4.md")
    assert inbox.scan(NOW + 60, 1).read_until == NOW + 1  # the others came after the last scan
    (ws.inbox / "2.md").unlink()
    put(ws, "5.md")
    assert inbox.scan(NOW + 61, 2).read_until == NOW + 60
    assert inbox.scan(NOW + 62, 9).read_until == NOW + 62


def test_a_file_that_will_soon_be_read_may_be_the_awaited_one_and_one_that_never_ends_is_not(ws: Workspace) -> None:
    inbox = Inbox(ws, settle_seconds=1.0, incomplete_seconds=60.0)
    inbox.scan(NOW, 10)
    for seconds, read_until in ((1, NOW), (30, NOW), (60, NOW), (61, NOW + 61)):  # a loop of `echo ... >> x.md`
        with (ws.inbox / "x.md").open("ab") as writer:
            writer.write(b"line\n")
        scan = inbox.scan(NOW + seconds, 10)
        assert (names(scan), scan.read_until) == ([], read_until)


def test_large_files_are_read_a_few_at_a_time(ws: Workspace) -> None:
    for number in range(20):
        put(ws, f"{number}.md", b"x" * (1 << 20))

    scan = renamed_in(ws).scan(NOW, 1000)

    assert len(scan.arrivals) == 16
    assert scan.truncated


def test_a_waiting_or_deferred_file_delays_no_other(ws: Workspace) -> None:
    inbox = renamed_in(ws)
    put(ws, "orphan.md", b"a reply without its task", mtime=1)
    assert names(inbox.scan(NOW, 1)) == ["orphan.md"]
    inbox.defer("orphan.md", NOW + 600)
    put(ws, "x.md")

    scan = inbox.scan(NOW, 1)
    assert names(scan) == ["x.md"]
    assert scan.next_scan_at == NOW + 600
    assert names(inbox.scan(NOW + 600, 1)) == ["orphan.md"]


def test_a_deferred_file_that_changes_is_seen_at_once(ws: Workspace) -> None:
    inbox = renamed_in(ws)
    put(ws, "x.md", b"unfinish")
    inbox.scan(NOW, 1)
    inbox.defer("x.md", NOW + 60)
    assert names(inbox.scan(NOW + 1, 1)) == []

    put(ws, "x.md", b"unfinished no more", mtime=NOW + 2)
    assert inbox.scan(NOW + 2, 1).next_scan_at == NOW + 3
    assert names(inbox.scan(NOW + 3, 1)) == ["x.md"]


def test_a_replaced_file_is_a_new_arrival(ws: Workspace) -> None:
    inbox = renamed_in(ws)
    put(ws, "x.md", b"one")
    (old,) = inbox.scan(NOW, 1).arrivals
    put(ws, ".x", b"two")
    (ws.inbox / ".x").rename(ws.inbox / "x.md")

    (new,) = inbox.scan(NOW + 1, 1).arrivals
    assert (new.raw, new.first_seen) == (b"two", NOW + 1)
    assert new.stamp != old.stamp


def test_a_missing_inbox_or_a_link_in_its_place_stops_the_intake_until_it_is_repaired(ws: Workspace) -> None:
    inbox = renamed_in(ws)
    put(ws, "x.md")
    ws.inbox.rename(ws.root / "aside")
    with pytest.raises(WorldError, match="read the inbox"):
        inbox.scan(NOW, 1)
    ws.inbox.symlink_to(ws.root / "aside")
    with pytest.raises(WorldError):
        inbox.scan(NOW, 1)
    ws.inbox.unlink()
    (ws.root / "aside").rename(ws.inbox)

    assert names(inbox.scan(NOW, 1)) == ["x.md"]


def test_without_descriptors_the_scan_fails_as_the_worlds_fault(ws: Workspace) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(WorldError, match="Too many open files"):
            Inbox(ws).scan(NOW, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@as_root
def test_where_the_kernel_does_not_know_a_file_must_be_quiet_first(shared: Workspace) -> None:
    inbox = Inbox(shared, settle_seconds=0.5)
    with another_user():
        inbox.scan(NOW - 1, 10)
    put(shared, "x.md").chmod(0o644)
    with another_user():
        scan = inbox.scan(NOW, 10)
        assert scan.next_scan_at == NOW + 0.5
        assert inbox.scan(NOW + 0.5, 10).next_scan_at == NOW + 1
        assert names(inbox.scan(NOW + 1, 10)) == ["x.md"]


@as_root
def test_a_file_of_another_user_that_was_renamed_in_does_not_wait(shared: Workspace) -> None:
    inbox = renamed_in(shared)
    with another_user():
        inbox.scan(NOW - 1, 10)
    put(shared, "x.md").chmod(0o644)
    with another_user():
        assert names(inbox.scan(NOW, 10)) == ["x.md"]


@as_root
def test_a_future_time_does_not_make_a_quiet_file_wait_longer(shared: Workspace) -> None:
    put(shared, "x.md", mtime=4_000_000_000.0).chmod(0o644)
    inbox = Inbox(shared, settle_seconds=0.5)
    with another_user():
        assert names(inbox.scan(NOW, 10)) == []
        assert names(inbox.scan(NOW + 1, 10)) == ["x.md"]


@as_root
def test_an_unreadable_file_is_refused_after_a_minute_and_delays_no_other(shared: Workspace) -> None:
    put(shared, "closed.md").chmod(0o600)
    put(shared, "open.md", mtime=NOW - 9).chmod(0o644)
    inbox = renamed_in(shared)
    with another_user():
        scan = inbox.scan(NOW, 10)
        assert names(scan) == ["open.md"]
        assert scan.next_scan_at == NOW + 60
        assert rules(inbox.scan(NOW + 60, 10)) == {"closed.md": "unreadable"}


def test_nothing_stays_open_and_nothing_is_changed_by_looking(ws: Workspace) -> None:
    for number in range(50):
        put(ws, f"{number}.md")
    before = len(list(Path("/proc/self/fd").iterdir()))
    listing = sorted((path.name, path.stat().st_ctime_ns) for path in ws.inbox.iterdir())

    renamed_in(ws).scan(NOW, 30)

    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert sorted((path.name, path.stat().st_ctime_ns) for path in ws.inbox.iterdir()) == listing


def test_looking_again_at_two_thousand_files_is_cheap(ws: Workspace) -> None:
    for number in range(2_000):
        (ws.inbox / f"{number}.md").touch()
    inbox = renamed_in(ws)
    inbox.scan(NOW, 0)

    begun = time.process_time()
    scan = inbox.scan(NOW, 0)

    assert scan.truncated
    assert time.process_time() - begun < 0.05


# Who owns a file, and how it came


def came_of(inbox: Inbox, now: float = NOW) -> dict[str, Entrance]:
    scan = inbox.scan(now, 10)
    return {one.name: one.came for one in scan.arrivals} | {one.name: one.came for one in scan.refused}


def test_a_file_is_read_with_its_owner_and_how_it_came(ws: Workspace) -> None:
    put(ws, "early.md")
    reported: dict[str, Entrance] = {}
    inbox = Inbox(ws, lambda: reported, settle_seconds=0.0)
    me = Owner(os.geteuid(), user())
    assert came_of(inbox) == {"early.md": Entrance(me, Way.AT_START)}
    for name in ("early.md", "moved.md", "typed.md", "unseen.md"):
        (ws.inbox / "early.md").unlink(missing_ok=True)
        put(ws, name)
    reported = {"moved.md": Entrance(None, Way.RENAMED, "hub"), "typed.md": Entrance(None, Way.IN_PLACE)}
    assert came_of(inbox, NOW + 1) == {
        "moved.md": Entrance(me, Way.RENAMED, "hub"),
        "typed.md": Entrance(me, Way.IN_PLACE),
        "unseen.md": Entrance(me, Way.UNSEEN),
    }


def test_what_was_renamed_in_and_then_written_to_claims_nothing_any_more(ws: Workspace) -> None:
    reported = {"x.md": Entrance(None, Way.RENAMED, "command")}
    inbox = Inbox(ws, lambda: reported, settle_seconds=5.0)
    inbox.scan(NOW, 10)
    path = put(ws, "x.md", b"", NOW)
    inbox.scan(NOW, 10)
    reported = {}
    path.write_bytes(b"other text\n")
    inbox.scan(NOW + 1, 10)
    assert came_of(inbox, NOW + 60)["x.md"] == Entrance(Owner(os.geteuid(), user()), Way.IN_PLACE)


def test_what_cannot_be_read_has_its_owner_too(ws: Workspace) -> None:
    (ws.inbox / "link.md").symlink_to("nowhere")
    (ws.inbox / "void.md").touch()
    inbox = Inbox(ws, dict, incomplete_seconds=0.0, settle_seconds=0.0)
    inbox.scan(NOW, 10)
    owners = {name: came.owner for name, came in came_of(inbox, NOW + 9_999_999_999).items()}
    assert owners == {name: Owner(os.geteuid(), user()) for name in ("link.md", "void.md")}


@as_root
def test_the_owner_is_that_of_the_file_which_was_read(ws: Workspace) -> None:
    """Not that of a file that has its name now."""
    os.chown(put(ws, "other.md"), NOBODY, NOBODY)
    os.chown(put(ws, "nameless.md"), 3_999_999_999, 0)
    came = came_of(Inbox(ws, dict, settle_seconds=0.0))
    assert came["other.md"].owner == Owner(NOBODY, "nobody")
    assert came["nameless.md"].owner == Owner(3_999_999_999, "")
