"""Task trees, what waits for a person, and timelines as lines of text of at most `room` columns. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from mailboxd.cli.text import counted, fit, lasted, meter, pad, state, symbol, width
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.times import moment, to_epoch
from mailboxd.core.vocabulary import WAITING_FOR_YOU

Node = dict[str, Any]
Item = dict[str, Any]

_SHORTEST_NAME = 12
_SHORTEST_REST = 4
_DEEPEST_BRANCH = 24
_ORDER = ("failed", "executing", "ready_to_resume", "", "execution_ready")
_LEAST = ("cancelled", "completed")


def tree_lines(root: Node, now: str, room: int) -> Iterator[str]:
    """Every task of a tree (`Report.tree`) on one line. `now` is ISO-8601 UTC; `room` is in columns."""
    for branch, node in _walk(root, "", "", {}):
        yield _line(branch, node, now, room)


def first_lines(root: Node, now: str, room: int, most: int) -> list[str]:
    """At most `most` lines (1 or more), the most urgent tasks; the others are counted where they would be."""
    kept = _kept(root, most)
    shown = []
    for branch, node in _walk(root, "", "", kept):
        left_out = node.get("left_out")
        if left_out is None:
            shown.append(_line(branch, node, now, room))
        else:
            shown.append(branch + fit(f"… {left_out}", max(room - width(branch), 1)))
    return shown[:most]


def _walk(node: Node, branch: str, below: str, kept: dict[str, int]) -> Iterator[tuple[str, Node]]:
    """Tasks with their branch prefix; with `kept` only those, and one entry for the omitted siblings."""
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


def most_urgent(tasks: Sequence[Node], most: int) -> tuple[list[Node], str]:
    """At most `most` of these tasks in their order, the most urgent ones, and a count of the others, if any."""
    kept = set(sorted(range(len(tasks)), key=lambda number: _rank(tasks[number]))[:most])
    others = [task for number, task in enumerate(tasks) if number not in kept]
    return [tasks[number] for number in sorted(kept)], _counted(others) if others else ""


def _counted(others: Sequence[Node]) -> str:
    counts = Counter(WAITING_FOR_YOU if node["need"] else node["phase"] for node in others)
    return f"{len(others)} more: {counted(dict(counts.most_common()))}"


def _kept(root: Node, most: int) -> dict[str, int]:
    """The ids of the tasks to show, each with how many of its subtasks are shown; empty means all.

    A task is shown with its ancestors. O(tasks × depth).
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
    used = 2  # the root, and the line that counts what is omitted
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
                    # all its subtasks are shown: no line for omitted ones
                    used -= kept[parent["id"]] == len(parent["children"])
    return kept


def _rank(node: Node) -> int:
    word = node["phase"]
    if node["need"]:
        return -1
    if word in _LEAST:
        return len(_ORDER) + _LEAST.index(word)
    return _ORDER.index(word) if word in _ORDER else _ORDER.index("")


def _line(branch: str, node: Node, now: str, room: int) -> str:
    if width(branch) > _DEEPEST_BRANCH:
        branch = f"{'│  ' * (_DEEPEST_BRANCH // 3 - 2)}{len(branch) // 3:>2} └─ "
    shown = state(node) + _since(node, now)
    name = node["key"] if branch else node["local_id"]
    left = room - width(branch) - width(shown) - 2
    who = f" ({for_terminal(node['agent'])})"
    if left < _SHORTEST_NAME:
        return fit(click.unstyle(f"{branch}{shown}  {for_terminal(name)}{who}"), room)
    named = fit(name, max(left - width(who), _SHORTEST_NAME)) + who
    start = f"{branch}{shown}  {fit(named, left)}"
    left = room - width(start) - 2
    rest = " ".join(filter(None, [_progress(node), _needs(node["depends_on"]), _says(node, name)]))
    return f"{start}  {fit(rest, left)}" if left >= _SHORTEST_REST and rest else start


def _since(node: Node, now: str) -> str:
    since = node["updated_at"] if node["need"] else node["running_since"] if node["phase"] == "executing" else None
    return f" {lasted(to_epoch(now) - to_epoch(since))}" if since else ""


def _progress(node: Node) -> str:
    total, done = node["children_total"], node["children_completed"]
    return f"{meter(done, total)} {done}/{total}" if total else ""


def _needs(keys: list[str]) -> str:
    return f"after {', '.join(keys)}:" if keys else ""


def _says(node: Node, name: str) -> str:
    """What it waits for itself, the error, the result or the title."""
    if node["need"] not in (None, "subtasks"):
        return str(node["held"] or node["reason"])
    if node["phase"] in ("failed", "cancelled"):
        return str(node["error"] or node["reason"])
    return str(node["result_summary"] or (node["title"] if node["title"] != name else ""))


# What waits for a person


def attention_lines(items: Sequence[Item], now: str, room: int) -> Iterator[str]:
    """Each item (of `Attention.as_json`) in a sentence of at most `room` columns, and below it its command."""
    for item in items:
        since = [lasted(to_epoch(now) - to_epoch(item["since"]))] if item["since"] else []
        times = ", ".join([*since, *([f"until {moment(item['until'], now)}"] if item["until"] else [])])
        age = f" ({times})" if times else ""
        about = f"{item['task']}: " if item["task"] else ""
        yield fit(f"{about}{item['text']}", room - width(age)) + age
        yield f"  -> {for_terminal(item['command'])}"


# Timelines: one row per task; each attempt status has its own character, so nothing depends on color

MARKS = {"succeeded": "█", "running": "▒", "failed": "x", "unknown": "?", "aborted": "-"}
"""The character of each attempt status; where attempts overlap in a column, the later one in this order wins."""
_COLOURS = {"█": "green", "▒": "blue", "x": "red", "?": "yellow"}
_WAITS = "·"
_LEGEND = "█ succeeded  ▒ running  x failed  ? unknown  - aborted  · open, no attempt  ‖ waiting for you"
_MOST_NAME = 30
_LAST = 11
"""Columns after the bars, for duration and number of attempts."""


def gantt_lines(found: dict[str, Any], now: str, room: int) -> Iterator[str]:
    """The chart of `task_timeline`, `room` (40 or more) columns wide. Open bars end at `now` (ISO-8601 UTC)."""
    began, ended = to_epoch(found["began"]), to_epoch(found["ended"] or now)
    names = [f"{'  ' * min(row['depth'], 8)}{row['key'] if row['depth'] else row['task']}" for row in found["rows"]]
    names = [fit_left(name, _MOST_NAME) for name in names]
    size = min(max(map(width, names)), max(room // 3, 12))
    chart = room - size - 5 - _LAST
    span = max(ended - began, 0.001)
    until = "now" if found["ended"] is None else _clock(found["ended"])
    yield fit(f"{found['task']}: {found['began'][:10]} {_clock(found['began'])} to {until}, {lasted(span)}", room)
    for name, row in zip(names, found["rows"], strict=True):
        shown = symbol(row)
        cells = _cells(row, began, span, ended, chart)
        yield f"{shown} {pad(fit_left(name, size), size)}  {_coloured(cells)} {_tail(row, now)}".rstrip()
    yield fit(_LEGEND, room)


def fit_left(name: str, room: int) -> str:
    """Cut a name to `room` columns but keep its indentation."""
    text = name.lstrip(" ")
    indent = min(len(name) - len(text), max(room - min(width(text), 4), 0))
    return " " * indent + fit(text, room - indent)


def _cells(row: dict[str, Any], began: float, span: float, ended: float, size: int) -> str:
    """The bar of one task: `size` characters from `began` to `ended`, in seconds since 1970."""

    def column(at: float) -> int:
        return min(max(int((at - began) / span * size), 0), size - 1)

    cells = [" "] * size
    for at in range(column(to_epoch(row["created_at"])), column(_end(row["completed_at"], ended)) + 1):
        cells[at] = _WAITS
    order = [_WAITS, *MARKS.values()]
    for attempt in row["attempts"]:
        mark = MARKS[attempt["status"]]
        first, last = column(to_epoch(attempt["started_at"])), column(_end(attempt["finished_at"], ended))
        for at in range(first, last + 1):
            cells[at] = max(cells[at], mark, key=lambda one: order.index(one) if one in order else -1)
    return "".join(cells)


def _end(at: str | None, ended: float) -> float:
    return ended if at is None else to_epoch(at)


def _coloured(cells: str) -> str:
    """Color runs of equal characters."""
    shown, start = [], 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or cells[end] != cells[start]:
            colour = _COLOURS.get(cells[start])
            piece = cells[start:end]
            shown.append(click.style(piece, fg=colour) if colour else piece)
            start = end
    return "".join(shown)


def _tail(row: dict[str, Any], now: str) -> str:
    """What waits for a person, or the total duration of the attempts, and their number if not one."""
    if row["need"]:
        return str(row["need"])
    attempts = row["attempts"]
    if not attempts:
        return ""
    seconds = sum(to_epoch(a["finished_at"] or now) - to_epoch(a["started_at"]) for a in attempts)
    count = f" ×{len(attempts)}" if len(attempts) > 1 else ""
    return fit(f"{lasted(seconds)}{count}", _LAST)


def _clock(at: str) -> str:
    return at[11:19]
