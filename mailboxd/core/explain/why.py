"""Why a task is not finished: what it waits for, down to the root causes, and what happens next.

Pure: `store.explain_queries` loads a `Snapshot` of the task and of everything it waits for, and `explain` puts it into
words. Each phase has one function for its cause; a blocker (budget, breaker, gateway, rate limit) comes before it. The
tasks that are waited for are explained below the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mailboxd.core.budget import is_paused, limit_of, money
from mailboxd.core.endings import becomes, until
from mailboxd.core.explain.model import (
    MOST_AHEAD,
    Ahead,
    AttemptSummary,
    Cause,
    Ending,
    LastEvent,
    PendingEffect,
    Snapshot,
    TaskSnapshot,
)
from mailboxd.core.followed import is_in_vain
from mailboxd.core.handovers import is_held as is_handed_over
from mailboxd.core.returned import is_held as is_returned
from mailboxd.core.sanitize import beyond_first_line, first_line, one_line
from mailboxd.core.spending import of_cap, raising, sentence
from mailboxd.core.standstill import OVER
from mailboxd.core.stopping import stopped
from mailboxd.core.times import moment, plus, to_epoch
from mailboxd.core.vocabulary import (
    CANNOT_HELP,
    FOR_PERSON,
    LOOKUP_SECONDS,
    MAY_CONTINUE,
    NO_SUCH_AGENT,
    NOT_KNOWN_YET,
    POOL,
    AttemptStatus,
    Phase,
    Waiting,
    WaitsFor,
    same_agent,
)

# Blockers: what keeps a turn from starting although its task is ready: a budget, a breaker, a rate limit.


def blocker(task: TaskSnapshot, snapshot: Snapshot) -> Cause | None:
    """The blocker that hides the cause of the task's phase; None if there is none."""
    cause = _blocker_now(task, snapshot)
    pause = task.not_before if task.phase is Phase.EXECUTION_READY else None
    if (
        cause is not None
        and cause.kind != "gateway"
        and cause.then
        and pause is not None
        and (cause.at or snapshot.now) <= pause
    ):
        return None  # it ends before the pause after a failure does
    return cause


def _blocker_now(task: TaskSnapshot, snapshot: Snapshot) -> Cause | None:
    if task.phase.is_terminal or task.phase is Phase.CIRCUIT_OPEN:
        return None
    if is_paused(task.held):
        return Cause(task.local_id, "paused", f"is {task.held}", hint=f"mailboxd resume {task.local_id}")
    if then := next((then for is_so, then in _BY_RETRY if is_so(task.held)), ""):
        hint = f"mailboxd retry {task.local_id}  # {then}; or mailboxd cancel {task.local_id}"
        return Cause(task.local_id, "order", stopped(task.held), hint=hint)
    if task.held:
        hint = f"mailboxd retry {task.local_id}{task.raised}  # allows the same amount again"
        if limit := limit_of(task.held):
            hint += f"; or raise {limit} in .mailboxd/config.yaml and restart the daemon"
        hint += f"; or mailboxd cancel {task.local_id}"
        return Cause(task.local_id, "budget", stopped(task.held), hint=hint)
    if task.paused_by:
        text = f"performs nothing: {task.paused_by} above it is paused"
        return Cause(task.local_id, "paused", text, hint=f"mailboxd resume {task.paused_by}")
    agent = _next_agent(task, snapshot)
    if snapshot.standstill and (agent or _is_to_begin(task)):
        return Cause(task.local_id, "paused", f"waits: {first_line(snapshot.standstill)}", hint=OVER)
    if not agent:
        return None
    if task.held_by:
        text = f"gets no turn: {task.held_by} above it has stopped"
        return Cause(task.local_id, "budget", text, hint=f"mailboxd why {task.held_by}")
    if (why := snapshot.gone.get(agent)) is not None:
        if why.startswith(NOT_KNOWN_YET):
            then = "it begins once that host was heard"
            return Cause(task.local_id, "hub", f"waits for {agent}: {first_line(why)}", then=then)
        if why.startswith(NO_SUCH_AGENT):
            hint = "mailboxd doctor  # names the command that adds it"
            return Cause(task.local_id, "gone", f"waits for its agent: {first_line(why)}", hint=hint)
        hint = f"restore {agent}, name another agent in task.md, or mailboxd cancel {task.local_id}"
        if task.phase in _GATES:
            hint = _new_reviewers(task)
        return Cause(task.local_id, "gone", f"waits for an agent: {first_line(why)}", hint=hint)
    if snapshot.gateway:
        then = "it continues within seconds once the gateway is back"
        return Cause(task.local_id, "gateway", f"waits for the gateway: {first_line(snapshot.gateway)}", then=then)
    if (cause := _capped(task, agent, snapshot)) is not None:
        return cause
    breaker = snapshot.breakers.get(agent.lower())
    if breaker is not None and breaker.until is not None:
        text = f"waits for {agent}, which {stopped(breaker.reason)}"
        hint = f"mailboxd resume --agent {agent}  # lets it go on now"
        return Cause(task.local_id, "breaker", text, at=breaker.until, then="one trial turn may run", hint=hint)
    if breaker is not None and any(call.agent.lower() == agent.lower() for call in snapshot.calls):
        text = f"waits for the trial turn of {agent}, which had {stopped(breaker.reason)}"
        return Cause(task.local_id, "breaker", text, then="the agent goes on, or stops again")
    if task.phase is Phase.EXECUTION_READY and (at := snapshot.paced.get(agent)) is not None:
        text = f"{agent} has used all its turns for this hour (`limits.turns_per_agent_hour`)"
        hint = "or raise limits.turns_per_agent_hour in .mailboxd/config.yaml and restart the daemon"
        return Cause(task.local_id, "pace", text, at=at, then="its next turn may start", hint=hint)
    return None


_BY_RETRY = ((is_in_vain, "begins without that"), (is_handed_over, "lets it go on"), (is_returned, "does it"))
"""Why a task can be held that is in order itself, and what a retry means then."""


def _is_to_begin(task: TaskSnapshot) -> bool:
    """Whether what comes next for the task begins something other than a turn: its subtasks, a check, an action."""
    if task.phase is Phase.EXECUTION_READY:
        return not task.unmet and task.parent_live
    return any(order.kind in ("run_check", "prepare", "perform") for order in task.pending)


def _capped(task: TaskSnapshot, agent: str, snapshot: Snapshot) -> Cause | None:
    """That its turn would exceed what a day may cost; what another host does is not counted here."""
    if snapshot.spending is None or "." in agent or agent.startswith(POOL):
        return None
    if (account := snapshot.spending.reached) is not None:
        text = f"waits for the cap of the day: {sentence(account)}"
        then = "a new day begins, and turns with it"
        return Cause(
            task.local_id,
            "cap",
            text,
            at=snapshot.spending.until,
            then=then,
            hint=f"{raising(account)}  # without --today: for good",
        )
    if snapshot.reserved:
        account = snapshot.spending.agent if snapshot.reserved == "agent" else snapshot.spending.host
        text = f"waits for running turns, for which the rest of the cap is reserved ({of_cap(account)})"
        return Cause(task.local_id, "reserved", text, then="what they did not need is free for it")
    return None


_GATES = frozenset({Phase.SPEC_REVIEW, Phase.SPEC_GATE, Phase.QUALITY_GATE})


def _new_reviewers(task: TaskSnapshot) -> str:
    others = f"mailboxd retry {task.local_id} --reviewers none"
    if task.own_reviewers or task.own_gates:  # doctor checks what the configuration says
        how = "or let its own be asked in OpenClaw, and it goes on by itself"
        if not task.own_reviewers:
            how = "it also goes on after a restart with other gates.reviewers in .mailboxd/config.yaml"
        return f"{others}  # it passes without a review; in place of none, name others who are to review it; {how}"
    return (
        "mailboxd doctor  # says what lets a reviewer be asked; then it goes on by itself, as after a restart with "
        f"other gates.reviewers in .mailboxd/config.yaml; or {others} (or with names in place of none)"
    )


def _next_agent(task: TaskSnapshot, snapshot: Snapshot) -> str:
    """The agent whose turn comes next for the task; empty if something else does."""
    if task.phase is Phase.EXECUTION_READY:
        return "" if task.unmet or not task.parent_live or task.coordinates else task.executor
    running = snapshot.room.running if snapshot.room is not None else ()
    return next((order.agent for order in task.pending if order.kind == "run_turn" and order.id not in running), "")


# Explanations

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Explanation:
    causes: tuple[Cause, ...]
    next: Cause | None
    """The cause whose `then` comes first, if any."""
    last_activity: LastEvent | None


def explain(snapshot: Snapshot, task_id: str, cannot_begin: tuple[str, str] | None = None) -> Explanation:
    """The causes of a task's waiting: its own first, below it those of the tasks that it waits for, recursively.

    `cannot_begin`: why no daemon can start, or that the running one stops, and the command that mends it.
    """
    task = snapshot.tasks[task_id]
    causes = list(_walk(snapshot, task))
    if not task.phase.is_terminal and (snapshot.daemon is None or cannot_begin is not None):
        why, mend = cannot_begin or ("nothing happens until one is", "mailboxd run")
        text = f"no daemon is running in this workspace: {why}" if snapshot.daemon is None else why
        causes.insert(0, Cause(task.local_id, "daemon", text, hint=mend))
    return Explanation(tuple(causes), first_to_happen(causes, snapshot.now), snapshot.last_activity)


_TOLD: Mapping[str, WaitsFor] = {
    "question": WaitsFor.PERSON,
    "circuit": WaitsFor.PERSON,
    "approval": WaitsFor.PERSON,
    "spec": WaitsFor.PERSON,
    "paused": WaitsFor.PERSON,
    "order": WaitsFor.PERSON,
    "reviewers": WaitsFor.REVIEWER,
    "budget": WaitsFor.BUDGET,
    "cap": WaitsFor.BUDGET,
    "pace": WaitsFor.LIMIT,
    "gone": WaitsFor.AGENT,
    "breaker": WaitsFor.BREAKER,
    "gateway": WaitsFor.GATEWAY,
}
"""The kinds of causes that the sender of the work is told of, because it cannot see them."""


def cause_for_sender(explanation: Explanation) -> Cause | None:
    """The cause of waiting that the sender of a task is told; None if it goes on."""
    causes = [cause for cause in explanation.causes if _is_told(cause)]
    # what a person must do comes before what passes by itself
    causes.sort(key=lambda cause: _waits_for(cause) not in FOR_PERSON)
    return next(iter(causes), None)


def _is_told(cause: Cause) -> bool:
    """Whether the sender is told. What a peer says is passed on, so that a chain hears of it up to its beginning."""
    is_news = cause.kind in _TOLD and (cause.hint or cause.at or cause.then)
    return bool(is_news) or cause.at_peer is not WaitsFor.NOTHING


def _waits_for(cause: Cause) -> WaitsFor:
    return _TOLD.get(cause.kind, cause.at_peer)


def told_to_sender(explanation: Explanation) -> tuple[WaitsFor, str]:
    """What the sender of a task is told that it waits for, with the reason in a line: NOTHING if it goes on."""
    cause = cause_for_sender(explanation)
    if cause is None:
        return WaitsFor.NOTHING, ""
    where = f"{cause.task} " if cause.depth else ""
    return _waits_for(cause), first_line(f"{where}{cause.text}", _TOLD_CHARS)


_TOLD_CHARS = 300


def first_to_happen(causes: Sequence[Cause], now: str) -> Cause | None:
    """The cause whose consequence comes first; one without a time can come at once."""
    return min((cause for cause in causes if cause.then), key=lambda cause: cause.at or now, default=None)


def cause_of(task: TaskSnapshot, snapshot: Snapshot) -> Cause:
    """The task's own cause of waiting."""
    return blocker(task, snapshot) or _CAUSES[task.phase](task, snapshot)


def endings(snapshot: Snapshot, task: str = "") -> list[Cause]:
    """The orders that are held to end a task: all, or those about the task with this local id."""
    return [
        Cause(
            held.task,
            "ending",
            ending_text(held, snapshot.now),
            at=held.due,
            then=f"it {becomes(held.name, None)}" if held.approval is None else becomes(held.name, held.approval),
            hint=f"mailboxd undo {held.task}  # takes it back",
        )
        for held in snapshot.endings
        if task in ("", held.task)
    ]


def ending_text(held: Ending, now: str) -> str:
    """`is cancelled in 8 s, ordered by ann`."""
    return f"{becomes(held.name, held.approval)} {until(held.due, now)}, ordered by {held.by}"


def _undoes(task: TaskSnapshot) -> Iterator[Cause]:
    """What is to be undone of what the task did, which moves it no more."""
    for undo in task.undoes:
        if not undo.approval:
            text = f"the undo of {undo.action} is being prepared"
            yield Cause(task.local_id, "undo", text, then="an approval is requested")
        elif undo.is_approved:
            text = f"{undo.action} is about to be undone, as {undo.approval} was approved"
            yield Cause(task.local_id, "undo", text, then="its undo runs, once", hint=f"mailboxd show {undo.approval}")
        else:
            text = f"waits for approval {undo.approval}: undo {undo.action}"
            hint = f"mailboxd show {undo.approval}"
            yield Cause(task.local_id, "undo", text, at=undo.expires_at, then="it expires", hint=hint)


_SOON = 15.0
"""Seconds in which a message is delivered, unless something is in the way."""


def _unsent(task: TaskSnapshot, snapshot: Snapshot) -> Iterator[Cause]:
    """The messages of work that has ended, and did not reach their receivers."""
    for order in task.pending if task.phase.is_terminal else ():
        if order.kind == "send" and to_epoch(snapshot.now) - to_epoch(order.at) >= _SOON:
            text = f"its {order.type} to {order.to} has not been delivered since {moment(order.at, snapshot.now)}"
            hint = "mailboxd inbox  # says what is in the way"
            yield Cause(task.local_id, "sending", text, at=order.not_before, then="it is sent again", hint=hint)


def _walk(snapshot: Snapshot, first: TaskSnapshot) -> Iterator[Cause]:
    """Depth first, each task once. Not recursive: a chain may be longer than Python's stack."""
    seen: set[str] = set()
    stack: list[tuple[TaskSnapshot, int] | Cause] = [(first, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, Cause):
            yield item
            continue
        task, depth = item
        if task.id in seen:
            continue
        seen.add(task.id)
        yield from (replace(ending, depth=depth) for ending in endings(snapshot, task.local_id))
        yield replace(cause_of(task, snapshot), depth=depth)
        yield from (replace(undo, depth=depth) for undo in _undoes(task))
        yield from (replace(unsent, depth=depth) for unsent in _unsent(task, snapshot))
        for tried in task.attempts:
            if task.phase is Phase.CIRCUIT_OPEN or (task.phase in _UNFINISHED and MAY_CONTINUE in tried.error):
                yield _attempt(task, tried, depth + 1, snapshot)
        shown, hidden = _neighbours(snapshot, task)
        if shown and hidden:
            text = f"and {hidden} more; most of them wait for these"
            stack.append(Cause(task.local_id, "more", text, depth + 1))
        stack += [(neighbour, depth + 1) for neighbour in reversed(shown) if neighbour.id not in seen]


_UNFINISHED = frozenset({Phase.FAILED, Phase.CANCELLED})


def _neighbours(snapshot: Snapshot, task: TaskSnapshot) -> tuple[list[TaskSnapshot], int]:
    """The tasks it waits for that get a line, and how many more there are.

    Children that only wait for siblings get none: the siblings are the reason.
    """
    awaited, count = task.needs, task.unmet - len(task.unknown)
    if task.phase is Phase.EXECUTING and _waiting(task) is Waiting.CHILDREN:
        awaited, count = task.children, task.open_children
    elif task.phase is not Phase.EXECUTION_READY:
        return [], 0
    elif task.parent is not None and not task.parent_live:
        awaited, count = (*awaited, task.parent), count + 1
    siblings = set(awaited)
    known = [snapshot.tasks[name] for name in awaited if name in snapshot.tasks]
    shown = [n for n in known if n.parent != task.id or not n.needs or not siblings.issuperset(n.needs)]
    return shown, count - len(shown)


def _waiting(task: TaskSnapshot) -> Waiting:
    latest = task.attempts[-1] if task.attempts else None
    return latest.waiting_for if latest and latest.status is AttemptStatus.RUNNING else Waiting.NOTHING


def _attempt(task: TaskSnapshot, tried: AttemptSummary, depth: int, snapshot: Snapshot) -> Cause:
    said = first_line(tried.error)
    with_ = f" with {tried.model}" if tried.model else ""
    text = f"attempt {tried.ordinal} by {tried.executor}{with_}: {tried.status}{_took(tried)}"
    text += f": {said}" if said else ""
    if tried.status is not AttemptStatus.UNKNOWN and MAY_CONTINUE not in tried.error:
        return Cause(task.local_id, "attempt", text, depth)
    run = f"run {tried.run_id}, " if tried.run_id else ""
    return Cause(
        task.local_id, "attempt", f"{text} ({run}session {tried.session_key})", depth, hint=_check(tried, snapshot)
    )


def _took(tried: AttemptSummary) -> str:
    """Its duration and cost, as far as known."""
    took = [f"{to_epoch(tried.finished_at) - to_epoch(tried.started_at):.1f} s"] if tried.finished_at else []
    took += [f"{tried.tokens} tokens"] if tried.tokens else []
    took += [money(tried.usd)] if tried.usd else []
    return f" after {', '.join(took)}" if took else ""


def _check(tried: AttemptSummary, snapshot: Snapshot) -> str:
    return f"{snapshot.openclaw} tasks show {tried.session_key} --json"


# One function per phase


def _spec_draft(task: TaskSnapshot, snapshot: Snapshot) -> Cause:
    text = task.reason or "its spec is being checked"
    draft = next((order for order in task.pending if order.kind in ("run_turn", "look_up")), None)
    if recovery := _recovery(task, snapshot):
        return recovery
    if draft is not None:
        again = draft.not_before is not None and draft.not_before > snapshot.now
        at = draft.not_before if again else plus(draft.at, task.timeout)
        then = f"{draft.agent} will draft it again" if again else "the draft ends, at the latest"
        text = f"{text}; {draft.agent} is drafting it{_asked_again(draft)}"
        return Cause(task.local_id, "draft", text, at=at, then=then)
    hint = f"mailboxd edit {task.local_id}  # or write its sections in task.md"
    return Cause(task.local_id, "spec", text, hint=hint)


def _gate(task: TaskSnapshot, snapshot: Snapshot) -> Cause:
    gate = task.phase.replace("_", " ")
    running = sum(order.kind == "run_check" for order in task.pending)
    if running:
        text = f"waits for {running} check{'s' * (running != 1)}"
        return Cause(task.local_id, "check", text, then="its checks have run")
    asked = [order for order in task.pending if order.kind in ("run_turn", "look_up")]
    if recovery := _recovery(task, snapshot):
        return recovery
    if task.silent:
        text = f"the {gate} waits for {_some(task.silent)}"
        if asked and asked[0].not_before is not None and asked[0].not_before > snapshot.now:
            text, then = f"{text}, whose last turn failed", f"{asked[0].agent} is asked again"
            return Cause(task.local_id, "review", text, at=asked[0].not_before, then=then)
        text += "".join(_asked_again(order, order.agent) for order in asked)
        at = plus(asked[0].at, task.timeout) if asked else None
        return Cause(task.local_id, "review", text, at=at, then="the review ends" if asked else "")
    text = task.reason or f"there is no reviewer for the {gate}"
    return Cause(task.local_id, "reviewers", text, hint=_new_reviewers(task))


def _ready(task: TaskSnapshot, snapshot: Snapshot) -> Cause:
    start = f"attempt {task.attempts[-1].ordinal + 1 if task.attempts else 1} by {task.executor} starts"
    if task.unmet:
        known = [snapshot.tasks[need].local_id for need in task.needs if need in snapshot.tasks]
        known += [f"{name} (not known here yet)" for name in task.unknown]
        text = f"waits until {_some(known, task.unmet)} {_are(task.unmet)} completed"
        then = "you are asked about what is not known" if task.asked_at else ""
        return Cause(task.local_id, "dependency", text, at=task.asked_at, then=then)
    if not task.parent_live and task.parent is not None:
        parent = snapshot.tasks.get(task.parent)
        text = f"its parent {parent.local_id if parent else task.parent} has not started its subtasks"
        return Cause(task.local_id, "parent", text)
    if task.claimed is not None:
        text = f"waits for {task.claimed[0]}, which writes {task.claimed[1]} in the same workspace"
        return Cause(task.local_id, "claim", text, then=f"{start} when that has ended")
    if task.not_before is not None and task.not_before > snapshot.now:
        if task.begins_later:
            hint = f"mailboxd retry {task.local_id}  # begins now"
            return Cause(task.local_id, "later", "is to begin later", at=task.not_before, then=start, hint=hint)
        text = f"pauses after a failure: {first_line(task.error or task.reason)}"
        hint = f"mailboxd retry {task.local_id}  # skips the pause"
        return Cause(task.local_id, "backoff", text, at=task.not_before, then=start, hint=hint)
    if task.coordinates or not (snapshot.calls or (snapshot.room is not None and snapshot.room.is_short)):
        return Cause(task.local_id, "ready", "is about to start", then=start)
    kind, text = _no_room(snapshot, task.executor)
    behind = _behind(task.ahead)
    then = f"{start} {'in its turn' if behind else 'when a call ends'}"
    return Cause(task.local_id, kind, f"{text}; {behind}" if behind else text, then=then)


def _behind(ahead: Ahead) -> str:
    """What gets its turn before a task, in words; empty if nothing does."""
    if ahead.more:
        return f"behind more than {MOST_AHEAD} tasks"
    parts = [f"{ahead.higher} {'task' if ahead.higher == 1 else 'tasks'} of higher priority"] if ahead.higher else []
    parts += [f"{ahead.of_people} of a person" if ahead.of_people == 1 else f"{ahead.of_people} of people"] * bool(
        ahead.of_people
    )
    parts += [f"{ahead.earlier} that came before"] if ahead.earlier else []
    return f"behind {', '.join(parts[:-1])} and {parts[-1]}" if parts[1:] else f"behind {parts[0]}" if parts else ""


def _no_room(snapshot: Snapshot, agent: str) -> tuple[str, str]:
    """The kind and the text of what keeps a turn of `agent` from starting."""
    room = snapshot.room
    running = [c for c in snapshot.calls if room is None or not c.id or c.id in room.running]
    own = [call for call in running if call.agent == agent]
    calls = "; ".join(f"{c.agent} with {c.task} since {moment(c.at, snapshot.now)}" for c in (own or running)[:_NAMED])
    busy = f"; busy: {calls}" if calls else ""
    if room is not None and room.is_short:
        free, call = ((number or 0) >> 20 for number in (room.free_bytes, room.call_bytes))
        return "memory", f"waits for memory: {free} MiB are free, a call needs {call} MiB{busy}"
    taken = f" ({len(room.running)} of {room.most} are taken)" if room is not None and not own else ""
    return "slot", f"waits for a slot{taken}{busy}"


def _executing(task: TaskSnapshot, snapshot: Snapshot) -> Cause:
    waiting = _waiting(task)
    if waiting is Waiting.CHILDREN:
        text = f"waits for {task.open_children} {'subtask' if task.open_children == 1 else 'subtasks'}"
        if any(order.kind == "create_children" for order in task.pending):
            text += "; more of its plan are being created"
        return Cause(task.local_id, "children", text)
    if waiting is Waiting.NOTHING:
        return Cause(task.local_id, "executing", task.reason or "is running")
    tried = task.attempts[-1]
    if task.asks:
        return _approval(task, snapshot)
    match waiting:
        case Waiting.TURN:
            return _turn(task, tried, snapshot)
        case Waiting.LOOKUP:
            return _recovery(task, snapshot) or _lookup(task, tried, snapshot)
        case Waiting.REPLY:
            return _reply(task, tried, snapshot)
        case _:
            asked = task.question
            hint = f"mailboxd answer {task.local_id}  # opens an editor; or with the answer as text"
            to, whole = (asked.to, asked.text) if asked else ("its sender", task.reason)
            said, more = f"asks {to}: {first_line(whole)}", beyond_first_line(whole)
            then = "the operator is asked" if task.due else ""
            return Cause(task.local_id, "question", said, at=task.due, then=then, details=more, hint=hint)


def _reply(task: TaskSnapshot, tried: AttemptSummary, snapshot: Snapshot) -> Cause:
    which = f"(attempt {tried.ordinal}, {moment(tried.started_at, snapshot.now)})"
    if name := snapshot.taken.get(task.id):
        text = f"{tried.executor} has taken it as {name} {which} and has not replied yet"
    elif tried.confirmed:
        text = f"{tried.executor} has accepted it {which} and has not replied yet"
    else:
        text = f"it was delivered to the mailbox of {tried.executor} {which}, which has not replied yet"
    if tried.peer_waits:
        text = waits_at_peer(tried.executor, *tried.peer_waits)
    text += f"; the host {tried.holder} has it" if tried.holder else ""
    text += ", and has missed its heartbeat" if tried.silent else ""
    away = snapshot.away.get(tried.executor.lower(), "")
    then = "without a reply its outcome counts as unknown" if task.due else ""
    return Cause(
        task.local_id,
        "reply",
        f"{text}; {away}" if away else text,
        at=task.due,
        then=then,
        at_peer=tried.peer_waits[0] if tried.peer_waits else WaitsFor.NOTHING,
    )


def waits_at_peer(agent: str, waits_for: WaitsFor, said: str) -> str:
    """What the work that a peer has waits for, as the peer says it."""
    return f"waits for {waits_for.told} at {agent}: {one_line(said)}"


def _asked_again(order: PendingEffect, who: str = "it") -> str:
    """That the turn asks again for an answer, and why; empty if it does not."""
    return f"; {who} was asked again: {first_line(order.refused)}" if order.refused else ""


def _turn(task: TaskSnapshot, tried: AttemptSummary, snapshot: Snapshot) -> Cause:
    order = next((order for order in task.pending if order.kind in ("run_turn", "compose")), None)
    if order is None or order.kind == "compose":
        return Cause(task.local_id, "turn", "its result is being composed", then="its result is complete")
    if held_up := snapshot.held_up.get(order.agent.lower()):
        return Cause(task.local_id, "hub", held_up, then="with the receipt, the time to reply begins")
    if snapshot.room is not None and order.id and order.id not in snapshot.room.running:
        kind, text = _no_room(snapshot, order.agent)
        return Cause(task.local_id, kind, f"its turn {text}", then=f"{order.agent} starts when a call ends")
    if recovery := _recovery(task, snapshot):
        return recovery
    text = f"{order.agent} has been working on it since {moment(order.at, snapshot.now)} (attempt {tried.ordinal})"
    if tool := snapshot.tools.get(order.id):
        text += f"; last tool: {first_line(tool[0])}, {moment(tool[1], snapshot.now)}"
    text += _asked_again(order)
    over = plus(order.at, task.timeout)
    return Cause(task.local_id, "turn", text, at=over, then="the turn ends, at the latest")


def _recovery(task: TaskSnapshot, snapshot: Snapshot) -> Cause | None:
    """What its turn waits for, if the gateway died during it."""
    for order in task.pending:
        if stage := snapshot.recovering.get(order.id):
            then = "its answer comes, or it is sent again if it had not begun"
            return Cause(task.local_id, "recovery", f"the turn of {order.agent}: {stage}", then=then)
    return None


def _lookup(task: TaskSnapshot, tried: AttemptSummary, snapshot: Snapshot) -> Cause:
    order = next((order for order in task.pending if order.kind == "look_up"), None)
    run = f" (run {tried.run_id})" if tried.run_id else ""
    text = f"the outcome of attempt {tried.ordinal} by {tried.executor}{run} is unknown; OpenClaw is being queried"
    if snapshot.gateway:
        text = f"the outcome of attempt {tried.ordinal} by {tried.executor}{run} is unknown: {snapshot.gateway}"
        then = "OpenClaw is queried when the gateway is back"
        return Cause(task.local_id, "lookup", text, then=then, hint=_check(tried, snapshot))
    if order is None:
        return Cause(task.local_id, "lookup", text, then="OpenClaw's ledger is queried", hint=_check(tried, snapshot))
    over = plus(order.at, task.timeout + LOOKUP_SECONDS)
    again = f", next at {moment(order.not_before, snapshot.now)}" if order.not_before else ""
    then = "without an answer its outcome counts as unknown"
    return Cause(task.local_id, "lookup", f"{text}{again}", at=over, then=then, hint=_check(tried, snapshot))


def _approval(task: TaskSnapshot, _: Snapshot) -> Cause:
    if not task.asks:
        return Cause(
            task.local_id, "approval", "its planned actions are being prepared", then="an approval is requested"
        )
    name, what, until = task.asks[0]
    more = f" and {len(task.asks) - 1} more" if len(task.asks) > 1 else ""
    text = f"waits for approval {name}{more}: {what}"
    return Cause(task.local_id, "approval", text, at=until, then="it expires", hint=f"mailboxd show {name}")


def _resuming(task: TaskSnapshot, _: Snapshot) -> Cause:
    return Cause(task.local_id, "action", "its approved action is about to run", then="the approved action runs, once")


def _circuit(task: TaskSnapshot, _: Snapshot) -> Cause:
    name = task.local_id
    done, failed = f"mailboxd resolve {name} --done", f"mailboxd resolve {name} --failed"
    others = f"{done}, {failed}" if task.has_result else failed
    return Cause(
        task.local_id,
        "circuit",
        stopped(task.reason or task.error),
        at=task.due,
        then="it fails unless an operator decides" if task.due else "",
        hint=f"mailboxd retry {name}  # or {others}",
    )


def _completed(task: TaskSnapshot, _: Snapshot) -> Cause:
    return Cause(task.local_id, "ended", "is completed", hint=f"mailboxd show {task.local_id}")


def _failed(task: TaskSnapshot, snapshot: Snapshot) -> Cause:
    error, again = first_line(task.error or task.reason), f"mailboxd retry {task.local_id}"
    if (unknown := _UNKNOWN_AGENT.search(error)) is not None:
        name, known = unknown[1], ", ".join(snapshot.agents)
        has = f", which has {known}" if known else ""
        add = f"add it (`{snapshot.openclaw} agents add {name}`) or name another in the configuration or task.md"
        text, hint = f"has failed: OpenClaw has no agent {name}{has}", f"mailboxd doctor  # first {add}, then {again}"
        return Cause(task.local_id, "ended", text, hint=hint)
    command, mend = next(
        ((command, mend) for pattern, command, mend in _MENDED_FIRST if pattern.search(error)),
        ("mailboxd show {}", "mend its cause") if CANNOT_HELP in task.reason else ("", ""),
    )
    if not command:
        return Cause(task.local_id, "ended", f"has failed: {error}", hint=again)
    if command == _CANARY:
        command, mend = _tried_again(task, error, snapshot)
    hint = f"{command.format(task.local_id)}  # first {mend}, then {again}"
    return Cause(task.local_id, "ended", f"has failed for good: {error}", hint=hint)


def _tried_again(task: TaskSnapshot, error: str, snapshot: Snapshot) -> tuple[str, str]:
    """The command that shows whether the agent whose model failed works again, and what to mend."""
    if (child := _CHILD.match(error)) is not None:
        return f"mailboxd why {{}}.{child[1]}", "mend what that subtask says"
    agent = task.attempts[-1].executor if task.attempts else task.executor
    if task.parent is None and same_agent(agent, task.executor):
        return _CANARY, _MODEL
    mend = f"{_MODEL}, which {agent} uses"
    if _PLAIN_AGENT.fullmatch(agent) is None or not any(same_agent(agent, one) for one in snapshot.agents or (agent,)):
        return "mailboxd show {}", f"{mend}, where that runs"
    return f"{snapshot.openclaw} agent --agent {agent} --message 'Reply with OK.'", mend


_CANARY, _MODEL = "mailboxd doctor --canary", "mend the model's access or settings in OpenClaw"
_CHILD = re.compile(r"child ([A-Za-z0-9][A-Za-z0-9._-]*) failed: ")
_PLAIN_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_UNKNOWN_AGENT = re.compile(r'Unknown agent id "?([A-Za-z0-9][A-Za-z0-9._-]*)')
_MENDED_FIRST = (
    (
        re.compile(r"\b(?:unauthorized|missing scope|remote mode misconfigured|unknown method|HTTP 40[13])\b"),
        "mailboxd doctor",
        "mend the credentials that are refused",
    ),
    (
        re.compile(r"\bHTTP 40[024]\b|billing error|rejected the request schema"),
        _CANARY,
        _MODEL,
    ),
    (re.compile(r"context_overflow"), "mailboxd show {} --spec", "shorten or split it: it is too long for the model"),
    (
        re.compile(r"^its outcome was to be"),
        "mailboxd show {} --tree",
        "change the plan: a subtask that it needs was skipped",
    ),
)
"""Errors that a retry alone would only repeat: what to run, and what to mend."""


def _cancelled(task: TaskSnapshot, _: Snapshot) -> Cause:
    said = first_line(task.reason or task.error)
    return Cause(task.local_id, "ended", f"was {said}" if said.startswith("cancelled ") else f"was cancelled: {said}")


def _some(names: Sequence[str], total: int | None = None) -> str:
    shown = ", ".join(names[:_NAMED]) or "others"
    rest = (len(names) if total is None else total) - min(len(names), _NAMED)
    return f"{shown} and {rest} more" if names and rest > 0 else shown


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


_CAUSES: Mapping[Phase, Callable[[TaskSnapshot, Snapshot], Cause]] = {
    Phase.SPEC_DRAFT: _spec_draft,
    Phase.SPEC_REVIEW: _gate,
    Phase.EXECUTION_READY: _ready,
    Phase.EXECUTING: _executing,
    Phase.SPEC_GATE: _gate,
    Phase.QUALITY_GATE: _gate,
    Phase.AWAITING_APPROVAL: _approval,
    Phase.READY_TO_RESUME: _resuming,
    Phase.COMPLETED: _completed,
    Phase.FAILED: _failed,
    Phase.CIRCUIT_OPEN: _circuit,
    Phase.CANCELLED: _cancelled,
}
