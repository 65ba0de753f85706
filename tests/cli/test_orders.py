"""The operator's orders: through the engine in this process, recorded with the operator's name, refused with a rule."""

from __future__ import annotations

import json
import os
import pwd
import socket
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mailboxd.cli.commands.orders import fields_of
from mailboxd.cli.program import program
from mailboxd.core.model import Overrides, Policy
from mailboxd.core.operator_orders import OPERATOR_ORDERS, FieldKind, OperatorOrder, words_of
from mailboxd.core.outcomes import Failed, Permanence, Unknown
from mailboxd.core.specs import apply
from mailboxd.core.vocabulary import Gate
from mailboxd.formats.mailbox import lock
from mailboxd.host.wakeup import NAME
from tests.cli.stage import Stage, child

QUESTION = "---\ntype: question\n---\n\nWhich figures?\n"
HOPELESS = Failed("no such model", Permanence.PERMANENT)


def failed(stage: Stage, name: str = "job") -> None:
    stage.create(name)
    stage.start()
    stage.end_turn(name, HOPELESS)
    assert stage.phase(name) == "failed"


def blocked(stage: Stage, name: str = "job") -> None:
    stage.create(name, policy=Policy(max_attempts=3))
    stage.start()
    stage.end_turn(name, Unknown("the gateway went away", "run_9", looked_up=True))
    assert stage.phase(name) == "circuit_open"


def test_cancel_ends_a_task_and_all_below_it(stage: Stage) -> None:
    stage.create("job", child("a"), child("b", "beta", ("a",)))
    found = stage.json("cancel", "job", "--reason", "the figures have changed")
    assert (found["task"], found["phase"]) == ("job", "cancelled")
    assert {row["phase"] for row in stage.json("ls", "--children")} == {"cancelled"}
    assert "the figures have changed" in stage.json("show", "job")["reason"]


def test_an_order_is_recorded_with_the_operators_name(stage: Stage) -> None:
    stage.create("job")
    stage.run("cancel", "job")
    event = next(e for e in stage.json("log", "job") if e["data"].get("changes", {}).get("phase") == "cancelled")
    assert (event["role"], event["actor"]) == ("operator", pwd.getpwuid(os.getuid()).pw_name)


def test_an_order_prints_its_events_and_that_no_daemon_is_running(stage: Stage) -> None:
    failed(stage)
    result = stage.run("retry", "job")
    assert "job: to be run (retried by the operator)" in result.stdout
    assert "no daemon is running" in result.stderr


def test_a_starting_or_paused_daemon_counts_as_running(stage: Stage) -> None:
    """It does not listen then: what a command says of it is what the lock of the workspace says."""
    failed(stage)
    with lock.acquire(stage.ws, stage.clock.now()):
        result = stage.run("retry", "job")
    assert "no daemon" not in result.stderr


def test_an_order_wakes_the_daemon(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.create("job")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as daemon:
        monkeypatch.chdir(stage.ws.state)  # the whole path may be too long for an address
        daemon.bind(NAME)
        result = stage.run("cancel", "job", "--json")
        assert json.loads(result.stdout)["daemon"] == {"running": True}
        assert daemon.recv(10)


def test_retry_carries_instructions_into_the_next_attempt(stage: Stage, tmp_path: Path) -> None:
    failed(stage)
    (tmp_path / "notes.md").write_text("They are on page 12.")
    assert stage.run("retry", "job", "--note", "Mind:", "--instructions", str(tmp_path / "notes.md")).exit_code == 0
    assert stage.json("show", "job")["findings"].endswith("Mind:\n\nThey are on page 12.")


def test_retry_of_a_failed_child_reopens_its_parent(stage: Stage) -> None:
    stage.create("job", child("a"))
    stage.start()
    stage.end_turn("job.a", HOPELESS)
    assert stage.phase("job") == "failed"
    assert stage.run("retry", "job.a").exit_code == 0
    assert (stage.phase("job"), stage.phase("job.a")) == ("execution_ready", "execution_ready")


@pytest.mark.parametrize(
    ("verb", "phase"), [("retry", "execution_ready"), ("resolve --done", "completed"), ("resolve --failed", "failed")]
)
def test_three_orders_decide_how_an_open_circuit_continues(stage: Stage, verb: str, phase: str) -> None:
    blocked(stage)
    if verb == "resolve --done":
        with stage.engine() as engine:
            engine.store.db.execute("UPDATE tasks SET result = 'Twelve figures'")
    assert stage.json(*verb.split(), "job", "--note", "checked by hand")["phase"] == phase


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (["resolve", "job"], "say how it ends: --done or --failed"),
        (["resolve", "job", "--done", "--now"], "--now goes with --failed"),
        (["undo"], "give a task, or an action"),
        (["undo", "job", "--action", "3f9k2q"], "give a task, or an action"),
        (["resume"], "give a task, or an agent"),
        (["resume", "job", "--agent", "beta"], "give a task, or an agent"),
        (["resume", "--agent", "no such"], "is not an id"),
        (["resolve", "--done", "job", "--budget-usd", "3"], "No such option"),
        (["retry", "job", "--budget-usd", "much"], "not an amount"),
        (["retry", "job", "--budget-tokens", "-5"], "is not a whole number"),
    ],
)
def test_invalid_decisions_are_refused(stage: Stage, order: list[str], says: str) -> None:
    stage.create("job")
    result = stage.run(*order)
    assert result.exit_code == 2
    assert says in result.stderr


def test_cancel_takes_a_note_as_other_orders_do(stage: Stage) -> None:
    stage.create("job")
    assert stage.json("cancel", "job", "--note", "not needed")["phase"] == "cancelled"
    assert "not needed" in stage.json("show", "job")["reason"]


@pytest.mark.parametrize("order", [["cancel", "job", "--noww"], ["reject", "3f9k2q", "--noww", "x"]])
def test_what_cannot_be_undone_is_never_suggested(stage: Stage, order: list[str]) -> None:
    said = stage.run(*order)
    assert said.exit_code == 2
    assert "No such option" in said.stderr
    assert "--now'" not in said.stderr
    assert "--now?" not in said.stderr


def test_a_held_task_continues_only_with_a_larger_budget(stage: Stage) -> None:
    stage.create("job", policy=Policy(budget_usd=0.0))
    assert stage.json("show", "job")["held"].startswith("over budget")
    assert "--budget-usd 1" in stage.item("hold")["command"]
    refused = stage.run("retry", "job")
    assert (refused.exit_code, "(over-budget)" in refused.stderr) == (1, True)
    assert stage.run("retry", "job", "--budget-usd", "2.50").exit_code == 0
    shown = stage.json("show", "job")
    assert (shown["held"], shown["spent"]["budget_usd"]) == (None, 2.5)


def test_new_instructions_say_which_way_they_take(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    told = stage.run("edit", "job", "Leave out", "the forecasts.")
    assert told.exit_code == 0
    assert "another turn of the same session" in told.stdout
    assert "Leave out the forecasts." in stage.json("show", "job")["spec"]["instructions"]
    assert stage.run("edit", "job").exit_code == 2


def test_an_answer_lets_the_task_go_on(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", QUESTION)
    assert stage.item("question")["command"].endswith("answer job")
    assert stage.run("answer", "job", "the", "audited", "ones").exit_code == 0
    assert stage.json("why", "job")["because"][-1]["kind"] == "turn"
    assert stage.json("log", "job")[-1]["role"] == "operator"


def test_an_option_given_as_a_list_is_refused_with_the_syntax(stage: Stage) -> None:
    """The question about a spec asks for the criteria as a list, and its lines begin as options do."""
    stage.create("job")
    stage.start()
    stage.end_turn("job", QUESTION)
    refused = stage.run("answer", "job", "- two pages")
    assert refused.exit_code == 2
    assert 'put -- before it: `mailboxd answer ... -- "- ..."`' in refused.stderr
    assert stage.run("answer", "job", "--", "- two pages").exit_code == 0


def test_an_answer_can_come_from_standard_input_or_say_that_none_will_come(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    for text in ("the audited ones", "REPLY_SKIP"):
        stage.end_turn("job", QUESTION)
        assert stage.run("answer", "job", "--file", "-", text=text).exit_code == 0
    assert stage.json("log", "job")[-2]["text"] == "job: there will be no answer"


@pytest.mark.parametrize(
    ("order", "rule"),
    [
        (["cancel", "job"], "ended"),
        (["resolve", "--done", "job"], "not-blocked"),
        (["answer", "job", "yes"], "no-question"),
    ],
)
def test_an_order_that_the_state_does_not_allow_is_refused_with_its_rule(
    stage: Stage, order: list[str], rule: str
) -> None:
    failed(stage)
    before = stage.json("log")
    result = stage.run(*order)
    assert result.exit_code == 1
    assert f"({rule})" in result.stderr
    told = json.loads(stage.run(*order, "--json").stderr)["error"]
    assert (told["kind"], told["rule"], told["exit"]) == ("Refused", rule, 1)
    assert stage.json("log") == before


def test_retry_of_a_healthy_task_is_refused_with_a_hint(stage: Stage) -> None:
    stage.create("job")
    result = stage.run("retry", "job")
    assert result.exit_code == 1
    assert f"there is nothing to retry (not-failed). See `{stage.program} why job`." in result.stderr


COMMANDS = {
    "steer": "edit",
    "spec": "edit",
    "unblock-retry": "retry",
    "unblock-accept": "resolve",
    "unblock-fail": "resolve",
}
"""The orders that are given by a command of another name."""


@pytest.mark.parametrize("order", OPERATOR_ORDERS, ids=lambda order: order.name)
def test_every_order_has_a_command_with_its_fields(order: OperatorOrder) -> None:
    command = program.get_command(click.Context(program), COMMANDS.get(order.name, order.name))
    assert command is not None
    assert {field.name for field in order.fields} <= {str(param.name) for param in command.params}


def test_a_field_that_has_to_be_given_is_asked_for() -> None:
    command = click.command()(fields_of("answer")(lambda text: click.echo(text)))
    assert "Missing option '--text'" in CliRunner().invoke(command, []).output
    assert CliRunner().invoke(command, ["--text", "Yes."]).output == "Yes.\n"


VALUES = {FieldKind.TEXT: "because", FieldKind.MONEY: 2.0, FieldKind.COUNT: 3, FieldKind.FLAG: True}


@pytest.mark.parametrize("order", [one for one in OPERATOR_ORDERS if one.make], ids=lambda order: order.name)
def test_what_a_person_says_with_an_order_is_kept_with_it(order: OperatorOrder) -> None:
    needed = {one.name: one.choices[0] if one.choices else VALUES[one.kind] for one in order.fields if one.required}
    said = words_of(order.given({**needed, order.note: "because"} if order.note else needed))
    assert (said["note"] if said else "") == ("because" if order.note else "")


@pytest.mark.parametrize(
    "order",
    [
        ["cancel", "job"], ["retry", "job"], ["resolve", "--failed", "job"], ["answer", "job", "x"],
        ["edit", "job", "x"], ["resume", "--agent", "beta"],
        ["send", "do it"], ["send", "--from", "human", "do it"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("mark", [{"OPENCLAW_SHELL": "exec"}, {"OPENCLAW_SUBAGENT_EXEC": "1"}])
def test_an_agent_in_its_turn_cannot_act_as_the_operator(
    stage: Stage, order: list[str], mark: dict[str, str | None]
) -> None:
    stage.create("job")
    result = stage.run(*order, env=mark)
    assert result.exit_code == 1
    assert "(permission-denied)" in result.stderr
    assert stage.phase("job") == "execution_ready"
    assert list(stage.ws.inbox.iterdir()) == []


def test_bytes_that_are_no_text_are_taken_as_such(stage: Stage) -> None:
    stage.create("job")
    assert stage.run("cancel", "job", "--reason", "\udcff\x00\x1b[31m").exit_code == 0
    text = stage.run("log", "job").stdout
    assert "\x1b" not in text


def test_orders_need_a_configuration_that_is_right(stage: Stage) -> None:
    stage.create("job")
    stage.ws.config.write_text("agent: alpha\nlimts:\n  turns: 1\n")
    result = stage.run("cancel", "job")
    assert result.exit_code == 78
    assert "did you mean limits" in result.stderr


def test_a_paused_task_says_so_with_its_note_everywhere_until_it_is_resumed(stage: Stage) -> None:
    stage.create("job", child("a"))
    assert "paused by" in stage.run("pause", "job", "--note", "until the audit is over").stdout
    for words in (["show", "job"], ["why", "job"], ["status"], ["show", "--tree", "job"], ["inbox"], ["log", "job"]):
        assert "paused by" in stage.run(*words).stdout, words
        assert "until the audit is over" in stage.run(*words, env={"COLUMNS": "200"}).stdout, words
    assert stage.run("resume", "job").exit_code == 0
    assert "paused by" not in stage.run("show", "--tree", "job").stdout


# Reviewers that cannot be asked


def stands_at_its_reviewers(stage: Stage) -> None:
    """The task job names a reviewer that there is not."""
    stage.knows(known={name: [name, ""] for name in ("alpha", "critic")}, allowed=None, has_rules=True)
    gates = Overrides(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("nobody",))
    stage.create("job", policy=apply(Policy(named=frozenset()), gates))
    stage.start()
    stage.end_turn("job", "The outcome.")


def test_a_task_whose_own_reviewers_cannot_be_asked_says_what_helps_and_a_retry_claims_nothing(stage: Stage) -> None:
    stands_at_its_reviewers(stage)
    item = stage.item("review")
    assert item["text"] == "quality_gate: the reviewer nobody cannot be asked: there is no agent nobody"
    assert "in place of none, name others" in stage.run("why", "job", env={"COLUMNS": "400"}).stdout
    again = stage.run("retry", "job")
    assert (again.exit_code, "there is no agent nobody" in again.stderr) == (1, True)
    assert "retry job --reviewers none` has it pass without a review; or name others" in again.stderr
    assert "can be asked now" not in stage.run("log", "job").stdout
    assert stage.run(*item["command"].split()[1:]).exit_code == 0
    assert stage.phase("job") == "completed"
    log = stage.run("log", "job", env={"COLUMNS": "200"}).stdout
    assert "has it pass without a review" in log
    assert "has its reviewers asked" not in log


def test_a_task_that_asks_for_a_gate_itself_and_has_no_reviewers_names_the_command_that_helps(stage: Stage) -> None:
    stage.create("job", policy=apply(Policy(named=frozenset()), Overrides(gates=frozenset({Gate.QUALITY_GATE}))))
    stage.start()
    stage.end_turn("job", "The outcome.")
    item = stage.item("review")
    assert item["text"] == "quality_gate is on, but no reviewer other than the executor is named"
    why = stage.run("why", "job", env={"COLUMNS": "400"}).stdout
    assert "after a restart with other gates.reviewers" in why
    assert "doctor" not in why
    assert "doctor" not in stage.run("retry", "job").stderr
    assert stage.run(*item["command"].split()[1:]).exit_code == 0
    assert stage.phase("job") == "completed"


def test_other_reviewers_are_named_by_a_command(stage: Stage) -> None:
    stands_at_its_reviewers(stage)
    refused = stage.run("retry", "job", "--reviewers", "zoe")
    assert (refused.exit_code, "there is no agent zoe" in refused.stderr) == (1, True)
    assert stage.run("retry", "job", "--reviewers", "a b").exit_code != 0
    assert stage.run("retry", "job", "--reviewers", "critic, alpha").exit_code == 0
    assert "reviewed by critic, alpha, as" in stage.run("log", "job", env={"COLUMNS": "200"}).stdout
    assert "waits for critic" in stage.run("why", "job").stdout


def test_several_tasks_run_again_or_none(stage: Stage) -> None:
    failed(stage, "one")
    failed(stage, "two")
    blocked(stage, "three")
    stage.create("fresh")
    refused = stage.run("retry", "one", "fresh")
    assert refused.exit_code == 1
    assert stage.phase("one") == "failed", "all of it, or nothing"
    assert stage.json("retry", "one", "two", "three", "one")["tasks"] == ["one", "two", "three"]
    assert {stage.phase(name) for name in ("one", "two", "three")} == {"execution_ready"}


def test_several_tasks_are_cancelled_and_that_is_taken_back_by_one_command(stage: Stage) -> None:
    stage.create("one")
    stage.create("two")
    with lock.acquire(stage.ws, stage.clock.now()):
        held = stage.json("cancel", "one", "two")
        assert held["held"]["undo"].endswith(" undo one two")
        assert {stage.phase(name) for name in ("one", "two")} == {"execution_ready"}
        assert stage.run("undo", "one", "two").exit_code == 0
        assert stage.run("undo", "one", "two").exit_code == 1
    assert stage.run("cancel", "one", "two", "--now").exit_code == 0
    assert {stage.phase(name) for name in ("one", "two")} == {"cancelled"}
