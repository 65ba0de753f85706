"""Explanations are pure: a picture in, words out. The pictures that the store loads are tested with the program."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.explain.model import (
    AskedQuestion,
    AttemptSummary,
    Cause,
    LastEvent,
    PendingEffect,
    RunningCall,
    Snapshot,
    TaskSnapshot,
)
from mailboxd.core.explain.why import cause_of, explain, told_to_sender
from mailboxd.core.schedule import Capacity
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import MAY_CONTINUE, AttemptStatus, Phase, Waiting, WaitsFor

NOW = "2026-11-21T12:00:00.000Z"
LATER = "2026-11-21T12:30:00.000Z"
EARLIER = "2026-11-21T11:00:00.000Z"


def standing(name: str, phase: Phase = Phase.EXECUTION_READY, **values: object) -> TaskSnapshot:
    return replace(TaskSnapshot(f"tsk_{name}", name, phase, "alpha"), **values)  # type: ignore[arg-type]


def tried(
    waiting: Waiting, status: AttemptStatus = AttemptStatus.RUNNING, ordinal: int = 1, error: str = ""
) -> AttemptSummary:
    return AttemptSummary(ordinal, "beta", status, waiting, EARLIER, error, "run_7", "agent:beta:mailboxd:x-1-0")


def snapshot(*tasks: TaskSnapshot, daemon: int | None = 7, calls: tuple[RunningCall, ...] = ()) -> Snapshot:
    return Snapshot(NOW, daemon, {task.id: task for task in tasks}, calls, LastEvent(3, EARLIER, "it was created"))


def alone(task: TaskSnapshot, calls: tuple[RunningCall, ...] = ()) -> Cause:
    return cause_of(task, snapshot(task, calls=calls))


def told(first: TaskSnapshot, *others: TaskSnapshot) -> list[tuple[int, str, str]]:
    explanation = explain(snapshot(first, *others), first.id)
    return [(cause.depth, cause.task, cause.kind) for cause in explanation.causes]


def test_why_lists_what_a_weak_spec_lacks() -> None:
    cause = alone(standing("a", Phase.SPEC_DRAFT, reason="its spec is weak: it has no goal; boss was asked"))
    assert (cause.kind, cause.text) == ("spec", "its spec is weak: it has no goal; boss was asked")
    assert "mailboxd edit a" in cause.hint
    assert not cause.then


def test_a_spec_that_is_drafted_says_by_whom_and_until_when() -> None:
    order = PendingEffect("run_turn", "main", NOW)
    cause = alone(standing("a", Phase.SPEC_DRAFT, reason="its spec is weak", pending=(order,), timeout=600))
    assert (cause.kind, cause.text, cause.at) == ("draft", "its spec is weak; main is drafting it", plus(NOW, 600))
    paused = replace(order, not_before=plus(NOW, 60))
    cause = alone(standing("a", Phase.SPEC_DRAFT, reason="its spec is weak", pending=(paused,), timeout=600))
    assert (cause.at, cause.then) == (plus(NOW, 60), "main will draft it again")


def test_a_gate_says_that_checks_run_and_that_a_reviewer_is_asked_again() -> None:
    cause = alone(standing("a", Phase.SPEC_GATE, pending=(PendingEffect("run_check", "", NOW),)))
    assert (cause.kind, cause.text) == ("check", "waits for 1 check")
    paused = PendingEffect("run_turn", "critic", NOW, plus(NOW, 60))
    cause = alone(standing("a", Phase.QUALITY_GATE, silent=("critic",), pending=(paused,), timeout=600))
    assert (cause.at, cause.then) == (plus(NOW, 60), "critic is asked again")


def test_a_gate_names_the_reviewers_that_have_not_spoken() -> None:
    cause = alone(
        standing(
            "a",
            Phase.QUALITY_GATE,
            silent=("critic",),
            timeout=600,
            pending=(PendingEffect("run_turn", "critic", NOW),),
        )
    )
    assert (cause.kind, cause.text, cause.at) == (
        "review",
        "the quality gate waits for critic",
        "2026-11-21T12:10:00.000Z",
    )


def test_a_gate_without_a_reviewer_needs_an_operator() -> None:
    cause = alone(standing("a", Phase.SPEC_GATE, reason="spec_gate is on, but no reviewer is named"))
    assert (cause.kind, cause.text, cause.then) == ("reviewers", "spec_gate is on, but no reviewer is named", "")


def test_a_dependency_is_followed_down_to_the_root_cause() -> None:
    last = standing("c", unmet=1, needs=("tsk_b",))
    middle = standing("b", unmet=1, needs=("tsk_a",))
    first = standing("a", Phase.CIRCUIT_OPEN, reason="3 attempts failed", due=LATER)
    assert told(last, middle, first) == [(0, "c", "dependency"), (1, "b", "dependency"), (2, "a", "circuit")]


def test_a_shared_cause_is_explained_once() -> None:
    last = standing("d", unmet=2, needs=("tsk_b", "tsk_c"))
    left, right = (standing(name, unmet=1, needs=("tsk_a",)) for name in "bc")
    lines = told(last, left, right, standing("a"))
    assert [line[1:] for line in lines if line[1] == "a"] == [("a", "ready")]
    assert [line[1] for line in lines] == ["d", "b", "a", "c"]


def test_a_parent_shows_the_children_that_hold_it_up_and_counts_those_that_wait_for_them() -> None:
    parent = standing("p", Phase.EXECUTING, attempts=(tried(Waiting.CHILDREN),), open_children=30,
                      children=("tsk_a", "tsk_b"))  # fmt: skip
    first = standing("a", parent="tsk_p")
    second = standing("b", parent="tsk_p", unmet=1, needs=("tsk_a",))
    explanation = explain(snapshot(parent, first, second), parent.id)
    assert [cause.task for cause in explanation.causes] == ["p", "a", "p"]
    assert explanation.causes[0].text == "waits for 30 subtasks"
    assert explanation.causes[2].text == "and 29 more; most of them wait for these"


def test_backoff_says_until_when_and_how_not_to_wait() -> None:
    cause = alone(
        standing("a", not_before=LATER, error="overloaded", attempts=(tried(Waiting.NOTHING, AttemptStatus.FAILED),))
    )
    assert (cause.kind, cause.at, cause.then) == ("backoff", LATER, "attempt 2 by alpha starts")
    assert "overloaded" in cause.text
    assert "mailboxd retry a" in cause.hint


def test_backoff_that_is_over_is_no_reason() -> None:
    assert alone(standing("a", not_before=EARLIER)).kind == "ready"


def test_a_slot_names_the_calls_that_occupy_the_agent() -> None:
    calls = (RunningCall("gamma", "other", EARLIER), RunningCall("alpha", "mine", EARLIER))
    cause = alone(standing("a"), calls)
    assert (cause.kind, cause.text) == ("slot", "waits for a slot; busy: alpha with mine since 21 Nov 11:00 UTC")


def test_a_slot_says_how_many_are_taken_and_a_turn_that_was_ordered_but_not_started_waits_for_one_too() -> None:
    calls = (RunningCall("gamma", "other", EARLIER, "trn_1"), RunningCall("alpha", "mine", NOW, "trn_2"))
    room = Capacity(1, ("trn_1",))
    ready = cause_of(standing("b"), replace(snapshot(calls=calls), room=room))
    words = "waits for a slot (1 of 1 are taken); busy: gamma with other since 21 Nov 11:00 UTC"
    assert (ready.kind, ready.text) == ("slot", words)
    pending = (PendingEffect("run_turn", "alpha", NOW, id="trn_2"),)
    mine = standing("mine", Phase.EXECUTING, attempts=(tried(Waiting.TURN),), pending=pending, timeout=60)
    ordered = cause_of(mine, replace(snapshot(mine, calls=calls), room=room))
    assert (ordered.kind, ordered.text) == ("slot", f"its turn {words}")
    started = cause_of(mine, replace(snapshot(mine, calls=calls), room=Capacity(2, ("trn_1", "trn_2"))))
    assert started.kind == "turn"


def test_why_names_a_memory_shortage_with_numbers() -> None:
    room = Capacity(4, ("trn_1",), free_bytes=100 << 20, call_bytes=215 << 20)
    calls = (RunningCall("gamma", "other", EARLIER, "trn_1"),)
    cause = cause_of(standing("b"), replace(snapshot(calls=calls), room=room))
    words = "waits for memory: 100 MiB are free, a call needs 215 MiB; busy: gamma with other since 21 Nov 11:00 UTC"
    assert (cause.kind, cause.text) == ("memory", words)


def test_a_task_whose_children_do_the_work_needs_no_slot() -> None:
    assert alone(standing("a", coordinates=True), (RunningCall("alpha", "mine", EARLIER),)).kind == "ready"


def test_a_child_of_a_parent_that_does_not_execute_waits_for_the_parent() -> None:
    child = standing("p.a", parent="tsk_p", parent_live=False)
    parent = standing("p", not_before=LATER)
    assert told(child, parent) == [(0, "p.a", "parent"), (1, "p", "backoff")]


def test_why_shows_the_agent_start_and_timeout_of_a_turn() -> None:
    pending = (PendingEffect("run_turn", "beta", NOW),)
    cause = alone(standing("a", Phase.EXECUTING, attempts=(tried(Waiting.TURN),), pending=pending, timeout=60))
    assert (cause.kind, cause.text) == ("turn", "beta has been working on it since 21 Nov 12:00 UTC (attempt 1)")
    assert (cause.at, cause.then) == ("2026-11-21T12:01:00.000Z", "the turn ends, at the latest")


def test_a_peer_that_owes_a_reply_has_a_lease() -> None:
    cause = alone(standing("a", Phase.EXECUTING, attempts=(tried(Waiting.REPLY),), due=LATER))
    assert (cause.kind, cause.at) == ("reply", LATER)
    assert cause.text == "beta has accepted it (attempt 1, 21 Nov 11:00 UTC) and has not replied yet"


def test_a_delivered_message_is_not_yet_acknowledged() -> None:
    attempt = replace(tried(Waiting.REPLY), confirmed=False)
    task = standing("a", Phase.EXECUTING, attempts=(attempt,), due=LATER)
    cause = alone(task)
    assert cause.text.startswith("it was delivered to the mailbox of beta (attempt 1, 21 Nov 11:00 UTC), which has not")
    shut = explain(Snapshot(NOW, 1, {task.id: task}, away={"beta": "no daemon runs for beta: `x`"}), task.id)
    assert shut.causes[0].text.endswith("which has not replied yet; no daemon runs for beta: `x`")


def test_a_turn_and_a_lookup_wait_for_an_unreachable_gateway() -> None:
    ready = standing("a", not_before=LATER)
    pending = (PendingEffect("look_up", "beta", NOW, LATER),)
    lost = standing("b", Phase.EXECUTING, attempts=(tried(Waiting.LOOKUP),), pending=pending, timeout=600)
    for task, kind in ((ready, "gateway"), (lost, "lookup")):
        (cause, *_) = explain(Snapshot(NOW, 1, {task.id: task}, gateway="it is down"), task.id).causes
        assert (cause.kind, cause.at) == (kind, None)
        assert "it is down" in cause.text
        assert "back" in cause.then or "return" in cause.then


def test_an_unknown_outcome_says_how_to_check() -> None:
    pending = (PendingEffect("look_up", "beta", NOW, LATER),)
    cause = alone(standing("a", Phase.EXECUTING, attempts=(tried(Waiting.LOOKUP),), pending=pending, timeout=600))
    assert (cause.kind, cause.at) == ("lookup", "2026-11-21T12:12:00.000Z")
    assert cause.then == "without an answer its outcome counts as unknown"
    assert "run run_7" in cause.text
    assert "next at 21 Nov 12:30 UTC" in cause.text
    assert cause.hint == "openclaw tasks show agent:beta:mailboxd:x-1-0 --json"


def test_a_question_says_to_whom_and_how_to_answer() -> None:
    question = AskedQuestion("operator", "# Which?\n", NOW)
    cause = alone(standing("a", Phase.EXECUTING, attempts=(tried(Waiting.ANSWER),), question=question))
    assert (cause.kind, cause.text, cause.command) == ("question", "asks operator: Which?", "mailboxd answer a")


def test_an_open_circuit_lists_its_attempts_and_the_ways_out() -> None:
    attempts = (
        tried(Waiting.NOTHING, AttemptStatus.FAILED, 1, "overloaded"),
        tried(Waiting.NOTHING, AttemptStatus.UNKNOWN, 2, "the gateway went away"),
    )
    task = standing("a", Phase.CIRCUIT_OPEN, reason="outcome unknown", due=LATER, attempts=attempts)
    circuit, first, second = explain(snapshot(task), task.id).causes
    assert (circuit.at, circuit.then) == (LATER, "it fails unless an operator decides")
    assert circuit.hint == "mailboxd retry a  # or mailboxd resolve a --failed"
    assert (first.text, first.hint) == ("attempt 1 by beta: failed: overloaded", "")
    assert second.hint == "openclaw tasks show agent:beta:mailboxd:x-1-0 --json"
    assert (
        alone(replace(task, has_result=True)).hint
        == "mailboxd retry a  # or mailboxd resolve a --done, mailboxd resolve a --failed"
    )


@pytest.mark.parametrize(
    "task",
    [
        standing("a", Phase.CIRCUIT_OPEN, has_result=True),
        standing("a", held="over budget: it has cost 2 USD of 1 USD"),
        standing("a", held="over budget: it has taken 3 turns, 3 are allowed (limits.turns_per_task)"),
        standing("a", not_before=LATER, reason="overloaded"),
        standing("a", Phase.SPEC_DRAFT),
    ],
)
def test_a_command_that_is_suggested_runs_as_it_stands(task: TaskSnapshot) -> None:
    """Explanations follow as a shell comment; the command has no pipe, parenthesis or placeholder."""
    words = shlex.split(alone(task).hint, comments=True)
    assert words[0] == "mailboxd"
    assert not set("|()[]") & set("".join(words)), words
    assert words[-1] in ("a", "--retry", "--edit"), words


def test_without_a_daemon_that_is_said_first() -> None:
    task = standing("a")
    causes = explain(snapshot(task, daemon=None), task.id).causes
    assert [cause.kind for cause in causes] == ["daemon", "ready"]
    assert causes[0].hint == "mailboxd run"


def test_an_ended_task_waits_for_nothing() -> None:
    task = standing("a", Phase.FAILED, error="no access")
    explanation = explain(snapshot(task, daemon=None), task.id)
    assert [(cause.text, cause.hint) for cause in explanation.causes] == [("has failed: no access", "mailboxd retry a")]
    assert explanation.next is None


def test_the_next_thing_to_happen_is_the_earliest_in_the_chain() -> None:
    last = standing("b", unmet=2, needs=("tsk_a", "tsk_c"))
    soon = standing("c", not_before="2026-11-21T12:00:05.000Z")
    open_circuit = standing("a", Phase.CIRCUIT_OPEN, due=LATER)
    explanation = explain(snapshot(last, open_circuit, soon), last.id)
    assert explanation.next is not None
    assert (explanation.next.task, explanation.next.at) == ("c", "2026-11-21T12:00:05.000Z")


def test_the_last_sign_of_life_is_passed_on() -> None:
    assert explain(snapshot(standing("a")), "tsk_a").last_activity == LastEvent(3, EARLIER, "it was created")


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_an_explanation(phase: Phase) -> None:
    assert alone(standing("a", phase)).text


names = st.sampled_from("abcdefgh").map(lambda letter: f"tsk_{letter}")
tasks = st.builds(
    lambda letter, phase, needs, children, parent, waiting: standing(
        letter, phase, unmet=len(needs), needs=tuple(needs), open_children=len(children), children=tuple(children),
        parent=parent, parent_live=parent is None, attempts=(tried(waiting),),
    ),
    st.sampled_from("abcdefgh"), st.sampled_from(list(Phase)), st.lists(names, max_size=4, unique=True),
    st.lists(names, max_size=4, unique=True), st.none() | names, st.sampled_from(list(Waiting)),
)  # fmt: skip


@given(st.lists(tasks, min_size=1, max_size=8))
def test_any_picture_is_explained_however_it_is_tangled(found: list[TaskSnapshot]) -> None:
    """Also one with cycles or holes: no loop, every task at most once, the asked one first."""
    first = found[0]
    shown = snapshot(*found)
    causes = explain(shown, first.id).causes
    own = [cause.task for cause in causes if cause.kind not in ("attempt", "more")]
    assert own[0] == first.local_id
    assert len(own) == len(set(own))


@pytest.mark.parametrize("phase", [Phase.CANCELLED, Phase.FAILED])
def test_the_turn_of_ended_work_that_may_go_on_is_named_with_what_shows_it(phase: Phase) -> None:
    killed = tried(Waiting.NOTHING, AttemptStatus.ABORTED, error=f"it was cancelled and killed, and {MAY_CONTINUE}")
    stopped = tried(Waiting.NOTHING, AttemptStatus.ABORTED, 2, "cancelled by operator")
    task = standing("a", phase, reason="cancelled by operator", attempts=(killed, stopped))
    first, attempt = explain(Snapshot(NOW, 0, {task.id: task}), task.id).causes
    assert (first.kind, attempt.kind) == ("ended", "attempt")
    assert attempt.text.startswith(f"attempt 1 by beta: aborted: it was cancelled and killed, and {MAY_CONTINUE}")
    assert attempt.hint == "openclaw tasks show agent:beta:mailboxd:x-1-0 --json"


def test_what_a_peer_says_that_it_waits_for_is_passed_on_to_the_sender_of_the_whole_work() -> None:
    waits = replace(tried(Waiting.REPLY), peer_waits=(WaitsFor.PERSON, "stopped because it was handed over too often"))
    part = standing("a.part", Phase.EXECUTING, attempts=(waits,), due=LATER, parent="tsk_a")
    whole = standing("a", Phase.EXECUTING, attempts=(tried(Waiting.CHILDREN),), children=(part.id,), open_children=1)
    told = told_to_sender(explain(Snapshot(NOW, 1, {whole.id: whole, part.id: part}), whole.id))
    said = "a.part waits for a person at beta: stopped because it was handed over too often"
    assert told == (WaitsFor.PERSON, said)
    goes_on = replace(part, attempts=(tried(Waiting.REPLY),))
    assert told_to_sender(explain(Snapshot(NOW, 1, {whole.id: whole, part.id: goes_on}), whole.id)) == (
        WaitsFor.NOTHING,
        "",
    )


def test_what_a_peer_has_taken_has_the_name_that_it_has_there() -> None:
    task = standing("a", Phase.EXECUTING, attempts=(replace(tried(Waiting.REPLY), confirmed=False),), due=LATER)
    (cause,) = explain(Snapshot(NOW, 1, {task.id: task}, taken={task.id: "a-1"}), task.id).causes
    assert cause.text == "beta has taken it as a-1 (attempt 1, 21 Nov 11:00 UTC) and has not replied yet"
