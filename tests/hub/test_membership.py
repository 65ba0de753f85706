"""Founding, inviting, joining, revoking: the files of this host, and what the server is told."""

from __future__ import annotations

import json
import re
import shlex
import stat
from dataclasses import asdict, replace
from pathlib import Path

import nkeys
import pytest

from mailboxd.errors import ConfigError, Refused, UnavailableError
from mailboxd.hub.files.membership import HostKeys, Membership
from mailboxd.hub.files.server import permissions
from mailboxd.hub.wire.members import Invitation, Members, nkey, nkey_seed
from mailboxd.hub.wire.subjects import CLAIMS, FILES, JOBS, POOLS, STREAM, files_of
from mailboxd.keys import PrivateKey
from tests.hub.farm import Host


@pytest.fixture
def founder(tmp_path: Path) -> Host:
    host = Host(tmp_path / "alpha", "alpha", {})
    host.ordered("init", "alpha", "--address", "127.0.0.1:4222")
    return host


@pytest.fixture
def other(tmp_path: Path) -> Host:
    return Host(tmp_path / "beta", "beta", {})


def membership(host: Host) -> Membership:
    return Membership.of(host.env)


def invited(founder: Host, name: str = "beta") -> str:
    return founder.ordered("invite", name).strip()


def test_the_keys_are_those_that_nats_reads() -> None:
    key = PrivateKey.new()
    pair = nkeys.from_seed(bytearray(nkey_seed(key).encode()))
    assert pair.public_key.decode() == nkey(key.public)
    assert key.public.verifies(pair.sign(b"nonce"), b"nonce")


def test_what_the_founder_writes_is_its_owners_alone(founder: Host) -> None:
    secret = [path for path in founder.folder.rglob("*") if path.is_file()]
    names = {"hub.yaml", "host.key", "hosts.json", "server.pem", "nats.conf", "cert.pem", "key.pem"}
    assert {path.name for path in secret} == names
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in secret} == {0}


def test_the_server_syncs_every_message_speaks_tls_and_knows_each_host(founder: Host) -> None:
    invited(founder)
    text = (founder.folder / "server" / "nats.conf").read_text()
    members = membership(founder).members(membership(founder).settings().founder)
    assert "sync_interval: always" in text
    assert "tls {" in text
    for host in ("alpha", "beta"):
        key = members.key(host)
        assert key is not None
        assert nkey(key) in text


def test_a_host_may_publish_under_its_own_name_only() -> None:
    allowed = permissions("beta", founder=False)
    said = json.dumps(allowed)
    of_pools = (JOBS, CLAIMS, files_of(POOLS))
    own = [subject for subject in allowed["publish"]["allow"] if not any(pools in subject for pools in of_pools)]
    assert all("beta" in subject or "STREAM.INFO" in subject for subject in own)
    assert "STREAM.CREATE" not in said
    assert f'STREAM.MSG.GET.{STREAM}"' not in said, "it could read other hosts' mail"
    assert {subject for subject in allowed["publish"]["allow"] if FILES in subject} == {
        f"$JS.API.DIRECT.GET.{FILES}.{files_of(to)}" for to in ("beta", POOLS)
    }, "it could read other hosts' files"
    assert "STREAM.CREATE" in json.dumps(permissions("alpha", founder=True))


@pytest.mark.slow
def test_a_host_that_joined_knows_the_others_and_belongs_to_one_hub(founder: Host, other: Host) -> None:
    other.ordered("join", "--send", "alpha.*", given=invited(founder))
    settings = membership(other).settings()
    assert (settings.host, settings.send, settings.accept) == ("beta", ("alpha.*",), ())
    assert HostKeys(membership(other))("alpha") == membership(founder).key().public
    assert other.hub("join", given=invited(founder, "gamma")).returncode == 1
    assert founder.hub("invite", "beta").returncode == 1


def test_a_token_that_is_cut_or_changed_is_no_token(founder: Host, tmp_path: Path) -> None:
    token = invited(founder)
    invitation = Invitation.parse(token)
    for text in (token[:-9], "", "x", token.replace("mailboxd-hub-1", "mailboxd-hub-9")):
        with pytest.raises(ConfigError):
            Invitation.parse(text)
    other = Membership.of({"XDG_STATE_HOME": str(tmp_path / "other")})
    for changed in (replace(invitation, key=PrivateKey.new().file_text()), replace(invitation, founder="ed25519:x")):
        with pytest.raises(ConfigError):
            other.join(changed, {})
    assert not other.exists()


def test_a_list_that_the_founder_did_not_sign_counts_nowhere(founder: Host) -> None:
    path, own = founder.folder / "hosts.json", membership(founder).key()
    forged = Members(9, {"alpha": str(PrivateKey.new().public)}).signed(PrivateKey.new())
    assert Members.verified(asdict(forged), own.public) is None
    path.write_text(json.dumps(asdict(forged)))
    with pytest.raises(ConfigError, match="not signed by the hub's founder"):
        HostKeys(membership(founder))("alpha")


@pytest.mark.slow
def test_only_the_founder_invites_and_revokes(founder: Host, other: Host) -> None:
    other.ordered("join", given=invited(founder))
    with pytest.raises(Refused, match="not-founder"):
        membership(other).change_hosts("gamma", PrivateKey.new().public)
    founder.ordered("revoke", "beta")
    assert HostKeys(membership(founder))("beta") is None
    assert "beta" not in (founder.folder / "server" / "nats.conf").read_text()


@pytest.mark.slow
def test_a_host_that_left_belongs_to_no_hub(founder: Host, other: Host) -> None:
    other.ordered("join", given=invited(founder))
    for name in ("status.json", "jobs.json"):  # of a hub process that ran
        (other.folder / name).touch(0o600)
    other.ordered("leave")
    assert [path.name for path in other.folder.iterdir()] == [], "another hub would find what this one left"
    with pytest.raises(UnavailableError):
        membership(other).settings()
    assert other.hub("status").returncode == 69
    assert other.hub("run").returncode == 69


def pasted(host: Host, refused: str) -> None:
    """The command that a refusal names, as it is printed."""
    (command,) = re.findall(r"Run `mailboxd ([^`]+)` first", refused)
    host.ordered(*shlex.split(command)[1:])


@pytest.mark.slow
def test_what_a_refusal_names_makes_way_for_what_was_refused(founder: Host, other: Host) -> None:
    token = invited(founder)
    again = founder.hub("invite", "beta")
    assert again.returncode != 0
    pasted(founder, again.stderr)
    other.ordered("join", given=invited(founder))
    twice = other.hub("join", given=token)
    assert twice.returncode != 0
    pasted(other, twice.stderr)
    assert not membership(other).exists()
