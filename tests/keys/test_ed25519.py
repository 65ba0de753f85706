"""One key: its text is the only one, its fingerprint names it, and only what it signed verifies."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.formats.keys import PrivateKey, PublicKey, parse_signature

# RFC 8032, section 7.1, test 2
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNED = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_it_is_the_ed25519_of_the_standard() -> None:
    key = PrivateKey(SEED)
    assert key.public == PublicKey(PUBLIC)
    assert key.public.fingerprint == hashlib.sha256(PUBLIC).hexdigest()[:32]
    fingerprint, signature = parse_signature(key.sign(b"\x72"))
    assert (fingerprint, signature) == (key.public.fingerprint, SIGNED)
    assert key.public.verifies(SIGNED, b"\x72")


def test_texts_are_read_back_and_the_private_half_is_never_shown() -> None:
    key = PrivateKey.new()
    assert PrivateKey.parse(key.file_text()) == key
    assert PublicKey.parse(str(key.public)) == key.public
    secret = key.file_text().strip().partition(":")[2]
    assert secret not in repr(key)
    assert secret not in str(key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        "ssh-ed25519 AAAA",
        str(PublicKey(PUBLIC)) + "A",
        str(PublicKey(PUBLIC))[:-1] + "x",  # the same bytes in another spelling
        str(PublicKey(PUBLIC)).replace("ed25519", "ED25519"),
        "ed25519-private:" + str(PublicKey(PUBLIC)).partition(":")[2],
    ],
)
def test_an_invalid_public_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a key|base64url"):
        PublicKey.parse(text)


def test_an_error_about_a_private_key_does_not_quote_it() -> None:
    text = PrivateKey(SEED).file_text().strip() + "x"
    with pytest.raises(ValueError, match="not a key") as refused:
        PrivateKey.parse(text)
    assert text[20:40] not in str(refused.value)


def test_a_key_that_is_no_point_of_the_curve_verifies_nothing() -> None:
    assert not PublicKey(bytes([2]) + bytes(31)).verifies(SIGNED, b"\x72")


@given(st.integers(0, 63), st.integers(1, 255), st.binary(max_size=20))
def test_any_other_signature_or_text_does_not_verify(at: int, flip: int, said: bytes) -> None:
    forged = bytearray(SIGNED)
    forged[at] ^= flip
    assert not PublicKey(PUBLIC).verifies(bytes(forged), b"\x72")
    assert PublicKey(PUBLIC).verifies(SIGNED, said) is (said == b"\x72")
