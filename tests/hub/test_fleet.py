"""All hosts at once: what each shows of itself, who may see what waits there, and what a silent one looks like."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from nats.errors import TimeoutError as NatsTimeout

from mailboxd.core.explain.overview_details import HostRow
from mailboxd.formats.keys import PrivateKey
from mailboxd.host.clock import SystemClock
from mailboxd.hub.client.ask import HostsSearched
from mailboxd.hub.client.report import HubReport
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.presence import AgentCard, Card, HostSigns, News, Waiting, is_repeated, was_set_back
from mailboxd.hub.wire.sealing import open_sealed, seal
from mailboxd.hub.wire.signed_json import signed_json, verified_json
from mailboxd.operate.doctor.hub import probe_hub
from mailboxd.surfaces.web.overview_page import overview_values
from mailboxd.surfaces.web.page_models import Card as PageCard
from mailboxd.surfaces.web.page_models import PageModels, of_host
from mailboxd.surfaces.web.workspaces import WebWorkspaces
from tests.e2e.support import eventually, task
from tests.hub.conftest import Joined
from tests.hub.farm import SETTINGS, Host
from tests.hub.test_security import Spy, as_gamma
from tests.ledger.shapes import require, require_made_of

NOW, EARLIER, LONG_AGO = "2026-11-25T10:00:00.000Z", "2026-11-25T09:59:30.000Z", "2026-11-24T10:00:00.000Z"
LATER = "2026-11-25T11:00:00.000Z"
WRITER = AgentCard(role="Writes", health="amber", open=3, waiting=1)
ASKED = Waiting(
    agent="writer",
    kind="approval",
    text="asks for your approval",
    command="mailboxd -w /ws inbox",
    id="apr_01ABCDEF",
    until=LATER,
    tasks=2,
)


def card(at: str = NOW, run: str = "r1", remembers: str = "", number: int = 1) -> Card:
    return Card(host="beta", at=at, run=run, number=number, remembers=remembers, agents={"writer": WRITER})


def row(signs: HostSigns, trouble: str = "") -> HostRow:
    (found,) = HubReport({**SETTINGS, "trouble": trouble}, {"beta": signs}).rows(NOW)
    require(found, HostRow)
    require_made_of(of_host(found), list[PageCard])
    return found


def test_a_host_shows_its_agents_what_waits_there_and_the_command_that_decides_from_here() -> None:
    signs = HostSigns(at=EARLIER, card=card(), news=News(items=(ASKED,), may_decide=True))
    found = row(signs)
    assert (found["state"], found["health"], found["open"], found["attention_count"]) == ("ok", "amber", 3, 1)
    (item,) = found["attention"]
    assert (item["host"], item["agent"], item["command"]) == (
        "beta",
        "beta.writer",
        "mailboxd approve beta.writer:abcdef",
    )
    assert (item["until"], item["tasks"]) == (LATER, 2)
    signs = signs.model_copy(update={"news": News(items=(ASKED,))})
    assert row(signs)["attention"][0]["command"] == "ssh beta 'mailboxd -w /ws inbox'"


def test_a_silent_host_is_named_with_the_time_since_which_what_is_known_is_stale() -> None:
    found = row(HostSigns(at=LONG_AGO, card=card(LONG_AGO)), "the server does not answer")
    assert found["state"] == "silent"
    assert found["why"] == f"nothing has been heard from it since {LONG_AGO}; the server does not answer"
    assert found["open"] == 3
    assert row(HostSigns())["why"] == "it was never heard from"


@pytest.mark.parametrize(
    ("later", "forgotten"),
    [
        (card(NOW, "r1"), False),
        (card(NOW, "r2", EARLIER), False),
        (card(NOW, "r2", LONG_AGO), True),
        (card(NOW, "r2", ""), True),
    ],
    ids=["the same run", "a restart", "a backup", "set up anew"],
)
def test_a_host_that_forgot_what_it_did_was_set_back(later: Card, forgotten: bool) -> None:
    assert was_set_back(card(EARLIER, "r1", LONG_AGO), later) is forgotten
    assert not was_set_back(None, later)


@pytest.mark.parametrize(
    ("said", "is_old"),
    [
        (card(LONG_AGO, "r2", number=8), False),
        (card(NOW, "r2", number=7), True),
        (card(NOW, "r2", number=6), True),
        (card(LONG_AGO, "r3"), False),
        (card(NOW, "r1", number=9), True),
    ],
    ids=["its clock was set back", "repeated", "overtaken", "a new run", "an earlier run"],
)
def test_what_a_host_said_before_is_told_by_its_runs_and_numbers_and_not_by_its_clock(said: Card, is_old: bool) -> None:
    assert is_repeated(said, card(EARLIER, "r2", number=7), ("r0", "r1")) is is_old
    assert not is_repeated(said, None, ())


def test_what_another_key_signed_or_nobody_is_not_read() -> None:
    key = PrivateKey.new()
    assert verified_json(signed_json(key, {"a": 1}), key.public) == {"a": 1}
    for raw in (
        signed_json(PrivateKey.new(), {"a": 1}),
        b'{"text": "{}", "signature": "x"}',
        b"[" * 10_000,
        b"\xff",
        b"1",
    ):
        assert verified_json(raw, key.public) is None


# With real hosts

ASKS: dict[str, Any] = {"mailbox": "true", "default": {"question": "Which figures?"}}
WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "The outcome."}}


def fleet(host: Host) -> dict[str, dict[str, Any]]:
    """The other hosts, as `mailboxd fleet` shows them on this one."""
    rows = json.loads(next(iter(host.agents.values())).call("fleet", "--json").stdout)
    return {found["host"]: found for found in rows if "host" in found}


def allow(host: Host, **lists: str) -> None:
    settings = host.folder / "hub.yaml"
    text = settings.read_text()
    for name, value in lists.items():
        text = text.replace(f"\n{name}: []", f"\n{name}: {value}")
    settings.write_text(text)


@pytest.mark.slow
def test_what_waits_on_another_host_is_listed_if_that_host_allows_it(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": ASKS}})
    farm.start()
    alpha, beta = farm["alpha"], farm["beta"]
    beta["writer"].drop("q.md", task("figures"))
    eventually(lambda: fleet(alpha)["beta"]["attention_count"], 40, farm.last_words)
    found = fleet(alpha)["beta"]
    assert (found["state"], found["open"], found["attention"]) == ("ok", 1, [])
    allow(beta, show="[alpha]")
    (item,) = eventually(lambda: fleet(alpha)["beta"]["attention"], 40, farm.last_words)
    assert (item["agent"], item["task"], item["kind"]) == ("beta.writer", "figures", "question")
    assert item["command"].startswith("ssh beta 'mailboxd -w ")
    models = PageModels(WebWorkspaces(environ=alpha.env), SystemClock())
    page = overview_values(models)
    assert ([one["host"] for one in page["places"] if one["host"]], page["decide"]["total"]) == (["beta"], 1)
    assert page["decide"]["lines"][0]["text"] == item["text"]
    allow(beta, decide="[alpha]")
    eventually(lambda: "answer beta.writer:figures" in str(fleet(alpha)["beta"]["attention"]), 40, farm.last_words)
    settings = beta.folder / "hub.yaml"
    settings.write_text(settings.read_text().replace("[alpha]", "[]"))
    eventually(lambda: not fleet(alpha)["beta"]["attention"], 40, farm.last_words)


@pytest.mark.slow
def test_a_host_restored_from_a_backup_is_seen_by_the_others(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": WORK}})
    farm.start()
    alpha, beta = farm["alpha"], farm["beta"]
    beta.kill_hub()
    status = beta.folder / "status.json"
    backup = json.loads(status.read_text()) | {"at": LONG_AGO}
    beta.start_hub()
    eventually(lambda: json.loads(status.read_text())["at"] > backup["at"], 20, farm.last_words)
    assert not fleet(alpha)["beta"]["set_back_at"], "a restart is none"
    beta.kill_hub()
    status.write_text(json.dumps(backup))
    beta.start_hub()
    eventually(lambda: fleet(alpha)["beta"]["set_back_at"], 30, farm.last_words)
    assert "had forgotten what it did" in fleet(alpha)["beta"]["troubles"][0]


def search(host: Host, *words: str) -> dict[str, Any]:
    (agent,) = host.agents.values()
    found: dict[str, Any] = json.loads(agent.call("search", "--hosts", *words, "--json").stdout)
    require(found, HostsSearched)
    return found


@pytest.mark.slow
def test_a_search_asks_each_host_that_allows_it_and_names_those_that_do_not_answer(joined: Joined) -> None:
    farm = joined({name: {name[0]: WORK} for name in ("alpha", "beta", "gamma", "delta")})
    alpha, beta, gamma = farm["alpha"], farm["beta"], farm["gamma"]
    for host in (beta, gamma):
        allow(host, show="['*']")
    farm.start()
    for host in (beta, gamma, farm["delta"]):
        (agent,) = host.agents.values()
        agent.drop("q.md", task("figures", "Count the penguins."))
        agent.until("figures")
    gamma.kill_hub()
    found = search(alpha, "penguins")
    assert {hit["host"] for hit in found["hits"]} == {"beta"}
    assert {(hit["agent"], hit["task"]) for hit in found["hits"]} == {("b", "figures")}
    assert all(hit["seq"] and "b" in hit["agents"] for hit in found["hits"])
    assert found["silent"] == {
        "delta": "show in hub.yaml of delta does not let alpha search there",
        "gamma": "its hub process is not connected to the server",
    }
    assert search(alpha, "giraffes")["hits"] == []
    text = alpha["a"].call("search", "--hosts", "penguins")
    assert "beta.b:figures" in text.stdout
    assert "gamma: its hub process is not connected" in text.stderr
    alpha.kill_hub()
    assert alpha["a"].call("search", "--hosts", "penguins").returncode == 69


@pytest.mark.slow
def test_a_question_that_its_host_did_not_sign_is_not_answered(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"writer": WORK}, "gamma": {"spy": WORK}})
    allow(farm["beta"], show="['*']")
    for name in ("alpha", "beta"):
        farm[name].start_hub()
    farm["gamma"].let_in()
    eventually(lambda: farm["beta"].is_connected_with("alpha"), 30, farm.last_words)

    async def does(spy: Spy) -> None:
        key, betas = (Membership.of(farm[name].env).key() for name in ("gamma", "beta"))
        asked = {"kind": "question", "nonce": "n1", "question": {"kind": "search", "query": {"query": "x"}}}
        said = {**asked, "from": "gamma", "to": "beta"}
        elsewhere = [signed_json(key, {**said, "to": "alpha"}), signed_json(key, {**said, "from": "alpha"})]

        async def ask(raw: bytes, seconds: float) -> dict[str, Any] | None:
            reply = await spy.client.request("mb.v2.beta.ask.gamma", raw, timeout=seconds)
            return verified_json(open_sealed(reply.data, "gamma", key), betas.public)

        wrong = [seal(raw, {"beta": betas.public}) for raw in (signed_json(PrivateKey.new(), said), *elsewhere, b"?")]
        for raw in (signed_json(key, said), *wrong):
            with pytest.raises(NatsTimeout):
                await ask(raw, 0.5)
        questions = (said, {**said, "question": {"kind": "?"}}, {**said, "kind": "?"})
        answers = [await ask(seal(signed_json(key, one), {"beta": betas.public}), 5) for one in questions]
        assert answers[0] == {"answer": [], "from": "beta", "nonce": "n1"}
        assert all("does not know this question" in str(one) for one in answers[1:])
        assert await spy.is_refused(spy.client.publish("mb.v2.beta.ask.alpha", signed_json(key, said)))

    as_gamma(farm, does)
    eventually(lambda: "mb.v2.beta.ask.gamma" in farm["beta"].status()["foreign"], 20, farm.last_words)


@pytest.mark.slow
def test_the_doctor_tries_out_what_the_server_allows_and_what_it_refuses(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}})
    farm.start()
    alpha = farm["alpha"]
    config = farm.server.folder / "nats.conf"

    def tried() -> dict[str, Any]:
        eventually(lambda: not alpha.status()["trouble"], 30, farm.last_words)
        found = probe_hub(alpha.env)
        assert found is not None
        assert found.probe is not None
        return dict(found.probe)

    assert tried() == {"own": True, "foreign": False, "replicas": 1, "behind": []}
    assert "ermissions" not in alpha.log.read_text(), "what the doctor tries is no news"
    text = config.read_text()
    config.write_text(text.replace('"mb.v2.*.ask.alpha"', '"mb.v2.*.ask.*"'))
    os.kill(int((farm.server.folder / "nats.pid").read_text()), signal.SIGHUP)
    eventually(lambda: tried()["foreign"], 30, farm.last_words)
    config.write_text(text.replace('"mb.v2.*.ask.alpha"', '"mb.v2.*.ask.other"'))
    os.kill(int((farm.server.folder / "nats.pid").read_text()), signal.SIGHUP)
    eventually(lambda: not tried()["own"], 30, farm.last_words)
    alpha.kill_hub()
    alpha.start_hub()  # it writes the server's configuration as it has to be
    eventually(lambda: tried()["own"], 30, farm.last_words)
    assert config.read_text() == text
