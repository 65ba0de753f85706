"""What an audit says: the first thing that is wrong, what was expected in its place, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field

REBUILD = "Stop the daemon and restore a backup, or run `mailboxd rebuild --into FILE` and compare."
RESTORE = "Stop the daemon, then restore a backup, or run `mailboxd rebuild --replace`."
LOOK = "Find out who wrote there; docs/audit.md says what each finding means."


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was recorded. `where` is an event, or a path relative to the workspace."""

    check: str
    where: str
    problem: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; expected: {self.expected}. {self.remedy}"


@dataclass(slots=True)
class Account:
    """How much was checked, and what is wrong first."""

    checked: dict[str, int] = field(default_factory=dict)
    finding: Finding | None = None
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and why."""
