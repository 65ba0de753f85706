"""The wire between hosts: names, subjects and receipts, and every order of what may happen to two messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.vocabulary import is_id
from mailboxd.hub.wire.mail import GRACE, PATIENCE, Arrival, Known, known, must_resend, on_arrival, pause
from mailboxd.hub.wire.names import Address, is_host, permits
from mailboxd.hub.wire.receipts import Receipt, ReceiptStage, digest, settles
from mailboxd.hub.wire.subjects import SUBJECTS, Subject, incoming, mail_subject, receipt_subject
from tests.hub.exploring import arriving, explore

hosts = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
agents = st.from_regex(r"[a-z0-9_][a-z0-9._-]{0,40}", fullmatch=True).filter(is_id)


@given(hosts, agents)
def test_an_address_is_read_back_whatever_its_case(host: str, agent: str) -> None:
    assert Address.parse(str(Address(host, agent))) == Address(host, agent)
    assert Address.parse(f"{host}.{agent}".upper()) == Address(host, agent)


@pytest.mark.parametrize("text", ["writer", "", ".writer", "beta.", "be ta.writer", "beta.a..b", "-x.writer", "b_c.w"])
def test_what_is_no_address(text: str) -> None:
    assert Address.parse(text) is None


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    Address.parse(text)
    Subject.parse(text)
    Receipt.parse(text.encode("utf-8", "surrogatepass"))
    is_host(text)


def matches(pattern: str, subject: str) -> bool:
    """As the server matches them."""
    wanted, found = pattern.split("."), subject.split(".")
    for number, token in enumerate(wanted):
        if token == ">":
            return len(found) > number
        if number >= len(found) or token not in ("*", found[number]):
            return False
    return len(wanted) == len(found)


@given(hosts, hosts)
def test_a_subject_is_read_back_and_is_stored_for_its_receiver_alone(to: str, sender: str) -> None:
    for subject in (mail_subject(to, sender), receipt_subject(to, sender)):
        assert Subject.parse(str(subject)) == subject
        assert sum(matches(pattern, str(subject)) for pattern in SUBJECTS) == 1
        assert matches(incoming(to), str(subject))
        assert not matches(incoming(f"{to}x"), str(subject))


@pytest.mark.parametrize("text", ["mb.v1.beta.mail.writer.alpha", "mb.v2.beta.pool.alpha", "mb.v3.beta.mail.alpha"])
def test_an_unknown_version_or_kind_is_no_subject(text: str) -> None:
    assert Subject.parse(text) is None


def test_patterns_of_hub_yaml() -> None:
    assert permits(("beta.writer",), "Beta.Writer")
    assert permits(("beta.*",), "beta.writer")
    assert permits(("*",), "gamma.x")
    assert not permits(("beta.*",), "betatron.writer")
    assert not permits((), "beta.writer")


RECEIPT = Receipt("msg_1", digest(b"hello"), "beta", "alpha", "2026-11-25T00:00:00.000Z")


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(ReceiptStage))
def test_a_receipt_is_read_back_and_its_signature_covers_all_of_it(reason: str, at: str, stage: ReceiptStage) -> None:
    receipt = replace(RECEIPT, stage=stage, reason=reason, at=at).signed(lambda content: digest(content))
    assert Receipt.parse(receipt.to_bytes()) == receipt
    assert receipt.signature == digest(receipt.content())
    others = [
        replace(receipt, reason=f"{reason}!"),
        *(replace(receipt, stage=one) for one in ReceiptStage if one != stage),
    ]
    assert all(other.content() != receipt.content() for other in others)


def test_only_what_was_taken_or_refused_is_settled() -> None:
    assert [stage for stage in ReceiptStage if replace(RECEIPT, stage=stage).is_final] == [
        ReceiptStage.TAKEN,
        ReceiptStage.REFUSED,
    ]
    assert [bool(replace(RECEIPT, stage=stage).refused) for stage in ReceiptStage] == [False, True, False, False]


@pytest.mark.parametrize(("refused", "stage"), [("", ReceiptStage.TAKEN), ("no such agent", ReceiptStage.REFUSED)])
def test_a_receipt_that_an_earlier_version_kept_is_read(refused: str, stage: ReceiptStage) -> None:
    kept = json.loads(RECEIPT.to_bytes()) | {"refused": refused}
    del kept["stage"], kept["reason"]
    found = Receipt.parse(json.dumps(kept).encode())
    assert found is not None
    assert (found.stage, found.refused) == (stage, refused)


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"message_id": 1}', b"[" * 100_000, RECEIPT.to_bytes()[:-1], b"\xff"])
def test_anything_else_is_no_receipt(raw: bytes) -> None:
    assert Receipt.parse(raw) is None


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["refused", "stage", "taken"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["refused", "stage", "reason", "message_id"]) | st.text(), inner)
    ),
    max_leaves=8,
)


@given(anything)
def test_no_json_breaks_the_parser_of_receipts(value: object) -> None:
    assert Receipt.parse(json.dumps(value).encode()) is None
    damaged = json.loads(RECEIPT.to_bytes())
    for name in (*damaged, "refused"):
        found = Receipt.parse(json.dumps({**damaged, name: value}).encode())
        assert found is None or isinstance(value, str)


@pytest.mark.parametrize("raw", [b'"refused"', b'["refused"]', b"7", b"null"])
def test_json_that_is_no_object_is_no_receipt(raw: bytes) -> None:
    assert Receipt.parse(raw) is None


def test_a_receipt_settles_only_the_message_that_it_names() -> None:
    assert settles(RECEIPT, "beta", ("beta", digest(b"hello"))) == ""
    assert "other bytes" in settles(RECEIPT, "beta", ("beta", digest(b"hello!")))
    assert "was for gamma" in settles(RECEIPT, "beta", ("gamma", digest(b"hello")))
    assert "was for beta" in settles(RECEIPT, "gamma", ("beta", digest(b"hello"))), "a host's word about another's mail"
    assert "no message" in settles(RECEIPT, "beta", None)


def test_only_an_unknown_message_is_sent_again_ever_more_rarely_if_the_server_holds_it() -> None:
    assert not any(must_resend(known, 10 * PATIENCE, held=0) for known in Known if known is not Known.UNKNOWN)
    unknown = partial(must_resend, Known.UNKNOWN)
    assert not unknown(GRACE - 1, held=0)
    assert unknown(GRACE, held=0)
    assert not unknown(GRACE, held=1)
    assert [unknown(3 * PATIENCE, held=1, copies=copies) for copies in (1, 2, 3)] == [True, True, False]
    day = [copies for copies in range(1, 30) if sum(PATIENCE * 2 ** (one - 1) for one in range(1, copies)) < 86_400]
    assert max(day) == 10, "copies of a message that the server never delivers, in a day"


def test_pauses_grow_to_ten_minutes() -> None:
    assert [pause(times) for times in (1, 2, 3, 6, 7, 10_000)] == [15, 30, 60, 480, 600, 600]


# Every interleaving, in small scopes: two hosts and two messages. The steps are the rules that the hub process follows.

MOST_STATES = 400_000


@dataclass(frozen=True, slots=True)
class World:
    """A state. Each tuple has an entry per message."""

    place: tuple[str, ...]
    """Where the sender keeps it: new, sent, gone; or a person decides about it."""
    mail: tuple[int, ...]
    """Copies in the server's store."""
    receipts: tuple[int, ...]
    """That it was taken."""
    put_off: tuple[bool, ...]
    """A receipt says that it cannot be taken now."""
    looked: tuple[Arrival | None, ...]
    """What the receiver has decided and not done yet."""
    unread: tuple[bool, ...]
    """It is in the receiver's inbox."""
    committed: tuple[bool, ...]
    owed: tuple[bool, ...]
    """The receiver remembers to send a receipt."""
    faults: int
    """How much may still go wrong."""
    stuck: int = 0
    """Copies that the server holds and never delivers."""
    old_mail: tuple[int, ...] | None = None
    """An old copy of the server's store."""
    is_full: bool = False
    """The receiver cannot take anything."""
    backup: tuple[tuple[bool, ...], tuple[bool, ...]] | None = None
    """Of the receiver: what was in its inbox, and what it had committed."""
    was_restored: bool = False
    twice: bool = False
    """A message was delivered into the mailbox that had it."""


def first(count: int, may_fail: int) -> World:
    no, none = (0,) * count, (False,) * count
    return World(("new",) * count, no, no, none, (None,) * count, none, none, none, may_fail)


Values = tuple[object, ...]


def changed(world: World, number: int, **values: object) -> World:
    def with_one(old: Values, value: object) -> Values:
        return (*old[:number], value, *old[number + 1 :])

    return replace(world, **{name: with_one(getattr(world, name), value) for name, value in values.items()})  # type: ignore[arg-type]


def steps(world: World) -> Iterator[tuple[str, World]]:
    """What may happen next, without a fault."""
    if world.is_full:
        yield "there is room again", replace(world, is_full=False)
    for n in range(len(world.place)):
        to, digests = f"of {n}", {True: f"digest {n}", False: None}
        arrival = on_arrival(f"digest {n}", in_inbox=world.unread[n], committed=digests[world.committed[n]])
        answer = known(f"digest {n}", in_inbox=world.unread[n], committed=digests[world.committed[n]])
        if world.place[n] == "new":
            stored = changed(world, n, mail=min(world.mail[n] + 1, 2))
            yield f"publish {to}", changed(stored, n, place="sent")
            if world.faults:  # between the server's acknowledgement and its note in the spool
                yield f"publish {to}, and crash", replace(stored, faults=world.faults - 1)
        held = sum(world.mail) + world.stuck
        if world.place[n] == "sent" and must_resend(answer, PATIENCE if world.stuck else GRACE, held):
            yield f"ask {to}: it is unknown, and sent again", changed(world, n, place="new")
        elif world.place[n] == "sent" and answer is not Known.UNKNOWN:
            yield f"ask {to}: its receipt will come", changed(world, n, owed=True)
        elif world.place[n] == "gone" and answer is Known.UNKNOWN:
            yield f"ask about the work {to}: it is forgotten", changed(world, n, place="a person decides")
        if world.mail[n] and not any(world.looked):  # one after the other
            yield f"look at arrival {to}", changed(world, n, looked=arrival)
        if world.looked[n] is not None:
            yield f"handle arrival {to}", handled(world, n)
        if world.unread[n]:  # the daemon: it commits, then it files
            yield f"commit {to}", changed(world, n, committed=True, unread=False)
        if world.owed[n] and world.committed[n]:
            yield f"send receipt {to}", changed(world, n, owed=False, receipts=min(world.receipts[n] + 1, 2))
        if world.receipts[n]:
            pending = ("beta", f"digest {n}") if world.place[n] in ("new", "sent") else None
            receipt = Receipt(f"msg_{n}", f"digest {n}", "beta", "alpha", "")
            place = world.place[n] if settles(receipt, "beta", pending) else "gone"
            yield f"take receipt {to}", changed(world, n, place=place, receipts=world.receipts[n] - 1)
        if world.put_off[n]:
            place = "new" if world.place[n] == "sent" else world.place[n]
            yield f"offer again {to}", changed(world, n, place=place, put_off=False)


def handled(world: World, n: int) -> World:
    """The receiver does what it decided, and acknowledges the copy to the server."""
    done = changed(world, n, looked=None, mail=max(world.mail[n] - 1, 0))
    if world.looked[n] is not Arrival.DELIVER:
        return changed(done, n, owed=True)
    if world.is_full:
        return changed(done, n, put_off=True)
    return replace(changed(done, n, unread=True, owed=True), twice=world.twice or world.unread[n] or world.committed[n])


def faults(world: World) -> Iterator[tuple[str, World]]:
    count = len(world.place)
    nothing, none, less = (0,) * count, (False,) * count, replace(world, faults=world.faults - 1)
    if not world.faults:
        return
    crashed = replace(less, looked=(None,) * count, owed=none)
    yield "the receiver crashes", crashed
    yield "the store is deleted", replace(less, mail=nothing, receipts=nothing, put_off=none)
    if not world.is_full:
        yield "the receiver's disk is full", replace(less, is_full=True)
    if world.old_mail is None:
        yield "the store is copied", replace(world, old_mail=world.mail)
    else:
        yield "the store is rewound", replace(less, mail=world.old_mail, receipts=nothing, put_off=none)
    if world.backup is None:
        yield "the receiver is copied", replace(world, backup=(world.unread, world.committed))
    else:
        unread, committed = world.backup
        yield "the receiver is restored", replace(crashed, unread=unread, committed=committed, was_restored=True)
    for n in range(count):
        if world.mail[n]:
            yield f"mail {n} is lost", changed(less, n, mail=world.mail[n] - 1)
            yield f"mail {n} is stuck", changed(replace(less, stuck=1), n, mail=world.mail[n] - 1)
        if world.receipts[n]:
            yield f"receipt {n} is lost", changed(less, n, receipts=world.receipts[n] - 1)
        if world.put_off[n]:
            yield f"receipt {n} is lost", changed(less, n, put_off=False)
        if world.place[n] != "new":
            yield f"mail {n} is repeated", changed(less, n, mail=min(world.mail[n] + 1, 2))
        if world.committed[n]:
            yield f"receipt {n} is repeated", changed(less, n, receipts=min(world.receipts[n] + 1, 2))


def worlds(named: Callable[[World], Iterable[tuple[str, World]]]) -> Callable[[World], Iterator[World]]:
    """The states alone, without the names of what leads there."""
    return lambda world: (then for _, then in named(world))


def is_settled(world: World) -> bool:
    """The receiver has all of it, but for what it has forgotten after it was restored: a person decides about that."""
    found = zip(world.place, world.committed, strict=True)
    return all(place == "a person decides" or (place == "gone" and committed) for place, committed in found)


def law(count: int, may_fail: int) -> int:
    """Nothing twice in any state, and from each of them everything arrives once nothing fails any more."""
    before = explore(first(count, may_fail), worlds(steps), worlds(faults), MOST_STATES)
    for world in before:
        assert not world.twice, "a message was delivered into the mailbox twice"
        for place, committed in zip(world.place, world.committed, strict=True):
            assert place != "gone" or committed or world.was_restored, "it left the sender before the receiver had it"
            assert place != "a person decides" or world.was_restored, "a person was asked for nothing"
    arrives = arriving(before, is_settled)
    assert len(arrives) == len(before), "in some state a message is lost"
    return len(before)


@pytest.mark.parametrize("may_fail", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_one_message_is_neither_lost_nor_doubled(record_property: Callable[[str, object], None], may_fail: int) -> None:
    states = law(1, may_fail)
    record_property("states", states)
    print(f"{states} states")


@pytest.mark.slow
def test_two_messages_are_neither_lost_nor_doubled(record_property: Callable[[str, object], None]) -> None:
    states = law(2, 1)
    record_property("states", states)
    print(f"{states} states")
