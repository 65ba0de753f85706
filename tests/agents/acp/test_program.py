"""The program of a turn against a real agent process that is built on the SDK and behaves oddly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.outcomes import Aborted, Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.host.pip_extras import to_add
from mailboxd.perform.agents.acp import transport, turn_files
from mailboxd.perform.agents.call_dir import PROMPT
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.process import Child, read_exit, spawn
from tests.e2e.support import eventually

pytestmark = pytest.mark.slow

ODD = str(Path(__file__).with_name("odd_agent.py"))


class Stage:
    """One call: its directory, the directory that the harness works in, and what the harness says to a witness."""

    def __init__(self, root: Path) -> None:
        self.folder, self.work, self.log = root / "trn_1", root / "work", root / "log"
        for path in (self.folder, self.work, root / ".mailboxd"):
            path.mkdir()
        self.state = str(root / ".mailboxd")
        self.child: Child | None = None
        self.prompt = b"Do it"

    def start(self, *behaviour: str, **more: Any) -> Child:
        order = {"cwd": str(self.work), "state": self.state, "task_id": "t", "attempt_id": "a", "timeout": 20}
        order |= {"argv": [sys.executable, ODD, *behaviour], "capabilities": ["read", "edit"], "grace": 4.0} | more
        turn_files.write(self.folder, "order.json", order)
        env = {**os.environ, "ODD_LOG": str(self.log)}
        argv = (sys.executable, "-P", "-m", "mailboxd.perform.agents.acp", "--order", str(self.folder / "order.json"))
        self.child = spawn(self.folder, argv, env, files={PROMPT: self.prompt})
        return self.child

    def end(self, seconds: float = 30.0) -> Outcome:
        child = self.child
        assert child is not None
        exit_ = eventually(child.reap, seconds)
        assert exit_ is not None
        return classify(exit_)

    def said(self, what: str) -> list[Any]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [entry[what] for line in lines if what in (entry := json.loads(line))]

    def processes(self) -> set[int]:
        return {pid for what in ("pid", "child") for pid in self.said(what) if _lives(pid)}


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    for pid in stage.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def failed(error: str, *, started: bool = True, permanent: bool = False) -> Any:
    return Failed, error, started, Permanence.PERMANENT if permanent else Permanence.TRANSIENT


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        ("", (Succeeded, "I begin. The answer is 42.", False)),
        pytest.param("unknown-updates", (Succeeded, "I begin. The answer is 42.", False), marks=pytest.mark.soak),
        ("garbage", (Succeeded, "I begin. The answer is 42.", False)),
        pytest.param("terminal", (Succeeded, "I begin. The answer is 42.", False), marks=pytest.mark.soak),
        ("flood", (Succeeded, "I begin. 0 1 2 3", False)),
        pytest.param("large", (Succeeded, "I begin. xxxxxxx", True), marks=pytest.mark.soak),
        pytest.param("stops=max_tokens", (Succeeded, "I begin.", True), marks=pytest.mark.soak),
        ("stops=refusal", failed("refusal: the harness refuses to continue; it said: I begin.")),
        pytest.param("stops=max_turn_requests", failed("max_turn_requests: "), marks=pytest.mark.soak),
        pytest.param("stops=cancelled", failed("cancelled: "), marks=pytest.mark.soak),
        ("unknown-stop", failed("enlightened: the harness ended the turn for an unknown reason")),
        ("errs", failed("harness error -32001: the model is on holiday: HTTP 429")),
        ("dies", (Unknown, "the harness ended with exit status 7; its outcome is unknown")),
        ("killed", (Unknown, "the harness was killed by signal 9; its outcome is unknown")),
        ("mute", failed("The harness cannot start: no answer to initialize within 2 s", started=False)),
        ("locked", failed("The harness cannot start: initialize: Authentication required; log in", started=False)),
        ("future", failed("The harness refused the turn: it speaks ACP 99", started=False, permanent=True)),
    ],
)  # fmt: skip
def test_how_a_turn_ends(stage: Stage, behaviour: str, outcome: tuple[Any, ...]) -> None:
    stage.start(*filter(None, [behaviour]), patience=2.0 if behaviour == "mute" else 30.0)
    found = stage.end()
    kind, text, *more = outcome
    assert isinstance(found, kind), found
    if isinstance(found, Succeeded):
        assert found.text.startswith(text)
        assert [found.truncated, found.session_ref] == [*more, "ses-1"]
    elif isinstance(found, Failed):
        assert found.error.startswith(text)
        assert [found.started, found.permanence] == more
    else:
        assert (found.error, getattr(found, "run_id", "")) == (text, "trn_1")
    assert stage.processes() == set()


def test_unsupported_requests_are_refused_and_write_nothing(stage: Stage) -> None:
    stage.start("terminal")
    stage.end()
    assert dict(zip(stage.said("refused"), stage.said("code"), strict=True)) == {
        "terminal": -32601, "write": -32601, "read": -32601,
    }  # fmt: skip
    assert list(stage.work.iterdir()) == []


def test_everything_that_was_said_is_in_the_journal_which_does_not_grow_without_end(stage: Stage) -> None:
    stage.start("unknown-updates", "garbage", "large")
    stage.end()
    journal = (stage.folder / "frames").read_bytes()
    for said in (b"hologram", b"npm WARN deprecated", b"session/prompt", b'"end_turn"', b"... (8000"):
        assert said in journal
    assert len(journal) < 1_000_000


def test_its_time_is_over_and_it_stops(stage: Stage) -> None:
    stage.start("waits", timeout=1)
    found = stage.end()
    assert isinstance(found, Failed)
    assert found.error.startswith("the turn timed out")
    assert stage.said("cancel") == ["ses-1"]


def test_its_time_is_over_and_it_does_not_stop(stage: Stage) -> None:
    stage.start("stubborn", timeout=1)
    assert stage.end() == Unknown("it did not stop in time; its outcome is unknown", run_id="trn_1")
    assert stage.processes() == set()


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        ("waits", Aborted("stopped by SIGTERM")),
        ("stubborn", Unknown("stopped, but it was not confirmed that the turn was aborted", run_id="trn_1")),
        ("slow=1", None),
    ],
)
def test_a_signal_cancels_the_turn(stage: Stage, behaviour: str, outcome: Outcome | None) -> None:
    child = stage.start(behaviour)
    eventually(lambda: stage.said("prompt") and (behaviour != "stubborn" or stage.said("child")))
    child.terminate()
    found = stage.end(8)
    if outcome is None:  # it did not listen, and had ended before anybody lost patience
        assert isinstance(found, Succeeded)
    else:
        assert found == outcome
    assert stage.processes() == set()


def test_a_killed_program_leaves_a_harness_that_is_found_and_ended(stage: Stage) -> None:
    child = stage.start("stubborn")
    eventually(lambda: stage.said("child"))
    child.kill()
    assert stage.end() == Unknown("killed by signal 9, no output")
    assert len(stage.processes()) == 2  # neither the pipe nor a group has ended it: it is in a session of its own
    assert transport.kill_leftover(stage.folder) == 2
    eventually(lambda: not stage.processes())
    assert transport.kill_leftover(stage.folder) == 0


def test_a_harness_file_that_names_another_process_kills_nothing(stage: Stage) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        turn_files.write(stage.folder, turn_files.HARNESS, {"pid": other.pid, "start_time": 1, "boot_id": "x"})
        assert transport.kill_leftover(stage.folder) == 0
        assert other.poll() is None
        other.kill()


def test_a_file_is_changed_within_its_rights_and_the_diff_is_stored(stage: Stage) -> None:
    stage.start("writes=a.txt")
    assert isinstance(stage.end(), Succeeded)
    changed = turn_files.read_note(stage.folder, turn_files.CHANGES)
    assert changed is not None
    assert changed["files"] == ["a.txt"]
    assert changed["diff"].endswith("+++ b/a.txt\n@@ -0,0 +1 @@\n+a new line\n")


def answer(stage: Stage, number: int, decision: str) -> dict[str, Any]:
    question = eventually(lambda: turn_files.read_note(stage.folder, turn_files.question(number)))
    assert question is not None
    turn_files.write(stage.folder, turn_files.answer(number), {"decision": decision})
    return question


def test_two_questions_at_once_wait_for_their_own_answers_while_the_clock_stands(stage: Stage) -> None:
    stage.start("asks-twice", timeout=2)
    eventually(lambda: sorted(turn_files.questions(stage.folder)) == [1, 2])
    with pytest.raises(AssertionError):
        eventually(lambda: stage.child is not None and stage.child.reap(), 4)  # longer than its time
    first = answer(stage, 1, "approved")
    second = answer(stage, 2, "rejected")
    assert isinstance(stage.end(), Succeeded)
    assert {first["wish"], second["wish"]} == {"execute: make first", "execute: make second"}
    assert first["why"] == "it needs execute; granted: read, edit"
    made = first["wish"].split()[-1]
    assert [path.name for path in stage.work.iterdir()] == [made]
    refused = turn_files.read_note(stage.folder, turn_files.CHANGES)
    assert refused is not None
    assert refused["refused"] == [f"{second['wish']} (rejected)"]


def test_a_parked_question_is_answered_cancelled_when_the_turn_is(stage: Stage) -> None:
    child = stage.start("runs=x")
    eventually(lambda: list(turn_files.questions(stage.folder)))
    child.terminate()
    stage.end(8)
    assert stage.said("answer") == ["cancelled"]
    assert list(stage.work.iterdir()) == []


@pytest.mark.parametrize(
    ("behaviour", "loaded", "text"),
    [(["loads", "knows"], ["ses-9"], "It is all done: 42."), (["loads"], ["ses-9"], "NOT FINISHED")],
)
def test_a_harness_can_be_asked_about_an_interrupted_turn(
    stage: Stage, behaviour: list[str], loaded: list[str], text: str
) -> None:
    stage.prompt = b"What happened?"
    stage.start(*behaviour, session="ses-9", asks=True, capabilities=[])
    found = stage.end()
    assert isinstance(found, Succeeded)
    assert found.text.startswith(text)  # and nothing of what the session replays
    assert stage.said("load_session") == loaded


def test_a_harness_that_cannot_load_sessions_is_not_asked(stage: Stage) -> None:
    stage.start(session="ses-9", asks=True, capabilities=[])
    found = stage.end()
    assert isinstance(found, Failed)
    assert "cannot load its session" in found.error
    assert stage.said("prompt") == []


def test_without_the_library_the_program_says_what_to_install(stage: Stage) -> None:
    stage.start()
    stage.end()
    hidden = stage.work / "acp.py"
    hidden.write_text("raise ModuleNotFoundError('No module named acp')")
    argv = (sys.executable, "-m", "mailboxd.perform.agents.acp", "--order", str(stage.folder / "order.json"))
    env = {**os.environ, "PYTHONPATH": str(stage.work), "ODD_LOG": str(stage.log)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert to_add("acp") in json.loads(done.stdout)["error"]["message"]


def test_inside_an_agent_it_does_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_SHELL", "exec")
    stage.start()
    found = stage.end()
    assert isinstance(found, Failed)
    assert "as the operator" in found.error
    assert not stage.log.exists()


def test_an_order_that_cannot_be_read_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text("{}")
    argv = (sys.executable, "-m", "mailboxd.perform.agents.acp", "--order", str(tmp_path / "order.json"))
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 1
    assert "is not a turn request" in json.loads(done.stdout)["error"]["message"]
    assert done.stderr == ""
    assert read_exit(tmp_path, 1).stdout == b""
