"""A standstill: a person has paused every agent of the host. Running turns end, and nothing begins until it is over."""

from __future__ import annotations

from dataclasses import dataclass

OVER = "mailboxd resume --all"
"""The command that ends it."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """The latest word about it: who said it, when (ISO 8601, UTC), and why; `over`: it has ended."""

    by: str
    at: str
    note: str = ""
    over: bool = False

    @property
    def text(self) -> str:
        """As a clause: `everything is paused by ann: until the audit is over`."""
        return f"everything is {'resumed' if self.over else 'paused'} by {self.by}" + (
            f": {self.note}" * bool(self.note)
        )
