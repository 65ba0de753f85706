"""What was refused, kept with its reason for a person to look at: so much and no more, and of one host less."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.hub.wire.receipts import shortened
from mailboxd.hub.wire.subjects import JobSubject, Subject

MOST, MOST_BYTES = 1_000, 64 << 20
MOST_OF_ONE, MOST_BYTES_OF_ONE = 100, 8 << 20
"""Messages and bytes that are kept of one host, so that one that sends rubbish does not keep out those of others."""
_TEXT, _REASON = ".md", ".reason.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """A refused message in the directory."""

    name: str
    host: str
    """The host that sent it; empty for whatever has no sender."""
    size: int
    """Bytes of both files."""


def surplus(kept: list[Kept]) -> list[Kept]:
    """What has to go, of all that is there, the oldest first: of the host that has too much, or has the most."""
    count, size = Counter(one.host for one in kept), Counter[str]()
    for one in kept:
        size[one.host] += one.size
    gone, left = [], dict.fromkeys(kept)
    while left:
        hosts = [host for host in count if count[host] > MOST_OF_ONE or size[host] > MOST_BYTES_OF_ONE]
        if not hosts and count.total() > MOST:
            hosts = [host for host, _ in count.most_common(1)]
        if not hosts and size.total() > MOST_BYTES:
            hosts = [host for host, _ in size.most_common(1)]
        if not hosts:
            break
        oldest = next(one for one in left if one.host in hosts)
        count[oldest.host] -= 1
        size[oldest.host] -= oldest.size
        del left[oldest]
        gone.append(oldest)
    return gone


@dataclass(slots=True)
class RefusedMail:
    """The directory of refused messages. It is read once; what a person removes from it is no trouble."""

    folder: Path
    _kept: list[Kept] | None = None

    def keep(self, at: str, message_id: str, raw: bytes, subject: str, reason: str) -> None:
        """Keep a message; of one that is too large only the reason. Raises OSError."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self._kept is None:
            self._kept = [self._found(path) for path in sorted(self.folder.glob(f"*{_REASON}"))]
        name = f"{at.replace(':', '')}-{secrets.token_hex(4)}"
        why = {"subject": subject[:200], "message_id": message_id[:128], "reason": shortened(reason)}
        said = json.dumps(why, indent=1)
        raw = raw if len(raw) + len(said) <= MOST_BYTES_OF_ONE else b""
        self._kept.append(Kept(name, _sender(subject), len(raw) + len(said)))
        for one in surplus(self._kept):  # before anything is written: the disk may be full
            for ending in (_TEXT, _REASON):
                (self.folder / f"{one.name}{ending}").unlink(missing_ok=True)
            self._kept.remove(one)
        if raw:
            (self.folder / f"{name}{_TEXT}").write_bytes(raw)
        (self.folder / f"{name}{_REASON}").write_text(said)

    def _found(self, path: Path) -> Kept:
        name, subject, size = path.name.removesuffix(_REASON), "", 0
        for one in (path, path.with_name(f"{name}{_TEXT}")):
            with suppress(OSError):
                size += one.stat().st_size
        with suppress(OSError, ValueError, TypeError, KeyError):
            subject = str(json.loads(path.read_text())["subject"])
        return Kept(name, _sender(subject), size)


def _sender(subject: str) -> str:
    found = Subject.parse(subject) or JobSubject.parse(subject)
    return found.sender if found else ""
