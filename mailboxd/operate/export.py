"""Packs a task tree with its files and its part of the event log as evidence (docs/audit.md).

Archives are reproducible: the same records give the same bytes (sorted names, no timestamps, no owner, one mode).

Each event's hash covers the event before it, whatever task that was about. So the log is exported from the first event
of the tree to the first signed head after its last one; of other tasks' events only numbers and hashes, unless the
whole log is asked for. The changes of the configuration up to the last one that an approval names belong to the work:
who was allowed to decide follows from them. What was left out is why the hashes alone prove little, and the key's
signature counts.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shlex
import tarfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mailboxd.core.sanitize import for_file_name
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.formats.keys import PrivateKey
from mailboxd.formats.mailbox.files import directory, read_file, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.progress import Progress, silent, stepwise
from mailboxd.host.system import system
from mailboxd.ledger import audit_queries, event_log, journal
from mailboxd.ledger.event_log import GENESIS
from mailboxd.ledger.reports import Report
from mailboxd.ledger.signed_heads import Head, Keys, judge, read
from mailboxd.ledger.task_queries import details

FORMAT = "mailboxd-export-1"
DESCRIPTION, SUMS, README = "export.json", "SHA256SUMS", "README.txt"
POLICY = "policy.jsonl"
_CONTEXT = b"mailboxd-export-1\n"
_LARGEST_FILE = 64 << 20
_TASK_FILE = "task.md"


@dataclass(frozen=True, slots=True)
class Description:
    """`export.json`: what was exported. `first` and `last` are events, `before` is the hash of the event before."""

    agent: str
    task: str
    task_id: str
    database: str
    ended: bool
    whole: bool
    first: int
    last: int
    before: str
    at: str
    events: int
    withheld: int
    sums: str = ""
    key: str = ""
    signature: str = ""
    format: str = FORMAT

    def signed(self) -> bytes:
        """The bytes to sign."""
        fields = {name: value for name, value in asdict(self).items() if name != "signature"}
        return _CONTEXT + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Export:
    """What to export, and whose signature it gets."""

    ws: Workspace
    task_id: str
    whole: bool = False
    even_open: bool = False
    key: PrivateKey | None = None
    """Signs the archive; None: nothing is signed."""
    keys: Keys = field(default_factory=dict)
    """The public keys of this agent, which judge the signed heads."""
    agent: str = ""
    """As configured, where no daemon has run yet."""


def export_task(export: Export, report: Report, output: Path, progress: Progress = silent) -> int:
    """Write a task tree to a new .tar.gz and return the number of files in it. Raises UnavailableError, WorldError.

    A message that differs from its record is not exported, nor a log with a broken chain or a head that this agent did
    not sign; the error names it. Work that goes on is exported only if that is asked for.
    """
    with report.snapshot():
        name = report.local_id(export.task_id)
        _require_ended(export, report, name, output)
        contents = dict(sorted(stepwise(_contents(export.ws, report, export.task_id), "read", 0, progress)))
        described, log = _journal_part(export, report, name, progress)
    contents |= log
    contents |= _in_front(export, described, contents)
    with (
        _new_file(output) as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in stepwise(sorted(contents, key=_in_order), "write", len(contents), progress):
            tar.addfile(_member(f"{name}/{path}", len(contents[path])), io.BytesIO(contents[path]))
    return len(contents)


def _require_ended(export: Export, report: Report, name: str, output: Path) -> None:
    open_ = audit_queries.open_below(report.db, export.task_id)
    if open_ and not export.even_open:
        which = f"{name} has not ended" if open_[0] == name else f"{open_[0]}, a subtask of {name}, has not ended"
        root = shlex.quote(str(export.ws.root))
        raise UnavailableError(
            f"{which}: the archive would contain reply tokens, with which whoever reads it could answer in the name of"
            " an agent. Export it when it has ended; for somebody whom you trust with that:"
            f" `mailboxd -w {root} export archive {name} -o {shlex.quote(str(output))} --open`"
        )


def _in_order(path: str) -> tuple[bool, str]:
    return path not in (README, DESCRIPTION, SUMS), path


def _in_front(export: Export, described: Description, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """README, digests, description and key, in that order of dependence: what is signed covers all the others."""
    key = export.key
    fingerprint = "" if key is None else key.public.fingerprint
    front: dict[str, bytes] = {}
    if key is not None:
        front[f"keys/{for_file_name(described.agent or 'agent').replace('/', '%2F')}.pub"] = f"{key.public}\n".encode()
    front[README] = readme(described, fingerprint).encode()
    front[SUMS] = sums({**contents, **front})
    told = _with(described, sums=hashlib.sha256(front[SUMS]).hexdigest(), key=fingerprint)
    signature = "" if key is None else key.sign(told.signed())
    front[DESCRIPTION] = _json(asdict(_with(told, signature=signature)))
    return front


def sums(contents: Mapping[str, bytes]) -> bytes:
    """The digests of files as `sha256sum --check` reads them, sorted by name."""
    lines = [f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in sorted(contents)]
    return "".join(lines).encode()


def _with(described: Description, **changes: Any) -> Description:
    return Description(**{**asdict(described), **changes})


# The part of the log


@dataclass(slots=True)
class _Days:
    """The files of a journal under construction."""

    database: str
    seq: int
    hash: str
    files: dict[str, list[str]] = field(default_factory=dict)
    day: str = ""

    def add(self, at: str, seq: int, digest: str, line: str) -> None:
        """Add an event; days never go back, so that the files in the order of their names have the events in order."""
        if at[:10] > self.day:
            self.day = at[:10]
            after = [self.seq, self.hash, 0, 0]
            self.files[self.day] = [_line({"format": journal.FORMAT, "database": self.database, "after": after})]
        self.files[self.day].append(line)
        self.seq, self.hash = seq, digest


def _journal_part(
    export: Export, report: Report, name: str, progress: Progress
) -> tuple[Description, dict[str, bytes]]:
    """What the log of the tree says of itself, and its files with its heads and the policy before it, by path.

    Raises WorldError for a broken chain.
    """
    db, own = report.db, set(audit_queries.events_of(report.db, export.task_id))
    first = 1 if export.whole else min(own)
    policy = audit_queries.policy_of(db, export.task_id)
    heads = list(_heads(export.ws, first, max(own)))
    judge(heads, lambda seq: event_log.hash_at(db, seq), export.keys)
    last = max([max(own), *(head.seq for _, head in heads)])
    earlier = [event_log.line(row) for row in policy if row[0] < first]
    own |= {row[0] for row in policy if row[0] >= first}
    before = GENESIS if first == 1 else event_log.hash_at(db, first - 1) or ""
    days = _Days(journal.uuid_of(db), first - 1, before)
    by_seq: dict[int, list[Head]] = {}
    for _, head in heads:
        by_seq.setdefault(head.seq, []).append(head)
    for row in stepwise(audit_queries.events_between(db, first, last), "events", last - first + 1, progress):
        seq, at = row[0], row[1]
        if seq != days.seq + 1 or event_log.chain(days.hash, row[:7]) != row[7]:
            raise WorldError(f"event {days.seq + 1} is not what was recorded; run `mailboxd db verify`")
        shown = export.whole or seq in own
        days.add(at, seq, row[7], f"{event_log.line(row)}\n" if shown else _line({"seq": seq, "hash": row[7]}))
        days.files[days.day] += [_line({"head": asdict(head)}) for head in by_seq.get(seq, ())]
    for sha256, text in audit_queries.prompts_of(report, sorted(own)):
        days.files[days.day].append(_line({"prompt": sha256, "text": text}))
    shown_events = last - first + 1 if export.whole else len(own)
    described = Description(
        agent=report.agent() or export.agent,
        task=name,
        task_id=export.task_id,
        database=days.database,
        ended=not audit_queries.open_below(db, export.task_id),
        whole=export.whole,
        first=first,
        last=last,
        before=before,
        at=event_log.at(db, last),
        events=shown_events,
        withheld=last - first + 1 - shown_events,
    )
    files = {f"mailbox/archive/events/{day}.jsonl": "".join(lines).encode() for day, lines in days.files.items()}
    if earlier:
        files[POLICY] = "".join(f"{line}\n" for line in earlier).encode()
    return described, files


def _heads(ws: Workspace, first: int, last: int) -> Iterator[tuple[str, Head]]:
    """The signed heads from event `first` on to the first one that covers event `last`."""
    with world_errors(f"read {journal.folder_of(ws.root)}"):
        for entry in journal.entries(journal.files_of(ws.root)):
            if "head" in entry.said:
                head = read(entry)
                if head.seq >= first:
                    yield entry.where, head
                if head.seq >= last:
                    return


def _line(said: Mapping[str, Any]) -> str:
    return json.dumps(said, separators=(",", ":")) + "\n"


# What it says of itself


def readme(described: Description, fingerprint: str) -> str:
    """What the archive is and what can be proven with it, for whoever gets it."""
    span = f"events {described.first} to {described.last} of the log of {described.agent or 'this agent'}"
    if described.whole:
        log = (
            f"mailbox/archive/events/ has {span}, each in full, so that the hash of each can be computed from the one"
            " before it. Whoever holds a head that was signed or noted earlier can compare it with them."
        )
    else:
        log = (
            f"mailbox/archive/events/ has {span}: {described.events} in full, of this work and the changes of the"
            " configuration up to the last one that an approval names, of which those before the log are in"
            f" {POLICY}; and of other work ({described.withheld}) only number and hash. An event in full proves its own"
            " hash, given the one before it. That a withheld event follows from the one before cannot be computed: for"
            " that, ask for an export with --whole, or for the log itself."
        )
    if fingerprint:
        proof = (
            f"export.json is signed by the key {fingerprint}. With the public key, which you should have from elsewhere"
            " than from this archive, that proves: the holder of the key vouched for SHA256SUMS, and so for every file"
            " and for every hash of the log, when this was exported. Heads in the log were signed by the daemon at the"
            " times that they name, and prove their own event, and what leads to it without a withheld one between."
            " Nothing here proves anything against the holder of the key."
        )
    else:
        proof = (
            "Nothing is signed: this agent has no key. What is here can be consistent with itself at best; whoever made"
            " the archive can have written all of it."
        )
    tokens = "The work had not ended: the archive contains reply tokens that are still good. Keep it secret."
    files = (
        "tasks.json is the record of each task, artifacts/ are texts as they came, mailbox/ are the messages as they"
        " came and went, tasks/ is what people read, and events.jsonl are the events of this work alone."
    )
    parts = [log, proof, files] if described.ended else [tokens, log, proof, files]
    return (
        f"{described.task}: exported by mailboxd from the record of {described.agent or 'an agent'}\n\n"
        "    sha256sum --check SHA256SUMS     every file is as it was exported\n"
        "    mailboxd audit .                 that, and the rest; with the public key: --key FILE\n\n"
        + "\n\n".join(textwrap.fill(part, 100, break_long_words=False) for part in parts)
        + "\n"
    )


# The files of the tree


def _contents(ws: Workspace, report: Report, task_id: str) -> Iterator[tuple[str, bytes]]:
    db = report.db
    tree = audit_queries.below(db, task_id)
    yield "events.jsonl", "".join(f"{line}\n" for line in audit_queries.lines(db, task_id)).encode()
    yield "tasks.json", _json([details(report, found) for found, _ in tree])
    for artifact_id, sha256, body in audit_queries.artifacts_of(db, task_id):
        raw = body.encode()
        if hashlib.sha256(raw).hexdigest() != sha256:
            raise WorldError(f"artifact {artifact_id} differs from its record; run `mailboxd db verify`")
        yield f"artifacts/{artifact_id}.md", raw
    for file in audit_queries.files_of(db, task_id):
        path = PurePosixPath(file.path or "")
        with world_errors(f"read mailbox/{path}"):
            found = _read(ws, ("mailbox", *path.parent.parts), path.name)
        if found is None or (file.sha256 is not None and hashlib.sha256(found).hexdigest() != file.sha256):
            raise WorldError(f"mailbox/{path} differs from its record; run `mailboxd db verify`")
        yield f"mailbox/{path}", found
    for _, local_id in tree:
        for parts in (("tasks", local_id), ("tasks", ".archive", local_id)):
            found = _read(ws, parts, _TASK_FILE)
            if found is not None:
                yield f"tasks/{local_id}/{_TASK_FILE}", found
                break


def _read(ws: Workspace, parts: Sequence[str], name: str) -> bytes | None:
    try:
        with directory(ws.root, *parts) as fd:
            return read_file(fd, name, _LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True).encode() + b"\n"


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, 0
    return member


@contextmanager
def _new_file(output: Path) -> Iterator[IO[bytes]]:
    """Create a file that only its owner can read. It must not exist yet; it is removed if writing fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        fd = os.open(output, flags, 0o600)
    except FileExistsError:
        raise UnavailableError(f"{output}: this file already exists and was not changed") from None
    except OSError as error:
        raise WorldError(f"{output}: cannot be written: {error.strerror}") from error
    try:
        with world_errors(f"write {output}"), os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            system.sync(file.fileno())
    except BaseException:
        output.unlink(missing_ok=True)
        raise
