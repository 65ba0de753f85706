"""Files whose bytes the database has too: they appear whole, are synced together, and are written again if need be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailboxd.errors import WorldError
from mailboxd.formats.mailbox import maildir
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.system import system

PATH = "outbox/2026-11-21/a.md"


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


def test_a_file_is_put_once_and_found_again(ws: Workspace) -> None:
    for _ in range(2):
        maildir.put(ws, [(PATH, b"text")])
    file = ws.mailbox / PATH
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"text", 0o600)
    assert os.listdir(file.parent) == ["a.md"]


def test_a_file_of_somebody_else_is_left_as_it_is(ws: Workspace) -> None:
    (ws.mailbox / PATH).parent.mkdir()
    (ws.mailbox / PATH).write_bytes(b"mine")
    with pytest.raises(WorldError, match=r"another file has that name"):
        maildir.put(ws, [(PATH, b"text")])
    assert (ws.mailbox / PATH).read_bytes() == b"mine"


@pytest.mark.parametrize("left", [b"", b"te", None])
def test_what_a_power_cut_left_is_made_whole(ws: Workspace, left: bytes | None) -> None:
    if left is not None:
        (ws.mailbox / PATH).parent.mkdir()
        (ws.mailbox / PATH).write_bytes(left)
    maildir.restore(ws, PATH, b"text")
    assert (ws.mailbox / PATH).read_bytes() == b"text"


def test_a_link_in_its_place_is_replaced_and_not_followed(ws: Workspace, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (ws.mailbox / PATH).parent.mkdir()
    (ws.mailbox / PATH).symlink_to(tmp_path / "secret")
    maildir.restore(ws, PATH, b"text")
    assert ((tmp_path / "secret").read_bytes(), (ws.mailbox / PATH).read_bytes()) == (b"secret", b"text")


def test_few_are_synced_one_by_one_with_their_directory_and_many_at_once(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not system.sync_reports_errors():
        pytest.skip("this kernel's syncfs proves nothing")
    names = [f"outbox/2026-11-{10 + number % 2}/{number}.md" for number in range(20)]
    for name in names:
        maildir.put(ws, [(name, b"text")])
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    maildir.sync(ws, sorted(names[:3]))
    assert len(synced) == 5
    maildir.sync(ws, names)
    maildir.sync(ws, [])
    assert len(synced) == 5
