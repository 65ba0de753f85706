"""What happened, as the events of one journal tell it: who asked, who did what at which cost, who was told. Pure.

Nothing here judges. Events come from an archive that nobody vouches for yet: what has no form of its own is counted in
`Story.unread`, texts are cut, and of everything only so much is kept; `Story.left_out` says how much is not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mailboxd.core.events import VERSION, Kind, upcast
from mailboxd.core.spending import Spend
from mailboxd.core.vocabulary import Phase, state_words
from mailboxd.core.votes import Copy, votes_of

if TYPE_CHECKING:
    from mailboxd.operate.auditor.place import Place

TASKS = 3000
"""Tasks that are told; of more, the latest."""
_EACH = 200
"""Of one task: turns, reviews, artifacts and so on."""
_ENTRIES = 5000
"""Of a whole journal: what was told, rejected files, changes."""
BUDGET = 100_000
"""Entries of all kinds, with the findings of reviews and the fields of changes: none takes more than some kilobytes."""
_NAMES = 1000
"""Agents and owners with a sum of their own."""
_OTHERS = "(others)"
_WORDS, _LINE, _RESULT = 1000, 300, 4000
_LARGEST = 10**15
_DECIDED = {"approved": "approve", "rejected": "reject", "request_changes": "ask-changes"}


@dataclass(frozen=True, slots=True)
class Stands:
    """Where an entry stands: the event and its line, and the time that it says (UTC)."""

    event: int
    where: Place
    at: str


@dataclass(slots=True)
class Came:
    """A file as its event has it. `claimed` is what the file only says of itself; None or empty: not recorded."""

    stands: Stands
    sender: str
    name: str
    sha256: str
    owner_uid: int | None
    owner: str
    came: str
    claimed: str
    signer: str
    problem: str = ""
    """Why it was rejected."""
    path: str = ""
    """Where it was filed, below mailbox/."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of an agent. An empty `model`, `run` or `prompt` was not reported, or not recorded."""

    stands: Stands
    purpose: str
    agent: str
    model: str
    run: str
    outcome: str
    said: str
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    prompt: str
    """SHA-256 of the bytes that the agent was given."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding of a review. `line` 0: none."""

    severity: str
    message: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Review:
    stands: Stands
    gate: str
    reviewer: str
    verdict: str
    summary: str
    findings: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class DecisionRules:
    """The rules for decisions from an event on: the fields `approvals.*` and `gates.*`, as they are shown."""

    event: int
    where: Place
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision about an approval, and the policy that counted: that of the event which it names."""

    stands: Stands
    approval: str
    action: str
    status: str
    by: str
    note: str
    policy: DecisionRules | None


@dataclass(frozen=True, slots=True)
class Artifact:
    stands: Stands
    id: str
    kind: str
    by: str
    address: str
    sha256: str
    summary: str


@dataclass(frozen=True, slots=True)
class Given:
    """What a person said with an order."""

    stands: Stands
    by: str
    order: str
    note: str


@dataclass(frozen=True, slots=True)
class Told:
    """What people were told, or could not be (`sent` False: `why`). `sha256` is of the words as they were sent."""

    stands: Stands
    task: str
    to: str
    what: str
    sent: bool
    words: str
    sha256: str
    why: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the configuration; None: there was none, or is none any more."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the configuration that decides what is allowed. `first`: it was recorded for the first time."""

    stands: Stands
    by: str
    first: bool
    fields: tuple[Field, ...]


@dataclass(slots=True)
class Cost:
    """A sum of turns. What a peer reported about its own work is in `reported_usd`, unchecked and not in `cost_usd`."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown: int = 0
    """Turns without a known cost, as the caps of a day count them."""
    reported_usd: float = 0.0
    reported_tokens: int = 0

    def add(self, more: Cost) -> None:
        self.turns += more.turns
        self.input_tokens += more.input_tokens
        self.output_tokens += more.output_tokens
        self.cost_usd += more.cost_usd
        self.unknown += more.unknown
        self.reported_usd += more.reported_usd
        self.reported_tokens += more.reported_tokens


@dataclass(slots=True)
class Owned:
    """How many files of one owner were accepted and rejected."""

    accepted: int = 0
    rejected: int = 0


@dataclass(slots=True)
class TaskStory:
    """What happened to one task."""

    stands: Stands
    id: str
    key: str
    name: str
    """Its id for people, like `report.figures`."""
    title: str
    root: str
    parent: str | None
    sender: str
    executor: str
    phase: str
    is_vote: bool
    """Its subtasks vote."""
    result_summary: str = ""
    result: str = ""
    answer: str = ""
    ended_at: str = ""
    asked: Came | None = None
    cost: Cost = field(default_factory=Cost)
    turns: list[Turn] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    decisions: list[Decided] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    left_out: int = 0
    """Entries beyond those that are kept of one task, or of all."""
    size: int = 0
    """What its entries take of the budget."""

    @property
    def state(self) -> str:
        try:
            return state_words(self.phase)
        except (ValueError, KeyError):
            return "?"


@dataclass(slots=True)
class Story:
    """Takes events in their order."""

    tasks: dict[str, TaskStory] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    rejected: list[Came] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    """By agent."""
    owners: dict[tuple[int | None, str], Owned] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    """Tasks, notices, rejected files and changes beyond those that are kept."""
    counts: dict[str, int] = field(default_factory=lambda: {"told": 0, "rejected": 0, "changes": 0})
    unread: int = 0
    """Events that have another form than mailboxd writes, or are of a newer version."""
    policy: DecisionRules | None = None
    _policies: dict[int, DecisionRules] = field(default_factory=dict)
    _trees: dict[str, list[str]] = field(default_factory=dict)
    """Root -> its tasks."""
    _size: int = 0
    _unfiled: dict[str, Came] = field(default_factory=dict)

    def take(self, where: Place, said: Mapping[str, Any]) -> None:
        """The next event, of any shape."""
        try:
            data = said["data"]
            if data.get("v", 1) not in (1, VERSION):
                raise ValueError("of another version")
            kind, data = upcast(said["kind"], data)
            stands = Stands(int(said["seq"]), where, str(said["at"])[:40])
            task = self.tasks.get(said["task"]) if isinstance(said["task"], str) else None
            if kind is Kind.TASK_CREATED:
                task = self._created(stands, data)
            if task is not None:
                self._of_task(task, stands, data, _text(said, "actor"))
            turn = data.get("turn")
            if isinstance(turn, dict):
                self._turn(task, stands, turn)
            if (taker := _TAKERS.get(kind)) is not None:
                taker(self, task, stands, data, said)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            self.unread += 1

    @property
    def total(self) -> Cost:
        total = Cost()
        for cost in self.costs.values():
            total.add(cost)
        return total

    def trees(self) -> Iterator[list[TaskStory]]:
        """Each root task with its subtasks after it, in the order of their making."""
        for names in self._trees.values():
            yield [self.tasks[name] for name in names]

    def votes(self, task: TaskStory) -> list[dict[str, Any]]:
        """How its subtasks voted, if a majority decides."""
        if not task.is_vote:
            return []
        tree = [self.tasks[name] for name in self._trees.get(task.root, ())]
        copies = [one for one in tree if one.parent == task.id]
        cast = [one for one in copies if one.phase in set(Phase)]
        votes = votes_of([Copy(one.key, one.executor, Phase(one.phase), one.answer, one.result) for one in cast])
        return [asdict(vote) | {"event": one.stands.event} for vote, one in zip(votes, cast, strict=True)]

    # Tasks

    def _created(self, stands: Stands, data: Mapping[str, Any]) -> TaskStory | None:
        row = data["task"]
        name = row["id"]
        root = row["root"] if row.get("parent") else name
        if not isinstance(name, str) or not isinstance(root, str) or len(name) > _LINE or name in self.tasks:
            raise ValueError("no new task")
        tree = self._trees.get(root)
        if tree is None or len(tree) >= TASKS:
            if row.get("parent"):
                self._leave_out("tasks")
                return None
            tree = self._trees[name] = []
        policy = row.get("policy")
        made = TaskStory(
            stands, name, _text(row, "key"), _text(row, "local_id"), _text(row, "title"), root,
            _text(row, "parent") or None, _text(row, "sender"), _text(row, "executor"), _text(row, "phase"),
            bool(row.get("broadcast")) and isinstance(policy, dict) and policy.get("join") == "majority",
        )  # fmt: skip
        tree.append(name)
        self.tasks[name] = made
        while len(self.tasks) > TASKS and len(self._trees) > 1:
            for old in self._trees.pop(next(iter(self._trees))):
                self._size -= self.tasks.pop(old).size
                self._leave_out("tasks")
        return self.tasks.get(name)

    def _of_task(self, task: TaskStory, stands: Stands, data: Mapping[str, Any], actor: str) -> None:
        """What an event of any kind may say of its task."""
        changes = data.get("changes")
        if isinstance(changes, dict):
            task.phase = _text(changes, "phase") or task.phase
            task.executor = _text(changes, "executor") or task.executor
            task.title = _text(changes, "title") or task.title
            task.result_summary = _text(changes, "result_summary", _WORDS) or task.result_summary
            task.result = _text(changes, "result", _RESULT) or task.result
            task.answer = _text(changes, "answer", _RESULT) or task.answer
            task.ended_at = _text(changes, "completed_at") or task.ended_at
        artifacts = data.get("artifacts")
        for one in artifacts if isinstance(artifacts, list) else ():
            self._keep(task, task.artifacts, _artifact(stands, one))
        given = data.get("given")
        if isinstance(given, dict):
            words = Given(stands, actor, _text(given, "name"), _text(given, "note", _WORDS))
            self._keep(task, task.given, words)

    def _turn(self, task: TaskStory | None, stands: Stands, said: Mapping[str, Any]) -> None:
        usage, prompt = said.get("usage"), said.get("prompt")
        usage = usage if isinstance(usage, dict) else {}
        turn = Turn(
            stands, _text(said, "purpose"), _text(said, "agent"), _text(said, "model"), _text(said, "run"),
            _text(said, "outcome"), _text(said, "said"), _count(usage, "input_tokens"), _count(usage, "output_tokens"),
            _amount(usage, "cost_usd"), _text(prompt, "sha256") if isinstance(prompt, dict) else "",
        )  # fmt: skip
        used, made, usd = turn.input_tokens or 0, turn.output_tokens or 0, turn.cost_usd or 0.0
        called = said.get("ran") is not False and not said.get("delivered")
        unknown = Spend.of({"input_tokens": used, "output_tokens": made, "cost_usd": usd}, ran=called).turns
        cost = Cost(1, used, made, usd, unknown)
        self._spend(task, turn.agent, cost)
        if task is not None:
            self._keep(task, task.turns, turn)

    def _spend(self, task: TaskStory | None, agent: str, cost: Cost) -> None:
        name = agent if agent in self.costs or len(self.costs) < _NAMES else _OTHERS
        self.costs.setdefault(name, Cost()).add(cost)
        if task is not None:
            task.cost.add(cost)

    def _reported(self, task: TaskStory | None, _at: Stands, data: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        usage = data["usage"]
        tokens = (_count(usage, "input_tokens") or 0) + (_count(usage, "output_tokens") or 0)
        usd = _amount(usage, "cost_usd") or 0.0
        self._spend(task, _text(data, "agent"), Cost(reported_usd=usd, reported_tokens=tokens))

    def _reviewed(self, task: TaskStory | None, stands: Stands, data: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        row = data["review"]
        found = row.get("findings")
        remarks = tuple(_remark(one) for one in (found if isinstance(found, list) else [])[:_EACH])
        if task is not None:
            review = Review(
                stands, _text(row, "gate"), _text(row, "reviewer"), _text(row, "verdict"),
                _text(row, "summary", _WORDS), remarks,
            )  # fmt: skip
            self._keep(task, task.reviews, review, 1 + len(remarks))

    def _resolved(self, task: TaskStory | None, stands: Stands, data: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        changes, named = data["changes"], data.get("policy")
        policy = self._policies.get(named) if type(named) is int else self.policy
        status, by, note = _text(changes, "status"), _text(changes, "resolved_by"), _text(changes, "note", _WORDS)
        if task is None:
            return
        decided = Decided(stands, _text(data, "approval"), _text(data, "action"), status, by, note, policy)
        self._keep(task, task.decisions, decided)
        if note and status in _DECIDED:
            self._keep(task, task.given, Given(stands, by, _DECIDED[status], note))

    def _steered(self, task: TaskStory | None, stands: Stands, data: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        if task is not None and data.get("by"):
            self._keep(task, task.given, Given(stands, _text(data, "by"), "steer", _text(data, "text", _WORDS)))

    def _keep(self, task: TaskStory, entries: list[Any], entry: object, size: int = 1) -> None:
        if len(entries) < _EACH and self._size + size <= BUDGET:
            entries.append(entry)
            task.size += size
            self._size += size
        else:
            task.left_out += 1

    # Files

    def _received(self, task: TaskStory | None, stands: Stands, data: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        row = data["message"]
        came, name = _came(stands, row), _text(row, "id")
        rejected = row.get("verdict") == "rejected"
        owner = (came.owner_uid, came.owner)
        if owner not in self.owners and len(self.owners) >= _NAMES:
            owner = (None, _OTHERS)
        owned = self.owners.setdefault(owner, Owned())
        owned.rejected += rejected
        owned.accepted += not rejected
        if rejected:
            self.counts["rejected"] += 1
            self._add("rejected files", self.rejected, came)
        elif task is not None and task.asked is None and row.get("type") == "task" and task.parent is None:
            task.asked = came
        else:
            return
        self._unfiled[name] = came
        if len(self._unfiled) > _ENTRIES:
            del self._unfiled[next(iter(self._unfiled))]

    def _filed(self, _task: TaskStory | None, _at: Stands, data: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        came = self._unfiled.pop(_text(data, "id"), None)
        if came is not None:
            came.path = _text(data, "path")

    # The whole

    def _was_told(
        self, task: TaskStory | None, stands: Stands, data: Mapping[str, Any], said: Mapping[str, Any]
    ) -> None:
        is_order = said["kind"] == Kind.REMOTE_ORDER
        words = (
            _text(data, "answer", _WORDS) if is_order else _text(data, "words", _WORDS) or _text(data, "text", _WORDS)
        )
        about = task.name if task is not None else _text(said, "task")
        told = Told(
            stands, about, _text(data, "by" if is_order else "to"), "order" if is_order else _text(data, "what"),
            said["kind"] != Kind.NOTICE_FAILED, words, _text(data, "sha256"), _text(data, "why"),
        )  # fmt: skip
        self.counts["told"] += 1
        self._add("notices", self.told, told)
        if task is not None:
            self._keep(task, task.told, told)

    def _configured(
        self, _task: TaskStory | None, stands: Stands, data: Mapping[str, Any], _: Mapping[str, Any]
    ) -> None:
        fields = tuple(
            Field(str(path)[:_LINE], _value(one.get("old")), _value(one.get("new")))
            for path, one in list(data["changes"].items())[:_EACH]
        )
        rules = dict(self.policy.fields) if self.policy is not None else {}
        for one in fields:
            if one.path.startswith(("approvals.", "gates")):
                rules.pop(one.path, None)
                if one.new is not None and len(rules) < _EACH:
                    rules[one.path] = one.new
        self.policy = DecisionRules(stands.event, stands.where, rules)
        self._policies[stands.event] = self.policy
        if len(self._policies) > _NAMES:
            del self._policies[next(iter(self._policies))]
        self.counts["changes"] += data.get("first") is not True
        self._add("changes", self.changes, Change(stands, _text(data, "by"), data.get("first") is True, fields))

    def _add(self, thing: str, entries: list[Any], entry: object) -> None:
        """Keep it, and of too many the latest, as of tasks."""
        entries.append(entry)
        self._size += _size(entry)
        while len(entries) > _ENTRIES or (self._size > BUDGET and entries):
            self._size -= _size(entries.pop(0))
            self._leave_out(thing)

    def _leave_out(self, thing: str) -> None:
        self.left_out[thing] = self.left_out.get(thing, 0) + 1


_Taker = Callable[[Story, TaskStory | None, Stands, Mapping[str, Any], Mapping[str, Any]], None]
_TAKERS: Mapping[Kind, _Taker] = {
    Kind.USAGE_REPORTED: Story._reported,
    Kind.REVIEW_APPENDED: Story._reviewed,
    Kind.APPROVAL_RESOLVED: Story._resolved,
    Kind.STEERED: Story._steered,
    Kind.MESSAGE_RECEIVED: Story._received,
    Kind.MESSAGE_REJECTED: Story._received,
    Kind.MESSAGE_FILED: Story._filed,
    Kind.NOTICE_SENT: Story._was_told,
    Kind.NOTICE_FAILED: Story._was_told,
    Kind.REMOTE_ORDER: Story._was_told,
    Kind.CONFIG_CHANGED: Story._configured,
}


def _size(entry: object) -> int:
    return 1 + len(entry.fields) if isinstance(entry, Change) else 1


def _artifact(stands: Stands, said: Mapping[str, Any]) -> Artifact:
    return Artifact(
        stands, _text(said, "id"), _text(said, "kind"), _text(said, "produced_by"), _text(said, "uri", _WORDS),
        _text(said, "sha256"), _text(said, "summary"),
    )  # fmt: skip


def _remark(said: Mapping[str, Any]) -> Remark:
    return Remark(
        _text(said, "severity"), _text(said, "message", _WORDS), _text(said, "file"), _count(said, "line") or 0
    )


def _came(stands: Stands, row: Mapping[str, Any]) -> Came:
    reason = row.get("reason")
    problem = ""
    if isinstance(reason, dict):
        problem = ": ".join(filter(None, (_text(reason, "rule"), _text(reason, "problem"))))
    return Came(
        stands, _text(row, "sender"), _text(row, "name"), _text(row, "sha256"), _count(row, "owner_uid"),
        _text(row, "owner"), _text(row, "came"), _text(row, "claimed"), _text(row, "signer"), problem,
    )  # fmt: skip


def _text(said: Mapping[str, Any], name: str, most: int = _LINE) -> str:
    """One of its texts, cut; empty for whatever is none."""
    found = said.get(name)
    if not isinstance(found, str):
        return ""
    return found if len(found) <= most else f"{found[: most - 1]}…"


def _count(said: Mapping[str, Any], name: str) -> int | None:
    found = said.get(name)
    return found if type(found) is int and 0 <= found <= _LARGEST else None


def _amount(said: Mapping[str, Any], name: str) -> float | None:
    found = said.get(name)
    if type(found) is int and 0 <= found <= _LARGEST:
        return float(found)
    return found if type(found) is float and math.isfinite(found) and 0 <= found <= _LARGEST else None


def _value(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LINE else f"{text[: _LINE - 1]}…"


def facts(story: Story) -> dict[str, Any]:
    """The story as JSON values; each entry has the number of its event, its line and its time."""
    return {
        "tasks": [_task_facts(story, task) for tree in story.trees() for task in tree],
        "told": [_facts(told) for told in story.told],
        "changes": [_facts(change) for change in story.changes],
        "rejected": [_facts(came) for came in story.rejected],
        "owners": [{"owner_uid": uid, "owner": name, **asdict(owned)} for (uid, name), owned in story.owners.items()],
        "costs": {
            "total": asdict(story.total),
            "agents": {agent: asdict(cost) for agent, cost in sorted(story.costs.items())},
        },
        "left_out": story.left_out | {"unread": story.unread},
    }


def _task_facts(story: Story, task: TaskStory) -> dict[str, Any]:
    said = _facts(task)
    for name in ("result", "answer", "is_vote", "key", "told", "size"):
        del said[name]
    said["told"] = [told.stands.event for told in task.told]
    return said | {"state": task.state, "votes": story.votes(task)}


def _facts(entry: Any) -> dict[str, Any]:
    found: dict[str, Any] = asdict(entry, dict_factory=_flat)
    return found


def _flat(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The names and values of an entry, with where it stands among them."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name == "stands":
            found |= value
        else:
            found[name] = str(value) if name == "where" else value
    return found
