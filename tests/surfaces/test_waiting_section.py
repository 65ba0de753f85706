"""What task.md says that a task and its children wait for: the words and commands of `mailboxd why`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.inputs import NewTask, OpenCircuit, Reply
from mailboxd.core.model import Policy, Spec
from mailboxd.core.outcomes import Acknowledged, Failed
from mailboxd.core.vocabulary import Gate, WeakSpec
from mailboxd.surfaces.taskmd.sync import HEADING
from tests.cli.asking import TELL, ask
from tests.cli.stage import Stage, child, make

QUESTION = "---\ntype: question\n---\nWhich airport?\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


def section(stage: Stage, name: str) -> str:
    return dict(stage.task_file(name).extra_sections).get(HEADING, "")


def said(stage: Stage, name: str) -> tuple[str, str]:
    """The sentence and the hint of `mailboxd why`."""
    because = [cause for cause in stage.json("why", name)["because"] if cause["kind"] != "daemon"]
    return because[0]["text"], because[0]["hint"]


def test_nothing_is_said_of_what_works_or_may_start(stage: Stage) -> None:
    stage.create("one")
    assert section(stage, "one") == ""
    stage.start()
    assert section(stage, "one") == ""


def weak(stage: Stage) -> None:
    policy = Policy(weak=WeakSpec.ASK)
    stage.handle(None, NewTask("job", None, "job", "operator", "Job", Spec(goal="Job"), policy))


def question(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", QUESTION)


def approval(stage: Stage) -> None:
    ask(stage, "job", TELL)


def lease(stage: Stage) -> None:
    stage.create("q3", child("a", "beta"))
    stage.start()
    attempt = stage.attempt("q3.a")
    stage.handle("q3.a", Reply("beta", Acknowledged(), attempt.id, attempt.reply_token), actor="beta")


def gate(stage: Stage) -> None:
    policy = Policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("critic",))
    stage.create("job", policy=policy)
    stage.start()
    stage.end_turn("job", "The result itself.")


def circuit(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.handle("job", OpenCircuit("the disk is full"))


def pause(stage: Stage) -> None:
    stage.create("job")
    assert stage.run("pause", "job", "--note", "over the weekend").exit_code == 0


def backoff(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", Failed("overloaded"))


@pytest.mark.parametrize(
    ("make_wait", "name", "about"),
    [
        (weak, "job", "its spec is weak"),
        (question, "job", "asks operator: Which airport?"),
        (approval, "job", "waits for approval"),
        (gate, "job", "the quality gate waits for critic"),
        (circuit, "job", "stopped because mailboxd stopped it: the disk is full"),
        (pause, "job", "over the weekend"),
        (backoff, "job", "pauses after a failure: overloaded"),
    ],
)
def test_it_says_what_why_says(stage: Stage, make_wait: object, name: str, about: str) -> None:
    assert callable(make_wait)
    make_wait(stage)
    text, hint = said(stage, name)
    assert about in text
    shown = section(stage, name)
    assert shown.startswith(f"- {name}: {text}")
    assert hint.replace(f" -w {stage.ws.root}", "") in shown, "the file is in its workspace"


def test_a_parent_says_it_of_its_children(stage: Stage) -> None:
    lease(stage)
    text, _ = said(stage, "q3.a")
    assert text.startswith("beta has accepted it")
    assert section(stage, "q3").startswith(f"- q3.a: {text}")
