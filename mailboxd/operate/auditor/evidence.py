"""Files against their records, and texts in the journal against what its events say of them. Pure but for `Look`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Protocol

from mailboxd.engine.intake.archive import reason_file
from mailboxd.formats.mailbox.maildir import REASON
from mailboxd.operate.auditor.chain import same, twice
from mailboxd.operate.auditor.model import Check, Finding
from mailboxd.operate.auditor.place import Place
from mailboxd.operate.auditor.reading import Listing
from mailboxd.operate.auditor.record import Message, Record, sha256

_MESSAGE_ID = re.compile(r"msg_[0-9A-Z]{26}", re.ASCII)
_BATCH = 200
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NEWEST = 2_000
"""Only so many of the latest events can have sent messages whose files are not written yet, whatever `meta` says."""


class Look(Protocol):
    """How files are looked at: each answers None for what is not there, or is no regular file."""

    def digest(self, path: str) -> tuple[str, int] | None: ...
    def exists(self, path: str) -> bool: ...
    def text(self, path: str) -> bytes | None: ...


@dataclass(slots=True)
class Texts:
    """The lines of a journal that are no events: bodies, prompts, and what the tables say is under way."""

    bodies: set[str] = field(default_factory=set)
    """Messages whose text is in the journal, as it was sent."""
    prompts: dict[str, Place] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    """SHA-256 of the prompts that orders name: that of a turn which has not ended stands nowhere else."""
    changed: set[str] = field(default_factory=set)
    """What lines with another text say that they are: bodies and prompts."""
    orders: dict[str, str] = field(default_factory=dict)
    """Pending order -> the id of its message."""
    meta: dict[str, str] = field(default_factory=dict)
    rows: int = 0

    def body(self, where: Place, said: Mapping[str, Any], record: Record) -> Iterator[Finding]:
        """The text of a sent message, which its event names by its SHA-256."""
        name, raw = said.get("body"), said.get("raw")
        if not isinstance(name, str) or not isinstance(raw, str):
            yield Finding(Check.BODIES, "no-body", where, "it is no text of a message")
            return
        message = record.messages.get(name)
        if message is None:
            if not record.partial:
                yield Finding(Check.BODIES, "no-message", where, f"no event before it sent the message {name[:60]}")
            return
        if message.sha256 is None:
            record.notes[
                "messages of an earlier version have no SHA-256 in their events: their texts are not provable"
            ] = None
        elif sha256(raw) != message.sha256:
            problem = (
                f"the text of {name[:60]} is not the one that was sent: its event ({message.where}) has another SHA-256"
            )
            self.changed.add(name)
            yield Finding(Check.BODIES, "changed-body", where, problem)
        else:
            self.bodies.add(name)

    def prompt(self, where: Place, said: Mapping[str, Any]) -> Iterator[Finding]:
        """The text of a prompt, which is named by its SHA-256."""
        named, text = said.get("prompt"), said.get("text")
        if not isinstance(named, str) or not isinstance(text, str) or sha256(text) != named:
            self.changed.add(str(named)[:64])
            yield Finding(
                Check.BODIES, "changed-prompt", where, "the text of the prompt has another SHA-256 than it says"
            )
        else:
            self.prompts.setdefault(named, where)

    def row(self, said: Mapping[str, Any]) -> None:
        """A row of `outbox` or `meta`, which nothing protects: it may excuse a file that is on its way, no more."""
        self.rows += 1
        row = said.get("row")
        if not isinstance(row, dict):
            return
        if said.get("table") == "meta" and isinstance(row.get("name"), str):
            self.meta[row["name"]] = str(row.get("value"))
        elif isinstance(row.get("id"), str):
            if isinstance(row.get("prompt"), str):
                self.asked.update(_SHA256.findall(row["prompt"]))
            found = _MESSAGE_ID.search(row["data"]) if isinstance(row.get("data"), str) else None
            if row.get("state") == "pending" and found is not None:
                self.orders[row["id"]] = found[0]
            else:
                self.orders.pop(row["id"], None)


def prompts(record: Record, texts: Texts, *, all_here: bool, gaps: bool) -> Iterator[Finding]:
    """Texts of prompts that events say are kept and are not, and those that nobody was asked with.

    `all_here`: the journal should have all that its events name. `gaps`: an event that names one may be missing.
    """
    for sha, where in record.kept.items() if all_here else ():
        if sha not in texts.prompts and sha not in texts.changed:
            problem = f"it says that the text of the prompt {sha} is kept, and no line has it"
            yield Finding(Check.BODIES, "no-prompt", where, problem, missing=True)
    for sha, where in () if gaps else texts.prompts.items():
        if sha not in record.prompts and sha not in texts.asked:
            yield Finding(Check.BODIES, "unnamed-prompt", where, f"no event and no order names the prompt {sha}")


def without_body(record: Record, texts: Texts) -> int:
    """How many tasks were sent whose text is not in the journal; of replies and questions it has none."""
    here = texts.bodies | texts.changed
    return sum(
        message.is_sent and message.text("type") == "task" and message.sha256 is not None and message.id not in here
        for message in record.messages.values()
    )


@dataclass(slots=True)
class Matched:
    """The files that are as the journal says."""

    recorded: int = 0
    """Recorded files in directories that were handed in."""
    received: int = 0
    sent: int = 0
    proven: int = 0
    """How many of them are recorded by events up to the one that is proven."""
    elsewhere: dict[str, int] = field(default_factory=dict)
    """Recorded files in directories that were not handed in."""
    under_way: int = 0
    excused: list[str] = field(default_factory=list)
    """Files without an event, which were about to be sent."""
    good: set[str] = field(default_factory=set)
    """Ids of the messages with such a file."""


def recorded_files(
    record: Record,
    texts: Texts,
    found: Listing,
    places: Mapping[str, object],
    look: Look,
    last: int,
    matched: Matched,
    *,
    all_here: bool = True,
    signed: int = 0,
) -> Iterator[Finding | None]:
    """Each recorded file: what is wrong with it, or None. `last`: the number of the last event.

    `signed`: the event of the last head: what it covers was written long ago, if more events followed than a
    batch has. `all_here`: every one of them should be there; an export has those of one task.
    """
    synced = texts.meta.get("outbox_synced", "0")
    after = max(
        int(synced) if synced.isdecimal() and len(synced) < 19 else 0, last - _NEWEST, min(signed, last - _BATCH)
    )
    for path, message_id in record.paths.items():
        message = record.messages[message_id]
        place = path.partition("/")[0]
        if place not in places:
            matched.elsewhere[place] = matched.elsewhere.get(place, 0) + 1
            yield None
            continue
        is_here = path in found.files or look.exists(path)
        if not is_here and not all_here:
            yield None
            continue
        matched.recorded += 1
        if not is_here:
            if message.is_sent and message.seq > after and message.id in texts.bodies:
                matched.under_way += 1
                yield None
            elif path not in found.odd:
                yield _of(message, "file-missing", f"{path[:200]} is missing: {_recorded(message)}", missing=True)
            continue
        yield _compare(message, path, found, look, matched)
        if message.text("verdict") == "rejected":
            yield _reason(message, path, look)


def _compare(message: Message, path: str, found: Listing, look: Look, matched: Matched) -> Finding | None:
    if message.sha256 is None:
        return None
    seen = None if path in found.odd else look.digest(path)
    if seen is None:
        what = found.odd.get(path, "it cannot be read, or is no regular file")
        return _of(message, "file-odd", f"{path[:200]}: {what}; {_recorded(message)}")
    if seen[0] != message.sha256:
        return _of(
            message, "file-changed", f"{path[:200]} was changed: its SHA-256 is {seen[0]}, and {_recorded(message)}"
        )
    matched.received += not message.is_sent
    matched.sent += message.is_sent
    matched.good.add(message.id)
    return None


def _reason(message: Message, path: str, look: Look) -> Finding | None:
    raw = look.text(path + REASON)
    row = message.row
    wanted = reason_file(message.text("name"), message.at, message.sha256, message.id, row.get("reason"))
    try:
        said = None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        said = raw
    if same(said, wanted) and not twice(raw or b"", said):
        return None
    what = "is missing" if raw is None else "is not what was recorded"
    return _of(message, "reason", f"{path[:200]}{REASON} {what}", missing=raw is None)


def _of(message: Message, kind: str, problem: str, *, missing: bool = False) -> Finding:
    return Finding(Check.FILES, kind, message.filed if message.filed.line else message.where, problem, missing)


def _recorded(message: Message) -> str:
    if message.sha256 is None:
        return f"recorded by event {message.seq}"
    return f"event {message.seq} records {message.row.get('size')} bytes with the SHA-256 {message.sha256}"


def other_files(
    record: Record, texts: Texts, found: Listing, look: Look, last: int, matched: Matched
) -> Iterator[Finding]:
    """Files that no event names, and what is no file at all."""
    paths = record.paths
    reasons = {path + REASON for path, of in paths.items() if record.messages[of].text("verdict") == "rejected"}
    judged = {
        value
        for message in record.messages.values()
        if message.path is None
        for value in (message.sha256, message.text("name"))
        if value
    }
    ordered = set(texts.orders.values())
    known: dict[str, list[Message]] = {}
    for message in record.messages.values():
        if message.sha256 is not None and message.path is not None:
            known.setdefault(message.sha256, []).append(message)
    for path in sorted(found.files - paths.keys() - reasons):
        place, _, name = path.rpartition("/")
        sent = path.startswith("outbox/")
        is_late = place.rpartition("/")[2] >= _day_before(record.last_at)
        if sent and is_late and not ordered.isdisjoint(_MESSAGE_ID.findall(name)):
            matched.excused.append(path)
            continue
        seen = look.digest(path)
        if (
            not sent
            and judged
            and (name in judged or name.removesuffix(REASON) in judged or (seen and seen[0] in judged))
        ):
            continue
        what = f"no event says that it was {'sent' if sent else 'received'}"
        others = known.get(seen[0], []) if seen else []
        if others:
            what += f"; it has the bytes of {others[0].path}, which event {others[0].seq} records"
        elif record.last_at and place.rpartition("/")[2] >= record.last_at[:10]:
            what += f". The journal ends with event {last} of {record.last_at}: was its end cut off?"
        yield Finding(Check.FILES, "unrecorded", Place(path, 0), what)
    recorded = {path.rpartition("/")[0] for path in paths}
    for path in sorted(found.indexes):
        if path.rpartition("/")[0] not in recorded:
            what = "it lists the files of a day of which no event records a file: it was put in"
            yield Finding(Check.FILES, "index", Place(path, 0), what)
    for path, what in sorted(found.odd.items()):
        if path not in paths:
            yield Finding(Check.FILES, "odd", Place(path, 0), what)
        elif record.messages[paths[path]].sha256 is not None:
            message = record.messages[paths[path]]
            yield _of(message, "file-odd", f"{path[:200]}: {what}; {_recorded(message)}")


def _day_before(at: str) -> str:
    """The day before a time, as its folder is called: what is about to be sent is not older."""
    try:
        return (date.fromisoformat(at[:10]) - timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return ""
