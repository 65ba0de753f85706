"""The values of an audit: findings, decisions, and what is said in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mailboxd.ledger.signed_heads import NOTHING_PROVEN, Proof
from mailboxd.operate.auditor.place import Place
from mailboxd.operate.auditor.story import Story


class Check(StrEnum):
    """What was checked when something was found."""

    CHAIN = "chain"
    HEADS = "heads"
    BODIES = "bodies"
    FILES = "files"
    RULES = "rules"
    APPROVALS = "approvals"
    TIMES = "times"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong or missing. `kind` is a stable word, by which many of one kind are folded."""

    check: Check
    kind: str
    where: Place
    problem: str
    missing: bool = False
    """It is not there; otherwise it is there and wrong."""

    @property
    def text(self) -> str:
        return f"{self.where}: {self.problem}"


class Verdict(StrEnum):
    """The result for one archive, the worst first."""

    WRONG = "wrong"
    CONSISTENT = "consistent"
    PROVEN = "proven"


@dataclass(frozen=True, slots=True)
class Decision:
    """One request for approval, and what became of it."""

    id: str
    task: str
    action: str
    requested_at: str
    status: str
    by: str
    at: str
    note: str
    performed: str
    """What the journal says of the action: done, failed, unknown ...; empty if it never began."""
    performed_at: str
    file: str
    """The approval file in archive/, or empty."""
    signed: str
    """What is known of its signature, in a word: and by whose key."""
    seq: int
    """The event of the decision, or of the request."""
    where: Place
    proven: bool = False
    before: str = ""
    """What a person had decided, if it does not count any more: the status, note and time say what became of it."""


@dataclass(slots=True)
class Judged:
    """The result of judging one archive."""

    given: str
    """The path as it was handed in."""
    form: str
    """What was found there: an archive folder, a mailbox, a workspace ..."""
    agent: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and why; what an auditor should know, and is not wrong."""
    left_out: int = 0
    """Findings that are only counted, because there are thousands of their kind."""
    proof: Proof = NOTHING_PROVEN
    key_of: str = ""
    """For whom the key that proves it was given; empty: without a name."""
    exported: bool = False
    """Whether a key that was given has signed the export of a task as a whole."""
    contradicted: str = ""
    """Why what is not proven is not even consistent: an event that does not match, or heads of another history."""
    noted: int = 0
    """The event of a head that was noted elsewhere, if the journal has it."""
    first_at: str = ""
    last_at: str = ""
    events: int = 0
    """The number of the last event."""
    counts: dict[str, int] = field(default_factory=dict)
    proven: dict[str, int] = field(default_factory=dict)
    """Of some of the counts: how many of them a signature covers."""
    tasks: dict[str, int] = field(default_factory=dict)
    """Tasks by the phase in which the journal leaves them."""
    decisions: list[Decision] = field(default_factory=list)
    story: Story = field(default_factory=Story)
    """What happened, as the events tell it."""

    @property
    def proven_to(self) -> int:
        """The last event that a signature, or a head noted elsewhere, vouches for."""
        return max(self.proof.seq, self.noted)

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return Verdict.WRONG
        return Verdict.PROVEN if self.events and self.proven_to >= self.events else Verdict.CONSISTENT
