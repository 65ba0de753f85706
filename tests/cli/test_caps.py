"""`mailboxd caps`, and where people see what a day has cost: each command runs as printed and does what it says."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mailboxd.core.model import Usage
from mailboxd.core.outcomes import Succeeded
from mailboxd.core.spending import Spend
from mailboxd.engine.spending import host_file, of_agent, of_host
from mailboxd.errors import EXIT_OK, EXIT_USAGE
from mailboxd.formats import config
from mailboxd.formats.mailbox import lock
from mailboxd.ledger import event_log
from mailboxd.operate.setup.plan import create_workspace
from tests.cli.stage import NOW, Stage, make


@pytest.fixture(autouse=True)
def _own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def upgraded(stage: Stage) -> Stage:
    """As an earlier mailboxd has left it: nobody has confirmed a cap."""
    stage.ws.config.write_text("agent: alpha\n")
    return stage


def spend(stage: Stage, *costs: float) -> None:
    """Tasks whose turns have cost so much."""
    for number, cost in enumerate(costs):
        stage.create(f"paid{number}-{cost}")
        stage.start()
        stage.end_turn(f"paid{number}-{cost}", Succeeded("Here it is: 42.", usage=Usage(10, 5, cost)))


def pasted(stage: Stage, command: str) -> str:
    """The output of a command as a person pastes it."""
    program, *words = shlex.split(command.partition("  #")[0])
    assert program == "mailboxd"
    done = stage.run(*words)
    assert done.exit_code == EXIT_OK, done.output
    return done.output


def test_a_new_workspace_has_a_cap_that_holds(tmp_path: Path) -> None:
    create_workspace(tmp_path / "new", "main", "2026-11-28T12:00:00.000Z", os.environ)
    caps = of_agent(config.load(tmp_path / "new" / ".mailboxd" / "config.yaml"))
    assert caps.holds
    assert caps.most == Spend(20_000_000, 20_000_000, 1_000)


def test_what_a_running_daemon_has_counted_is_shown_without_reading_the_configuration(stage: Stage) -> None:
    stage.run("caps", "--usd", "30")
    counted = stage.json("caps")
    code = (
        "import sys\n"
        "from mailboxd.cli.program import program\n"
        "program.main(['caps', '--json'], standalone_mode=False)\n"
        "assert not {'pydantic', 'yaml'} & set(sys.modules)\n"
    )
    with lock.acquire(stage.ws, NOW):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=stage.ws.root)
    assert done.returncode == 0, done.stderr
    assert [one["caps"] for one in json.loads(done.stdout)] == [one["caps"] for one in counted]


def test_without_options_it_shows_both_caps_as_bars(stage: Stage) -> None:
    spend(upgraded(stage), 3.0, 0.1)
    told = stage.run("caps").output.splitlines()
    assert told[0].startswith("###.................  alpha: 3.10 of 20 USD today")
    assert "all agents of this machine: 3.10 of 50 USD today" in told[1]
    agent, host = stage.json("caps")
    assert (agent["whose"], agent["spent"]["usd"], agent["share"], agent["holds"]) == ("alpha", 3.1, 0.155, False)
    assert host["spent"]["usd"] == 3.1


def test_for_good_is_written_into_the_configuration_and_the_rest_of_it_stays(stage: Stage) -> None:
    stage.ws.config.write_text("# mine\nagent: alpha\nlimits:\n  turns: 2  # two\n")
    assert "0 of 30 USD today" in stage.run("caps", "--usd", "30", "--turns", "0").output
    loaded = config.load(stage.ws.config)
    assert of_agent(loaded).most == Spend(30_000_000, 20_000_000, 0)
    assert "day_tokens" not in stage.ws.config.read_text()
    assert of_agent(loaded).holds
    assert loaded.limits.turns == 2
    assert "# mine\n" in stage.ws.config.read_text()
    assert "  turns: 2  # two\n" in stage.ws.config.read_text()


def test_a_configuration_that_cannot_be_edited_is_left_alone(stage: Stage) -> None:
    text = "agent: alpha\nlimits: {turns: 2}\n"
    stage.ws.config.write_text(text)
    refused = stage.run("caps", "--usd", "30")
    assert refused.exit_code != EXIT_OK
    assert "limits.day_usd: 30" in refused.output
    assert stage.ws.config.read_text() == text


def test_the_caps_of_the_host_are_in_a_file_of_the_user(stage: Stage, tmp_path: Path) -> None:
    stage.run("caps", "--host", "--usd", "70", "--tokens", "5")
    assert host_file(os.environ) == tmp_path / "config" / "mailboxd" / "host.yaml"
    assert of_host(os.environ).most == Spend(70_000_000, 5, 2_500)
    assert of_host(os.environ).holds
    stage.run("caps", "--host", "--usd", "80")
    assert of_host(os.environ).most == Spend(80_000_000, 5, 2_500)


def test_confirming_writes_what_counts_already(stage: Stage) -> None:
    upgraded(stage)
    assert not any(one["holds"] for one in stage.json("caps"))
    stage.run("caps", "--confirm")
    assert all(one["holds"] for one in stage.json("caps"))
    assert of_agent(config.load(stage.ws.config)).most == Spend(20_000_000, 20_000_000, 1_000)


@pytest.mark.parametrize("host", [(), ("--host",)])
def test_today_ends_with_the_day_and_is_in_the_log(stage: Stage, host: tuple[str, ...]) -> None:
    shown = 1 if host else 0
    stage.run("caps", *host, "--usd", "60", "--today")
    assert stage.json("caps")[shown]["caps"]["usd"] == 60
    stage.clock.advance(86_400.0)
    assert stage.json("caps")[shown]["caps"]["usd"] == (50 if host else 20)
    with stage.engine() as engine:
        assert not event_log.differences(engine.store.db)
    assert ("set the cap of" in stage.run("log").output) is not bool(host)


def test_less_for_good_counts_today_as_well(stage: Stage) -> None:
    stage.run("caps", "--usd", "60", "--today")
    stage.run("caps", "--usd", "5")
    assert stage.json("caps")[0]["caps"]["usd"] == 5


@pytest.mark.parametrize(
    "words", [("--today",), ("--confirm", "--usd", "3"), ("--usd", "5", "--today"), ("--usd", "-1"), ("--usd", "nan")]
)
def test_what_makes_no_sense_is_refused(stage: Stage, words: tuple[str, ...]) -> None:
    upgraded(stage)
    assert stage.run("caps", *words).exit_code == EXIT_USAGE
    assert not of_agent(config.load(stage.ws.config)).holds


def test_from_80_percent_on_the_inbox_says_so_and_at_the_cap_its_command_lets_work_go_on(stage: Stage) -> None:
    stage.run("caps", "--usd", "1")
    spend(stage, 0.5)
    stage.run("caps", "--confirm")
    assert [item for item in stage.json("inbox") if item["kind"] == "cap"] == []
    spend(stage, 0.35)
    stage.run("caps", "--confirm")
    item = stage.item("cap")
    assert "alpha has spent 0.85 of 1 USD today (85%)" in item["text"]
    spend(stage, 0.2)
    stage.run("caps", "--confirm")
    stage.create("waits")
    item = stage.item("cap")
    assert "1.05 of 1 USD today: no new turn begins" in item["text"]
    cause = stage.json("why", "waits")["because"][-1]
    assert cause["kind"] == "cap"
    assert cause["at"] == stage.json("caps")[0]["until"]
    assert "caps --usd 2.1 --today" in stage.run("why", "waits").output
    assert "1.05 of 1 USD today" in stage.run("status").output
    assert stage.json("status")["spending"][0]["reached"]
    assert "1.05 of 2.10 USD today" in pasted(stage, item["command"])
    assert [item for item in stage.json("inbox") if item["kind"] == "cap"] == []
    assert stage.json("why", "waits")["because"][-1]["kind"] != "cap"


def test_without_a_confirmed_cap_nothing_is_held_and_the_inbox_says_why(stage: Stage) -> None:
    spend(upgraded(stage), 21.0)
    stage.run("caps", "--host", "--usd", "100")
    item = stage.item("cap")
    assert "the cap is not enforced until you run `mailboxd " in item["text"]
    stage.create("goes-on")
    assert stage.json("why", "goes-on")["because"][-1]["kind"] != "cap"
    pasted(stage, item["command"])
    assert [one for one in stage.json("inbox") if one["kind"] == "cap"] == []


def test_two_workspaces_of_a_host_show_what_both_have_spent(stage: Stage, tmp_path: Path) -> None:
    other = make(tmp_path / "beta")
    for one in (stage, other):
        spend(one, 2.0)
        one.run("caps", "--confirm")
    assert stage.json("caps")[1]["spent"]["usd"] == 4.0
    assert other.json("caps")[1]["spent"]["usd"] == 4.0
