"""Admission of plans: what may become children, and what never could finish.

The check runs over the *waits-for* graph, not over `depends_on` alone: a parent waits for its children, and a child
waits for everything its parent waits for. So a plan whose needs are acyclic but which could only deadlock
(`p` delegates `c`, `c` needs `x`, `x` needs `p`) is refused, with the path of the cycle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import groupby

from mailboxd.core.terms import is_id
from mailboxd.core.types import Plan, PlannedChild, Task
from mailboxd.core.view import Level, Limits
from mailboxd.errors import PlanError

_SHOWN = 10
MOST_STEPS = 64
"""Of a delegation path: the latest are kept."""
ALONE = Level({})


def admit(
    plan: Plan, limits: Limits, depth: int, existing: Level = ALONE, outer: Sequence[Level] = (), tree: int = 0
) -> None:
    """Raise PlanError unless the plan can be carried out below a task at `depth`.

    `existing` are the children that the task has already, `outer` the levels above it, innermost first; `tree` is how
    many tasks there are below its root.
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
        problem = f"{tree + tasks} tasks would stand below one root, at most {limits.tree} are allowed"
        raise PlanError("plan-too-large", problem, "Raise limits.tree, or plan less.")
    edges = sum(len(child.depends_on) for child in walk(plan.children))
    if edges > limits.edges:
        raise PlanError("plan-too-large", f"{edges} dependencies, at most {limits.edges} are allowed")
    _check_acyclic(_waits_for(plan, existing, outer))


def size(plan: Plan) -> int:
    """How many tasks a plan becomes."""
    return sum(1 + (len(child.agents) if len(child.agents) > 1 else 0) for child in walk(plan.children))


def step(agent: str, goal: str) -> str:
    """An agent and what it is to achieve, as they stand in a delegation path: case and white space do not count."""
    said = " ".join(goal.casefold().split())
    return f"{agent.lower()}:{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def delegation_path(above: Sequence[Task]) -> tuple[str, ...]:
    """The steps from the first agent, wherever its daemon is, down to the last of these tasks (the root first)."""
    before = above[0].origin.delegation_path if above else ()
    return (*before, *(step(task.executor, task.spec.goal) for task in above))[-MOST_STEPS:]


def returning(path: Sequence[str]) -> frozenset[str]:
    """The agents of the path that have given work to another one, so that it could come back to them."""
    names = [one.partition(":")[0] for one in path]
    while len(names) > 1 and names[-2] == names[-1]:
        names.pop()
    return frozenset(names[:-1])


def require_no_return(path: Sequence[str], agent: str, goal: str) -> None:
    """Raise PlanError if the agent had this goal before, further up, and has given it to another one since."""
    if agent.lower() not in returning(path) or (again := step(agent, goal)) not in path:
        return
    passed = [name for name, _ in groupby(one.partition(":")[0] for one in path[path.index(again) :])]
    if len(passed) > 1:
        raise PlanError(
            "delegation-loop",
            f"the work would come back to {agent} with the same goal: {' -> '.join([*passed, agent.lower()])}",
            "Do it, give it to an agent that is not above, or give away a smaller part, with a goal of its own.",
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
        raise PlanError(
            "too-deep",
            f"the plan would stand at depth {depth + 1}, at most {limits.depth} is allowed",
            "See limits.depth.",
        )
    seen: set[str] = set()
    for child in children:
        if not is_id(child.key):
            raise PlanError("bad-id", f"{child.key[:80]!r} cannot be the id of a child")
        if child.key in seen:
            raise PlanError("duplicate-subtask", f"the child {child.key} stands twice in the plan")
        seen.add(child.key)
        _check_agents(child)
        if child.children:
            _check_shape(child.children, limits, depth + 1)


def _check_agents(child: PlannedChild) -> None:
    if not child.agents:
        raise PlanError("missing-field", f"{child.key}: no agent is named", "Write `agent: <id>` or `agent: self`.")
    for agent in child.agents:
        if not is_id(agent):
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
            "these would wait for each other for ever: " + " -> ".join(names),
            "Remove one of the dependencies.",
        ) from None
