"""The values of each page, read from a workspace's database in one snapshot and bounded in size."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import unified_diff
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypedDict

from mailboxd.core import entrance
from mailboxd.core.explain import why
from mailboxd.core.explain.milestones import Milestone, milestones
from mailboxd.core.explain.model import AskedQuestion, Cause, TaskSnapshot
from mailboxd.core.explain.overview_details import ItemDetails, LaterTask, RepetitionDetails, RunRow
from mailboxd.core.explain.task_details import (
    AncestorRow,
    ApprovalDetails,
    ApprovalRow,
    AttemptResult,
    BelowCounts,
    CheckRunDetails,
    EventRow,
    HeldOrderRow,
    ListedMessage,
    ListedTask,
    ReceivedMessage,
    Split,
    Successor,
    TaskDetails,
    TurnRow,
    WholeMessage,
)
from mailboxd.core.local_time import told
from mailboxd.core.operator_orders import BY_NAME, OPERATOR_ORDERS, Field, OperatorOrder, Situation, sensible
from mailboxd.core.sanitize import for_page
from mailboxd.core.spending import CapDetails, standing_json
from mailboxd.core.standstill import Standstill
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Phase, state_words
from mailboxd.engine import operator_commands
from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.formats import health
from mailboxd.formats.config.operator_zone import called, zone_of
from mailboxd.formats.drawing.gantt import Crowd, Window, gantt_svg
from mailboxd.formats.drawing.graph import Link, plan_graph
from mailboxd.formats.drawing.svg import graph_svg
from mailboxd.formats.health import Grade
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.maildir import read_message
from mailboxd.formats.protocol.recipe import example_values, expand
from mailboxd.formats.protocol.strict_yaml import Yaml
from mailboxd.formats.user import saved_searches, standstills
from mailboxd.host.clock import Clock
from mailboxd.hub.client.ask import search_hosts
from mailboxd.hub.client.decisions import requested
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.names import Address
from mailboxd.ledger import attention, diagrams, prompts, seen_items, task_queries, work_at_peers
from mailboxd.ledger import search_index as search_of
from mailboxd.ledger.attention import OF_TASKS, Item, Need
from mailboxd.ledger.attention_queries import Seen, unseen_failures
from mailboxd.ledger.later import history, later, repetition_called
from mailboxd.ledger.reports import Report, opened
from mailboxd.ledger.search import SearchQuery, fts_query
from mailboxd.ledger.task_queries import details
from mailboxd.perform.agents import last_tool
from mailboxd.surfaces.web import bulk
from mailboxd.surfaces.web.workspaces import MOST_CORRECTED, WebWorkspace, WebWorkspaces, recipes

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import HostRow, ItemThere

# Differences between the results of attempts

_MAX_COMPARED = 1_500
"""Lines of a text that are compared: difflib is quadratic in the worst case."""
_MAX_CHANGES = 400
_KINDS = {"+": "added", "-": "removed", "@": "place"}


class Difference(TypedDict):
    """How a result differs from the one before it."""

    before: AttemptResult
    after: AttemptResult
    lines: list[tuple[str, str]]
    """Kind (added, removed, place, same) and text."""
    same: bool
    cut: bool
    """Only their beginnings are compared, or not all differences are there."""


def comparisons(results: Sequence[AttemptResult]) -> list[Difference]:
    """How each result differs from the previous one."""
    return [_compare(before, after) for before, after in pairwise(results)]


def _compare(before: AttemptResult, after: AttemptResult) -> Difference:
    one, other = before["body"].splitlines(), after["body"].splitlines()
    long = max(len(one), len(other)) > _MAX_COMPARED
    changes = list(unified_diff(one[:_MAX_COMPARED], other[:_MAX_COMPARED], lineterm="", n=2))[2:]
    lines = [(_KINDS.get(line[:1], "same"), line) for line in changes[:_MAX_CHANGES]]
    return {
        "before": before, "after": after, "lines": lines, "same": not changes and not long,
        "cut": long or len(changes) > _MAX_CHANGES,
    }  # fmt: skip


# Pages

Row = dict[str, Any]
Offered = tuple[OperatorOrder, tuple[Field, ...]]
"""An order, and the fields of its form."""
_log = logging.getLogger("mailboxd")

PAGE_SIZE = 50
"""Tasks or messages on one page of a list."""
MAX_EVENTS = 100
_MAX_LED_TO = 20
"""Pages, and tasks, that the palette shows."""
_MAX_CALLED = 8
_MAX_BELOW = 5
"""Tasks below one whose forms are on its page."""
_MAX_LATER = 50
_MAX_RUNS = 8
_MAX_ITEMS = 8
"""Items of each sort that wait for a person."""
_MAX_CAUSES = 12
_MAX_RESULTS = 6
_MAX_QUESTIONS = 4
_MIN_WINDOW = 2.0
"""Seconds of a timeline that cannot be zoomed further."""
_MAX_TEXT = 200_000
_MAX_PROMPTS = 10
"""Turns that are shown with their prompts."""
_MAX_PROMPT = 20_000
"""Characters shown of one text."""
_TOKEN = re.compile(rb"^([ \t]*reply_token[ \t]*:)[^\n]*", re.MULTILINE)


class _Forms(TypedDict):
    """What the forms of an item need."""

    target: str
    """Names its forms."""
    question: str
    orders: tuple[Offered, ...]
    coordinates: bool
    """Its task has subtasks."""
    approval: ApprovalRow | None
    blocks: int
    """As of `overview.Decision`, on the overview alone; so is `usd`."""
    usd: float
    choices: tuple[str, ...]
    """The answers that its question offers, without which `question` then is."""


class Card(ItemDetails, _Forms):
    """An item that waits for a person, here or on another host, and what its forms need."""

    host: str
    """Empty: this one."""
    may_decide: bool
    key: str
    """Of its workspace; of another host, its agent."""
    agent: str
    title: str
    """Of its task."""


class HeldLine(HeldOrderRow):
    """What one person ordered at once and is held: the first of `count` orders."""

    label: str
    """Of its button."""
    together: str
    """Names all of them."""
    count: int


class HeldHere(HeldLine):
    key: str
    """Of its workspace."""


class WorkspaceSummary(TypedDict):
    """The head of a workspace's page. If it cannot be read, `error` says why, and the rest is empty."""

    key: str
    path: str
    name: str
    agent: str
    grade: str
    running: bool
    """Its daemon is."""
    troubles: list[str]
    """What mends itself."""
    states: dict[str, int]
    """By `vocabulary.STATES`."""
    attention: list[Card]
    attention_total: int
    failed: list[Card]
    failed_total: int
    held: list[HeldHere]
    spending: list[CapDetails]
    error: str


class LaterLine(LaterTask):
    told: str
    """The time as its zone has it."""


class RepetitionLine(RepetitionDetails):
    told: str
    history: list[RunRow]
    """Its latest runs."""


class TasksPage(TypedDict):
    """The page of a workspace, with one page (from 1) of its tasks."""

    workspace: WorkspaceSummary
    rows: list[ListedTask]
    total: int
    page: int
    pages_total: int
    agents: list[str]
    """Those that have or had tasks."""
    events_shown: list[EventRow]
    """The latest."""
    later: list[LaterLine | RepetitionLine]
    paused: Standstill | None


class EventsPage(TypedDict):
    """One page (from 1) of the events of a task."""

    rows: list[EventRow]
    total: int
    title: str
    page: int
    pages_total: int


class MessagesPage(TypedDict):
    """One page (from 1) of the messages with a verdict; empty: with any."""

    rows: list[ListedMessage]
    total: int
    page: int
    pages_total: int
    verdict: str


class Below(TypedDict):
    """What below a task needs a person: the first of `total`."""

    items: list[Card]
    total: int


class TaskRecord(TaskDetails, Split):
    """Everything on record about a task, and what a person can do about it."""

    above: list[AncestorRow]
    milestones: list[Milestone]
    progress: BelowCounts | None
    below: Below
    causes: tuple[Cause, ...]
    """The first ones; `more_causes` counts the others."""
    more_causes: int
    question: AskedQuestion | None
    total_events: int
    checks: list[CheckRunDetails]
    made: list[AttemptResult]
    prompts: dict[int, str]
    """The beginnings of what the latest turns were asked, by their numbers, as far as they are kept."""
    diffs: list[Difference]
    ending: list[HeldLine]
    orders: tuple[Offered, ...]


class MessagePage(WholeMessage):
    """The page of a message."""

    successor: Successor | None
    kept: bool
    """Its bytes are."""
    text: str
    cut: bool
    """Only the beginning of its text is here."""
    file: str
    how: str
    """How it came, in words."""
    correctable: bool
    """A person may correct it and send it again."""


class TreeDrawing(TypedDict):
    """Of `tasks` in the tree, `nodes` are drawn by themselves and `hidden` are not."""

    svg: str
    nodes: int
    tasks: int
    hidden: int


class TimelineDrawing(TypedDict):
    svg: str
    bars: int
    crowded: bool
    """A bar stands for several tasks."""
    zooms: list[tuple[str, str]]
    """Names and addresses of other windows."""


class TaskPage(TaskRecord):
    """The page of a task."""

    tree: TreeDrawing
    timeline: TimelineDrawing


@dataclass(frozen=True, slots=True)
class PageModels:
    """Reads the values of pages."""

    workspaces: WebWorkspaces
    clock: Clock

    @contextmanager
    def report(self, workspace: WebWorkspace) -> Iterator[Report]:
        """Raises UnavailableError, WorldError."""
        with opened(workspace.ws.database) as report, report.snapshot():
            yield report

    def summary(self, workspace: WebWorkspace) -> WorkspaceSummary:
        """One workspace. Raises nothing."""
        shown: WorkspaceSummary = {
            "key": workspace.key, "path": workspace.path, "name": workspace.ws.root.name, "agent": "",
            "grade": Grade.OFF.value, "running": False, "troubles": [], "states": {}, "attention": [],
            "attention_total": 0, "failed": [], "failed_total": 0, "held": [], "spending": [], "error": "",
        }  # fmt: skip
        try:
            shown["agent"] = self.workspaces.agent(workspace)
            pid, now = lock.holder(workspace.ws), self.clock.now()
            grade, troubles = health.read(workspace.ws, pid, now, self.clock.monotonic())
            shown["grade"], shown["running"] = grade.value, pid is not None
            shown["troubles"] = [f"{one.where}: {one.why}" for one in troubles if not one.needs_person(now)]
            with self.report(workspace) as report:
                shown["agent"] = shown["agent"] or report.agent() or ""
                self._count(workspace, report, grade, shown)
        except (MailboxdError, OSError) as error:
            gone = f"{workspace.path}: the workspace no longer exists"
            shown["error"] = str(error) if workspace.ws.state.is_dir() else gone
        return shown

    def seen(self, workspace: WebWorkspace) -> Seen:
        return seen_items.seen(workspace.ws.root, self.workspaces.environ, self.clock.now())

    def _count(self, workspace: WebWorkspace, report: Report, grade: Grade, shown: WorkspaceSummary) -> None:
        """Add what is in the database."""
        waiting = attention.of(
            workspace.ws, report, self.clock, attention.program_for(workspace.ws), self.seen(workspace), most=_MAX_ITEMS
        )
        asked = {row["id"]: row for row in task_queries.list_approvals(report)}
        tasks = {task.local_id: task for task in waiting.tasks.values()}
        titles = task_queries.titles(report, {item.task for item in waiting.items})
        listed = [item for item in waiting.items if item.kind is not Need.ENDING]  # `held` has them, with a button
        key, agent = workspace.key, shown["agent"]
        items = [
            with_form(item, asked.get(item.id), tasks.get(item.task), key, agent, titles.get(item.task, ""))
            for item in listed
        ]
        shown["grade"] = waiting.graded(grade, lock.holder(workspace.ws)).value
        shown["states"] = waiting.states(report.phases())
        shown["attention"] = [item for item in items if item["kind"] != Need.FAILED]
        shown["attention_total"] = waiting.total - waiting.failures - (len(waiting.items) - len(listed))
        shown["failed"] = [item for item in items if item["kind"] == Need.FAILED]
        shown["failed_total"] = waiting.failures
        shown["held"] = [{**row, "key": workspace.key} for row in held_orders(report)]
        if (standing := report.spending(self.clock.now())) is not None:
            shown["spending"] = standing_json(standing, attention.program_for(workspace.ws))

    def workspace(self, workspace: WebWorkspace, wanted: task_queries.Filter, page: int) -> TasksPage:
        """The workspace and one page (from 1) of its tasks."""
        shown, paused = self.summary(workspace), standstills.standstill(self.workspaces.environ)
        found: TasksPage = {
            "workspace": shown, "rows": [], "total": 0, "page": page, "pages_total": _pages(0), "agents": [],
            "events_shown": [], "later": [], "paused": paused,
        }  # fmt: skip
        if not shown["error"]:
            with self.report(workspace) as report:
                found["rows"], found["total"] = task_queries.list_tasks(
                    report, wanted, limit=PAGE_SIZE, offset=(page - 1) * PAGE_SIZE
                )
                found["pages_total"] = _pages(found["total"])
                found["agents"] = task_queries.list_agents(report, 200)
                found["events_shown"] = task_queries.latest_events(report, None, 12)
                found["later"] = self._later(workspace, report)
        return found

    def for_many(self, workspace: WebWorkspace, order: bulk.BulkOrder, wanted: task_queries.Filter) -> Row:
        """The tasks of a list for which an order makes sense: their number, and the first of them."""
        with self.report(workspace) as report:
            _, every = task_queries.list_tasks(report, wanted, limit=0)
            held = tuple(row["task"] for row in task_queries.list_held_orders(report) if row["name"] == order.name)
            suits = replace(wanted, suits=order.name, without=held)
            if order.name == "dismiss":
                suits = replace(suits, ids=tuple(id_ for id_, _ in unseen_failures(report, self.seen(workspace))))
            rows, total = task_queries.list_tasks(report, suits, limit=bulk.MOST)
        asks = order.asks.format(bulk.tasks(len(rows)))
        if not rows:
            asks = f"None of these {every:,} {order.suits}." if every else "No task was found."
        return {"rows": rows, "total": total, "found": every, "stamps": bulk.stamps(rows), "asks": asks, "order": order}

    def searches(self) -> list[tuple[str, str]]:
        """The names and addresses of the user's saved searches."""
        return saved_searches.searches(self.workspaces.environ)

    def palette(self, words: str) -> list[Row]:
        """What the palette leads to: pages and saved searches of which all these words are part, and tasks."""
        pages = [("page", "Overview", "", "/"), ("page", "New task", "", "/new"), ("page", "Search", "", "/search")]
        every = self.workspaces.all()
        for workspace in every[:_MAX_LED_TO]:
            name = self.workspaces.agent(workspace) or workspace.ws.root.name
            pages.append(("workspace", name, workspace.path, f"/w/{workspace.key}"))
            pages.append(("messages", f"Messages of {name}", workspace.path, f"/w/{workspace.key}/messages"))
        pages += [("search", name, "", where) for name, where in self.searches()]
        looked = words.lower().split()
        found = [row for row in pages if all(word in f"{row[1]} {row[2]}".lower() for word in looked)][:_MAX_LED_TO]
        for workspace in every if looked else ():
            if len(found) >= 2 * _MAX_LED_TO:
                break
            found += self._tasks_called(workspace, words)
        return [{"kind": kind, "label": label, "hint": hint, "href": href} for kind, label, hint, href in found]

    def _tasks_called(self, workspace: WebWorkspace, words: str) -> list[tuple[str, str, str, str]]:
        wanted, name = task_queries.Filter(words=words, children=True), self.workspaces.agent(workspace)
        try:
            with self.report(workspace) as report:
                rows, _ = task_queries.list_tasks(report, wanted, limit=_MAX_CALLED)
        except MailboxdError:
            return []
        return [
            (
                "task",
                for_page(row["title"][:160]) or row["local_id"],
                f"{row['local_id']} · {state_words(row['phase'], row['need'])} · {name or workspace.ws.root.name}",
                f"/w/{workspace.key}/t/{row['local_id']}",
            )
            for row in rows
        ]

    def tasks_found(self, workspace: WebWorkspace, words: str, kind: str) -> tuple[str, ...]:
        """The local ids of all tasks that a search of the texts finds. Raises Refused for a query without words."""
        with search_of.index(workspace.ws) as index:
            found = index.find(SearchQuery(words, type=kind, limit=_MOST_FOUND))
        return tuple(dict.fromkeys(hit["task"] for hit in found if hit["task"]))

    def _later(self, workspace: WebWorkspace, report: Report) -> list[LaterLine | RepetitionLine]:
        rows: list[LaterLine | RepetitionLine] = []
        for row in later(report, self.clock.now(), _MAX_LATER):
            zone = (row["zone"] if row["kind"] == "repetition" else "") or zone_of(workspace.ws.config)
            time = told(row["at"], called(zone))
            if row["kind"] == "task":
                rows.append({**row, "told": time})
            else:
                one = repetition_called(report, row["name"])
                runs = [] if one is None else history(report, one, _MAX_RUNS)
                rows.append({**row, "told": time, "history": runs})
        return rows

    def became_of(self, workspace: WebWorkspace, message_id: str) -> ReceivedMessage | None:
        """What became of a message that was sent, `task` as a local id; None until it is read."""
        with self.report(workspace) as report:
            found = report.received(message_id)
            if found is None:
                return None
            return {**found, "task": report.local_id(found["task"]) if found["task"] else ""}

    def task(self, workspace: WebWorkspace, name: str, window: Window | None = None) -> TaskPage:
        """Everything on record about a task; `window` is that of its timeline. Raises UnavailableError."""
        with self.report(workspace) as report:
            task_id = _exact(report, name)
            return {
                **self._record(workspace, report, task_id),
                "tree": self._tree(workspace, report, task_id),
                "timeline": self._timeline(workspace, report, task_id, window),
            }

    def opened(self, workspace: WebWorkspace, task: TaskRecord) -> None:
        """Note that the user has opened this task (of `task` or `record`): its failure is seen, its result is read."""
        ended, place = {task["id"]: task["completed_at"] or ""}, (workspace.ws.root, self.workspaces.environ)
        if task["phase"] == Phase.FAILED:
            seen_items.see(*place, self.clock.now(), ended)
        elif task["phase"] == Phase.COMPLETED and task["parent"] is None:
            seen_items.read(*place, self.clock.now(), ended)

    def record(self, workspace: WebWorkspace, name: str) -> TaskRecord:
        """Everything on record about a task, without drawings. Raises UnavailableError."""
        with self.report(workspace) as report:
            return self._record(workspace, report, _exact(report, name))

    def _record(self, workspace: WebWorkspace, report: Report, task_id: str) -> TaskRecord:
        found, split = details(report, task_id, children=False), task_queries.split(report, task_id)
        snapshot = report.task_snapshot([task_id], self.clock.now(), lock.holder(workspace.ws))
        tools = last_tool.of_calls(workspace.ws.turns, snapshot.turns, snapshot.now)
        taken = work_at_peers.names(report, snapshot, self.workspaces.environ)
        snapshot = replace(snapshot, tools=tools, taken=taken)
        told = why.explain(snapshot, task_id, attention.cannot_begin(workspace.ws, snapshot.daemon, snapshot.now))
        results = task_queries.list_results(report, task_id, _MAX_RESULTS, _MAX_TEXT)
        return {
            **found,
            **split,
            "above": task_queries.ancestors(report, task_id),
            "milestones": milestones(found, split, task_queries.questions(report, task_id, _MAX_QUESTIONS)),
            "progress": task_queries.progress(report, task_id) if split["children_total"] else None,
            "below": self._below(workspace, report, task_id) if split["children_total"] else {"items": [], "total": 0},
            "causes": told.causes[:_MAX_CAUSES],
            "more_causes": max(0, len(told.causes) - _MAX_CAUSES),
            "question": snapshot.tasks[task_id].question,
            "total_events": task_queries.count_events(report, task_id),
            "checks": task_queries.list_check_runs(report, task_id, 50),
            "made": results,
            "prompts": _prompts(report, task_id, found["turns"]),
            "diffs": comparisons(results),
            "ending": held_orders(report, task_id),
            "orders": _orders(snapshot.tasks[task_id]),
        }

    def _below(self, workspace: WebWorkspace, report: Report, task_id: str) -> Below:
        """What below a task needs a person, each with its form."""
        ids, total = task_queries.needing_below(report, task_id, _MAX_BELOW)
        if not ids:
            return {"items": [], "total": 0}
        now, program = self.clock.now(), attention.program_for(workspace.ws)
        snapshot = report.task_snapshot(ids, now, lock.holder(workspace.ws), neighbours=False)
        items: list[Card] = []
        (titles, key) = task_queries.titles(report, {task.local_id for task in snapshot.tasks.values()}), workspace.key
        for one in ids:
            task = snapshot.tasks[one]
            place = key, task.executor, titles.get(task.local_id, "")
            for row in task_queries.approvals(report, " WHERE a.task = ? AND a.status = 'pending'", one):
                asked = attention.of_approval(report, row["id"], program)
                items += [with_form(asked, row, task, *place)] if asked is not None else []
            if (item := attention.of_task(report, one, now, program)) is not None:
                items.append(with_form(item, None, task, *place))
        return {"items": items, "total": len(items) + total - len(ids)}

    def log(self, workspace: WebWorkspace, name: str, page: int) -> EventsPage:
        """One page (from 1) of all events of a task, the latest first. Raises UnavailableError."""
        with self.report(workspace) as report:
            task_id = _exact(report, name)
            total = task_queries.count_events(report, task_id)
            (named,) = task_queries.titles(report, {name}).values() or ("",)
            rows = task_queries.latest_events(report, task_id, MAX_EVENTS, (page - 1) * MAX_EVENTS)
        pages = max(1, -(-total // MAX_EVENTS))
        return {"rows": rows, "total": total, "title": named, "page": page, "pages_total": pages}

    def _tree(self, workspace: WebWorkspace, report: Report, task_id: str) -> TreeDrawing:
        graph = diagrams.task_graph(report, task_id, link=linked(workspace))
        sizes: Counter[str] = Counter()
        for node in graph.nodes:
            sizes.update(node.counts or {node.state: 1})
        svg = graph_svg(graph, "The task and its subtasks", standalone=False)
        hidden = sum(node.below for node in graph.nodes)
        return {"svg": svg, "nodes": len(graph.nodes), "tasks": sum(sizes.values()), "hidden": hidden}

    def _timeline(
        self, workspace: WebWorkspace, report: Report, task_id: str, window: Window | None
    ) -> TimelineDrawing:
        now = self.clock.now()
        lines, ran = diagrams.folded_timeline(report, task_id, now, window, linked(workspace))
        shown = window or ran
        svg = gantt_svg(lines, to_epoch(now), shown, zoom_address)
        crowded = any(isinstance(line, Crowd) for line in lines)
        return {
            "svg": svg,
            "bars": len(lines),
            "crowded": crowded,
            "zooms": _zooms(shown, ran, zoomed=window is not None),
        }

    def approval(self, workspace: WebWorkspace, name: str) -> ApprovalDetails:
        """Everything about an approval. Raises UnavailableError."""
        with self.report(workspace) as report:
            return task_queries.approval_report(report, task_queries.find_approval(report, name))

    def approval_elsewhere(self, agent: Address, name: str) -> Row:
        """The same of an agent on another host. Raises UnavailableError, ConfigError, WorldError."""
        membership = self.workspaces.hub()
        if membership is None:
            raise UnavailableError("this host belongs to no hub")
        return requested(membership, agent, name).model_dump()

    def message(self, workspace: WebWorkspace, row_id: str) -> MessagePage:
        """A message with its original text. Raises UnavailableError."""
        with self.report(workspace) as report:
            found = task_queries.find_message(report, row_id)
            if found is None:
                raise UnavailableError(f"there is no message {ascii(row_id)[:100]}")
            message, raw = found
            successor = task_queries.successor(report, row_id)
        if raw is None and message["path"]:
            raw = read_message(workspace.ws, message["path"], _MAX_TEXT * 4)
        text = "" if raw is None else hidden_tokens(raw).decode("utf-8", "replace")
        file = workspace.ws.mailbox / message["path"] if message["path"] else workspace.ws.inbox / message["name"]
        return {
            **message,
            "successor": successor,
            "kept": raw is not None,
            "text": text[:_MAX_TEXT],
            "cut": len(text) > _MAX_TEXT,
            "file": os.fsencode(file).decode("utf-8", "replace"),
            "how": entrance.told(message),
            "correctable": raw is not None and raw == text.encode() and _is_correctable(message, text),
        }

    def messages(self, workspace: WebWorkspace, verdict: str, page: int) -> MessagesPage:
        with self.report(workspace) as report:
            rows, total = task_queries.list_messages(
                report, limit=PAGE_SIZE, offset=(page - 1) * PAGE_SIZE, verdict=verdict
            )
        return {"rows": rows, "total": total, "page": page, "pages_total": _pages(total), "verdict": verdict}


def _is_correctable(message: WholeMessage, text: str) -> bool:
    """Whether the form shows this message to be corrected and sent again."""
    if message["verdict"] != "rejected" or not text.strip() or len(text.encode()) > MOST_CORRECTED:
        return False
    return attention.is_correctable((message["reason"] or {}).get("rule", ""), message["from"])


def _pages(total: int) -> int:
    return max(1, -(-total // PAGE_SIZE))


def linked(workspace: WebWorkspace) -> Link:
    """The addresses of tasks in drawings, made of the workspace's key and a validated task id."""

    def link(name: str, stacked: bool) -> str:
        return f"/w/{workspace.key}/t/{name}{'/children' if stacked else ''}"

    return link


def zoom_address(window: Window) -> str:
    """The address, on the same page, of the timeline of this window."""
    return f"?from={window[0]:.3f}&until={window[1]:.3f}#timeline"


def _zooms(shown: Window, ran: Window, *, zoomed: bool) -> list[tuple[str, str]]:
    """The names and addresses of other windows."""
    start, end = shown
    span = max(end - start, 1.0)
    found = [("Zoom in", zoom_address((start + span / 4, end - span / 4)))] if span > _MIN_WINDOW else []
    if zoomed:
        wider = (start - span / 2, end + span / 2)
        whole = "?#timeline"
        found.append(("Zoom out", zoom_address(wider) if span * 2 < ran[1] - ran[0] else whole))
        if start > ran[0]:
            found.append(("Earlier", zoom_address((start - span / 2, end - span / 2))))
        if end < ran[1]:
            found.append(("Later", zoom_address((start + span / 2, end + span / 2))))
        found.append(("All", whole))
    return found


def of_host(row: HostRow) -> list[Card]:
    """The items that need a person on another host; with forms, if that host lets a person here decide."""
    cards: list[Card] = []
    for item in row["attention"]:
        decides = item["may_decide"] and item["kind"] in OF_TASKS
        question = (item["details"] or item["text"]) if decides and item["kind"] == Need.QUESTION else ""
        names = (("answer", "cancel") if question else ("cancel",)) if decides else ()
        orders = tuple((BY_NAME[name], BY_NAME[name].fields) for name in names)
        forms: _Forms = {**_forms(item), "question": question, "orders": orders}
        cards.append({**item, **forms, "tasks": 1, "key": item["agent"], "title": ""})
    return cards


def _forms(item: ItemDetails | ItemThere) -> _Forms:
    """What an item needs for its forms, before it has any."""
    target = item["id"] or (f"order-{item['task']}" if item["task"] else item["kind"])
    return {
        "target": target, "question": "", "orders": (), "coordinates": False, "approval": None, "blocks": 0,
        "usd": 0.0, "choices": (),
    }  # fmt: skip


def with_form(
    item: Item, approval: ApprovalRow | None, task: TaskSnapshot | None, key: str, agent: str, title: str
) -> Card:
    """The item with what its form needs; `key`, `agent` and `title` as of `Card`."""
    said = item.as_json()
    card: Card = {
        **said, **_forms(said), "key": key, "agent": agent, "title": title, "host": "", "may_decide": True,
        "approval": approval,
    }  # fmt: skip
    if task is not None and item.kind in {*OF_TASKS, Need.FAILED}:
        card["question"], card["orders"] = task.question.text if task.question else "", _orders(task)
        card["coordinates"] = task.coordinates
    elif item.id.startswith(operator_commands.CAUSE):
        names = ("unblock-retry", "cancel") if item.kind is Need.HOLD else ("unblock-retry",)
        now = Situation(Phase.CIRCUIT_OPEN)
        card["orders"] = tuple((BY_NAME[name], BY_NAME[name].offered(now)) for name in names)
    return card


def _exact(report: Report, name: str) -> str:
    """The id of the task with exactly this name: a prefix could mean another task tomorrow. Raises UnavailableError."""
    task_id = task_queries.find_exact(report, name)
    if task_id is None:
        raise UnavailableError(f"there is no task {ascii(name)[:100]}")
    return task_id


def _prompts(report: Report, task_id: str, turns: list[TurnRow]) -> dict[int, str]:
    latest = [(row["number"], row["prompt"]) for row in turns[-_MAX_PROMPTS:]]
    texts = {number: prompts.text_of(report.db, prompt["sha256"], task_id) for number, prompt in latest if prompt}
    return {number: _prompt_text(raw) for number, raw in texts.items() if raw is not None}


def _prompt_text(raw: bytes) -> str:
    return hidden_tokens(raw[: _MAX_PROMPT + 1]).decode("utf-8", "replace")


def hidden_tokens(raw: bytes) -> bytes:
    """Hide the reply token of a message: with it, one can reply in another agent's name."""
    return _TOKEN.sub(rb"\1(hidden)", raw)


def _orders(task: TaskSnapshot) -> tuple[Offered, ...]:
    """The orders that make sense now; the engine checks them in any case."""
    pausing, asks = task.not_before is not None, task.question is not None
    return offered(Situation(task.phase, task.held, pausing, asks, task.has_result, task.coordinates))


def offered(now: Situation) -> tuple[Offered, ...]:
    """The orders that make sense in this situation."""
    return tuple((order, order.offered(now)) for order in sensible(now))


def held_orders(report: Report, task_id: str | None = None) -> list[HeldLine]:
    """The orders that are held for some seconds: all, or those about one task. What one person ordered at once for many
    tasks is one line.
    """
    rows = task_queries.list_held_orders(report, task_id)
    labels = {order.name: order.label for order in OPERATOR_ORDERS}
    found: dict[str, HeldLine] = {}
    for row in rows:
        together = "|".join((row["at"], row["name"], row["by"]))
        label = labels.get(row["name"], "Reject")
        first = found.setdefault(together, {**row, "label": label, "together": together, "count": 0})
        first["count"] += 1
    return list(found.values())


def recipe_form(workspace: WebWorkspace, name: str) -> Row:
    """A recipe of this workspace, its parameters, and a drawing of its plan. Raises ConfigError, MessageError."""
    recipe = recipes(workspace).load(name)
    example = expand(recipe, example_values(recipe))
    drawn = graph_svg(plan_graph(example.dag.plan, recipe.name), f"The plan of {recipe.name}", standalone=False)
    return {
        "name": recipe.name,
        "about": recipe.about,
        "svg": drawn,
        "fields": [
            {
                "name": one.name,
                "about": one.about,
                "list": one.is_list,
                "value": _lines(one.default),
                "required": one.default is None,
                "example": _lines(one.example),
            }
            for one in recipe.parameters
        ],
    }


def _lines(value: Yaml | None) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value or "")


# Search

_MAX_HITS = 30
_MOST_FOUND = 5_000
"""Places of a search whose tasks an order may be for."""
_MAX_PLACES = 200
"""Places that are found before they are put together."""


def search(workspaces: Sequence[WebWorkspace], words: str, kind: str) -> Row:
    """Search workspace by workspace, best hits first and each task once; `troubles` explain where search failed.

    Raises Refused for a query without words.
    """
    fts_query(words)
    hits: list[Row] = []
    troubles: list[str] = []
    for workspace in workspaces:
        try:
            with search_of.index(workspace.ws) as index:
                found = index.find(SearchQuery(words, type=kind, limit=_MAX_PLACES))
            with opened(workspace.ws.database) as report:
                titles = task_queries.titles(report, {hit["task"] for hit in found if hit["task"]})
        except MailboxdError as error:
            troubles.append(str(error))
            continue
        hits += [{**hit, "workspace": workspace, "title": titles.get(hit["task"], "")} for hit in each_once(found)]
    return {"hits": hits, "troubles": troubles}


def search_elsewhere(membership: Membership, words: str, kind: str) -> Row:
    """Search the other hosts; `troubles` name those that did not answer.

    Raises Refused for a query without words, ConfigError, WorldError.
    """
    fts_query(words)
    try:
        found = search_hosts(membership, SearchQuery(words, type=kind, limit=_MAX_PLACES))
    except UnavailableError as error:
        return {"hits": [], "troubles": [str(error)]}
    hits = each_once([{**hit, "agent": f"{hit['host']}.{hit['agent']}"} for hit in found["hits"]])
    return {"hits": hits, "troubles": [f"{host}: {why}" for host, why in sorted(found["silent"].items())]}


def each_once(found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The best hit of each task, or of each place that is of none; `kinds` are those of the places found."""
    hits: dict[tuple[str, str], Row] = {}
    for hit in found:
        kept = hits.setdefault((hit.get("agent", ""), hit["task"] or hit["where"]), {**hit, "kinds": []})
        if hit["type"] not in kept["kinds"]:
            kept["kinds"].append(hit["type"])
    return list(hits.values())[:_MAX_HITS]
