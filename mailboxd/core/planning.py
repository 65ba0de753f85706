"""How tasks come into being: a root task of a message, children of a plan, copies of a broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mailboxd.core import dag
from mailboxd.core.budget import consented, planned_too_much
from mailboxd.core.changing import changed
from mailboxd.core.draft import Decision, Draft
from mailboxd.core.effects import Effect
from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import NewTask
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.local_ids import child_local_id, distinct
from mailboxd.core.settle import settle
from mailboxd.core.specs import child_spec, child_title, derive, executor_of, inherit, refused_harness
from mailboxd.core.terms import OPERATORS, Mode, Phase
from mailboxd.core.times import plus
from mailboxd.core.types import Plan, PlannedChild, Policy, Spec, Task
from mailboxd.core.view import Context, Family, Level, View
from mailboxd.core.wire import to_json
from mailboxd.errors import PlanError


def create(new: NewTask, ctx: Context) -> Decision:
    """The root task, recorded with its spec, and its children when it brings a plan.

    Raises PlanError when the plan cannot be carried out: then nothing comes into being.
    """
    if why := refused_harness(new.policy, ctx.may_use):
        raise PlanError("unknown-harness", why)
    spec, derived = derive(new.spec, new.policy.weak)
    dag.require_no_return(new.origin.delegation_path, ctx.agent, spec.goal)
    by_person = new.sender in OPERATORS
    if by_person and new.plan is not None:
        new = replace(new, policy=consented(new.policy, dag.size(new.plan)))
    task = _root(new, spec, ctx)
    created = _created(task, (), derived)
    first = settle(View(task), ctx) if not new.cancelled else Decision()
    draft = Draft(first.left or View(task), ctx)
    draft.events += [created, *first.events]
    draft.effects += first.effects
    if new.cancelled:
        draft.move(Trigger.CANCELLED, new.cancelled, cancelled_with_parent=True)
    elif new.plan is not None:
        adopt(draft, new.plan, Family(Level({}), above=(task,)), by_person=by_person)
    return draft.done()


def _root(new: NewTask, spec: Spec, ctx: Context) -> Task:
    task_id = ctx.new_id("tsk")
    tells = ctx.heartbeat and new.origin.attempt_id is not None and new.sender not in OPERATORS
    return Task(
        id=task_id,
        local_id=new.local_id,
        task_id=new.task_id,
        subtask_id=new.subtask_id,
        sender=new.sender,
        parent=None,
        root=task_id,
        key="",
        depth=new.depth,
        title=new.title,
        mode=Mode.DIRECT,
        executor=ctx.agent,
        runtime=new.policy.runtime,
        phase=Phase.SPEC_DRAFT,
        spec=spec,
        policy=new.policy,
        created_at=ctx.now,
        updated_at=ctx.now,
        origin=new.origin,
        heartbeat=plus(ctx.now, ctx.heartbeat) if tells else None,
        planned_actions=spec.planned_actions,
        extra=new.extra,
        sections=new.sections,
    )


def adopt(draft: Draft, plan: Plan, family: Family, *, by_person: bool = False) -> None:
    """Make the plan's nodes children of the draft's task. Raises PlanError; then nothing was added.

    What agents plan faster than the operator allows is adopted, and held.
    """
    task, ctx = draft.task, draft.ctx
    dag.admit(plan, ctx.limits, task.depth, family.existing, family.outer, family.tree)
    for child in dag.walk(plan.children):
        for agent in child.agents:
            if executor_of(agent, ctx.agent) != ctx.agent and (why := ctx.may_reach(agent)) is not None:
                raise PlanError("unknown-agent", f"{child.key}: {why}")
        if why := refused_worker(child, ctx):
            raise PlanError("unknown-harness", f"{child.key}: {why}")
    _refuse_loops(dag.delegation_path(family.above), plan.children, ctx.agent)
    scopes = [*(level.ids for level in reversed(family.outer)), family.existing.ids]
    if task.mode is not Mode.COORDINATING:
        draft.amend("coordinates from here on", mode=Mode.COORDINATING)
    if plan.synthesis is not None:
        draft.amend("synthesis as the plan says", policy=replace(task.policy, synthesis=plan.synthesis))
    keys, planned = [child.key for child in plan.children], dag.size(plan)
    if by_person:
        draft.record(Kind.PLAN_ADOPTED, children=keys)
    else:
        draft.record(Kind.PLAN_ADOPTED, children=keys, planned=planned)
        if not task.held and (why := planned_too_much(ctx.limits, ctx.planned_lately() + planned)):
            draft.amend(why, held=why)
    births = _Births(ctx)
    births.add(draft.task, plan.children, scopes)
    draft.events += births.events
    draft.effects += births.effects
    tally = draft.view.children
    draft.view = changed(draft.view, children=replace(tally, total=tally.total + len(plan.children)))


def _refuse_loops(path: Sequence[str], children: Sequence[PlannedChild], own: str) -> None:
    """Raise PlanError for a child that gives work back to an agent above it, with the goal that this agent has."""
    returning = dag.returning(path)
    for child in children:
        goal = child_spec(child).goal if returning or child.children else ""
        names = [executor_of(agent, own) for agent in child.agents]
        for name in names:
            if name.lower() in returning:
                dag.require_no_return(path, name, goal)
        if child.children:
            _refuse_loops((*path, dag.step(names[0] if len(names) == 1 else own, goal)), child.children, own)


def refused_worker(child: PlannedChild, ctx: Context) -> str | None:
    """Why a child cannot be done by the harness that it names; None when it can, or names none."""
    said = child.overrides
    if said.runtime is None and said.harness is None:
        return None
    why = refused_harness(inherit(Policy(), said), ctx.may_use)
    if why or not said.harness:
        return why
    others = [agent for agent in child.agents if executor_of(agent, ctx.agent) != ctx.agent]
    return f"a harness works for {ctx.agent}, not for {others[0]}; write `agent: self`" if others else None


@dataclass(slots=True)
class _Births:
    """The children of one plan coming into being, each with what follows for it at once."""

    ctx: Context
    events: list[Event] = field(default_factory=list)
    effects: list[tuple[str, Effect]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def add(self, parent: Task, children: Sequence[PlannedChild], scopes: Sequence[Mapping[str, str]]) -> None:
        ids = dict(scopes[-1]) | {child.key: self.ctx.new_id("tsk") for child in children}
        for child in children:
            needs = tuple(_lookup(need, [*scopes[:-1], ids]) for need in child.depends_on)
            below = _broadcast(child) if len(child.agents) > 1 else child.children
            task, derived = self._child(parent, child, ids[child.key], bool(below))
            self.events.append(_created(task, needs, derived))
            first = settle(View(task, parent_phase=parent.phase, unmet=len(needs)), self.ctx)
            self.events += first.events
            self.effects += first.effects
            if below:
                self.add(first.left.task if first.left else task, below, [*scopes[:-1], ids, {}])

    def _child(
        self, parent: Task, planned: PlannedChild, task_id: str, coordinates: bool
    ) -> tuple[Task, tuple[str, ...]]:
        ctx = self.ctx
        policy = inherit(parent.policy, planned.overrides)
        spec, derived = derive(child_spec(planned), policy.weak)
        task = Task(
            id=task_id,
            local_id=self._name(child_local_id(parent.local_id, planned.key)),
            task_id=parent.local_id,
            subtask_id=planned.key,
            sender=ctx.agent,
            parent=parent.id,
            root=parent.root,
            key=planned.key,
            depth=parent.depth + 1,
            title=child_title(planned),
            mode=Mode.COORDINATING if coordinates else Mode.DIRECT,
            executor=ctx.agent if len(planned.agents) > 1 else executor_of(planned.agents[0], ctx.agent),
            runtime=policy.runtime,
            phase=Phase.SPEC_DRAFT,
            spec=spec,
            policy=policy,
            created_at=ctx.now,
            updated_at=ctx.now,
            broadcast=len(planned.agents) > 1,
            said=planned.overrides,
            extra=planned.extra,
        )
        return task, derived

    def _name(self, wanted: str) -> str:
        """The local id, made distinct where another task has it: a root task may be called like a child."""
        ordinal = 1
        while (name := distinct(wanted, ordinal)) in self.taken or not self.ctx.is_free(name):
            ordinal += 1
        self.taken.add(name)
        return name


def _broadcast(child: PlannedChild) -> tuple[PlannedChild, ...]:
    """One copy of the work per agent, each under that agent's name."""
    plain = replace(child.overrides, join=None)
    return tuple(
        replace(child, key=agent, agents=(agent,), depends_on=(), planned_actions=(), overrides=plain)
        for agent in child.agents
    )


def _lookup(name: str, scopes: Sequence[Mapping[str, str]]) -> str:
    return next(ids[name] for ids in reversed(scopes) if name in ids)


def _created(task: Task, needs: Sequence[str], derived: Sequence[str]) -> Event:
    data = {"at": task.created_at, "task": to_json(task), "needs": list(needs)}
    if derived:
        data["derived"] = list(derived)
    return Event(Kind.TASK_CREATED, task.id, data)
