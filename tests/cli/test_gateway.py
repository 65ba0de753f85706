"""`mailboxd connect gateway`, as far as it goes without a gateway. What it does with one: tests/live."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_OK, EXIT_TRY_AGAIN, EXIT_UNAVAILABLE
from mailboxd.perform.agents.gateway import pairing
from mailboxd.perform.agents.gateway.pairing import Device, Pairing
from mailboxd.perform.agents.gateway.transport import pairing_file
from tests.agents.replay import Frame, Replay, conversation
from tests.cli.stage import Stage

NOBODY = "ws://127.0.0.1:1"
SECRET: dict[str, str | None] = {"OPENCLAW_GATEWAY_TOKEN": "the-gateways-own"}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def device(stage: Stage) -> Path:
    return pairing_file(stage.ws.root, os.environ)


def of_anybody(case: str) -> list[Frame]:
    return [{"sent": None} if "sent" in frame else frame for frame in conversation(case)]


def test_a_workspace_that_is_not_paired_says_so(stage: Stage) -> None:
    result = stage.run("connect", "gateway", "status", "--json")
    assert result.exit_code == EXIT_NO
    assert json.loads(result.stdout) == {
        "paired": False,
        "works": False,
        "problem": f"not paired: run `{stage.program} connect gateway pair`",
    }
    assert stage.run("connect", "gateway", "unpair").exit_code == EXIT_UNAVAILABLE


@pytest.mark.parametrize("verb", ["pair", "unpair"])
def test_an_agent_cannot_pair(stage: Stage, verb: str) -> None:
    result = stage.run("connect", "gateway", verb, env={"OPENCLAW_SHELL": "exec"})
    assert result.exit_code == EXIT_NO
    assert "permission-denied" in result.output
    assert not device(stage).exists()


def test_no_token_goes_over_the_network_in_the_clear(stage: Stage) -> None:
    result = stage.run("connect", "gateway", "pair", "--url", "ws://10.0.0.7:18789", env=SECRET)
    assert result.exit_code == EXIT_CONFIG
    assert "unencrypted" in result.output


def test_an_unreachable_gateway(stage: Stage) -> None:
    assert stage.run("connect", "gateway", "pair", "--url", NOBODY, env=SECRET).exit_code == EXIT_UNAVAILABLE
    pairing.write(device(stage), Pairing(NOBODY, "mailboxd alpha", Device.new(), "token"))
    result = stage.run("connect", "gateway", "status")
    assert result.exit_code == EXIT_NO
    assert "cannot reach the gateway at ws://127.0.0.1:1" in result.stdout


def test_a_gateway_that_wants_a_person(stage: Stage) -> None:
    with Replay(of_anybody("pairing-required")) as replay:
        result = stage.run("connect", "gateway", "pair", "--url", replay.url, env=SECRET)
    assert result.exit_code == EXIT_TRY_AGAIN
    assert "openclaw devices approve " in result.stdout
    assert f"run `{stage.program} connect gateway pair` again" in result.stdout


def test_a_gateway_that_refuses_the_token_says_how_to_give_another(stage: Stage) -> None:
    with Replay(of_anybody("wrong-token")) as replay:
        result = stage.run(
            "connect", "gateway", "pair", "--url", replay.url, "--token-file", "-", text="not the token\n"
        )
    assert result.exit_code == EXIT_CONFIG
    assert "--token-file" in result.output
    assert "not the token" not in result.output


@pytest.mark.parametrize(
    "give",
    [
        lambda stage, url: stage.run(
            "connect", "gateway", "pair", "--url", url, env={"OPENCLAW_GATEWAY_TOKEN": "secret-7"}
        ),
        lambda stage, url: stage.run(
            "connect", "gateway", "pair", "--url", url, env={"OPENCLAW_GATEWAY_PASSWORD": "secret-7"}
        ),
        lambda stage, url: stage.run(
            "connect", "gateway", "pair", "--url", url, "--token-file", "-", text="secret-7\n"
        ),
    ],
)
def test_the_gateways_token_is_given_without_being_an_argument(stage: Stage, give: Callable[..., object]) -> None:
    with Replay(of_anybody("wrong-token")) as replay:
        give(stage, replay.url)
    (connect,) = replay.heard
    assert connect["params"]["auth"] == {"token": "secret-7"}


def test_a_pairing_works_and_only_its_owner_can_read_it(stage: Stage) -> None:
    pairing.write(device(stage), Pairing(NOBODY, "mailboxd alpha", Device.new(), "token"))
    with Replay(of_anybody("pair")) as replay:
        pairing.write(device(stage), Pairing(replay.url, "mailboxd alpha", Device.new(), "token"))
        result = stage.run("connect", "gateway", "status", "--json")
    assert result.exit_code == EXIT_OK
    found = json.loads(result.stdout)
    assert (found["works"], found["openclaw"], found["scopes"]) == (True, "2026.9.6", ["operator.write"])
    assert found["transport"] == "auto"
    assert "token" not in found.values()


def test_the_daemon_does_not_start_unpaired(stage: Stage) -> None:
    with stage.ws.config.open("a") as config:
        config.write("\nopenclaw:\n  transport: gateway\n")
    result = stage.run("run", "--until-idle")
    assert result.exit_code == EXIT_CONFIG
    assert f"run `{stage.program} connect gateway pair`, or set `openclaw.transport: cli`" in result.output
