"""`mailboxd fleet` over workspaces that are registered, named, gone and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.model import Policy
from mailboxd.core.outcomes import Unknown
from mailboxd.formats.mailbox import lock
from tests.cli.stage import NOW, Stage, make
from tests.ledger.shapes import well_printed


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Stage]:
    """Three workspaces under one user: alpha is idle, beta's daemon holds an open circuit, gamma is damaged."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stages = {name: make(tmp_path / name) for name in ("alpha", "beta", "gamma")}
    for name, stage in stages.items():
        stage.ws.config.write_text(f"agent: {name}\n")
    beta = stages["beta"]
    beta.create("lost", policy=Policy(max_attempts=3))
    beta.start()
    beta.end_turn("lost", Unknown("the gateway went away", "run_9", looked_up=True))
    beta.clock.advance(60)
    stages["gamma"].ws.database.write_bytes(b"this is no database" * 1000)
    return stages


def test_fleet_shows_workspaces_that_need_attention_first(fleet: dict[str, Stage]) -> None:
    alpha = fleet["alpha"]
    alpha.clock.advance(60)
    with lock.acquire(fleet["beta"].ws, NOW):
        result = alpha.run("fleet", *map(str, roots(fleet)), "--json")
    assert result.exit_code == 1
    rows = {Path(row["workspace"]).name: row for row in printed(result.stdout)}
    assert list(rows)[-1] == "alpha"
    assert (rows["alpha"]["state"], rows["alpha"]["health"], rows["alpha"]["attention"]) == ("ok", "off", [])
    assert (rows["beta"]["open"], rows["beta"]["phases"]) == (1, {"circuit_open": 1})
    assert rows["beta"]["daemon"]["running"]
    assert [(item["kind"], item["task"]) for item in rows["beta"]["attention"]] == [("daemon", ""), ("circuit", "lost")]
    assert (rows["gamma"]["agent"], rows["gamma"]["state"]) == ("gamma", "unreadable")


def printed(text: str) -> Any:
    found = json.loads(text)
    well_printed(("fleet",), found)
    return found


def roots(fleet: dict[str, Stage]) -> list[Path]:
    return [stage.ws.root for stage in fleet.values()]


def test_those_that_init_made_are_known_and_one_that_went_is_shown(fleet: dict[str, Stage], tmp_path: Path) -> None:
    stage = fleet["alpha"]
    stage.ws.root.rename(tmp_path / "elsewhere")
    known = Stage(stage.ws, stage.clock, stage.pause)
    rows = {Path(row["workspace"]).name: row for row in printed(run(known, "fleet", "--json"))}
    assert rows["alpha"]["state"] == "gone"
    assert rows["alpha"]["attention"] == []
    text = run(known, "fleet")
    assert "gone" in text
    assert "3 workspaces, 3 need attention" in text


def run(stage: Stage, *arguments: str) -> str:
    """As a user would who is in no workspace."""
    from click.testing import CliRunner

    from mailboxd.cli.program import program
    from mailboxd.cli.session import Session

    return CliRunner().invoke(program, list(arguments), obj=Session(clock=stage.clock, pause=stage.pause)).stdout


def test_fleet_succeeds_if_nothing_needs_attention(fleet: dict[str, Stage]) -> None:
    alpha = fleet["alpha"]
    assert alpha.json("fleet", str(alpha.ws.root))[0]["agent"] == "alpha"
    (alpha.ws.inbox / "one.md").write_text("do it")
    (row,) = printed(alpha.run("fleet", "--json").stdout)
    assert [item["text"] for item in row["attention"]] == ["no daemon is running, and 1 file in the inbox waits for it"]
    assert alpha.run("fleet").exit_code == 1


def test_an_empty_fleet_says_how_to_begin(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "empty"))
    assert run(stage, "fleet", "--json") == "[]\n"
