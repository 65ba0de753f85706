"""Verifying signatures: the key's owner, the addressee, changes; and required signatures."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.errors import ConfigError, MessageError, Refused, WorldError
from mailboxd.formats.keys import Keyring, PrivateKey, Proof, Trust, name_here, require_operator, signed, signer
from mailboxd.formats.protocol.front_matter import MAX_FILE
from mailboxd.formats.protocol.messages import parse_message

NOW = "2026-11-21T12:00:00.000Z"
WRITER, OTHER = PrivateKey.new(), PrivateKey.new()


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    made = Keyring.of(tmp_path / "ws", {"XDG_STATE_HOME": str(tmp_path / "state")})
    made.trust("writer", WRITER.public, NOW)
    return made


def said(sender: str = "writer", to: str = "", body: str = "Done.") -> bytes:
    receiver = f"to: {to}\n" if to else ""
    return f"---\ntype: ack\ntask_id: a\nfrom: {sender}\n{receiver}---\n\n{body}\n".encode()


def examined(keyring: Keyring, raw: bytes) -> Proof:
    return Trust.of(keyring, "main", ()).verify(raw, parse_message(raw, "x.md").message)


def test_a_trusted_key_of_the_sender_is_a_proof(keyring: Keyring) -> None:
    assert examined(keyring, signed(said(), WRITER)) == Proof("yes", WRITER.public.fingerprint)
    assert examined(keyring, signed(said("WRITER", to="Main"), WRITER)).verified == "yes"
    assert examined(keyring, said()) == Proof("unsigned")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (signed(said(), WRITER).replace(b"Done.", b"Don't."), "changed"),
        (signed(said(), OTHER), "not trusted here"),
        (signed(said("editor"), WRITER), "the key of writer"),
        (signed(said("operator"), WRITER), "the key of writer"),
        (signed(said(to="editor"), WRITER), "signed for editor"),
        (signed(said(), WRITER).replace(b"ack", b"plan"), "changed"),
        (
            signed(said(), OTHER).replace(OTHER.public.fingerprint.encode(), WRITER.public.fingerprint.encode()),
            "changed",
        ),
    ],
)
def test_any_other_signature_is_invalid_with_a_reason(keyring: Keyring, raw: bytes, problem: str) -> None:
    proof = examined(keyring, raw)
    assert proof.verified == "no"
    assert problem in proof.problem


def test_whom_we_trust_is_read_again_when_it_changes(keyring: Keyring) -> None:
    trust, raw = Trust.of(keyring, "main", ()), signed(said(), WRITER)
    message = parse_message(raw, "x.md").message
    assert trust.verify(raw, message).verified == "yes"
    keyring.untrust("writer")
    assert trust.verify(raw, message).verified == "no"
    (keyring.folder / keyring.trusted_file).write_text("garbage")
    with pytest.raises(WorldError, match="damaged"):  # not a verdict about the message: it waits
        trust.verify(raw, message)
    with pytest.raises(ConfigError, match="damaged"):
        Trust.of(keyring, "main", ())


def test_only_senders_that_require_signatures_are_refused(keyring: Keyring) -> None:
    trust = Trust.of(keyring, "main", ("Writer", "operator"))
    trust.admit(Proof("yes"), "writer")
    trust.admit(Proof("no", problem="x"), "editor")
    for sender, proof, rule in (
        ("writer", Proof(), "unsigned"),
        ("human", Proof(), "unsigned"),
        ("writer", Proof("no", problem="x"), "bad-signature"),
    ):
        with pytest.raises(MessageError) as refused:
            trust.admit(proof, sender)
        assert refused.value.rule == rule


@pytest.mark.parametrize(
    ("proof", "sender", "rule"),
    [
        (Proof(), "operator", "unsigned-approval"),
        (Proof("no", "f", "x"), "operator", "bad-signature"),
        (Proof("yes", "f"), "writer", "permission-denied"),
    ],
)
def test_only_a_person_whose_key_is_trusted_approves(proof: Proof, sender: str, rule: str) -> None:
    with pytest.raises(Refused) as refused:
        require_operator(proof, sender)
    assert refused.value.rule == rule
    assert require_operator(Proof("yes", "abc"), "human") == "key:abc"


def test_a_daemon_signs_as_soon_as_a_key_exists(keyring: Keyring) -> None:
    sign = signer(keyring)
    assert sign(said()) == said()
    key = keyring.create(keyring.own_file)
    keyring.trust("main", key.public, NOW)
    assert examined(keyring, sign(said("main"))).verified == "yes"
    (keyring.folder / keyring.own_file).unlink()
    assert sign(said()) == said()


def test_a_key_behind_a_link_that_appears_is_refused_and_not_passed_over(keyring: Keyring, tmp_path: Path) -> None:
    sign = signer(keyring)
    keyring.create(keyring.own_file)
    moved = keyring.folder.rename(tmp_path / "elsewhere")
    keyring.folder.symlink_to(moved)
    with pytest.raises(WorldError):
        sign(said())


def test_a_message_without_room_for_a_signature_is_sent_without() -> None:
    raw = said(body="x" * (MAX_FILE - len(said(body=""))))
    assert len(raw) == MAX_FILE
    assert signed(raw, WRITER) == raw


def test_a_key_that_cannot_be_used_stops_the_daemon_before_it_sends_anything_unsigned(keyring: Keyring) -> None:
    keyring.create(keyring.own_file)
    (keyring.folder / keyring.own_file).chmod(0o644)
    with pytest.raises(ConfigError):
        signer(keyring)


def test_whose_word_a_message_may_pass_on(keyring: Keyring) -> None:
    """Never that of one who has to sign; and a sender that signs has to have signed."""
    free = Trust.of(keyring, "main", ())
    strict = Trust.of(keyring, "main", ["Critic"])
    valid, unsigned, bad = Proof("yes", "f"), Proof(), Proof("no", "f", "changed")
    assert free.may_vouch(valid, "writer", "critic")
    assert not free.may_vouch(unsigned, "WRITER", "critic")
    assert free.may_vouch(unsigned, "editor", "critic")
    assert not free.may_vouch(bad, "editor", "critic")
    assert not strict.may_vouch(valid, "writer", "critic")
    assert strict.may_vouch(valid, "writer", "judge")


def test_a_host_speaks_for_its_own_agents_only() -> None:
    assert name_here("beta.writer", "critic") == "beta.critic"
    assert name_here("beta.writer", "alpha.critic") == "beta.alpha.critic"
    assert name_here("writer", "critic") == "critic"
