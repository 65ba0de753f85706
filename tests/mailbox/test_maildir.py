"""Protocol section 7, rule 1: every accepted file ends in exactly one place, and no byte of it is lost or changed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.sanitize import for_file_name
from mailboxd.errors import WorldError
from mailboxd.formats.mailbox.files import ObstructedError, Stamp
from mailboxd.formats.mailbox.inbox import Inbox
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import MoveRequest, deliver, move_out
from tests.mailbox.moving import archive, reject

DAY = "2026-11-21"
PLACE = f"archive/{DAY}"
REASON = {"rule": "empty", "problem": "it is empty"}
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs privileges")


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


def put(ws: Workspace, name: str, raw: bytes = b"text") -> Stamp:
    path = ws.inbox / name
    path.write_bytes(raw)
    return Stamp.of(path.lstat())


def nothing(path: str) -> bool:
    return False


def tree(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- delivering


def test_a_delivered_message_appears_complete_and_private(ws: Workspace) -> None:
    assert deliver(ws.outbox, "x.md", b"text") == "x.md"

    assert tree(ws.outbox) == {"x.md": b"text"}
    assert (ws.outbox / "x.md").stat().st_mode & 0o777 == 0o600


def test_a_used_name_gets_a_suffix_but_the_same_message_is_delivered_once(ws: Workspace) -> None:
    names = [deliver(ws.outbox, "x.md", raw) for raw in (b"1", b"2", b"1", b"2")]

    assert names == ["x.md", "x~2.md", "x.md", "x~2.md"]
    assert tree(ws.outbox) == {"x.md": b"1", "x~2.md": b"2"}


def test_many_messages_of_one_name_are_all_kept(ws: Workspace) -> None:
    messages = [str(number).encode() for number in range(40)]

    names = [deliver(ws.outbox, "x.md", raw) for raw in messages]

    assert len(set(names)) == 40
    assert [deliver(ws.outbox, "x.md", raw) for raw in messages] == names


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden.md", "a/b", "/etc/x", "a\0b", "x" * 256])
def test_an_invalid_name_is_a_bug(ws: Workspace, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        deliver(ws.outbox, name, b"text")


@pytest.mark.parametrize("linked", ["mailbox", "mailbox/outbox"])
def test_nothing_is_delivered_through_a_link_anywhere_below_the_workspace(
    ws: Workspace, tmp_path: Path, linked: str
) -> None:
    """Whoever may write in the workspace must not make us write elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    (ws.root / linked).rename(elsewhere)
    (ws.root / linked).symlink_to(elsewhere)
    with pytest.raises(WorldError):
        deliver(ws.outbox, "x.md", b"x", below=ws.root)
    assert list(elsewhere.rglob("x.md")) == []


def test_delivering_into_a_missing_directory_is_the_worlds_fault(ws: Workspace) -> None:
    with pytest.raises(WorldError, match="cannot write to"):
        deliver(ws.root / "nowhere", "x.md", b"text")


# ---------------------------------------------------------------- archiving


def test_an_archived_file_is_the_very_file_in_the_directory_of_the_day(ws: Workspace) -> None:
    stamp = put(ws, "x.md")

    assert archive(ws, "x.md", stamp, b"text", DAY, nothing) == f"archive/{DAY}/x.md"

    assert (ws.archive / DAY / "x.md").stat().st_ino == stamp.ino
    assert tree(ws.mailbox) == {f"archive/{DAY}/x.md": b"text"}


def test_archiving_again_finds_what_was_archived(ws: Workspace) -> None:
    stamp = put(ws, "x.md")
    path = archive(ws, "x.md", stamp, b"text", DAY, nothing)

    assert archive(ws, "x.md", stamp, b"text", DAY, nothing) == path
    assert archive(ws, "x.md", None, b"text", DAY, nothing) == path
    assert tree(ws.mailbox) == {path: b"text"}


def test_the_same_bytes_again_are_another_file_if_the_first_is_on_record(ws: Workspace) -> None:
    taken: set[str] = set()
    for number in range(15):
        stamp = put(ws, "x.md")
        path = archive(ws, "x.md", stamp, b"text", DAY, taken.__contains__)
        assert path not in taken, number
        taken.add(path)
        (ws.mailbox / path).rename(ws.mailbox / path)

    assert set(tree(ws.mailbox)) == taken


def test_a_file_that_was_made_by_hand_in_the_archive_is_not_overwritten(ws: Workspace) -> None:
    (ws.archive / DAY).mkdir()
    (ws.archive / DAY / "x.md").write_bytes(b"by hand")

    path = archive(ws, "x.md", put(ws, "x.md"), b"text", DAY, nothing)

    assert tree(ws.mailbox) == {f"archive/{DAY}/x.md": b"by hand", path: b"text"}


@pytest.mark.parametrize("change", ["appended", "rewritten in place, same size", "replaced", "replaced, same bytes"])
def test_a_file_that_was_changed_after_it_was_read_stays_and_the_bytes_read_are_archived(
    ws: Workspace, change: str
) -> None:
    stamp = put(ws, "x.md", b"judged")
    path = ws.inbox / "x.md"
    if change == "appended":
        with path.open("ab") as writer:
            writer.write(b", and more")
    elif change.startswith("rewritten"):
        path.write_bytes(b"JUDGED")
    else:
        (ws.inbox / ".x").write_bytes(b"judged" if change.endswith("same bytes") else b"newer")
        (ws.inbox / ".x").rename(path)
    newer = path.read_bytes()

    place = archive(ws, "x.md", stamp, b"judged", DAY, nothing)

    assert tree(ws.mailbox) == {place: b"judged", "inbox/x.md": newer}
    assert [arrival.raw for arrival in Inbox(ws, settle_seconds=0.0).scan(0.0, 9).arrivals] == [newer]


def test_a_file_that_a_writer_still_has_open_is_not_archived_but_the_bytes_read_are(ws: Workspace) -> None:
    stamp = put(ws, "x.md", b"judged")
    with (ws.inbox / "x.md").open("ab") as writer:
        place = archive(ws, "x.md", stamp, b"judged", DAY, nothing)
        writer.write(b" too late")

    assert tree(ws.mailbox) == {place: b"judged", "inbox/x.md": b"judged too late"}


def test_a_file_that_vanished_is_archived_from_what_was_read(ws: Workspace) -> None:
    stamp = put(ws, "x.md")
    (ws.inbox / "x.md").unlink()

    place = archive(ws, "x.md", stamp, b"text", DAY, nothing)

    assert tree(ws.mailbox) == {place: b"text"}


def test_after_a_restart_the_bytes_alone_decide(ws: Workspace) -> None:
    put(ws, "same.md", b"judged")
    put(ws, "other.md", b"NEWER!")

    same = archive(ws, "same.md", None, b"judged", DAY, nothing)
    other = archive(ws, "other.md", None, b"judged", DAY, nothing)

    assert tree(ws.mailbox) == {same: b"judged", other: b"judged", "inbox/other.md": b"NEWER!"}


def test_a_new_file_of_the_same_name_is_left_alone_when_an_archiving_is_repeated(ws: Workspace) -> None:
    stamp = put(ws, "x.md", b"judged")
    place = archive(ws, "x.md", stamp, b"judged", DAY, nothing)
    put(ws, "x.md", b"newer")

    assert archive(ws, "x.md", stamp, b"judged", DAY, nothing) == place
    assert archive(ws, "x.md", None, b"judged", DAY, nothing) == place
    assert tree(ws.mailbox) == {place: b"judged", "inbox/x.md": b"newer"}


def test_many_are_archived_with_one_answer_each_in_order(ws: Workspace) -> None:
    items = [
        MoveRequest(f"{n}.md", put(ws, f"{n}.md", b"%d" % n), b"%d" % n, f"archive/2026-11-{21 + n % 2}")
        for n in range(50)
    ]

    answers = move_out(ws, items, nothing)

    assert answers == [f"{item.place}/{item.name}" for item in items]
    assert tree(ws.mailbox) == {str(path): item.raw for path, item in zip(answers, items, strict=True)}


def test_one_name_may_come_twice_in_a_group(ws: Workspace) -> None:
    first = put(ws, "x.md", b"first")
    (ws.inbox / ".x").write_bytes(b"second")
    (ws.inbox / ".x").rename(ws.inbox / "x.md")
    second = Stamp.of((ws.inbox / "x.md").lstat())
    items = [MoveRequest("x.md", first, b"first", PLACE), MoveRequest("x.md", second, b"second", PLACE)]

    answers = move_out(ws, items, nothing)

    assert answers == [f"archive/{DAY}/x.md", f"archive/{DAY}/x~2.md"]
    assert tree(ws.mailbox) == {f"archive/{DAY}/x.md": b"first", f"archive/{DAY}/x~2.md": b"second"}
    assert (ws.archive / DAY / "x~2.md").stat().st_ino == second.ino


@pytest.mark.parametrize("lying", [0, 1])
def test_the_same_name_and_bytes_twice_in_a_group_are_two_files(ws: Workspace, lying: int) -> None:
    stamps = [None, put(ws, "x.md")] if lying else [None, None]

    answers = move_out(ws, [MoveRequest("x.md", stamp, b"text", PLACE) for stamp in stamps], nothing)

    assert answers == [f"archive/{DAY}/x.md", f"archive/{DAY}/x~2.md"]
    assert tree(ws.mailbox) == {f"archive/{DAY}/x.md": b"text", f"archive/{DAY}/x~2.md": b"text"}


def test_each_touched_directory_is_synced_once(ws: Workspace) -> None:
    program = (
        "import sys; from pathlib import Path; from mailboxd.formats.mailbox.layout import Workspace;"
        "from mailboxd.formats.mailbox.maildir import MoveRequest, move_out;"
        "ws = Workspace(Path(sys.argv[1]));"
        f"move_out(ws, [MoveRequest(f'{{n}}.md', None, b'text', '{PLACE}') for n in range(30)], lambda path: False)"
    )
    (ws.archive / DAY).mkdir()
    for number in range(30):
        put(ws, f"{number}.md")
    trace = ws.root / "trace"
    command = [
        "strace",
        "-y",
        "-e",
        "trace=fsync,fdatasync",
        "-o",
        str(trace),
        sys.executable,
        "-c",
        program,
        str(ws.root),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("strace does not work here")

    synced = [line.split("<")[1].split(">")[0] for line in trace.read_text().splitlines() if line.startswith("f")]
    assert synced.count(str(ws.archive / DAY)) == synced.count(str(ws.inbox)) == 1
    assert len(synced) == 32


@pytest.mark.parametrize("name", ["../x.md", "/etc/passwd", "..", "", "a/b"])
def test_a_name_that_leaves_the_inbox_is_a_bug(ws: Workspace, name: str) -> None:
    with pytest.raises(ValueError, match="is not a file name"):
        reject(ws, name, None, b"text", REASON, nothing)


def test_an_archive_that_is_missing_or_a_link_stops_the_intake_until_it_is_repaired(ws: Workspace) -> None:
    stamp = put(ws, "x.md")
    elsewhere = ws.root / "elsewhere"
    ws.archive.rename(elsewhere)
    with pytest.raises(WorldError):
        archive(ws, "x.md", stamp, b"text", DAY, nothing)
    ws.archive.symlink_to(elsewhere)
    with pytest.raises(WorldError):
        archive(ws, "x.md", stamp, b"text", DAY, nothing)
    assert tree(ws.inbox) == {"x.md": b"text"}
    assert tree(elsewhere) == {}

    ws.archive.unlink()
    elsewhere.rename(ws.archive)
    assert archive(ws, "x.md", stamp, b"text", DAY, nothing) == f"archive/{DAY}/x.md"


def test_the_directory_of_a_day_is_never_a_link(ws: Workspace) -> None:
    elsewhere = ws.root / "elsewhere"
    elsewhere.mkdir()
    (ws.archive / DAY).symlink_to(elsewhere)

    with pytest.raises(WorldError):
        archive(ws, "x.md", put(ws, "x.md"), b"text", DAY, nothing)
    assert tree(elsewhere) == {}


@as_root
def test_an_archive_that_is_read_only_stops_the_intake_and_leaves_the_inbox_alone() -> None:
    with tempfile.TemporaryDirectory() as made:
        ws = Workspace(Path(made))
        Workspace.create(ws.root)
        for path in (ws.root, *ws.root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        stamp = put(ws, "x.md")
        (ws.inbox / "locked").mkdir(mode=0o500)
        locked = Stamp.of((ws.inbox / "locked").lstat())
        os.chown(ws.inbox / "locked", NOBODY, NOBODY)
        ws.archive.chmod(0o500)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(WorldError, match="chmod"):
                archive(ws, "x.md", stamp, b"text", DAY, nothing)
            with pytest.raises(ObstructedError, match="inbox/locked"):
                reject(ws, "locked", locked, None, REASON, nothing)
        finally:
            os.seteuid(0)
        assert tree(ws.mailbox) == {"inbox/x.md": b"text"}


# ---------------------------------------------------------------- rejecting


def test_a_rejected_file_lies_beside_its_reason(ws: Workspace) -> None:
    path = reject(ws, "x.md", put(ws, "x.md", b"bad"), b"bad", REASON, nothing)

    assert path == "rejected/x.md"
    assert (ws.rejected / "x.md").read_bytes() == b"bad"
    assert json.loads((ws.rejected / "x.md.reason.json").read_text()) == REASON
    assert reject(ws, "x.md", None, b"bad", REASON, nothing) == path
    assert len(tree(ws.mailbox)) == 2


def test_a_reason_never_overwrites_a_message_that_has_its_name(ws: Workspace) -> None:
    hostile = reject(ws, "x.md.reason.json", put(ws, "x.md.reason.json", b"hostile"), b"hostile", REASON, nothing)
    plain = reject(ws, "x.md", put(ws, "x.md", b"bad"), b"bad", REASON, nothing)

    assert (ws.mailbox / hostile).read_bytes() == b"hostile"
    assert (ws.mailbox / plain).read_bytes() == b"bad"
    assert json.loads((ws.mailbox / (plain + ".reason.json")).read_text()) == REASON
    assert len(tree(ws.mailbox)) == 4


def test_a_link_is_moved_itself_and_its_target_is_not_touched(ws: Workspace) -> None:
    target = ws.root / "target.md"
    target.write_text("precious")
    (ws.inbox / "x.md").symlink_to(target)
    stamp = Stamp.of((ws.inbox / "x.md").lstat())

    path = reject(ws, "x.md", stamp, None, REASON, nothing)

    assert (ws.mailbox / path).readlink() == target
    assert target.read_text() == "precious"
    assert list(ws.inbox.iterdir()) == []


def test_whatever_was_refused_unread_is_moved_as_it_is(ws: Workspace) -> None:
    os.mkfifo(ws.inbox / "pipe")
    (ws.inbox / "dir" / "inside").mkdir(parents=True)
    with (ws.inbox / "growing").open("wb") as writer:
        writer.truncate(10 << 30)
        scan = Inbox(ws).scan(0.0, 9)
        writer.truncate(11 << 30)
        answers = move_out(
            ws, [MoveRequest(it.name, it.stamp, it.raw, "rejected", REASON) for it in scan.refused], nothing
        )

    assert sorted(map(str, answers)) == ["rejected/dir", "rejected/growing", "rejected/pipe"]
    assert (ws.rejected / "pipe").is_fifo()
    assert (ws.rejected / "dir" / "inside").is_dir()
    assert (ws.rejected / "growing").stat().st_size == 11 << 30
    assert list(ws.inbox.iterdir()) == []


def test_a_link_that_was_replaced_by_a_file_is_not_rejected_in_its_place(ws: Workspace) -> None:
    (ws.inbox / "x.md").symlink_to("nowhere")
    stamp = Stamp.of((ws.inbox / "x.md").lstat())
    put(ws, ".x", b"a good one")
    (ws.inbox / ".x").rename(ws.inbox / "x.md")

    with pytest.raises(ObstructedError, match="never read"):
        reject(ws, "x.md", stamp, None, REASON, nothing)
    assert tree(ws.mailbox) == {"inbox/x.md": b"a good one"}


def test_a_file_refused_unread_before_a_restart_is_a_new_arrival_or_is_found(ws: Workspace) -> None:
    (ws.inbox / "x.md").symlink_to("nowhere")
    with pytest.raises(ObstructedError):
        reject(ws, "x.md", None, None, REASON, nothing)
    path = reject(ws, "x.md", Stamp.of((ws.inbox / "x.md").lstat()), None, REASON, nothing)

    assert reject(ws, "x.md", None, None, REASON, nothing) == path


def test_a_name_that_is_no_text_becomes_one(ws: Workspace) -> None:
    name = os.fsdecode(b"caf\xe9\n.md")
    put(ws, name)
    (refusal,) = Inbox(ws).scan(0.0, 9).refused

    path = reject(ws, refusal.name, refusal.stamp, refusal.raw, REASON, nothing)

    assert path == "rejected/caf%E9%0A.md"
    assert list(ws.inbox.iterdir()) == []


def test_the_longest_name_leaves_room_for_its_reason(ws: Workspace) -> None:
    name = "ä" * 126 + ".md"
    first = reject(ws, name, put(ws, name, b"1"), b"1", REASON, nothing)
    second = reject(ws, name, put(ws, name, b"2"), b"2", REASON, nothing)
    kept = archive(ws, name, put(ws, name, b"3"), b"3", DAY, nothing)

    assert kept == f"archive/{DAY}/{name}"
    assert first.endswith("ä.md")
    assert second.endswith("ä~2.md")
    assert len(tree(ws.mailbox)) == 5


@as_root
def test_one_file_that_cannot_be_moved_is_reported_and_holds_up_no_other(ws: Workspace) -> None:
    stuck, free = put(ws, "stuck.md"), put(ws, "free.md")
    if subprocess.run(["chattr", "+i", str(ws.inbox / "stuck.md")], capture_output=True).returncode != 0:
        pytest.skip("no immutable files here")
    try:
        answers = move_out(
            ws,
            [MoveRequest("stuck.md", stuck, b"text", PLACE), MoveRequest("free.md", free, b"text", PLACE)],
            nothing,
        )
    finally:
        subprocess.run(["chattr", "-i", str(ws.inbox / "stuck.md")], check=True)

    assert isinstance(answers[0], ObstructedError)
    assert answers[1] == f"archive/{DAY}/free.md"
    assert tree(ws.mailbox) == {"inbox/stuck.md": b"text", f"archive/{DAY}/free.md": b"text"}


OTHER_FILE_SYSTEM = """
import subprocess, sys
from pathlib import Path
subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[1] + "/mailbox/inbox"], check=True)
sys.path.insert(0, sys.argv[2])
from tests.mailbox import test_maildir, test_maildir_crash
from mailboxd.core.sanitize import for_file_name
from mailboxd.formats.mailbox.layout import Workspace
test_maildir.on_a_file_system_of_its_own(Workspace(Path(sys.argv[1])))
test_maildir_crash.on_a_file_system_of_its_own(Workspace(Path(sys.argv[1])))
"""


def on_a_file_system_of_its_own(ws: Workspace) -> None:
    stamp = put(ws, "x.md")
    place = archive(ws, "x.md", stamp, b"text", DAY, nothing)
    assert archive(ws, "x.md", stamp, b"text", DAY, nothing) == place
    stamp = put(ws, "y.md", b"judged")
    put(ws, "y.md", b"newer")
    other = archive(ws, "y.md", stamp, b"judged", DAY, nothing)
    assert tree(ws.mailbox) == {place: b"text", other: b"judged", "inbox/y.md": b"newer"}
    (ws.inbox / "link").symlink_to("nowhere")
    with pytest.raises(ObstructedError, match=os.strerror(errno.EXDEV)):
        reject(ws, "link", Stamp.of((ws.inbox / "link").lstat()), None, REASON, nothing)
    assert (ws.inbox / "link").is_symlink()
    (ws.inbox / "link").unlink()
    (ws.inbox / "y.md").unlink()


@pytest.mark.slow
@as_root
def test_an_inbox_that_is_a_file_system_of_its_own_is_emptied_by_copying(ws: Workspace) -> None:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mounts here")
    command = ["unshare", "-m", sys.executable, "-c", OTHER_FILE_SYSTEM, str(ws.root), str(Path(__file__).parents[2])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- the law

raw_names = st.one_of(
    st.sampled_from([b"x.md", b"x~2.md", b"x.md.reason.json", b"x" * 252 + b".md", b"x" * 255, b"caf\xe9"]),
    st.binary(min_size=1, max_size=255).filter(lambda raw: not {0, 47} & set(raw) and raw not in {b".", b".."}),
)
drops = st.lists(
    st.tuples(raw_names, st.sampled_from([b"", b"a", b"b"]), st.booleans(), st.sampled_from(["", "gone", "newer"])),
    max_size=12,
)


@given(drops)
def test_no_byte_is_lost_or_changed_whatever_the_names_and_clashes(
    dropped: list[tuple[bytes, bytes, bool, str]],
) -> None:
    with tempfile.TemporaryDirectory() as made:
        ws = Workspace(Path(made))
        Workspace.create(ws.root)
        (ws.rejected / "x.md").write_bytes(b"by hand")
        filed: dict[str, bytes] = {}
        newer: list[bytes] = []
        for raw_name, raw, accepted, meanwhile in dropped:
            name = os.fsdecode(raw_name)
            stamp = put(ws, name, raw)
            if meanwhile == "gone":
                (ws.inbox / name).unlink()
            elif meanwhile == "newer":
                (ws.inbox / name).write_bytes(b"newer")
            if accepted:
                path = archive(ws, name, stamp, raw, DAY, filed.__contains__)
            else:
                path = reject(ws, name, stamp, raw, REASON, filed.__contains__)
            assert path not in filed
            assert for_file_name(path) == path
            filed[path] = raw
            if meanwhile == "newer":
                (left,) = ws.inbox.iterdir()
                newer.append(left.read_bytes())
                left.unlink()

        left_over = tree(ws.mailbox)
        for path, raw in filed.items():
            assert left_over.pop(path) == raw
            if path.startswith("rejected/"):
                assert json.loads(left_over.pop(path + ".reason.json")) == REASON
        assert left_over == {"rejected/x.md": b"by hand"}
        assert newer == [b"newer"] * len(newer)
