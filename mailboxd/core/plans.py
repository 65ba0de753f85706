"""How tasks come into being: a root task of a message, children of a plan, copies of a broadcast."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import groupby

from mailboxd.core.budget import consented, planned_too_much
from mailboxd.core.decision_builder import Decision, DecisionBuilder
from mailboxd.core.effects import CreateChildren
from mailboxd.core.events import Event, Kind
from mailboxd.core.fixpoint import announce_end, run_to_fixpoint
from mailboxd.core.inputs import NewTask
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.model import NO_FLOW, Condition, Flow, NewChild, Plan, PlannedChild, Policy, Spec, Task
from mailboxd.core.specs import (
    as_child,
    child_spec,
    child_title,
    derive,
    digest,
    executor_of,
    inherit,
    refused_harness,
    refused_model,
)
from mailboxd.core.task_view import Context, Family, Level, Limits, TaskView
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import (
    OPERATORS,
    Mode,
    Notice,
    Phase,
    Synthesis,
    as_id,
    distinct,
    is_agent,
    is_id,
    local_id_of,
)
from mailboxd.errors import PlanError

# Admission: which plans can be carried out.
#
# Cycles are looked for in the waits-for graph, not in `depends_on` alone: a parent waits for its children, and a child
# for everything that its parent waits for. So a plan with acyclic dependencies that would deadlock (`p` has the child
# `c`, `c` needs `x`, `x` needs `p`) is refused, with the path of the cycle.

_SHOWN = 10
_LONGEST_DOUBT = 1_000
PLAN, TASK_FILE, MESSAGE = "the plan", "task.md", "the message"
"""What a doubt is about."""
MOST_STEPS = 64
"""Length of a delegation path; the latest steps are kept."""
ALONE = Level({})


def admit(
    plan: Plan, limits: Limits, depth: int, existing: Level = ALONE, outer: Sequence[Level] = (), tree: int = 0
) -> None:
    """Raise PlanError unless the plan can be carried out below a task at `depth`.

    `existing` are the task's children, `outer` the levels above it, innermost first; `tree` is the number of tasks
    below its root.
    """
    _check_shape(plan.children, limits, depth)
    known = next((child.key for child in plan.children if child.key in existing.nodes), None)
    if known is not None:
        raise PlanError("duplicate-subtask", f"the task has a child {known} already", "Give the new child another id.")
    tasks = size(plan)
    if len(existing.nodes) + tasks > limits.children:
        raise PlanError(
            "plan-too-large", f"more than {limits.children} children", "Raise limits.children, or plan in levels."
        )
    if tree + tasks > limits.tree:
        problem = f"{tree + tasks} tasks would be below one root, at most {limits.tree} are allowed"
        raise PlanError("plan-too-large", problem, "Raise limits.tree, or plan less.")
    edges = sum(len(child.depends_on) for child in walk(plan.children))
    if edges > limits.edges:
        raise PlanError("plan-too-large", f"{edges} dependencies, at most {limits.edges} are allowed")
    check_order(plan, existing, outer)


def check_order(plan: Plan, existing: Level = ALONE, outer: Sequence[Level] = ()) -> None:
    """Raise PlanError for a dependency on nothing that is there, and for tasks that would wait for each other."""
    _check_acyclic(_waits_for(plan, existing, outer))


def size(plan: Plan) -> int:
    """The number of tasks that a plan creates."""
    return sum(
        1 + (len(child.agents) if len(child.agents) > 1 else 0) + bool(child.flow.rounds)
        for child in walk(plan.children)
    )


@lru_cache(maxsize=256)  # the children of a plan come from the same agents
def step(agent: str, goal: str) -> str:
    """A step of a delegation path: an agent and a digest of its goal, ignoring case and white space."""
    said = " ".join(goal.casefold().split())
    return f"{as_id(agent.lower())}:{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def delegation_path(above: Sequence[Task]) -> tuple[str, ...]:
    """The steps from the first agent, on whatever machine, down to the last of these tasks (the root first)."""
    before = above[0].origin.delegation_path if above else ()
    return (*before, *(step(task.executor, task.spec.goal) for task in above))[-MOST_STEPS:]


def delegators(path: Sequence[str]) -> frozenset[str]:
    """The agents of the path that gave work to another agent, so that it could return to them."""
    names = [one.partition(":")[0] for one in path]
    while len(names) > 1 and names[-2] == names[-1]:
        names.pop()
    return frozenset(names[:-1])


def require_no_return(path: Sequence[str], agent: str, goal: str) -> None:
    """Raise PlanError if the agent already had this goal further up and gave it to another agent."""
    if agent.lower() not in delegators(path) or (again := step(agent, goal)) not in path:
        return
    passed = [name for name, _ in groupby(one.partition(":")[0] for one in path[path.index(again) :])]
    if len(passed) > 1:
        raise PlanError(
            "delegation-loop",
            f"the work would come back to {agent} with the same goal: {' -> '.join([*passed, agent.lower()])}",
            "Do it yourself, give it to an agent that is not above you, or give away a smaller part with its own goal.",
        )


def walk(children: Sequence[PlannedChild]) -> Iterator[PlannedChild]:
    """Every node of a plan, parents before their children."""
    stack = list(reversed(children))
    while stack:
        child = stack.pop()
        yield child
        if child.children:
            stack.extend(reversed(child.children))


def _check_shape(children: Sequence[PlannedChild], limits: Limits, depth: int) -> None:
    if not children:
        raise PlanError("empty-plan", "the plan has no children", "Answer with a result instead of an empty plan.")
    if depth + 1 > limits.depth:
        raise _too_deep(depth + 1, limits)
    seen: set[str] = set()
    declared = {child.key: child.flow.answers for child in children if child.flow.answers}
    for child in children:
        if not is_id(child.key):
            raise PlanError("bad-id", f"{child.key[:80]!r} cannot be the id of a child")
        if child.key in seen:
            raise PlanError("duplicate-subtask", f"the child {child.key} appears twice in the plan")
        seen.add(child.key)
        _check_agents(child)
        _check_flow(child, declared)
        deeper = depth + 1 + bool(child.flow.rounds)  # each round is a level of its own
        if child.children:
            _check_shape(child.children, limits, deeper)
        elif deeper > limits.depth:
            raise _too_deep(deeper, limits)


def _too_deep(depth: int, limits: Limits) -> PlanError:
    problem = f"the plan would be at depth {depth}, at most {limits.depth} is allowed"
    return PlanError("too-deep", problem, "See limits.depth.")


def _check_flow(child: PlannedChild, declared: Mapping[str, Sequence[str]]) -> None:
    """The tasks that its conditions, its rounds and its synthesis name, and the answers that these can give."""
    flow, below = child.flow, {inner.key for inner in child.children}
    for condition in flow.when:
        if condition.of not in child.depends_on:
            problem = f"{child.key}: `when` names {condition.of[:80]!r}, on which it does not depend"
            raise PlanError("unknown-dependency", problem, f"Write `depends_on: [{condition.of[:80]}]`.")
        _check_answers(condition, declared.get(condition.of, ()), child.key, "when")
    if flow.until is not None:
        inside = {inner.key: inner.flow.answers for inner in child.children}
        _check_answers(flow.until, inside.get(flow.until.of, ()) if flow.until.of else flow.answers, child.key, "until")
    if flow.until is not None and not flow.rounds:
        raise PlanError("bad-plan", f"{child.key}: `until` without `rounds`", "Write `rounds: N`, the most rounds.")
    if flow.until is not None and flow.until.of and flow.until.of not in below:
        problem = f"{child.key}: `until` names {flow.until.of[:80]!r}, which is not one of its subtasks"
        raise PlanError("unknown-dependency", problem, "Name one, or write the answer itself: `until: done`.")
    check_synthesis(child.overrides.synthesis, below, child.key)


def _check_answers(condition: Condition, declared: Sequence[str], whose: str, word: str) -> None:
    """Raise PlanError for a condition on an answer that can never be given."""
    allowed = {answer.casefold() for answer in declared}
    other = next((one for one in condition.answers if one.strip().casefold() not in allowed), None) if allowed else None
    if other is not None:
        problem = f"{whose}: `{word}` names the answer {other[:80]!r}, which is none of {', '.join(declared)}"
        raise PlanError("bad-plan", problem, "Write one of these, or declare it in `answers:` too.")


def check_synthesis(synthesis: str | None, children: Collection[str], whose: str) -> None:
    """Raise PlanError unless it is one of the words, or names one of the children."""
    if synthesis is None or synthesis in tuple(Synthesis) or synthesis in children:
        return
    hint = f"Write {', '.join(Synthesis)} or the name of a subtask."
    raise PlanError(
        "unknown-dependency", f"{whose}: `synthesis` names {synthesis[:80]!r}, which is not a subtask", hint
    )


def _check_agents(child: PlannedChild) -> None:
    if not child.agents:
        raise PlanError("missing-field", f"{child.key}: no agent is named", "Write `agent: <id>` or `agent: self`.")
    for agent in child.agents:
        if not is_agent(agent):
            raise PlanError("bad-id", f"{child.key}: {agent[:80]!r} cannot be an agent's id")
    if len(set(child.agents)) != len(child.agents):
        raise PlanError("duplicate-subtask", f"{child.key}: an agent is named twice in the broadcast")
    if len(child.agents) > 1 and child.children:
        raise PlanError("bad-plan", f"{child.key}: a broadcast cannot carry a plan of its own")


_Path = tuple[str, ...]


def _waits_for(plan: Plan, existing: Level, outer: Sequence[Level]) -> dict[_Path, set[_Path]]:
    """Edges from a task to what must be completed before it can be.

    What a coordinating task needs is needed by everything below it, but that takes no edges: nothing outside can name
    what is inside, so a way back into it leads through the task itself, and closes a cycle there.
    """
    graph: dict[_Path, set[_Path]] = {}
    scopes: list[tuple[_Path, set[str]]] = []
    here: _Path = ()
    for level in reversed(outer):
        scopes.append((here, set(level.nodes)))
        for key, needs in level.nodes.items():
            _add(graph, (*here, key), needs, scopes)
        here = (*here, level.node)
    scopes.append((here, set(existing.nodes) | {child.key for child in plan.children}))
    for key, needs in existing.nodes.items():
        _add(graph, (*here, key), needs, scopes)
    _add_children(graph, plan.children, here, scopes)
    return graph


def _add_children(
    graph: dict[_Path, set[_Path]],
    children: Sequence[PlannedChild],
    here: _Path,
    scopes: list[tuple[_Path, set[str]]],
) -> None:
    for child in children:
        path = (*here, child.key)
        _add(graph, path, child.depends_on, scopes)
        if child.children:
            _add_children(graph, child.children, path, [*scopes, (path, {below.key for below in child.children})])


def _add(
    graph: dict[_Path, set[_Path]],
    path: _Path,
    needs: Sequence[str],
    scopes: list[tuple[_Path, set[str]]],
) -> None:
    """One task: it waits for its needs, and its parent waits for it."""
    graph.setdefault(path, set()).update(_resolve(need, scopes, path) for need in needs)
    if len(path) > 1:
        graph[path[:-1]].add(path)


def _resolve(name: str, scopes: Sequence[tuple[_Path, set[str]]], asking: _Path) -> _Path:
    """The task that a dependency names: a sibling first, then a sibling of each ancestor, from the inside out."""
    for prefix, keys in reversed(scopes):
        if name in keys:
            return (*prefix, name)
    raise PlanError(
        "unknown-dependency",
        f"{asking[-1]} depends on {name[:80]!r}, which is not in the plan",
        "Name a child of the same plan or of a plan around it.",
    )


def _check_acyclic(graph: Mapping[_Path, set[_Path]]) -> None:
    if not any(graph.values()):
        return  # nothing waits for anything
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        names = ["/".join(path) for path in reversed(error.args[1])]
        if len(names) > _SHOWN:
            names = [*names[: _SHOWN - 1], f"... ({len(names) - _SHOWN} more) ...", names[-1]]
        raise PlanError(
            "cycle",
            "these would wait for each other forever: " + " -> ".join(names),
            "Remove one of the dependencies.",
        ) from None


# Creation: a root task of a message, children of a plan, copies of a broadcast.


def create(new: NewTask, ctx: Context) -> Decision:
    """Create the root task and, if it brings a plan, its children.

    Raises PlanError if the plan cannot be carried out; then nothing is created.
    """
    _require_worker(new.policy, ctx.may_use, ctx.models, new.local_id)
    if new.plan is None:
        check_synthesis(new.policy.synthesis, (), new.local_id)
    spec, derived = derive(new.spec, new.policy.weak)
    require_no_return(new.origin.delegation_path, ctx.agent, spec.goal)
    by_person = new.sender in OPERATORS
    if by_person and new.plan is not None:
        new = replace(new, policy=consented(new.policy, size(new.plan)))
    if not by_person:
        new = replace(new, origin=replace(new.origin, spec=digest(spec)))
    task = _root(new, spec, ctx)
    view = TaskView(task, unmet=len(new.needs))
    builder = DecisionBuilder(view, ctx, events=[_created(task, new.needs, derived)])
    record_doubts(builder, TASK_FILE, new.doubts)
    if new.cancelled:
        builder.move(Trigger.CANCELLED, new.cancelled, cancelled_with_parent=True)
    elif new.refused:
        builder.move(Trigger.REFUSED, new.refused, error=new.refused)
        announce_end(builder)
    else:
        if new.held:
            builder.amend(new.held, held=new.held)
            builder.notify(Notice.HOLD)
        run_to_fixpoint(builder)
        if new.plan is not None:
            adopt(builder, new.plan, Family(Level({}), above=(task,)), by_person=by_person)
    builder.born.append(builder.task)
    return builder.done()


def given_to(agent: str, title: str, spec: Spec) -> Plan:
    """The plan of a task that another agent does: one child, whose result is that of the task."""
    return Plan((as_child(spec, as_id(agent), (agent,), title),), Synthesis.CONCAT)


def _root(new: NewTask, spec: Spec, ctx: Context) -> Task:
    task_id = ctx.new_id("tsk")
    reports = ctx.heartbeat and new.origin.attempt_id is not None and new.sender not in OPERATORS
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
        created_at=new.created_at or ctx.now,
        updated_at=ctx.now,
        origin=new.origin,
        not_before=_begins(new.policy, ctx.now),
        heartbeat=plus(ctx.now, ctx.heartbeat) if reports else None,
        planned_actions=spec.planned_actions,
        extra=new.extra,
        sections=new.sections,
        flow=Flow(answers=new.answers) if new.answers else NO_FLOW,
    )


def _begins(policy: Policy, now: str) -> str | None:
    """When the work may begin; None if that is now."""
    return policy.not_before if policy.not_before is not None and policy.not_before > now else None


def adopt(builder: DecisionBuilder, plan: Plan, family: Family, *, by_person: bool = False) -> None:
    """Create the plan's nodes as children of the task. Raises PlanError; then nothing is created.

    If agents plan more than the operator allows, the plan is adopted and put on hold.
    """
    task, ctx = builder.task, builder.ctx
    admit(plan, ctx.limits, task.depth, family.existing, family.outer, family.tree)
    keys = [child.key for child in plan.children]
    check_synthesis(plan.synthesis or task.policy.synthesis, {*family.existing.nodes, *keys}, task.local_id)
    for child in walk(plan.children):
        if (why := refused_agent(child, ctx)) is not None:
            raise PlanError("unknown-agent", f"{child.key}: {why}")
        require_worker(child, ctx.agent, ctx.may_use, ctx.models)
    _refuse_loops(delegation_path(family.above), plan.children, ctx.agent)
    scopes = [*(level.ids for level in reversed(family.outer)), family.existing.ids]
    if task.mode is not Mode.COORDINATING:
        builder.amend("now coordinates subtasks", mode=Mode.COORDINATING)
    if plan.synthesis is not None:
        builder.amend("synthesis as the plan says", policy=replace(task.policy, synthesis=plan.synthesis))
    if by_person:
        builder.record(Kind.PLAN_ADOPTED, children=keys)
    else:
        planned = size(plan)
        builder.record(Kind.PLAN_ADOPTED, children=keys, planned=planned)
        if not task.held and (why := planned_too_much(ctx.limits, ctx.planned_lately() + planned)):
            builder.amend(why, held=why)
    record_doubts(builder, PLAN, plan.doubts)
    _Creation(builder).plan(builder.task, plan.children, scopes)
    tally = builder.view.children
    builder.see(children=replace(tally, total=tally.total + len(plan.children)))


def refused_agent(child: PlannedChild, ctx: Context) -> str | None:
    """Why an agent of the child may not be given the work, or a reviewer not be asked; None = all may."""
    for agent in child.agents:
        if executor_of(agent, ctx.agent) != ctx.agent and (why := ctx.may_reach(agent)) is not None:
            return why
    for reviewer in child.overrides.reviewers or ():
        if reviewer.lower() in OPERATORS or executor_of(reviewer, ctx.agent) == ctx.agent:
            continue
        if (why := ctx.may_reach(reviewer)) is not None:
            return f"the reviewer {reviewer} cannot be asked: {why}"
    return None


def record_doubts(builder: DecisionBuilder, about: str, doubts: Sequence[str]) -> None:
    """Record what is doubtful in a plan or a task.md, for a person to see."""
    if doubts:
        text = "; ".join(doubts)[:_LONGEST_DOUBT]
        builder.record(Kind.DOUBTED, id=builder.ctx.new_id("dbt"), about=about, text=text)


def create_children(builder: DecisionBuilder, children: Sequence[NewChild]) -> None:
    """Create more children of a plan that was adopted, also if their parent has ended: they end with it."""
    family = builder.view.family
    levels = () if family is None else (*reversed(family.outer), family.existing)
    ids = {key: one for level in levels[-1:] for key, one in level.ids.items()}
    scopes = [*(level.ids for level in levels[:-1]), ids | {new.planned.key: new.id for new in children}]
    _Creation(builder).create(builder.task, children, scopes)
    tally = builder.view.children
    builder.see(children=replace(tally, total=tally.total + len(children)))


def _refuse_loops(path: Sequence[str], children: Sequence[PlannedChild], own: str) -> None:
    """Raise PlanError for a child that gives work back to an agent above it that has the same goal."""
    returning = delegators(path)
    for child in children:
        goal = child_spec(child).goal if returning or child.children else ""
        names = [executor_of(agent, own) for agent in child.agents]
        for name in names:
            if name.lower() in returning:
                require_no_return(path, name, goal)
        if child.children:
            _refuse_loops((*path, step(names[0] if len(names) == 1 else own, goal)), child.children, own)


def require_worker(child: PlannedChild, own: str, may_use: Callable[[str], str | None], models: Sequence[str]) -> None:
    """Raise PlanError if the child's harness or model cannot do it for the agent `own` (see `task_view.Context`)."""
    said = child.overrides
    if said.runtime is None and said.harness is None and said.model is None:
        return
    _require_worker(inherit(Policy(), said), may_use, models, child.key)
    others = [agent for agent in child.agents if executor_of(agent, own) != own]
    if said.harness and others:
        why = f"a harness works for {own}, not for {others[0]}; write `agent: self`"
        raise PlanError("unknown-harness", f"{child.key}: {why}")


def _require_worker(policy: Policy, may_use: Callable[[str], str | None], models: Sequence[str], name: str) -> None:
    if why := refused_harness(policy, may_use):
        raise PlanError("unknown-harness", f"{name}: {why}")
    if why := refused_model(policy, models):
        raise PlanError("unknown-model", f"{name}: {why}")


class _Creation:
    """Creates the children of a plan, each at its fixed point; orders the creation of those that exceed the limit."""

    def __init__(self, builder: DecisionBuilder) -> None:
        self.ctx = builder.ctx
        self.events = builder.events
        self.effects = builder.effects
        self.born = builder.born
        self._left = self.ctx.limits.children_at_once
        self._taken: set[str] = set()

    def plan(self, parent: Task, children: Sequence[PlannedChild], scopes: Sequence[Mapping[str, str]]) -> None:
        """Create children, or order their creation; `scopes` has ids by key, from the outermost level to theirs."""
        ids = dict(scopes[-1]) | {child.key: self.ctx.new_id("tsk") for child in children}
        scopes = [*scopes[:-1], ids]
        new = [
            NewChild(ids[child.key], child, tuple(_lookup(need, scopes) for need in child.depends_on))
            for child in children
        ]
        # the copies of a broadcast come together: its join counts them
        at_once = len(new) if parent.broadcast else min(len(new), max(self._left, 0))
        self._left -= at_once
        for start in range(at_once, len(new), self.ctx.limits.children_at_once):
            later = tuple(new[start : start + self.ctx.limits.children_at_once])
            self.effects.append((parent.id, CreateChildren(later)))
        self.create(parent, new[:at_once], scopes)

    def create(self, parent: Task, children: Sequence[NewChild], scopes: Sequence[Mapping[str, str]]) -> None:
        for new in children:
            child = new.planned
            below = (round_of(child, 1),) if child.flow.rounds else _below(child)
            task, derived = self._child(parent, child, new.id, bool(below))
            self.events.append(_created(task, new.needs, derived))
            view = TaskView(task, parent_phase=parent.phase, unmet=len(new.needs))
            builder = DecisionBuilder(view, self.ctx, events=self.events, effects=self.effects)
            run_to_fixpoint(builder)
            self.born.append(builder.task)
            if below:
                self.plan(builder.task, below, [*scopes, {}])

    def _child(
        self, parent: Task, planned: PlannedChild, task_id: str, coordinates: bool
    ) -> tuple[Task, tuple[str, ...]]:
        ctx, several, body = self.ctx, len(planned.agents) > 1, None
        if planned.flow.rounds:  # its rounds are checked and reviewed, not the whole
            body = replace(planned, flow=NO_FLOW, depends_on=())
            overrides = replace(planned.overrides, gates=frozenset(), synthesis=None)
            planned = replace(planned, checks=(), overrides=overrides)
        policy = inherit(parent.policy, planned.overrides)
        spec, derived = derive(child_spec(planned), policy.weak)
        task = Task(
            id=task_id,
            local_id=self._name(local_id_of(parent.local_id, planned.key)),
            task_id=parent.local_id,
            subtask_id=planned.key,
            sender=ctx.agent,
            parent=parent.id,
            root=parent.root,
            key=planned.key,
            depth=parent.depth + 1,
            title=child_title(planned),
            mode=Mode.COORDINATING if coordinates else Mode.DIRECT,
            executor=ctx.agent if several or body else executor_of(planned.agents[0], ctx.agent),
            runtime=policy.runtime,
            phase=Phase.SPEC_DRAFT,
            spec=spec,
            policy=policy,
            created_at=ctx.now,
            updated_at=ctx.now,
            not_before=_begins(policy, ctx.now),
            broadcast=several and body is None,
            said=planned.overrides,
            extra=planned.extra,
            flow=planned.flow,
            claims=planned.claims or parent.claims,
            body=body,
        )
        return task, derived

    def _name(self, wanted: str) -> str:
        """The local id, made distinct if another task has it: a root task may have a child's name."""
        ordinal = 1
        while (name := distinct(wanted, ordinal)) in self._taken or not self.ctx.is_free(name):
            ordinal += 1
        self._taken.add(name)
        return name


def _below(child: PlannedChild) -> tuple[PlannedChild, ...]:
    """Its subtasks; for a broadcast, a copy of the work for each agent, under the agent's name."""
    if len(child.agents) == 1:
        return child.children
    plain = replace(child.overrides, join=None)
    fresh = replace(child, depends_on=(), planned_actions=(), overrides=plain, flow=NO_FLOW)
    return tuple(replace(fresh, key=as_id(agent), agents=(agent,)) for agent in child.agents)


def round_of(body: PlannedChild, number: int) -> PlannedChild:
    """One round of a child that is repeated: a child of its own. Planned actions follow the last one."""
    return replace(body, key=str(number), depends_on=(), planned_actions=(), flow=NO_FLOW)


def _lookup(name: str, scopes: Sequence[Mapping[str, str]]) -> str:
    return next(ids[name] for ids in reversed(scopes) if name in ids)


def _created(task: Task, needs: Sequence[str], derived: Sequence[str]) -> Event:
    data = {"at": task.updated_at, "task": to_json(task), "needs": list(needs)}
    if derived:
        data["derived"] = list(derived)
    return Event(Kind.TASK_CREATED, task.id, data)
