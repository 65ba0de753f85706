"""What ended badly or was doubtful stays in a person's inbox until that person has seen it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Policy, Spec
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.surfaces.web.page_models import PageModels
from mailboxd.surfaces.web.workspaces import FormActions, WebWorkspace, WebWorkspaces
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import Stage, child
from tests.cli.test_inbox import TASK, kinds, loses, put
from tests.cli.test_refused_files import daemon, write

UNKNOWN = 'Unknown agent id "zeta". Use "openclaw agents list".'


def fails(stage: Stage, name: str = "job", error: str = "the roof fell in", *, permanent: bool = True) -> None:
    stage.create(name, policy=Policy(max_attempts=1))
    stage.start()
    how = Permanence.PERMANENT if permanent else Permanence.TRANSIENT
    stage.end_turn(name, Failed(error, how))


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Become another user, as far as what was seen is concerned."""

    def become(name: str) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name))

    return become


def test_a_failed_task_needs_each_user_until_that_user_has_opened_it(
    stage: Stage, other: Callable[[str], None]
) -> None:
    other("ann")
    fails(stage)
    item = stage.item("failed")
    assert (item["task"], item["text"].partition(";")[0]) == ("job", "has failed for good: the roof fell in")
    assert item["text"].endswith(f"; first mend its cause, then mailboxd -w {stage.ws.root} retry job")
    assert stage.json("status")["states"] == {"done": 1}, "it is an item, and its state is the same for everybody"
    assert "has failed for good" in stage.run("status").stdout
    stage.json("show", "job")
    assert kinds(stage) == ["failed"], "a program is no person"
    stage.run("show", "job", env={"OPENCLAW_SHELL": "exec"})
    assert kinds(stage) == ["failed"], "an agent is none either"
    assert stage.run("show", "job").exit_code == 0
    assert kinds(stage) == []
    assert stage.json("status")["states"] == {"done": 1}
    other("bob")
    assert kinds(stage) == ["failed"]
    assert "dismissed: job" in stage.run("inbox", "--dismiss", "job").stdout
    assert kinds(stage) == []


def test_one_that_fails_again_is_new(stage: Stage) -> None:
    fails(stage)
    stage.run("show", "job")
    stage.clock.advance(10)
    assert stage.run("retry", "job").exit_code == 0
    assert kinds(stage) == []
    stage.start()
    stage.clock.advance(10)
    stage.end_turn("job", Failed("again", Permanence.PERMANENT))
    assert stage.item("failed")["text"].startswith("has failed for good: again;")


def test_what_a_person_has_failed_needs_nobody(stage: Stage) -> None:
    loses(stage, "lost")
    ask(stage, "job", PUBLISH)
    stage.clock.advance(5)
    assert stage.run("resolve", "--failed", "lost").exit_code == 0
    (row,) = stage.json("approve")
    assert stage.run("reject", row["short_id"], "--note", "no").exit_code == 0
    assert {stage.phase("lost"), stage.phase("job")} == {"failed"}
    assert kinds(stage) == []


def test_all_are_dismissed_at_once_and_later_ones_are_not(stage: Stage) -> None:
    fails(stage, "one")
    fails(stage, "two")
    put(stage, TASK.format("prority: 5\n"))
    assert sorted(kinds(stage)) == ["failed", "failed", "warning"]
    assert stage.run("inbox", "--dismiss", "all").exit_code == 0
    assert kinds(stage) == []
    stage.clock.advance(1)
    fails(stage, "three")
    assert stage.item("failed")["task"] == "three"


def test_only_the_last_days_before_the_first_look_count(stage: Stage) -> None:
    fails(stage, "old")
    stage.clock.advance(8 * 86_400)
    fails(stage, "recent")
    assert [item["task"] for item in stage.json("inbox") if item["kind"] == "failed"] == ["recent"]
    stage.clock.advance(30 * 86_400)
    assert [item["task"] for item in stage.json("inbox") if item["kind"] == "failed"] == ["recent"], "it stays"


def test_a_subtask_does_not_appear_beside_its_root_nor_where_it_was_sent(stage: Stage) -> None:
    stage.create("job", child("a", "alpha"), policy=Policy(max_attempts=1))
    spec = Spec(goal="Do it", instructions="Do it", expected_output="One line")
    stage.give(NewTask("trip", "book", "trip.book", "beta", "Book", spec, Policy(max_attempts=1)))
    stage.start()
    stage.end_turn("job.a", Failed("no", Permanence.PERMANENT))
    stage.end_turn("trip.book", Failed("no", Permanence.PERMANENT))
    assert stage.phase("trip.book") == "failed"
    assert stage.item("failed")["task"] == "job"


@pytest.mark.parametrize(
    ("error", "says", "command"),
    [
        (UNKNOWN, "OpenClaw has no agent zeta", "doctor"),
        ("unauthorized: bad token", "unauthorized", "doctor"),
        ("Anthropic: HTTP 402 payment required", "HTTP 402", "doctor --canary"),
        ("context_overflow: too long", "context_overflow", "show job --spec"),
        ("something else", "something else", "show job"),
    ],
)
def test_a_permanent_error_never_offers_retry_alone(stage: Stage, error: str, says: str, command: str) -> None:
    fails(stage, error=error)
    item = stage.item("failed")
    assert says in item["text"]
    assert item["command"] == f"mailboxd -w {stage.ws.root} {command}"
    why = stage.run("why", "job").stdout
    assert f"-> {stage.program} {command}  # " in why
    assert f", then {stage.program} retry job" in why


def test_the_hint_for_a_model_fits_the_agent_that_failed(stage: Stage) -> None:
    stage.create("job", child("a", "beta"), child("b", "alpha"), policy=Policy(max_attempts=1))
    stage.start()
    for name in ("job.a", "job.b"):
        stage.end_turn(name, Failed("Anthropic: HTTP 402 payment required", Permanence.PERMANENT))
    of_beta = stage.run("why", "job.a").stdout
    assert "-> openclaw agent --agent beta --message 'Reply with OK.'  # first mend the model's access" in of_beta
    stage.knows(known={"alpha": ""})
    assert "which beta uses, where that runs" in stage.run("why", "job.a").stdout, "OpenClaw here does not have it"
    item = stage.item("failed")
    assert item["text"].startswith("has failed for good: child a failed: Anthropic: HTTP 402")
    assert item["command"] == f"mailboxd -w {stage.ws.root} why job.a"


def test_a_failed_item_says_what_takes_it_off_the_list(stage: Stage) -> None:
    fails(stage)
    (line,) = [line for line in stage.run("inbox").stdout.splitlines() if "->" in line]
    assert line.endswith(f" show job  # or, once seen: mailboxd -w {stage.ws.root} inbox --dismiss job")


@pytest.mark.parametrize("view", [(), ("--spec",), ("--graph",), ("--timeline",)])
def test_show_says_once_that_it_takes_a_failed_task_off_the_inbox(stage: Stage, view: tuple[str, ...]) -> None:
    fails(stage)
    assert "off your inbox" not in stage.run("show", "job", *view, env={"OPENCLAW_SHELL": "exec"}).stderr
    assert "off your inbox" in stage.run("show", "job", *view).stderr
    assert "off your inbox" not in stage.run("show", "job", *view).stderr
    assert "off your inbox" in " ".join(stage.run("show", "--help").stdout.split())


def test_a_failure_that_may_pass_offers_retry(stage: Stage) -> None:
    fails(stage, error="overloaded", permanent=False)
    assert stage.item("failed")["command"].endswith(" retry job")


def test_the_page_and_its_button_see_it(stage: Stage) -> None:
    fails(stage, "one")
    fails(stage, "two")
    place, models = WebWorkspace(stage.ws), PageModels(WebWorkspaces([stage.ws.root]), stage.clock)
    (first, second) = models.summary(place)["failed"]
    assert (first["kind"], [order.name for order, _ in first["orders"]]) == ("failed", ["retry"])
    models.opened(place, models.task(place, "one"))
    assert FormActions(stage.clock).dismiss(place, second["id"]) == "dismissed"
    assert kinds(stage) == []


# Doubts


@pytest.mark.parametrize(
    ("header", "doubt"),
    [
        ("prority: 5\n", "unknown header 'prority'; did you mean priority?"),
        ("to: beta\n", "to: it names beta, but this is the mailbox of alpha"),
    ],
)
def test_a_doubt_stays_after_the_end_of_its_task_and_is_on_its_record(stage: Stage, header: str, doubt: str) -> None:
    assert put(stage, TASK.format(header)) == "accepted"
    assert stage.run("cancel", "q3").exit_code == 0
    item = stage.item("warning")
    assert (item["task"], doubt in item["text"]) == ("q3", True)
    for verb in (["show", "q3"], ["log"], ["log", "q3"], ["why", "q3"]):
        assert doubt in stage.run(*verb).stdout, verb
    (said,) = stage.json("show", "q3")["doubts"]
    assert (doubt in said["text"], said["dismissed"]) == (True, None)
    page = PageModels(WebWorkspaces([stage.ws.root]), stage.clock).task(WebWorkspace(stage.ws), "q3")
    assert doubt in page["doubts"][0]["text"]
    assert stage.run(*shlex.split(item["command"])[1:]).exit_code == 0
    assert kinds(stage) == []
    assert stage.json("show", "q3")["doubts"][0]["dismissed"]


PLAN = (
    "## DAG\n\n```yaml\nsubtasks:\n  a: {agent: self, description: A, priority: high, estimate: 2 days}\n"
    "  b: {agent: self, description: B, priority: urgent}\n```\n"
)
OF_PLAN = ("only the order of the priorities was kept: ", "estimate has no effect here")


def by_answer(stage: Stage) -> None:
    stage.create("trip")
    stage.start()
    stage.end_turn("trip", f"---\ntype: plan\n---\n\n{PLAN}")


def by_message(stage: Stage) -> None:
    text = "---\ntype: task\ntask_id: trip\nfrom: operator\n---\n\n# Task: Trip\n\n## Instructions\n\nGo.\n\n"
    assert put(stage, text + PLAN) == "accepted"


def by_new_file(stage: Stage) -> None:
    write(stage, f"# Task: Trip\n\n{PLAN}")
    daemon(stage)


def by_edit(stage: Stage) -> None:
    """What is added in it is doubtful."""
    stage.create("trip", child("c", "self"))
    daemon(stage)
    path = stage.ws.tasks / "trip" / "task.md"
    added = "\n".join(PLAN.split("\n")[4:-2])
    path.write_text(path.read_text().replace("subtasks:\n", f"subtasks:\n{added}\n"))
    daemon(stage)


def by_edit_of_what_waits(stage: Stage) -> None:
    """Nothing is added."""
    stage.create("trip", child("a", "self"), child("b", "self"))
    daemon(stage)
    path = stage.ws.tasks / "trip" / "task.md"
    head = path.read_text().partition("## DAG")[0]
    path.write_text(head + PLAN)
    daemon(stage)


@pytest.mark.slow
@pytest.mark.parametrize("comes", [by_answer, by_message, by_new_file, by_edit, by_edit_of_what_waits])
def test_a_doubt_about_a_plan_stays_until_it_is_dismissed_wherever_it_came_from(
    stage: Stage, comes: Callable[[Stage], None]
) -> None:
    comes(stage)
    assert stage.run("cancel", "trip").exit_code == 0
    item = stage.item("warning")
    assert item["task"] == "trip"
    assert item["text"].startswith("the plan: ")
    page = PageModels(WebWorkspaces([stage.ws.root]), stage.clock).task(WebWorkspace(stage.ws), "trip")
    for doubt in OF_PLAN:
        assert doubt in item["text"]
        for verb in (["show", "trip"], ["log"], ["log", "trip"], ["why", "trip"]):
            assert doubt in " ".join(stage.run(*verb).stdout.split()), verb
        assert [(doubt in said["text"], said["dismissed"]) for said in page["doubts"]] == [(True, None)]
    daemon(stage)
    assert kinds(stage) == ["warning"], "the rendered plan raises none"
    assert stage.run(*shlex.split(item["command"])[1:]).exit_code == 0
    assert kinds(stage) == []
    assert stage.json("show", "trip")["doubts"][0]["dismissed"]
    assert "dismissed by" in stage.json("log")[-1]["text"]
    assert stage.run("db", "verify").exit_code == 0


def test_what_is_doubtful_in_the_head_of_a_new_file_is_shown_and_its_texts_are_kept(stage: Stage) -> None:
    write(stage, "---\npriority: 1\ndescription: Count the beans.\ngoal: Enough beans\n---\n# Trip\n\nGo.\n")
    daemon(stage)
    assert stage.item("warning")["text"] == (
        "task.md: priority: 1: here 0 is normal and a higher number is more urgent"
    )
    found = stage.json("show", "trip")
    assert found["spec"]["goal"] == "Enough beans"
    assert "Count the beans." in found["spec"]["instructions"]
    assert "Go." in found["spec"]["instructions"]
    assert stage.run("inbox", "--dismiss", "trip").exit_code == 0
    assert kinds(stage) == []


@pytest.mark.parametrize("name", ["trip", "all"])
def test_doubts_about_a_plan_are_dismissed_by_the_name_of_the_task(stage: Stage, name: str) -> None:
    by_answer(stage)
    assert stage.run("inbox", "--dismiss", "other").exit_code == 69
    assert kinds(stage) == ["warning"]
    assert stage.run("inbox", "--dismiss", name).exit_code == 0
    assert kinds(stage) == []


def test_the_button_of_the_page_dismisses_a_doubt_about_a_plan(stage: Stage) -> None:
    by_answer(stage)
    place = WebWorkspace(stage.ws)
    assert FormActions(stage.clock).dismiss(place, stage.item("warning")["id"]) == "dismissed"
    assert kinds(stage) == []


# Questions

QUESTION = "---\ntype: question\n---\n\nWhich figures?\n\n1. those of July\n2. those of August\n{}"


def test_a_question_is_shown_with_its_options(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", QUESTION.format(""))
    item = stage.item("question")
    assert item["details"] == "Which figures?\n\n1. those of July\n2. those of August"
    for verb in (["inbox"], ["status"], ["why", "job"], ["show", "job"], ["log"], ["log", "job"]):
        shown = stage.run(*verb).stdout
        assert "1. those of July\n" in shown, verb
        assert "2. those of August\n" in shown, verb
    assert stage.json("show", "job")["question"]["text"].endswith("August")


def test_a_long_question_is_folded_and_show_prints_all(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", QUESTION.format("".join(f"- option {number}\n" for number in range(500))))
    for verb in (["inbox"], ["status"], ["why", "job"], ["log"]):
        shown = stage.run(*verb).stdout
        assert f"more lines: `{stage.program} show job`" in shown, verb
        assert len(shown.splitlines()) < 60, verb
    assert "- option 499\n" in stage.run("show", "job").stdout


def test_one_long_line_is_wrapped_and_its_escapes_are_harmless(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", "---\ntype: question\n---\n\n" + "Which of \x1b[31mthem, " * 20 + "at last?\n")
    shown = stage.run("inbox", env={"COLUMNS": "60"}).stdout
    assert "at last?" in shown
    assert "\x1b" not in shown
    assert max(len(line) for line in shown.splitlines() if "->" not in line) <= 60
    assert stage.json("why", "job")["because"][-1]["details"].endswith("at last?")
