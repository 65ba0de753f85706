"""What signed heads prove, by which key, and to which event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.errors import DamagedError
from mailboxd.formats.keys import PrivateKey
from mailboxd.ledger.signed_heads import NOTHING_PROVEN, Head, Proof, Standing, by_fingerprint, judge, standing

OURS, EARLIER, STRANGERS = (PrivateKey(bytes([number]) * 32) for number in (1, 2, 3))
KEYS = by_fingerprint([OURS.public])
AT = "2026-11-21T23:59:00.000Z"


def recorded(seq: int) -> str | None:
    """The log has ten events."""
    return f"{seq:064x}" if 0 < seq <= 10 else None


def head(seq: int, key: PrivateKey = OURS, hash_: str | None = None) -> Head:
    bare = Head(seq, hash_ or f"{seq:064x}", AT)
    return Head(bare.seq, bare.hash, bare.at, key.sign(bare.signed()))


def proof(*heads: Head) -> Proof:
    return judge([(f"line {number}", one) for number, one in enumerate(heads, 1)], recorded, KEYS)


def test_a_head_by_a_key_at_hand_proves_every_event_up_to_its_own() -> None:
    assert proof(head(4), head(7)) == Proof(7, OURS.public.fingerprint, AT)
    assert proof(head(7), head(4)).seq == 7
    assert "events 8 to 10 are consistent, not proven" in proof(head(7)).in_words(10)
    assert proof(head(10)).in_words(10) == f"proven to event 10 by the key {OURS.public.fingerprint}, signed at {AT}"


def test_a_rotated_key_neither_proves_nor_contradicts() -> None:
    found = proof(head(4, EARLIER))
    assert found == Proof(unknown=frozenset({EARLIER.public.fingerprint}))
    assert found.in_words(10).startswith("consistent, not proven: its heads are signed with")
    assert proof(head(4, EARLIER), head(7)).seq == 7  # who signed event 7 has vouched for those before it


def test_without_heads_or_keys_nothing_is_proven() -> None:
    assert proof() == NOTHING_PROVEN
    assert judge([("line 1", head(4))], recorded, {}).seq == 0
    assert proof().in_words(10) == "consistent, not proven, and no key at hand vouches for it"


@pytest.mark.parametrize("key", [OURS, EARLIER])
@pytest.mark.parametrize("seq", [0, 4, 11, -1, 1 << 70])
def test_the_head_of_another_history_is_wrong_whoever_signed_it(key: PrivateKey, seq: int) -> None:
    other = head(seq, key, "f" * 64)
    assert standing(other, recorded(seq), KEYS) is Standing.OTHER
    with pytest.raises(DamagedError, match="line 2"):
        proof(head(4), other)


def test_a_signature_that_is_left_when_the_head_is_computed_anew_is_invalid() -> None:
    old = head(4, hash_="f" * 64)
    assert standing(Head(4, f"{4:064x}", AT, old.signature), recorded(4), KEYS) is Standing.INVALID


def test_another_s_signature_under_our_fingerprint_is_invalid() -> None:
    bare = Head(4, f"{4:064x}", AT)
    forged = STRANGERS.sign(bare.signed()).replace(STRANGERS.public.fingerprint, OURS.public.fingerprint)
    assert standing(Head(4, bare.hash, AT, forged), recorded(4), KEYS) is Standing.INVALID


@given(st.text(max_size=80))
def test_what_is_no_signature_is_invalid_whatever_keys_are_at_hand(text: str) -> None:
    assert standing(Head(4, f"{4:064x}", AT, text), recorded(4), {}) is Standing.INVALID
