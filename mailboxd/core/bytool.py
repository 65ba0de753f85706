"""What a caller of a typed tool says for itself: inputs as those of `core.inputs`, each with a row in `core.roles`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.terms import Verdict
from mailboxd.core.types import Finding


class ReviewKind(StrEnum):
    """Which of the two reviews a verdict is; `spec` is for both gates that compare with the specification."""

    SPEC = "spec"
    QUALITY = "quality"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The caller is at work: extends the lease of the attempt. `attempt_id`: the one that is meant, as a fence."""

    note: str
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class FileMade:
    """A file below the workspace is evidence; the entrance has read it and computed `sha256` itself."""

    kind: str
    uri: str
    sha256: str
    summary: str = ""
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReviewGiven:
    """A reviewer's verdict, given before (or instead of) the answer of its turn."""

    kind: ReviewKind
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """Stop trying, and wait for the operator."""

    reason: str


ByTool = Checkpoint | FileMade | ReviewGiven | OpenCircuit
