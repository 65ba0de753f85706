"""The configuration as the plain values that the engine decides by. Imports neither pydantic nor YAML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mailboxd.core.approvals import Action, ActionRules, may_not_perform
from mailboxd.core.checks import CheckRules
from mailboxd.core.handovers import Bounds
from mailboxd.core.model import BreakerRules, Escalation, Policy
from mailboxd.core.session_keys import is_chat_of
from mailboxd.core.specs import refused_address
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import Gate, Notice, Quorum, Synthesis, WeakSpec, same_agent

if TYPE_CHECKING:
    from mailboxd.formats.config.model import Config


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one workspace."""

    agent: str
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    jitter_share: float = 0.2
    slots: int = 4
    slots_per_agent: int = 1
    open_per_sender: int = 0
    """Unfinished tasks per sender; 0 = no limit."""
    turns_per_hour: int = 0
    """Turns per agent in any hour; 0 = no limit."""
    handovers: Bounds = field(default_factory=Bounds)
    """The limits on tasks that agents write into the inbox."""
    ageing: float = 0.0
    """Seconds after which a ready task that waits rises by one priority; 0 = never."""
    escalation: Escalation = field(default_factory=Escalation)
    breaker: BreakerRules = field(default_factory=BreakerRules)
    heartbeat: float = 0.0
    """Seconds; see `core.task_view.Context`."""
    checks: CheckRules = CheckRules()
    harnesses: tuple[str, ...] = ()
    """The names under `acp.harnesses`."""
    models: tuple[str, ...] = ()
    """Those that a task may name."""
    reply_to: tuple[str, ...] = ()
    """Where a task may have its replies sent."""
    delegates: bool = True
    """Whether its agent may give work away in its own chats, which then get the results."""
    readers: frozenset[str] = frozenset()
    """Those of them that may only read."""
    may_perform: Callable[[Action], str | None] = lambda _action: None
    """See `core.task_view.Context`, also for the four below."""
    approval_seconds: float = 86_400.0
    notices: frozenset[Notice] = frozenset()
    approvers: tuple[str, ...] = ()
    chat_approves_all: bool = False
    prompt_bytes: int = 0
    """The largest prompt, in bytes, whose text is kept; 0: none is."""
    zone: str = ""
    """The operator's time zone; empty = the machine's (`host.zone.named`)."""

    def refused_reply(self, address: str, sender: str) -> str | None:
        """Why a task of this sender may not have its replies sent there; None = it may.

        What the agent gave away in a chat of its own is answered in that chat.
        """
        if self.delegates and same_agent(sender, self.agent) and is_chat_of(self.agent, address):
            return None
        return refused_address(address, self.reply_to)

    @property
    def bounds(self) -> dict[str, int]:
        """The limits on the growth of work, by their names under `limits` in the configuration; 0 = no limit."""
        return {
            "planned_per_tree": self.limits.planned,
            "planned_per_hour": self.limits.planned_hour,
            "turns_per_task": self.limits.turns,
            "turns_per_tree": self.limits.tree_turns,
            "turns_per_agent_hour": self.turns_per_hour,
            "sender_hour_tasks": self.handovers.tasks,
            "sender_hour_turns": self.handovers.turns,
            "depth": self.limits.depth,
        }


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals of periodic work, in seconds."""

    rescan: float = 30.0
    render: float = 0.2
    drain: float = 60.0


def settings(config: Config) -> Settings:
    """The settings of the workspace with this configuration."""
    escalation, breaker, checks = config.escalation, config.breaker, config.checks
    return Settings(
        agent=config.agent,
        policy=policy(config),
        limits=limits(config),
        jitter_share=config.retry.jitter,
        slots=config.limits.turns,
        slots_per_agent=config.limits.turns_per_agent or config.limits.turns,
        open_per_sender=config.limits.sender_open_tasks,
        turns_per_hour=config.limits.turns_per_agent_hour,
        handovers=Bounds(config.limits.depth, config.limits.sender_hour_tasks, config.limits.sender_hour_turns),
        ageing=config.scheduling.ageing,
        escalation=Escalation(escalation.from_attempt, escalation.model, escalation.agent, escalation.harness),
        breaker=BreakerRules(
            breaker.failures, breaker.open_seconds, max(breaker.open_seconds, breaker.open_max_seconds)
        ),
        heartbeat=config.heartbeat_seconds,
        harnesses=tuple(config.acp.harnesses),
        models=config.openclaw.models,
        reply_to=config.notify.reply_to,
        delegates=config.openclaw.delegate != "off",
        readers=frozenset(name for name, one in config.acp.harnesses.items() if set(one.capabilities) <= {"read"}),
        checks=CheckRules(checks.commands, checks.timeout_seconds, find_spec("jsonschema") is not None),
        may_perform=partial(may_not_perform, action_rules(config)),
        approval_seconds=config.approvals.expire_seconds,
        notices=config.notify.notices,
        approvers=config.approvals.approvers,
        chat_approves_all=config.approvals.by_chat == "all",
        prompt_bytes=config.archive.prompt_bytes if config.archive.prompts == "text" else 0,
        zone=config.zone,
    )


def action_rules(config: Config) -> ActionRules:
    """The rules for side effects."""
    return ActionRules(frozenset(config.actions.environment))


def policy(config: Config) -> Policy:
    """The rules for a task whose headers do not override them (protocol section 4)."""
    return Policy(
        max_attempts=config.retry.max_attempts,
        timeout=config.openclaw.turn_timeout_seconds,
        reply_within=config.reply_within_seconds,
        backoff_base=config.retry.backoff_seconds,
        backoff_max=config.retry.backoff_max_seconds,
        circuit_hold=config.circuit.hold_seconds,
        max_rework=config.gates.max_rework,
        gates=frozenset(gate for gate in Gate if getattr(config.gates, gate.value)),
        reviewers=config.gates.reviewers,
        quorum=Quorum(config.gates.quorum),
        same_reviewer=config.gates.same_reviewer,
        weak=WeakSpec(config.spec.weak),
        synthesis=Synthesis(config.synthesis),
        budget_usd=config.limits.usd_per_task or None,
        budget_tokens=config.limits.tokens_per_task or None,
        max_turns=config.limits.turns_per_task,
        max_tree_turns=config.limits.turns_per_tree,
        max_tree_tasks=config.limits.planned_per_tree,
        named=frozenset(),
    )


def limits(config: Config) -> Limits:
    """The limits within which plans are accepted."""
    bounds = config.limits
    return Limits(
        bounds.depth,
        bounds.children,
        questions=bounds.questions,
        tree=bounds.tree,
        turns=bounds.turns_per_task,
        tree_turns=bounds.turns_per_tree,
        planned=bounds.planned_per_tree,
        planned_hour=bounds.planned_per_hour,
    )
