"""The wire between hosts, as pure functions: names, subjects, receipts, and rules by which nothing is lost or doubled.

A sender keeps each message in one of two places until its receipt is back:

    new ──the server has stored it──▶ sent ──the receiver's receipt──▶ gone
     ▲                                  │
     └──── the server has lost it ──────┘   (`must_resend`)

The server may lose, repeat, reorder and bring back anything: its acknowledgement only saves resending. A receiver
delivers what it has neither in its inbox nor in its database (`on_arrival`), and sends the receipt once the daemon has
committed the message, and again for each repetition. Attempts and message ids fence off the rest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from mailboxd.core.vocabulary import POOL, is_id

STREAM = "MAILBOXD"
SUBJECTS = ("mb.v1.*.mail.>", "mb.v1.*.receipt.>")
"""The subjects of the stream. Another version of the wire has other subjects."""
CARDS = "mb.v1.card"
"""Below it each host says who it is, without storage."""
GRACE, PATIENCE = 15.0, 120.0
"""Seconds without a receipt after which a message is sent again: if the server no longer holds it, and if it does."""

_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST_REASON = 500


# Names


@dataclass(frozen=True, slots=True)
class Address:
    """An agent of a host, in lower case: agents' ids ignore case."""

    host: str
    agent: str

    def __str__(self) -> str:
        return f"{self.host}.{self.agent}"

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """The address `host.agent`; None if it is none."""
        host, dot, agent = text.lower().partition(".")
        return cls(host, agent) if dot and is_host(host) and is_id(text) and is_id(agent) else None


def role_of(agent: str) -> str:
    """The role that a pool serves, in lower case; empty for any other name."""
    if not agent.startswith(POOL):
        return ""
    role = agent.removeprefix(POOL)
    return role.lower() if is_id(role) else ""


def is_host(text: str) -> bool:
    """Whether `text` is a host's name: 1 to 63 of a-z 0-9 -, neither first nor last a hyphen."""
    return _HOST.fullmatch(text) is not None


def permits(patterns: tuple[str, ...], address: str) -> bool:
    """Whether one of the patterns (`beta.writer`, `beta.*`, `*`) matches an address."""
    return any(fnmatchcase(address.lower(), pattern.lower()) for pattern in patterns)


# Subjects: mb.v1.<to-host>.mail.<agent>.<from-host>, mb.v1.<to-host>.receipt.<from-host>


@dataclass(frozen=True, slots=True)
class Subject:
    """Where something goes, and which host sent it: the server lets each host publish under its own name only."""

    to: str
    kind: str
    sender: str
    agent: str = ""

    def __str__(self) -> str:
        middle = f"{self.kind}.{token(self.agent)}" if self.agent else self.kind
        return f"mb.v1.{self.to}.{middle}.{self.sender}"

    @classmethod
    def parse(cls, text: str) -> Subject | None:
        """None for a subject of an unknown kind or version."""
        match text.split("."):
            case ["mb", "v1", to, "mail", agent, sender]:
                return cls(to, "mail", sender, untoken(agent))
            case ["mb", "v1", to, "receipt", sender]:
                return cls(to, "receipt", sender)
            case _:
                return None


def token(name: str) -> str:
    """A name in a subject: a dot separates tokens, and no id contains "="."""
    return name.replace(".", "=")


def untoken(text: str) -> str:
    return text.replace("=", ".")


def mail_subject(to: Address, sender: str) -> Subject:
    return Subject(to.host, "mail", sender, to.agent)


def receipt_subject(to: str, sender: str) -> Subject:
    return Subject(to, "receipt", sender)


def incoming(host: str) -> str:
    """The subjects of all that is for this host."""
    return f"mb.v1.{host}.>"


def own_mail(to: str, sender: str) -> str:
    """The subjects of all mail from one host to another."""
    return f"mb.v1.{to}.mail.*.{sender}"


def talk(to: str, sender: str) -> str:
    """The subject of what one host says to another, without storage."""
    return f"mb.v1.{to}.talk.{sender}"


# Files: mb.file.v1.<to-host>.<from-host>.<message>.<name>.<piece>

FILES, FILE_SUBJECTS = "MAILBOXD_FILES", "mb.file.v1.>"
MOST_ATTACHED = 64 << 20
"""Bytes of the files that go with a message."""
POOLS = "pool="
"""The receiver of files for whoever takes a job of a pool; no host has such a name."""


@dataclass(frozen=True, slots=True)
class FileSubject:
    """A file that goes with a message."""

    to: str
    sender: str
    message: str
    name: str

    def piece(self, number: int) -> str:
        return f"mb.file.v1.{self.to}.{self.sender}.{token(self.message)}.{token(self.name)}.{number}"


def files_of(to: str = "*", sender: str = "*") -> str:
    """The subjects of all files for a host, or of one."""
    return f"mb.file.v1.{to}.{sender}.>"


def name_of(raw: bytes, ending: str) -> str:
    """The name under which a file is attached: the digest of its bytes, and the ending of its own name."""
    return f"{digest(raw)}{ending}"


def is_named(raw: bytes, name: str) -> bool:
    """Whether these bytes are what the name of an attached file says."""
    return name.partition(".")[0] == digest(raw)


# Receipts


def digest(raw: bytes) -> str:
    """The digest of the message's bytes in a receipt."""
    return hashlib.sha256(raw).hexdigest()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a message: the receiver has committed it, or refuses it for good.

    It names the bytes and both hosts and says the same whenever it is read, so a replay has no effect.
    """

    message_id: str
    sha256: str
    sender: str
    """The host that receives the message, and sends this."""
    to: str
    """The host that sent the message."""
    at: str
    refused: str = ""
    """Why the message was refused; empty = it was taken."""
    signature: str = ""

    def signed(self, sign: Callable[[bytes], str]) -> Receipt:
        return replace(self, signature=sign(self.content()))

    def content(self) -> bytes:
        """The bytes that are signed."""
        return _json({**asdict(self), "signature": ""})

    def to_bytes(self) -> bytes:
        return _json(asdict(self))

    @classmethod
    def parse(cls, raw: bytes) -> Receipt | None:
        """None for anything else."""
        try:
            found = json.loads(raw)
            receipt = cls(**found)
        except (ValueError, TypeError, RecursionError):
            return None
        texts = all(isinstance(value, str) for value in found.values())
        return receipt if texts and is_id(receipt.message_id) else None


def _json(value: dict[str, str]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def shortened(reason: str) -> str:
    """A reason, as written into a receipt."""
    return " ".join(reason.split())[:_LONGEST_REASON]


# The sender's rules


def must_resend(waited: float, held: int, copies: int = 1) -> bool:
    """Whether to send a message without receipt again, this number of seconds after its last copy.

    `held`: how much of this host's mail for that host the server still holds. When it holds none, the receiver has the
    message and will repeat its receipt, or the server has lost it. When it holds any, the receiver probably has not
    read all, and more copies would only fill the store: so each waits twice as long as the one before. But a server
    may also hold for ever what it does not deliver.
    """
    return waited >= GRACE if held == 0 else waited >= PATIENCE * 2 ** (copies - 1)


def settles(receipt: Receipt, by: str, pending: tuple[str, str] | None) -> str:
    """Why a verified receipt from the host `by` does not settle a message; empty if it does.

    `pending`: the receiving host and the digest of the message that it names; None if none waits under that id.
    """
    if pending is None:
        return "no message with that id waits for a receipt"
    to, sha256 = pending
    if (receipt.sender, receipt.sender) != (by, to):
        return f"the message was for {to}"
    return "" if receipt.sha256 == sha256 else "it names other bytes"


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
