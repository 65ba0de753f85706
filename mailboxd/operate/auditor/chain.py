"""Follows the chain of a journal line by line, and goes on after what is wrong. Pure: lines in, findings out."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from mailboxd.ledger import event_log
from mailboxd.ledger.event_log import GENESIS, START, Tip
from mailboxd.ledger.journal import FORMAT, SHAPES
from mailboxd.operate.auditor.model import Check, Finding
from mailboxd.operate.auditor.place import NOWHERE, Place

_TEXTS = ("at", "kind", "role", "actor", "hash")
_MOST = 1 << 62
_FAR = 1_000_000
"""How many missing events there may be for the hashes of later ones to be kept."""
TABLES = ("outbox", "meta")
"""The tables whose rows are in the journal, in the order in which a first line names their latest changes."""


@dataclass(slots=True)
class _Gap:
    """Events that did not come where they should have: from `first` to `last`, noticed at `where`."""

    first: int
    last: int
    where: Place
    why: str
    late: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Chain:
    """The chain so far. `tip` is the last event, with the hash that its line has."""

    tip: Tip = START
    tip_at: Place = NOWHERE
    database: str = ""
    count: int = 0
    """Events that were read."""
    broken: int = 0
    """The first event that is not what the chain needs there, or is missing; 0: none. No later head vouches for it."""
    _hashes: bytearray = field(default_factory=bytearray)
    """32 bytes for each event from number 1 on; zeros where there is none."""
    _starts: list[int] = field(default_factory=list)
    _files: list[Place] = field(default_factory=list)
    """For `place_of`: the number of the first event of a run of lines, and where it stands."""
    _before: Tip = START
    _computed: str = GENESIS
    """What the hash of the last event should be."""
    _sound: bool = True
    """Whether the last event follows from the one before."""
    _gaps: list[_Gap] = field(default_factory=list)
    _revs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    _day: str = ""
    _known: bool = True
    """Whether all before is known, so that the changes of tables can be compared."""

    @property
    def has_gaps(self) -> bool:
        """Whether events are missing so far."""
        return bool(self._gaps)

    def hash_at(self, seq: int) -> str | None:
        """The hash that the line of an event has; None without one. Accepts any number."""
        if not 0 < seq <= len(self._hashes) // 32:
            return None
        found = bytes(self._hashes[32 * seq - 32 : 32 * seq])
        return found.hex() if any(found) else None

    def place_of(self, seq: int) -> Place:
        """About where an event stands: its line, if no other lines came between."""
        number = bisect_right(self._starts, seq) - 1
        if number < 0:
            return NOWHERE
        start = self._files[number]
        return Place(start.file, start.line + seq - self._starts[number])

    # The first line of a file

    def begin(self, where: Place, said: Mapping[str, Any], *, first: bool) -> Iterator[Finding]:
        """The line that begins a file."""
        self._day = where.file.rpartition("/")[2][:10]
        if said.get("format") != FORMAT:
            named = str(said.get("format"))[:60]
            yield _wrong("format", where, f"it names the format {named!r}, and only {FORMAT} is known")
        yield from self._database(where, said.get("database"))
        after = said.get("after")
        if not isinstance(after, list) or not _is_position(after):
            yield _wrong("first-line", where, "it does not say after which event it goes on")
            return
        seq, hash_, *revs = after
        if seq > self.tip.seq:
            why = "the file before it is missing or was cut off"
            self._gaps.append(_Gap(self.tip.seq + 1, seq, where, why))
            self._break(self.tip.seq + 1)
            self._set(Tip(seq, hash_), hash_, where, sound=True)
            self._known = False
        elif seq < self.tip.seq:
            self._break(seq + 1)
            problem = f"it goes on after event {seq}, and the file before ends with event {self.tip.seq}"
            yield _wrong("first-line", where, f"{problem}: events were added there, or this file is from elsewhere")
        elif hash_ != self.tip.hash:
            self._break(max(seq, 1))
            yield _wrong(
                "first-line", where,
                f"it goes on after event {seq} with the hash {hash_}, and the line of that event has {self.tip.hash}:"
                " what is before this line was rewritten, or this file is from elsewhere",
            )  # fmt: skip
            self._computed = hash_
        if self._known and not first and dict(zip(TABLES, revs, strict=True)) != self._revs:
            problem = "the last rows of outbox and meta before it are not those that it names: some were removed"
            yield _wrong("rows", where, problem)
        self._revs = dict(zip(TABLES, revs, strict=True))
        self._known = True

    def _database(self, where: Place, named: object) -> Iterator[Finding]:
        if not isinstance(named, str):
            yield _wrong("first-line", where, "it does not name its database")
        elif named and self.database and named != self.database:
            problem = f"it is of the database {named}, and the files before it are of {self.database}"
            yield _wrong("other-database", where, f"{problem}: this file is from elsewhere")
        elif named:
            self.database = named

    def _break(self, seq: int) -> None:
        self.broken = min(seq, self.broken or seq)

    def vouches(self, seq: int) -> bool:
        """Whether all events up to this one follow from each other, so that who signs it signs them all."""
        return not self.broken or seq < self.broken

    # Events

    def start(self, after: object) -> bool:
        """Begin after an event that is not here, as an export does; whether that is one."""
        if not isinstance(after, list) or not _is_position(after):
            return False
        self.tip, self._computed = Tip(after[0], after[1]), after[1]
        return True

    def withheld(self, where: Place, said: Mapping[str, Any]) -> Iterator[Finding]:
        """Number and hash of an event that an export leaves out: the next one is checked from its hash on."""
        seq, hash_ = said["seq"], said["hash"]
        if type(seq) is not int or not 0 < seq < _MOST or not _is_hash(hash_):
            yield _wrong("not-an-event", where, "it is neither an event nor the place of one that was left out")
        elif seq != self.tip.seq + 1:
            yield _wrong("missing-events", where, f"event {seq} stands after event {self.tip.seq}")
        else:
            self._set(Tip(seq, hash_), hash_, where, sound=True)
            self.count -= 1

    def take(self, where: Place, said: Mapping[str, Any], raw: bytes) -> Iterator[Finding]:
        """An event. Nothing is assumed of its line."""
        if problem := _shape(said):
            yield _wrong("not-an-event", where, problem)
            return
        seq, hash_ = said["seq"], said["hash"]
        if self._day and said["at"][:10] > self._day:
            yield _wrong(
                "other-day", where, f"event {seq} is of {said['at'][:10]}, and stands in the file of a day before"
            )
        if seq <= self.tip.seq:
            yield from self._again(where, said, raw)
            return
        if seq > self.tip.seq + 1:
            self._gaps.append(_Gap(self.tip.seq + 1, seq - 1, where, ""))
            self._break(self.tip.seq + 1)
            self._set(Tip(seq, hash_), hash_, where, sound=True)
            return
        found = self._computed_hash(self.tip.hash, said, raw)
        sound = found == hash_
        if not sound and self._computed != self.tip.hash and self._computed_hash(self._computed, said, raw) == hash_:
            sound, found = True, hash_  # only the hash of the event before was changed, which is named already
        if not sound:
            self._break(seq)
            yield _wrong(
                "changed", where,
                f"event {seq} ({said['kind'][:40]}) is not what was recorded: its hash does not follow from its line"
                " and the event before",
            )  # fmt: skip
        self._set(Tip(seq, hash_), found, where, sound=sound)

    def _again(self, where: Place, said: Mapping[str, Any], raw: bytes) -> Iterator[Finding]:
        """An event that is not later than the last one."""
        seq = said["seq"]
        is_rival = seq == self.tip.seq and not self._sound
        if is_rival and self._computed_hash(self._before.hash, said, raw) == said["hash"]:
            # the one before this line was put in between, and is named already
            self.tip, self._computed, self._sound, self.tip_at = Tip(seq, said["hash"]), said["hash"], True, where
            self._keep(seq, said["hash"])
            return
        number = bisect_right(self._gaps, seq, key=lambda gap: gap.first) - 1
        gap = self._gaps[number] if number >= 0 else None
        if gap is not None and seq <= gap.last and seq not in gap.late:
            gap.late.add(seq)
            self._keep(seq, said["hash"])
            before = self.hash_at(seq - 1) if seq > 1 else GENESIS
            right = before is None or self._computed_hash(before, said, raw) == said["hash"]
            what = "" if right else ", and it is not what was recorded"
            yield _wrong("reordered", where, f"event {seq} stands after event {self.tip.seq}{what}")
            return
        yield _wrong("inserted", where, f"event {seq} stands here again, after event {self.tip.seq}: it was put in")

    def _set(self, tip: Tip, computed: str, where: Place, *, sound: bool) -> None:
        is_next = self._starts and self.tip_at.file == where.file and tip.seq == self.tip.seq + 1
        if not (is_next and where.line == self.tip_at.line + 1):
            self._starts.append(tip.seq)
            self._files.append(where)
        self.count += self.tip_at != where
        self._before, self.tip, self.tip_at = self.tip, tip, where
        self._computed, self._sound = computed, sound
        self._keep(tip.seq, tip.hash)

    def _keep(self, seq: int, hash_: str) -> None:
        end = 32 * seq
        if seq > self.count + _FAR:
            return  # a number that no journal of this size reaches
        if end > len(self._hashes):
            self._hashes.extend(bytes(end - len(self._hashes)))
        self._hashes[end - 32 : end] = bytes.fromhex(hash_)

    @staticmethod
    def _computed_hash(before: str, said: Mapping[str, Any], raw: bytes) -> str:
        """The hash that an event should have; empty if it has none."""
        head = (before, (said["seq"], said["at"], said["kind"], said["task"], said["role"], said["actor"]))
        try:
            found = event_log.chain(head[0], (*head[1], event_log.data_text(said["data"])))
            if found != said["hash"]:
                # earlier versions wrote data in another form; it counts only if it says the same
                text = raw.partition(b',"data":')[2].rpartition(b',"hash":')[0].decode()
                if same(parsed(text), said["data"]):
                    other = event_log.chain(head[0], (*head[1], text))
                    found = other if other == said["hash"] else found
        except (ValueError, RecursionError):
            return ""
        return found

    # Other lines, and the end

    def row(self, where: Place, said: Mapping[str, Any]) -> Iterator[Finding]:
        """A row of `outbox` or `meta`. It is not part of the chain."""
        table, row = said.get("table"), said.get("row")
        rev = row.get("rev") if isinstance(row, dict) else None
        if table not in TABLES or type(rev) is not int:
            yield _wrong("not-a-row", where, "it is no row of outbox or meta")
        elif rev <= self._revs[table] and self._known:
            yield _wrong(
                "rows", where, f"the row of {table} stands after a later change of that table: it was moved or put in"
            )
        else:
            self._revs[table] = rev

    def end(self) -> Iterator[Finding]:
        """The journal ends: what did not come at all is missing."""
        for gap in self._gaps:
            for first, last in _runs(gap):
                what = f"event {first} is" if first == last else f"events {first} to {last} are"
                why = f": {gap.why}" if gap.why else ""
                yield Finding(
                    Check.CHAIN, "missing-events", gap.where, f"{what} missing before this line{why}", missing=True
                )


def parsed(raw: bytes | str) -> Any:
    """What JSON says, whoever wrote it; None if it says nothing, or is nested too deeply."""
    try:
        return from_json(raw)
    except ValueError:  # lone surrogates stand for bytes that are not UTF-8
        with suppress(ValueError, RecursionError):
            return json.loads(raw)
    return None


def same(one: object, other: object) -> bool:
    """Whether two JSON values are the same; in Python `1 == True`, and in JSON it is not."""
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def twice(raw: bytes, said: object) -> str:
    """A name that an object in this JSON has twice, of which programs read one or the other; empty without one."""
    with suppress(ValueError, RecursionError):
        if json.dumps(said, separators=(",", ":")).encode() == raw.rstrip(b"\n"):
            return ""  # as mailboxd writes it: nothing was lost when it was read
    names = list[str]()

    def keep(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len({name for name, _ in pairs}):
            names.extend(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))

    with suppress(ValueError, RecursionError):
        json.loads(raw, object_pairs_hook=keep)
    return names[0] if names else ""


def _runs(gap: _Gap) -> Iterator[tuple[int, int]]:
    """The events of a gap that did not come later, as runs."""
    first = gap.first
    for seq in sorted(gap.late):
        if seq > first:
            yield first, seq - 1
        first = seq + 1
    if first <= gap.last:
        yield first, gap.last


def _wrong(kind: str, where: Place, problem: str) -> Finding:
    return Finding(Check.CHAIN, kind, where, problem)


def _shape(said: Mapping[str, Any]) -> str:
    """Why a line is no event; empty if it is one."""
    if said.keys() != SHAPES["seq"]:
        return f"it has not the names of an event: {', '.join(sorted(map(str, said.keys() ^ SHAPES['seq'])))[:100]}"
    seq = said["seq"]
    if type(seq) is not int or not 0 < seq < _MOST:
        return "its number is none"
    if not all(isinstance(said[name], str) for name in _TEXTS) or not isinstance(said["data"], dict):
        return "its values have other types than those of an event"
    if not (said["task"] is None or isinstance(said["task"], str)):
        return "its task is no text"
    return "" if _is_hash(said["hash"]) else "its hash is none"


def _is_hash(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def _is_position(after: list[Any]) -> bool:
    if len(after) != 2 + len(TABLES) or not _is_hash(after[1]):
        return False
    return all(type(number) is int and 0 <= number < _MOST for number in (after[0], *after[2:]))
