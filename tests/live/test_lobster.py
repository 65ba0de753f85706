"""The real Lobster as the gate: whatever it does not guarantee, the effect happens at most once and only after a yes.

The agents are scripted; Lobster is the one from npm, called through a program that keeps its words.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import (
    WORK,
    acting,
    approve,
    asked,
    effect,
    happened,
    killed_at,
    row,
    rows,
    runner_pids,
    until_state,
)
from tests.e2e.support import Agent, Company, environment, eventually, spawned
from tests.live.conftest import some_of
from tests.live.install import standard

ROOT = Path(__file__).resolve().parents[2]
DAEMON_MOMENTS = (3, 9, 15, 22, 30, 45)
"""Of the changes of the world that a daemon makes between a yes and the end."""


class GateDir:
    """An agent whose side effects stand behind the real Lobster."""

    def __init__(self, root: Path) -> None:
        install = standard()
        assert install.has_lobster(), f"no Lobster in {install.cache}: run `make live`"
        root.mkdir()
        self.words = root / "words"
        self.witness = root / "witness"
        self.path = f"{install.node.parent}{os.pathsep}{os.environ['PATH']}"
        self.program = root / "lobster"
        self.program.write_text(
            f'#!/bin/sh\necho "$*" >> {shlex.quote(str(self.words))}\nexec {install.lobster} "$@"\n'
        )
        self.program.chmod(0o700)
        self.company = Company(root, {"alpha": WORK}, {"PATH": self.path})
        self.alpha.settle_in({"approvals": {"lobster": [str(self.program)]}})

    @property
    def alpha(self) -> Agent:
        return self.company["alpha"]

    def lobster(self, *words: str, state: Path | None = None) -> subprocess.Popen[str]:
        """Lobster as anybody of this user may call it, with the gate's own state or another."""
        env = environment({"PATH": self.path, "LOBSTER_STATE_DIR": str(state or self.gate / "state")})
        return subprocess.Popen(
            [str(standard().lobster), *words], env=env, cwd=self.alpha.root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @property
    def gate(self) -> Path:
        return self.alpha.root / ".mailboxd" / "gates" / str(rows(self.alpha)[-1]["id"])

    @property
    def token(self) -> str:
        said = json.loads((self.gate / "token.json").read_text())
        return str(said["requiresApproval"]["resumeToken"])

    def asked(self, *more: str, start: bool = True, **fields: Any) -> str:
        """Have the agent do work with one effect, until a person is asked."""
        self.alpha.drop("job.md", acting("job", [effect(self.witness, *more, **fields)]))
        if start:
            self.alpha.start()
            [name] = asked(self.alpha)
        else:
            self.alpha.run()
            name = str(row(self.alpha)["id"])
        assert row(self.alpha)["gate"] == "lobster"
        return name

    def resumed(self) -> list[str]:
        """What Lobster was told, in order: yes or no."""
        lines = self.words.read_text().splitlines()
        return [line.rpartition(" ")[2] for line in lines if line.startswith("resume")]

    def completed_once(self) -> None:
        self.alpha.until("job", seconds=60)
        assert happened(self.witness) == 1
        assert rows(self.alpha)[-1]["state"] == "done"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[GateDir]:
    made = GateDir(tmp_path / "company")
    yield made
    made.company.close()


def test_it_accepts_the_template_and_what_is_made_of_it(place: GateDir) -> None:
    place.asked()
    for file in (ROOT / "templates" / "approval-recovery.lobster.yaml", place.gate / "workflow.lobster.yaml"):
        for words in (("graph", "--format", "mermaid", "--file", str(file)), ("run", "--dry-run", "--file", str(file))):
            process = place.lobster(*words)
            said, wrong = process.communicate(timeout=30)
            assert process.returncode == 0, wrong
            assert "confirm" in said + wrong
    assert happened(place.witness) == 0
    assert (place.gate / "workflow.lobster.yaml").stat().st_mode & 0o777 == 0o400


def test_yes(place: GateDir) -> None:
    own = f'[ "$PATH" = {shlex.quote(place.path)} ] || exit 3'
    approve(place.alpha, place.asked(own))  # Lobster's shells are login shells, which set another one
    place.completed_once()
    assert place.resumed() == ["yes"]
    assert "eyJ" not in place.words.read_text(), "no token on a command line"
    place.company.at_rest()


def test_no(place: GateDir) -> None:
    name = place.asked()
    gate = place.gate
    assert place.alpha.call("reject", name, "--note", "no", "--now").returncode == 0
    place.alpha.until("job", "failed")
    eventually(lambda: not gate.exists(), 20, place.alpha.last_words)
    assert place.resumed() == ["no"]
    assert happened(place.witness) == 0
    place.company.at_rest()


@pytest.mark.soak
def test_changes(place: GateDir) -> None:
    name = place.asked()
    assert place.alpha.call("ask-changes", name, "--note", "do it better").returncode == 0
    first, second = asked(place.alpha, 2)
    assert first == name
    eventually(lambda: place.words.exists() and "no" in place.resumed(), 20)
    approve(place.alpha, second)
    place.completed_once()
    assert place.resumed() == ["no", "yes"]
    place.company.at_rest()


def test_six_resumes_at_once(place: GateDir) -> None:
    name = place.asked("sleep 0.3", start=False)
    approve(place.alpha, name)
    token = place.token
    six = [place.lobster("resume", "--token", token, "--approve", "yes") for _ in range(6)]
    for process in six:
        process.communicate(timeout=60)
    assert happened(place.witness) == 1
    place.alpha.start()
    place.completed_once()
    place.company.at_rest()


@pytest.mark.parametrize("how", ["stolen", "forged"])
def test_a_token_is_worth_nothing_without_a_yes(place: GateDir, tmp_path: Path, how: str) -> None:
    name = place.asked()
    token = place.token
    if how == "forged":
        steps = {step: {"id": step, "stdout": "", "approved": True} for step in ("preview", "confirm")}
        workflow = str(place.gate / "workflow.lobster.yaml")
        forged: dict[str, Any] = {
            "protocolVersion": 1,
            "v": 1,
            "kind": "workflow-file",
            "filePath": workflow,
            "resumeAtIndex": 2,
        }
        forged |= {"steps": steps, "args": {}, "approvalStepId": "confirm"}
        token = base64.urlsafe_b64encode(json.dumps(forged).encode()).decode().rstrip("=")
    process = place.lobster("resume", "--token", token, "--approve", "yes")
    said, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "not approved" in said, "the step did run, and it was our runner that said no"
    assert happened(place.witness) == 0
    assert row(place.alpha)["state"] == ""
    approve(place.alpha, name)
    place.completed_once()
    place.company.at_rest()


def test_an_edited_workflow_is_not_resumed(place: GateDir) -> None:
    name = place.asked()
    evil = place.witness.with_name("evil")
    workflow = place.gate / "workflow.lobster.yaml"
    edited = workflow.read_text().replace("run: '", f"run: 'touch {evil}; ")
    workflow.chmod(0o600)
    workflow.write_text(edited)
    approve(place.alpha, name)
    place.completed_once()
    assert not evil.exists()
    assert place.resumed() == []
    [delayed] = place.alpha.events("action.delayed")
    assert "was changed after mailboxd wrote it" in json.dumps(delayed["data"])


def lobster_pid(place: GateDir) -> int:
    """The Lobster that the daemon has resumed."""
    for child in map(spawned, (place.alpha.root / ".mailboxd" / "turns").iterdir()):
        if child and "resume" in child["argv"]:
            return int(child["pid"])
    raise AssertionError("no Lobster is resumed")


@pytest.mark.parametrize("with_runner", some_of((False, True), False))
def test_lobster_is_killed_in_the_middle_of_the_effect(place: GateDir, with_runner: bool) -> None:
    """Its step lives on: the runner records what became of it, and where that died too, nobody knows."""
    name = place.asked("sleep 2")
    approve(place.alpha, name)
    until_state(place.alpha, "started")
    eventually(lambda: spawned(place.gate / "effect"), 20)
    os.kill(lobster_pid(place), signal.SIGKILL)
    if not with_runner:
        place.completed_once()
        return
    for pid in runner_pids(place.alpha, name):
        os.kill(pid, signal.SIGKILL)
    place.alpha.until("job", "circuit_open", 60)
    assert row(place.alpha)["state"] == "unknown"
    assert happened(place.witness) == 1, "said only when the effect itself had ended"
    place.company.at_rest()


@pytest.mark.soak
@pytest.mark.parametrize("point", DAEMON_MOMENTS)
def test_the_daemon_is_killed(place: GateDir, point: int) -> None:
    name = place.asked("sleep 0.2", start=False)
    approve(place.alpha, name)
    words = [*killed_at(point), "run", "--until-idle"]
    env = environment({"PATH": place.path})
    subprocess.run(words, cwd=place.alpha.root, env=env, capture_output=True, timeout=60)
    place.alpha.start()
    place.completed_once()
    place.company.at_rest()


@pytest.mark.soak
def test_lobster_goes_missing_after_it_has_put_up_the_gate(place: GateDir) -> None:
    name = place.asked()
    place.program.unlink()
    approve(place.alpha, name)
    place.completed_once()


def test_the_workspace_has_a_name_that_shells_dislike(tmp_path: Path) -> None:
    place = GateDir(tmp_path / "it's $HOME & co")
    try:
        place.alpha.drop("job.md", acting("job", [effect(Path(shlex.quote(str(place.witness))))]))
        place.alpha.start()
        approve(place.alpha, *asked(place.alpha))
        place.completed_once()
        assert row(place.alpha)["gate"] == "lobster"
        assert place.resumed() == ["yes"]
    finally:
        place.company.close()
