"""Founding, inviting, joining, revoking: the files of this host, and what the server is told."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import stat
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import nkeys
import pytest

from mailboxd.core.times import plus
from mailboxd.errors import ConfigError, Refused, UnavailableError
from mailboxd.formats.keys import PrivateKey
from mailboxd.host import wakeup
from mailboxd.hub.files.membership import HostKeys, Membership
from mailboxd.hub.files.server import permissions
from mailboxd.hub.wire.copies import Rank, Running, yields
from mailboxd.hub.wire.members import Invitation, Invited, Members, answered, nkey, nkey_seed
from mailboxd.hub.wire.signed_json import signed_json
from mailboxd.hub.wire.subjects import API, CLAIMS, FILES, JOBS, POOLS, STREAM, files_of, jobs_of
from tests.e2e.support import eventually
from tests.hub import farm
from tests.hub.farm import Host, Server, free_port


@pytest.fixture
def founder(tmp_path: Path) -> Host:
    return farm.founder(tmp_path, "alpha")


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


@pytest.mark.slow
def test_the_server_syncs_every_message_speaks_tls_and_knows_each_host(founder: Host) -> None:
    token = Invitation.parse(invited(founder))
    text = (founder.folder / "server" / "nats.conf").read_text()
    assert "sync_interval: always" in text
    assert "tls {" in text
    for key in (membership(founder).key().public, token.key):
        assert nkey(key) in text


def test_a_host_may_publish_under_its_own_name_only() -> None:
    allowed = permissions("beta", ("*",))
    said = json.dumps(allowed)
    of_pools = (JOBS, CLAIMS, files_of(POOLS))
    own = [subject for subject in allowed["publish"]["allow"] if not any(pools in subject for pools in of_pools)]
    assert all("beta" in subject or "STREAM.INFO" in subject for subject in own)
    assert "STREAM.CREATE" not in said
    assert f'STREAM.MSG.GET.{STREAM}"' not in said, "it could read other hosts' mail"
    assert {subject for subject in allowed["publish"]["allow"] if FILES in subject} == {
        f"{API}.DIRECT.GET.{FILES}.{files_of(to)}" for to in ("beta", POOLS)
    }, "it could read other hosts' files"
    assert not any(subject.startswith("$JS.API") for subject in allowed["publish"]["allow"])


def test_a_host_may_take_jobs_of_its_pools_only() -> None:
    allowed = json.dumps(permissions("beta", ("reviewer",)))
    assert f"{API}.DIRECT.GET.{JOBS}.{jobs_of('reviewer')}" in allowed
    assert f"{API}.DIRECT.GET.{JOBS}.{jobs_of()}" not in allowed


# The list


def test_a_list_of_an_earlier_version_counts_and_lets_its_hosts_serve_every_pool() -> None:
    founder, beta = PrivateKey.new(), PrivateKey.new()
    earlier = Members(3, {"alpha": str(founder.public), "beta": str(beta.public)}).signed(founder)
    members = Members.verified(json.loads(json.dumps(asdict(earlier))), founder.public)
    assert members is not None
    assert (members.key("beta"), members.pools("beta")) == (beta.public, ("*",))
    assert members.serving("reviewer") == ("alpha", "beta")
    later = members.changed("gamma", PrivateKey.new().public).signed(founder)
    assert Members.verified(json.loads(json.dumps(asdict(later))), founder.public) == later
    assert (later.version, later.key("beta"), later.pools("beta"), later.pools("gamma")) == (4, beta.public, ("*",), ())
    assert later.changed("beta", None).key("beta") is None


def test_who_may_serve_a_pool_is_signed() -> None:
    founder = PrivateKey.new()
    members = Members().changed("alpha", founder.public, ("reviewer",)).signed(founder)
    assert members.serving("Reviewer") == ("alpha",)
    assert members.serving("other") == members.serving("*") == ()
    forged = json.loads(json.dumps(asdict(members)).replace("reviewer", "other"))
    assert Members.verified(forged, founder.public) is None


# Invitations, without a server


HOUR = 3_600.0
NOW = "2026-12-01T12:00:00.000Z"


def invitation(founder: PrivateKey, host: str = "beta") -> tuple[Invitation, Invited]:
    secret = PrivateKey.new()
    token = Invitation(host, ("tls://127.0.0.1:4222",), str(founder.public), secret.file_text().strip(), "")
    return Invitation.parse(token.token()), Invited(str(secret.public), plus(NOW, HOUR), ("reviewer",))


def test_the_first_that_asks_with_a_token_is_let_in_and_may_ask_again_and_no_other() -> None:
    founder, first, second = PrivateKey.new(), PrivateKey.new(), PrivateKey.new()
    token, invited = invitation(founder)
    key = invited.asker("beta", token.request(first))
    assert key == first.public
    assert invited.refusal("beta", key, NOW) == ""
    used = replace(invited, used_by=str(key))
    assert used.refusal("beta", key, plus(NOW, 100 * HOUR)) == "", "its first answer was lost"
    assert "another host has joined as beta" in used.refusal("beta", second.public, NOW)
    assert "expired" in invited.refusal("beta", second.public, plus(NOW, 2 * HOUR))


def test_only_who_has_the_token_and_the_key_asks() -> None:
    token, invited = invitation(PrivateKey.new())
    other, own = invitation(PrivateKey.new())[0], PrivateKey.new()
    stolen = PrivateKey.new().public
    for raw in (other.request(own), b"", b"{}", token.request(own)[:-9]):
        assert invited.asker("beta", raw) is None
    assert invited.asker("gamma", token.request(own)) is None
    claimed = signed_json(PrivateKey.parse(token.secret), {"host": "beta", "key": str(stolen), "proof": own.sign(b"x")})
    assert invited.asker("beta", claimed) is None, "it does not have that key"


def test_only_the_founders_answer_to_this_host_counts() -> None:
    founder, own, other = PrivateKey.new(), PrivateKey.new(), PrivateKey.new()
    token, _ = invitation(founder)
    members = Members().changed("alpha", founder.public).changed("beta", own.public).signed(founder)
    assert token.answer(answered(founder, own.public, members), own.public) == members
    assert token.answer(answered(founder, own.public, "no"), own.public) == "no"
    assert token.answer(answered(founder, other.public, members), own.public) is None
    assert token.answer(answered(other, own.public, members), own.public) is None
    without = members.changed("beta", None).signed(founder)
    assert token.answer(answered(founder, own.public, without), own.public) is None


@pytest.mark.slow
def test_a_token_holds_no_key_of_a_host(founder: Host) -> None:
    token = Invitation.parse(invited(founder))
    keys = {path.read_text().strip() for path in founder.folder.glob("*.key")}
    assert token.secret not in keys
    assert token.key not in (membership(founder).key().public,)
    assert membership(founder).members(token.founder).key("beta") is None, "its key is made when it joins"


@pytest.mark.slow
def test_a_host_that_joins_has_yet_to_be_let_in_and_says_so(founder: Host, other: Host) -> None:
    said = other.ordered("join", "--send", "alpha.*", given=invited(founder))
    assert "not let in yet" in said
    assert "tls://127.0.0.1:4222 does not answer" in said
    settings = membership(other).settings()
    assert (settings.host, settings.send, settings.accept) == ("beta", ("alpha.*",), ())
    assert "has not been let into the hub yet" in other.hub("status").stdout
    assert HostKeys(membership(other)).members() == Members()
    again = other.ordered("join", given=invited(founder, "gamma"))
    assert "as gamma in the hub" in again, "another token replaces one that was not used"


@pytest.mark.slow
def test_a_token_that_is_cut_or_changed_is_no_token(founder: Host, tmp_path: Path) -> None:
    token = invited(founder)
    invitation = Invitation.parse(token)
    for text in (token[:-9], "", "x", token.replace("hub-2", "hub-9"), token.replace("hub-2", "hub-1")):
        with pytest.raises(ConfigError):
            Invitation.parse(text)
    other = Membership.of({"XDG_STATE_HOME": str(tmp_path / "other")})
    for changed in (replace(invitation, host="No"), replace(invitation, servers=("x",))):
        with pytest.raises(ConfigError):
            other.join(Invitation.parse(changed.token()), {})
    for changed in (replace(invitation, secret="x"), replace(invitation, founder="ed25519:x")):
        with pytest.raises(ConfigError):
            Invitation.parse(changed.token())
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
        membership(other).change("gamma", PrivateKey.new().public)
    assert founder.ordered("revoke", "beta") == "withdrew the invitation of beta\n"
    membership(founder).change("beta", PrivateKey.new().public, ("reviewer",))
    assert founder.ordered("pools").splitlines() == ["alpha: *", "beta: reviewer"]
    assert founder.ordered("pools", "beta", "Writer", "scribe") == "beta: scribe, writer\n"
    said = founder.ordered("revoke", "beta")
    assert "is removed once the hub process runs" in said
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
    membership(founder).change("beta", PrivateKey.new().public)
    again = founder.hub("invite", "beta")
    assert again.returncode != 0
    pasted(founder, again.stderr)
    token = invited(founder)
    other.ordered("init", "delta", "--address", "127.0.0.1:4222")
    twice = other.hub("join", given=token)
    assert twice.returncode != 0
    pasted(other, twice.stderr)
    assert not membership(other).exists()


# With a server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Host, Server]]:
    """A founder whose server runs; its hub process does not yet."""
    host, port = Host(tmp_path / "alpha", "alpha", {}), free_port()
    host.ordered("init", "alpha", "--address", f"127.0.0.1:{port}", "--listen", f"127.0.0.1:{port}")
    server = Server(host.folder / "server")
    server.start()
    yield host, server
    host.close()
    server.kill()


def keys_of(host: Host) -> Members:
    return HostKeys(membership(host)).members()


@pytest.mark.slow
def test_one_token_lets_one_host_in_and_both_sides_are_told_of_a_second(
    server: tuple[Host, Server], other: Host, tmp_path: Path
) -> None:
    alpha, _ = server
    third = Host(tmp_path / "third", "third", {})
    token = invited(alpha)
    assert "the hub process of the founder does not run" in other.ordered("join", given=token)
    alpha.start_hub()
    other.start_hub()
    eventually(lambda: other.is_connected_with("alpha"), 30, other.last_words)
    assert keys_of(alpha).key("beta") == membership(other).key().public
    assert not (other.folder / "joining.json").exists()
    refused = third.hub("join", given=token)
    assert refused.returncode == 1
    assert "another host has joined as beta with this token" in refused.stderr
    assert not membership(third).exists()
    assert "beta: another host asked at" in alpha.hub("status").stdout
    assert "another host asks to be let in as beta" in alpha.log.read_text()
    # a host is let in at once if the founder can be reached, and a name that was revoked gets another key
    before = keys_of(alpha).key("beta")
    said = alpha.ordered("revoke", "beta")
    assert said.startswith("revoked beta\n")
    eventually(lambda: "does not know this host: it was revoked" in other.status()["trouble"], 30, other.last_words)
    other.ordered("leave")
    assert other.process is not None
    assert other.process.wait(30) == 0, "it ends when its host leaves"
    assert "not let in yet" not in other.ordered("join", given=invited(alpha))
    assert keys_of(other).key("beta") == membership(other).key().public != before
    # what has expired or was withdrawn, the server does not know
    secret = PrivateKey.new()
    membership(alpha).invite("late", Invited(str(secret.public), "2026-01-01T00:00:00.000Z"))
    eventually(lambda: "late" not in membership(alpha).invited(), 30, alpha.last_words)
    assert nkey(secret.public) not in (alpha.folder / "server" / "nats.conf").read_text()
    late = invited(alpha, "gamma")
    alpha.ordered("revoke", "gamma")
    assert "does not know the token" in third.ordered("join", given=late)
    other.close()


# Copies


def test_of_two_processes_of_a_host_exactly_one_goes_on() -> None:
    every = [Running(run, rank, "x") for run in "ab" for rank in Rank]
    for one in every:
        for other in every:
            if one.run != other.run:
                assert yields(one, other) != yields(other, one)
    old, new = Running("b", Rank.ALONE, "x"), Running("a", Rank.NEW, "x")
    assert yields(new, old), "what runs goes on"
    assert yields(replace(old, rank=Rank.UNSURE), replace(new, rank=Rank.ALONE)), "what was frozen does not"


@pytest.mark.soak
def test_a_copy_is_refused_and_one_that_was_frozen_finds_that_it_was_replaced(
    server: tuple[Host, Server], tmp_path: Path
) -> None:
    alpha, _ = server
    alpha.start_hub()
    eventually(lambda: not alpha.status()["trouble"], 30, alpha.last_words)
    copy = Host(tmp_path / "copy", "alpha", {})
    shutil.copytree(alpha.folder, copy.folder, ignore=shutil.ignore_patterns("server", "ask", wakeup.NAME, "lock"))
    settings = copy.folder / "hub.yaml"
    settings.write_text(re.sub("listen: .*\n", "", settings.read_text()))
    copy.start_hub()
    eventually(lambda: "this is a copy of the host alpha" in copy.status()["trouble"], 30, copy.last_words)
    assert "a copy of this host asked" in alpha.hub("status").stdout
    assert not alpha.status()["trouble"]
    # it stays refused, until a person says otherwise, and while the other one answers
    copy.stop_hub()
    copy.start_hub("--take-over")
    eventually(lambda: "this is a copy" in copy.status()["trouble"], 30, copy.last_words)
    copy.stop_hub()
    assert alpha.process is not None
    alpha.process.send_signal(signal.SIGSTOP)
    copy.start_hub("--take-over")
    eventually(lambda: not copy.status()["trouble"], 30, copy.last_words)
    alpha.process.send_signal(signal.SIGCONT)
    eventually(lambda: "the host alpha was taken over by" in alpha.status()["trouble"], 30, alpha.last_words)
    assert "mailboxd hub run --take-over" in alpha.status()["trouble"]
    assert not copy.status()["trouble"]
    copy.close()
