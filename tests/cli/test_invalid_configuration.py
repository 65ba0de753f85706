"""Invalid configuration is the first thing that every view says; none sends a person to a daemon that cannot start."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from mailboxd.daemon.health_writer import Health
from mailboxd.formats import config
from mailboxd.formats.mailbox import lock
from mailboxd.host.sdnotify import Notifier
from mailboxd.surfaces.web.overview_page import overview_values
from mailboxd.surfaces.web.page_models import PageModels
from mailboxd.surfaces.web.workspaces import WebWorkspaces
from tests.cli.stage import NOW, Stage

CASES = {
    "limitz:\n  turns: 3\n": ("config.yaml:2: limitz: no such key", "did you mean limits?"),
    "limits:\n  turnz: 3\n": ("config.yaml:3: limits.turnz: no such key", "did you mean limits.turns?"),
    "limits:\n  turns: many\n": ("config.yaml:3: limits.turns: write a whole number", "found 'many'"),
    "limits: 5\n": ("config.yaml:2: limits: is a group", "found '5'"),
    "limits: [1\n": ("config.yaml:", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("text", CASES)
def test_every_view_says_so_first(stage: Stage, text: str) -> None:
    (stage.ws.inbox / "one.md").write_text("do it")
    stage.create("job")
    stage.ws.config.write_text(f"agent: alpha\n{text}")
    (item,) = stage.json("inbox")
    assert item["kind"] == "config"
    for said in CASES[text]:
        assert said in item["text"]
    assert item["command"] == f"${{EDITOR:-vi}} {stage.ws.config}"
    status = stage.run("status").stdout
    assert status.startswith("health     red\n")
    assert ": the configuration is invalid" in status.replace("decide 1   ", "decide 1: ")
    assert "mailboxd run" not in status
    assert "cannot start" in stage.run("status", "--all").stdout
    red = stage.run("status", "--json")
    assert (red.exit_code, json.loads(red.stdout)["attention"][0]) == (1, item)
    fleet = stage.run("fleet", str(stage.ws.root))
    assert (fleet.exit_code, "the configuration is invalid" in fleet.stdout) == (1, True)
    shown = overview_values(PageModels(WebWorkspaces([stage.ws.root]), stage.clock))
    assert (shown["decide"]["lines"][0]["text"], shown["places"][0]["grade"]) == (item["text"], "red")
    found = json.loads(stage.run("doctor", "--quick", "--json").stdout)["findings"]
    assert (found[0]["id"], found[0]["level"]) == ("config", "error")
    assert "mailboxd run" not in str(found)
    assert "mailboxd run" not in stage.run("why", "job").stdout
    assert "the configuration is invalid" in stage.run("why", "job").stdout
    for view in (["ls"], ["show", "job"], ["show", "--tree", "job"], ["log"], ["search", "job"], ["approve"]):
        assert "the configuration is invalid" in stage.run(*view).stderr, view
    sent = stage.run("send", "More work")
    assert (sent.exit_code, "mailboxd run" in sent.output) == (0, False)
    assert "the configuration is invalid" in sent.output


def test_the_printed_command_opens_the_file(stage: Stage) -> None:
    stage.ws.config.write_text("agent: alpha\nlimitz: {turns: 3}\n")
    fix = {**os.environ, "EDITOR": "sed -i s/limitz/limits/"}
    subprocess.run(stage.item("config")["command"], shell=True, check=True, env=fix)
    assert stage.json("inbox") == []


def test_several_problems_are_counted(stage: Stage) -> None:
    stage.ws.config.write_text("agent: alpha\nlimitz: {}\nnotifi: {}\nlogg: {}\n")
    assert "; and 2 more (`mailboxd config` prints all)" in stage.item("config")["text"]


def test_a_file_that_everybody_may_change_is_named_with_its_cure(stage: Stage) -> None:
    stage.ws.config.chmod(0o666)
    item = stage.item("config")
    assert "every user may change it" in item["text"]
    subprocess.run(item["command"], shell=True, check=True)
    assert stage.json("inbox") == []


@pytest.mark.parametrize("text", ["", "nothing but words\n", "agent: [a]\n", "agent: ../etc\n", "\0\0\n"])
def test_without_an_agent_the_views_still_work(stage: Stage, text: str) -> None:
    stage.ws.config.write_text(text)
    assert stage.item("config")
    assert "agent      unknown" in stage.run("status", "--all").stdout
    (row,) = json.loads(stage.run("fleet", str(stage.ws.root), "--json").stdout)
    assert (row["state"], row["agent"], row["attention"][0]["kind"]) == ("ok", None, "config")


def test_a_missing_file_is_invalid_too(stage: Stage) -> None:
    stage.ws.config.unlink()
    assert "there is no such file" in stage.item("config")["text"]


def test_a_daemon_goes_on_with_what_it_has_read(stage: Stage) -> None:
    stage.ws.config.write_text("agent: alpha\nlimitz: {}\n")
    os.utime(stage.ws.config)
    with lock.acquire(stage.ws, NOW):
        Path(stage.ws.daemon_file).touch()
        assert [item for item in stage.json("inbox") if item["kind"] == "config"] == [], "it has read this one"
        stage.ws.config.write_text("agent: alpha\nlimitz: {}\n# later\n")
        assert "the daemon goes on with the one that it has read" in stage.item("config")["text"]
        assert "could not start again" in stage.item("config")["text"]


def runs(stage: Stage) -> None:
    """What a daemon notes as it starts."""
    with stage.engine() as engine:
        engine.store.meta.report("agent", "alpha")
        engine.store.meta.report("configuration", config.fingerprint(config.load(stage.ws.config)))


def test_while_a_daemon_runs_an_invalid_one_is_amber_in_every_view(stage: Stage) -> None:
    runs(stage)
    with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha"):
        assert stage.json("status")["health"]["grade"] == "green"
        stage.ws.config.write_text("# one\n\nagent: [x\nlimits: {depth: 3}\n")
        found = stage.json("status")
        assert (found["health"]["grade"], found["agent"]) == ("amber", "alpha")
        assert "config.yaml:3:" in found["attention"][0]["text"]
        (row,) = json.loads(stage.run("fleet", str(stage.ws.root), "--json").stdout)
        assert (row["health"], row["agent"]) == ("amber", "alpha")
        shown = overview_values(PageModels(WebWorkspaces([stage.ws.root]), stage.clock))
        (place,), card = shown["places"], shown["decide"]["lines"][0]
        assert (place["grade"], place["name"], card["agent"]) == ("amber", "alpha", "alpha")
        doctor = stage.run("doctor", env={"PATH": "/nowhere"}).stdout
        assert "npm install" not in doctor
        assert "OpenClaw was not checked" in doctor


def test_a_valid_change_counts_after_a_restart_which_is_said_until_then(stage: Stage) -> None:
    runs(stage)
    with lock.acquire(stage.ws, NOW), Health(stage.ws, stage.clock, Notifier({}), "alpha"):
        stage.ws.config.write_text("# rewritten\nagent: alpha\n")
        assert stage.json("inbox") == [], "it says the same"
        stage.ws.config.write_text("agent: alpha\nlimits:\n  depth: 3\n")
        item = stage.item("daemon")
        assert "counts after a restart" in item["text"]
        assert "counts after a restart" in stage.run("status").stdout
        assert "counts after a restart" in " ".join(stage.run("doctor", "--quick").stdout.split())
        assert stage.json("status")["health"]["grade"] == "green"
        runs(stage)
        assert stage.json("inbox") == []
