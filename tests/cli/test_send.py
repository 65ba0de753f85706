"""`send` and `message`: what they write is parsed by the same code as any message."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.outcomes import Failed, Permanence, Unknown
from mailboxd.core.vocabulary import is_id
from mailboxd.daemon.health_writer import Health
from mailboxd.engine.sending import Draft, compose
from mailboxd.errors import MessageError
from mailboxd.formats.mailbox import lock
from mailboxd.formats.protocol.messages import ReplyMessage, TaskMessage, parse_message
from mailboxd.formats.protocol.plan import parse_plan
from mailboxd.formats.protocol.taskmd import parse_task_file
from mailboxd.formats.user import registry
from mailboxd.host import wakeup
from mailboxd.host.ids import readable
from mailboxd.host.sdnotify import Notifier
from mailboxd.host.system import system
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.view import HEARD, PEERS, Heard, HubInfo, PeerInfo, PoolInfo
from tests.cli.stage import NOW, Stage, make
from tests.e2e.support import Company

Joins = Callable[[HubInfo | None], None]
QUESTION = "---\ntype: question\n---\n\nWhich figures?\n"
PLAN = "subtasks:\n  a: {agent: beta, description: Extract}\n  b: {agent: self, description: Write, depends_on: [a]}\n"


def sent(stage: Stage, *arguments: str, text: str | None = None) -> TaskMessage:
    """The one message that lies in the inbox after this."""
    result = stage.run("send", *arguments, text=text)
    assert result.exit_code == 0, result.output
    (path,) = stage.ws.inbox.iterdir()
    message = parse_message(path.read_bytes(), path.name).message
    assert isinstance(message, TaskMessage)
    assert result.stdout.splitlines() == [message.task_id, str(path)]
    return message


# Send


def test_a_few_words_are_a_task(stage: Stage) -> None:
    message = sent(stage, "Summarise", "the figures")
    assert (message.title, message.section("Instructions"), message.from_) == ("Summarise the figures",) * 2 + (
        "operator",
    )
    assert message.task_id.startswith("summarise-the-figures-")
    assert message.message_id is not None
    assert message.sent_at == NOW


def test_an_option_reads_the_words_and_units_that_a_file_may_use(stage: Stage) -> None:
    message = sent(
        stage, "--priority", "high", "--timeout", "10m", "--budget-usd", "$2.50", "--budget-tokens", "200k", "Do it"
    )
    assert (message.priority, message.timeout, message.budget_usd, message.budget_tokens) == (10, 600, 2.5, 200_000)
    assert "'soonish' is not a number" in refused(stage, "--timeout", "soonish", "Do it")[1]


def test_every_option_is_a_header_or_a_section(stage: Stage) -> None:
    message = sent(
        stage, "--title", "Q3", "--context", "It is late.", "--expected-output", "Two pages", "--task-id", "q3",
        "--from", "gamma", "--gates", "quality_gate,spec_gate", "--reviewers", "critic", "--priority", "5",
        "--deadline", "2026-12-01T00:00:00Z", "--max-attempts", "2", "--timeout", "60", "--idempotent", "Do it",
        "--criterion", "Every figure\nnames its month", "--criterion", "Two pages", "--budget-usd", "2.5",
        "--budget-tokens", "9000",
    )  # fmt: skip
    assert message.spec().acceptance_criteria == ("Every figure names its month", "Two pages")
    assert (message.budget_usd, message.budget_tokens) == (2.5, 9000)
    assert (message.title, message.task_id, message.from_) == ("Q3", "q3", "gamma")
    assert (message.section("Context"), message.section("Expected Output")) == ("It is late.", "Two pages")
    assert message.gates is not None
    assert sorted(message.gates) == ["quality_gate", "spec_gate"]
    assert (message.reviewers, message.priority, message.deadline) == (("critic",), 5, "2026-12-01T00:00:00.000Z")
    assert (message.max_attempts, message.timeout, message.idempotent) == (2, 60, True)


@pytest.mark.parametrize("words", [["--file", "{file}"], ["--file", "-"], ["-"]])
def test_instructions_come_from_words_a_file_or_standard_input(stage: Stage, tmp_path: Path, words: list[str]) -> None:
    brief = "# The brief\n\n## Results\n\nnone yet\n```\nopen fence"
    (tmp_path / "brief.md").write_text(brief)
    arguments = [word.format(file=tmp_path / "brief.md") for word in words]
    message = sent(stage, *arguments, text=brief)
    assert message.title == "The brief"
    assert message.section("Instructions") == brief


def test_sections_of_a_spec_in_the_text_count_as_such(stage: Stage) -> None:
    text = (
        "Write it.\n\n## Notes\n\nBriefly.\n\n## Goal\n\nA report\n\n## Scope Out\n\nOutlook\n\n## Risks\n\nOld data\n"
    )
    spec = sent(stage, "--title", "Q3", "-", text=text).spec()
    assert (spec.goal, spec.scope_out, spec.risks) == ("A report", "Outlook", "Old data")
    assert spec.instructions == "Write it.\n\n## Notes\n\nBriefly."


def test_a_plan_is_checked_and_goes_with_the_message(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(f"# a comment\n{PLAN}")
    message = sent(stage, "--title", "Release", "--plan", str(tmp_path / "plan.yaml"))
    assert parse_plan(message.section("DAG"), path="") == parse_plan(PLAN, path="")
    assert stage.receive() == "accepted"
    assert len(stage.json("show", message.task_id)["children"]) == 2


@pytest.mark.parametrize(
    ("plan", "rule"),
    [
        (PLAN.replace("Extract", "Extract, depends_on: [b]"), "cycle"),
        (PLAN.replace("[a]", "[z]"), "unknown-dependency"),
        ("subtasks: {}", "empty-plan"),
        ("subtasks: &x {}", "alias"),
        ("nonsense", "wrong-type"),
    ],
)
def test_a_plan_that_could_not_be_carried_out_is_not_sent(stage: Stage, tmp_path: Path, plan: str, rule: str) -> None:
    (tmp_path / "plan.yaml").write_text(plan)
    result = stage.run("send", "--title", "Release", "--plan", str(tmp_path / "plan.yaml"))
    assert result.exit_code == 65
    assert f"({rule})" in result.stderr
    assert list(stage.ws.inbox.iterdir()) == []


def test_a_plan_is_checked_against_the_receivers_limits(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    other = make(tmp_path / "beta", "limits:\n  children: 1\n")
    result = stage.run("send", "--to", str(other.ws.root), "--title", "x", "--plan", str(tmp_path / "plan.yaml"))
    assert result.exit_code == 65
    assert "plan-too-large" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--task-id", "a/b", "x"], ["--from", "..", "x"], ["--priority", "1000", "x"], ["--gates", "none,what", "x"],
        ["--deadline", "11/12/2027", "x"], ["--not-before", "soon", "x"],
        ["--timeout", "soon", "x"], ["--file", "nowhere.md"], ["--file", "-", "x"],
        ["--wait-timeout", "5", "x"], ["--max-attempts", "0", "x"], ["--reviewers", "a b", "x"],
    ],
)  # fmt: skip
def test_an_invalid_message_is_a_usage_error_and_not_sent(stage: Stage, arguments: list[str]) -> None:
    result = stage.run("send", *arguments, text="", env={"VISUAL": None, "EDITOR": None})
    assert result.exit_code == 2, result.output
    assert list(stage.ws.inbox.iterdir()) == []


def test_dates_are_taken_in_words_and_said_as_what_they_were_read_as(stage: Stage) -> None:
    result = stage.run("send", "--deadline", "2026-12-01", "--not-before", "mon 8:00", "Do it")
    assert "its deadline is Tue 1 Dec 2026 23:59:59 UTC" in result.stderr
    vague = stage.run("send", "--not-before", "soon", "x").stderr
    assert "--not-before: " in vague, "as the option is typed"
    assert "it begins Mon 23 Nov 2026 08:00 UTC" in result.stderr
    (path,) = stage.ws.inbox.iterdir()
    message = parse_message(path.read_bytes(), path.name).message
    assert isinstance(message, TaskMessage)
    assert (message.deadline, message.not_before) == ("2026-12-01T23:59:59.000Z", "2026-11-23T08:00:00.000Z")


def test_a_text_that_is_too_long_is_refused_before_it_is_sent(stage: Stage) -> None:
    assert stage.run("send", "-", text="x" * (1 << 20) + "y").exit_code == 2
    assert stage.run("send", "--title", "t" * 1001, "x").exit_code == 65


def test_a_message_appears_whole_and_for_its_owner_only(stage: Stage) -> None:
    sent(stage, "Do it")
    (path,) = stage.ws.inbox.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_agents_mailbox_needs_no_mailboxd(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "peer" / "mailbox" / "inbox").mkdir(parents=True)
    found = stage.json("send", "--to", str(tmp_path / "peer"), "Do it")
    assert Path(found["file"]).parent == tmp_path / "peer" / "mailbox" / "inbox"
    assert list(stage.ws.inbox.iterdir()) == []
    assert stage.run("send", "--to", str(tmp_path), "Do it").exit_code == 69


def test_an_agent_is_found_by_its_name(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    beta = make(tmp_path / "beta")
    beta.ws.config.write_text("agent: beta\n")
    assert Path(stage.json("send", "--to", "Beta", "Do it")["file"]).parent == beta.ws.inbox
    unknown = stage.run("send", "--to", "betta", "Do it")
    assert (unknown.exit_code, "no known workspace has the agent betta" in unknown.stderr) == (69, True)
    assert "did you mean beta?" in unknown.stderr
    make(tmp_path / "twin").ws.config.write_text("agent: beta\n")
    assert "beta has several workspaces" in stage.run("send", "--to", "beta", "Do it").stderr


# What is refused before anything is written


def refused(stage: Stage, *arguments: str) -> tuple[int, str]:
    before = list(stage.ws.inbox.iterdir())
    result = stage.run("send", *arguments)
    assert list(stage.ws.inbox.iterdir()) == before
    return result.exit_code, result.stderr


def test_an_id_that_has_ended_is_refused_with_what_became_of_it(stage: Stage) -> None:
    stage.create("trip")
    stage.start()
    stage.end_turn("trip", "The outcome.")
    stage.clock.advance(180)
    code, said = refused(stage, "--task-id", "trip", "Go")
    assert code == 1
    assert "trip exists: done 3m00s ago (task-exists)" in said
    assert f"`mailboxd -w {stage.ws.root} retry trip` runs it again; or choose another --task-id." in said
    assert refused(stage, "--task-id", "trip", "--wait", "Go")[0] == 1
    error = json.loads(stage.run("send", "--task-id", "trip", "Go", "--json").stderr)["error"]
    assert (error["kind"], error["rule"], error["exit"]) == ("Refused", "task-exists", 1)


def test_an_id_that_is_open_is_refused_with_how_to_add_to_it(stage: Stage) -> None:
    stage.create("trip")
    stage.start()
    stage.end_turn("trip", QUESTION)
    code, said = refused(stage, "--task-id", "trip", "Go")
    assert (code, "trip exists: needs you for" in said) == (1, True)
    assert f"`mailboxd -w {stage.ws.root} edit trip` adds instructions" in said
    added = stage.run("edit", "trip", env={"EDITOR": "sed -i '$aBe brief.'"})
    assert (added.exit_code, "Be brief." in added.stdout) == (0, True)


def test_an_id_that_lies_in_the_inbox_is_refused(stage: Stage) -> None:
    assert stage.run("send", "--task-id", "trip", "Go").exit_code == 0
    code, said = refused(stage, "--task-id", "trip", "Go elsewhere")
    assert (code, "has not been read yet" in said) == (1, True)


def test_an_id_of_another_sender_is_no_obstacle(stage: Stage) -> None:
    stage.create("trip", sender="beta")
    assert stage.run("send", "--task-id", "trip", "Go").exit_code == 0


def test_a_task_that_came_to_be_while_it_was_sent_is_refused_when_it_is_read(stage: Stage) -> None:
    waiting(stage, lambda: stage.create("trip"), stage.receive)
    result = stage.run("send", "--wait", "--task-id", "trip", "Go")
    assert (result.exit_code, "trip exists" in result.stderr) == (1, True)


def test_mistakes_are_refused(stage: Stage) -> None:
    stage.knows(known={"critic": ["Critic", ""], "beta": ["Beta", ""]})
    code, said = refused(stage, "--reviewers", "critik", "Go")
    assert (code, "there is no agent critik to review it; did you mean critic?" in said) == (2, True)
    code, said = refused(stage, "--deadline", "2026-11-21T11:00:00Z", "Go")
    assert (code, "the deadline Sat 21 Nov 2026 11:00 UTC has passed" in said) == (2, True)
    code, said = refused(stage, "--harness", "gemini", "Go")
    assert (code, "no harness gemini is configured here" in said) == (2, True)
    assert stage.run("send", "--reviewers", "Critic,alpha", "Go").exit_code == 0


def test_a_harness_that_is_configured_works(tmp_path: Path) -> None:
    stage = make(tmp_path / "alpha", "acp:\n  harnesses:\n    gemini:\n      argv: [gemini]\n")
    message = sent(stage, "--harness", "gemini", "Go")
    assert (message.runtime, message.harness) == ("acp", "gemini")


def test_a_long_text_in_one_argument_is_no_path(stage: Stage) -> None:
    text = "Summarize the figures of the quarter for the board. " * 100
    message = sent(stage, text)
    assert message.section("Instructions") == text.strip()
    away = stage.run("send", "--to", "beta" * 100, "Go")
    assert (away.exit_code, "there is no mailbox/inbox" in away.stderr) == (69, True)


def test_without_a_text_an_editor_opens(stage: Stage) -> None:
    written = stage.run("send", env={"EDITOR": "sed -i '$a# The trip\\n\\nBook it.'"})
    assert written.exit_code == 0, written.output
    (path,) = stage.ws.inbox.iterdir()
    message = parse_message(path.read_bytes(), path.name).message
    assert isinstance(message, TaskMessage)
    assert (message.title, message.section("Instructions")) == ("The trip", "# The trip\n\nBook it.")
    assert stage.run("send", env={"EDITOR": "true"}).exit_code == 2


@given(st.text(max_size=200))
def test_every_title_makes_an_id_and_a_message(title: str) -> None:
    task_id = readable("abc123", title)
    assert is_id(task_id)
    try:
        raw = compose(Draft(title or "x", title), {"task_id": task_id, "from": "operator"})
    except MessageError:
        return
    assert isinstance(parse_message(raw, "x.md").message, TaskMessage)


def test_a_workspace_that_run_all_has_yet_to_find_needs_no_daemon_of_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert registry.register(stage.ws.root, os.environ)
    soon = "`mailboxd run --all` starts one within 15 s"
    with registry.serving_all(os.environ):
        assert stage.run("send", "--task-id", "job", "Do it").stderr == f"no daemon is running there: {soon}\n"
        stage.receive()
        assert stage.json("inbox") == []
        said = stage.run("why", "job").stdout
        assert soon in said
        assert "->" not in said
        assert stage.run("pause", "job").stderr == f"no daemon is running: recorded, and {soon}\n"
        assert stage.run("resume", "job").exit_code == 0
        with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha"):
            pass  # now one was started, and somebody has stopped it
        again = f"kill -HUP {os.getpid()}"
        assert stage.item("daemon")["command"] == again
        assert f"`{again}` starts the task" in stage.run("send", "Do it").stderr
    (stage.ws.state / "health.json").unlink()
    assert "run` starts the task" in stage.run("send", "Do it, too").stderr


# Send --wait


def waiting(stage: Stage, *steps: Any) -> None:
    """While `send --wait` pauses, these things happen one after the other; each pause takes a second."""
    left = iter(steps)

    def meanwhile(_seconds: float) -> None:
        stage.clock.advance(1)
        next(left, lambda: None)()

    stage.pause = meanwhile


def test_wait_prints_the_result_when_the_task_is_done(stage: Stage) -> None:
    waiting(stage, stage.receive, stage.start, lambda: stage.end_turn("job", "Twelve figures"))
    result = stage.run("send", "--wait", "--task-id", "job", "Do it")
    assert (result.exit_code, result.stdout) == (0, "Twelve figures\n")
    assert f"no daemon is running there: `mailboxd -w {stage.ws.root} run` starts the task" in result.stderr
    assert "job: attempt 1 succeeded: Twelve figures; completed\n" in result.stderr


def test_wait_says_that_it_failed(stage: Stage) -> None:
    hopeless = Failed("no such model", Permanence.PERMANENT)
    waiting(stage, stage.receive, stage.start, lambda: stage.end_turn("job", hopeless))
    result = stage.run("send", "--wait", "--task-id", "job", "Do it", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == "no such model"


def asking(stage: Stage) -> None:
    waiting(stage, stage.receive, stage.start, lambda: stage.end_turn("job", QUESTION))


def test_wait_ends_at_once_when_the_task_asks(stage: Stage) -> None:
    asking(stage)
    result = stage.run("send", "--wait", "--task-id", "job", "Do it")
    assert result.exit_code == 3
    assert (
        result.stdout
        == f"job: asks operator: Which figures? (0.0 s ago)\n  -> mailboxd -w {stage.ws.root} answer job\n"
    )


def test_wait_that_ends_at_a_question_is_json_if_that_was_asked_for(stage: Stage) -> None:
    asking(stage)
    result = stage.run("send", "--wait", "--task-id", "job", "Do it", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["need"], found["attention"][0]["kind"]) == (3, "question", "question")


def test_wait_ends_at_an_open_circuit_below_the_task(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("subtasks:\n  a: {description: A, agent: alpha}\n")
    lost = Unknown("the gateway went away", "run_9", looked_up=True)
    waiting(stage, stage.receive, stage.start, stage.start, lambda: stage.end_turn("job.a", lost))
    result = stage.run("send", "--wait", "--task-id", "job", "--plan", str(tmp_path / "plan.yaml"), "Do it")
    assert (result.exit_code, "job.a: stopped because" in result.stdout) == (3, True), result.output


def test_wait_does_not_end_because_of_another_task(stage: Stage) -> None:
    stage.create("other")
    stage.start()
    stage.end_turn("other", QUESTION)
    waiting(stage, stage.receive)
    assert stage.run("send", "--wait", "--wait-timeout", "9", "--task-id", "job", "Do it").exit_code == 75


def test_a_time_out_is_json_if_that_was_asked_for(stage: Stage) -> None:
    waiting(stage)
    unread = stage.run("send", "--wait", "--wait-timeout", "3", "--task-id", "job", "Do it", "--json")
    assert (unread.exit_code, json.loads(unread.stdout)["task_id"]) == (75, "job")
    waiting(stage, stage.receive)
    assert stage.receive() == "accepted"
    waiting(stage, stage.receive)
    result = stage.run("send", "--wait", "--wait-timeout", "3", "--task-id", "next", "Do it", "--json")
    assert (result.exit_code, json.loads(result.stdout)["phase"]) == (75, "execution_ready")


def test_wait_ends_when_its_time_is_over(stage: Stage) -> None:
    waiting(stage, stage.receive)
    result = stage.run("send", "--wait", "--wait-timeout", "30", "--task-id", "job", "Do it")
    assert result.exit_code == 75
    assert " why job`" in result.stderr


def test_a_wait_that_is_over_names_the_task_as_it_is_called_here(stage: Stage, tmp_path: Path) -> None:
    stage.create("job", sender="analyst")
    waiting(stage, stage.receive)
    result = stage.run("send", "--wait", "--wait-timeout", "3", "--task-id", "job", "Do it")
    assert f"job-2 has not ended and continues; see `mailboxd -w {stage.ws.root} why job-2`" in result.stderr
    other = make(tmp_path / "other")
    waiting(stage, other.receive)
    result = stage.run("send", "--to", str(other.ws.root), "--wait", "--wait-timeout", "3", "--task-id", "job", "Do it")
    assert f"`mailboxd -w {other.ws.root} why job`" in result.stderr


def test_a_wait_that_is_over_before_anybody_took_the_message_says_so(stage: Stage) -> None:
    waiting(stage)
    result = stage.run("send", "--wait", "--wait-timeout", "3", "--task-id", "job", "Do it")
    assert result.exit_code == 75
    assert f"{stage.ws.inbox / 'task-job.md'} has not been accepted yet; it remains in the inbox" in result.stderr
    assert " why " not in result.stderr


def test_wait_tells_why_a_message_was_rejected(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    waiting(stage, lambda: stage.ws.config.write_text("agent: alpha\nlimits:\n  children: 1\n"), stage.receive)
    result = stage.run("send", "--wait", "--task-id", "job", "--title", "x", "--plan", str(tmp_path / "plan.yaml"))
    assert result.exit_code == 65
    assert "(plan-too-large)" in result.stderr


# Message


def test_a_dispatch_is_a_task_message(stage: Stage) -> None:
    result = stage.run(
        "export", "message", "dispatch", "--task-id", "q3", "--subtask-id", "extract", "--from", "analyst",
        "--title", "Extract", "--context", "From q3.csv", "--instructions", "Take the figures",
        "--expected-output", "A table",
    )  # fmt: skip
    message = parse_message(result.stdout.encode(), "x.md").message
    assert isinstance(message, TaskMessage)
    assert (message.task_id, message.subtask_id, message.from_) == ("q3", "extract", "analyst")
    assert [section.heading for section in message.sections] == ["Context", "Instructions", "Expected Output"]


def test_a_dispatch_needs_a_title_only(stage: Stage) -> None:
    said = stage.run("export", "message", "dispatch", "--to", "scout", "--title", "Extract the figures").stdout
    message = parse_message(said.encode(), "x.md").message
    assert message.task_id.startswith("extract-the-figures-")
    assert (message.from_, message.to) == ("alpha", "scout")


def test_a_reply_is_done_or_failed(stage: Stage) -> None:
    who = ["--task-id", "q3", "--subtask-id", "extract", "--from", "scout"]
    done = stage.run("export", "message", "reply", *who, "--status", "done", "--results", "## Results\n\ntwelve").stdout
    failed = stage.run(
        "export", "message", "reply", *who, "--status", "failed", "--error", "no", "--partial-results", "six"
    ).stdout
    for text, status in ((done, "done"), (failed, "failed")):
        message = parse_message(text.encode(), "x.md").message
        assert isinstance(message, ReplyMessage)
        assert (message.status, message.completed_at) == (status, NOW)
    assert parse_message(done.encode(), "x.md").message.section("Results") == "## Results\n\ntwelve"
    assert parse_message(failed.encode(), "x.md").message.section("Partial Results") == "six"
    for wrong in (["done", "--error", "x"], ["done"], ["failed", "--results", "x"]):
        assert stage.run("export", "message", "reply", *who, "--status", *wrong).exit_code == 2


@pytest.mark.parametrize(("mode", "status"), [("direct", "pending"), ("coordinating", "planning")])
def test_a_task_md_in_both_modes(stage: Stage, mode: str, status: str) -> None:
    result = stage.run(
        "export", "message", "task", "--task-id", "q3", "--from", "operator", "--title", "Q3", "--mode", mode,
        "--instructions", "Do it", "--expected-output", "Two pages",
    )  # fmt: skip
    file = parse_task_file(result.stdout.encode(), "task.md")
    assert (file.task_id, file.mode, file.status, file.sender) == ("q3", mode, status, "operator")
    assert (file.instructions, file.extra_sections) == ("Do it", (("Expected Output", "Two pages"),))
    wrong = stage.run(
        "export", "message", "task", "--task-id", "q", "--from", "x", "--title", "Q", "--mode", mode, "--status", "x"
    )
    assert wrong.exit_code == 2


def test_a_file_is_written_once_and_never_over_another(stage: Stage, tmp_path: Path) -> None:
    command = [
        "export",
        "message",
        "dispatch",
        "--task-id",
        "q3",
        "--from",
        "a",
        "--title",
        "T",
        "-o",
        str(tmp_path / "m.md"),
    ]
    assert stage.run(*command).exit_code == 0
    before = (tmp_path / "m.md").read_bytes()
    assert parse_message(before, "m.md").message.task_id == "q3"
    assert stage.run(*command, "--context", "other").exit_code == 2
    assert (tmp_path / "m.md").read_bytes() == before
    assert stage.run(*command[:-1], str(tmp_path / "no" / "m.md")).exit_code == 75


# The agents of a plan


def knows(stage: Stage, allowed: list[str] | None) -> None:
    """OpenClaw has answered: there are these agents, and alpha may give work to the allowed ones."""
    known = {name: [name, ""] for name in ("alpha", "critic", "writer")}
    stage.knows(known=known, allowed=allowed, has_rules=True)


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("critik", "there is no agent critik (unknown-agent). Did you mean critic?"),
        ("nobody", "alpha may give work to critic, and to itself (self)."),
        ("writer", "OpenClaw does not let alpha give work to writer"),
        ("critic, nobody", "there is no agent nobody"),
    ],
)
def test_a_plan_with_an_agent_that_cannot_be_asked_is_not_sent(stage: Stage, agent: str, said: str) -> None:
    knows(stage, ["critic"])
    plan = stage.ws.root / "plan.yaml"
    plan.write_text(f"subtasks:\n  a: {{agent: [{agent}], description: Write}}\n")
    done = stage.run("send", "--title", "T", "--plan", str(plan))
    assert (done.exit_code, said in done.stderr) == (65, True), done.stderr
    words = ("--with", "question=Ready?", "--with", f"panel=alpha,{agent.rpartition(' ')[2]}")
    done = stage.run("recipe", "run", "panel", *words)
    assert (done.exit_code, said in done.stderr) == (65, True), done.stderr
    assert list(stage.ws.inbox.iterdir()) == []


@pytest.mark.parametrize(
    ("child", "said"),
    [
        (
            "gates: [quality_gate], reviewers: [critik]",
            "a: there is no agent critik to review it; did you mean critic?",
        ),
        ("model: gpt/x", "a: the model gpt/x may not be chosen here; allowed is none (openclaw.models)"),
        ("runtime: acp, harness: gemini", "a: no harness gemini is configured here"),
        ("subtasks: {b: {agent: self, description: B, model: gpt/x}}", "b: the model gpt/x may not be chosen here"),
    ],
)
def test_a_plan_whose_children_nobody_can_do_or_review_is_not_sent(stage: Stage, child: str, said: str) -> None:
    knows(stage, ["critic"])
    plan = stage.ws.root / "plan.yaml"
    plan.write_text(f"subtasks:\n  a: {{agent: self, description: Write, {child}}}\n")
    done = stage.run("send", "--title", "T", "--plan", str(plan))
    assert (done.exit_code, said in done.stderr) == (65, True), done.stderr
    assert list(stage.ws.inbox.iterdir()) == []


def test_an_agent_is_not_sent_to_review_its_own_work(stage: Stage) -> None:
    code, said = refused(stage, "--gates", "quality_gate", "--reviewers", "Alpha", "Go")
    assert (code, "alpha does not review its own work; name another reviewer" in said) == (2, True)


@pytest.fixture
def joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Joins]:
    """This host is one of a hub, whose process runs and has written what it knows."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hub_process:

        def join(info: HubInfo | None) -> None:
            state = Membership.of(os.environ).state
            with state.writing() as folder:
                state.write(folder, "hub.yaml", b"")
                state.write(folder, HEARD, Heard().to_bytes())
                if info is not None:
                    state.write(folder, PEERS, info.to_bytes())
            with system.socket_address(state.folder / wakeup.NAME) as address:
                hub_process.bind(address)

        yield join


FAR = HubInfo(
    "here",
    ("beta", "gamma"),
    {"beta.writer": PeerInfo(permitted=True), "beta.closed": PeerInfo(permitted=False)},
    {"reviewer": PoolInfo(("beta",), permitted=True), "closed": PoolInfo(("beta",), permitted=False)},
)


@pytest.fixture
def unjoined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


CAN_BE_ASKED = ["Critic", "self", "alpha", "pool:reviewer", "Beta.writer", "gamma.anyone"]
"""`gamma` has not said yet whom it has."""


@pytest.mark.parametrize("agent", CAN_BE_ASKED)
def test_a_plan_with_an_agent_that_can_be_asked_is_sent(stage: Stage, joins: Joins, agent: str) -> None:
    plan = f"subtasks:\n  a: {{agent: ['{agent}'], description: Write}}\n"
    knows(stage, ["critic"])
    joins(FAR)
    assert stage.run("send", "--title", "T", "--plan", "-", text=plan).exit_code == 0


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("pool:nobody", "no host of the hub serves pool:nobody; there is pool:closed, pool:reviewer"),
        ("pool:closed", "does not let its agents give work to pool:closed"),
        ("beta.nobody", "there is no agent nobody on the host beta"),
        ("beta.closed", "does not let its agents give work to beta.closed"),
        ("delta.writer", "there is no agent delta.writer"),
    ],
)
def test_an_agent_elsewhere_that_cannot_be_asked_is_refused_before(
    stage: Stage, joins: Joins, agent: str, said: str
) -> None:
    plan = f"subtasks:\n  a: {{agent: ['{agent}'], description: Write}}\n"
    knows(stage, ["critic"])
    joins(FAR)
    done = stage.run("send", "--title", "T", "--plan", "-", text=plan)
    assert (done.exit_code, said in done.stderr) == (65, True), done.stderr
    assert list(stage.ws.inbox.iterdir()) == []


@pytest.mark.parametrize("to", ["beta.writer", "pool:reviewer"])
def test_a_task_for_an_agent_elsewhere_is_one_here_that_is_given_on(stage: Stage, joins: Joins, to: str) -> None:
    knows(stage, ["critic"])
    joins(FAR)
    done = stage.run("send", "--to", to, "--title", "Line", "--criterion", "It rhymes", "--context", "For Ann", "Write")
    assert done.exit_code == 0, done.stderr
    (file,) = stage.ws.inbox.iterdir()
    sent = parse_message(file.read_bytes(), file.name).message
    assert isinstance(sent, TaskMessage)
    plan = sent.plan
    assert plan is not None
    (child,) = plan.children
    assert (child.agents, plan.synthesis) == ((to,), child.key)
    assert (child.instructions, child.acceptance_criteria, child.context) == ("Write", ("It rhymes",), "For Ann")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("send", "--to", "beta.nobody", "Write"), "there is no agent nobody on the host beta"),
        (("send", "--to", "pool:nobody", "Write"), "no host of the hub serves pool:nobody"),
        (("send", "--to", "delta.writer", "Write"), "there is no agent delta.writer"),
        (("send", "--to", "beta.writer", "--title", "T", "--plan", "-"), "the plan names its agents itself"),
    ],
)
def test_what_cannot_be_given_to_an_agent_elsewhere_is_refused(
    stage: Stage, joins: Joins, words: list[str], said: str
) -> None:
    knows(stage, ["critic"])
    joins(FAR)
    done = stage.run(*words, text="subtasks:\n  a: {agent: self, description: Write}\n")
    assert (done.exit_code != 0, said in done.stderr) == (True, True), done.stderr
    assert list(stage.ws.inbox.iterdir()) == []


def test_what_nobody_has_said_yet_refuses_nothing(stage: Stage, joins: Joins) -> None:
    plan = "subtasks:\n  a: {agent: [nobody, beta.writer], description: Write}\n"
    assert stage.run("send", "--title", "T", "--plan", "-", text=plan).exit_code == 0, "OpenClaw was never asked"
    knows(stage, None)
    joins(None)
    far = "subtasks:\n  a: {agent: ['pool:reviewer', beta.writer], description: Write}\n"
    assert stage.run("send", "--title", "T", "--plan", "-", text=far).exit_code == 0, "the hub has not started"


@pytest.mark.usefixtures("unjoined")
def test_without_a_hub_there_is_no_pool_and_no_agent_of_another_host(stage: Stage) -> None:
    knows(stage, None)
    for agent, said in (("pool:reviewer", "no host of the hub serves"), ("beta.writer", "there is no agent")):
        plan = f"subtasks:\n  a: {{agent: ['{agent}'], description: Write}}\n"
        done = stage.run("send", "--title", "T", "--plan", "-", text=plan)
        assert (done.exit_code, said in done.stderr) == (65, True), done.stderr


def test_tools_that_forbid_messages_are_known_too(stage: Stage) -> None:
    knows(stage, None)
    stage.knows(messaging=[True, ["alpha", "critic"]])
    sent = {}
    for agent in ("critic", "writer"):
        plan = f"subtasks:\n  a: {{agent: {agent}, description: Write}}\n"
        sent[agent] = stage.run("send", "--title", "T", "--plan", "-", text=plan).exit_code
    assert sent == {"critic": 0, "writer": 65}


TYPED = "Write it.\n\n## DAG\n\n```yaml\nsubtasks:\n  a: {{agent: {}, description: Write}}\n```\n\n## Goal\n\nA text\n"


def test_a_plan_that_is_typed_into_the_instructions_is_one(stage: Stage) -> None:
    knows(stage, ["critic"])
    refused = stage.run("send", "--title", "T", "--file", "-", text=TYPED.format("nobody"))
    assert (refused.exit_code, "there is no agent nobody" in refused.stderr) == (65, True), refused.stderr
    refused = stage.run("send", "--title", "T", "--file", "-", text=TYPED.format("critic").replace("agent:", "agnt:"))
    assert refused.exit_code == 65
    assert list(stage.ws.inbox.iterdir()) == []
    assert stage.run("send", "--title", "T", "--file", "-", text=TYPED.format("critic")).exit_code == 0
    (file,) = stage.ws.inbox.iterdir()
    message = parse_message(file.read_bytes(), file.name).message
    assert isinstance(message, TaskMessage)
    assert message.plan is not None
    assert [child.agents for child in message.plan.children] == [("critic",)]
    assert (message.spec().goal, message.spec().instructions) == ("A text", "Write it.")


def test_two_plans_are_refused_and_a_heading_without_subtasks_is_text(stage: Stage) -> None:
    plan = stage.ws.root / "plan.yaml"
    plan.write_text("subtasks:\n  a: {agent: self, description: Write}\n")
    twice = stage.run("send", "--title", "T", "--plan", str(plan), "--file", "-", text=TYPED.format("self"))
    assert (twice.exit_code, "there are two plans" in twice.stderr) == (65, True)
    text = "Explain this.\n\n## DAG\n\nA directed acyclic graph.\n"
    assert stage.run("send", "--title", "T", "--file", "-", text=text).exit_code == 0


@pytest.mark.slow
def test_a_refusal_says_how_to_ask_again_and_that_helps(tmp_path: Path) -> None:
    """An agent was added while no daemon ran."""
    company = Company(tmp_path, {"alpha": {"mailbox": True}, "beta": {}})
    alpha = company["alpha"]
    alpha.settle_in({"openclaw": {"discovery": "true"}})
    alpha.run()
    company.rewrite({"alpha": {"mailbox": True}, "beta": {}, "gamma": {}})
    (alpha.root / "plan.yaml").write_text("subtasks:\n  a: {agent: gamma, description: Write}\n")
    refused = alpha.call("send", "--title", "T", "--plan", "plan.yaml")
    assert refused.returncode == 65
    (command,) = re.findall(r"`mailboxd ([^`]+)` asks again", refused.stderr)
    assert alpha.call(*command.split()).returncode == 0
    assert alpha.call("send", "--title", "T", "--plan", "plan.yaml").returncode == 0
