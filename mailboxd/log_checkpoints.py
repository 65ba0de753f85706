"""Checkpoints of the event log, written daily to a file beside the database, which reveal a truncated log.

A hash chain shows every change except a missing end. So the daemon appends a line to `.mailboxd/heads.jsonl` on every
UTC day with events, and when it stops: number and hash of the latest event, the hash of the previous line, and a
signature if there is a key. The database stores the last line, so that a truncated file is noticed too. An attacker who
can write both is caught only by a copy kept elsewhere (`mailboxd audit head`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec

from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Noted, Reports
from mailboxd.errors import ConfigError, WorldError
from mailboxd.keys import Keyring, PrivateKey, parse_signature
from mailboxd.mailbox.files import append_line, directory, open_regular, read_up_to, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.store import event_log
from mailboxd.store.store import Store

Sign = Callable[[bytes], str | None]
"""Returns a signature of the bytes as text, or None without a key."""
Check = Callable[[bytes, str], bool]
"""Whether the text is a signature of the bytes by the key of this workspace."""

FILE = "heads.jsonl"
NOTED = "head"
"""The name in `meta` of number and hash of the last line."""
_CONTEXT = b"mailboxd-head-1\n"
_LARGEST = 64 << 20
_RECENT = 100
"""Checkpoints compared at start; `mailboxd audit verify` compares all."""


@dataclass(frozen=True, slots=True)
class Head:
    """A line of the file. `before` is the hash of the previous line, empty for the first."""

    seq: int
    hash: str
    at: str
    before: str
    signature: str = ""

    def signed(self) -> bytes:
        """The bytes to sign."""
        said = {name: value for name, value in asdict(self).items() if name != "signature"}
        return _CONTEXT + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()

    def line(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode() + b"\n"


def signer(ws: Workspace, environ: Mapping[str, str]) -> Sign:
    """Sign with the key of this workspace's agent, if it has one (`mailboxd keys`) and the extra is installed."""

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
    if key is None:
        return None
    public = key.public

    def check(raw: bytes, text: str) -> bool:
        try:
            fingerprint, signature = parse_signature(text)
        except ValueError:
            return False
        return fingerprint == public.fingerprint and public.verifies(signature, raw)

    return check


def _key(ws: Workspace, environ: Mapping[str, str]) -> PrivateKey | None:
    keyring = Keyring.of(ws.root, environ)
    return keyring.private(keyring.own_file) if find_spec("cryptography") is not None else None


@dataclass(slots=True)
class Heads:
    """The checkpoints of a workspace, written by its daemon."""

    engine: Engine
    ws: Workspace
    sign: Sign
    reports: Reports
    _day: str = ""
    _last: tuple[int, str] | None = None
    """Number of the event and hash of the line written last."""

    def perform(self) -> int:
        """Write a checkpoint once a day if there were events; returns the number of lines. Raises WorldError."""
        today = self.engine.clock.now()[:10]
        if today == self._day:
            return 0
        if self._last is None:
            self._last, day = self._written()
            if day == today:
                self._day = today
                return 0
        return self.write(today)

    def write(self, today: str = "") -> int:
        """Append a checkpoint unless the last one is current. Raises WorldError."""
        self._last = self._last or self._written()[0]
        seq, before = self._last
        tip = event_log.tip(self.engine.store.db)
        if tip.seq <= seq:
            return 0  # no events: checked again in the next round
        head = Head(tip.seq, tip.hash, self.engine.clock.now(), before)
        signature = self.sign(head.signed())
        if signature is not None:
            head = replace(head, signature=signature)
        with world_errors(f"write {self.ws.state / FILE}"), directory(self.ws.root, self.ws.state.name) as fd:
            append_line(fd, FILE, head.line())
        self._last, self._day = (head.seq, digest(head)), today or self._day
        self.reports.append(Noted(NOTED, json.dumps([head.seq, digest(head)])))
        return 1

    def _written(self) -> tuple[tuple[int, str], str]:
        """Event number and hash of the last line, and its day. Raises WorldError."""
        try:
            heads = read(self.ws)
        except ValueError as error:
            raise WorldError(f"{self.ws.state / FILE}: {error}; `mailboxd audit verify` says more") from error
        if not heads:
            return (0, ""), ""
        return (heads[-1].seq, digest(heads[-1])), heads[-1].at[:10]


def read(ws: Workspace) -> list[Head]:
    """All checkpoints, oldest first; an incomplete last line is ignored. Raises WorldError, ValueError."""
    with world_errors(f"read {ws.state / FILE}"), directory(ws.root, ws.state.name) as fd:
        file = open_regular(fd, FILE)
        if file is None:
            return []
        try:
            raw = read_up_to(file, _LARGEST)
        finally:
            os.close(file)
    *lines, _torn = raw.split(b"\n")
    return [parse(line, number) for number, line in enumerate(lines, 1)]


def beyond(ws: Workspace, store: Store) -> str:
    """The newest checkpoint that the log does not contain, as text; empty if it contains all.

    An unreadable file counts as empty here; writing the next checkpoint reports it.
    """
    try:
        heads = read(ws)
    except (ValueError, WorldError):
        return ""
    for head in reversed(heads[-_RECENT:]):
        found = store.hash_at(head.seq)
        if found is None:
            return f"its log ends at event {store.last_event()}, and .mailboxd/{FILE} names event {head.seq}"
        if found != head.hash:
            return f"event {head.seq} of its log differs from .mailboxd/{FILE}"
    return ""


def set_aside(ws: Workspace, stamp: str) -> None:
    """Rename the file of a log that was replaced. Raises WorldError."""
    file = ws.state / FILE
    with world_errors(f"rename {file}"), suppress(FileNotFoundError):
        file.rename(file.with_name(f"{FILE}.replaced-{stamp.replace(':', '').replace('.', '')}"))


def parse(line: bytes, number: int) -> Head:
    """Parse a line. Raises ValueError, naming the line."""
    try:
        said = json.loads(line)
        head = Head(int(said["seq"]), str(said["hash"]), str(said["at"]), str(said["before"]), str(said["signature"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"line {number} is no head of the log") from error
    if head.line() != line + b"\n":
        raise ValueError(f"line {number} is not written as mailboxd writes it")
    return head


def digest(head: Head) -> str:
    """The hash of a line, by which the next line and the database refer to it."""
    return hashlib.sha256(head.line()).hexdigest()
