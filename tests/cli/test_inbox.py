"""What waits for a person: one list, the same in every view, with commands that run as printed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Policy, Spec
from mailboxd.core.outcomes import Unknown
from mailboxd.core.vocabulary import Gate, Phase, State, WeakSpec
from mailboxd.daemon.health_writer import Health
from mailboxd.formats.health import Component, Grade
from mailboxd.formats.mailbox import lock
from mailboxd.host.sdnotify import Notifier
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import NOW, Stage, child

QUESTION = "---\ntype: question\n---\n\nWhich figures?\n"
TASK = "---\ntype: task\ntask_id: q3\nfrom: operator\n{}---\n\n# Task: Q3\n\n## Instructions\n\nDo it.\n"


def kinds(stage: Stage) -> list[str]:
    return [item["kind"] for item in stage.json("inbox") if item["kind"] != "daemon"]


def asks(stage: Stage, name: str = "job") -> None:
    stage.create(name)
    stage.start()
    stage.end_turn(name, QUESTION)


def loses(stage: Stage, name: str = "job") -> None:
    stage.create(name, policy=Policy(max_attempts=1))
    stage.start()
    stage.end_turn(name, Unknown("the gateway went away", "run_9", looked_up=True))


def untold(stage: Stage, addressee: str = "telegram:42") -> None:
    """A notice that has been tried for a day, and reached nobody."""
    data = {"at": stage.clock.now(), "id": "ord_1", "what": "approval", "to": addressee, "why": "no bot", "again": None}
    stage.record(Event(Kind.NOTICE_FAILED, None, data))


def put(stage: Stage, text: str, name: str = "q3.md") -> str:
    (stage.ws.inbox / name).write_text(text)
    return stage.receive()


def test_nothing_waits_in_a_new_workspace(stage: Stage) -> None:
    assert stage.json("inbox") == []
    assert "nothing waits for you" in stage.run("inbox").stderr


def test_work_without_a_daemon_waits_for_one(stage: Stage) -> None:
    stage.create("job")
    (stage.ws.inbox / "one.md").write_text("do it")
    item = stage.item("daemon")
    assert item["text"] == "no daemon is running, and 1 open task and 1 file in the inbox wait for it"
    assert item["command"] == f"mailboxd -w {stage.ws.root} run"


def test_a_question_waits_since_it_was_asked(stage: Stage) -> None:
    asks(stage)
    stage.clock.advance(60)
    assert stage.run("edit", "job", "Be brief.").exit_code == 0
    item = stage.item("question")
    assert (item["task"], item["text"], item["since"]) == ("job", "asks operator: Which figures?", NOW)


def test_a_coordinating_task_waits_for_you_while_all_its_open_subtasks_do(stage: Stage) -> None:
    stage.create("job", child("a", "alpha"), child("b", "alpha", ("a",)), child("c", "alpha"))
    stage.start()
    stage.end_turn("job.a", QUESTION)
    assert stage.json("show", "job")["need"] is None, "c works"
    stage.end_turn("job.c", "The outcome.")
    assert stage.json("show", "job")["need"] == "subtasks"
    assert "‖ needs you" in stage.run("show", "--tree", "job").stdout.splitlines()[0]
    assert stage.json("status")["states"] == {"needs you": 2, "waiting": 1, "done": 1}
    assert kinds(stage) == ["question"]
    assert stage.run("answer", "job.a", "Those of July.").exit_code == 0
    assert stage.json("show", "job")["need"] is None


def test_a_question_that_an_agent_is_to_answer_does_not_wait_for_a_person(stage: Stage) -> None:
    stage.create("job", sender="beta")
    stage.start()
    stage.end_turn("job", QUESTION)
    assert kinds(stage) == []
    stage.clock.advance(100_000)
    stage.tick()
    assert kinds(stage) == ["question"]


def test_each_approval_is_an_item(stage: Stage) -> None:
    ids = ask(stage, "job", PUBLISH)
    item = stage.item("approval")
    assert (item["task"], item["id"]) == ("job", ids[0])
    assert item["text"] == "asks for your approval: run make publish"
    assert item["until"] > item["since"]


def test_a_task_that_only_waits_for_its_approvals_is_counted_once(stage: Stage) -> None:
    ask(stage, "job", PUBLISH)
    found = stage.json("status")
    assert found["attention_count"] == len(found["attention"]) == 2, "the approval, and the daemon that does not run"
    assert found["states"] == {"needs you": 1}


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (Policy(gates=frozenset({Gate.SPEC_REVIEW})), "review"),
        (Policy(budget_usd=0.0), "hold"),
        (Policy(budget_tokens=0), "hold"),
    ],
)
def test_tasks_that_cannot_go_on_are_items(stage: Stage, policy: Policy, kind: str) -> None:
    stage.create("job", policy=policy)
    assert kinds(stage) == [kind]


def test_the_newest_and_the_broken_are_where_they_belong(stage: Stage) -> None:
    """What is broken comes first, then what has waited longest."""
    loses(stage, "first")
    stage.clock.advance(60)
    asks(stage, "second")
    with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha") as health:
        health.report(Component.GATEWAY, "connection refused", Grade.AMBER)
        health.report(Component.CLEANUP, "it is late", Grade.AMBER)
        stage.finds_away(beta="no daemon runs for beta")
        health.report(Component.PEERS, "no daemon runs for beta", Grade.AMBER)
        health.report(Component.AGENTS, "beta gets no turns", Grade.AMBER)
        assert kinds(stage) == ["circuit", "question"], "a restart takes less than a minute"
        stage.clock.advance(60)
        health.report(Component.HUB, "the server does not answer", Grade.AMBER)
        items = stage.json("inbox")
    assert [item["kind"] for item in items] == ["gateway", "health", "peer", "circuit", "question"]
    assert items[1]["text"] == "cleaning up: it is late"
    assert items[2]["text"] == "the peer beta: no daemon runs for beta"


@pytest.mark.parametrize("where", [Component.JOURNAL, Component.SIGNING, Component.SPACE, Component.DESCRIPTORS])
def test_what_works_only_in_part_is_an_item_once_until_it_is_mended(stage: Stage, where: Component) -> None:
    """Who reads only this list is told; the command prints what to do, and `status` does not say it twice."""
    with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha") as health:
        health.report(where, "it does not work", Grade.AMBER)
        assert kinds(stage) == []
        assert f"amber: {where}: it does not work" in stage.run("status").stdout
        stage.clock.advance(60)
        health.beat()
        assert kinds(stage) == ["health"]
        assert stage.run("status").stdout.count("it does not work") == 1
        command = shlex.split(stage.item("health")["command"])
        assert command[0] == "mailboxd"
        shown = stage.run(*command[1:])
        assert shown.exit_code == 0
        assert "Effect: " in shown.stdout
        health.report(where, "")
        assert kinds(stage) == []


def test_only_what_a_daemon_can_do_waits_for_one(stage: Stage) -> None:
    asks(stage, "asked")
    stage.create("held", policy=Policy(budget_usd=0.0))
    assert "daemon" not in kinds(stage) or "1 open task waits" not in stage.item("daemon")["text"]
    stage.create("job")
    assert "and 1 open task waits for it" in stage.item("daemon")["text"]


# Files


def test_a_rejection_names_file_line_and_field_before_what_is_wrong(stage: Stage) -> None:
    assert put(stage, TASK.format("priority: 500\n")) == "rejected"
    text = stage.item("rejected")["text"]
    assert text.startswith("rejected q3.md, line ")
    assert ": priority: '500' is out of range (field-range)" in text


def test_a_rejected_file_waits_with_its_reason_until_a_better_one_comes(stage: Stage) -> None:
    assert put(stage, "---\ntaks_id: q3\nfrom: operator\ntpye: task\n---\n\nDo it.\n") == "rejected"
    item = stage.item("rejected")
    assert item["text"].startswith("rejected q3.md, line 2: required headers are missing: type")
    assert "Is 'tpye' a misspelling of type?" in item["text"]
    assert put(stage, TASK.format("")) == "accepted"
    assert kinds(stage) == []


def test_what_lies_in_tasks_and_is_no_task_is_named_with_the_command_that_moves_it(stage: Stage) -> None:
    (stage.ws.tasks / "loose.md").write_text("Do it.")
    (stage.ws.tasks / "my plan").mkdir()
    (stage.ws.tasks / ".hidden").write_text("")
    (stage.ws.tasks / "q3").mkdir()
    plan, loose = stage.json("inbox")
    assert loose["kind"] == plan["kind"] == "file"
    assert loose["text"].startswith("tasks/loose.md is not read: it is no task of mailboxd, which leaves it alone")
    assert loose["command"] == f"{stage.program} inbox --dismiss tasks/loose.md"
    assert plan["text"].startswith("tasks/my plan is not read: the name of a task's directory is an id")
    assert plan["command"] == f"mv -- '{stage.ws.tasks}/my plan' {stage.ws.tasks}/my-plan-1"
    subprocess.run(shlex.split(plan["command"]), check=True)
    assert stage.run(*shlex.split(loose["command"].removeprefix(stage.program))).exit_code == 0
    assert "file" not in kinds(stage)


def test_a_rejected_plan_is_settled_by_a_better_one_under_another_name(stage: Stage) -> None:
    cycle = "\n## DAG\n\n```yaml\nsubtasks:\n  - {id: a, title: A, depends_on: [a]}\n```\n"
    assert put(stage, TASK.format("") + cycle) == "rejected"
    assert kinds(stage) == ["rejected"]
    assert put(stage, TASK.format(""), "again.md") == "accepted"
    assert kinds(stage) == []


def test_another_senders_message_does_not_settle_a_rejected_one(stage: Stage) -> None:
    assert put(stage, TASK.format("depth: 50\n")) == "rejected"
    put(stage, TASK.format("").replace("operator", "beta"))
    assert kinds(stage) == ["rejected"]


@pytest.mark.parametrize(
    ("header", "doubt"),
    [
        ("prority: 5\n", "q3.md: unknown header 'prority'; did you mean priority?"),
        ("to: beta\n", "q3.md: to: it names beta, but this is the mailbox of alpha, which takes it as its own"),
    ],
)
def test_a_message_that_may_mean_something_else_waits_until_it_is_dismissed(
    stage: Stage, header: str, doubt: str
) -> None:
    assert put(stage, TASK.format(header)) == "accepted"
    item = stage.item("warning")
    assert (item["task"], item["text"]) == ("q3", doubt)
    assert stage.run("cancel", "q3").exit_code == 0
    assert kinds(stage) == ["warning"]


@pytest.mark.parametrize("header", ["to: alpha\n", "to: Alpha\n", "to: self\n", "x-note: something\n", ""])
def test_an_ordinary_message_raises_no_doubt(stage: Stage, header: str) -> None:
    assert put(stage, TASK.format(header)) == "accepted"
    assert kinds(stage) == []


def test_files_are_dismissed_one_by_one_or_all(stage: Stage) -> None:
    put(stage, TASK.format("prority: 5\n"))
    for name in ("one.md", "two.md"):
        put(stage, "---\ntype: nothing\n---\n", name)
    assert sorted(kinds(stage)) == ["rejected", "rejected", "warning"]
    assert run_as_printed(stage, stage.item("warning")["command"]) == 0
    assert kinds(stage) == ["rejected", "rejected"]
    assert stage.run("inbox", "--dismiss", "all").exit_code == 0
    assert kinds(stage) == []
    assert "dismissed by" in stage.json("log")[-1]["text"]
    unknown = stage.run("inbox", "--dismiss", "zzzzzz")
    assert (unknown.exit_code, f"`{stage.program} inbox` lists all" in unknown.stderr) == (69, True)
    assert stage.run("db", "verify").exit_code == 0


@pytest.mark.parametrize("name", ["q3", "q3.md"])
def test_doubts_are_dismissed_by_the_task_or_the_file_that_the_item_names(stage: Stage, name: str) -> None:
    put(stage, TASK.format("prority: 5\n"))
    put(stage, TASK.format("prority: 5\n").replace("q3", "other"), "other.md")
    assert kinds(stage).count("warning") == 2
    assert stage.run("inbox", "--dismiss", name).exit_code == 0
    assert stage.item("warning")["task"] == "other"


@pytest.mark.parametrize("name", ["a b.md", "mailbox/inbox/a b.md"])
def test_a_rejected_file_is_dismissed_by_its_name(stage: Stage, name: str) -> None:
    put(stage, "---\ntype: nothing\n---\n", "a b.md")
    put(stage, "---\ntype: nothing\n---\n", "b.md")
    assert stage.run("inbox", "--dismiss", name).exit_code == 0
    assert "rejected b.md, line 2: " in stage.item("rejected")["text"]


def test_a_new_task_file_waits_for_a_daemon_too(stage: Stage) -> None:
    for name in ("trip", "fair"):
        (stage.ws.tasks / name).mkdir()
        (stage.ws.tasks / name / "task.md").write_text("# Task: Go\n\nGo.\n")
    assert stage.item("daemon")["text"] == "no daemon is running, and 2 new task.md files wait for it"


def test_a_failed_task_is_dismissed_with_its_doubts(stage: Stage) -> None:
    put(stage, TASK.format("prority: 5\n"))
    stage.start()
    stage.end_turn("q3", "---\nstatus: failed\n---\n\n## Error\n\nNo access.\n")
    while stage.phase("q3") not in ("failed", "circuit_open"):
        stage.clock.advance(4_000)
        stage.start()
        stage.end_turn("q3", "---\nstatus: failed\n---\n\n## Error\n\nNo access.\n")
    assert "warning" in kinds(stage)
    assert stage.run("inbox", "--dismiss", "q3").exit_code == 0
    assert not {"warning", "failed"} & set(kinds(stage))


# Commands


def run_as_printed(stage: Stage, command: str) -> int:
    program, *arguments = shlex.split(command, comments=True)
    assert program == "mailboxd"
    return stage.run(*arguments, env={"EDITOR": "sed -i '$aThe audited ones.'"}).exit_code


@pytest.mark.parametrize("kind", ["question", "circuit", "hold", "rejected", "warning"])
def test_the_command_of_an_item_moves_it_on(stage: Stage, kind: str) -> None:
    match kind:
        case "question":
            asks(stage)
        case "circuit":
            loses(stage)
        case "hold":
            stage.create("job", policy=Policy(budget_usd=0.0, budget_tokens=0))
        case "rejected":
            put(stage, "# Task\n\n## Goal\n")
        case "warning":
            put(stage, TASK.format("prority: 5\n"))
    assert run_as_printed(stage, stage.item(kind)["command"]) == 0
    if kind == "rejected":
        assert stage.receive() == "accepted"
    assert kinds(stage) == []


def test_the_command_of_an_approval_shows_what_would_be_done(stage: Stage) -> None:
    ask(stage, "job", PUBLISH)
    assert run_as_printed(stage, stage.item("approval")["command"]) == 0


def test_commands_name_the_workspace_only_outside_of_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asks(stage)
    assert stage.item("question")["command"] == f"mailboxd -w {stage.ws.root} answer job"
    monkeypatch.chdir(stage.ws.inbox)
    assert stage.item("question")["command"] == "mailboxd answer job"


def test_an_answer_is_written_in_an_editor_below_the_question(stage: Stage, tmp_path: Path) -> None:
    asks(stage)
    seen = tmp_path / "seen"
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {seen}\necho "The audited ones." >> "$1"\n')
    editor.chmod(0o700)
    assert stage.run("answer", "job", env={"EDITOR": str(editor)}).exit_code == 0
    assert "Which figures?" in seen.read_text()
    assert "has no open question" in stage.run("answer", "job", env={"EDITOR": str(editor)}).stderr
    stage.end_turn("job", QUESTION)
    unchanged = stage.run("answer", "job", env={"EDITOR": "true"})
    assert (unchanged.exit_code, "give the answer" in unchanged.stderr) == (2, True)


@pytest.mark.parametrize("order", ["answer", "edit", "send"])
def test_what_was_written_in_an_editor_is_kept_if_it_is_refused(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """As somebody else has decided meanwhile."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    asks(stage)
    other = {"answer": "answer job Red.", "edit": "cancel job --now", "send": "pause"}[order]
    editor = tmp_path / "editor"
    meanwhile = f"{sys.executable} -m mailboxd.cli -w {stage.ws.root} {other}"
    editor.write_text(f'#!/bin/sh\n{meanwhile}\necho "The audited ones." >> "$1"\n')
    editor.chmod(0o700)
    arguments = {"answer": ["job"], "edit": ["job"], "send": ["--wait-timeout", "5"]}[order]
    result = stage.run(order, *arguments, env={"EDITOR": str(editor), "VISUAL": None})
    assert result.exit_code != 0, result.output
    (kept,) = tmp_path.glob("mailboxd-*.md")
    assert f"what you wrote is kept in {kept}" in result.stderr
    assert "The audited ones." in kept.read_text()


# The displayed state


def test_a_task_that_asks_is_shown_as_waiting_for_you_everywhere(stage: Stage) -> None:
    asks(stage)
    stage.clock.advance(402)
    for command in (("ls",), ("show", "--tree", "job"), ("status", "--all"), ("show", "job")):
        assert "‖ needs you" in stage.run(*command).stdout, command
    assert "executing" not in stage.run("show", "--tree", "job").stdout
    assert "needs you 6m42s" in stage.run("show", "--tree", "job").stdout
    assert "tasks      1 needs you\n" in stage.run("status", "--all").stdout
    assert "‖" in stage.run("show", "job", "--timeline").stdout.splitlines()[1]
    assert stage.json("show", "--tree", "job")["need"] == stage.json("ls")[0]["need"] == "question"
    assert stage.run("answer", "job", "The audited ones.").exit_code == 0
    assert "▶ running" in stage.run("ls").stdout


def test_every_view_says_the_same_four_words(stage: Stage) -> None:
    asks(stage)
    stage.create("other")
    stage.create("tree", child("a"), child("b", "alpha", ("a",)))
    words = {"job": "needs you", "other": "waiting", "tree": "waiting"}
    assert {row["local_id"]: row["state"] for row in stage.json("ls")} == words
    assert {row["local_id"]: row["state"] for row in stage.json("status")["open_tasks"]} == words
    for name, word in words.items():
        assert stage.json("show", name)["state"] == stage.json("why", name)["state"] == word
        assert stage.json("show", "--tree", name)["state"] == stage.json("show", name, "--spec")["state"] == word
        assert {node["state"] for node in stage.json("show", name, "--graph")["nodes"]} <= set(State)
        assert {hit["state"] for hit in stage.json("search", name)} == {word}
        assert f"{name} ({word})" in stage.run("search", name).stdout
    assert stage.json("status")["states"] == {"needs you": 1, "waiting": 4}
    assert [child["state"] for child in stage.json("show", "tree")["children"]] == ["waiting", "waiting"]
    said = stage.json("cancel", "other")
    assert (said["state"], said["phase"]) == ("done", "cancelled")
    assert "– done: cancelled" in stage.run("ls").stdout
    assert "1 cancelled" in stage.run("status", "--all").stdout
    for command in (("ls",), ("status",), ("show", "--tree", "tree"), ("show", "tree"), ("inbox",)):
        assert not any(phase.replace("_", " ") in stage.run(*command).stdout for phase in Phase if "_" in phase)


def test_ls_filters_by_the_words(stage: Stage) -> None:
    asks(stage)
    stage.create("other")
    stage.create("gone")
    assert stage.run("cancel", "gone").exit_code == 0
    assert [row["local_id"] for row in stage.json("ls", "--state", "needs-you")] == ["job"]
    assert [row["local_id"] for row in stage.json("ls", "--state", "needs you")] == ["job"]
    assert [row["local_id"] for row in stage.json("ls", "--state", "waiting")] == ["other"]
    assert stage.json("ls", "--state", "running") == []
    assert [row["local_id"] for row in stage.json("ls", "--state", "done")] == ["gone"]
    assert [row["local_id"] for row in stage.json("ls", "--state", "cancelled")] == ["gone"]
    assert stage.json("ls", "--state", "failed") == []
    assert {hit["task"] for hit in stage.json("search", "job", "--status", "needs you")} == {"job"}
    assert stage.run("search", "job", "--status", "running").exit_code == 1


def test_an_error_says_no_phase(stage: Stage) -> None:
    asks(stage)
    for command in (("resolve", "--done", "job"), ("retry", "job"), ("resolve", "--failed", "job")):
        said = stage.run(*command).stderr
        assert "job has not ended" in said
        assert "executing" not in said
    assert stage.run("cancel", "job").exit_code == 0
    assert "job is cancelled already" in stage.run("cancel", "job").stderr


def test_a_weak_spec_that_the_sender_has_to_complete_waits_for_you(stage: Stage) -> None:
    policy = Policy(weak=WeakSpec.ASK)
    stage.handle(None, NewTask("job", None, "job", "operator", "Do it", Spec(goal="Do it"), policy))
    item = stage.item("spec")
    assert item["command"].endswith("edit job")


@pytest.mark.slow
def test_circuits_that_one_event_opened_are_one_item_with_one_command_for_all(stage: Stage) -> None:
    for number in range(7):
        loses(stage, f"t{number}")
    item = stage.item("circuit")
    assert item["text"].startswith("7 tasks stopped for one reason: outcome unknown: the gateway went away")
    assert item["details"] == ", ".join(f"t{number}" for number in range(7))
    done = stage.run(*shlex.split(item["command"])[1:])
    assert done.exit_code == 0, done.stderr
    assert kinds(stage) == []
    assert {row["phase"] for row in stage.json("ls")} == {"execution_ready"}
    again = stage.run(*shlex.split(item["command"])[1:])
    assert again.exit_code != 0
    assert "no task has stopped because of cause:" in again.stderr


def test_circuits_that_were_opened_for_other_reasons_stand_for_themselves(stage: Stage) -> None:
    for number in range(4):
        loses(stage, f"t{number}")
    for number in range(2):
        stage.create(f"u{number}", policy=Policy(max_attempts=1))
        stage.start()
        stage.end_turn(f"u{number}", Unknown("the machine was restarted", looked_up=True))
    found = [item for item in stage.json("inbox") if item["kind"] == "circuit"]
    assert sorted(item["task"] for item in found) == ["", "u0", "u1"]
    common = next(item for item in found if not item["task"])
    assert stage.run(*shlex.split(common["command"])[1:]).exit_code == 0
    assert sorted(item["task"] for item in stage.json("inbox") if item["kind"] == "circuit") == ["u0", "u1"]


@pytest.mark.parametrize(
    ("first", "again", "is_one"),
    [
        ("---\ndeadline: soon\n---\nBuy milk.\n", "---\ndeadline: 2026-12-01T00:00:00Z\n---\nBuy milk.\n", True),
        ("# Buy milk\n\n## Goal\n\n## Context\n", "# Buy milk\n\nTwo bottles.\n", True),
        ("# {{ title }}\n\n## Goal\n\nEat.\n", "# Buy milk\n\n## Goal\n\nEat.\n", True),
        ("# Buy milk\n\n## Goal\n\n## Context\n", "and never any butter\n", False),
    ],
)
def test_a_corrected_file_is_no_rest_of_the_rejected_one(stage: Stage, first: str, again: str, is_one: bool) -> None:
    assert put(stage, first, "milk.md") == "rejected"
    assert put(stage, again, "milk.md") == ("accepted" if is_one else "rejected")
    assert (kinds(stage) == []) is is_one


def test_the_same_text_again_is_not_done_again_and_a_person_is_told(stage: Stage) -> None:
    assert put(stage, "Rake the leaves\n", "garden.md") == "accepted"
    (task,) = stage.json("ls")
    assert put(stage, "Rake the leaves\n", "garden (1).md") == "duplicate"
    first = f"the same text was taken on 2026-11-21 from inbox/garden.md as the task {task['local_id']}"
    assert stage.item("warning")["text"] == (
        f"garden (1).md: {first}; this copy was not, because that task had not ended then. To have it done again, run"
        f" that again (`mailboxd retry {task['local_id']}`), or change a word in it, or drop it again later"
    )
