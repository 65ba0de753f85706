"""New instructions reach a turn that runs, with the next result of a tool."""

from __future__ import annotations

import pytest

from tests.e2e.support import eventually, message, task
from tests.live.conftest import FoundApart
from tests.live.gateway import run_of
from tests.live.install import OPENCLAW
from tests.live.model import Exec, Text


@pytest.mark.parametrize("release", [OPENCLAW, "2026.8.1"])
def test_new_instructions_are_read_in_the_turn_itself_and_given_once(found_apart: FoundApart, release: str) -> None:
    company = found_apart(run_of(["alpha"]), release=release, plugin=True)
    alpha, model = company["alpha"], company.model
    hold = "until [ -e go ]; do sleep 0.2; done; echo held"
    model.on(Exec(hold), Exec("echo second"), Text("Blue."), agent="alpha", task="job")
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: model.made(task="job"), 120, alpha.last_words)
    alpha.drop("steer.md", message("steer", "job", "Use blue."))
    eventually(lambda: list((alpha.root / ".mailboxd" / "steering").glob("*.json")), 60, alpha.last_words)
    (alpha.root / "go").touch()
    assert alpha.until("job")["result"] == "Blue."
    calls = model.made(task="job")
    assert len(calls) == 3, "there was no other turn"
    assert "held" in calls[1].results[0]
    assert "[mailboxd] NEW INSTRUCTIONS" in calls[1].results[0]
    assert "Use blue." in calls[1].results[0]
    assert "NEW INSTRUCTIONS" not in calls[2].results[1], "once"
    assert alpha.events("task.steered")[-1]["data"]["into"] == "given in the running turn with the result of a tool"
    company.at_rest()
