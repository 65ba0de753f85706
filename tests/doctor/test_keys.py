"""Doctor's checks of the signing keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.keys import Keyring, PrivateKey
from mailboxd.host.pip_extras import to_add
from mailboxd.operate.doctor.facts import Keys
from mailboxd.operate.doctor.workspace import probe_keys, signing_keys
from tests.doctor.facts import HEALTHY

NOW = "2026-01-01T00:00:00.000Z"


def found(**said: Any) -> list[tuple[str, str, str]]:
    results = signing_keys(HEALTHY, Keys("/state/keys", **said))
    return [(finding.id, finding.level, " ".join(finding.fixes)) for finding in results]


def test_without_keys_nothing_is_reported() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("said", "slug", "level", "fix"),
    [
        ({"own": True}, "keys", "ok", ""),
        ({"required": ("beta",)}, "keys-required", "error", "mailboxd connect keys trust beta FILE_OR_KEY"),
        ({"own": True, "extra": False}, "keys-extra", "error", to_add("signing")),
        ({"problems": ("it is damaged",)}, "keys-unusable", "error", "ls -la /state/keys"),
        ({"own": True, "mode": 0o777}, "keys-folder", "error", "chmod 700 /state/keys"),
        ({"trusted": ("beta",)}, "keys-own", "note", "mailboxd connect keys create"),
        ({"own": True, "trusted": ("gone",)}, "keys-unknown", "warning", "mailboxd connect keys untrust gone"),
        ({"own": True, "trusted": ("beta", "operator")}, "keys", "ok", ""),
    ],
)
def test_each_thing_that_can_be_wrong(said: dict[str, Any], slug: str, level: str, fix: str) -> None:
    assert (slug, level, fix) in found(**said)


def test_the_probe_reports_existing_keys(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    root = tmp_path / "ws"
    assert probe_keys(root, (), environ) == Keys(str(Keyring.of(root, environ).folder), owner=os.geteuid())
    keyring = Keyring.of(root, environ)
    keyring.create(keyring.own_file)
    keyring.trust("Beta", PrivateKey.new().public, NOW)
    seen = probe_keys(root, ("human", "Gamma"), environ)
    assert (seen.own, seen.operator, seen.trusted, seen.required) == (True, False, ("beta",), ("gamma", "operator"))
    assert seen.problems == ()


def test_a_private_key_that_others_can_read_and_a_damaged_list(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    keyring = Keyring.of(tmp_path / "ws", environ)
    keyring.create(keyring.own_file)
    (keyring.folder / keyring.own_file).chmod(0o640)
    (keyring.folder / keyring.trusted_file).write_text("{")
    (keyring.folder / keyring.trusted_file).chmod(0o600)
    key, trusted = probe_keys(tmp_path / "ws", (), environ).problems
    assert "can read or change it" in key
    assert "is damaged" in trusted
