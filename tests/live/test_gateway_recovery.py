"""The gateway is killed with turns in flight: each one ends by itself, once, and nobody has to do anything."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.e2e.support import eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import FoundApart, some_of
from tests.live.gateway import run_of
from tests.live.install import OPENCLAW
from tests.live.model import Exec, Hang, Text

RELEASES = (OPENCLAW, "2026.8.1")
OVER_IT = {"transport": "gateway", "turn_timeout_seconds": 60}


def over_the_gateway(found_apart: FoundApart, release: str, turns: int) -> LiveCompany:
    """Alpha, paired: its turns go over the gateway, so many at once."""
    limits = {"turns": turns, "turns_per_agent": turns}
    company = found_apart(run_of(["alpha"]), release=release, openclaw=OVER_IT, limits=limits, start=False)
    config = json.loads(company.gateway.config.read_text())
    config["agents"]["defaults"]["maxConcurrent"] = 2 * turns
    company.gateway.config.write_text(json.dumps(config))
    company.gateway.start()
    pair = company["alpha"].call("connect", "gateway", "pair", env={"OPENCLAW_GATEWAY_TOKEN": company.gateway.token})
    assert pair.returncode == 0, pair.stderr
    return company


def killed_with(company: LiveCompany, begun: int, fresh: int) -> list[str]:
    """Kill the gateway with so many turns whose side effect has happened, and others that it has just accepted."""
    alpha, model = company["alpha"], company.model
    names = [f"t{number:02}" for number in range(begun)]
    late = [f"u{number:02}" for number in range(fresh)]
    for name in names:
        model.on(Exec(f"echo {name} >> ran"), Hang(f"{name} ran."), task=name)
    for name in late:
        model.on(Text(f"{name} said."), task=name)
    alpha.start()
    for name in names:
        alpha.drop(f"{name}.md", task(name))
    eventually(lambda: all(any(c.steps for c in model.made(task=name)) for name in names), 240, alpha.last_words)
    for name in late:
        alpha.drop(f"{name}.md", task(name))
    accepted = [f'"agent:alpha:mailboxd:{name}' for name in late]
    place = alpha.root / ".mailboxd" / "turns"
    eventually(
        lambda: sum(any(key in call.read_text() for key in accepted) for call in place.glob("*/call")) >= fresh, 60
    )
    company.gateway.kill()
    model.release()
    return [*names, *late]


@pytest.mark.parametrize("release", some_of(RELEASES, OPENCLAW))
def test_every_turn_of_a_gateway_that_is_killed_ends_once_and_nobody_is_asked(
    found_apart: FoundApart, release: str
) -> None:
    company = over_the_gateway(found_apart, release, turns=12)
    alpha = company["alpha"]
    names = killed_with(company, 6, 4)
    eventually(lambda: "under way when OpenClaw's gateway died" in alpha.call("status").stdout, 60)
    assert "gateway" in alpha.json("why", names[0])["because"][0]["text"]
    company.gateway.start()
    for name in names:
        row = alpha.until(name)
        assert row["result"] == f"{name} {'ran' if name.startswith('t') else 'said'}.", name
        assert row["failures"] == 0
        assert [one["status"] for one in alpha.attempts(name)] == ["succeeded"], name
    assert Counter((alpha.root / "ran").read_text().split()) == Counter(name for name in names if name[0] == "t")
    assert not [item for item in alpha.json("inbox") if item["kind"] in ("circuit", "gateway", "health")]
    company.at_rest()


@pytest.mark.soak
@pytest.mark.parametrize("release", RELEASES)
def test_sixty_turns_in_flight(found_apart: FoundApart, release: str) -> None:
    company = over_the_gateway(found_apart, release, turns=60)
    names = killed_with(company, 30, 30)
    company.gateway.start()
    for name in names:
        assert company["alpha"].until(name)["failures"] == 0
    company.at_rest()


@pytest.mark.parametrize("release", some_of(RELEASES, OPENCLAW))
def test_work_that_is_cancelled_while_its_turn_waits_to_be_resumed_does_not_go_on(
    found_apart: FoundApart, release: str
) -> None:
    """OpenClaw would resume it nevertheless, minutes later."""
    company = over_the_gateway(found_apart, release, turns=12)
    alpha, model = company["alpha"], company.model
    killed_with(company, 3, 0)
    alpha.call("cancel", "t01", "--now")
    company.gateway.start()
    alpha.until("t00")
    alpha.until("t02")
    assert alpha.json("show", "t01")["phase"] == "cancelled"
    assert len(model.made(task="t01")) <= 3
    assert Counter((alpha.root / "ran").read_text().split())["t01"] == 1
