"""The older versions of OpenClaw that are supported: setup, work, a dispatch between two daemons, and doctor on each.

One test per version, because a gateway takes as long to start as all the rest; the newest version has the whole suite.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from mailboxd.core.outcomes import Succeeded
from mailboxd.perform.agents.alive import has_ended
from mailboxd.perform.agents.ask import finish
from mailboxd.perform.agents.outcome import classify
from tests.e2e.support import MAILBOXD, eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import FoundApart, some_of
from tests.live.gateway import run_of
from tests.live.install import OLDER
from tests.live.model import Hang, Text
from tests.live.test_doctor import Examined
from tests.live.test_gateway_transport import carrier, paired, until_asked

FROM_ALPHA = "---\ntype: task\ntask_id: chat\nfrom: alpha\n---\n\nDo it.\n"


@pytest.mark.parametrize("release", some_of(OLDER, OLDER[-1]))
def test_setup_work_a_dispatch_and_doctor_on_an_older_openclaw(found_apart: FoundApart, release: str) -> None:
    company = found_apart(run_of(["alpha", "beta"]), daemons=[], start=False, release=release)
    let_agents_reach_each_other(company)
    company.gateway.start()
    set_up(company)
    with company["alpha"].config.open("a") as config:
        config.write("synthesis: concat\n")
    company.employ("beta", {})
    company["alpha"].start()
    company["beta"].start()
    one_task_is_done(company)
    a_dispatch_and_its_reply_cost_no_call(company)
    what_is_said_in_a_chat_goes_to_the_model(company)
    doctor_proves_the_plugin(company, release)
    a_turn_whose_program_is_killed_is_asked_about(company)
    company.at_rest()


def let_agents_reach_each_other(company: LiveCompany) -> None:
    """As an operator has to on 2026.8.1, where OpenClaw allows it to nobody unless it is configured."""
    config = json.loads(company.gateway.config.read_text())
    config["tools"] = {"agentToAgent": {"enabled": True}}
    company.gateway.config.write_text(json.dumps(config))


def set_up(company: LiveCompany) -> None:
    """One agent, on a gateway that runs: it takes the plugin, by a restart where there is no other way."""
    gateway = company.gateway
    done = subprocess.run(
        [*MAILBOXD, "setup", "--yes", "--json", "--no-canary", "--agent", "alpha", "--skip", "service"],
        env=gateway.env, cwd=gateway.root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    told = json.loads(done.stdout)
    problems = [one for one in told["steps"] if one["problem"]]
    findings = [finding for one in told["doctor"] for finding in one["findings"]]
    errors = [finding for finding in findings if finding["level"] == "error"]
    assert (done.returncode, problems, errors) == (0, [], []), f"{problems}{errors}{done.stderr}"
    plugins = [finding["level"] for finding in findings if finding["id"] == "plugin"]
    assert plugins == ["ok"]
    assert company.model.calls == []


def one_task_is_done(company: LiveCompany) -> None:
    alpha = company["alpha"]
    company.model.on(Text("Seven."), agent="alpha")
    alpha.drop("direct.md", task("direct"))
    alpha.until("direct")
    assert "Seven." in alpha.task("direct")["result"]
    assert company.model.per_attempt() == {("alpha", "direct", "1"): 1}


def a_dispatch_and_its_reply_cost_no_call(company: LiveCompany) -> None:
    alpha, beta = company["alpha"], company["beta"]
    company.model.reset()
    company.model.on(Text("Forty-two."), agent="beta")
    alpha.drop("dispatch.md", task("two", plan={"count": {"agent": "beta", "description": "Count"}}))
    alpha.until("two")
    assert "Forty-two." in alpha.task("two")["result"]
    assert company.model.per_attempt() == {("beta", "two.count", "1"): 1}
    assert len(company.model.calls) == 1
    assert [row["verdict"] for row in beta.mail()] == ["accepted"]


def what_is_said_in_a_chat_goes_to_the_model(company: LiveCompany) -> None:
    """Even in a session of mailboxd's, with the form of a message."""
    mail = len(company["beta"].mail())
    for key in ("agent:beta:main", "agent:beta:mailboxd:chat"):
        company.model.reset()
        words = {"sessionKey": key, "message": FROM_ALPHA, "idempotencyKey": key}
        sent = company.gateway.openclaw("gateway", "call", "chat.send", "--params", json.dumps(words), "--json")
        assert sent.returncode == 0, sent.stderr
        eventually(lambda: company.model.calls, 60, company.gateway.last_words)
    assert company["beta"].unread() == []
    assert len(company["beta"].mail()) == mail


def doctor_proves_the_plugin(company: LiveCompany, release: str) -> None:
    company.model.reset()
    told = Examined(company["alpha"], "--canary")
    assert (told.status, told.failed) == (0, set()), told.found
    assert release in told.text("openclaw-version")
    canaries = ("plugin", "canary-turn", "canary-message", "canary-filed")
    assert [told.level(slug) for slug in canaries] == ["ok"] * 4, told.found
    assert len(company.model.calls) == 1


def a_turn_whose_program_is_killed_is_asked_about(company: LiveCompany) -> None:
    """The gateway answers for the idempotency key of a run, in flight and ended, before it looks at the agent."""
    company.model.reset()
    company.model.on(Hang("Once."), agent="alpha")
    turns = paired(company)
    try:
        turn = turns.begin()
        until_asked(company.model, turn)
        os.kill(carrier(turns.directory), signal.SIGKILL)
        eventually(lambda: has_ended(turn.child.pidfd), 20)
        again = turns.gateway.adopt(turn.child.directory)
        assert again is not None
        company.model.release()
        for child in (again, turns.begin(call=turn.call).child):
            outcome = classify(finish(child, 200))
            assert isinstance(outcome, Succeeded), outcome
            assert (outcome.text, outcome.run_id) == ("Once.", turn.call)
        assert len(company.model.made(task=turn.call)) == 1
    finally:
        turns.gateway.close()
