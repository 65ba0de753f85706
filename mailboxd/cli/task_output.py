"""Task trees and what waits for a person as lines of text of at most `room` columns. Pure functions."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from mailboxd.cli.text import counted, fit, lasted, meter, shortened, state, when, width
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.times import moment, to_epoch
from mailboxd.core.vocabulary import CANCELLED, FAILED, State, state_words
from mailboxd.ledger.attention import Need

if TYPE_CHECKING:
    from mailboxd.core.explain.model import Cause
    from mailboxd.core.explain.overview_details import Coming, ItemDetails
    from mailboxd.core.explain.task_details import TreeNode, WithState

T = TypeVar("T", bound="WithState")

_SHORTEST_NAME = 12
_SHORTEST_REST = 4
_DEEPEST_BRANCH = 24
_ORDER = (State.NEEDS_YOU, FAILED, State.RUNNING, State.WAITING, CANCELLED, State.DONE)


def tree_lines(root: TreeNode, now: str, room: int, most: int | None = None) -> Iterator[str]:
    """Every task of a tree (`Report.tree`) on one line; of more than `most` subtasks of a task, the most urgent.

    `now` is ISO-8601 UTC; `room` is in columns.
    """
    # a tree may be deeper than Python's stack
    stack: list[tuple[str, str, TreeNode | str]] = [("", "", root)]
    while stack:
        branch, below, node = stack.pop()
        if isinstance(node, str):
            yield branch + fit(f"… {node}", max(room - width(branch), 1))
            continue
        yield _line(branch, node, now, room)
        kept, others = most_urgent(node["children"], most) if most is not None else (node["children"], "")
        children: list[TreeNode | str] = [*kept, *([others] if others else [])]
        for number, child in reversed([*enumerate(children, 1)]):
            corner, side = ("└─ ", "   ") if number == len(children) else ("├─ ", "│  ")
            stack.append((below + corner, below + side, child))


def most_urgent(tasks: Sequence[T], most: int) -> tuple[Sequence[T], str]:
    """At most `most` of these tasks in their order, the most urgent ones, and a count of the others, if any."""
    kept = set(sorted(range(len(tasks)), key=lambda number: _rank(tasks[number]))[:most])
    others = Counter(
        state_words(task["phase"], task["need"]) for number, task in enumerate(tasks) if number not in kept
    )
    told = f"{others.total()} more: {counted(dict(others.most_common()))}" if others else ""
    return [tasks[number] for number in sorted(kept)], told


def _rank(node: WithState) -> int:
    return _ORDER.index(state_words(node["phase"], node["need"]))


def _line(branch: str, node: TreeNode, now: str, room: int) -> str:
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


def _since(node: TreeNode, now: str) -> str:
    since = node["updated_at"] if node["need"] else node["running_since"] if node["phase"] == "executing" else None
    return f" {lasted(to_epoch(now) - to_epoch(since))}" if since else ""


def _progress(node: TreeNode) -> str:
    total, done = node["children_total"], node["children_completed"]
    return f"{meter(done, total)} {done}/{total}" if total else ""


def _needs(keys: list[str]) -> str:
    return f"after {', '.join(keys)}:" if keys else ""


def _says(node: TreeNode, name: str) -> str:
    """The task's own cause of waiting, its error, its result or its title."""
    if node["need"] not in (None, "subtasks"):
        return node["reason"]
    if node["phase"] in ("failed", "cancelled"):
        return node["error"] or node["reason"]
    if node["waits_at_peer"]:
        return node["waits_at_peer"]
    return node["result_summary"] or (node["title"] if node["title"] != name else "")


# Items that wait for a person


def attention_lines(items: Sequence[ItemDetails], now: str, room: int, program: str) -> Iterator[str]:
    """Each item (of `Attention.as_json`) in a sentence of at most `room` columns, and below it its command.

    `program` is how a command begins (`Session.program`).
    """
    for item in items:
        since = [f"{lasted(to_epoch(now) - to_epoch(item['since']))} ago"] if item["since"] else []
        ends = "expires" if item["kind"] == Need.APPROVAL else "until"
        times = ", ".join([*since, *([f"{ends} {moment(item['until'], now)}"] if item["until"] else [])])
        age = f" ({times})" if times else ""
        about = f"{item['task']}: " if item["task"] else ""
        if item["kind"] == "approval":  # whoever decides reads all of the action
            yield from textwrap.wrap(for_terminal(about + item["text"] + age), room, subsequent_indent="     ")
        else:
            yield fit(f"{about}{item['text']}", room - width(age)) + age
        if item["details"] and item["task"]:
            yield from question_lines(item["details"], item["task"], "     ", room, program)
        elif item["details"]:  # the names of all that wait for one reason
            yield from shortened(item["details"], "     ", room, _NAME_LINES, f"`{program} ls --all --state needs-you`")
        seen = f"  # or, once seen: {program} inbox --dismiss {item['task']}" if item["kind"] == Need.FAILED else ""
        yield f"  -> {for_terminal(item['command'] + seen)}"


_QUESTION_LINES = 15
_NAME_LINES = 3


def question_lines(text: str, task: str, indent: str, room: int, program: str) -> Iterator[str]:
    """A question with its options; `mailboxd show` prints all of a long one."""
    yield from shortened(text, indent, room, _QUESTION_LINES, f"`{program} show {task}`")


# What happens next


def coming_json(cause: Cause | None) -> Coming | None:
    return None if cause is None else {"at": cause.at, "task": cause.task, "what": cause.then}


def coming_text(coming: Coming | None, now: str, running: bool) -> str:
    """What happens next without a person; `running`: a daemon is."""
    if coming is None:
        return "nothing happens automatically"
    text = f"{coming['task']}: {coming['what']}" if coming["task"] else coming["what"]
    if coming["at"]:
        text += f" ({'' if coming['at'] > now else 'due '}{when(coming['at'], now)})"
    return text if running else f"once a daemon runs: {text}"
