"""People read four words for what a task does, and why it stopped; the program's own words stay inside.

What is read by programs keeps them: phases, kinds, rules and configuration keys, the messages between agents, metrics.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mailboxd.core.breaker import LOCKED_OUT
from mailboxd.core.events import Event, Kind
from mailboxd.core.explain.describe import describe, summarize
from mailboxd.core.explain.model import OpenBreaker, RunningCall, Snapshot, TaskSnapshot
from mailboxd.core.explain.why import explain, told_to_sender
from mailboxd.core.stopping import stopped
from mailboxd.core.vocabulary import STATES, Phase, State, WaitsFor, state_of, state_words
from mailboxd.ledger.attention import Need, of_circuits
from tests.source import SOURCE, documentation, modules, nodes

INTERNAL = re.compile(
    r"circuit|breaker|\bon hold\b|\bthen held\b|\bhalf[ _-]open\b|\bblocked\b|\bunblock", re.IGNORECASE
)
NOW = "2026-11-21T12:00:00.000Z"
LATER = "2026-11-21T12:30:00.000Z"
NO_PEOPLE = re.compile(
    r"(?:formats/protocol|perform/agents|ledger/(?!attention|overview|seen_items)|surfaces/telemetry|core/reviews|core/vocabulary)(?:\w*/|\w*\.py)"
)
"""What agents, programs and SQL read."""
REASONS = {
    "3 attempts failed; the last: no answer": "stopped because 3 attempts failed; the last: no answer",
    "outcome unknown: lost": "stopped because its outcome is unknown: lost",
    "over budget: it has cost 2 USD of 1 USD": "stopped because it is over budget: it has cost 2 USD of 1 USD",
    "handed over too often: 9 times": "stopped because it was handed over too often: 9 times",
    "5 faults in a row, the last: 503": "stopped because it had 5 faults in a row, the last: 503",
    "quality_gate: rework is used up": "stopped because of its quality gate: rework is used up",
    "\n": "stopped",
}
HELD = (
    "",
    "paused by ann: a holiday",
    "over budget: it has cost 2 USD of 1 USD",
    "it is to follow b, which has failed",
)


def snapshot(task: TaskSnapshot, until: str | None, *, busy: bool) -> Snapshot:
    shut = {"alpha": OpenBreaker(until, f"{LOCKED_OUT}HTTP 401")} if busy or until else {}
    calls = (RunningCall("alpha", "other", NOW),) if busy else ()
    return Snapshot(NOW, 7, {task.id: task}, calls, breakers=shut)


@pytest.mark.parametrize(("reason", "told"), REASONS.items())
def test_what_stopped_says_because_of_what(reason: str, told: str) -> None:
    assert stopped(reason) == told


@pytest.mark.parametrize("phase", Phase)
def test_a_state_is_one_of_four_words(phase: Phase) -> None:
    for need in (None, *Need):
        words = state_words(phase, need)
        assert words in STATES
        assert words.partition(":")[0] in set(State)
        assert state_of(phase, need) in State
        assert not INTERNAL.search(words)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(("until", "busy"), [(None, False), (None, True), (LATER, False)])
def test_no_explanation_uses_an_internal_word(phase: Phase, until: str | None, busy: bool) -> None:
    task = TaskSnapshot("tsk_a", "a", phase, "alpha", reason="3 attempts failed; the last: 503", due=LATER)
    held = [replace(task, held=held) for held in HELD]
    for one in (*held, replace(task, has_result=True), replace(task, held_by="b")):
        explanation = explain(snapshot(one, until, busy=busy), "tsk_a")
        texts = [part for cause in explanation.causes for part in (cause.text, cause.then, cause.hint)]
        assert not [text for text in [*texts, told_to_sender(explanation)[1]] if INTERNAL.search(text)]


def test_no_line_of_the_log_uses_one() -> None:
    step = {"from": "executing", "to": "circuit_open", "trigger": "max_attempts attempts failed", "reason": "503"}
    said = {"at": NOW, "agent": "beta", "until": LATER, "reason": "5 faults in a row, the last: 503"}
    events = [Event(kind, None, said) for kind in (Kind.BREAKER_OPENED, Kind.BREAKER_HALF_OPEN, Kind.BREAKER_CLOSED)]
    events += [
        Event(Kind.CIRCUIT_OPENED, "tsk_a", {"at": NOW, "reason": "503", "attempts": 3, "held_until": LATER}),
        Event(Kind.TASK_TRANSITIONED, "tsk_a", {"at": NOW, "passed": [step], "changes": {}}),
        *(Event(Kind.PEER_WAITS, "tsk_a", {**said, "waits_for": one, "why": "503"}) for one in WaitsFor),
        *(Event(Kind.SENDER_TOLD, "tsk_a", {**said, "to": "b", "waits_for": one, "why": "503"}) for one in WaitsFor),
    ]
    lines = [write(event, "a") for event in events for write in (describe, summarize)]
    assert not [line for line in lines if INTERNAL.search(line)]
    assert "a: stopped because 503; without a decision it fails at 21 Nov 12:30 UTC" in lines


def test_many_that_stopped_for_one_reason_say_the_reason() -> None:
    item = of_circuits("503", ["a", "b"], NOW, "mailboxd")
    assert item.text == "2 tasks stopped for one reason: 503"


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """Texts with words in them, apart from the docstrings of what is no command: those are for developers."""
    told = {
        id(node.body[0].value)
        for node in nodes(file)
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_command") and isinstance(node.body[0], ast.Expr)
    }
    expressions = documentation(file) - told
    for node in nodes(file):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in expressions else None
        if isinstance(text, str) and isinstance(node, ast.Constant) and " " in text.strip():
            yield node.lineno, text


SQL = re.compile(r"\b(?:SELECT|UPDATE|INSERT|WHERE|THEN|phase IN)\b|^[a-z_.', ]+$")
ENUMERATED = re.compile(r"'blocked, or rework used up'|'the answer came whose absence had opened the circuit'")
"""Triggers are stored in events, and docs/when-work-counts.md has them beside the phases."""


def test_no_text_of_the_program_uses_one() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {text}"
        for file in modules()
        if not NO_PEOPLE.match(str(file.relative_to(SOURCE)))
        for line, text in literals(file)
        if INTERNAL.search(text) and not SQL.search(text) and not ENUMERATED.fullmatch(repr(text))
    ]
    assert found == []


def test_no_page_uses_one() -> None:
    templates = sorted((SOURCE / "surfaces" / "web" / "templates").glob("*.html"))
    assert templates
    words = {file.name: re.sub(r"{#.*?#}|{%.*?%}|<[^>]*>", "", file.read_text(), flags=re.DOTALL) for file in templates}
    shown = {
        name: [
            part
            for piece in re.findall(r"{{.*?}}|[^{}]+", text, flags=re.DOTALL)
            for part in (re.findall(r'"([^"]* [^"]*)"', piece) if piece.startswith("{{") else [piece])
            if INTERNAL.search(part)
        ]
        for name, text in words.items()
    }
    assert {name: parts for name, parts in shown.items() if parts} == {}
