"""A workspace, or all of them, as people and scripts are told it: the JSON of `status`, `inbox` and `fleet`.

As in `task_details`, the types say which keys there are; a test compares them with what the commands print. Texts are
empty, and other values None, where there is nothing to tell. Times are ISO-8601 UTC.
"""

from __future__ import annotations

from typing import Generic, Literal, NotRequired, TypedDict, TypeVar, final

from mailboxd.core.explain.task_details import CauseLine, LastSign, NoticeRow, WithState
from mailboxd.core.spending import Amounts, CapDetails

# What waits for a person (`ledger.attention`)


class ItemDetails(TypedDict):
    """`ledger.attention.Item`."""

    kind: str
    text: str
    command: str
    since: str | None
    task: str
    id: str
    until: str | None
    details: str
    tasks: int


# The overview (`ledger.overview`)

Line = TypeVar("Line")


class SectionDetails(TypedDict, Generic[Line]):
    """The most important lines of a section, and how many it has."""

    total: int
    lines: list[Line]


class PlaceDetails(TypedDict):
    """Where a line is from; `host` is empty for this one, and then `workspace` is not."""

    workspace: str
    agent: str
    host: str


class DecisionDetails(ItemDetails, PlaceDetails):
    """`ledger.overview.Decision`."""

    title: str
    blocks: int
    usd: float
    may_decide: bool


class ResultDetails(PlaceDetails):
    """`ledger.overview.Result`."""

    id: str
    task: str
    title: str
    answer: str
    at: str
    unread: bool


class RunningDetails(PlaceDetails):
    """`ledger.overview.Running`; `share` is how much of what is planned is done, 1.0 is all."""

    id: str
    task: str
    title: str
    by: str
    since: str
    done: int
    planned: int
    failed: int
    skipped: int
    share: float


class LaterDetails(PlaceDetails):
    """`ledger.overview.Later`."""

    kind: str
    name: str
    title: str
    at: str
    told: str
    repeat: str
    paused: str
    problem: str
    open: str


class SpenderDetails(PlaceDetails):
    """`ledger.overview.Spender`."""

    today: Amounts
    caps: CapDetails | None


class DayDetails(Amounts):
    """What one day (`2026-11-21`) has cost."""

    day: str


class SpentDetails(TypedDict):
    """`ledger.overview.Spent`."""

    today: Amounts
    agents: list[SpenderDetails]
    host: CapDetails | None
    days: list[DayDetails]


class ConditionDetails(PlaceDetails):
    """`ledger.overview.Condition`; `states` are counts by `vocabulary.STATES`."""

    grade: str
    running: bool
    troubles: list[str]
    states: dict[str, int]
    open: int
    scheduled: int


class OverviewDetails(TypedDict):
    """`ledger.overview.Overview`: `status --host`, and a part of `status`."""

    at: str
    decide: SectionDetails[DecisionDetails]
    failed: SectionDetails[DecisionDetails]
    finished: SectionDetails[ResultDetails]
    running: SectionDetails[RunningDetails]
    later: SectionDetails[LaterDetails]
    spent: SpentDetails
    places: list[ConditionDetails]


# The status of one workspace (`cli.commands.status`)


class DaemonDetails(TypedDict):
    """Whether a daemon runs; `pid` is None without one, or if it is unknown. `stopping`: it was asked to end."""

    running: bool
    stopping: bool
    pid: int | None


class TroubleDetails(TypedDict):
    """`formats.health.Trouble`; `slug` names its section of the runbook."""

    slug: str
    where: str
    why: str
    grade: str
    since: str | None
    needs_person: bool


class HealthDetails(TypedDict):
    """`grade` is green, amber, red or off."""

    grade: str
    troubles: list[TroubleDetails]


class Memory(TypedDict):
    """Bytes: what is free, and what a call takes."""

    free: int
    call: int


class CallDetails(TypedDict):
    """How many calls run, and how many may. `lane`: how many OpenClaw runs at once; `memory`: what prevents more."""

    running: int
    most: int
    most_per_agent: int
    lane: int | None
    memory: Memory | None


class OpenTask(WithState):
    """An open root task."""

    local_id: str
    title: str
    status: str
    reason: str


class StandstillDetails(TypedDict):
    """Who has paused every agent of the host, and why."""

    by: str
    at: str
    note: str


class LaterTask(TypedDict):
    """A task with a beginning to come."""

    kind: Literal["task"]
    name: str
    title: str
    at: str


class RepetitionDetails(TypedDict):
    """Work that is done again and again; `at` is the next time."""

    kind: Literal["repetition"]
    name: str
    title: str
    at: str
    repeat: str
    """Its rule as it was written."""
    rule: str
    zone: str
    missed: str
    overlap: bool
    runs: int
    missed_runs: int
    last_at: str | None
    open: str | None
    """The run that has not ended."""
    paused: str
    ended: str
    problem: str
    """Why its latest run could not be made."""
    created_at: str
    id: str
    sender: str


class RunRow(TypedDict):
    """A run of a repetition: its time, and its task."""

    number: int
    at: str
    task: str
    phase: str
    made_at: str


class ShownRepetition(RepetitionDetails):
    """`show` of a repetition: also its latest runs, the latest first."""

    history: list[RunRow]


class BreakerDetails(TypedDict):
    """An agent that gets no turns until then (`open`), or one as a trial (`half_open`)."""

    agent: str
    state: str
    until: str | None
    why: str


class MessageCounts(TypedDict):
    """Files: received = archived + rejected + pending."""

    received: int
    archived: int
    rejected: int
    sent: int
    pending: int


class Coming(TypedDict):
    """What happens next without a person; `at` is None where that is not known, `task` where it is about none."""

    at: str | None
    task: str | None
    what: str


class WhyDetails(TypedDict):
    """`why`."""

    task: str
    state: str
    phase: str
    daemon: DaemonDetails
    because: list[CauseLine]
    notices: list[NoticeRow]
    last_sign: LastSign | None
    next: Coming | None


class StatusDetails(TypedDict):
    """`status` of one workspace. Of the lists in `*_count`, the first are there."""

    at: str
    workspace: str
    agent: str | None
    zone: str
    """Of the operator; empty for that of the machine."""
    daemon: DaemonDetails
    calls: CallDetails | None
    tasks: dict[str, int]
    """By phase."""
    states: dict[str, int]
    """By the four words."""
    open: int
    open_tasks: list[OpenTask]
    open_tasks_count: int
    paused: StandstillDetails | None
    later: list[RepetitionDetails | LaterTask]
    later_count: int
    attention: list[ItemDetails]
    attention_count: int
    breakers: list[BreakerDetails]
    paced: dict[str, str]
    """Agents that have used their turns of the hour, and until when they get no others."""
    limits: dict[str, int] | None
    spending: list[CapDetails]
    messages: MessageCounts
    next: Coming | None
    health: NotRequired[HealthDetails]
    overview: NotRequired[OverviewDetails]


class UnreadableStatus(TypedDict):
    """`status` of a workspace whose health is red and that cannot be read."""

    workspace: str
    health: HealthDetails
    error: str


# The lines of the fleet (`cli.commands.fleet`): workspaces here, and other hosts as their cards show them


@final
class LostWorkspace(TypedDict):
    """A workspace that is gone, or that cannot be read."""

    agent: str | None
    workspace: str
    state: Literal["gone", "unreadable"]
    why: str
    attention: list[ItemDetails]
    """None."""
    attention_count: int


@final
class WorkspaceRow(TypedDict):
    """A workspace."""

    agent: str | None
    workspace: str
    state: Literal["ok"]
    why: str
    daemon: DaemonDetails
    health: str
    """As in `HealthDetails`, with what the configuration makes of it."""
    troubles: list[str]
    """What mends itself."""
    inbox: int
    """Files in it."""
    open: int
    """Open tasks."""
    phases: dict[str, int]
    """The same by phase."""
    states: dict[str, int]
    """By the four words."""
    latest: str | None
    """When something was last recorded."""
    attention: list[ItemDetails]
    """The first."""
    attention_count: int


class ItemThere(ItemDetails):
    """What waits for a person on another host, with the command to give here."""

    agent: str
    """`HOST.AGENT`."""
    host: str
    may_decide: bool
    """Whether a person here may; else the command is one for that host."""


class AgentThere(TypedDict):
    """`hub.wire.presence.AgentCard`."""

    role: str
    health: str
    open: int
    waiting: int


class MailThere(TypedDict):
    """`hub.wire.presence.MailCard`."""

    out: int
    since: str
    held: int
    again: int
    repeats: int
    refused: int


@final
class HostRow(TypedDict):
    """Another host."""

    agent: None
    host: str
    workspace: str
    """Empty."""
    state: Literal["ok", "silent"]
    why: str
    seen: str | None
    """When its last card came; None: it was never heard from."""
    health: str
    """The worst of its agents'."""
    agents: dict[str, AgentThere]
    """By `HOST.AGENT`."""
    pools: dict[str, int]
    """How many jobs at a time it takes, by role."""
    open: int
    """Open tasks."""
    mail: MailThere | None
    skew: float
    """Seconds that its clock is ahead."""
    set_back_at: str | None
    troubles: list[str]
    attention: list[ItemThere]
    attention_count: int


FleetRow = WorkspaceRow | LostWorkspace | HostRow
