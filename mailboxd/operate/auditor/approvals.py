"""Approval files against the decisions that the journal has. Pure but for the texts that it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mailboxd.errors import MessageError
from mailboxd.formats.keys import known_as, parse_signature
from mailboxd.formats.protocol.front_matter import canonical
from mailboxd.formats.protocol.messages import ApprovalMessage, parse_message
from mailboxd.operate.auditor.given import GivenKeys
from mailboxd.operate.auditor.model import Check, Decision, Finding
from mailboxd.operate.auditor.place import NOWHERE
from mailboxd.operate.auditor.record import Message, Record, Request

_LARGEST = 8 << 20
UNCHECKED, UNSIGNED = "not checked: its key was not given", "none"
BY_COMMAND = "none: it was decided by a command on this machine, which needs none"


def files(
    record: Record,
    text: Callable[[str], bytes | None],
    good: set[str],
    keys: GivenKeys,
    own: set[str],
    found: dict[str, tuple[str, str]],
) -> Iterator[Finding]:
    """What is wrong with the approval files. Their paths and signatures go into `found`, by the approval.

    `own`: the fingerprints of the keys that have signed the journal. Those are the agent's, and nobody else's.
    """
    for message in record.messages.values():
        if message.text("type") != "approval" or message.text("verdict") != "accepted" or message.id not in good:
            continue
        path = message.path or ""
        raw = text(path)
        try:
            parsed = parse_message(raw or b"", path, max_bytes=_LARGEST).message
            is_approval = isinstance(parsed, ApprovalMessage)
        except (MessageError, RecursionError):
            is_approval = False
        if raw is None or not is_approval or not isinstance(parsed, ApprovalMessage):
            yield _of(message, "no-approval", f"{path[:200]} is recorded as an approval, and is none")
            continue
        signed, problem = _signature(raw, parsed.signature, parsed.from_, keys, own)
        if problem:
            yield _of(message, "approval-signature", f"{path[:200]}: {problem}")
        request = record.requests.get(parsed.approval_id)
        if request is None:
            if not record.partial:
                yield _of(
                    message, "no-request", f"{path[:200]} decides about {parsed.approval_id}, which nobody requested"
                )
            continue
        if signed == UNSIGNED and "decided_by" in (parsed.model_extra or {}):
            signed = BY_COMMAND
        found[parsed.approval_id] = path, signed
        yield from _compare(message, parsed, request, path)


def _signature(raw: bytes, signature: str | None, sender: str, keys: GivenKeys, own: set[str]) -> tuple[str, str]:
    """What is known of the signature of a sender, and what is wrong with it."""
    if signature is None:
        return UNSIGNED, ""
    try:
        fingerprint, signed = parse_signature(signature)
        key = keys.by_fingerprint.get(fingerprint)
        if key is None:
            return UNCHECKED, ""
        if key.verifies(signed, canonical(raw)):
            return _by(fingerprint, sender, keys, own)
    except (ValueError, MessageError):
        return "malformed", "its signature is malformed"
    return "invalid", f"its signature is not that of the key {fingerprint}: it was changed after it was signed"


def _by(fingerprint: str, sender: str, keys: GivenKeys, own: set[str]) -> tuple[str, str]:
    """Whose signature a valid one is: a key counts for whom it was given, and without a name by what the file says."""
    if keys.is_of(fingerprint, sender):
        return f"valid: {known_as(sender)}, key {fingerprint}", ""
    if "" in keys.names(fingerprint) and fingerprint not in own:
        return f"valid: key {fingerprint}, given without a name; the file says that it is from {sender[:80]}", ""
    whose = f"the key {fingerprint} that signs this journal" if fingerprint in own else keys.owner(fingerprint)
    return "of another", f"it is signed with {whose}, and says that it is from {sender[:80]}"


def _compare(message: Message, said: ApprovalMessage, request: Request, path: str) -> Iterator[Finding]:
    name = said.approval_id
    if request.decided == "":
        status = request.row.get("status", "pending")
        yield _of(message, "no-decision", f"{path[:200]} decides about {name}, and by the journal it is {status}")
        return
    if said.decision != request.decided:
        problem = (
            f"{path[:200]} says that {name} is {said.decision}, and event {request.resolved_seq} says {request.decided}"
        )
        yield Finding(Check.APPROVALS, "other-decision", request.resolved, problem)
    note, text = request.decided_note, said.text
    if not says_the_same(note, text):
        problem = f"{path[:200]} says {text[:120]!r}, and the note of event {request.resolved_seq} is {note[:120]!r}"
        yield Finding(Check.APPROVALS, "other-note", request.resolved, problem)
    if (named := (said.model_extra or {}).get("decided_by")) is not None:
        who = {str(named)}
    else:
        who = {f"key:{message.text('signer')}", said.from_.lower()} - {"key:", "operator"}
    if request.decided_by not in who:
        shown = " or ".join(sorted(who)) or "nobody who signed"
        decided = f"event {request.resolved_seq} says that {request.decided_by[:80]} decided"
        problem = f"{path[:200]} is by {shown[:120]}, and {decided}"
        yield Finding(Check.APPROVALS, "other-approver", request.resolved, problem)


def says_the_same(note: str, text: str) -> bool:
    """Whether a note has the words of the text that was written of it: a file escapes what would be Markdown."""
    one, other = ("".join(filter(str.isalnum, said)) for said in (note, text))
    return one == other


def _of(message: Message, kind: str, problem: str) -> Finding:
    return Finding(Check.APPROVALS, kind, message.where, problem)


def _before(request: Request) -> str:
    """What a person had decided, if that does not count any more."""
    if not request.decided or request.decided == request.row.get("status"):
        return ""
    return f"{request.decided} by {request.decided_by} at {request.decided_at}"


def decisions(record: Record, files_: dict[str, tuple[str, str]], proven: int) -> Iterator[Decision]:
    """Each request with what became of it, in the order of the requests."""
    for request in record.requests.values():
        seq = request.resolved_seq or request.seq
        path, signed = files_.get(request.text("id"), ("", ""))
        task = record.tasks.get(request.text("task"))
        yield Decision(
            id=request.text("id"),
            task=task.local_id if task else request.text("task"),
            action=request.words or request.text("requested_action"),
            requested_at=request.text("at"),
            status=str(request.row.get("status", "pending")),
            before=_before(request),
            by=request.text("resolved_by"),
            at=request.text("resolved_at"),
            note=request.text("note"),
            performed=str(request.row.get("state", "")),
            performed_at=request.text("finished_at") or request.text("started_at"),
            file=path,
            signed=signed,
            seq=seq,
            where=request.resolved if request.resolved != NOWHERE else request.where,
            proven=seq <= proven,
        )
