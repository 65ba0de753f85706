"""`pause --all` and `resume --all`: one word holds every agent of the host, and every view says so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from mailboxd.core.schedule import Capacity
from mailboxd.core.standstill import Standstill
from mailboxd.errors import Refused
from mailboxd.formats.mailbox import lock
from mailboxd.formats.user import registry, standstills
from mailboxd.formats.user.state import UserState
from mailboxd.operate.doctor.facts import Level
from mailboxd.operate.doctor.workspace import daemon as checked
from mailboxd.operate.doctor.workspace import probe_daemon
from mailboxd.surfaces.web.app import templates
from mailboxd.surfaces.web.overview_page import overview_values
from mailboxd.surfaces.web.page_models import PageModels
from mailboxd.surfaces.web.workspaces import FormActions, WebWorkspace, WebWorkspaces
from tests.cli.stage import Stage
from tests.cli.test_hints import run_as_printed
from tests.doctor.facts import but

NOTE = "the provider is being changed"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def file_of_it() -> Path:
    return UserState.of(os.environ).folder / standstills.STANDSTILL


def test_everything_is_paused_with_a_note_and_resumed(stage: Stage) -> None:
    said = stage.json("pause", "--all", "--note", NOTE)
    assert (said["said"]["note"], said["said"]["over"]) == (NOTE, False)
    assert said["daemons"] == [{"workspace": str(stage.ws.root), "daemon": {"running": False}, "heard": True}]
    paused = standstills.standstill(os.environ)
    assert paused is not None
    assert paused.text.endswith(f": {NOTE}")
    shown = stage.run("resume", "--all")
    assert shown.exit_code == 0, shown.output
    assert "every agent goes on" in shown.stdout
    assert standstills.standstill(os.environ) is None
    latest = standstills.latest_standstill(os.environ)
    assert latest is not None
    assert latest.over


def test_it_is_said_once(stage: Stage) -> None:
    assert stage.run("pause", "--all").exit_code == 0
    again = stage.run("pause", "--all")
    assert "everything is paused by" in again.stderr
    assert f"`{stage.program} resume --all`" in again.stderr
    assert stage.run("resume", "--all").exit_code == 0
    assert "not paused together" in stage.run("resume", "--all").stderr


@pytest.mark.parametrize("words", [("pause",), ("pause", "job", "--all"), ("resume",), ("resume", "--all", "job")])
def test_it_is_either_a_task_or_everything(stage: Stage, words: tuple[str, ...]) -> None:
    assert stage.run(*words).exit_code == 2


def test_an_agent_may_neither_pause_nor_resume_everything(stage: Stage) -> None:
    inside: dict[str, str | None] = {"OPENCLAW_SHELL": "exec"}
    assert "permission-denied" in stage.run("pause", "--all", env=inside).stderr
    assert not file_of_it().exists()
    stage.run("pause", "--all")
    assert "permission-denied" in stage.run("resume", "--all", env=inside).stderr
    assert standstills.standstill(os.environ) is not None


def test_status_and_inbox_name_it_with_the_command_that_ends_it(stage: Stage) -> None:
    stage.run("pause", "--all", "--note", NOTE)
    assert stage.json("status")["paused"]["note"] == NOTE
    item = stage.item("paused")
    assert NOTE in item["text"]
    assert NOTE in stage.run("status", env={"COLUMNS": "200"}).stdout
    assert run_as_printed(stage, item["command"]) == 0
    assert stage.json("status")["paused"] is None
    assert not [one for one in stage.json("inbox") if one["kind"] == "paused"]


def test_doctor_warns_of_it(stage: Stage) -> None:
    stage.run("pause", "--all", "--note", NOTE)
    found = probe_daemon(stage.ws, os.environ, stage.clock)
    first, *_ = checked(but(), found)
    assert (first.id, first.level, first.fixes) == ("paused", Level.WARNING, ("mailboxd resume --all",))
    assert NOTE in first.text


def test_the_page_shows_it_and_has_a_button_for_both(stage: Stage) -> None:
    models = PageModels(WebWorkspaces([stage.ws.root]), stage.clock)
    actions = FormActions(stage.clock)
    assert overview_values(models)["paused"] is None
    assert actions.stand_still("pause-all", {"note": NOTE}) == "pause-all"
    assert overview_values(models)["paused"].note == NOTE
    cards = overview_values(models)["decide"]["lines"]
    assert not [card for card in cards if card["kind"] == "paused"], "it is shown once, above"
    with pytest.raises(Refused):
        actions.stand_still("pause-all", {})
    assert actions.stand_still("resume-all", {}) == "resume-all"
    assert models.summary(WebWorkspace(stage.ws))["attention"] == []
    with pytest.raises(Refused):
        actions.stand_still("stop", {})


@pytest.mark.parametrize("damage", [b"", b"{", b'{"by": 1}', b"[]", b"\xff"])
def test_a_word_that_cannot_be_read_holds_everything(stage: Stage, damage: bytes) -> None:
    stage.run("pause", "--all")
    file_of_it().write_bytes(damage)
    paused = standstills.standstill(os.environ)
    assert paused is not None
    assert "cannot be read" in paused.text
    assert stage.run("resume", "--all").exit_code == 0
    assert standstills.standstill(os.environ) is None


def test_one_that_others_may_write_holds_and_says_so(stage: Stage) -> None:
    stage.run("pause", "--all")
    file_of_it().chmod(0o666)
    paused = standstills.standstill(os.environ)
    assert paused is not None
    assert "cannot be read" in paused.text


def as_a_loop(folder: Path) -> None:
    folder.symlink_to(folder.name)


def as_a_file(folder: Path) -> None:
    folder.write_bytes(b"")


def as_a_link_to_nothing(folder: Path) -> None:
    folder.symlink_to("gone")


@pytest.mark.parametrize("damaged", [as_a_loop, as_a_file, as_a_link_to_nothing])
def test_a_place_that_cannot_be_looked_into_ends_no_pause(stage: Stage, damaged: Callable[[Path], None]) -> None:
    stage.run("pause", "--all", "--note", NOTE)
    watch = standstills.StandstillWatch(os.environ)
    before, place = watch(), file_of_it().parent
    place.rename(place.with_name("elsewhere"))
    damaged(place)
    assert before is not None
    assert watch() == before, "a daemon that knows of it keeps to it"
    fresh = standstills.StandstillWatch(os.environ)
    unreadable = fresh()
    assert unreadable is not None
    assert f"{file_of_it()} cannot be read" in unreadable.text
    assert fresh() == unreadable == standstills.standstill(os.environ), "it is one standstill, however often looked at"
    place.unlink()
    place.with_name("elsewhere").rename(place)
    assert watch() == fresh() == before
    assert stage.run("resume", "--all").exit_code == 0
    assert standstills.standstill(os.environ) is None


@pytest.mark.parametrize("named", [{"XDG_STATE_HOME": "/nonexistent"}, {"HOME": "/nonexistent"}, {"HOME": "/dev/null"}])
def test_an_account_without_a_state_directory_is_not_paused(named: dict[str, str]) -> None:
    assert standstills.StandstillWatch(named)() is None
    assert standstills.standstill(named) is None


def test_it_is_said_and_heard_though_the_list_of_workspaces_cannot_be_read(stage: Stage) -> None:
    listed = file_of_it().with_name(registry.FILE)
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_bytes(b"[]")
    listed.chmod(0o666)
    paused = stage.run("pause", "--all")
    assert paused.exit_code == 1
    assert "every agent of this user on this host is paused" in paused.stdout
    assert f"{stage.ws.root}: no daemon runs" in paused.stdout, "the workspace where it is said is known"
    assert f"other users own {listed}" in paused.stdout
    assert standstills.standstill(os.environ) is not None
    resumed = stage.run("resume", "--all", "--json")
    assert "other users own" in json.loads(resumed.stdout)["problem"]
    actions = FormActions(stage.clock)
    told = cast("dict[str, str]", templates().globals["DONE"])
    assert "not known" in told[actions.stand_still("pause-all", {})]
    assert "not known" in told[actions.stand_still("resume-all", {})]


def test_a_daemon_reads_it_again_only_when_it_has_changed(stage: Stage) -> None:
    watch = standstills.StandstillWatch(os.environ)
    assert watch() is None
    stage.run("pause", "--all")
    first = watch()
    assert first is not None
    assert watch() is first
    stage.run("resume", "--all")
    assert watch() == standstills.latest_standstill(os.environ)
    file_of_it().unlink()
    assert watch() is None


def test_a_daemon_that_has_not_heard_it_is_named(stage: Stage) -> None:
    stage.pause = lambda seconds: [stage.clock.advance(seconds)].clear()
    with lock.acquire(stage.ws, stage.clock.now()):
        shown = stage.run("pause", "--all")
        assert shown.exit_code == 1
        assert "HAS NOT HEARD IT" in shown.stdout
        with stage.engine() as engine:
            engine.store.meta.set_standstill(standstills.standstill(os.environ))
        assert "HAS NOT HEARD IT" in stage.run("resume", "--all").stdout


def test_work_waits_and_questions_about_work_do_not() -> None:
    shut, open_ = Capacity(4, is_shut=True), Capacity(4)
    assert (shut.has_slot("a"), shut.may_begin("a")) == (True, False)
    assert (open_.has_slot("a"), open_.may_begin("a")) == (True, True)


def test_why_says_what_holds_a_task_that_is_ready(stage: Stage) -> None:
    stage.create("job")
    with stage.engine() as engine:
        engine.store.meta.set_standstill(Standstill("ann", stage.clock.now(), NOTE))
    with lock.acquire(stage.ws, stage.clock.now()):
        (cause,) = stage.json("why", "job")["because"]
    assert (cause["kind"], cause["hint"]) == ("paused", f"{stage.program} resume --all")
    assert cause["text"] == f"waits: everything is paused by ann: {NOTE}"
