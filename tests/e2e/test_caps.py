"""Three real daemons of one user share the cap of a day: they stop at it together, also if one is killed, and go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Company, eventually, task

pytestmark = pytest.mark.slow

NAMES = ("ada", "bob", "eve")
DEAR = {"default": {"reply": "Result of {title}.", "cost": 0.1}}


def spent(company: Company) -> float:
    return float(sum(turn["usage"].get("cost_usd", 0) for name in NAMES for turn in company[name].turns()))


def reached(company: Company, name: str) -> bool:
    told = company[name].json("status")["spending"]
    return bool(told) and bool(told[1]["reached"])


def test_three_daemons_stop_at_the_cap_of_their_host_and_go_on_when_it_is_raised(found: Found, tmp_path: Path) -> None:
    company = found(dict.fromkeys(NAMES, DEAR), daemons=NAMES, limits={"turns_per_agent": 4})
    company.env |= {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    caps = tmp_path / "config" / "mailboxd" / "host.yaml"
    caps.parent.mkdir(parents=True)
    caps.write_text("day_usd: 1\n")
    caps.chmod(0o600)
    for name in NAMES:
        company[name].start()
        for number in range(6):
            company[name].drop(f"t{number}.md", task(f"t{number}"))
    eventually(lambda: spent(company) >= 0.4)
    company["ada"].kill()
    company["ada"].start()
    eventually(lambda: all(reached(company, name) for name in NAMES), 60.0)
    assert spent(company) == pytest.approx(1.0)
    held = [name for name in NAMES if len(company[name].turns()) < 6]
    (item,) = [one for one in company[held[0]].json("inbox") if one["kind"] == "cap"]
    assert "all agents of this machine together have spent 1 of 1 USD today" in item["text"]
    assert item["command"].endswith("caps --host --usd 2 --today")
    company[held[0]].call("caps", "--host", "--usd", "2", "--today")
    eventually(lambda: spent(company) == pytest.approx(1.8), 60.0)
    book = json.loads((tmp_path / "state" / "mailboxd" / "spending.json").read_text())
    assert len(book["rows"]) == 3
    company.at_rest()
