"""A person on one host decides about work on another: by mail that this host signed, and only where that is allowed."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.keys import signed
from mailboxd.hub.client.decisions import parse
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.wire.names import Address
from tests.e2e.acting import ALONE, acting, asked, effect, happened, rows
from tests.e2e.support import eventually, message, task
from tests.hub.conftest import Joined
from tests.hub.farm import Farm
from tests.hub.test_fleet import ASKS, WORK, allow
from tests.hub.test_security import Spy, as_gamma
from tests.web.serve import served


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("beta.writer:q3.x", (Address("beta", "writer"), "q3.x")),
        ("Beta.Writer.Two:a", (Address("beta", "writer.two"), "a")),
        ("q3.x", None),
        ("beta:q3", None),
        ("be/ta.writer:q3", None),
    ],
)
def test_work_on_another_host_is_named_by_its_agent_and_its_name_there(name: str, parsed: object) -> None:
    assert parse(name) == parsed


@pytest.fixture
def farm(joined: Joined) -> Farm:
    """Beta lets persons on alpha decide, and nobody else."""
    farm = joined(
        {"alpha": {"main": WORK}, "beta": {"writer": WORK, "asker": ASKS}, "gamma": {"spy": WORK}}, approvals=ALONE
    )
    allow(farm["beta"], decide="[alpha]")
    farm.start()
    return farm


@pytest.mark.slow
def test_an_approval_from_another_host_counts_once_and_is_recorded_under_its_name(farm: Farm, tmp_path: Path) -> None:
    main, writer, witness = farm["alpha"]["main"], farm["beta"]["writer"], tmp_path / "witness"
    writer.drop("job.md", acting("job", [effect(witness)]))
    (name,) = asked(writer)
    place = f"beta.writer:{name[-6:]}"
    shown = main.call("show", place)
    assert str(witness) in shown.stdout, shown.stderr
    assert f"mailboxd approve {place.lower()} --digest" in shown.stdout
    done = main.call("approve", place, "--note", "seen")
    assert (done.returncode, done.stdout) == (0, "beta.writer: accepted\n"), done.stderr
    writer.until("job")
    assert happened(witness) == 1
    assert [row["resolved_by"] for row in rows(writer)] == ["alpha.operator"]
    again = main.call("reject", place, "--note", "no")
    assert again.returncode == 1
    assert "already" in again.stderr
    farm.at_rest()


@pytest.mark.slow
def test_answers_and_cancels_from_another_host_count(farm: Farm) -> None:
    main, asker = farm["alpha"]["main"], farm["beta"]["asker"]
    for name in ("one", "two"):
        asker.drop(f"{name}.md", task(name))
    eventually(lambda: len(asker.events("question.asked")) == 2, 30, farm.last_words)
    assert main.call("answer", "beta.asker:one", "The audited ones.").returncode == 0
    assert [(row["type"], row["sender"]) for row in asker.mail("accepted")][2:] == [("answer", "alpha.operator")]
    done = main.call("cancel", "beta.asker:two", "--reason", "enough")
    assert done.returncode == 0, done.stderr
    eventually(lambda: asker.phase("two") == "cancelled", 30, farm.last_words)
    gone = main.call("cancel", "beta.asker:three")
    assert (gone.returncode, gone.stderr) == (1, "beta.asker: orphan\n")


@pytest.mark.soak
def test_a_decision_waits_for_a_host_that_is_off(farm: Farm) -> None:
    beta, main = farm["beta"], farm["alpha"]["main"]
    beta["asker"].drop("one.md", task("one"))
    eventually(lambda: beta["asker"].events("question.asked"), 30, farm.last_words)
    beta.kill_hub()
    done = main.call("cancel", "beta.asker:one")
    assert (done.returncode, done.stdout.split(":")[1]) == (0, " under way")
    assert "operator: 0 not yet with the server, 1 without a receipt" in farm["alpha"].hub("status").stdout
    beta.start_hub()
    eventually(lambda: beta["asker"].phase("one") == "cancelled", 40, farm.last_words)


@pytest.mark.slow
def test_neither_a_host_that_may_not_nor_an_agent_decides(farm: Farm, tmp_path: Path) -> None:
    beta, writer, witness = farm["beta"], farm["beta"]["writer"], tmp_path / "witness"
    writer.drop("job.md", acting("job", [effect(witness)]))
    (name,) = asked(writer)
    refused = farm["gamma"]["spy"].call("approve", f"beta.writer:{name[-6:]}")
    assert refused.returncode == 69
    assert "decide in hub.yaml of beta does not let gamma decide there" in refused.stderr

    def approval(sender: str, message_id: str = "", **more: Any) -> bytes:
        said = {"approval_id": name, "decision": "approved", "to": "beta.writer", **more}
        said["message_id"] = message_id or f"msg_{secrets.token_hex(8)}"
        return message("approval", "job", sender=sender, **said).encode()

    gammas, alphas = (Membership.of(farm[host].env).key() for host in ("gamma", "alpha"))
    forged = approval("gamma.operator", "msg_gamma")

    async def does(spy: Spy) -> None:
        await spy.mails(farm["beta"], signed(forged, gammas), "msg_gamma")

    farm["gamma"].kill_hub()
    as_gamma(farm, does)
    why = "hub.yaml of beta does not let a person on gamma decide"
    eventually(lambda: why in beta.refused(), 30, farm.last_words)
    # past the hub process, as another program of that user could
    writer.drop("gamma.md", signed(forged, gammas))
    writer.drop("agent.md", signed(approval("alpha.main"), alphas))
    writer.drop("unsigned.md", approval("alpha.operator"))
    writer.drop("other.md", signed(approval("alpha.operator", to="beta.asker"), alphas))
    rules = dict.fromkeys(("gamma.md", "agent.md"), "permission-denied")
    rules |= dict.fromkeys(("unsigned.md", "other.md"), "unsigned")
    eventually(lambda: writer.rejections() == rules, 30, lambda: f"{writer.rejections()}\n{farm.last_words()}")
    main = farm["alpha"]["main"]
    inside = main.call("approve", f"beta.writer:{name[-6:]}", env={"OPENCLAW_SHELL": "exec"})
    assert inside.returncode == 1
    assert happened(witness) == 0
    assert writer.phase("job") == "awaiting_approval"


@pytest.mark.slow
def test_the_page_decides_and_searches_on_other_hosts(farm: Farm, tmp_path: Path) -> None:
    alpha, writer, asker = farm["alpha"], farm["beta"]["writer"], farm["beta"]["asker"]
    witness = tmp_path / "witness"
    allow(farm["beta"], show="[alpha]")
    writer.drop("job.md", acting("job", [effect(witness)]))
    asker.drop("one.md", task("one", "Count the penguins"))
    asker.drop("two.md", task("two"))
    (name,) = asked(writer)
    with served(alpha["main"].root, alpha.env) as page:
        request = f"/h/beta.writer/a/{name}"
        eventually(lambda: request in page.get("/").text and 'value="two"' in page.get("/").text, 40, farm.last_words)
        assert str(witness) in page.get(request).text
        assert page.form(request, decision="approved", digest="0" * 64).status == 409
        assert page.form(request, decision="approved").status == 303
        writer.until("job")
        assert happened(witness) == 1
        assert page.form("/", order="answer", task="one", text="The audited ones.").status == 303
        assert page.form("/", order="retry", task="two").status == 409
        assert page.form("/", order="cancel", task="two").status == 303
        eventually(lambda: asker.phase("two") == "cancelled", 30, farm.last_words)
        assert [row["type"] for row in asker.mail("accepted")] == ["task", "task", "answer", "cancel"]
        found = page.get("/search?q=penguins&w=hosts").words
        assert "beta.asker:one" in found
        assert "gamma: show in hub.yaml of gamma does not let alpha search there" in found
