"""Receipts: what became of a message, signed by the host that received it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from mailboxd.core.vocabulary import is_id

_LONGEST_REASON = 500


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
