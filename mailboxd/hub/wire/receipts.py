"""Receipts: what became of a message, signed by the host that received it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from mailboxd.core.vocabulary import is_id

_LONGEST_REASON = 500


def digest(raw: bytes) -> str:
    """The digest of the message's bytes in a receipt."""
    return hashlib.sha256(raw).hexdigest()


class ReceiptStage(StrEnum):
    """How far a message has come at its receiver."""

    TAKEN = "taken"
    """The daemon there has committed it."""
    REFUSED = "refused"
    """It is refused for good."""
    ARRIVED = "arrived"
    """It is in the inbox there, and the daemon has not read it yet."""
    LATER = "later"
    """It cannot be taken now: the sender keeps it and offers it again."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message. `taken` and `refused` settle it.

    It names the bytes and both hosts, and what settles says the same whenever it is read: a replay has no effect.
    """

    message_id: str
    sha256: str
    sender: str
    """The host that receives the message, and sends this."""
    to: str
    """The host that sent the message."""
    at: str
    stage: ReceiptStage = ReceiptStage.TAKEN
    reason: str = ""
    """Why it was refused, or cannot be taken now."""
    signature: str = ""

    @property
    def is_final(self) -> bool:
        """Whether it settles the message."""
        return self.stage in (ReceiptStage.TAKEN, ReceiptStage.REFUSED)

    @property
    def refused(self) -> str:
        """Why the message was refused; empty if it was not."""
        return self.reason or "it gives no reason" if self.stage is ReceiptStage.REFUSED else ""

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
            if not isinstance(found, dict):
                return None
            if "refused" in found:  # kept in a spool by an earlier version
                found["reason"] = found.pop("refused")
                found["stage"] = ReceiptStage.REFUSED if found["reason"] else ReceiptStage.TAKEN
            receipt = cls(**{**found, "stage": ReceiptStage(found["stage"])})
        except (ValueError, TypeError, KeyError, RecursionError):
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
