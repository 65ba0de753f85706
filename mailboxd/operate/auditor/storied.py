"""The story of a journal in the cells of tables, for a page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mailboxd.core import entrance
from mailboxd.operate.auditor.story import Came, DecisionRules, Review, Stands, Story, TaskStory, Told, Turn

Row = tuple[tuple[object, ...], Stands]
"""What stands in the cells, and the evidence."""


def turns(task: TaskStory) -> list[Row]:
    return [
        (
            (one.purpose, one.agent, one.model or "not reported", one.run, _outcome(one), _cost(one), one.prompt),
            one.stands,
        )
        for one in task.turns
    ]


def _outcome(turn: Turn) -> str:
    return f"{turn.outcome}: {turn.said}" if turn.said else turn.outcome


def _cost(turn: Turn) -> str:
    tokens = [one for one in (turn.input_tokens, turn.output_tokens) if one is not None]
    parts = [] if turn.cost_usd is None else [f"{turn.cost_usd:.4f} USD"]
    return ", ".join([*parts, *([f"{sum(tokens)} tokens"] if tokens else [])]) or "not reported"


def reviews(task: TaskStory) -> list[Row]:
    return [
        ((one.gate, one.reviewer, one.verdict, one.summary, "; ".join(_remarks(one))), one.stands)
        for one in task.reviews
    ]


def _remarks(review: Review) -> Iterator[str]:
    for one in review.findings:
        where = f" ({one.file}{f' line {one.line}' if one.line else ''})" if one.file else ""
        yield f"{one.severity}: {one.message}{where}"


def votes(story: Story, task: TaskStory) -> list[Row]:
    by_event = {one.stands.event: one.stands for one in story.tasks.values()} if task.is_vote else {}
    return [
        (
            (one["key"], one["agent"], one["said"], one["why"], "yes" if one["counts"] else "no"),
            by_event.get(one["event"], task.stands),
        )
        for one in story.votes(task)
    ]


def decisions(task: TaskStory) -> list[Row]:
    return [
        ((one.approval, one.action, one.status, one.by, one.note, _policy(one.policy)), one.stands)
        for one in task.decisions
    ]


def _policy(policy: DecisionRules | None) -> str:
    if policy is None:
        return "not recorded"
    fields = "; ".join(f"{path} = {value}" for path, value in sorted(policy.fields.items()))
    return f"event {policy.event} ({policy.where}): {fields}"


def orders(task: TaskStory) -> list[Row]:
    return [((one.by, one.order, one.note), one.stands) for one in task.given]


def notices(told: Iterable[Told]) -> list[Row]:
    return [
        ((one.to, one.what, "yes" if one.sent else f"no: {one.why}", one.words, one.sha256), one.stands) for one in told
    ]


def artifacts(task: TaskStory) -> list[Row]:
    return [((one.kind, one.by, one.address, one.summary, one.sha256), one.stands) for one in task.artifacts]


def rejected(story: Story) -> list[Row]:
    return [((one.path or one.name, one.problem, came(one), one.sha256), one.stands) for one in story.rejected]


def came(file: Came) -> str:
    """Who put a file there and how it came, in words."""
    row = {"owner_uid": file.owner_uid, "owner": file.owner, "came": file.came, "claimed": file.claimed}
    return entrance.told(row) or "owner not recorded"


def owner(uid: int | None, name: str) -> str:
    return name or "owner not recorded" if uid is None else str(entrance.Owner(uid, name))


CELLS: Mapping[str, Callable[..., Any]] = {
    one.__name__: one for one in (turns, reviews, votes, decisions, orders, notices, artifacts, rejected, came, owner)
}
"""The functions that the page's template calls, by their names."""
