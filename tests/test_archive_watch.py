"""What was filed is looked after: a file that is gone or changed is an alarm, once, and forgotten when it is back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.formats.mailbox.files import Stamp
from tests.archived import Room


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.fixture
def keeping(tmp_path: Path) -> Room:
    return Room(tmp_path, keeps=True)


def test_while_every_file_exists_nothing_is_reported(room: Room) -> None:
    assert room.look() == []
    assert room.messages() == {"judged": 2, "archived": 1, "rejected": 1, "sent": 0}


def _delete(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    file.write_bytes(b"s")


def _exchange(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (_delete, "is missing, and the database does not have its bytes"),
        (_cut, "has 1 bytes, and 4 were archived"),
        (_exchange, "is no longer a file"),
    ],
)
@pytest.mark.parametrize("which", ["good", "bad"])
def test_what_is_tampered_with_is_an_alarm_once_and_not_again_after_a_restart(
    room: Room, which: str, tamper: Callable[[Path], None], said: str
) -> None:
    tamper({"good": room.good, "bad": room.bad}[which])
    (why,) = room.look()
    assert said in why
    assert f"{which}.md" in why
    assert room.look() == []
    room.begin()
    assert room.look() == []
    room.verify()


def test_what_comes_back_and_goes_again_is_another_alarm(room: Room) -> None:
    room.good.unlink()
    assert len(room.look()) == 1
    room.good.write_bytes(b"said")
    assert room.look() == []
    room.good.unlink()
    assert len(room.look()) == 1


def test_a_whole_archive_that_is_gone_is_one_alarm(room: Room) -> None:
    room.good.unlink()
    room.bad.unlink()
    (why,) = room.look()
    assert "and 1 more" in why


@pytest.mark.slow
def test_a_lost_day_of_the_archive_is_restored_from_the_database(keeping: Room) -> None:
    more = [keeping.filed(f"m{number}", f"archive/2026-01-02/{number}.md", "accepted") for number in range(450)]
    assert keeping.look() == []
    shutil.rmtree(more[0].parent)
    said = [*keeping.look(), *keeping.look()]  # one alarm for all that a pass finds missing
    assert len(said) == 2
    assert all("more were missing: restored from the database" in why for why in said)
    assert all(file.read_bytes() == b"said" for file in more)
    assert keeping.archive_watch.why == ""
    assert keeping.look() == []


def test_a_day_that_was_lost_while_no_daemon_ran_is_restored(keeping: Room) -> None:
    shutil.rmtree(keeping.good.parent)
    keeping.begin()
    assert "restored" in keeping.look()[0]
    assert keeping.good.read_bytes() == b"said"


def test_a_rejected_file_is_restored_with_its_reason(keeping: Room) -> None:
    keeping.bad.unlink()
    assert "rejected/2026-01-01/bad.md was missing" in keeping.look()[0]
    assert keeping.bad.read_bytes() == b"said"
    assert b'"name": "bad.md"' in (keeping.bad.parent / "bad.md.reason.json").read_bytes()


def test_a_file_that_cannot_be_restored_keeps_health_from_being_green(room: Room) -> None:
    room.good.unlink()
    room.look()
    assert "archive/2026-01-01/good.md is missing" in room.archive_watch.why
    room.begin()
    room.look()
    assert "archive/2026-01-01/good.md is missing" in room.archive_watch.why
    room.good.write_bytes(b"said")
    room.look()
    assert room.archive_watch.why == ""


def test_nothing_that_somebody_put_there_is_replaced(keeping: Room) -> None:
    keeping.good.write_bytes(b"something else")
    assert "has 14 bytes, and 4 were archived" in keeping.look()[0]
    assert keeping.good.read_bytes() == b"something else"
    keeping.good.unlink()
    assert "restored" in keeping.look()[0]
    assert keeping.good.read_bytes() == b"said"
    assert keeping.archive_watch.why == ""


def test_a_recently_archived_file_is_watched_closely(keeping: Room) -> None:
    """Another text of the same length, in the same file: its writer had it open."""
    keeping.archive_watch.watch("good", "archive/2026-01-01/good.md", Stamp.of(keeping.good.stat()))
    assert keeping.look() == []
    keeping.good.write_bytes(b"sa1d")
    os.utime(keeping.good, (1, 1))
    assert "was written to after it was archived" in keeping.look()[0]
    assert keeping.look() == []
    assert "good.md" in keeping.archive_watch.why
    keeping.good.write_bytes(b"said")
    keeping.look()
    assert keeping.archive_watch.why == ""


def test_files_that_another_directory_in_place_of_the_archive_lacks_are_restored(
    keeping: Room,
) -> None:
    """As when something is mounted over it, and unmounted again; e2e/test_places.py has the mount."""
    archive = keeping.ws.mailbox / "archive"
    assert keeping.look() == []
    archive.rename(archive.with_name("below"))
    archive.mkdir()
    assert "archive/2026-01-01/good.md was missing: restored" in keeping.look()[0]
    assert keeping.good.read_bytes() == b"said"
    within = keeping.filed("within", "archive/2026-01-03/within.md", "accepted")
    archive.rename(archive.with_name("above"))
    archive.with_name("below").rename(archive)
    assert "within.md was missing: restored" in keeping.look()[0]
    assert within.read_bytes() == b"said"
    assert keeping.archive_watch.why == ""
