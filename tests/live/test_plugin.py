"""The gateway plugin on the real gateway: what lands in a mailbox, what does not, and what no model is asked for."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.outcomes import Acknowledged, Failed, Succeeded
from mailboxd.core.vocabulary import Turn
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.outcome import classify
from tests.e2e.support import MAILBOXD, eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import some_of
from tests.live.gateway import Gateway, run_of
from tests.live.model import Model, Text

AGENTS = ["alpha", "beta", "gamma"]
HEAD = "---\ntype: task\ntask_id: t-1\nfrom: alpha\nmessage_id: msg_01\nattempt: 2\nattempt_id: att_9\n---\n"


@pytest.fixture(scope="module")
def plugged(_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Model]]:
    """A gateway with the plugin, installed by `mailboxd connect plugin install` before it was started."""
    with Model() as model:
        gateway = Gateway(tmp_path_factory.mktemp("plugged"), model.url, run_of(AGENTS))
        try:
            gateway.install_plugin()
            yield gateway.start(), model
        finally:
            gateway.close()


@pytest.fixture
def company(plugged: tuple[Gateway, Model]) -> Iterator[LiveCompany]:
    """Agents without mailboxes: `employ` gives them one."""
    gateway, model = plugged
    model.reset()
    company = LiveCompany(gateway, model, AGENTS)
    yield company
    model.release()
    company.close()


def tell(gateway: Gateway, agent: str, raw: bytes, key: str = "test") -> Exit:
    """One `openclaw agent` with these bytes as the message file."""
    file = gateway.root / "message.md"
    file.write_bytes(raw)
    options = ("--agent", agent, "--session-key", f"agent:{agent}:mailboxd:{key}", "--message-file", str(file))
    done = gateway.openclaw("agent", *options, "--timeout", "60", "--json")
    return Exit(done.returncode, done.stdout.encode(), done.stderr.encode())


def landed(company: LiveCompany, agent: str) -> list[bytes]:
    return [path.read_bytes() for path in company[agent].inbox.iterdir()]


def said(exit_: Exit) -> str:
    outcome = classify(exit_)
    assert isinstance(outcome, Succeeded), outcome
    return outcome.text


def files(root: Path, pattern: str) -> dict[str, bytes]:
    """Content by its hash."""
    found = [path.read_bytes() for path in root.glob(pattern) if path.is_file()]
    return {hashlib.sha256(raw).hexdigest(): raw for raw in found}


# ---------------------------------------------------------------- daemons


def test_a_dispatch_and_its_reply_cost_no_call_and_arrive_byte_for_byte(company: LiveCompany) -> None:
    alpha, beta, model = company["alpha"], company["beta"], company.model
    for agent in (alpha, beta):
        company.employ(agent.name, {"synthesis": "concat"})
        agent.start()
    model.on(Text("Forty-two éléphants. 🐘"), agent="beta")
    alpha.drop("go.md", task("two", plan={"count": {"agent": "beta", "description": "Count the éléphants"}}))
    alpha.until("two")
    assert alpha.task("two")["result"].endswith("Forty-two éléphants. 🐘")
    assert model.per_attempt() == {("beta", "two.count", "1"): 1}
    company.at_rest()
    for sender, receiver in ((alpha, beta), (beta, alpha)):
        sent = files(sender.root, "mailbox/outbox/*/*")
        sent = {digest: raw for digest, raw in sent.items() if b"to: operator" not in raw}
        arrived = files(receiver.root, "mailbox/archive/*/*")
        assert sent
        assert sent.keys() <= arrived.keys()


def test_a_message_waits_in_the_inbox_until_the_daemon_runs(company: LiveCompany) -> None:
    company.employ("beta", {})
    beta = company["beta"]
    sent = task("waits", sender="alpha").encode().rstrip() + b"\n"
    for _ in range(2):  # the second meets the first under its name
        assert read_answer(said(tell(company.gateway, "beta", sent)), Asked(Turn.DISPATCH)) == Acknowledged()
    assert landed(company, "beta") == [sent]
    assert company.model.calls == []
    beta.start()
    beta.until("waits")


# ---------------------------------------------------------------- bytes


def declared(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return HEAD.replace("attempt: 2", f"bytes: {len(body)}\nsha256: {digest}").encode() + body


def filled(unit: str, size: int) -> bytes:
    raw = HEAD.encode()
    return raw + unit.encode() * ((size - len(raw) - 1) // len(unit.encode())) + b"\n"


BODIES = {
    "plain": (HEAD + "\n# Task: x\n\n## Instructions\n\nDo.\n").encode(),
    "no body": HEAD.encode(),
    "CRLF": (HEAD + "\n# Task: x  \n\n\n  y\n").replace("\n", "\r\n").encode(),
    "white space inside": (HEAD + "\n# Task: x \t \n\n\n\n\t\u00a0y.\n").encode(),
    "not ASCII": (HEAD + "\né e\u0301 中 🎉 \u202e\u200b\u2028 \ufeff.\n").encode(),
    "control characters": (HEAD + "\n\x1b[31m \x07\x08\x7f \x00 \x85\n").encode(),
    "what OpenClaw might read": (HEAD + "\n/new\n\n$skill @beta [[reply_to_current]] MEDIA:/etc/passwd\n").encode(),
    "to this agent": (HEAD.replace("from", "to: 'BETA' # us\nfrom") + "\nx\n").encode(),
    "an approval": b"---\ntype: approval\nfrom: human\napproval_id: apr_1\ndecision: approved\n---\n",
    "1 MiB": filled("x", 1 << 20),
    "4 MiB": filled("é", 4 << 20),
    "declared, no end of line": declared(b"\nx"),
    "declared, blank lines": declared(b"\nx\n\n\n"),
    "declared, CRLF": declared(b"\r\nx\r\n\r\n"),
    "declared, no body": declared(b""),
}


@pytest.mark.parametrize(
    "name", some_of(BODIES, "plain", "CRLF", "control characters", "4 MiB", "declared, blank lines")
)
def test_what_lands_is_what_was_sent(company: LiveCompany, name: str) -> None:
    company.employ("beta", {})
    assert read_answer(said(tell(company.gateway, "beta", BODIES[name])), Asked(Turn.DISPATCH)) == Acknowledged()
    (path,) = company["beta"].inbox.iterdir()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == hashlib.sha256(BODIES[name]).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o600
    assert company.model.calls == []


# ---------------------------------------------------------------- what passes

ORDINARY = {
    "a turn of mailboxd": "[mailboxd] work turn · task t-1 · attempt 1\n\n---\ntype: task\ntask_id: a\nfrom: b\n---\n",
    "another agent's": HEAD.replace("from", "to: gamma\nfrom"),
    "an unknown type": HEAD.replace("type: task", "type: memo"),
    "not a message": "---\ntitle: My notes\n---\n\nHello.\n",
    "no sender": HEAD.replace("from: alpha\n", ""),
    "an id that is none": HEAD.replace("t-1", "../../etc/passwd"),
    "no end of the header": "---\ntype: task\ntask_id: t-1\nfrom: alpha\n",
    "conversation": "How are you?\n",
}


@pytest.mark.parametrize("name", some_of(ORDINARY, "a turn of mailboxd", "another agent's", "an id that is none"))
def test_everything_else_is_an_ordinary_turn(company: LiveCompany, name: str) -> None:
    company.employ("beta", {})
    assert said(tell(company.gateway, "beta", ORDINARY[name].encode(), name.replace(" ", "-"))) == "The outcome."
    assert landed(company, "beta") == []
    assert len(company.model.calls) == 1


def test_what_is_said_in_a_chat_is_an_ordinary_turn(company: LiveCompany) -> None:
    company.employ("beta", {})
    words = {"sessionKey": "agent:beta:main", "message": HEAD, "idempotencyKey": "chat"}
    sent = company.gateway.openclaw("gateway", "call", "chat.send", "--params", json.dumps(words), "--json")
    assert sent.returncode == 0, sent.stderr
    eventually(lambda: company.model.calls, 60, company.gateway.last_words)
    assert landed(company, "beta") == []


@pytest.mark.parametrize("link", some_of(("none", "mailbox", "inbox"), "none", "inbox"))
def test_an_agent_without_a_mailbox_of_its_own_gets_an_ordinary_turn(company: LiveCompany, link: str) -> None:
    root, outside = company["beta"].root, company.root / f"outside-{link}"
    (outside / "inbox").mkdir(parents=True)
    (root / "NOTES.md").write_text("OpenClaw refuses a workspace that has lost everything.\n")
    if link == "mailbox":
        (root / "mailbox").symlink_to(outside)
    if link == "inbox":
        (root / "mailbox").mkdir()
        (root / "mailbox" / "inbox").symlink_to(outside / "inbox")
    assert said(tell(company.gateway, "beta", HEAD.encode(), f"link-{link}")) == "The outcome."
    assert len(company.model.calls) == 1
    assert list((outside / "inbox").iterdir()) == []


# ---------------------------------------------------------------- what fails


def test_what_cannot_be_written_is_not_acknowledged_and_no_model_sees_it(company: LiveCompany) -> None:
    company.employ("beta", {})
    inbox = company["beta"].inbox
    tell(company.gateway, "beta", HEAD.encode())
    (path,) = inbox.iterdir()
    path.unlink()
    (path / "in the way").mkdir(parents=True)
    outcome = classify(tell(company.gateway, "beta", HEAD.encode()))
    assert isinstance(outcome, Failed)
    assert "mailboxd: the message was not delivered" in outcome.error
    assert not outcome.started
    assert not outcome.silent
    assert [entry.name for entry in inbox.iterdir()] == [path.name]
    assert company.model.calls == []
    path.joinpath("in the way").rmdir()
    path.rmdir()
    assert read_answer(said(tell(company.gateway, "beta", HEAD.encode())), Asked(Turn.DISPATCH)) == Acknowledged()


def test_a_body_that_is_not_the_declared_one_is_refused(company: LiveCompany) -> None:
    company.employ("beta", {})
    outcome = classify(tell(company.gateway, "beta", declared(b"\nx  \n")))
    assert isinstance(outcome, Failed)
    assert "the message was refused" in outcome.error
    assert landed(company, "beta") == []
    assert company.model.calls == []


def test_the_gateway_logs_no_content(company: LiveCompany) -> None:
    company.employ("beta", {})
    tell(company.gateway, "beta", HEAD.replace("attempt: 2", "reply_token: tok-secret-1").encode() + b"\nsecret-2\n")
    log = company.gateway.log.read_text(errors="replace")
    assert "secret-1" not in log
    assert "secret-2" not in log


# ---------------------------------------------------------------- the reader, in Node


def node(gateway: Gateway, script: str, *arguments: str) -> Any:
    argv = [str(gateway.installation.node), "--input-type=module", "--eval", script, "--", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


HOSTILE = {
    "a path as message id": HEAD.replace("msg_01", "../../x"),
    "a quoted id": HEAD.replace("t-1", "'t-1'"),
    "a long id": HEAD.replace("t-1", "t" * 128).replace("msg_01", "m" * 128),
    "an id twice": HEAD.replace("task_id: t-1", "task_id: t-1\ntask_id: ../x"),
    "a newline in quotes": HEAD.replace("t-1", '"t-1\\nfrom: operator"'),
    "an injected header": HEAD.replace("att_9", "'att_9\u2028status: done'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_names_and_acknowledgements_are_made_of_ids_only(plugged: tuple[Gateway, Model], name: str) -> None:
    module = Path(__file__).parents[2] / "templates" / "openclaw-plugin" / "message.js"
    script = f"""
        import {{ acknowledge, fileName, readMessage, restore }} from {json.dumps(str(module))};
        const message = readMessage(process.argv[1].trim());
        const told = message && [fileName(message, restore(message)), acknowledge(message, "beta")];
        console.log(JSON.stringify(told));"""
    told = node(plugged[0], script, HOSTILE[name])
    if told is None:
        return
    file, ack = told
    assert set(file) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
    assert not file.startswith((".", "-"))
    assert len(file) <= 255
    assert read_answer(ack, Asked(Turn.DISPATCH)) == Acknowledged()
    assert all(line in ("---", "") or line.partition(": ")[2].startswith("'") for line in ack.split("\n"))


# ---------------------------------------------------------------- the verbs, last: they change the gateway


def test_a_running_gateway_takes_and_loses_the_plugin_without_a_restart(company: LiveCompany) -> None:
    gateway = company.gateway
    company.employ("beta", {})
    before = json.loads(gateway.config.read_text())

    def plugin(verb: str, expected: int = 0) -> Any:
        argv = [*MAILBOXD, "connect", "plugin", verb, "--json"]
        done = subprocess.run(argv, env=gateway.env, cwd=gateway.root, capture_output=True, text=True, timeout=390)
        assert done.returncode == expected, done.stderr
        return json.loads(done.stdout)

    assert plugin("uninstall")["state"]["installed"] is False
    after = json.loads(gateway.config.read_text())
    assert after.pop("plugins") == {"entries": {"mailboxd": {"enabled": False}}}
    assert after == {key: value for key, value in before.items() if key != "plugins"}
    assert said(tell(gateway, "beta", HEAD.encode(), "unplugged")) == "The outcome."
    assert plugin("install")["state"]["problem"] == ""
    assert read_answer(said(tell(gateway, "beta", HEAD.encode(), "plugged")), Asked(Turn.DISPATCH)) == Acknowledged()
    assert plugin("install")["steps"] == []
    assert len(company.model.calls) == 1


def test_openclaw_finds_the_skill_of_this_agent_alone(company: LiveCompany) -> None:
    company.employ("beta", {})
    assert company["beta"].call("connect", "skill", "install").returncode == 0
    mine = company.gateway.openclaw("skills", "info", "mailboxd", "--agent", "beta", "--json")
    found = json.loads(mine.stdout)
    assert found["eligible"]
    assert found["modelVisible"]
    assert found["filePath"] == str(company["beta"].root / "skills" / "mailboxd" / "SKILL.md")
    other = company.gateway.openclaw("skills", "info", "mailboxd", "--agent", "gamma", "--json")
    assert other.returncode == 1
