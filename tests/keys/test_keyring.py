"""Where keys lie, who may read them, and what is refused rather than used."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mailboxd.errors import ConfigError, Refused, UnavailableError, WorldError
from mailboxd.formats.keys import Keyring, PrivateKey

NOW = "2026-11-21T12:00:00.000Z"


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring.of(tmp_path / "ws", {"XDG_STATE_HOME": str(tmp_path / "state")})


def test_the_directory_is_the_users_and_never_the_workspaces(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    assert Keyring.of(ws, {"XDG_STATE_HOME": "/x"}).folder == Path("/x/mailboxd/keys")
    assert Keyring.of(ws, {"XDG_STATE_HOME": ".", "HOME": "/"}).folder == Path("/.local/state/mailboxd/keys")
    assert Keyring.of(ws, {}).own_file != Keyring.of(tmp_path / "other", {}).own_file
    assert Keyring.of(ws, {}).operator_file == Keyring.of(tmp_path / "other", {}).operator_file


def test_a_new_keyring_is_empty_and_reading_creates_nothing(keyring: Keyring) -> None:
    assert keyring.private(keyring.own_file) is None
    assert keyring.trusted() == ()
    assert keyring.stamp(keyring.trusted_file) is None
    assert not keyring.state.parent.exists()


@pytest.mark.parametrize("home", ["/nonexistent", "/dev/null", "/proc/version"])
def test_an_account_without_a_home_has_no_keys(tmp_path: Path, home: str) -> None:
    keyring = Keyring.of(tmp_path, {"HOME": home})
    assert (keyring.private(keyring.own_file), keyring.trusted(), keyring.stamp(keyring.trusted_file)) == (
        None,
        (),
        None,
    )


def test_key_files_are_private_under_any_umask(keyring: Keyring) -> None:
    before = os.umask(0)
    try:
        key = keyring.create(keyring.own_file)
        keyring.trust("writer", key.public, NOW)
    finally:
        os.umask(before)
    modes = {
        path: stat.S_IMODE(path.lstat().st_mode) for path in [keyring.state.parent, *keyring.state.parent.rglob("*")]
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if not path.is_dir()} == {0o600}
    assert len(modes) == 5


def test_a_key_is_made_once_and_never_replaced(keyring: Keyring) -> None:
    key = keyring.create(keyring.own_file)
    with pytest.raises(Refused) as refused:
        keyring.create(keyring.own_file)
    assert refused.value.rule == "key-exists"
    assert keyring.private(keyring.own_file) == key


def test_a_name_may_have_several_keys_and_loses_all_of_them(keyring: Keyring) -> None:
    old, new = PrivateKey.new().public, PrivateKey.new().public
    assert keyring.trust("Writer", old, NOW)
    assert not keyring.trust("writer", old, NOW)
    assert keyring.trust("writer", new, NOW)
    assert keyring.trust("human", PrivateKey.new().public, NOW)
    assert [row.name for row in keyring.trusted()] == ["writer", "writer", "operator"]
    assert [row.public for row in keyring.untrust("WRITER")] == [old, new]
    assert [row.name for row in keyring.trusted()] == ["operator"]
    with pytest.raises(UnavailableError):
        keyring.untrust("writer")


def test_a_key_is_of_one_sender_only(keyring: Keyring) -> None:
    key = PrivateKey.new().public
    keyring.trust("writer", key, NOW)
    with pytest.raises(Refused) as refused:
        keyring.trust("operator", key, NOW)
    assert refused.value.rule == "key-in-use"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_can_read_or_write_is_not_used(keyring: Keyring, mode: int) -> None:
    key = keyring.create(keyring.own_file)
    keyring.trust("writer", key.public, NOW)
    for name in (keyring.own_file, keyring.trusted_file):
        (keyring.folder / name).chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        keyring.private(keyring.own_file)
    if mode & 0o022:
        with pytest.raises(ConfigError, match="chmod 600"):
            keyring.trusted()
    else:  # public keys are no secret; an administrator may keep them for us
        assert len(keyring.trusted()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_files_of_another_user_are_not_used(keyring: Keyring) -> None:
    key = keyring.create(keyring.own_file)
    keyring.trust("writer", key.public, NOW)
    for name in (keyring.own_file, keyring.trusted_file):
        os.chown(keyring.folder / name, 65533, 65533)
    with pytest.raises(ConfigError, match="other users own"):
        keyring.private(keyring.own_file)
    with pytest.raises(ConfigError, match="other users own"):
        keyring.trusted()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"trusted": [1]}', '{"trusted": [{"name": "a", "key": "x"}]}', "\0"])
def test_a_damaged_file_is_an_error_and_never_an_empty_one(keyring: Keyring, text: str) -> None:
    keyring.trust("writer", keyring.create(keyring.own_file).public, NOW)
    for name in (keyring.own_file, keyring.trusted_file):
        (keyring.folder / name).write_text(text)
    with pytest.raises(ConfigError, match="damaged"):
        keyring.private(keyring.own_file)
    with pytest.raises(ConfigError, match="damaged"):
        keyring.trusted()


def test_no_link_is_followed_and_no_fifo_waited_for(keyring: Keyring, tmp_path: Path) -> None:
    key = keyring.create(keyring.own_file)
    elsewhere = tmp_path / "elsewhere"
    (keyring.folder / keyring.own_file).rename(elsewhere)
    (keyring.folder / keyring.own_file).symlink_to(elsewhere)
    os.mkfifo(keyring.folder / keyring.trusted_file)
    with pytest.raises(ConfigError, match="regular"):
        keyring.private(keyring.own_file)
    with pytest.raises(ConfigError, match="regular"):
        keyring.trusted()
    with pytest.raises(Refused):
        keyring.create(keyring.own_file)
    assert elsewhere.read_text() == key.file_text()


def test_a_linked_directory_is_refused(keyring: Keyring, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    keyring.state.parent.mkdir()
    (keyring.state.parent / "mailboxd").symlink_to(tmp_path / "other")
    with pytest.raises(WorldError):
        keyring.create(keyring.own_file)
    with pytest.raises(WorldError):
        keyring.private(keyring.own_file)
    assert list((tmp_path / "other").iterdir()) == []
