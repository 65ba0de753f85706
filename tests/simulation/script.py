"""What the scripted agents of a simulation say: plans, answers and outcomes, drawn from one seeded source of chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from mailboxd.core.approvals import Action, ActionKind
from mailboxd.core.decision_builder import sha256_of
from mailboxd.core.inputs import NewTask, Progress
from mailboxd.core.model import (
    NO_FLOW,
    Check,
    Condition,
    Flow,
    GivenVerdict,
    Origin,
    Overrides,
    Plan,
    PlannedChild,
    Policy,
    Spec,
    Usage,
)
from mailboxd.core.outcomes import (
    Aborted,
    Acknowledged,
    Answer,
    Drafted,
    Failed,
    Failure,
    Outcome,
    Permanence,
    Planned,
    Question,
    Results,
    Reviewed,
    Succeeded,
    Unclear,
    Unknown,
)
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import SELF, Gate, Join, Quorum, Synthesis, Turn, Verdict, WeakSpec
from mailboxd.host.clock import ManualClock

OWN = "main"
PEERS = ("ada", "bob", "eve")
REVIEWERS = ("rex", "uma")
SENDERS = ("operator", "boss")
KEYS = ("a", "b", "c", "d", "e")
MADE, MORE = Check("made", file="made.txt"), Check("more", command=("make", "test"))
BEGIN = ManualClock().text


@dataclass(frozen=True, slots=True)
class Script:
    """Draws what happens next. The same seed draws the same."""

    random: Random

    def one_of(self, **weights: float) -> str:
        """One of the names, as often as its weight says."""
        return self.random.choices(list(weights), list(weights.values()))[0]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # -------------------------------------------------------------- work that arrives

    def new_task(self, number: int) -> NewTask:
        return NewTask(
            task_id=f"t{number}",
            subtask_id=None,
            local_id=f"t{number}",
            sender=self.random.choice(SENDERS),
            title=f"Task {number}",
            spec=self.spec(number),
            policy=self.policy(),
            origin=Origin(attempt=1, attempt_id=f"theirs-{number}-1", content="first", terms="own"),
            plan=self.plan(0) if self.chance(0.3) else None,
            cancelled="cancelled before it came" if self.chance(0.03) else "",
        )

    def spec(self, number: int) -> Spec:
        """Now and then one that is weak, or has checks; one in which nothing stands at all."""
        goal = f"Task {number}" if self.chance(0.97) else ""
        criteria = self.random.choice(((), ("works well",), ("two pages",)))
        spec = Spec(goal, "Do it." if goal else "", acceptance_criteria=criteria, checks=self.checks())
        return replace(spec, planned_actions=self.actions()) if self.chance(0.25) else spec

    def checks(self) -> tuple[Check, ...]:
        return self.random.choice(((),) * 6 + ((MADE,), (MADE, MORE)))

    def policy(self) -> Policy:
        gates = frozenset(gate for gate in Gate if self.chance(0.25))
        return Policy(
            max_attempts=self.random.choice((1, 2, 3, 3)),
            idempotent=self.chance(0.4),
            gates=gates,
            reviewers=self.reviewers() if gates else (),
            max_rework=self.random.choice((0, 1, 3)),
            reply_within=3600,
            circuit_hold=7200,
            deadline=plus(BEGIN, self.random.uniform(0, 20_000)) if self.chance(0.12) else None,
            budget_usd=self.random.choice((0.3, 0.6)) if self.chance(0.15) else None,
            max_turns=4 if self.chance(0.05) else 0,
            priority=self.random.choice((0, 0, 5)),
            backoff_max=60.0,
            synthesis=self.random.choice(list(Synthesis)),
            quorum=self.random.choice((*[Quorum.ALL] * 3, *Quorum)),
            weak=self.random.choice((*[WeakSpec.DERIVE] * 3, *WeakSpec)),
            same_reviewer=self.chance(0.5),
        )

    def reviewers(self) -> tuple[str, ...]:
        return self.random.choice((*[REVIEWERS[:1]] * 5, *[REVIEWERS] * 5, (OWN, "rex"), ()))

    def overrides(self) -> Overrides:
        return Overrides(
            max_attempts=self.random.choice((None, None, 1, 2)),
            idempotent=self.random.choice((None, True, False)),
            join=self.random.choice((None, *Join)),
            gates=frozenset() if self.chance(0.5) else None,
        )

    def plan(self, depth: int) -> Plan:
        return Plan(self.children(depth, ()))

    def children(self, depth: int, around: tuple[str, ...]) -> tuple[PlannedChild, ...]:
        """A DAG; now and then one that cannot be carried out."""
        keys = [f"{key}{depth or ''}" for key in KEYS[: self.random.randint(1, 4)]]
        if self.chance(0.04):
            keys.append(keys[0])
        return tuple(self._child(key, keys[:number], depth, around) for number, key in enumerate(keys))

    def _child(self, key: str, before: list[str], depth: int, around: tuple[str, ...]) -> PlannedChild:
        needs = [name for name in before if self.chance(0.4)]
        needs += [name for name in around if self.chance(0.1)]
        if self.chance(0.02):
            needs.append(self.random.choice((key, "nobody")))
        agents: tuple[str, ...] = (self.random.choice((SELF, OWN, *PEERS)),)
        below: tuple[PlannedChild, ...] = ()
        if self.chance(0.12):
            agents = tuple(self.random.sample(PEERS, self.random.randint(2, 3)))
        elif depth < 2 and self.chance(0.15):
            below = self.children(depth + 1, (*around, *before))
        if self.chance(0.01):
            agents = ("ghost",)
        output = self.random.choice(("", "one line"))
        said, checks = self.overrides(), self.checks()
        flow = self.flow([name for name in needs if name in before], [one.key for one in below])
        parts: dict[str, Any] = {
            "expected_output": output,
            "checks": checks,
            "overrides": said,
            "flow": flow,
            "claims": self.claims(),
            "children": below,
        }
        return PlannedChild(key, agents, f"do {key}", tuple(needs), **parts)

    def claims(self) -> tuple[str, ...]:
        return self.random.choice(((),) * 3 + (("src/**",), ("src/a.py", "docs/x.md"), ("docs/**",)))

    def flow(self, needs: list[str], below: list[str]) -> Flow:
        """Mostly none; else a condition, a join of branches, or rounds."""
        if self.chance(0.6):
            return NO_FLOW
        when = tuple(Condition(("yes",), name, self.chance(0.5)) for name in needs if self.chance(0.5))
        rounds = self.random.randint(1, 3) if self.chance(0.25) else 0
        of = self.random.choice(("", *below))
        until = Condition(("yes",), of, self.chance(0.3)) if rounds and self.chance(0.6) else None
        return Flow(when, self.chance(0.4), rounds, until)

    # -------------------------------------------------------------- what agents say

    def outcome(self, turn: Turn, *, may_plan: bool) -> tuple[Outcome, Answer | None]:
        """How a turn ends, and what it said if it ended well."""
        match self.one_of(succeeded=80, failed=7, stalled=4, hopeless=1, aborted=2, unknown=7):
            case "succeeded":
                said = Succeeded("said", Usage(10, 5, self.random.choice((None, 0.05, 0.1))), run_id="run")
                return said, self.answer(turn, may_plan=may_plan)
            case "failed":
                return Failed("the model is overloaded", retry_after=self.random.choice((0.0, 40.0))), None
            case "stalled":
                return Failed("connection refused", started=False), None
            case "hopeless":
                return Failed("no such model", Permanence.PERMANENT), None
            case "aborted":
                return Aborted("stopped by SIGTERM"), None
            case _:
                return Unknown("the call was lost", run_id="run"), None

    def answer(self, turn: Turn, *, may_plan: bool) -> Answer:
        if turn is Turn.REVIEW:
            return self.review()
        if turn is Turn.DRAFT:
            return self.draft()
        acknowledges = 40.0 if turn is Turn.DISPATCH else 1.0
        plans = 0.0 if not may_plan else 25.0 if turn is Turn.WORK else 3.0
        match self.one_of(results=50, plan=plans, acknowledged=acknowledges, question=6, failure=8, noise=8, review=1):
            case "results":
                return self.results()
            case "plan":
                return Planned(self.plan(0))
            case "acknowledged":
                return Acknowledged()
            case "question":
                return Question("Which one?")
            case "failure":
                return Failure("I could not", partial="half of it" if self.chance(0.5) else "")
            case "noise":
                return Unclear(("the DAG is no YAML",), "---\n[", is_claim=self.chance(0.3))
            case _:
                return self.review()

    def results(self) -> Results:
        answer = self.random.choice(("", "yes", "no"))
        return Results("Forty chairs", answer=answer, planned_actions=self.actions() if self.chance(0.2) else ())

    def actions(self) -> tuple[Action, ...]:
        """One or two; now and then one that only a person can do, or under a key that others use as well."""
        names = ("publish", "tell")[: self.random.choice((1, 1, 2))]
        return tuple(
            Action(
                name,
                self.random.choice((*[ActionKind.COMMAND] * 5, ActionKind.MANUAL)),
                idempotency_key=self.random.choice(("", "", "", "shared")),
                argv=("make", name),
                verify=self.random.choice(((), ("make", "check"))),
                undo=self.random.choice(((), ("make", "undo"))),
            )
            for name in names
        )

    def draft(self) -> Answer:
        match self.one_of(whole=60, vague=15, nothing=15, noise=10):
            case "whole":
                return Drafted(Spec("What is meant", acceptance_criteria=("three pages",)))
            case "vague":
                return Drafted(Spec("", acceptance_criteria=("works well",)))
            case "nothing":
                return Drafted(Spec(""))
            case _:
                return Unclear(("no section of a spec",), "hm")

    def review(self) -> Answer:
        match self.one_of(approved=60, changes=26, blocked=4, unreadable=7, silent=3):
            case "approved":
                return Reviewed(Verdict.APPROVED, "good")
            case "changes":
                return Reviewed(Verdict.CHANGES_REQUESTED, "not yet")
            case "blocked":
                return Reviewed(Verdict.BLOCKED, "never")
            case "unreadable":
                return Unclear(("no verdict",), "hm")
            case _:
                return Results("it looks fine to me")

    def verdicts(self, executor: str, text: str) -> tuple[GivenVerdict, ...]:
        """What a peer tells of its own gates: the verdicts of reviewers, its own, or about another result."""
        gates = (Gate.SPEC_GATE, Gate.QUALITY_GATE) if self.chance(0.6) else ()
        of = sha256_of(text if self.chance(0.8) else "another")
        return tuple(
            GivenVerdict(gate, name, self.random.choice((*[Verdict.APPROVED] * 5, *Verdict)), of, executor, "told")
            for gate in gates
            for name in (*REVIEWERS, executor, "mallory")
            if self.chance(0.5)
        )

    def report(self) -> Answer | Progress:
        """What a peer that has acknowledged sends by message."""
        match self.one_of(progress=20, results=45, failure=10, question=8, plan=6, acknowledged=6, noise=5):
            case "progress":
                return Progress("half way")
            case "results":
                return self.results()
            case "failure":
                return Failure("the peer could not")
            case "question":
                return Question("Which colour?")
            case "plan":
                return Planned(self.plan(0))
            case "acknowledged":
                return Acknowledged()
            case _:
                return Unclear(("what is this",), "?")
