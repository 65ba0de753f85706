"""The values of the page's overview: `ledger.overview` of all workspaces, with a form for each thing to decide."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mailboxd.core.explain.model import TaskSnapshot
from mailboxd.core.spending import MEASURES, Account, Spend, amount_said, of_cap, shown_measure, total, unit
from mailboxd.errors import MailboxdError
from mailboxd.formats.drawing.days import Column, days_svg
from mailboxd.formats.health import Grade
from mailboxd.formats.user import standstills
from mailboxd.ledger import attention, overview, task_queries
from mailboxd.ledger.attention import Need
from mailboxd.ledger.overview import Condition, Decision, Overview, Place, Section, Spent
from mailboxd.perform.question_prompts import offered
from mailboxd.surfaces.web.page_models import Card, HeldHere, PageModels, Row, held_orders, of_host, with_form
from mailboxd.surfaces.web.workspaces import WebWorkspace

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import HostRow
    from mailboxd.core.explain.task_details import ApprovalRow

MOST_CARDS = 10
_MOST_FAILED = 6
_MOST_RESULTS = 8
_MOST_RUNNING = 8
_MOST_LATER = 5
_MOST_SPENDERS = 6
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class _Look:
    """One workspace as it was read, with what the forms of its items need."""

    workspace: WebWorkspace
    found: Overview
    tasks: Mapping[str, TaskSnapshot] = field(default_factory=dict)
    """By local id."""
    asked: Mapping[str, ApprovalRow] = field(default_factory=dict)
    """The pending approvals, by id."""
    held: Sequence[HeldHere] = ()


def overview_values(models: PageModels) -> Row:
    """Everything that the overview shows, bounded in size. Raises nothing."""
    now, places = models.clock.now(), models.workspaces.all()
    agents = {place.key: models.workspaces.agent(place) for place in places}
    looks = [_look(models, place, agents) for place in places]
    hosts = _hosts(models, now)
    found = overview.together(now, [look.found for look in looks], hosts)
    by_path = {str(look.workspace.ws.root): look for look in looks}
    elsewhere = {(row["agent"], row["task"], row["id"], row["text"]): row for host in hosts for row in of_host(host)}

    def key(place: Place) -> str:
        look = by_path.get(place.workspace)
        return place.agent if look is None else look.workspace.key

    def card(one: Decision) -> Card:
        look, where = by_path.get(one.place.workspace), key(one.place)
        if look is None:
            row = elsewhere[one.place.agent, one.item.task, one.item.id, one.item.text]
        else:
            asked, task = look.asked.get(one.item.id), look.tasks.get(one.item.task)
            row = with_form(one.item, asked, task, where, one.place.agent, one.title)
        question, choices = offered(row["question"])
        return {
            **row, "question": question, "choices": choices, "key": where, "agent": one.place.agent or where,
            "title": one.title, "blocks": one.blocks, "usd": one.usd,
        }  # fmt: skip

    def lines(section: Section[Any], most: int) -> Row:
        shown = section.first(most)
        told = [asdict(line) | {"key": key(line.place)} for line in shown.lines]
        return {"lines": told, "total": section.total, "more": shown.more}

    unwell = {(place.place, trouble) for place in found.places for trouble in place.troubles}
    decisions = [
        one
        for one in found.decide.lines
        # `held` has those that end, and what keeps a workspace from being read stands above all
        if one.item.kind is not Need.ENDING and (one.place, one.item.text) not in unwell
    ]
    waiting = found.decide.total - (len(found.decide.lines) - len(decisions))
    return {
        "decide": {
            "lines": [card(one) for one in decisions[:MOST_CARDS]],
            "total": waiting,
            "others": _others(waiting, decisions[:MOST_CARDS], found, key),
        },
        "held": [row for look in looks for row in look.held],
        "failed": {
            "lines": [card(one) for one in found.failed.lines[:_MOST_FAILED]],
            "total": found.failed.total,
            "more": max(found.failed.total - _MOST_FAILED, 0),
        },
        "finished": lines(found.finished, _MOST_RESULTS),
        "running": lines(found.running, _MOST_RUNNING),
        "later": lines(found.later, _MOST_LATER),
        "spent": _spent(found.spent, key),
        "at": now,
        "places": [_place(one, key(one.place)) for one in sorted(found.places, key=_loudest)],
        "is_well": not any(map(is_loud, found.places)),
        "is_new": bool(looks) and not any(place.states or place.open or place.troubles for place in found.places),
        "paused": standstills.standstill(models.workspaces.environ),
        "has_hosts": bool(hosts),
    }


def _look(models: PageModels, workspace: WebWorkspace, agents: Mapping[str, str]) -> _Look:
    """Raises nothing."""
    ws, agent = workspace.ws, agents[workspace.key]
    companions = [name for key, name in agents.items() if name and key != workspace.key]
    try:
        with models.report(workspace) as report:
            agent = agent or report.agent() or ""
            seen, program = models.seen(workspace), attention.program_for(ws)
            waits = attention.of(ws, report, models.clock, program, seen)
            return _Look(
                workspace,
                overview.of(ws, report, waits, report.phases(), models.clock, agent, seen, companions=companions),
                {task.local_id: task for task in waits.tasks.values()},
                {row["id"]: row for row in task_queries.list_approvals(report)},
                [{**row, "key": workspace.key} for row in held_orders(report)],
            )
    except (MailboxdError, OSError) as error:
        text = str(error) if ws.state.is_dir() else f"{workspace.path}: the workspace no longer exists"
        return _Look(workspace, overview.unreadable(models.clock.now(), Place(str(ws.root), agent), text))


def _hosts(models: PageModels, now: str) -> list[HostRow]:
    try:
        return models.workspaces.hosts(now)
    except MailboxdError as error:
        _log.warning("the other hosts cannot be shown: %s", error)
        return []


def _others(total: int, shown: Collection[Decision], found: Overview, key: Any) -> list[Row]:
    """Where what is not shown waits, and how much of it; the workspaces that have most of it first."""
    left = Counter(one.place for one in found.decide.lines if one.item.kind is not Need.ENDING)
    left.subtract(one.place for one in shown)
    rows = [
        {"key": key(place), "name": place.agent, "host": place.host} for place, count in left.most_common() if count > 0
    ]
    return [{"count": total - len(shown), "places": rows[:20]}] if total > len(shown) else []


def _loudest(one: Condition) -> tuple[bool, str, str]:
    return not is_loud(one), one.place.host, one.place.agent


def is_loud(one: Condition) -> bool:
    """Whether something is wrong with a place."""
    return one.grade in (Grade.RED, Grade.AMBER) or bool(one.troubles)


def _place(one: Condition, key: str) -> Row:
    return {
        "key": key,
        "name": one.place.agent or key,
        "host": one.place.host,
        "path": one.place.workspace,
        "grade": one.grade.value,
        "running": one.running,
        "troubles": one.troubles[:3],
        "open": one.open,
        "loud": is_loud(one),
        "states": one.states,
    }


# What it cost


def _spent(spent: Spent, key: Any) -> Row:
    """Today by agent with a bar, and a line over the days."""
    measure = _measure(spend for _, spend in spent.days)
    agents = [
        {
            "key": key(one.place),
            "name": one.place.agent or key(one.place),
            **_bar(None if one.standing is None else one.standing.agent, one.today, spent.today),
        }
        for one in spent.agents
        if one.today or (one.standing is not None and one.standing.agent.warns)
    ]
    host = spent.host.host if spent.host is not None and spent.host.host.fullest else None
    columns = [
        Column(day, spend.amount(measure), f"{amount_said(measure, spend.amount(measure))} {unit(measure)}")
        for day, spend in spent.days
    ]
    return {
        "agents": agents[:_MOST_SPENDERS],
        "more": max(len(agents) - _MOST_SPENDERS, 0),
        "today": _amount(spent.today),
        "host": _bar(host, host.spent, host.spent) if host is not None and host.spent else None,
        "svg": days_svg(columns) if any(spend for _, spend in spent.days) else "",
        "total": f"{amount_said(measure, total(spend for _, spend in spent.days).amount(measure))} {unit(measure)}",
        "days": len(spent.days),
    }  # fmt: skip


def _bar(one: Account | None, today: Spend, all_today: Spend) -> Row:
    """The share of the cap, in dollars if any are known and no cap is near. Without a cap, the share of what all have
    spent today.
    """
    if one is None or not (measure := shown_measure(one)):
        measure = _measure([all_today])
        share = today.amount(measure) / (all_today.amount(measure) or 1)
        return {"text": f"{_amount(today)} today, without a cap", "share": share, "capped": False}
    share = one.spent.amount(measure) / one.caps.amount(measure)
    return {"text": of_cap(one), "share": min(share, 1.0), "capped": True}


def _measure(spends: Iterable[Spend]) -> str:
    """The measure in which the days are compared: dollars, unless none are known."""
    parts = [*spends]
    return next((name for name in MEASURES if any(part.amount(name) for part in parts)), "usd")


def _amount(spend: Spend) -> str:
    """In the first measure that is known."""
    measure = _measure([spend])
    return f"{amount_said(measure, spend.amount(measure))} {unit(measure)}"
