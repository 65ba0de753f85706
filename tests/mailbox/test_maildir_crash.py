"""A kill at every point of delivering, archiving and rejecting, then a repetition: as if nothing had happened."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mailboxd.formats.mailbox.files import ObstructedError, Stamp
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import MoveRequest, deliver, move_out
from tests.mailbox.killing import every_point, killed_at
from tests.mailbox.moving import archive, reject

DAY = "2026-11-21"
REASON = {"rule": "alias"}
TAKEN = {f"archive/{DAY}/x~2.md"}


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


def clear(ws: Workspace) -> None:
    for place in (ws.inbox, ws.outbox, ws.archive, ws.rejected):
        for path in place.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def everything(ws: Workspace) -> dict[str, bytes]:
    """All files below mailbox/, hidden ones too; a link counts as its own text."""
    found = {}
    for path in ws.mailbox.rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(ws.mailbox))] = b"-> " + os.fsencode(path.readlink())
        elif path.is_file():
            found[str(path.relative_to(ws.mailbox))] = path.read_bytes()
    return found


def plain(ws: Workspace) -> Stamp:
    clear(ws)
    (ws.inbox / "x.md").write_bytes(b"judged")
    return Stamp.of((ws.inbox / "x.md").lstat())


def clashing(ws: Workspace) -> Stamp:
    stamp = plain(ws)
    for place in (ws.rejected, ws.archive / DAY):
        place.mkdir(exist_ok=True)
        (place / "x.md").write_bytes(b"another")
    (ws.archive / DAY / "x~2.md").write_bytes(b"judged")
    return stamp


def replaced(ws: Workspace) -> Stamp:
    stamp = plain(ws)
    (ws.inbox / "x.md").write_bytes(b"newer")
    return stamp


@pytest.mark.slow
@pytest.mark.parametrize("after", ["the daemon goes on", "a restart forgot the stamp"])
@pytest.mark.parametrize("prepare", [plain, clashing, replaced])
def test_archiving_survives_a_kill_at_every_point(
    ws: Workspace, prepare: Callable[[Workspace], Stamp], after: str
) -> None:
    archives(ws, prepare, forgets=after != "the daemon goes on")


def archives(ws: Workspace, prepare: Callable[[Workspace], Stamp], *, forgets: bool) -> None:
    stamp = prepare(ws)
    expected = archive(ws, "x.md", stamp, b"judged", DAY, TAKEN.__contains__)
    whole = everything(ws)
    state = [stamp]

    def again() -> None:
        state[0] = prepare(ws)

    def act() -> None:
        archive(ws, "x.md", state[0], b"judged", DAY, TAKEN.__contains__)

    for point in every_point(act, again):
        known = None if forgets else state[0]
        assert archive(ws, "x.md", known, b"judged", DAY, TAKEN.__contains__) == expected, point
        assert everything(ws) == whole, point


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [plain, clashing, replaced])
def test_rejecting_survives_a_kill_at_every_point(ws: Workspace, prepare: Callable[[Workspace], Stamp]) -> None:
    stamp = prepare(ws)
    expected = reject(ws, "x.md", stamp, b"judged", REASON, TAKEN.__contains__)
    whole = everything(ws)
    state = [stamp]

    def again() -> None:
        state[0] = prepare(ws)

    def act() -> None:
        reject(ws, "x.md", state[0], b"judged", REASON, TAKEN.__contains__)

    for point in every_point(act, again):
        assert reject(ws, "x.md", None, b"judged", REASON, TAKEN.__contains__) == expected, point
        assert everything(ws) == whole, point


@pytest.mark.slow
def test_rejecting_a_link_survives_a_kill_at_every_point(ws: Workspace) -> None:
    def again() -> None:
        clear(ws)
        (ws.inbox / "x.md").symlink_to("/etc/shadow")

    def stamp() -> Stamp | None:
        path = ws.inbox / "x.md"
        return Stamp.of(path.lstat()) if path.is_symlink() else None

    def act() -> None:
        reject(ws, "x.md", stamp(), None, REASON, TAKEN.__contains__)

    for point in every_point(act, again):
        assert reject(ws, "x.md", stamp(), None, REASON, TAKEN.__contains__) == "rejected/x.md", point
        assert set(everything(ws)) == {"rejected/x.md", "rejected/x.md.reason.json"}, point


@pytest.mark.slow
def test_a_group_survives_a_kill_at_every_point(ws: Workspace) -> None:
    names = ("a.md", "b.md", "c.md")

    def prepare() -> None:
        clear(ws)
        for name in names:
            (ws.inbox / name).write_bytes(name.encode())

    def act() -> list[str | ObstructedError]:
        return move_out(
            ws, [MoveRequest(name, None, name.encode(), f"archive/{DAY}") for name in names], TAKEN.__contains__
        )

    for point in every_point(act, prepare):
        assert act() == [f"archive/{DAY}/{name}" for name in names], point
        assert everything(ws) == {f"archive/{DAY}/{name}": name.encode() for name in names}, point


@pytest.mark.slow
def test_a_recovery_that_is_killed_too_is_completed_by_the_next(ws: Workspace) -> None:
    expected = archive(ws, "x.md", replaced(ws), b"judged", DAY, TAKEN.__contains__)
    whole = everything(ws)

    def recover() -> None:
        archive(ws, "x.md", None, b"judged", DAY, TAKEN.__contains__)

    for first in range(1, 100):
        if not killed_at(first, partial(archive, ws, "x.md", replaced(ws), b"judged", DAY, TAKEN.__contains__)):
            break
        for second in range(1, 8):
            killed_at(second, recover)
        assert archive(ws, "x.md", None, b"judged", DAY, TAKEN.__contains__) == expected
        assert everything(ws) == whole


def test_delivering_survives_a_kill_at_every_point_and_leaves_no_litter(ws: Workspace) -> None:
    def act() -> None:
        deliver(ws.outbox, "x.md", b"text")

    for point in every_point(act, lambda: clear(ws)):
        assert set(everything(ws)) <= {"outbox/x.md"}, point
        assert deliver(ws.outbox, "x.md", b"text") == "x.md"
        assert everything(ws) == {"outbox/x.md": b"text"}, point


def test_delivering_into_an_inbox_survives_a_kill_and_never_shows_half_a_message(ws: Workspace) -> None:
    def act() -> None:
        deliver(ws.inbox, "x.md", b"text", renamed=True)

    for point in every_point(act, lambda: clear(ws)):
        litter = {name for name in everything(ws) if name.startswith("inbox/.mailboxd-")}
        assert set(everything(ws)) - litter <= {"inbox/x.md"}, point
        assert deliver(ws.inbox, "x.md", b"text", renamed=True) == "x.md"
        assert everything(ws)["inbox/x.md"] == b"text", point


def on_a_file_system_of_its_own(ws: Workspace) -> None:
    """Called where the inbox is a mount (test_maildir): copying instead of renaming."""
    for prepare in (plain, replaced):
        archives(ws, prepare, forgets=False)
        archives(ws, prepare, forgets=True)
