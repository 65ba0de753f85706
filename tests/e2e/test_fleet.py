"""Two real daemons, seen from outside: `log` follows one, `fleet` shows both, and finds out when one dies."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import MAILBOXD, environment, eventually

pytestmark = pytest.mark.slow


def test_a_fleet_is_sent_to_followed_and_told_of_a_death(
    found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rules = {"rules": [{"reply": "Hello."}]}
    company = found({"alpha": rules, "beta": rules}, daemons=["alpha", "beta"])
    alpha, beta = company["alpha"], company["beta"]
    for agent in (alpha, beta):
        agent.start()

    def rows() -> dict[str, dict[str, object]]:
        said = subprocess.run(
            [*MAILBOXD, "fleet", "--json"], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert said.returncode in (0, 1), said.stderr
        return {row["agent"]: row for row in json.loads(said.stdout)}

    assert {name: row["health"] for name, row in rows().items()} == {"alpha": "green", "beta": "green"}

    sent = alpha.call("send", "--to", "beta", "--task-id", "greet", "--wait", "Greet")
    assert (sent.returncode, sent.stdout) == (0, "Hello.\n")
    told = beta.call("log", "greet", "--follow", "--json")
    assert told.returncode == 0
    assert [json.loads(line) for line in told.stdout.splitlines()] == beta.json("log", "greet")
    beta.kill()
    eventually(lambda: rows()["beta"]["health"] == "red")
    last = rows()
    assert list(last) == ["beta", "alpha"]
    assert "died without a report" in str(last["beta"]["attention"])
    beta.start()
    company.at_rest()
