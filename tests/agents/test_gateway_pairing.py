"""The device's file, what it signs, and which gateways it speaks to."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from mailboxd.errors import ConfigError, WorldError
from mailboxd.perform.agents.gateway import client, pairing
from mailboxd.perform.agents.gateway.pairing import Device, Pairing
from mailboxd.perform.agents.gateway.transport import from_config, granted, pairing_file, parse_address
from tests.agents.replay import conversation

DEVICE = Device(bytes(range(32)))
PAIRED = Pairing("ws://127.0.0.1:18789", "mailboxd alpha", DEVICE, "a-token")


# What is signed


@pytest.mark.parametrize("case", ["ok", "pair", "wrong-token"])
def test_a_connection_is_asked_for_as_the_real_gateway_took_it(case: str) -> None:
    recorded = conversation(case)
    challenge = client.parse_challenge(json.dumps(recorded[0]["received"]))
    sent = recorded[1]["sent"]
    assert challenge is not None
    paired = Pairing("ws://127.0.0.1:18789", "mailboxd alpha fixture", DEVICE)
    assert json.loads(client.connect(paired, sent["params"]["auth"]["token"], challenge, "linux")) == sent


def test_the_devices_key_signs_the_payload_of_the_protocol_and_no_token_is_sent_without_one() -> None:
    params = json.loads(client.connect(PAIRED, "", ("nonce", 17), "Linux"))["params"]
    assert "auth" not in params
    signed = f"v3|{DEVICE.id}|cli|cli|operator|operator.write|17||nonce|linux|"
    public = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(DEVICE.public_key + "="))
    public.verify(base64.urlsafe_b64decode(params["device"]["signature"] + "=="), signed.encode())


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        *({"nonce": "n", "ts": ts} for ts in ("1", -1, True, None, 1.5)),
        {"nonce": "", "ts": 1},
        {"nonce": "n"},
    ],
)
def test_an_invalid_challenge(payload: object) -> None:
    assert (
        client.parse_challenge(json.dumps({"type": "event", "event": "connect.challenge", "payload": payload})) is None
    )


def test_no_two_new_devices_are_the_same() -> None:
    assert Device.new().id != Device.new().id


# The file


def test_it_is_kept_outside_of_the_workspace_and_each_workspace_has_its_own() -> None:
    home = {"HOME": "/home/me"}
    here, there = (pairing_file(Path(f"/srv/{name}"), home) for name in ("here", "there"))
    assert here.parent == there.parent == Path("/home/me/.local/state/mailboxd/gateway")
    assert here != there
    assert pairing_file(Path("/srv/here"), {**home, "XDG_STATE_HOME": "/state"}).is_relative_to("/state/mailboxd")
    assert pairing_file(Path("/srv/here"), {**home, "XDG_STATE_HOME": "not/absolute"}) == here


def test_a_pairing_round_trips_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "gateway.json"
    assert pairing.read(path) is None
    pairing.write(path, PAIRED)
    assert pairing.read(path) == PAIRED
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["gateway.json"]
    pairing.remove(path)
    assert pairing.read(path) is None


def test_a_file_of_an_earlier_version_is_of_a_device_that_runs_turns_only(tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    pairing.write(path, replace(PAIRED, scopes=("operator.write", "operator.questions")))
    found = pairing.read(path)
    assert found is not None
    assert found.scopes == ("operator.write", "operator.questions")
    assert json.loads(client.connect(found, "", ("nonce", 17), "linux"))["params"]["scopes"] == list(found.scopes)
    content = json.loads(path.read_text())
    del content["scopes"]
    path.write_text(json.dumps(content))
    assert pairing.read(path) == PAIRED
    assert granted(path) == {"operator.write"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "gateway.json"
    pairing.write(path, PAIRED)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        pairing.read(path)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "no json", '{"url": 1, "name": "n", "key": "AA", "token": null}', '{"key": "%%%"}']
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gateway.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="mailboxd connect gateway pair"):
        pairing.read(path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    pairing.write(tmp_path / "elsewhere", PAIRED)
    (tmp_path / "gateway.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorldError):
        pairing.read(tmp_path / "gateway.json")


def test_neither_key_nor_token_is_ever_shown() -> None:
    shown = f"{PAIRED!r} {PAIRED} {DEVICE!r}"
    assert "a-token" not in shown
    assert repr(DEVICE.seed) not in shown


# Addresses


@pytest.mark.parametrize(
    ("url", "host", "port", "secure"),
    [
        ("ws://127.0.0.1:18789", "127.0.0.1", 18789, False),
        ("ws://localhost:1", "localhost", 1, False),
        ("ws://[::1]:18789", "::1", 18789, False),
        ("ws://127.9.9.9", "127.9.9.9", 80, False),
        ("wss://gateway.example", "gateway.example", 443, True),
        ("wss://10.0.0.7:8443/base?x=1", "10.0.0.7", 8443, True),
    ],
)
def test_an_address_that_may_be_spoken_to(url: str, host: str, port: int, secure: bool) -> None:
    address = parse_address(url)
    assert (address.host, address.port, address.secure) == (host, port, secure)


@pytest.mark.parametrize(
    "url",
    [
        "ws://10.0.0.7:18789", "ws://gateway.example", "ws://localhost.example", "ws://0.0.0.0:1", "ws://[::]:1",
        "http://127.0.0.1", "127.0.0.1:18789", "", "ws://", "ws://127.0.0.1:99999", "wss://me:secret@gateway.example",
        "wss://gateway.example/a\r\nX: y", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_an_address_that_may_not(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_address(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("section", "environ", "url"),
    [
        (None, {}, "ws://127.0.0.1:18789"),
        ({"port": 18911, "mode": "local"}, {}, "ws://127.0.0.1:18911"),
        ({"port": 18911, "tls": {"enabled": True}}, {}, "wss://127.0.0.1:18911"),
        ({"port": 18911}, {"OPENCLAW_GATEWAY_PORT": "19000"}, "ws://127.0.0.1:19000"),
        ({"mode": "remote", "remote": {"url": "wss://g.example"}}, {}, "wss://g.example"),
        ({"mode": "remote"}, {"OPENCLAW_GATEWAY_URL": "wss://other.example"}, "wss://other.example"),
    ],
)
def test_the_gateway_is_the_one_that_openclaw_would_talk_to(section: object, environ: dict[str, str], url: str) -> None:
    assert from_config(section, environ) == url


def test_a_remote_gateway_without_an_address_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--url"):
        from_config({"mode": "remote"}, {})
