"""What a page shows: read in one look at a workspace's database, bounded, as values for a template."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from itertools import pairwise
from typing import Any

from mailboxd import health
from mailboxd.clock import Clock
from mailboxd.core.times import to_epoch
from mailboxd.drawing.gantt import gantt_svg
from mailboxd.drawing.graph import Link
from mailboxd.drawing.svg import graph_svg
from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.explain import why
from mailboxd.health import Grade
from mailboxd.mailbox import lock
from mailboxd.mailbox.maildir import read_message
from mailboxd.store import diagrams, task_lists, task_report
from mailboxd.store.reports import Report, opened
from mailboxd.store.search import Index, Wanted, matching
from mailboxd.store.task_report import details
from mailboxd.web.workspaces import Place, Places

# ---------------------------------------------------------------------------------------------------------------------
# What changed from one attempt's result to the next, line by line.

_LINES = 1_500
"""Of a text that is compared: difflib takes the square of it at worst."""
_SHOWN = 400
_KINDS = {"+": "added", "-": "removed", "@": "place"}


def comparisons(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each result but the first, how it differs from the one before: `lines` of (kind, text)."""
    return [_compare(before, after) for before, after in pairwise(results)]


def _compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    one, other = before["body"].splitlines(), after["body"].splitlines()
    long = max(len(one), len(other)) > _LINES
    changes = list(unified_diff(one[:_LINES], other[:_LINES], lineterm="", n=2))[2:]
    lines = [(_KINDS.get(line[:1], "same"), line) for line in changes[:_SHOWN]]
    return {
        "before": before, "after": after, "lines": lines, "same": not changes and not long,
        "cut": long or len(changes) > _SHOWN,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# What a page shows: read in one look at a workspace's database, bounded, as values for a template.

Row = dict[str, Any]

PAGE = 50
"""Tasks, or messages, of one page."""
EVENTS = 60
_BLOCKED = 8
_ASKED = 50
_BARS = 100
_BAR_TASKS = 2_000
_CAUSES = 12
_RESULTS = 6
_MOST = 200_000
"""Characters of one text that are shown."""
_TOKEN = re.compile(rb"^([ \t]*reply_token[ \t]*:)[^\n]*", re.MULTILINE)
_TERMINAL = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Desk:
    """Where pages look things up."""

    places: Places
    clock: Clock

    @contextmanager
    def report(self, place: Place) -> Iterator[Report]:
        """Raises UnavailableError, WorldError."""
        with opened(place.ws.database) as report, report.snapshot():
            yield report

    # ---------------------------------------------------------------- overview

    def overview(self) -> list[Row]:
        """Every workspace: its health, its counts, what needs a person. First those that need one."""
        return sorted((self.glance(place) for place in self.places.all()), key=_urgency)

    def glance(self, place: Place) -> Row:
        """One workspace on a few lines; one that cannot be read says why. Raises nothing."""
        shown: Row = {"key": place.key, "path": place.path, "name": place.ws.root.name, "agent": ""}
        try:
            shown |= {"agent": self.places.agent(place)}
            shown |= self.standing(place)
            with self.report(place) as report:
                return shown | self._counts(place, report)
        except (MailboxdError, OSError) as error:
            said = str(error) if place.ws.state.is_dir() else f"{place.path}: the workspace is not there any more"
            return shown | {"grade": shown.get("grade", "off"), "error": said}

    def standing(self, place: Place) -> Row:
        """How the daemon is."""
        pid = lock.holder(place.ws)
        grade, troubles = health.read(place.ws, pid, self.clock.now(), self.clock.monotonic())
        said = [f"{trouble.where}: {trouble.why}" for trouble in troubles]
        return {"grade": Grade(grade).value, "troubles": said, "running": pid is not None, "pid": pid or None}

    def _counts(self, place: Place, report: Report) -> Row:
        phases, blocked = report.phases(), report.blocked()
        snapshot = report.task_snapshot(blocked[:_BLOCKED], self.clock.now(), lock.holder(place.ws), neighbours=False)
        needs = [why.cause_of(snapshot.tasks[task], snapshot) for task in blocked[:_BLOCKED] if task in snapshot.tasks]
        return {
            "phases": phases,
            "open": sum(count for phase, count in phases.items() if phase not in _TERMINAL),
            "total": sum(phases.values()),
            "asked": report.asked(),
            "needs": needs,
            "more_needs": (report.blocked_count() if len(blocked) > _BLOCKED else len(blocked)) - len(needs),
            "breakers": [(agent, shut) for agent, shut in snapshot.breakers.items()],
            "room": report.room(),
        }

    # ---------------------------------------------------------------- a workspace

    def workspace(self, place: Place, wanted: task_lists.Filter, page: int) -> Row:
        """The workspace and a page of its tasks; pages count from 1."""
        shown = self.glance(place)
        if "error" in shown:
            return {
                "place": shown,
                "rows": [],
                "total": 0,
                "agents": [],
                "asked": [],
                "page": 1,
                "pages_total": 1,
                "events_shown": [],
            }
        with self.report(place) as report:
            rows, total = task_lists.tasks(report, wanted, limit=PAGE, offset=(page - 1) * PAGE)
            asked = task_report.listed(report)[:_ASKED]
            names = task_lists.agents(report, 200)
            events = task_lists.latest_events(report, None, 12)
        pages = max(1, -(-total // PAGE))
        return {
            "place": shown, "rows": rows, "total": total, "agents": names, "asked": asked, "page": page,
            "pages_total": pages, "events_shown": events,
        }  # fmt: skip

    # ---------------------------------------------------------------- a task

    def task(self, place: Place, name: str) -> Row:
        """All that is on record about a task. Raises UnavailableError."""
        with self.report(place) as report:
            task_id = _exact(report, name)
            found = details(report, task_id, children=False)
            kids, total_kids = task_lists.tasks(report, task_lists.Filter(parent=task_id), limit=25)
            snapshot = report.task_snapshot([task_id], self.clock.now(), lock.holder(place.ws))
            told = why.explain(snapshot, task_id)
            events, results = task_lists.latest_events(report, task_id, EVENTS), self._results(report, task_id)
            return found | {
                "above": task_lists.path_to(report, task_id),
                "kids": kids,
                "total_kids": total_kids,
                "why": told,
                "causes": told.causes[:_CAUSES],
                "more_causes": max(0, len(told.causes) - _CAUSES),
                "question": snapshot.tasks[task_id].question,
                "events": events,
                "total_events": task_lists.count_events(report, task_id),
                "checks": task_lists.check_runs(report, task_id, 50),
                "made": results,
                "diffs": comparisons(results),
                "tree": self._tree(place, report, task_id),
                "timeline": self._timeline(place, report, task_id),
                "orders": _orders(found, asks=snapshot.tasks[task_id].question is not None),
            }

    def _results(self, report: Report, task_id: str) -> list[Row]:
        return task_lists.results(report, task_id, _RESULTS, _MOST)

    def _tree(self, place: Place, report: Report, task_id: str) -> Row:
        graph = diagrams.task_graph(report, task_id, link=linked(place))
        sizes: Counter[str] = Counter()
        for node in graph.nodes:
            sizes.update(node.counts or {node.phase: 1})
        svg = graph_svg(graph, "The task and what is below it", alone=False)
        hidden = sum(node.below for node in graph.nodes)
        return {"svg": svg, "nodes": len(graph.nodes), "tasks": sum(sizes.values()), "hidden": hidden}

    def _timeline(self, place: Place, report: Report, task_id: str) -> Row:
        timeline = diagrams.task_timeline(report, task_id, most_tasks=_BAR_TASKS, most_attempts=_BARS)
        found = diagrams.timeline_bars(timeline["rows"], linked(place))
        svg = gantt_svg(found, to_epoch(self.clock.now()), "When attempts ran", alone=False)
        return {"svg": svg, "bars": len(found), "full": len(found) == _BARS}

    # ---------------------------------------------------------------- one thing

    def approval(self, place: Place, name: str) -> Row:
        """A request and all about it. Raises UnavailableError."""
        with self.report(place) as report:
            return task_report.one(report, task_report.find(report, name))

    def message(self, place: Place, row_id: str) -> Row:
        """A message as it was, as text. Raises UnavailableError."""
        with self.report(place) as report:
            found = task_lists.message(report, row_id)
        if found is None:
            raise UnavailableError(f"there is no message {ascii(row_id)[:100]}")
        raw: bytes | None = found.pop("raw")
        if raw is None and found["path"]:
            raw = read_message(place.ws, found["path"], _MOST * 4)
        text = "" if raw is None else hidden_tokens(raw).decode("utf-8", "replace")
        return found | {"kept": raw is not None, "text": text[:_MOST], "cut": len(text) > _MOST}

    def messages(self, place: Place, verdict: str, page: int) -> Row:
        with self.report(place) as report:
            rows, total = task_lists.messages(report, limit=PAGE, offset=(page - 1) * PAGE, verdict=verdict)
        return {
            "rows": rows,
            "total": total,
            "page": page,
            "pages_total": max(1, -(-total // PAGE)),
            "verdict": verdict,
        }


def linked(place: Place) -> Link:
    """Addresses of tasks, for drawings: made of the workspace's key and a name that was checked when it came."""

    def link(name: str, stacked: bool) -> str:
        return f"/w/{place.key}/t/{name}{'/children' if stacked else ''}"

    return link


def _urgency(row: Row) -> int:
    """Broken first, then what waits for somebody, then everything else; among equals the order of the registry."""
    if "error" in row or row["grade"] == Grade.RED:
        return 0
    return 1 if row["asked"] or row["needs"] else 2


def _exact(report: Report, name: str) -> str:
    """An address names a task whole: a beginning that means another task tomorrow is no address."""
    task_id = task_lists.named(report, name)
    if task_id is None:
        raise UnavailableError(f"there is no task {ascii(name)[:100]}")
    return task_id


def hidden_tokens(raw: bytes) -> bytes:
    """A message without its reply token: who knows it can reply in another's name."""
    return _TOKEN.sub(rb"\1(hidden)", raw)


def _orders(found: Row, *, asks: bool) -> list[str]:
    """Which orders make sense now; the engine judges them in any case."""
    phase, held = found["phase"], found["held"]
    orders = ["answer"] if asks else []
    if phase == "circuit_open" or held:
        orders += ["unblock-retry", "unblock-accept", "unblock-fail"]
    elif phase in ("failed", "completed") or found["not_before"]:
        orders.append("retry")
    if phase not in _TERMINAL:
        orders.append("cancel")
    return orders


# ---------------------------------------------------------------------------------------------------------------------
# Search over workspaces: messages, results and events, by the full-text index of each.

_HITS = 30
_INDEX = "search.db"


def search(places: Sequence[Place], words: str, kind: str) -> dict[str, Any]:
    """What matches, workspace by workspace, the best first; `troubles` where one could not be searched.

    Raises Refused for a query without a word.
    """
    matching(words)
    hits, troubles = [], []
    for place in places:
        try:
            with Index(place.ws.state / _INDEX, place.ws.database, _reader(place)) as index:
                index.catch_up()
                found = index.find(Wanted(words, type=kind, limit=_HITS))
        except MailboxdError as error:
            troubles.append(str(error))
            continue
        hits += [hit | {"place": place} for hit in found]
    return {"hits": hits, "troubles": troubles}


def _reader(place: Place) -> Any:
    return lambda path: read_message(place.ws, path)
