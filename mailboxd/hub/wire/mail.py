"""The rules by which no message between hosts is lost or doubled.

A sender keeps each message in one of two places until its receipt is back:

    new ──the server has stored it──▶ sent ──the receiver has taken or refused it──▶ gone
     ▲                                  │
     ├──── it cannot be taken now ──────┤   (`pause`)
     └──── the server has lost it ──────┘   (`must_resend`)

The server may lose, repeat, reorder and bring back anything: its acknowledgement only saves resending. A receiver
delivers what it has neither in its inbox nor in its database (`on_arrival`), and sends the receipt once the daemon has
committed the message, and again whenever it is asked. A sender without a receipt asks the receiver itself, and sends
again only what is unknown there. Attempts and message ids fence off the rest.

A receiver that was restored from a backup has forgotten what it took. So a sender also asks about work that was taken
and is not done: what is unknown then may have begun, and a person decides.
"""

from __future__ import annotations

from enum import StrEnum

from mailboxd.hub.wire.receipts import digest

GRACE, PATIENCE, LONGEST = 15.0, 120.0, 600.0
"""Seconds until a message without a receipt is asked about, or offered again; until an unknown one is sent again that
the server still holds; and between two times at most."""
MOST_ATTACHED = 64 << 20
"""Bytes of the files that go with a message."""


class Refusal(Exception):
    """Mail that is not carried or delivered, and why."""


def name_of(raw: bytes, ending: str) -> str:
    """The name under which a file is attached: the digest of its bytes, and the ending of its own name."""
    return f"{digest(raw)}{ending}"


def digest_in(name: str) -> str:
    """The digest in the name of an attached file."""
    return name.partition(".")[0]


# The sender's rules


class Known(StrEnum):
    """What a receiver says of a message that it is asked about."""

    UNKNOWN = "unknown"
    INBOX = "inbox"
    COMMITTED = "committed"
    """Or refused, or another message is known under its id: the receipt says which."""


def pause(times: int) -> float:
    """Seconds until the next time that a message is asked about, or offered, after this many."""
    return float(min(GRACE * 2 ** min(times - 1, 10), LONGEST))


def asked_after(times: int) -> float:
    """Seconds after it was sent at which a message is asked about that was there so often."""
    return sum(map(pause, range(1, min(times, 64) + 2)))


def must_resend(known: Known, waited: float, held: int, copies: int = 1) -> bool:
    """Whether to send a message without receipt again, this number of seconds after its last copy.

    `held`: how much of this host's mail for that host the server still holds. If it is none, it has lost the message;
    else the receiver has probably not read all, and each copy waits twice as long as the one before. But a server may
    also hold for ever what it does not deliver.
    """
    if known is not Known.UNKNOWN:
        return False
    return waited >= GRACE if held == 0 else waited >= PATIENCE * 2 ** (copies - 1)


# The receiver's rule


class Arrival(StrEnum):
    """The decision about mail that arrives."""

    DELIVER = "deliver"
    WAIT = "wait"
    """It is in the inbox: the receipt follows once the daemon has committed it."""
    RECEIPT = "receipt"
    """It is committed: only its receipt is sent again."""
    CONFLICT = "conflict"
    """Another message was committed under its id."""


def on_arrival(sha256: str, *, in_inbox: bool, committed: str | None) -> Arrival:
    """The decision about mail with this digest. `committed`: the digest under which the database knows its id.

    The inbox has to be looked at first: the daemon commits before it moves a file out of the inbox, so what is in
    neither was never delivered.
    """
    if in_inbox:
        return Arrival.WAIT
    if committed is None:
        return Arrival.DELIVER
    return Arrival.RECEIPT if committed == sha256 else Arrival.CONFLICT


def known(sha256: str, *, in_inbox: bool, committed: str | None) -> Known:
    """The answer to a sender that asks about a message with this digest."""
    match on_arrival(sha256, in_inbox=in_inbox, committed=committed):
        case Arrival.DELIVER:
            return Known.UNKNOWN
        case Arrival.WAIT:
            return Known.INBOX
        case _:
            return Known.COMMITTED
