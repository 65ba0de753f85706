"""Work that repeats: a message becomes a repetition, and each of its times an ordinary task.

A run is made in the transaction that moves the next time. What cannot be made (an agent that is gone, a sender with too
many open tasks) is recorded, said where a person looks, and tried again at the next time.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import Any, Protocol

from mailboxd.core import repetition
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.handovers import REPEATED
from mailboxd.core.json_codec import to_json
from mailboxd.core.model import Handover, Task
from mailboxd.core.repetition import Missed, Repetition
from mailboxd.core.times import moment
from mailboxd.core.vocabulary import OPERATORS
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.provenance import BY_PERSON, Provenance
from mailboxd.errors import MessageError, PlanError, Refused
from mailboxd.formats.config.operator_zone import called
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.head import Place
from mailboxd.formats.protocol.messages import TaskMessage, parse_message, render_message
from mailboxd.formats.protocol.repeats import RuleTimes, first_after, read_repeat, rule_of


class TaskIntake(Protocol):
    """What makes tasks of messages, as far as repeating work needs it (`interpret.Intake`)."""

    def place(self, written_ns: int | None = None) -> Place: ...
    def held(self, came: Provenance) -> str: ...
    def free_local_id(self, wanted: str) -> str: ...
    def new_task(self, message: TaskMessage, *, actor: str, came: Provenance, repetition: str) -> Task: ...


MOST = 200
"""Repetitions that go on at once: whoever can write a file could else let ever more work begin by itself."""


def times_of(one: Repetition) -> RuleTimes:
    """The times of a repetition."""
    return RuleTimes(rule_of(one.rule), called(one.zone), one.anchor)


def told(one: Repetition) -> str:
    """The next time of a repetition, as it is for people in its zone."""
    return Calendar(one.next_at, called(one.zone)).told(one.next_at)


class _TriedOut(Exception):
    """A run could be made; nothing of it is kept."""


def accept(intake: TaskIntake, engine: Engine, message: TaskMessage, own_zone: tzinfo, came: Provenance) -> str:
    """Record work that repeats; inside a batch. Returns the verdict on its message.

    Raises MessageError, PlanError, Refused: also for what would keep its runs from being made.
    """
    if message.from_ not in OPERATORS:
        hint = "Ask a person to send it, or send the work once."
        raise MessageError(
            "bad-repeat", f"{message.from_} is an agent, whose work is not repeated", hint, field="repeat"
        )
    said, rule = message.repeat or "", read_repeat(message.repeat or "")
    digest = "\0".join(map(str, (message.content, message.terms, said, message.missed, message.overlap)))
    known = engine.store.repetitions.of_work(message.from_, message.task_id)
    if known is not None:
        if known.digest == digest:
            return "duplicate"
        problem = f"{known.name} is repeated {known.said} already, as other work"
        raise Refused("id-conflict", problem, f"`mailboxd cancel {known.name}` ends that; or choose another id.")
    if len(engine.store.repetitions.going_on()) >= MOST:
        hint = "End some with `mailboxd cancel NAME`; `mailboxd status` names them."
        raise Refused("too-many-open", f"{MOST} works repeat here already", hint)
    if held := intake.held(came):
        raise Refused("too-many-open", held, "Send it again later, or signed with the operator's key.")
    now, zone_name = engine.now, rule.zone or getattr(own_zone, "key", None) or ""
    begins = message.not_before if message.not_before is not None and message.not_before > now else None
    times = RuleTimes(rule, called(zone_name), begins or now)
    one = Repetition(
        id=engine.new_id("rpt"),
        name=intake.free_local_id(message.task_id),
        sender=message.from_,
        title=message.title or message.task_id,
        said=said,
        rule=str(rule),
        zone=zone_name,
        anchor=begins or now,
        text=render_message(message.once()).decode("utf-8", "surrogateescape"),
        digest=digest,
        created_at=now,
        next_at=first_after(times, now, begins),
        missed=message.missed or Missed.ONCE,
        overlap=bool(message.overlap),
        counts=came.handover is not None,
    )
    _try_out(intake, engine, one)
    data = {"at": now, "repetition": to_json(one)}
    if came.handover is not None:
        data["handover"] = to_json(came.handover)
    engine.record(Event(Kind.REPETITION_CREATED, None, data, Role.ORCHESTRATOR, message.from_))
    return "accepted"


def _try_out(intake: TaskIntake, engine: Engine, one: Repetition) -> None:
    """Make a run of it, and keep nothing. Raises MessageError, PlanError, Refused if that cannot be done."""
    try:
        with engine.part():
            _run(intake, engine, one, 0)
            raise _TriedOut
    except _TriedOut:
        pass


def run_due(intake: TaskIntake, engine: Engine) -> int:
    """Make the runs whose time has come; inside a batch. Returns how many."""
    count = 0
    for one in engine.store.repetitions.due(engine.now):
        is_open = not one.overlap and engine.store.repetitions.is_open(one.id)
        found = repetition.due(one, engine.now, times_of(one), is_open=is_open)
        if found is not None:
            count += _make(intake, engine, one, found)
    return count


def run_now(intake: TaskIntake, engine: Engine, one: Repetition, user: str) -> Event:
    """Make a run at once, by a person's order, beside those of its times; inside a batch.

    Raises Refused, MessageError, PlanError.
    """
    if one.ended:
        raise Refused("ended", f"{one.name} has ended: {one.ended}", "Send it again.")
    if not one.overlap and engine.store.repetitions.is_open(one.id):
        hint = f"`mailboxd show {one.name}` names it."
        raise Refused("run-open", f"a run of {one.name} has not ended", hint)
    made = _run(intake, engine, one, one.runs)
    return _record_runs(engine, one, [made], 0, one.next_at, user)


def _make(intake: TaskIntake, engine: Engine, one: Repetition, found: repetition.Due) -> int:
    """Make these runs, each whole or not at all, and move the next time."""
    made: list[dict[str, Any]] = []
    problem = ""
    for at in found.runs:
        try:
            with engine.part():
                made.append({**_run(intake, engine, one, one.runs + len(made)), "at": at})
        except (MessageError, PlanError, Refused) as error:
            problem = str(error)
    passed_over = found.passed_over + len(found.runs) - len(made)
    _record_runs(engine, one, made, passed_over, found.next_at, "mailboxd", problem)
    return len(made)


def _record_runs(
    engine: Engine,
    one: Repetition,
    made: list[dict[str, Any]],
    passed_over: int,
    next_at: str,
    actor: str,
    problem: str = "",
) -> Event:
    changes: dict[str, Any] = {"next_at": next_at}
    if made:
        changes |= {"runs": made[-1]["number"], "last_at": made[-1]["at"]}
    if passed_over:
        changes["missed_runs"] = one.missed_runs + passed_over
    if problem or made:
        changes["problem"] = problem
    data = {"at": engine.now, "id": one.id, "name": one.name, "runs": made, "passed_over": passed_over}
    role = Role.ORCHESTRATOR if actor == "mailboxd" else Role.OPERATOR
    event = Event(Kind.REPETITION_RAN, None, {**data, "changes": changes}, role, actor)
    engine.record(event)
    return event


def _run(intake: TaskIntake, engine: Engine, one: Repetition, count: int) -> dict[str, Any]:
    """Create the task of one run. Raises MessageError, PlanError, Refused."""
    place = Place(engine.settings.agent, intake.place().find_agents, Calendar(engine.now, called(one.zone)), engine.now)
    message = parse_message(one.text.encode("utf-8", "surrogateescape"), one.name, place=place).message
    assert isinstance(message, TaskMessage)  # it was rendered as one
    while engine.store.tasks.by_work(one.sender, name := repetition.runs_of(one.name, count), None) is not None:
        count += 1
    came = Provenance(Handover(REPEATED)) if one.counts else BY_PERSON
    message = message.model_copy(update={"task_id": name})
    task = intake.new_task(message, actor=one.sender, came=came, repetition=one.id)
    return {"number": count + 1, "at": engine.now, "task": task.id, "name": task.local_id}


# A person's orders.


def pause(engine: Engine, one: Repetition, note: str, user: str) -> Event:
    """No run begins until it is resumed; one that is open goes on. Inside a batch. Raises Refused."""
    _require_going_on(one)
    if one.paused:
        raise Refused("held", f"{one.name} is {one.paused}", f"`mailboxd resume {one.name}` ends the pause.")
    why = f"paused by {user}" + (f": {note}" if note else "")
    return _change(engine, one, why, user, paused=why, problem="")


def resume(engine: Engine, one: Repetition, note: str, user: str) -> Event:
    """Its runs go on with the next time from now; those of the pause were not wanted.

    Inside a batch. Raises Refused.
    """
    _require_going_on(one)
    if not one.paused:
        raise Refused("not-paused", f"{one.name} is not paused", f"See `mailboxd show {one.name}`.")
    next_at = one.next_at if one.next_at > engine.now else times_of(one).after(engine.now)
    why = f"resumed by {user}" + (f": {note}" if note else "") + f"; next at {moment(next_at, engine.now)}"
    return _change(engine, one, why, user, paused="", next_at=next_at)


def end(engine: Engine, one: Repetition, note: str, user: str) -> Event:
    """There are no more runs; one that is open goes on. Inside a batch. Raises Refused."""
    _require_going_on(one)
    why = f"ended by {user}" + (f": {note}" if note else "")
    return _change(engine, one, why, user, ended=why, problem="")


def _require_going_on(one: Repetition) -> None:
    if one.ended:
        raise Refused("ended", f"{one.name} is {one.ended} already", "Send it again to begin anew.")


def _change(engine: Engine, one: Repetition, note: str, user: str, **changes: Any) -> Event:
    data = {"at": engine.now, "id": one.id, "name": one.name, "note": note, "changes": changes}
    event = Event(Kind.REPETITION_CHANGED, None, data, Role.OPERATOR, user)
    engine.record(event)
    return event
