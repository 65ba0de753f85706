"""One audit of several archives: reads each once, judges it, and compares them with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mailboxd.errors import DamagedError
from mailboxd.formats.keys import parse_signature
from mailboxd.host.progress import Progress, silent, stepwise
from mailboxd.ledger import signed_heads
from mailboxd.ledger.journal import SHAPES, Entry
from mailboxd.ledger.signed_heads import Head, Standing
from mailboxd.operate.auditor import approvals, crossing, evidence, exported, reading
from mailboxd.operate.auditor.chain import Chain, parsed, twice
from mailboxd.operate.auditor.crossing import Crossed, Side
from mailboxd.operate.auditor.evidence import Matched, Texts
from mailboxd.operate.auditor.given import GivenKeys, UnnamedKeysError
from mailboxd.operate.auditor.model import Check, Finding, Judged, Verdict
from mailboxd.operate.auditor.place import Place
from mailboxd.operate.auditor.reading import Listing, Raw, Source
from mailboxd.operate.auditor.record import Record
from mailboxd.operate.auditor.story import Story

_MOST_OF_A_KIND = 2_000
"""From so many findings of one kind on, the others are only counted: a file of nonsense has millions."""
_OF_HEAD = frozenset({"seq", "hash", "at", "signature"})


@dataclass(slots=True)
class Report:
    """The result of an audit."""

    archives: list[Judged]
    crossed: Crossed

    @property
    def findings(self) -> list[Finding]:
        return [finding for judged in self.archives for finding in judged.findings]

    @property
    def verdict(self) -> Verdict:
        found = {judged.verdict for judged in self.archives}
        return next(verdict for verdict in Verdict if verdict in found)


def audit(
    given: Sequence[Path], keys: GivenKeys, noted: tuple[int, str] | None = None, progress: Progress = silent
) -> Report:
    """Judge the archives in these directories. `noted` is a head that was kept elsewhere: number and hash.

    Raises UnavailableError if one of them is no archive, or cannot be read at all, and UnnamedKeysError.
    """
    with ExitStack() as opened:
        packed: list[list[Finding]] = [[] for _ in given]
        folders = [opened.enter_context(exported.unpacked(path, odd)) for path, odd in zip(given, packed, strict=True)]
        sources = [reading.find(folder, str(path)) for folder, path in zip(folders, given, strict=True)]
        before = [reading.extent(source) for source in sources]
        readers = [_Reader(source, keys, progress) for source in sources]
        for reader, odd in zip(readers, packed, strict=True):
            reader.packed = odd
            reader.read()
        agents = list({reader.agent.lower(): reader.agent for reader in readers if reader.agent}.values())
        if len(agents) > 1 and keys.unnamed:
            raise UnnamedKeysError(agents, list(keys.keys))
        sides = [reader.judge(agents, noted) for reader in readers]
        for side, source, extent in zip(sides, sources, before, strict=True):
            side.grows = reading.extent(source) != extent
    crossed = Crossed()
    for side in sides if len(agents) > 0 and len(sides) > 1 else ():
        if not side.judged.agent:
            side.judged.notes.append("nothing in it says whose archive it is: it was not compared with the others")
    for judged, finding in crossing.compare(sides, crossed):
        judged.findings.append(finding)
    return Report([side.judged for side in sides], crossed)


@dataclass(frozen=True, slots=True)
class _Look:
    """Looks at the files of one archive."""

    source: Source

    def digest(self, path: str) -> tuple[str, int] | None:
        return reading.digest(self.source, path)

    def exists(self, path: str) -> bool:
        return reading.exists(self.source, path)

    def text(self, path: str) -> bytes | None:
        return reading.text(self.source, path)


@dataclass(slots=True)
class _Reader:
    source: Source
    keys: GivenKeys
    progress: Progress
    contradicted: str = ""
    agent: str = ""
    agents: Sequence[str] = ()
    """The agents of all archives."""
    listing: Listing = field(default_factory=Listing)
    days: int = 0
    signed: dict[str, Place] = field(default_factory=dict)
    """Fingerprint -> the first head that is signed with this key."""
    chain: Chain = field(default_factory=Chain)
    record: Record = field(default_factory=Record)
    story: Story = field(default_factory=Story)
    texts: Texts = field(default_factory=Texts)
    heads: list[tuple[Place, Head]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    torn: bool = False
    """Half a line ends the journal: what a daemon writes with it may be missing, too."""
    packed: Sequence[Finding] = ()
    """What was wrong with the packed export when it was unpacked."""
    _kinds: Counter[tuple[Check, str]] = field(default_factory=Counter)
    withheld: int = 0
    """Events of which an export has number and hash only."""

    def read(self) -> None:
        """Read the whole journal."""
        # the files first: what a daemon moves or writes meanwhile is then in the journal that is read after them
        self.listing = reading.listing(self.source)
        self.days = self._journal(self.listing)
        self.agent = self._agent()

    def judge(self, agents: Sequence[str], noted: tuple[int, str] | None) -> Side:
        """Judge what was read, beside the archives of these agents."""
        self.agents = agents
        listing, days = self.listing, self.days
        judged = Judged(self.source.given, self.source.form, self.agent, self.findings, self.notes)
        judged.first_at, judged.last_at = self.record.first_at, self.record.last_at
        judged.events = self.chain.tip.seq
        judged.story = self.story
        judged.proof = self._heads()
        judged.contradicted = self.contradicted
        if self.source.export is not None:
            self._exported(self.source.export, judged)
        judged.key_of = self.keys.name_for(judged.proof.key, self.agent, agents) or ""
        if noted is not None:
            self._noted(noted, judged)
        proven = judged.proven_to
        matched = self._files(listing, proven)
        self._approvals(judged, matched, proven)
        self._count(judged, matched, listing, days, proven)
        return Side(judged, self.record, self.chain, self.signed)

    def _exported(self, said: Mapping[str, Any], judged: Judged) -> None:
        """An export: its key vouches for every file; a head only for what leads to it, which is not told here."""
        found = [*self.packed, *exported.judge(self.source.root, said, self.keys.by_fingerprint, self.notes)]
        self._add(found)
        signer = exported.signer(said, self.keys.by_fingerprint)
        if signer and not found and not self._vouches(signer):
            self._add([self._other_key(Place(exported.DESCRIPTION, 0), "the export", signer)])
        signed = bool(signer) and not found and self._vouches(signer) and not self.chain.broken
        judged.exported = signed
        judged.proof = replace(judged.proof, seq=0, key="", at="")
        if signed:
            judged.proof = replace(judged.proof, seq=judged.events, key=signer, at=str(said.get("at", ""))[:40])
        if self.withheld:
            self.notes.append(
                f"events of other work that were left out, with number and hash only: {self.withheld}. That one follows"
                " from the event before cannot be computed; rules that need them were not checked"
            )

    # The journal

    def _journal(self, listing: Listing) -> int:
        days, odd, replaced = reading.journals(self.source)
        listing.odd |= odd
        if not days and listing.files:
            problem = "there is no journal: nothing says what the files should be"
            self._add([Finding(Check.CHAIN, "no-journal", Place("archive/events", 0), problem, missing=True)])
        for name in replaced:
            self.notes.append(
                f"archive/{name} is the journal of an earlier log, which was replaced, and was not judged: audit it by"
                " itself, by this path"
            )
        lines = (line for number, name in enumerate(days) for line in self._lines(name, number, len(days)))
        for _ in stepwise(lines, "lines", 0, self.progress):
            pass
        self._add(self.chain.end())
        export = self.source.export
        all_here = not self.torn and (export is None or export.get("whole") is False)
        self._add(evidence.prompts(self.record, self.texts, all_here=all_here, gaps=self.chain.has_gaps))
        return len(days)

    def _lines(self, name: str, number: int, of: int) -> Iterator[None]:
        begun = False
        try:
            for line in reading.lines(self.source, name):
                begun = True
                self._line(line, first=number == 0, last=number == of - 1)
                yield
        except OSError as error:
            where = Place(f"archive/{self.source.events}/{name}", 0)
            self._add([Finding(Check.CHAIN, "unreadable", where, f"it cannot be read: {error.strerror}")])
        if not begun:
            self.notes.append(
                f"archive/{self.source.events}/{name} is empty: a crash can leave it so before its first line"
            )

    def _line(self, line: Raw, *, first: bool, last: bool) -> None:
        where = line.where
        if not line.whole:
            if last:
                why = "a daemon that writes, or a crash, leaves it so; or it was cut off"
                self.torn = True
                self.notes.append(f"{where}: half a line ends the journal, and is not counted: {why}")
            else:
                self._bad("torn", where, "half a line ends the file: it was cut off")
            return
        said = None if line.too_long else parsed(line.line)
        if not isinstance(said, dict):
            why = "it is longer than any that mailboxd writes" if line.too_long else "it is not what mailboxd writes"
            self._bad("not-a-line", where, why)
            return
        if where.line == 1 and "format" not in said:
            self._bad(
                "first-line", where, "the first line of a file names the format of the journal, and this one does not"
            )
        if name := twice(line.line, said):
            self._bad("name-twice", where, f"it says {name[:60]!r} twice: programs read one or the other")
        if "seq" not in said and (problem := self._other_names(said)):
            self._bad("other-names", where, problem)
        if self.source.export is not None and said.keys() == {"seq", "hash"}:
            self.withheld += 1
            self._add(self.chain.withheld(where, said))
        elif "seq" in said:
            self._event(where, said, line.line)
        elif "format" in said:
            self._first(where, said, first=first)
        elif "head" in said:
            self._head(where, said)
        elif "body" in said:
            self._add(self.texts.body(where, said, self.record))
        elif "prompt" in said:
            self._add(self.texts.prompt(where, said))
        elif "table" in said:
            self._add(self.chain.row(where, said))
            self.texts.row(said)
        else:
            self._bad("not-a-line", where, "it is of no kind that mailboxd writes")

    def _other_names(self, said: Mapping[str, Any]) -> str:
        """What a line says beside what lines of its kind say: a program that looks for events would read it."""
        kind = next((kind for kind in SHAPES if kind in said), "")
        expected = SHAPES.get(kind, frozenset(said))
        if kind == "prompt" and self.source.export is not None:
            expected -= {"rev"}
        if said.keys() == expected:
            return ""
        other = ", ".join(sorted(said.keys() ^ expected))[:100]
        return f"a line with {kind!r} says {', '.join(sorted(expected))}, and this one differs in {other}"

    def _event(self, where: Place, said: Mapping[str, Any], raw: bytes) -> None:
        found = list(self.chain.take(where, said, raw))
        self._add(found)
        self.record.partial = self._is_partial
        if not any(finding.kind in ("not-an-event", "inserted") for finding in found):
            self._add(self.record.take(where, said))
            self.story.take(where, said)

    def _first(self, where: Place, said: Mapping[str, Any], *, first: bool) -> None:
        if where.line != 1:
            self._bad(
                "first-line", where, "the first line of a file stands here: it was put in, or two files were joined"
            )
        else:
            if first and self.source.export is not None:
                self.chain.start(said.get("after"))
            self._add(self.chain.begin(where, said, first=first))
            self.record.partial = self._is_partial

    @property
    def _is_partial(self) -> bool:
        return self.chain.has_gaps or self.source.export is not None

    def _head(self, where: Place, said: Mapping[str, Any]) -> None:
        try:
            head = signed_heads.read(Entry(Path(where.file), where.line, b"", said))
            if said["head"].keys() != _OF_HEAD:
                raise TypeError("other names than those of a head")
        except (DamagedError, TypeError):
            self._bad("no-head", where, "it is no signed head", Check.HEADS)
            return
        if head.seq < self.chain.tip.seq:
            problem = f"the head of event {head.seq} stands after event {self.chain.tip.seq}: it was moved or copied"
            self._bad("moved-head", where, problem, Check.HEADS)
        else:
            self._add(self.record.time(where, head.at, f"the head of event {head.seq}", is_head=True))
        self.heads.append((where, head))

    def _bad(self, kind: str, where: Place, problem: str, check: Check = Check.CHAIN) -> None:
        self._add([Finding(check, kind, where, problem)])

    def _add(self, found: Iterable[Finding]) -> None:
        for finding in found:
            kind = finding.check, finding.kind
            self._kinds[kind] += 1
            if self._kinds[kind] <= _MOST_OF_A_KIND:
                self.findings.append(finding)

    def _agent(self) -> str:
        if self.record.configured_agent:
            return self.record.configured_agent
        agents = {name: count for name, count in self.record.agents.items() if name}
        return max(agents, key=lambda name: agents[name]) if agents else ""

    # Heads

    def _heads(self) -> signed_heads.Proof:
        proof, wrong = signed_heads.NOTHING_PROVEN, list[tuple[Place, Head]]()
        others: dict[int, tuple[Place, Head]] = {}
        unknown: dict[str, Place] = {}
        for where, head in self.heads:
            other = others.setdefault(head.seq, (where, head))
            recorded = self.chain.hash_at(head.seq)
            found = signed_heads.standing(head, recorded, self.keys.by_fingerprint)
            if found.is_wrong:
                wrong.append((where, head))
                self._add([self._wrong_head(where, head, found, recorded, proof.seq)])
            else:
                signer, _ = parse_signature(head.signature)
                is_first = self.signed.setdefault(signer, where) == where
                if found is Standing.UNKNOWN or self._vouches(signer):
                    proof = proof.with_head(head, found) if self.chain.vouches(head.seq) else proof
                elif is_first and self.agent:
                    self._add([self._other_key(where, f"the head of event {head.seq}", signer)])
                elif is_first:
                    self.notes.append(
                        f"{where}: no message says yet whose archive this is, so a key with a name proves nothing in it"
                    )
                if found is Standing.UNKNOWN:
                    unknown.setdefault(signer, where)
            if other[1].hash != head.hash:
                problem = f"it signs another hash of event {head.seq} than {other[0]}"
                self._bad("heads-disagree", where, problem, Check.HEADS)
        if self.keys.keys:
            for fingerprint, where in unknown.items():
                self.notes.append(
                    f"{where}: from here on heads are signed with the key {fingerprint}, which was not given: it was"
                    " rotated, or whoever wrote the journal made it"
                )
        if self.chain.broken:
            at = f"event {self.chain.broken} is not what was recorded, or is missing"
            self.contradicted = f"{at}, so no later head vouches for what is before it"
        elif after := [(where, head) for where, head in wrong if head.seq > proof.seq]:
            count = f"{len(after)} signed head{'s' * (len(after) != 1)}"
            self.contradicted = f"{count} after event {proof.seq} do not match, the first at {after[0][0]}"
        return proof

    def _vouches(self, fingerprint: str) -> bool:
        return self.keys.name_for(fingerprint, self.agent, self.agents) is not None

    def _other_key(self, where: Place, what: str, fingerprint: str) -> Finding:
        owner = self.keys.owner(fingerprint)
        problem = f"{what} is signed with {owner}, and this is the archive of {self.agent}: a key proves its own agent"
        return Finding(Check.HEADS, "other-key", where, problem)

    def _wrong_head(self, where: Place, head: Head, found: Standing, recorded: str | None, proven: int) -> Finding:
        event = self.chain.place_of(head.seq)
        if found is Standing.INVALID:
            since = f"an event after number {proven} up to {head.seq} ({event}) was rewritten, or this line was"
            problem = f"the signature of the head of event {head.seq} is invalid: {since}"
        elif recorded is None and head.seq > self.chain.tip.seq:
            problem = (
                f"it signs event {head.seq}, and the journal ends with event {self.chain.tip.seq}: its end was cut off,"
                " or this line is from elsewhere"
            )
            return Finding(Check.HEADS, "end-missing", where, problem, missing=True)
        else:
            problem = (
                f"the head of event {head.seq} has the hash {head.hash}, and the line of that event ({event}) has"
                f" {recorded}: an event after number {proven} was rewritten, or this line is from elsewhere"
            )
        return Finding(Check.HEADS, found.value, where, problem)

    def _noted(self, noted: tuple[int, str], judged: Judged) -> None:
        seq, hash_ = noted
        found = self.chain.hash_at(seq)
        if found == hash_:
            if self.chain.vouches(seq) and not self.withheld:
                judged.noted = seq
            else:
                self.notes.append(
                    f"the head that was noted elsewhere is that of event {seq}, and vouches for nothing here: what"
                    " stands before it does not all follow from each other, or was left out"
                )
            return
        where = self.chain.place_of(seq) if found else self.chain.tip_at
        lacks = f"the journal ends with event {self.chain.tip.seq}"
        what = f"event {seq} has the hash {found}" if found else lacks
        problem = f"{what}, and the head that was noted elsewhere is {seq}:{hash_}"
        self._add([Finding(Check.HEADS, "noted-head", where, problem, missing=not found)])

    # Files, approvals, counts

    def _files(self, listing: Listing, proven: int) -> Matched:
        matched, look, last = Matched(), _Look(self.source), self.chain.tip.seq
        of_all = self.source.export is None
        signed = max((head.seq for _, head in self.heads), default=0)
        compared = evidence.recorded_files(
            self.record, self.texts, listing, self.source.places, look, last, matched, all_here=of_all, signed=signed
        )
        for finding in stepwise(compared, "files", len(self.record.paths), self.progress):
            self._add([] if finding is None else [finding])
        if self.source.export is None and not self.source.is_replaced:  # the digests of an export name all its files
            self._add(evidence.other_files(self.record, self.texts, listing, look, last, matched))
        for path in matched.excused:
            self.notes.append(
                f"{path}: no event says that it was sent. A line of the journal that nothing protects says that it was"
                " about to be"
            )
        matched.proven = sum(self.record.messages[one].seq <= proven for one in matched.good)
        return matched

    def _approvals(self, judged: Judged, matched: Matched, proven: int) -> None:
        files: dict[str, tuple[str, str]] = {}
        look = _Look(self.source)
        self._add(approvals.files(self.record, look.text, matched.good, self.keys, set(self.signed), files))
        judged.decisions = list(approvals.decisions(self.record, files, proven))

    def _count(self, judged: Judged, matched: Matched, listing: Listing, days: int, proven: int) -> None:
        record = self.record
        judged.tasks = dict(Counter(task.phase for task in record.tasks.values()))
        judged.counts = {
            "events": self.chain.count,
            "days": days,
            "heads": len(self.heads),
            "tasks": len(record.tasks),
            "messages": len(record.messages),
            "files": matched.recorded,
            "matching": matched.received + matched.sent,
            "bodies": len(self.texts.bodies),
            "prompts": len(self.texts.prompts),
            "approvals": len(record.requests),
        }
        judged.proven = {
            "events": min(proven, self.chain.tip.seq),
            "files": matched.proven,
            "approvals": sum(decision.proven for decision in judged.decisions),
        }
        for place, count in matched.elsewhere.items():
            self.notes.append(f"{place}/ was not handed in: recorded files that were not checked: {count}")
        if self.source.export is None and (count := evidence.without_body(record, self.texts)):
            self.notes.append(
                f"tasks given to others whose texts are not in the journal: {count}; their events have the digests"
            )
        if matched.under_way:
            self.notes.append(
                f"sent messages without a file yet, whose texts are in the journal: {matched.under_way}. A line that"
                " nothing protects says that the files were still to be written"
            )
        if listing.left_out:
            self.notes.append(f"{listing.left_out} hidden or temporary files were left out: they are no messages")
        if listing.indexes:
            self.notes.append(
                f"each INDEX.md in archive/ ({len(listing.indexes)}) is a list for people, which nothing protects: it"
                " was not judged and proves nothing, nor does a task.md"
            )
        if self.texts.rows:
            self.notes.append(
                f"{self.texts.rows} lines of the journal say what was still to be sent, for a rebuild. They are not"
                " part of the chain, so a change of one may not show; nothing here is proven by them"
            )
        if not days and not listing.files:
            self.notes.append("there is nothing here yet: neither a journal nor a file")
        if days and self.source.export is None:
            self.notes.append(
                f"what came after event {self.chain.tip.seq} would not show if it was cut off with its files, unless"
                " another agent's archive or a head noted elsewhere names it"
            )
        self.notes += record.notes
        for (check, kind), count in self._kinds.items():
            if count > _MOST_OF_A_KIND:
                judged.left_out += count - _MOST_OF_A_KIND
                self.notes.append(
                    f"findings of {check} ({kind}): {count}; the first {_MOST_OF_A_KIND} are listed, and the rest is"
                    " only counted"
                )
