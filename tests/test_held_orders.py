"""Orders that end work are held: nothing is stopped before, they can be taken back, and each is carried out once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailboxd.core.operator_orders import BY_NAME, OPERATOR_ORDERS
from mailboxd.errors import Refused
from mailboxd.formats.mailbox import lock
from mailboxd.ledger import event_log
from tests.cli.asking import PUBLISH, ask
from tests.cli.stage import Stage, child, make


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return make(tmp_path / "alpha")


def hold(stage: Stage, name: str, order: str = "cancel", **values: str) -> None:
    stage.hold(name, BY_NAME[order], values, "ann")


def pass_time(stage: Stage, seconds: float) -> None:
    stage.clock.advance(seconds)
    stage.carry_out_held()


def names(stage: Stage) -> list[str]:
    return [row["name"] for row in stage.sql("SELECT name FROM v_held_orders ORDER BY id")]


def test_nothing_is_stopped_before_and_it_is_carried_out_once(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    hold(stage, "job", reason="not wanted")
    pass_time(stage, 9)
    assert (stage.phase("job"), names(stage)) == ("executing", ["cancel"])
    pass_time(stage, 1)
    assert (stage.phase("job"), names(stage)) == ("cancelled", [])
    pass_time(stage, 60)
    log = stage.run("log", "job").stdout
    assert log.count("cancelled by operator: not wanted") == 1
    assert "the held cancel is carried out" in log
    assert "[ann]" in log


def test_no_turn_begins_of_what_is_being_ended_or_of_what_is_below_it(stage: Stage) -> None:
    stage.create("above", child("one", "alpha"), child("two", "alpha", ("one",)))
    stage.start()
    stage.create("job")
    hold(stage, "above")
    hold(stage, "job")
    stage.end_turn("above.one", "Twelve figures of March.")
    stage.create("other")
    stage.start()
    phases = {name: stage.phase(name) for name in ("above.two", "job", "other")}
    assert phases == {"above.two": "execution_ready", "job": "execution_ready", "other": "executing"}
    stage.end_turn("other", "Twelve figures of April.")
    stage.run("undo", "above")
    stage.start()
    assert (stage.phase("above.two"), stage.phase("job")) == ("executing", "execution_ready")
    pass_time(stage, 10)
    assert stage.phase("job") == "cancelled"


def test_it_is_taken_back_by_whoever_is_an_operator(stage: Stage) -> None:
    stage.create("job")
    hold(stage, "job")
    assert "taken back" in stage.run("undo", "job").stdout
    pass_time(stage, 60)
    assert stage.phase("job") == "execution_ready"
    said = stage.run("undo", "job")
    assert (said.exit_code, "no order is held" in said.stderr) == (1, True)


def test_the_record_alone_restores_what_is_held(stage: Stage) -> None:
    stage.create("job")
    hold(stage, "job", reason="enough")
    with stage.engine() as engine:
        assert event_log.differences(engine.store.db) == []
        fresh = event_log.replay(engine.store.db)
        assert fresh.execute("SELECT name, by FROM v_held_orders").fetchall() == [("cancel", "ann")]


def test_a_second_one_is_refused_and_one_that_makes_no_sense_at_once(stage: Stage) -> None:
    stage.create("job")
    with pytest.raises(Refused, match="only what has stopped can be resolved"):
        hold(stage, "job", "unblock-fail")
    hold(stage, "job")
    with pytest.raises(Refused, match="as ann has ordered already"):
        hold(stage, "job")
    assert names(stage) == ["cancel"]


def test_work_that_ends_meanwhile_is_left_as_it_is_on_record(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    hold(stage, "job")
    stage.end_turn("job", "The outcome.")
    pass_time(stage, 10)
    assert (stage.phase("job"), names(stage)) == ("completed", [])
    assert "the held cancel is not carried out: job is done already" in stage.run("log", "job").stdout


def test_a_rejection_is_held_and_taken_back(stage: Stage) -> None:
    ids = ask(stage, "site", PUBLISH)
    stage.hold_rejection(ids, "not today", "ann")
    assert stage.run("undo", "site").exit_code == 0
    pass_time(stage, 60)
    assert stage.phase("site") == "awaiting_approval"
    stage.hold_rejection(ids, "not today", "ann")
    pass_time(stage, 10)
    assert stage.phase("site") == "failed"
    assert stage.json("show", ids[0])["resolved_by"] == "ann"


@pytest.mark.slow
def test_commands_hold_where_a_daemon_runs_and_say_how_to_undo(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three"):
        stage.create(name)
    assert stage.run("cancel", "one").exit_code == 0
    assert stage.phase("one") == "cancelled", "no daemon: at once"
    monkeypatch.setattr(lock, "holder", lambda _ws: 1)
    said = stage.run("cancel", "two")
    assert (said.exit_code, stage.phase("two")) == (0, "execution_ready")
    assert f"-> mailboxd -w {stage.ws.root} undo two" in said.stdout
    assert stage.run("cancel", "two", "--now").exit_code == 0
    assert (stage.phase("two"), names(stage)) == ("cancelled", []), "what is done is held no longer"
    held = stage.json("cancel", "three")["held"]
    assert held["undo"] == f"mailboxd -w {stage.ws.root} undo three"
    assert stage.run("undo", "three").exit_code == 0
    ask(stage, "site", PUBLISH)
    assert stage.run("reject", "site", "--note", "no").exit_code == 0
    assert (stage.phase("site"), names(stage)) == ("awaiting_approval", ["reject"])
    assert stage.run("reject", "site", "--note", "no", "--now").exit_code == 0
    assert stage.phase("site") == "failed"


def test_every_order_that_ends_work_has_a_command_with_now(stage: Stage) -> None:
    assert {order.name for order in OPERATOR_ORDERS if order.ends} == {"cancel", "unblock-fail"}
    for command in (("cancel",), ("resolve", "--failed"), ("reject",)):
        assert "--now" in stage.run(*command, "--help").stdout


def test_what_is_held_is_said_wherever_the_task_is_shown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.create("slow")
    stage.start()
    monkeypatch.setattr(lock, "holder", lambda _ws: 1)
    hold(stage, "slow")
    stage.clock.advance(2)
    undo = f"mailboxd -w {stage.ws.root} undo slow"
    for command in (("why", "slow"), ("show", "slow"), ("inbox",), ("status",)):
        said = stage.run(*command).stdout
        assert "is cancelled in 8 s, ordered by ann" in said, command
        assert f"-> {undo}" in said, command
    assert "is cancelled in 8 s" in stage.run("ls").stdout
    assert "next: slow: it is cancelled (in 8.0 s)" in stage.run("why", "slow").stdout
    assert "slow: it is cancelled (in 8.0 s)" in stage.run("status", "--all").stdout
    assert stage.json("why", "slow")["because"][0]["kind"] == "ending"
    status = json.loads(stage.run("status", "--json").stdout)  # red: that daemon says nothing
    assert status["next"]["what"] == "it is cancelled"
    (item,) = [one for one in stage.json("inbox") if one["task"]]
    assert (item["kind"], item["task"], item["command"]) == ("ending", "slow", undo)
    assert stage.json("show", "slow")["held_orders"][0]["name"] == "cancel"
    assert stage.json("ls")[0]["ending"]["text"].startswith("is cancelled in 8 s")
    stage.clock.advance(21)
    assert "next: slow: it is cancelled (due 13 s ago)" in stage.run("why", "slow").stdout
    assert "slow: it is cancelled (due 13 s ago)" in stage.run("status", "--all").stdout


def test_a_held_rejection_is_said_wherever_the_request_is_shown(stage: Stage) -> None:
    (name,) = ask(stage, "site", PUBLISH)
    stage.hold_rejection([name], "not today", "ann")
    short = name[-6:].lower()
    for command in (("approve",), ("show", short)):
        said = stage.run(*command).stdout
        assert "is rejected in 10 s, ordered by ann" in said, command
        assert "undo site" in said, command
    assert f"its request {short} is rejected in 10 s" in stage.run("why", "site").stdout
    assert f"its request {short} is rejected in 10 s" in stage.run("inbox").stdout
    assert stage.json("approve")[0]["rejection"]["by"] == "ann"


def test_a_decision_that_contradicts_it_is_refused_and_performs_nothing(stage: Stage) -> None:
    (name,) = ask(stage, "site", PUBLISH)
    stage.hold_rejection([name], "not today", "ann")
    short = name[-6:].lower()
    for command in (
        ("approve", short),
        ("ask-changes", short, "--note", "smaller"),
        ("pause", "site"),
        ("edit", "site", "Smaller."),
    ):
        said = stage.run(*command)
        assert said.exit_code == 1, command
        assert f"its request {short} is rejected" in said.stderr, command
        assert "undo site" in said.stderr, command
    assert stage.json("show", short)["status"] == "pending"
    assert stage.run("undo", "site").exit_code == 0
    assert stage.run("approve", short).exit_code == 0


def test_nothing_lets_a_task_go_on_that_is_being_ended_but_it_may_be_ended_at_once(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    hold(stage, "job")
    for command in (("retry", "job"), ("pause", "job"), ("resume", "job"), ("answer", "job", "Yes.")):
        said = stage.run(*command)
        assert "job: is cancelled" in said.stderr, command
        assert "undo job` takes that back" in said.stderr, command
        assert said.exit_code == 1, command
    assert stage.run("cancel", "job", "--now").exit_code == 0
    assert (stage.phase("job"), names(stage)) == ("cancelled", [])


def test_undo_of_what_has_become_void_says_so(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    hold(stage, "job")
    stage.end_turn("job", "The outcome.")
    said = stage.run("undo", "job").stdout
    assert "job is done already" in said
    assert "taken back" not in said
