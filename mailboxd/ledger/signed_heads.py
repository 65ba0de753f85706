"""Signed heads of the event log, as lines of the journal.

Database and journal reveal changes in each other. Signatures reveal changes in both: with a key (`mailboxd
connect keys`), the daemon signs number and hash of the latest event on every UTC day with events and when it stops. A
head kept elsewhere (`mailboxd db head`) does the same.

A head proves all events up to its own to whoever has the public key. Without the key, or after the last head, a record
is only consistent with itself: whoever wrote it anew can have computed every hash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from importlib.util import find_spec
from typing import Any

from mailboxd.errors import ConfigError, DamagedError, WorldError
from mailboxd.formats.keys import Keyring, PrivateKey, PublicKey, known_as, parse_signature
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import Clock
from mailboxd.ledger import event_log
from mailboxd.ledger.journal import Entry
from mailboxd.ledger.store import Store

Sign = Callable[[bytes], str | None]
"""Returns a signature of the bytes as text, or None without a key."""
Keys = Mapping[str, PublicKey]
"""The public keys whose signatures prove the log, by their fingerprints."""

_CONTEXT = b"mailboxd-head-1\n"


@dataclass(frozen=True, slots=True)
class Head:
    """Number and hash of an event, signed at a time."""

    seq: int
    hash: str
    at: str
    signature: str = ""

    def signed(self) -> bytes:
        """The bytes to sign."""
        fields = {name: value for name, value in asdict(self).items() if name != "signature"}
        return _CONTEXT + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def signer(ws: Workspace, environ: Mapping[str, str]) -> Sign:
    """Sign with the key of this workspace's agent, if it has one and the extra is installed."""

    def sign(raw: bytes) -> str | None:
        try:
            key = own_key(ws, environ)
        except ConfigError as error:
            raise WorldError(f"the head of the log cannot be signed: {error}") from error
        return None if key is None else key.sign(raw)

    return sign


def keys_at_hand(ws: Workspace, agent: str, environ: Mapping[str, str]) -> Keys:
    """The public keys of this workspace's agent: that of its private key, and those that are trusted as its own.

    Empty without the extra. Raises ConfigError, WorldError.
    """
    if find_spec("cryptography") is None:
        return {}
    own = own_key(ws, environ)
    trusted = [row.public for row in Keyring.of(ws.root, environ).trusted() if row.name == known_as(agent)]
    return by_fingerprint(trusted if own is None else [own.public, *trusted])


def by_fingerprint(keys: Iterable[PublicKey]) -> Keys:
    return {key.fingerprint: key for key in keys}


def own_key(ws: Workspace, environ: Mapping[str, str]) -> PrivateKey | None:
    """The key of this workspace's agent; None without one, or without the extra. Raises ConfigError, WorldError."""
    keyring = Keyring.of(ws.root, environ)
    return keyring.private(keyring.own_file) if find_spec("cryptography") is not None else None


def collect(lines: Iterable[Entry], heads: list[tuple[str, Head]]) -> Iterator[Entry]:
    """Pass the lines of a journal on, and add the heads among them to `heads`, with their line.

    Raises DamagedError.
    """
    for line in lines:
        if "head" in line.said:
            heads.append((line.where, read(line)))
        yield line


def read(line: Entry) -> Head:
    """The head in a line of the journal. Raises DamagedError."""
    try:
        head = Head(**line.said["head"])
    except TypeError as error:
        raise DamagedError(f"{line.where} is not a head of the log") from error
    if type(head.seq) is not int or not all(isinstance(text, str) for text in (head.hash, head.at, head.signature)):
        raise DamagedError(f"{line.where} is not a head of the log")
    return head


# What heads prove


class Standing(StrEnum):
    """The result of comparing one head with the log and with the keys at hand."""

    SIGNED = "signed"  # it proves every event up to its own
    UNKNOWN = "unknown"  # by a key that is not at hand: it proves nothing, and contradicts nothing
    INVALID = "invalid"  # it names a key at hand, which has not signed it, or it is no signature
    OTHER = "other"  # it is the head of another history

    @property
    def is_wrong(self) -> bool:
        return self in (Standing.INVALID, Standing.OTHER)


def standing(head: Head, recorded: str | None, keys: Keys) -> Standing:
    """How a head stands to a log in which its event has the hash `recorded` (None: there is no such event)."""
    try:
        fingerprint, signature = parse_signature(head.signature)
    except ValueError:
        return Standing.INVALID
    key = keys.get(fingerprint)
    if key is not None and not key.verifies(signature, head.signed()):
        return Standing.INVALID
    if recorded != head.hash:
        return Standing.OTHER
    return Standing.UNKNOWN if key is None else Standing.SIGNED


@dataclass(frozen=True, slots=True)
class Proof:
    """How far signatures prove a log: up to event `seq`, by `key` (a fingerprint) at the time `at`.

    `unknown` are the fingerprints of keys that are not at hand and have signed heads.
    """

    seq: int = 0
    key: str = ""
    at: str = ""
    unknown: frozenset[str] = frozenset()

    def with_head(self, head: Head, found: Standing) -> Proof:
        """What is proven with one more head, which is not wrong."""
        fingerprint, _ = parse_signature(head.signature)
        if found is Standing.UNKNOWN:
            return replace(self, unknown=self.unknown | {fingerprint})
        return self if head.seq < self.seq else replace(self, seq=head.seq, key=fingerprint, at=head.at)

    def facts(self) -> dict[str, Any]:
        """The same as JSON."""
        return {"to": self.seq, "key": self.key or None, "at": self.at or None, "unknown": sorted(self.unknown)}

    def in_words(self, last: int) -> str:
        """What is proven of a log whose last event is `last`."""
        if not self.seq:
            by = f": its heads are signed with {_listed(self.unknown)}" if self.unknown else ""
            return f"consistent, not proven{by}, and no key at hand vouches for it"
        proven = f"proven to event {self.seq} by the key {self.key}, signed at {self.at}"
        return proven if last <= self.seq else f"{proven}; events {self.seq + 1} to {last} are consistent, not proven"


NOTHING_PROVEN = Proof()


def _listed(fingerprints: Iterable[str]) -> str:
    return " and ".join(sorted(fingerprints))


def judge(heads: Iterable[tuple[str, Head]], hash_at: Callable[[int], str | None], keys: Keys) -> Proof:
    """How far the heads of a journal prove a log. `hash_at`: the hash of an event, None if there is none.

    Raises DamagedError for a head that is not signed as it claims, or is of another history.
    """
    proof = NOTHING_PROVEN
    for where, head in heads:
        found = standing(head, hash_at(head.seq), keys)
        if found.is_wrong:
            remedy = "Keep the journal as evidence, restore it from a backup, and find out who wrote there"
            raise DamagedError(f"{where}: {in_words(found, head)}. {remedy}")
        proof = proof.with_head(head, found)
    return proof


def in_words(found: Standing, head: Head) -> str:
    """What is wrong with a head."""
    if found is Standing.INVALID:
        return (
            f"the signature of the head of event {head.seq} is invalid: the record was written anew, or this line was"
        )
    return f"the head of event {head.seq} names the hash {head.hash}, which is not that of the event"


# Signing


@dataclass(slots=True)
class SignedHeads:
    """Signs the log of a workspace for its daemon."""

    store: Store
    clock: Clock
    sign: Sign
    _day: str = ""
    _seq: int = 0

    def perform(self) -> int:
        """Sign once a day if there were events; returns the number of heads. Raises WorldError."""
        today = self.clock.now()[:10]
        if today == self._day:
            return 0
        self._day = today
        return self.write()

    def write(self) -> int:
        """Sign the latest event unless it was signed already; returns the number of heads. Raises WorldError."""
        tip = event_log.tip(self.store.db)
        if self.store.journal is None or tip.seq <= self._seq:
            return 0
        head = Head(tip.seq, tip.hash, self.clock.now())
        signature = self.sign(head.signed())
        if signature is None:
            return 0
        self.store.journal.append_head(asdict(head) | {"signature": signature})
        self._seq = tip.seq
        return 1
