"""Archives to audit, made in milliseconds: agents of an earlier version with an approval, and days of work."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailboxd.core.events import Event, Kind
from mailboxd.engine.engine import Engine
from mailboxd.formats.keys import PrivateKey
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.ledger.journal import Journal
from mailboxd.ledger.signed_heads import Head, SignedHeads
from mailboxd.ledger.store import Store
from mailboxd.operate.auditor.given import GivenKey, GivenKeys
from mailboxd.operate.auditor.model import Judged
from mailboxd.operate.auditor.perform import Report, audit
from tests.rebuild.mailroom import SETTINGS, Mailroom

EARLIER = Path(__file__).parents[1] / "e2e" / "earlier" / "74b755e.tar.gz"
Said = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Archive:
    """A workspace that is handed in."""

    root: Path

    @property
    def events(self) -> Path:
        return self.root / "mailbox" / "archive" / "events"

    @property
    def days(self) -> list[Path]:
        return sorted(self.events.glob("*.jsonl"))

    def lines(self, day: int = -1) -> list[Said]:
        return [json.loads(line) for line in self.days[day].read_text().splitlines()]

    def write(self, lines: Sequence[Said], day: int = -1) -> None:
        self.days[day].write_text("".join(f"{json.dumps(said, separators=(',', ':'))}\n" for said in lines))

    def edit(self, change: Callable[[list[Said]], object], day: int = -1) -> None:
        lines = self.lines(day)
        change(lines)
        self.write(lines, day)

    def line_of(self, kind: str, nth: int = 0, day: int = -1) -> int:
        """The number of the line with the nth event of a kind, or the nth line that says this."""
        found = [n for n, said in enumerate(self.lines(day), 1) if said.get("kind") == kind or kind in said]
        return found[nth]

    def file(self, pattern: str) -> Path:
        (found,) = (path for path in (self.root / "mailbox").rglob(pattern) if path.is_file())
        return found

    def sign(self, key: PrivateKey, at: str = "") -> None:
        """Sign the last event, as its daemon does when it stops."""
        last = next(said for said in reversed(self.lines()) if "seq" in said)
        head = Head(last["seq"], last["hash"], at or last["at"])
        said = {"seq": head.seq, "hash": head.hash, "at": head.at, "signature": key.sign(head.signed())}
        self.write([*self.lines(), {"head": said}])


def rehash(lines: Sequence[Said], before: str = "0" * 64, *, heads: bool = True) -> None:
    """Compute every hash anew, as whoever rewrites history does; signatures stay what they are."""
    hashes: dict[int, str] = {}
    for said in lines:
        if "seq" in said:
            data = json.dumps(said["data"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            row = [before, *(said[name] for name in ("seq", "at", "kind", "task", "role", "actor")), data]
            text = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
            before = said["hash"] = hashes[said["seq"]] = hashlib.sha256(text.encode()).hexdigest()
        elif "head" in said and heads:
            said["head"]["hash"] = hashes[said["head"]["seq"]]


def earlier(into: Path) -> tuple[Archive, Archive]:
    """Two agents as 74b755e left them: alpha with an approval and its action, and beta, which worked for it."""
    with tarfile.open(EARLIER) as tar:
        tar.extractall(into, filter="data")
    return Archive(into / "ws" / "alpha"), Archive(into / "ws" / "beta")


def days_of_work(root: Path, days: int = 3, key: PrivateKey | None = None, seed: int = 1) -> Archive:
    """A workspace that worked on so many days; with a key, each day is signed."""
    room = Mailroom.begin(root, seed)
    with room.engine.batch():
        data = {"at": room.engine.now, "by": "daemon", "changes": {}, "first": True}
        room.engine.record(Event(Kind.CONFIG_CHANGED, None, data))
    heads = SignedHeads(room.engine.store, room.clock, (lambda _: None) if key is None else key.sign)
    for day in range(days):
        room.clock.text = f"2026-03-0{day + 1}T08:00:00.000Z"
        for _ in range(25):
            room.step()
        room.settle()
        heads.write()
    room.close()
    return Archive(root)


def given(**keys: PrivateKey) -> GivenKeys:
    """Keys as they are given by name."""
    return GivenKeys.of(GivenKey(key.public, name) for name, key in keys.items())


def continued(archive: Archive, at: str) -> Archive:
    """A daemon starts again at this time, and something happens."""
    store = Store.open(Workspace(archive.root).database, at)
    store.journal = Journal(archive.root)
    engine = Engine(store, SETTINGS, ManualClock(at), goes_on=True)
    for number in range(2):
        with engine.batch():
            engine.record(Event(Kind.ALARM, None, {"at": engine.now, "what": "test", "why": f"{number}"}))
    store.close()
    return archive


def audited(
    *archives: Archive | Path, key: PrivateKey | None = None, keys: GivenKeys | None = None, **more: Any
) -> Report:
    """With keys by name, or with one key without a name."""
    paths = [archive.root if isinstance(archive, Archive) else archive for archive in archives]
    unnamed = GivenKeys.of([] if key is None else [GivenKey(key.public)])
    return audit(paths, unnamed if keys is None else keys, **more)


def found(judged: Judged | Report) -> list[tuple[str, str]]:
    """What is found: kind and place."""
    return [(finding.kind, str(finding.where)) for finding in judged.findings]


def copy(archive: Archive, into: Path) -> Archive:
    shutil.copytree(archive.root, into, symlinks=True)
    return Archive(into)


__all__ = ["Archive", "ManualClock", "audited", "copy", "days_of_work", "earlier", "found", "rehash"]
