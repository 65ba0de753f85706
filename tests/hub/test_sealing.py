"""What is sealed can be opened by its receivers only, whole and unchanged; everything else is refused by name."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.formats.keys import PrivateKey, PublicKey
from mailboxd.hub.wire import sealing
from mailboxd.hub.wire.sealing import (
    Damaged,
    EarlierHolder,
    NewerWire,
    NotForHost,
    OlderWire,
    Opening,
    SealError,
    Sealing,
    can_receive,
    open_sealed,
    seal,
)
from tests.e2e.support import task
from tests.hub.conftest import Joined
from tests.hub.test_fleet import allow
from tests.hub.test_pools import serves, until_served

KEYS = {name: PrivateKey(bytes([number]) * 32) for number, name in enumerate(("alpha", "beta", "gamma"), 1)}
PUBLIC = {name: key.public for name, key in KEYS.items()}
ONE = {"beta": PUBLIC["beta"]}


def sealed_pieces(pieces: list[bytes]) -> list[bytes]:
    sealing = Sealing(ONE)
    return [sealing.piece(piece, is_last=number == len(pieces)) for number, piece in enumerate(pieces, 1)]


def opened(pieces: list[bytes]) -> list[bytes]:
    """Raises SealError, also if they end too early."""
    opening = Opening("beta", KEYS["beta"])
    found = [opening.piece(piece) for piece in pieces]
    if not opening.is_over:
        raise Damaged("cut")
    return found


def is_opened(pieces: list[bytes]) -> bool:
    try:
        return bool(opened(pieces))
    except SealError:
        return False


@given(st.binary(max_size=2_000), st.sets(st.sampled_from(sorted(KEYS)), min_size=1))
def test_each_receiver_opens_what_was_sealed_and_nobody_else_does(raw: bytes, names: set[str]) -> None:
    sealed = seal(raw, {name: PUBLIC[name] for name in names})
    for name, key in KEYS.items():
        if name in names:
            assert open_sealed(sealed, name, key) == raw
        else:
            with pytest.raises(NotForHost):
                open_sealed(sealed, name, key)
    assert len(raw) < 20 or raw not in sealed


@given(st.binary(max_size=300), st.data())
def test_no_bit_can_be_changed(raw: bytes, data: st.DataObject) -> None:
    """Neither of the content nor of the header: nobody can add a receiver or pass for another version."""
    sealed = bytearray(seal(raw, ONE))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.sampled_from([1 << bit for bit in range(8)]))
    with pytest.raises(SealError):
        open_sealed(bytes(sealed), "beta", KEYS["beta"])


@given(st.binary(max_size=1_000))
def test_nonsense_is_refused(raw: bytes) -> None:
    for start in (b"", b"mbx\x02", b"mbx\x02\x00\x00\x00\x08"):
        with pytest.raises(SealError):
            open_sealed(start + raw, "beta", KEYS["beta"])


@pytest.mark.parametrize(
    "header", ["null", "[]", "{}", '{"hosts": 1}', '{"hosts": {"beta": 1}}', '{"hosts": {"beta": ["a"]}}', "[" * 9_000]
)
def test_a_header_that_is_none_is_refused(header: str) -> None:
    raw = header.encode()
    with pytest.raises(SealError):
        open_sealed(b"mbx\x02" + len(raw).to_bytes(4, "big") + raw + bytes(40), "beta", KEYS["beta"])


def test_each_cause_has_its_error() -> None:
    sealed = seal(b"text", ONE)
    causes: list[tuple[type[SealError], bytes, str, PrivateKey]] = [
        (OlderWire, b"---\ntype: task\n---\n", "beta", KEYS["beta"]),
        (NewerWire, b"mbx\x03" + sealed[4:], "beta", KEYS["beta"]),
        (EarlierHolder, sealed, "beta", KEYS["gamma"]),
        (NotForHost, sealed, "gamma", KEYS["gamma"]),
        (Damaged, sealed[:-1], "beta", KEYS["beta"]),
        (Damaged, sealed + b"x", "beta", KEYS["beta"]),
        (Damaged, sealed[:20], "beta", KEYS["beta"]),
    ]
    for cause, raw, host, key in causes:
        with pytest.raises(cause):
            open_sealed(raw, host, key)


def test_nothing_is_sealed_for_nobody_or_for_what_is_no_key() -> None:
    with pytest.raises(SealError):
        seal(b"text", {})
    with pytest.raises(SealError, match="gamma"):
        seal(b"text", {**ONE, "gamma": PublicKey(b"\xff" * 32)})
    assert [can_receive(key) for key in (PUBLIC["beta"], PublicKey(b"\xff" * 32), PublicKey(bytes(32)))] == [
        True,
        False,
        False,
    ]


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=8))
def test_pieces_come_out_as_they_went_in(pieces: list[bytes]) -> None:
    assert opened(sealed_pieces(pieces)) == pieces


@given(st.lists(st.binary(max_size=50), min_size=2, max_size=6), st.data())
def test_no_piece_can_be_moved_repeated_left_out_or_taken_from_elsewhere(
    pieces: list[bytes], data: st.DataObject
) -> None:
    whole, other = sealed_pieces(pieces), sealed_pieces(pieces)
    at = data.draw(st.integers(0, len(whole) - 1))
    wrong = {
        "left out": whole[:at] + whole[at + 1 :],
        "cut": whole[:at],
        "repeated": whole[: at + 1] + whole[at:],
        "moved": [*whole[:at], whole[-1], *whole[at + 1 : -1], whole[at]] if at < len(whole) - 1 else whole[::-1],
        "of another copy": [*whole[:at], other[at], *whole[at + 1 :]],
    }
    for how, found in wrong.items():
        assert not is_opened(found), how


def test_the_same_content_is_never_sealed_the_same_way() -> None:
    assert all(one != other for one, other in pairwise(sorted(seal(b"text", ONE) for _ in range(50))))


def test_the_largest_message_for_the_largest_pool_fits_into_what_the_server_takes() -> None:
    from mailboxd.formats.protocol.front_matter import MAX_FILE
    from mailboxd.hub.files.server import MAX_PAYLOAD

    hosts = {f"{number:063}": PUBLIC["beta"] for number in range(1_000)}
    assert len(seal(bytes(MAX_FILE), hosts)) < MAX_PAYLOAD
    assert len(seal(b"", ONE)) < 300


def test_no_private_key_is_shown() -> None:
    opening = Opening("beta", KEYS["beta"])
    opening.piece(seal(b"text", ONE))
    assert KEYS["beta"].seed.hex() not in repr(opening)
    assert "key" not in repr(opening)


def test_the_header_names_hosts_and_fingerprints_and_nothing_of_the_content() -> None:
    sealed = seal(b"text", ONE)
    header = json.loads(sealed[8 : 8 + int.from_bytes(sealed[4:8], "big")])
    assert header.keys() == {"stream", "hosts"}
    assert header["hosts"]["beta"][0] == PUBLIC["beta"].fingerprint
    assert sealed[3] == sealing.VERSION


SECRETS = ("heliotrope", "vermilion", "chartreuse")
"""A word in the order, one in the results, one in the file."""


@pytest.mark.slow
def test_nothing_of_what_hosts_exchange_is_read_by_the_server_or_found_in_its_store(joined: Joined) -> None:
    """Mail and a job of a pool with their results, one of them so large that it goes along as a file; a search.

    The server writes down all that it gets and sends.
    """
    large = f"{SECRETS[2]}, again and again\n" * 40_000
    works: dict[str, Any] = {
        "mailbox": "true",
        "rules": [{"match": "much", "reply": large}],
        "default": {"reply": f"There is {SECRETS[1]}."},
    }
    farm = joined({"alpha": {"main": {"mailbox": "true"}}, "beta": {"writer": works}})
    serves(farm["beta"], "writer")
    allow(farm["beta"], show="['*']")
    farm.server.kill()
    farm.server.options = ("-V",)
    farm.server.start()
    farm.start()
    until_served(farm, "beta")
    work = {"description": f"Find the {SECRETS[0]}", "expected_output": "One line."}
    plan = {
        "mail": {"agent": "beta.writer", **work},
        "job": {"agent": "pool:reviewer", **work},
        "much": {"agent": "beta.writer", **work, "description": f"Find much of the {SECRETS[0]}"},
    }
    main = farm["alpha"]["main"]
    main.drop("go.md", task("work", plan=plan))
    main.until("work")
    results = [main.task(f"work.{one}")["result"] for one in ("mail", "job")]
    assert all(SECRETS[1] in result for result in results)
    (kept,) = (main.root / "mailbox" / "attachments").iterdir()
    assert kept.read_text().strip() == large.strip()
    assert SECRETS[1] in main.call("search", "--hosts", SECRETS[1]).stdout
    farm.server.kill()
    stored = [path.read_bytes() for path in farm.server.folder.glob("store/**/*") if path.is_file()]
    seen = farm.server.log.read_bytes() + b"".join(stored)
    assert seen.count(b"mbx") > 10, "what was exchanged is there"
    assert not [text for text in SECRETS if text.encode() in seen]
    logs = "".join(host.log.read_text() for host in farm.hosts.values())
    assert not [host for host in farm.hosts.values() if (host.folder / "host.key").read_text().strip() in logs]
