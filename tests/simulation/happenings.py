"""What happens to a workspace from one step to the next: work, replies, repetitions, lies, people, time, crashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import (
    Cancel,
    ChildEdited,
    Clarification,
    Edited,
    OperatorInput,
    Redispatch,
    Remedy,
    Reply,
    Retry,
    ReviewGiven,
    ReviewKind,
    SpecWritten,
    Steer,
    TurnEnded,
    Unblock,
)
from mailboxd.core.lifecycle import review_round
from mailboxd.core.model import Origin, PlannedChild, Policy, Spec, Task
from mailboxd.core.outcomes import Results, Unknown
from mailboxd.core.vocabulary import AttemptStatus, Phase, Turn, Verdict, Waiting
from mailboxd.errors import Refused
from tests.simulation.acting import act, decide
from tests.simulation.script import PEERS, REVIEWERS
from tests.simulation.world import MOST_TASKS, Crash, World, new_engine


def arrive(world: World) -> None:
    count = world.store.db.execute("SELECT count(*) FROM v_tasks").fetchone()[0]
    if count < MOST_TASKS:
        world.tasks += 1
        world.handle(None, world.script.new_task(world.tasks))


# -------------------------------------------------------------- what others say


def reply(world: World) -> None:
    """A peer that has acknowledged reports, or a question is answered."""
    waiting = world.attempts("waiting_for IN ('reply', 'answer')")
    if not waiting:
        return
    attempt = world.script.random.choice(waiting)
    if attempt.waiting_for is Waiting.ANSWER:
        world.handle(attempt.task, Clarification("operator", "the red one", ends=world.script.chance(0.2)))
        return
    token = attempt.reply_token if attempt.token_echoed or world.script.chance(0.5) else None
    report = world.script.report()
    if isinstance(report, Results):
        report = replace(report, verdicts=world.script.verdicts(attempt.executor, report.text))
    heard = Reply(attempt.executor, report, attempt.id, token)
    world.handle(attempt.task, heard)
    if world.script.chance(0.15):
        world.handle(attempt.task, heard)


def answer_late(world: World) -> None:
    """A peer answers after its lease, although its silence has opened the circuit."""
    world.clock.advance(4000.0)
    with world.engine.batch():
        world.engine.tick()
    silent = world.attempts(
        "status = 'unknown' AND executor <> 'main' AND EXISTS (SELECT 1 FROM v_tasks t WHERE t.id = task"
        " AND t.attempt = ordinal AND t.phase = 'circuit_open')"
    )
    if silent:
        attempt = world.script.random.choice(silent)
        world.handle(attempt.task, Reply(attempt.executor, Results("after all"), attempt.id, attempt.reply_token))


def judge(world: World) -> None:
    """Somebody's verdict by message: a reviewer's as a rule, about the attempt under review or an older one."""
    tasks = world.tasks_where("phase IN ('spec_review', 'spec_gate', 'quality_gate')")
    if not tasks:
        return
    task = world.script.random.choice(tasks)
    quality = task.phase is Phase.QUALITY_GATE
    kind = ReviewKind.QUALITY if quality else ReviewKind.SPEC
    who = world.script.random.choice((*task.policy.reviewers, task.executor, "mallory"))
    old = world.script.chance(0.2)
    said = ReviewGiven(kind, world.script.random.choice(tuple(Verdict)), "seen", round=review_round(task) - old)
    events = world.handle(task.id, said, Role.QUALITY_REVIEWER if quality else Role.SPEC_REVIEWER, who)
    assert not events or not old, "a verdict about an older attempt counted"


def mischief(world: World) -> None:
    """Repetitions, lies and stragglers: nothing of it may count."""
    kind = world.script.one_of(repeated=4, straggler=3, stranger=1, forged=1, invented=1)
    if kind == "repeated" and world.ended:
        _repeat(world, *world.script.random.choice(world.ended))
        return
    older = "ordinal < (SELECT attempt FROM v_tasks t WHERE t.id = task) AND executor <> 'main'"
    attempts = world.attempts(older if kind == "straggler" else "1")
    if not attempts:
        return
    attempt = world.script.random.choice(attempts)
    task = world.task(attempt.task)
    latest = task.attempt == attempt.ordinal
    if kind == "straggler":
        events = world.handle(task.id, Reply(attempt.executor, Results("late"), attempt.id, None, older_attempt=True))
        assert events is None or kinds(events) == ["reply.late"], "a late reply was applied"
    elif kind == "stranger":
        assert world.handle(task.id, Reply("mallory", Results("mine"), attempt.id)) is None, "a stranger was believed"
    elif kind == "forged" and latest:
        reply = Reply(attempt.executor, Results("forged"), attempt.id, "guessed")
        assert world.handle(task.id, reply) is None, "a forged token was believed"
    elif kind == "invented":
        reply = Reply(attempt.executor, Results("invented"), "att_invented")
        assert world.handle(task.id, reply) is None, "an attempt that never was is believed"


def _repeat(world: World, task_id: str, ended: TurnEnded) -> None:
    """A turn's end once more. While the attempt waits for another turn the effect runner's own record rules it out."""
    task = world.task(task_id)
    attempt = world.store.tasks.attempt(task_id, task.attempt) if task.attempt else None
    waits = attempt is not None and attempt.waiting_for in (Waiting.TURN, Waiting.LOOKUP)
    older = attempt is not None and attempt.id != ended.attempt_id
    if ended.turn is Turn.ANSWER and attempt is not None and attempt.question == ended.question:
        return  # the same question was asked again
    if ended.turn in (Turn.REVIEW, Turn.DRAFT):
        world.handle(task_id, ended)
    elif older or not waits:
        events = world.handle(task_id, ended)
        reported = attempt is not None and not older and attempt.waiting_for is Waiting.REPLY
        given_up = attempt is not None and not older and attempt.status is AttemptStatus.ABORTED
        noted = given_up and isinstance(ended.outcome, Unknown)  # with the attempt, that its work may continue
        assert reported or noted or kinds(events or ()) == ["reply.late"], "a turn counted twice"


def kinds(events: Sequence[Event]) -> list[str]:
    """What happened, beside what a turn cost: that is on record whenever it ends."""
    cost = {Kind.TURN_ENDED, Kind.BREAKER_OPENED, Kind.BREAKER_HALF_OPEN, Kind.BREAKER_CLOSED}
    held = [event for event in events if "held" in event.data.get("changes", ())]  # by that, or released since
    return [event.kind for event in events if event.kind not in cost and event not in held]


# -------------------------------------------------------------- people


def operate(world: World) -> None:
    """A command, aimed where it can do something as a rule."""
    command = world.script.one_of(retry=4, rerun=2, unblock=5, cancel=2, steer=1, redispatch=10)
    where = {"retry": "phase IN ('failed', 'cancelled')", "unblock": "phase = 'circuit_open'"}.get(command, "1")
    if command == "unblock" and world.script.chance(0.4):
        where = "held <> '' AND completed_at IS NULL"
    where = {"redispatch": "parent IS NULL", "cancel": "completed_at IS NULL"}.get(command, where)
    if command == "redispatch" and world.script.chance(0.5):
        where += " AND completed_at IS NOT NULL AND (phase <> 'cancelled' OR cancelled_with_parent)"
    elif command == "redispatch" and world.script.chance(0.5):
        where += " AND phase IN ('execution_ready', 'spec_gate', 'quality_gate', 'awaiting_approval')"
    if command in ("redispatch", "retry") and world.script.chance(0.3):
        where += " AND attempt = 0 AND completed_at IS NOT NULL"
    if command == "cancel" and world.script.chance(0.3):
        where += " AND parent IS NULL"
    elif command == "cancel" and world.script.chance(0.5):
        where += " AND id IN (SELECT needs FROM v_dependencies)"
    tasks = world.tasks_where(where)
    if not tasks:
        return
    # by phase first: the rare ones would hardly ever be meant
    phase = world.script.random.choice(sorted({task.phase for task in tasks}))
    task = world.script.random.choice([task for task in tasks if task.phase is phase])
    match command:
        case "redispatch":
            number = task.origin.attempt + world.script.chance(0.8)
            content = world.script.random.choice(("first", "second", "third"))
            again = Origin(attempt=number, attempt_id=f"theirs-{number}", content=content, terms="own")
            spec = Spec(goal=task.title, instructions=f"Again: {content}.")
            events = world.handle(task.id, Redispatch(spec, again, "Do it better.", text=content))
            if task.phase.is_terminal and number == task.origin.attempt:
                assert events is None, "ended work was changed"
            elif not task.phase.is_terminal and events and content != task.origin.content:
                assert content in world.task(task.id).spec.instructions, "another text was ignored"
        case "steer":
            world.handle(task.id, Steer(task.sender, "Use blue."))
        case "retry":
            _command(world, task, Retry("Try harder."))
        case "rerun":
            only_failed = world.script.chance(0.4)
            _command(world, task, Retry("Once more.", only_failed, not only_failed and world.script.chance(0.5)))
        case "unblock":
            remedies = [Remedy.ACCEPT] * 2 if task.result else []
            remedy = world.script.random.choice([*Remedy, *remedies, *([Remedy.RETRY] * 4 if task.held else [])])
            _command(world, task, Unblock(remedy, budget_usd=1000.0 if task.held else None))
        case _:
            _command(world, task, Cancel(world.script.random.choice(("operator", task.sender)), "not needed"))


def _command(world: World, task: Task, order: OperatorInput) -> None:
    world.journal[-1:] = [f"{order} -> {task.local_id}"]
    with suppress(Refused), world.engine.batch():
        world.engine.command(task, order, "operator")


def edit(world: World) -> None:
    """Somebody writes into a task.md."""
    tasks = world.tasks_where("1")
    if not tasks:
        return
    task = world.script.random.choice(tasks)
    if task.parent is not None and world.script.chance(0.4):
        parent = world.task(task.parent)
        needs = [child.key for child in world.store.tasks.children(parent.id) if child.key < task.key][:1]
        planned = PlannedChild(task.key, (world.script.random.choice(PEERS),), "edited", tuple(needs))
        ids = tuple(child.id for child in world.store.tasks.children(parent.id) if child.key in needs)
        world.handle(task.id, ChildEdited(planned, ids))
        return
    added = (PlannedChild(f"x{len(world.journal)}", (world.script.random.choice(PEERS),), "more"),)
    world.handle(task.id, Edited(added if world.script.chance(0.6) else (), "a note"))


def wait(world: World) -> None:
    world.clock.advance(world.script.random.choice((0.0, 1.0, 10.0, 10.0, 100.0, 100.0, 4000.0)))


def crash(world: World) -> None:
    """The daemon dies before a commit: what it did in that transaction has not happened."""
    before = world.store.last_event()
    with suppress(Crash), world.engine.batch():
        world.engine.tick()
        if world.flights and world.script.chance(0.7):
            world.turn_ended(world.flights[world.script.random.choice(list(world.flights))])
            world.ended.pop()
        world.engine.schedule()
        raise Crash
    assert world.store.last_event() == before, "a transaction that was not committed left traces"
    world.engine = world.configure(new_engine(world.store, world.clock, world.script.random))
    world.look_again()  # as a daemon does that starts


def come_and_go(world: World) -> None:
    """An agent may no longer be reached, or may be again; or the configuration names other reviews."""
    if world.script.chance(0.5):
        world.away ^= {world.script.random.choice(REVIEWERS)}
    else:
        reviews = replace(world.script.policy(), named=frozenset())
        world.configured = replace(Policy(), gates=reviews.gates, reviewers=reviews.reviewers, named=frozenset())
    world.look_again()


def mend(world: World) -> None:
    """Somebody says something of a spec: an answer, a text of a person, nothing more."""
    open_ = world.tasks_where("phase IN ('spec_draft', 'spec_review', 'execution_ready')")
    if not open_:
        return
    task = world.script.random.choice(open_)
    criteria = world.script.random.choice((("one page",), ("works well",), ()))
    match world.script.one_of(answer=4, written=3, skip=1):
        case "answer":
            world.handle(task.id, Clarification(task.sender, world.script.random.choice(("- one page", "works well"))))
        case "skip":
            world.handle(task.id, Clarification("operator", "REPLY_SKIP", ends=True))
        case _:
            spec = replace(task.spec, goal=task.spec.goal or "Something", acceptance_criteria=criteria)
            world.handle(task.id, SpecWritten(spec), Role.OPERATOR)


HAPPENINGS: Mapping[str, tuple[float, Callable[[World], None]]] = {
    "arrive": (4, arrive),
    "land": (40, World.land),
    "look_up": (8, World.look_up),
    "deliver": (8, World.deliver),
    "reply": (12, reply),
    "answer_late": (1, answer_late),
    "judge": (3, judge),
    "mischief": (6, mischief),
    "operate": (11, operate),
    "edit": (4, edit),
    "mend": (6, mend),
    "act": (26, act),
    "decide": (20, decide),
    "wait": (10, wait),
    "crash": (3, crash),
    "come_and_go": (3, come_and_go),
}
"""What may happen in a step -> how often, and how."""


def step(world: World) -> None:
    """Let something happen."""
    name = world.script.one_of(**{name: weight for name, (weight, _) in HAPPENINGS.items()})
    if world.script.chance(0.8):
        world.launch()
    world.journal.append(name)
    HAPPENINGS[name][1](world)
