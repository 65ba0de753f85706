"""What decisions read of the configuration, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mailboxd.core.approvals import Action
from mailboxd.core.checks import CheckRules
from mailboxd.core.model import BreakerRules, Escalation, Policy
from mailboxd.core.task_view import Limits


@dataclass(frozen=True, slots=True)
class Settings:
    """One workspace's own."""

    agent: str
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    jitter_share: float = 0.2
    slots: int = 4
    slots_per_agent: int = 1
    open_per_sender: int = 0
    """Unfinished tasks that one sender may have here; 0 = no limit."""
    turns_per_hour: int = 0
    """Turns of one agent in any hour; 0 = no limit."""
    escalation: Escalation = field(default_factory=Escalation)
    breaker: BreakerRules = field(default_factory=BreakerRules)
    heartbeat: float = 0.0
    """Seconds; see `core.view.Context`."""
    checks: CheckRules = CheckRules()
    harnesses: tuple[str, ...] = ()
    """Their names, as the configuration has them."""
    may_perform: Callable[[Action], str | None] = lambda _action: None
    """See `core.view.Context`; so the three below."""
    approval_seconds: float = 86_400.0
    notifies: bool = False
    approvers: tuple[str, ...] = ()

    @property
    def bounds(self) -> dict[str, int]:
        """What keeps work from growing without end, by the names of `limits` in the configuration; 0 = no limit."""
        return {
            "planned_per_tree": self.limits.planned,
            "planned_per_hour": self.limits.planned_hour,
            "turns_per_task": self.limits.turns,
            "turns_per_tree": self.limits.tree_turns,
            "turns_per_agent_hour": self.turns_per_hour,
            "depth": self.limits.depth,
        }


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things are looked at without being asked, in seconds."""

    rescan: float = 30.0
    render: float = 0.2
    drain: float = 60.0
