"""Signed heads of the event log, as lines of the journal.

Database and journal reveal changes in each other. Signatures reveal changes in both: with a key (`mailboxd
connect keys`), the daemon signs number and hash of the latest event on every UTC day with events and when it stops. A
head kept elsewhere (`mailboxd db head`) does the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from mailboxd.clock import Clock
from mailboxd.errors import ConfigError, DamagedError, WorldError
from mailboxd.keys import Keyring, PrivateKey
from mailboxd.mailbox.layout import Workspace
from mailboxd.store import event_log
from mailboxd.store.journal import Entry
from mailboxd.store.store import Store

Sign = Callable[[bytes], str | None]
"""Returns a signature of the bytes as text, or None without a key."""
Check = Callable[[bytes, str], bool]
"""Whether the text is a signature of the bytes by the key of this workspace."""

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
            key = _key(ws, environ)
        except ConfigError as error:
            raise WorldError(f"the head of the log cannot be signed: {error}") from error
        return None if key is None else key.sign(raw)

    return sign


def checker(ws: Workspace, environ: Mapping[str, str]) -> Check | None:
    """Check signatures by this workspace's key; None without one. Raises ConfigError, WorldError."""
    key = _key(ws, environ)
    return None if key is None else key.public.has_signed


def _key(ws: Workspace, environ: Mapping[str, str]) -> PrivateKey | None:
    keyring = Keyring.of(ws.root, environ)
    return keyring.private(keyring.own_file) if find_spec("cryptography") is not None else None


def collect(lines: Iterable[Entry], heads: list[Head]) -> Iterator[Entry]:
    """Pass the lines of a journal on, and add the heads among them to `heads`. Raises DamagedError."""
    for line in lines:
        if "head" in line.said:
            heads.append(read(line))
        yield line


def read(line: Entry) -> Head:
    """The head in a line of the journal. Raises DamagedError."""
    try:
        return Head(**line.said["head"])
    except TypeError as error:
        raise DamagedError(f"{line.where} is not a head of the log") from error


def problems(hash_at: Callable[[int], str | None], heads: Iterable[Head], check: Check) -> list[str]:
    """The problems with the heads of a journal, if this workspace has a key. `hash_at`: the hash of an event."""
    heads = list(heads)
    if not heads:
        return ["the journal has no head that is signed by this workspace's key, so it may have been written by others"]
    return [
        f"the head of event {head.seq} is not signed by this workspace's key, or the event is another one"
        for head in heads
        if not check(head.signed(), head.signature) or hash_at(head.seq) != head.hash
    ]


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
