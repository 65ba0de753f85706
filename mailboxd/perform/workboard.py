"""Given tasks as cards of OpenClaw's Workboard, for those who look there: one way, a card that is moved orders nothing.

A card has the task's id as its key, so that it is the same one after any crash. Only `running`, `blocked`, `review` and
`done` are used: OpenClaw gives cards that are `ready` or `todo` to agents of its own, and the work would be done twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.sanitize import first_line
from mailboxd.core.times import plus
from mailboxd.engine.engine import Engine
from mailboxd.ledger.attention_queries import GivenTask, given_tasks
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import at, complaint, parse_text, text_at
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.process_table import Call, ProcessTable

EVERY = 5.0
"""Seconds between two looks."""
MOST = 100
"""Cards that are kept up to date: the latest."""
KEPT = 86_400.0
"""Seconds for which a task that has ended is still looked at, as long as a daemon may have been down."""
AGAIN = 60.0
_AT_ONCE = 4
_SECONDS = 60
_TITLE_CHARS = 120
_CREATE, _UPDATE = "workboard.cards.create", "workboard.cards.update"
_REVIEWED = frozenset({"spec_review", "spec_gate", "quality_gate"})


@dataclass(slots=True)
class _Card:
    """A card; `status` is what OpenClaw has, as far as is known."""

    id: str = ""
    status: str = ""
    call: str = ""
    """Of the request under way."""
    asked: str = ""
    """The status that it asks for."""
    problem: str = ""
    """Why it was not written; empty if it was."""


@dataclass(slots=True)
class Workboard:
    """The cards of one workspace."""

    engine: Engine
    calls: ProcessTable
    gateway: GatewayCalls
    enabled: bool
    _cards: dict[str, _Card] = field(default_factory=dict)
    """By task."""
    _due: float = 0.0
    """When to go on after a failure (monotonic clock)."""

    @property
    def trouble(self) -> str:
        """Why a card that is to be shown was not written; empty if all were."""
        problem = next((card.problem for card in self._cards.values() if card.problem), "")
        return problem and f"a card of OpenClaw's Workboard was not written, and is tried again: {problem}"

    def perform(self) -> float | None:
        """Make and move cards; return when to do so again (monotonic clock)."""
        if not self.enabled:
            return None
        now = self.engine.clock.monotonic()
        if now < self._due:
            return self._due
        since = plus(self.engine.clock.now(), -KEPT)
        tasks = given_tasks(self.engine.store.report, since, MOST)
        shown = {task.id for task in tasks}
        self._cards = {id_: one for id_, one in self._cards.items() if id_ in shown or one.call}
        for task in tasks:
            card = self._cards.setdefault(task.id, _Card())
            status = column(task)
            if sum(bool(one.call) for one in self._cards.values()) >= _AT_ONCE:
                break
            if card.call or card.status == status:
                continue
            if card.id:
                self._start(card, status, _UPDATE, {"id": card.id, "patch": {"status": status}}, now)
            else:
                self._start(card, status, _CREATE, self._made(task, status), now)
        return now + EVERY

    def _made(self, task: GivenTask, status: str) -> Mapping[str, object]:
        agent = self.engine.settings.agent
        notes = f"Kept by mailboxd of {agent}; moving the card orders nothing. `mailboxd show {task.local_id}`"
        return {
            "title": first_line(f"{task.local_id}: {task.title}", _TITLE_CHARS),
            "notes": notes,
            "status": status, "agentId": agent, "labels": ["mailboxd"], "idempotencyKey": f"mailboxd:{task.id}",
        }  # fmt: skip

    def ended(self, call: Call, exit_: Exit) -> bool:
        """Take the end of a request, if it is one of a card; inside a batch."""
        card = next((one for one in self._cards.values() if one.call == call.id), None)
        if card is None:
            return False
        self.calls.discard_when_recorded(call.id)
        card.call, said = "", parse_text(exit_.stdout)
        if exit_.rc != 0:
            problem = text_at(said, "error", "message") or complaint(exit_)
            card.problem = first_line(problem)
            card.id, self._due = "", self.engine.clock.monotonic() + AGAIN
            return True
        self._take(card, at(said, "card"))
        return True

    def _take(self, card: _Card, found: Any) -> None:
        """What OpenClaw says of the card: a known one may have another status than was asked for."""
        card.id, card.problem = text_at(found, "id"), ""
        card.status = text_at(found, "status") or card.asked

    def _start(self, card: _Card, status: str, method: str, params: Mapping[str, object], now: float) -> None:
        if name := self.gateway.begin(self.engine, self.calls, method, params, _SECONDS):
            card.call, card.asked = name, status
        else:
            self._due = now + AGAIN


def column(task: GivenTask) -> str:
    """Where the card of a task stands."""
    if task.has_ended:
        return "done"
    if task.need:
        return "blocked"
    return "review" if task.phase in _REVIEWED else "running"
