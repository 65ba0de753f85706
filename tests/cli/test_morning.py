"""The morning: `mailboxd status` in six lines when nothing waits, of one workspace or all, and `mailboxd` alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mailboxd.cli.morning import lines
from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.core.spending import Account, Spend, Standing
from mailboxd.daemon.health_writer import Health
from mailboxd.formats.mailbox import lock
from mailboxd.host.sdnotify import Notifier
from mailboxd.ledger.overview import Overview, Place, Section, Spender, Spent
from tests.cli.stage import NOW, Stage, child, make

QUESTION = "---\ntype: question\n---\n\nWhich airport?\n"


def shown(stage: Stage, *arguments: str) -> list[str]:
    return stage.run(*arguments, env={"COLUMNS": "200"}).stdout.replace(f" -w {stage.ws.root}", "").splitlines()


@pytest.fixture
def served(stage: Stage) -> Iterator[Stage]:
    """A daemon runs."""
    with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha") as health:
        health.beat()
        yield stage


def test_a_new_workspace_has_nothing_to_say(stage: Stage) -> None:
    assert shown(stage, "status") == ["needs you  nothing"]
    assert shown(stage) == ["nothing needs you", "nothing runs"]


def test_where_nothing_waits_the_status_has_six_lines(served: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stage = served
    stage.create("job", child("a"), child("b"), child("c", "alpha", ("a", "b")))
    stage.start()
    stage.end_turn("job.a", "Twelve figures")
    for number in range(8):
        stage.create(f"more{number}")
    lines = shown(stage, "status")
    assert len(lines) <= 6, lines
    assert lines[0] == "needs you  nothing"
    (running,) = [line for line in lines if line.startswith("running")]
    assert "job  ███░░░░░░░ 1 of 3, for 0.0 s (alpha)" in running
    assert "9 wait" in running


def test_what_waits_comes_first_with_its_command(served: Stage) -> None:
    stage = served
    stage.create("asks")
    stage.start()
    stage.end_turn("asks", QUESTION)
    stage.create("lost")
    stage.start()
    stage.end_turn("lost", Failed("no such file", Permanence.PERMANENT))
    stage.create("done")
    stage.start()
    stage.end_turn("done", "# Twelve figures")
    lines = shown(stage, "status")
    assert [line.split("  ")[0] for line in lines if line[:1].strip()] == ["decide 1", "failed 1", "finished"]
    assert "  -> mailboxd answer asks" in lines[1]
    assert any("done: Twelve figures" in line for line in lines)
    assert any("-> mailboxd show done" in line for line in lines)
    alone = shown(stage)
    assert alone[0].startswith("asks: asks operator: Which airport?  -> mailboxd answer asks")
    assert alone[1].startswith("lost: has failed for good: no such file")
    assert alone[2] == "1 result that you have not read: `mailboxd status`"


def test_of_several_unread_results_the_newest_is_named_with_their_number(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.create(name)
        stage.start()
        stage.end_turn(name, "# Twelve figures")
    assert sum("  # one of 2 that you have not read" in line for line in shown(stage, "status")) == 1


def test_what_today_has_cost_in_all_is_first_and_never_cut() -> None:
    place, day = Place("/w", "analyst"), "2026-11-28"
    own, host = Account("analyst", Spend(20_000_000), Spend(5_000, 0, 3)), Account("", Spend(50_000_000), Spend(20_000))
    standing = Standing(day, day, own, host)
    spent = Spent((Spender(place, own.spent, standing),), (), standing)
    nothing: Section[Any] = Section()
    found = Overview(NOW, nothing, nothing, nothing, nothing, nothing, spent)
    for columns, several in ((200, False), (80, False), (80, True), (20, True)):
        (line,) = [one for one in lines(found, columns, "mailboxd", several=several) if one.startswith("spent")]
        assert line.startswith("spent      0.02 of 50 USD today"), line
    assert "; analyst under 0.01 of 20 USD today" in next(
        one for one in lines(found, 200, "mailboxd") if one.startswith("spent")
    )


def test_work_that_begins_later_does_not_wait_as_well(stage: Stage) -> None:
    stage.run("send", "--task-id", "late", "--not-before", "mon 8:00", "Paint")
    stage.receive()
    named = [line.split("  ")[0] for line in shown(stage, "status")]
    assert "later" in named
    assert "running" not in named


def test_a_result_that_was_shown_is_read(stage: Stage) -> None:
    stage.create("done")
    stage.start()
    stage.end_turn("done", "# Twelve figures")
    stage.run("show", "done")
    lines = shown(stage, "status")
    assert lines[0] == "needs you  nothing"
    assert lines[1].startswith("finished   done: Twelve figures")
    assert len(lines) == 2


def test_everything_is_there_with_all_and_in_json(stage: Stage) -> None:
    stage.create("job")
    lines = shown(stage, "status", "--all")
    assert {"workspace", "agent", "daemon", "tasks", "messages", "open", "next"} <= {line[:9].strip() for line in lines}
    found = stage.json("status")
    assert found["overview"]["decide"]["total"] == found["attention_count"]
    assert {"calls", "limits", "messages", "breakers", "paced", "next", "later"} <= found.keys()


def test_health_is_named_when_it_is_not_green(stage: Stage) -> None:
    stage.ws.config.write_text("agent: [")
    result = stage.run("status")
    assert result.exit_code == 1
    assert result.stdout.startswith("health     red\n")


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Two registered workspaces, of which alpha's asks something; the current directory is in none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "beta")
    stage = make(tmp_path / "alpha")
    stage.create("asks")
    stage.start()
    stage.end_turn("asks", QUESTION)
    return stage


def outside(stage: Stage, *arguments: str) -> list[str]:
    session = Session(clock=stage.clock)
    return CliRunner().invoke(program, [*arguments], obj=session, prog_name="mailboxd").stdout.splitlines()


def test_outside_of_a_workspace_it_is_about_all_of_them(company: Stage) -> None:
    (first,) = [line for line in outside(company) if "Which airport" in line]
    assert first.startswith("alpha: asks: asks operator: Which airport?  -> mailboxd -w ")
    assert first.endswith(f"{company.ws.root} answer asks")
    assert any("alpha: asks: asks operator" in line for line in outside(company, "status", "--host"))


def test_a_workspace_that_cannot_be_read_needs_the_person(company: Stage, tmp_path: Path) -> None:
    damaged = make(tmp_path / "damaged")
    damaged.ws.database.write_bytes(b"no database")
    (told,) = [line for line in outside(company) if str(damaged.ws.root) in line]
    assert told.endswith(f"-> mailboxd -w {damaged.ws.root} doctor")
    assert "nothing needs you" not in outside(company)
    assert any(f"mailboxd -w {damaged.ws.root} doctor" in line for line in outside(company, "status", "--host"))


@pytest.mark.parametrize("command", ["status", "ls"])
def test_outside_of_a_workspace_a_command_names_what_helps(
    company: Stage, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "`mailboxd status --host`" in _refused(company, command)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "none"))
    assert "`mailboxd setup`" in _refused(company, command)


def _refused(stage: Stage, *arguments: str) -> str:
    result = CliRunner().invoke(program, [*arguments], obj=Session(clock=stage.clock), prog_name="mailboxd")
    assert result.exit_code != 0
    return result.stderr


def test_without_a_workspace_it_says_how_to_begin(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "none"))
    first, second = outside(stage)
    assert first.startswith("mailboxd demo ")
    assert second.startswith("mailboxd setup ")


@pytest.mark.slow
def test_what_is_left_out_is_counted_with_the_command_that_shows_it(company: Stage) -> None:
    for number in range(11):
        company.create(f"ask{number}")
        company.start()
        company.end_turn(f"ask{number}", QUESTION)
    for number in range(6):
        company.run("send", "--task-id", f"late{number}", "--not-before", "mon 8:00", "Paint")
        company.receive()
    for options, command in ((), "status --all"), (("--host",), "status --host --all"):
        lines = [line for line in outside(company, "-w", str(company.ws.root), "status", *options) if "more: `" in line]
        (how,) = [line.partition("more: `")[2].rstrip("`") for line in lines if command in line]
        whole = outside(company, *how.split()[1:])
        assert not [line for line in whole if command in line]
        assert len(whole) > 20


def test_why_says_of_finished_work_once_that_it_is_done(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    stage.end_turn("job", "# Twelve figures")
    first, second, *_ = shown(stage, "why", "job")
    assert first == "job  ✓ done"
    assert second.strip() == "-> mailboxd show job"
