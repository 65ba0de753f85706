"""Commands about work that repeats, and work that is to begin later."""

from __future__ import annotations

from datetime import UTC

import pytest

from mailboxd.core.times import plus
from mailboxd.engine.intake import repetitions
from mailboxd.engine.intake.interpret import Intake
from tests.cli.stage import Stage


@pytest.fixture
def water(stage: Stage) -> Stage:
    """It is watered each day at 07:00; the clock is at 12:00 of 2026-11-21."""
    sent = stage.run("send", "--task-id", "water", "--repeat", "daily at 07:00", "Water the plants")
    assert "it repeats daily at 07:00, first Sun 22 Nov 2026 07:00 UTC" in sent.stderr
    assert stage.receive() == "accepted"
    return stage


def pass_days(stage: Stage, days: int) -> None:
    stage.clock.advance(days * 86_400.0)
    with stage.engine() as engine:
        repetitions.run_due(Intake(engine, zone=UTC), engine)


def test_status_says_what_is_done_later(water: Stage) -> None:
    water.run("send", "--task-id", "paint", "--not-before", "mon 8:00", "Paint the fence")
    water.receive()
    (again, once) = water.json("status")["later"]
    assert (again["kind"], again["name"], again["repeat"], again["at"]) == (
        "repetition", "water", "daily at 07:00", "2026-11-22T07:00:00.000Z",
    )  # fmt: skip
    assert (once["kind"], once["name"], once["at"]) == ("task", "paint", "2026-11-23T08:00:00.000Z")
    told = water.run("status").stdout
    assert "later      water daily at 07:00, next Sun 22 Nov 2026 07:00" in told
    assert "paint Mon 23 Nov 2026 08:00 UTC: Paint the fence" in told


def test_show_has_its_next_time_and_its_runs(water: Stage) -> None:
    pass_days(water, 1)
    found = water.json("show", "water")
    assert (found["runs"], found["open"], found["history"][0]["task"]) == (1, "water-1", "water-1")
    told = water.run("show", "water").stdout
    assert "next Mon 23 Nov 2026 07:00" in told
    assert "Sun 22 Nov 2026 07:00" in told
    assert water.json("show", "wat") == found, "the beginning of its name will do"
    assert water.json("show", "water-1")["local_id"] == "water-1"
    assert water.json("why", "water") == found


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_more_missed_runs_than_are_counted_are_told_as_such(stage: Stage, missed: str) -> None:
    stage.run("send", "--task-id", "pulse", "--repeat", "* * * * *", "--missed", missed, "Feel it")
    assert stage.receive() == "accepted"
    pass_days(stage, 7)
    found = stage.json("show", "pulse")
    assert f", and at least {found['missed_runs']} missed" in stage.run("show", "pulse").stdout
    assert f"at least {found['missed_runs']} missed runs not made up for" in stage.run("log").stdout


def test_few_missed_runs_are_told_exactly(water: Stage) -> None:
    pass_days(water, 7)
    assert "1, and 6 missed" in water.run("show", "water").stdout


def test_it_is_paused_resumed_run_and_ended_by_the_commands_of_tasks(water: Stage) -> None:
    assert water.json("pause", "water", "--note", "holidays")["paused"].endswith(": holidays")
    pass_days(water, 3)
    assert water.sql("SELECT * FROM v_tasks") == []
    assert water.run("pause", "water").exit_code == 1
    assert water.json("resume", "water")["next_at"].endswith("T07:00:00.000Z")
    assert "water-1" in water.run("retry", "water").stdout
    refused = water.run("retry", "water")
    assert (refused.exit_code, "has not ended" in refused.stderr) == (1, True)
    assert "ended by" in water.json("cancel", "water", "--reason", "sold")["ended"]
    pass_days(water, 3)
    assert [row["local_id"] for row in water.sql("SELECT local_id FROM v_tasks")] == ["water-1"]
    assert water.json("status")["later"] == []
    assert "ended by" in water.run("show", "water").stdout


def test_a_run_that_cannot_be_made_is_in_the_inbox_with_a_command_until_one_can(water: Stage) -> None:
    with water.engine() as engine:
        engine.settings = type(engine.settings)(agent="analyst", open_per_sender=1)
        water.clock.advance(86_400.0)
    water.create("other")
    with water.engine() as engine:
        engine.settings = type(engine.settings)(agent="analyst", open_per_sender=1)
        engine._ctx = None
        repetitions.run_due(Intake(engine, zone=UTC), engine)
    item = water.item("repetition")
    assert "could not be made" in item["text"]
    assert item["command"].endswith("retry water")
    assert water.run("retry", "water").exit_code == 0
    assert [one for one in water.json("inbox") if one["kind"] == "repetition"] == []


def test_nobody_runs_it_without_a_daemon_which_is_said(water: Stage) -> None:
    assert "work that repeats (1) waits for it" in water.run("inbox").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--repeat", "daily", "x"], ["--repeat", "now and then", "x"], ["--missed", "often", "--repeat", "@daily", "x"],
        ["--repeat", "@daily", "--wait", "x"], ["--repeat", "@daily", "--deadline", "fri", "x"],
    ],
)  # fmt: skip
def test_what_is_unclear_is_a_usage_error_and_not_sent(stage: Stage, arguments: list[str]) -> None:
    assert stage.run("send", *arguments).exit_code == 2
    assert list(stage.ws.inbox.iterdir()) == []


def test_a_task_shows_when_it_begins_and_its_deadline_in_the_zone_of_the_operator(stage: Stage) -> None:
    with stage.ws.config.open("a") as file:
        file.write("zone: Europe/Berlin\n")
    stage.run("send", "--task-id", "paint", "--not-before", "mon 8:00", "--deadline", "2026-11-30", "Paint")
    stage.receive()
    told = stage.run("show", "paint").stdout
    assert "begins       Mon 23 Nov 2026 08:00 CET, in" in told
    assert "deadline     Mon 30 Nov 2026 23:59:59 CET, in" in told
    assert stage.clock.now() < plus("2026-11-23T07:00:00.000Z", 0.0)
    assert "is to begin later" in stage.run("why", "paint").stdout
