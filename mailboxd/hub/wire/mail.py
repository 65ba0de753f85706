"""The rules by which no message between hosts is lost or doubled.

A sender keeps each message in one of two places until its receipt is back:

    new ──the server has stored it──▶ sent ──the receiver's receipt──▶ gone
     ▲                                  │
     └──── the server has lost it ──────┘   (`must_resend`)

The server may lose, repeat, reorder and bring back anything: its acknowledgement only saves resending. A receiver
delivers what it has neither in its inbox nor in its database (`on_arrival`), and sends the receipt once the daemon has
committed the message, and again for each repetition. Attempts and message ids fence off the rest.
"""

from __future__ import annotations

from enum import StrEnum

from mailboxd.hub.wire.receipts import digest

GRACE, PATIENCE = 15.0, 120.0
"""Seconds without a receipt after which a message is sent again: if the server no longer holds it, and if it does."""
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


def must_resend(waited: float, held: int, copies: int = 1) -> bool:
    """Whether to send a message without receipt again, this number of seconds after its last copy.

    `held`: how much of this host's mail for that host the server still holds. When it holds none, the receiver has the
    message and will repeat its receipt, or the server has lost it. When it holds any, the receiver probably has not
    read all, and more copies would only fill the store: so each waits twice as long as the one before. But a server
    may also hold for ever what it does not deliver.
    """
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
