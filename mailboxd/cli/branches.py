"""A tree of tasks as lines for people, for `tree` and `watch`: pure, from what `Report.tree` says.

Each line fits into `room` columns, whatever agents called their work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from mailboxd.cli.text import fit, lasted, meter, phase, plain, width
from mailboxd.core.times import to_epoch

Node = dict[str, Any]

_SHORTEST_NAME = 12
_SHORTEST_REST = 4
_DEEPEST_BRANCH = 24
_ORDER = ("circuit_open", "awaiting_approval", "failed", "executing", "ready_to_resume", "", "execution_ready")
_LEAST = ("cancelled", "completed")


def lines(root: Node, now: str, room: int) -> Iterator[str]:
    """Every task of the tree, each on its line. `now` is ISO-8601 UTC; `room` is in columns."""
    for branch, node in _walk(root, "", "", {}):
        yield _line(branch, node, now, room)


def some_lines(root: Node, now: str, room: int, most: int) -> list[str]:
    """At most `most` lines (1 or more): what somebody has to see first. What is left out is counted in its place."""
    kept = _kept(root, most)
    shown = []
    for branch, node in _walk(root, "", "", kept):
        left_out = node.get("left_out")
        if left_out is None:
            shown.append(_line(branch, node, now, room))
        else:
            shown.append(branch + fit(f"… {left_out}", max(room - width(branch), 1)))
    return shown[:most]


# ---------------------------------------------------------------- which, and in which order


def _walk(node: Node, branch: str, below: str, kept: dict[str, int]) -> Iterator[tuple[str, Node]]:
    """Tasks with what is drawn before them; with `kept` only those, and a line for the others below the same one."""
    yield branch, node
    children = node["children"]
    if kept:
        others = [child for child in children if child["id"] not in kept]
        children = [child for child in children if child["id"] in kept]
        if others:
            children.append({"left_out": _counted(others), "children": []})
    for number, child in enumerate(children, 1):
        corner, side = ("└─ ", "   ") if number == len(children) else ("├─ ", "│  ")
        yield from _walk(child, below + corner, below + side, kept)


def _counted(others: list[Node]) -> str:
    counts = Counter(node["phase"] for node in others)
    return f"{len(others)} more: {', '.join(f'{count} {word}' for word, count in counts.most_common())}"


def _kept(root: Node, most: int) -> dict[str, int]:
    """The ids of the tasks to show, each with how many of its children are shown; empty = all.

    A task is shown with all that are above it. It costs O(tasks × depth).
    """
    above: dict[str, Node | None] = {}
    nodes = []
    stack: list[tuple[Node, Node | None]] = [(root, None)]
    while stack:
        node, parent = stack.pop()
        above[node["id"]] = parent
        nodes.append(node)
        stack += [(child, node) for child in reversed(node["children"])]
    if len(nodes) <= most:
        return {}
    kept = {root["id"]: 0}
    used = 2  # the root, and the line for what is left out below it
    for node in sorted(nodes, key=_rank):
        path = []
        at: Node | None = node
        while at is not None and at["id"] not in kept:
            path.append(at)
            at = above[at["id"]]
        cost = len(path) + sum(1 for new in path if new["children"])
        if path and used + cost <= most:
            used += cost
            for new in reversed(path):
                kept[new["id"]] = 0
                parent = above[new["id"]]
                if parent is not None:
                    kept[parent["id"]] += 1
                    # the last of its children: there is nothing left out, and no line for it
                    used -= kept[parent["id"]] == len(parent["children"])
    return kept


def _rank(node: Node) -> int:
    word = node["phase"]
    if word in _LEAST:
        return len(_ORDER) + _LEAST.index(word)
    return _ORDER.index(word) if word in _ORDER else _ORDER.index("")


# ---------------------------------------------------------------- one line


def _line(branch: str, node: Node, now: str, room: int) -> str:
    if width(branch) > _DEEPEST_BRANCH:
        branch = f"{'│  ' * (_DEEPEST_BRANCH // 3 - 2)}{len(branch) // 3:>2} └─ "
    state = phase(node["phase"]) + _since(node, now)
    name = node["key"] if branch else node["local_id"]
    left = room - width(branch) - width(state) - 2
    who = f" ({plain(node['agent'])})"
    if left < _SHORTEST_NAME:
        return fit(click.unstyle(f"{branch}{state}  {plain(name)}{who}"), room)
    named = fit(name, max(left - width(who), _SHORTEST_NAME)) + who
    start = f"{branch}{state}  {fit(named, left)}"
    left = room - width(start) - 2
    rest = " ".join(filter(None, [_progress(node), _needs(node["depends_on"]), _says(node, name)]))
    return f"{start}  {fit(rest, left)}" if left >= _SHORTEST_REST and rest else start


def _since(node: Node, now: str) -> str:
    since = node.get("running_since")
    return f" {lasted(to_epoch(now) - to_epoch(since))}" if since and node["phase"] == "executing" else ""


def _progress(node: Node) -> str:
    total, done = node["children_total"], node["children_completed"]
    return f"{meter(done, total)} {done}/{total}" if total else ""


def _needs(keys: list[str]) -> str:
    return f"after {', '.join(keys)}:" if keys else ""


def _says(node: Node, name: str) -> str:
    """What came of it, else what went wrong, else what it is."""
    if node["phase"] in ("failed", "circuit_open"):
        return str(node["error"] or node["reason"])
    return str(node["result_summary"] or (node["title"] if node["title"] != name else ""))
