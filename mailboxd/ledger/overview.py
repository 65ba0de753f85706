"""What a person wants to know in the morning, of one workspace or of all: the same for page, `status` and digest.

Six sections, in this order: what they have to decide, what failed, what finished since they looked, what runs, what
begins later, and what it cost. `of` reads them of one workspace; `together` joins those of several, with what is known
of other hosts. Each section says how many lines it has in all, of which the most important ones are there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mailboxd.core.local_time import told
from mailboxd.core.sanitize import first_line
from mailboxd.core.spending import NOTHING, Spend, Standing, caps_json, spend_json, total
from mailboxd.core.times import moment, plus
from mailboxd.core.vocabulary import TERMINAL
from mailboxd.errors import MailboxdError
from mailboxd.formats import health
from mailboxd.formats.config.operator_zone import called, zone_of
from mailboxd.formats.health import Grade
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import standstills
from mailboxd.host.clock import Day, day_of
from mailboxd.ledger import attention, seen_items
from mailboxd.ledger import overview_queries as queries
from mailboxd.ledger.attention import DISMISSIBLE, Attention, Item, Need
from mailboxd.ledger.later import count_later, count_scheduled, later
from mailboxd.ledger.overview_queries import Size
from mailboxd.ledger.reports import opened

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import (
        AgentThere,
        ConditionDetails,
        DecisionDetails,
        HostRow,
        LaterDetails,
        LaterTask,
        OverviewDetails,
        PlaceDetails,
        RepetitionDetails,
        ResultDetails,
        RunningDetails,
        SectionDetails,
        SpenderDetails,
        SpentDetails,
    )
    from mailboxd.core.standstill import Standstill
    from mailboxd.host.clock import Clock
    from mailboxd.ledger.attention_queries import Seen
    from mailboxd.ledger.reports import Report, Row

MOST = 50
"""Lines of a section that are read of one workspace."""
LATEST = 3
"""Results that are shown though they were read, if there are no others: what came out last."""
DAYS = 14
"""Days of which is told what they cost."""
_STOPS = frozenset({Need.CONFIG, Need.DAEMON, Need.GATEWAY, Need.HEALTH, Need.PAUSED})
"""What keeps the daemon from working, or soon will."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is: the workspace and its agent, or an agent `HOST.AGENT` of another host."""

    workspace: str
    """Its directory; empty on another host."""
    agent: str
    host: str = ""
    """Empty: this one."""

    def as_json(self) -> PlaceDetails:
        return {"workspace": self.workspace, "agent": self.agent, "host": self.host}


@dataclass(frozen=True, slots=True)
class Decision:
    """Something that waits for a person, or a failure that they have not seen."""

    place: Place
    item: Item
    title: str = ""
    """Of its task."""
    blocks: int = 0
    """The open tasks that wait until it is decided; at most `queries.MOST_BLOCKED`, of a workspace all."""
    usd: float = 0.0
    """What the whole work that its task belongs to has cost so far."""
    may_decide: bool = True
    """Whether a person here may; else the command is one for the other host."""

    @property
    def size(self) -> tuple[int, int, float, str]:
        """Sort key: the largest first.

        The largest is what stops a workspace; then what most tasks wait for, with those that it stands for; then what
        has cost most, since that lies idle until it is decided; then what waits longest. What only has to be looked at
        comes last.
        """
        kind = self.item.kind
        grade = 0 if kind in _STOPS or (kind is Need.CAP and self.blocks) else 2 if kind in DISMISSIBLE else 1
        return grade, -self.blocks - self.item.tasks, -self.usd, self.item.since or ""

    def as_json(self) -> DecisionDetails:
        return {
            **self.item.as_json(),
            **self.place.as_json(),
            "title": self.title,
            "blocks": self.blocks,
            "usd": self.usd,
            "may_decide": self.may_decide,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """Work that is finished."""

    place: Place
    id: str
    task: str
    """Its local id."""
    title: str
    answer: str
    """Its first line."""
    at: str
    unread: bool = True

    def as_json(self) -> ResultDetails:
        return {
            **self.place.as_json(),
            "id": self.id,
            "task": self.task,
            "title": self.title,
            "answer": self.answer,
            "at": self.at,
            "unread": self.unread,
        }


@dataclass(frozen=True, slots=True)
class Running:
    """A task that runs. `done` of `planned` subtasks are completed, `skipped` are left out; 0 planned: it has none."""

    place: Place
    id: str
    task: str
    title: str
    by: str
    """The agent that does it."""
    since: str
    done: int = 0
    planned: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def share(self) -> float:
        """How much of what is planned has been done, 1.0 = all; 0.0 without subtasks."""
        planned = self.planned - self.skipped
        return self.done / planned if planned > 0 else 0.0

    def as_json(self) -> RunningDetails:
        return {
            **self.place.as_json(),
            "id": self.id,
            "task": self.task,
            "title": self.title,
            "by": self.by,
            "since": self.since,
            "done": self.done,
            "planned": self.planned,
            "failed": self.failed,
            "skipped": self.skipped,
            "share": round(self.share, 4),
        }


@dataclass(frozen=True, slots=True)
class Later:
    """A task with a beginning to come, or work that repeats."""

    place: Place
    kind: str
    """`task` or `repetition`."""
    name: str
    title: str
    at: str
    told: str
    """The time as its zone has it."""
    repeat: str = ""
    """Its rule as it was written."""
    paused: str = ""
    problem: str = ""
    """Why its latest run could not be made."""
    open: str = ""
    """The run that has not ended."""

    def as_json(self) -> LaterDetails:
        return {
            **self.place.as_json(),
            "kind": self.kind,
            "name": self.name,
            "title": self.title,
            "at": self.at,
            "told": self.told,
            "repeat": self.repeat,
            "paused": self.paused,
            "problem": self.problem,
            "open": self.open,
        }


@dataclass(frozen=True, slots=True)
class Spender:
    """What one agent has spent today; `standing` is that of its cap, None before its first daemon."""

    place: Place
    today: Spend
    standing: Standing | None = None

    def as_json(self) -> SpenderDetails:
        caps = None if self.standing is None else caps_json(self.standing.agent, self.standing)
        return {**self.place.as_json(), "today": spend_json(self.today), "caps": caps}


@dataclass(frozen=True, slots=True)
class Spent:
    """What it cost: today by agent, the dearest first, and by day, the earliest first and today last."""

    agents: tuple[Spender, ...] = ()
    days: tuple[tuple[str, Spend], ...] = ()
    host: Standing | None = None
    """The standing of the cap over all agents of the host, as its latest daemon has told it."""

    @property
    def today(self) -> Spend:
        return total(one.today for one in self.agents)

    def as_json(self) -> SpentDetails:
        return {
            "today": spend_json(self.today),
            "agents": [one.as_json() for one in self.agents],
            "host": None if self.host is None else caps_json(self.host.host, self.host),
            "days": [{"day": day, **spend_json(spend)} for day, spend in self.days],
        }


@dataclass(frozen=True, slots=True)
class Condition:
    """How a place is: its health and what is wrong, and the number of its tasks by `vocabulary.STATES`."""

    place: Place
    grade: Grade
    running: bool = False
    """Whether its daemon runs."""
    troubles: tuple[str, ...] = ()
    """What mends itself; the rest is in `decide`."""
    states: Mapping[str, int] = field(default_factory=dict)
    open: int = 0
    scheduled: int = 0
    """How many of those that wait begin at a set time."""

    def as_json(self) -> ConditionDetails:
        return {
            **self.place.as_json(),
            "grade": self.grade,
            "running": self.running,
            "troubles": list(self.troubles),
            "states": dict(self.states),
            "open": self.open,
            "scheduled": self.scheduled,
        }


T = TypeVar("T", bound="Decision | Result | Running | Later")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """The lines of a section, the most important first; `total` is how many there are."""

    lines: tuple[T, ...] = ()
    total: int = 0

    @property
    def more(self) -> int:
        return max(self.total - len(self.lines), 0)

    def first(self, most: int) -> Section[T]:
        return replace(self, lines=self.lines[:most])

    def as_json(self, line: Callable[[T], D]) -> SectionDetails[D]:
        """`line` makes the JSON of one."""
        return {"total": self.total, "lines": [line(one) for one in self.lines]}


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of one workspace, or of all, at a time."""

    at: str
    decide: Section[Decision]
    failed: Section[Decision]
    """Failures that the user has not seen."""
    finished: Section[Result]
    """Results that the user has not read; `total` is their number. Without any, the latest ones, which are not counted
    in it."""
    running: Section[Running]
    later: Section[Later]
    spent: Spent
    places: tuple[Condition, ...] = ()

    @property
    def silent(self) -> tuple[Condition, ...]:
        """The other hosts that are not well; what is wrong here is in `decide`."""
        return tuple(one for one in self.places if one.place.host and one.grade is Grade.RED and one.troubles)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing needs the person, nothing failed, nothing is unread, and no other host is silent."""
        return not (self.decide.total or self.failed.total or self.finished.total or self.silent)

    def as_json(self) -> OverviewDetails:
        return {
            "at": self.at,
            "decide": self.decide.as_json(Decision.as_json),
            "failed": self.failed.as_json(Decision.as_json),
            "finished": self.finished.as_json(Result.as_json),
            "running": self.running.as_json(Running.as_json),
            "later": self.later.as_json(Later.as_json),
            "spent": self.spent.as_json(),
            "places": [place.as_json() for place in self.places],
        }


def read(
    ws: Workspace,
    report: Report,
    clock: Clock,
    agent: str,
    program: str,
    seen: Seen,
    *,
    most: int | None = MOST,
    paused: Standstill | None = None,
    companions: Collection[str] = (),
) -> Overview:
    """The overview of the workspace of `agent`, read in one snapshot; the other arguments as of `attention.of`."""
    with report.snapshot():
        found = attention.of(ws, report, clock, program, seen, most=most, paused=paused)
        return of(ws, report, found, report.phases(), clock, agent, seen, most=most, companions=companions)


def of(
    ws: Workspace,
    report: Report,
    found: Attention,
    phases: Mapping[str, int],
    clock: Clock,
    agent: str,
    seen: Seen,
    *,
    most: int | None = MOST,
    companions: Collection[str] = (),
) -> Overview:
    """The overview of the workspace of `agent`, where `found` waits for a person.

    `phases` has the number of tasks by phase: of all, or of the open ones (`found.open.phases`), which costs less.
    Of each section at most `most` lines are read; of the items that wait, the oldest of each sort. `companions` are
    the agents whose overviews are shown beside this one: what is a part of their work is not told again.
    """
    now, pid, zone = clock.now(), lock.holder(ws), zone_of(ws.config)
    place = Place(str(ws.root), agent)
    grade, troubles = health.read(ws, pid, now, clock.monotonic())
    condition = Condition(
        place,
        found.graded(grade, pid),
        running=pid is not None,
        troubles=(
            *(f"{one.where}: {one.why}" for one in troubles if not one.needs_person(now)),
            *(_shut(row, now) for row in queries.breakers(report)),
        ),
        states=found.states(phases),
        open=sum(count for phase, count in phases.items() if phase not in TERMINAL),
        scheduled=count_scheduled(report, now),
    )
    standing = report.spending(now)
    reached = None if standing is None else standing.reached
    decisions, failures = _decisions(report, found, condition, reached.whose or "host" if reached else "")
    unread, results = queries.unread(report, seen, most)
    runs, running = queries.running(report, found.open.running, companions, most)
    begins = later(report, now, 1_000 if most is None else most)
    return Overview(
        now,
        Section(decisions, found.total - found.failures),
        Section(failures, found.failures),
        Section(_results(report, place, results, seen), unread),
        Section(tuple(_running(place, row) for row in running), runs),
        Section(tuple(_later(place, row, zone) for row in begins), count_later(report, now)),
        _spent(report, now, place, zone, standing),
        (condition,),
    )


def _shut(row: Row, now: str) -> str:
    until = f"no turns until {moment(row['until'], now)}" if row["until"] else "one turn, as a trial"
    return f"{row['agent']} gets {until}: {first_line(row['reason'])}"


def _decisions(
    report: Report, found: Attention, condition: Condition, reached: str
) -> tuple[tuple[Decision, ...], tuple[Decision, ...]]:
    """What is to be decided, and what has failed, each the largest first. `reached`: whose cap lets no turn begin."""
    sizes = queries.sizes(report, {item.task for item in found.items if item.task})
    nothing = Size()
    red = condition.grade is Grade.RED
    # a daemon that runs goes on with the configuration that it has read
    harmless = {*(() if red else (Need.HEALTH,)), *(() if red or not condition.running else (Need.CONFIG, Need.DAEMON))}
    decisions = []
    for item in found.items:
        size = sizes.get(item.task, nothing)
        stops = item.kind in _STOPS and item.kind not in harmless
        if stops or (item.kind is Need.CAP and item.id == reached):
            size = replace(size, blocks=condition.open)
        elif item.kind in DISMISSIBLE:
            size = replace(size, blocks=0)
        decisions.append(Decision(condition.place, item, size.title, size.blocks, size.usd))
    decisions.sort(key=lambda one: one.size)
    failed = [one for one in decisions if one.item.kind is Need.FAILED]
    failed.sort(key=lambda one: (-one.usd, one.item.since or ""))
    return tuple(one for one in decisions if one.item.kind is not Need.FAILED), tuple(failed)


def _results(report: Report, place: Place, unread: Sequence[Row], seen: Seen) -> tuple[Result, ...]:
    def result(row: Row) -> Result:
        told = {"task": row["local_id"], "title": row["title"], "answer": first_line(row["answer"])}
        return Result(place, row["id"], at=row["at"], unread=not seen.has_read(row["id"], row["at"]), **told)

    return tuple(map(result, unread or queries.latest_results(report, LATEST)))


def _running(place: Place, row: Row) -> Running:
    counts = {name: row[name] for name in ("done", "planned", "failed", "skipped")}
    return Running(place, row["id"], row["local_id"], row["title"], row["agent"], row["since"], **counts)


def _later(place: Place, row: LaterTask | RepetitionDetails, zone: str) -> Later:
    if row["kind"] == "task":
        time = told(row["at"], called(zone))
        return Later(place, row["kind"], row["name"], row["title"], row["at"], time)
    time = told(row["at"], called(row["zone"] or zone))
    run = {"repeat": row["repeat"], "paused": row["paused"], "problem": row["problem"], "open": row["open"] or ""}
    return Later(place, row["kind"], row["name"], row["title"], row["at"], time, **run)


def _spent(report: Report, now: str, place: Place, zone: str, standing: Standing | None) -> Spent:
    days = _latest_days(now, zone)
    sums = queries.spent_on(report, days)
    return Spent(
        (Spender(place, sums[-1], standing),),
        tuple((day.name, one) for day, one in zip(days, sums, strict=True)),
        standing,
    )


def _latest_days(now: str, zone: str) -> list[Day]:
    """The last `DAYS` days in this zone, today last."""
    where = called(zone) if zone else None  # the machine's, without loading what finds out its name
    days = [day_of(now, where)]
    while len(days) < DAYS:
        days.append(day_of(plus(days[-1].start, -1), where))
    return days[::-1]


def everywhere(
    clock: Clock,
    environ: Mapping[str, str],
    roots: Iterable[Path],
    agent_of: Callable[[Workspace], str],
    hosts: Iterable[HostRow] = (),
    *,
    most: int | None = MOST,
) -> Overview:
    """The overview of the workspaces at `roots` for the user of `environ`, and of other hosts as for `together`.

    `agent_of` returns the agent that a workspace's configuration names; empty if that cannot be read. A workspace that
    cannot be read is a thing to decide. Raises nothing.
    """
    found = {ws: agent_of(ws) for ws in map(Workspace, roots)}
    companions = [name for name in found.values() if name]
    paused = standstills.standstill(environ)
    parts = [_part(ws, clock, agent, environ, paused, companions, most) for ws, agent in found.items()]
    return together(clock.now(), parts, hosts)


def _part(
    ws: Workspace,
    clock: Clock,
    agent: str,
    environ: Mapping[str, str],
    paused: Standstill | None,
    companions: Collection[str],
    most: int | None,
) -> Overview:
    now, place, program = clock.now(), Place(str(ws.root), agent), attention.program_for(ws)
    if not ws.state.is_dir():
        return unreadable(now, place, "the workspace no longer exists")
    seen = seen_items.seen(ws.root, environ, now)
    try:
        with opened(ws.database) as report:
            name = agent or report.agent() or ""
            return read(ws, report, clock, name, program, seen, most=most, paused=paused, companions=companions)
    except (MailboxdError, OSError) as error:
        return unreadable(now, place, first_line(str(error)))


def unreadable(now: str, place: Place, trouble: str) -> Overview:
    """The overview of a workspace that cannot be read: a person has to mend that."""
    item = Item(Need.HEALTH, trouble, f"mailboxd -w {shlex.quote(place.workspace)} doctor")
    nothing: Section[Any] = Section()
    decide = Section((Decision(place, item),), 1)
    condition = Condition(place, Grade.RED, troubles=(trouble,))
    return Overview(now, decide, nothing, nothing, nothing, nothing, Spent(), (condition,))


def together(now: str, parts: Sequence[Overview], hosts: Iterable[HostRow] = ()) -> Overview:
    """The overview of several workspaces, and of other hosts as `hub.report.HubReport.rows` has them."""
    others = [_of_host(now, row) for row in hosts]
    parts = [*parts, *others]
    decide, repeated = _once([line for part in parts for line in part.decide.lines])
    unread = sum(part.finished.total for part in parts)
    results = [line for part in parts for line in part.finished.lines if line.unread or not unread]
    results.sort(key=lambda line: line.at, reverse=True)
    return Overview(
        now,
        Section(tuple(sorted(decide, key=lambda one: one.size)), sum(part.decide.total for part in parts) - repeated),
        _joined((part.failed for part in parts), lambda one: (-one.usd, one.item.since or "")),
        Section(tuple(results if unread else results[:LATEST]), unread),
        _joined((part.running for part in parts), lambda one: one.since),
        _joined((part.later for part in parts), lambda one: (bool(one.paused), one.at)),
        _together_spent([part.spent for part in parts]),
        tuple(place for part in parts for place in part.places),
    )


def _joined(sections: Iterable[Section[T]], key: Callable[[T], Any]) -> Section[T]:
    found = [*sections]
    lines = sorted((line for section in found for line in section.lines), key=key)
    return Section(tuple(lines), sum(section.total for section in found))


def _once(decisions: Sequence[Decision]) -> tuple[list[Decision], int]:
    """Without what several workspaces say of their host, and how often that was left out."""
    kept: dict[object, Decision] = {}
    for number, one in enumerate(decisions):
        of_host = one.item.kind is Need.PAUSED or (one.item.kind is Need.CAP and one.item.id == "host")
        key = (one.place.host, one.item.kind) if of_host else number
        before = kept.setdefault(key, one)
        if before is not one:
            kept[key] = replace(before, blocks=before.blocks + one.blocks)
    return [*kept.values()], len(decisions) - len(kept)


def _together_spent(parts: Sequence[Spent]) -> Spent:
    agents = sorted((one for part in parts for one in part.agents), key=_dearest)
    days: dict[str, Spend] = {}
    for part in parts:
        for day, spend in part.days:
            days[day] = days.get(day, NOTHING) + spend
    standings = [part.host for part in parts if part.host is not None]
    # the daemon that has written last knows most of what was spent
    host = max(standings, key=lambda one: (one.day, one.host.share, one.host.spent.usd), default=None)
    return Spent(tuple(agents), tuple(sorted(days.items())[-DAYS:]), host)


def _dearest(one: Spender) -> tuple[int, int, int, str]:
    return -one.today.usd, -one.today.tokens, -one.today.turns, one.place.agent


def _of_host(now: str, row: HostRow) -> Overview:
    """What another host tells of itself: its agents, and what waits there."""
    host = row["host"]
    lines = [
        Decision(
            Place("", item["agent"], host),
            Item(
                Need(item["kind"]) if item["kind"] in _NEEDS else Need.HEALTH,
                item["text"],
                item["command"],
                item["since"],
                item["task"],
                item["id"],
                item["until"],
                item["details"],
                item["tasks"],
            ),
            may_decide=item["may_decide"],
        )
        for item in row["attention"]
    ]
    silent = row["state"] != "ok"
    places = [
        Condition(
            Place("", agent, host),
            Grade.RED if silent else Grade(card["health"]) if card["health"] in _GRADES else Grade.OFF,
            running=not silent,
            troubles=tuple(([row["why"]] if row["why"] else []) + row["troubles"]) if not number else (),
            open=card["open"],
        )
        for number, (agent, card) in enumerate(row["agents"].items() or [(host, _NO_AGENT)])
    ]
    failed = [line for line in lines if line.item.kind is Need.FAILED]
    decide = [line for line in lines if line.item.kind is not Need.FAILED]
    nothing: Section[Any] = Section()
    return Overview(
        now,
        Section(tuple(decide), row["attention_count"] - len(failed)),
        Section(tuple(failed), len(failed)),
        nothing,
        nothing,
        nothing,
        Spent(),
        tuple(places),
    )


_NO_AGENT: AgentThere = {"role": "", "health": "", "open": 0, "waiting": 0}
_NEEDS, _GRADES = frozenset(map(str, Need)), frozenset(map(str, Grade))
