"""`mailboxd db import SOURCE`: take over work that Multi-Agent Protocol v1 or beads kept elsewhere.

A project of that protocol has issues of beads in `.beads/`, a spec per task in `specs/ID.md`, and the state of its
agents in `shared/blackboard.json`; any of them may be missing. Nothing there is changed. What belongs together becomes
one task.md, which is then read as one that a person wrote; what has no place in a task.md is listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.core.model import Overrides, PlannedChild
from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import SELF, Mode, is_id
from mailboxd.errors import MessageError, UnavailableError
from mailboxd.ids import readable
from mailboxd.protocol.markdown import split_body
from mailboxd.protocol.plan import DagNode
from mailboxd.protocol.taskmd import TaskFile
from mailboxd.store import beads

_LARGEST = 16 << 20
_SECTIONS = (("acceptance_criteria", "Acceptance Criteria"), ("design", "Design"), ("notes", "Notes"))
_STATUS = {"open": "pending", "in_progress": "pending", "blocked": "pending", "closed": "done"}
_ORDER = ("blocks", "parent-child")
"""The dependencies that order work; others only relate issues."""
_SHOWN = 5


@dataclass(slots=True)
class Work:
    """A piece of foreign work, whatever it was read from."""

    id: str
    title: str = ""
    text: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    status: str = "pending"
    result: str = ""
    priority: int | None = None
    needs: set[str] = field(default_factory=set)
    parent: str = ""


@dataclass(slots=True)
class Found:
    """`files`: task.md files by local id. `unmapped`: what has no place in them, in sentences."""

    files: dict[str, TaskFile] = field(default_factory=dict)
    unmapped: list[str] = field(default_factory=list)


def read(source: Path) -> Found:
    """The tasks of a project, of its `.beads`, or of one database, export or blackboard. Raises UnavailableError."""
    work: dict[str, Work] = {}
    lost: dict[str, list[str]] = {}
    issues, specs, board = source, source / "specs", source / "shared" / "blackboard.json"
    if source.name == "blackboard.json":
        board, specs, issues = source, source.parent.parent / "specs", source.parent.parent / ".beads"
    elif source.is_dir() and source.name != ".beads":
        issues = source / ".beads"
    there = [path for path in (issues, specs, board) if path.exists()]
    if not there:
        raise UnavailableError(f"{source}: there is no .beads/, no specs/ and no shared/blackboard.json")
    if issues in there:
        _add_issues(beads.read(issues), work, lost)
    if specs in there and specs.is_dir():
        _add_specs(specs, work, lost)
    if board in there:
        _add_blackboard(board, work, lost)
    files = {local_id: _task_file(local_id, group) for local_id, group in _groups(work)}
    return Found(files, [_told(what, ids) for what, ids in lost.items()])


def _told(what: str, ids: list[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"{what}: {', '.join(ids[:_SHOWN])}{more}"


# Beads


def _add_issues(rows: Iterable[beads.Row], work: dict[str, Work], lost: dict[str, list[str]]) -> None:
    for row in rows:
        id_, status = str(row["id"]), str(row.get("status") or "open")
        if not is_id(id_) or status not in _STATUS:
            lost.setdefault(f"not imported, for their id or status ({status})", []).append(id_)
            continue
        one = work[id_] = Work(id_, str(row.get("title") or id_), str(row.get("description") or ""))
        one.sections = {heading: str(row[name]) for name, heading in _SECTIONS if row.get(name)}
        one.status, one.result = _STATUS[status], str(row.get("close_reason") or "")
        if status == "closed" and not one.result:
            one.result = "Closed in beads."
        if isinstance(row.get("priority"), int):
            one.priority = 2 - int(row["priority"])  # beads: 0 is the most urgent, 2 the usual
        for edge in row.get("dependencies") or ():
            kind, on = str(edge.get("type") or "blocks"), str(edge.get("depends_on_id") or "")
            if kind == "parent-child":
                one.parent = on
            elif kind == "blocks":
                one.needs.add(on)
            else:
                lost.setdefault(f"relations that order nothing ({kind})", []).append(f"{id_} -> {on}")
        for name in ("labels", "assignee", "comments", "external_ref"):
            if row.get(name):
                lost.setdefault(f"{name}, of which a task.md has none", []).append(id_)
    for one in work.values():
        if unknown := {needed for needed in one.needs if needed not in work}:
            lost.setdefault("dependencies on what was not imported", []).append(one.id)
            one.needs -= unknown
        one.parent = one.parent if one.parent in work else ""


# Multi-Agent Protocol v1


def _add_specs(specs: Path, work: dict[str, Work], lost: dict[str, list[str]]) -> None:
    for path in sorted(specs.glob("*.md")):
        try:
            body = split_body(_text(path), path=str(path))
        except MessageError as error:
            lost.setdefault(f"specs that cannot be read ({error.rule})", []).append(path.name)
            continue
        if not is_id(path.stem):
            lost.setdefault("specs whose names are no ids", []).append(path.name)
            continue
        one = work.setdefault(path.stem, Work(path.stem))
        said = {section.heading: section.text for section in body.sections}
        one.title = one.title or body.title or first_line(said.get("Goal", "")) or one.id
        one.text = one.text or body.preamble or said.get("Goal", "")
        if "Scope" in said:
            said["Scope In"] = said.pop("Scope")
        one.sections |= said


def _add_blackboard(path: Path, work: dict[str, Work], lost: dict[str, list[str]]) -> None:
    try:
        board = json.loads(_text(path))
        agents, tasks, signals = {**board.get("agents", {})}, {**board.get("tasks", {})}, [*board.get("signals", [])]
    except (ValueError, TypeError, AttributeError) as error:
        raise UnavailableError(f"{path}: this is no blackboard: {error}") from error
    for id_, state in tasks.items():
        if (one := _of_board(id_, work, lost)) is None or not isinstance(state, Mapping):
            continue
        if state.get("circuit_status") == "circuit_open" and one.status != "done":
            one.status = "failed"
            one.result = f"circuit open after {state.get('retry_count', 0)} retries: {state.get('last_error') or '?'}"
    for role, state in agents.items():
        if not isinstance(state, Mapping) or not state.get("task"):
            lost.setdefault("agents without a task", []).append(str(role))
            continue
        one = _of_board(str(state["task"]), work, lost)
        if one is None or one.status == "failed":
            continue
        artifact = state.get("artifact")
        if state.get("status") == "done" and artifact:
            one.result = _artifact(path.parent.parent, str(artifact)) or one.result
            lost.setdefault("artifacts, whose text became the result", []).append(str(artifact))
        if state.get("status") == "failed":
            one.status, one.result = "failed", one.result or f"{role} failed"
    lost_signals = [f"{s.get('from')} -> {s.get('to')}: {s.get('type')}" for s in signals if isinstance(s, Mapping)]
    if lost_signals:
        lost["signals"] = lost_signals


def _of_board(id_: str, work: dict[str, Work], lost: dict[str, list[str]]) -> Work | None:
    if not is_id(id_):
        lost.setdefault("tasks whose names are no ids", []).append(id_)
        return None
    return work.setdefault(id_, Work(id_, id_))


def _artifact(project: Path, name: str) -> str:
    """The text of an artifact inside of the project; else where it is."""
    path = (project / name).resolve()
    if path.is_file() and path.is_relative_to(project.resolve()):
        return _text(path)
    return f"See {name}."


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode(errors="replace")
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be read: {error.strerror}") from error


# To task.md


def _groups(work: dict[str, Work]) -> Iterator[tuple[str, list[Work]]]:
    """What is connected by order or by a parent, each with the id of its task: the common ancestor, if there is one."""
    neighbours: dict[str, set[str]] = {id_: set() for id_ in work}
    for one in work.values():
        for other in {*one.needs, one.parent} - {""}:
            neighbours[one.id].add(other)
            neighbours[other].add(one.id)
    left = dict.fromkeys(work)
    while left:
        group, waiting = dict[str, Work](), [next(iter(left))]
        while waiting:
            id_ = waiting.pop()
            if id_ in left:
                del left[id_]
                group[id_] = work[id_]
                waiting += sorted(neighbours[id_])
        tops = [one for one in group.values() if not one.parent]
        members = sorted(group.values(), key=lambda one: one.id)
        yield (tops[0].id if len(tops) == 1 else readable(members[0].id, "imported")), members


def _task_file(local_id: str, group: list[Work]) -> TaskFile:
    by_id = {one.id: one for one in group}
    top = by_id.pop(local_id, Work(local_id, f"{len(group)} imported issues", "Do all that was imported."))
    if not by_id:
        return TaskFile(
            task_id=top.id, title=top.title, status=top.status, sender="operator", instructions=top.text or top.title,
            results=top.result, overrides=_overrides(top), extra_sections=tuple(top.sections.items()),
        )  # fmt: skip
    nodes = tuple(_node(one, by_id) for one in by_id.values())
    begun = any(node.status != "pending" for node in nodes)
    status = top.status if top.status != "pending" else "executing" if begun else "planning"
    return TaskFile(
        task_id=top.id, title=top.title, mode=Mode.COORDINATING, status=status, sender="operator",
        instructions=top.text or top.title, dag=nodes, synthesised=top.result, overrides=_overrides(*group),
        subtask_results=tuple((one.id, one.result) for one in by_id.values() if one.result),
        extra_sections=tuple(top.sections.items()),
    )  # fmt: skip


def _node(one: Work, others: Mapping[str, Work]) -> DagNode:
    """A child waits for what blocks it or an ancestor of it; the work of a parent comes after that of its children."""
    needs = {child.id for child in others.values() if child.parent == one.id}
    above: Work | None = one
    seen: set[str] = set()
    while above is not None and above.id not in seen:
        seen.add(above.id)
        needs |= above.needs
        above = others.get(above.parent)
    text = "\n\n".join([one.text, *(f"### {heading}\n\n{said}" for heading, said in one.sections.items())]).strip()
    planned = PlannedChild(
        key=one.id,
        agents=(SELF,),
        description=one.title,
        depends_on=tuple(sorted(needs & others.keys() - {one.id})),
        instructions=text,
        overrides=_overrides(one),
    )
    return DagNode(planned, status=one.status, result_summary=first_line(one.result))


def _overrides(*work: Work) -> Overrides:
    """The highest of the priorities: a child cannot have a higher one than its parent."""
    return Overrides(priority=max((one.priority for one in work if one.priority is not None), default=None))
