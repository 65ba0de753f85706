"""`mailboxd tree TASK`: a task and everything below it, to any depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import columns, fit, phase, say, to_json, width


@verb("tree", "tree q3-report", "tree q3-report --json")
@task_argument()
def command(session: Session, task: str) -> None:
    """Show a task as a tree: each child with its phase, its agent, and what it waits for."""
    with session.report() as report:
        found = report.tree(report.find(task))
    if session.as_json:
        say(to_json(found))
        return
    room = columns()
    for branch, node in _walk(found, "", ""):
        say(_line(branch, node, room))


def _walk(node: dict[str, Any], branch: str, below: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield branch, node
    last = len(node["children"]) - 1
    for number, child in enumerate(node["children"]):
        corner, side = ("└─ ", "   ") if number == last else ("├─ ", "│  ")
        yield from _walk(child, below + corner, below + side)


def _line(branch: str, node: dict[str, Any], room: int) -> str:
    name = node["key"] if branch else node["local_id"]
    start = f"{branch}{phase(node['phase'])}  {name} ({node['agent']})"
    rest = " ".join(filter(None, [_needs(node["depends_on"]), _says(node, name)]))
    left = room - width(start) - 2
    return f"{start}  {fit(rest, left)}" if left >= 4 and rest else start


def _needs(keys: list[str]) -> str:
    return f"after {', '.join(keys)}:" if keys else ""


def _says(node: dict[str, Any], name: str) -> str:
    """What came of it, else what went wrong, else what it is."""
    if node["phase"] in ("failed", "circuit_open"):
        return str(node["error"] or node["reason"])
    return str(node["result_summary"] or (node["title"] if node["title"] != name else ""))
