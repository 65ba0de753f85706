"""Where keys lie, who may read them, and what is refused rather than used."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mailboxd.errors import ConfigError, Refused, UnavailableError, WorldError
from mailboxd.keys.keyring import PrivateKey, Ring

NOW = "2026-11-21T12:00:00.000Z"


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring.of(tmp_path / "ws", {"XDG_STATE_HOME": str(tmp_path / "state")})


def test_the_directory_is_the_users_and_never_the_workspaces(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    assert Ring.of(ws, {"XDG_STATE_HOME": "/x"}).folder == Path("/x/mailboxd/keys")
    assert Ring.of(ws, {"XDG_STATE_HOME": "relative", "HOME": "/h"}).folder == Path("/h/.local/state/mailboxd/keys")
    assert Ring.of(ws, {}).own_file != Ring.of(tmp_path / "other", {}).own_file
    assert Ring.of(ws, {}).operator_file == Ring.of(tmp_path / "other", {}).operator_file


def test_nothing_is_there_at_first_and_looking_makes_nothing(ring: Ring) -> None:
    assert ring.private(ring.own_file) is None
    assert ring.trusted() == ()
    assert ring.stamp(ring.trusted_file) is None
    assert not ring.state.exists()


@pytest.mark.parametrize("home", ["/nonexistent", "/dev/null", "/proc/version"])
def test_an_account_without_a_home_has_no_keys(tmp_path: Path, home: str) -> None:
    ring = Ring.of(tmp_path, {"HOME": home})
    assert (ring.private(ring.own_file), ring.trusted(), ring.stamp(ring.trusted_file)) == (None, (), None)


def test_everything_is_readable_by_its_owner_only_whatever_the_umask(ring: Ring) -> None:
    before = os.umask(0)
    try:
        key = ring.create(ring.own_file)
        ring.trust("writer", key.public, NOW)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [ring.state, *ring.state.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if not path.is_dir()} == {0o600}
    assert len(modes) == 5


def test_a_key_is_made_once_and_never_replaced(ring: Ring) -> None:
    key = ring.create(ring.own_file)
    with pytest.raises(Refused) as refused:
        ring.create(ring.own_file)
    assert refused.value.rule == "key-exists"
    assert ring.private(ring.own_file) == key


def test_a_name_may_have_several_keys_and_loses_all_of_them(ring: Ring) -> None:
    old, new = PrivateKey.new().public, PrivateKey.new().public
    assert ring.trust("Writer", old, NOW)
    assert not ring.trust("writer", old, NOW)
    assert ring.trust("writer", new, NOW)
    assert ring.trust("human", PrivateKey.new().public, NOW)
    assert [row.name for row in ring.trusted()] == ["writer", "writer", "operator"]
    assert [row.public for row in ring.untrust("WRITER")] == [old, new]
    assert [row.name for row in ring.trusted()] == ["operator"]
    with pytest.raises(UnavailableError):
        ring.untrust("writer")


def test_a_key_is_of_one_sender_only(ring: Ring) -> None:
    key = PrivateKey.new().public
    ring.trust("writer", key, NOW)
    with pytest.raises(Refused) as refused:
        ring.trust("operator", key, NOW)
    assert refused.value.rule == "key-in-use"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_can_read_or_write_is_not_used(ring: Ring, mode: int) -> None:
    key = ring.create(ring.own_file)
    ring.trust("writer", key.public, NOW)
    for name in (ring.own_file, ring.trusted_file):
        (ring.folder / name).chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        ring.private(ring.own_file)
    if mode & 0o022:
        with pytest.raises(ConfigError, match="chmod 600"):
            ring.trusted()
    else:  # public keys are no secret; an administrator may keep them for us
        assert len(ring.trusted()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_what_another_user_owns_is_not_used(ring: Ring) -> None:
    key = ring.create(ring.own_file)
    ring.trust("writer", key.public, NOW)
    for name in (ring.own_file, ring.trusted_file):
        os.chown(ring.folder / name, 65533, 65533)
    with pytest.raises(ConfigError, match="belongs to others"):
        ring.private(ring.own_file)
    with pytest.raises(ConfigError, match="belongs to others"):
        ring.trusted()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"trusted": [1]}', '{"trusted": [{"name": "a", "key": "x"}]}', "\0"])
def test_a_damaged_file_is_an_error_and_never_an_empty_one(ring: Ring, text: str) -> None:
    ring.trust("writer", ring.create(ring.own_file).public, NOW)
    for name in (ring.own_file, ring.trusted_file):
        (ring.folder / name).write_text(text)
    with pytest.raises(ConfigError, match="damaged"):
        ring.private(ring.own_file)
    with pytest.raises(ConfigError, match="damaged"):
        ring.trusted()


def test_no_link_is_followed_and_no_fifo_waited_for(ring: Ring, tmp_path: Path) -> None:
    key = ring.create(ring.own_file)
    elsewhere = tmp_path / "elsewhere"
    (ring.folder / ring.own_file).rename(elsewhere)
    (ring.folder / ring.own_file).symlink_to(elsewhere)
    os.mkfifo(ring.folder / ring.trusted_file)
    with pytest.raises(ConfigError, match="regular"):
        ring.private(ring.own_file)
    with pytest.raises(ConfigError, match="regular"):
        ring.trusted()
    with pytest.raises(Refused):
        ring.create(ring.own_file)
    assert elsewhere.read_text() == key.file_text()


def test_a_linked_directory_is_refused(ring: Ring, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ring.state.mkdir()
    (ring.state / "mailboxd").symlink_to(tmp_path / "other")
    with pytest.raises(WorldError):
        ring.create(ring.own_file)
    with pytest.raises(WorldError):
        ring.private(ring.own_file)
    assert list((tmp_path / "other").iterdir()) == []
