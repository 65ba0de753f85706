"""The head of the event log, once a day, in a file beside the database: so that a log that was cut shows.

A hash chain proves that nothing inside was changed; it cannot tell that its end is missing. So the daemon appends a
line to `.mailboxd/heads.jsonl` on every UTC day on which something happened, and when it stops: number and hash of
the newest event, the hash of the line before, and a signature where there is a key. The database remembers the last
line, so that a shortened file shows too. Whoever wants to be safe from somebody who may write both notes a line
elsewhere (`mailboxd audit head`).
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
from mailboxd.keys.keyring import Keyring, PrivateKey, parse_signature
from mailboxd.mailbox.files import append_line, directory, open_regular, read_up_to, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.store import event_log
from mailboxd.store.store import Store

Sign = Callable[[bytes], str | None]
"""A signature of these bytes, as text, or None where there is no key."""
Check = Callable[[bytes, str], bool]
"""Whether the text is a signature of these bytes by the key of this workspace."""

FILE = "heads.jsonl"
NOTED = "head"
"""The name in the table `meta` under which the last line's hash and number stand."""
_CONTEXT = b"mailboxd-head-1\n"
_LARGEST = 64 << 20
_RECENT = 100
"""Heads that are compared at a start; `mailboxd audit verify` compares all."""


@dataclass(frozen=True, slots=True)
class Head:
    """One line. `before` is the hash of the line before it, empty for the first one."""

    seq: int
    hash: str
    at: str
    before: str
    signature: str = ""

    def signed(self) -> bytes:
        """What the signature is made over."""
        said = {name: value for name, value in asdict(self).items() if name != "signature"}
        return _CONTEXT + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()

    def line(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode() + b"\n"


def signer(ws: Workspace, environ: Mapping[str, str]) -> Sign:
    """Signs with the key of this workspace's agent, where it has one (`mailboxd keys`) and the extra is installed."""

    def sign(raw: bytes) -> str | None:
        try:
            key = _key(ws, environ)
        except ConfigError as error:
            raise WorldError(f"the head of the log cannot be signed: {error}") from error
        return None if key is None else key.sign(raw)

    return sign


def checker(ws: Workspace, environ: Mapping[str, str]) -> Check | None:
    """Knows the signatures of this workspace's key; None without one. Raises ConfigError, WorldError."""
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
    """The heads of one workspace's log, written by its daemon."""

    engine: Engine
    ws: Workspace
    sign: Sign
    reports: Reports
    _day: str = ""
    _last: tuple[int, str] | None = None
    """Number of the event and hash of the line that was written last."""

    def perform(self) -> int:
        """Once a day, if something happened since the last head; returns how many lines. Raises WorldError."""
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
        """Append the head as it is now, unless it stands there already. Raises WorldError."""
        self._last = self._last or self._written()[0]
        seq, before = self._last
        tip = event_log.tip(self.engine.store.db)
        if tip.seq <= seq:
            return 0  # nothing happened: asked again with the next round
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
        """What the last line says: its event and its own hash, and the day. Raises WorldError."""
        try:
            heads = read(self.ws)
        except ValueError as error:
            raise WorldError(f"{self.ws.state / FILE}: {error}; `mailboxd audit verify` says more") from error
        if not heads:
            return (0, ""), ""
        return (heads[-1].seq, digest(heads[-1])), heads[-1].at[:10]


def read(ws: Workspace) -> list[Head]:
    """Every head in the file, oldest first; half a line that a crash left is none. Raises WorldError, ValueError."""
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
    """What the heads name that the log does not have, the newest first; empty when it goes through all of them.

    A file that cannot be read says nothing here: who writes the next head says so.
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
    """Keep the heads of a log that was replaced under another name. Raises WorldError."""
    file = ws.state / FILE
    with world_errors(f"rename {file}"), suppress(FileNotFoundError):
        file.rename(file.with_name(f"{FILE}.replaced-{stamp.replace(':', '').replace('.', '')}"))


def parse(line: bytes, number: int) -> Head:
    """A line of the file. Raises ValueError, naming it."""
    try:
        said = json.loads(line)
        head = Head(int(said["seq"]), str(said["hash"]), str(said["at"]), str(said["before"]), str(said["signature"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"line {number} is no head of the log") from error
    if head.line() != line + b"\n":
        raise ValueError(f"line {number} is not written as mailboxd writes it")
    return head


def digest(head: Head) -> str:
    """The hash of its line, by which the next line and the database name it."""
    return hashlib.sha256(head.line()).hexdigest()
